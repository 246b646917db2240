/* SPDX-License-Identifier: MIT
 *
 * What a matrix of weights must be, and how fast it brings ranks together.
 */
#include <math.h>
#include <ringforge/rounds.h>

#include "base/base.h"

/* How far the sum of a row or a column may be from 1: a file may have six digits of each number. */
static const double tolerance = 1e-6;

static int check_sums(const double *weights, int ranks)
{
    for (int a = 0; a < ranks; a++) {
        double row = 0, column = 0;
        for (int b = 0; b < ranks; b++) {
            const double weight = weights[(size_t)a * (size_t)ranks + (size_t)b];
            if (!(weight >= 0) || !isfinite(weight))
                return rf_fail(RF_EINVAL,
                               "row %d of the weights: that of rank %d is %g; weights are finite "
                               "and not negative",
                               a, b, weight);
            row += weight;
            column += weights[(size_t)b * (size_t)ranks + (size_t)a];
        }
        if (fabs(row - 1) > tolerance || fabs(column - 1) > tolerance)
            return rf_fail(RF_EINVAL,
                           "%s %d of the weights has the sum %.9g; each row and each column must "
                           "have the sum 1, or the mean of the ranks is not kept",
                           fabs(row - 1) > tolerance ? "row" : "column", a,
                           fabs(row - 1) > tolerance ? row : column);
    }
    return RF_OK;
}

/* A doubly stochastic matrix whose graph is connected if directions are ignored is strongly
 * connected, too: what flows into a group of ranks flows out of it. */
static int check_connected(const double *weights, int ranks)
{
    int *found = rf_alloc((size_t)ranks * 2 * sizeof *found), count = 1;
    if (!found)
        return rf_fail(RF_ENOMEM, "out of memory for a graph of %d ranks", ranks);
    int *is_found = found + ranks;
    is_found[0] = 1;
    for (int next = 0; next < count; next++)
        for (int b = 0; b < ranks; b++) {
            const size_t a = (size_t)found[next];
            if (is_found[b] || (weights[a * (size_t)ranks + (size_t)b] == 0 &&
                                weights[(size_t)b * (size_t)ranks + a] == 0))
                continue;
            is_found[b] = 1;
            found[count++] = b;
        }
    int lost = 0;
    while (lost < ranks && is_found[lost])
        lost++;
    rf_free(found);
    if (count == ranks)
        return RF_OK;
    return rf_fail(RF_EINVAL,
                   "the graph of the weights falls apart: no path leads from rank 0 to rank %d, so "
                   "they would train two models",
                   lost);
}

int rf_mixing_check(const struct rf_mixing *mixing)
{
    if (!mixing || !rf_graph_name(mixing->graph) || mixing->ranks < 1)
        return rf_fail(RF_EINVAL, "there is no such graph, or it has no rank");
    if ((mixing->graph == RF_GRAPH_WEIGHTS) != (mixing->weights != NULL))
        return rf_fail(RF_EINVAL, "weights belong to the graph \"weights\", and only to it");
    if (!mixing->weights)
        return RF_OK;
    RETURN_IF_ERROR(check_sums(mixing->weights, mixing->ranks));
    return check_connected(mixing->weights, mixing->ranks);
}

/* out = A x, or A^T x */
static void multiply(const double *a, size_t n, bool transposed, const double *x, double *out)
{
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            out[transposed ? j : i] += a[i * n + j] * x[transposed ? i : j];
}

static double normalize(double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const double norm = sqrt(sum);
    for (size_t i = 0; i < n && norm > 0; i++)
        x[i] /= norm;
    return norm;
}

/* By power iteration of A^T A, A = W - 1/n. Values close to each other slow it down, and then
 * either is a good answer. */
static double largest_singular_value(const double *a, size_t n, double *x, double *y)
{
    double value = 0, before = -1;
    for (size_t i = 0; i < n; i++)
        x[i] = rf_philox_normal(1, 0, i);
    normalize(x, n);
    for (int k = 0; k < 100000 && fabs(value - before) > 1e-13; k++) {
        before = value;
        multiply(a, n, false, x, y);
        multiply(a, n, true, y, x);
        value = sqrt(normalize(x, n));
    }
    return value < 1e-7 ? 0 : value; /* the rounding of 1/n in each element */
}

int rf_mixing_contraction(const struct rf_mixing *mixing, int64_t round, double *out)
{
    RETURN_IF_ERROR(rf_mixing_check(mixing));
    const size_t n = (size_t)mixing->ranks;
    double *a = n < 1 << 15 ? rf_alloc((n * n + 2 * n) * sizeof *a) : NULL;
    if (!a)
        return rf_fail(RF_ENOMEM, "out of memory for the weights of %d ranks", mixing->ranks);
    int status = RF_OK;
    for (size_t i = 0; i < n && status == RF_OK; i++) {
        status = rf_mixing_row(mixing, round, (int)i, a + i * n);
        for (size_t j = 0; j < n; j++)
            a[i * n + j] -= 1.0 / (double)n;
    }
    if (status == RF_OK)
        *out = largest_singular_value(a, n, a + n * n, a + n * n + n);
    rf_free(a);
    return status;
}
