/* SPDX-License-Identifier: MIT
 *
 * Explains in words why an instruction sends: the declaration behind its transfer. A block declares
 * the splits of its parameters and the exchanges of its phases; everything else follows from mesh
 * and policy. Called by users.
 */
#include <stdarg.h>

#include "../../base/base.h"
#include "exchange.h"
#include "plan.h"

struct words {
    char *at;
    size_t left;
};

static void put(struct words *w, const char *format, ...) RF_PRINTF(2, 3);
static void put(struct words *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(w->at, w->left, format, list);
    va_end(list);
    const size_t used = n < 0 ? 0 : (size_t)n < w->left ? (size_t)n : w->left - 1;
    w->at += used;
    w->left -= used;
}

static const char *block_name(const struct rf_plan *plan, int block)
{
    return block >= 0 && block < plan->block_count ? plan->blocks[block].name : "?";
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* The parameters of a piece: the name of the first one and the number of others. */
static void put_piece(struct words *w, const struct rf_plan *plan, int piece)
{
    const char *first = NULL;
    int count = 0;
    for (int k = 0; k < plan->param_count; k++) {
        const bool gradient = plan->params[k].grad_piece == piece;
        if (plan->params[k].owner != k || (!gradient && plan->params[k].piece != piece))
            continue;
        first = first ? first : plan->params[k].desc->name;
        count++;
    }
    put(w, "%s", first ? first : "a tied parameter");
    if (count > 1)
        put(w, " and %d more", count - 1);
}

/* How the block's parameters are split over the tensor ranks. Biases are split like their matrices.
 */
static void put_cuts(struct words *w, const struct rf_plan *plan, int block)
{
    int count = 0;
    for (int k = plan->first_param[block]; k < plan->param_count; k++) {
        const struct rf_plan_param *param = &plan->params[k];
        if (param->block != block)
            break;
        if (param->cut.split.kind == RF_SPLIT_NONE || param->desc->shape.ndim < 2)
            continue;
        put(w, "%s%s by %s", count ? ", " : "", param->desc->name,
            param->cut.split.kind == RF_SPLIT_ROWS ? "rows" : "columns");
        count++;
    }
    if (!count)
        put(w, "no matrix");
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void put_exchange(struct words *w, const struct rf_plan *plan,
                         const struct rf_instruction *i)
{
    static const char *const kinds[] = {[RF_EXCHANGE_SUM] = "sum",
                                        [RF_EXCHANGE_MAX] = "maximum",
                                        [RF_EXCHANGE_GATHER] = "gather",
                                        [RF_EXCHANGE_SCATTER] = "scattered sum"};
    const struct rf_exchange *x = rf_plan_exchange(plan, i->block, rf_call_of(i->call), i->phase);
    const bool rows = x && (x->kind == RF_EXCHANGE_GATHER || x->kind == RF_EXCHANGE_SCATTER);
    put(w, "block %s declares a %s after phase %d of %s", block_name(plan, i->block),
        x ? kinds[x->kind] : "?", i->phase, rf_verb_name(i->call));
    if (rf_plan_cuts_sequences(plan)) {
        put(w, ", as cp=%d cuts sequences, and it reads rows of all ranks", plan->mesh.cp);
        return;
    }
    put(w, "%s; it splits ", rows ? ", as sequence parallelism cuts rows between phases" : "");
    put_cuts(w, plan, i->block);
}

static void put_reduce(struct words *w, const struct rf_plan *plan, const struct rf_instruction *i,
                       int piece)
{
    if (i->lane == RF_LANE_TENSOR && rf_plan_cuts_sequences(plan)) {
        put(w, "cp=%d: ranks have gradients of their own parts of sequences, of ", plan->mesh.cp);
        put_piece(w, plan, piece);
        return;
    }
    if (i->lane == RF_LANE_TENSOR) {
        put(w, "sequence parallelism: tensor ranks have gradients of their own rows, of ");
        put_piece(w, plan, piece);
        put(w, ", not split");
        return;
    }
    if (i->lane == RF_LANE_REPLICATE)
        put(w, "shard=%d of dp=%d: ranks with the same shard add their sums of ", plan->shards,
            plan->mesh.dp);
    else if (plan->stage > 0)
        put(w,
            "zero=%d: ranks have micro-batches of their own, and each keeps a shard of the sum, "
            "of ",
            plan->stage);
    else
        put(w, "dp=%d: ranks have micro-batches of their own, with gradients of ", plan->mesh.dp);
    put_piece(w, plan, piece);
}

static void put_gather(struct words *w, const struct rf_plan *plan, int piece)
{
    if (plan->units)
        put(w, "zero=%d: ranks have shards, and blocks need all, of ", plan->stage);
    else
        put(w, "zero=%d: each rank has updated its shard of ", plan->stage);
    put_piece(w, plan, piece);
}

static void put_share(struct words *w, const struct rf_plan *plan, enum rf_lane lane)
{
    const char *group = rf_plan_cuts_sequences(plan) ? "context ranks" : "tensor ranks";
    put(w, "the norm of all gradients: those that are counted are spread over the %s",
        lane == RF_LANE_TENSOR     ? group
        : lane == RF_LANE_PIPELINE ? "stages"
                                   : "shards");
}

/* A message between stages. i->block is the block of the value. */
static void put_message(struct words *w, const struct rf_plan *plan, const struct rf_instruction *i,
                        const struct rf_value *v)
{
    const bool tied = v->kind != RF_VALUE_OUT && v->kind != RF_VALUE_DOUT;
    if (tied) {
        put(w, "tied parameters are used on several stages: ");
        put_piece(w, plan, v->piece);
        return;
    }
    put(w, "pp=%d: %s of block %s goes from stage to stage, and block %s is on another rank",
        plan->mesh.pp, v->kind == RF_VALUE_OUT ? "the output" : "the gradient of the output",
        block_name(plan, v->block),
        block_name(plan, rf_plan_holds(plan, v->block) ? v->block + 1 : v->block));
}

const char *rf_instruction_reason(const struct rf_plan *plan, const struct rf_instruction *i,
                                  char *text, size_t bytes)
{
    struct words w = {text, bytes};
    text[0] = 0;
    if (i->transfer < 0)
        return text;
    const bool any = i->ins + i->outs > 0;
    const struct rf_value *v = any ? &plan->values[rf_plan_operands(plan, i)[0]] : NULL;
    const int piece = v ? v->piece : -1;
    switch (i->verb) {
    case RF_VERB_EXCHANGE:
        put_exchange(&w, plan, i);
        break;
    case RF_VERB_REDUCE:
        put_reduce(&w, plan, i, piece);
        break;
    case RF_VERB_GATHER:
        put_gather(&w, plan, piece);
        break;
    case RF_VERB_NORM_SHARE:
        put_share(&w, plan, i->lane);
        break;
    case RF_VERB_LOSS:
        put(&w, "losses and token counts are on the ranks that have the micro-batches");
        break;
    case RF_VERB_BROADCAST:
        put(&w, "update on rank 0: the others get what it has updated");
        break;
    default:
        if (v && (i->verb == RF_VERB_SEND || i->verb == RF_VERB_RECV))
            put_message(&w, plan, i, v);
        else
            put(&w, "%s", rf_verb_name(i->verb));
    }
    return text;
}
