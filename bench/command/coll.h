/* SPDX-License-Identifier: MIT
 *
 * The measurements of `ringforge bench` of a collective, for the files that take and print them.
 */
#ifndef RF_BENCH_COLL_H
#define RF_BENCH_COLL_H

#include "bench.h"

struct coll_times {
    uint64_t wrong;
    double time_us, p50_us, p99_us, algbw, busbw;
    double bound_pct;            /* NaN: the link is not known */
    uint64_t began_ns, ended_ns; /* by the monotonic clock of the recording rank */
};

/* One size. */
struct coll_row {
    uint64_t bytes, count;
    struct coll_times apart, in_place;
    bool has_in_place;
};

struct coll_bench {
    const struct tool_command *command;
    const struct bench_options *options;
    enum rf_coll_op op;
    char *const *argv;
};

/* coll_rows.c; on rank 0 only. */
void coll_print_head(const struct coll_bench *b, struct rf_comm *comm);
void coll_print_row(const struct coll_bench *b, const struct coll_row *row);
int coll_write_json(const struct coll_bench *b, struct rf_comm *comm, const struct coll_row *rows,
                    int count);
int coll_draw(const struct coll_bench *b, const struct coll_row *rows, int count);

#endif
