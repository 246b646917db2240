/* SPDX-License-Identifier: MIT
 *
 * The bytes and the work of all ranks of a mesh. Ranks of one kind have the same memory and, except
 * for the numbers of their micro-batches, the same instructions, so only one of each kind is
 * planned. The bytes that a rank sends are counted for each. Called by users.
 */
#include "../../base/base.h"
#include "../passes/passes.h"
#include "../plan/traffic.h"
#include "simulate.h"

/* The properties that determine the instructions and the memory of a rank, in addition to those
 * common to all ranks. */
struct kind {
    int stage;  /* of the pipeline */
    int tensor; /* the tensor rank that is planned for all of its kind */
    int micro_batches;
    /* In tree order: index of the first micro-batch in a subtree that can hold all of the rank's.
     */
    int place;
    bool updates;
};

struct kinds {
    struct {
        struct kind kind;
        int planned;         /* the rank that is planned for all of its kind */
        int first, last;     /* of its ranks; -1: none so far */
        struct rf_plan *own; /* made here; NULL: none is kept */
    } * all;
    int count, capacity;
    int *next;        /* for each rank: the next of its kind; -1: the last */
    int *tensor_like; /* for each tensor rank: the one that is planned for all of its kind */
    int host_ranks;   /* 0: hosts are ignored */
};

static bool has_equal_sizes(const struct rf_plan *plan, const struct rf_block *block, int a, int b)
{
    const int parts = rf_plan_parts(plan);
    struct rf_block_sizes of_a, of_b;
    bool equal = true;
    for (int k = 0; equal && k < parts; k++)
        equal = rf_plan_sizes_of(plan, block, a * parts + k, &of_a) == 0 &&
                rf_plan_sizes_of(plan, block, b * parts + k, &of_b) == 0 &&
                of_a.saved == of_b.saved && of_a.saved_for_weight == of_b.saved_for_weight &&
                of_a.scratch == of_b.scratch && of_a.dtype == of_b.dtype &&
                rf_shape_equal(of_a.out, of_b.out);
    return equal;
}

/* Whether two tensor ranks have the same amount of all parameters and blocks. Only the first one
 * has losses. */
static bool is_alike(const struct rf_plan *plan, int a, int b)
{
    if (a == b || a == 0 || b == 0)
        return a == b;
    for (int i = 0; i < plan->param_count; i++) {
        struct rf_param_cut of_a = plan->params[i].cut, of_b = of_a;
        of_a.rank = a * rf_plan_parts(plan);
        of_b.rank = b * rf_plan_parts(plan);
        if (!rf_shape_equal(rf_cut_shape(&of_a), rf_cut_shape(&of_b)))
            return false;
    }
    for (int k = 0; k < plan->block_count; k++)
        if (!has_equal_sizes(plan, &plan->blocks[k], a, b))
            return false;
    return true;
}

/* Whether the groups of all tensor ranks are spread over hosts in the same way. */
static bool fits_hosts(const struct kinds *kinds, int tensor_ranks)
{
    const int host = kinds->host_ranks;
    return host == 0 || host % tensor_ranks == 0 || tensor_ranks % host == 0;
}

/* The same tensor ranks are planned in all stages and for all data-parallel ranks, so that they
 * belong to the same groups and messages. The given plan's own tensor rank is one of them. */
static int open_kinds(struct kinds *kinds, const struct rf_plan *plan)
{
    kinds->tensor_like = rf_alloc((size_t)rf_plan_tensor_ranks(plan) * sizeof(*kinds->tensor_like));
    if (!kinds->tensor_like)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d tensor ranks",
                       rf_plan_tensor_ranks(plan));
    for (int k = 0; k < rf_plan_tensor_ranks(plan); k++) {
        int like = fits_hosts(kinds, rf_plan_tensor_ranks(plan)) ? 0 : k;
        if (like == 0 && is_alike(plan, plan->tp_rank, k))
            like = plan->tp_rank;
        else
            while (like < k && (kinds->tensor_like[like] != like || !is_alike(plan, like, k)))
                like++;
        kinds->tensor_like[k] = like;
    }
    return 0;
}

static struct kind kind_of(const struct kinds *kinds, const struct rf_plan *plan, int rank)
{
    const int dp_rank = rf_plan_dp_rank_of(plan, rank), first = plan->first_micro_batch[dp_rank];
    struct kind kind = {.stage = rf_plan_pp_rank_of(plan, rank),
                        .tensor = kinds->tensor_like[rank % rf_plan_tensor_ranks(plan)],
                        .micro_batches = plan->first_micro_batch[dp_rank + 1] - first,
                        .updates = !plan->policy.update_on_rank_0 || rank == 0};
    int64_t width = 1;
    while (width < kind.micro_batches)
        width *= 2;
    if (plan->policy.order == RF_ORDER_TREE)
        kind.place = (int)(first % width);
    return kind;
}

static int find(const struct kinds *kinds, struct kind kind)
{
    for (int i = kinds->count - 1; i >= 0; i--) {
        const struct kind *other = &kinds->all[i].kind;
        if (other->stage == kind.stage && other->tensor == kind.tensor &&
            other->micro_batches == kind.micro_batches && other->place == kind.place &&
            other->updates == kind.updates)
            return i;
    }
    return -1;
}

static int remember(struct kinds *kinds, struct kind kind, int planned)
{
    if (kinds->count == kinds->capacity) {
        const int capacity = kinds->capacity ? 2 * kinds->capacity : 8;
        void *grown = rf_realloc(kinds->all, (size_t)capacity * sizeof(*kinds->all));
        if (!grown)
            return rf_fail(RF_ENOMEM, "plan: out of memory for %d kinds of ranks", capacity);
        kinds->all = grown;
        kinds->capacity = capacity;
    }
    const int at = kinds->count++;
    kinds->all[at].kind = kind;
    kinds->all[at].planned = planned;
    kinds->all[at].first = kinds->all[at].last = -1;
    kinds->all[at].own = NULL;
    return 0;
}

/* Finds the kinds of all ranks. The first is that of the given plan. */
static int find_kinds(struct kinds *kinds, const struct rf_plan *plan)
{
    const int ranks = rf_plan_ranks(plan);
    RETURN_IF_ERROR(open_kinds(kinds, plan));
    kinds->next = rf_alloc((size_t)ranks * sizeof(*kinds->next));
    if (!kinds->next)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d ranks", ranks);
    RETURN_IF_ERROR(remember(kinds, kind_of(kinds, plan, plan->rank), plan->rank));
    for (int rank = 0; rank < ranks; rank++) {
        const struct kind kind = kind_of(kinds, plan, rank);
        int at = find(kinds, kind);
        if (at < 0) {
            RETURN_IF_ERROR(
                remember(kinds, kind, rank - rank % rf_plan_tensor_ranks(plan) + kind.tensor));
            at = kinds->count - 1;
        }
        if (kinds->all[at].last >= 0)
            kinds->next[kinds->all[at].last] = rank;
        else
            kinds->all[at].first = rank;
        kinds->all[at].last = rank;
        kinds->next[rank] = -1;
    }
    return 0;
}

/* Plans the first rank of a kind. */
static int plan_kind(const struct kinds *kinds, const struct rf_plan *plan, int at,
                     struct rf_plan **out)
{
    return rf_plan_build((struct rf_blocks){plan->blocks, plan->block_count}, &plan->mesh,
                         &plan->policy, kinds->all[at].planned, out);
}

/* Every rank has its own shards: adds their bytes or, before another rank's are added, subtracts
 * them. */
static void add_shards(const struct rf_plan *plan, int shard, bool take, struct rf_bytes *bytes)
{
    const uint64_t sign = take ? UINT64_MAX : 1;
    const uint64_t updated = rf_plan_state_elements(plan, shard);
    const uint64_t params = rf_plan_param_elements(plan, shard);
    const uint64_t copy = plan->copy_type == RF_F32 ? 0 : sizeof(uint16_t);
    const struct rf_bytes before = *bytes;
    uint64_t *states = rf_plan_states_on_disk(plan) ? &bytes->disk : &bytes->optimizer;
    for (int k = 0; k < RF_PLAN_STATES && !plan->policy.forward_only; k++) {
        const uint64_t state = rf_plan_has_state(plan, k) ? rf_plan_state_bytes(plan, k, shard) : 0;
        *states += sign * rf_plan_aligned(state);
        bytes->disk_moved += rf_plan_states_on_disk(plan) ? sign * 2 * state : 0;
    }
    const uint64_t copies = rf_plan_copy_elements(plan, shard);
    const uint64_t masters =
        plan->policy.no_masters ? 0 : params - rf_plan_bare_elements(plan, shard);
    bytes->params +=
        sign * (rf_plan_aligned(masters * sizeof(float)) + rf_plan_aligned(copies * copy));
    if (rf_plan_params_with_host(plan))
        bytes->host += bytes->params - before.params;
    if (plan->policy.forward_only)
        return;
    const uint64_t grads = rf_plan_aligned(rf_plan_grad_elements(plan, shard) * sizeof(float));
    const uint64_t evicted = rf_plan_evicts(plan) ? rf_plan_aligned(updated * sizeof(float)) : 0;
    bytes->grads += sign * (grads + evicted);
    const uint64_t chunks = rf_plan_chunks(plan, shard);
    const uint64_t decay = rf_plan_aligned(updated / RF_FLAT_GRAIN * sizeof(uint32_t)) +
                           rf_plan_aligned(rf_plan_place_words(plan, shard) * sizeof(uint32_t));
    bytes->scratch += sign * (decay + rf_plan_aligned(chunks * sizeof(struct rf_norm_chunk)) +
                              rf_plan_aligned(rf_plan_squares_bytes(chunks)));
    bytes->host += sign * evicted;
    if (plan->stage >= 2 && plan->policy.offload & RF_OFFLOAD_GRADS)
        bytes->host += sign * grads;
    if (plan->policy.offload & RF_OFFLOAD_OPTIMIZER)
        bytes->host += bytes->optimizer - before.optimizer + sign * decay;
}

/* Fills the entries of all ranks of a kind, one of which has the plan `like`. */
static int fill_kind(const struct kinds *kinds, int at, const struct rf_plan *like,
                     const struct rf_block_cost *costs, struct rf_bytes *bytes,
                     struct rf_work *work)
{
    struct rf_bytes planned;
    struct rf_work planned_work = {0};
    rf_plan_bytes(like, &planned);
    if (work && costs)
        rf_plan_work(like, costs, &planned_work);
    for (int rank = kinds->all[at].first; rank >= 0; rank = kinds->next[rank]) {
        bytes[rank] = planned;
        if (like->shards > 1) {
            add_shards(like, like->shard, true, &bytes[rank]);
            add_shards(like, rf_plan_dp_rank_of(like, rank) % like->shards, false, &bytes[rank]);
        }
        if (work)
            work[rank] = planned_work;
        RETURN_IF_ERROR(rf_plan_sent_by(like, rank, &bytes[rank].sent));
    }
    return 0;
}

/* Keeps one plan at a time: a pipeline has as many kinds as stages. */
static int fill(struct kinds *kinds, const struct rf_plan *plan, const struct rf_block_cost *costs,
                struct rf_bytes *bytes, struct rf_work *work)
{
    RETURN_IF_ERROR(find_kinds(kinds, plan));
    RETURN_IF_ERROR(fill_kind(kinds, 0, plan, costs, bytes, work));
    for (int at = 1; at < kinds->count; at++) {
        struct rf_plan *own = NULL;
        RETURN_IF_ERROR(plan_kind(kinds, plan, at, &own));
        const int rc = fill_kind(kinds, at, own, costs, bytes, work);
        rf_plan_destroy(own);
        RETURN_IF_ERROR(rc);
    }
    return 0;
}

static void kinds_close(struct kinds *kinds)
{
    for (int i = 0; i < kinds->count; i++)
        rf_plan_destroy(kinds->all[i].own);
    rf_free(kinds->next);
    rf_free(kinds->tensor_like);
    rf_free(kinds->all);
}

int rf_plan_all_ranks(const struct rf_plan *plan, const struct rf_block_cost *costs,
                      struct rf_bytes *bytes, struct rf_work *work)
{
    struct kinds kinds = {0};
    int rc = fill(&kinds, plan, costs, bytes, work);
    kinds_close(&kinds);
    return rc;
}

int rf_plan_other_kinds(const struct rf_plan *plan, int host_ranks, struct rf_plan ***others,
                        int *count)
{
    struct kinds kinds = {.host_ranks = host_ranks};
    int rc = find_kinds(&kinds, plan);
    for (int at = 1; rc == 0 && at < kinds.count; at++)
        rc = plan_kind(&kinds, plan, at, &kinds.all[at].own);
    struct rf_plan **all = rc < 0 ? NULL : rf_alloc((size_t)kinds.count * sizeof(*all));
    if (rc == 0 && !all)
        rc = rf_fail(RF_ENOMEM, "plan: out of memory for %d kinds of ranks", kinds.count);
    for (int i = 1; rc == 0 && i < kinds.count; i++) {
        all[i - 1] = kinds.all[i].own;
        kinds.all[i].own = NULL;
    }
    if (rc == 0) {
        *others = all;
        *count = kinds.count - 1;
    }
    kinds_close(&kinds);
    return rc;
}
