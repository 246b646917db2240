/* SPDX-License-Identifier: MIT
 *
 * What transports that match messages by tag share: posted operations and lists of them, matching,
 * completions, and a rank's messages to itself. Used by loopback, shm and tcp; messages to oneself
 * by libfabric's too. Nothing here locks: the caller serialises.
 */
#ifndef RF_TRANSPORT_MATCHING_H
#define RF_TRANSPORT_MATCHING_H

#include <assert.h>

#include "transport.h"

enum { RF_MATCH_BUCKETS = 64 };

/* A posted send or receive. It lies in the memory that the poster reserves at the start of its
 * context, so posting allocates nothing. */
struct rf_posted {
    struct rf_posted *next;
    uint64_t tag;
    void *buffer;   /* of a receive that is in_place: where the data are */
    uint64_t bytes; /* of a receive: its capacity, then those that it has received */
    uint64_t moved; /* so far; of a receive with RF_EMISMATCH: the length of the message */
    union {
        const unsigned char *from; /* shm: memory of the peer that a receive is copied from;
                                      `remote`: an address in the peer's process */
        uint64_t end;              /* tcp: a send's place in the stream of the connection */
        uint64_t ready_ns;         /* loopback: not delivered before */
    };
    uint32_t contract;
    int32_t peer;
    int32_t match_rank; /* matched by, with the tag: the rank at the other end; of a send that is
                           in a list of its receiver, the rank that posted it */
    int8_t status;
    uint8_t is_recv : 1;
    uint8_t zero_copy : 1, exchange : 1, in_place : 1, remote : 1; /* shm */
    uint8_t was_wrong : 1;            /* tcp: another message came than this receive's, which was
                                         guessed */
    uint8_t corrupt : 1, damaged : 1; /* loopback */
    uint8_t ticket, slot;             /* shm */
};
static_assert(sizeof(struct rf_posted) <= 64, "must fit the context's reserved bytes");

struct rf_posted_list {
    struct rf_posted *first, *last; /* last: valid if there is a first */
};

static inline void rf_posted_append(struct rf_posted_list *list, struct rf_posted *posted)
{
    posted->next = NULL;
    if (list->first)
        list->last->next = posted;
    else
        list->first = posted;
    list->last = posted;
}

/* Takes the first out of the list; NULL: the list is empty. */
static inline struct rf_posted *rf_posted_take(struct rf_posted_list *list)
{
    struct rf_posted *posted = list->first;
    if (posted)
        list->first = posted->next;
    return posted;
}

/* Takes the first with this match_rank and tag out of the list; NULL: there is none. */
static inline struct rf_posted *rf_posted_match(struct rf_posted_list *list, int rank, uint64_t tag)
{
    struct rf_posted *before = NULL;
    for (struct rf_posted *posted = list->first; posted; before = posted, posted = posted->next) {
        if (posted->tag != tag || posted->match_rank != rank)
            continue;
        if (before)
            before->next = posted->next;
        else
            list->first = posted->next;
        if (list->last == posted)
            list->last = before;
        return posted;
    }
    return NULL;
}

/* Which of RF_MATCH_BUCKETS lists has the operations of a match_rank and tag. */
static inline unsigned rf_match_bucket(int rank, uint64_t tag)
{
    uint64_t mixed = (tag ^ ((uint64_t)(unsigned)rank << 40)) * 0x9e3779b97f4a7c15ull;
    return (unsigned)(mixed >> 58) % RF_MATCH_BUCKETS;
}

static inline struct rf_posted rf_posted_send(int peer, uint64_t tag, uint32_t contract,
                                              const void *buffer, size_t bytes)
{
    return (struct rf_posted){.tag = tag,
                              .buffer = (void *)(uintptr_t)buffer,
                              .bytes = bytes,
                              .contract = contract,
                              .peer = peer,
                              .match_rank = peer};
}

/* The error of a receive whose message is longer. */
int rf_posted_fail_length(const struct rf_posted *recv);

/* What poll reports of an operation that has ended. A receive with RF_EMISMATCH sets the error. */
static inline void rf_posted_complete(const struct rf_posted *posted, struct rf_completion *out)
{
    *out = (struct rf_completion){.context = (void *)(uintptr_t)posted,
                                  .peer = posted->peer,
                                  .status = posted->status,
                                  .is_recv = posted->is_recv != 0};
    if (!posted->is_recv)
        return;
    out->contract = posted->contract;
    out->bytes = posted->bytes;
    if (posted->in_place) {
        out->data = posted->buffer;
        out->token = 1u | (uint32_t)posted->ticket << 8 | (uint32_t)posted->slot << 16;
    }
    if (posted->status == RF_EMISMATCH)
        rf_posted_fail_length(posted);
}

/* The refusal of what rf_check_post does not accept. */
int rf_refuse_post(const struct rf_transport *t, bool cancelled, int peer, uint64_t bytes,
                   uint64_t most);

/* Whether an operation may be posted. most: bytes of a message. */
static inline int rf_check_post(const struct rf_transport *t, bool cancelled, int peer,
                                uint64_t bytes, uint64_t most)
{
    if (!cancelled && peer >= 0 && peer < t->size && bytes <= most)
        return 0;
    return rf_refuse_post(t, cancelled, peer, bytes, most);
}

static inline void rf_count_sent(struct rf_transport *t, size_t bytes)
{
    t->sent_bytes += bytes;
    t->sent_messages++;
}

/* Messages of a rank to itself, over a transport of rf_self_transport. */
struct rf_self {
    struct rf_transport *transport;
    uint64_t pending; /* posted, and not reported by poll: else there is nothing to poll */
};

int rf_self_post_send(struct rf_self *self, uint64_t tag, uint32_t contract, const void *buffer,
                      size_t bytes, void *context);
int rf_self_post_recv(struct rf_self *self, uint64_t tag, void *buffer, size_t bytes,
                      void *context);
/* As rf_transport_ops.poll; rank: this one's. */
int rf_self_poll(struct rf_self *self, int rank, struct rf_completion *out, int max);
/* Both accept one that was never opened. */
void rf_self_cancel(struct rf_self *self);
void rf_self_close(struct rf_self *self);

#endif
