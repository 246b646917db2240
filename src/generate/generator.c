/* SPDX-License-Identifier: MIT
 *
 * Opens and closes generators, and writes their parameters.
 */
#include "generator.h"

#include "../base/base.h"
#include "../device/device.h"
#include "../train/stored.h"

/* Allocates the pieces in this kind of memory; the others get no bytes. */
static int open_arena(struct rf_generator *g, const char *what, enum rf_memory memory,
                      enum rf_category category, enum rf_generator_piece first,
                      enum rf_generator_piece last, struct rf_arena **out)
{
    uint64_t bytes[RF_PIECE_COUNT] = {0};
    for (int i = (int)first; i <= (int)last; i++)
        bytes[i] = g->layout.bytes[i];
    return rf_arena_create(g->device, what, memory, category, bytes, RF_PIECE_COUNT, out);
}

static int open_memory(struct rf_generator *g)
{
    const struct rf_generator_layout *l = &g->layout;
    RETURN_IF_ERROR(rf_arena_create(g->device, "params", RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS,
                                    l->param_bytes, l->piece_count, &g->params));
    RETURN_IF_ERROR(rf_arena_create(g->device, "cache", RF_MEMORY_DEVICE, RF_CATEGORY_CACHE,
                                    l->cache_bytes, l->count, &g->cache));
    RETURN_IF_ERROR(open_arena(g, "activations", RF_MEMORY_DEVICE, RF_CATEGORY_ACTIVATIONS,
                               RF_PIECE_X0, RF_PIECE_X1, &g->activations));
    RETURN_IF_ERROR(open_arena(g, "scratch", RF_MEMORY_DEVICE, RF_CATEGORY_SCRATCH, RF_PIECE_TABLE,
                               RF_PIECE_SCRATCH, &g->scratch));
    return open_arena(g, "tokens and logits", RF_MEMORY_HOST, RF_CATEGORY_SCRATCH, RF_PIECE_ROWS,
                      RF_PIECE_LOGITS, &g->host);
}

static int open_host(struct rf_generator *g)
{
    const size_t classes = (size_t)g->layout.classes;
    int most = 0;
    for (int b = 0; b < g->layout.count; b++)
        most = g->layout.blocks[b].param_count > most ? g->layout.blocks[b].param_count : most;
    g->call_params = rf_alloc(((size_t)most + 1) * sizeof(*g->call_params));
    g->scores = rf_alloc(classes * sizeof(*g->scores));
    g->order = rf_alloc(classes * sizeof(*g->order));
    g->seen = rf_alloc(classes * sizeof(*g->seen));
    if (!g->call_params || !g->scores || !g->order || !g->seen)
        return rf_fail(RF_ENOMEM, "generator: out of host memory");
    g->token = rf_tensor_map(rf_arena_piece(g->host, RF_PIECE_ROWS));
    g->sequence = g->token + g->layout.shape.rows;
    g->position = g->sequence + g->layout.shape.rows;
    g->logits = rf_tensor_map(rf_arena_piece(g->host, RF_PIECE_LOGITS));
    return 0;
}

static int open_parts(struct rf_generator *g, struct rf_blocks blocks,
                      const struct rf_generator_opts *opts)
{
    RETURN_IF_ERROR(rf_generator_layout_make(blocks, opts, &g->layout));
    g->record_each_call = opts->record_each_call || rf_device_checks_ranges(g->device);
    rf_device_memory_reset_peak(g->device);
    rf_device_memory(g->device, &g->before);
    RETURN_IF_ERROR(rf_stream_create(g->device, "generate", &g->stream));
    RETURN_IF_ERROR(open_memory(g));
    return open_host(g);
}

int rf_generator_open(struct rf_device *device, struct rf_comm *comm, struct rf_blocks blocks,
                      const struct rf_generator_opts *opts, struct rf_generator **out)
{
    struct rf_generator *g = rf_alloc(sizeof(*g));
    if (!g)
        return rf_fail(RF_ENOMEM, "generator: out of host memory");
    g->device = device;
    g->comm = comm;
    const int rc = open_parts(g, blocks, opts);
    if (rc < 0) {
        rf_generator_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void rf_generator_close(struct rf_generator *g)
{
    if (!g)
        return;
    rf_recording_destroy(g->recording);
    rf_stream_destroy(g->stream);
    rf_arena_destroy(g->params);
    rf_arena_destroy(g->cache);
    rf_arena_destroy(g->activations);
    rf_arena_destroy(g->scratch);
    rf_arena_destroy(g->host);
    rf_free(g->call_params);
    rf_free(g->scores);
    rf_free(g->order);
    rf_free(g->seen);
    rf_generator_layout_destroy(&g->layout);
    rf_free(g);
}

void rf_generator_measured(const struct rf_generator *g, struct rf_generator_bytes *out)
{
    struct rf_memory_stats now;
    rf_device_memory(g->device, &now);
    const uint64_t *peak = now.peak, *before = g->before.now;
    *out = (struct rf_generator_bytes){
        .params = peak[RF_CATEGORY_PARAMS] - before[RF_CATEGORY_PARAMS],
        .cache = peak[RF_CATEGORY_CACHE] - before[RF_CATEGORY_CACHE],
        .activations = peak[RF_CATEGORY_ACTIVATIONS] - before[RF_CATEGORY_ACTIVATIONS],
        .scratch = peak[RF_CATEGORY_SCRATCH] - before[RF_CATEGORY_SCRATCH],
        .host = rf_arena_bytes(g->host),
    };
}

/* In u8, 4 bytes are one value. */
static uint64_t value_count(const struct rf_param_desc *desc)
{
    const uint64_t elements = (uint64_t)rf_shape_count(desc->shape);
    return desc->dtype == RF_U8 ? elements / sizeof(float) : elements;
}

static int write_piece(struct rf_generator *g, const struct rf_generator_param *param,
                       float *values)
{
    struct rf_tensor t = rf_arena_piece(g->params, param->piece);
    const int64_t count = (int64_t)value_count(param->desc);
    t.dtype = param->desc->dtype == RF_U8 ? RF_F32 : param->desc->dtype;
    t.shape = rf_shape1(count);
    return count ? rf_stored_write(t, values) : 0;
}

int rf_generator_write_param(struct rf_generator *g, const char *name, float *values,
                             uint64_t count)
{
    const struct rf_generator_layout *l = &g->layout;
    const struct rf_generator_param *found = NULL, *wide = NULL, *narrow = NULL;
    for (int i = 0; name && i < l->param_count; i++)
        found = strcmp(l->params[i].desc->name, name) == 0 ? &l->params[i] : found;
    if (!found)
        return rf_fail(RF_EINVAL, "the model has no parameter named %.100s",
                       name ? name : "(null)");
    if (count != value_count(found->desc))
        return rf_fail(RF_EINVAL, "parameter %s has %llu elements, not %llu", name,
                       (unsigned long long)value_count(found->desc), (unsigned long long)count);
    for (int i = 0; i < l->param_count; i++)
        if (strcmp(l->params[i].root, found->root) == 0) {
            if (l->params[i].desc->dtype == RF_F32)
                wide = &l->params[i];
            else
                narrow = &l->params[i];
        }
    g->prepared = false;
    if (wide)
        RETURN_IF_ERROR(write_piece(g, wide, values));
    return narrow ? write_piece(g, narrow, values) : 0; /* overwrites the values */
}

#define FILL_ELEMENTS ((uint64_t)1 << 20) /* of one read */

static int fill_param(struct rf_generator *g, const struct rf_param_source *source,
                      const struct rf_param_desc *desc, float *values)
{
    const uint64_t count = (uint64_t)rf_shape_count(desc->shape);
    const uint64_t element = desc->dtype == RF_U8 ? 1 : sizeof(float);
    for (uint64_t first = 0; first < count; first += FILL_ELEMENTS) {
        const uint64_t some = count - first < FILL_ELEMENTS ? count - first : FILL_ELEMENTS;
        RETURN_IF_ERROR(
            source->read(source->self, desc->name, first, some, (char *)values + first * element));
    }
    return rf_generator_write_param(g, desc->name, values, value_count(desc));
}

int rf_generator_fill(struct rf_generator *g, const struct rf_param_source *source)
{
    const struct rf_generator_layout *l = &g->layout;
    uint64_t most = 1;
    int rc = 0;
    for (int i = 0; i < l->param_count; i++)
        most = value_count(l->params[i].desc) > most ? value_count(l->params[i].desc) : most;
    float *values = rf_alloc((size_t)most * sizeof(*values));
    if (!values)
        return rf_fail(RF_ENOMEM, "generator: out of host memory for %llu elements of a parameter",
                       (unsigned long long)most);
    for (int i = 0; rc == 0 && i < l->param_count; i++)
        if (l->params[i].root == l->params[i].desc->name)
            rc = fill_param(g, source, l->params[i].desc, values);
    rf_free(values);
    return rc;
}
