/* SPDX-License-Identifier: MIT
 *
 * Effects of transfers: the required content on all ranks, and the resulting content on each.
 */
#include "meaning.h"

#include "../../base/base.h"

/* Checks this rank's parts of the forest: each must be complete. */
static int check_parts(const struct rf_at *a)
{
    struct rf_forest_node nodes[62];
    const int parts = rf_forest_nodes(&a->plan->forest, a->plan->dp_rank, nodes);
    if (parts != a->i->ins)
        return rf_check_fail(a->plan, a->i, "sends %d subtrees, not %d", a->i->ins, parts);
    for (int k = 0; k < parts; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct rf_token *t = &a->tokens[value];
        RETURN_IF_ERROR(rf_token_check_whole(a, value));
        if (a->plan->values[value].slot != k || t->low != nodes[k].index << nodes[k].level ||
            t->high != (nodes[k].index + 1) << nodes[k].level)
            return rf_check_fail(a->plan, a->i, "subtree %d is of micro-batches %d to %d", k,
                                 t->low, t->high - 1);
    }
    return 0;
}

/* Checks this rank's sum: over all its micro-batches so far or, in rounds, over the one of this
 * round. */
static int check_local_sum(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const int value = plan->operands[a->i->first_operand];
    const struct rf_token *t = &a->tokens[value];
    if (a->i->ins != 1)
        return rf_check_fail(plan, a->i, "has %d operands", a->i->ins);
    if (plan->round_robin && t->state == RF_TOKEN_ZEROS &&
        plan->local_micro_batches < rf_plan_rounds(plan))
        return 0; /* a round without a micro-batch of this rank */
    RETURN_IF_ERROR(rf_token_check_whole(a, value));
    if (!plan->round_robin &&
        (t->low != rf_plan_micro_batch(plan, 0) ||
         t->high != rf_plan_micro_batch(plan, plan->local_micro_batches - 1) + 1))
        return rf_check_fail(plan, a->i, "has micro-batches %d to %d", t->low, t->high - 1);
    return 0;
}

/* Checks the leaf of this round, and the sums of earlier rounds. */
static int check_round(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const int round = rf_plan_transfer(plan, a->i)->round, dp = plan->mesh.dp;
    const int m = round * dp + plan->dp_rank;
    const bool leaf = m < plan->policy.micro_batches;
    if (round < 0 || round >= rf_plan_rounds(plan) || a->i->ins != leaf + (round > 0))
        return rf_check_fail(plan, a->i, "has %d operands in round %d", a->i->ins, round);
    for (int k = 0; k < a->i->ins; k++) {
        const int value = plan->operands[a->i->first_operand + k];
        const struct rf_token *t = &a->tokens[value];
        const bool sums = plan->values[value].kind == RF_VALUE_GRAD_PART;
        if (sums != (k == leaf))
            return rf_check_fail(plan, a->i, "has operands in another order");
        if (sums)
            RETURN_IF_ERROR(rf_token_demand(a, value, RF_TOKEN_SUM));
        else
            RETURN_IF_ERROR(rf_token_check_whole(a, value));
        if (t->low != (sums ? 0 : m) || t->high != (sums ? round * dp : m + 1))
            return rf_check_fail(plan, a->i, "has micro-batches %d to %d in round %d", t->low,
                                 t->high - 1, round);
    }
    return 0;
}

/* A failed transfer must be known before parameters change. The host blocks in the loss until all
 * earlier transfers have ended, so the loss must still be to come, unless parameters change during
 * the backward pass. */
static int check_reported(const struct rf_at *a)
{
    for (int v = 0; v < a->plan->value_count; v++)
        if (a->plan->values[v].kind == RF_VALUE_SCALARS && a->plan->values[v].slot < 0 &&
            !rf_plan_in_backward(a->plan) && a->tokens[v].state != RF_TOKEN_HELD)
            return rf_check_fail(a->plan, a->i,
                                 "comes after the loss, so its failure would not be reported");
    return 0;
}

/* The operation by which a plan with this policy sums over the ranks of a lane. */
static enum rf_coll_op sum_of(const struct rf_plan *plan, enum rf_lane lane)
{
    const bool tree = plan->policy.order == RF_ORDER_TREE;
    if (lane == RF_LANE_REPLICATE)
        return RF_COLL_ALL_REDUCE;
    if (plan->policy.update_on_rank_0)
        return RF_COLL_REDUCE;
    if (plan->stage >= 2 && tree)
        return RF_COLL_PREFIX_REDUCE_SCATTER;
    if (plan->shards > 1)
        return tree ? RF_COLL_FOREST_REDUCE_SCATTER : RF_COLL_REDUCE_SCATTER;
    return tree ? RF_COLL_FOREST_ALL_REDUCE : RF_COLL_ALL_REDUCE;
}

static int check_counts(const struct rf_at *a, int piece, bool sharded)
{
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    if (piece < 0 || t->count != a->plan->pieces[piece].count)
        return rf_check_fail(a->plan, a->i, "transfers %zu elements", t->count);
    if (t->counts != (sharded ? a->plan->pieces[piece].counts : NULL))
        return rf_check_fail(a->plan, a->i, "has shards of another piece");
    return 0;
}

/* Checks sums of the same shard on ranks with copies of it, each over its own ranks. */
static int check_replicas(const struct rf_at *a, int piece)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    const int value = plan->operands[a->i->first_operand];
    if (a->i->ins != 1 || t->counts || t->count != plan->pieces[piece].counts[plan->shard])
        return rf_check_fail(plan, a->i, "transfers %zu elements", t->count);
    return rf_token_demand(a, value, RF_TOKEN_SUM);
}

static int check_addends(const struct rf_at *a, int piece)
{
    const struct rf_plan *plan = a->plan;
    const enum rf_coll_op op = rf_plan_transfer(plan, a->i)->op;
    if (a->i->lane == RF_LANE_REPLICATE)
        return check_replicas(a, piece);
    RETURN_IF_ERROR(check_counts(a, piece, plan->shards > 1));
    if (op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return check_round(a);
    return plan->policy.order == RF_ORDER_TREE ? check_parts(a) : check_local_sum(a);
}

/* Checks a rank's contribution, and adds it to the group's sum. */
static int bring(const struct rf_at *a, int piece)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    for (int k = 0; k < a->i->ins; k++) {
        const struct rf_value *v = &plan->values[plan->operands[a->i->first_operand + k]];
        const bool shard = v->kind == RF_VALUE_GRAD_SHARD || v->kind == RF_VALUE_GRAD_NARROW_SHARD;
        if (!rf_token_is_sum(v->kind) || (shard && a->i->lane != RF_LANE_REPLICATE) ||
            v->piece != piece)
            return rf_check_fail(plan, a->i, "belongs to another piece than on the first rank");
        if (rf_plan_type(plan, v->kind) != plan->policy.reduce_dtype)
            return rf_check_fail(plan, a->i, "adds gradients of another type");
    }
    RETURN_IF_ERROR(check_reported(a));
    if (t->dtype != plan->policy.reduce_dtype)
        return rf_check_fail(plan, a->i, "adds in another type");
    if (t->op != sum_of(plan, a->i->lane) || t->order != plan->policy.order)
        return rf_check_fail(plan, a->i, "uses another algorithm");
    RETURN_IF_ERROR(check_addends(a, piece));
    for (int k = 0; k < a->i->ins; k++) {
        const int value = plan->operands[a->i->first_operand + k];
        a->m->used[k] = true;
        /* Partial sums belong to the owner and include all ranks, so they are not contributed. */
        for (size_t n = 0; n < rf_token_count_bytes(plan); n++)
            if (plan->values[value].kind != RF_VALUE_GRAD_PART)
                a->m->sum[n] = (uint8_t)(a->m->sum[n] + a->tokens[value].counts[n]);
    }
    return 0;
}

/* Sets a rank's content after the transfer. */
static int take(const struct rf_at *a, int piece)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    const bool root = t->op != RF_COLL_REDUCE || plan->groups[a->i->lane].rank == t->root;
    const bool rounds = t->op == RF_COLL_PREFIX_REDUCE_SCATTER;
    const int parts = rounds ? rf_token_operand(a, true, RF_VALUE_GRAD_PART, -1, -1, piece) : -1;
    const bool passing = plan->stage >= 2 && !rounds && a->i->lane != RF_LANE_REPLICATE;
    const enum rf_value_kind sums = !rf_plan_narrows(plan) ? RF_VALUE_GRAD_SHARD
                                    : plan->shards > 1     ? RF_VALUE_GRAD_NARROW_SHARD
                                                           : RF_VALUE_GRAD_NARROW;
    int out = parts >= 0 ? parts : rf_token_operand(a, true, sums, -1, -1, piece);
    if (out < 0 && passing) /* temporary: of one round */
        out = rf_token_operand(a, true, RF_VALUE_GRAD_PART, -1, -1, piece);
    if (root != (out >= 0))
        return rf_check_fail(plan, a->i,
                             "does not leave the sum where the next instruction expects it");
    const uint8_t *before = NULL;
    for (int k = 0; k < a->i->ins; k++) {
        const int value = plan->operands[a->i->first_operand + k];
        a->m->used[k] = true;
        a->tokens[value].read = true;
        a->tokens[value].state = RF_TOKEN_NOTHING;
        if (plan->values[value].kind == RF_VALUE_GRAD_PART)
            before = a->tokens[value].counts;
    }
    if (!root)
        return 0;
    rf_token_put(a, out, RF_TOKEN_SUM);
    struct rf_token *sum = &a->tokens[out];
    for (size_t n = 0; n < rf_token_count_bytes(plan); n++)
        sum->counts[n] = (uint8_t)(a->m->sum[n] + (before ? before[n] : 0));
    RETURN_IF_ERROR(rf_token_complete(a, out));
    if (rounds) {
        const bool last = t->round + 1 == rf_plan_rounds(plan);
        if (last != (parts < 0))
            return rf_check_fail(plan, a->i, "leaves a sum that no instruction expects");
        sum->low = 0;
        sum->high = last ? (int)plan->policy.micro_batches : (t->round + 1) * plan->mesh.dp;
        sum->state = last ? sum->state : RF_TOKEN_SUM;
    }
    return 0;
}

static int norm_share(const struct rf_at *a)
{
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    enum rf_lane lanes[3];
    const int count = rf_meaning_norm_lanes(a->plan, lanes);
    int at = 0;
    while (at < count && lanes[at] != a->i->lane)
        at++;
    if (t->op != RF_COLL_ALL_REDUCE || t->dtype != RF_I32 || t->counts ||
        t->count != RF_EXACT_WORDS || t->order != RF_ORDER_RING || at == count)
        return rf_check_fail(a->plan, a->i, "transfers %zu elements", t->count);
    RETURN_IF_ERROR(check_reported(a));
    const int in = rf_token_operand(a, false, RF_VALUE_PARTIALS, -1, -1, -1);
    const int out = rf_token_operand(a, true, RF_VALUE_PARTIALS, -1, -1, -1);
    RETURN_IF_ERROR(rf_token_demand(a, in, at == 0 ? RF_TOKEN_OWN_CHUNKS : RF_TOKEN_SHARED));
    if (in != out || (at > 0 && a->tokens[in].shares != at))
        return rf_check_fail(a->plan, a->i, "shares norms in the wrong order of lanes");
    rf_token_put(a, out, at + 1 < count ? RF_TOKEN_SHARED : RF_TOKEN_HELD);
    a->tokens[out].shares = at + 1;
    return 0;
}

static int gather(const struct rf_at *a, int piece)
{
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    if (t->op != RF_COLL_ALL_GATHER || t->order != RF_ORDER_RING)
        return rf_check_fail(a->plan, a->i, "is not a gather");
    const bool copy = t->dtype != RF_F32;
    RETURN_IF_ERROR(check_counts(a, piece, true));
    if (copy && t->dtype != a->plan->copy_type)
        return rf_check_fail(a->plan, a->i, "gathers another type");
    const int shard = rf_token_operand(a, false, copy ? RF_VALUE_COPY_SHARD : RF_VALUE_PARAM_SHARD,
                                       -1, -1, piece);
    const bool units = a->plan->units; /* gathered before use, not after a change */
    const enum rf_token_state state = units ? RF_TOKEN_HELD : RF_TOKEN_UPDATED;
    RETURN_IF_ERROR(rf_token_demand(a, shard, state));
    if (a->tokens[shard].gathered && !units)
        return rf_check_fail(a->plan, a->i, "gathers what is there already");
    const int whole =
        rf_token_operand(a, true, copy ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, -1, piece);
    if (whole < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    rf_token_put(a, whole, state);
    a->tokens[shard].gathered = true;
    return 0;
}

static int loss(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    if (t->op != RF_COLL_ALL_REDUCE || t->dtype != RF_F64 || t->order != RF_ORDER_RING ||
        t->count != rf_plan_loss_elements(plan->policy.micro_batches))
        return rf_check_fail(plan, a->i, "transfers %zu elements", t->count);
    const bool has = rf_plan_has_losses(plan);
    for (int local = 0; has && local < plan->local_micro_batches; local++) {
        const int m = rf_plan_micro_batch(plan, local);
        RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_TARGETS, -1, m, RF_TOKEN_HELD));
        const int losses = rf_token_operand(a, false, RF_VALUE_LOSSES, -1, m, -1);
        RETURN_IF_ERROR(rf_token_demand(a, losses, RF_TOKEN_HELD));
        a->tokens[losses].state = RF_TOKEN_NOTHING; /* read once */
    }
    return plan->policy.forward_only ? 0
                                     : rf_token_write(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_KNOWN);
}

/* Copies the root's state of each value to the other ranks. */
static int broadcast(const struct rf_at *a, const struct rf_at *root)
{
    const bool sends = a->plan->rank == root->plan->rank;
    const int count = sends ? a->i->ins : a->i->outs;
    const int *mine = a->plan->operands + a->i->first_operand + (sends ? 0 : a->i->ins);
    const int *theirs = root->plan->operands + root->i->first_operand;
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    uint64_t bytes = 0;
    if (t->op != RF_COLL_BROADCAST || t->order != RF_ORDER_RING || t->root != 0)
        return rf_check_fail(a->plan, a->i, "is not a broadcast from rank 0");
    if (count != root->i->ins || (sends ? a->i->outs : a->i->ins) != 0)
        return rf_check_fail(a->plan, a->i, "has other operands than the root");
    rf_token_use_all(a);
    for (int k = 0; k < count; k++) {
        const struct rf_value *v = &a->plan->values[mine[k]], *o = &root->plan->values[theirs[k]];
        const enum rf_token_state state = root->tokens[theirs[k]].state;
        if (v->kind != o->kind || v->piece != o->piece ||
            t->dtype != (v->piece >= 0 ? rf_plan_stored_type(a->plan) : RF_U8))
            return rf_check_fail(a->plan, a->i, "has other operands than the root");
        if (state != RF_TOKEN_UPDATED && state != RF_TOKEN_BEGUN && state != RF_TOKEN_SCALED)
            return rf_check_fail(a->plan, a->i, "sends parameters that were not updated");
        bytes += v->bytes;
        if (!sends)
            rf_token_put(a, mine[k], state);
    }
    if (t->count !=
            (t->dtype != RF_U8 ? a->plan->train_elements : sizeof(struct rf_step_scalars)) ||
        t->count * rf_dtype_bytes(t->dtype) > bytes)
        return rf_check_fail(a->plan, a->i, "transfers %zu elements", t->count);
    return 0;
}

static int begin(struct rf_meaning *m, const struct rf_job_group *g, int k, struct rf_at *a)
{
    const int rank = g->members[k];
    *a = (struct rf_at){m, m->plans[rank], g->of_ranks[rank], m->tokens[rank]};
    return rf_token_begin_operands(a);
}

static int reduce(struct rf_meaning *m, const struct rf_job_group *g, int piece)
{
    struct rf_at a;
    memset(m->sum, 0, rf_token_count_bytes(m->plans[0]));
    for (int k = 0; k < g->count; k++) {
        RETURN_IF_ERROR(begin(m, g, k, &a));
        RETURN_IF_ERROR(bring(&a, piece));
    }
    for (int k = 0; k < g->count; k++) {
        RETURN_IF_ERROR(begin(m, g, k, &a));
        RETURN_IF_ERROR(take(&a, piece));
        RETURN_IF_ERROR(rf_token_end_operands(&a));
    }
    return 0;
}

int rf_meaning_transfer(struct rf_meaning *m, const struct rf_job_group *g)
{
    const struct rf_plan *plan = m->plans[g->members[0]];
    const struct rf_instruction *first = g->of_ranks[g->members[0]];
    const struct rf_transfer *t = rf_plan_transfer(plan, first);
    const int piece = first->ins + first->outs > 0
                          ? plan->values[plan->operands[first->first_operand]].piece
                          : -1;
    if (t->root < 0 || t->root >= g->count)
        return rf_check_fail(plan, first, "has root %d of %d ranks", t->root, g->count);
    if ((first->verb == RF_VERB_REDUCE || first->verb == RF_VERB_GATHER) && piece < 0)
        return rf_check_fail(plan, first, "lacks an operand");
    const bool tensor = first->lane == RF_LANE_TENSOR;
    if (first->verb == RF_VERB_REDUCE && !tensor)
        return reduce(m, g, piece);
    const int of = g->members[t->root];
    const struct rf_at root = {m, m->plans[of], g->of_ranks[of], m->tokens[of]};
    for (int k = 0; k < g->count; k++) {
        struct rf_at a;
        RETURN_IF_ERROR(begin(m, g, k, &a));
        RETURN_IF_ERROR(rf_lag_check_steps(&a));
        if (first->verb == RF_VERB_REDUCE) { /* over the tensor ranks */
            if (a.i->ins != 1 ||
                a.plan->values[a.plan->operands[a.i->first_operand]].piece != piece)
                return rf_check_fail(a.plan, a.i,
                                     "belongs to another piece than on the first rank");
            RETURN_IF_ERROR(check_reported(&a));
        }
        RETURN_IF_ERROR(first->verb == RF_VERB_LOSS         ? loss(&a)
                        : first->verb == RF_VERB_REDUCE     ? rf_meaning_tensor_sum(&a)
                        : first->verb == RF_VERB_EXCHANGE   ? rf_meaning_exchange(&a)
                        : first->verb == RF_VERB_NORM_SHARE ? norm_share(&a)
                        : first->verb == RF_VERB_GATHER     ? gather(&a, piece)
                                                            : broadcast(&a, &root));
        RETURN_IF_ERROR(rf_token_end_operands(&a));
    }
    return 0;
}

/* Checks that a message transfers a whole value, and has no fields of collectives. */
static int check_message(const struct rf_at *a, const struct rf_value *v)
{
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    const bool shard = v->piece >= 0;
    const struct rf_block_sizes *sizes = shard ? NULL : &a->plan->sizes[v->block];
    const size_t count = shard ? a->plan->pieces[v->piece].counts[a->plan->shard]
                               : (size_t)rf_shape_count(sizes->out);
    if (t->count != count || t->dtype != (shard ? RF_F32 : sizes->dtype) || t->root != 0 ||
        t->order != RF_ORDER_ANY || t->algorithm || t->round != 0)
        return rf_check_fail(a->plan, a->i, "transfers %zu elements", t->count);
    return 0;
}

/* The receiver's value gets the state of the sender's. Gradients must be the whole sum. */
int rf_meaning_message(struct rf_meaning *m, const struct rf_job_group *g)
{
    const int from = g->members[0], to = g->members[1];
    struct rf_at a = {m, m->plans[from], g->of_ranks[from], m->tokens[from]};
    struct rf_at b = {m, m->plans[to], g->of_ranks[to], m->tokens[to]};
    if (a.i->ins != 1 || a.i->outs != 0 || b.i->ins != 0 || b.i->outs != 1)
        return rf_check_fail(a.plan, a.i, "does not transfer a single value");
    const int sent = a.plan->operands[a.i->first_operand];
    const int got = b.plan->operands[b.i->first_operand];
    const struct rf_value *v = &a.plan->values[sent], *w = &b.plan->values[got];
    const bool sum = v->kind == RF_VALUE_GRAD_SHARD &&
                     (w->kind == RF_VALUE_GRAD_SHARD || w->kind == RF_VALUE_GRAD_TIED);
    if (!sum && (v->kind != w->kind || v->block != w->block || v->micro_batch != w->micro_batch ||
                 v->block != a.i->block || (v->kind != RF_VALUE_OUT && v->kind != RF_VALUE_DOUT)))
        return rf_check_fail(b.plan, b.i, "receives another value than was sent");
    RETURN_IF_ERROR(check_message(&a, v));
    RETURN_IF_ERROR(check_message(&b, w));
    RETURN_IF_ERROR(rf_token_begin_operands(&a));
    rf_token_use_all(&a);
    RETURN_IF_ERROR(rf_lag_check_steps(&a));
    if (sum)
        RETURN_IF_ERROR(check_reported(&a));
    RETURN_IF_ERROR(sum ? rf_meaning_send_shared(&a, sent)
                        : rf_token_demand(&a, sent, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_token_end_operands(&a));
    RETURN_IF_ERROR(rf_token_begin_operands(&b));
    rf_token_use_all(&b);
    if (sum)
        RETURN_IF_ERROR(rf_meaning_take_shared(&b, got, &a, sent));
    else
        rf_token_put(&b, got, RF_TOKEN_HELD);
    rf_lag_mark_steps(&b);
    return rf_token_end_operands(&b);
}
