/* SPDX-License-Identifier: MIT
 *
 * The operations of windows. The caller drives the provider while it waits; at all other times the
 * window's thread does, because providers in software do what others ask of this rank's memory only
 * when it polls. No provider ends every operation on the memory of a rank that has died: a control
 * link tells of deaths.
 */
#include "window.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { READ_AT_ONCE = 16, SLEEP_MS = 100, MANY = 32, IDLE = 2000 };
static const uint64_t SPIN_NS = 20000, LOOK_NS = 1000000, NAP_NS = 40000, AT_ONCE_NS = 5000,
                      REASON_NS = 500000000;
static const size_t PIECE_BYTES = 1 << 20; /* a longer one would show no progress */

enum kind { WRITES, READS, CHANGES, FETCHES };

static const struct {
    const char *name;
    enum kind kind;
    size_t bytes; /* of an element */
    enum fi_datatype type;
    enum fi_op op;
} rows[RF_WINDOW_OPS] = {
    [RF_WINDOW_PUT] = {"writing to", WRITES, 1, FI_UINT8, FI_ATOMIC_WRITE},
    [RF_WINDOW_GET] = {"reading from", READS, 1, FI_UINT8, FI_ATOMIC_READ},
    [RF_WINDOW_ADD_F32] = {"adding to", CHANGES, 4, FI_FLOAT, FI_SUM},
    [RF_WINDOW_LOAD_F32] = {"reading from", FETCHES, 4, FI_FLOAT, FI_ATOMIC_READ},
    [RF_WINDOW_LOAD_U64] = {"reading from", FETCHES, 8, FI_UINT64, FI_ATOMIC_READ},
    [RF_WINDOW_STORE_U64] = {"writing to", CHANGES, 8, FI_UINT64, FI_ATOMIC_WRITE},
};

size_t rf_window_limit(const struct rf_fabric *f, enum rf_window_op op)
{
    size_t most = 0;
    const enum kind kind = rows[op].kind;
    if (kind == WRITES || kind == READS)
        return f->max_message < PIECE_BYTES ? f->max_message : PIECE_BYTES;
    if (!(f->info->caps & FI_ATOMIC))
        return 0;
    const int rc = kind == CHANGES ? fi_atomicvalid(f->ep, rows[op].type, rows[op].op, &most)
                                   : fi_fetch_atomicvalid(f->ep, rows[op].type, rows[op].op, &most);
    return rc ? 0 : most;
}

bool rf_window_has(const struct rf_window *w, enum rf_window_op op)
{
    return w->most[op] > 0;
}

const char *rf_window_provider(const struct rf_window *w)
{
    return w->fabric->name;
}

/* ---- failure --------------------------------------------------------------------------------- */

static int look_after_ranks(struct rf_window *w)
{
    struct rf_event event;
    while (w->control->ops->next_event(w->control, &event) == 1) {
        if (event.kind == RF_EVENT_DEAD)
            return rf_fail_rank(RF_EPEER, event.rank,
                                "%s: rank %d, on whose memory others work, has died: %.200s",
                                w->fabric->name, event.rank, event.text);
        if (event.kind == RF_EVENT_ABORT)
            return rf_fail_rank(RF_EABORT, event.rank, "%s: rank %d has given up: %.200s",
                                w->fabric->name, event.rank, event.text);
    }
    return RF_OK;
}

/* Keeps the last error, and tells the others. After this no operation accesses memory here. The
 * provider may have noticed a death before the control link, which knows the reason. */
static int fail(struct rf_window *w)
{
    struct rf_error error = *rf_last_error();
    const uint64_t until_ns = rf_now_ns() + REASON_NS;
    const bool unclear = error.status == RF_EPEER || error.status == RF_ENET;
    int told = RF_OK;
    while (unclear && (told = look_after_ranks(w)) == RF_OK && rf_now_ns() < until_ns)
        rf_sleep_ns(LOOK_NS);
    if (told < 0)
        error = *rf_last_error();
    w->failed = true;
    w->error = error;
    w->fabric->transport.lost_peer = true;
    w->fabric->transport.ops->cancel_all(&w->fabric->transport);
    w->control->ops->abort(w->control, error.message);
    return rf_fail_error(&error);
}

static int silent_rank(const struct rf_window *w)
{
    bool idle[RF_WINDOW_DEPTH] = {false};
    for (const struct rf_window_slot *s = w->free; s; s = s->next)
        idle[s - w->slots] = true;
    for (int k = 0; k < RF_WINDOW_DEPTH; k++)
        if (!idle[k])
            return w->slots[k].rank;
    return 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

static void end(struct rf_window *w, struct rf_window_slot *slot)
{
    rf_fabric_release(w->fabric, slot);
    slot->next = w->free;
    w->free = slot;
    w->under_way--;
}

/* An error of another rank's operation on this memory has no context, and is that rank's. */
static int take_error(struct rf_window *w)
{
    struct rf_fabric *f = w->fabric;
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(f->cq, &entry, 0) != 1)
        return 0;
    struct rf_window_slot *slot = entry.op_context;
    const int code = abs(entry.err);
    if (!slot) {
        rf_log("transport", 2, "%s: an operation of another rank failed: %s", f->name,
               rf_ofi()->strerror(code));
        return 0;
    }
    if (w->status == RF_OK)
        w->status = rf_fail_rank(rf_fabric_status(code), slot->rank,
                                 "%s: an operation on the memory of rank %d failed: %s", f->name,
                                 slot->rank, rf_ofi()->strerror(code));
    if (!w->error.message[0])
        w->error = *rf_last_error();
    end(w, slot);
    return 1;
}

int rf_window_drain(struct rf_window *w)
{
    struct fi_cq_tagged_entry entries[READ_AT_ONCE];
    int ended = 0;
    for (;;) {
        const ssize_t count = fi_cq_read(w->fabric->cq, entries, READ_AT_ONCE);
        for (ssize_t i = 0; i < count; i++)
            if (entries[i].op_context)
                end(w, entries[i].op_context);
        if (count > 0)
            ended += (int)count;
        else if (count == -FI_EAVAIL)
            ended += take_error(w);
        if (count < READ_AT_ONCE)
            return ended;
    }
}

static bool may_sleep(const struct rf_window *w)
{
    struct fid *queue = &w->fabric->cq->fid;
    return w->fabric->wait_fd >= 0 && fi_trywait(w->fabric->fabric, &queue, 1) == FI_SUCCESS;
}

/* Sleeps until one of the descriptors is readable. Native TCP (1.17) leaves the queue's readable
 * for good once something has ended: after many sleeps that end at once, each is a nap at least. */
static void sleep_on(struct pollfd *events, int count, int timeout_ms, int *at_once)
{
    if (*at_once >= MANY)
        rf_sleep_ns(NAP_NS);
    const uint64_t start_ns = rf_now_ns();
    (void)poll(events, (nfds_t)count, timeout_ms);
    *at_once = rf_now_ns() - start_ns < AT_ONCE_NS ? *at_once + (*at_once < IDLE) : 0;
}

/* Something may arrive without waking the sleeper, so no sleep is long. */
static void rest(struct rf_window *w)
{
    struct pollfd event = {.fd = w->fabric->wait_fd, .events = POLLIN};
    if (may_sleep(w))
        sleep_on(&event, 1, 1, &w->at_once);
    else if (w->fabric->wait_fd < 0)
        rf_sleep_ns(NAP_NS);
}

/* One look at the queue, and at the ranks now and then. */
static int wait_some(struct rf_window *w)
{
    const int ended = rf_window_drain(w);
    const uint64_t now = rf_now_ns();
    if (w->status < 0)
        return rf_fail_error(&w->error);
    if (ended > 0)
        w->quiet_ns = now;
    if (now - w->looked_ns > LOOK_NS) {
        w->looked_ns = now;
        RETURN_IF_ERROR(look_after_ranks(w));
        if (now - w->quiet_ns > w->timeout_ns)
            return rf_fail_rank(RF_ETIMEOUT, silent_rank(w),
                                "%s: rank %d, on whose memory this one works, has been silent for "
                                "%g s",
                                w->fabric->name, silent_rank(w), w->timeout_s);
    }
    if (ended == 0 && now - w->quiet_ns > SPIN_NS)
        rest(w);
    return RF_OK;
}

/* A blocking read resets such a descriptor. It may keep the caller waiting for a millisecond, so
 * this is for a thread that has been idle for long. */
static void reset_descriptor(struct rf_window *w)
{
    struct fi_cq_tagged_entry entry;
    if (fi_cq_sread(w->fabric->cq, &entry, 1, NULL, 1) == 1 && entry.op_context)
        end(w, entry.op_context);
}

void *rf_window_serve(void *window)
{
    struct rf_window *w = window;
    struct pollfd events[2] = {{.fd = w->wake_fd, .events = POLLIN},
                               {.fd = w->fabric->wait_fd, .events = POLLIN}};
    const int count = w->fabric->wait_fd >= 0 ? 2 : 1;
    int at_once = 0;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        const bool ends = w->stopping || w->failed;
        if (!ends)
            rf_window_drain(w);
        if (!ends && at_once == IDLE) {
            reset_descriptor(w);
            at_once = 0;
        }
        const bool sleeps = !ends && count == 2 && may_sleep(w);
        pthread_mutex_unlock(&w->lock);
        if (ends)
            return NULL;
        if (sleeps)
            sleep_on(events, 2, SLEEP_MS, &at_once);
        else if (count == 1)
            rf_sleep_ns(NAP_NS);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

static int most_segments(const struct rf_fabric *f)
{
    const struct fi_tx_attr *tx = f->info->tx_attr;
    const size_t most = tx->rma_iov_limit < tx->iov_limit ? tx->rma_iov_limit : tx->iov_limit;
    if (f->register_always || most < 1) /* a registration is of one range */
        return 1;
    return most < RF_WINDOW_SEGMENTS ? (int)most : RF_WINDOW_SEGMENTS;
}

static ssize_t post_bytes(struct rf_window *w, struct rf_window_slot *slot, void **desc)
{
    const struct rf_window_gather *g = &w->gather;
    struct iovec here[RF_WINDOW_SEGMENTS];
    struct fi_rma_iov there[RF_WINDOW_SEGMENTS];
    const struct rf_window_peer *peer = &w->peers[g->rank];
    for (int k = 0; k < g->segments; k++) {
        here[k] = (struct iovec){g->segment[k].local, g->segment[k].count};
        there[k] = (struct fi_rma_iov){.addr = peer->base + g->segment[k].offset,
                                       .len = g->segment[k].count,
                                       .key = peer->key};
    }
    const struct fi_msg_rma message = {.msg_iov = here,
                                       .desc = desc,
                                       .iov_count = (size_t)g->segments,
                                       .addr = w->fabric->peers[g->rank],
                                       .rma_iov = there,
                                       .rma_iov_count = (size_t)g->segments,
                                       .context = slot};
    /* By a flag of each operation: native TCP (1.17) ignores the endpoint's default. */
    return rows[g->op].kind == WRITES ? fi_writemsg(w->fabric->ep, &message, FI_DELIVERY_COMPLETE)
                                      : fi_readmsg(w->fabric->ep, &message, FI_COMPLETION);
}

static ssize_t post_values(struct rf_window *w, struct rf_window_slot *slot, void **desc)
{
    const struct rf_window_gather *g = &w->gather;
    struct fi_ioc here[RF_WINDOW_SEGMENTS];
    struct fi_rma_ioc there[RF_WINDOW_SEGMENTS];
    const struct rf_window_peer *peer = &w->peers[g->rank];
    for (int k = 0; k < g->segments; k++) {
        here[k] = (struct fi_ioc){g->segment[k].local, g->segment[k].count};
        there[k] = (struct fi_rma_ioc){.addr = peer->base + g->segment[k].offset,
                                       .count = g->segment[k].count,
                                       .key = peer->key};
    }
    const struct fi_msg_atomic message = {.msg_iov = here,
                                          .desc = desc,
                                          .iov_count = (size_t)g->segments,
                                          .addr = w->fabric->peers[g->rank],
                                          .rma_iov = there,
                                          .rma_iov_count = (size_t)g->segments,
                                          .datatype = rows[g->op].type,
                                          .op = rows[g->op].op,
                                          .context = slot};
    return rows[g->op].kind == CHANGES ? fi_atomicmsg(w->fabric->ep, &message, FI_DELIVERY_COMPLETE)
                                       : fi_fetch_atomicmsg(w->fabric->ep, &message, here, desc,
                                                            (size_t)g->segments, FI_COMPLETION);
}

static ssize_t post(struct rf_window *w, struct rf_window_slot *slot, void **desc)
{
    const enum kind kind = rows[w->gather.op].kind;
    return kind == WRITES || kind == READS ? post_bytes(w, slot, desc) : post_values(w, slot, desc);
}

/* Posts what has been gathered. */
static int post_gathered(struct rf_window *w)
{
    struct rf_fabric *f = w->fabric;
    struct rf_window_gather *g = &w->gather;
    void *desc[RF_WINDOW_SEGMENTS] = {NULL};
    if (g->segments == 0)
        return RF_OK;
    if (w->under_way == 0)
        w->quiet_ns = rf_now_ns();
    while (!w->free)
        RETURN_IF_ERROR(wait_some(w));
    struct rf_window_slot *slot = w->free;
    RETURN_IF_ERROR(rf_fabric_describe(f, g->segment[0].local,
                                       g->segment[0].count * rows[g->op].bytes, slot, desc));
    w->free = slot->next;
    w->under_way++;
    slot->rank = g->rank;
    ssize_t rc;
    while ((rc = post(w, slot, desc)) == -FI_EAGAIN)
        RETURN_IF_ERROR(wait_some(w));
    g->segments = 0;
    if (rc == 0)
        return RF_OK;
    end(w, slot);
    return rf_fail_rank(rf_fabric_status((int)-rc), g->rank,
                        "%s: %s the memory of rank %d failed: %s", f->name, rows[g->op].name,
                        g->rank, rf_ofi()->strerror((int)-rc));
}

/* count: no more than one operation may have. */
static int gather(struct rf_window *w, enum rf_window_op op, int rank, uint64_t offset, void *local,
                  size_t count)
{
    struct rf_window_gather *g = &w->gather;
    if (g->segments == most_segments(w->fabric) ||
        (g->segments > 0 && (g->op != op || g->rank != rank || g->elements + count > w->most[op])))
        RETURN_IF_ERROR(post_gathered(w));
    if (g->segments == 0)
        *g = (struct rf_window_gather){.op = op, .rank = rank};
    g->elements += count;
    g->segment[g->segments].offset = offset;
    g->segment[g->segments].local = local;
    g->segment[g->segments++].count = count;
    return RF_OK;
}

static int check(const struct rf_window *w, enum rf_window_op op, int rank, uint64_t offset,
                 size_t count)
{
    if ((unsigned)op >= RF_WINDOW_OPS || w->most[op] == 0)
        return rf_fail(RF_ENOTSUP, "%s has no such operation on the memory of other ranks",
                       w->fabric->name);
    const uint64_t each = rows[op].bytes;
    if (rank < 0 || rank >= w->control->size || offset % each || offset > w->peers[rank].bytes ||
        count > (w->peers[rank].bytes - offset) / each)
        return rf_fail(RF_EINVAL,
                       "%s: %zu elements of %llu bytes from byte %llu on are not in the memory of "
                       "rank %d",
                       w->fabric->name, count, (unsigned long long)each, (unsigned long long)offset,
                       rank);
    return RF_OK;
}

/* Under the lock. */
static int refuse_failed(const struct rf_window *w)
{
    return w->failed ? rf_fail_rank(RF_EABORT, w->error.rank, "%.400s", w->error.message) : RF_OK;
}

static int start_all(struct rf_window *w, enum rf_window_op op, int rank, uint64_t offset,
                     unsigned char *local, size_t count)
{
    int status = RF_OK;
    while (status == RF_OK && count > 0) {
        const size_t some = count < w->most[op] ? count : w->most[op];
        const size_t bytes = some * rows[op].bytes;
        status = gather(w, op, rank, offset, local, some);
        offset += bytes, local += bytes, count -= some;
    }
    return status;
}

/* An operation of this rank on its own memory, which nobody else works on under the lock. */
static void do_here(struct rf_window *w, enum rf_window_op op, uint64_t offset, void *local,
                    size_t count)
{
    unsigned char *here = w->memory + offset;
    const enum kind kind = rows[op].kind;
    if (op == RF_WINDOW_ADD_F32)
        for (size_t i = 0; i < count; i++)
            ((float *)here)[i] += ((const float *)local)[i];
    else if (kind == READS || kind == FETCHES)
        memcpy(local, here, count * rows[op].bytes);
    else
        memcpy(here, local, count * rows[op].bytes);
}

int rf_window_start(struct rf_window *w, enum rf_window_op op, int rank, uint64_t offset,
                    void *local, size_t count)
{
    RETURN_IF_ERROR(check(w, op, rank, offset, count));
    pthread_mutex_lock(&w->lock);
    int status = refuse_failed(w);
    if (status == RF_OK && rank == w->control->rank &&
        (w->fabric->traits & RF_PROVIDER_OWNER_WORKS) != 0) {
        do_here(w, op, offset, local, count);
    } else if (status == RF_OK) {
        status = start_all(w, op, rank, offset, local, count);
        if (status < 0)
            status = fail(w);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

int rf_window_flush(struct rf_window *w)
{
    pthread_mutex_lock(&w->lock);
    int status = refuse_failed(w);
    if (status == RF_OK) {
        status = look_after_ranks(w);
        if (status == RF_OK)
            status = post_gathered(w);
        w->quiet_ns = rf_now_ns();
        while (status == RF_OK && (w->under_way > 0 || w->status < 0))
            status = wait_some(w);
        if (status < 0)
            status = fail(w);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

void rf_window_read(struct rf_window *w, uint64_t offset, void *out, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    memcpy(out, w->memory + offset, bytes);
    pthread_mutex_unlock(&w->lock);
}

void rf_window_write(struct rf_window *w, uint64_t offset, const void *from, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    memcpy(w->memory + offset, from, bytes);
    pthread_mutex_unlock(&w->lock);
}
