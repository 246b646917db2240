/* SPDX-License-Identifier: MIT
 *
 * The transport over libfabric: reliable datagram endpoints, tagged messages, the contract in the
 * remote completion data. fabric_select.c selects the provider, fabric_open.c exchanges addresses.
 * Calls are serialised by the caller (FI_THREAD_DOMAIN), and nothing moves unless it polls (manual
 * progress).
 */
#include <unistd.h>

#include "fabric.h"

#include "base/base.h"
#include "signals.h"

enum { READ_AT_ONCE = 16, QUEUE_ENTRIES = 4096, SEGMENT_BYTES = 256 * 1024 };

static struct rf_fabric *fabric_of(struct rf_transport *t)
{
    return (struct rf_fabric *)t;
}

static int fabric_error(struct rf_fabric *f, const char *what, ssize_t code)
{
    return rf_fail(RF_ENET, "%s: %s failed: %s", f->name, what, rf_ofi()->strerror((int)-code));
}

/* ---- memory registration --------------------------------------------------------------------- */

static int region_create(struct rf_fabric *f, void *base, size_t bytes, void *context,
                         struct rf_fabric_region **out)
{
    struct rf_fabric_region *region = rf_alloc(sizeof(*region));
    if (!region)
        return rf_fail(RF_ENOMEM, "%s: no memory to note a registration", f->name);
    ssize_t rc =
        fi_mr_reg(f->domain, base, bytes, f->one_sided ? FI_READ | FI_WRITE : FI_SEND | FI_RECV, 0,
                  f->next_key++, 0, &region->mr, NULL);
    if (rc) {
        rf_free(region);
        return fabric_error(f, "registering memory", rc);
    }
    region->base = base;
    region->bytes = bytes;
    region->context = context;
    region->next = f->regions;
    f->regions = region;
    *out = region;
    return 0;
}

static void region_destroy(struct rf_fabric *f, struct rf_fabric_region *region)
{
    struct rf_fabric_region **link = &f->regions;
    while (*link && *link != region)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = region->next;
    fi_close(&region->mr->fid);
    rf_free(region);
}

/* The descriptor for one message: of registered memory that covers it, otherwise of a registration
 * that lives as long as the message. */
static int find_descriptor(struct rf_fabric *f, const void *buffer, size_t bytes, void *context,
                           void **out)
{
    const char *start = buffer;
    *out = NULL;
    if (bytes == 0)
        return 0;
    for (struct rf_fabric_region *r = f->regions; r; r = r->next) {
        if (!r->context && start >= r->base && start + bytes <= r->base + r->bytes) {
            *out = fi_mr_desc(r->mr);
            return 0;
        }
    }
    struct rf_fabric_region *region = NULL;
    RETURN_IF_ERROR(region_create(f, (void *)(uintptr_t)buffer, bytes, context, &region));
    *out = fi_mr_desc(region->mr);
    return 0;
}

static void drop_message_region(struct rf_fabric *f, void *context)
{
    for (struct rf_fabric_region *r = f->regions; r; r = r->next) {
        if (r->context == context) {
            region_destroy(f, r);
            return;
        }
    }
}

int rf_fabric_describe(struct rf_fabric *f, const void *buffer, size_t bytes, void *context,
                       void **out)
{
    *out = NULL;
    return f->register_always ? find_descriptor(f, buffer, bytes, context, out) : 0;
}

void rf_fabric_release(struct rf_fabric *f, void *context)
{
    if (f->register_always)
        drop_message_region(f, context);
}

static int fabric_register(struct rf_transport *t, void *base, size_t bytes, void **handle)
{
    struct rf_fabric *f = fabric_of(t);
    *handle = NULL;
    if (!f->register_always || bytes == 0)
        return 0;
    struct rf_fabric_region *region = NULL;
    RETURN_IF_ERROR(region_create(f, base, bytes, NULL, &region));
    *handle = region;
    return 0;
}

static void fabric_deregister(struct rf_transport *t, void *handle)
{
    if (handle)
        region_destroy(fabric_of(t), handle);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int post_failed(struct rf_fabric *f, const char *what, int peer, void *context, ssize_t rc)
{
    if (f->register_always)
        drop_message_region(f, context);
    /* shm returns ENOMEM if its table of posted receives is full; polling helps in that case, too.
     */
    if (rc == -FI_EAGAIN || rc == -FI_ENOMEM)
        return RF_EAGAIN;
    return rf_fail_rank(RF_ENET, peer, "%s: %s rank %d failed: %s", f->name, what, peer,
                        rf_ofi()->strerror((int)-rc));
}

static int check_post(struct rf_fabric *f, int peer, size_t bytes)
{
    return rf_check_post(&f->transport, f->cancelled, peer, bytes, f->max_message);
}

static int fabric_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                            const void *buffer, size_t bytes, void *context)
{
    struct rf_fabric *f = fabric_of(t);
    void *desc = NULL;
    RETURN_IF_ERROR(check_post(f, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_send(&f->self, tag, contract, buffer, bytes, context);
    if (f->register_always)
        RETURN_IF_ERROR(find_descriptor(f, buffer, bytes, context, &desc));
    ssize_t rc = fi_tsenddata(f->ep, buffer, bytes, desc, contract, f->peers[peer], tag, context);
    if (rc)
        return post_failed(f, "sending to", peer, context, rc);
    rf_count_sent(t, bytes);
    return 0;
}

static int fabric_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                            size_t bytes, void *context)
{
    struct rf_fabric *f = fabric_of(t);
    void *desc = NULL;
    RETURN_IF_ERROR(check_post(f, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_recv(&f->self, tag, buffer, bytes, context);
    if (f->register_always)
        RETURN_IF_ERROR(find_descriptor(f, buffer, bytes, context, &desc));
    ssize_t rc = fi_trecv(f->ep, buffer, bytes, desc, f->peers[peer], tag, 0, context);
    return rc ? post_failed(f, "receiving from", peer, context, rc) : 0;
}

int rf_fabric_status(int fi_code)
{
    switch (fi_code) {
    case FI_ETRUNC:
    case FI_EMSGSIZE:
        return RF_EMISMATCH;
    case FI_ECANCELED: /* native TCP reports this for operations in flight to a peer that died */
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EHOSTUNREACH:
    case FI_ETIMEDOUT:
    case EPIPE:
        return RF_EPEER;
    default:
        return RF_ENET;
    }
}

/* Takes the error at the head of the queue. Returns the number of completions: 1, or 0 if the
 * provider does not identify the operation. */
static int poll_error(struct rf_fabric *f, struct rf_completion *out)
{
    struct fi_cq_err_entry entry = {0};
    ssize_t rc = fi_cq_readerr(f->cq, &entry, 0);
    if (rc == -FI_EAGAIN)
        return 0;
    if (rc < 0)
        return fabric_error(f, "reading an error", rc);
    int code = abs(entry.err); /* some providers report it negated */
    int status = rf_fabric_status(code);
    bool is_recv = (entry.flags & FI_RECV) != 0;
    const char *what = is_recv ? "a receive" : "a send";
    if (status == RF_EMISMATCH)
        rf_fail(status, "%s: a message is longer than its receive expects", f->name);
    else
        rf_fail(status, "%s: %s failed: %s", f->name, what, rf_ofi()->strerror(code));
    if (!entry.op_context) {
        rf_log("transport", 2, "%s: %s failed: %s", f->name, what, rf_ofi()->strerror(code));
        return 0;
    }
    *out = (struct rf_completion){.context = entry.op_context,
                                  .bytes = is_recv ? entry.len : 0,
                                  .contract = is_recv ? (uint32_t)entry.data : 0,
                                  .peer = -1,
                                  .status = status,
                                  .is_recv = is_recv};
    if (f->register_always)
        drop_message_region(f, entry.op_context);
    return 1;
}

static void fill(struct rf_completion *out, const struct fi_cq_tagged_entry *entry)
{
    bool is_recv = (entry->flags & FI_RECV) != 0;
    *out = (struct rf_completion){.context = entry->op_context,
                                  .bytes = is_recv ? entry->len : 0,
                                  .contract = is_recv ? (uint32_t)entry->data : 0,
                                  .peer = -1,
                                  .is_recv = is_recv};
}

static int fabric_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct rf_fabric *f = fabric_of(t);
    if (f->cancelled)
        return rf_fail(RF_EABORT, "%s: the transport has been cancelled", f->name);
    if (f->self.pending > 0) {
        const int found = rf_self_poll(&f->self, t->rank, out, max);
        if (found != 0)
            return found;
    }
    struct fi_cq_tagged_entry entries[READ_AT_ONCE];
    ssize_t count = fi_cq_read(f->cq, entries, (size_t)(max < READ_AT_ONCE ? max : READ_AT_ONCE));
    if (count == -FI_EAGAIN)
        return 0;
    if (count == -FI_EAVAIL)
        return poll_error(f, out);
    if (count < 0)
        return fabric_error(f, "reading completions", count);
    for (ssize_t i = 0; i < count; i++) {
        fill(&out[i], &entries[i]);
        if (f->register_always)
            drop_message_region(f, entries[i].op_context);
    }
    return (int)count;
}

/* Ranks lock each other's memory in libfabric's shm, and a rank that dies meanwhile leaves it
 * locked. The next call that takes the lock, even to close the endpoint, would spin forever.
 * Without calls shm accesses no buffer, because the receiver copies the data. So shm is not called
 * again, and its resources, some megabytes, remain until the process ends. */
static bool must_abandon(const struct rf_fabric *f)
{
    return f->transport.lost_peer && (f->traits & RF_PROVIDER_LOCKS_PEERS) != 0;
}

static void abandon(struct rf_fabric *f)
{
    if (!f->left)
        rf_log("transport", 1,
               "%s is left open as it is, because a rank was lost that may have locked it",
               f->name);
    f->left = true;
    f->ep = NULL;
}

/* No provider cancels every posted operation individually (fi_cancel works for receives only), but
 * none accesses a buffer after its endpoint is closed. */
static void fabric_cancel_all(struct rf_transport *t)
{
    struct rf_fabric *f = fabric_of(t);
    f->cancelled = true;
    rf_self_cancel(&f->self);
    if (must_abandon(f))
        abandon(f);
    if (f->ep)
        fi_close(&f->ep->fid);
    f->ep = NULL;
}

static void fabric_destroy(struct rf_transport *t)
{
    if (t)
        rf_fabric_close(fabric_of(t));
}

void rf_fabric_register_always(struct rf_transport *t)
{
    fabric_of(t)->register_always = true;
}

static const struct rf_transport_ops fabric_ops = {
    .post_send = fabric_post_send,
    .post_recv = fabric_post_recv,
    .poll = fabric_poll,
    .register_memory = fabric_register,
    .deregister_memory = fabric_deregister,
    .cancel_all = fabric_cancel_all,
    .destroy = fabric_destroy,
};

/* ---- opening and closing --------------------------------------------------------------------- */

/* libfabric's shm names an endpoint by process and number, and a killed process leaves its names
 * behind: a later process with the same number gets FI_EBUSY for the first name, and tries the
 * next. */
static ssize_t enable_endpoint(struct rf_fabric *f)
{
    ssize_t rc = -FI_EBUSY;
    for (int attempt = 0; attempt < 16 && rc == -FI_EBUSY; attempt++) {
        if (f->ep)
            fi_close(&f->ep->fid);
        f->ep = NULL;
        if ((rc = fi_endpoint(f->domain, f->info, &f->ep, NULL)) == 0 &&
            (rc = fi_ep_bind(f->ep, &f->av->fid, 0)) == 0 &&
            (rc = fi_ep_bind(f->ep, &f->cq->fid, FI_TRANSMIT | FI_RECV)) == 0)
            rc = fi_enable(f->ep);
    }
    return rc;
}

/* A window's thread sleeps until something arrives, if the provider can tell. */
static ssize_t open_queue(struct rf_fabric *f)
{
    struct fi_cq_attr cq = {
        .format = FI_CQ_FORMAT_TAGGED, .size = QUEUE_ENTRIES, .wait_obj = FI_WAIT_FD};
    if (f->one_sided && fi_cq_open(f->domain, &cq, &f->cq, NULL) == 0) {
        if (fi_control(&f->cq->fid, FI_GETWAIT, &f->wait_fd) == 0)
            return 0;
        f->wait_fd = -1;
        fi_close(&f->cq->fid);
        f->cq = NULL;
    }
    cq.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(f->domain, &cq, &f->cq, NULL);
}

static int open_endpoint(struct rf_fabric *f)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = (size_t)f->transport.size};
    ssize_t rc = rf_ofi()->fabric(f->info->fabric_attr, &f->fabric, NULL);
    if (rc)
        return fabric_error(f, "opening the fabric", rc);
    if ((rc = fi_domain(f->fabric, f->info, &f->domain, NULL)))
        return fabric_error(f, "opening the domain", rc);
    if ((rc = fi_av_open(f->domain, &av, &f->av, NULL)))
        return fabric_error(f, "opening the address table", rc);
    if ((rc = open_queue(f)))
        return fabric_error(f, "opening the completion queue", rc);
    const bool leaves_files = (f->traits & RF_PROVIDER_LEAVES_FILES) != 0;
    if (leaves_files)
        rf_leftovers_clear();
    if ((rc = enable_endpoint(f)))
        return fabric_error(f, "opening the endpoint", rc);
    char address[256] = "";
    size_t bytes = sizeof(address) - 1;
    if (leaves_files && fi_getname(&f->ep->fid, address, &bytes) == 0)
        f->mark = rf_leftovers_mark(address);
    return 0;
}

int rf_fabric_open(const struct rf_opening *opening, struct fi_info *info, int rank, int size,
                   struct rf_fabric **out)
{
    struct rf_fabric *f = rf_alloc(sizeof(*f));
    if (!f) {
        rf_ofi()->freeinfo(info);
        return rf_fail(RF_ENOMEM, "no memory for a transport");
    }
    f->info = info;
    f->mark = -1;
    f->wait_fd = -1;
    f->one_sided = opening->one_sided;
    f->traits = opening->provider->traits;
    snprintf(f->name, sizeof(f->name), "%s", opening->name);
    f->transport = (struct rf_transport){.ops = &fabric_ops,
                                         .name = f->name,
                                         .rank = rank,
                                         .size = size,
                                         .stalls = (f->traits & RF_PROVIDER_STALLS) != 0,
                                         .segment_bytes = SEGMENT_BYTES};
    f->max_message = info->ep_attr->max_msg_size;
    f->register_always = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    struct rf_signals kept;
    int rc = rf_self_transport(&f->self.transport);
    if (rc == 0 && !(f->peers = rf_alloc((size_t)size * sizeof(*f->peers))))
        rc = rf_fail(RF_ENOMEM, "%s: no memory for the addresses of %d ranks", f->name, size);
    if (rc == 0)
        rc = rf_signals_keep(&kept);
    if (rc == 0) {
        rc = open_endpoint(f);
        rf_signals_put_back(&kept, rf_ofi_address());
    }
    if (rc < 0) {
        rf_fabric_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

static void close_fid(void *object)
{
    if (object)
        fi_close((struct fid *)object); /* every libfabric object begins with its fid */
}

void rf_fabric_close(struct rf_fabric *f)
{
    if (!f)
        return;
    fabric_cancel_all(&f->transport);
    if (!f->left) {
        while (f->regions)
            region_destroy(f, f->regions);
        close_fid(f->cq);
        close_fid(f->av);
        close_fid(f->domain);
        close_fid(f->fabric);
    }
    if (f->mark >= 0)
        close(f->mark);
    rf_ofi()->freeinfo(f->info);
    rf_self_close(&f->self);
    rf_free(f->peers);
    rf_free(f);
}
