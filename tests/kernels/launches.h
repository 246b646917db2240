/* SPDX-License-Identifier: MIT
 *
 * One launch of each operation of the library, in the types and shapes of real models and in sizes
 * that nothing divides. Called by report.c, which examines the resulting pipelines.
 */
#ifndef RF_TESTS_KERNELS_LAUNCHES_H
#define RF_TESTS_KERNELS_LAUNCHES_H

#include <ringforge/ops.h>

/* The operands of launches: tensors of one buffer, which are never read or written. */
struct operands {
    const struct rf_device_info *info;
    struct rf_stream *stream;
    struct rf_buffer *buffer;
    uint64_t used;
    bool brief; /* fewer forms of forced paths, masks and 16-bit types, which differ little */
    /* launch_chosen: only launches whose name contains one of these words; 0: all. */
    const char *const *words;
    int word_count;
};

/* Devices that may refuse a launch, and the required content of their message. */
struct refusal {
    bool (*by)(const struct rf_device_info *info);
    const char *reason;
};

struct launch {
    char name[64];                  /* "matmul nt 1024x64x4096 bf16" */
    bool chosen;                    /* by the library for this device, not forced */
    bool may_not_spill;             /* a matmul or attention that the library would choose */
    const struct refusal *refusals; /* ends with a reason NULL; NULL: every device must run it */
};

/* Records every launch, and calls `done` after each with the launcher's status. */
void launch_all(struct operands *operands,
                void (*done)(void *user, const struct launch *launch, int status), void *user);

/* Launches the matmuls and attentions for which the library chooses path and form, up to large
 * ones. */
void launch_chosen(struct operands *operands,
                   void (*done)(void *user, const struct launch *launch, int status), void *user);

#endif
