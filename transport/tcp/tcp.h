/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the transport over TCP sockets: tcp.c (posting, progress),
 * tcp_send.c and tcp_receive.c (the two sides of a message), tcp_peer.c (common to both sides),
 * tcp_connect.c (connections) and tcp_open.c (exchanging addresses).
 *
 * Two ranks use one connection. The first of them to send a message opens it. It carries frames: a
 * header of RF_TCP_HEADER bytes, and the payload of a message. A message of up to RF_TCP_EAGER
 * bytes is sent at once; one that arrives before its receive waits in memory of the receiver. A
 * longer one is sent when its receive is posted, which the receiver announces by a frame
 * (rendezvous). So no message blocks later ones.
 */
#ifndef RF_TRANSPORT_TCP_H
#define RF_TRANSPORT_TCP_H

#include "../bootstrap/handshake.h"
#include "../cpu_affinity.h"
#include "../matching.h"

enum {
    RF_TCP_EAGER = 256 << 10,
    RF_TCP_COPIED = 2 << 10, /* maximum payload that is copied after its header */
    RF_TCP_STAGE = 8 << 10,  /* headers and such payloads before they are written */
    RF_TCP_INPUT = 64 << 10,
    RF_TCP_HEADER = 24,
    RF_TCP_DIRECT = 4 << 10, /* minimum payload that is received directly into its buffer */
    RF_TCP_TRIED = 4,        /* up to this many connections are read without asking which are
                              * readable */
    RF_TCP_KEPT = 16 << 10,  /* memory of such messages is reused, */
    RF_TCP_SPARE = 16,       /* up to this number */
    RF_TCP_LONG = 32 << 10,  /* minimum message for which a connection within a host is tuned */
    RF_TCP_SEND_BUFFER = 128 << 10, /* of such a connection; the system doubles it */
    RF_TCP_COALESCE = 32 << 10,     /* while a message lacks this much, the socket may fill */
    RF_TCP_COALESCE_NS = 1000,      /* for so long */
    RF_TCP_VERSION = 1
};

#define RF_TCP_MESSAGE ((1ull << 48) - 1) /* bytes, at most: tcp_wire.h */

enum rf_tcp_kind {
    RF_TCP_DATA = 1, /* a message and its payload */
    RF_TCP_ANNOUNCE, /* a message of more than RF_TCP_EAGER bytes waits for its receive */
    RF_TCP_READY,    /* a receive of more than RF_TCP_EAGER bytes is posted */
    RF_TCP_REFUSED,  /* an announced message is longer than its receive */
    RF_TCP_BYE,      /* the sender closes the connection; nothing follows */
    RF_TCP_KINDS
};

struct rf_tcp_frame {
    uint64_t tag, bytes;
    uint32_t contract;
    uint8_t kind;
};

/* A message that arrived, or was announced, before its receive. */
struct rf_tcp_early {
    struct rf_tcp_early *next;
    struct rf_tcp_frame frame;
    unsigned char data[];
};

/* The object of an epoll event; its first member. */
enum rf_tcp_watch { RF_TCP_LISTENER, RF_TCP_GREETING, RF_TCP_PEER };

enum rf_tcp_state {
    RF_TCP_IDLE,    /* no connection, and none needed */
    RF_TCP_WAITING, /* a dial failed, or the peer refused it because it dials itself */
    RF_TCP_DIALING,
    RF_TCP_OPEN,
    RF_TCP_LOST /* permanently; reason says why */
};

struct rf_tcp_peer {
    enum rf_tcp_watch watch; /* first member */
    int rank, fd;            /* -1: no connection */
    enum rf_tcp_state state;
    bool left;                    /* it has said goodbye */
    bool is_here;                 /* on this host */
    bool is_untuned;              /* within this host, and no long message has been sent */
    int reason;                   /* errno; 0: the peer closed the connection */
    uint64_t dial_ns, give_up_ns; /* time of the next dial, and of giving up */

    /* Towards the peer. */
    struct rf_posted_list queued;  /* none of their frames' bytes has been written */
    struct rf_posted_list writing; /* staged, or partly written; by their ends */
    struct rf_posted_list held;    /* long ones that wait for their receives */
    struct rf_tcp_frame *controls;
    size_t control_count, control_capacity;
    uint64_t *ready; /* tags of long receives whose sends are not posted yet */
    size_t ready_count, ready_capacity;
    unsigned char *stage; /* [RF_TCP_STAGE] */
    size_t stage_begin, stage_end;
    struct rf_posted *payload; /* written after the stage; NULL: none */
    uint64_t moved;            /* bytes of it */
    uint64_t staged, sent;     /* the stream, in bytes */
    bool sending;              /* it is in h->sending */
    bool full;                 /* the system accepted no more */
    struct rf_tcp_peer *next_sending;

    /* From the peer. */
    struct rf_posted_list recvs;
    struct rf_tcp_early *early, *last_early; /* in order of arrival */
    unsigned char head[RF_TCP_HEADER];
    size_t head_bytes;
    uint64_t left_bytes;        /* of the current payload */
    bool is_long;               /* the last message; the next one is probably long, too */
    unsigned char *into;        /* its destination; NULL: it is dropped */
    struct rf_posted *arriving; /* NULL: it is `arriving_early`, or dropped */
    struct rf_tcp_early *arriving_early;
    int expected;            /* number of receives and held sends: if > 0, the peer is read */
    int place;               /* in h->watched; -1: not in it */
    bool readable, writable; /* as epoll said */
    uint64_t again_ns;       /* not read before this time; 0: no limit */
};

struct rf_tcp_greeting;

struct rf_tcp {
    struct rf_transport transport; /* first member */
    struct rf_tcp_peer *peers;     /* [size] */
    struct rf_job_key key;
    struct rf_posted_list done; /* completions for poll */
    struct rf_tcp_peer *sending;
    int *watched; /* [size] ranks with open connections that expect something */
    int watched_count;
    int next;       /* index of the one to read first */
    int unopened;   /* number of peers without a connection so far */
    int waiting;    /* peers in state RF_TCP_WAITING */
    unsigned turns; /* until epoll is called */
    unsigned char *input;
    struct rf_cpu_affinity affinity;
    struct rf_tcp_early *spare; /* each has space for any message */
    int spare_count;
    struct rf_self self;
    bool cancelled;

    enum rf_tcp_watch listener_watch;
    int listener, epoll;
    struct rf_tcp_greeting *greetings;
    struct rf_tcp_address *addresses; /* [size] */
};

/* Numeric address and port. */
struct rf_tcp_address {
    char host[64];
    int32_t port;
};

/* tcp.c. */
int rf_tcp_end_open(int rank, int size, struct rf_tcp **out);
void rf_tcp_end_close(struct rf_tcp *h);

/* tcp_peer.c */
void rf_tcp_complete(struct rf_tcp *h, struct rf_posted *node, int status);
/* One more, or one less, is expected from a peer. */
void rf_tcp_expect(struct rf_tcp *h, struct rf_tcp_peer *peer, int change);
/* Allocates space for `bytes`, at most RF_TCP_EAGER. NULL: out of memory. */
struct rf_tcp_early *rf_tcp_allocate_early(struct rf_tcp *h, size_t bytes);
void rf_tcp_free_early(struct rf_tcp *h, struct rf_tcp_early *early); /* or NULL */
void rf_tcp_drop_early(struct rf_tcp *h, struct rf_tcp_peer *peer);
/* Removes it from the list, if it is there. */
void rf_tcp_unlink_early(struct rf_tcp_peer *peer, struct rf_tcp_early *early);
void rf_tcp_set_state(struct rf_tcp *h, struct rf_tcp_peer *peer, enum rf_tcp_state state);
/* The connection is lost: its sends fail, and so do its receives, unless the peer has said goodbye.
 * reason: errno, or 0. */
void rf_tcp_lose(struct rf_tcp *h, struct rf_tcp_peer *peer, int reason);

/* tcp_send.c */
int rf_tcp_post_send(struct rf_tcp *h, struct rf_posted *send);
/* Sends a frame without payload. */
int rf_tcp_send_control(struct rf_tcp *h, struct rf_tcp_peer *peer, enum rf_tcp_kind kind,
                        uint64_t tag, uint64_t bytes);
/* Writes as much as the system accepts now. */
void rf_tcp_flush(struct rf_tcp *h, struct rf_tcp_peer *peer);
void rf_tcp_flush_all(struct rf_tcp *h);
/* Handle a frame READY or REFUSED. */
int rf_tcp_receive_is_ready(struct rf_tcp *h, struct rf_tcp_peer *peer, uint64_t tag);
int rf_tcp_send_is_refused(struct rf_tcp *h, struct rf_tcp_peer *peer, uint64_t tag);

/* tcp_receive.c */
int rf_tcp_post_recv(struct rf_tcp *h, struct rf_posted *recv);
/* Reads the bytes that have arrived from a peer, until a message has ended or nothing is left. */
int rf_tcp_receive(struct rf_tcp *h, struct rf_tcp_peer *peer);
/* The same for bytes in memory. */
int rf_tcp_take_in(struct rf_tcp *h, struct rf_tcp_peer *peer, const unsigned char *data,
                   size_t bytes);

/* tcp_connect.c */
int rf_tcp_listen(struct rf_tcp *h, const char *address, int *port);
/* Opens a connection to a peer, if there is none. */
int rf_tcp_dial(struct rf_tcp *h, struct rf_tcp_peer *peer);
/* Accepts, greets, and asks which connections are readable or writable. */
int rf_tcp_look(struct rf_tcp *h);
/* Says goodbye to all peers, and waits until they have received everything sent. */
void rf_tcp_say_goodbye(struct rf_tcp *h);
void rf_tcp_close_all(struct rf_tcp *h);

#endif
