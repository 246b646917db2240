/* SPDX-License-Identifier: MIT
 *
 * safetensors files (https://github.com/huggingface/safetensors, format section): an 8-byte
 * little-endian header length, a JSON header, then the tensors' bytes. Used by checkpoint.c and by
 * tests. Does not depend on models.
 */
#ifndef RF_IO_SAFETENSORS_H
#define RF_IO_SAFETENSORS_H

#include <ringforge/tensor.h>

#include "file.h"

struct rf_file_tensor {
    const char *name;
    enum rf_dtype dtype;
    struct rf_shape shape;
};
struct rf_file_note { /* a row of __metadata__ */
    const char *key, *value;
};
struct rf_file_content {
    const struct rf_file_tensor *tensors;
    int tensor_count;
    const struct rf_file_note *notes;
    int note_count;
};
/* The layout of a file. It depends only on the content, so ranks with the same content write the
 * same file together. Tensors are in the given order, without gaps. The first begins at a multiple
 * of RF_SAFETENSORS_ALIGN. */
#define RF_SAFETENSORS_ALIGN 4096u
struct rf_safetensors_layout {
    char *header; /* the file's first header_bytes */
    uint64_t header_bytes;
    uint64_t *begin; /* of each tensor, in the file */
    uint64_t bytes;  /* of the file */
};
RF_MUST_CHECK int rf_safetensors_lay_out(const struct rf_file_content *content,
                                         struct rf_safetensors_layout *out);
void rf_safetensors_layout_free(struct rf_safetensors_layout *layout); /* zero is allowed */

/* A file whose header was checked: sizes, offsets without gaps or overlaps, names. The file is not
 * trusted. RF_ECORRUPT: the message names the file and the error. RF_ENOTSUP: a type that the
 * library lacks; with any_type such a tensor is listed with RF_DTYPE_COUNT, and its bytes are not
 * compared with its shape. */
struct rf_safetensors;
RF_MUST_CHECK int rf_safetensors_open(const char *path, bool any_type, struct rf_safetensors **out);
void rf_safetensors_close(struct rf_safetensors *file); /* NULL is allowed */
int rf_safetensors_count(const struct rf_safetensors *file);
const struct rf_file_tensor *rf_safetensors_tensor(const struct rf_safetensors *file, int index);
/* The type as the file names it: "F32", "BOOL". */
const char *rf_safetensors_type(const struct rf_safetensors *file, int index);
int rf_safetensors_find(const struct rf_safetensors *file, const char *name);        /* -1: none */
const char *rf_safetensors_note(const struct rf_safetensors *file, const char *key); /* or NULL */
/* Bytes [first, first + bytes) of a tensor. */
RF_MUST_CHECK int rf_safetensors_read(struct rf_safetensors *file, int index, uint64_t first,
                                      void *dst, uint64_t bytes);
/* The descriptor stays with the file. Its position is not used. */
int rf_safetensors_fd(const struct rf_safetensors *file);
uint64_t rf_safetensors_bytes(const struct rf_safetensors *file); /* of the whole file */

#endif
