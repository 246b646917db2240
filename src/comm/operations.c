/* SPDX-License-Identifier: MIT
 *
 * One path for all collectives on host memory: argument checks, then contract, cached schedule,
 * executor, watch. No data is touched here. The public calls are in calls.c.
 */
#include <ringforge/ringforge.h>

#include "communicator.h"

/* ---- checks ---------------------------------------------------------------------------------- */

void rf_call_counts(const struct rf_comm *comm, const struct rf_call *call, size_t *in, size_t *out)
{
    size_t ranks = (size_t)comm->size, sum = 0;
    size_t piece = call->counts ? call->counts[comm->rank] : call->count;
    size_t whole = call->counts ? call->count : call->count * ranks;
    bool is_root = comm->rank == call->root;
    *in = *out = call->count;
    switch (call->op) {
    case RF_COLL_REDUCE_SCATTER:
        *in = whole;
        *out = piece;
        break;
    case RF_COLL_ALL_GATHER:
        *in = piece;
        *out = whole;
        break;
    case RF_COLL_REDUCE:
        *out = is_root ? call->count : 0;
        break;
    case RF_COLL_GATHER:
        *in = piece;
        *out = is_root ? whole : 0;
        break;
    case RF_COLL_SCATTER:
        *in = is_root ? whole : 0;
        *out = piece;
        break;
    case RF_COLL_ALL_TO_ALL:
        for (size_t r = 0; call->recv_counts && r < ranks; r++)
            sum += call->recv_counts[r];
        *in = whole;
        *out = call->recv_counts ? sum : whole;
        break;
    case RF_COLL_FOREST_ALL_REDUCE:
    case RF_COLL_FOREST_REDUCE_SCATTER: {
        int parts = rf_forest_nodes(call->forest, comm->rank, NULL);
        *in = parts > 0 ? (size_t)(parts - 1) * call->stride + call->count : 0;
        *out = piece;
        break;
    }
    case RF_COLL_PREFIX_REDUCE_SCATTER: {
        const int64_t leaf = (int64_t)call->round * comm->size + comm->rank;
        *in = leaf < call->leaves ? call->count : 0;
        *out = (size_t)rf_prefix_slots(call->leaves, comm->size) * piece;
        break;
    }
    default:
        break;
    }
}

size_t rf_call_own(const struct rf_comm *comm, const struct rf_call *call)
{
    size_t before = 0;
    for (int r = 0; call->counts && r < comm->rank; r++)
        before += call->counts[r];
    return call->counts ? before : call->count * (size_t)comm->rank;
}

int rf_call_check(const struct rf_comm *comm, const struct rf_call *call)
{
    const char *op = rf_coll_op_name(call->op);
    size_t element = rf_dtype_bytes(call->dtype);
    if (element == 0)
        return rf_fail(RF_EINVAL, "%s: unknown element type %d", op, (int)call->dtype);
    if ((unsigned)call->redop > RF_CUSTOM)
        return rf_fail(RF_EINVAL, "%s: unknown reduction %d", op, (int)call->redop);
    if ((call->redop == RF_CUSTOM) != (call->reduction.combine != NULL))
        return rf_fail(RF_EINVAL, "%s: RF_CUSTOM and opts->reduction with a function go together",
                       op);
    if ((unsigned)call->order > RF_ORDER_TREE)
        return rf_fail(RF_EINVAL, "%s: unknown order %d", op, (int)call->order);
    if (rf_coll_has_root(call->op) && (call->root < 0 || call->root >= comm->size))
        return rf_fail(RF_EINVAL, "%s: root %d is outside the world of %d ranks", op, call->root,
                       comm->size);
    size_t whole, most = call->count, received = 0;
    if (call->recv_counts)
        RETURN_IF_ERROR(rf_call_sum(comm, call->op, call->recv_counts, &received));
    most = received > most ? received : most;
    if (__builtin_mul_overflow(most, element * (size_t)comm->size, &whole) || whole > PTRDIFF_MAX)
        return rf_fail(RF_EINVAL,
                       "%s: %zu elements for each of %d ranks are more than memory can hold", op,
                       most, comm->size);
    RETURN_IF_ERROR(rf_check_seconds(op, call->timeout_s));
    return rf_convert_check(call);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

bool rf_call_in_place(const struct rf_comm *comm, const struct rf_call *call, uint64_t in,
                      uint64_t out)
{
    uint64_t own = rf_call_own(comm, call) * rf_dtype_bytes(call->dtype);
    switch (call->op) {
    case RF_COLL_REDUCE_SCATTER:
    case RF_COLL_FOREST_REDUCE_SCATTER:
    case RF_COLL_SCATTER:
        return out == in + own;
    case RF_COLL_ALL_GATHER:
    case RF_COLL_GATHER:
        return in == out + own;
    case RF_COLL_ALL_TO_ALL:
    case RF_COLL_PREFIX_REDUCE_SCATTER:
        return false;
    default:
        return in == out;
    }
}

int rf_call_check_buffers(const struct rf_comm *comm, const struct rf_call *call)
{
    size_t in, out, element = rf_dtype_bytes(call->dtype);
    const char *op = rf_coll_op_name(call->op);
    if (call->op == RF_COLL_BARRIER)
        return 0;
    rf_call_counts(comm, call, &in, &out);
    if ((in > 0 && !call->in) || (out > 0 && !call->out))
        return rf_fail(RF_EINVAL, "%s: %s is NULL, but there are %zu elements", op,
                       in > 0 && !call->in ? "in" : "out", in > 0 && !call->in ? in : out);
    if (overlap(call->in, in * element, call->out, out * element) &&
        !rf_call_in_place(comm, call, (uintptr_t)call->in, (uintptr_t)call->out))
        return rf_fail(RF_EINVAL,
                       "%s: in and out overlap; they may be apart, or in place as the header says",
                       op);
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

void rf_comm_trace(const struct rf_comm *comm, enum rf_coll_op op, size_t bytes, uint64_t start_ns)
{
    char name[48];
    const char *unit = "B";
    double amount = (double)bytes;
    if (bytes >= 1048576) {
        amount /= 1048576;
        unit = "MiB";
    } else if (bytes >= 1024) {
        amount /= 1024;
        unit = "KiB";
    }
    snprintf(name, sizeof(name), "%s %.*f %s", rf_coll_op_name(op), bytes >= 1024, amount, unit);
    rf_trace_event(comm->track ? comm->track : "comm", name, start_ns, rf_now_ns());
}

static int run_to_end(struct rf_comm *comm, const struct rf_cached *cached,
                      const struct rf_exec_args *args, struct rf_watch *watch)
{
    int rc = rf_exec_start(comm->exec, cached->sched, args);
    if (rc < 0)
        return rf_comm_fail_operation(comm, rc, rf_exec_mismatch_peer(comm->exec), watch->mine);
    while ((rc = rf_exec_progress(comm->exec)) == 0) {
        rc = rf_watch_turn(comm, watch, rf_exec_activity(comm->exec));
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rf_comm_fail_operation(comm, rc, rf_exec_mismatch_peer(comm->exec), watch->mine);
    return 0;
}

const struct rf_past *rf_call_begin(struct rf_comm *comm, const struct rf_cached *cached,
                                    const char *label)
{
    struct rf_past *past = &comm->history[comm->sequence % RF_HISTORY];
    past->contract = cached->contract;
    past->contract.sequence = comm->sequence++;
    if (label)
        rf_contract_label(&past->contract, label);
    past->hash = cached->hash;
    past->chain = comm->chain;
    comm->chain = rf_past_next(past);
    return past;
}

/* Messages of different calls, or of calls after different pasts, must never meet: a provider that
 * gets a longer message than its receive expects may do anything (libfabric's shm spins for ever).
 * So the tag holds as much of the contract as it has room for, beside 20 bits of the sequence (and
 * without its highest bit, which libfabric's net uses itself).
 * Whoever waits for a message that has another tag is soon quiet, and then contracts are compared.
 */
struct rf_exec_args rf_call_args(const struct rf_comm *comm, const struct rf_call *call,
                                 const struct rf_past *past)
{
    uint32_t hash = (past->hash ^ past->chain) & 0xffffffu;
    return (struct rf_exec_args){
        .in = call->in,
        .out = call->out,
        .comm_id = RF_WIRE_COLLECTIVE | (hash & 0x3ffu) << 1,
        .sequence = ((uint32_t)past->contract.sequence & 0xfffffu) | (hash >> 10 & 0xffu) << 20,
        .contract = hash | rf_label_hash(call->label),
        .checksum = comm->checksum,
        .reduction = call->redop == RF_CUSTOM ? &call->reduction : NULL,
        .mover = call->mover,
    };
}

/* An operation that is on record. */
static int run_begun(struct rf_comm *comm, const struct rf_call *call,
                     const struct rf_cached *cached, const struct rf_past *past)
{
    if (rf_comm_has_news(comm))
        RETURN_IF_ERROR(rf_comm_events(comm));
    if (comm->announcements > 0)
        RETURN_IF_ERROR(rf_comm_compare_announced(comm, past));
    struct rf_exec_args args = rf_call_args(comm, call, past);
    struct rf_watch watch;
    rf_watch_begin(comm, &watch, &past->contract, call->timeout_s, comm->exec);
    comm->running = &past->contract;
    int rc = run_to_end(comm, cached, &args, &watch);
    comm->running = NULL;
    return rc;
}

int rf_comm_run(struct rf_comm *comm, const struct rf_call *call)
{
    const struct rf_cached *cached;
    if (rf_call_converts(call)) {
        struct rf_call plain;
        RETURN_IF_ERROR(rf_convert_begin(comm, call, &plain));
        RETURN_IF_ERROR(rf_comm_run(comm, &plain));
        rf_convert_end(comm, call, &plain);
        return 0;
    }
    RETURN_IF_ERROR(rf_cache_find(comm, call, &cached));
    uint64_t start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    const struct rf_past *past = rf_call_begin(comm, cached, call->label);
    if (comm->recorder)
        rf_recorder_begin(comm->recorder, past);
    int rc = run_begun(comm, call, cached, past);
    if (comm->recorder)
        rf_recorder_end(comm->recorder, past->contract.sequence, rc);
    if (start_ns > 0)
        rf_comm_trace(comm, call->op, call->count * rf_dtype_bytes(call->dtype), start_ns);
    return rc;
}

/* How its elements are reduced. */
static int take_reduction(struct rf_call *call, const struct rf_coll_opts *opts)
{
    call->wire = opts->wire;
    call->scaled = opts->scale != NULL;
    call->scale = opts->scale ? *opts->scale : 1;
    if (!opts->reduction || !rf_coll_reduces(call->op))
        return 0;
    call->reduction = *opts->reduction;
    const char *name = opts->reduction->name ? opts->reduction->name : "";
    call->reduction_hash = rf_hash32(name, strlen(name), 4);
    call->reduction.name = NULL;
    if (call->reduction.commutes)
        return 0;
    if (call->order == RF_ORDER_RING)
        return rf_fail(RF_EINVAL,
                       "%s: a reduction that does not commute keeps the ranks' order, which "
                       "RF_ORDER_RING does not",
                       rf_coll_op_name(call->op));
    call->order = RF_ORDER_TREE;
    return 0;
}

/* With a request, or while others are under way. */
static int start_beside(struct rf_comm *comm, const struct rf_call *call,
                        struct rf_request **request, bool busy)
{
    const struct rf_task job = {.call = *call};
    rf_family_enter(comm);
    if (!request)
        return rf_async_run(comm, &job);
    if (!busy)
        RETURN_IF_ERROR(rf_comm_ready(comm));
    return rf_async_push_request(comm, &job, request);
}

int rf_call_start(struct rf_comm *comm, struct rf_call *call, const struct rf_coll_opts *opts)
{
    if (opts) {
        call->order = opts->order;
        call->label = opts->label;
        call->algorithm = opts->algorithm;
        call->timeout_s = opts->timeout_s;
        RETURN_IF_ERROR(take_reduction(call, opts));
    }
    RETURN_IF_ERROR(rf_call_check(comm, call));
    RETURN_IF_ERROR(rf_call_check_buffers(comm, call));
    struct rf_request **request = opts ? opts->request : NULL;
    if (comm->group)
        return rf_group_add_call(comm, call, request);
    const bool busy = rf_async_busy(comm->async);
    if (request || busy)
        return start_beside(comm, call, request, busy);
    RETURN_IF_ERROR(rf_comm_ready(comm));
    return rf_comm_run(comm, call);
}
