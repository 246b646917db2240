/* SPDX-License-Identifier: MIT
 *
 * A server at work: a thread for each worker receives its requests, and answers them.
 */
#include <ringforge/ringforge.h>

#include "links.h"
#include "shard.h"

struct visit {
    struct rf_store *store;
    struct rf_store_shards *shard;
    int worker;
    int64_t number; /* of the last request */
    struct rf_store_head head;
    uint64_t *pieces, most_pieces;
    float *values;
    uint64_t most_values;
    bool leaves;
    pthread_t thread;
};

/* ---- room ------------------------------------------------------------------------------------ */

/* For a whole shard if it is for a gradient of one, which may become the worker's stage. */
static int make_room(struct visit *v)
{
    const uint64_t whole = (uint64_t)v->shard->width;
    if (v->head.pieces > v->most_pieces) {
        rf_free(v->pieces);
        v->most_pieces = v->head.pieces;
        v->pieces = rf_alloc(v->most_pieces * sizeof *v->pieces);
    }
    if (v->head.values > v->most_values) {
        rf_free(v->values);
        v->most_values = v->head.values > whole / 4 ? whole : v->head.values;
        v->values = rf_alloc(v->most_values * sizeof *v->values);
    }
    if ((v->most_pieces && !v->pieces) || (v->most_values && !v->values)) {
        v->most_pieces = v->most_values = 0;
        return rf_fail(RF_ENOMEM,
                       "server %d of a store: out of memory for a request of %llu values",
                       v->shard->server, (unsigned long long)v->head.values);
    }
    return RF_OK;
}

/* most: of the values that pieces may be about. */
static int receive_pieces(struct visit *v, int64_t most)
{
    RETURN_IF_ERROR(make_room(v));
    RETURN_IF_ERROR(rf_store_receive(v->store, v->worker, v->pieces, 8 * v->head.pieces));
    return rf_store_pieces_check(v->pieces, v->head.pieces, v->head.values, most);
}

/* Those of parameters in one message, and each piece of terms in one of its own. */
static int receive_gradient(struct visit *v)
{
    int64_t values = 0;
    uint64_t k = 0;
    for (; k < v->head.pieces && rf_store_first(v->pieces[k]) < v->shard->count; k++)
        values += rf_store_length(v->pieces[k]);
    RETURN_IF_ERROR(rf_store_receive(v->store, v->worker, v->values, 4 * (uint64_t)values));
    for (; k < v->head.pieces; values += rf_store_length(v->pieces[k++]))
        RETURN_IF_ERROR(rf_store_receive(v->store, v->worker, v->values + values,
                                         4 * (uint64_t)rf_store_length(v->pieces[k])));
    return rf_store_check_finite("push", v->values, values);
}

static struct rf_store_request request_of(struct visit *v)
{
    return (struct rf_store_request){.worker = v->worker,
                                     .pieces = v->pieces,
                                     .number = v->head.pieces,
                                     .values = &v->values,
                                     .lr = v->head.lr,
                                     .share = v->head.share,
                                     .least = v->head.version,
                                     .start_ns = rf_now_ns()};
}

/* ---- answers --------------------------------------------------------------------------------- */

static int answer(struct visit *v, const struct rf_store_head *fields, const void *data,
                  uint64_t bytes)
{
    struct rf_store_head head = *fields;
    head.magic = RF_STORE_MAGIC;
    head.number = v->number;
    rf_store_shard_count(v->shard, 0, 0, sizeof head);
    RETURN_IF_ERROR(rf_store_send(v->store, v->worker, &head, sizeof head));
    return rf_store_send(v->store, v->worker, data, bytes);
}

/* The request fails, and the worker may continue. */
static int refuse(struct visit *v, int status)
{
    char text[RF_STORE_TEXT] = "";
    snprintf(text, sizeof text, "%.*s", RF_STORE_TEXT - 1, rf_last_error()->message);
    return answer(v, &(struct rf_store_head){.kind = RF_STORE_REFUSED, .status = status}, text,
                  sizeof text);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int push(struct visit *v)
{
    RETURN_IF_ERROR(receive_pieces(v, v->shard->width));
    RETURN_IF_ERROR(receive_gradient(v));
    const struct rf_store_request request = request_of(v);
    rf_store_shard_count(v->shard, 4 * v->head.values, 0, 8 * v->head.pieces);
    return rf_store_shard_push(v->shard, &request);
}

/* A worker that waits hears from the server more often than it would give it up. */
static int pull(struct visit *v)
{
    struct rf_store_head head = {.kind = RF_STORE_VALUES, .values = v->head.values};
    RETURN_IF_ERROR(receive_pieces(v, v->shard->count));
    const struct rf_store_request request = request_of(v);
    int status;
    rf_store_shard_count(v->shard, 0, 4 * v->head.values, 8 * v->head.pieces);
    do {
        const uint64_t until = rf_add_ns(rf_now_ns(), v->shard->timeout_ns / 4);
        status = rf_store_shard_pull(v->shard, &request, until, &head);
        if (status == RF_EAGAIN)
            RETURN_IF_ERROR(answer(v, &(struct rf_store_head){.kind = RF_STORE_WAIT}, NULL, 0));
    } while (status == RF_EAGAIN);
    if (status < 0)
        return refuse(v, status);
    return answer(v, &head, v->values, 4 * v->head.values);
}

static int report(struct visit *v)
{
    struct rf_store_server_stats stats;
    rf_store_shard_report(v->shard, &stats);
    return answer(v, &(struct rf_store_head){.kind = RF_STORE_REPORT}, &stats, sizeof stats);
}

static int save(struct visit *v)
{
    const int status = rf_store_shard_save(v->shard, v->worker);
    return status < 0 ? refuse(v, status)
                      : answer(v, &(struct rf_store_head){.kind = RF_STORE_DONE}, NULL, 0);
}

static int state(struct visit *v)
{
    struct rf_store_head head = {.kind = RF_STORE_VALUES, .values = (uint64_t)v->shard->count};
    v->head.values = head.values;
    RETURN_IF_ERROR(make_room(v));
    const int status =
        rf_store_shard_read_state(v->shard, v->worker, v->head.status, v->values, &head);
    if (status < 0)
        return refuse(v, status);
    rf_store_shard_count(v->shard, 0, 4 * head.values, 0);
    return answer(v, &head, v->values, 4 * head.values);
}

static int rest(struct visit *v)
{
    rf_store_shard_rest(v->shard, v->worker, v->head.status);
    return RF_OK;
}

static int bye(struct visit *v)
{
    v->leaves = true;
    return RF_OK;
}

static int (*const requests[])(struct visit *) = {
    [RF_STORE_PUSH] = push, [RF_STORE_PULL] = pull,   [RF_STORE_STATS] = report,
    [RF_STORE_SAVE] = save, [RF_STORE_STATE] = state, [RF_STORE_REST] = rest,
    [RF_STORE_BYE] = bye,
};

static int serve_one(struct visit *v)
{
    RETURN_IF_ERROR(rf_store_receive(v->store, v->worker, &v->head, sizeof v->head));
    RETURN_IF_ERROR(
        rf_store_head_check(&v->head, RF_STORE_PUSH, RF_STORE_BYE, v->number + 1, v->shard->width));
    v->number++;
    rf_store_shard_count(v->shard, 0, 0, sizeof v->head);
    return requests[v->head.kind](v);
}

/* ---- a worker's visit ------------------------------------------------------------------------ */

/* A worker that sends what makes no sense is told so, and counts as lost. */
static void *visit(void *user)
{
    struct visit *v = user;
    struct rf_comm **link = v->store->links + v->worker;
    int status = RF_OK;
    while (status == RF_OK && !v->leaves)
        status = serve_one(v);
    if (status < 0) {
        const struct rf_error error = *rf_last_error();
        rf_log("store", 0, "server %d has lost worker %d, and continues with the others: %s",
               v->shard->server, v->worker, error.message);
        rf_comm_abort(*link, error.message);
    }
    rf_store_shard_leave(v->shard, v->worker, status < 0);
    (void)rf_comm_close(*link);
    *link = NULL;
    rf_free(v->pieces);
    rf_free(v->values);
    return NULL;
}

int rf_store_serve(struct rf_store *store, struct rf_store_server_stats *stats)
{
    if (!store || !store->shard || !store->links[0])
        return rf_fail(RF_EINVAL, "only a server of a store can serve, and once");
    struct visit *visits = rf_alloc((size_t)store->workers * sizeof *visits);
    int started = 0;
    while (visits && started < store->workers) {
        visits[started] = (struct visit){.store = store, .shard = store->shard, .worker = started};
        if (pthread_create(&visits[started].thread, NULL, visit, visits + started) != 0)
            break;
        started++;
    }
    for (int w = started; w < store->workers; w++) {
        rf_comm_abort(store->links[w], "a server of the store has no thread for this worker");
        rf_store_shard_leave(store->shard, w, true);
    }
    for (int w = 0; w < started; w++)
        pthread_join(visits[w].thread, NULL);
    rf_free(visits);
    if (stats)
        rf_store_shard_report(store->shard, stats);
    return started == store->workers
               ? RF_OK
               : rf_fail(RF_ENOMEM, "a server of a store has no threads for %d workers",
                         store->workers);
}
