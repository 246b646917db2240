/* SPDX-License-Identifier: MIT
 *
 * Tensors: typed, shaped views of a buffer. A tensor is a value that can be copied freely, and owns
 * nothing. Its elements are dense and row-major (the last dimension is fastest).
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
    uint64_t offset; /* bytes from the start of the buffer; a multiple of the element size */
    struct rf_shape shape;
    enum rf_dtype dtype;
};

RF_EXPORT struct rf_shape rf_shape1(int64_t a);
RF_EXPORT struct rf_shape rf_shape2(int64_t a, int64_t b);
RF_EXPORT struct rf_shape rf_shape3(int64_t a, int64_t b, int64_t c);
RF_EXPORT struct rf_shape rf_shape4(int64_t a, int64_t b, int64_t c, int64_t d);

/* The number of elements; -1 on overflow, or if a dimension is negative. */
RF_EXPORT int64_t rf_shape_count(struct rf_shape shape);

RF_EXPORT bool rf_shape_equal(struct rf_shape a, struct rf_shape b);

/* Writes "f32 (4, 128)" into text, at most `bytes`; returns text. */
RF_EXPORT const char *rf_tensor_text(struct rf_tensor tensor, char *text, size_t bytes);

/* A view of a buffer. RF_EINVAL: it is outside the buffer, or not aligned to its elements. */
RF_API int rf_tensor_view(struct rf_buffer *buffer, uint64_t offset, struct rf_shape shape,
                          enum rf_dtype dtype, struct rf_tensor *out);

/* A tensor in a new buffer of its own. The caller destroys out->buffer. Errors: those of
 * rf_buffer_create. */
RF_API int rf_tensor_create(struct rf_device *device, struct rf_shape shape, enum rf_dtype dtype,
                            struct rf_tensor *out);

RF_EXPORT int64_t rf_tensor_count(struct rf_tensor tensor);

RF_EXPORT uint64_t rf_tensor_bytes(struct rf_tensor tensor);

/* The device address of the first element. */
RF_EXPORT uint64_t rf_tensor_address(struct rf_tensor tensor);

/* The host address of the first element; NULL if the buffer is not mapped. */
RF_EXPORT void *rf_tensor_map(struct rf_tensor tensor);

/* The same elements in another shape with the same count. */
RF_API int rf_tensor_reshape(struct rf_tensor tensor, struct rf_shape shape, struct rf_tensor *out);

/* `rows` rows of the first dimension, from row `first` on. */
RF_API int rf_tensor_rows(struct rf_tensor tensor, int64_t first, int64_t rows,
                          struct rf_tensor *out);

/* Copies all elements from host memory. bytes must be the size of the tensor. Blocking; does not
 * wait for streams (rf_buffer_write). */
RF_API int rf_tensor_write(struct rf_tensor tensor, const void *src, uint64_t bytes);

/* The same in the other direction. */
RF_API int rf_tensor_read(struct rf_tensor tensor, void *dst, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
