/* SPDX-License-Identifier: MIT
 *
 * Between plan_fits.c, which counts, and plan_fits_print.c, which prints.
 */
#ifndef RF_TOOLS_PLAN_FITS_H
#define RF_TOOLS_PLAN_FITS_H

#include "plan.h"

enum { FITS_OPTIONS = 200, FITS_REASON = 768 };

/* A technique. */
struct fits_row {
    char options[FITS_OPTIONS]; /* added to the given ones; empty: none */
    char reason[FITS_REASON];   /* why there is no plan; empty: there is one */
    int change;                 /* of the given options: 0: neither the weights nor their types, 1:
                                 * types, 2: which weights are trained */
    /* For the given batch and sequences, on the rank that needs the most. */
    uint64_t device_bytes, host_bytes;
    uint64_t flops, repeated; /* of a step, over all ranks; 0: unknown */
    uint64_t sent;            /* in a step, over all ranks */
    bool fits;
    int64_t max_batch; /* with the given micro-batches; 0: none fits */
    int64_t max_seq;   /* with micro-batches of one sequence; 0: none fits */
    /* The fewest micro-batches with which the given batch fits, and the bytes; 0: it never fits. */
    int64_t micro_batches;
    uint64_t cut_bytes, cut_host;
};

struct fits {
    const struct setup *setup;
    uint64_t limit;
    int64_t params;
    struct fits_row *rows; /* the first has the options as given */
    int count;
    const struct fits_row *best; /* the cheapest change; NULL: nothing fits */
};

void fits_print(const struct fits *fits);
cJSON *fits_json(const struct fits *fits);
/* The change as options: "--micro-batches 4 --recompute block"; returns text. */
const char *fits_change_text(const struct fits *fits, const struct fits_row *row,
                             char text[FITS_OPTIONS + 32]);

#endif
