/* SPDX-License-Identifier: MIT
 *
 * Pass: divides the micro-batches among the data-parallel ranks. Called by build.c. A rank's
 * micro-batches are contiguous, so its gradients are whole subtrees of the pairwise sum. In tree
 * order a part that is one subtree is preferred (4+2+2 rather than 3+3+2 for 8 micro-batches on 3
 * ranks), because it sends half as many partial sums. With sharded gradients micro-batches go to
 * ranks round-robin, so that those of a round are adjacent in the tree.
 */
#include "../../base/base.h"
#include "../../coll/coll.h"
#include "passes.h"

static void even_parts(int *first, int ranks, int64_t leaves)
{
    for (int r = 0; r <= ranks; r++)
        first[r] = (int)(r * (leaves / ranks) + (r < leaves % ranks ? r : leaves % ranks));
}

/* Divides leaves [begin, begin + leaves) of a subtree of `width` (a power of two) leaves over
 * `ranks` ranks, by splitting the ranks between its two halves. */
static void tree_parts(int *first, int ranks, int64_t begin, int64_t leaves, int64_t width)
{
    first[0] = (int)begin;
    if (ranks <= 1)
        return;
    int64_t half = width / 2;
    if (leaves <= half) {
        tree_parts(first, ranks, begin, leaves, half);
        return;
    }
    int64_t right = leaves - half;
    /* Rounded; a tie goes to the right half: 3 ranks on 4+4 leaves are split into 1 and 2. */
    int64_t left_ranks = (2 * ranks * half + leaves - 1) / (2 * leaves);
    if (left_ranks > half)
        left_ranks = half;
    if (ranks - left_ranks > right)
        left_ranks = ranks - right;
    if (left_ranks < 1)
        left_ranks = 1;
    if (left_ranks > ranks - 1)
        left_ranks = ranks - 1;
    tree_parts(first, (int)left_ranks, begin, half, half);
    tree_parts(first + left_ranks, ranks - (int)left_ranks, begin + half, right, half);
}

static int64_t largest_part(const int *first, int ranks)
{
    int64_t largest = 0;
    for (int r = 0; r < ranks; r++)
        if (first[r + 1] - first[r] > largest)
            largest = first[r + 1] - first[r];
    return largest;
}

int rf_pass_partition(struct rf_plan *plan)
{
    int ranks = plan->mesh.dp;
    int64_t leaves = plan->policy.micro_batches;
    int *first = rf_alloc(((size_t)ranks + 1) * sizeof(*first));
    if (!first)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the micro-batches of %d ranks", ranks);
    plan->first_micro_batch = first;
    even_parts(first, ranks, leaves);
    plan->round_robin = plan->stage >= 2;
    if (plan->policy.order == RF_ORDER_TREE && !plan->round_robin) {
        int64_t even = largest_part(first, ranks), width = 1;
        while (width < leaves)
            width *= 2;
        tree_parts(first, ranks, 0, leaves, width);
        first[ranks] = (int)leaves;
        /* Fewer bytes are worth some imbalance, but not more than a third of the slowest rank's
         * time. */
        if (3 * largest_part(first, ranks) > 4 * even)
            even_parts(first, ranks, leaves);
    }
    plan->forest = (struct rf_forest){.leaves = (int)leaves, .ranks = ranks, .first = first};
    plan->most_parts = plan->policy.order == RF_ORDER_TREE && !plan->round_robin
                           ? rf_forest_most_parts(&plan->forest)
                           : 0;
    plan->local_micro_batches = first[plan->dp_rank + 1] - first[plan->dp_rank];
    return 0;
}
