/* SPDX-License-Identifier: MIT
 *
 * The part of a model on each rank of a pipeline, and the memory of a micro-batch there: sums over
 * its blocks, from which search_bytes.c and search_time.c evaluate thousands of candidates.
 */
#include "../../base/base.h"
#include "search.h"

/* The rank that has a block. */
static int home_of(const struct rf_search_ranks *r, int block)
{
    int stage = 0;
    while (r->stages[stage].end <= block)
        stage++;
    return r->stages[stage].home;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static bool same_rank(const struct rf_search_ranks *r, int block, int other)
{
    return home_of(r, block) == home_of(r, other);
}

/* Bytes of a parameter in the type that blocks see. */
static uint64_t seen_bytes(const struct rf_search_param *param)
{
    return param->count * (param->narrow ? 2 : 4);
}

static void add_param(const struct rf_search_view *view, struct rf_search_ranks *r, int at)
{
    const struct rf_search_param *param = &view->params[at];
    struct rf_search_rank *rank = &r->ranks[home_of(r, param->block)];
    bool first = true, elsewhere = false;
    for (int k = 0; k < view->param_count; k++) {
        const bool tied = view->params[k].logical == param->logical && k != at;
        if (!tied)
            continue;
        const bool here = same_rank(r, view->params[k].block, param->block);
        first = first && !(here && k < at);
        elsewhere = elsewhere || !here;
    }
    if (!first)
        return;
    rank->all += param->count;
    rank->narrow += param->narrow ? param->count : 0;
    rank->bare += param->bare ? param->count : 0;
    rank->single += param->single ? param->count : 0;
    rank->trained += param->trained ? param->count : 0;
    rank->coded += param->coded ? param->count : 0;
    rank->chunks += param->trained ? param->chunks : 0;
    rank->tied += elsewhere && param->trained ? param->count : 0;
    rank->summed += param->summed && param->trained ? param->count : 0;
}

/* The parameters of two consecutive blocks, and their gradients. With one stage no other block
 * precedes the first. */
static void find_units(const struct rf_search_view *view, struct rf_search_ranks *r)
{
    const int blocks = view->model->block_count;
    uint64_t params_before = 0, grads_before = 0;
    for (int b = 0, at = 0; b < blocks; b++) {
        uint64_t params = 0, grads = 0;
        for (; at < view->param_count && view->params[at].block == b; at++) {
            params += seen_bytes(&view->params[at]);
            grads += view->params[at].trained ? 4 * view->params[at].count : 0;
        }
        struct rf_search_rank *rank = &r->ranks[home_of(r, b)];
        if (b > 0 && !same_rank(r, b, b - 1))
            params_before = grads_before = 0;
        if (params + params_before > rank->unit_params)
            rank->unit_params = params + params_before;
        if (grads + grads_before > rank->unit_grads)
            rank->unit_grads = grads + grads_before;
        rank->last_params = params;
        params_before = params;
        grads_before = grads;
    }
}

static int cut_stages(const struct rf_search_view *view, struct rf_search_ranks *r)
{
    const int stages = rf_pipeline_stages(&r->pipeline);
    int *first = rf_alloc(((size_t)stages + 1) * sizeof(*first));
    r->stages = rf_alloc((size_t)stages * sizeof(*r->stages));
    int rc = first && r->stages
                 ? rf_pipeline_split(&r->pipeline, NULL, view->model->block_count, first)
                 : rf_fail(RF_ENOMEM, "search: out of memory for %d stages", stages);
    for (int k = 0; rc == 0 && k < stages; k++)
        r->stages[k] = (struct rf_search_stage){first[k], first[k + 1],
                                                rf_pipeline_rank_of(&r->pipeline, k), 0, 0};
    rf_free(first);
    return rc;
}

int rf_search_ranks_open(const struct rf_search_view *view, const struct rf_pipeline *pipeline,
                         struct rf_search_ranks *out)
{
    *out = (struct rf_search_ranks){.pipeline = *pipeline};
    RETURN_IF_ERROR(rf_pipeline_check(&out->pipeline));
    out->ranks = rf_alloc((size_t)out->pipeline.ranks * sizeof(*out->ranks));
    if (!out->ranks)
        return rf_fail(RF_ENOMEM, "search: out of memory for %d ranks", out->pipeline.ranks);
    RETURN_IF_ERROR(cut_stages(view, out));
    for (int k = 0; k < view->param_count; k++)
        add_param(view, out, k);
    find_units(view, out);
    for (int k = 1; k < out->pipeline.ranks; k++)
        if (out->ranks[k].trained > out->ranks[out->heaviest].trained)
            out->heaviest = k;
    return 0;
}

void rf_search_ranks_close(struct rf_search_ranks *r)
{
    rf_free(r->ranks);
    rf_free(r->stages);
    *r = (struct rf_search_ranks){0};
}

/* ---- a micro-batch --------------------------------------------------------------------------- */

/* A stage, block by block: the memory that it keeps, and the maximum in use at once (recompute.c).
 */
static void load_stage(const struct rf_search_block *blocks, int count, int segment,
                       struct rf_search_stage *stage, struct rf_search_rank *rank)
{
    const int end = stage->end, length = segment > 0 ? segment : end - stage->first;
    uint64_t kept = 0, most = 0, delayed = 0;
    for (int begin = stage->first; begin < end; begin += length) {
        const int stop = begin + length < end ? begin + length : end;
        const bool again = segment > 0 && stop < count;
        uint64_t here = kept;
        for (int b = begin; b < stop; b++) {
            here += blocks[b].in + blocks[b].saved;
            const uint64_t now = here + blocks[b].out + blocks[b].saved_for_weight + blocks[b].in +
                                 blocks[b].exchange;
            most = now > most ? now : most;
            delayed += blocks[b].saved_for_weight + blocks[b].out;
            rank->again_s += again ? blocks[b].forward_s : 0;
            rank->exchanged += again ? blocks[b].sent_forward : 0;
        }
        /* The whole segment is recomputed while the gradient of its output is in memory. */
        most = here + blocks[stop - 1].out > most ? here + blocks[stop - 1].out : most;
        delayed += again ? here - kept - blocks[begin].in : 0;
        kept = again ? kept + blocks[begin].in : here;
    }
    stage->kept = kept;
    stage->delayed = delayed;
    if (most - kept > rank->working)
        rank->working = most - kept;
}

static void add_times(const struct rf_search_block *block, struct rf_search_rank *rank)
{
    rank->forward_s += block->forward_s;
    rank->input_s += block->input_s;
    rank->weight_s += block->weight_s;
    rank->exchanged += block->sent_forward + block->sent_back;
}

static void clear_load(struct rf_search_rank *rank)
{
    const struct rf_search_rank params = *rank;
    *rank = (struct rf_search_rank){.all = params.all,
                                    .narrow = params.narrow,
                                    .trained = params.trained,
                                    .tied = params.tied,
                                    .summed = params.summed,
                                    .coded = params.coded,
                                    .unit_params = params.unit_params,
                                    .unit_grads = params.unit_grads,
                                    .last_params = params.last_params};
}

static void load_stages(const struct rf_search_view *view, const struct rf_search_block *blocks,
                        int recompute, struct rf_search_ranks *r)
{
    const int count = view->model->block_count, stages = rf_pipeline_stages(&r->pipeline);
    for (int k = 0; k < stages; k++) {
        struct rf_search_stage *stage = &r->stages[k];
        struct rf_search_rank *rank = &r->ranks[stage->home];
        uint64_t before = 0;
        load_stage(blocks, count, recompute, stage, rank);
        for (int b = stage->first; b < stage->end; b++) {
            const uint64_t visit = blocks[b].in + blocks[b].saved;
            add_times(&blocks[b], rank);
            rank->visits = visit + before > rank->visits ? visit + before : rank->visits;
            before = visit;
            r->scratch = blocks[b].scratch > r->scratch ? blocks[b].scratch : r->scratch;
        }
        if (k > 0 && r->stages[k - 1].home != stage->home)
            rank->from_before += blocks[stage->first].in;
        if (k + 1 < stages && r->stages[k + 1].home != stage->home)
            rank->to_next += blocks[stage->end - 1].out;
    }
}

/* ---- micro-batches in flight ----------------------------------------------------------------- */

struct in_flight {
    int kept, most_kept;       /* after forward, before the end of backward weight */
    int delayed, most_delayed; /* after backward input, before the next call has ended */
};

/* Follows the calls of a rank. Its chunks do not share memory (lifetimes.c), so each is counted
 * separately. A weight half that follows at once is not delayed. */
static void follow(const struct rf_pipeline_call *calls, int count, struct in_flight *in_flight)
{
    for (int k = 0; k < count; k++) {
        struct in_flight *f = &in_flight[calls[k].chunk];
        const bool next = k + 1 < count && calls[k + 1].verb == RF_VERB_BACKWARD_WEIGHT &&
                          calls[k + 1].chunk == calls[k].chunk &&
                          calls[k + 1].micro_batch == calls[k].micro_batch;
        const bool before = k > 0 && calls[k - 1].verb == RF_VERB_BACKWARD_INPUT &&
                            calls[k - 1].chunk == calls[k].chunk &&
                            calls[k - 1].micro_batch == calls[k].micro_batch;
        f->kept += (calls[k].verb == RF_VERB_FORWARD) - (calls[k].verb == RF_VERB_BACKWARD_WEIGHT);
        f->delayed += (calls[k].verb == RF_VERB_BACKWARD_INPUT && !next) -
                      (calls[k].verb == RF_VERB_BACKWARD_WEIGHT && !before);
        f->most_kept = f->kept > f->most_kept ? f->kept : f->most_kept;
        f->most_delayed = f->delayed > f->most_delayed ? f->delayed : f->most_delayed;
    }
}

static void add_kept(struct rf_search_ranks *r, int rank, const struct in_flight *in_flight)
{
    for (int chunk = 0; chunk < r->pipeline.chunks; chunk++) {
        const struct rf_search_stage *stage =
            &r->stages[rf_pipeline_stage(&r->pipeline, rank, chunk)];
        r->ranks[rank].kept += (uint64_t)in_flight[chunk].most_kept * stage->kept +
                               (uint64_t)in_flight[chunk].most_delayed * stage->delayed;
    }
}

int rf_search_load(const struct rf_search_view *view, const struct rf_search_block *blocks,
                   int micro_batches, int recompute, struct rf_search_ranks *r)
{
    struct rf_pipeline p = r->pipeline;
    for (int k = 0; k < p.ranks; k++)
        clear_load(&r->ranks[k]);
    r->scratch = 0;
    load_stages(view, blocks, recompute, r);
    if (p.ranks == 1) {
        r->ranks[0].kept = r->stages[0].kept;
        return 0;
    }
    p.micro_batches = micro_batches;
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    const int count = rf_pipeline_call_count(&p);
    struct rf_pipeline_call *calls = rf_alloc((size_t)count * sizeof(*calls));
    struct in_flight *in_flight = rf_alloc((size_t)p.chunks * sizeof(*in_flight));
    for (int rank = 0; calls && in_flight && rank < p.ranks; rank++) {
        memset(in_flight, 0, (size_t)p.chunks * sizeof(*in_flight));
        rf_pipeline_order(&p, rank, calls);
        follow(calls, count, in_flight);
        add_kept(r, rank, in_flight);
    }
    const int rc =
        calls && in_flight ? 0 : rf_fail(RF_ENOMEM, "search: out of memory for %d calls", count);
    rf_free(calls);
    rf_free(in_flight);
    return rc;
}
