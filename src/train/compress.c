/* SPDX-License-Identifier: MIT
 *
 * See compress.h.
 */
#include "compress.h"

#include <ringforge/rounds.h>

#include "../base/base.h"
#include "../parallel/plan/compress.h"

#define PREFIX "compress."

struct rf_compressed {
    struct rf_plan_sent *sent;
    int count;
    struct rf_tensor in, out; /* of the exchange in progress */
    struct rf_rounds *rounds;
};

/* ---- the gradients of a piece -----------------------------------------------------------------
 */

/* Copies the values [first, first + count), which are those of its parameters, one after the
 * other, without the padding between them. */
static int copy(const struct rf_compressed *c, int64_t first, int64_t count, float *to,
                const float *from)
{
    int64_t at = 0;
    for (int k = 0; k < c->count && count > 0; at += c->sent[k++].count) {
        const int64_t end = at + c->sent[k].count, n = first + count < end ? count : end - first;
        if (first >= end)
            continue;
        struct rf_tensor part = to ? c->in : c->out;
        part.offset += (c->sent[k].first + (uint64_t)(first - at)) * sizeof(float);
        part.shape = rf_shape1(n);
        RETURN_IF_ERROR(to ? rf_tensor_read(part, to, (uint64_t)n * sizeof(float))
                           : rf_tensor_write(part, from, (uint64_t)n * sizeof(float)));
        to += to ? n : 0, from += from ? n : 0;
        first += n, count -= n;
    }
    return 0;
}

static int read_values(void *user, int64_t first, int64_t count, float *to)
{
    return copy(user, first, count, to, NULL);
}

static int write_values(void *user, int64_t first, int64_t count, const float *from)
{
    return copy(user, first, count, NULL, from);
}

static int shape_of(void *user, int index, struct rf_round_shape *out)
{
    const struct rf_compressed *c = user;
    if (index >= c->count)
        return RF_EINVAL;
    *out = c->sent[index].shape;
    return 0;
}

static int open_piece(struct rf_run *run, int piece)
{
    const struct rf_rounds_rule rule = rf_plan_compress_rule(&run->plan->policy);
    struct rf_compressed *c = &run->compressed[piece];
    struct rf_rounds_params params = {0, read_values, write_values, c, shape_of};
    RETURN_IF_ERROR(rf_plan_sent_of(run->plan, piece, &c->sent, &c->count));
    for (int k = 0; k < c->count; k++)
        params.count += c->sent[k].count;
    return rf_rounds_open(run->comms[RF_LANE_DATA], &params, &rule, &c->rounds);
}

int rf_compress_open(struct rf_run *run)
{
    const int pieces = run->plan->trained_pieces;
    if (!rf_plan_compresses(run->plan))
        return 0;
    run->compressed = rf_alloc((size_t)pieces * sizeof(*run->compressed) + 1);
    if (!run->compressed)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    for (int piece = 0; piece < pieces; piece++)
        RETURN_IF_ERROR(open_piece(run, piece));
    return 0;
}

void rf_compress_close(struct rf_run *run)
{
    for (int piece = 0; run->compressed && piece < run->plan->trained_pieces; piece++) {
        rf_rounds_close(run->compressed[piece].rounds);
        rf_free(run->compressed[piece].sent);
    }
    rf_free(run->compressed);
    run->compressed = NULL;
}

int rf_compress_reduce(struct rf_run *run, int piece, struct rf_tensor in, struct rf_tensor out,
                       uint64_t *wait_ns)
{
    struct rf_rounds_stats stats;
    run->compressed[piece].in = in;
    run->compressed[piece].out = out;
    RETURN_IF_ERROR(rf_rounds_step(run->compressed[piece].rounds, 0, &stats));
    *wait_ns += stats.wait_ns;
    return 0;
}

/* ---- checkpoints ------------------------------------------------------------------------------
 */

bool rf_compress_names(const char *name)
{
    return strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0;
}

/* The arrays of all pieces, one after the other; false: there are no more. */
static bool next(const struct rf_run *run, int *piece, int *index, struct rf_rounds_array *out)
{
    for (; run->compressed && *piece < run->plan->trained_pieces; ++*piece, *index = 0)
        if (rf_rounds_get_array(run->compressed[*piece].rounds, (*index)++, out) == RF_OK)
            return true;
    return false;
}

static int count_arrays(const struct rf_run *run)
{
    struct rf_rounds_array array;
    int piece = 0, index = 0, count = 0;
    while (next(run, &piece, &index, &array))
        count++;
    return count;
}

int rf_compress_list(const struct rf_run *run, struct rf_listing *list)
{
    const int ranks = run->plan->mesh.dp, arrays = count_arrays(run);
    struct rf_rounds_array array;
    if (arrays == 0)
        return 0;
    RETURN_IF_ERROR(rf_listing_grow(list, arrays * ranks));
    for (int rank = 0; rank < ranks; rank++)
        for (int piece = 0, index = 0; next(run, &piece, &index, &array); list->count++) {
            struct rf_listed *listed = &list->listed[list->count];
            *listed = (struct rf_listed){.param = -1};
            snprintf(listed->name, sizeof(listed->name), PREFIX "%d.%s.%d", piece, array.name,
                     rank);
            list->tensors[list->count] = (struct rf_file_tensor){
                .name = listed->name, .dtype = RF_F32, .shape = rf_shape1(array.count)};
        }
    return 0;
}

int rf_compress_spans(const struct rf_run *run, const struct rf_listing *list, struct rf_spans *out)
{
    const int arrays = count_arrays(run);
    struct rf_rounds_array array;
    int tensor = list->count - arrays * (run->plan->mesh.dp - run->plan->dp_rank);
    for (int piece = 0, index = 0; next(run, &piece, &index, &array); tensor++) {
        const struct rf_span span = {.tensor = tensor,
                                     .count = (uint64_t)array.count,
                                     .cut = rf_span_whole(&list->tensors[tensor]),
                                     .host = array.values};
        RETURN_IF_ERROR(rf_spans_append(out, &span));
    }
    return 0;
}

void rf_compress_forget(struct rf_run *run)
{
    struct rf_rounds_array array;
    for (int piece = 0, index = 0; next(run, &piece, &index, &array);)
        memset(array.values, 0, (size_t)array.count * sizeof(float));
}

int rf_compress_set_step(struct rf_run *run, int64_t step)
{
    for (int piece = 0; run->compressed && piece < run->plan->trained_pieces; piece++)
        RETURN_IF_ERROR(rf_rounds_set_counters(run->compressed[piece].rounds, step, step));
    return 0;
}
