/* SPDX-License-Identifier: MIT
 *
 * Checks that all ranks train the same model in the same way. Runs once, when a run is opened, so
 * that a difference is reported there and does not become a hang or a silent divergence.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "run.h"

/* The values compared, in this order, and their names. */
/* clang-format off */
#define FIELDS(ROW)                                                                                \
    ROW(version, "library version")                                                                \
    ROW(ranks, "number of ranks")                                                                  \
    ROW(tensor, "tensor ranks (tp)")                                                               \
    ROW(sequence, "sequence parallelism")                                                          \
    ROW(pipeline, "pipeline")                                                                      \
    ROW(context, "context ranks (cp)")                                                             \
    RF_POLICY_EQUAL(ROW)                                                                           \
    ROW(shard, "ranks that share a copy")                                                          \
    ROW(gathers, "gathers of parameters")                                                          \
    ROW(offload, "offload")                                                                        \
    ROW(compress, "form of gradients (compress)")                                                  \
    ROW(buckets, "bucket sizes")                                                                   \
    ROW(optimizer, "optimizer")                                                                    \
    ROW(clip, "clipping norm")                                                                     \
    ROW(loss_scale, "loss scale")                                                                  \
    ROW(blocks, "blocks")                                                                          \
    ROW(config, "blocks' config")                                                                  \
    ROW(rounding, "blocks' rounding")                                                              \
    ROW(params, "parameter elements")                                                              \
    ROW(param_list, "parameters' names, shapes and initial values")                                \
    ROW(splits, "parameters' splits")                                                              \
    ROW(seed, "seed")
/* clang-format on */
#define NUMBER(field, name) FIELD_##field,
#define NAME(field, name) name,
enum field { FIELDS(NUMBER) FIELD_COUNT };
static const char *const field_names[FIELD_COUNT] = {FIELDS(NAME)};

struct record {
    int32_t status; /* of this rank's own checks */
    uint32_t driver;
    uint64_t fields[FIELD_COUNT];
};

static uint32_t hash_text(const char *text, uint32_t hash)
{
    return rf_hash32(text, strlen(text) + 1, hash);
}

static uint32_t hash_params(const struct rf_plan *plan)
{
    uint32_t hash = 0;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_param_desc *desc = plan->params[i].desc;
        const float init[2] = {desc->init_std, desc->init_value};
        int32_t ints[4] = {desc->shape.ndim, (int32_t)desc->dtype, (int32_t)desc->flags,
                           plan->params[i].logical};
        hash = hash_text(desc->name, hash);
        hash = rf_hash32(ints, sizeof(ints), hash);
        hash = rf_hash32(init, sizeof(init), hash);
        hash = rf_hash32(desc->shape.dim, (size_t)desc->shape.ndim * sizeof(int64_t), hash);
    }
    return hash;
}

/* Hashes the ranks' elements of all parameters. */
static uint32_t hash_splits(const struct rf_plan *plan)
{
    uint32_t hash = 0;
    for (int i = 0; rf_plan_all_parts(plan) > 1 && i < plan->param_count; i++) {
        const struct rf_split *split = &plan->params[i].cut.split;
        const int32_t ints[] = {(int32_t)split->kind, split->segments, split->unit,
                                (int32_t)split->whole};
        hash = rf_hash32(ints, sizeof(ints), hash);
        hash = rf_hash32(split->sizes, sizeof(split->sizes), hash);
        hash = rf_hash32(&split->lines, sizeof(split->lines), hash);
    }
    return hash;
}

static uint32_t hash_blocks(const struct rf_plan *plan)
{
    uint32_t hash = 0;
    for (int b = 0; b < plan->block_count; b++) {
        hash = hash_text(plan->blocks[b].name, hash);
        struct rf_block_sizes sizes; /* the same on all ranks for the same tensor rank */
        if (rf_plan_sizes_of(plan, &plan->blocks[b], 0, &sizes) < 0)
            continue;
        const int64_t limits[] = {sizes.vocabulary, sizes.classes};
        hash = rf_hash32(sizes.out.dim, (size_t)sizes.out.ndim * sizeof(int64_t), hash);
        hash = rf_hash32(limits, sizeof(limits), hash);
    }
    return hash;
}

static uint32_t hash_rounding(const struct rf_plan *plan)
{
    uint32_t hash = 0;
    for (int b = 0; b < plan->block_count; b++)
        hash = hash_text(plan->blocks[b].rounding ? plan->blocks[b].rounding : "", hash);
    return hash;
}

static uint32_t hash_optimizer(const struct rf_optimizer_opts *o)
{
    const float values[] = {o->beta1,    o->beta2,     o->eps,      o->weight_decay,
                            o->momentum, o->dampening, o->extra[0], o->extra[1]};
    const int32_t choices[] = {(int32_t)o->kind, o->eps_inside, o->no_bias_correction, o->centered,
                               o->stochastic_rounding};
    return rf_hash32(values, sizeof(values), rf_hash32(choices, sizeof(choices), 0));
}

static uint32_t hash_buckets(const struct rf_policy *p)
{
    const uint64_t bytes[] = {p->bucket_bytes, p->first_bucket_bytes};
    return rf_hash32(bytes, sizeof(bytes), 0);
}

static uint32_t hash_pipeline(const struct rf_plan *plan)
{
    const int32_t choices[] = {plan->mesh.pp, (int32_t)plan->policy.pipeline, plan->policy.chunks};
    const uint32_t stages =
        rf_hash32(plan->stage_blocks, (size_t)plan->stage_count * sizeof(*plan->stage_blocks), 0);
    return plan->mesh.pp > 1 ? rf_hash32(choices, sizeof(choices), stages) : 0;
}

/* Hashes the options that decide when parameters are gathered. Ranks may differ in these if no rank
 * gathers: one of them may have less memory. They must not differ in the side (host or device) that
 * computes the update. */
static uint32_t hash_gathers(const struct rf_plan *plan)
{
    const struct rf_policy *p = &plan->policy;
    const int32_t choices[] = {p->keep_gathered, p->no_prefetch, p->recompute,
                               p->offload & ~RF_OFFLOAD_ACTIVATIONS};
    return rf_plan_shards_params(plan) ? rf_hash32(choices, sizeof(choices), 0) : 0;
}

static uint32_t hash_loss_scale(const struct rf_policy *p)
{
    const float values[] = {p->loss_scale, p->loss_scaling.growth, p->loss_scaling.backoff};
    return rf_hash32(values, sizeof(values), p->loss_scaling.interval);
}

static uint32_t hash_compression(const struct rf_compression *c)
{
    return rf_hash32(&c->fraction, sizeof(c->fraction), (uint32_t)(c->form * 1000 + c->rank));
}

#define SET(field, name) f[FIELD_##field] = (uint64_t)policy->field;
static void fill_record(const struct rf_run *run, int local, struct record *out)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_policy *policy = &plan->policy;
    uint32_t clip = 0;
    memcpy(&clip, &policy->clip, sizeof(clip));
    *out = (struct record){.status = local,
                           .driver = hash_text(rf_device_get_info(run->device)->driver, 0)};
    uint64_t *f = out->fields;
    f[FIELD_version] = RF_VERSION_MAJOR * 1000000 + RF_VERSION_MINOR * 1000 + RF_VERSION_PATCH;
    f[FIELD_ranks] = (uint64_t)rf_plan_ranks(plan);
    f[FIELD_tensor] = (uint64_t)plan->mesh.tp;
    f[FIELD_sequence] = plan->mesh.tp > 1 && policy->sequence_parallel;
    f[FIELD_pipeline] = hash_pipeline(plan);
    f[FIELD_context] = (uint64_t)plan->mesh.cp;
    RF_POLICY_EQUAL(SET)
    f[FIELD_shard] = (uint64_t)plan->mesh.shard;
    f[FIELD_gathers] = hash_gathers(plan);
    f[FIELD_offload] = (uint64_t)(policy->offload & RF_OFFLOAD_OPTIMIZER);
    f[FIELD_compress] = hash_compression(&policy->compress);
    f[FIELD_buckets] = hash_buckets(policy);
    f[FIELD_optimizer] = hash_optimizer(&policy->optimizer);
    f[FIELD_clip] = clip;
    f[FIELD_loss_scale] = hash_loss_scale(policy);
    f[FIELD_blocks] = hash_blocks(plan);
    f[FIELD_config] = run->config ? hash_text(run->config, 0) : 0;
    f[FIELD_rounding] = hash_rounding(plan);
    f[FIELD_params] = (uint64_t)plan->logical_elements;
    f[FIELD_param_list] = hash_params(plan);
    f[FIELD_splits] = hash_splits(plan);
    f[FIELD_seed] = run->seed;
}

/* The rank whose value rank r must have. The workspace determines the number of parts of sums: bits
 * of different drivers differ anyway, and a CPU has none by default. */
static int compared_with(const struct record *all, int r, int field)
{
    int other = 0;
    while (field == FIELD_workspace_bytes && all[other].driver != all[r].driver)
        other++;
    return other;
}

static int compare(const struct rf_run *run, const struct record *all, int ranks)
{
    bool mixed = false;
    for (int r = 1; r < ranks; r++) {
        for (int f = 0; f < FIELD_COUNT; f++) {
            const int other = compared_with(all, r, f);
            if (all[r].fields[f] != all[other].fields[f])
                return rf_fail_rank(
                    RF_EMISMATCH, r,
                    "ranks disagree about the run: %s is %llu on rank %d and %llu on "
                    "rank %d (hashes if it is not a number); start all ranks "
                    "with the same model and options",
                    field_names[f], (unsigned long long)all[other].fields[f], other,
                    (unsigned long long)all[r].fields[f], r);
        }
        mixed |= all[r].driver != all[0].driver;
    }
    if (mixed && rf_comm_rank(run->comm) == 0)
        rf_log("train", 0,
               "the ranks' devices or drivers differ: results are not the same to the bit as on "
               "equal devices, and replicas may drift apart in the last bits");
    return 0;
}

int rf_run_agree(struct rf_run *run, int local)
{
    int ranks = run->comm ? rf_comm_size(run->comm) : 1;
    struct record mine;
    if (ranks == 1)
        return local;
    struct record *all = rf_alloc((size_t)ranks * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    const struct rf_error own = *rf_last_error();
    fill_record(run, local, &mine);
    int rc = rf_run_all_gather(run, &mine, all, sizeof(mine), "run open");
    if (rc == 0)
        rc = local < 0 ? rf_fail_error(&own) : compare(run, all, ranks);
    for (int r = 0; rc == 0 && r < ranks; r++)
        if (all[r].status < 0)
            rc = rf_fail_rank(all[r].status, r,
                              "rank %d refused to open the run (%s); its message says why", r,
                              rf_status_text(all[r].status));
    rf_free(all);
    return rc;
}

/* All ranks call this. A rank that is in another collective call detects a mismatch. */
static int sync_call(struct rf_run *run, struct rf_comm *comm, int32_t mine, const char *label)
{
    const int ranks = rf_comm_size(comm);
    const struct rf_coll_desc desc = {.op = RF_COLL_ALL_GATHER,
                                      .rank = rf_comm_rank(comm),
                                      .ranks = ranks,
                                      .count = sizeof(mine),
                                      .dtype = RF_U8,
                                      .order = RF_ORDER_RING};
    struct rf_coll_usage usage;
    RETURN_IF_ERROR(rf_coll_usage(&desc, NULL, RF_USES_SENT, &usage));
    int32_t *all = rf_alloc((size_t)ranks * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = label};
    const int rc = rf_all_gather(comm, &mine, all, sizeof(mine), RF_U8, &opts);
    rf_free(all);
    run->planned_sent += usage.sent_bytes;
    return rc;
}

/* Synchronises the groups in which `list` transfers, except those of `except`, which may be NULL.
 */
static int sync_groups(struct rf_run *run, const struct rf_list *list, const struct rf_list *except,
                       int32_t mine, const char *label)
{
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++) {
        struct rf_comm *comm = run->comms[lane];
        const bool met = except && except->positions[lane] > 0;
        if (comm && comm != run->comm && list->positions[lane] > 0 && !met)
            RETURN_IF_ERROR(sync_call(run, comm, mine, label));
    }
    return 0;
}

int rf_run_begin_call(struct rf_run *run, const char *label)
{
    const struct rf_list *lists = run->plan->lists;
    const struct rf_list *evaluate = &lists[RF_LIST_EVALUATE_ONE];
    int rc = 0;
    if (!run->comm || rf_comm_size(run->comm) == 1)
        return 0;
    /* A rank that evaluates does not enter the other groups of a step. */
    rc = sync_groups(run, evaluate, NULL, 0, label);
    if (rc == 0)
        rc = sync_groups(run, &lists[RF_LIST_STEP], evaluate, 0, label);
    if (rc == 0 && run->plan->mesh.pp > 1) /* messages do not carry the call's name */
        rc = sync_call(run, run->comm, 0, label);
    return rc < 0 ? rf_run_give_up(run, rc) : 0;
}

int rf_run_refuse(struct rf_run *run, int status, enum rf_list_id list)
{
    const struct rf_error own = *rf_last_error();
    if (!run->comm || rf_comm_size(run->comm) == 1)
        return status;
    int rc = sync_groups(run, &run->plan->lists[list], NULL, status, "refused inputs");
    if (rc == 0)
        rc = sync_call(run, run->comm, status, "refused inputs");
    status = rf_fail_error(&own);
    if (rc < 0)
        (void)rf_run_give_up(run, status);
    return rf_fail_error(&own);
}
