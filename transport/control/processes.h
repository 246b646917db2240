/* SPDX-License-Identifier: MIT
 *
 * The processes of ranks on this host, watched through the kernel (pidfd). Each rank detects that
 * another one has ended, even if someone else, such as its child, still holds its sockets. Used by
 * control_thread.c.
 */
#ifndef RF_TRANSPORT_PROCESSES_H
#define RF_TRANSPORT_PROCESSES_H

#include <stdint.h>

struct rf_control;
struct rf_processes;

/* Collective over `control`. *out is NULL if there is nothing to watch: no other rank on this host
 * and in this process namespace, ranks that are threads, or a kernel before 5.3. At most 256 others
 * are watched. */
int rf_processes_open(struct rf_control *control, double timeout_s, struct rf_processes **out);
void rf_processes_close(struct rf_processes *p); /* NULL is allowed, as below */
/* A descriptor to poll() for input; -1 = none. */
int rf_processes_fd(const struct rf_processes *p);
/* The next rank whose process ended so long ago that its goodbye would have arrived, each once; -1
 * = none. Call it in every round, at the latest at the deadline. */
int rf_processes_next(struct rf_processes *p, uint64_t now_ns);
uint64_t rf_processes_deadline(const struct rf_processes *p); /* UINT64_MAX = none */

#endif
