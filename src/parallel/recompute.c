/* SPDX-License-Identifier: MIT
 *
 * Pass: recomputation (Chen et al. 2016). Blocks are taken together in segments; of a segment only
 * the last output is kept. Before its backward pass its forward passes run once more, with the same
 * operands. What is not kept needs no word here: a value that is written again lives no longer than
 * to its last reader before that. The last segment's backward pass follows at once, so it is kept
 * whole.
 */
#include <math.h>

#include "../base/base.h"
#include "list.h"
#include "passes.h"

static int segment_blocks(const struct rf_plan *plan)
{
    if (plan->policy.recompute != RF_RECOMPUTE_SQRT)
        return plan->policy.recompute;
    const int root = (int)lround(sqrt((double)plan->block_count));
    return root > 1 ? root : 1;
}

static void write_again(struct rf_writer *w, const struct rf_instruction *forward)
{
    rf_write_copy(w, forward);
    if (w->status == 0)
        w->list->instructions[w->list->count - 1].verb = RF_VERB_RECOMPUTE;
}

int rf_pass_recompute(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct rf_writer w = {.plan = plan, .list = &written};
    const int blocks = segment_blocks(plan);
    if (blocks == 0 || plan->policy.forward_only)
        return 0;
    const int last = (plan->block_count - 1) / blocks * blocks; /* where the last segment begins */
    int *forward = rf_alloc((size_t)plan->block_count * sizeof(*forward)); /* of the micro-batch */
    if (!forward)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        const bool ends =
            i->verb == RF_VERB_BACKWARD_INPUT && i->block < last && (i->block + 1) % blocks == 0;
        for (int b = ends ? i->block + 1 - blocks : 0; ends && b <= i->block; b++)
            write_again(&w, &list->instructions[forward[b]]);
        if (i->verb == RF_VERB_FORWARD)
            forward[i->block] = k;
        rf_write_copy(&w, i);
    }
    rf_free(forward);
    return rf_write_end(&w, list);
}
