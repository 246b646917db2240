/* SPDX-License-Identifier: MIT
 *
 * Weights that the files of quantised models have as several tensors: codes, scales and the like.
 * packed.c finds and checks them, packed_values.c computes their elements. Used by weights.c.
 */
#ifndef RF_IO_PACKED_H
#define RF_IO_PACKED_H

#include <ringforge/quantize.h>
#include <ringforge/weights.h>

#include "safetensors.h"

enum rf_packed_part {
    RF_PACKED_CODES,
    RF_PACKED_SCALES,
    RF_PACKED_ZEROS, /* GPTQ, AWQ */
    RF_PACKED_ORDER, /* GPTQ: the group of each input */
    RF_PACKED_LEVELS,
    RF_PACKED_NESTED_SCALES,
    RF_PACKED_NESTED_LEVELS,
    RF_PACKED_STATE, /* bitsandbytes: JSON; or the format of 8-bit weights */
    RF_PACKED_PARTS
};

struct rf_packed_tensor {
    struct rf_safetensors *file; /* NULL: the weight has no such part */
    int index;
};

struct rf_packed {
    char *name; /* of the weight: "....weight" */
    const struct rf_packed_layout *layout;
    struct rf_packed_tensor parts[RF_PACKED_PARTS];
    enum rf_dtype dtype; /* of the values in the program that wrote the file */
    int64_t rows, columns;
    int64_t block, nested_block; /* elements of a block; blocks that share a nested scale */
    int64_t scales;              /* FP8: their number, if there are no blocks: 1 or rows */
    float offset;                /* of nested scales */
    void *data[RF_PACKED_PARTS]; /* of the loaded weight */
};

/* Tensors by name. */
struct rf_packed_finder {
    void *self;
    bool (*find)(void *self, const char *name, struct rf_packed_tensor *out);
};

/* Whether the tensor `name` is the one by which a packed weight is recognised: then *out has its
 * parts, which are checked; else *out is NULL. RF_ECORRUPT, RF_ENOTSUP: the message names the
 * weight. Free with rf_packed_close. */
int rf_packed_open(const struct rf_weights_opts *opts, const char *name,
                   const struct rf_packed_finder *finder, struct rf_packed **out);
void rf_packed_close(struct rf_packed *packed); /* NULL is allowed */

/* Elements of the weight (rows,columns), rounded to its type. Reads all of its parts first and
 * keeps them until rf_packed_forget. */
int rf_packed_read(struct rf_packed *packed, uint64_t first, uint64_t count, float *values);
void rf_packed_forget(struct rf_packed *packed);

/* rf_weights_quantized. */
int rf_packed_quantized(struct rf_packed *packed, enum rf_quantization kind, void *bytes);

/* How a kind of packed weight is stored (packed_values.c). */
enum rf_packed_kind {
    RF_PACKED_NF4,
    RF_PACKED_FP4,
    RF_PACKED_INT8,
    RF_PACKED_GPTQ,
    RF_PACKED_AWQ,
    RF_PACKED_FP8
};
struct rf_packed_layout {
    enum rf_packing packing;
    enum rf_packed_kind kind;
    const char *mark;                   /* the end of the name of the tensor that shows it */
    const char *parts[RF_PACKED_PARTS]; /* ends of names; NULL: it has no such part */
    bool adds_one;                      /* stored zeros are one less */
};

/* Levels of the 4-bit kinds of bitsandbytes. */
const float *rf_packed_levels(enum rf_packed_kind kind);

#endif
