/* SPDX-License-Identifier: MIT
 *
 * One launch of each operation of the library, in the types and shapes of real models and in sizes
 * that nothing divides: called by report.c, which looks at the pipelines that come of it.
 */
#ifndef RF_TESTS_KERNELS_LAUNCHES_H
#define RF_TESTS_KERNELS_LAUNCHES_H

#include <ringforge/ops.h>

/* Where launches get their operands: tensors of one buffer, which are never read or written. */
struct operands {
    const struct rf_device_info *info;
    struct rf_stream *stream;
    struct rf_buffer *buffer;
    uint64_t used;
    bool brief; /* fewer forms of forced paths, masks and 16-bit types, which differ little */
    /* launch_chosen: only launches whose name holds one of them; 0: all. */
    const char *const *words;
    int word_count;
};

/* Devices that may refuse a launch, and what their message then has to contain. */
struct refusal {
    bool (*by)(const struct rf_device_info *info);
    const char *reason;
};

struct launch {
    char name[64];                  /* "matmul nt 1024x64x4096 bf16" */
    bool chosen;                    /* by the library for this device, and not forced */
    bool may_not_spill;             /* as a matmul or attention that the library would choose */
    const struct refusal *refusals; /* ends with a reason NULL; NULL: every device must run it */
};

/* Records every launch, and calls `done` after each with what the launcher returned. */
void launch_all(struct operands *operands,
                void (*done)(void *user, const struct launch *launch, int status), void *user);

/* The matmuls and attentions of which the library chooses path and form, up to large ones. */
void launch_chosen(struct operands *operands,
                   void (*done)(void *user, const struct launch *launch, int status), void *user);

#endif
