/* SPDX-License-Identifier: MIT
 *
 * Parameters and gradients by name, and the hash of all parameters. For inspection, tests and
 * checkpoints; blocks do not use it.
 */
#include <sodium.h>

#include "../base/base.h"
#include "../parallel/plan/traffic.h"
#include "run.h"
#include "spans.h"
#include "stored.h"

int rf_run_find_param(const struct rf_run *run, const char *name)
{
    for (int i = 0; i < run->plan->param_count; i++)
        if (strcmp(run->plan->params[i].desc->name, name) == 0)
            return run->plan->params[i].logical;
    return -1;
}

static uint64_t whole_elements(const struct rf_plan *plan, int index)
{
    return (uint64_t)rf_shape_count(plan->params[index].cut.shape);
}

/* The index of the parameter with this name (the first one of tied parameters), or a negative
 * status. */
static int param_of(const struct rf_run *run, const char *name, uint64_t bytes)
{
    int index = run && name ? rf_run_find_param(run, name) : -1;
    if (index < 0)
        return rf_fail(RF_EINVAL, "the model has no parameter named %.100s",
                       name ? name : "(null)");
    uint64_t size = whole_elements(run->plan, index) * sizeof(float);
    if (bytes != size)
        return rf_fail(RF_EINVAL, "parameter %s has %llu bytes, not %llu", name,
                       (unsigned long long)size, (unsigned long long)bytes);
    return index;
}

struct rf_own_part rf_run_own_part(const struct rf_run *run, int index)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_plan_param *param = &plan->params[index];
    const struct rf_plan_piece *piece = &plan->pieces[param->piece];
    const uint64_t begin = piece->first + piece->borders[plan->shard];
    struct rf_plan_span span = {param->first, (uint64_t)param->count};
    uint64_t element = param->first;
    if (rf_plan_shards_params(plan)) {
        rf_plan_clip(&span, begin, piece->counts[plan->shard]);
        element = piece->shard_first + span.first - begin;
    }
    const enum rf_region_id region = rf_plan_param_region(plan, index);
    if (param->single)
        element -= rf_plan_bare_elements(plan, plan->shard);
    struct rf_tensor t = run->regions[region];
    t.dtype = region == RF_REGION_COPY ? plan->copy_type : RF_F32;
    t.offset += element * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1((int64_t)span.count);
    return (struct rf_own_part){span.first - param->first, span.count, t};
}

/* The lane over whose ranks each element of a parameter is on exactly one rank. */
static enum rf_lane parts_lane(const struct rf_plan *plan)
{
    return rf_plan_loss_lane(plan) == RF_LANE_JOB ? RF_LANE_JOB : plan->shard_lane;
}

/* Whether this rank contributes its part of a parameter. Only one of several ranks with equal parts
 * does. */
static bool contributes(const struct rf_plan *plan, int index)
{
    const bool sharded = rf_plan_shards_params(plan);
    const bool first = sharded ? plan->groups[RF_LANE_REPLICATE].rank == 0 : plan->dp_rank == 0;
    return parts_lane(plan) != RF_LANE_JOB ||
           (first && rf_plan_holds(plan, plan->params[index].block));
}

/* Adds arrays over the ranks of a lane. Each array has a rank's part of a parameter and is 0
 * elsewhere. The elements are added as whole numbers, so the bits are preserved. */
static int add_parts(struct rf_run *run, enum rf_lane lane, size_t count, float *values)
{
    const struct rf_transfer t = {.op = RF_COLL_ALL_REDUCE,
                                  .count = count,
                                  .dtype = RF_I32,
                                  .order = RF_ORDER_RING,
                                  .group = lane};
    uint64_t sent = 0;
    RETURN_IF_ERROR(rf_transfer_sent(run->plan, &t, &sent));
    run->planned_sent += sent;
    const int rc =
        rf_all_reduce(run->comms[lane], values, values, count, RF_I32, RF_SUM,
                      &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = "parameter"});
    return rc < 0 ? rf_run_give_up(run, rc) : 0;
}

/* Synchronises the groups whose parts all ranks add. */
static int sync_groups_of_parts(struct rf_run *run, const char *label)
{
    const bool all = rf_plan_params_sharded(run->plan) && parts_lane(run->plan) == RF_LANE_JOB;
    return all ? rf_run_begin_call(run, label) : 0;
}

/* Copies elements of this rank's part of a parameter into an array of the whole one, except those
 * that a lower tensor rank contributes. Elements that are not contiguous there are read a piece at
 * a time, so that the part is not held beside the whole. */
static int read_part(const struct rf_run *run, const struct rf_param_cut *cut, uint64_t first,
                     uint64_t count, struct rf_tensor stored, float *whole)
{
    const struct rf_cut_run all = rf_cut_run_at(cut, first);
    if (all.count >= count)
        return all.first_copy ? rf_stored_read(stored, whole + all.first) : 0;
    const uint64_t piece = run->files.piece_bytes / sizeof(float);
    const uint64_t most = count < piece ? count : piece;
    float *part = rf_alloc(most * sizeof(*part));
    if (!part)
        return rf_fail(RF_ENOMEM, "run: out of host memory for %llu elements of a parameter",
                       (unsigned long long)most);
    int rc = 0;
    for (uint64_t done = 0, n; rc == 0 && done < count; done += n) {
        n = count - done < most ? count - done : most;
        stored.shape = rf_shape1((int64_t)n);
        rc = rf_stored_read(stored, part);
        if (rc == 0)
            rf_cut_put(cut, first + done, n, part, whole);
        stored.offset += n * rf_dtype_bytes(stored.dtype);
    }
    rf_free(part);
    return rc;
}

/* Gets a whole parameter. Parts that this rank lacks come from other ranks. */
static int collect(struct rf_run *run, int index, float *values)
{
    const struct rf_plan *plan = run->plan;
    const size_t count = whole_elements(plan, index);
    struct rf_own_part own = {0};
    if (contributes(plan, index))
        own = rf_run_own_part(run, rf_plan_holder(plan, index));
    if (rf_plan_params_sharded(plan)) /* the parts of other ranks are 0 here */
        memset(values, 0, count * sizeof(*values));
    if (own.count)
        RETURN_IF_ERROR(
            read_part(run, &plan->params[index].cut, own.first, own.count, own.tensor, values));
    return rf_plan_params_sharded(plan) ? add_parts(run, parts_lane(plan), count, values) : 0;
}

int rf_run_read_param(struct rf_run *run, const char *name, void *dst, uint64_t bytes)
{
    int index = param_of(run, name, bytes);
    RETURN_IF_ERROR(index);
    RETURN_IF_ERROR(sync_groups_of_parts(run, "read parameter"));
    return collect(run, index, dst);
}

int rf_run_write_param(struct rf_run *run, const char *name, const void *src, uint64_t bytes)
{
    int index = param_of(run, name, bytes);
    RETURN_IF_ERROR(index);
    RETURN_IF_ERROR(rf_run_check_idle(run, "write parameter"));
    const int holder = rf_plan_holder(run->plan, index);
    if (holder < 0)
        return 0;
    const struct rf_own_part own = rf_run_own_part(run, holder);
    if (own.count) {
        float *values = rf_alloc(own.count * sizeof(*values));
        if (!values)
            return rf_fail(RF_ENOMEM, "run: out of host memory for parameter %s", name);
        rf_cut_take(&run->plan->params[index].cut, own.first, own.count, src, values);
        int rc = rf_stored_write(own.tensor, values);
        rf_free(values);
        RETURN_IF_ERROR(rc);
    }
    RETURN_IF_ERROR(rf_run_refresh_copy(run));
    return rf_run_refresh_before(run, true);
}

int rf_run_read_grad(struct rf_run *run, const char *name, void *dst, uint64_t bytes)
{
    int index = param_of(run, name, bytes);
    if (index < 0)
        return index;
    const int holder = rf_plan_holder(run->plan, index);
    if (!rf_plan_trains(run->plan, index))
        return rf_fail(RF_EINVAL, "parameter %s is frozen: it has no gradient", name);
    if (rf_plan_in_backward(run->plan))
        return rf_fail(RF_ENOTSUP,
                       "the gradient of %s is gone: it was used in the backward pass; read "
                       "gradients without update_in_backward",
                       name);
    if (run->plan->shards > 1 || holder < 0)
        return rf_fail(RF_ENOTSUP,
                       "the gradient of %s is %s; read gradients with zero=0, and on a rank whose "
                       "blocks have the parameter",
                       name, holder < 0 ? "on other ranks" : "spread over the ranks");
    const struct rf_plan_param *param = &run->plan->params[holder];
    struct rf_tensor grad = run->regions[RF_REGION_GRADS];
    grad.offset += param->grad_first * sizeof(float);
    grad.shape = rf_shape1(param->count);
    grad.dtype = RF_F32;
    memset(dst, 0, bytes);
    RETURN_IF_ERROR(read_part(run, &param->cut, 0, (uint64_t)param->count, grad, dst));
    return rf_plan_tensor_ranks(run->plan) > 1
               ? add_parts(run, RF_LANE_TENSOR, whole_elements(run->plan, index), dst)
               : 0;
}

struct named {
    const char *name;
    int index;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int hash_param(struct rf_run *run, int index, float *values, crypto_hash_sha256_state *hash)
{
    const struct rf_plan_param *param = &run->plan->params[index];
    const struct rf_param_desc *desc = param->desc;
    const char *dtype = rf_dtype_name(RF_F32);
    uint64_t bytes = whole_elements(run->plan, index) * sizeof(float);
    char dim[32];
    RETURN_IF_ERROR(collect(run, index, values));
    crypto_hash_sha256_update(hash, (const unsigned char *)desc->name, strlen(desc->name) + 1);
    crypto_hash_sha256_update(hash, (const unsigned char *)dtype, strlen(dtype) + 1);
    for (int d = 0; d < desc->shape.ndim; d++) {
        int n = snprintf(dim, sizeof(dim), "%lld,", (long long)desc->shape.dim[d]);
        crypto_hash_sha256_update(hash, (const unsigned char *)dim, (size_t)n);
    }
    crypto_hash_sha256_update(hash, (const unsigned char *)"", 1);
    crypto_hash_sha256_update(hash, (const unsigned char *)values, bytes);
    return 0;
}

int rf_run_params_sha256(struct rf_run *run, char hex[65])
{
    const struct rf_plan *plan = run->plan;
    RETURN_IF_ERROR(sync_groups_of_parts(run, "hash"));
    struct named *names = rf_alloc((size_t)(plan->param_count + 1) * sizeof(*names));
    int count = 0, rc = 0;
    uint64_t most = 1;
    for (int i = 0; names && i < plan->param_count; i++)
        if (plan->params[i].logical == i) {
            names[count++] = (struct named){plan->params[i].desc->name, i};
            most = whole_elements(plan, i) > most ? whole_elements(plan, i) : most;
        }
    float *values = rf_alloc(most * sizeof(*values));
    if (!names || !values) {
        rc = rf_fail(RF_ENOMEM, "hash: out of host memory");
        goto fail;
    }
    qsort(names, (size_t)count, sizeof(*names), compare_names);
    crypto_hash_sha256_state hash;
    crypto_hash_sha256_init(&hash);
    for (int i = 0; rc == 0 && i < count; i++)
        rc = hash_param(run, names[i].index, values, &hash);
    if (rc < 0)
        goto fail;
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&hash, digest);
    sodium_bin2hex(hex, 65, digest, sizeof(digest));

fail:
    rf_free(names);
    rf_free(values);
    return rc;
}
