/* SPDX-License-Identifier: MIT
 *
 * What the files of comm share: the communicator itself, one call on it, contracts, verdicts, the
 * watch over a running operation, and the parts (schedule cache, point to point, asynchronous
 * work, staging). Nobody outside comm includes it.
 *
 * One thread at a time works with a communicator: its owner, or the worker while asynchronous work
 * is outstanding (then the owner waits). So nothing here is locked but the worker's queue.
 */
#ifndef RF_COMM_COMMUNICATOR_H
#define RF_COMM_COMMUNICATOR_H

#include <ringforge/comm.h>
#include <ringforge/flight.h>
#include <stdatomic.h>

#include "../base/base.h"
#include "../base/wire.h"
#include "../coll/coll.h"

enum {
    RF_HISTORY = 256, /* own contracts kept, so that a late accusation can be answered */
    /* The lowest bit of the communicator field of tags: one transport serves one communicator, so
     * the field only keeps collectives and point to point apart. */
    RF_WIRE_COLLECTIVE = 0,
    RF_WIRE_POINT = 1,
    RF_VERDICT_TEXT = 280,
    RF_FLIGHTS = 8, /* asynchronous collectives on record at the same time */
    RF_SLOTS = 8,   /* of staging memory, for sends, and as many for receives, on a device */
    RF_SLOT_BYTES = 1 << 20
};

#define RF_QUIET_NS 250000000ull /* without byte progress: suspicious, contracts are compared */
/* How long to wait for the others' word on a failure before going by what is known here. */
#define RF_ASK_NS 600000000ull

/* One operation, checked: what the schedule, the contract and the executor need. */
struct rf_call {
    enum rf_coll_op op;
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order;
    int root;                  /* -1 where there is none */
    size_t count, stride;      /* count: in all, with counts */
    const size_t *counts;      /* [size], the v forms; else NULL */
    const size_t *recv_counts; /* [size], all-to-all with counts */
    const char *algorithm;     /* NULL: the table chooses */
    const struct rf_forest *forest;
    int leaves, round; /* of a prefix */
    const void *in;
    void *out;
    const char *label;
    double timeout_s;              /* 0: the communicator's */
    struct rf_reduction reduction; /* of RF_CUSTOM; its name only as a hash */
    uint32_t reduction_hash;
    bool scaled;
    double scale;
    enum rf_dtype wire; /* RF_F32: as it is */
    unsigned staged;    /* RF_STAGED_*: in or out is staging memory */
    struct rf_mover *mover;
};

/* As the root of a contract that is none: its rank called nothing more. */
enum { RF_ROOT_LEFT = -2 };

/* Why a communicator failed: the same on all ranks, told over the control link. For RF_EMISMATCH
 * with rank_a >= 0, a and b are what rank_a and rank_b called; an op of RF_COLL_NONE is unknown. */
struct rf_verdict {
    int32_t status, rank; /* rank: whom it is about; -1 = nobody */
    uint64_t sequence;
    int32_t rank_a, rank_b;
    uint32_t of_job; /* the ranks in the message are those of the job, not of the communicator */
    struct rf_contract a, b;
    char message[RF_VERDICT_TEXT]; /* not used where it is derived from a and b */
};

/* A collective that this rank has started. chain: a hash of all before it, so that two ranks which
 * agree about this one still notice that they did not about an earlier one: a broadcast of which
 * each believes itself to be the root ends well on both. */
struct rf_past {
    struct rf_contract contract;
    uint32_t hash; /* of the contract and what it has no field for; labels apart */
    uint32_t chain;
};

/* The last things that a peer said about itself. */
struct rf_peer_state {
    struct rf_past waiting;   /* the collective it waits in, when has_waiting */
    struct rf_contract point; /* the send or receive it waits in, when has_point */
    uint64_t point_started;   /* collectives it had started then */
    uint64_t left_after;      /* collectives it had started when it left, when has_left */
    struct rf_past last;      /* with that: the last of them; its contract has no label, and is that
                               * of a later send or receive where there was one */
    bool has_waiting, has_point, has_left;
    bool waited;         /* in vain, in a group: so it is not whom others miss */
    bool differs;        /* it has another past: both tell all of theirs */
    bool has_other_past; /* found in what it told of its history */
};

/* How ranks that wait for each other find out (cycle.c): who waits in what for whom, from the one
 * who asked on. A circle of more ranks is not found. */
enum { RF_PROBE_HOPS = 12 };
struct rf_probe_hop {
    uint64_t sequence, count;
    int32_t rank, to, root; /* in the job */
    uint32_t number;        /* of the communicator */
    uint8_t op, dtype, redop, order;
};
struct rf_probe {
    uint32_t wait, count; /* wait: which one of the rank that asked */
    struct rf_probe_hop hops[RF_PROBE_HOPS];
};

/* The watch over one running operation. */
struct rf_watch {
    struct rf_comm *comm;
    const struct rf_contract *mine;
    const struct rf_exec *exec; /* whose messages it waits for; NULL: those of `peer` */
    int peer;                   /* -1 = unknown */
    bool blocking;              /* the caller does nothing else meanwhile */
    bool may_send;              /* something is to be sent as soon as there is room */
    uint64_t timeout_ns;
    uint64_t activity, quiet_activity, quiet_since_ns;
    uint32_t idle;
    bool drowsy, announced;
};

struct rf_recorder;
struct rf_family;
struct rf_cache;
struct rf_p2p;
struct rf_async;
struct rf_group;
struct rf_half;
struct rf_staging;
struct rf_slot;
struct rf_task;

struct rf_comm {
    int rank, size;
    double timeout_s;
    struct rf_transport *wire; /* as the transport layer made it */
    struct rf_transport
        *demux; /* the same, less what belongs to point to point: for the executor */
    struct rf_control *control;
    struct rf_exec *exec;              /* of blocking calls */
    struct rf_exec *execs[RF_FLIGHTS]; /* all there are, that one first */
    size_t segment_bytes;              /* agreed */
    bool checksum;                     /* agreed */
    uint64_t sequence;                 /* of the next collective */
    uint32_t chain;                    /* of the next collective */
    const struct rf_contract *running; /* the collective that the caller waits in; NULL = none */
    struct rf_recorder *recorder;      /* NULL: nobody asked for one */
    struct rf_cache *cache;
    struct rf_family *family; /* of those that were made of the same first one */
    struct rf_comm *sibling;  /* the next in it */
    uint32_t number;          /* in it: the same on all ranks */
    int *job_ranks; /* [size] of a group: whom each is in the first communicator; else NULL */
    int *hosts; /* [size], counted from 0 in the order of their first ranks; NULL: there is one */
    struct rf_coll_model *model; /* of measured links; NULL: none were measured */
    struct rf_p2p *p2p;
    struct rf_async *async;
    struct rf_group *group; /* NULL: calls run at once */
    struct rf_staging *staging;
    unsigned char *converted; /* convert.c's, kept */
    size_t converted_bytes;
    uint64_t staged_bytes;

    struct rf_past history[RF_HISTORY];
    struct rf_peer_state *peers;
    struct rf_contract
        point; /* the last send or receive, and after how many collectives; 0 = none */
    uint64_t point_after;
    const struct rf_watch *watching; /* while news are handled in a blocking call, of this or of
                                      * another one of the family; else NULL */
    uint32_t waits;                  /* probes that this rank has sent */
    atomic_ullong asked_at;          /* which of the family's questions came here last */
    uint64_t answered;               /* questions of the family that its waits have answered */
    struct rf_asking *asking;        /* while this rank asks others (ask.c); else NULL */
    bool leaving;
    int missed;        /* a rank that has called more than this one, which leaves; -1 = none */
    int announcements; /* peers with has_waiting for an operation that this rank has not started */
    bool told_history;

    bool has_groups;           /* some were split off it */
    bool left_out;             /* survivors have gone on without this rank */
    bool failed, unreported;   /* unreported: the worker failed, and no call has said so yet */
    struct rf_error error;     /* why */
    struct rf_verdict verdict; /* what that was made of */
    atomic_uint abort_requested;
    char abort_reason[RF_VERDICT_TEXT];
    char why[256];
    const char *track; /* of the trace */
};

/* ---- comm.c ---------------------------------------------------------------------------------- */

/* What every public call does first: waits for asynchronous work, and refuses on a failed
 * communicator. */
RF_MUST_CHECK int rf_comm_ready(struct rf_comm *comm);
/* The same, and looks at the control link. (A collective does so when its contract is on record.)
 */
RF_MUST_CHECK int rf_comm_enter(struct rf_comm *comm);

/* Makes a communicator of a control link and a transport, which it takes, also on failure; rc < 0:
 * of what there is by then, only to take it down. */
int rf_comm_adopt(struct rf_comm *comm, const struct rf_comm_opts *opts, int rc,
                  struct rf_comm **out);

/* Whom a rank is in the first communicator: by that go logs and traces. */
static inline int rf_comm_in_job(const struct rf_comm *comm, int rank)
{
    return comm->job_ranks ? comm->job_ranks[rank] : rank;
}

/* Of a group that is to be adopted: its ranks are these of the parent. */
RF_MUST_CHECK int rf_comm_name_ranks(struct rf_comm *comm, const struct rf_comm *parent,
                                     const int *members);

/* Which rank that is here; -1: it is not in this communicator. */
int rf_comm_from_job(const struct rf_comm *comm, int in_job);

/* ---- hosts.c --------------------------------------------------------------------------------- */

/* Fills comm->hosts from all ranks' numbers, which lie `stride` bytes apart. */
RF_MUST_CHECK int rf_hosts_number(struct rf_comm *comm, const uint64_t *first, size_t stride);

/* ---- links.c --------------------------------------------------------------------------------- */

/* Measures, for at most 50 ms, and chooses algorithms by the result from then on. Collective. */
RF_MUST_CHECK int rf_links_measure(struct rf_comm *comm);

/* ---- contract.c ------------------------------------------------------------------------------ */

void rf_contract_fill(struct rf_contract *contract, const struct rf_call *call);
void rf_contract_label(struct rf_contract *contract, const char *label);
/* The low 24 bits of what goes on the wire; extra covers what a contract has no field for. */
uint32_t rf_contract_hash(const struct rf_contract *contract, uint32_t extra);
uint32_t rf_label_hash(const char *label); /* in the high 8 bits; 0 = none */
bool rf_contract_equal(const struct rf_contract *a, const struct rf_contract *b);
/* The same call, whatever came before it. */
bool rf_past_equal(const struct rf_past *a, const struct rf_past *b);
/* The chain after a call. */
uint32_t rf_past_next(const struct rf_past *past);
bool rf_contract_is_point(const struct rf_contract *contract); /* send or recv */

/* ---- flight.c: the last calls, in a file ------------------------------------------------------
 */

/* *out is NULL where RF_FLIGHT is not set. job: the same bytes on all ranks. */
RF_MUST_CHECK int rf_recorder_open(const struct rf_comm *comm, const uint8_t job[16],
                                   struct rf_recorder **out);
void rf_recorder_close(struct rf_recorder *recorder);
void rf_recorder_begin(struct rf_recorder *recorder, const struct rf_past *past);
void rf_recorder_end(struct rf_recorder *recorder, uint64_t sequence, int status);

/* ---- verdict.c ------------------------------------------------------------------------------- */

/* Fails the communicator for good: stops the transport, keeps the error, and tells the others if
 * `tell`. Returns verdict->status with the error as this thread's last. */
int rf_comm_fail(struct rf_comm *comm, const struct rf_verdict *verdict, bool tell);
int rf_comm_fail_mismatch(struct rf_comm *comm, int rank_a, const struct rf_contract *a, int rank_b,
                          const struct rf_contract *b);
int rf_comm_fail_text(struct rf_comm *comm, int status, int rank, const struct rf_contract *mine,
                      const char *format, ...) RF_PRINTF(5, 6);
/* An operation has failed with `status` (its text is this thread's last error): finds out why, if
 * need be by asking the others for a while, and fails the communicator. suspect: the peer whose
 * message did not fit, -1 = unknown. */
int rf_comm_fail_operation(struct rf_comm *comm, int status, int suspect,
                           const struct rf_contract *mine);
/* Gives the control link some time to say what happened. True: it has failed the communicator. */
bool rf_comm_told_within(struct rf_comm *comm, uint64_t ns);
/* Why this one has failed, for those that it was split off: `other` is one of them. */
struct rf_verdict rf_comm_verdict_for(const struct rf_comm *comm, const struct rf_comm *other);
/* A failed communicator's answer to a call. */
int rf_comm_report(struct rf_comm *comm);

/* ---- notes.c: what communicators say to each other over the control link --------------------- */

void rf_note_waiting(struct rf_comm *comm, const struct rf_contract *mine, int asked);
void rf_note_verdict(struct rf_comm *comm, const struct rf_verdict *verdict);
/* This rank has waited in vain for another one, in a group of these ranks. */
void rf_note_waited(struct rf_comm *comm);
/* Says what this rank has called, and compares with what those said who have left before. From now
 * on whoever leaves is compared. */
RF_MUST_CHECK int rf_comm_begin_leaving(struct rf_comm *comm);
/* All that will be heard has been: waits a moment for the word of those who know more about a
 * difference. */
RF_MUST_CHECK int rf_comm_end_leaving(struct rf_comm *comm);
/* It does not, and the leaver is gone: what is known of it. */
int rf_comm_fail_leaver(struct rf_comm *comm, int rank);
/* Whether what a leaver has said fits this rank's own calls, as far as both have come. */
RF_MUST_CHECK int rf_comm_compare_leaver(struct rf_comm *comm, int rank);
/* Handles everything that the control link has to say. Negative: the communicator has failed. */
RF_MUST_CHECK int rf_comm_events(struct rf_comm *comm);
/* One event of it. */
RF_MUST_CHECK int rf_comm_heard(struct rf_comm *comm, const struct rf_event *event);
/* Tells the ranks that are none of these survivors, if they should come back to life. */
void rf_note_left_out(struct rf_comm *comm, const int *members, int count);
/* A collective is stuck: does a peer wait in point to point for this very rank, and so for ever? */
RF_MUST_CHECK int rf_comm_check_points(struct rf_comm *comm, const struct rf_contract *mine,
                                       const struct rf_exec *exec);
/* A collective begins: compares it with what waiting peers have said. */
RF_MUST_CHECK int rf_comm_compare_announced(struct rf_comm *comm, const struct rf_past *mine);
/* If this rank has started operation `sequence` and still remembers it; else NULL. */
const struct rf_past *rf_comm_history(const struct rf_comm *comm, uint64_t sequence);

static inline bool rf_comm_has_news(const struct rf_comm *comm)
{
    return (__atomic_load_n(&comm->control->pending, __ATOMIC_RELAXED) |
            atomic_load_explicit(&comm->abort_requested, memory_order_relaxed)) != 0;
}

/* True where no rank can end its part before every other has begun its own. */
bool rf_call_needs_everybody(const struct rf_contract *contract);
/* found: it has come back, and is what its circle looks like. */
void rf_note_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found);

/* ---- spread.c ---------------------------------------------------------------------------------
 */

/* A rank did not come in time, and all say for whom they wait: gives those some time to say so
 * whose group has failed. waits: for whom this rank waits. True: this communicator has failed with
 * it. */
bool rf_comm_told_of_groups(struct rf_comm *comm, const int *waits, int count);

/* ---- ask.c: who stands still ----------------------------------------------------------------- */

enum { RF_ASK_RANKS = 64, RF_TELL_RANKS = 16 };
/* What asking has found. */
struct rf_silent {
    int rank;  /* did not say for whom it waits; -1: all of them did */
    int first; /* it, or the rank that this one waits for and that waits for it, maybe by others */
    int away;  /* where all did: a rank that waits for one of the job outside of this communicator,
                * `away_for`; -1: there is none */
    int away_for;
};
/* The ranks that this one waits for, which may be itself at fault or wait for others: asks them,
 * and those that they wait for. Who waits, in any communicator of its family, says so at once; who
 * is silent for RF_ASK_NS is found. Blocks as long, and for at most three times as long for each
 * rank of such a chain where this rank's core is busy. Negative: the communicator has failed
 * meanwhile. */
RF_MUST_CHECK int rf_ask(struct rf_comm *comm, const int *waits, int count, struct rf_silent *out);
/* This rank waits, in `comm` and for these ranks of it: tells those who have asked since the last
 * answer, whichever communicator of the family they asked in. Costs one load where nobody has. */
void rf_ask_answer(struct rf_comm *comm, const int *waits, int count);
bool rf_ask_is_asked(const struct rf_comm *comm);
/* What notes.c has heard: `rank` waits for these ranks of the job. */
void rf_ask_told(struct rf_comm *comm, int rank, const int32_t *in_job, uint32_t count);
/* In this communicator, at most RF_TELL_RANKS. */
void rf_note_ask(struct rf_comm *comm, const int *ranks, int count);
/* Its members hear that this rank waits for these of the job. */
void rf_note_tell(struct rf_comm *comm, const int *in_job, int count);
/* For the control link: notes questions that are for this rank, without a lock. */
void rf_note_overhear(void *comm, const void *payload, size_t bytes);

/* ---- cycle.c --------------------------------------------------------------------------------- */

/* This rank has been quiet for long: asks whether those it waits for wait for it. */
void rf_cycle_probe(struct rf_comm *comm, const struct rf_watch *watch);
/* A probe of `rank` has come; found: with what it has found. Negative: the communicator in which
 * this rank waits has failed. */
RF_MUST_CHECK int rf_cycle_heard(struct rf_comm *comm, int rank, const struct rf_probe *heard,
                                 bool found);

/* ---- family.c: the communicators that a rank has of one job -----------------------------------
 */

struct rf_family {
    pthread_mutex_t lock;
    int holders;
    uint32_t number;       /* the highest that one of them has had; under lock */
    struct rf_comm *first; /* under lock */
    atomic_ullong thread;  /* the only one that has called any of them; 0: several have */
    atomic_ullong asks;    /* questions of other ranks so far */
};
/* Puts a communicator into its parent's family; NULL: into a new one. */
RF_MUST_CHECK int rf_family_join(struct rf_comm *comm, const struct rf_comm *parent);
/* It is complete: others of the family may look after it. */
void rf_family_add(struct rf_comm *comm);
/* It is about to go: nobody looks after it, or says anything through it, any more. */
void rf_family_remove(struct rf_comm *comm);
void rf_family_leave(struct rf_comm *comm); /* may never have joined */
/* A number that none of this rank's has had; then, what all its ranks have settled on. */
uint32_t rf_family_offer(const struct rf_comm *comm);
void rf_family_number(struct rf_comm *comm, uint32_t number);
/* Another one of this rank's that no call is in; NULL: there is none. Until the release no other
 * thread gets in. */
struct rf_comm *rf_family_find(const struct rf_comm *comm, uint32_t number);
void rf_family_release(const struct rf_comm *comm);
/* Another thread calls: from now on nobody looks after what others may be using. */
void rf_family_share(struct rf_family *family);
static inline void rf_family_enter(const struct rf_comm *comm)
{
    struct rf_family *family = comm->family;
    const uint64_t thread = atomic_load_explicit(&family->thread, memory_order_relaxed);
    if (thread != 0 && thread != rf_thread_number())
        rf_family_share(family);
}
/* This thread waits in a call for long: handles what the control links of the family's other
 * communicators have to say, as nobody else can. Negative: that in which it waits has failed. */
RF_MUST_CHECK int rf_family_serve(const struct rf_watch *watch);

/* ---- watch.c --------------------------------------------------------------------------------- */

void rf_watch_begin(struct rf_comm *comm, struct rf_watch *watch, const struct rf_contract *mine,
                    double timeout_s, const struct rf_exec *exec);
/* After every turn without an end. Yields, watches the control link and the clock. Negative: the
 * communicator has failed. */
RF_MUST_CHECK int rf_watch_turn(struct rf_comm *comm, struct rf_watch *watch, uint64_t activity);
/* For the worker, which watches over several: only the clock; and, once a turn, only the rest. */
RF_MUST_CHECK int rf_watch_look(struct rf_comm *comm, struct rf_watch *watch, uint64_t activity);
void rf_watch_rest(const struct rf_comm *comm, struct rf_watch *watch, uint64_t activity);

/* ---- cache.c --------------------------------------------------------------------------------- */

struct rf_cached {
    struct rf_call key; /* forest, counts and algorithm are copies of its own; no other pointers */
    struct rf_forest forest;
    void *memory; /* of the copies */
    int ranks;
    struct rf_sched *sched;
    struct rf_contract contract; /* without sequence and label */
    uint32_t hash;
    int holders; /* who need it beyond the next look-up */
};
int rf_cache_create(struct rf_cache **out);
void rf_cache_destroy(struct rf_cache *cache);
/* What a schedule of the call is built from; it points into the call. */
struct rf_coll_desc rf_call_desc(const struct rf_comm *comm, const struct rf_call *call);
/* Forgets all: what is built from now on may be another algorithm. */
void rf_cache_clear(struct rf_cache *cache);
/* The compiled schedule of a call: built on first use. Valid until the next look-up, or for as long
 * as it is held. RF_EAGAIN: all places where it could be are held. */
RF_MUST_CHECK int rf_cache_find(struct rf_comm *comm, const struct rf_call *call,
                                const struct rf_cached **out);
void rf_cache_hold(const struct rf_cached *cached);
void rf_cache_release(const struct rf_cached *cached);

/* ---- operations.c ---------------------------------------------------------------------------- */

/* Argument checks of a collective, all but the buffers; and those in host memory. */
RF_MUST_CHECK int rf_call_check(const struct rf_comm *comm, const struct rf_call *call);
RF_MUST_CHECK int rf_call_check_buffers(const struct rf_comm *comm, const struct rf_call *call);
/* Checks and runs a call on host memory, with the caller's options. */
RF_MUST_CHECK int rf_call_start(struct rf_comm *comm, struct rf_call *call,
                                const struct rf_coll_opts *opts);
/* The sum of all ranks' counts. */
RF_MUST_CHECK int rf_call_sum(const struct rf_comm *comm, enum rf_coll_op op, const size_t *counts,
                              size_t *sum);
/* All to all with counts: whether what each rank sends is what the others expect. Collective,
 * blocking. */
RF_MUST_CHECK int rf_call_exchange_counts(struct rf_comm *comm, const struct rf_call *call,
                                          const struct rf_coll_opts *opts);
/* Elements of `in` and `out`. */
void rf_call_counts(const struct rf_comm *comm, const struct rf_call *call, size_t *in,
                    size_t *out);
/* Where this rank's piece begins, in elements of the whole. */
size_t rf_call_own(const struct rf_comm *comm, const struct rf_call *call);
/* Whether in and out, which overlap, do so in the one way that the operation allows. */
bool rf_call_in_place(const struct rf_comm *comm, const struct rf_call *call, uint64_t in,
                      uint64_t out);
/* Puts a new collective on record. The result is valid as long as it is remembered. */
const struct rf_past *rf_call_begin(struct rf_comm *comm, const struct rf_cached *cached,
                                    const char *label);
struct rf_exec_args rf_call_args(const struct rf_comm *comm, const struct rf_call *call,
                                 const struct rf_past *past);
/* Runs a checked call to its end. */
RF_MUST_CHECK int rf_comm_run(struct rf_comm *comm, const struct rf_call *call);
void rf_comm_trace(const struct rf_comm *comm, enum rf_coll_op op, size_t bytes, uint64_t start_ns);

/* ---- convert.c: scaled and 16-bit reductions --------------------------------------------------
 */

static inline bool rf_call_converts(const struct rf_call *call)
{
    return call->scaled || call->wire != RF_F32;
}
RF_MUST_CHECK int rf_convert_check(const struct rf_call *call);
/* The call on the type of the wire, but for its buffers. */
struct rf_call rf_convert_plain(const struct rf_call *call);
/* Converts what goes in, and says where to: one call at a time. Then, when that call has ended,
 * what came out. */
RF_MUST_CHECK int rf_convert_begin(struct rf_comm *comm, const struct rf_call *call,
                                   struct rf_call *plain);
void rf_convert_end(struct rf_comm *comm, const struct rf_call *call, const struct rf_call *plain);

/* ---- group.c: calls that wait for the end of their group ------------------------------------- */

RF_MUST_CHECK int rf_group_add_halves(struct rf_comm *comm, const struct rf_half *halves,
                                      size_t count, double timeout_s);
/* With a request of its own. */
RF_MUST_CHECK int rf_group_add_task(struct rf_comm *comm, const struct rf_task *job,
                                    struct rf_request **request);
/* request may be NULL. */
RF_MUST_CHECK int rf_group_add_call(struct rf_comm *comm, const struct rf_call *call,
                                    struct rf_request **request);
/* For what cannot be in one. */
RF_MUST_CHECK int rf_group_refuse(const struct rf_comm *comm, const char *what);
void rf_group_destroy(struct rf_group *group);

/* ---- point_to_point.c: the engine; send_recv.c: the calls ------------------------------------ */

int rf_p2p_create(struct rf_comm *comm, struct rf_p2p **out);
void rf_p2p_destroy(struct rf_p2p *p2p); /* after the transport */
/* Handles one completion if it belongs to point to point: 1; 0 = not ours; negative = failed. */
int rf_p2p_completion(struct rf_p2p *p2p, const struct rf_completion *completion);
/* Posts again what found no room before. */
int rf_p2p_retry(struct rf_p2p *p2p);
bool rf_p2p_must_retry(const struct rf_p2p *p2p);
/* The peer said that it waits for this rank in `point`: has this rank done its part? */
bool rf_p2p_has_served(const struct rf_p2p *p2p, int peer, const struct rf_contract *point);
/* Certainly not, and it takes another call of this rank to do so. */
bool rf_p2p_owes(const struct rf_p2p *p2p, int peer, const struct rf_contract *point);
/* Envelopes are no payload: to be taken off the transport's counters. */
void rf_p2p_overhead(const struct rf_p2p *p2p, uint64_t *bytes, uint64_t *messages);

/* demux.c: a transport that hands point-to-point completions to p2p and all others to its caller.
 */
int rf_demux_create(struct rf_transport *wire, struct rf_p2p **p2p, struct rf_transport **out);
void rf_demux_destroy(struct rf_transport *demux); /* leaves the wire alone */

/* ---- async.c: the queue, for the owner; worker.c: who works it off ----------------------------
 */

/* Where a call reads or writes: in the host's memory, or in a buffer out of its reach. */
struct rf_extent {
    const void *space; /* NULL: the host's */
    uint64_t begin, end;
};

/* A call on tensors, or anything that is queued. Owned by its queue then; what it points to is
 * copied but for data. */
struct rf_task {
    struct rf_task *next;
    struct rf_call call;    /* of tensors: in and out are filled when it runs */
    struct rf_half *halves; /* of sends and receives, of whose call only the timeout is set; NULL */
    size_t half_count;
    bool on_tensors;
    struct rf_tensor in, out;
    struct rf_point after;
    struct rf_timeline *done; /* NULL: it has a request */
    uint64_t done_value;
    struct rf_request *request;
    bool blocking; /* its caller waits for it */
    char label[40], algorithm[32];
    struct rf_forest forest;
    void *copies; /* what forest and counts point to */

    /* The worker's: */
    enum { RF_TASK_QUEUED, RF_TASK_RECORDED, RF_TASK_RUNNING, RF_TASK_ENDED } state;
    struct rf_call plain; /* what is run */
    struct rf_extent reads, writes;
    const struct rf_cached *cached;
    struct rf_past past;
    struct rf_exec *exec;
    struct rf_watch watch;
    bool asked_begun;
    bool *closed; /* [size] who has not yet said that it is ready; NULL: it does not matter */
    uint64_t start_ns;
};
int rf_async_create(struct rf_comm *comm, struct rf_async **out);
void rf_async_destroy(struct rf_async *async); /* after rf_async_drain */
/* Takes a copy of the job; *done is when it has finished: of a collective, and all before it. */
RF_MUST_CHECK int rf_async_push(struct rf_comm *comm, const struct rf_task *job,
                                struct rf_device *device, struct rf_point *done);
/* The same, with a request. */
RF_MUST_CHECK int rf_async_push_request(struct rf_comm *comm, const struct rf_task *job,
                                        struct rf_request **request);
/* Takes the job itself, which has its request: that is ended in any case. */
void rf_async_push_task(struct rf_comm *comm, struct rf_task *job);
/* Blocks until it has ended: for a caller that comes while the worker has the communicator. After a
 * collective all that were started before it have ended, too. */
RF_MUST_CHECK int rf_async_run(struct rf_comm *comm, const struct rf_task *job);
/* A copy of its own of everything that a job points to but data. */
RF_MUST_CHECK int rf_task_copy(const struct rf_comm *comm, const struct rf_task *job,
                               struct rf_task **out);
void rf_task_free(struct rf_task *job);
/* What the worker has failed with; 0: it has not. Any time. */
int rf_async_status(const struct rf_async *async);
bool rf_async_busy(const struct rf_async *async);
/* Whether the worker's failure has become the error of a request that nobody has looked at yet;
 * asked once. */
bool rf_async_untold(struct rf_async *async);
/* Collectives that are queued and not yet on record. */
uint64_t rf_async_queued(const struct rf_async *async);
/* Adds the peers of what the worker waits in to `ranks`, oldest first, and returns how many there
 * are then, at most `room`. For the worker, or while nothing is outstanding. */
int rf_async_waits(const struct rf_async *async, int *ranks, int count, int room);
/* Waits until nothing is outstanding; timeout_s 0 = for ever. False: it still is. */
bool rf_async_drain(struct rf_async *async, double timeout_s);

/* ready.c: who may be sent messages of a collective that has overtaken others -------------------
 */

/* A peer asks to be told when this rank can take in all messages of a collective; or when it runs.
 */
RF_MUST_CHECK int rf_ready_asked(struct rf_comm *comm, int peer, uint64_t sequence, bool begun);
/* Tells those who may know by now. */
RF_MUST_CHECK int rf_ready_answer(struct rf_comm *comm);
/* Asks all whom the task sends to; until they answer they are closed. The oldest collective only
 * asks where a message that came too early would stop others, and whether the peers have begun. */
RF_MUST_CHECK int rf_ready_ask(struct rf_comm *comm, struct rf_task *task, bool oldest);
/* The peer's answer. */
void rf_ready_heard(struct rf_comm *comm, int peer, uint64_t sequence);
/* The worker's collective with this number; NULL: it is not on record, or has ended. */
struct rf_task *rf_worker_find(struct rf_async *async, uint64_t sequence);

/* request.c. Held twice: by the caller, until rf_request_free, and by the worker, until it ends it.
 */
RF_MUST_CHECK int rf_request_create(struct rf_request **out);
void rf_request_end(struct rf_request *request, int status); /* < 0: this thread's last error */
/* Until another rf_request_free. */
void rf_request_hold(struct rf_request *request);
/* Whether its caller has been given its error. */
bool rf_request_was_told(struct rf_request *request);

/* ---- tensor_calls.c, comm_staging.c ---------------------------------------------------------- */

/* Checks a call on tensors (op, count, redop, root, forest and the tensors are set), then runs or
 * queues it. */
RF_MUST_CHECK int rf_task_start(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);
/* The checks alone. job->call has its type and the options when it returns. */
RF_MUST_CHECK int rf_task_check(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);
/* Sets job->plain, with its buffers and what of it must be staged. */
void rf_task_place(const struct rf_comm *comm, struct rf_task *job);
/* What rf_staging_begin does, for job->plain. */
RF_MUST_CHECK int rf_task_stage(struct rf_comm *comm, struct rf_task *job);
/* Blocks until the point is reached. Negative: its device or the communicator has failed. */
RF_MUST_CHECK int rf_comm_wait_after(struct rf_comm *comm, struct rf_point after);
/* Waits for job->after and runs, by way of staging memory where the host cannot reach a tensor. */
RF_MUST_CHECK int rf_task_run(struct rf_comm *comm, struct rf_task *job);

/* Gives a call of which call->staged tensors are out of the host's reach its mover and buffers. The
 * staging memory is the communicator's, one for each device, for one call at a time; it is kept and
 * grows. */
RF_MUST_CHECK int rf_staging_begin(struct rf_comm *comm, struct rf_device *device,
                                   struct rf_call *call, struct rf_tensor in, struct rf_tensor out);
/* After the call has failed: waits for the copies that have been started. */
void rf_staging_abandon(struct rf_mover *mover);
/* The same, of all devices. */
void rf_staging_abandon_all(struct rf_comm *comm);

/* A piece of a message to or from memory out of the host's reach. Takes staging memory for it, on
 * the device of `remote`: store for a receive. At most RF_SLOTS of either kind are taken at once;
 * who has one gives it back without waiting for who has none. RF_EAGAIN: all are taken. After a
 * failure they go with the communicator. */
RF_MUST_CHECK int rf_slot_take(struct rf_comm *comm, const struct rf_buffer *remote, bool store,
                               size_t bytes, struct rf_slot **out);
void rf_slot_give(struct rf_slot *slot); /* NULL is allowed */
void *rf_slot_map(const struct rf_slot *slot);
/* Starts the copy, from or to byte `at` of `remote`. ended: 1 = it has, 0 = not yet. */
RF_MUST_CHECK int rf_slot_copy(struct rf_slot *slot, struct rf_buffer *remote, uint64_t at,
                               size_t bytes);
RF_MUST_CHECK int rf_slot_ended(const struct rf_slot *slot);
RF_MUST_CHECK int rf_slot_wait(const struct rf_slot *slot);
void rf_staging_destroy(struct rf_staging *staging);

#endif
