/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server`: as train_sync.c calls it. A function that returns an int returns
 * an exit status, and has reported the failure.
 */
#ifndef RF_TOOLS_TRAIN_STORE_H
#define RF_TOOLS_TRAIN_STORE_H

#include "trainer.h"

struct train_store;

/* Divides the ranks into workers and servers. Collective over all of them. *store is to be closed,
 * also after an error. */
int train_store_place(struct trainer *t, struct train_store **store);
/* Whether this rank is a server. */
bool train_store_serves(const struct trainer *t);
/* A worker, once the run has its parameters; a server does the same in train_store_serve. */
int train_store_open(struct trainer *t, struct train_store *store);
/* A server, until all workers have left. */
int train_store_serve(struct trainer *t, struct train_store *store);
/* After each step of a worker, of this rate. */
int train_store_step(struct trainer *t, struct train_store *store, double lr,
                     struct rf_step_stats *stats);
/* After the last step: waits for the other workers, and takes the last parameters. */
int train_store_end(struct trainer *t, struct train_store *store);
int train_store_report(struct trainer *t, struct train_store *store, struct report_store *out);
int train_store_leave(struct trainer *t, struct train_store *store);
void train_store_abort(struct train_store *store, const char *why);
void train_store_close(struct train_store *store);

#endif
