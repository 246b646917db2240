/* SPDX-License-Identifier: MIT
 *
 * Stores without servers across hosts; see across.h. The memory of a rank begins with a head: its
 * additions, and the note of each rank. Then come the parameters, in a form. A rank leaves the
 * store when all do, as its memory is a part of it.
 */
#include "across.h"

#include "comm/communicator.h"

/* ---- the division of parameters -------------------------------------------------------------- */

/* The rank of a parameter, its place in the rank's range, and how many follow there with it. */
static struct rf_store_part locate(const struct rf_store *store, int64_t i)
{
    const int64_t each = store->opts.count / store->ranks,
                  longer = store->opts.count % store->ranks;
    const int64_t of_longer = longer * (each + 1);
    const int64_t rank = i < of_longer ? i / (each + 1) : longer + (i - of_longer) / each;
    int64_t first, count;
    rf_store_divide(store->opts.count, store->ranks, (int)rank, &first, &count);
    return (struct rf_store_part){
        .rank = (int)rank, .first = i - first, .count = count - (i - first)};
}

static int for_all(struct rf_store *store, const struct rf_store_keys *keys, rf_store_do *act,
                   struct rf_store_job *job)
{
    struct rf_store_walk walk = {.keys = keys};
    struct rf_store_piece piece;
    struct rf_store_part parts[RF_STORE_PARTS];
    int count = 0;
    int64_t values = 0, at = 0;
    while (rf_store_next(&walk, &piece)) {
        while (piece.count > 0) {
            struct rf_store_part part = locate(store, piece.first);
            const int64_t room = RF_STORE_PART_VALUES - values;
            part.count = part.count < piece.count ? part.count : piece.count;
            part.count = part.count < room ? part.count : room;
            part.at = at;
            parts[count++] = part;
            at += part.count, values += part.count;
            piece.first += part.count, piece.count -= part.count;
            if (count < RF_STORE_PARTS && values < RF_STORE_PART_VALUES)
                continue;
            RETURN_IF_ERROR(act(store, parts, count, job));
            count = 0, values = 0;
        }
    }
    return count ? act(store, parts, count, job) : RF_OK;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* A note is written by its rank only; half of one that has come is none. */
static uint64_t note_word(int note)
{
    return (uint64_t)note << 32 | (uint32_t)~note;
}

static int note_of(uint64_t word)
{
    const int note = (int)(word >> 32);
    return note >= 0 && word == note_word(note) ? note : 0;
}

static uint64_t note_offset(int rank)
{
    return sizeof(uint64_t) * (uint64_t)(1 + rank);
}

static uint64_t head_bytes(int ranks)
{
    return (note_offset(ranks) + 63) / 64 * 64;
}

static void take_notes(struct rf_store *store)
{
    for (int r = 0; r < store->ranks; r++) {
        uint64_t word;
        rf_window_read(store->across->window, note_offset(r), &word, sizeof word);
        const int note = note_of(word);
        store->stats.note = note > store->stats.note ? note : store->stats.note;
    }
}

/* ---- failure --------------------------------------------------------------------------------- */

/* Each rank has a part of the store: the loss of one is the loss of all. */
static int done(struct rf_store *store, uint64_t start, int status)
{
    store->stats.wait_ns += rf_now_ns() - start;
    if (status != RF_EPEER && status != RF_ETIMEOUT && status != RF_EABORT)
        return status;
    const struct rf_error error = *rf_last_error();
    return rf_fail_rank(status, error.rank,
                        "a store across hosts has lost the parameters of a rank: %.380s; start "
                        "again",
                        error.message);
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool has_all(const struct rf_window *window, const struct rf_store_form *form)
{
    return rf_window_has(window, form->needs[0]) && rf_window_has(window, form->needs[1]);
}

static int choose(struct rf_store *store)
{
    struct rf_store_across *a = store->across;
    if (store->opts.rule == RF_STORE_RACY && !has_all(a->window, &rf_store_racing))
        return rf_fail(RF_ENOTSUP,
                       "a store of the rule \"racy\" across hosts needs atomic reads and writes of "
                       "8 bytes, which %s does not have; \"hogwild\" loses nothing there, too",
                       rf_window_provider(a->window));
    a->form = store->opts.rule == RF_STORE_RACY      ? &rf_store_racing
              : has_all(a->window, &rf_store_atomic) ? &rf_store_atomic
                                                     : &rf_store_versioned;
    snprintf(a->path, sizeof a->path, "%s over %s", a->form->path, rf_window_provider(a->window));
    return RF_OK;
}

static int expose(struct rf_store *store)
{
    struct rf_store_across *a = store->across;
    int64_t first, count;
    rf_store_divide(store->opts.count, store->ranks, store->rank, &first, &count);
    a->head = head_bytes(store->ranks);
    a->room = rf_alloc(a->form->room(store->ranks));
    const int status = a->room ? RF_OK : rf_fail(RF_ENOMEM, "out of memory for a store");
    if (status < 0)
        rf_window_abort(a->window, rf_last_error()->message);
    RETURN_IF_ERROR(status);
    return rf_window_expose(a->window, a->head + a->form->memory(store->ranks, count));
}

/* The ranks' memory is zeros. */
static int fill(struct rf_store *store)
{
    const struct rf_store_keys all = rf_store_range(0, store->opts.count);
    const struct rf_store_form *form = store->across->form;
    struct rf_store_job job = {.from = store->opts.initial};
    int status = form->open ? form->open(store) : RF_OK;
    if (status == RF_OK && store->rank == 0 && job.from)
        status = for_all(store, &all, form->fill, &job);
    if (status == RF_OK && form->seal)
        status = form->seal(store);
    if (status < 0) {
        const struct rf_error error = *rf_last_error();
        rf_window_abort(store->across->window, error.message);
        return rf_fail_error(&error);
    }
    return rf_window_barrier(store->across->window);
}

static int open_across(struct rf_store *store, struct rf_comm *comm)
{
    struct rf_store_across *a = rf_alloc(sizeof *a);
    store->across = a;
    RETURN_IF_ERROR(rf_store_agree(
        comm, a ? RF_OK : rf_fail(RF_ENOMEM, "out of memory for a store"), "has no memory"));
    const int status = rf_window_open(comm->links.control, comm->links.transport->name,
                                      store->opts.timeout_s, &a->window);
    if (status == RF_ENOTSUP) {
        const struct rf_error error = *rf_last_error();
        return rf_fail(
            RF_ENOTSUP,
            "a store without servers on several hosts: %.300s; name another provider, or "
            "use a store with servers, such as server:async",
            error.message);
    }
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(choose(store));
    RETURN_IF_ERROR(expose(store));
    RETURN_IF_ERROR(fill(store));
    rf_log("store", 2, "each of %d ranks has a part of the parameters: %s", store->ranks, a->path);
    return RF_OK;
}

static void close_across(struct rf_store *store)
{
    struct rf_store_across *a = store->across;
    if (!a)
        return;
    rf_window_close(a->window);
    rf_free(a->room);
    rf_free(a->mine);
    rf_free(a->first_block);
    rf_free(a);
    store->across = NULL;
}

/* ---- push and pull --------------------------------------------------------------------------- */

static int push(struct rf_store *store, const struct rf_store_keys *keys, const float *gradient,
                const struct rf_store_update *update)
{
    const uint64_t start = rf_now_ns();
    struct rf_store_job job = {.from = gradient,
                               .lr = rf_option(update->lr, 1),
                               .factor = (float)(1 / (update->share > 0 ? update->share : 1))};
    const int status = for_all(store, keys, store->across->form->push, &job);
    RETURN_IF_ERROR(done(store, start, status));
    store->stats.additions += (uint64_t)rf_store_values(keys);
    rf_window_write(store->across->window, 0, &store->stats.additions,
                    sizeof store->stats.additions);
    return RF_OK;
}

static int pull(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                float *values)
{
    const uint64_t start = rf_now_ns();
    struct rf_store_job job = {.to = values};
    if (least != 0)
        return rf_fail(RF_EINVAL, "pull: a store without servers has no versions: least is 0");
    RETURN_IF_ERROR(done(store, start, for_all(store, keys, store->across->form->pull, &job)));
    take_notes(store);
    return RF_OK;
}

static int finish(struct rf_store *store, int note)
{
    struct rf_window *window = store->across->window;
    const uint64_t start = rf_now_ns();
    uint64_t word = note_word(note);
    int status = RF_OK;
    for (int r = 0; r < store->ranks && status == RF_OK; r++)
        status =
            rf_window_start(window, RF_WINDOW_PUT, r, note_offset(store->rank), &word, sizeof word);
    return done(store, start, status == RF_OK ? rf_window_flush(window) : status);
}

static int add_up(struct rf_store *store, uint64_t *additions, struct rf_store_job *job)
{
    struct rf_window *window = store->across->window;
    const struct rf_store_keys all = rf_store_range(0, store->opts.count);
    const struct rf_store_form *form = store->across->form;
    for (int r = 0; r < store->ranks; r++) {
        uint64_t word = 0;
        RETURN_IF_ERROR(rf_window_start(window, RF_WINDOW_GET, r, 0, &word, sizeof word));
        RETURN_IF_ERROR(rf_window_flush(window));
        *additions += word;
    }
    return form->count ? for_all(store, &all, form->count, job) : RF_OK;
}

static int get_stats(struct rf_store *store, struct rf_store_stats *out)
{
    struct rf_store_stats stats = store->stats;
    struct rf_store_job job = {0};
    stats.additions = 0;
    RETURN_IF_ERROR(done(store, rf_now_ns(), add_up(store, &stats.additions, &job)));
    if (store->across->form->count && stats.additions > job.kept)
        stats.lost = stats.additions - job.kept;
    *out = stats;
    return RF_OK;
}

static void give_up(struct rf_store *store, const char *why)
{
    rf_window_abort(store->across->window, why);
}

static const char *path(const struct rf_store *store)
{
    return store->across->path;
}

int rf_store_usage_across(const struct rf_store_opts *opts, int ranks, int rank, bool atomic,
                          struct rf_store_usage *out)
{
    struct rf_store_job job = {0};
    int64_t first, count;
    if (!opts || !out || ranks < 1 || rank < 0 || rank >= ranks)
        return rf_fail(RF_EINVAL, "the usage of a store needs options, a rank, and room");
    RETURN_IF_ERROR(rf_store_check(opts, ranks));
    if (rf_store_has_servers(opts->rule) || (opts->rule == RF_STORE_RACY && !atomic))
        return rf_fail(RF_EINVAL, "the rule \"%s\" has %s", rf_store_rule_name(opts->rule),
                       opts->rule == RF_STORE_RACY ? "atomic operations" : "servers");
    const struct rf_store_form *form = opts->rule == RF_STORE_RACY ? &rf_store_racing
                                       : atomic                    ? &rf_store_atomic
                                                                   : &rf_store_versioned;
    struct rf_store store = {.opts = *opts, .rank = rank, .ranks = ranks};
    const struct rf_store_keys all = rf_store_range(0, opts->count);
    RETURN_IF_ERROR(for_all(&store, &all, form->plan, &job));
    rf_store_divide(opts->count, ranks, rank, &first, &count);
    *out = (struct rf_store_usage){.value_bytes = 4 * (uint64_t)opts->count,
                                   .sent_bytes = job.written,
                                   .received_bytes = job.read,
                                   .memory_bytes = head_bytes(ranks) + form->memory(ranks, count),
                                   .messages = 2};
    return RF_OK;
}

const struct rf_store_kind rf_store_across_hosts = {.open = open_across,
                                                    .close = close_across,
                                                    .push = push,
                                                    .pull = pull,
                                                    .finish = finish,
                                                    .get_stats = get_stats,
                                                    .give_up = give_up,
                                                    .path = path};
