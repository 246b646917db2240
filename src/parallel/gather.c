/* SPDX-License-Identifier: MIT
 *
 * Pass: parameters that are sharded (ZeRO-3; Zhao et al. 2023, PyTorch FSDP), or lie with the host.
 * The calls of a block that follow each other are a visit. What a visit reads is gathered, or
 * fetched, when the visit before it begins, so that it arrives while that one computes, and at most
 * two blocks' parameters are there at once. What the visit before has stays; else each visit
 * gathers anew, since lifetimes.c gives the memory away after its last reader. Also removes
 * phantoms, which stand for rounds in which this rank computes nothing but takes part in transfers.
 */
#include "../base/base.h"
#include "list.h"
#include "passes.h"

/* A piece in one of its two forms. */
enum form { WHOLE, NARROW, FORMS };

struct pass {
    struct rf_writer w;
    struct rf_plan *plan;
    const struct rf_list *list;
    int *visit;        /* of a piece and form: the last one that has it; -1: none */
    int visits, block; /* those that have begun */
};

/* The rank has all of it, with the host. */
static void fetch_piece(struct pass *p, int piece, enum form form)
{
    const bool narrow = form == NARROW;
    rf_write(&p->w, RF_VERB_FETCH, RF_LANE_FETCH, -1, -1);
    rf_write_in(&p->w, rf_value_of(p->plan, narrow ? RF_VALUE_COPY_SHARD : RF_VALUE_PARAM_SHARD, -1,
                                   -1, -1, piece));
    rf_write_out(&p->w,
                 rf_value_of(p->plan, narrow ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, -1, -1, piece));
}

/* What a block reads and the visit before does not have, nor, where all is kept, any before. */
static void gather_block(struct pass *p, int block, int visit)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->blocks[block].param_count; k++) {
        const struct rf_plan_param *param = &plan->params[plan->first_param[block] + k];
        const enum form form = param->desc->dtype == RF_F32 ? WHOLE : NARROW;
        int *had = &p->visit[param->piece * FORMS + form];
        const bool there = *had == visit || *had == visit - 1 || (*had >= 0 && plan->keep_units);
        *had = visit;
        if (there)
            continue;
        if (plan->shards > 1)
            rf_write_gather(&p->w, param->piece, param->desc->dtype);
        else
            fetch_piece(p, param->piece, form);
    }
}

/* The block of the visit after the one that is at `at`; -1: it is the last. */
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
