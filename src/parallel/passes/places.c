/* SPDX-License-Identifier: MIT
 *
 * The numbers by which elements draw the random words of stochastic rounding. An element's number
 * belongs to the whole model: its index in the flat buffer of a single rank that has all blocks,
 * unsplit. So every copy of an element draws the same numbers, on any mesh. A rank whose own flat
 * buffer differs needs a table (struct rf_place_run); data-parallel ranks need none.
 */
#include <ringforge/ops.h>

#include "../../base/base.h"
#include "passes.h"

enum { RUN_WORDS = sizeof(struct rf_place_run) / sizeof(uint32_t) };

static bool is_wide(const struct rf_plan *plan, int param)
{
    return plan->copy_type != RF_F32 && !rf_plan_narrow(&plan->params[param]);
}

/* The order is that of layout.c for one rank with all blocks. */
static void find_first(const struct rf_plan *plan, uint64_t *first)
{
    uint64_t at = 0;
    for (int zone = 0; zone < 4; zone++)
        for (int i = plan->param_count - 1; i >= 0; i--) {
            if (plan->params[i].logical != i || !rf_plan_trains(plan, i) ||
                is_wide(plan, i) != zone % 2 ||
                (rf_plan_codes(plan) && !rf_plan_coded(plan, i)) != zone / 2)
                continue;
            first[i] = at;
            at += rf_plan_padded(plan, (uint64_t)rf_shape_count(plan->params[i].cut.shape));
        }
}

/* Whether the parameter is trained, and has storage on this rank. */
static bool is_stored(const struct rf_plan *plan, int param)
{
    return plan->params[param].owner == param && rf_plan_trains(plan, param);
}

/* Appends the runs of a parameter to `runs`, if it is not NULL. Returns their number. */
static uint64_t list_runs(const struct rf_plan *plan, const struct rf_plan_param *p, uint64_t first,
                          struct rf_place_run *runs)
{
    uint64_t count = 0;
    for (uint64_t at = 0; at < (uint64_t)p->count; count++) {
        const struct rf_cut_run run = rf_cut_run_at(&p->cut, at);
        const uint64_t end = at + run.count;
        const bool last = end >= (uint64_t)p->count;
        if (runs)
            runs[count] = (struct rf_place_run){
                p->first + (last ? rf_plan_padded(plan, (uint64_t)p->count) : end),
                first + run.first - p->first - at};
        at = end;
    }
    return count;
}

static int compare_ends(const void *a, const void *b)
{
    const uint64_t x = ((const struct rf_place_run *)a)->end;
    const uint64_t y = ((const struct rf_place_run *)b)->end;
    return x < y ? -1 : x > y;
}

/* Whether this rank's flat buffer differs from that of a rank with all blocks, unsplit. The same on
 * all ranks of a mesh. */
static bool is_displaced(const struct rf_plan *plan)
{
    return plan->mesh.pp > 1 || (rf_plan_all_parts(plan) > 1 && !rf_plan_shares_sequences(plan));
}

int rf_pass_places(struct rf_plan *plan)
{
    const bool draws = plan->policy.optimizer.stochastic_rounding && plan->copy_type != RF_F32;
    plan->place_runs = 0;
    if (!draws || plan->policy.forward_only || !is_displaced(plan))
        return 0;
    for (int i = 0; i < plan->param_count; i++)
        if (is_stored(plan, i))
            plan->place_runs += list_runs(plan, &plan->params[i], 0, NULL);
    return 0;
}

/* The words before the runs. */
static uint64_t block_words(const struct rf_plan *plan, int shard)
{
    return rf_plan_place_words(plan, shard) - plan->place_runs * RUN_WORDS;
}

/* The words of the blocks of one piece's shard. */
static void fill_piece(const struct rf_plan *plan, const struct rf_plan_piece *piece,
                       const struct rf_place_run *runs, uint32_t *words)
{
    const uint64_t before = block_words(plan, plan->shard),
                   begin = piece->first + piece->borders[plan->shard];
    const uint64_t word = piece->shard_first / RF_FLAT_GRAIN * 2;
    const uint64_t blocks = rf_plan_padded(plan, piece->counts[plan->shard]) / RF_FLAT_GRAIN;
    uint64_t low = 0, high = plan->place_runs - 1;
    while (low < high) { /* the first run that ends after the first element */
        const uint64_t middle = (low + high) / 2;
        if (runs[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        while (low + 1 < plan->place_runs && runs[low].end <= begin + b * RF_FLAT_GRAIN)
            low++;
        words[word + 2 * b] = (uint32_t)(before + low * RUN_WORDS - (word + 2 * b));
        words[word + 2 * b + 1] = (uint32_t)(begin / RF_FLAT_GRAIN + b);
    }
}

int rf_plan_fill_places(const struct rf_plan *plan, uint32_t *words)
{
    struct rf_place_run *runs =
        (struct rf_place_run *)(void *)(words + block_words(plan, plan->shard));
    uint64_t *first = rf_alloc(((size_t)plan->param_count + 1) * sizeof(*first)), at = 0;
    if (!first)
        return rf_fail(RF_ENOMEM, "run: out of host memory for the places of parameters");
    find_first(plan, first);
    for (int i = 0; i < plan->param_count; i++)
        if (is_stored(plan, i))
            at += list_runs(plan, &plan->params[i], first[plan->params[i].logical], &runs[at]);
    rf_free(first);
    qsort(runs, (size_t)plan->place_runs, sizeof(*runs), compare_ends);
    for (int k = 0; k < plan->trained_pieces; k++)
        if (plan->pieces[k].use < 0)
            fill_piece(plan, &plan->pieces[k], runs, words);
    return 0;
}
