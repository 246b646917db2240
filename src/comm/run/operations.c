/* SPDX-License-Identifier: MIT
 *
 * The common path of all checked collectives on host memory: contract, cached schedule, executor,
 * monitor. It does not touch data. call_start.c decides which calls run at once.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"

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
    rf_trace_event(comm->history.trace_track ? comm->history.trace_track : "comm", name, start_ns,
                   rf_now_ns());
}

static int fail_run(struct rf_comm *comm, int rc, const struct rf_contract *mine)
{
    return rf_comm_fail_operation(comm, rc, rf_exec_mismatch_peer(comm->executors.blocking), mine);
}

static int wait_for_end(struct rf_comm *comm, const struct rf_contract *mine, double timeout_s)
{
    struct rf_exec *exec = comm->executors.blocking;
    struct rf_wait_monitor monitor;
    int rc;
    rf_wait_monitor_begin(comm, &monitor, mine, timeout_s, exec);
    do {
        rc = rf_wait_monitor_turn(comm, &monitor, rf_exec_activity(exec));
        if (rc < 0)
            return rc;
    } while ((rc = rf_exec_progress(exec)) == 0);
    return rc < 0 ? fail_run(comm, rc, mine) : 0;
}

static int run_to_end(struct rf_comm *comm, const struct rf_cached *cached,
                      const struct rf_exec_args *args, const struct rf_contract *mine,
                      double timeout_s)
{
    struct rf_exec *exec = comm->executors.blocking;
    int rc = rf_exec_start(exec, cached->sched, args);
    if (rc == 0)
        rc = rf_exec_progress(exec);
    if (rc < 0)
        return fail_run(comm, rc, mine);
    return rc == 0 ? wait_for_end(comm, mine, timeout_s) : 0;
}

const struct rf_call_record *rf_call_begin(struct rf_comm *comm, const struct rf_cached *cached,
                                           const char *label)
{
    struct rf_call_record *record =
        &comm->history.records[comm->history.next_sequence % RF_HISTORY];
    record->contract = cached->contract;
    record->contract.sequence = comm->history.next_sequence++;
    if (label)
        rf_contract_label(&record->contract, label);
    record->hash = cached->hash;
    record->chain_hash = comm->history.chain_hash;
    comm->history.chain_hash = rf_call_chain_hash(record);
    return record;
}

/* A message must never match the receive of a different call: if a message is longer than the
 * receive, a provider may do anything (libfabric's shm spins forever). So the tag holds as many
 * bits of the contract as fit beside 20 bits of the sequence (without its highest bit, which
 * libfabric's native TCP uses itself). A receive with another tag makes no progress, and after a
 * while contracts are compared. */
struct rf_exec_args rf_call_args(const struct rf_comm *comm, const struct rf_call *call,
                                 const struct rf_call_record *record)
{
    uint32_t hash = (record->hash ^ record->chain_hash) & 0xffffffu;
    return (struct rf_exec_args){
        .in = call->in,
        .out = call->out,
        .comm_id = RF_TAG_COLLECTIVE | (hash & 0x3ffu) << 1,
        .sequence = ((uint32_t)record->contract.sequence & 0xfffffu) | (hash >> 10 & 0xffu) << 20,
        .contract = hash | rf_label_hash(call->label),
        .flush = comm->settings.flush,
        .checksum = comm->settings.checksum,
        .reduction = call->desc.redop == RF_CUSTOM ? &call->reduction : NULL,
        .mover = call->mover,
    };
}

/* Runs a recorded operation. */
static int run_recorded(struct rf_comm *comm, const struct rf_call *call,
                        const struct rf_cached *cached, const struct rf_call_record *record)
{
    if (rf_comm_has_events(comm))
        RETURN_IF_ERROR(rf_comm_events(comm));
    if (comm->peers.announced > 0)
        RETURN_IF_ERROR(rf_comm_compare_announced(comm, record));
    const struct rf_exec_args args = rf_call_args(comm, call, record);
    comm->history.running = &record->contract;
    int rc = run_to_end(comm, cached, &args, &record->contract, call->timeout_s);
    comm->history.running = NULL;
    return rc;
}

int rf_comm_run_cached(struct rf_comm *comm, const struct rf_call *call,
                       const struct rf_cached *cached)
{
    uint64_t start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    const struct rf_call_record *record = rf_call_begin(comm, cached, call->label);
    if (comm->history.recorder)
        rf_recorder_begin(comm->history.recorder, record);
    int rc = run_recorded(comm, call, cached, record);
    if (comm->history.recorder)
        rf_recorder_end(comm->history.recorder, record->contract.sequence, rc);
    if (start_ns > 0)
        rf_comm_trace(comm, call->desc.op, call->desc.count * rf_dtype_bytes(call->desc.dtype),
                      start_ns);
    return rc;
}

int rf_comm_run(struct rf_comm *comm, const struct rf_call *call)
{
    struct rf_cached *cached;
    if (rf_call_converts(call)) {
        struct rf_call plain;
        RETURN_IF_ERROR(rf_convert_begin(comm, call, &plain));
        RETURN_IF_ERROR(rf_comm_run(comm, &plain));
        rf_convert_end(comm, call, &plain);
        return 0;
    }
    RETURN_IF_ERROR(rf_cache_find(comm, call, &cached));
    return rf_comm_run_cached(comm, call, cached);
}
