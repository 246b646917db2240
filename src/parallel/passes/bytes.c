/* SPDX-License-Identifier: MIT
 *
 * Pass: the size and category of every region of device memory that lives as long as the run. At
 * the end it sums bytes by category, and the bytes that a step sends. train/run.c allocates exactly
 * the regions listed here and in lifetimes.c, so planned and measured bytes are equal.
 */
#include <ringforge/ops.h>

#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/traffic.h"
#include "passes.h"

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void set_region(struct rf_plan *plan, int id, enum rf_category category,
                       enum rf_memory memory, uint64_t bytes)
{
    plan->regions[id] = (struct rf_plan_region){
        .category = category, .memory = memory, .bytes = rf_plan_aligned(bytes)};
}

int rf_plan_sizes_of(const struct rf_plan *plan, const struct rf_block *block, int part,
                     struct rf_block_sizes *out)
{
    const struct rf_block_ops *ops = block->ops;
    struct rf_tensor_part tensor = rf_plan_tensor_part(plan, 0);
    tensor.rank = part;
    *out = (struct rf_block_sizes){0};
    if (rf_plan_shares_sequences(plan) && ops->context_sizes) {
        const struct rf_context_part context = {plan->mesh.cp, part};
        return ops->context_sizes(block->self, &context, plan->rows, rf_plan_seq(plan), out);
    }
    if (tensor.ranks == 1 || !ops->tensor_sizes)
        return ops->sizes(block->self, plan->rows, plan->policy.seq, out);
    return ops->tensor_sizes(block->self, &tensor, plan->rows, plan->policy.seq, out);
}

static int check_exchange(const struct rf_plan *plan, const struct rf_block *block,
                          const struct rf_exchange *x)
{
    const bool parts = x->kind == RF_EXCHANGE_GATHER || x->kind == RF_EXCHANGE_SCATTER;
    if ((unsigned)x->kind > RF_EXCHANGE_SCATTER || rf_shape_count(x->shape) < 1 ||
        (x->dtype != RF_F32 && x->dtype != RF_F16 && x->dtype != RF_BF16) ||
        (x->kind == RF_EXCHANGE_MAX && x->dtype != RF_F32))
        return rf_fail(RF_EINVAL,
                       "block %s: an exchange has a kind of enum rf_exchange_kind, a shape, and "
                       "the type f32, f16 or bf16 (f32 for RF_EXCHANGE_MAX)",
                       block->name);
    if (parts && x->shape.dim[0] % rf_plan_all_parts(plan) != 0)
        return rf_fail(RF_EINVAL,
                       "block %s: %d %s ranks do not divide the %lld rows of an exchange; use "
                       "a %s that does, or other micro-batches",
                       block->name, rf_plan_all_parts(plan),
                       rf_plan_shares_sequences(plan) ? "context" : "tensor",
                       (long long)x->shape.dim[0], rf_plan_shares_sequences(plan) ? "cp" : "tp");
    return 0;
}

static int check_exchanges(const struct rf_plan *plan, int b)
{
    const struct rf_block *block = &plan->blocks[b];
    bool any = false;
    for (int call = RF_CALL_FORWARD; call < RF_CALL_COUNT; call++)
        for (int k = 0; rf_plan_exchange(plan, b, (enum rf_call)call, k); k++) {
            any = true;
            RETURN_IF_ERROR(
                check_exchange(plan, block, rf_plan_exchange(plan, b, (enum rf_call)call, k)));
        }
    if (rf_plan_shares_sequences(plan) && !block->ops->context_sizes)
        return rf_fail(RF_ENOTSUP,
                       "block %s has no context_sizes: with cp=%d every block must define it; use "
                       "cp=1, or a block that has it",
                       block->name, plan->mesh.cp);
    if (any && !rf_plan_shares_sequences(plan) &&
        (rf_plan_all_parts(plan) == 1 || !block->ops->tensor_sizes))
        return rf_fail(RF_EINVAL, "block %s: sizes() returns exchanges; only tensor_sizes() may",
                       block->name);
    if (rf_plan_tensor_part(plan, 0).sequence && !block->ops->tensor_sizes)
        return rf_fail(RF_ENOTSUP,
                       "block %s has no tensor_sizes: with sequence parallelism every block must "
                       "define it; do not use sequence parallelism, or use tp=1",
                       block->name);
    return 0;
}

static int check_sizes(const struct rf_block *block, const struct rf_block_sizes *sizes)
{
    if (sizes->dtype != RF_F32 && sizes->dtype != RF_F16 && sizes->dtype != RF_BF16)
        return rf_fail(RF_EINVAL, "block %s: its output is %s; use f32, f16 or bf16", block->name,
                       rf_dtype_name(sizes->dtype));
    if (rf_shape_count(sizes->out) < 1)
        return rf_fail(RF_EINVAL, "block %s: its output has an empty or impossible shape",
                       block->name);
    if (sizes->vocabulary < 0 || sizes->classes < 0)
        return rf_fail(
            RF_EINVAL,
            "block %s: its vocabulary is %lld and its classes are %lld; use 0 for no limit",
            block->name, (long long)sizes->vocabulary, (long long)sizes->classes);
    return 0;
}

static int ask_part(const struct rf_plan *plan, const struct rf_block *block, int part,
                    struct rf_block_sizes *out)
{
    const uint64_t errors = rf_fail_count();
    const int rc = rf_plan_sizes_of(plan, block, part, out);
    if (rc < 0 && rf_fail_count() != errors)
        return rf_fail(rc, "block %s: %s", block->name, rf_last_error()->message);
    if (rc < 0)
        return rf_fail(rc,
                       "block %s refuses micro-batches of %lld tokens in sequences of %lld (%s); "
                       "use shorter sequences, or a model made for them",
                       block->name, (long long)plan->rows, (long long)plan->policy.seq,
                       rf_status_text(rc));
    return check_sizes(block, out);
}

/* The memory of parts is contiguous, and each part is aligned. Parts use the same scratch in turn.
 */
static void join_parts(struct rf_block_sizes *all, const struct rf_block_sizes *part, bool first)
{
    const uint64_t element = rf_dtype_bytes(part->dtype);
    const uint64_t out = (uint64_t)rf_shape_count(part->out) * element;
    const uint64_t before = first ? 0 : (uint64_t)rf_shape_count(all->out);
    if (first)
        *all = *part;
    all->saved = (first ? 0 : all->saved) + rf_plan_aligned(part->saved);
    all->saved_for_weight =
        (first ? 0 : all->saved_for_weight) + rf_plan_aligned(part->saved_for_weight);
    all->scratch = largest(all->scratch, part->scratch);
    all->out = rf_shape1((int64_t)(before + rf_plan_aligned(out) / element));
}

int rf_pass_sizes(struct rf_plan *plan)
{
    const int parts = rf_plan_parts(plan);
    const size_t blocks = (size_t)plan->block_count;
    plan->sizes = rf_alloc(blocks * sizeof(*plan->sizes));
    plan->part_sizes = rf_alloc(blocks * (size_t)parts * sizeof(*plan->part_sizes));
    if (!plan->sizes || !plan->part_sizes)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int b = 0; b < plan->block_count; b++) {
        struct rf_block_sizes *of_parts = &plan->part_sizes[b * parts];
        for (int k = 0; k < parts; k++) {
            RETURN_IF_ERROR(
                ask_part(plan, &plan->blocks[b], plan->tp_rank * parts + k, &of_parts[k]));
            if (parts > 1)
                join_parts(&plan->sizes[b], &of_parts[k], k == 0);
            else
                plan->sizes[b] = of_parts[k];
        }
        RETURN_IF_ERROR(check_exchanges(plan, b));
    }
    return 0;
}

uint64_t rf_plan_spare_bytes(const struct rf_plan *plan)
{
    uint64_t most = 0;
    for (int b = 0; b < plan->block_count && rf_plan_parts(plan) > 1; b++) {
        const struct rf_plan_param *params = &plan->params[plan->first_param[b]];
        uint64_t bytes = 0;
        for (int k = 0; k < plan->blocks[b].param_count; k++)
            if (params[k].cut.split.kind == RF_SPLIT_NONE &&
                rf_plan_trains(plan, plan->first_param[b] + k))
                bytes += rf_plan_aligned((uint64_t)params[k].count * sizeof(float));
        most = largest(most, bytes);
    }
    return plan->policy.forward_only ? 0 : most;
}

static void plan_states(struct rf_plan *plan)
{
    const uint64_t updated = rf_plan_state_elements(plan, plan->shard);
    const uint64_t steps = rf_plan_lags(plan) ? 2 : 1;
    const uint64_t rows = (uint64_t)plan->rows * (uint64_t)plan->local_micro_batches * steps;
    const uint64_t param_elements = rf_plan_param_elements(plan, plan->shard);
    const int offload = plan->policy.offload;
    const enum rf_memory params =
        rf_plan_params_with_host(plan) ? RF_MEMORY_HOST : RF_MEMORY_DEVICE;
    const enum rf_memory optimizer =
        offload & RF_OFFLOAD_OPTIMIZER ? RF_MEMORY_HOST : RF_MEMORY_DEVICE;
    const enum rf_memory states = rf_plan_states_on_disk(plan) ? RF_MEMORY_DISK : optimizer;
    const enum rf_memory grads =
        plan->stage >= 2 && offload & RF_OFFLOAD_GRADS ? RF_MEMORY_HOST : RF_MEMORY_DEVICE;
    uint64_t scratch = 0;

    set_region(plan, RF_REGION_PARAMS, RF_CATEGORY_PARAMS, params,
               plan->policy.no_masters
                   ? 0
                   : (param_elements - rf_plan_bare_elements(plan, plan->shard)) * sizeof(float));
    set_region(plan, RF_REGION_COPY, RF_CATEGORY_PARAMS, params,
               plan->copy_type == RF_F32
                   ? 0
                   : rf_plan_copy_elements(plan, plan->shard) * sizeof(uint16_t));
    set_region(plan, RF_REGION_GRADS, RF_CATEGORY_GRADS, grads,
               rf_plan_grad_elements(plan, plan->shard) * sizeof(float));
    for (int i = 0; i < RF_PLAN_STATES; i++) {
        bool has = rf_plan_updates(plan) && rf_plan_has_state(plan, i);
        set_region(plan, RF_REGION_STATE + i, RF_CATEGORY_OPTIMIZER, states,
                   has ? rf_plan_state_bytes(plan, i, plan->shard) : 0);
    }
    set_region(plan, RF_REGION_TOKENS, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(int32_t));
    set_region(plan, RF_REGION_TARGETS, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(int32_t));
    set_region(plan, RF_REGION_LOSSES, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               rows * sizeof(float));
    set_region(plan, RF_REGION_STARTS, RF_CATEGORY_ACTIVATIONS, RF_MEMORY_HOST,
               plan->policy.packed ? 2 * rows * sizeof(int32_t) : 0);
    for (int b = 0; b < plan->block_count; b++)
        scratch = largest(scratch, plan->sizes[b].scratch);
    set_region(plan, RF_REGION_SCRATCH, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               rf_plan_aligned(scratch) + rf_plan_spare_bytes(plan));
    set_region(plan, RF_REGION_WORKSPACE, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               plan->policy.workspace_bytes);
    if (plan->policy.forward_only)
        return;
    set_region(plan, RF_REGION_HOST_GRADS, RF_CATEGORY_GRADS, RF_MEMORY_HOST,
               rf_plan_evicts(plan) ? updated * sizeof(float) : 0);
    set_region(plan, RF_REGION_DECAY, RF_CATEGORY_SCRATCH, optimizer,
               updated / RF_FLAT_GRAIN * sizeof(uint32_t));
    set_region(plan, RF_REGION_PLACES, RF_CATEGORY_SCRATCH, optimizer,
               rf_plan_place_words(plan, plan->shard) * sizeof(uint32_t));
    set_region(plan, RF_REGION_CHUNKS, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               plan->chunk_count * sizeof(struct rf_norm_chunk));
    set_region(plan, RF_REGION_COPY_BEFORE, RF_CATEGORY_PARAMS, RF_MEMORY_DEVICE,
               rf_plan_lags(plan) && plan->copy_type != RF_F32
                   ? plan->train_elements * sizeof(uint16_t)
                   : 0);
    set_region(plan, RF_REGION_SCALARS, RF_CATEGORY_SCRATCH, RF_MEMORY_HOST,
               rf_plan_lags(plan) ? RF_SCALARS_COUNT * RF_SCALARS_STRIDE
                                  : sizeof(struct rf_step_scalars));
    set_region(plan, RF_REGION_NORM, RF_CATEGORY_SCRATCH,
               rf_plan_in_backward(plan) ? RF_MEMORY_HOST : RF_MEMORY_DEVICE, sizeof(float));
    set_region(plan, RF_REGION_PARTIALS, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               RF_EXACT_WORDS * sizeof(int32_t));
    set_region(plan, RF_REGION_SQUARES, RF_CATEGORY_SCRATCH, RF_MEMORY_DEVICE,
               rf_plan_squares_bytes(plan->chunk_count));
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
        if (plan->regions[i].memory == RF_MEMORY_DISK) {
            plan->bytes.disk += plan->regions[i].bytes;
        } else if (plan->regions[i].bytes) {
            *by_category[plan->regions[i].category] += plan->regions[i].bytes;
            if (plan->regions[i].memory == RF_MEMORY_HOST)
                plan->bytes.host += plan->regions[i].bytes;
        }
}

/* Whether a rank sends the same number of bytes in both transfers. */
static bool sends_alike(const struct rf_transfer *a, const struct rf_transfer *b)
{
    return a->op == b->op && a->group == b->group && a->count == b->count && a->dtype == b->dtype &&
           a->order == b->order && a->root == b->root && a->round == b->round &&
           a->counts == b->counts && a->algorithm == b->algorithm && a->compressed == b->compressed;
}

/* The bytes of a list's transfers. Those of all micro-batches are equal, so only the last one of
 * each lane and operation is kept. */
struct sent {
    struct rf_transfer transfer;
    uint64_t bytes;
};

int rf_plan_list_sent(const struct rf_plan *plan, enum rf_list_id id, uint64_t *out)
{
    const struct rf_list *list = &plan->lists[id];
    struct sent last[RF_LANE_COUNT][RF_COLL_OP_COUNT] = {0};
    *out = 0;
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        if (i->transfer < 0)
            continue;
        struct rf_transfer t = plan->transfers[i->transfer];
        const bool tensor = t.group == RF_LANE_TENSOR && i->verb == RF_VERB_REDUCE;
        const int of = tensor || t.group == RF_LANE_REPLICATE || t.op == RF_COLL_SEND
                           ? plan->values[plan->operands[i->first_operand]].piece
                           : -1;
        if (of >= 0) /* these transfers of gradients have only this rank's shard */
            t.count = plan->pieces[of].counts[plan->shard];
        struct sent *sent = &last[t.group][t.op];
        if (!sends_alike(&t, &sent->transfer)) {
            RETURN_IF_ERROR(rf_transfer_sent(plan, &t, &sent->bytes));
            sent->transfer = t;
        }
        *out += sent->bytes;
    }
    return 0;
}

uint64_t rf_plan_disk_bytes(const struct rf_plan *plan, const struct rf_instruction *i)
{
    uint64_t bytes = 0;
    for (int k = 0; k < i->ins + i->outs; k++) {
        const struct rf_value *v = &plan->values[plan->operands[i->first_operand + k]];
        bytes += v->bytes && plan->regions[v->region].memory == RF_MEMORY_DISK ? v->bytes : 0;
    }
    return bytes;
}

uint64_t rf_plan_list_disk(const struct rf_plan *plan, enum rf_list_id id)
{
    const struct rf_list *list = &plan->lists[id];
    uint64_t bytes = 0;
    for (int k = 0; k < list->count; k++)
        bytes += rf_plan_disk_bytes(plan, &list->instructions[k]);
    return bytes;
}

int rf_plan_sent_by(const struct rf_plan *plan, int rank, uint64_t *out)
{
    struct rf_plan other = *plan;
    other.rank = rank;
    other.tp_rank = rank % rf_plan_tensor_ranks(plan);
    other.dp_rank = rf_plan_dp_rank_of(plan, rank);
    other.pp_rank = rf_plan_pp_rank_of(plan, rank);
    rf_plan_form_groups(&other);
    return rf_plan_list_sent(&other, RF_LIST_STEP, out);
}

int rf_pass_bytes(struct rf_plan *plan)
{
    plan->region_count = RF_REGION_FIXED;
    plan->regions = rf_alloc((size_t)plan->region_count * sizeof(*plan->regions));
    if (!plan->regions)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d regions", plan->region_count);
    plan_states(plan);
    return 0;
}

int rf_pass_place(struct rf_plan *plan)
{
    for (int i = 0; i < plan->value_count; i++)
        rf_place_value(plan, &plan->values[i]);
    return 0;
}

int rf_pass_sums(struct rf_plan *plan)
{
    sum_memory(plan);
    plan->bytes.disk_moved = rf_plan_list_disk(plan, RF_LIST_STEP);
    return rf_plan_list_sent(plan, RF_LIST_STEP, &plan->bytes.sent);
}
