/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the updates on the host: loops that are compiled once for each vector
 * instruction set, and functions for tests that compare these. Called by host_step.c and
 * host_squares.c.
 */
#ifndef RF_OPTIM_HOST_H
#define RF_OPTIM_HOST_H

#include <ringforge/host_step.h>

/* Inlined into one function for each instruction set, and compiled for that set. */
#define RF_LOOPS static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define RF_ON_AVX2 __attribute__((target("avx2")))
#define RF_ON_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
/* Loops over tables: the compiler reads a vector from a table only if it believes that to be fast.
 */
#define RF_TABLES_ON_AVX2 __attribute__((target("avx2,tune=haswell")))
#define RF_TABLES_ON_AVX512                                                                        \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,tune=skylake-avx512,"                \
                          "prefer-vector-width=512")))
#else /* the plain loops again: the compiler uses the target's instructions */
#define RF_ON_AVX2
#define RF_ON_AVX512
#define RF_TABLES_ON_AVX2
#define RF_TABLES_ON_AVX512
#endif

enum rf_host_path { RF_HOST_PLAIN = 0, RF_HOST_AVX2, RF_HOST_AVX512, RF_HOST_PATHS };
/* The widest instruction set of this processor. */
enum rf_host_path rf_host_best_path(void);

/* Tests: the public calls with a given instruction set, which this processor must have. */
int rf_host_step_by(enum rf_host_path path, const struct rf_optimizer_opts *opts,
                    const struct rf_host_part *part, const struct rf_step_scalars *scalars);
int rf_host_squares_by(enum rf_host_path path, float *out, const struct rf_host_flat *flat,
                       const struct rf_norm_chunk *chunks, int64_t count);

#endif
