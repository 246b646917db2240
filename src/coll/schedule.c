/* SPDX-License-Identifier: MIT
 *
 * The public interface to schedules: checks a public description, and shows the list that build.c
 * makes of it. Not used by communicators.
 */
#include <ringforge/schedule.h>

#include "../base/base.h"
#include "table.h"

/* The default of all transports. */
enum { SEGMENT_BYTES = 256 << 10 };

struct rf_schedule {
    struct rf_sched *sched;
    uint32_t *first; /* [count + 1] the begin of each step's predecessors in... */
    uint32_t *after; /* ...this */
};

/* ---- the description ------------------------------------------------------------------------- */

static int check_counts(const struct rf_schedule_desc *desc, struct rf_coll_desc *own)
{
    const char *op = rf_coll_op_name(desc->op);
    const bool pairs = desc->op == RF_COLL_ALL_TO_ALL;
    if (!desc->counts && !desc->recv_counts)
        return 0;
    if (!rf_coll_has_shares(desc->op))
        return rf_fail(RF_EINVAL, "%s does not take one count for each rank", op);
    if (pairs != (desc->recv_counts != NULL) || !desc->counts)
        return rf_fail(RF_EINVAL,
                       pairs ? "%s takes both counts and recv_counts"
                             : "%s takes counts, and no recv_counts",
                       op);
    own->counts = desc->counts;
    own->recv_counts = desc->recv_counts;
    return rf_coll_sum_counts(desc->op, desc->counts, desc->ranks, &own->count);
}

static int check_hosts(const struct rf_schedule_desc *desc)
{
    int known = 0;
    for (int r = 0; desc->hosts && r < desc->ranks; r++) {
        if (desc->hosts[r] < 0 || desc->hosts[r] > known)
            return rf_fail(RF_EINVAL,
                           "rank %d is on host %d, but hosts are numbered from 0 in the order of "
                           "their first ranks",
                           r, desc->hosts[r]);
        known += desc->hosts[r] == known;
    }
    return 0;
}

static int read_desc(const struct rf_schedule_desc *desc, int rank, struct rf_coll_desc *out)
{
    if (!desc)
        return rf_fail(RF_EINVAL, "rf_schedule: the description is NULL");
    if (desc->op <= RF_COLL_NONE || desc->op >= RF_COLL_OP_COUNT || rf_coll_adds_leaves(desc->op))
        return rf_fail(RF_EINVAL, "rf_schedule: lists of %s cannot be shown",
                       rf_coll_op_name(desc->op));
    if (desc->ranks < 1)
        return rf_fail(RF_EINVAL, "%s: there cannot be %d ranks", rf_coll_op_name(desc->op),
                       desc->ranks);
    const bool whole = desc->segment_bytes == SIZE_MAX, one = desc->window_bytes == SIZE_MAX;
    *out = (struct rf_coll_desc){.op = desc->op,
                                 .rank = rank,
                                 .ranks = desc->ranks,
                                 .count = desc->op == RF_COLL_BARRIER ? 0 : desc->count,
                                 .dtype = desc->dtype,
                                 .redop = desc->redop,
                                 .order = desc->order,
                                 .root = desc->root,
                                 .hosts = desc->hosts,
                                 .shared = desc->shared,
                                 .segment_bytes = whole                 ? 0
                                                  : desc->segment_bytes ? desc->segment_bytes
                                                                        : SEGMENT_BYTES,
                                 .window_bytes = one                  ? 0
                                                 : desc->window_bytes ? desc->window_bytes
                                                                      : RF_WINDOW_BYTES};
    RETURN_IF_ERROR(check_counts(desc, out));
    return check_hosts(desc);
}

int rf_schedule_get_side(const struct rf_schedule_desc *desc, int rank,
                         enum rf_schedule_space space, struct rf_schedule_range *out)
{
    struct rf_coll_desc own;
    const struct rf_algorithm *any;
    const bool in = space == RF_SCHEDULE_IN;
    if (!out || (!in && space != RF_SCHEDULE_OUT))
        return rf_fail(RF_EINVAL,
                       "rf_schedule_get_side: out is NULL, or %d is neither the input "
                       "nor the output",
                       (int)space);
    RETURN_IF_ERROR(read_desc(desc, rank, &own));
    RETURN_IF_ERROR(rf_coll_find(&own, NULL, &any)); /* checks the rest */
    const enum rf_coll_shape shape = in ? rf_coll_in_shape(&own) : rf_coll_out_shape(&own);
    /* A broadcast's single buffer is both input and output of the root, and the output of all
     * others. */
    const bool other_side =
        in ? own.op == RF_COLL_RECV || own.op == RF_COLL_BROADCAST : own.op == RF_COLL_SEND;
    const bool none = other_side && own.root != rank;
    *out = (struct rf_schedule_range){.first =
                                          shape == RF_SHAPE_SHARE ? rf_coll_share_offset(&own) : 0,
                                      .count = none ? 0
                                               : in ? rf_coll_in_count(&own)
                                                    : rf_coll_out_count(&own)};
    return 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Inverts the successors. */
static int find_predecessors(struct rf_schedule *schedule)
{
    const struct rf_sched *sched = schedule->sched;
    const uint32_t count = sched->count;
    schedule->first = rf_alloc(((size_t)count + 2) * sizeof(uint32_t));
    uint32_t edges = 0;
    for (uint32_t k = 0; k < count; k++)
        edges += sched->steps[k].next_count;
    schedule->after = rf_alloc(((size_t)edges + 1) * sizeof(uint32_t));
    if (!schedule->first || !schedule->after)
        return rf_fail(RF_ENOMEM, "no memory for a schedule of %u steps", count);
    uint32_t *end =
        schedule->first + 1; /* index of the written part; at the end the first of the next step */
    for (uint32_t k = 0, at = 0; k < count; k++) {
        end[k] = at;
        at += sched->steps[k].need;
    }
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t n = 0; n < sched->steps[k].next_count; n++)
            schedule->after[end[sched->successors[sched->steps[k].next + n]]++] = k;
    return 0;
}

int rf_schedule_create(const struct rf_schedule_desc *desc, int rank, const char *algorithm,
                       struct rf_schedule **out)
{
    struct rf_coll_desc own;
    if (!out)
        return rf_fail(RF_EINVAL, "rf_schedule_create: out is NULL");
    RETURN_IF_ERROR(read_desc(desc, rank, &own));
    struct rf_schedule *schedule = rf_alloc(sizeof(*schedule));
    if (!schedule)
        return rf_fail(RF_ENOMEM, "no memory for a schedule");
    int rc = algorithm ? rf_sched_build_as(&own, algorithm, &schedule->sched)
                       : rf_sched_build(&own, &schedule->sched);
    if (rc == 0)
        rc = find_predecessors(schedule);
    if (rc < 0) {
        rf_schedule_destroy(schedule);
        return rc;
    }
    *out = schedule;
    return 0;
}

void rf_schedule_destroy(struct rf_schedule *schedule)
{
    if (!schedule)
        return;
    rf_sched_destroy(schedule->sched);
    rf_free(schedule->first);
    rf_free(schedule->after);
    rf_free(schedule);
}

const char *rf_schedule_algorithm(const struct rf_schedule *schedule)
{
    return schedule->sched->algorithm;
}

uint64_t rf_schedule_sent_bytes(const struct rf_schedule *schedule)
{
    return schedule->sched->sent_bytes;
}

uint64_t rf_schedule_temp_bytes(const struct rf_schedule *schedule)
{
    return schedule->sched->temp_bytes;
}

uint32_t rf_schedule_step_count(const struct rf_schedule *schedule)
{
    return schedule->sched->count;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Fetches and stores are for device memory, which is not described here. */
static const struct {
    enum rf_step_verb inner;
    const char *name;
} verbs[] = {
    [RF_SCHEDULE_SEND] = {RF_STEP_SEND, "send"},
    [RF_SCHEDULE_RECV] = {RF_STEP_RECV, "recv"},
    [RF_SCHEDULE_REDUCE] = {RF_STEP_REDUCE, "reduce"},
    [RF_SCHEDULE_COPY] = {RF_STEP_COPY, "copy"},
    [RF_SCHEDULE_JOIN] = {RF_STEP_JOIN, "join"},
    [RF_SCHEDULE_ADDRESSES] = {RF_STEP_ADDRESSES, "addresses"},
    [RF_SCHEDULE_AGREE] = {RF_STEP_AGREE, "agree"},
    [RF_SCHEDULE_REDUCE_ALL] = {RF_STEP_REDUCE_ALL, "reduce_all"},
};

const char *rf_schedule_verb_name(enum rf_schedule_verb verb)
{
    return (unsigned)verb < sizeof(verbs) / sizeof(verbs[0]) ? verbs[verb].name : "?";
}

static enum rf_schedule_verb verb_of(const struct rf_step *step)
{
    unsigned verb = 0;
    while (verbs[verb].inner != step->verb)
        verb++;
    return (enum rf_schedule_verb)verb;
}

static const struct rf_step *step_of(const struct rf_schedule *schedule, uint32_t number)
{
    return schedule && number < schedule->sched->count ? &schedule->sched->steps[number] : NULL;
}

static uint32_t operands_of(const struct rf_step *step)
{
    switch (step->verb) {
    case RF_STEP_SEND:
    case RF_STEP_COPY:
        return 1;
    case RF_STEP_REDUCE:
        return step->list_count ? step->list_count : 2;
    default:
        return 0;
    }
}

static struct rf_schedule_place place_of(struct rf_operand operand)
{
    return (struct rf_schedule_place){(enum rf_schedule_space)operand.space, operand.offset};
}

int rf_schedule_get_step(const struct rf_schedule *schedule, uint32_t number,
                         struct rf_schedule_step *out)
{
    const struct rf_step *step = step_of(schedule, number);
    if (!step || !out)
        return rf_fail(RF_EINVAL, "rf_schedule_get_step: there is no step %u", number);
    const bool message = step->verb == RF_STEP_SEND || step->verb == RF_STEP_RECV;
    *out = (struct rf_schedule_step){.verb = verb_of(step),
                                     .peer = message ? step->peer : -1,
                                     .tag = step->tag,
                                     .bytes = step->bytes,
                                     .to = place_of(step->dst),
                                     .operands = operands_of(step),
                                     .pairwise = step->tree,
                                     .after = schedule->after + schedule->first[number],
                                     .after_count = step->need};
    return 0;
}

int rf_schedule_get_operand(const struct rf_schedule *schedule, uint32_t number, uint32_t operand,
                            struct rf_schedule_place *out)
{
    const struct rf_step *step = step_of(schedule, number);
    if (!step || !out || operand >= operands_of(step))
        return rf_fail(RF_EINVAL, "rf_schedule_get_operand: step %u has no operand %u", number,
                       operand);
    *out = place_of(step->list_count ? schedule->sched->operands[step->list + operand]
                    : operand        ? step->b
                                     : step->a);
    return 0;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

int rf_schedule_algorithms(const struct rf_schedule_desc *desc,
                           struct rf_schedule_algorithm_info *infos, uint32_t capacity,
                           uint32_t *count)
{
    struct rf_coll_desc own;
    const struct rf_algorithm *chosen, *algorithm;
    if (!count)
        return rf_fail(RF_EINVAL, "rf_schedule_algorithms: count is NULL");
    RETURN_IF_ERROR(read_desc(desc, 0, &own));
    own.rank = own.op == RF_COLL_RECV && own.root == 0 && own.ranks > 1; /* not from itself */
    RETURN_IF_ERROR(rf_coll_find(&own, NULL, &chosen));
    *count = 0;
    for (int number = 1; (algorithm = rf_coll_at(number)); number++) {
        if (algorithm->op != own.op && algorithm->op != RF_COLL_NONE)
            continue;
        const char *why_not = rf_why_not(algorithm, &own);
        if (algorithm->op == RF_COLL_NONE && why_not)
            continue;
        if (infos && *count < capacity) {
            struct rf_schedule_algorithm_info *info = &infos[*count];
            *info = (struct rf_schedule_algorithm_info){.name = algorithm->name,
                                                        .note = algorithm->note,
                                                        .bytes = algorithm->bytes,
                                                        .why_not = why_not,
                                                        .chosen = algorithm == chosen};
            rf_rounds_text(&algorithm->rounds, info->rounds, sizeof(info->rounds));
        }
        ++*count;
    }
    return 0;
}
