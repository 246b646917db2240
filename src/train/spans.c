/* SPDX-License-Identifier: MIT
 *
 * Logical tensors, and a rank's parts of them; see spans.h. Data that every rank has is loaded
 * whole by each rank, and saved in equal shares: parameters and, unless only rank 0 updates,
 * states. Sharded data are loaded by shard; ranks with copies of a shard save it in equal shares.
 * Tensor ranks with copies of the same elements save them in turns.
 */
#include "spans.h"

#include "../base/base.h"
#include "states.h"
#include "stored.h"

/* state: the name of a state; NULL: the parameter itself. */
static void add(struct rf_listing *list, const struct rf_run *run, int param, const char *state,
                int region)
{
    const struct rf_param_desc *desc = run->plan->params[param].desc;
    struct rf_listed *listed = &list->listed[list->count];
    snprintf(listed->name, sizeof(listed->name), "%s%s%s", desc->name, state ? "." : "",
             state ? state : "");
    listed->param = param;
    listed->region = region;
    list->tensors[list->count++] = (struct rf_file_tensor){
        .name = listed->name, .dtype = desc->dtype == RF_U8 ? RF_U8 : RF_F32, .shape = desc->shape};
    if (!rf_states_are(listed) || !rf_plan_coded(run->plan, param))
        return;
    const struct rf_param_cut *cut = &run->plan->params[param].cut;
    struct rf_file_tensor *tensor = &list->tensors[list->count - 1];
    listed->parts = rf_states_parts(cut);
    tensor->dtype = RF_U8;
    tensor->shape = rf_shape1((int64_t)(rf_states_words(cut, listed->parts) * sizeof(uint32_t)));
}

int rf_listing_open(const struct rf_run *run, enum rf_checkpoint_part part, struct rf_listing *out)
{
    const struct rf_plan *plan = run->plan;
    const size_t capacity = RF_PLAN_STATES * (size_t)plan->param_count + 1;
    struct rf_listing list = {0};
    list.tensors = rf_alloc(capacity * sizeof(*list.tensors));
    list.listed = rf_alloc(capacity * sizeof(*list.listed));
    int rc = list.tensors && list.listed ? 0 : rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    for (int i = 0; rc == 0 && i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->logical != i)
            continue;
        if (strlen(param->desc->name) > sizeof(list.listed->name) - 4)
            rc =
                rf_fail(RF_ENOTSUP, "checkpoint: the name %.60s... is too long", param->desc->name);
        else if (part == RF_PART_MODEL)
            add(&list, run, i, NULL, (int)rf_plan_param_region(plan, i));
        /* Included even if only rank 0 has them, because a listing is the same on all ranks. */
        for (int k = 0; rc == 0 && part == RF_PART_OPTIMIZER && k < RF_PLAN_STATES; k++)
            if (rf_plan_trains(plan, i) && rf_plan_has_state(plan, k))
                add(&list, run, i,
                    k == RF_STATE_BEFORE ? "b"
                                         : rf_optimizer_state_name((enum rf_optimizer_state)k),
                    RF_REGION_STATE + k);
    }
    if (rc < 0)
        rf_listing_close(&list);
    else
        *out = list;
    return rc;
}

void rf_listing_close(struct rf_listing *listing)
{
    rf_free(listing->tensors);
    rf_free(listing->listed);
    *listing = (struct rf_listing){0};
}

int rf_listing_grow(struct rf_listing *list, int count)
{
    const size_t all = (size_t)(list->count + count) + 1;
    struct rf_file_tensor *tensors = rf_realloc(list->tensors, all * sizeof(*tensors));
    list->tensors = tensors ? tensors : list->tensors;
    struct rf_listed *listed = rf_realloc(list->listed, all * sizeof(*listed));
    list->listed = listed ? listed : list->listed;
    for (int i = 0; i < list->count; i++)
        list->tensors[i].name = list->listed[i].name;
    return tensors && listed ? 0 : rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
}

int rf_spans_append(struct rf_spans *spans, const struct rf_span *span)
{
    if (spans->count == spans->capacity) {
        const size_t capacity = 2 * spans->capacity + 16;
        struct rf_span *grown = rf_realloc(spans->list, capacity * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
        spans->list = grown;
        spans->capacity = capacity;
    }
    spans->list[spans->count++] = *span;
    return 0;
}

/* Elements of the memory of a tensor of the listing; of blocks of 8-bit states, `count` words.
 * first: the element's index in its region, or in memory with all states. */
static struct rf_tensor stored(const struct rf_run *run, const struct rf_listed *listed,
                               uint64_t first, uint64_t count)
{
    const struct rf_plan *plan = run->plan;
    const int k = listed->region - RF_REGION_STATE;
    struct rf_tensor t = run->regions[listed->region];
    t.dtype = listed->region == RF_REGION_COPY                ? plan->copy_type
              : rf_states_are(listed) && !rf_plan_codes(plan) ? plan->policy.state_dtype
                                                              : RF_F32;
    if (plan->params[listed->param].single)
        first -= rf_plan_bare_elements(plan, plan->shard);
    t.offset += k >= 0 && k < RF_PLAN_STATES ? rf_plan_state_offset(plan, k, plan->shard, first)
                                             : first * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1((int64_t)count);
    return t;
}

static struct rf_param_cut words_of(const struct rf_file_tensor *tensor)
{
    return (struct rf_param_cut){
        .shape = rf_shape1(rf_shape_count(tensor->shape) / (int64_t)sizeof(uint32_t)),
        .ranks = 1,
        .count = 1};
}

/* The blocks of 8-bit states that begin at elements of a span of one part, as words. *out has a
 * count of 0 if there are none. element: that of the span's first in the memory of states. */
static struct rf_span blocks_of(const struct rf_run *run, const struct rf_listing *list,
                                const struct rf_span *span, uint64_t element)
{
    const struct rf_listed *listed = &list->listed[span->tensor];
    const uint64_t first = (span->first + RF_STATE_BLOCK - 1) / RF_STATE_BLOCK;
    const uint64_t end = (span->first + span->count + RF_STATE_BLOCK - 1) / RF_STATE_BLOCK;
    const uint64_t words = RF_STATE_BLOCK_BYTES / sizeof(uint32_t);
    struct rf_span blocks = *span;
    blocks.first = rf_states_words(&run->plan->params[listed->param].cut,
                                   listed->parts > 1 ? span->cut.rank : 0) +
                   first * words;
    blocks.count = (end - first) * words;
    blocks.cut = words_of(&list->tensors[span->tensor]);
    blocks.stored = stored(run, listed, element + first * RF_STATE_BLOCK - span->first, 0);
    blocks.stored.shape = rf_shape1((int64_t)blocks.count);
    return blocks;
}

/* If a rank has several parts of a parameter, each part has its own span. element: as in stored. */
static int append(const struct rf_run *run, const struct rf_listing *list, struct rf_spans *spans,
                  struct rf_span *span, uint64_t element)
{
    const struct rf_listed *listed = &list->listed[span->tensor];
    span->stored = stored(run, listed, element, span->count);
    span->disk = run->plan->regions[listed->region].memory == RF_MEMORY_DISK ? run->disk : NULL;
    for (uint64_t done = 0, part = 0; done < span->count; part++) {
        struct rf_span one = *span;
        const uint64_t begin = rf_cut_part_first(&span->cut, (int)part);
        const uint64_t from = span->first + done;
        one.cut = rf_cut_part(&span->cut, (int)part);
        const uint64_t all = (uint64_t)rf_shape_count(rf_cut_shape(&one.cut));
        if (from >= begin + all)
            continue;
        const uint64_t left = begin + all - from;
        one.first = from - begin;
        one.count = left < span->count - done ? left : span->count - done;
        one.stored.offset += done * rf_dtype_bytes(one.stored.dtype);
        one.stored.shape = rf_shape1((int64_t)one.count);
        const uint64_t count = one.count;
        if (listed->parts)
            one = blocks_of(run, list, &one, element + done);
        if (one.count)
            RETURN_IF_ERROR(rf_spans_append(spans, &one));
        done += count;
    }
    return 0;
}

/* The index of the plan's parameter for a tensor of the listing on this rank; -1: none. If several
 * ranks of a pipeline have a tensor, the first of them writes it. */
static int holder_of(const struct rf_run *run, const struct rf_listed *listed, bool writes)
{
    const struct rf_plan *plan = run->plan;
    if (writes && !rf_plan_holds(plan, plan->params[listed->param].block))
        return -1;
    return rf_plan_holder(plan, listed->param);
}

/* ---- turns of tensor ranks that have copies of the same elements ----------------------------- */

enum { LONGEST_TURN = 1 << 18 }; /* elements: 1 MiB */

struct turns {
    uint64_t length; /* elements */
    uint64_t before; /* elements of tensors with copies before the current one */
};

/* The number of elements of a tensor of the listing, if several tensor ranks have some of them;
 * otherwise 0. */
static uint64_t copied_of(const struct rf_run *run, const struct rf_listed *listed)
{
    const struct rf_param_cut *cut = &run->plan->params[listed->param].cut;
    return rf_cut_has_copies(cut) ? (uint64_t)rf_shape_count(cut->shape) : 0;
}

static struct turns turns_of(const struct rf_run *run, const struct rf_listing *list)
{
    uint64_t all = 0;
    for (int i = 0; i < list->count; i++)
        all += copied_of(run, &list->listed[i]);
    uint64_t length = all / (8 * (uint64_t)rf_plan_tensor_ranks(run->plan));
    length = length < LONGEST_TURN ? length : LONGEST_TURN;
    return (struct turns){.length = length > RF_SPAN_GRAIN ? length : RF_SPAN_GRAIN};
}

/* The next elements of a rank's part, from *at on, that it writes. *at is advanced past them. */
static bool next_written(const struct rf_param_cut *cut, const struct turns *turns, uint64_t *at,
                         struct rf_plan_span *out)
{
    const uint64_t all = (uint64_t)rf_shape_count(rf_cut_shape(cut));
    while (*at < all) {
        const struct rf_cut_run run = rf_cut_run_at(cut, *at);
        const struct rf_cut_lines lines = rf_cut_lines_at(cut, *at);
        const uint64_t place = turns->before + run.first, turn = place / turns->length;
        const uint64_t left = (turn + 1) * turns->length - place;
        uint64_t count = run.count < left ? run.count : left;
        if (run.copies == 1)
            count = lines.length ? lines.end - *at : run.count; /* no line has copies */
        *out = (struct rf_plan_span){*at, count};
        *at += count;
        if (turn % (uint64_t)run.copies == (uint64_t)run.copy)
            return true;
    }
    return false;
}

/* The next elements of a rank's part that it writes. Without turns: that it holds. */
static bool next_range(const struct rf_plan_param *param, const struct turns *turns, uint64_t *at,
                       struct rf_plan_span *out)
{
    if (turns)
        return next_written(&param->cut, turns, at, out);
    *out = (struct rf_plan_span){0, (uint64_t)param->count};
    return (*at)++ == 0;
}

/* Each rank writes all blocks of its own parts. */
static const struct turns *turns_for(const struct rf_listed *listed, bool writes,
                                     const struct turns *turns)
{
    return writes && listed->parts <= 1 ? turns : NULL;
}

/* ---- this rank's spans ------------------------------------------------------------------------
 */

/* Adds a span for each tensor in the range [from, to) of the elements that this rank has, counted
 * over all tensors. */
static int cut(const struct rf_run *run, const struct rf_listing *list, bool writes, uint64_t from,
               uint64_t to, struct rf_spans *out)
{
    struct turns turns = turns_of(run, list);
    struct rf_plan_span range;
    uint64_t before = 0;
    for (int i = 0; i < list->count; turns.before += copied_of(run, &list->listed[i++])) {
        const int holder = holder_of(run, &list->listed[i], writes);
        if (holder < 0)
            continue;
        const struct rf_plan_param *param = &run->plan->params[holder];
        for (uint64_t at = 0;
             next_range(param, turns_for(&list->listed[i], writes, &turns), &at, &range);
             before += range.count) {
            struct rf_plan_span ours = {before, range.count};
            if (!rf_plan_clip(&ours, from, to - from))
                continue;
            const uint64_t first = range.first + ours.first - before;
            struct rf_span span = {
                .tensor = i, .first = first, .count = ours.count, .cut = param->cut};
            RETURN_IF_ERROR(append(run, list, out, &span, param->first + first));
        }
    }
    return 0;
}

static uint64_t all_elements(const struct rf_run *run, const struct rf_listing *list, bool writes)
{
    struct turns turns = turns_of(run, list);
    struct rf_plan_span range;
    uint64_t count = 0;
    for (int i = 0; i < list->count; turns.before += copied_of(run, &list->listed[i++])) {
        const int holder = holder_of(run, &list->listed[i], writes);
        uint64_t at = 0;
        while (holder >= 0 && next_range(&run->plan->params[holder],
                                         turns_for(&list->listed[i], writes, &turns), &at, &range))
            count += range.count;
    }
    return count;
}

/* Whether this rank has the tensors listed for this part of a checkpoint. */
static bool has(const struct rf_run *run, enum rf_checkpoint_part part)
{
    return part == RF_PART_MODEL || rf_plan_updates(run->plan);
}

/* Adds the elements of each tensor that are in this rank's shard of its piece. */
static int own_shards(const struct rf_run *run, const struct rf_listing *list, bool writes,
                      struct rf_spans *out)
{
    const struct rf_plan *plan = run->plan;
    struct turns turns = turns_of(run, list);
    struct rf_plan_span range;
    for (int i = 0; i < list->count; turns.before += copied_of(run, &list->listed[i++])) {
        const int holder = holder_of(run, &list->listed[i], writes);
        if (holder < 0)
            continue;
        const struct rf_plan_param *param = &plan->params[holder];
        const struct rf_plan_piece *piece = &plan->pieces[param->piece];
        const uint64_t begin = piece->first + piece->borders[plan->shard];
        for (uint64_t at = 0;
             next_range(param, turns_for(&list->listed[i], writes, &turns), &at, &range);) {
            struct rf_plan_span ours = {param->first + range.first, range.count};
            if (!rf_plan_clip(&ours, begin, piece->counts[plan->shard]))
                continue;
            const uint64_t first = piece->shard_first + ours.first - begin;
            struct rf_span span = {.tensor = i,
                                   .first = ours.first - param->first,
                                   .count = ours.count,
                                   .cut = param->cut};
            RETURN_IF_ERROR(append(run, list, out, &span, first));
        }
    }
    return 0;
}

static bool is_sharded(const struct rf_run *run, enum rf_checkpoint_part part)
{
    return part == RF_PART_OPTIMIZER ? run->plan->shards > 1 : rf_plan_shards_params(run->plan);
}

/* A rank's share of `all` elements. Borders are at multiples of RF_SPAN_GRAIN. */
static struct rf_plan_span share_of(uint64_t all, uint64_t rank, uint64_t ranks)
{
    const uint64_t grains = (all + RF_SPAN_GRAIN - 1) / RF_SPAN_GRAIN;
    const uint64_t from = grains * rank / ranks * RF_SPAN_GRAIN;
    const uint64_t to = grains * (rank + 1) / ranks * RF_SPAN_GRAIN;
    return (struct rf_plan_span){from, (to < all ? to : all) - from};
}

/* Reduces spans that several ranks have to this rank's share of them. */
static void keep_share(struct rf_spans *spans, uint64_t rank, uint64_t ranks)
{
    const struct rf_plan_span share = share_of(rf_spans_bytes(spans) / sizeof(float), rank, ranks);
    uint64_t before = 0;
    size_t kept = 0;
    for (size_t i = 0; i < spans->count; i++) {
        struct rf_span span = spans->list[i];
        struct rf_plan_span ours = {before, span.count};
        const bool any = rf_plan_clip(&ours, share.first, share.count);
        const uint64_t skipped = ours.first - before;
        before += span.count;
        if (!any)
            continue;
        span.first += skipped;
        span.count = ours.count;
        span.stored.offset += skipped * rf_dtype_bytes(span.stored.dtype);
        span.stored.shape = rf_shape1((int64_t)ours.count);
        spans->list[kept++] = span;
    }
    spans->count = kept;
}

static int to_save(const struct rf_run *run, enum rf_checkpoint_part part,
                   const struct rf_listing *listing, struct rf_spans *out)
{
    const struct rf_plan_group *alike = &run->plan->groups[RF_LANE_REPLICATE];
    if (is_sharded(run, part)) {
        RETURN_IF_ERROR(own_shards(run, listing, true, out));
        if (alike->size > 1)
            keep_share(out, (uint64_t)alike->rank, (uint64_t)alike->size);
        return 0;
    }
    const bool alone = part == RF_PART_OPTIMIZER && run->plan->policy.update_on_rank_0;
    const uint64_t ranks = alone ? 1 : (uint64_t)run->plan->mesh.dp;
    const uint64_t rank = alone ? 0 : (uint64_t)run->plan->dp_rank;
    const uint64_t all = has(run, part) ? all_elements(run, listing, true) : 0;
    const struct rf_plan_span share = share_of(all, rank, ranks);
    return cut(run, listing, true, share.first, share.first + share.count, out);
}

static int to_load(const struct rf_run *run, enum rf_checkpoint_part part,
                   const struct rf_listing *listing, struct rf_spans *out)
{
    if (is_sharded(run, part))
        return own_shards(run, listing, false, out);
    return cut(run, listing, false, 0, has(run, part) ? all_elements(run, listing, false) : 0, out);
}

int rf_spans_to_save(const struct rf_run *run, enum rf_checkpoint_part part,
                     const struct rf_listing *listing, struct rf_spans *out)
{
    *out = (struct rf_spans){0};
    const int rc = to_save(run, part, listing, out);
    if (rc < 0)
        rf_spans_free(out);
    return rc;
}

int rf_spans_to_load(const struct rf_run *run, enum rf_checkpoint_part part,
                     const struct rf_listing *listing, struct rf_spans *out)
{
    *out = (struct rf_spans){0};
    const int rc = to_load(run, part, listing, out);
    if (rc < 0)
        rf_spans_free(out);
    return rc;
}

uint64_t rf_spans_bytes(const struct rf_spans *spans)
{
    uint64_t count = 0;
    for (size_t i = 0; i < spans->count; i++)
        count += spans->list[i].count;
    return count * sizeof(float);
}

static struct rf_tensor part_of(const struct rf_span *span, uint64_t from, uint64_t bytes)
{
    struct rf_tensor t = span->stored;
    t.offset += from / sizeof(float) * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1((int64_t)(bytes / sizeof(float)));
    return t;
}

int rf_span_read(const struct rf_span *span, uint64_t from, uint64_t bytes, void *values)
{
    if (span->host) {
        memcpy(values, (const uint8_t *)span->host + from, bytes);
        return 0;
    }
    const struct rf_tensor part = part_of(span, from, bytes);
    if (!span->disk)
        return rf_stored_read(part, values);
    const uint64_t narrow = rf_tensor_bytes(part);
    RETURN_IF_ERROR(
        rf_disk_read(span->disk, part.offset, (uint8_t *)values + bytes - narrow, narrow));
    rf_stored_widen(values, bytes / sizeof(float), part.dtype);
    return 0;
}

int rf_span_write(const struct rf_span *span, uint64_t from, uint64_t bytes, void *values)
{
    if (span->host) {
        memcpy((uint8_t *)span->host + from, values, bytes);
        return 0;
    }
    const struct rf_tensor part = part_of(span, from, bytes);
    if (!span->disk)
        return rf_stored_write(part, values);
    rf_stored_narrow(values, bytes / sizeof(float), part.dtype);
    return rf_disk_write(span->disk, part.offset, values, rf_tensor_bytes(part));
}

struct rf_span_run rf_span_run_at(const struct rf_span *span, uint64_t from, uint64_t most)
{
    const struct rf_cut_run run = rf_cut_run_at(&span->cut, span->first + from / sizeof(float));
    const uint64_t all = span->count * sizeof(float) - from, bytes = run.count * sizeof(float);
    const uint64_t left = all < most ? all : most;
    return (struct rf_span_run){run.first * sizeof(float), bytes < left ? bytes : left};
}

uint64_t rf_span_piece(const struct rf_span *span, uint64_t from, uint64_t most)
{
    const uint64_t all = span->count * sizeof(float) - from, left = all < most ? all : most;
    const uint64_t at = span->first + from / sizeof(float);
    const struct rf_cut_lines lines = rf_cut_lines_at(&span->cut, at);
    if (lines.length == 0)
        return left;
    const uint64_t ranks = (uint64_t)span->cut.ranks;
    const uint64_t widest = (lines.step + ranks - 1) / ranks * sizeof(float); /* of all ranks */
    const uint64_t rows = most > widest ? most / widest : 1;
    const uint64_t piece = rows * lines.length, to_end = (lines.end - at) * sizeof(float);
    const uint64_t to_border = (piece - (at - lines.begin) % piece) * sizeof(float);
    const uint64_t most_here = to_end < to_border ? to_end : to_border;
    return left < most_here ? left : most_here;
}

struct rf_param_cut rf_span_whole(const struct rf_file_tensor *tensor)
{
    return (struct rf_param_cut){.shape = tensor->shape, .ranks = 1, .count = 1};
}

struct rf_span_name rf_span_to_name(const struct rf_span *span, int part)
{
    return (struct rf_span_name){.part = part,
                                 .tensor = span->tensor,
                                 .tensor_rank = span->cut.rank,
                                 .first = span->first,
                                 .count = span->count};
}

int rf_span_of_name(const struct rf_run *run, const struct rf_span_name *name,
                    const struct rf_listing *listing, int peer, struct rf_span *out)
{
    struct rf_span span = {.tensor = name->tensor, .first = name->first, .count = name->count};
    bool known = listing && name->tensor >= 0 && name->tensor < listing->count &&
                 name->tensor_rank >= 0 && name->tensor_rank < rf_plan_all_parts(run->plan);
    if (known) {
        const int param = listing->listed[name->tensor].param;
        span.cut = param < 0 ? rf_span_whole(&listing->tensors[name->tensor])
                   : listing->listed[name->tensor].parts
                       ? words_of(&listing->tensors[name->tensor])
                       : rf_cut_part(&run->plan->params[param].cut, 0);
        span.cut.rank = name->tensor_rank;
        const uint64_t all = (uint64_t)rf_shape_count(rf_cut_shape(&span.cut));
        known = name->first <= all && name->count <= all - name->first;
    }
    *out = span;
    return known ? 0
                 : rf_fail_rank(
                       RF_EINVAL, peer,
                       "rank %d refers to elements of tensor %d that are not in the checkpoint",
                       peer, name->tensor);
}

void rf_spans_free(struct rf_spans *spans)
{
    rf_free(spans->list);
    *spans = (struct rf_spans){0};
}
