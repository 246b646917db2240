/* SPDX-License-Identifier: MIT
 *
 * Checks the lists of all ranks of a job. For each rank alone: waits are for earlier instructions,
 * they order all conflicting accesses, and they are at points where work is submitted. For all
 * ranks together: lanes run in list order, and a transfer begins when all ranks of its group have
 * reached it with the same arguments. If no lane can continue, that is a deadlock. The content of
 * every value is tracked on the way (meaning.c).
 */
#include "check.h"

#include <stdarg.h>

#include "../../base/base.h"
#include "../plan/clocks.h"
#include "../plan/exchange.h"

/* ---- one rank -------------------------------------------------------------------------------- */

static enum rf_lane lane_of(const struct rf_plan *plan, enum rf_verb verb)
{
    switch (verb) {
    case RF_VERB_LOAD:
    case RF_VERB_HOST_STEP:
        return RF_LANE_HOST;
    case RF_VERB_FETCH:
        return RF_LANE_FETCH;
    case RF_VERB_EVICT:
        return RF_LANE_EVICT;
    case RF_VERB_READ:
    case RF_VERB_WRITE:
        return RF_LANE_DISK;
    case RF_VERB_LOSS:
        return rf_plan_loss_lane(plan);
    case RF_VERB_BROADCAST:
        return RF_LANE_DATA;
    case RF_VERB_SEND:
        return RF_LANE_SEND_OUT;
    case RF_VERB_RECV:
        return RF_LANE_RECV_OUT;
    case RF_VERB_EXCHANGE:
        return RF_LANE_TENSOR;
    case RF_VERB_REDUCE:
    case RF_VERB_NORM_SHARE:
    case RF_VERB_GATHER:
        return plan->shard_lane;
    default:
        return RF_LANE_COMPUTE;
    }
}

static bool has_transfer(const struct rf_plan *plan, enum rf_verb verb)
{
    return rf_lane_transfers((int)lane_of(plan, verb));
}

/* Copies of shards are added on a lane of their own, and gradients of each rank's own rows on that
 * of the tensor ranks. Norms are shared over shards, then over tensor ranks, then over stages.
 * Messages have one lane for outputs and one for gradients. */
static bool fits_lane(const struct rf_plan *plan, const struct rf_instruction *i)
{
    return i->lane == lane_of(plan, i->verb) ||
           (i->verb == RF_VERB_REDUCE &&
            (i->lane == RF_LANE_REPLICATE || i->lane == RF_LANE_TENSOR)) ||
           (i->verb == RF_VERB_NORM_SHARE &&
            (i->lane == RF_LANE_PIPELINE || i->lane == RF_LANE_TENSOR)) ||
           (i->verb == RF_VERB_SEND && rf_lane_sends((int)i->lane)) ||
           (i->verb == RF_VERB_RECV && rf_lane_receives((int)i->lane));
}

/* The phases must be those that the block declares. */
static bool fits_phase(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const bool exchange = i->verb == RF_VERB_EXCHANGE;
    const enum rf_verb call = exchange ? i->call : i->verb;
    if (!exchange && i->call != (enum rf_verb)0)
        return false;
    if (!rf_verb_calls_block(call))
        return !exchange && i->phase == 0;
    const int before = exchange ? i->phase : i->phase - 1;
    return i->phase >= 0 &&
           (before < 0 || rf_plan_exchange(plan, i->block, rf_call_of(call), before));
}

static int check_form(const struct rf_plan *plan, const struct rf_instruction *i)
{
    if ((unsigned)i->verb >= RF_VERB_COUNT || !fits_lane(plan, i))
        return rf_check_fail(plan, i, "does not belong on lane %d", (int)i->lane);
    if (has_transfer(plan, i->verb) != (i->transfer >= 0) || i->transfer >= plan->transfer_count)
        return rf_check_fail(plan, i, "has transfer %d", i->transfer);
    if (i->transfer >= 0 && (plan->transfers[i->transfer].group != i->lane ||
                             (rf_lane_collects((int)i->lane) && plan->groups[i->lane].size < 1)))
        return rf_check_fail(plan, i, "is between other ranks than its lane");
    const bool message = i->verb == RF_VERB_SEND || i->verb == RF_VERB_RECV;
    const bool block =
        rf_verb_calls_block(i->verb) || i->verb == RF_VERB_EXCHANGE || (message && i->block >= 0);
    if (block ? i->block < 0 || i->block >= plan->block_count : i->block != -1)
        return rf_check_fail(plan, i, "refers to one of %d blocks that is not there",
                             plan->block_count);
    if (!fits_phase(plan, i))
        return rf_check_fail(plan, i, "has no phase %d", i->phase);
    if (!block && i->micro_batch != -1)
        return rf_check_fail(plan, i, "has no micro-batch");
    if (i->behind < 0 || i->behind > rf_plan_lags(plan))
        return rf_check_fail(plan, i, "belongs to the step %d before", i->behind);
    for (int k = 0; k < i->ins + i->outs; k++) {
        const int value = plan->operands[i->first_operand + k];
        if (value < 0 || value >= plan->value_count)
            return rf_check_fail(plan, i, "operand %d is value %d of %d", k, value,
                                 plan->value_count);
    }
    return 0;
}

/* Values must be inside the allocated memory. Values that live as long as the run must have the
 * layout that the run and its kernels expect: pieces are adjacent, slots are at equal distances. */
static int check_places(const struct rf_plan *plan)
{
    char text[96];
    for (int k = 0; k < plan->value_count; k++) {
        const struct rf_value *v = &plan->values[k];
        const int storage = rf_value_storage(plan, k);
        struct rf_value placed = storage < 0 ? (struct rf_value){0} : plan->values[storage];
        placed.kind = v->kind;
        rf_place_value(plan, &placed);
        if (v->bytes != placed.bytes || v->region != placed.region || v->offset != placed.offset)
            return rf_fail(RF_EINVAL, "plan of rank %d: %s is not at its place in memory",
                           plan->rank, rf_value_text(v, text, sizeof(text)));
        if (v->bytes > 0 &&
            (v->region < 0 || v->region >= plan->region_count ||
             v->bytes > plan->regions[v->region].bytes ||
             v->offset > plan->regions[v->region].bytes - v->bytes || v->offset % 4 != 0))
            return rf_fail(RF_EINVAL, "plan of rank %d: %s is outside its memory", plan->rank,
                           rf_value_text(v, text, sizeof(text)));
    }
    return 0;
}

/* The checked part of a list: its instructions by lane; and, for the waits of other lanes and its
 * own, the begins and ends of segments of the compute lane. */
struct passed {
    int *of_lane; /* list indices, lane after lane */
    int first[RF_LANE_COUNT], count[RF_LANE_COUNT];
    int begin; /* list index of the first of the open segment */
    bool open;
};

/* A wait is for a point, so the awaited work must be submitted. Inside a segment no waits are
 * allowed, except for work that the host did before the segment began. */
static int check_handover(const struct rf_plan *plan, const struct rf_list *list, int at,
                          const struct passed *s)
{
    const struct rf_instruction *i = &list->instructions[at];
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = plan->waits[i->first_wait + k];
        const int index = s->of_lane[s->first[wait.lane] + wait.position];
        const struct rf_instruction *other = &list->instructions[index];
        if (other->lane == RF_LANE_COMPUTE && !other->posts)
            return rf_check_fail(plan, i, "waits for work that is not submitted");
        if (i->lane == RF_LANE_COMPUTE && s->open &&
            !(rf_verb_blocks(other->verb) && index < s->begin))
            return rf_check_fail(plan, i, "waits in the middle of a segment");
    }
    return 0;
}

static int check_order(const struct rf_plan *plan, const struct rf_list *list, struct rf_clocks *c,
                       int *of_lane)
{
    struct passed s = {.of_lane = of_lane};
    for (int lane = 1; lane < RF_LANE_COUNT; lane++)
        s.first[lane] = s.first[lane - 1] + list->positions[lane - 1];
    for (int at = 0; at < list->count; at++) {
        const struct rf_instruction *i = &list->instructions[at];
        int need[RF_LANE_COUNT];
        RETURN_IF_ERROR(check_form(plan, i));
        RETURN_IF_ERROR(rf_clocks_needs(c, i, need));
        if (rf_clocks_advance(c, i) < 0)
            return rf_check_fail(plan, i, "waits for a later instruction");
        for (int lane = 0; lane < RF_LANE_COUNT; lane++)
            if (need[lane] > rf_clocks_now(c, i->lane)[lane])
                return rf_check_fail(
                    plan, i,
                    "does not wait for position %d of lane %d, which accesses the same memory",
                    need[lane], lane);
        RETURN_IF_ERROR(check_handover(plan, list, at, &s));
        s.of_lane[s.first[i->lane] + s.count[i->lane]++] = at;
        if (i->lane == RF_LANE_COMPUTE) {
            s.begin = s.open ? s.begin : at;
            s.open = !i->posts;
        }
    }
    return s.open
               ? rf_fail(RF_EINVAL, "plan of rank %d: the last work is not submitted", plan->rank)
               : 0;
}

static int check_list(const struct rf_plan *plan, const struct rf_list *list)
{
    struct rf_clocks *c = NULL;
    int *of_lane = rf_alloc(((size_t)list->count + 1) * sizeof(*of_lane));
    int rc = of_lane ? rf_clocks_open(plan, list, &c) : rf_fail(RF_ENOMEM, "check: out of memory");
    if (rc == 0)
        rc = check_order(plan, list, c, of_lane);
    rf_clocks_close(c);
    rf_free(of_lane);
    return rc;
}

static int check_rank(const struct rf_plan *plan)
{
    RETURN_IF_ERROR(check_places(plan));
    for (int id = 0; rf_list_trains(id); id++)
        RETURN_IF_ERROR(check_list(plan, &plan->lists[id]));
    for (int id = 0; id < RF_LIST_COUNT; id++)
        for (int k = 0; k < plan->lists[id].count; k++)
            RETURN_IF_ERROR(rf_check_roles(plan, &plan->lists[id].instructions[k]));
    return 0;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

struct job {
    const struct rf_plan *const *plans;
    int ranks;
    int **of_lane; /* per rank: list indices, lane after lane */
    int (*first)[RF_LANE_COUNT], (*passed)[RF_LANE_COUNT];
    struct rf_job_group group;
    struct rf_meaning *meaning;
    enum rf_list_id list;
    bool moved;
};

static const struct rf_list *list_of(const struct job *j, int rank)
{
    return &j->plans[rank]->lists[j->list];
}

static int open_rank(struct job *j, int rank)
{
    const struct rf_list *list = list_of(j, rank);
    int next[RF_LANE_COUNT] = {0};
    rf_free(j->of_lane[rank]);
    j->of_lane[rank] = rf_alloc(((size_t)list->count + 1) * sizeof(int));
    if (!j->of_lane[rank])
        return rf_fail(RF_ENOMEM, "check: out of memory");
    memset(j->passed[rank], 0, sizeof(j->passed[rank]));
    for (int lane = 1; lane < RF_LANE_COUNT; lane++)
        j->first[rank][lane] = j->first[rank][lane - 1] + list->positions[lane - 1];
    for (int k = 0; k < list->count; k++) {
        const int lane = (int)list->instructions[k].lane;
        j->of_lane[rank][j->first[rank][lane] + next[lane]++] = k;
    }
    return 0;
}

/* The next instruction of a lane if only its peers hold it back. */
static const struct rf_instruction *ready(const struct job *j, int rank, int lane)
{
    const struct rf_plan *plan = j->plans[rank];
    const struct rf_list *list = list_of(j, rank);
    const int at = j->passed[rank][lane];
    if (at >= list->positions[lane])
        return NULL;
    const struct rf_instruction *i =
        &list->instructions[j->of_lane[rank][j->first[rank][lane] + at]];
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = plan->waits[i->first_wait + k];
        if (j->passed[rank][wait.lane] <= wait.position)
            return NULL;
    }
    return i;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_counts(const size_t *a, const size_t *b, int ranks)
{
    return a == b || (a && b && memcmp(a, b, (size_t)ranks * sizeof(*a)) == 0);
}

static int check_contract(const struct job *j, int rank)
{
    const int leader = j->group.members[0];
    const struct rf_instruction *mine = j->group.of_ranks[rank], *first = j->group.of_ranks[leader];
    const struct rf_transfer *a = rf_plan_transfer(j->plans[leader], first);
    const struct rf_transfer *b = rf_plan_transfer(j->plans[rank], mine);
    if (first->verb != mine->verb || first->block != mine->block ||
        first->micro_batch != mine->micro_batch || first->phase != mine->phase ||
        first->call != mine->call || a->op != b->op || a->count != b->count ||
        a->dtype != b->dtype || a->order != b->order || a->root != b->root ||
        a->round != b->round || !same_text(a->algorithm, b->algorithm) ||
        !same_counts(a->counts, b->counts, j->group.count))
        return rf_check_fail(j->plans[rank], mine, "meets another transfer on rank %d", leader);
    return 0;
}

/* Executes the next collective of a group if all its ranks have reached it. */
static int try_transfer(struct job *j, const struct rf_plan_group *group, int lane)
{
    j->group.count = group->size;
    for (int k = 0; k < group->size; k++) {
        const int rank = group->first + k * group->stride;
        j->group.members[k] = rank;
        j->group.of_ranks[rank] = ready(j, rank, lane);
        if (!j->group.of_ranks[rank])
            return 0;
    }
    for (int k = 1; k < group->size; k++)
        RETURN_IF_ERROR(check_contract(j, j->group.members[k]));
    RETURN_IF_ERROR(rf_meaning_transfer(j->meaning, &j->group));
    for (int k = 0; k < group->size; k++)
        j->passed[j->group.members[k]][lane]++;
    j->moved = true;
    return 0;
}

/* Tries each group once: when its first rank is visited. */
static int try_transfers(struct job *j)
{
    for (int rank = 0; rank < j->ranks; rank++)
        for (int lane = RF_LANE_DATA; rf_lane_collects(lane); lane++)
            if (j->plans[rank]->groups[lane].size && j->plans[rank]->groups[lane].first == rank)
                RETURN_IF_ERROR(try_transfer(j, &j->plans[rank]->groups[lane], lane));
    return 0;
}

/* Executes the next message of a lane if its sender and its receiver have both reached it. */
static int try_message(struct job *j, int rank, int lane, int other_lane)
{
    const struct rf_instruction *send = ready(j, rank, lane);
    const struct rf_transfer *t = send ? rf_plan_transfer(j->plans[rank], send) : NULL;
    if (!send)
        return 0;
    if (t->peer < 0 || t->peer >= j->ranks || t->peer == rank)
        return rf_check_fail(j->plans[rank], send, "is for rank %d of %d", t->peer, j->ranks);
    const struct rf_instruction *recv = ready(j, t->peer, other_lane);
    const struct rf_transfer *r = recv ? rf_plan_transfer(j->plans[t->peer], recv) : NULL;
    if (!recv || r->peer != rank)
        return 0;
    if (t->op != RF_COLL_SEND || r->op != RF_COLL_RECV || t->count != r->count ||
        t->dtype != r->dtype || t->tag != r->tag || send->block != recv->block ||
        send->micro_batch != recv->micro_batch || send->behind != recv->behind || t->counts ||
        r->counts)
        return rf_check_fail(j->plans[rank], send, "meets another message on rank %d", t->peer);
    j->group.count = 2;
    j->group.members[0] = rank;
    j->group.members[1] = t->peer;
    j->group.of_ranks[rank] = send;
    j->group.of_ranks[t->peer] = recv;
    RETURN_IF_ERROR(rf_meaning_message(j->meaning, &j->group));
    j->passed[rank][lane]++;
    j->passed[t->peer][other_lane]++;
    j->moved = true;
    return 0;
}

static int try_messages(struct job *j)
{
    for (int rank = 0; rank < j->ranks; rank++)
        for (int lane = 0; lane < RF_LANE_COUNT; lane++)
            if (rf_lane_sends(lane))
                RETURN_IF_ERROR(try_message(j, rank, lane, lane + 1));
    return 0;
}

static int try_lane(struct job *j, int rank, int lane)
{
    for (;;) {
        const struct rf_instruction *i = ready(j, rank, lane);
        if (!i)
            return 0;
        RETURN_IF_ERROR(rf_meaning_run(j->meaning, rank, i));
        j->passed[rank][lane]++;
        j->moved = true;
    }
}

/* The reason that a lane has not reached its end, ordered by how close it is to the cause: a
 * message whose peer has not reached it, a collective that other ranks have not reached, an
 * instruction that waits for one of these. */
enum { STUCK_MESSAGE, STUCK_COLLECTIVE, STUCK_WAITING, STUCK_KINDS };

static bool is_stuck(const struct job *j, int rank, int lane, int kind)
{
    const bool begun = rf_lane_transfers(lane) && ready(j, rank, lane) != NULL;
    return j->passed[rank][lane] < list_of(j, rank)->positions[lane] &&
           kind == (!begun                   ? STUCK_WAITING
                    : rf_lane_collects(lane) ? STUCK_COLLECTIVE
                                             : STUCK_MESSAGE);
}

static int stops(const struct job *j, int rank, int lane)
{
    const int at = j->passed[rank][lane];
    const int k = j->of_lane[rank][j->first[rank][lane] + at];
    return rf_check_fail(j->plans[rank], &list_of(j, rank)->instructions[k],
                         "deadlock: lane %s stops here, at its position %d of %d",
                         rf_lane_name((enum rf_lane)lane), at, list_of(j, rank)->positions[lane]);
}

static int run_job(struct job *j)
{
    do {
        j->moved = false;
        for (int rank = 0; rank < j->ranks; rank++) {
            for (int lane = 0; lane < RF_LANE_COUNT; lane++)
                if (!rf_lane_transfers(lane))
                    RETURN_IF_ERROR(try_lane(j, rank, lane));
        }
        RETURN_IF_ERROR(try_transfers(j));
        RETURN_IF_ERROR(try_messages(j));
    } while (j->moved);
    for (int kind = 0; kind < STUCK_KINDS; kind++)
        for (int rank = 0; rank < j->ranks; rank++)
            for (int lane = 0; lane < RF_LANE_COUNT; lane++)
                if (is_stuck(j, rank, lane, kind))
                    return stops(j, rank, lane);
    return rf_meaning_end(j->meaning);
}

/* Values may live longer than a list. Each kind of list runs twice: after the second run, further
 * runs find nothing new. */
static int run_lists(struct job *j)
{
    static const enum rf_list_id step[] = {RF_LIST_STEP, RF_LIST_COUNT};
    static const enum rf_list_id lag[] = {RF_LIST_FILL, RF_LIST_STEP, RF_LIST_STEP,  RF_LIST_DRAIN,
                                          RF_LIST_FILL, RF_LIST_STEP, RF_LIST_DRAIN, RF_LIST_COUNT};
    for (const enum rf_list_id *id = rf_plan_lags(j->plans[0]) ? lag : step; *id != RF_LIST_COUNT;
         id++) {
        j->list = *id;
        for (int rank = 0; rank < j->ranks; rank++)
            RETURN_IF_ERROR(open_rank(j, rank));
        rf_meaning_begin(j->meaning, *id);
        RETURN_IF_ERROR(run_job(j));
        rf_meaning_next(j->meaning);
    }
    return 0;
}

static void close_job(struct job *j)
{
    for (int rank = 0; j->of_lane && rank < j->ranks; rank++)
        rf_free(j->of_lane[rank]);
    rf_free(j->of_lane);
    rf_free(j->first);
    rf_free(j->passed);
    rf_free(j->group.members);
    rf_free(j->group.of_ranks);
    rf_meaning_close(j->meaning);
}

static int check_job(const struct rf_plan *const *plans, int ranks)
{
    struct job j = {.plans = plans, .ranks = ranks};
    const size_t n = (size_t)ranks;
    j.of_lane = rf_alloc(n * sizeof(*j.of_lane));
    j.first = rf_alloc(n * sizeof(*j.first));
    j.passed = rf_alloc(n * sizeof(*j.passed));
    j.group.members = rf_alloc(n * sizeof(*j.group.members));
    j.group.of_ranks = rf_alloc(n * sizeof(*j.group.of_ranks));
    int rc = j.of_lane && j.first && j.passed && j.group.members && j.group.of_ranks
                 ? rf_meaning_open(plans, ranks, &j.meaning)
                 : rf_fail(RF_ENOMEM, "check: out of memory");
    if (rc == 0)
        rc = run_lists(&j);
    close_job(&j);
    return rc;
}

int rf_plan_check(const struct rf_plan *const *plans, int ranks)
{
    if (!plans || ranks < 1)
        return rf_fail(RF_EINVAL, "check: the plans of all ranks of a job are needed");
    for (int rank = 0; rank < ranks; rank++)
        if (!plans[rank] || plans[rank]->rank != rank || rf_plan_ranks(plans[rank]) != ranks)
            return rf_fail(RF_EINVAL, "check: plan %d is not the plan of rank %d of %d", rank, rank,
                           ranks);
    for (int rank = 0; rank < ranks; rank++)
        RETURN_IF_ERROR(check_rank(plans[rank]));
    return check_job(plans, ranks);
}
