/* SPDX-License-Identifier: MIT
 *
 * Opens and closes windows: a control link of their own, an endpoint without messages, and the
 * places of all ranks' memory.
 */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../bootstrap/handshake.h"
#include "../place.h"
#include "window.h"

static const double JOIN_TIMEOUT_S = 60;

/* What a rank tells the others about its provider, and about its memory. */
struct limits {
    uint64_t most[RF_WINDOW_OPS];
};
struct place {
    int32_t status;
    uint32_t reserved;
    uint64_t key, base, bytes;
};

/* ---- this rank ------------------------------------------------------------------------------- */

/* A key that nobody guesses, if the provider takes one. */
static uint64_t make_key(const struct fi_domain_attr *domain)
{
    uint64_t key = 0;
    rf_random(&key, sizeof key);
    return domain->mr_key_size < sizeof key ? key & ((1ull << 8 * domain->mr_key_size) - 1) : key;
}

static int register_memory(struct rf_window *w, size_t bytes, struct place *place)
{
    struct rf_fabric *f = w->fabric;
    const size_t pages = bytes / 4096 * 4096 + 4096;
    if (bytes > SIZE_MAX / 2 || posix_memalign((void **)&w->memory, 4096, pages))
        return rf_fail(RF_ENOMEM, "%s: no memory for %zu bytes that other ranks access", f->name,
                       bytes);
    memset(w->memory, 0, pages);
    const int rc = fi_mr_reg(f->domain, w->memory, pages, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                             make_key(f->info->domain_attr), 0, &w->region, NULL);
    if (rc)
        return rf_fail(RF_ENET, "%s: registering %zu bytes failed: %s", f->name, pages,
                       rf_ofi()->strerror(-rc));
    place->key = fi_mr_key(w->region);
    place->base = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)w->memory : 0;
    place->bytes = bytes;
    return RF_OK;
}

static int start_thread(struct rf_window *w)
{
    sigset_t all, before;
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->wake_fd < 0)
        return rf_fail(RF_ENOMEM, "the thread of a window cannot start: %s", strerror(errno));
    sigfillset(&all); /* signals are delivered to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&w->thread, NULL, rf_window_serve, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return rf_fail(RF_ENOMEM, "the thread of a window cannot start: %s", strerror(error));
    w->has_thread = true;
    return RF_OK;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Places come from other processes, and are checked before they are used. */
static int take_places(struct rf_window *w, const struct place *all, const char *why)
{
    const int size = w->control->size;
    for (int r = 0; r < size; r++)
        if (all[r].status < 0)
            return rf_place_fail(w->control, r, all[r].status, why);
    for (int r = 0; r < size; r++) {
        if (all[r].reserved || all[r].bytes > SIZE_MAX / 2 ||
            all[r].base > UINT64_MAX - all[r].bytes)
            return rf_fail_rank(RF_ECORRUPT, r, "rank %d sent a place of its memory that cannot be",
                                r);
        w->peers[r] = (struct rf_window_peer){all[r].key, all[r].base, all[r].bytes};
    }
    return RF_OK;
}

/* A rank that fails takes part to the end, and sends its reason. */
static int exchange_places(struct rf_window *w, size_t bytes, struct place *all)
{
    struct place mine = {0};
    int status = register_memory(w, bytes, &mine);
    if (status == RF_OK)
        status = start_thread(w);
    const struct rf_error error = *rf_last_error();
    mine.status = status;
    RETURN_IF_ERROR(
        w->control->ops->all_gather(w->control, &mine, sizeof mine, all, JOIN_TIMEOUT_S));
    const int taken = take_places(w, all, status < 0 ? error.message : "");
    return status < 0 ? rf_fail_error(&error) : taken;
}

int rf_window_expose(struct rf_window *w, size_t bytes)
{
    const size_t size = (size_t)w->control->size;
    struct place *all = rf_alloc(size * sizeof *all);
    const int status = all ? exchange_places(w, bytes, all)
                           : rf_fail(RF_ENOMEM, "no memory for the windows of %zu ranks", size);
    rf_free(all);
    if (status < 0) {
        const struct rf_error error = *rf_last_error();
        rf_window_abort(w, error.message);
        return rf_fail_error(&error);
    }
    return RF_OK;
}

static int exchange_limits(struct rf_window *w, struct limits *all)
{
    struct limits mine;
    for (int op = 0; op < RF_WINDOW_OPS; op++)
        mine.most[op] = rf_window_limit(w->fabric, (enum rf_window_op)op);
    RETURN_IF_ERROR(
        w->control->ops->all_gather(w->control, &mine, sizeof mine, all, JOIN_TIMEOUT_S));
    for (int op = 0; op < RF_WINDOW_OPS; op++) {
        w->most[op] = mine.most[op];
        for (int r = 0; r < w->control->size; r++)
            w->most[op] = all[r].most[op] < w->most[op] ? all[r].most[op] : w->most[op];
    }
    return RF_OK;
}

static int open_window(struct rf_window *w, const struct rf_opening *opening)
{
    struct rf_transport *transport = NULL;
    const size_t size = (size_t)w->control->size;
    RETURN_IF_ERROR(rf_fabric_create(w->control, opening, &transport));
    w->fabric = (struct rf_fabric *)transport;
    w->peers = rf_alloc(size * sizeof *w->peers);
    struct limits *all = rf_alloc(size * sizeof *all);
    const int status = all && w->peers
                           ? exchange_limits(w, all)
                           : rf_fail(RF_ENOMEM, "no memory for the windows of %zu ranks", size);
    rf_free(all);
    return status;
}

static int join(struct rf_control *parent, struct rf_control **out)
{
    int *members = rf_alloc((size_t)parent->size * sizeof *members);
    if (!members)
        return rf_fail(RF_ENOMEM, "no memory for a window of %d ranks", parent->size);
    for (int r = 0; r < parent->size; r++)
        members[r] = r;
    const int status = rf_split_join(parent, members, parent->size, JOIN_TIMEOUT_S, out);
    rf_free(members);
    return status;
}

int rf_window_open(struct rf_control *parent, const char *provider, double timeout_s,
                   struct rf_window **out)
{
    struct rf_choice choice;
    char why[160];
    rf_provider_resolve(provider, &choice);
    const struct rf_provider *row = choice.network;
    if (!row || !(row->traits & RF_PROVIDER_ONE_SIDED))
        return rf_fail(RF_ENOTSUP,
                       "the provider %s has no one-sided operations, and \"tcp;ofi_rxm\" for "
                       "example has them",
                       choice.name);
    struct rf_window *w = rf_alloc(sizeof *w);
    if (!w)
        return rf_fail(RF_ENOMEM, "no memory for a window");
    w->wake_fd = -1;
    w->timeout_s = timeout_s;
    w->timeout_ns = rf_seconds_to_ns(timeout_s);
    pthread_mutex_init(&w->lock, NULL);
    for (int k = 0; k < RF_WINDOW_DEPTH; k++) {
        w->slots[k].next = w->free;
        w->free = &w->slots[k];
    }
    const struct rf_opening opening = {.provider = row,
                                       .table = &rf_provider_table,
                                       .name = row->name ? row->name : choice.fabric,
                                       .fabric = choice.fabric,
                                       .named = true,
                                       .one_sided = true,
                                       .why = why,
                                       .why_bytes = sizeof why};
    int status = join(parent, &w->control);
    if (status == RF_OK)
        status = open_window(w, &opening);
    if (status < 0) {
        const struct rf_error error = *rf_last_error();
        w->failed = true; /* nobody is waited for */
        rf_window_close(w);
        return rf_fail_error(&error);
    }
    *out = w;
    return RF_OK;
}

void rf_window_abort(struct rf_window *w, const char *why)
{
    pthread_mutex_lock(&w->lock);
    w->failed = true;
    w->error.rank = w->control->rank;
    snprintf(w->error.message, sizeof w->error.message, "this rank has given up: %.300s", why);
    w->control->ops->abort(w->control, why);
    pthread_mutex_unlock(&w->lock);
}

int rf_window_barrier(struct rf_window *w)
{
    char mine = 0, *all = rf_alloc((size_t)w->control->size);
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for a barrier of %d ranks", w->control->size);
    const int status = w->control->ops->all_gather(w->control, &mine, 1, all, w->timeout_s);
    rf_free(all);
    return status;
}

static void stop_thread(struct rf_window *w)
{
    const uint64_t one = 1;
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        pthread_mutex_unlock(&w->lock);
        if (write(w->wake_fd, &one, sizeof one) != sizeof one)
            rf_log("transport", 1, "a window's thread could not be woken");
        pthread_join(w->thread, NULL);
    }
    if (w->wake_fd >= 0)
        close(w->wake_fd);
}

void rf_window_close(struct rf_window *w)
{
    if (!w)
        return;
    if (w->control)
        w->control->ops->leave(w->control, w->failed ? 0 : w->timeout_s);
    stop_thread(w);
    bool left = false;
    if (w->fabric) {
        w->fabric->transport.ops->cancel_all(&w->fabric->transport);
        left = w->fabric->left;
        if (w->region && !left)
            fi_close(&w->region->fid);
        rf_fabric_close(w->fabric);
    }
    pthread_mutex_destroy(&w->lock);
    if (!left) /* else others may still write to it */
        free(w->memory);
    rf_free(w->peers);
    rf_free(w);
}
