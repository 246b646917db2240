/* SPDX-License-Identifier: MIT
 *
 * Checkpoints on disk: DIR/step-N has the parts model and optimizer, each as PART.safetensors and
 * PART.hashes (pieces.h), and state.json. The file DIR/latest names the newest complete one.
 * Checkpoints hold logical tensors and do not depend on the ranks. Called by train/: rank 0 drafts
 * and completes a checkpoint, and every rank writes its own ranges of the parts.
 */
#ifndef RF_IO_CHECKPOINT_H
#define RF_IO_CHECKPOINT_H

#include "pieces.h"
#include "safetensors.h"

struct rf_state_file;

enum rf_checkpoint_part { RF_PART_MODEL, RF_PART_OPTIMIZER, RF_PART_COUNT };

struct rf_checkpoint_state {
    int64_t step, samples, updates; /* updates: number of steps that were not skipped */
    int64_t batch, seq;             /* batch and sequence length of the samples */
    uint64_t seed;
    /* Metadata of the optimizer's file, not in state.json. Scale 0: no loss scaling. */
    float loss_scale;
    uint32_t good_steps;
};

/* FOLDER/PART.safetensors. */
RF_MUST_CHECK int rf_checkpoint_part_path(const char *folder, enum rf_checkpoint_part part,
                                          char out[4096]);

/* ---- writing: checkpoint_write.c ------------------------------------------------------------- */

/* Called between the stages of a save, on the thread that saves. fn NULL: nobody is told. */
struct rf_checkpoint_hook {
    void (*fn)(void *user, const char *stage);
    void *user;
};
void rf_checkpoint_stage(const struct rf_checkpoint_hook *hook, const char *stage);

struct rf_checkpoint_draft { /* zero: empty */
    char dir[4096], folder[4096];
    char name[64];   /* step-N */
    char token[128]; /* content of the file FOLDER/probe, different each time */
    struct rf_checkpoint_hook hook;
};
/* Creates DIR/step-N.tmp, without files of an interrupted save. */
RF_MUST_CHECK int rf_checkpoint_begin(const char *dir, int64_t step,
                                      const struct rf_checkpoint_hook *hook,
                                      struct rf_checkpoint_draft *out);
/* Whether DIR/NAME.tmp, as this rank sees it, is the folder in which rank 0 has written the token.
 */
bool rf_checkpoint_sees(const char *dir, const char *name, const char *token, char folder[4096]);
/* Completes a checkpoint. All parts are in the folder and synced. pieces: of all ranks. config: the
 * model's description, in one line. settings: the caller's text. Writes the other files, renames
 * the folder to DIR/step-N, and replaces DIR/latest. With keep > 0, it also removes the checkpoints
 * of older steps, so that `keep` remain, including this one. After an error the earlier state is
 * unchanged, and the caller discards the draft. */
RF_MUST_CHECK int rf_checkpoint_end(struct rf_checkpoint_draft *draft,
                                    const struct rf_checkpoint_state *state, const char *config,
                                    const char *settings, struct rf_pieces pieces[RF_PART_COUNT],
                                    const uint64_t bytes[RF_PART_COUNT], int keep);
void rf_checkpoint_discard(struct rf_checkpoint_draft *draft); /* a completed draft is allowed */

/* ---- reading: checkpoint.c ------------------------------------------------------------------- */

struct rf_checkpoint {
    struct rf_checkpoint_state state;
    char *config;
    char path[4096]; /* of the step's folder */
    char hash[65];   /* of state.json; it covers the whole checkpoint through other hashes */
    struct rf_checkpoint_data {
        char path[4096];
        struct rf_safetensors *tensors;
        struct rf_pieces pieces;
    } parts[RF_PART_COUNT];
};
/* The checkpoint that DIR refers to: "step-N", named by DIR/latest; or "", which is DIR itself. */
RF_MUST_CHECK int rf_checkpoint_find(const char *dir, char name[64]);
/* Reads state.json of DIR/NAME. Verified, except for the files whose hashes it holds. */
RF_MUST_CHECK int rf_checkpoint_read_state(const char *dir, const char *name,
                                           struct rf_state_file *out);
/* Whether this rank sees DIR/NAME, and its state.json has this hash. */
bool rf_checkpoint_is(const char *dir, const char *name, const char *hash);
/* Verifies everything except the tensors. RF_EIO: a file is missing. RF_ECORRUPT: the message names
 * the file and the error. */
RF_MUST_CHECK int rf_checkpoint_open(const char *dir, const char *name, struct rf_checkpoint *out);
/* A hash that is equal on two ranks if they see the same files; copies have other hashes. */
RF_MUST_CHECK int rf_checkpoint_identity(const struct rf_checkpoint *checkpoint, uint8_t out[32]);
/* Verifies groups of pieces (pieces.h) first, first + stride, ... of the tensors' files. */
RF_MUST_CHECK int rf_checkpoint_verify(const struct rf_checkpoint *checkpoint, size_t first,
                                       size_t stride);
void rf_checkpoint_close(struct rf_checkpoint *checkpoint); /* zero is allowed */

/* ---- state.c --------------------------------------------------------------------------------- */

#define RF_STATE_FORMAT 5
enum { RF_MOST_SETTINGS = 16 << 10 };

struct rf_state_file {
    int format;
    struct rf_checkpoint_state state;
    char *config;
    char *settings;              /* the caller's text; NULL: an earlier format without it */
    char hex[RF_PART_COUNT][65]; /* format 2: of PART.safetensors; later formats: of PART.hashes */
    char own[65];                /* the hash over all other fields; not used for writing */
};
RF_MUST_CHECK int rf_state_write(const char *path, const struct rf_state_file *file);
/* out->config and out->settings: free with rf_free. */
RF_MUST_CHECK int rf_state_read(const char *path, struct rf_state_file *out);

#endif
