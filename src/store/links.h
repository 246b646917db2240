/* SPDX-License-Identifier: MIT
 *
 * The connections of a store: a communicator of two ranks for each worker and each server, so that
 * the loss of a worker is no matter of the others. The server is rank 0.
 */
#ifndef RF_STORE_LINKS_H
#define RF_STORE_LINKS_H

#include "message.h"
#include "store.h"

/* Collective over comm; blocking. */
RF_MUST_CHECK int rf_store_links_open(struct rf_store *store, struct rf_comm *comm);
void rf_store_links_close(struct rf_store *store);

/* Blocking, with the store's timeout. bytes 0: nothing is sent. */
RF_MUST_CHECK int rf_store_send(const struct rf_store *store, int link, const void *data,
                                uint64_t bytes);
RF_MUST_CHECK int rf_store_receive(const struct rf_store *store, int link, void *data,
                                   uint64_t bytes);

#endif
