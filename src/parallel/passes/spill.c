/* SPDX-License-Identifier: MIT
 *
 * Pass: activations in host memory (Rhu et al. 2016, vDNN). Consecutive calls of a block are a
 * visit, together with instructions that run while tensor ranks exchange between its phases. A
 * value that a block saved or returned, and that is not read for some visits, is copied to the host
 * after its last use before them. It is copied back when the visit before its next use begins, so
 * that it arrives while that one computes. It comes back as a value of its own, so between the two
 * its memory is free (lifetimes.c). With policy.disk the copy goes on to a file, and is read from
 * it one visit earlier, so its memory on the host is free between the two. A value that has not
 * changed since it was copied is not copied again. A value that is used again at once stays in
 * device memory.
 */
#include <stdlib.h>

#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/list.h"
#include "passes.h"

/* The slot of a value that was copied back; values written by blocks have no slot. */
enum { BACK = 1 };

/* A copy before the instruction at `before`. */
struct move {
    int before, order;
    enum rf_verb verb;
    int from, to;
};

/* The state of a value. */
struct track {
    int last;    /* the last instruction that used it; -1: none */
    int now;     /* the value itself, or the one that was copied back */
    bool copied; /* the host has a valid copy */
};

struct spilling {
    struct rf_plan *plan;
    const struct rf_list *list;
    struct track *tracks; /* by value */
    int *visit;           /* by instruction: its visit; -1: before the first one */
    int *begin;           /* by visit: its first call */
    struct move *moves;
    int move_count, move_capacity;
};

static bool may_leave(const struct rf_plan *plan, int value)
{
    struct rf_value v = plan->values[value];
    if (v.kind != RF_VALUE_SAVED && v.kind != RF_VALUE_OUT)
        return false;
    rf_place_value(plan, &v);
    return v.bytes > 0;
}

static bool has(const struct spilling *p, int first, int count, int value)
{
    for (int k = first; k < first + count; k++)
        if (p->plan->operands[k] == value)
            return true;
    return false;
}

static void find_visits(struct spilling *p)
{
    int visits = 0, block = -1, micro_batch = -1;
    bool between = false; /* between two phases of a call of that block */
    for (int at = 0; at < p->list->count; at++) {
        const struct rf_instruction *i = &p->list->instructions[at];
        const bool calls = rf_verb_calls_block(i->verb);
        if (calls && !between && (i->block != block || i->micro_batch != micro_batch)) {
            p->begin[visits++] = at;
            block = i->block;
            micro_batch = i->micro_batch;
        }
        if (calls && i->block == block && i->micro_batch == micro_batch)
            between = !rf_plan_ends_call(p->plan, i);
        p->visit[at] = visits - 1;
    }
}

static int add_move(struct spilling *p, int before, enum rf_verb verb, int from, int to)
{
    if (!rf_array_reserve((void **)&p->moves, p->move_count, &p->move_capacity, sizeof(*p->moves)))
        return rf_fail(RF_ENOMEM, "plan: out of memory for the copies of activations");
    p->moves[p->move_count] = (struct move){before, p->move_count, verb, from, to};
    p->move_count++;
    return 0;
}

/* The part of a spill between host memory and the disk: the copy is written unless it is valid, and
 * read one visit ahead. Returns the value in host memory that it is read into. */
static int by_disk(struct spilling *p, const struct track *t, const struct rf_value *v, int host,
                   int visit)
{
    const bool out = v->kind == RF_VALUE_OUT;
    const int file = rf_value_of(p->plan, out ? RF_VALUE_DISK_OUT : RF_VALUE_DISK_SAVED, v->block,
                                 v->micro_batch, -1, -1);
    const int back = rf_value_of(p->plan, out ? RF_VALUE_HOST_OUT : RF_VALUE_HOST_SAVED, v->block,
                                 v->micro_batch, BACK, -1);
    const int ahead = visit - 1 > p->visit[t->last] ? visit - 1 : visit;
    if (file < 0 || back < 0)
        return RF_ENOMEM;
    if (!t->copied)
        RETURN_IF_ERROR(add_move(p, t->last + 1, RF_VERB_WRITE, host, file));
    RETURN_IF_ERROR(add_move(p, p->begin[ahead], RF_VERB_READ, file, back));
    return back;
}

/* Copies a value to the host, unless its copy there is valid, and back before the first call of a
 * visit. */
static int spill(struct spilling *p, int value, int visit)
{
    const struct rf_value v = p->plan->values[value];
    const enum rf_value_kind kind =
        v.kind == RF_VALUE_OUT ? RF_VALUE_HOST_OUT : RF_VALUE_HOST_SAVED;
    int host = rf_value_of(p->plan, kind, v.block, v.micro_batch, -1, -1);
    const int back = rf_value_of(p->plan, v.kind, v.block, v.micro_batch, BACK, -1);
    struct track *t = &p->tracks[value];
    if (host < 0 || back < 0)
        return RF_ENOMEM;
    if (!t->copied)
        RETURN_IF_ERROR(add_move(p, t->last + 1, RF_VERB_EVICT, t->now, host));
    if (rf_plan_activations_on_disk(p->plan))
        host = by_disk(p, t, &v, host, visit);
    RETURN_IF_ERROR(host);
    t->copied = true;
    t->now = back;
    return add_move(p, p->begin[visit], RF_VERB_FETCH, host, back);
}

static int use(struct spilling *p, int at, int value)
{
    const struct rf_instruction *i = &p->list->instructions[at];
    const bool reads = has(p, i->first_operand, i->ins, value);
    const bool writes = has(p, i->first_operand + i->ins, i->outs, value);
    const int needed = p->visit[at] - (p->plan->policy.no_prefetch ? 0 : 1);
    struct track *t = &p->tracks[value];
    if (!reads)
        *t = (struct track){.now = value};
    else if (t->last >= 0 && p->visit[t->last] + 1 < needed)
        RETURN_IF_ERROR(spill(p, value, needed));
    t->copied = t->copied && !writes;
    t->last = at;
    return 0;
}

/* Writes the instruction with the current values of its operands. */
static int rename_operands(struct spilling *p, struct rf_writer *w, int at)
{
    const struct rf_instruction *i = &p->list->instructions[at];
    if (!rf_verb_calls_block(i->verb)) {
        rf_write_copy(w, i);
        return w->status;
    }
    rf_write(w, i->verb, i->lane, i->block, i->micro_batch);
    rf_write_phase(w, i->phase);
    for (int k = 0; k < i->ins + i->outs; k++) {
        int value = p->plan->operands[i->first_operand + k];
        const enum rf_role role = (enum rf_role)p->plan->roles[i->first_operand + k];
        if (may_leave(p->plan, value)) {
            RETURN_IF_ERROR(use(p, at, value));
            value = p->tracks[value].now;
        }
        if (k < i->ins)
            rf_write_in(w, role, value);
        else
            rf_write_out(w, role, value);
    }
    return w->status;
}

static int by_position(const void *a, const void *b)
{
    const struct move *x = a, *y = b;
    return x->before != y->before ? (x->before > y->before) - (x->before < y->before)
                                  : (x->order > y->order) - (x->order < y->order);
}

static void write_moves(struct spilling *p, const struct rf_list *renamed, struct rf_writer *w)
{
    static const enum rf_lane lanes[RF_VERB_COUNT] = {[RF_VERB_EVICT] = RF_LANE_EVICT,
                                                      [RF_VERB_FETCH] = RF_LANE_FETCH,
                                                      [RF_VERB_WRITE] = RF_LANE_DISK,
                                                      [RF_VERB_READ] = RF_LANE_DISK};
    int next = 0;
    if (p->move_count > 0)
        qsort(p->moves, (size_t)p->move_count, sizeof(*p->moves), by_position);
    for (int at = 0; at < renamed->count; at++) {
        for (; next < p->move_count && p->moves[next].before == at; next++) {
            const struct move *m = &p->moves[next];
            rf_write(w, m->verb, lanes[m->verb], -1, -1);
            rf_write_in(w, RF_ROLE_FROM, m->from);
            rf_write_out(w, RF_ROLE_TO, m->to);
        }
        rf_write_copy(w, &renamed->instructions[at]);
    }
}

static int spill_list(struct spilling *p, struct rf_list *list)
{
    struct rf_list renamed = {0}, written = {0};
    struct rf_writer names = {.plan = p->plan, .list = &renamed};
    struct rf_writer w = {.plan = p->plan, .list = &written};
    for (int v = 0; v < p->plan->value_count; v++)
        p->tracks[v] = (struct track){.last = -1, .now = v};
    find_visits(p);
    for (int at = 0; at < list->count && w.status == 0; at++)
        w.status = rename_operands(p, &names, at);
    if (w.status == 0)
        write_moves(p, &renamed, &w);
    rf_free(renamed.instructions);
    return rf_write_end(&w, list);
}

int rf_pass_spill(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP];
    const size_t count = (size_t)list->count + 1;
    struct spilling p = {.plan = plan, .list = list};
    if (!(plan->policy.offload & RF_OFFLOAD_ACTIVATIONS))
        return 0;
    p.tracks = rf_alloc(((size_t)plan->value_count + 1) * sizeof(*p.tracks));
    p.visit = rf_alloc(count * sizeof(*p.visit));
    p.begin = rf_alloc(count * sizeof(*p.begin));
    int rc = p.tracks && p.visit && p.begin
                 ? spill_list(&p, list)
                 : rf_fail(RF_ENOMEM, "plan: out of memory for the copies of activations");
    rf_free(p.tracks);
    rf_free(p.visit);
    rf_free(p.begin);
    rf_free(p.moves);
    return rc;
}
