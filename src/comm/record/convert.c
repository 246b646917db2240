/* SPDX-License-Identifier: MIT
 *
 * Reductions with an input that is scaled by this rank's factor, or sent in 16 bits. The data are
 * converted, block by block, into memory of the communicator, on which a plain call runs. Called by
 * operations.c and inflight.c.
 */
#include <ringforge/ringforge.h>

#include "../../coll/reduce.h"
#include "../communicator.h"

enum { BLOCK = 512, ALIGNMENT = 64 };

/* Integers wrap, as their sums do. */
#define SCALE_WHOLE(type)                                                                          \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x;                                                                                    \
        memcpy(&x, from + i * sizeof(x), sizeof(x));                                               \
        x = (type)((uint64_t)x * (uint64_t)(int64_t)scale);                                        \
        memcpy(to + i * sizeof(x), &x, sizeof(x));                                                 \
    }

static void scale_narrow(unsigned char *to, const unsigned char *from, size_t count,
                         enum rf_dtype dtype, float scale)
{
    float wide[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        rf_widen(wide, from + 2 * done, n, dtype);
        for (size_t i = 0; i < n; i++)
            wide[i] *= scale;
        rf_narrow(to + 2 * done, wide, n, dtype);
    }
}

static void scale_f64(unsigned char *to, const unsigned char *from, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++) {
        double x;
        memcpy(&x, from + i * sizeof(x), sizeof(x));
        x *= scale;
        memcpy(to + i * sizeof(x), &x, sizeof(x));
    }
}

/* Converts to the type of the messages. */
static void convert_f32(unsigned char *to, const unsigned char *from, size_t count,
                        const struct rf_call *call)
{
    const float scale = call->scaled ? (float)call->scale : 1.0f;
    const size_t bytes = rf_dtype_bytes(call->wire_dtype);
    float block[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        memcpy(block, from + 4 * done, 4 * n);
        for (size_t i = 0; i < n; i++)
            block[i] *= scale;
        if (call->wire_dtype == RF_F32)
            memcpy(to + 4 * done, block, 4 * n);
        else
            rf_narrow(to + bytes * done, block, n, call->wire_dtype);
    }
}

static void convert(unsigned char *to, const unsigned char *from, size_t count,
                    const struct rf_call *call)
{
    const double scale = call->scale;
    switch (call->desc.dtype) {
    case RF_F32:
        convert_f32(to, from, count, call);
        break;
    case RF_F64:
        scale_f64(to, from, count, scale);
        break;
    case RF_I32:
        SCALE_WHOLE(uint32_t)
        break;
    case RF_I64:
        SCALE_WHOLE(uint64_t)
        break;
    case RF_I8:
    case RF_U8:
        SCALE_WHOLE(uint8_t)
        break;
    default:
        scale_narrow(to, from, count, call->desc.dtype, (float)scale);
    }
}

static int reserve(struct rf_conversion *conversion, size_t bytes)
{
    if (bytes <= conversion->bytes)
        return 0;
    rf_free(conversion->memory);
    conversion->bytes = 0;
    conversion->memory = rf_alloc_aligned(bytes, ALIGNMENT);
    if (!conversion->memory)
        return rf_fail(RF_ENOMEM, "no memory for %zu bytes of scaled or 16-bit data", bytes);
    conversion->bytes = bytes;
    return 0;
}

struct rf_call rf_convert_plain(const struct rf_call *call)
{
    struct rf_call plain = *call;
    plain.scaled = false;
    if (call->wire_dtype != RF_F32)
        plain.desc.dtype = call->wire_dtype;
    plain.wire_dtype = RF_F32;
    return plain;
}

int rf_convert_begin(struct rf_comm *comm, const struct rf_call *call, struct rf_call *plain)
{
    const bool narrow = call->wire_dtype != RF_F32;
    size_t in, out;
    *plain = rf_convert_plain(call);
    const size_t element = rf_dtype_bytes(plain->desc.dtype);
    rf_call_counts(comm, call, &in, &out);
    size_t in_bytes = (in * element + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    RETURN_IF_ERROR(reserve(&comm->conversion, in_bytes + (narrow ? out * element : 0)));
    const uint64_t before = rf_flush_begin(comm->settings.flush);
    convert(comm->conversion.memory, call->in, in, call);
    rf_flush_end(comm->settings.flush, before);
    plain->in = comm->conversion.memory;
    if (narrow)
        plain->out = comm->conversion.memory + in_bytes;
    return 0;
}

void rf_convert_end(struct rf_comm *comm, const struct rf_call *call, const struct rf_call *plain)
{
    size_t in, out;
    rf_call_counts(comm, call, &in, &out);
    if (call->wire_dtype != RF_F32 && out > 0)
        rf_widen(call->out, plain->out, out, call->wire_dtype);
}
