/* SPDX-License-Identifier: MIT
 *
 * Pass: checks that mesh, policy and batch are compatible, and fills in defaults. Every error says
 * what to change.
 */
#include <math.h>

#include "../../base/base.h"
#include "../plan/compress.h"
#include "passes.h"

static int check_mesh(struct rf_plan *plan)
{
    struct rf_mesh *mesh = &plan->mesh;
    if (mesh->dp < 0 || mesh->tp < 0 || mesh->pp < 0 || mesh->shard < 0 || mesh->cp < 0)
        return rf_fail(RF_EINVAL,
                       "mesh dp=%d,tp=%d,pp=%d,shard=%d,cp=%d: sizes must not be negative",
                       mesh->dp, mesh->tp, mesh->pp, mesh->shard, mesh->cp);
    mesh->dp = mesh->dp ? mesh->dp : 1;
    mesh->tp = mesh->tp ? mesh->tp : 1;
    mesh->pp = mesh->pp ? mesh->pp : 1;
    mesh->cp = mesh->cp ? mesh->cp : 1;
    if (mesh->tp > 1 && mesh->cp > 1)
        return rf_fail(RF_ENOTSUP,
                       "mesh tp=%d,cp=%d: tensor and context parallelism together are not in this "
                       "version; use one of the two",
                       mesh->tp, mesh->cp);
    if (plan->policy.zero < 0 || plan->policy.zero > 3)
        return rf_fail(RF_EINVAL, "zero=%d: stages are 0 to 3", plan->policy.zero);
    if (plan->rank < 0 || plan->rank >= rf_plan_ranks(plan))
        return rf_fail(RF_EINVAL,
                       "rank %d is not in a mesh of dp=%d,tp=%d,cp=%d,pp=%d: ranks are 0 to %d",
                       plan->rank, mesh->dp, mesh->tp, mesh->cp, mesh->pp, rf_plan_ranks(plan) - 1);
    plan->tp_rank = plan->rank % rf_plan_tensor_ranks(plan);
    plan->dp_rank = rf_plan_dp_rank_of(plan, plan->rank);
    plan->pp_rank = rf_plan_pp_rank_of(plan, plan->rank);
    return 0;
}

/* Sums over a fixed number of parts form a tree; those of a rank are a subtree. */
static int check_parts(const struct rf_plan *plan)
{
    const int parts = plan->policy.tensor_parts, tp = plan->mesh.tp;
    if (parts == 0)
        return 0;
    if (parts < 0 || (parts & (parts - 1)) != 0 || parts % tp != 0)
        return rf_fail(RF_EINVAL,
                       "tensor_parts %d with tp=%d: use a power of two that is a multiple of tp, "
                       "or 0 for sums over the tensor ranks",
                       parts, tp);
    if (rf_plan_shares_sequences(plan))
        return rf_fail(RF_ENOTSUP,
                       "tensor_parts %d with cp=%d is not in this version; use one of the two",
                       parts, plan->mesh.cp);
    if (plan->policy.sequence_parallel)
        return rf_fail(RF_ENOTSUP,
                       "tensor_parts %d with sequence parallelism is not in this version; use one "
                       "of the two",
                       parts);
    return 0;
}

/* Refuses options that are impossible if ranks share blocks or sequences. */
static int check_tensor(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const char *axis = rf_plan_shares_sequences(plan) ? "cp" : "tp";
    const int ranks = rf_plan_tensor_ranks(plan);
    RETURN_IF_ERROR(check_parts(plan));
    if (ranks == 1)
        return 0;
    if (rf_plan_shares_sequences(plan) && policy->packed)
        return rf_fail(RF_ENOTSUP,
                       "several documents in a sequence with cp=%d are not in this version; leave "
                       "out packing, or use tp",
                       ranks);
    if (policy->update_on_rank_0)
        return rf_fail(RF_EINVAL,
                       "the update on rank 0 alone with %s=%d is not possible: no rank has all "
                       "gradients; update on all ranks",
                       axis, ranks);
    if (rf_plan_shares_sequences(plan) && policy->offload & RF_OFFLOAD_ACTIVATIONS)
        return rf_fail(RF_ENOTSUP,
                       "offload of activations with cp=%d is not in this version; use one of the "
                       "two",
                       ranks);
    return 0;
}

/* Refuses options that are impossible in a pipeline without a flush. */
static int check_lag(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const struct {
        bool asked;
        const char *what;
    } rows[] = {{policy->zero > 0, "sharding (zero)"},
                {plan->mesh.tp > 1, "tensor ranks"},
                {rf_plan_shares_sequences(plan), "context ranks (cp)"},
                {policy->tensor_parts > 1, "blocks in parts (tensor_parts)"},
                {policy->offload != 0, "offload"},
                {policy->recompute != 0, "recomputation"},
                {policy->invert, "inverted blocks"},
                {policy->loss_scale != 0, "a loss scale"},
                {policy->packed, "several documents in a sequence (packing)"},
                {policy->no_masters, "parameters without f32 masters"}};
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        if (rows[k].asked)
            return rf_fail(RF_ENOTSUP,
                           "a pipeline without a flush (2bw) with %s is not in this version; leave "
                           "it out, or use 1f1b",
                           rows[k].what);
    return 0;
}

/* Refuses options that are impossible if blocks are on different ranks. */
static int check_pipeline(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const int pp = plan->mesh.pp;
    if ((unsigned)policy->pipeline >= RF_PIPELINE_COUNT)
        return rf_fail(RF_EINVAL, "pipeline %d: use one of enum rf_pipeline_kind",
                       (int)policy->pipeline);
    if (pp == 1 && policy->pipeline == RF_PIPELINE_2BW && !policy->forward_only)
        return rf_fail(RF_EINVAL, "a pipeline without a flush (2bw) with pp=1 gains nothing, and "
                                  "its weights are one update behind; use pp=2 or more, or 1f1b");
    if (pp == 1)
        return 0;
    if (policy->pipeline == RF_PIPELINE_2BW && !policy->forward_only)
        RETURN_IF_ERROR(check_lag(plan));
    if (policy->update_on_rank_0)
        return rf_fail(RF_EINVAL,
                       "the update on rank 0 alone with pp=%d is not possible: no rank has all "
                       "gradients; update on all ranks",
                       pp);
    return 0;
}

static int check_offload(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const struct rf_mesh *mesh = &plan->mesh;
    if (policy->offload < 0 || policy->offload > (RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS |
                                                  RF_OFFLOAD_GRADS | RF_OFFLOAD_ACTIVATIONS))
        return rf_fail(RF_EINVAL, "offload %d: use RF_OFFLOAD_*, or 0 for nothing",
                       policy->offload);
    if ((policy->offload & RF_OFFLOAD_GRADS) && policy->zero < 2)
        return rf_fail(RF_EINVAL,
                       "offload of gradients with zero=%d: only sharded gradients can be in host "
                       "memory; use zero=2 or 3, or leave it out",
                       policy->zero);
    if ((policy->offload & RF_OFFLOAD_PARAMS) && policy->zero == 1 && mesh->shard > 1)
        return rf_fail(RF_ENOTSUP,
                       "offload of parameters with zero=1 on %d ranks is not in this version; use "
                       "zero=2 or 3, or zero=0",
                       mesh->dp);
    if (policy->disk & ~RF_OFFLOAD_OPTIMIZER)
        return rf_fail(RF_ENOTSUP,
                       "disk %d: only the optimizer's states can be on a disk in this version; use "
                       "RF_OFFLOAD_OPTIMIZER, or 0",
                       policy->disk);
    if (policy->disk & ~policy->offload)
        return rf_fail(RF_EINVAL, "the optimizer's states on a disk without their offload: the "
                                  "host updates them; use RF_OFFLOAD_OPTIMIZER for offload, too");
    if (rf_plan_params_with_host(plan) && policy->update_on_rank_0)
        return rf_fail(RF_EINVAL, "offload with the update on rank 0 alone is not possible; use "
                                  "one of the two, or offload activations only");
    return 0;
}

/* Blocks that the backward pass inverts. The first block has no input of its own, and the last one
 * is never followed by another. */
static int check_invert(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    bool any = false;
    for (int b = 0; b < plan->block_count; b++)
        any = any || plan->blocks[b].ops->invert;
    if (!any)
        return rf_fail(RF_EINVAL,
                       "invert: none of the %d blocks is reversible (rf_block_ops."
                       "invert); leave it out, or use recompute",
                       plan->block_count);
    if (plan->blocks[0].ops->invert || plan->blocks[plan->block_count - 1].ops->invert)
        return rf_fail(RF_EINVAL,
                       "invert: the first and the last block cannot be reversible; begin with one "
                       "that reads tokens, and end with one that computes losses");
    if (policy->recompute != 0 || (policy->offload & RF_OFFLOAD_ACTIVATIONS))
        return rf_fail(RF_EINVAL,
                       "invert with %s: inverted blocks keep nothing that it could save; use one "
                       "of the two",
                       policy->recompute ? "recompute" : "offload of activations");
    return 0;
}

/* The ranks over which data is sharded, and the ranks with copies of the same shards. */
static int check_shards(struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    struct rf_mesh *mesh = &plan->mesh;
    if (mesh->shard > 1 && !policy->zero)
        return rf_fail(
            RF_EINVAL,
            "mesh shard=%d: with zero=0 nothing is sharded; use zero=1, 2 or 3, or leave shard out",
            mesh->shard);
    mesh->shard = mesh->shard ? mesh->shard : policy->zero ? mesh->dp : 1;
    if (mesh->dp % mesh->shard != 0)
        return rf_fail(RF_EINVAL,
                       "mesh dp=%d,shard=%d: shard must divide dp; use shard=%d for one copy on "
                       "all ranks",
                       mesh->dp, mesh->shard, mesh->dp);
    if (policy->zero && mesh->shard < mesh->dp && policy->order == RF_ORDER_TREE)
        return rf_fail(RF_ENOTSUP,
                       "tree order with %d copies of the shards (dp=%d,shard=%d) is not in this "
                       "version; use ring order, or shard=%d",
                       mesh->dp / mesh->shard, mesh->dp, mesh->shard, mesh->dp);
    if ((policy->keep_gathered || policy->no_prefetch) && policy->zero != 3)
        return rf_fail(RF_EINVAL,
                       "zero=%d with %s: parameters are gathered with zero=3 only; use zero=3, or "
                       "leave it out",
                       policy->zero, policy->keep_gathered ? "keep_gathered" : "no_prefetch");
    if (policy->recompute < RF_RECOMPUTE_AUTO)
        return rf_fail(RF_EINVAL,
                       "recompute %d: use 0 for none, 1 for every block, N for every N blocks, "
                       "RF_RECOMPUTE_SQRT or RF_RECOMPUTE_AUTO",
                       policy->recompute);
    return policy->invert ? check_invert(plan) : 0;
}

void rf_plan_form_groups(struct rf_plan *plan)
{
    const int dp = plan->mesh.dp, pp = plan->mesh.pp, tp = rf_plan_tensor_ranks(plan),
              rank = plan->dp_rank;
    const int first = rf_plan_rank_at(plan, plan->pp_rank, 0);
    const bool sharded = !plan->policy.forward_only || plan->policy.zero == 3;
    const int shards = sharded ? plan->mesh.shard : 1;
    plan->stage = shards > 1 ? plan->policy.zero : 0;
    if (plan->stage == 1 && rf_plan_in_backward(plan))
        plan->stage = 2; /* a shard is updated as soon as it is complete */
    plan->shards = shards;
    plan->shard = rank % shards;
    plan->groups[RF_LANE_DATA] = (struct rf_plan_group){first, tp, dp, rank};
    if (tp > 1)
        plan->groups[RF_LANE_TENSOR] =
            (struct rf_plan_group){plan->rank - plan->tp_rank, 1, tp, plan->tp_rank};
    if (pp > 1)
        plan->groups[RF_LANE_PIPELINE] =
            (struct rf_plan_group){rf_plan_rank_at(plan, 0, rank), dp * tp, pp, plan->pp_rank};
    if (pp > 1 || tp > 1)
        plan->groups[RF_LANE_JOB] = (struct rf_plan_group){0, 1, dp * tp * pp, plan->rank};
    plan->shard_lane = RF_LANE_DATA;
    if (shards == 1 || shards == dp)
        return;
    plan->shard_lane = RF_LANE_SHARD;
    plan->groups[RF_LANE_SHARD] =
        (struct rf_plan_group){first + (rank - rank % shards) * tp, tp, shards, rank % shards};
    plan->groups[RF_LANE_REPLICATE] =
        (struct rf_plan_group){first + rank % shards * tp, shards * tp, dp / shards, rank / shards};
}

int rf_plan_check_lag(const struct rf_plan *plan, int64_t least)
{
    if (!rf_plan_lags(plan) || least >= plan->mesh.pp)
        return 0;
    return rf_fail(
        RF_EINVAL,
        "pipeline 2bw: of %lld micro-batches one of %d data-parallel ranks has %lld, but "
        "a pipeline of %d stages needs as many as it has stages; use %d micro-batches or "
        "more, or 1f1b",
        (long long)plan->policy.micro_batches, plan->mesh.dp, (long long)least, plan->mesh.pp,
        plan->mesh.dp * plan->mesh.pp);
}

/* The divisor of `batch` that is nearest to `wanted`, but at least `least`. */
static int64_t nearest_divisor(int64_t batch, int64_t wanted, int64_t least)
{
    for (int64_t d = 0; d <= batch; d++) {
        if (wanted - d >= least && wanted - d >= 1 && batch % (wanted - d) == 0)
            return wanted - d;
        if (wanted + d >= least && wanted + d <= batch && batch % (wanted + d) == 0)
            return wanted + d;
    }
    return batch;
}

static int check_batch(struct rf_plan *plan)
{
    struct rf_policy *policy = &plan->policy;
    long long batch = policy->batch, seq = policy->seq, dp = plan->mesh.dp;
    if (batch < 1 || seq < 1)
        return rf_fail(RF_EINVAL,
                       "a batch of %lld sequences of %lld tokens: both must be at least 1", batch,
                       seq);
    if (batch > INT32_MAX || seq > INT32_MAX || batch > INT32_MAX / seq)
        return rf_fail(
            RF_EINVAL,
            "a batch of %lld sequences of %lld tokens is more than 2147483647 tokens; use "
            "a smaller batch",
            batch, seq);
    if (policy->micro_batches < 0)
        return rf_fail(RF_EINVAL, "%lld micro-batches: must not be negative; 0 means one per rank",
                       (long long)policy->micro_batches);
    bool chosen = policy->micro_batches != 0;
    if (!chosen)
        policy->micro_batches = dp;
    long long m = policy->micro_batches;
    if (batch < dp)
        return rf_fail(RF_EINVAL,
                       "a batch of %lld sequences is too small for dp=%lld: every rank needs at "
                       "least one; use a batch of %lld or more, or dp=%lld or less",
                       batch, dp, dp, batch);
    if (m < dp)
        return rf_fail(RF_EINVAL,
                       "%lld micro-batches are fewer than the %lld data-parallel ranks; use %lld "
                       "micro-batches, or dp=%lld or less",
                       m, dp, (long long)nearest_divisor(batch, dp, dp), m);
    if (batch % m != 0)
        return rf_fail(RF_EINVAL,
                       "a batch of %lld sequences cannot be divided into %lld micro-batches%s; use "
                       "%lld micro-batches, or a batch of %lld",
                       batch, m, chosen ? "" : " (one per rank)",
                       (long long)nearest_divisor(batch, m, dp), (batch + m - 1) / m * m);
    if (rf_plan_shares_sequences(plan) && seq % (2 * plan->mesh.cp) != 0)
        return rf_fail(RF_EINVAL,
                       "sequences of %lld tokens with cp=%d: each rank has two of %d equal chunks "
                       "of a sequence; use a sequence length that %d divides",
                       seq, plan->mesh.cp, 2 * plan->mesh.cp, 2 * plan->mesh.cp);
    plan->rows = batch / m * rf_plan_seq(plan);
    return rf_plan_check_lag(plan, m / dp);
}

/* RF_ZERO stays, because plans of other ranks are built from the policy of a plan. */
static void fill_in(float *option, float otherwise)
{
    if (*option == 0 && !signbit(*option))
        *option = otherwise;
}

static int check_optimizer(struct rf_policy *policy)
{
    struct rf_optimizer_opts *o = &policy->optimizer;
    if ((unsigned)o->kind >= RF_OPTIMIZER_COUNT)
        return rf_fail(RF_EINVAL, "optimizer %d: unknown; use one of enum rf_optimizer",
                       (int)o->kind);
    const struct rf_optimizer_info *info = rf_optimizer_get_info(o->kind);
    fill_in(&o->beta1, info->beta1);
    fill_in(&o->beta2, info->beta2);
    fill_in(&o->eps, info->eps);
    fill_in(&o->momentum, info->momentum);
    for (int i = 0; i < RF_OPTIMIZER_EXTRA; i++)
        fill_in(&o->extra[i], info->extra[i]);
    if (!(o->momentum >= 0 && o->momentum < 1) || !(o->dampening >= 0 && o->dampening <= 1))
        return rf_fail(RF_EINVAL,
                       "optimizer: momentum %g must be in [0, 1), and dampening %g in [0, 1]",
                       o->momentum, o->dampening);
    if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1) || !(o->eps >= 0) ||
        !(o->weight_decay >= 0) || !isfinite(o->weight_decay) || !isfinite(o->eps))
        return rf_fail(
            RF_EINVAL,
            "optimizer: beta1 %g and beta2 %g must be in [0, 1), eps %g and weight decay "
            "%g must not be negative",
            o->beta1, o->beta2, o->eps, o->weight_decay);
    if (policy->state_dtype != RF_F32 && !policy->forward_only &&
        !rf_optimizer_can_store(o, policy->state_dtype))
        return rf_fail(
            RF_ENOTSUP, "states in %s: %s%s cannot store them so; use f32, or another optimizer",
            rf_dtype_name(policy->state_dtype), info->name, o->centered ? " (centered)" : "");
    if (!(policy->clip >= 0) || !isfinite(policy->clip))
        return rf_fail(RF_EINVAL, "clip %g: the largest norm must be positive, or 0 for none",
                       policy->clip);
    return 0;
}

static int check_loss_scale(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const struct rf_block *last = &plan->blocks[plan->block_count - 1];
    if (!(policy->loss_scale >= 0) || !isfinite(policy->loss_scale))
        return rf_fail(RF_EINVAL, "loss scale %g: must be positive, or 0 for none",
                       policy->loss_scale);
    if (policy->loss_scale != 0 && !last->scales_loss)
        return rf_fail(RF_ENOTSUP,
                       "loss scale %g: the last block, %s, does not multiply by it; use 0, or a "
                       "block that does and sets scales_loss",
                       policy->loss_scale, last->name);
    return 0;
}

static int check_reduce_dtype(const struct rf_policy *policy)
{
    const enum rf_dtype type = policy->reduce_dtype;
    if (type != RF_F32 && type != RF_F16 && type != RF_BF16)
        return rf_fail(RF_EINVAL, "reduce_dtype %d: gradients travel as RF_F32, RF_F16 or RF_BF16",
                       (int)type);
    if (type != RF_F32 && policy->order == RF_ORDER_TREE)
        return rf_fail(RF_EINVAL,
                       "reduce_dtype %s in tree order is not possible: tree order has the bits of "
                       "one process, which rounds no gradients; use ring order, or f32",
                       rf_dtype_name(type));
    return 0;
}

/* Refuses what gradients in another form do not go with. */
static int check_compress(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const struct rf_mesh *mesh = &plan->mesh;
    const struct rf_rounds_rule rule = rf_plan_compress_rule(policy);
    const struct {
        bool asked;
        const char *what;
    } rows[] = {{policy->order == RF_ORDER_TREE, "tree order, which has the bits of one process"},
                {policy->zero > 0, "sharding (zero)"},
                {mesh->tp > 1, "tensor ranks (tp)"},
                {mesh->cp > 1, "context ranks (cp)"},
                {mesh->pp > 1, "a pipeline (pp)"},
                {policy->update_on_rank_0, "the update on rank 0 alone"},
                {rf_plan_params_with_host(plan), "parameters in host memory (offload)"},
                {policy->reduce_dtype != RF_F32, "reduce_dtype, another form"},
                {policy->loss_scale != 0, "a loss scale, whose gradients may be infinite"}};
    if (policy->compress.form == RF_FORM_F32 && policy->compress.fraction == 0 &&
        policy->compress.rank == 0)
        return 0;
    RETURN_IF_ERROR(rf_rounds_check(&rule, mesh->dp));
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        if (rows[k].asked)
            return rf_fail(RF_ENOTSUP,
                           "gradients in the form \"%s\" (compress) with %s are not in this "
                           "version; use one of the two",
                           rf_form_name(policy->compress.form), rows[k].what);
    return 0;
}

/* Refuses what an update in the backward pass does not go with. */
static int check_in_backward(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    const struct {
        bool asked;
        const char *what;
    } rows[] = {{policy->clip != 0, "clip, which needs the norm of all gradients before it"},
                {policy->loss_scale != 0, "a loss scale, which may skip the update after it"},
                {plan->mesh.pp > 1, "a pipeline (pp), which has several micro-batches in flight"},
                {policy->update_on_rank_0, "the update on rank 0 alone"},
                {policy->compress.form != RF_FORM_F32, "compress"},
                {(policy->offload & (RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_GRADS)) != 0,
                 "offload of the optimizer or of gradients"}};
    if (!rf_plan_in_backward(plan))
        return 0;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        if (rows[k].asked)
            return rf_fail(RF_ENOTSUP,
                           "update_in_backward with %s is not possible; use one of the two",
                           rows[k].what);
    if (policy->micro_batches != plan->mesh.dp)
        return rf_fail(RF_ENOTSUP,
                       "update_in_backward with %lld micro-batches on %d data-parallel ranks: "
                       "gradients would have to be kept from one micro-batch to the next; use "
                       "micro_batches=%d, or leave it out",
                       (long long)policy->micro_batches, plan->mesh.dp, plan->mesh.dp);
    return 0;
}

int rf_pass_policy(struct rf_plan *plan)
{
    struct rf_policy *policy = &plan->policy;
    RETURN_IF_ERROR(check_mesh(plan));
    RETURN_IF_ERROR(check_shards(plan));
    RETURN_IF_ERROR(check_pipeline(plan));
    RETURN_IF_ERROR(check_tensor(plan));
    RETURN_IF_ERROR(check_offload(plan));
    RETURN_IF_ERROR(check_batch(plan));
    RETURN_IF_ERROR(check_optimizer(policy));
    RETURN_IF_ERROR(check_loss_scale(plan));
    RETURN_IF_ERROR(check_reduce_dtype(policy));
    RETURN_IF_ERROR(check_compress(plan));
    RETURN_IF_ERROR(check_in_backward(plan));
    if (policy->order == RF_ORDER_ANY)
        policy->order = RF_ORDER_RING;
    if (policy->order != RF_ORDER_RING && policy->order != RF_ORDER_TREE)
        return rf_fail(RF_EINVAL, "order %d: unknown; use RF_ORDER_RING or RF_ORDER_TREE",
                       (int)policy->order);
    if (policy->update_on_rank_0 && policy->order == RF_ORDER_TREE)
        return rf_fail(RF_ENOTSUP, "tree order with the update on rank 0 alone is not in this "
                                   "version; use ring order, or update on all ranks");
    if (policy->update_on_rank_0 && policy->zero > 0)
        return rf_fail(RF_EINVAL,
                       "zero=%d with the update on rank 0 alone is not possible: rank 0 would not "
                       "have the states of the other ranks; use zero=0, or update on all ranks",
                       policy->zero);
    rf_plan_form_groups(plan);
    /* A single rank is rank 0 already. */
    policy->update_on_rank_0 = policy->update_on_rank_0 && plan->mesh.dp > 1;
    if (!policy->disk_block_bytes)
        policy->disk_block_bytes = 8u << 20;
    if (!policy->bucket_bytes)
        policy->bucket_bytes = 25u << 20;
    if (!policy->first_bucket_bytes)
        policy->first_bucket_bytes =
            policy->bucket_bytes < (1u << 20) ? policy->bucket_bytes : (1u << 20);
    return 0;
}
