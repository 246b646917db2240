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

/* True if every address of the host is a loopback address. Fails if the host has none. */
int rf_host_is_loopback(const char *host, bool *out);

/* Listens on host's address, or with `everywhere` on all addresses of its family. port 0: any free
 * one. RF_EBUSY if the port is taken. */
int rf_socket_listen(const char *host, int port, bool everywhere, int *out, int *bound_port);
/* RF_EAGAIN (and a text) if nobody listens there yet or the name is unknown so far. */
int rf_socket_connect(const char *host, int port, uint64_t deadline_ns, int *out);
/* True if the host answers that nobody listens there: the process has ended. False if somebody
 * does, or if it is unknown by the deadline. */
bool rf_socket_is_deserted(const char *host, int port, uint64_t deadline_ns);
/* RF_ENET, with a text that gives the limit of open files, and `need`: the number needed. */
int rf_socket_fail_files(const char *need);
/* A socket; -1 if there is no connection to accept, or (errno is EMFILE or ENFILE) no file can be
 * opened. */
int rf_socket_accept(int listener);

/* Numeric IP of this end; loopback: whether it is a loopback address. */
void rf_socket_local_address(int fd, char *out, size_t bytes, bool *loopback);
bool rf_socket_peer_is_loopback(int fd);
/* The connection breaks if the other end's host acknowledges nothing for this time. */
void rf_socket_limit_silence(int fd, uint64_t ns);
/* Nothing more will be sent: the other end reads to the end, and closes. */
void rf_socket_end_sending(int fd);
/* An address of this host that others can reach: RF_INTERFACE, else the first non-loopback address,
 * else 127.0.0.1. */
void rf_host_address(char *out, size_t bytes);
/* Waits until fd is ready for poll()'s `events`, or the deadline; true if it is ready. */
bool rf_socket_wait(int fd, short events, uint64_t deadline_ns);

#endif
