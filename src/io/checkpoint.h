/* SPDX-License-Identifier: MIT
 *
 * Checkpoints on disk: DIR/step-N holds model.safetensors, optimizer.safetensors and state.json;
 * the file DIR/latest names the newest complete one. Logical tensors, no ranks. Called by
 * train/save.c on one rank.
 */
#ifndef RF_IO_CHECKPOINT_H
#define RF_IO_CHECKPOINT_H

#include "safetensors.h"

struct rf_checkpoint_state {
    int64_t step, samples, updates; /* updates: steps that were not skipped */
    int64_t batch, seq;             /* what the samples were drawn with */
    uint64_t seed;
    /* Notes of the optimizer's file; not in state.json. Scale 0: there was none. */
    float loss_scale;
    uint32_t good_steps;
};

/* Tests: called between the stages of a save, to stop there. */
struct rf_checkpoint_hook {
    void (*fn)(void *user, const char *stage);
    void *user;
};

/* config: what the model says about itself, in one line. Writes DIR/step-N.tmp, syncs it, renames
 * it to DIR/step-N, and replaces DIR/latest. After an error the unfinished folder is removed; what
 * was there before is as it was. */
RF_MUST_CHECK int rf_checkpoint_write(const char *dir, const struct rf_checkpoint_state *state,
                                      const char *config, const struct rf_file_content *model,
                                      const struct rf_file_content *optimizer,
                                      const struct rf_checkpoint_hook *hook);

struct rf_checkpoint {
    struct rf_checkpoint_state state;
    char *config;
    struct rf_safetensors *model, *optimizer;
    char path[4096]; /* of the step's folder */
};
/* Opens DIR/latest, or DIR itself when it is a step's folder. All three files have been verified
 * when it returns. Errors: RF_EIO (missing), RF_ECORRUPT (names file and fault). */
RF_MUST_CHECK int rf_checkpoint_open(const char *dir, struct rf_checkpoint *out);
void rf_checkpoint_close(struct rf_checkpoint *checkpoint);

/* state.c: the text of state.json, with the files' hashes and a hash of its own. */
RF_MUST_CHECK int rf_state_write(const char *path, const struct rf_checkpoint_state *state,
                                 const char *config, const char *model_hex,
                                 const char *optimizer_hex);
/* *config: free with rf_free. */
RF_MUST_CHECK int rf_state_read(const char *path, struct rf_checkpoint_state *state, char **config,
                                char model_hex[65], char optimizer_hex[65]);

#endif
