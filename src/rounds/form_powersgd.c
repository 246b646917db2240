/* SPDX-License-Identifier: MIT
 *
 * The form powersgd (Vogels et al. 2019): a matrix M, rows x columns, is sent as P = M Q and then
 * Q = M^T P, of `rank` columns each, and arrives as P Q^T. Q is that of the exchange before, P is
 * orthonormal. Vectors, and matrices whose factors have no fewer numbers, are sent as they are.
 */
#include <float.h>
#include <math.h>

#include "base/base.h"
#include "form.h"

/* A column that is this much shorter without its parts along others is taken to be one of them. */
#define DEPENDENT 1e-5

struct matrix {
    int64_t at, rows, columns; /* at: of its first value */
    int64_t p, q;              /* of its first number in sums[0] and sums[1] */
    int rank;                  /* 0: it is sent as it is */
};

static int rank_of(const struct rf_form_factors *f, const struct rf_round_shape *shape)
{
    const int64_t less = shape->rows < shape->columns ? shape->rows : shape->columns;
    const int64_t rank = f->rank < less ? f->rank : less;
    return rank * (shape->rows + shape->columns) < shape->rows * shape->columns ? (int)rank : 0;
}

/* The next shape, from zero on; false: there is none. */
static bool next(const struct rf_form_factors *f, int index, struct matrix *m)
{
    if (index > 0) {
        m->at += m->rows * m->columns;
        m->p += m->rank ? m->rows * m->rank : m->rows * m->columns;
        m->q += m->columns * m->rank;
    }
    if (index == f->shape_count)
        return false;
    m->rows = f->shapes[index].rows;
    m->columns = f->shapes[index].columns;
    m->rank = rank_of(f, f->shapes + index);
    return true;
}

static int64_t factor_values(const struct rf_form_factors *f, int phase)
{
    struct matrix m = {0};
    int index = 0;
    while (next(f, index, &m))
        index++;
    return phase == 0 ? m.p : m.q;
}

/* ---- orthonormal columns --------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int64_t rows, int rank)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)a[i * rank] * (double)b[i * rank];
    return sum;
}

/* Subtracts from a column its parts along those before it, twice (Kahan's rule), and makes its
 * length 1; false: nothing is left, and it is 0. */
static bool make_normal(float *columns, int64_t rows, int rank, int k)
{
    float *column = columns + k;
    double length = sqrt(dot(column, column, rows, rank));
    const double before = length;
    for (int turn = 0; turn < 2; turn++)
        for (int j = 0; j < k; j++) {
            const double along = dot(column, columns + j, rows, rank);
            for (int64_t i = 0; i < rows; i++)
                column[i * rank] =
                    (float)((double)column[i * rank] - along * (double)columns[i * rank + j]);
        }
    length = sqrt(dot(column, column, rows, rank));
    const bool any = before > 0 && length > DEPENDENT * before;
    for (int64_t i = 0; i < rows; i++)
        column[i * rank] = any ? (float)((double)column[i * rank] / length) : 0;
    return any;
}

/* Of a Q, a column that is 0 would stay so for ever: it is drawn anew, the same on all ranks. */
static void make_orthonormal(const struct rf_form_factors *f, int index, float *columns,
                             int64_t rows, int rank, bool is_q)
{
    for (int k = 0; k < rank; k++)
        for (uint64_t draw = 0; !make_normal(columns, rows, rank, k) && is_q; draw++)
            for (int64_t i = 0; i < rows; i++)
                columns[i * rank + k] = rf_philox_normal(f->round * 64 + draw, (uint64_t)index,
                                                         (uint64_t)(i * rank + k));
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* all: a sum of magnitudes, which f32 must be able to express. */
static int check(double all, int index)
{
    if (all < (double)FLT_MAX)
        return RF_OK;
    return rf_fail(RF_EINVAL,
                   "a value of matrix %d is not finite, or too large, and cannot be sent as "
                   "\"powersgd\"",
                   index);
}

/* P = M Q, with an orthonormal Q. */
static int project(const struct rf_form_factors *f, const struct matrix *m, int index)
{
    float *q = f->next_warm + m->at, *p = f->sums[0] + m->p;
    const int rank = m->rank;
    double sum[RF_FORM_MOST_RANK], all = 0;
    memcpy(q, f->warm + m->at, (size_t)(m->columns * rank) * sizeof *q);
    make_orthonormal(f, index, q, m->columns, rank, true);
    for (int64_t i = 0; i < m->rows; i++) {
        const float *row = f->value + m->at + i * m->columns;
        memset(sum, 0, sizeof sum);
        for (int64_t j = 0; j < m->columns; j++)
            for (int k = 0; k < rank; k++)
                sum[k] += (double)row[j] * (double)q[j * rank + k];
        for (int k = 0; k < rank; k++) {
            p[i * rank + k] = (float)sum[k];
            all += fabs(sum[k]);
        }
    }
    return check(all, index);
}

/* Q = M^T P, with an orthonormal P; and what is lost of M. */
static void project_back(const struct rf_form_factors *f, const struct matrix *m, int index)
{
    float *q = f->sums[1] + m->q, *p = f->sums[0] + m->p;
    const int rank = m->rank;
    make_orthonormal(f, index, p, m->rows, rank, false);
    memset(q, 0, (size_t)(m->columns * rank) * sizeof *q);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++)
            for (int k = 0; k < rank; k++)
                q[j * rank + k] += f->value[m->at + i * m->columns + j] * p[i * rank + k];
    for (int64_t i = 0; f->feedback && i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            double sent = 0;
            for (int k = 0; k < rank; k++)
                sent += (double)p[i * rank + k] * (double)q[j * rank + k];
            const int64_t at = m->at + i * m->columns + j;
            f->feedback[at] = (float)((double)f->value[at] - sent);
        }
}

static int arrive(const struct rf_form_factors *f, const struct matrix *m, int index)
{
    const float *q = f->sums[1] + m->q, *p = f->sums[0] + m->p;
    const int rank = m->rank;
    double all = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            double sum = 0;
            for (int k = 0; k < rank; k++)
                sum += (double)p[i * rank + k] * (double)q[j * rank + k];
            f->mean[m->at + i * m->columns + j] = (float)sum;
            all += fabs(sum);
        }
    memcpy(f->next_warm + m->at, q, (size_t)(m->columns * rank) * sizeof *q);
    return check(all, index);
}

/* What is sent as it is. */
static void whole(const struct rf_form_factors *f, const struct matrix *m, int phase)
{
    const size_t bytes = (size_t)(m->rows * m->columns) * sizeof(float);
    if (phase == 0)
        memcpy(f->sums[0] + m->p, f->value + m->at, bytes);
    else if (phase == 2)
        memcpy(f->mean + m->at, f->sums[0] + m->p, bytes);
    else if (f->feedback)
        memset(f->feedback + m->at, 0, bytes);
}

static int phase_of(const struct rf_form_factors *f, int phase)
{
    struct matrix m = {0};
    for (int index = 0; next(f, index, &m); index++) {
        if (m.rank == 0)
            whole(f, &m, phase);
        else if (phase == 0)
            RETURN_IF_ERROR(project(f, &m, index));
        else if (phase == 1)
            project_back(f, &m, index);
        else
            RETURN_IF_ERROR(arrive(f, &m, index));
    }
    return RF_OK;
}

const struct rf_form_row rf_form_powersgd = {
    .name = "powersgd", .factor_values = factor_values, .phase = phase_of};
