/* SPDX-License-Identifier: MIT
 *
 * The chunks of the norm that a rank has: their number, which plans need for every shard, and their
 * table, which a run writes to its memory.
 */
#include <ringforge/ops.h>

#include "../../base/base.h"
#include "plan.h"

/* Chunks are counted for logical parameters, part after part. A parameter that several stages use
 * is counted on the stage with its first use. */
static bool counts(const struct rf_plan *plan, int param)
{
    const struct rf_plan_param *p = &plan->params[param];
    return p->logical == param && rf_plan_trains(plan, param) && rf_plan_holds(plan, p->block);
}

/* Whether element `at` of a piece is in a shard of it. */
static bool in_shard(const struct rf_plan_piece *piece, int shard, uint64_t at)
{
    return at >= piece->borders[shard] && at < piece->borders[shard + 1];
}

static uint64_t count_param(const struct rf_plan_param *param, const struct rf_plan_piece *piece,
                            int shard)
{
    const uint64_t first = param->first - piece->first;
    const uint64_t begin = piece->borders[shard], end = piece->borders[shard + 1];
    return rf_cut_count_chunks(&param->cut, RF_NORM_CHUNK, begin > first ? begin - first : 0,
                               end > first ? end - first : 0);
}

uint64_t rf_plan_chunks(const struct rf_plan *plan, int shard)
{
    uint64_t chunks = 0;
    for (int i = 0; i < plan->param_count; i++)
        if (counts(plan, i))
            chunks += count_param(&plan->params[i], &plan->pieces[plan->params[i].piece], shard);
    return chunks;
}

void rf_plan_number_chunks(struct rf_plan *plan)
{
    plan->chunk_count = 0;
    for (int i = 0; i < plan->param_count; i++)
        if (counts(plan, i)) {
            struct rf_plan_piece *piece = &plan->pieces[plan->params[i].piece];
            piece->chunks += count_param(&plan->params[i], piece, plan->shard);
        }
    for (int k = 0; k < plan->piece_count; k++) {
        plan->pieces[k].first_chunk = plan->chunk_count;
        plan->chunk_count += plan->pieces[k].chunks;
    }
}

/* The element in the gradients' memory, or that of the piece, at which a parameter's gradient
 * begins. */
static uint64_t grad_element(const struct rf_plan *plan, const struct rf_plan_param *param,
                             uint64_t first)
{
    const struct rf_plan_piece *piece = &plan->pieces[param->piece];
    const uint64_t sums = piece->counts[plan->shard] * (uint64_t)(plan->sum_slots - 1);
    if (rf_plan_in_backward(plan))
        return first - piece->first - piece->borders[plan->shard];
    if (plan->stage < 2)
        return first;
    return piece->part_first + rf_plan_padded(plan, sums) + first - piece->first -
           piece->borders[plan->shard];
}

/* Appends those of a parameter. */
static struct rf_norm_chunk *fill_param(const struct rf_plan *plan,
                                        const struct rf_plan_param *param,
                                        struct rf_norm_chunk *chunks)
{
    const struct rf_plan_piece *piece = &plan->pieces[param->piece];
    uint64_t at = 0, first, count;
    while (rf_cut_next_chunk(&param->cut, RF_NORM_CHUNK, &at, &first, &count)) {
        first += param->first;
        if (in_shard(piece, plan->shard, first - piece->first))
            *chunks++ = (struct rf_norm_chunk){.first = (uint32_t)grad_element(plan, param, first),
                                               .count = (uint32_t)count};
    }
    return chunks;
}

void rf_plan_fill_chunks(const struct rf_plan *plan, struct rf_norm_chunk *chunks)
{
    for (int k = 0; k < plan->piece_count; k++) {
        const struct rf_norm_chunk *end = chunks + plan->pieces[k].chunks;
        for (int i = 0; i < plan->param_count && chunks < end; i++)
            if (plan->params[i].piece == k && counts(plan, i))
                chunks = fill_param(plan, &plan->params[i], chunks);
        while (chunks < end)
            *chunks++ = (struct rf_norm_chunk){0};
    }
}

uint64_t rf_plan_squares_bytes(uint64_t chunks)
{
    return (chunks + (uint64_t)rf_add_squares_scratch((int64_t)chunks)) * sizeof(float);
}
