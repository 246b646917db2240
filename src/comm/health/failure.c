/* SPDX-License-Identifier: MIT
 *
 * Failing a communicator: the failure as data, its message, and the status of later calls.
 * failure_cause.c finds the cause of a failed operation.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"

static bool known(const struct rf_contract *contract)
{
    return contract->op != RF_COLL_NONE;
}

/* This rank's call in the operation of a failure; NULL: unknown. Sends and receives are numbered
 * separately. */
static const struct rf_contract *own_contract(const struct rf_comm *comm,
                                              const struct rf_failure *failure)
{
    bool about_collective = !rf_contract_is_p2p(&failure->a) || !rf_contract_is_p2p(&failure->b);
    const struct rf_call_record *record =
        about_collective ? rf_call_history_find(&comm->history, failure->sequence) : NULL;
    return record ? &record->contract : NULL;
}

/* The call of `rank`. This rank knows its own call even if the failure's sender did not. */
static struct rf_contract contract_of(const struct rf_comm *comm, const struct rf_failure *failure,
                                      int rank, const struct rf_contract *sent)
{
    const struct rf_contract *own = own_contract(comm, failure);
    return rank == comm->rank && !known(sent) && own ? *own : *sent;
}

/* The failure from this rank's point of view. */
static void mismatch_error(const struct rf_comm *comm, const struct rf_failure *failure,
                           struct rf_error *error)
{
    char text_a[160], text_b[160];
    struct rf_contract a = contract_of(comm, failure, failure->rank_a, &failure->a);
    struct rf_contract b = contract_of(comm, failure, failure->rank_b, &failure->b);
    bool points = rf_contract_is_p2p(&a) && rf_contract_is_p2p(&b);
    error->mine = a;
    error->theirs = b;
    error->rank = failure->rank_b;
    if (comm->rank == failure->rank_b) {
        error->mine = b;
        error->theirs = a;
        error->rank = failure->rank_a;
    } else if (comm->rank != failure->rank_a) {
        const struct rf_contract *own = own_contract(comm, failure);
        if (own && rf_contract_equal(own, &b)) {
            error->theirs = a;
            error->rank = failure->rank_a;
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
             failure->rank_a, rf_contract_text(&a, text_a, sizeof(text_a)), failure->rank_b,
             rf_contract_text(&b, text_b, sizeof(text_b)), points ? "message" : "operation",
             (unsigned long long)failure->sequence, rule);
}

/* Messages have the ranks of the communicator. For a group, adds their numbers in the job. */
static void name_in_job(const struct rf_comm *comm, const struct rf_failure *failure,
                        struct rf_error *error)
{
    if (failure->of_job) {
        const size_t end = strlen(error->message);
        if (comm->layout.job_ranks)
            snprintf(error->message + end, sizeof(error->message) - end,
                     "; these are ranks of the job");
        return;
    }
    const bool two = failure->status == RF_EMISMATCH && failure->rank_a >= 0;
    const int ranks[] = {two ? failure->rank_a : failure->rank, two ? failure->rank_b : -1};
    size_t at = strlen(error->message);
    const char *before = "; these are ranks of a group:";
    for (int i = 0; i < 2 && comm->layout.job_ranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            continue;
        if (at < sizeof(error->message))
            at += (size_t)snprintf(error->message + at, sizeof(error->message) - at,
                                   "%s rank %d is rank %d of the job", before, ranks[i],
                                   comm->layout.job_ranks[ranks[i]]);
        before = ",";
    }
}

int rf_comm_fail(struct rf_comm *comm, const struct rf_failure *failure, bool notify)
{
    if (comm->failure.failed)
        return rf_fail_error(&comm->failure.error);
    struct rf_error *error = &comm->failure.error;
    memset(error, 0, sizeof(*error));
    error->status = failure->status;
    error->rank = failure->rank;
    error->sequence = failure->sequence;
    if (failure->status == RF_EMISMATCH && failure->rank_a >= 0)
        mismatch_error(comm, failure, error);
    else
        snprintf(error->message, sizeof(error->message), "%.*s", RF_FAILURE_TEXT, failure->message);
    name_in_job(comm, failure, error);
    comm->failure.cause = *failure;
    comm->failure.failed = true;
    /* Before the transport is stopped, which may take a while and looks like a death to others. */
    if (notify)
        rf_comm_send_failure(comm, failure);
    comm->links.transport->lost_peer =
        failure->status == RF_EPEER || failure->status == RF_ETIMEOUT;
    comm->links.transport->ops->cancel_all(comm->links.transport);
    for (int i = 0; i < RF_INFLIGHT; i++)
        if (comm->executors.all[i])
            rf_exec_reset(comm->executors.all[i]);
    rf_log("comm", 1, "the communicator has failed: %s", error->message);
    return rf_fail_error(error);
}

int rf_comm_fail_mismatch(struct rf_comm *comm, int rank_a, const struct rf_contract *a, int rank_b,
                          const struct rf_contract *b)
{
    /* The lower rank comes first, so that all ranks that find the mismatch have the same message.
     */
    bool swap = rank_b < rank_a;
    struct rf_failure failure = {
        .status = RF_EMISMATCH,
        .rank = swap ? rank_a : rank_b,
        .sequence = a->sequence,
        .rank_a = swap ? rank_b : rank_a,
        .rank_b = swap ? rank_a : rank_b,
        .a = swap ? *b : *a,
        .b = swap ? *a : *b,
    };
    return rf_comm_fail(comm, &failure, true);
}

int rf_comm_fail_text(struct rf_comm *comm, int status, int rank, const struct rf_contract *mine,
                      const char *format, ...)
{
    struct rf_failure failure = {.status = status,
                                 .rank = rank,
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = mine ? mine->sequence : comm->history.next_sequence};
    va_list args;
    va_start(args, format);
    vsnprintf(failure.message, sizeof(failure.message), format, args);
    va_end(args);
    return rf_comm_fail(comm, &failure, true);
}

struct rf_failure rf_comm_failure_for(const struct rf_comm *comm, const struct rf_comm *other)
{
    const struct rf_failure *own = &comm->failure.cause;
    const struct rf_contract a = contract_of(comm, own, own->rank_a, &own->a);
    const struct rf_contract b = contract_of(comm, own, own->rank_b, &own->b);
    struct rf_failure failure = {
        .status = own->status, .rank = -1, .rank_a = -1, .rank_b = -1, .of_job = true};
    struct rf_error names = {.message = ""};
    char text_a[160], text_b[160];
    if (own->rank >= 0 && own->rank < comm->size)
        failure.rank = rf_comm_rank_from_job(other, rf_comm_job_rank(comm, own->rank));
    if (own->status == RF_EMISMATCH && own->rank_a >= 0 && !own->of_job) {
        snprintf(failure.message, sizeof(failure.message),
                 "rank %d called %.76s while rank %d called %.76s, in operation %llu of their "
                 "group; every rank must make the same calls",
                 rf_comm_job_rank(comm, own->rank_a), rf_contract_text(&a, text_a, sizeof(text_a)),
                 rf_comm_job_rank(comm, own->rank_b), rf_contract_text(&b, text_b, sizeof(text_b)),
                 (unsigned long long)own->sequence);
        return failure;
    }
    name_in_job(comm, own, &names);
    const int capacity = (int)(sizeof(failure.message) - 1 - strnlen(names.message, 200));
    snprintf(failure.message, sizeof(failure.message), "%.*s%.200s", capacity, own->message,
             names.message);
    return failure;
}

int rf_comm_failed_earlier(struct rf_comm *comm)
{
    if (rf_async_unreported(comm->async) || comm->failure.unreported) {
        comm->failure.unreported = false;
        return rf_fail_error(&comm->failure.error);
    }
    struct rf_error error = {.status = RF_EABORT,
                             .rank = comm->failure.error.rank,
                             .sequence = comm->failure.error.sequence};
    snprintf(error.message, sizeof(error.message), "this communicator failed earlier (%s): %.700s",
             rf_status_name(comm->failure.error.status), comm->failure.error.message);
    return rf_fail_error(&error);
}
