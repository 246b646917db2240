/* SPDX-License-Identifier: MIT
 *
 * The interface between schedules and networks: the functions of a transport for the executor of
 * collectives (coll/exec.c), and of a control link for a communicator. coll and comm call it; the
 * folders of transport/ implement it. A new transport implements struct rf_transport_ops and has a
 * row in transport/providers.c (docs/adding.md).
 */
#ifndef RF_BASE_TRANSPORT_INTERFACE_H
#define RF_BASE_TRANSPORT_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tag of a message: 12 bits that distinguish calls (bit 0: point to point or collective; the
 * highest stays 0, because libfabric's native TCP uses it), 28 bits sequence number, 24 bits
 * step. comm/run/operations.c defines their content. Matching is exact, per peer. Messages with
 * different tags need no order. */
#define RF_TAG(comm, sequence, step)                                                               \
    (((uint64_t)((comm)&0xfffu) << 52) | ((uint64_t)((sequence)&0xfffffffu) << 24) |               \
     (uint64_t)((step)&0xffffffu))

/* A contract as messages carry it: the low 24 bits are a hash of the values that must be equal, the
 * high 8 bits a hash of the call site's label, where 0 matches any label. Receivers compare with
 * this function, not with ==. */
static inline bool rf_contract_agrees(uint32_t mine, uint32_t theirs)
{
    uint32_t differ = mine ^ theirs;
    if (differ == 0)
        return true;
    return (differ & 0xffffffu) == 0 && (mine >> 24 == 0 || theirs >> 24 == 0);
}

/* One completed send or receive. status is 0 or a negative rf_status: RF_EPEER (the connection is
 * lost), RF_EMISMATCH (the message is longer than the receive expected), RF_ENET. The message is
 * then in rf_last_error(). */
struct rf_completion {
    void *context;     /* as given at posting */
    size_t bytes;      /* received (receives only) */
    uint32_t contract; /* of the sender (receives only) */
    int peer;          /* -1 if unknown */
    int status;
    bool is_recv;
    const void *data; /* zero-copy receives: address of the data, if token is not 0 */
    uint32_t token;   /* releases them; 0 = the data are in the buffer */
};

/* The start of the context of every posted send and receive. */
struct rf_transport_context {
    unsigned char provider[64]; /* used by the transport while posted */
    void *owner;                /* of the completion */
};

struct rf_transport;

struct rf_transport_ops {
    /* Post the operation and return at once. 0: posted. RF_EAGAIN: a queue is full, poll and try
     * again. Another negative status: failed. `context` must stay valid until its completion. It is
     * an opaque pointer to at least 64 bytes of caller memory reserved for the provider at its
     * START (struct fi_context2). bytes may be 0. Only [buffer, buffer+bytes) is accessed. Receives
     * may be posted in any order. */
    int (*post_send)(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                     const void *buffer, size_t bytes, void *context);
    int (*post_recv)(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                     void *context);
    /* Makes progress, and returns the number of completions, at most `max` (0: none now), or a
     * negative status if the transport itself has failed. Never blocks. */
    int (*poll)(struct rf_transport *t, struct rf_completion *out, int max);
    /* After it returns, no posted buffer or context is accessed. Used after errors. */
    void (*cancel_all)(struct rf_transport *t);
    void (*destroy)(struct rf_transport *t);

    /* ---- may be NULL ---- */

    /* Registers memory with the provider if it requires that (FI_MR_LOCAL); an optional hint
     * otherwise. *handle: NULL if nothing is to be deregistered, as before the call. */
    int (*register_memory)(struct rf_transport *t, void *base, size_t bytes, void **handle);
    void (*deregister_memory)(struct rf_transport *t, void *handle);
    /* Sends or receives without posting if this needs no waiting. 1: done; the buffer is the
     * caller's again, and no completion follows. 0: not possible now, so the operation must be
     * posted. Negative: failed. A completed receive fills *out as `poll` does. */
    int (*send_at_once)(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                        const void *buffer, size_t bytes);
    int (*recv_at_once)(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                        struct rf_completion *out);

    /* ---- transports with shared memory; NULL in all others
     * --------------------------------------- */

    /* Like post_recv, but the data may stay where they arrived. The completion then has their
     * address, which is valid until they are released. Called by the posting thread only. */
    int (*post_recv_zero_copy)(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                               size_t bytes, void *context);
    void (*release_zero_copy)(struct rf_transport *t, int peer, uint32_t token);
    /* Like post_recv, for an exchange: this rank also sends the peer a message of about the same
     * length, and no step of the call has written what either sends. NULL: no difference. */
    int (*post_recv_exchange)(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                              size_t bytes, void *context);
    /* Allocates zeroed memory that other ranks can access, in whole pages. Any thread. */
    int (*alloc)(struct rf_transport *t, size_t bytes, void **out);
    void (*free)(struct rf_transport *t, void *memory);
    /* Whether [memory, memory+bytes) is such memory of this rank. *offset identifies it to other
     * ranks. */
    bool (*locate)(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset);
    /* Maps memory of another rank by its offset. RF_ECORRUPT, about that rank: it shares no such
     * memory, or is on another host. RF_ENOMEM, about this rank: it cannot be mapped. */
    int (*reach)(struct rf_transport *t, int peer, uint64_t offset, size_t bytes,
                 unsigned char **out);
    /* Called by the posting thread if nothing has been received for some microseconds. True: the
     * caller should yield, because another rank of the job may need this core. */
    bool (*idle)(struct rf_transport *t);
};

/* First member of every transport. */
struct rf_transport {
    const struct rf_transport_ops *ops;
    const char *name; /* a name of the table of providers, or two of them: "shm+tcp" */
    int rank, size;
    bool one_process; /* ranks are threads of one process */
    bool one_host;    /* all ranks can access each other's memory */
    bool yield;       /* ranks outnumber cores: yield on the first empty poll */
    bool lost_peer;   /* set before cancel_all: a peer has died or hangs, and shared state may be
                         inconsistent */
    bool stalls;      /* a message without a posted receive blocks those after it */
    bool takes_early; /* a message without a posted receive never blocks, whatever the number and
                       * length */
    bool streams;     /* writing shared memory past the caches makes other ranks' reads faster */
    size_t segment_bytes;   /* preferred size of a pipelined piece */
    size_t read_bytes;      /* messages of at least this many bytes are read in the sender's memory,
                             * of any kind; 0: never */
    const char *own_memory; /* for people: how messages from memory that is not shared travel; NULL:
                             * no shared memory */
    uint64_t sent_bytes,
        sent_messages; /* payload posted to OTHER ranks; written by the posting thread */
};

/* Whether ranks of one host can access each other's memory. Equal on all ranks. */
static inline bool rf_transport_shares_memory(const struct rf_transport *t)
{
    return t && t->ops->post_recv_zero_copy != NULL;
}

/* ---- control link: slow, reliable, outside the data path ------------------------------------- */

enum rf_event_kind {
    RF_EVENT_NONE = 0,
    RF_EVENT_DEAD,    /* `rank` died, or left unannounced; text tells how this was detected */
    RF_EVENT_ABORT,   /* `rank` failed the communicator; text gives the reason */
    RF_EVENT_MESSAGE, /* a message between communicators: payload */
    RF_EVENT_LEFT     /* `rank` left in order: no error, but it will send nothing more */
};
struct rf_event {
    int kind, rank; /* rank: the rank concerned, or the sender */
    uint32_t bytes;
    uint8_t payload[512];
    char text[256];
};

struct rf_control;
struct rf_control_ops {
    /* Blocking, collective, called in the same order on all ranks. `all` has size * bytes. Fails
     * with RF_EPEER (names the rank), RF_ETIMEOUT or RF_EABORT. */
    int (*all_gather)(struct rf_control *c, const void *mine, size_t bytes, void *all,
                      double timeout_s);
    /* Sends a message (<= 512 bytes) to every other rank; does not block. Order per sender is kept.
     */
    int (*notify)(struct rf_control *c, const void *payload, size_t bytes);
    /* Fails the communicator on every other rank with this text. */
    int (*abort)(struct rf_control *c, const char *text);
    /* Takes the next event: returns 1 and fills it, or 0 if there is none. Never blocks. */
    int (*next_event)(struct rf_control *c, struct rf_event *out);
    /* Announces that this rank leaves, on the first call. Then blocks until there is an event to
     * take (1). Without an event, it returns 0 when all other ranks have left, the link is lost, or
     * the deadline has passed. */
    int (*part)(struct rf_control *c, uint64_t deadline_ns);
    /* Announces that this rank leaves, waits up to timeout for the other ranks to leave, and frees
     * the link. A rank that left in order does not count as dead. */
    void (*leave)(struct rf_control *c, double timeout_s);
};
struct rf_control {
    const struct rf_control_ops *ops;
    int rank, size;
    uint64_t host; /* identifies this rank's host: equal on its ranks, different elsewhere */
    /* Set (release order) whenever an event is queued, so that the hot loop reads a single flag. */
    volatile uint32_t pending;
    /* Called with each message of another rank before it is queued, on the thread that receives it,
     * with the link locked. It must not block or call the link. NULL: no observer. */
    void (*observer)(void *owner, const void *payload, size_t bytes);
    void *observer_owner;
};

static inline void rf_control_observe(struct rf_control *c,
                                      void (*observer)(void *, const void *, size_t), void *owner)
{
    c->observer_owner = owner;
    __atomic_store_n(&c->observer, observer, __ATOMIC_RELEASE);
}

static inline void rf_control_call_observer(struct rf_control *c, const void *payload, size_t bytes)
{
    void (*observer)(void *, const void *, size_t) =
        __atomic_load_n(&c->observer, __ATOMIC_ACQUIRE);
    if (observer)
        observer(c->observer_owner, payload, bytes);
}

#endif
