/* SPDX-License-Identifier: MIT
 *
 * The interpreter's own memory: it grows to the needs of the largest schedule so far, and is kept.
 */
#include "exec_state.h"

enum { TEMP_PAGE = 4096 };

int rf_exec_create(struct rf_transport *transport, struct rf_exec **out)
{
    struct rf_exec *exec = rf_alloc(sizeof(*exec));
    if (!exec)
        return rf_fail(RF_ENOMEM, "out of memory for an executor of collectives");
    exec->transport = transport;
    exec->shares = rf_transport_shares_memory(transport);
    exec->mismatch_peer = -1;
    *out = exec;
    return 0;
}

static void free_temp(struct rf_exec *exec)
{
    if (exec->temp_handle)
        exec->transport->ops->deregister_memory(exec->transport, exec->temp_handle);
    if (exec->shares)
        exec->transport->ops->free(exec->transport, exec->temp);
    else
        rf_free(exec->temp);
    rf_free(exec->zero_copies);
    exec->zero_copies = NULL;
    exec->temp = exec->temp_handle = NULL;
    exec->temp_capacity = 0;
}

void rf_exec_destroy(struct rf_exec *exec)
{
    if (!exec)
        return;
    free_temp(exec);
    rf_free(exec->need);
    rf_free(exec->messages);
    rf_free(exec->free_messages);
    rf_free(exec->parts);
    rf_free(exec->all);
    rf_free(exec);
}

void rf_exec_free_messages(struct rf_exec *exec)
{
    exec->free_count = exec->message_capacity;
    for (uint32_t i = 0; i < exec->message_capacity; i++) {
        exec->messages[i].context.owner = exec;
        exec->messages[i].step = RF_NO_STEP;
        exec->free_messages[i] = exec->message_capacity - 1 - i;
    }
}

static bool grow_messages(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->messages);
    rf_free(exec->free_messages);
    exec->message_capacity = exec->free_count = 0;
    exec->messages = rf_alloc_aligned(count * sizeof(*exec->messages), 64);
    exec->free_messages = rf_alloc(count * sizeof(uint32_t));
    if (!exec->messages || !exec->free_messages)
        return false;
    exec->message_capacity = count;
    rf_exec_free_messages(exec);
    return true;
}

static bool grow_steps(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->need);
    exec->step_capacity = 0;
    exec->need = rf_alloc(7 * (size_t)count * sizeof(uint32_t));
    if (!exec->need)
        return false;
    exec->recvs.steps = exec->need + count;
    exec->sends.steps = exec->recvs.steps + count;
    exec->work = exec->sends.steps + count;
    exec->moves[0].ready.steps = exec->work + count;
    exec->moves[1].ready.steps = exec->moves[0].ready.steps + count;
    exec->copies.steps = exec->moves[1].ready.steps + count;
    exec->step_capacity = count;
    return true;
}

static bool grow_parts(struct rf_exec *exec, uint32_t count)
{
    rf_free(exec->parts);
    exec->part_capacity = 0;
    exec->parts = rf_alloc(count * sizeof(*exec->parts));
    if (!exec->parts)
        return false;
    exec->part_capacity = count;
    return true;
}

static int grow_temp(struct rf_exec *exec, size_t bytes)
{
    free_temp(exec);
    if (exec->shares) { /* data sent from it is not copied on the way */
        RETURN_IF_ERROR(exec->transport->ops->alloc(exec->transport, bytes, &exec->temp));
        exec->zero_copies = rf_alloc((bytes / RF_TEMP_ALIGNMENT + 1) * sizeof(*exec->zero_copies));
    } else {
        exec->temp = rf_alloc_aligned(bytes, TEMP_PAGE);
    }
    if (!exec->temp || (exec->shares && !exec->zero_copies))
        return rf_fail(RF_ENOMEM, "%s: out of memory for %zu bytes of temporary data",
                       rf_coll_op_name(exec->sched->op), bytes);
    exec->temp_capacity = bytes;
    struct rf_transport *transport = exec->transport;
    if (!transport || !transport->ops->register_memory)
        return 0;
    int status = transport->ops->register_memory(transport, exec->temp, bytes, &exec->temp_handle);
    if (status < 0)
        free_temp(exec);
    return status;
}

static bool grow_all(struct rf_exec *exec, int ranks)
{
    rf_free(exec->all);
    exec->all_capacity = 0;
    exec->all = rf_alloc((size_t)ranks * (sizeof(*exec->all) + sizeof(*exec->places)));
    if (!exec->all)
        return false;
    exec->places = (unsigned char **)(exec->all + ranks);
    exec->all_capacity = ranks;
    return true;
}

int rf_exec_reserve(struct rf_exec *exec, const struct rf_sched *sched)
{
    if (sched->fallback)
        RETURN_IF_ERROR(rf_exec_reserve(exec, sched->fallback));
    if ((sched->count > exec->step_capacity && !grow_steps(exec, sched->count)) ||
        (sched->message_count > exec->message_capacity &&
         !grow_messages(exec, sched->message_count)) ||
        (sched->longest_list > exec->part_capacity && !grow_parts(exec, sched->longest_list)) ||
        (sched->fallback && sched->ranks > exec->all_capacity && !grow_all(exec, sched->ranks)))
        return rf_fail(RF_ENOMEM, "%s: out of memory to run a schedule of %u steps",
                       rf_coll_op_name(sched->op), sched->count);
    return sched->temp_bytes > exec->temp_capacity ? grow_temp(exec, sched->temp_bytes) : 0;
}
