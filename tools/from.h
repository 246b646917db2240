/* SPDX-License-Identifier: MIT
 *
 * Models from folders of a hub, and back: --from of `train` and `plan`, --export of `train`.
 */
#ifndef RF_TOOLS_FROM_H
#define RF_TOOLS_FROM_H

#include <hub.h>

#include "setup.h"

/* ---- from.c ---------------------------------------------------------------------------------- */

/* Reads setup->from/config.json and sets what it determines; an error if an option says it, too.
 * setup->from NULL: does nothing. An exit status, as all of these. */
int from_open(const struct tool_command *command, struct setup *setup);

/* The weights of setup->from, checked against the blocks of a model. Closed with from_close. */
struct from {
    struct rf_weights *weights;
    struct hub_source *source;
};
int from_check(const struct tool_command *command, const struct setup *setup,
               const struct model *model, struct from *out);
/* Fills the run from them. Collective; a status of the library. */
int from_fill(struct from *from, struct rf_run *run);
void from_close(struct from *from);

/* ---- export.c -------------------------------------------------------------------------------- */

struct export_options {
    const char *dir, *dtype; /* dtype: f32, f16, bf16; NULL: that of --from, or f32 */
    int64_t shard_bytes;     /* 0 = 5e9 */
};
/* Before any work. */
int export_check(const struct tool_command *command, const struct export_options *options);
/* Writes the run's parameters and, of setup->from, the files beside its weights. Collective; rank 0
 * writes. */
int export_run(const struct tool_command *command, const struct setup *setup,
               const struct export_options *options, const struct model *model, struct rf_run *run,
               int rank, bool together);

#endif
