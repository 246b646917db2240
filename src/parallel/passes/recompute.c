/* SPDX-License-Identifier: MIT
 *
 * Pass: recomputation (Chen et al. 2016). Consecutive blocks form segments; only the last output of
 * a segment is kept. Its forward passes are repeated before its backward pass, with the same
 * operands. Values that are not kept need no special treatment: a value that is written again lives
 * only to its last reader before that. The last segment is kept whole, because its backward pass
 * follows at once. The number of blocks of a segment may be chosen here, by the sizes of the
 * blocks.
 */
#include <math.h>

#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/list.h"
#include "passes.h"

static uint64_t out_bytes(const struct rf_plan *plan, int block)
{
    const struct rf_block_sizes *sizes = &plan->sizes[block];
    return rf_plan_aligned((uint64_t)rf_shape_count(sizes->out) * rf_dtype_bytes(sizes->dtype));
}

/* The first block that is recomputed: earlier blocks have no backward pass. */
static int first_block(const struct rf_plan *plan)
{
    return plan->first_back < plan->block_count ? plan->first_back : 0;
}

/* The maximum memory of a micro-batch with segments of this many blocks. It includes the outputs of
 * the earlier segments; and of the segment in its backward pass all that was kept or recomputed up
 * to the current block, with the gradients of that block's output and input. For blocks of one unit
 * that keep only their output it is N / K + K units. */
static uint64_t most_bytes(const struct rf_plan *plan, int blocks)
{
    const int count = plan->block_count;
    uint64_t left = 0, most = 0;
    for (int first = first_block(plan), end; first < count; first = end) {
        uint64_t here = left, now;
        end = first + blocks < count ? first + blocks : count;
        for (int b = first; b < end; b++) {
            here += rf_plan_aligned(plan->sizes[b].saved);
            now = here + rf_plan_aligned(plan->sizes[b].saved_for_weight) + out_bytes(plan, b) +
                  (b > 0 ? out_bytes(plan, b - 1) : 0);
            most = now > most ? now : most;
            here += out_bytes(plan, b);
        }
        /* The whole segment is recomputed while the gradient of its output is in memory. */
        now = here + (end < count ? out_bytes(plan, end - 1) : 0);
        most = now > most ? now : most;
        left += out_bytes(plan, end - 1);
    }
    return most;
}

/* The first block of the last segment, which is not recomputed. */
static int last_segment(const struct rf_plan *plan, int blocks)
{
    const int first = first_block(plan);
    return first + (plan->block_count - 1 - first) / blocks * blocks;
}

/* Among the numbers that need the least memory, the one that recomputes the fewest blocks. */
static int least_blocks(const struct rf_plan *plan)
{
    int best = 1;
    uint64_t least = most_bytes(plan, 1);
    for (int blocks = 2; blocks <= plan->block_count - first_block(plan); blocks++) {
        const uint64_t bytes = most_bytes(plan, blocks);
        if (bytes > least ||
            (bytes == least && last_segment(plan, blocks) >= last_segment(plan, best)))
            continue;
        best = blocks;
        least = bytes;
    }
    return best;
}

static int segment_blocks(const struct rf_plan *plan)
{
    if (plan->policy.recompute == RF_RECOMPUTE_AUTO)
        return least_blocks(plan);
    if (plan->policy.recompute != RF_RECOMPUTE_SQRT)
        return plan->policy.recompute;
    const int root = (int)lround(sqrt((double)(plan->block_count - first_block(plan))));
    return root > 1 ? root : 1;
}

/* Outputs of a forward pass that is repeated may be overwritten unread. */
static void allow_unread(struct rf_plan *plan, const struct rf_instruction *forward)
{
    const int *outs = plan->operands + forward->first_operand + forward->ins;
    for (int o = 0; o < forward->outs; o++) {
        struct rf_value *value = &plan->values[outs[o]];
        if (value->kind == RF_VALUE_SAVED || value->kind == RF_VALUE_OUT)
            value->may_stay_unread = true;
    }
}

/* Repeats a call with its exchanges: from its first phase, at `forward`, to its last. */
static void write_repeated(struct rf_writer *w, const struct rf_instruction *forward)
{
    for (const struct rf_instruction *i = forward;; i++) {
        const bool exchange = i->verb == RF_VERB_EXCHANGE;
        if (i->block != forward->block || (!exchange && i->verb != RF_VERB_FORWARD))
            continue; /* of another lane */
        allow_unread(w->plan, i);
        rf_write_copy(w, i);
        if (w->status == 0 && exchange)
            w->list->instructions[w->list->count - 1].call = RF_VERB_RECOMPUTE;
        else if (w->status == 0)
            w->list->instructions[w->list->count - 1].verb = RF_VERB_RECOMPUTE;
        if (!exchange && rf_plan_ends_call(w->plan, i))
            return;
    }
}

/* The first block of a block's segment. A segment is in one pipeline stage. */
static int segment_of(const struct rf_plan *plan, int block, int blocks)
{
    int first = block;
    while (first > first_block(plan) && plan->stage_of[first - 1] == plan->stage_of[block])
        first--;
    return first + (block - first) / blocks * blocks;
}

/* Whether the block is the last of a segment that is recomputed. */
static bool ends(const struct rf_plan *plan, int block, int blocks)
{
    const int next = block + 1;
    return next < plan->block_count &&
           segment_of(plan, next, blocks) != segment_of(plan, block, blocks);
}

int rf_pass_recompute(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct rf_writer w = {.plan = plan, .list = &written};
    const int blocks = plan->policy.recompute = segment_blocks(plan);
    const size_t micro_batches = (size_t)rf_plan_rounds(plan) + (size_t)plan->local_micro_batches;
    if (blocks == 0 || plan->policy.forward_only)
        return 0;
    /* List indices of forward passes, by block and by local micro-batch. All phantoms share an
     * index. */
    int *forward = rf_alloc((size_t)plan->block_count * (micro_batches + 1) * sizeof(*forward));
    if (!forward)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        const int local = i->micro_batch == RF_PHANTOM || i->block < 0
                              ? (int)micro_batches
                              : rf_plan_local(plan, i->micro_batch);
        int *of = forward + (size_t)local * (size_t)plan->block_count;
        const bool again =
            i->verb == RF_VERB_BACKWARD_INPUT && i->phase == 0 && ends(plan, i->block, blocks);
        for (int b = again ? segment_of(plan, i->block, blocks) : 0; again && b <= i->block; b++)
            write_repeated(&w, &list->instructions[of[b]]);
        if (i->verb == RF_VERB_FORWARD && i->phase == 0)
            of[i->block] = k;
        rf_write_copy(&w, i);
    }
    rf_free(forward);
    return rf_write_end(&w, list);
}
