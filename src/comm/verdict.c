/* SPDX-License-Identifier: MIT
 *
 * How a communicator fails: the verdict as data, its sentence, the search for the true reason
 * behind a transport's error, and what later calls are told.
 */
#include <ringforge/ringforge.h>

#include "communicator.h"

static bool known(const struct rf_contract *contract)
{
    return contract->op != RF_COLL_NONE;
}

/* Its own, in the operation that a verdict is about. Messages are numbered apart. */
static const struct rf_contract *own_contract(const struct rf_comm *comm,
                                              const struct rf_verdict *verdict)
{
    bool about_collective =
        !rf_contract_is_point(&verdict->a) || !rf_contract_is_point(&verdict->b);
    const struct rf_past *past = about_collective ? rf_comm_history(comm, verdict->sequence) : NULL;
    return past ? &past->contract : NULL;
}

/* What this rank itself called is known here, whatever the verdict's author knew. */
static struct rf_contract side(const struct rf_comm *comm, const struct rf_verdict *verdict,
                               int rank, const struct rf_contract *told)
{
    const struct rf_contract *own = own_contract(comm, verdict);
    return rank == comm->rank && !known(told) && own ? *own : *told;
}

/* The verdict from this rank's point of view. */
static void mismatch_error(const struct rf_comm *comm, const struct rf_verdict *verdict,
                           struct rf_error *error)
{
    char text_a[160], text_b[160];
    struct rf_contract a = side(comm, verdict, verdict->rank_a, &verdict->a);
    struct rf_contract b = side(comm, verdict, verdict->rank_b, &verdict->b);
    bool points = rf_contract_is_point(&a) && rf_contract_is_point(&b);
    error->mine = a;
    error->theirs = b;
    error->rank = verdict->rank_b;
    if (comm->rank == verdict->rank_b) {
        error->mine = b;
        error->theirs = a;
        error->rank = verdict->rank_a;
    } else if (comm->rank != verdict->rank_a) {
        const struct rf_contract *own = own_contract(comm, verdict);
        if (own && rf_contract_equal(own, &b)) {
            error->theirs = a;
            error->rank = verdict->rank_a;
        }
        if (own)
            error->mine = *own;
    }
    const char *rule = "every rank must make the same calls in the same order";
    if (points)
        rule = "count, type and label of a send and its receive must be equal";
    else if (a.op == RF_COLL_FOREST_ALL_REDUCE && rf_contract_equal(&a, &b))
        rule = "the leaves must be shared out in the same way on every rank";
    else if (rf_coll_adds_leaves(a.op) && rf_contract_equal(&a, &b))
        rule = "the leaves and the count for each rank must be the same on all of them";
    else if (a.redop == RF_CUSTOM && rf_contract_equal(&a, &b))
        rule = "the names of their reductions must be equal";
    else if (known(&a) && rf_contract_equal(&a, &b))
        rule = "the count for each rank must be the same on all of them";
    snprintf(error->message, sizeof(error->message),
             "rank %d called %s while rank %d called %s, in %s %llu of this communicator; %s",
             verdict->rank_a, rf_contract_text(&a, text_a, sizeof(text_a)), verdict->rank_b,
             rf_contract_text(&b, text_b, sizeof(text_b)), points ? "message" : "operation",
             (unsigned long long)verdict->sequence, rule);
}

/* Ranks in messages are those of the communicator; of a group it is said whom they are in the job.
 */
static void name_in_job(const struct rf_comm *comm, const struct rf_verdict *verdict,
                        struct rf_error *error)
{
    if (verdict->of_job) {
        const size_t end = strlen(error->message);
        if (comm->job_ranks)
            snprintf(error->message + end, sizeof(error->message) - end,
                     "; these are ranks of the job");
        return;
    }
    const bool two = verdict->status == RF_EMISMATCH && verdict->rank_a >= 0;
    const int ranks[] = {two ? verdict->rank_a : verdict->rank, two ? verdict->rank_b : -1};
    size_t at = strlen(error->message);
    const char *before = "; these are ranks of a group:";
    for (int i = 0; i < 2 && comm->job_ranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            continue;
        if (at < sizeof(error->message))
            at += (size_t)snprintf(error->message + at, sizeof(error->message) - at,
                                   "%s rank %d is rank %d of the job", before, ranks[i],
                                   comm->job_ranks[ranks[i]]);
        before = ",";
    }
}

int rf_comm_fail(struct rf_comm *comm, const struct rf_verdict *verdict, bool tell)
{
    if (comm->failed)
        return rf_fail_error(&comm->error);
    struct rf_error *error = &comm->error;
    memset(error, 0, sizeof(*error));
    error->status = verdict->status;
    error->rank = verdict->rank;
    error->sequence = verdict->sequence;
    if (verdict->status == RF_EMISMATCH && verdict->rank_a >= 0)
        mismatch_error(comm, verdict, error);
    else
        snprintf(error->message, sizeof(error->message), "%.*s", RF_VERDICT_TEXT, verdict->message);
    name_in_job(comm, verdict, error);
    comm->verdict = *verdict;
    comm->failed = true;
    /* First, as stopping the transport may take its time, and to others looks like a death. */
    if (tell)
        rf_note_verdict(comm, verdict);
    comm->wire->lost_peer = verdict->status == RF_EPEER || verdict->status == RF_ETIMEOUT;
    comm->wire->ops->cancel_all(comm->wire);
    for (int i = 0; i < RF_FLIGHTS; i++)
        if (comm->execs[i])
            rf_exec_reset(comm->execs[i]);
    rf_log("comm", 1, "the communicator has failed: %s", error->message);
    return rf_fail_error(error);
}

int rf_comm_fail_mismatch(struct rf_comm *comm, int rank_a, const struct rf_contract *a, int rank_b,
                          const struct rf_contract *b)
{
    /* The lower rank first, so that all ranks that find out by themselves say the same. */
    bool swap = rank_b < rank_a;
    struct rf_verdict verdict = {
        .status = RF_EMISMATCH,
        .rank = swap ? rank_a : rank_b,
        .sequence = a->sequence,
        .rank_a = swap ? rank_b : rank_a,
        .rank_b = swap ? rank_a : rank_b,
        .a = swap ? *b : *a,
        .b = swap ? *a : *b,
    };
    return rf_comm_fail(comm, &verdict, true);
}

int rf_comm_fail_text(struct rf_comm *comm, int status, int rank, const struct rf_contract *mine,
                      const char *format, ...)
{
    struct rf_verdict verdict = {.status = status,
                                 .rank = rank,
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = mine ? mine->sequence : comm->sequence};
    va_list args;
    va_start(args, format);
    vsnprintf(verdict.message, sizeof(verdict.message), format, args);
    va_end(args);
    return rf_comm_fail(comm, &verdict, true);
}

/* The peer says that it waits in the same call as this rank, with the same past. */
static bool says_the_same(const struct rf_comm *comm, int peer, uint64_t sequence)
{
    if (peer < 0 || !comm->peers[peer].has_waiting)
        return false;
    const struct rf_past *own = rf_comm_history(comm, sequence);
    const struct rf_past *theirs = &comm->peers[peer].waiting;
    return own && theirs->contract.sequence == sequence && theirs->chain == own->chain;
}

/* Gives the control link some time to say what happened. True: it has failed the communicator. */
static bool told_within(struct rf_comm *comm, uint64_t ns, int suspect, uint64_t sequence)
{
    uint64_t end = rf_now_ns() + ns;
    do {
        if (rf_comm_events(comm) < 0)
            return true;
        if (says_the_same(comm, suspect, sequence))
            return false;
        rf_sleep_ns(100000);
    } while (rf_now_ns() < end);
    return false;
}

bool rf_comm_told_within(struct rf_comm *comm, uint64_t ns)
{
    return told_within(comm, ns, -1, 0);
}

/* A message carried another contract or size: both sides are to be named, so ask. */
static int fail_on_foreign_message(struct rf_comm *comm, int suspect,
                                   const struct rf_contract *mine)
{
    char text[160];
    struct rf_error error = *rf_last_error();
    if (rf_contract_is_point(mine)) /* envelopes are compared before any data travel */
        return rf_comm_fail_text(comm, RF_ECORRUPT, error.rank, mine, "%.200s", error.message);
    if (suspect < 0 || suspect >= comm->size)
        suspect = (comm->rank + comm->size - 1) % comm->size;
    rf_note_waiting(comm, mine, suspect);
    if (told_within(comm, RF_ASK_NS, suspect, mine->sequence))
        return rf_fail_error(&comm->error);
    if (says_the_same(comm, suspect, mine->sequence))
        return rf_comm_fail_text(
            comm, RF_ECORRUPT, suspect, mine,
            "a message from rank %d to rank %d was damaged: both called %s, but "
            "contract or size on the wire differ",
            suspect, comm->rank, rf_contract_text(mine, text, sizeof(text)));
    struct rf_contract unknown = {.sequence = mine->sequence, .root = -1};
    return rf_comm_fail_mismatch(comm, comm->rank, mine, suspect, &unknown);
}

int rf_comm_fail_operation(struct rf_comm *comm, int status, int suspect,
                           const struct rf_contract *mine)
{
    if (comm->failed)
        return rf_fail_error(&comm->error);
    if (status == RF_EMISMATCH)
        return fail_on_foreign_message(comm, suspect, mine);
    struct rf_error error = *rf_last_error();
    /* A broken connection is mostly the echo of a failure that its owner is about to explain. */
    if ((status == RF_EPEER || status == RF_ENET) && told_within(comm, RF_ASK_NS, -1, 0))
        return rf_fail_error(&comm->error);
    char text[160];
    return rf_comm_fail_text(comm, status, error.rank, mine, "%s on rank %d: %.180s",
                             mine ? rf_contract_text(mine, text, 80) : "an operation", comm->rank,
                             error.message);
}

struct rf_verdict rf_comm_verdict_for(const struct rf_comm *comm, const struct rf_comm *other)
{
    const struct rf_verdict *own = &comm->verdict;
    const struct rf_contract a = side(comm, own, own->rank_a, &own->a);
    const struct rf_contract b = side(comm, own, own->rank_b, &own->b);
    struct rf_verdict verdict = {
        .status = own->status, .rank = -1, .rank_a = -1, .rank_b = -1, .of_job = true};
    struct rf_error names = {.message = ""};
    char text_a[160], text_b[160];
    if (own->rank >= 0 && own->rank < comm->size)
        verdict.rank = rf_comm_from_job(other, rf_comm_in_job(comm, own->rank));
    if (own->status == RF_EMISMATCH && own->rank_a >= 0 && !own->of_job) {
        snprintf(verdict.message, sizeof(verdict.message),
                 "rank %d called %.76s while rank %d called %.76s, in operation %llu of their "
                 "group; every rank must make the same calls",
                 rf_comm_in_job(comm, own->rank_a), rf_contract_text(&a, text_a, sizeof(text_a)),
                 rf_comm_in_job(comm, own->rank_b), rf_contract_text(&b, text_b, sizeof(text_b)),
                 (unsigned long long)own->sequence);
        return verdict;
    }
    name_in_job(comm, own, &names);
    const int room = (int)(sizeof(verdict.message) - 1 - strnlen(names.message, 200));
    snprintf(verdict.message, sizeof(verdict.message), "%.*s%.200s", room, own->message,
             names.message);
    return verdict;
}

int rf_comm_report(struct rf_comm *comm)
{
    if (rf_async_untold(comm->async) || comm->unreported) {
        comm->unreported = false;
        return rf_fail_error(&comm->error);
    }
    struct rf_error error = {
        .status = RF_EABORT, .rank = comm->error.rank, .sequence = comm->error.sequence};
    snprintf(error.message, sizeof(error.message), "this communicator failed earlier (%s): %.700s",
             rf_status_name(comm->error.status), comm->error.message);
    return rf_fail_error(&error);
}
