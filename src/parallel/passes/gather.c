/* SPDX-License-Identifier: MIT
 *
 * Pass: parameters that are sharded (ZeRO-3; Zhao et al. 2023, PyTorch FSDP) or in host memory.
 * Consecutive calls of a block are a visit. The parameters that a visit reads are gathered or
 * fetched when the previous visit begins, so that they arrive while that one computes. At most two
 * blocks' parameters are in memory at once. Parameters of the previous visit are reused; otherwise
 * each visit gathers again, because lifetimes.c reuses the memory after the last reader. This pass
 * also removes phantoms, which stand for rounds in which this rank computes nothing but takes part
 * in transfers.
 */
#include "../../base/base.h"
#include "../plan/list.h"
#include "passes.h"

/* The two forms of a piece. */
enum form { WHOLE, NARROW, FORMS };

struct pass {
    struct rf_writer w;
    struct rf_plan *plan;
    const struct rf_list *list;
    int *visit;        /* by piece and form: the last visit that has it; -1: none */
    int visits, block; /* the visits that have begun */
};

/* This rank has the whole piece in host memory. */
static void fetch_piece(struct pass *p, int piece, enum form form)
{
    const bool narrow = form == NARROW;
    rf_write(&p->w, RF_VERB_FETCH, RF_LANE_FETCH, -1, -1);
    rf_write_in(&p->w, RF_ROLE_FROM,
                rf_value_of(p->plan, narrow ? RF_VALUE_COPY_SHARD : RF_VALUE_PARAM_SHARD, -1, -1,
                            -1, piece));
    rf_write_out(&p->w, RF_ROLE_TO,
                 rf_value_of(p->plan, narrow ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, -1, -1, piece));
}

/* Gathers what a block reads, unless the previous visit has it, or any earlier visit if all pieces
 * are kept. */
static void gather_block(struct pass *p, int block, int visit)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->blocks[block].param_count; k++) {
        const struct rf_plan_param *param = &plan->params[plan->first_param[block] + k];
        const enum form form = rf_plan_narrow(param) ? NARROW : WHOLE;
        int *had = &p->visit[param->piece * FORMS + form];
        const bool there = *had == visit || *had == visit - 1 || (*had >= 0 && plan->keep_units);
        *had = visit;
        if (there)
            continue;
        if (plan->shards > 1)
            rf_write_gather(&p->w, param->piece, form == NARROW ? param->desc->dtype : RF_F32);
        else
            fetch_piece(p, param->piece, form);
    }
}

/* The block of the visit after the one at `at`; -1: it is the last visit. */
static int next_block(const struct pass *p, int at)
{
    const struct rf_instruction *list = p->list->instructions;
    for (int k = at; k < p->list->count; k++)
        if (rf_verb_calls_block(list[k].verb) && list[k].block != list[at].block)
            return list[k].block;
    return -1;
}

static void begin_visit(struct pass *p, int at)
{
    const int block = p->list->instructions[at].block;
    const bool ahead = !p->plan->policy.no_prefetch;
    const int next = ahead ? next_block(p, at) : -1;
    if (p->visits == 0 || !ahead)
        gather_block(p, block, p->visits);
    if (next >= 0)
        gather_block(p, next, p->visits + 1);
    p->visits++;
    p->block = block;
}

static int gather(struct rf_plan *plan, struct rf_list *list)
{
    struct rf_list written = {0};
    struct pass p = {
        .w = {.plan = plan, .list = &written}, .plan = plan, .list = list, .block = -1};
    p.visit = rf_alloc(((size_t)plan->piece_count * FORMS + 1) * sizeof(*p.visit));
    if (!p.visit)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    for (int k = 0; k < plan->piece_count * FORMS; k++)
        p.visit[k] = -2;
    for (int at = 0; at < list->count; at++) {
        const struct rf_instruction *i = &list->instructions[at];
        if (plan->units && rf_verb_calls_block(i->verb) && i->block != p.block)
            begin_visit(&p, at);
        if (i->micro_batch != RF_PHANTOM)
            rf_write_copy(&p.w, i);
    }
    rf_free(p.visit);
    return rf_write_end(&p.w, list);
}

int rf_pass_gather(struct rf_plan *plan)
{
    for (int id = 0; id < RF_LIST_COUNT; id++)
        RETURN_IF_ERROR(gather(plan, &plan->lists[id]));
    return 0;
}
