/* SPDX-License-Identifier: MIT
 *
 * Values derived from the arguments of a collective alone: the number of elements in and out, the
 * begin of this rank's piece, whether it needs every rank; and the check of the arguments.
 */
#include <math.h>
#include <ringforge/ringforge.h>

#include "../communicator.h"

/* The part of the description for counts and places. */
static struct rf_coll_desc desc_of(const struct rf_comm *comm, const struct rf_call *call)
{
    struct rf_coll_desc desc = call->desc;
    desc.rank = comm->rank;
    desc.ranks = comm->size;
    return desc;
}

void rf_call_counts(const struct rf_comm *comm, const struct rf_call *call, size_t *in, size_t *out)
{
    const struct rf_coll_desc desc = desc_of(comm, call);
    *in = rf_coll_in_count(&desc);
    *out = rf_coll_out_count(&desc);
}

bool rf_call_in_place(const struct rf_comm *comm, const struct rf_call *call, uint64_t in,
                      uint64_t out)
{
    const struct rf_coll_desc desc = desc_of(comm, call);
    return rf_coll_in_place(&desc, in, out);
}

int rf_call_sum(const struct rf_comm *comm, enum rf_coll_op op, const size_t *counts, size_t *sum)
{
    *sum = 0;
    if (!counts)
        return rf_fail(RF_EINVAL, "%s: the counts of %d ranks are NULL", rf_coll_op_name(op),
                       comm->size);
    return rf_coll_sum_counts(op, counts, comm->size, sum);
}

bool rf_call_needs_everybody(const struct rf_contract *contract)
{
    const enum rf_coll_needs needs = rf_operation(contract->op)->needs;
    return needs == RF_NEEDS_ALL || (needs == RF_NEEDS_ALL_IF_COUNT && contract->count > 0);
}

static bool is_float(enum rf_dtype dtype)
{
    return dtype == RF_F32 || dtype == RF_F64 || dtype == RF_F16 || dtype == RF_BF16;
}

int rf_convert_check(const struct rf_call *call)
{
    const char *op = rf_coll_op_name(call->desc.op);
    if (!rf_call_converts(call))
        return 0;
    if (!rf_coll_reduces(call->desc.op) || rf_coll_adds_leaves(call->desc.op))
        return rf_fail(RF_EINVAL, "%s: a scale and a 16-bit wire_dtype are for reductions", op);
    if (call->scaled && call->desc.redop != RF_SUM && call->desc.redop != RF_AVG)
        return rf_fail(RF_EINVAL, "%s: a scale goes with sum and avg, not with %s", op,
                       rf_redop_name(call->desc.redop));
    if (call->scaled && !isfinite(call->scale))
        return rf_fail(RF_EINVAL, "%s: a scale of %g is not finite", op, call->scale);
    if (call->scaled && !is_float(call->desc.dtype) &&
        (call->scale != trunc(call->scale) || fabs(call->scale) > 0x1p53))
        return rf_fail(RF_EINVAL, "%s: a scale of %s must be a whole number, not %g", op,
                       rf_dtype_name(call->desc.dtype), call->scale);
    if (call->wire_dtype == RF_F32)
        return 0;
    if (call->desc.dtype != RF_F32 || (call->wire_dtype != RF_F16 && call->wire_dtype != RF_BF16))
        return rf_fail(RF_EINVAL, "%s: only f32 can travel as f16 or bf16, not %s as %s", op,
                       rf_dtype_name(call->desc.dtype), rf_dtype_name(call->wire_dtype));
    if (call->desc.redop == RF_CUSTOM)
        return rf_fail(RF_EINVAL,
                       "%s: a 16-bit wire_dtype and a custom reduction exclude each other", op);
    return 0;
}

int rf_call_check(const struct rf_comm *comm, const struct rf_call *call)
{
    const char *op = rf_coll_op_name(call->desc.op);
    size_t element = rf_dtype_bytes(call->desc.dtype);
    if (element == 0)
        return rf_fail(RF_EINVAL, "%s: unknown element type %d", op, (int)call->desc.dtype);
    if ((unsigned)call->desc.redop > RF_CUSTOM)
        return rf_fail(RF_EINVAL, "%s: unknown reduction %d", op, (int)call->desc.redop);
    if ((call->desc.redop == RF_CUSTOM) != (call->reduction.combine != NULL))
        return rf_fail(RF_EINVAL, "%s: RF_CUSTOM and opts->reduction with a function go together",
                       op);
    if ((unsigned)call->desc.order > RF_ORDER_TREE)
        return rf_fail(RF_EINVAL, "%s: unknown order %d", op, (int)call->desc.order);
    if (rf_coll_has_root(call->desc.op) && (call->desc.root < 0 || call->desc.root >= comm->size))
        return rf_fail(RF_EINVAL, "%s: root %d is outside the world of %d ranks", op,
                       call->desc.root, comm->size);
    size_t whole, most = call->desc.count, received = 0;
    if (call->desc.recv_counts)
        RETURN_IF_ERROR(rf_call_sum(comm, call->desc.op, call->desc.recv_counts, &received));
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

int rf_call_check_buffers(const struct rf_comm *comm, const struct rf_call *call)
{
    if (call->desc.op == RF_COLL_BARRIER)
        return 0;
    const struct rf_coll_desc desc = desc_of(comm, call);
    const size_t in = rf_coll_in_count(&desc), out = rf_coll_out_count(&desc);
    const size_t element = rf_dtype_bytes(desc.dtype);
    const char *op = rf_coll_op_name(desc.op);
    if ((in > 0 && !call->in) || (out > 0 && !call->out))
        return rf_fail(RF_EINVAL, "%s: %s is NULL, but there are %zu elements", op,
                       in > 0 && !call->in ? "in" : "out", in > 0 && !call->in ? in : out);
    if (overlap(call->in, in * element, call->out, out * element) &&
        !rf_coll_in_place(&desc, (uintptr_t)call->in, (uintptr_t)call->out))
        return rf_fail(RF_EINVAL,
                       "%s: in and out overlap; they may be apart, or in place as the header says",
                       op);
    return 0;
}
