/* SPDX-License-Identifier: MIT
 *
 * Tensors: a typed, shaped view of a buffer. Values, not objects: copy them freely; they own
 * nothing. Always dense and row-major (last dimension fastest).
 */
#ifndef RINGFORGE_TENSOR_H
#define RINGFORGE_TENSOR_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RF_MAX_DIMS 4

struct rf_shape {
    int32_t ndim; /* 0 = scalar, one element */
    int64_t dim[RF_MAX_DIMS];
};

struct rf_tensor {
    struct rf_buffer *buffer;
    uint64_t offset; /* bytes from the buffer's start; a multiple of the element size */
    struct rf_shape shape;
    enum rf_dtype dtype;
};

RF_EXPORT struct rf_shape rf_shape1(int64_t a);
RF_EXPORT struct rf_shape rf_shape2(int64_t a, int64_t b);
RF_EXPORT struct rf_shape rf_shape3(int64_t a, int64_t b, int64_t c);
RF_EXPORT struct rf_shape rf_shape4(int64_t a, int64_t b, int64_t c, int64_t d);
RF_EXPORT int64_t rf_shape_count(struct rf_shape shape); /* elements; -1 on overflow or negative */
RF_EXPORT bool rf_shape_equal(struct rf_shape a, struct rf_shape b);
/* Writes "f32 (4, 128)" and returns text. */
RF_EXPORT const char *rf_tensor_text(struct rf_tensor tensor, char *text, size_t bytes);

/* A view; checks that it lies inside the buffer and is aligned. */
RF_API int rf_tensor_view(struct rf_buffer *buffer, uint64_t offset, struct rf_shape shape,
                          enum rf_dtype dtype, struct rf_tensor *out);
/* A buffer of its own for one tensor; the caller destroys out->buffer. */
RF_API int rf_tensor_create(struct rf_device *device, struct rf_shape shape, enum rf_dtype dtype,
                            struct rf_tensor *out);
/* One tensor at the start of memory of the caller's own, as rf_buffer_import: `bytes` are those of
 * the memory, at least the tensor's. The caller destroys out->buffer, then frees the memory. */
RF_API int rf_tensor_from_host(struct rf_device *device, void *memory, uint64_t bytes,
                               struct rf_shape shape, enum rf_dtype dtype, struct rf_tensor *out);
RF_EXPORT int64_t rf_tensor_count(struct rf_tensor tensor);
RF_EXPORT uint64_t rf_tensor_bytes(struct rf_tensor tensor);
RF_EXPORT uint64_t rf_tensor_address(struct rf_tensor tensor);
RF_EXPORT void *rf_tensor_map(struct rf_tensor tensor); /* NULL if not mapped */
/* Same elements, another shape of the same count. */
RF_API int rf_tensor_reshape(struct rf_tensor tensor, struct rf_shape shape, struct rf_tensor *out);
/* Rows [first, first + rows) of the first dimension. */
RF_API int rf_tensor_rows(struct rf_tensor tensor, int64_t first, int64_t rows,
                          struct rf_tensor *out);
/* Blocking; bytes must be the tensor's size. */
RF_API int rf_tensor_write(struct rf_tensor tensor, const void *src, uint64_t bytes);
RF_API int rf_tensor_read(struct rf_tensor tensor, void *dst, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
