/* SPDX-License-Identifier: MIT
 *
 * The memory operations of the steps of a schedule: reductions, copies, zero-copy data, and
 * exchanged addresses.
 */
#include "exec_state.h"

static struct zero_copy *zero_copy_of(const struct rf_exec *exec, struct rf_operand operand)
{
    if (exec->zero_copy_count == 0 || operand.space != RF_SPACE_TMP ||
        operand.offset % RF_TEMP_ALIGNMENT != 0)
        return NULL;
    struct zero_copy *at = &exec->zero_copies[operand.offset / RF_TEMP_ALIGNMENT];
    return at->token ? at : NULL;
}

/* The address of an operand: where it was received, or where it stayed. */
static const void *source(const struct rf_exec *exec, struct rf_operand operand)
{
    const struct zero_copy *at = zero_copy_of(exec, operand);
    return at ? at->data : rf_exec_address(exec, operand);
}

static void release(struct rf_exec *exec, struct rf_operand operand)
{
    struct zero_copy *at = zero_copy_of(exec, operand);
    if (!at)
        return;
    if (at->token != RF_LANDED)
        exec->transport->ops->release_zero_copy(exec->transport, at->peer, at->token);
    at->token = 0;
    exec->zero_copy_count--;
}

/* Whether data that others read is written past the caches. */
static bool streams(const struct rf_exec *exec)
{
    return exec->transport && exec->transport->streams;
}

/* Copies data to the place where others read it. */
static void publish(const struct rf_exec *exec, void *to, const void *from, size_t bytes)
{
    if (!streams(exec)) {
        memcpy(to, from, bytes);
        return;
    }
    rf_copy_past(to, from, bytes);
    rf_copy_fence();
}

void rf_exec_copy(struct rf_exec *exec, const struct rf_step *step, uint64_t offset, uint64_t bytes)
{
    unsigned char *dst = rf_exec_address(exec, step->dst);
    const unsigned char *from = source(exec, step->a);
    const uint64_t whole = step->dst.space == RF_SPACE_OUT ? exec->sched->whole_bytes : 0;
    if (dst != from)
        rf_copy_bytes(dst + offset, from + offset, bytes,
                      whole > step->bytes ? whole : step->bytes);
    if (offset + bytes == step->bytes)
        release(exec, step->a);
}

static void run_publish(struct rf_exec *exec, const struct rf_step *step)
{
    if (!rf_exec_is_read(exec, step->a.space, step->bytes))
        publish(exec, rf_exec_address(exec, step->dst), source(exec, step->a), step->bytes);
    release(exec, step->a);
}

static void run_fold(struct rf_exec *exec, const struct rf_step *step, size_t count)
{
    const struct rf_sched *sched = exec->sched;
    const struct rf_operand *list = sched->operands + step->list;
    for (uint32_t i = 0; i < step->list_count; i++)
        exec->parts[i] =
            (struct rf_fold_part){.data = source(exec, list[i]), .level = (int)list[i].level};
    const struct rf_fold fold = {.parts = exec->parts,
                                 .part_count = step->list_count,
                                 .dtype = sched->dtype,
                                 .redop = sched->redop,
                                 .custom = exec->args.reduction,
                                 .tree = step->tree,
                                 .divisor = step->divide ? sched->ranks : 1};
    unsigned char *dst = rf_exec_address(exec, step->dst);
    unsigned char *read =
        step->published ? rf_exec_published(exec, step->dst, step->a, step->bytes) : dst;
    const bool sum_first = streams(exec) && read != dst;
    if (streams(exec) && step->dst.space == RF_SPACE_TMP) /* for others */
        rf_fold_to_all(&dst, 1, &fold, count, true);
    else
        rf_fold(sum_first ? dst : read, &fold, count);
    for (uint32_t i = 0; i < step->list_count; i++)
        release(exec, list[i]);
    if (sum_first)
        publish(exec, read, dst, step->bytes);
    else if (read != dst)
        rf_copy_bytes(dst, read, step->bytes, sched->out_bytes);
}

static void run_reduce_all(struct rf_exec *exec, const struct rf_step *step, size_t count)
{
    const struct rf_sched *sched = exec->sched;
    for (int i = 0; i < sched->ranks; i++) {
        int rank = step->tree ? i : (step->peer + i) % sched->ranks;
        exec->parts[i] = (struct rf_fold_part){.data = exec->all[rank].in + step->a.offset};
    }
    struct rf_fold fold = {.parts = exec->parts,
                           .part_count = (uint32_t)sched->ranks,
                           .dtype = sched->dtype,
                           .redop = sched->redop,
                           .custom = exec->args.reduction,
                           .tree = step->tree,
                           .divisor = step->divide ? sched->ranks : 1};
    for (int rank = 0; rank < sched->ranks; rank++)
        exec->places[rank] = exec->all[rank].out + step->dst.offset;
    rf_fold_to_all(exec->places, sched->ranks, &fold, count, sched->buffer_bytes >= RF_PAST_CACHES);
    exec->activity++;
}

static bool can_be_reached(struct rf_exec *exec, const void *buffer, uint64_t bytes)
{
    uint64_t offset;
    return bytes > 0 && exec->transport->ops->locate(exec->transport, buffer, bytes, &offset);
}

void rf_exec_find_reachable(struct rf_exec *exec)
{
    exec->reachable[RF_SPACE_IN] = can_be_reached(exec, exec->args.in, exec->sched->in_bytes);
    exec->reachable[RF_SPACE_OUT] = can_be_reached(exec, exec->args.out, exec->sched->out_bytes);
    const bool reads = exec->transport && exec->transport->read_bytes > 0;
    exec->readable[RF_SPACE_IN] = reads && exec->sched->in_bytes > 0;
    exec->readable[RF_SPACE_OUT] = reads && exec->sched->out_bytes > 0;
}

static void run_exchange_addresses(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_transport_ops *ops = exec->transport->ops;
    size_t bytes = exec->sched->buffer_bytes;
    struct rf_addresses addresses = {0};
    addresses.valid = ops->locate(exec->transport, exec->args.in, bytes, &addresses.in) &&
                      ops->locate(exec->transport, exec->args.out, bytes, &addresses.out);
    memcpy(rf_exec_address(exec, step->dst), &addresses, sizeof(addresses));
}

int rf_exec_agree(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    const unsigned char *place = rf_exec_address(exec, step->a);
    for (int rank = 0; rank < sched->ranks; rank++, place += RF_TEMP_ALIGNMENT) {
        struct rf_addresses addresses;
        memcpy(&addresses, place, sizeof(addresses));
        if (!addresses.valid)
            return 0;
        exec->all[rank] = (struct buffers){exec->base[RF_SPACE_IN], exec->base[RF_SPACE_OUT]};
        if (rank == sched->rank)
            continue;
        struct rf_transport *t = exec->transport;
        const size_t bytes = sched->buffer_bytes;
        RETURN_IF_ERROR(t->ops->reach(t, rank, addresses.in, bytes, &exec->all[rank].in));
        RETURN_IF_ERROR(t->ops->reach(t, rank, addresses.out, bytes, &exec->all[rank].out));
    }
    return 1;
}

static void work(struct rf_exec *exec, const struct rf_step *step)
{
    const struct rf_sched *sched = exec->sched;
    void *dst = rf_exec_address(exec, step->dst);
    size_t count = step->bytes / sched->element_bytes;
    switch (step->verb) {
    case RF_STEP_REDUCE:
        if (step->list_count > 0) {
            run_fold(exec, step, count);
            break;
        }
        if (exec->args.reduction)
            exec->args.reduction->combine(dst, source(exec, step->a), source(exec, step->b), count,
                                          exec->args.reduction->user);
        else
            rf_combine(dst, source(exec, step->a), source(exec, step->b), count, sched->dtype,
                       sched->redop);
        release(exec, step->a);
        release(exec, step->b);
        break;
    case RF_STEP_COPY:
        run_publish(exec, step); /* exec.c runs the other copies, in pieces */
        break;
    case RF_STEP_ADDRESSES:
        run_exchange_addresses(exec, step);
        break;
    case RF_STEP_REDUCE_ALL:
        run_reduce_all(exec, step, count);
        break;
    default:
        break; /* a join */
    }
}

/* Minimum and maximum select an operand, and compute nothing. */
static bool flushes(const struct rf_exec *exec)
{
    const enum rf_redop redop = exec->sched->redop;
    return exec->args.flush && !exec->args.reduction && redop != RF_MIN && redop != RF_MAX;
}

void rf_exec_work(struct rf_exec *exec, const struct rf_step *step)
{
    const bool flush = flushes(exec);
    const uint64_t before = rf_flush_begin(flush);
    work(exec, step);
    rf_flush_end(flush, before);
}
