/* SPDX-License-Identifier: MIT
 *
 * Conversion in place, which needs no more memory than the f32 values; see stored.h.
 */
#include "stored.h"

#include "../base/base.h"
#include "../coll/reduce.h"

enum { CHUNK = 1024 }; /* elements */

int rf_stored_read(struct rf_tensor stored, float *values)
{
    const size_t count = (size_t)rf_tensor_count(stored);
    const size_t element = rf_dtype_bytes(stored.dtype);
    uint8_t *read = (uint8_t *)values + count * (sizeof(float) - element);
    uint16_t some[CHUNK];
    RETURN_IF_ERROR(rf_tensor_read(stored, read, count * element));
    if (stored.dtype == RF_F32)
        return 0;
    /* The elements still to be widened are at the end of the memory. */
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        memcpy(some, read + at * element, n * element);
        rf_widen(values + at, some, n, stored.dtype);
    }
    return 0;
}

int rf_stored_write(struct rf_tensor stored, float *values)
{
    const size_t count = (size_t)rf_tensor_count(stored);
    const size_t element = rf_dtype_bytes(stored.dtype);
    uint16_t some[CHUNK];
    for (size_t at = 0; stored.dtype != RF_F32 && at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        rf_narrow(some, values + at, n, stored.dtype);
        memcpy((uint8_t *)values + at * element, some, n * element);
    }
    return rf_tensor_write(stored, values, count * element);
}
