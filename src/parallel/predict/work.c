/* SPDX-License-Identifier: MIT
 *
 * The work of a step on a plan's rank: for each call of a block the block's cost (costs.c); for
 * other instructions the cost of a few passes over their operands, by rule.
 */
#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/verbs.h"

/* Elements of the values of this kind among `count` operands. */
static uint64_t elements(const struct rf_plan *plan, const int *operands, int count,
                         enum rf_value_kind kind)
{
    uint64_t bytes = 0;
    for (int k = 0; k < count; k++)
        if (plan->values[operands[k]].kind == kind)
            bytes += plan->values[operands[k]].bytes;
    return bytes / rf_dtype_bytes(rf_plan_type(plan, kind));
}

/* Whether a block's call finds earlier gradients of its own, and therefore adds to all of them. */
static bool adds(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *ins = rf_plan_operands(plan, i);
    for (int k = 0; k < i->ins; k++)
        if (plan->values[ins[k]].kind == RF_VALUE_GRAD)
            return true;
    return false;
}

/* a += b. */
static struct rf_work add_work(uint64_t count)
{
    return (struct rf_work){.launches = count > 0,
                            .flops = count,
                            .read = count * 2 * sizeof(float),
                            .written = count * sizeof(float)};
}

/* All pieces of a slot, or one. */
struct rf_work rf_work_zero(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *outs = rf_plan_operands(plan, i) + i->ins;
    const struct rf_plan_piece *one =
        i->outs == 1 ? &plan->pieces[plan->values[outs[0]].piece] : NULL;
    struct rf_work work = {0};
    for (int k = 0; k < plan->cleared_count; k++) {
        struct rf_plan_span span = plan->cleared[k];
        if (one && !rf_plan_clip(&span, one->first, rf_plan_padded(plan, one->count)))
            continue;
        work.launches++;
        work.written += span.count * sizeof(float);
    }
    return work;
}

struct rf_work rf_work_zero_whole(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const uint64_t count = elements(plan, rf_plan_operands(plan, i), i->outs, RF_VALUE_GRAD);
    return (struct rf_work){.launches = count > 0, .written = count * sizeof(float)};
}

/* The squares of gradients by the table of chunks. Adding the chunks' sums is counted as one value
 * for each. */
static struct rf_work squares(const struct rf_plan *plan, const struct rf_instruction *i,
                              uint64_t chunks)
{
    const uint64_t count = elements(plan, rf_plan_operands(plan, i), i->ins, RF_VALUE_GRAD_SHARD);
    return (struct rf_work){.launches = chunks > 0,
                            .flops = 2 * count,
                            .read = count * sizeof(float) + chunks * sizeof(struct rf_norm_chunk),
                            .written = chunks * sizeof(float)};
}

struct rf_work rf_work_squares(const struct rf_plan *plan, const struct rf_instruction *i)
{
    return squares(plan, i, plan->pieces[plan->values[rf_plan_operands(plan, i)[0]].piece].chunks);
}

/* If the pieces' squares are there, only these are added. */
struct rf_work rf_work_norm_partial(const struct rf_plan *plan, const struct rf_instruction *i)
{
    struct rf_work work = squares(plan, i, plan->chunk_count);
    if (rf_plan_in_backward(plan))
        work.read = work.written;
    return work;
}

struct rf_work rf_work_cast(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *ins = rf_plan_operands(plan, i), *outs = ins + i->ins;
    const uint64_t from = elements(plan, ins, i->ins, plan->values[ins[0]].kind);
    const uint64_t to = elements(plan, outs, i->outs, plan->values[outs[0]].kind);
    const uint64_t count = from < to ? from : to;
    return (struct rf_work){
        .launches = count > 0,
        .flops = count,
        .read = count * rf_dtype_bytes(rf_plan_type(plan, plan->values[ins[0]].kind)),
        .written = count * rf_dtype_bytes(rf_plan_type(plan, plan->values[outs[0]].kind))};
}

struct rf_work rf_work_merge(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *outs = rf_plan_operands(plan, i) + i->ins;
    return add_work(elements(plan, outs, i->outs, plan->values[outs[0]].kind));
}

struct rf_work rf_work_hold(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *outs = rf_plan_operands(plan, i) + i->ins;
    struct rf_work work = add_work(elements(plan, outs, i->outs, RF_VALUE_GRAD));
    work.flops = 0;
    work.read /= 2;
    return work;
}

/* The second operand belongs only to the tied use. */
struct rf_work rf_work_tie(const struct rf_plan *plan, const struct rf_instruction *i)
{
    return add_work(elements(plan, rf_plan_operands(plan, i) + 1, 1, RF_VALUE_GRAD_SHARD));
}

struct rf_work rf_work_step(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *outs = rf_plan_operands(plan, i) + i->ins;
    struct rf_work work = {0};
    if (i->outs == 0)
        return work;
    const enum rf_dtype state = rf_plan_state_type(plan, plan->values[outs[0]].piece);
    rf_optimizer_work(&plan->policy.optimizer, elements(plan, outs, i->outs, rf_plan_stored(plan)),
                      rf_plan_update_types(plan, state), &work);
    return work;
}

/* False for transfers, host instructions and scalars; *out is then unchanged. */
static bool flat_work(const struct rf_plan *plan, const struct rf_instruction *i,
                      struct rf_work *out)
{
#define WORK(verb, name, checker, work) [RF_VERB_##verb] = (work),
    static struct rf_work (*const works[RF_VERB_COUNT])(
        const struct rf_plan *, const struct rf_instruction *) = {RF_VERBS(WORK)};
#undef WORK
    if (!works[i->verb])
        return false;
    *out = works[i->verb](plan, i);
    return true;
}

/* A phase counts as an equal share of its call, because only the cost of the whole call is known.
 */
static void take_share(const struct rf_plan *plan, const struct rf_instruction *i,
                       struct rf_work *work)
{
    uint64_t phases = 1;
    while (rf_plan_exchange(plan, i->block, rf_call_of(i->verb), (int)phases - 1))
        phases++;
    const bool last = rf_plan_ends_call(plan, i);
    uint64_t *const parts[] = {&work->launches, &work->unranged, &work->flops,
                               &work->repeated, &work->read,     &work->written};
    for (size_t k = 0; phases > 1 && k < sizeof(parts) / sizeof(parts[0]); k++) {
        const uint64_t share = *parts[k] / phases;
        *parts[k] = last ? *parts[k] - share * (phases - 1) : share;
    }
}

bool rf_instruction_work(const struct rf_plan *plan, const struct rf_block_cost *costs,
                         const struct rf_instruction *i, struct rf_work *out)
{
    if (i->block < 0)
        return flat_work(plan, i, out);
    if (!costs)
        return false;
    if (i->verb == RF_VERB_FORWARD || i->verb == RF_VERB_RECOMPUTE)
        *out = costs[i->block].forward;
    else if (i->verb == RF_VERB_INVERT)
        *out = costs[i->block].invert;
    else if (i->verb == RF_VERB_BACKWARD_INPUT)
        *out = costs[i->block].backward_input[!adds(plan, i)];
    else if (i->verb == RF_VERB_BACKWARD_WEIGHT)
        *out = costs[i->block].backward_weight[!adds(plan, i)];
    else
        return flat_work(plan, i, out);
    if (i->verb == RF_VERB_RECOMPUTE || i->verb == RF_VERB_INVERT)
        out->repeated = out->flops;
    take_share(plan, i, out);
    return true;
}

void rf_plan_work(const struct rf_plan *plan, const struct rf_block_cost *costs,
                  struct rf_work *out)
{
    struct rf_work sum = {0};
    int count = 0;
    const struct rf_instruction *list = rf_plan_instructions(plan, &count);
    for (int k = 0; k < count; k++) {
        struct rf_work work;
        if (rf_instruction_work(plan, costs, &list[k], &work))
            rf_work_add(&sum, &work, 1);
    }
    *out = sum;
}
