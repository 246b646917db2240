/* SPDX-License-Identifier: MIT
 *
 * Pass: updates in the backward pass (policy.update_in_backward; Lv et al. 2023, LOMO): a piece is
 * updated when the last instruction that writes its gradients is done, and its gradients are
 * dropped. The number of tokens, by which gradients are divided, is
 * known after the forward passes, so losses are shared before the first update. Nothing may need
 * the norm: it is summed piece by piece, with the same bits, and known at the end. If the last
 * instruction is a transfer, the update comes RF_SETTLE blocks later, so that compute does not wait
 * for it.
 */
#include "../../base/base.h"
#include "../plan/exchange.h"
#include "passes.h"
#include "update.h"

enum { NONE = -1 };

struct updates {
    struct rf_writer w;
    struct rf_plan *plan;
    const struct rf_list *list;
    int *last; /* by piece: index of the last instruction that writes its gradients or its uses' */
    int *age; /* by piece: blocks since then; NONE: it is still to come, or the update is written */
    bool begun;
};

/* The piece that a tied use is added to, or the piece itself. */
static int owner_of(const struct rf_plan *plan, int piece)
{
    const int use = plan->pieces[piece].use;
    return use < 0 ? piece : plan->params[plan->params[use].owner].grad_piece;
}

static void find_last(struct updates *p)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->piece_count; k++)
        p->last[k] = p->age[k] = NONE;
    for (int at = 0; at < p->list->count; at++) {
        const struct rf_instruction *i = &p->list->instructions[at];
        const int *outs = plan->operands + i->first_operand + i->ins;
        for (int k = 0; k < i->outs; k++) {
            const struct rf_value *v = &plan->values[outs[k]];
            if (v->kind == RF_VALUE_GRAD || v->kind == RF_VALUE_GRAD_SHARD)
                p->last[owner_of(plan, v->piece)] = at;
        }
    }
}

static void update(struct updates *p, int piece)
{
    p->age[piece] = NONE;
    if (!p->begun) {
        rf_write_loss(&p->w);
        rf_write_begin_step(&p->w);
    }
    p->begun = true;
    rf_write(&p->w, RF_VERB_SQUARES, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(&p->w, RF_ROLE_GRAD, rf_value_of(p->plan, RF_VALUE_GRAD_SHARD, -1, -1, -1, piece));
    rf_write_in(&p->w, RF_ROLE_CHUNKS, rf_value_of(p->plan, RF_VALUE_CHUNKS, -1, -1, -1, -1));
    rf_write_out(&p->w, RF_ROLE_SQUARES, rf_value_of(p->plan, RF_VALUE_SQUARES, -1, -1, -1, piece));
    rf_write_piece_update(&p->w, piece);
}

/* Updates the pieces that are complete and have settled. */
static void update_settled(struct updates *p, bool all)
{
    for (int k = 0; k < p->plan->trained_pieces; k++) {
        if (p->age[k] == NONE)
            continue;
        const bool sent = p->list->instructions[p->last[k]].lane != RF_LANE_COMPUTE ||
                          p->plan->pieces[k].sums_tensor;
        if (all || p->age[k] >= (sent ? RF_SETTLE : 0))
            update(p, k);
    }
}

static void complete(struct updates *p, int at)
{
    for (int k = 0; k < p->plan->trained_pieces; k++) {
        if (p->last[k] != at || p->plan->pieces[k].use >= 0)
            continue;
        rf_write_ties(&p->w, k);
        rf_write_tensor_sums(&p->w, k);
        p->age[k] = 0;
    }
}

static void write_all(struct updates *p)
{
    const struct rf_plan *plan = p->plan;
    find_last(p);
    for (int at = 0; at < p->list->count; at++) {
        const struct rf_instruction *i = &p->list->instructions[at];
        rf_write_copy(&p->w, i);
        complete(p, at);
        if (i->verb != RF_VERB_BACKWARD_WEIGHT || !rf_plan_ends_call(plan, i))
            continue;
        for (int k = 0; k < plan->trained_pieces; k++)
            p->age[k] += p->age[k] != NONE;
        update_settled(p, false);
    }
    update_settled(p, true);
    rf_write_partials(&p->w);
    rf_write_norm(&p->w);
}

int rf_pass_in_backward(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    const size_t pieces = (size_t)plan->piece_count + 1;
    if (!rf_plan_in_backward(plan))
        return 0;
    struct updates p = {.w = {.plan = plan, .list = &written}, .plan = plan, .list = list};
    p.last = rf_alloc(pieces * sizeof(*p.last));
    p.age = rf_alloc(pieces * sizeof(*p.age));
    if (p.last && p.age)
        write_all(&p);
    else
        p.w.status = rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    rf_free(p.last);
    rf_free(p.age);
    return rf_write_end(&p.w, list);
}
