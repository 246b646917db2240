/* SPDX-License-Identifier: MIT
 *
 * Measures a new communicator's links by its own collectives: a ring's all-gather for messages to a
 * neighbour, and the flat one for messages to many ranks. If there are several hosts and some have
 * several ranks, also an exchange within hosts and one between hosts. All ranks use the rates of
 * the slowest one, so all choose the same algorithms.
 */
#include <ringforge/ringforge.h>

#include "../../coll/model.h"
#include "../communicator.h"

/* With more ranks, no fan is measured: it would connect all ranks with each other. */
enum { MOST_FAN = 32 };
#define BUDGET_S 0.040     /* for all measurements */
#define LONG_ROUND_S 0.006 /* target duration of a ring of long pieces */
static const size_t LEAST_BYTES = 16 << 10, LAYER_BYTES = 256 << 10, MOST_BYTES = 1 << 20,
                    MOST_MEMORY = 32 << 20;

struct bench {
    struct rf_comm *comm;
    uint8_t *in, *out;
    size_t *counts; /* of an exchange */
    uint64_t start_ns;
};

/* All-gathers; and exchanges between every two ranks of a host, or every two on different hosts. */
enum pattern { RING, FLAT, WITHIN, BETWEEN };

static int gather(struct bench *b, const char *algorithm, size_t bytes)
{
    struct rf_call call = {
        .desc = {.op = RF_COLL_ALL_GATHER, .dtype = RF_U8, .root = -1, .count = bytes},
        .algorithm = algorithm,
        .in = b->in,
        .out = b->out,
        .label = "links"};
    return rf_comm_run(b->comm, &call);
}

/* The number of ranks that this rank exchanges with in a layer. */
static int layer_peers(const struct bench *b, int rank, enum pattern layer)
{
    const int *hosts = b->comm->layout.hosts;
    int count = 0;
    for (int r = 0; r < b->comm->size; r++)
        count += r != rank && (hosts[r] == hosts[rank]) == (layer == WITHIN);
    return count;
}

static int exchange(struct bench *b, enum pattern layer, size_t bytes)
{
    const int *hosts = b->comm->layout.hosts, rank = b->comm->rank;
    for (int r = 0; r < b->comm->size; r++)
        b->counts[r] = r != rank && (hosts[r] == hosts[rank]) == (layer == WITHIN) ? bytes : 0;
    struct rf_call call = {.desc = {.op = RF_COLL_ALL_TO_ALL,
                                    .dtype = RF_U8,
                                    .root = -1,
                                    .count = bytes * (size_t)layer_peers(b, rank, layer),
                                    .counts = b->counts,
                                    .recv_counts = b->counts},
                           .in = b->in,
                           .out = b->out,
                           .label = "links"};
    return rf_comm_run(b->comm, &call);
}

/* Sets each figure to the maximum over all ranks. */
static int agree(struct bench *b, double *figures, size_t count)
{
    struct rf_call call = {.desc = {.op = RF_COLL_ALL_REDUCE,
                                    .dtype = RF_F64,
                                    .redop = RF_MAX,
                                    .root = -1,
                                    .count = count},
                           .algorithm = b->comm->size <= MOST_FAN ? "flat" : "ring",
                           .in = figures,
                           .out = figures,
                           .label = "links"};
    return rf_comm_run(b->comm, &call);
}

/* Seconds of one all-gather, or of one exchange in a layer: the best of a few batches, on the
 * slowest rank. */
static int measure(struct bench *b, enum pattern pattern, size_t bytes, int batches, int batch,
                   double *seconds)
{
    *seconds = 1e9;
    for (int i = 0; i < batches; i++) {
        double zero = 0;
        RETURN_IF_ERROR(agree(b, &zero, 1)); /* all begin together */
        uint64_t start = rf_now_ns();
        for (int j = 0; j < batch; j++)
            RETURN_IF_ERROR(pattern >= WITHIN
                                ? exchange(b, pattern, bytes)
                                : gather(b, pattern == RING ? "ring" : "flat", bytes));
        double each = (double)(rf_now_ns() - start) * 1e-9 / batch;
        *seconds = each < *seconds ? each : *seconds;
    }
    return agree(b, seconds, 1);
}

static bool has_time(struct bench *b, double *spent)
{
    *spent = (double)(rf_now_ns() - b->start_ns) * 1e-9;
    return agree(b, spent, 1) == 0 && *spent < BUDGET_S;
}

static double measure_fold(struct bench *b)
{
    enum { BYTES = 64 << 10 };
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        uint64_t start = rf_now_ns();
        rf_combine(b->out, b->in, b->out, BYTES / sizeof(float), RF_F32, RF_MAX);
        double seconds = (double)(rf_now_ns() - start) * 1e-9;
        best = seconds < best ? seconds : best;
    }
    return best / BYTES;
}

static double positive(double x, double least)
{
    return x > least ? x : least;
}

static int measure_ring(struct bench *b, struct rf_coll_model *m, size_t most, size_t *bytes)
{
    double others = b->comm->size - 1, little, large;
    int batch = (int)(32 / others);
    RETURN_IF_ERROR(measure(b, RING, 8, 1, 1, &little)); /* connects */
    RETURN_IF_ERROR(measure(b, RING, 8, 3, batch > 2 ? batch : 2, &little));
    m->round_s = little / others;
    /* A first measurement determines the length of the pieces. */
    *bytes = most < LEAST_BYTES ? most : LEAST_BYTES;
    RETURN_IF_ERROR(measure(b, RING, *bytes, 1, 1, &large));
    double each = positive(large - little, 1e-9) / (others * (double)*bytes), spent;
    while (*bytes * 2 <= most && others * (double)*bytes * 2 * each < LONG_ROUND_S)
        *bytes *= 2;
    if (has_time(b, &spent))
        RETURN_IF_ERROR(measure(b, RING, *bytes, 2, 1, &large));
    else
        *bytes = most < LEAST_BYTES ? most : LEAST_BYTES;
    m->byte_s = positive(large - little, 1e-9) / (others * (double)*bytes);
    return 0;
}

static int measure_fan(struct bench *b, struct rf_coll_model *m, size_t bytes)
{
    double others = b->comm->size - 1, little, large, spent;
    m->fan_message_s = m->round_s / 4; /* if it cannot be measured */
    m->fan_byte_s = m->byte_s;
    if (b->comm->size > MOST_FAN || !has_time(b, &spent))
        return 0;
    RETURN_IF_ERROR(measure(b, FLAT, 8, 1, 1, &little));
    RETURN_IF_ERROR(measure(b, FLAT, 8, 3, 4, &little));
    if (others > 1)
        m->fan_message_s = positive((little - m->round_s) / (others - 1), m->round_s / 50);
    if (others < 2 || !has_time(b, &spent))
        return 0;
    RETURN_IF_ERROR(measure(b, FLAT, bytes, 2, 1, &large));
    m->fan_byte_s = positive(large - little, 1e-9) / (others * (double)bytes);
    return 0;
}

static int measure_layer(struct bench *b, enum pattern layer, size_t bytes,
                         struct rf_coll_layer *out)
{
    double little, large, spent;
    int peers = 0;
    for (int r = 0; r < b->comm->size; r++) {
        int count = layer_peers(b, r, layer);
        peers = count > peers ? count : peers;
    }
    bytes = bytes / (size_t)peers + 1;
    RETURN_IF_ERROR(measure(b, layer, 8, 1, 1, &little)); /* connects */
    RETURN_IF_ERROR(measure(b, layer, 8, 3, 4, &little));
    RETURN_IF_ERROR(measure(b, layer, bytes, 1, 1, &large));
    if (has_time(b, &spent))
        RETURN_IF_ERROR(measure(b, layer, bytes, 2, 1, &large));
    *out = (struct rf_coll_layer){
        .round_s = little, .byte_s = positive(large - little, 1e-9) / (peers * (double)bytes)};
    return 0;
}

/* If there are several hosts and some have several ranks. */
static int measure_hosts(struct bench *b, struct rf_coll_model *m)
{
    const int *hosts = b->comm->layout.hosts;
    const int size = b->comm->size;
    int most = 0;
    for (int r = 0; hosts && r < size; r++) {
        int here = 1 + layer_peers(b, r, WITHIN);
        most = here > most ? here : most;
    }
    if (most < 2 || size > MOST_FAN)
        return 0;
    b->counts = rf_alloc((size_t)size * sizeof(*b->counts));
    if (!b->counts)
        return rf_fail(RF_ENOMEM, "no memory to measure the links of %d ranks", size);
    /* The ranks of a host share its network bandwidth. */
    double between = LONG_ROUND_S / (m->byte_s * most);
    size_t bytes = between < (double)LAYER_BYTES ? (size_t)between : LAYER_BYTES;
    RETURN_IF_ERROR(measure_layer(b, WITHIN, LAYER_BYTES, &m->intra_host));
    return measure_layer(b, BETWEEN, bytes > LEAST_BYTES ? bytes : LEAST_BYTES, &m->inter_host);
}

static int measure_all(struct bench *b, struct rf_coll_model *m)
{
    size_t most = MOST_MEMORY / (size_t)b->comm->size, bytes = 0;
    most = most < MOST_BYTES ? most : MOST_BYTES;
    b->in = rf_alloc(MOST_BYTES);
    b->out = rf_alloc(most * (size_t)b->comm->size + MOST_BYTES);
    if (!b->in || !b->out)
        return rf_fail(RF_ENOMEM, "no memory to measure the links of %d ranks", b->comm->size);
    m->segment_bytes = b->comm->settings.segment_bytes;
    RETURN_IF_ERROR(measure_ring(b, m, most, &bytes));
    RETURN_IF_ERROR(measure_fan(b, m, bytes));
    RETURN_IF_ERROR(measure_hosts(b, m));
    m->fold_byte_s = measure_fold(b);
    return agree(b, &m->fold_byte_s, 1);
}

int rf_links_measure(struct rf_comm *comm)
{
    struct bench b = {.comm = comm, .start_ns = rf_now_ns()};
    struct rf_coll_model *model = rf_alloc(sizeof(*model));
    uint64_t bytes = comm->links.transport->sent_bytes,
             messages = comm->links.transport->sent_messages;
    int rc = model ? measure_all(&b, model) : rf_fail(RF_ENOMEM, "no memory for a model of links");
    /* A caller counts only its own bytes. */
    comm->links.transport->sent_bytes = bytes;
    comm->links.transport->sent_messages = messages;
    rf_free(b.in);
    rf_free(b.out);
    rf_free(b.counts);
    if (rc < 0) {
        rf_free(model);
        return rc;
    }
    comm->links.model = model;
    rf_cache_clear(comm->cache);
    rf_log("comm", 2,
           "links: a message %.3g us, %.3g GB/s; one more at a time %.3g us, %.3g GB/s; measured "
           "in %.3g ms",
           model->round_s * 1e6, 1e-9 / model->byte_s, model->fan_message_s * 1e6,
           1e-9 / model->fan_byte_s, (double)(rf_now_ns() - b.start_ns) * 1e-6);
    return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

int rf_comm_links(const struct rf_comm *comm, struct rf_link_figures *out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "links: the communicator or out is NULL");
    const struct rf_coll_model *m = comm->links.model;
    *out = (struct rf_link_figures){0};
    if (m)
        *out = (struct rf_link_figures){.measured = true,
                                        .message_s = m->round_s,
                                        .bytes_per_s = 1 / m->byte_s,
                                        .more_message_s = m->fan_message_s,
                                        .more_bytes_per_s = 1 / m->fan_byte_s,
                                        .fold_bytes_per_s = 1 / m->fold_byte_s};
    if (m && m->intra_host.round_s > 0) {
        out->host_round_s = m->intra_host.round_s;
        out->host_bytes_per_s = 1 / m->intra_host.byte_s;
        out->between_round_s = m->inter_host.round_s;
        out->between_bytes_per_s = 1 / m->inter_host.byte_s;
    }
    return 0;
}

int rf_comm_algorithm(const struct rf_comm *comm, enum rf_coll_op op, size_t count,
                      enum rf_dtype dtype, enum rf_order order, bool shared, const char **name,
                      double *seconds)
{
    if (!comm || !name || !seconds)
        return rf_fail(RF_EINVAL, "algorithm: the communicator, name or seconds is NULL");
    if (rf_coll_adds_leaves(op) || rf_coll_is_point(op))
        return rf_fail(RF_EINVAL, "algorithm: there is no choice in %s", rf_coll_op_name(op));
    const struct rf_coll_desc desc = {.op = op,
                                      .rank = comm->rank,
                                      .ranks = comm->size,
                                      .count = count,
                                      .dtype = dtype,
                                      .order = order,
                                      .segment_bytes = comm->settings.segment_bytes,
                                      .model = comm->links.model,
                                      .hosts = comm->layout.hosts,
                                      .shared = shared && comm->links.transport->one_host &&
                                                !comm->settings.checksum};
    return rf_coll_choose(&desc, name, seconds);
}
