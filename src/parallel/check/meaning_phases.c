/* SPDX-License-Identifier: MIT
 *
 * Effects of calls of blocks on tensor ranks, phase by phase, and of the exchanges between their
 * phases.
 */
#include "meaning.h"

#include "../../base/base.h"
#include "../plan/exchange.h"

/* Marks a value with the phase and the call that wrote it. */
static void mark(const struct rf_at *a, int value, enum rf_verb call, int phase)
{
    a->tokens[value].call = call;
    a->tokens[value].phase = phase;
}

static int demand_marked(const struct rf_at *a, int value, enum rf_token_state state,
                         enum rf_verb call, int phase)
{
    char text[RF_CHECK_TEXT];
    RETURN_IF_ERROR(rf_token_demand(a, value, state));
    if (a->tokens[value].call != call || a->tokens[value].phase != phase)
        return rf_check_fail(a->plan, a->i, "finds in %s what phase %d of %s left",
                             rf_check_value(a->plan, a->i, value, text), a->tokens[value].phase,
                             rf_verb_name(a->tokens[value].call));
    return 0;
}

int rf_phase_value(const struct rf_at *a, enum rf_value_kind kind, int block,
                   enum rf_token_state first, enum rf_token_state whole)
{
    const struct rf_instruction *i = a->i;
    const int micro_batch = i->micro_batch;
    const bool ends = rf_plan_ends_call(a->plan, i);
    const bool reads = i->phase > 0 || first != RF_TOKEN_NOTHING;
    const int in = reads ? rf_token_operand(a, false, kind, block, micro_batch, -1) : -1;
    const int out = rf_token_operand(a, true, kind, block, micro_batch, -1);
    if (out < 0)
        return rf_check_fail(a->plan, i, "lacks a result");
    if (i->phase > 0)
        RETURN_IF_ERROR(demand_marked(a, in, RF_TOKEN_PARTLY, i->verb, i->phase - 1));
    else if (reads)
        RETURN_IF_ERROR(rf_token_demand(a, in, first));
    rf_token_put(a, out, ends ? whole : RF_TOKEN_PARTLY);
    mark(a, out, i->verb, i->phase);
    return 0;
}

/* The operand that is exchange `number` of this call. */
static int exchange_of(const struct rf_at *a, bool out, int number)
{
    const int value =
        rf_token_operand(a, out, RF_VALUE_EXCHANGE, a->i->block, a->i->micro_batch, -1);
    const bool right = value >= 0 && a->plan->values[value].slot ==
                                         rf_exchange_slot(rf_call_of(a->i->verb), number);
    return right ? value : -1;
}

int rf_phase_exchanges(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    if (i->phase > 0) {
        const int in = exchange_of(a, false, i->phase - 1);
        /* If one rank has all parts, there is no exchange between two phases. */
        RETURN_IF_ERROR(
            demand_marked(a, in, rf_plan_tensor_ranks(a->plan) > 1 ? RF_TOKEN_HELD : RF_TOKEN_LOCAL,
                          i->verb, i->phase - 1));
        a->tokens[in].state = RF_TOKEN_NOTHING; /* read once */
    }
    if (rf_plan_ends_call(a->plan, i))
        return 0;
    const int out = exchange_of(a, true, i->phase);
    if (out < 0)
        return rf_check_fail(a->plan, i, "lacks the operand to exchange");
    rf_token_put(a, out, RF_TOKEN_LOCAL);
    mark(a, out, i->verb, i->phase);
    return 0;
}

int rf_meaning_exchange(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    const struct rf_transfer *t = rf_plan_transfer(a->plan, i);
    const int *operands = a->plan->operands + i->first_operand;
    const struct rf_exchange *x =
        rf_plan_exchange(a->plan, i->block, rf_call_of(i->call), i->phase);
    if (i->ins != 1 || i->outs != 1 || operands[0] != operands[1] || !x)
        return rf_check_fail(a->plan, i, "does not exchange a single value in place");
    const struct rf_value *v = &a->plan->values[operands[0]];
    if (v->kind != RF_VALUE_EXCHANGE || v->block != i->block || v->micro_batch != i->micro_batch ||
        v->slot != rf_exchange_slot(rf_call_of(i->call), i->phase))
        return rf_check_fail(a->plan, i, "exchanges another value");
    const bool gather = x->kind == RF_EXCHANGE_GATHER, scatter = x->kind == RF_EXCHANGE_SCATTER;
    const size_t count = (size_t)rf_shape_count(x->shape) /
                         (size_t)(gather || scatter ? rf_plan_tensor_ranks(a->plan) : 1);
    if (t->op != (gather    ? RF_COLL_ALL_GATHER
                  : scatter ? RF_COLL_REDUCE_SCATTER
                            : RF_COLL_ALL_REDUCE) ||
        t->count != count || t->dtype != rf_exchange_type(a->plan, x) ||
        t->order != rf_exchange_order(a->plan) || t->counts || t->root != 0 || t->round != 0 ||
        t->algorithm)
        return rf_check_fail(a->plan, i, "transfers %zu elements", t->count);
    rf_token_use_all(a);
    RETURN_IF_ERROR(demand_marked(a, operands[0], RF_TOKEN_LOCAL, i->call, i->phase));
    rf_token_put(a, operands[0], RF_TOKEN_HELD);
    mark(a, operands[0], i->call, i->phase);
    return 0;
}
