/* SPDX-License-Identifier: MIT
 *
 * The optimizers' updates in host memory, without a device, for states that do not fit beside the
 * model (Ren et al. 2021, ZeRO-Offload). Rules, options, scalars and order of operations are those
 * of ops_optimizer.h.
 *
 * All calls block, and keep no reference to their arguments. The caller owns all memory. Calls on
 * different memory may run on different threads. Arrays need the alignment of their elements only.
 * Errors are RF_EINVAL, and are found before anything is written.
 *
 * Every operation is f32 and rounded by itself to nearest, without fused multiply-add; division and
 * square root are those of IEEE 754. So the bits of an element depend neither on the vector
 * instructions of the processor, nor on the division of a buffer, nor on the number of threads
 * (except for the sign and payload of a NaN), as long as the threads use the default rounding mode
 * and keep subnormals. A device may compute divisions and roots less exactly (Vulkan allows 2.5 ULP
 * for a division), and flush subnormals.
 */
#ifndef RINGFORGE_HOST_STEP_H
#define RINGFORGE_HOST_STEP_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands of one update, as struct rf_optimizer_part: `count` parameters of a flat buffer,
 * from its element `first` on. An array that is written must not overlap another one. */
struct rf_host_part {
    int64_t count;
    uint64_t first;              /* a multiple of 64 */
    void *param;                 /* (count) */
    const void *grad;            /* (count) */
    void *state[RF_STATE_COUNT]; /* of state_type; states that the rule lacks are ignored */
    void *copy; /* (count): receives the f32 parameters, rounded to 16 bits; NULL: none */
    const int32_t
        *decay; /* (ceil(count/64)), 0 or 1: whether weight decay applies to 64 elements */
    const int32_t *places;               /* as in struct rf_optimizer_part; NULL: by first */
    enum rf_dtype param_type, grad_type; /* f32 (0), f16 or bf16 */
    enum rf_dtype copy_type;             /* f16 or bf16; ignored without a copy */
    enum rf_dtype state_type; /* f32 (0), bf16, or RF_U8: as in struct rf_optimizer_part */
    /* Subnormal operands and results are 0, as on a device with rf_device_flushes_subnormals;
     * RF_ENOTSUP if the processor does not support it. */
    bool flush;
};

/* rf_optimizer_step of elements from to from + count - 1 of the part. `from` is a multiple of 64,
 * or of RF_STATE_BLOCK with states in 8 bits, and so is `count`, unless the range ends where the
 * part ends. Several threads may work on ranges of one part. scalars: as set by rf_host_step_begin;
 * with `skipped` set nothing is changed. */
RF_API int rf_host_step(const struct rf_optimizer_opts *opts, const struct rf_host_part *part,
                        int64_t from, int64_t count, const struct rf_step_scalars *scalars);

#define RF_HOST_THREADS 256

/* rf_host_step of the whole part on `threads` threads, 1 to RF_HOST_THREADS, the caller's included.
 * The other threads are started and ended by this call. If one cannot be started, the caller does
 * its work. */
RF_API int rf_host_step_threads(const struct rf_optimizer_opts *opts,
                                const struct rf_host_part *part,
                                const struct rf_step_scalars *scalars, int threads);

/* rf_step_begin in host memory. sum_squares: from rf_host_join_squares or rf_sum_squares. */
RF_API int rf_host_step_begin(const struct rf_optimizer_opts *opts, struct rf_step_scalars *scalars,
                              float sum_squares);

/* rf_loss_scale_update in host memory. opts may be NULL. */
RF_API int rf_host_loss_scale_update(const struct rf_loss_scale_opts *opts,
                                     struct rf_step_scalars *scalars);

struct rf_host_flat {
    const void *data;
    int64_t elements;
    enum rf_dtype dtype; /* f32, f16 or bf16 */
    bool flush;          /* as in struct rf_host_part */
};

/* The first of two calls that together equal rf_sum_squares, with the same bits. out[i] = the sum
 * of squares over chunks[i] of `flat`, for `count` chunks. Several threads may work on different
 * chunks. If a sum overflows f32, out[i] is minus the sum divided by 2^192. A chunk outside of flat
 * gives NaN. */
RF_API int rf_host_squares(float *out, const struct rf_host_flat *flat,
                           const struct rf_norm_chunk *chunks, int64_t count);

/* The second: returns the exact sum of all squares, rounded once; 0 if count is 0. */
RF_EXPORT float rf_host_join_squares(const float *squares, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
