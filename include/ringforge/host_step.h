/* SPDX-License-Identifier: MIT
 *
 * The optimizers' updates in memory of the host, without a device: for states that do not fit
 * beside the model (Ren et al. 2021, ZeRO-Offload). The same rules, options and block of scalars as
 * in ops_optimizer.h, in the same order of operations.
 *
 * All calls compute before they return, and none keeps anything: the caller owns all memory, and
 * calls on different memory may run on different threads. Data may begin at any multiple of its
 * element's size. Errors are RF_EINVAL with a sentence, found before anything is written.
 *
 * Every operation is f32 and rounded on its own, to the nearest (no fused multiply-add), and
 * divisions and roots are those of IEEE 754. So an element's bits depend neither on the processor's
 * vector instructions nor on where a buffer is cut nor on the number of threads (a NaN's sign and
 * payload excepted), as long as the threads keep to the default rounding and subnormal numbers. A
 * device may divide and take roots less exactly (Vulkan: 2.5 ULP for a division), and flush
 * subnormal numbers.
 */
#ifndef RINGFORGE_HOST_STEP_H
#define RINGFORGE_HOST_STEP_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one update touches, as struct rf_optimizer_part: `count` parameters of a flat buffer, from
 * its element `first` on, a multiple of 64. No array that is written may overlap another. */
struct rf_host_part {
    int64_t count;
    uint64_t first;
    void *param;                  /* (count) */
    const void *grad;             /* (count) */
    float *state[RF_STATE_COUNT]; /* (count); those that the rule has not are ignored */
    void *copy;           /* (count): receives f32 parameters rounded to 16 bits; NULL: none */
    const int32_t *decay; /* (ceil(count/64)), 0 or 1: whether 64 elements decay */
    enum rf_dtype param_type, grad_type; /* f32 (0), f16 or bf16 */
    enum rf_dtype copy_type;             /* f16 or bf16; ignored without a copy */
};

/* rf_optimizer_step of elements from..from+count-1 of the part. `from` is a multiple of 64, and so
 * is `count` unless the range ends where the part ends: several callers may share a part, each with
 * a range of its own. scalars: as rf_host_step_begin has left it; where it says `skipped`, nothing
 * is changed. */
RF_API int rf_host_step(const struct rf_optimizer_opts *opts, const struct rf_host_part *part,
                        int64_t from, int64_t count, const struct rf_step_scalars *scalars);
/* The same of the whole part on `threads` threads, 1 to RF_HOST_THREADS, one of them the caller's.
 * The others are started here and have ended when it returns; what cannot be started is done by the
 * caller. */
#define RF_HOST_THREADS 256
RF_API int rf_host_step_threads(const struct rf_optimizer_opts *opts,
                                const struct rf_host_part *part,
                                const struct rf_step_scalars *scalars, int threads);

/* rf_step_begin: opens an update in a block in memory of the host. sum_squares: as
 * rf_host_join_squares or rf_sum_squares gives it. */
RF_API int rf_host_step_begin(const struct rf_optimizer_opts *opts, struct rf_step_scalars *scalars,
                              float sum_squares);
/* rf_loss_scale_update of such a block; opts may be NULL. */
RF_API int rf_host_loss_scale_update(const struct rf_loss_scale_opts *opts,
                                     struct rf_step_scalars *scalars);

/* rf_sum_squares in two halves, by the same tree. First out[i] =: sum of squares over chunks[i]
 * of the `elements` of `flat` (f32, f16 or bf16), for `count` chunks: a caller may divide chunks
 * among threads. A sum that is too large for f32 is minus the sum over 2^192; a chunk that lies
 * outside of flat gives NaN. */
struct rf_host_flat {
    const void *data;
    int64_t elements;
    enum rf_dtype dtype;
};
RF_API int rf_host_squares(float *out, const struct rf_host_flat *flat,
                           const struct rf_norm_chunk *chunks, int64_t count);
/* Then the sum of all, pairwise over the chunk index, 0 of none. squares (count) is overwritten. */
RF_EXPORT float rf_host_join_squares(float *squares, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
