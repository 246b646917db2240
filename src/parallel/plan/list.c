/* SPDX-License-Identifier: MIT
 *
 * Writes lists: see list.h. Operands, waits and transfers are in arrays of the plan. Entries that a
 * pass has replaced stay there unused.
 */
#include "list.h"

#include "../../base/base.h"

static void out_of_memory(struct rf_writer *w)
{
    if (w->status == 0)
        w->status = rf_fail(RF_ENOMEM, "plan: out of memory for the list");
}

static struct rf_instruction *last(struct rf_writer *w)
{
    return &w->list->instructions[w->list->count - 1];
}

void rf_write(struct rf_writer *w, enum rf_verb verb, enum rf_lane lane, int block, int micro_batch)
{
    struct rf_list *list = w->list;
    if (w->status < 0)
        return;
    if (!rf_array_reserve((void **)&list->instructions, list->count, &list->capacity,
                          sizeof(*list->instructions))) {
        out_of_memory(w);
        return;
    }
    list->positions[lane]++;
    list->instructions[list->count++] =
        (struct rf_instruction){.verb = verb,
                                .lane = lane,
                                .block = block,
                                .micro_batch = micro_batch,
                                .behind = w->behind,
                                .first_operand = w->plan->operand_count,
                                .transfer = -1};
}

void rf_write_phase(struct rf_writer *w, int phase)
{
    if (w->status == 0)
        last(w)->phase = phase;
}

void rf_write_call(struct rf_writer *w, enum rf_verb call)
{
    if (w->status == 0)
        last(w)->call = call;
}

static void add_operand(struct rf_writer *w, enum rf_role role, int value)
{
    struct rf_plan *plan = w->plan;
    if (w->status == 0 && value < 0)
        w->status = value;
    if (w->status < 0)
        return;
    if (!rf_array_reserve((void **)&plan->operands, plan->operand_count, &plan->operand_capacity,
                          sizeof(*plan->operands)) ||
        !rf_array_reserve((void **)&plan->roles, plan->operand_count, &plan->role_capacity,
                          sizeof(*plan->roles))) {
        out_of_memory(w);
        return;
    }
    plan->roles[plan->operand_count] = (uint8_t)role;
    plan->operands[plan->operand_count++] = value;
}

void rf_write_in(struct rf_writer *w, enum rf_role role, int value)
{
    add_operand(w, role, value);
    if (w->status == 0)
        last(w)->ins++;
}

void rf_write_out(struct rf_writer *w, enum rf_role role, int value)
{
    add_operand(w, role, value);
    if (w->status == 0)
        last(w)->outs++;
}

void rf_write_ins_of(struct rf_writer *w, const struct rf_instruction *i)
{
    const struct rf_plan *plan = w->plan;
    for (int k = i->first_operand; k < i->first_operand + i->ins; k++)
        rf_write_in(w, (enum rf_role)plan->roles[k], plan->operands[k]);
}

void rf_write_outs_of(struct rf_writer *w, const struct rf_instruction *i)
{
    const struct rf_plan *plan = w->plan;
    const int first = i->first_operand + i->ins;
    for (int k = first; k < first + i->outs; k++)
        rf_write_out(w, (enum rf_role)plan->roles[k], plan->operands[k]);
}

void rf_write_transfer(struct rf_writer *w, struct rf_transfer transfer)
{
    struct rf_plan *plan = w->plan;
    if (w->status < 0)
        return;
    if (!rf_array_reserve((void **)&plan->transfers, plan->transfer_count, &plan->transfer_capacity,
                          sizeof(*plan->transfers))) {
        out_of_memory(w);
        return;
    }
    transfer.group = last(w)->lane;
    last(w)->transfer = plan->transfer_count;
    plan->transfers[plan->transfer_count++] = transfer;
}

void rf_write_copy(struct rf_writer *w, const struct rf_instruction *instruction)
{
    rf_write(w, instruction->verb, instruction->lane, instruction->block, instruction->micro_batch);
    if (w->status == 0)
        *last(w) = *instruction;
}

void rf_write_gather(struct rf_writer *w, int piece, enum rf_dtype dtype)
{
    struct rf_plan *plan = w->plan;
    const struct rf_plan_piece *p = &plan->pieces[piece];
    const bool copy = dtype != RF_F32;
    rf_write(w, RF_VERB_GATHER, plan->shard_lane, -1, -1);
    rf_write_in(
        w, RF_ROLE_FROM,
        rf_value_of(plan, copy ? RF_VALUE_COPY_SHARD : RF_VALUE_PARAM_SHARD, -1, -1, -1, piece));
    rf_write_out(w, RF_ROLE_TO,
                 rf_value_of(plan, copy ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, -1, -1, piece));
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_ALL_GATHER,
                                              .count = p->count,
                                              .dtype = dtype,
                                              .order = RF_ORDER_RING,
                                              .counts = p->counts});
}

void rf_write_replicas(struct rf_writer *w, int piece)
{
    struct rf_plan *plan = w->plan;
    if (!plan->groups[RF_LANE_REPLICATE].size)
        return;
    const bool narrow = rf_plan_narrows(plan);
    const int shard = rf_value_of(plan, narrow ? RF_VALUE_GRAD_NARROW_SHARD : RF_VALUE_GRAD_SHARD,
                                  -1, -1, -1, piece);
    rf_write(w, RF_VERB_REDUCE, RF_LANE_REPLICATE, -1, -1);
    rf_write_in(w, RF_ROLE_TERM, shard);
    rf_write_out(w, RF_ROLE_SUM, shard);
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                              .count = plan->pieces[piece].counts[plan->shard],
                                              .dtype = plan->policy.reduce_dtype,
                                              .order = RF_ORDER_RING});
}

void rf_write_narrow(struct rf_writer *w, int grads, int sent)
{
    rf_write(w, RF_VERB_CAST, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, RF_ROLE_GRAD, grads);
    rf_write_out(w, RF_ROLE_SENT, sent);
}

void rf_write_widen(struct rf_writer *w, int received, int grads)
{
    rf_write(w, RF_VERB_CAST, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, RF_ROLE_RECEIVED, received);
    rf_write_out(w, RF_ROLE_GRAD, grads);
}

int rf_write_end(struct rf_writer *w, struct rf_list *list)
{
    struct rf_list *written = w->list;
    if (w->status < 0) {
        rf_free(written->instructions);
        return w->status;
    }
    rf_free(list->instructions);
    *list = *written;
    return 0;
}
