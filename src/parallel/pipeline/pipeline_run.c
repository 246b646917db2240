/* SPDX-License-Identifier: MIT
 *
 * Simulates the orders of a pipeline's ranks without buffering: see pipeline.h. A value that passes
 * from stage to stage (an output forward, a gradient backward) is a message. A message between two
 * ranks is in a lane of each. A message within a rank has arrived when it is made.
 */
#include "pipeline.h"

#include <math.h>

#include "../../base/base.h"

enum { OUTPUT, GRADIENT, KINDS };
enum { SENDS, RECEIVES, WAYS };
enum { LANES = WAYS * KINDS * 2 };

static const struct split {
    bool way, kind, peer; /* the properties that separate lanes */
} rows[] = {
    [RF_PIPELINE_BY_PEER_AND_KIND] = {true, true, true},
    [RF_PIPELINE_BY_PEER] = {true, false, true},
    [RF_PIPELINE_BY_KIND] = {true, true, false},
    [RF_PIPELINE_BY_DIRECTION] = {true, false, false},
    [RF_PIPELINE_BLOCKING] = {false, false, false},
};

struct message {
    double made_s, arrived_s; /* < 0: not yet */
    int reader;               /* position of the call on its rank */
    int next[WAYS]; /* next message in the lane of the sender, of the receiver; -1: none */
};

struct lane {
    int head, tail; /* messages; -1: none */
    double free_s;  /* end of the message before the head */
};

struct rank {
    const struct rf_pipeline_call *calls;
    double *ends_s; /* of each call so far */
    int at;         /* index of the next call */
    struct lane lanes[LANES];
    struct rf_pipeline_span span;
};

struct run {
    const struct rf_pipeline *p;
    const struct rf_pipeline_run_opts *opts;
    struct rank *ranks;
    struct message *messages; /* by kind, by the first of the two stages, by micro-batch */
    double *ends_s;
    int total; /* number of micro-batches */
};

/* ---- messages -------------------------------------------------------------------------------- */

/* -1: a call at an end of the model, or a weight half, has no message. A message between two stages
 * has the number of the first one. */
static int message_of(const struct run *run, int rank, const struct rf_pipeline_call *call, int way)
{
    const int stage = rf_pipeline_stage(run->p, rank, call->chunk);
    const int last = rf_pipeline_stages(run->p) - 1;
    const bool forward = call->verb == RF_VERB_FORWARD;
    const int before = forward == (way == SENDS) ? stage : stage - 1;
    if (call->verb == RF_VERB_BACKWARD_WEIGHT || before < 0 || before >= last)
        return -1;
    return ((forward ? OUTPUT : GRADIENT) * last + before) * run->total + call->micro_batch;
}

/* The kind of a message, and the ranks that send and receive it. */
static void ends_of(const struct run *run, int message, int *kind, int rank[WAYS])
{
    const int last = rf_pipeline_stages(run->p) - 1;
    const int before = message / run->total % last;
    *kind = message / run->total / last;
    rank[*kind == OUTPUT ? SENDS : RECEIVES] = rf_pipeline_rank_of(run->p, before);
    rank[*kind == OUTPUT ? RECEIVES : SENDS] = rf_pipeline_rank_of(run->p, before + 1);
}

static struct lane *lane_of(const struct run *run, int message, int way)
{
    int kind, rank[WAYS];
    ends_of(run, message, &kind, rank);
    const struct split *row = &rows[run->opts->lanes];
    const bool behind = rank[!way] != (rank[way] + 1) % run->p->ranks;
    const int lane = (row->way && way == RECEIVES) + 2 * (row->kind && kind == GRADIENT) +
                     4 * (row->peer && behind);
    return &run->ranks[rank[way]].lanes[lane];
}

static bool between_ranks(const struct run *run, int message)
{
    int kind, rank[WAYS];
    ends_of(run, message, &kind, rank);
    return rank[SENDS] != rank[RECEIVES];
}

static void append(const struct run *run, int message, int way)
{
    struct lane *lane = lane_of(run, message, way);
    if (lane->tail < 0)
        lane->head = message;
    else
        run->messages[lane->tail].next[lane_of(run, lane->tail, SENDS) != lane] = message;
    lane->tail = message;
}

/* ---- setup ----------------------------------------------------------------------------------- */

static int bad_call(const struct run *run, int rank, int at, const char *why)
{
    const struct rf_pipeline_call *call = &run->ranks[rank].calls[at];
    return rf_fail(RF_EINVAL, "pipeline %s: call %d of rank %d, %s of micro-batch %d, chunk %d, %s",
                   rf_pipeline_name(run->p->kind), at, rank, rf_verb_name(call->verb),
                   call->micro_batch, call->chunk, why);
}

/* The number of calls is right, so it is enough that none occurs twice. done: zeros, one for each
 * chunk and micro-batch. */
static int check_calls(const struct run *run, int rank, unsigned char *done)
{
    for (int at = 0; at < rf_pipeline_call_count(run->p); at++) {
        const struct rf_pipeline_call *call = &run->ranks[rank].calls[at];
        if (call->chunk < 0 || call->chunk >= run->p->chunks || call->micro_batch < 0 ||
            call->micro_batch >= run->total)
            return bad_call(run, rank, at,
                            "has a chunk or a micro-batch that the pipeline does not have");
        unsigned char *so_far = &done[call->chunk * run->total + call->micro_batch];
        const enum rf_verb wanted = *so_far == 0   ? RF_VERB_FORWARD
                                    : *so_far == 1 ? RF_VERB_BACKWARD_INPUT
                                                   : RF_VERB_BACKWARD_WEIGHT;
        if (*so_far > 2 || call->verb != wanted)
            return bad_call(run, rank, at,
                            "comes twice or too early; each micro-batch passes a chunk once by "
                            "forward, backward input and backward weight");
        ++*so_far;
    }
    return 0;
}

static void fill_lanes(const struct run *run, int rank)
{
    for (int at = 0; at < rf_pipeline_call_count(run->p); at++)
        for (int way = RECEIVES; way >= SENDS; way--) {
            const int message = message_of(run, rank, &run->ranks[rank].calls[at], way);
            if (message < 0)
                continue;
            if (way == RECEIVES)
                run->messages[message].reader = at;
            if (between_ranks(run, message))
                append(run, message, way);
        }
}

static int begin(struct run *run, const struct rf_pipeline_call *const *calls)
{
    const int count = rf_pipeline_call_count(run->p);
    for (int k = 0; k < KINDS * (rf_pipeline_stages(run->p) - 1) * run->total; k++)
        run->messages[k] = (struct message){-1, -1, 0, {-1, -1}};
    for (int r = 0; r < run->p->ranks; r++) {
        struct rank *rank = &run->ranks[r];
        rank->calls = calls[r];
        rank->ends_s = run->ends_s + (size_t)r * (size_t)count;
        for (int lane = 0; lane < LANES; lane++)
            rank->lanes[lane] = (struct lane){.head = -1, .tail = -1};
        unsigned char *done = rf_alloc((size_t)run->p->chunks * (size_t)run->total);
        const int rc = done ? check_calls(run, r, done)
                            : rf_fail(RF_ENOMEM, "pipeline: out of memory for a run");
        rf_free(done);
        RETURN_IF_ERROR(rc);
        fill_lanes(run, r);
    }
    return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static double cost_of(const struct run *run, enum rf_verb verb)
{
    return verb == RF_VERB_FORWARD          ? run->opts->forward_s
           : verb == RF_VERB_BACKWARD_INPUT ? run->opts->backward_input_s
                                            : run->opts->backward_weight_s;
}

/* Whether the sends of a blocking rank have ended, so that it can continue. */
static bool has_sent(const struct run *run, int rank)
{
    const struct rank *r = &run->ranks[rank];
    const int message = r->at > 0 ? message_of(run, rank, &r->calls[r->at - 1], SENDS) : -1;
    return run->opts->lanes != RF_PIPELINE_BLOCKING || message < 0 ||
           run->messages[message].arrived_s >= 0;
}

static bool call_next(struct run *run, int rank)
{
    struct rank *r = &run->ranks[rank];
    if (r->at == rf_pipeline_call_count(run->p) || !has_sent(run, rank))
        return false;
    const struct rf_pipeline_call *call = &r->calls[r->at];
    const int read = message_of(run, rank, call, RECEIVES);
    const int made = message_of(run, rank, call, SENDS);
    double start_s = r->span.end_s;
    if (run->opts->lanes == RF_PIPELINE_BLOCKING && r->lanes[0].free_s > start_s)
        start_s = r->lanes[0].free_s;
    if (read >= 0 && run->messages[read].arrived_s < 0)
        return false;
    if (read >= 0 && run->messages[read].arrived_s > start_s)
        start_s = run->messages[read].arrived_s;
    const double cost_s = cost_of(run, call->verb);
    r->span.begin_s = r->at == 0 ? start_s : r->span.begin_s;
    r->span.end_s = r->ends_s[r->at++] = start_s + cost_s;
    r->span.busy_s += cost_s;
    if (made >= 0) {
        run->messages[made].made_s = r->span.end_s;
        if (!between_ranks(run, made))
            run->messages[made].arrived_s = r->span.end_s;
    }
    return true;
}

/* The time at which the receive of a message is posted; < 0: not yet known. */
static double posted_s(const struct run *run, const struct rank *r, const struct message *m)
{
    const int last = m->reader - 1 - run->opts->receive_ahead;
    if (last >= r->at)
        return -1;
    return last < 0 ? 0 : r->ends_s[last];
}

/* Transfers the head of a lane if this rank receives it. */
static bool receive_next(struct run *run, int rank, struct lane *lane)
{
    if (lane->head < 0 || lane_of(run, lane->head, RECEIVES) != lane)
        return false;
    struct lane *from = lane_of(run, lane->head, SENDS);
    struct message *m = &run->messages[lane->head];
    double start_s = posted_s(run, &run->ranks[rank], m);
    if (from->head != lane->head || m->made_s < 0 || start_s < 0)
        return false;
    start_s = m->made_s > start_s ? m->made_s : start_s;
    start_s = lane->free_s > start_s ? lane->free_s : start_s;
    start_s = from->free_s > start_s ? from->free_s : start_s;
    m->arrived_s = lane->free_s = from->free_s = start_s + run->opts->transfer_s;
    lane->head = m->next[RECEIVES];
    from->head = m->next[SENDS];
    return true;
}

static int end(const struct run *run)
{
    for (int r = 0; r < run->p->ranks; r++)
        if (run->ranks[r].at < rf_pipeline_call_count(run->p))
            return bad_call(
                run, r, run->ranks[r].at,
                "waits forever: the ranks' orders, or their transfers, block each other; use an "
                "order of rf_pipeline_order, and a lane for each peer and kind");
    return 0;
}

static int run_all(struct run *run, const struct rf_pipeline_call *const *calls)
{
    RETURN_IF_ERROR(begin(run, calls));
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < run->p->ranks; r++) {
            while (call_next(run, r))
                moved = true;
            for (int lane = 0; lane < LANES; lane++)
                while (receive_next(run, r, &run->ranks[r].lanes[lane]))
                    moved = true;
        }
    }
    return end(run);
}

static int check_opts(const struct rf_pipeline_run_opts *opts)
{
    const double seconds[] = {opts->forward_s, opts->backward_input_s, opts->backward_weight_s,
                              opts->transfer_s};
    for (int k = 0; k < 4; k++)
        if (!(seconds[k] >= 0) || isinf(seconds[k]))
            return rf_fail(RF_EINVAL,
                           "pipeline: a duration of %g s; it must be finite and not negative",
                           seconds[k]);
    if ((unsigned)opts->lanes >= sizeof(rows) / sizeof(*rows))
        return rf_fail(RF_EINVAL, "pipeline: lanes %d: unknown; use one of enum rf_pipeline_lanes",
                       (int)opts->lanes);
    if (opts->receive_ahead < 0 || (opts->lanes == RF_PIPELINE_BLOCKING && opts->receive_ahead))
        return rf_fail(RF_EINVAL,
                       "pipeline: receives posted %d calls ahead; use 0 or more, and 0 where "
                       "transfers block",
                       opts->receive_ahead);
    return 0;
}

int rf_pipeline_run(const struct rf_pipeline *p, const struct rf_pipeline_call *const *calls,
                    const struct rf_pipeline_run_opts *opts, struct rf_pipeline_span *spans,
                    double *makespan_s)
{
    RETURN_IF_ERROR(check_opts(opts));
    const size_t count = (size_t)rf_pipeline_call_count(p), ranks = (size_t)p->ranks;
    struct run run = {.p = p, .opts = opts, .total = p->micro_batches * p->steps};
    run.ranks = rf_alloc(ranks * sizeof(*run.ranks));
    run.ends_s = rf_alloc(ranks * count * sizeof(*run.ends_s));
    run.messages =
        rf_alloc(KINDS * (size_t)rf_pipeline_stages(p) * (size_t)run.total * sizeof(*run.messages));
    int rc = run.ranks && run.ends_s && run.messages
                 ? run_all(&run, calls)
                 : rf_fail(RF_ENOMEM, "pipeline: out of memory for a run of %d ranks", p->ranks);
    for (int r = 0; rc == 0 && r < p->ranks; r++) {
        const struct rf_pipeline_span *span = &run.ranks[r].span;
        if (spans)
            spans[r] = *span;
        if (r == 0 || span->end_s > *makespan_s)
            *makespan_s = span->end_s;
    }
    rf_free(run.ranks);
    rf_free(run.ends_s);
    rf_free(run.messages);
    return rc;
}
