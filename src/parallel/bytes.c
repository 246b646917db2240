/* SPDX-License-Identifier: MIT
 *
 * Pass: every region of device memory with its size and category, and the bytes one step sends.
 * What is written here is what train/run.c allocates, so planned and measured bytes are equal.
 */
#include "../base/base.h"
#include "passes.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void set_region(struct rf_plan *plan, int id, enum rf_category category,
                       enum rf_memory memory, uint64_t bytes)
{
    plan->regions[id] =
        (struct rf_plan_region){.category = category, .memory = memory, .bytes = aligned(bytes)};
}

static uint64_t out_bytes(const struct rf_plan *plan, int block)
{
    const struct rf_block_sizes *sizes = &plan->sizes[block];
    return (uint64_t)rf_shape_count(sizes->out) * rf_dtype_bytes(sizes->dtype);
}

static int ask_sizes(struct rf_plan *plan)
{
    plan->sizes = rf_alloc((size_t)plan->block_count * sizeof(*plan->sizes));
    if (!plan->sizes)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int b = 0; b < plan->block_count; b++) {
        const struct rf_block *block = &plan->blocks[b];
        int rc = block->ops->sizes(block->self, plan->rows, plan->policy.seq, &plan->sizes[b]);
        if (rc < 0)
            return rf_fail(rc,
                           "block %s refuses micro-batches of %lld tokens in sequences of %lld "
                           "(%s); use shorter sequences or a model made for them",
                           block->name, (long long)plan->rows, (long long)plan->policy.seq,
                           rf_status_text(rc));
        if (plan->sizes[b].dtype != RF_F32 && plan->sizes[b].dtype != RF_F16 &&
            plan->sizes[b].dtype != RF_BF16)
            return rf_fail(RF_EINVAL, "block %s: its output is %s; use f32, f16 or bf16",
                           block->name, rf_dtype_name(plan->sizes[b].dtype));
        if (rf_shape_count(plan->sizes[b].out) < 1)
            return rf_fail(RF_EINVAL, "block %s: its output has an empty or impossible shape",
                           block->name);
        if (plan->sizes[b].vocabulary < 0 || plan->sizes[b].classes < 0)
            return rf_fail(RF_EINVAL,
                           "block %s: its vocabulary is %lld and its classes are %lld; use 0 for "
                           "what it does not limit",
                           block->name, (long long)plan->sizes[b].vocabulary,
                           (long long)plan->sizes[b].classes);
    }
    return 0;
}

/* Activations of training: every output and saved region lives until its block's backward pass. */
static void plan_activations(struct rf_plan *plan)
{
    uint64_t dout = 0, handoff = 0, saved = 0, out = 0;
    const bool training = !plan->policy.forward_only;
    for (int b = 0; b < plan->block_count; b++) {
        saved = largest(saved, plan->sizes[b].saved);
        out = largest(out, out_bytes(plan, b));
        if (!training)
            continue;
        set_region(plan, RF_REGION_OUT(b), RF_CATEGORY_ACTIVATIONS, RF_MEMORY_DEVICE,
                   out_bytes(plan, b));
        set_region(plan, RF_REGION_SAVED(b), RF_CATEGORY_ACTIVATIONS, RF_MEMORY_DEVICE,
                   plan->sizes[b].saved);
        handoff = largest(handoff, plan->sizes[b].handoff);
        if (b + 1 < plan->block_count) /* the last output carries its own gradient */
            dout = largest(dout, out_bytes(plan, b));
    }
    if (!training) { /* two outputs take turns; saved memory is scratch */
        dout = out;
        set_region(plan, RF_REGION_SAVED(0), RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE, saved);
    }
    set_region(plan, RF_REGION_DOUT0, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_DEVICE, dout);
    set_region(plan, RF_REGION_DOUT1, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_DEVICE, dout);
    set_region(plan, RF_REGION_HANDOFF, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_DEVICE, handoff);
}

uint64_t rf_plan_state_bytes(const struct rf_plan *plan, int shard)
{
    uint64_t elements = 0;
    if (plan->shards == 1)
        return plan->train_elements * sizeof(float);
    for (int k = 0; k < plan->trained_pieces; k++)
        if (plan->pieces[k].use < 0)
            elements += rf_padded(plan->pieces[k].counts[shard]);
    return elements * sizeof(float);
}

static void plan_states(struct rf_plan *plan)
{
    const uint64_t state_bytes = rf_plan_state_bytes(plan, plan->shard);
    const uint64_t rows = (uint64_t)plan->rows * (uint64_t)plan->local_micro_batches;
    uint64_t scratch = 0;

    set_region(plan, RF_REGION_PARAMS, RF_CATEGORY_PARAMS, RF_MEMORY_DEVICE,
               plan->param_elements * sizeof(float));
    set_region(plan, RF_REGION_COPY, RF_CATEGORY_PARAMS, RF_MEMORY_DEVICE,
               plan->copy_type == RF_F32 ? 0 : plan->param_elements * sizeof(uint16_t));
    set_region(plan, RF_REGION_GRADS, RF_CATEGORY_GRADS, RF_MEMORY_DEVICE,
               (uint64_t)plan->slots * plan->slot_elements * sizeof(float));
    for (int i = 0; i < RF_STATE_COUNT; i++) {
        bool has = rf_plan_updates(plan) &&
                   rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)i);
        set_region(plan, RF_REGION_STATE + i, RF_CATEGORY_OPTIMIZER, RF_MEMORY_DEVICE,
                   has ? state_bytes : 0);
    }
    set_region(plan, RF_REGION_TOKENS, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(int32_t));
    set_region(plan, RF_REGION_TARGETS, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(int32_t));
    set_region(plan, RF_REGION_LOSSES, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(float));
    for (int b = 0; b < plan->block_count; b++)
        scratch = largest(scratch, plan->sizes[b].scratch);
    set_region(plan, RF_REGION_SCRATCH, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE, scratch);
    set_region(plan, RF_REGION_WORKSPACE, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               plan->policy.workspace_bytes);
    if (plan->policy.forward_only)
        return;
    set_region(plan, RF_REGION_DECAY, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               plan->train_elements / RF_FLAT_GRAIN * sizeof(uint32_t));
    set_region(plan, RF_REGION_CHUNKS, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               plan->chunk_count * sizeof(struct rf_norm_chunk));
    set_region(plan, RF_REGION_SCALARS, RF_CATEGORY_SCRATCH, RF_MEMORY_HOST,
               sizeof(struct rf_step_scalars));
    set_region(plan, RF_REGION_NORM, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE, sizeof(float));
    set_region(plan, RF_REGION_PARTIALS, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               2 * sizeof(float) * plan->chunk_count);
}

static void sum_memory(struct rf_plan *plan)
{
    uint64_t *const by_category[RF_CATEGORY_COUNT] = {
        [RF_CATEGORY_PARAMS] = &plan->bytes.params,
        [RF_CATEGORY_GRADS] = &plan->bytes.grads,
        [RF_CATEGORY_OPTIMIZER] = &plan->bytes.optimizer,
        [RF_CATEGORY_ACTIVATIONS] = &plan->bytes.activations,
        [RF_CATEGORY_COMM] = &plan->bytes.comm,
        [RF_CATEGORY_SCRATCH] = &plan->bytes.scratch,
    };
    for (int i = 0; i < plan->region_count; i++)
        if (plan->regions[i].bytes)
            *by_category[plan->regions[i].category] += plan->regions[i].bytes;
}

/* Of every transfer in the list of a step. */
static int sum_sent(struct rf_plan *plan)
{
    const struct rf_list *list = &plan->lists[RF_LIST_STEP];
    for (int i = 0; i < list->count; i++) {
        uint64_t sent = 0;
        if (list->instructions[i].transfer < 0)
            continue;
        RETURN_IF_ERROR(
            rf_transfer_sent(plan, &plan->transfers[list->instructions[i].transfer], &sent));
        plan->bytes.sent += sent;
    }
    return 0;
}

int rf_plan_sent_by(const struct rf_plan *plan, int rank, uint64_t *out)
{
    struct rf_plan other = *plan;
    other.rank = rank;
    other.bytes.sent = 0;
    RETURN_IF_ERROR(sum_sent(&other));
    *out = other.bytes.sent;
    return 0;
}

int rf_pass_bytes(struct rf_plan *plan)
{
    RETURN_IF_ERROR(ask_sizes(plan));
    plan->region_count = RF_REGION_FIXED + 2 * plan->block_count;
    plan->regions = rf_alloc((size_t)plan->region_count * sizeof(*plan->regions));
    if (!plan->regions)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d regions", plan->region_count);
    plan_states(plan);
    plan_activations(plan);
    sum_memory(plan);
    return sum_sent(plan);
}
