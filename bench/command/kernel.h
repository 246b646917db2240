/* SPDX-License-Identifier: MIT
 *
 * Benchmarks of kernels: a kernel is a row of a table (rows_*.c), and one engine makes its
 * operands, compares its results with fp64 on the host, times it, and compares the times with the
 * device's limits. To add a kernel, add a struct bench_kernel, and its name to rows.h.
 */
#ifndef RF_BENCH_KERNEL_H
#define RF_BENCH_KERNEL_H

#include "bench.h"

#define BENCH_DIMS 5
#define BENCH_OPERANDS 12

/* The initial contents of an operand. */
enum bench_fill {
    BENCH_NOTHING = 0, /* zeros */
    BENCH_RANDOM,      /* [-1, 1) */
    BENCH_POSITIVE,    /* [0.5, 1.5) */
    BENCH_INDICES,     /* i32 from 0 to limit - 1 */
    BENCH_ONES,        /* i32 */
    BENCH_CHUNKS,      /* i32 pairs: struct rf_norm_chunk of 1024 elements, limit in all */
    BENCH_SCALARS      /* a struct rf_step_scalars of some step */
};
/* The kernel's access: counts as bytes moved; written operands are checked. */
enum { BENCH_READ = 1, BENCH_WRITE = 2, BENCH_UPDATE = 3, BENCH_SCRATCH = 0 };

struct bench_operand {
    struct rf_tensor tensor;
    enum bench_fill fill;
    int use;
    int64_t limit;
    int64_t touched; /* elements that the kernel reads or writes, if not all; or 0 */
    float *host;     /* its values before the launch, as rounded to the type; NULL for scratch */
    int32_t *words;  /* the same for i32 */
};

/* One kernel at one shape in one type. */
struct bench_case {
    const struct bench_kernel *kernel;
    struct rf_device *device;
    struct rf_stream *stream;
    const char *path;              /* of a matmul; NULL = the library's choice */
    bool transpose_a, transpose_b; /* of a matmul */
    uint32_t split;                /* likewise */
    enum rf_dtype dtype;
    int64_t dim[BENCH_DIMS];
    double flops;
    struct bench_operand operand[BENCH_OPERANDS];
    int count;
};

struct bench_kernel {
    const char *name;
    const char *dims; /* of --shape: "NxC" */
    /* Shapes from the sizes of a model, separated by blanks: n rows, B sequences, T tokens each, C
     * channels, H heads, K of them of keys and values, D = C/H, V vocabulary, F channels inside the
     * feed-forward half, P parameters in one buffer. "nxC nx3C": two shapes of each model. */
    const char *shapes;
    int samples; /* checked elements of each result; 0 = 256 */
    /* Declares the operands, in the row's own order, and counts operations. */
    void (*plan)(struct bench_case *c);
    /* Before the check: makes operands that are results of other kernels; or NULL. */
    int (*prepare)(struct bench_case *c);
    int (*launch)(struct bench_case *c);
    /* In fp64: the expected value of element `at` of operand `operand` after one launch. *scale may
     * be set to the sum of the magnitudes of the summands; the error is relative to the larger of
     * it and the result. */
    double (*want)(const struct bench_case *c, int operand, const int64_t *at, double *scale);
    const char *(*path)(const struct bench_case *c); /* or NULL */
    /* The same in C loops on this machine's processors, `samples` times; or NULL. */
    int (*loop)(const struct bench_case *c, int samples, double *seconds, double *work);
};

extern const struct bench_kernel *const bench_kernel_rows[]; /* ends with NULL */
const struct bench_kernel *bench_kernel_find(const char *name);

/* ---- for rows -------------------------------------------------------------------------------- */

/* Each returns the operand's number. In c->dtype: */
int bench_add(struct bench_case *c, struct rf_shape shape, enum bench_fill fill, int use);
/* The same with a type of its own in place of c->dtype. */
int bench_add_typed(struct bench_case *c, struct rf_shape shape, enum rf_dtype dtype,
                    enum bench_fill fill, int use, int64_t limit);
/* f32 working memory; at least one element is made. */
int bench_add_scratch(struct bench_case *c, int64_t count, enum rf_dtype dtype);

static inline struct rf_tensor bench_t(const struct bench_case *c, int operand)
{
    return c->operand[operand].tensor;
}

static inline double bench_v(const struct bench_case *c, int operand, int64_t index)
{
    return (double)c->operand[operand].host[index];
}

/* ---- operand.c ------------------------------------------------------------------------------- */

int bench_operands_make(struct bench_case *c);
void bench_operands_free(struct bench_case *c);
/* Launches once and compares; returns the largest error of all checked elements. */
int bench_operands_check(struct bench_case *c, double *error);
/* The largest error of a correct product, relative to the larger of a result and its summands:
 * storage of the type, and sums in f32. */
double bench_tolerance(enum rf_dtype type);

/* ---- ceiling.c ------------------------------------------------------------------------------- */

/* The device's limits, per second: bytes read and written by a copy, the driver's own or a kernel's
 * (kernel_copy_bytes), whichever is faster; and fp32 multiplies and adds. */
struct bench_ceiling {
    double copy_bytes, kernel_copy_bytes, flops;
};
int bench_ceiling_measure(struct rf_device *device, struct rf_stream *stream,
                          const struct bench_options *o, struct bench_ceiling *out);

/* Bytes per second copied by a kernel, and the seconds of an almost empty launch. */
int bench_memory_measure(struct rf_device *device, struct rf_stream *stream,
                         const struct bench_options *o, double *bytes_per_s, double *launch_s);

/* "512x256x768" */
bool bench_read_product(const char *text, int64_t dims[3]);

/* ---- loop.c ---------------------------------------------------------------------------------- */

int bench_processors(void); /* available to this process, at most 64 */
/* A product of (n, c) by (oc, c) transposed in tiled C loops, timed `samples` times; *work becomes
 * the least processor time of one, if that is less. */
int bench_loop_time(int64_t n, int64_t c, int64_t oc, int samples, double *seconds, double *work);

/* ---- time.c ---------------------------------------------------------------------------------- */

/* Processor time of all threads of this process. */
double bench_processor_seconds(void);
/* Seconds of one call of launch(user), which records on the stream: median and best; and the least
 * processor time, which is comparable on a CPU device even while others use the machine. */
struct bench_seconds {
    double median, best, work;
};
int bench_time(struct rf_stream *stream, const struct bench_options *o, int (*launch)(void *user),
               void *user, struct bench_seconds *out);

/* ---- shapes.c -------------------------------------------------------------------------------- */

struct bench_model {
    const char *name;
    int64_t n, T, C, H, K, V, F, P;
};
extern const struct bench_model bench_models[2][2]; /* [on a CPU][which] */
int bench_count_dims(const char *text);             /* "NxC": 2 */
/* One product, "nx3C" of a model, or "64x96"; advances past it. False: invalid. */
bool bench_read_dims(const char **text, const struct bench_model *m, int want,
                     int64_t dims[BENCH_DIMS]);
void bench_print_dims(const struct bench_kernel *kernel, const int64_t *dims, char *text,
                      size_t size);

#endif
