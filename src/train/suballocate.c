/* SPDX-License-Identifier: MIT
 *
 * Allocates tensors from a region of bytes. Blocks divide their memory with it (saved,
 * saved_for_weight, scratch).
 */
#include "../base/base.h"
#include "../parallel/plan/plan.h"

uint64_t rf_suballocate_bytes(struct rf_shape shape, enum rf_dtype dtype)
{
    int64_t count = rf_shape_count(shape);
    uint64_t bytes = count > 0 ? (uint64_t)count * rf_dtype_bytes(dtype) : 0;
    return (bytes + 255) / 256 * 256;
}

int rf_suballocate(struct rf_tensor region, uint64_t *offset, struct rf_shape shape,
                   enum rf_dtype dtype, struct rf_tensor *out)
{
    uint64_t bytes = rf_suballocate_bytes(shape, dtype), capacity = rf_tensor_bytes(region);
    char text[96];
    if (rf_shape_count(shape) < 0 || !region.buffer || *offset > capacity ||
        bytes > capacity - *offset)
        return rf_fail(
            RF_EINVAL,
            "suballocate: %s does not fit in the %llu bytes left; sizes() must return at least the "
            "bytes that are taken",
            rf_tensor_text((struct rf_tensor){.shape = shape, .dtype = dtype}, text, sizeof(text)),
            (unsigned long long)(*offset <= capacity ? capacity - *offset : 0));
    *out = (struct rf_tensor){
        .buffer = region.buffer, .offset = region.offset + *offset, .shape = shape, .dtype = dtype};
    *offset += bytes;
    return 0;
}
