/* SPDX-License-Identifier: MIT
 *
 * Checks the roles of operands. The executor finds operands by their roles, and the rest of the
 * checker by their values. So every operand must have the role that follows from its value, and
 * roles must be in the form that the executor reads: operands of a role follow each other, and a
 * parameter's piece has the parameter's number.
 */
#include "../../base/base.h"
#include "check.h"

/* The roles of values that most instructions use for one purpose; RF_ROLE_COUNT: none. */
static enum rf_role usual_role(enum rf_value_kind kind)
{
    static const struct {
        enum rf_value_kind kind;
        enum rf_role role;
    } roles[] = {
        {RF_VALUE_PARAM, RF_ROLE_PARAM},
        {RF_VALUE_COPY, RF_ROLE_COPY},
        {RF_VALUE_GRAD, RF_ROLE_GRAD},
        {RF_VALUE_GRAD_SHARD, RF_ROLE_GRAD},
        {RF_VALUE_GRAD_PART, RF_ROLE_GRAD},
        {RF_VALUE_GRAD_TIED, RF_ROLE_GRAD},
        {RF_VALUE_HOST_GRAD, RF_ROLE_GRAD},
        {RF_VALUE_TOKENS, RF_ROLE_INPUT},
        {RF_VALUE_TARGETS, RF_ROLE_TARGETS},
        {RF_VALUE_LOSSES, RF_ROLE_LOSSES},
        {RF_VALUE_OUT, RF_ROLE_OUTPUT},
        {RF_VALUE_DOUT, RF_ROLE_OUTPUT_GRAD},
        {RF_VALUE_SAVED, RF_ROLE_SAVED},
        {RF_VALUE_SCALARS, RF_ROLE_SCALARS},
        {RF_VALUE_NORM, RF_ROLE_NORM},
        {RF_VALUE_PARTIALS, RF_ROLE_PARTIALS},
        {RF_VALUE_SQUARES, RF_ROLE_SQUARES},
        {RF_VALUE_CHUNKS, RF_ROLE_CHUNKS},
        {RF_VALUE_DECAY, RF_ROLE_DECAY},
        {RF_VALUE_PLACES, RF_ROLE_PLACES},
        {RF_VALUE_SCRATCH, RF_ROLE_SCRATCH},
        {RF_VALUE_WORKSPACE, RF_ROLE_WORKSPACE},
        {RF_VALUE_SAVED_FOR_WEIGHT, RF_ROLE_SAVED_FOR_WEIGHT},
    };
    for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++)
        if (roles[k].kind == kind)
            return roles[k].role;
    return RF_ROLE_COUNT;
}

static bool is_narrow(const struct rf_value *v)
{
    return v->kind == RF_VALUE_GRAD_NARROW || v->kind == RF_VALUE_GRAD_NARROW_SHARD;
}

static enum rf_role role_in_block(const struct rf_instruction *i, const struct rf_value *v,
                                  bool out)
{
    const bool backward = i->verb == RF_VERB_BACKWARD_INPUT || i->verb == RF_VERB_BACKWARD_WEIGHT;
    if (v->kind == RF_VALUE_EXCHANGE)
        return out ? RF_ROLE_EXCHANGE : RF_ROLE_EXCHANGED;
    if (v->kind == RF_VALUE_STATE) /* 2bw: the version before the last update */
        return v->slot == RF_STATE_BEFORE ? RF_ROLE_PARAM : RF_ROLE_COUNT;
    if (v->kind == RF_VALUE_OUT && v->block != i->block) /* INVERT writes it */
        return RF_ROLE_INPUT;
    if (v->kind == RF_VALUE_OUT && backward) /* the last output has its own gradient */
        return RF_ROLE_OUTPUT_GRAD;
    if (v->kind == RF_VALUE_DOUT && v->block != i->block)
        return RF_ROLE_INPUT_GRAD;
    return usual_role(v->kind);
}

static enum rf_role role_in_load(const struct rf_value *v, bool out)
{
    const bool before =
        v->kind == RF_VALUE_SCALARS ? v->slot == RF_SCALARS_BEFORE : v->slot == RF_SLOT_BEFORE;
    if (!out || before)
        return out ? RF_ROLE_TO : RF_ROLE_FROM;
    return v->kind == RF_VALUE_SCALARS && v->slot == RF_SCALARS_NOW ? RF_ROLE_STEP_SCALARS
                                                                    : usual_role(v->kind);
}

/* in_place: the value is written, too. */
static enum rf_role role_in_sum(const struct rf_instruction *i, const struct rf_value *v, bool out,
                                bool in_place)
{
    if (out || (in_place && i->verb != RF_VERB_REDUCE))
        return RF_ROLE_SUM;
    switch (v->kind) {
    case RF_VALUE_GRAD_PART:
        return i->verb == RF_VERB_REDUCE ? RF_ROLE_SUM : RF_ROLE_SHARD_TERM;
    case RF_VALUE_GRAD_TIED:
        return RF_ROLE_SHARD_TERM;
    default:
        return i->verb == RF_VERB_TIE ? RF_ROLE_USE_TERM : RF_ROLE_TERM;
    }
}

static enum rf_role role_in_update(const struct rf_plan *plan, const struct rf_value *v)
{
    if (v->kind == rf_plan_stored(plan))
        return RF_ROLE_PARAM;
    switch (v->kind) {
    case RF_VALUE_STATE:
    case RF_VALUE_HOST_STATE:
        return rf_state_role(rf_state_of_slot(v->slot));
    case RF_VALUE_COPY:
        return RF_ROLE_COPY_BEFORE;
    case RF_VALUE_COPY_SHARD:
        return RF_ROLE_COPY;
    default:
        return usual_role(v->kind);
    }
}

/* The role that operand k must have. */
static enum rf_role role_of(const struct rf_plan *plan, const struct rf_instruction *i, int k)
{
    const int *operands = rf_plan_operands(plan, i);
    const struct rf_value *v = &plan->values[operands[k]];
    const bool out = k >= i->ins;
    bool in_place = false;
    for (int other = i->ins; other < i->ins + i->outs; other++)
        in_place |= operands[other] == operands[k];
    if (rf_verb_calls_block(i->verb))
        return role_in_block(i, v, out);
    switch (i->verb) {
    case RF_VERB_LOAD:
        return role_in_load(v, out);
    case RF_VERB_MERGE:
    case RF_VERB_TIE:
    case RF_VERB_REDUCE:
        return role_in_sum(i, v, out, in_place);
    case RF_VERB_STEP:
    case RF_VERB_HOST_STEP:
        return role_in_update(plan, v);
    case RF_VERB_HOLD:
    case RF_VERB_GATHER:
    case RF_VERB_FETCH:
    case RF_VERB_EVICT:
    case RF_VERB_READ:
    case RF_VERB_WRITE:
    case RF_VERB_EXCHANGE:
        return out ? RF_ROLE_TO : RF_ROLE_FROM;
    case RF_VERB_BROADCAST:
        return v->kind == RF_VALUE_SCALARS ? RF_ROLE_SCALARS : RF_ROLE_PARAM;
    case RF_VERB_CAST:
        return !is_narrow(v) ? usual_role(v->kind) : out ? RF_ROLE_SENT : RF_ROLE_RECEIVED;
    default:
        return usual_role(v->kind);
    }
}

/* The operands that the executor uses as a block's parameters and their gradients. Either gradients
 * are among the read operands as well, or none is. */
static int check_params(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const struct rf_operands wide = rf_plan_ins(plan, i, RF_ROLE_PARAM);
    const struct rf_operands narrow = rf_plan_ins(plan, i, RF_ROLE_COPY);
    const struct rf_operands grads = rf_plan_outs(plan, i, RF_ROLE_GRAD);
    const struct rf_operands added = rf_plan_ins(plan, i, RF_ROLE_GRAD);
    for (int k = 0; k < plan->blocks[i->block].param_count; k++) {
        const struct rf_plan_param *p = &plan->params[plan->first_param[i->block] + k];
        const struct rf_operands from = rf_plan_narrow(p) ? narrow : wide;
        if (p->operand >= from.count || plan->values[from.values[p->operand]].piece != p->piece)
            return rf_check_fail(plan, i, "does not find %.100s where it looks for it",
                                 p->desc->name);
        if (grads.count > 0 && p->grad_operand >= 0 &&
            (p->grad_operand >= grads.count ||
             plan->values[grads.values[p->grad_operand]].piece != p->grad_piece))
            return rf_check_fail(plan, i,
                                 "does not find the gradient of %.100s where it looks for it",
                                 p->desc->name);
    }
    return added.count == 0 || added.count == grads.count
               ? 0
               : rf_check_fail(plan, i, "adds to some of its gradients, and overwrites others");
}

int rf_check_roles(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const uint8_t *roles = rf_plan_roles(plan, i);
    char text[RF_CHECK_TEXT];
    for (int k = 0; k < i->ins + i->outs; k++) {
        const enum rf_role role = (enum rf_role)roles[k], wanted = role_of(plan, i, k);
        const int begin = k < i->ins ? 0 : i->ins;
        if (role != wanted)
            return rf_check_fail(
                plan, i, "takes %s as %s, not as %s",
                rf_check_value(plan, i, rf_plan_operands(plan, i)[k], text), rf_role_name(role),
                wanted < RF_ROLE_COUNT ? rf_role_name(wanted) : "an operand of any kind");
        for (int other = begin; other + 1 < k; other++)
            if (roles[other] == role && roles[k - 1] != role)
                return rf_check_fail(plan, i, "has other operands between those for %s",
                                     rf_role_name(role));
    }
    return rf_verb_calls_block(i->verb) ? check_params(plan, i) : 0;
}
