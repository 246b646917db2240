/* SPDX-License-Identifier: MIT
 *
 * Windows: memory of each rank that all ranks of a job read, write and add to, without a call of
 * its owner, by one-sided operations of libfabric. For stores across hosts. Providers that do these
 * operations in software do them when the owner polls, so each window has a thread that does.
 */
#ifndef RF_TRANSPORT_WINDOW_H
#define RF_TRANSPORT_WINDOW_H

#include "transport.h"

/* Atomic operations are atomic with each other, value by value. PUT and GET are not: what several
 * ranks access at the same time may be a mixture of bytes. */
enum rf_window_op {
    RF_WINDOW_PUT = 0, /* bytes */
    RF_WINDOW_GET,
    RF_WINDOW_ADD_F32, /* atomic */
    RF_WINDOW_LOAD_F32,
    RF_WINDOW_LOAD_U64,
    RF_WINDOW_STORE_U64,
    RF_WINDOW_OPS
};

struct rf_window;

/* Opens a window without memory. Collective over `parent`, of which it has a control link of its
 * own. provider: the name of a transport, as in rf_transport.name. timeout_s: the longest silence
 * of a rank. RF_ENOTSUP: the provider has no one-sided operations. */
RF_MUST_CHECK int rf_window_open(struct rf_control *parent, const char *provider, double timeout_s,
                                 struct rf_window **out);
/* Gives it `bytes` zeroed bytes of this rank; each rank has its own number. Collective; once. */
RF_MUST_CHECK int rf_window_expose(struct rf_window *w, size_t bytes);
/* This rank gives up: operations of the others fail (RF_EABORT) with this text, and it waits for
 * nobody when it closes the window. */
void rf_window_abort(struct rf_window *w, const char *why);
/* Tells the others that this rank needs the window no more, serves them until all have told so, at
 * most for the timeout, and frees everything. NULL is allowed. */
void rf_window_close(struct rf_window *w);

/* Equal on all ranks. */
bool rf_window_has(const struct rf_window *w, enum rf_window_op op);
const char *rf_window_provider(const struct rf_window *w);

/* ---- one thread at a time -------------------------------------------------------------------- */

/* Starts an operation on `count` elements (PUT, GET: bytes) of a rank, this one included, from
 * `offset` bytes of its memory on, in any order with others. `local` must stay as it is until the
 * flush. Blocks while too many are under way. RF_EINVAL: not within the rank's memory.
 * RF_EPEER, RF_ETIMEOUT, RF_EABORT: a rank has died, is silent or has failed; the message names it,
 * and the window is of no use any more: later calls return RF_EABORT. */
RF_MUST_CHECK int rf_window_start(struct rf_window *w, enum rf_window_op op, int rank,
                                  uint64_t offset, void *local, size_t count);
/* Blocks until all operations have been done in the memory of their ranks. Errors as above. */
RF_MUST_CHECK int rf_window_flush(struct rf_window *w);
/* Copies from, and to, this rank's own memory, while no operation of a provider in software
 * accesses it. */
void rf_window_read(struct rf_window *w, uint64_t offset, void *out, size_t bytes);
void rf_window_write(struct rf_window *w, uint64_t offset, const void *from, size_t bytes);
/* Blocks until all ranks have called it. */
RF_MUST_CHECK int rf_window_barrier(struct rf_window *w);

#endif
