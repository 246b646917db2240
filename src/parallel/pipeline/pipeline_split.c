/* SPDX-License-Identifier: MIT
 *
 * Divides blocks into the stages of a pipeline: see pipeline.h. First finds the smallest bound
 * under which all stages fit, then the most even division under that bound. All sums of a stage are
 * added from its first block on, so that both steps round in the same way.
 */
#include "pipeline.h"

#include <math.h>

#include "../../base/base.h"

int rf_pipeline_check_stages(const struct rf_pipeline *p, int blocks)
{
    const int stages = rf_pipeline_stages(p);
    if (stages <= blocks)
        return 0;
    return rf_fail(
        RF_EINVAL,
        "pipeline %s: %d ranks of %d chunk%s are %d stages, but there are %d blocks, and "
        "a stage needs at least one; use fewer ranks or chunks",
        rf_pipeline_name(p->kind), p->ranks, p->chunks, p->chunks > 1 ? "s" : "", stages, blocks);
}

/* Whether `stages` stages suffice if none may cost more than the bound. */
static bool fits(const double *costs, int blocks, int stages, double bound)
{
    double sum = 0;
    for (int b = 0; b < blocks; b++) {
        if (costs[b] > bound)
            return false;
        sum += costs[b];
        if (sum > bound) {
            sum = costs[b];
            if (--stages < 1)
                return false;
        }
    }
    return true;
}

/* The smallest bound under which the stages fit: the largest sum of the best division. */
static double smallest_bound(const double *costs, int blocks, int stages)
{
    double low = 0, high = 0;
    for (int b = 0; b < blocks; b++)
        high += costs[b];
    if (fits(costs, blocks, stages, low))
        return low;
    for (;;) {
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            return high;
        if (fits(costs, blocks, stages, middle))
            high = middle;
        else
            low = middle;
    }
}

struct cell {
    double squares; /* smallest sum of squares of the stages so far; < 0: no division exists */
    int from;       /* first block of the last stage */
};

/* Entries for the first `stages` stages with the first `blocks` blocks. */
struct table {
    struct cell *cells;
    size_t width;
};

static struct cell *cell_of(const struct table *t, int stages, int blocks)
{
    return &t->cells[(size_t)stages * t->width + (size_t)blocks];
}

static void fill(const struct table *t, const double *costs, int blocks, int stages, double bound)
{
    for (size_t k = 0; k < ((size_t)stages + 1) * t->width; k++)
        t->cells[k].squares = -1;
    cell_of(t, 0, 0)->squares = 0;
    for (int s = 0; s < stages; s++)
        for (int from = s; from < blocks; from++) {
            const struct cell *before = cell_of(t, s, from);
            double sum = 0;
            for (int b = from; before->squares >= 0 && b < blocks; b++) {
                sum += costs[b];
                if (sum > bound)
                    break;
                struct cell *cell = cell_of(t, s + 1, b + 1);
                const double squares = before->squares + sum * sum;
                if (cell->squares < 0 || squares < cell->squares)
                    *cell = (struct cell){squares, from};
            }
        }
}

/* Divides costs by the largest one, so that squares stay in range. */
static int scale(const double *costs, int blocks, double *out)
{
    double most = 0;
    for (int b = 0; b < blocks; b++) {
        out[b] = costs ? costs[b] : 1;
        if (!(out[b] >= 0) || isinf(out[b]))
            return rf_fail(RF_EINVAL,
                           "pipeline: block %d costs %g; costs must be finite and not negative", b,
                           out[b]);
        most = out[b] > most ? out[b] : most;
    }
    int exponent = 0;
    frexp(most, &exponent);
    for (int b = 0; b < blocks; b++)
        out[b] = ldexp(out[b], -exponent);
    return 0;
}

int rf_pipeline_split(const struct rf_pipeline *p, const double *costs, int blocks, int *first)
{
    RETURN_IF_ERROR(rf_pipeline_check_stages(p, blocks));
    const int stages = rf_pipeline_stages(p);
    struct table table = {.width = (size_t)blocks + 1};
    double *scaled = rf_alloc((size_t)blocks * sizeof(*scaled));
    table.cells = rf_alloc(((size_t)stages + 1) * table.width * sizeof(*table.cells));
    int rc = scaled && table.cells
                 ? scale(costs, blocks, scaled)
                 : rf_fail(RF_ENOMEM, "pipeline: out of memory for %d blocks", blocks);
    if (rc == 0) {
        fill(&table, scaled, blocks, stages, smallest_bound(scaled, blocks, stages));
        first[stages] = blocks;
        for (int s = stages; s > 0; s--)
            first[s - 1] = cell_of(&table, s, first[s])->from;
    }
    rf_free(scaled);
    rf_free(table.cells);
    return rc;
}

int rf_pipeline_split_by_hand(const struct rf_pipeline *p, const int *counts, int count, int blocks,
                              int *first)
{
    const int stages = rf_pipeline_stages(p);
    RETURN_IF_ERROR(rf_pipeline_check_stages(p, blocks));
    if (count != stages)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: %d counts of blocks for %d stages; give one for each stage",
                       rf_pipeline_name(p->kind), count, stages);
    long long sum = 0;
    for (int s = 0; s < stages; s++) {
        if (counts[s] < 1)
            return rf_fail(RF_EINVAL,
                           "pipeline %s: %d blocks in stage %d; every stage needs at least one",
                           rf_pipeline_name(p->kind), counts[s], s);
        sum += counts[s];
    }
    if (sum != blocks)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: the stages have %lld blocks together, but there are %d; give "
                       "each block to one stage",
                       rf_pipeline_name(p->kind), sum, blocks);
    first[0] = 0;
    for (int s = 0; s < stages; s++)
        first[s + 1] = first[s] + counts[s];
    return 0;
}
