/* SPDX-License-Identifier: MIT
 *
 * The key-value cache: writing to it (cache_append.comp) and attention to it (attend_cache.comp,
 * attend_cache_join.comp).
 */
#include <math.h>

#include "../base/base.h"
#include "pick.h"
#include "shaders/push/attend_cache.h"
#include "shaders/push/cache_append.h"

#include <ringforge/ops.h>

#define LANES 64  /* of attend_cache.comp */
#define CHUNK 128 /* keys of a workgroup of attend_cache.comp */

struct sizes {
    int64_t rows, sequences, length, keys, size, heads; /* n, S, L, K, D, H */
    enum rf_dtype type;
};

static int check_cache(const char *op, const struct rf_cache *cache, int64_t heads,
                       struct sizes *out)
{
    const struct rf_tensor keys = cache->keys;
    RETURN_IF_ERROR(rf_check_typed(op, "keys", keys, -1));
    if (keys.shape.ndim != 4 || rf_tensor_count(keys) == 0)
        return rf_fail(RF_EINVAL, "%s: keys must have four dimensions, and elements", op);
    RETURN_IF_ERROR(
        rf_check_operand(op, "values", cache->values, keys.dtype, rf_tensor_count(keys)));
    RETURN_IF_ERROR(rf_check_operand(op, "sequence", cache->sequence, RF_I32, -1));
    const int64_t *dim = keys.shape.dim;
    *out = (struct sizes){.rows = rf_tensor_count(cache->sequence),
                          .sequences = dim[0],
                          .length = dim[1],
                          .keys = dim[2],
                          .size = dim[3],
                          .heads = heads,
                          .type = keys.dtype};
    RETURN_IF_ERROR(rf_check_operand(op, "position", cache->position, RF_I32, out->rows));
    if (heads < 1 || heads % out->keys != 0)
        return rf_fail(RF_EINVAL, "%s: %lld heads of keys do not divide %lld heads", op,
                       (long long)out->keys, (long long)heads);
    return 0;
}

static int64_t last_dim(struct rf_tensor t)
{
    return t.shape.ndim > 0 ? t.shape.dim[t.shape.ndim - 1] : 1;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int check_append(const char *op, const struct rf_cache *cache, const struct sizes *s,
                        struct rf_tensor qkv, struct rf_tensor angles)
{
    if (s->size % 2 != 0)
        return rf_fail(RF_ENOTSUP, "%s: heads of %lld elements; the size must be even", op,
                       (long long)s->size);
    RETURN_IF_ERROR(
        rf_check_rows(op, "qkv", qkv, s->type, s->rows, (s->heads + 2 * s->keys) * s->size));
    if (angles.buffer)
        RETURN_IF_ERROR(rf_check_rows(op, "angles", angles, RF_F32, s->length, s->size));
    return rf_check_apart(
        op,
        (struct rf_named_tensor[]){{"keys", cache->keys}, {"values", cache->values}, {"qkv", qkv}},
        3,
        (struct rf_named_tensor[]){
            {"angles", angles}, {"sequence", cache->sequence}, {"position", cache->position}},
        3);
}

int rf_cache_append(struct rf_stream *stream, const struct rf_cache *cache, struct rf_tensor qkv,
                    int64_t heads, struct rf_tensor angles)
{
    static const char op[] = "cache_append";
    static const struct rf_build shaders[2] = {RF_BUILD_TYPES(cache_append_s),
                                               RF_BUILD_TYPES(cache_append_v)};
    struct sizes s;
    RETURN_IF_ERROR(check_cache(op, cache, heads, &s));
    RETURN_IF_ERROR(check_append(op, cache, &s, qkv, angles));
    if (s.rows == 0)
        return 0;
    const bool rotate = angles.buffer != NULL;
    const bool vector =
        s.size % 8 == 0 &&
        rf_pick_vector(s.size, (struct rf_tensor[]){cache->keys, cache->values, qkv, angles}, 4);
    const int64_t lines = s.rows * (2 * s.keys + (rotate ? heads : 0));
    const int64_t items = lines * (s.size / (vector ? 8 : 2));
    struct rf_push_cache_append push = {.qkv = rf_address_of(qkv),
                                        .keys = rf_address_of(cache->keys),
                                        .values = rf_address_of(cache->values),
                                        .angles = rf_address_of(angles),
                                        .sequence = rf_address_of(cache->sequence),
                                        .position = rf_address_of(cache->position),
                                        .items = (uint32_t)items,
                                        .columns = (uint32_t)last_dim(qkv),
                                        .heads = (uint32_t)heads,
                                        .key_heads = (uint32_t)s.keys,
                                        .size = (uint32_t)s.size,
                                        .sequences = (uint32_t)s.sequences,
                                        .cached = (uint32_t)s.length};
    struct rf_job job = {.op = op,
                         .type = s.type,
                         .shader = shaders[vector],
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, rf_stream_device(stream), (uint64_t)items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, rotate);
    const int64_t added = s.rows * s.keys * s.size;
    job.work.flops = 3 * (uint64_t)(lines * s.size);
    rf_job_touches(&job, qkv, lines * s.size, rotate ? RF_TOUCH_UPDATE : RF_TOUCH_READ);
    rf_job_touches(&job, angles, rotate ? s.rows * s.size : 0, RF_TOUCH_READ);
    rf_job_reads(&job, cache->sequence);
    rf_job_reads(&job, cache->position);
    rf_job_touches(&job, cache->keys, added, RF_TOUCH_WRITE);
    rf_job_touches(&job, cache->values, added, RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

/* Rotates vectors of ones and zeros, which leaves the cosines and sines. */
int rf_rotary_angles(struct rf_stream *stream, struct rf_tensor angles,
                     const struct rf_rotary_opts *opts)
{
    static const char op[] = "rotary_angles";
    struct rf_rotary_opts turn = opts ? *opts : (struct rf_rotary_opts){0};
    RETURN_IF_ERROR(rf_check_operand(op, "angles", angles, RF_F32, -1));
    if (angles.shape.ndim != 2 || angles.shape.dim[1] % 2 != 0)
        return rf_fail(RF_EINVAL, "%s: angles must be rows of an even number of elements", op);
    const int64_t rows = angles.shape.dim[0], size = angles.shape.dim[1];
    struct rf_heads all = rf_heads_in(angles, size, 0, 1), ones = all;
    RETURN_IF_ERROR(rf_fill(stream, angles, 0));
    ones.size = size / 2;
    turn.position = 0;
    turn.halves = true;
    if (rows == 0)
        return 0;
    RETURN_IF_ERROR(rf_fill(stream, rf_elements(angles, 0, size / 2), 1));
    for (int64_t done = 1; done < rows; done *= 2) { /* from the rows before them */
        struct rf_heads from = ones, to = ones;
        from.rows = to.rows = done < rows - done ? done : rows - done;
        to.first += done * size;
        RETURN_IF_ERROR(rf_copy_heads(stream, to, from, false));
    }
    return rf_rotary(stream, all, all, &turn);
}

/* ---- attention ------------------------------------------------------------------------------- */

static int64_t chunks_of(int64_t most)
{
    return (most + CHUNK - 1) / CHUNK;
}

int64_t rf_attend_cache_scratch(int64_t rows, int64_t heads, int64_t size, int64_t most)
{
    return rows * heads * chunks_of(most) * (size + 2);
}

static int check_attend(const char *op, const struct rf_cache *cache, const struct sizes *s,
                        const struct rf_attend_cache_args *a)
{
    const int64_t width = s->heads * s->size, columns = last_dim(a->q), most = a->most;
    const struct rf_tensor scratch = a->scratch;
    if (s->size > 256)
        return rf_fail(RF_ENOTSUP, "%s: heads of %lld elements; up to 256 are supported", op,
                       (long long)s->size);
    if (most < 1 || most > s->length)
        return rf_fail(RF_EINVAL, "%s: most is %lld; it must be 1 to %lld", op, (long long)most,
                       (long long)s->length);
    if (columns < width)
        return rf_fail(RF_EINVAL, "%s: rows of q have %lld elements, expected at least %lld", op,
                       (long long)columns, (long long)width);
    RETURN_IF_ERROR(rf_check_rows(op, "q", a->q, s->type, s->rows, columns));
    RETURN_IF_ERROR(rf_check_rows(op, "out", a->out, s->type, s->rows, width));
    RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, -1));
    const int64_t needed = rf_attend_cache_scratch(s->rows, s->heads, s->size, most);
    if (rf_tensor_count(scratch) < needed)
        return rf_fail(RF_EINVAL, "%s: scratch has %lld elements, expected at least %lld", op,
                       (long long)rf_tensor_count(scratch), (long long)needed);
    return rf_check_apart(op, (struct rf_named_tensor[]){{"out", a->out}, {"scratch", scratch}}, 2,
                          (struct rf_named_tensor[]){{"q", a->q},
                                                     {"keys", cache->keys},
                                                     {"values", cache->values},
                                                     {"sequence", cache->sequence},
                                                     {"position", cache->position}},
                          5);
}

static int run_chunks(struct rf_stream *stream, const struct rf_push_attend_cache *push,
                      struct rf_tensor q, const struct rf_cache *cache, const struct sizes *s,
                      struct rf_tensor partial)
{
    static const struct rf_build shaders[2] = {RF_BUILD_TYPES(attend_cache_s),
                                               RF_BUILD_TYPES(attend_cache_v)};
    const bool vector =
        rf_pick_vector(s->size, (struct rf_tensor[]){q, cache->keys, cache->values}, 3) &&
        push->q_row % 4 == 0;
    struct rf_job job = {.op = "attend_cache",
                         .type = s->type,
                         .shader = shaders[vector],
                         .push = push,
                         .push_bytes = RF_PUSH_BYTES(*push)};
    /* The reads depend on the positions: at most one sequence per row. */
    const int64_t all = rf_tensor_count(cache->keys);
    const int64_t seen = s->rows * push->chunks * CHUNK * s->keys * s->size;
    rf_job_spec(&job, 0, LANES);
    rf_flat_groups(rf_stream_device(stream), (uint64_t)s->rows * push->heads * push->chunks, 1,
                   job.groups);
    job.work.flops = 4 * (uint64_t)(s->rows * s->heads * push->chunks * CHUNK * s->size);
    rf_job_touches(&job, q, s->rows * s->heads * s->size, RF_TOUCH_READ);
    rf_job_touches(&job, cache->keys, seen < all ? seen : all, RF_TOUCH_READ);
    rf_job_touches(&job, cache->values, seen < all ? seen : all, RF_TOUCH_READ);
    rf_job_reads(&job, cache->sequence);
    rf_job_reads(&job, cache->position);
    rf_job_writes(&job, partial);
    return rf_job_run(stream, &job);
}

int rf_attend_cache(struct rf_stream *stream, const struct rf_cache *cache,
                    const struct rf_attend_cache_args *a)
{
    static const char op[] = "attend_cache";
    static const struct rf_build join = RF_BUILD_TYPES(attend_cache_join);
    struct sizes s;
    RETURN_IF_ERROR(check_cache(op, cache, a->heads, &s));
    RETURN_IF_ERROR(check_attend(op, cache, &s, a));
    if (s.rows == 0)
        return 0;
    const struct rf_tensor partial =
        rf_elements(a->scratch, 0, rf_attend_cache_scratch(s.rows, s.heads, s.size, a->most));
    struct rf_push_attend_cache push = {.out_ = rf_address_of(a->out),
                                        .q = rf_address_of(a->q),
                                        .keys = rf_address_of(cache->keys),
                                        .values = rf_address_of(cache->values),
                                        .partial = rf_address_of(partial),
                                        .sequence = rf_address_of(cache->sequence),
                                        .position = rf_address_of(cache->position),
                                        .rows = (uint32_t)s.rows,
                                        .heads = (uint32_t)s.heads,
                                        .key_heads = (uint32_t)s.keys,
                                        .size = (uint32_t)s.size,
                                        .chunks = (uint32_t)chunks_of(a->most),
                                        .q_row = (uint32_t)last_dim(a->q),
                                        .out_row = (uint32_t)(s.heads * s.size),
                                        .sequences = (uint32_t)s.sequences,
                                        .cached = (uint32_t)s.length,
                                        .scale = rf_option(a->scale, 1.0f / sqrtf((float)s.size))};
    RETURN_IF_ERROR(run_chunks(stream, &push, a->q, cache, &s, partial));
    struct rf_job job = {
        .op = op, .type = s.type, .shader = join, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, rf_stream_device(stream), (uint64_t)(s.rows * s.heads * s.size),
                RF_FLAT_LANES, 1);
    rf_job_reads(&job, partial);
    rf_job_reads(&job, cache->position);
    rf_job_writes(&job, a->out);
    return rf_job_run(stream, &job);
}
