/* SPDX-License-Identifier: MIT
 *
 * A save in progress. Shared by save.c, which communicates with the other ranks on the caller's
 * thread, and save_write.c, which writes this rank's spans on a thread of its own or on the
 * caller's. Only the caller's thread communicates.
 */
#ifndef RF_TRAIN_SAVE_H
#define RF_TRAIN_SAVE_H

#include <stdatomic.h>

#include "spans.h"

struct rf_save_part {
    struct rf_listing listing;
    struct rf_safetensors_layout layout;
    struct rf_spans spans;
    struct rf_shared_file file;
};

struct rf_save {
    const struct rf_run *run;
    struct rf_checkpoint_state state;
    char *settings; /* the caller's */
    int keep;
    bool sees;                        /* this rank sees the folder */
    struct rf_folder_lock lock;       /* rank 0, if the folder was not reserved */
    struct rf_checkpoint_draft draft; /* rank 0 */
    struct rf_save_part parts[RF_PART_COUNT];
    uint8_t *buffer;   /* one piece */
    uint8_t *snapshot; /* of the spans, one after the other; NULL: spans are read from the device */
    uint64_t bytes;    /* of the spans */

    bool threaded;
    pthread_t thread;
    _Atomic uint64_t written;
    _Atomic bool ended, give_up;
    int status; /* with its error; owned by the thread until it has ended */
    struct rf_error error;
};

/* save_write.c. Records the first failure of this rank with its message. */
void rf_save_note(struct rf_save *save, int status);
/* Copies this rank's spans to host memory. */
RF_MUST_CHECK int rf_save_snapshot(struct rf_save *save);
/* Writes and syncs this rank's spans: in the background if there is a snapshot. */
void rf_save_write(struct rf_save *save);
/* Waits for the background thread. */
void rf_save_join(struct rf_save *save);
/* Rank 0 receives and writes the spans of rank `peer`, which does not see the folder. Fails only if
 * the communicator fails; other errors are recorded by rf_save_note. */
RF_MUST_CHECK int rf_save_receive(struct rf_run *run, struct rf_save *save, int peer);
RF_MUST_CHECK int rf_save_send(struct rf_run *run, struct rf_save *save);
/* Rank 0 gets the list of pieces of all ranks. It fails in the same cases. */
RF_MUST_CHECK int rf_save_gather_pieces(struct rf_run *run, struct rf_save *save);

#endif
