/* SPDX-License-Identifier: MIT
 *
 * Tensors: views of buffers, with shapes, sizes, sub-views, and blocking transfers.
 */
#include <ringforge/tensor.h>

#include "../base/base.h"

struct rf_shape rf_shape1(int64_t a)
{
    return (struct rf_shape){1, {a}};
}

struct rf_shape rf_shape2(int64_t a, int64_t b)
{
    return (struct rf_shape){2, {a, b}};
}

struct rf_shape rf_shape3(int64_t a, int64_t b, int64_t c)
{
    return (struct rf_shape){3, {a, b, c}};
}

struct rf_shape rf_shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct rf_shape){4, {a, b, c, d}};
}

int64_t rf_shape_count(struct rf_shape shape)
{
    int64_t count = 1;
    if (shape.ndim < 0 || shape.ndim > RF_MAX_DIMS)
        return -1;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] < 0 || __builtin_mul_overflow(count, shape.dim[i], &count))
            return -1;
    return count;
}

bool rf_shape_equal(struct rf_shape a, struct rf_shape b)
{
    if (a.ndim != b.ndim)
        return false;
    for (int i = 0; i < a.ndim; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return true;
}

const char *rf_tensor_text(struct rf_tensor tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s (", rf_dtype_name(tensor.dtype));
    for (int i = 0; i < tensor.shape.ndim && i < RF_MAX_DIMS && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i ? ", %lld" : "%lld",
                                 (long long)tensor.shape.dim[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, ")");
    return text;
}

int rf_tensor_view(struct rf_buffer *buffer, uint64_t offset, struct rf_shape shape,
                   enum rf_dtype dtype, struct rf_tensor *out)
{
    struct rf_tensor tensor = {buffer, offset, shape, dtype};
    char text[96];
    int64_t count = rf_shape_count(shape);
    size_t element = rf_dtype_bytes(dtype);
    if (!buffer || !out)
        return rf_fail(RF_EINVAL, "tensor_view: the buffer and the result must not be NULL");
    if (count < 0 || element == 0 || count > INT64_MAX / 8)
        return rf_fail(RF_EINVAL, "tensor_view: %s is not a valid shape and type",
                       rf_tensor_text(tensor, text, sizeof(text)));
    if (offset % element != 0)
        return rf_fail(RF_EINVAL,
                       "tensor_view: offset %llu is not a multiple of the element size %zu",
                       (unsigned long long)offset, element);
    uint64_t bytes = (uint64_t)count * element, limit = rf_buffer_bytes(buffer);
    if (offset > limit || bytes > limit - offset)
        return rf_fail(RF_EINVAL,
                       "tensor_view: %s at offset %llu does not fit into a buffer of %llu bytes",
                       rf_tensor_text(tensor, text, sizeof(text)), (unsigned long long)offset,
                       (unsigned long long)limit);
    *out = tensor;
    return 0;
}

int rf_tensor_create(struct rf_device *device, struct rf_shape shape, enum rf_dtype dtype,
                     struct rf_tensor *out)
{
    struct rf_tensor tensor = {NULL, 0, shape, dtype};
    char text[96];
    int64_t count = rf_shape_count(shape);
    if (!device || !out || count < 0 || rf_dtype_bytes(dtype) == 0 || count > INT64_MAX / 8)
        return rf_fail(RF_EINVAL,
                       "tensor_create: %s is not a valid shape and type, or an argument is NULL",
                       rf_tensor_text(tensor, text, sizeof(text)));
    uint64_t bytes = (uint64_t)count * rf_dtype_bytes(dtype);
    RETURN_IF_ERROR(rf_buffer_create(device, bytes ? bytes : 4, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                     &tensor.buffer));
    *out = tensor;
    return 0;
}

int64_t rf_tensor_count(struct rf_tensor tensor)
{
    return rf_shape_count(tensor.shape);
}

uint64_t rf_tensor_bytes(struct rf_tensor tensor)
{
    int64_t count = rf_shape_count(tensor.shape);
    return count > 0 ? (uint64_t)count * rf_dtype_bytes(tensor.dtype) : 0;
}

uint64_t rf_tensor_address(struct rf_tensor tensor)
{
    return rf_buffer_address(tensor.buffer) + tensor.offset;
}

void *rf_tensor_map(struct rf_tensor tensor)
{
    char *base = rf_buffer_map(tensor.buffer);
    return base ? base + tensor.offset : NULL;
}

int rf_tensor_reshape(struct rf_tensor tensor, struct rf_shape shape, struct rf_tensor *out)
{
    char text[96], wanted[96];
    if (!out || rf_shape_count(shape) != rf_tensor_count(tensor) || rf_shape_count(shape) < 0) {
        struct rf_tensor other = {NULL, 0, shape, tensor.dtype};
        return rf_fail(RF_EINVAL, "tensor_reshape: %s and %s have different element counts",
                       rf_tensor_text(tensor, text, sizeof(text)),
                       rf_tensor_text(other, wanted, sizeof(wanted)));
    }
    tensor.shape = shape;
    *out = tensor;
    return 0;
}

int rf_tensor_rows(struct rf_tensor tensor, int64_t first, int64_t rows, struct rf_tensor *out)
{
    char text[96];
    if (!out || tensor.shape.ndim < 1 || first < 0 || rows < 0 || first > tensor.shape.dim[0] ||
        rows > tensor.shape.dim[0] - first)
        return rf_fail(RF_EINVAL, "tensor_rows: rows %lld..%lld are not inside %s",
                       (long long)first, (long long)(first + rows),
                       rf_tensor_text(tensor, text, sizeof(text)));
    uint64_t row =
        tensor.shape.dim[0] ? rf_tensor_bytes(tensor) / (uint64_t)tensor.shape.dim[0] : 0;
    tensor.offset += (uint64_t)first * row;
    tensor.shape.dim[0] = rows;
    *out = tensor;
    return 0;
}

static int check_size(const char *what, struct rf_tensor tensor, uint64_t bytes)
{
    char text[96];
    if (!tensor.buffer || bytes != rf_tensor_bytes(tensor))
        return rf_fail(RF_EINVAL, "%s: got %llu bytes for %s, which has %llu", what,
                       (unsigned long long)bytes, rf_tensor_text(tensor, text, sizeof(text)),
                       (unsigned long long)rf_tensor_bytes(tensor));
    return 0;
}

int rf_tensor_write(struct rf_tensor tensor, const void *src, uint64_t bytes)
{
    RETURN_IF_ERROR(check_size("tensor_write", tensor, bytes));
    return bytes ? rf_buffer_write(tensor.buffer, tensor.offset, src, bytes) : 0;
}

int rf_tensor_read(struct rf_tensor tensor, void *dst, uint64_t bytes)
{
    RETURN_IF_ERROR(check_size("tensor_read", tensor, bytes));
    return bytes ? rf_buffer_read(tensor.buffer, tensor.offset, dst, bytes) : 0;
}
