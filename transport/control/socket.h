/* SPDX-License-Identifier: MIT
 *
 * TCP sockets for the control link: listening, connecting by a deadline, addresses as text.
 * All sockets are non-blocking and close on exec.
 */
#ifndef RF_TRANSPORT_SOCKET_H
#define RF_TRANSPORT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True when every address of the host is a loopback address. Fails when the host has none. */
int rf_host_is_loopback(const char *host, bool *out);

/* Listens on host's address, or with `everywhere` on all addresses of its family. port 0: any free
 * one. RF_EBUSY when the port is taken. */
int rf_socket_listen(const char *host, int port, bool everywhere, int *out, int *bound_port);
/* RF_EAGAIN (and a text) when nobody listens there yet or the name is not known yet. */
int rf_socket_connect(const char *host, int port, uint64_t deadline_ns, int *out);
/* True when the host says that nobody listens there: the process has ended. False when somebody
 * does, or it cannot be known by the deadline. */
bool rf_socket_is_deserted(const char *host, int port, uint64_t deadline_ns);
/* RF_ENET, and a text that says how many files this process may open, and `need`: how many it
 * needs. */
int rf_socket_fail_files(const char *need);
/* -1 when there is nobody to accept, or (errno is EMFILE or ENFILE) no file can be opened; else a
 * socket. */
int rf_socket_accept(int listener);

/* Numeric IP of this end; loopback says whether it is one. */
void rf_socket_local_address(int fd, char *out, size_t bytes, bool *loopback);
bool rf_socket_peer_is_loopback(int fd);
/* An address of this host that others can reach: RF_INTERFACE, else the first that is not loopback,
 * else 127.0.0.1. */
void rf_host_address(char *out, size_t bytes);
/* Waits until fd is ready for `events` of poll(), or the deadline; true if it is. */
bool rf_socket_wait(int fd, short events, uint64_t deadline_ns);

#endif
