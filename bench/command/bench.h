/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of `ringforge bench`.
 */
#ifndef RF_BENCH_H
#define RF_BENCH_H

#include "tools/tool.h"

struct bench_options {
    const char *op;
    struct tool_ranks ranks;
    int64_t min_bytes, max_bytes, factor, step, samples, warmup, check, root;
    int64_t in_place, together;
    enum rf_dtype dtype;
    enum rf_dtype wire_dtype; /* reductions of f32; RF_F32: unconverted */
    enum rf_redop redop;
    enum rf_order order;
    double link_gbps;          /* for bound_pct; 0 = unknown */
    double scale;              /* overlap, pipeline: factor for all times */
    const char *times;         /* pipeline */
    const char *schedule;      /* pipeline; NULL: all */
    const char *algorithm;     /* collectives; NULL: by size */
    bool private_buffers;      /* collectives; else the library's (rf_comm_alloc) */
    bool one_clock;            /* collectives: all ranks read the same clock */
    bool rewrite;              /* collectives: inputs are rewritten before each call */
    struct tool_list shapes;   /* kernels */
    int64_t split;             /* matmul */
    const char *form;          /* matmul: nn, nt or tn */
    const char *device, *path; /* kernels; path: matmul */
    const char *json_path, *plot_path;
};

int bench_collective(const struct tool_command *command, const struct bench_options *options,
                     char *const *argv);
/* On two ranks as threads, over links of given speeds. */
int bench_overlap(const struct tool_command *command, const struct bench_options *options);
/* Steps of every pipeline schedule, or of one, on 2 to 8 ranks. */
int bench_pipeline(const struct tool_command *command, const struct bench_options *options,
                   char *const *argv);
/* An optimizer's update in host memory, compared with the device's. */
int bench_host_update(const struct tool_command *command, const struct bench_options *options);
int bench_staging(const struct tool_command *command, const struct bench_options *options);
/* kernel.c: a kernel, or `ops` for all. */
int bench_kernels(const struct tool_command *command, const struct bench_options *options);

/* Training steps of a GPT-2 on one device. */
int bench_step(const struct tool_command *command, const struct bench_options *options);

/* time.c. Sorts samples in place. */
struct bench_times {
    double best, p50, p99;
};
struct bench_times bench_quantiles(double *samples, int count);

/* ---- check.c: patterns to check every element of every result -------------------------------- */

struct bench_pattern {
    enum rf_coll_op op; /* RF_COLL_SEND stands for a send and receive around the ring */
    enum rf_dtype dtype, wire_dtype; /* wire_dtype: as in rf_coll_opts */
    enum rf_redop redop;
    int rank, ranks, root;
    size_t in_count, out_count; /* elements of this rank */
};
/* The input of this rank; for a broadcast the root's. */
void bench_fill(const struct bench_pattern *pattern, void *in);
void bench_poison(const struct bench_pattern *pattern, void *out);
/* The number of wrong elements of out: not exactly the expected value; with a 16-bit wire_dtype,
 * not within the bound of rf_coll_opts. */
uint64_t bench_wrong(const struct bench_pattern *pattern, const void *out);

#endif
