/* SPDX-License-Identifier: MIT
 *
 * Pass: pieces, which are reduced and updated together; in data parallelism they are called
 * buckets. The pass goes through the flat buffer from its front, which backward completes first (Li
 * et al. 2020, PyTorch Distributed). The first bucket is small, so that communication starts early.
 * A bucket exceeds its limit only for a single parameter. Frozen parameters form the last pieces. A
 * piece has one type, so that only that type is gathered. If gradients are sharded, or parameters
 * updated in the backward pass, it belongs to one block, too, and a tied parameter is a piece of
 * its own.
 */
#include "../../base/base.h"
#include "passes.h"

/* Trained pieces are in the order in which backward, from the last block to the first, completes
 * them. */
static void add_piece(struct rf_plan *plan, struct rf_plan_piece piece)
{
    int at = plan->piece_count++;
    while (piece.trained && at > 0 && plan->pieces[at - 1].block < piece.block) {
        plan->pieces[at] = plan->pieces[at - 1];
        at--;
    }
    plan->pieces[at] = piece;
    plan->trained_pieces += piece.trained;
}

/* Whether ranks with other blocks use it, too. */
static bool is_shared(const struct rf_plan *plan, int param)
{
    for (int i = 0; plan->mesh.pp > 1 && i < plan->param_count; i++)
        if (plan->params[i].owner < 0 && plan->params[i].logical == plan->params[param].logical)
            return true;
    return false;
}

/* The elements of the largest part of any tensor rank: the same number on all of them. */
static uint64_t largest_part(const struct rf_plan_param *param)
{
    struct rf_param_cut cut = param->cut;
    const int held = cut.count > 1 ? cut.count : 1;
    uint64_t most = 0;
    for (cut.rank = 0; cut.rank < cut.ranks; cut.rank += held) {
        const uint64_t count = (uint64_t)rf_shape_count(rf_cut_shape(&cut));
        most = count > most ? count : most;
    }
    return most;
}

/* All tensor ranks have the same buckets, even if their parts differ in size. */
static void make_buckets(struct rf_plan *plan, int zone)
{
    struct rf_plan_piece bucket = {.block = -1, .use = -1, .trained = true};
    uint64_t size = 0; /* of the bucket, on the rank where it is largest */
    uint64_t limit = plan->piece_count == 0 ? plan->policy.first_bucket_bytes / sizeof(float)
                                            : plan->policy.bucket_bytes / sizeof(float);
    int before = -1;
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i || param->grad_first == RF_NO_GRAD || rf_plan_zone(plan, i) != zone)
            continue;
        if (bucket.count == 0)
            bucket.first = param->grad_first;
        uint64_t end = param->grad_first + (uint64_t)param->count;
        const bool alone = is_shared(plan, i) ||
                           (bucket.count > 0 && (is_shared(plan, before) ||
                                                 plan->stage_of[param->block] !=
                                                     plan->stage_of[plan->params[before].block]));
        before = i;
        size = rf_plan_padded(plan, size) + largest_part(param);
        if (bucket.count > 0 && (alone || size > limit)) {
            add_piece(plan, bucket);
            size = largest_part(param);
            bucket.first = param->grad_first;
            limit = plan->policy.bucket_bytes / sizeof(float);
        }
        bucket.count = end - bucket.first;
        bucket.block = param->block;
    }
    if (bucket.count > 0)
        add_piece(plan, bucket);
}

static bool is_tied(const struct rf_plan *plan, int param)
{
    for (int i = param + 1; i < plan->param_count; i++)
        if (plan->params[i].owner == param)
            return true;
    return false;
}

static bool is_frozen(const struct rf_plan *plan, int param)
{
    return plan->params[param].grad_first == RF_NO_GRAD;
}

/* Whether a parameter is in the same piece as the next one in memory. */
static bool joins(const struct rf_plan *plan, int param, int before)
{
    return plan->params[param].block == plan->params[before].block && !is_tied(plan, param) &&
           !is_tied(plan, before) && !is_shared(plan, param) && !is_shared(plan, before);
}

static void make_units(struct rf_plan *plan, bool frozen, int zone)
{
    struct rf_plan_piece unit = {.use = -1};
    int before = -1;
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i || is_frozen(plan, i) != frozen || rf_plan_zone(plan, i) != zone)
            continue;
        if (before >= 0 && !joins(plan, i, before)) {
            add_piece(plan, unit);
            before = -1;
        }
        if (before < 0)
            unit = (struct rf_plan_piece){
                .first = param->first, .block = param->block, .use = -1, .trained = !frozen};
        unit.count = param->first + (uint64_t)param->count - unit.first;
        before = i;
    }
    if (before >= 0)
        add_piece(plan, unit);
}

static void make_frozen(struct rf_plan *plan, int zone)
{
    struct rf_plan_piece piece = {.first = UINT64_MAX, .block = -1, .use = -1};
    uint64_t end = 0;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        const uint64_t last = param->first + (uint64_t)param->count;
        if (param->owner != i || !is_frozen(plan, i) || rf_plan_zone(plan, i) != zone)
            continue;
        piece.first = param->first < piece.first ? param->first : piece.first;
        end = last > end ? last : end;
    }
    piece.count = end - piece.first;
    if (end > 0)
        add_piece(plan, piece);
}

/* In ring order the uses of a tied parameter share a gradient. In tree order the result would
 * depend on the ranks, so every use has its own tree. */
static void add_uses(struct rf_plan *plan)
{
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner >= 0 && param->owner != i && param->grad_first != RF_NO_GRAD)
            add_piece(plan, (struct rf_plan_piece){.first = param->grad_first,
                                                   .count = (uint64_t)param->count,
                                                   .block = param->block,
                                                   .use = i,
                                                   .trained = true});
    }
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Uses the start of a chunk of this parameter as the cut if it is nearer to `wanted`; if two are
 * equally near, the lower. */
static void improve_border(uint64_t *border, uint64_t wanted, uint64_t start, uint64_t count)
{
    const uint64_t within = wanted < start           ? 0
                            : wanted - start < count ? wanted - start
                                                     : count - 1;
    for (uint64_t after = 0; after < 2; after++) {
        const uint64_t first = (within / RF_NORM_CHUNK + after) * RF_NORM_CHUNK;
        const uint64_t far = distance(start + first, wanted), least = distance(*border, wanted);
        if (first < count && (far < least || (far == least && start + first < *border)))
            *border = start + first;
    }
}

/* Chunks begin anew in each part of a parameter. Some parts do not begin at a multiple of the
 * grain. */
static void improve_borders(struct rf_plan_piece *piece, uint64_t shards,
                            const struct rf_plan_param *p)
{
    const int parts = p->cut.count > 0 ? p->cut.count : 1;
    const bool whole = p->cut.split.kind == RF_SPLIT_NONE;
    for (int part = 0; part < (whole ? 1 : parts); part++) {
        const struct rf_param_cut one = rf_cut_part(&p->cut, part);
        const uint64_t first = rf_cut_part_first(&p->cut, part);
        for (uint64_t k = 1; first % RF_FLAT_GRAIN == 0 && k < shards; k++)
            improve_border(&piece->borders[k], piece->count * k / shards,
                           p->first + first - piece->first,
                           (uint64_t)rf_shape_count(rf_cut_shape(&one)));
    }
}

/* Makes shards of equal size, except that each begins at the start of a chunk of the norm, or at
 * the end. Then every chunk is in one shard, and every shard begins at a multiple of RF_FLAT_GRAIN.
 */
static void cut_evenly(const struct rf_plan *plan, struct rf_plan_piece *piece)
{
    const uint64_t shards = (uint64_t)plan->shards;
    for (uint64_t k = 1; k < shards; k++)
        piece->borders[k] = 2 * k > shards ? piece->count : 0;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *p = &plan->params[i];
        if (p->owner != i || p->first < piece->first || p->first >= piece->first + piece->count)
            continue;
        improve_borders(piece, shards, p);
    }
    piece->borders[shards] = piece->count;
}

static uint64_t between(uint64_t x, uint64_t first, uint64_t count)
{
    return x < first ? 0 : x - first < count ? x - first : count;
}

/* A tied use is cut at the same places as its owner, because they are added shard by shard. */
static void cut_use(const struct rf_plan *plan, struct rf_plan_piece *piece)
{
    const struct rf_plan_param *owner = &plan->params[plan->params[piece->use].owner];
    const struct rf_plan_piece *whole = &plan->pieces[owner->piece];
    for (int k = 0; k <= plan->shards; k++)
        piece->borders[k] = between(whole->borders[k], owner->first - whole->first, piece->count);
}

static int cut_shards(struct rf_plan *plan, struct rf_plan_piece *piece)
{
    const uint64_t shards = (uint64_t)plan->shards;
    piece->borders = rf_alloc((size_t)(shards + 1) * sizeof(*piece->borders));
    piece->counts = rf_alloc((size_t)shards * sizeof(*piece->counts));
    if (!piece->borders || !piece->counts)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the shards");
    cut_evenly(plan, piece);
    return 0;
}

/* Owners first, then uses. */
static int shard_pieces(struct rf_plan *plan)
{
    for (int k = 0; k < plan->piece_count; k++)
        RETURN_IF_ERROR(cut_shards(plan, &plan->pieces[k]));
    for (int k = 0; k < plan->piece_count; k++) {
        struct rf_plan_piece *piece = &plan->pieces[k];
        if (piece->use >= 0)
            cut_use(plan, piece);
        for (int s = 0; s < plan->shards; s++)
            piece->counts[s] = (size_t)(piece->borders[s + 1] - piece->borders[s]);
    }
    return 0;
}

/* In memory of shards, those with states in 8 bits are first, and those of tied uses, which only
 * gradients have, are last. */
enum { CODED = 0, OTHERS, USES, CLASSES };

static int class_of(const struct rf_plan_piece *piece)
{
    return piece->use >= 0 ? USES : piece->coded ? CODED : OTHERS;
}

/* Places this rank's shards one after the other, by class. Partial sums have the length of the
 * shard without padding, and the highest one is the shard. */
static void place_shards(struct rf_plan *plan)
{
    uint64_t at = 0, part = 0;
    for (int class = 0; class < CLASSES; class ++)
        for (int k = 0; k < plan->piece_count; k++) {
            struct rf_plan_piece *piece = &plan->pieces[k];
            if (class_of(piece) != class)
                continue;
            const uint64_t count = piece->counts[plan->shard];
            piece->shard_first = plan->shards > 1 ? at : piece->first;
            at += rf_plan_padded(plan, count);
            piece->part_first = part;
            if (piece->trained)
                part += rf_plan_padded(plan, count * (uint64_t)(plan->sum_slots - 1)) +
                        rf_plan_padded(plan, count);
        }
}

static bool inside(const struct rf_plan_piece *piece, uint64_t first)
{
    return first >= piece->first && first < piece->first + piece->count;
}

static void assign_params(struct rf_plan *plan)
{
    for (int i = 0; i < plan->param_count; i++) {
        struct rf_plan_param *param = &plan->params[i];
        param->piece = param->grad_piece = -1;
        for (int k = 0; k < plan->piece_count; k++) {
            const struct rf_plan_piece *piece = &plan->pieces[k];
            if (param->owner < 0)
                continue;
            if (piece->use < 0 && inside(piece, param->first))
                param->piece = k;
            if (param->piece == k) {
                plan->pieces[k].bare = param->bare;
                plan->pieces[k].single = param->single;
                plan->pieces[k].coded = rf_plan_coded(plan, i);
            }
            if (param->piece == k && rf_plan_sums_tensor(plan, i))
                plan->pieces[k].sums_tensor = true;
            if (piece->trained && param->grad_first != RF_NO_GRAD &&
                inside(piece, param->grad_first))
                param->grad_piece = k;
        }
    }
}

/* Which operand of a call has a parameter, and which its gradient: those of one piece share one. */
static void number_operands(struct rf_plan *plan, int block)
{
    struct rf_plan_param *params = &plan->params[plan->first_param[block]];
    int next[2] = {0}, next_grad = 0;
    for (int k = 0; k < plan->blocks[block].param_count; k++) {
        const bool narrow = rf_plan_narrow(&params[k]);
        params[k].operand = params[k].grad_operand = -1;
        for (int other = 0; other < k; other++) {
            if (params[other].piece == params[k].piece && rf_plan_narrow(&params[other]) == narrow)
                params[k].operand = params[other].operand;
            if (params[other].grad_piece == params[k].grad_piece)
                params[k].grad_operand = params[other].grad_operand;
        }
        if (params[k].operand < 0)
            params[k].operand = next[narrow]++;
        if (params[k].grad_operand < 0 && params[k].grad_piece >= 0)
            params[k].grad_operand = next_grad++;
    }
}

int rf_pass_pieces(struct rf_plan *plan)
{
    const bool tree = plan->policy.order == RF_ORDER_TREE;
    const bool blocks =
        plan->stage >= 2 || plan->policy.offload & RF_OFFLOAD_PARAMS || rf_plan_in_backward(plan);
    plan->sum_slots = tree && plan->stage >= 2
                          ? rf_prefix_slots((int)plan->policy.micro_batches, plan->mesh.dp)
                          : 1;
    plan->pieces = rf_alloc(((size_t)plan->param_count + 2) * sizeof(*plan->pieces));
    if (!plan->pieces)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    for (int zone = 0; zone < RF_ZONES; zone++)
        if (blocks)
            make_units(plan, false, zone);
        else
            make_buckets(plan, zone);
    if (tree)
        add_uses(plan);
    for (int zone = 0; zone < RF_ZONES; zone++)
        if (blocks)
            make_units(plan, true, zone);
        else
            make_frozen(plan, zone);
    assign_params(plan);
    for (int b = 0; b < plan->block_count; b++)
        number_operands(plan, b);
    RETURN_IF_ERROR(shard_pieces(plan));
    place_shards(plan);
    rf_plan_number_chunks(plan);
    return 0;
}
