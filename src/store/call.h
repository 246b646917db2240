/* SPDX-License-Identifier: MIT
 *
 * A worker's messages to a server, and the answers.
 */
#ifndef RF_STORE_CALL_H
#define RF_STORE_CALL_H

#include "links.h"

/* The last call on the connection to a server has failed with `status`: the store is of no use any
 * more. Returns the status, with a message that names the server. */
int rf_store_lose(struct rf_store *store, int server, int status);
/* RF_EINVAL: this rank is no worker. RF_EABORT: the store has lost a server. */
RF_MUST_CHECK int rf_store_check_worker(const struct rf_store *store, const char *call);

/* Sends the head of a request. */
RF_MUST_CHECK int rf_store_tell(struct rf_store *store, int server,
                                const struct rf_store_head *fields);
/* Waits for the answer of a kind to the last request. *refused: the server has refused it, and the
 * store is in order. */
RF_MUST_CHECK int rf_store_hear(struct rf_store *store, int server, enum rf_store_message kind,
                                struct rf_store_head *head, bool *refused);
/* A request without values; `bytes` follow its answer. */
RF_MUST_CHECK int rf_store_ask_for(struct rf_store *store, int server, enum rf_store_message kind,
                                   enum rf_store_message answer, void *out, uint64_t bytes);

/* ---- client.c -------------------------------------------------------------------------------- */

RF_MUST_CHECK int rf_store_send_push(struct rf_store *store, const struct rf_store_keys *keys,
                                     const float *gradient, const struct rf_store_update *update);
RF_MUST_CHECK int rf_store_fetch(struct rf_store *store, const struct rf_store_keys *keys,
                                 int64_t least, float *values);
/* A state of the servers' optimizer. */
RF_MUST_CHECK int rf_store_fetch_state(struct rf_store *store, int state, float *values);

#endif
