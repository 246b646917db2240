/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the transport between ranks of one host: shm.c (messages), shm_send.c and
 * shm_receive.c (the two sides of them), shm_segment.c (memory), shm_open.c (how ranks hand each
 * other their memory), shm_read.c (reading the memory of another process) and shm_trial.c (which
 * way is faster). Ranks have their numbers in the job, which may have ranks on other hosts.
 *
 * Every rank has one segment: a file in memory (memfd) that it alone writes and all others read;
 * only buffers that it has allocated there for its user are written by others, too (rf_comm_alloc).
 * It begins with the channels to the rank's peers:
 *
 *   header | acknowledgements, a line for each peer | a channel to each peer | the user's memory
 *
 * A channel is a ring of records of 32 bytes, an area for slots, and cells of memory that go round
 * with the records (a record's number modulo the number of cells). A cache line has two records,
 * because a short message costs the transfer of one line between cores. A slot is a run of units of
 * the area, named by the first. A message takes one of five ways:
 *   short    in its record, in that and the other one of the same line, or in the cell of its
 *            record: the sender is done at once
 *   eager    in a slot: the sender is done at once, too
 *   shared   its buffer lies in the sender's segment: the record has the offset, the receiver reads
 * it staged   anything else: the receiver asks for it once it has a buffer, then it comes in pieces
 *            through the slots
 *   readable if ranks read each other's memory: the record has the address in the sender's
 *            process, and the receiver reads it there. If it cannot, or slots are faster, it
 *            requests the message as a staged one
 *
 * Everything read from a peer's segment is checked before use; invalid contents are RF_ECORRUPT,
 * and the error names the rank.
 */
#ifndef RF_TRANSPORT_SHM_H
#define RF_TRANSPORT_SHM_H

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stddef.h>

#include "../cpu_affinity.h"
#include "../matching.h"

enum {
    RF_SHM_RECORDS = 512,    /* of a channel */
    RF_SHM_CELLS = 512,      /* at most, */
    RF_SHM_LEAST_CELLS = 64, /* minimum, with many ranks: shm_segment.c */
    RF_SHM_CELL = 8 << 10,
    RF_SHM_STREAM = 512,     /* minimum size of a cell written past the caches, if slots are */
    RF_SHM_TINY = 8,         /* maximum message in one record, */
    RF_SHM_INLINE = 36,      /* or in two */
    RF_SHM_EAGER = 16 << 10, /* maximum message sent at once, */
    RF_SHM_EAGER_PRIVATE = 64 << 10, /* or, if its buffer cannot be read */
    RF_SHM_UNIT = 32 << 10,
    RF_SHM_UNITS = 64,       /* of the area for slots */
    RF_SHM_SLOT = 256 << 10, /* at most */
    RF_SHM_ROUND_RANKS = 16, /* with more ranks, slots are not used in turn, to use less memory */
    /* The reader may hold this many slots; wherever they are, there is space for another. */
    RF_SHM_HELD_SLOTS = 3,
    RF_SHM_PIECES = 4, /* of a staged message, each of at least this many bytes: */
    RF_SHM_LEAST_PIECE = 64 << 10,
    RF_SHM_TICKETS = 64, /* long messages in transfer from one rank to another */
    RF_SHM_PAGE = 4096,
    RF_SHM_MAX_RANKS = 256 /* of one host */
};

enum rf_shm_kind {
    RF_SHM_SHORT = 1, /* data in the records or the cell */
    RF_SHM_SHARED,    /* where: the offset in the sender's segment; `done` ends it */
    RF_SHM_STAGED,    /* `go` asks for the pieces, `done` ends it */
    RF_SHM_PIECE,     /* of a staged message: bytes in a slot */
    RF_SHM_EAGER_ONE, /* all data in a slot */
    RF_SHM_READABLE,  /* as STAGED; and where: the address in the sender's process */
    RF_SHM_SKIP,      /* no message: the next begins a line */
    RF_SHM_KINDS
};

struct rf_shm_what {
    uint64_t bytes : 44, kind : 4, slot : 8, ticket : 8;
};

#define RF_SHM_MESSAGE ((1ull << 44) - 1) /* bytes, at most: those of rf_shm_what */

struct rf_shm_record {
    uint32_t turn; /* 1 + number of times around the ring; written last */
    uint32_t contract;
    uint64_t tag;
    struct rf_shm_what what;
    unsigned char data[RF_SHM_TINY];
};
static_assert(sizeof(struct rf_shm_record) == 32, "half a line of the cache");

/* The place of the other bytes of an inline message of more than RF_SHM_TINY: in its second record,
 * whose turn is that of the first. */
#define RF_SHM_REST offsetof(struct rf_shm_record, contract)
static_assert(RF_SHM_INLINE == RF_SHM_TINY + 32 - RF_SHM_REST, "the line is full");

/* The part of a message that has been read: its record and, if inline, its data. */
struct rf_shm_head {
    uint32_t contract;
    uint64_t tag;
    struct rf_shm_what what;
    unsigned char data[RF_SHM_INLINE];
};

/* A rank's progress in a peer's channel. Each bit changes once for each use of a ticket or slot, so
 * nothing is ever reset. (These, and the turn of a record, are read and written only by __atomic
 * builtins.) */
struct rf_shm_ack {
    alignas(64) uint64_t consumed; /* records; written from time to time */
    uint64_t done, go;             /* tickets */
    uint64_t slots;                /* a bit for the first unit of each */
    uint64_t whole;                /* tickets: pieces must be as long as slots; set before `go` */
    uint64_t unreadable;           /* tickets: the message could not be read; set before `go` */
};

struct rf_shm_channel {
    alignas(64) struct rf_shm_record records[RF_SHM_RECORDS];
    unsigned char units[RF_SHM_UNITS][RF_SHM_UNIT];
    unsigned char cells[RF_SHM_CELLS][RF_SHM_CELL]; /* last, because fewer exist with many ranks */
};

struct rf_shm_header {
    uint64_t magic, job; /* job: identifies the communicator of the segment */
    uint32_t version, rank, size, count;
    uint32_t cancelled;        /* the rank has given up: its buffers are its caller's again */
    alignas(64) uint32_t core; /* 1 + the core where the rank last waited; 0: none yet */
};
#define RF_SHM_MAGIC 0x316567726f666772ull

/* An unexpected message: it arrived before its receive. */
struct rf_shm_early {
    struct rf_shm_early *next;
    struct rf_shm_head head;
    int peer;
    unsigned char *data; /* of a short one that was not inline */
};

/* A view of the user's memory of a peer. It only grows, and returned addresses stay valid. */
struct rf_shm_view {
    struct rf_shm_view *older;
    unsigned char *base;
    size_t bytes;
};

struct rf_shm_peer {
    int fd;
    size_t file_bytes;   /* at least */
    unsigned char *base; /* of the part before the user's memory; read-only */
    struct rf_shm_view *view;
    int32_t process;     /* the process whose memory this rank reads; 0: none */
    uint64_t base_there; /* the peer's own address of `base` */

    /* Towards the peer. */
    struct rf_shm_channel *out;
    const struct rf_shm_ack *acks_in;            /* the peer's progress in it */
    uint64_t sent, consumed;                     /* records */
    uint64_t tickets, asked, done_bits, go_bits; /* in use; waiting for `go`; expected values */
    uint64_t slots_out, slot_bits, busy_units;   /* slots: as in acks_in */
    uint8_t slot_units[RF_SHM_UNITS];            /* of the slot that begins there */
    unsigned next_unit; /* start of the search for the next slot, if slots are used in turn */
    bool goes_round;
    unsigned cells;  /* of a channel in either direction */
    bool sent_slots; /* the pages of the area are mapped here */
    struct rf_posted *sends[RF_SHM_TICKETS];
    struct rf_posted_list waiting_now, waiting_long, staging;

    /* From the peer. */
    const struct rf_shm_channel *in;
    struct rf_shm_ack *acks_out;
    uint64_t received, reported;
    uint64_t done, go, slots, whole, unreadable; /* as in acks_out */
    struct rf_posted *recvs[RF_SHM_TICKETS];
    int held_slots;
    bool got_slots; /* the pages of the peer's area are mapped here */
};

/* A block of this rank's segment for its user. Ordered by offset. */
struct rf_shm_block {
    struct rf_shm_block *next;
    size_t offset, bytes;
    unsigned char *memory; /* NULL: free */
};

/* The long messages from private memory that receivers read in place. */
enum rf_shm_reads {
    RF_SHM_READS_NONE,
    RF_SHM_READS_EXCHANGES, /* exchanges: two ranks send each other data */
    RF_SHM_READS_ALL
};

struct rf_shm {
    struct rf_transport transport; /* first member */
    int fd;
    unsigned char *base; /* of the part before the user's memory */
    size_t heap_offset, file_bytes;
    uint64_t job;
    int count;                   /* ranks of this host */
    int *ranks;                  /* [count], in order */
    int *index_of;               /* [size], index in `ranks`; -1: on another host */
    struct rf_shm_peer *peers;   /* [count] */
    struct rf_posted_list done;  /* completions for poll */
    struct rf_posted_list pulls; /* receives to be copied from peers' memory */
    enum rf_shm_reads reads;     /* equal on all ranks of this host */
    uintptr_t unreadable[2]; /* memory that this rank can read, but others cannot: the last found */
    char own_memory[160];    /* for people: how messages from the caller's own memory travel */
    struct rf_posted_list recvs[RF_MATCH_BUCKETS];
    struct rf_shm_early *early[RF_MATCH_BUCKETS], *unused;
    int next_peer;
    bool cancelled;
    struct rf_self self;
    struct rf_cpu_affinity affinity;
    pthread_mutex_t lock; /* of blocks */
    struct rf_shm_block *blocks;
};

static inline struct rf_shm_peer *rf_shm_peer_of(const struct rf_shm *h, int rank)
{
    return &h->peers[h->index_of[rank]];
}

/* Whether the transport can reach a rank. */
static inline bool rf_shm_has(const struct rf_shm *h, int rank)
{
    return h->index_of[rank] >= 0;
}

/* shm_segment.c. Creates this rank's segment; h->fd must be handed to the others, once the segment
 * has the job's name. */
int rf_shm_segment_create(struct rf_shm *h);
void rf_shm_segment_name(struct rf_shm *h, uint64_t job);
/* Takes ownership of fd, which a peer has handed over. */
int rf_shm_segment_attach(struct rf_shm *h, int peer, int fd);
void rf_shm_segment_destroy(struct rf_shm *h);
/* Called before memory of a segment is first used: maps all its pages at once, if the system
 * supports it. */
void rf_shm_map_pages(const void *memory, size_t bytes, bool written);
/* [offset, offset+bytes) of a peer's segment: rf_transport_ops.reach. */
int rf_shm_reach(struct rf_transport *t, int peer, uint64_t offset, size_t bytes,
                 unsigned char **out);
/* Whether memory lies in this rank's segment, and its offset. */
bool rf_shm_locate(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset);
int rf_shm_alloc(struct rf_transport *t, size_t bytes, void **out);
void rf_shm_free(struct rf_transport *t, void *memory);

/* shm.c. Opens this rank's end; the peers must then be attached. hosts: as in rf_shm_create. */
int rf_shm_open(int rank, int size, const uint64_t *hosts, struct rf_shm **out);
void rf_shm_close(struct rf_shm *h);

/* shm_read.c. The record that ranks exchange to find out whether they may read each other's memory.
 */
struct rf_shm_self {
    uint64_t base;   /* address of the segment */
    int32_t process; /* 0: the rank does not take part */
};
void rf_shm_describe_self(const struct rf_shm *h, struct rf_shm_self *self);
/* Reads from every peer of this host, selves[rank], and compares. Call it once all segments are
 * attached. */
struct rf_shm_trial {
    int32_t permitted;
    int32_t forced;                      /* enum rf_shm_reads: the minimum */
    double read_s, cached_s, streamed_s; /* of RF_SHM_SLOT bytes, for both sides together */
    int32_t status;                      /* of the measurement */
};
void rf_shm_try_reads(struct rf_shm *h, const struct rf_shm_self *selves, size_t stride,
                      struct rf_shm_trial *out);
/* Whether every rank of this host may read the memory of all others. */
bool rf_shm_reads_are_permitted(const struct rf_shm *h, const struct rf_shm_trial *trials);
/* Copies from the memory of a peer. RF_EAGAIN: it cannot be read from here. */
int rf_shm_read(struct rf_shm *h, int rank, void *to, const void *from, size_t bytes);
/* Checks a send that a peer could not read. An error if this rank cannot read it either. */
int rf_shm_check_send(struct rf_shm *h, const struct rf_posted *send);
/* Whether others may try to read this memory. */
bool rf_shm_is_readable(const struct rf_shm *h, const void *memory, size_t bytes);

/* shm_trial.c. Measures the ways of sending from private memory, around the ranks of this host, all
 * of which call it, before any other message. Blocks until all have called it, or until half a
 * second after the control link has detected the end of one of them. reads: they are permitted.
 * memory: private, RF_SHM_TRIAL_BYTES, to be kept until then. */
enum { RF_SHM_TRIAL_BYTES = 2 * RF_SHM_SLOT };
void rf_shm_measure(struct rf_shm *h, const struct rf_control *control, bool reads, void *memory,
                    struct rf_shm_trial *out);
/* Decides from the trials of all ranks of this host, with the same result on each. */
void rf_shm_choose(struct rf_shm *h, const struct rf_shm_trial *trials);

/* shm_send.c. 1: done; 0: it would have to wait, and was not sent. */
int rf_shm_send_at_once(struct rf_shm *h, int rank, uint64_t tag, uint32_t contract,
                        const void *buffer, size_t bytes);
/* The send is in progress, or waits for capacity in the channel. */
int rf_shm_post_send(struct rf_shm *h, struct rf_posted *send);
/* Writes into the slot that begins at a unit. stream: past the caches. */
void rf_shm_write_slot(struct rf_shm_peer *peer, unsigned unit, const void *from, size_t bytes,
                       bool stream);
/* Continues the sends in progress to `rank`. */
int rf_shm_send_on(struct rf_shm *h, int rank);

/* shm_receive.c. The address of a slot; its unit has been checked. */
const unsigned char *rf_shm_slot(struct rf_shm_peer *peer, unsigned unit, size_t bytes);
int rf_shm_post_recv(struct rf_shm *h, struct rf_posted *recv);
/* 1: the peer's next message is short and the expected one, and has been received; 0: nothing was
 * done. */
int rf_shm_recv_at_once(struct rf_shm *h, int rank, uint64_t tag, void *buffer, size_t bytes,
                        struct rf_completion *out);
/* Processes what `peer` has written: at most one message ends. */
int rf_shm_receive(struct rf_shm *h, int peer);
/* Continues a copy from a peer's memory. */
int rf_shm_pull(struct rf_shm *h);
void rf_shm_release_zero_copy(struct rf_transport *t, int peer, uint32_t token);
void rf_shm_forget_early(struct rf_shm *h);

#endif
