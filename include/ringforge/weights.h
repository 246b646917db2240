/* SPDX-License-Identifier: MIT
 *
 * Folders of weights as model hubs use them: model.safetensors, or several files (shards) and
 * model.safetensors.index.json, which names the file of each tensor
 * (https://huggingface.co/docs/safetensors). Reading and writing; names and shapes are those of the
 * files. src/models/hub.h maps them to models.
 */
#ifndef RINGFORGE_WEIGHTS_H
#define RINGFORGE_WEIGHTS_H

#include "quantize.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_weight {
    const char *name;
    enum rf_dtype dtype; /* RF_DTYPE_COUNT: one that the library lacks, which cannot be read */
    struct rf_shape shape;
};

/* ---- reading --------------------------------------------------------------------------------- */

struct rf_weights;

/* How a quantised model's files store the weights of linear maps, each as several tensors. */
enum rf_packing {
    RF_PACKING_NONE,
    RF_PACKING_BITSANDBYTES, /* nf4, fp4 and int8, as each weight says */
    RF_PACKING_GPTQ,         /* 4 bits; stored zeros are one less */
    RF_PACKING_GPTQ_V2,      /* 4 bits; zeros as they are */
    RF_PACKING_AWQ,          /* 4 bits, version gemm */
    RF_PACKING_FP8           /* E4M3; a scale for each square block, row or weight */
};

struct rf_weights_opts {
    const char *name; /* of the files, instead of "model": "adapter_model"; up to 32 bytes */
    bool allow_nan;   /* rf_weights_read returns non-finite numbers instead of an error */
    /* If not NONE, the tensors of each packed weight are listed and read as one weight: (outputs,
     * inputs), "....weight", in the type that the program which wrote it computes with. */
    enum rf_packing packing;
    /* GPTQ, AWQ: inputs that share a scale; 0 or less: all. FP8: inputs and outputs of a block;
     * 0 or less: no blocks. */
    int64_t group;
    bool reordered; /* GPTQ: the inputs' groups have another order, which has to be in the files */
};

/* Opens dir/model.safetensors, or dir/model.safetensors.index.json and the files that it names. The
 * files are not trusted. All headers are checked before this returns; weights are not read. The
 * caller closes *out. opts may be NULL. Blocking; any thread.
 *   A link may lead to another file of dir. If dir is in the cache of huggingface_hub, it may lead
 * to the store of files of the same model, or of the cache.
 *   Errors: RF_EIO (no such file), RF_EINVAL (an index beside a single file that it does not name),
 * RF_ECORRUPT (the message names the file and the fault: an index that names a file outside of dir,
 * a tensor that its file lacks, a tensor in two files, a link to elsewhere), RF_ENOTSUP (more
 * dimensions than a shape has), RF_ENOMEM. */
RF_API int rf_weights_open(const char *dir, const struct rf_weights_opts *opts,
                           struct rf_weights **out);

/* NULL is allowed. */
RF_EXPORT void rf_weights_close(struct rf_weights *weights);

RF_EXPORT int rf_weights_count(const struct rf_weights *weights);

/* Tensor `index`, 0 to count - 1, in the order of names. Valid until rf_weights_close. */
RF_EXPORT const struct rf_weight *rf_weights_get(const struct rf_weights *weights, int index);

/* The index of the tensor with this name, or -1. */
RF_EXPORT int rf_weights_find(const struct rf_weights *weights, const char *name);

/* Elements first to first + count - 1 of a tensor of f32, f16 or bf16, exactly as f32. Not from
 * several threads at once. Errors: RF_EIO, RF_EINVAL (outside the tensor), RF_ENOTSUP (another
 * type), RF_ECORRUPT (a number is not finite: the message names the tensor and the element). */
RF_API int rf_weights_read(struct rf_weights *weights, int index, uint64_t first, uint64_t count,
                           float *values);

/* Writes the bytes of a packed weight as a quantised tensor (quantize.h) if that has its values:
 * nf4 of bitsandbytes in blocks of 64 with nested scales in blocks of 256. bytes:
 * rf_quantized_bytes() of its elements. Returns 1, 0 (it is not held exactly; nothing is written),
 * or a negative status. The program that wrote the file rounds these values to the type of the
 * weight, in which rf_weights_read returns them. */
RF_API int rf_weights_quantized(struct rf_weights *weights, int index, enum rf_quantization kind,
                                void *bytes);

/* The whole text file dir/name, of at most `limit` bytes, zero-terminated. The caller frees it with
 * free(). `name` has no slash. Errors: RF_EIO, RF_ECORRUPT (longer, or with zero bytes),
 * RF_ENOMEM. */
RF_API int rf_weights_read_text(const char *dir, const char *name, size_t limit, char **text);

/* ---- writing --------------------------------------------------------------------------------- */

struct rf_export;

struct rf_export_opts {
    const struct rf_weight *weights; /* in the order of the files; f32, f16 or bf16 */
    int count;
    const char *name;     /* of the files, as in struct rf_weights_opts */
    uint64_t shard_bytes; /* a file has at most this many, or one tensor; 0: 5e9 */
};

/* Begins to write dir, by way of dir.tmp. If dir exists, it must be empty or contain only files of
 * a model (*.safetensors, *.json, *.txt, *.model, *.jinja), because it is replaced at the end.
 * Copies opts. Blocking; one rank calls it. Errors: RF_EINVAL (dir contains something else),
 * RF_EIO, RF_ENOMEM. */
RF_API int rf_export_open(const char *dir, const struct rf_export_opts *opts,
                          struct rf_export **out);

/* Returns RF_EINVAL with the reason if rf_export_open would refuse the folder. Changes nothing. */
RF_API int rf_export_check(const char *dir);

/* Writes the next `count` elements of the next tensor, rounded to its type. Tensors are written
 * whole, in the order of opts->weights. Overwrites values. Errors: RF_EIO, RF_EINVAL (beyond the
 * end). */
RF_API int rf_export_write(struct rf_export *file, float *values, uint64_t count);

/* Writes a text file beside the tensors. */
RF_API int rf_export_text(struct rf_export *file, const char *name, const char *text);

/* Copies a file of at most 256 MiB from another folder, if it exists there. A link out of that
 * folder is refused as by rf_weights_open, because the copy would publish its target. file NULL:
 * only checks whether it would be refused. */
RF_API int rf_export_copy(struct rf_export *file, const char *from_dir, const char *name);

/* whole: writes the index, syncs all files, and replaces dir in one step (rename). Before that dir
 * is unchanged. Otherwise, or on failure before the rename, removes dir.tmp. *file is freed in all
 * cases. Errors: RF_EIO, RF_EINVAL (tensors are missing). */
RF_API int rf_export_close(struct rf_export *file, bool whole);

#ifdef __cplusplus
}
#endif
#endif
