/* SPDX-License-Identifier: MIT
 *
 * Conversion in place, which needs no more memory than the f32 values; see stored.h.
 */
#include "stored.h"

#include "../base/base.h"
#include "../coll/reduce.h"

enum { CHUNK = 1024 }; /* elements */

void rf_stored_widen(float *values, size_t count, enum rf_dtype dtype)
{
    const size_t element = rf_dtype_bytes(dtype);
    const uint8_t *read = (uint8_t *)values + count * (sizeof(float) - element);
    uint16_t some[CHUNK];
    /* The elements still to be widened are at the end of the memory. */
    for (size_t at = 0; dtype != RF_F32 && at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        memcpy(some, read + at * element, n * element);
        rf_widen(values + at, some, n, dtype);
    }
}

void rf_stored_narrow(float *values, size_t count, enum rf_dtype dtype)
{
    const size_t element = rf_dtype_bytes(dtype);
    uint16_t some[CHUNK];
    for (size_t at = 0; dtype != RF_F32 && at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        rf_narrow(some, values + at, n, dtype);
        memcpy((uint8_t *)values + at * element, some, n * element);
    }
}

int rf_stored_read(struct rf_tensor stored, float *values)
{
    const size_t count = (size_t)rf_tensor_count(stored);
    const size_t element = rf_dtype_bytes(stored.dtype);
    RETURN_IF_ERROR(rf_tensor_read(stored, (uint8_t *)values + count * (sizeof(float) - element),
                                   count * element));
    rf_stored_widen(values, count, stored.dtype);
    return 0;
}

int rf_stored_write(struct rf_tensor stored, float *values)
{
    const size_t count = (size_t)rf_tensor_count(stored);
    rf_stored_narrow(values, count, stored.dtype);
    return rf_tensor_write(stored, values, count * rf_dtype_bytes(stored.dtype));
}
