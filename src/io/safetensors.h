/* SPDX-License-Identifier: MIT
 *
 * safetensors files (https://github.com/huggingface/safetensors, format section): an 8-byte
 * little-endian header length, a JSON header, then the tensors' bytes. Used by checkpoint.c and by
 * tests. Knows nothing of models.
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
    /* Gives the bytes of tensor `index`. */
    int (*read)(void *user, int index, void *dst, uint64_t bytes);
    void *user;
};
/* Writes and syncs; hex receives the file's SHA-256. After an error the file is incomplete. */
RF_MUST_CHECK int rf_safetensors_write(const char *path, const struct rf_file_content *content,
                                       char hex[65]);

/* A file whose header has been checked in full: sizes, offsets without holes or overlaps, names. It
 * may have been written by an enemy: RF_ECORRUPT names file and fault, RF_ENOTSUP a type that
 * the library has not. */
struct rf_safetensors;
RF_MUST_CHECK int rf_safetensors_open(const char *path, struct rf_safetensors **out);
void rf_safetensors_close(struct rf_safetensors *file); /* NULL is allowed */
int rf_safetensors_count(const struct rf_safetensors *file);
const struct rf_file_tensor *rf_safetensors_tensor(const struct rf_safetensors *file, int index);
int rf_safetensors_find(const struct rf_safetensors *file, const char *name);        /* -1: none */
const char *rf_safetensors_note(const struct rf_safetensors *file, const char *key); /* NULL */
RF_MUST_CHECK int rf_safetensors_read(struct rf_safetensors *file, int index, void *dst,
                                      uint64_t bytes);

#endif
