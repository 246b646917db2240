/* SPDX-License-Identifier: MIT
 *
 * One call of all blocks. A call equal to the previous one is recorded, and replayed from then on:
 * all differences are in memory (tokens, sequences, positions).
 */
#include "generator.h"

#include "../base/base.h"

/* `most` of a call is rounded up, so that calls within some hundred tokens are equal. */
#define MOST_STEP 512

static void take_params(struct rf_generator *g, int block)
{
    const struct rf_generator_layout *l = &g->layout;
    int first = 0;
    for (int b = 0; b < block; b++)
        first += l->blocks[b].param_count;
    for (int k = 0; k < l->blocks[block].param_count; k++) {
        const struct rf_generator_param *param = &l->params[first + k];
        struct rf_tensor t = rf_arena_piece(g->params, param->piece);
        t.dtype = param->desc->dtype;
        t.shape = param->desc->shape;
        g->call_params[k] = t;
    }
}

static struct rf_tensor of_rows(const struct rf_generator *g, int which, int64_t rows)
{
    struct rf_tensor t = rf_arena_piece(g->host, RF_PIECE_ROWS);
    t.offset += (uint64_t)(which * g->layout.shape.rows) * sizeof(int32_t);
    t.dtype = RF_I32;
    t.shape = rf_shape1(rows);
    return t;
}

static struct rf_decode make_call(struct rf_generator *g, int block,
                                  const struct rf_generator_key *key, int64_t rows)
{
    struct rf_decode_shape shape = g->layout.shape;
    shape.rows = rows;
    take_params(g, block);
    return (struct rf_decode){.stream = g->stream,
                              .shape = shape,
                              .most = key->most,
                              .params = g->call_params,
                              .sequence = of_rows(g, 1, rows),
                              .position = of_rows(g, 2, rows),
                              .cache = rf_arena_piece(g->cache, block),
                              .table = rf_arena_piece(g->scratch, RF_PIECE_TABLE),
                              .scratch = rf_arena_piece(g->scratch, RF_PIECE_SCRATCH)};
}

/* The output of a block that is not the last one, `rows` rows. */
static struct rf_tensor output(const struct rf_generator *g, int block, int64_t rows)
{
    const struct rf_decode_sizes *s = &g->layout.sizes[block];
    struct rf_tensor t = rf_arena_piece(g->activations, block % 2 ? RF_PIECE_X1 : RF_PIECE_X0);
    t.dtype = s->dtype;
    t.shape = s->out;
    t.shape.dim[0] = rows;
    return t;
}

static struct rf_tensor logits_of(const struct rf_generator *g, int64_t rows)
{
    struct rf_tensor t = rf_arena_piece(g->host, RF_PIECE_LOGITS);
    t.dtype = RF_F32;
    t.shape = rf_shape2(rows, g->layout.classes);
    return t;
}

static int record(struct rf_generator *g, const struct rf_generator_key *key)
{
    const struct rf_generator_layout *l = &g->layout;
    const int last = l->count - 1;
    for (int b = 0; b <= last; b++) {
        const int64_t rows = b == last ? key->wanted : key->rows;
        if (rows == 0)
            break;
        const struct rf_decode call = make_call(g, b, key, rows);
        const struct rf_tensor in = b == 0 ? of_rows(g, 0, rows) : output(g, b - 1, rows);
        const struct rf_tensor out = b == last ? logits_of(g, rows) : output(g, b, rows);
        RETURN_IF_ERROR(l->blocks[b].ops->decode->decode(&call, l->blocks[b].self, in, out));
    }
    return 0;
}

static int prepare(struct rf_generator *g)
{
    const struct rf_generator_layout *l = &g->layout;
    const struct rf_generator_key none = {.most = 1};
    for (int b = 0; b < l->count; b++) {
        const struct rf_decode call = make_call(g, b, &none, 1);
        if (l->blocks[b].ops->decode->prepare)
            RETURN_IF_ERROR(l->blocks[b].ops->decode->prepare(&call, l->blocks[b].self));
    }
    RETURN_IF_ERROR(rf_stream_wait(g->stream));
    g->prepared = true;
    return 0;
}

static int64_t most_of(const struct rf_generator *g, int64_t rows)
{
    int64_t most = 1;
    for (int64_t i = 0; i < rows; i++)
        most = g->position[i] >= most ? (int64_t)g->position[i] + 1 : most;
    most = (most + MOST_STEP - 1) / MOST_STEP * MOST_STEP;
    return most < g->layout.shape.length ? most : g->layout.shape.length;
}

static bool same(const struct rf_generator_key *a, const struct rf_generator_key *b)
{
    return a->rows == b->rows && a->wanted == b->wanted && a->most == b->most;
}

/* Records the commands of a call that occurs a second time. */
static int keep(struct rf_generator *g, const struct rf_generator_key *key)
{
    rf_recording_destroy(g->recording);
    g->recording = NULL;
    RETURN_IF_ERROR(rf_record_begin(g->stream));
    const int rc = record(g, key);
    if (rc < 0) {
        if (rf_record_end(g->stream, NULL) < 0)
            rf_log("generate", 2, "an open recording could not be ended");
        return rc;
    }
    RETURN_IF_ERROR(rf_record_end(g->stream, &g->recording));
    g->recorded = *key;
    return 0;
}

int rf_generator_call(struct rf_generator *g, int64_t rows, int64_t wanted)
{
    const struct rf_generator_key key = {rows, wanted, most_of(g, rows)};
    if (!g->prepared)
        RETURN_IF_ERROR(prepare(g));
    const bool again = !g->record_each_call && same(&key, &g->last);
    g->last = key;
    if (again && !(g->recording && same(&key, &g->recorded)))
        RETURN_IF_ERROR(keep(g, &key));
    if (again)
        RETURN_IF_ERROR(rf_record_replay(g->stream, g->recording));
    else
        RETURN_IF_ERROR(record(g, &key));
    return rf_stream_wait(g->stream);
}
