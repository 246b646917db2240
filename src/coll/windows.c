/* SPDX-License-Identifier: MIT
 *
 * Long calls in windows: each window is the same part of every piece of the call (its chunks, its
 * ranks' shares), and a small call of its own, so chunks are folded in the order of the whole call.
 * Windows follow each other in one list, two of them in transfer at a time. Everything that all
 * ranks must agree about (the begins of windows, tags, messages) depends on the description alone.
 *
 * Staged: a rank whose tensors the host cannot reach has the same messages, but IN and OUT are a
 * few slots of mapped memory. Each window is fetched from the tensor before its transfer and stored
 * after it. So while a window is in transfer, others are being copied. Called by compile.c.
 */
#include "windows.h"

#include "../base/base.h"

enum { IN_TRANSFER = 2, SHORTEST_WIDTH = 64 << 10, GRAIN = 256 << 10, ALIGNMENT = 256 };

static size_t part_of(const struct rf_windows *windows, size_t piece_bytes, uint32_t w)
{
    size_t begin = w * windows->width;
    size_t left = piece_bytes > begin ? piece_bytes - begin : 0;
    return left < windows->width ? left : windows->width;
}

/* ---- the pieces of a call -------------------------------------------------------------------- */

static struct rf_byte_range piece_of(const struct rf_windows *windows, const struct rf_side *side,
                                     int index)
{
    const struct rf_coll_desc *desc = windows->desc;
    const size_t element = windows->element;
    struct rf_byte_range share;
    switch (side->shape) {
    case RF_SHAPE_CHUNKS:
        return rf_chunk(desc->count, desc->ranks, index, element);
    case RF_SHAPE_SHARES:
        return rf_share(desc, side->counts, index, element);
    case RF_SHAPE_SHARE:
        return (struct rf_byte_range){0, rf_share(desc, side->counts, desc->rank, element).bytes};
    case RF_SHAPE_PARTS:
        return (struct rf_byte_range){(size_t)index * desc->stride * element,
                                      desc->count * element};
    case RF_SHAPE_SLOTS:
        share = rf_share(desc, side->counts, desc->rank, element);
        return (struct rf_byte_range){(size_t)index * share.bytes, share.bytes};
    case RF_SHAPE_PART_SHARES:
        share = rf_share(desc, side->counts, index % desc->ranks, element);
        share.offset += (size_t)(index / desc->ranks) * desc->stride * element;
        return share;
    default:
        return (struct rf_byte_range){0, desc->count * element};
    }
}

static int piece_count(const struct rf_coll_desc *desc, enum rf_coll_shape shape)
{
    switch (shape) {
    case RF_SHAPE_NONE:
        return 0;
    case RF_SHAPE_CHUNKS:
    case RF_SHAPE_SHARES:
        return desc->ranks;
    case RF_SHAPE_PARTS:
        return rf_forest_nodes(desc->forest, desc->rank, NULL);
    case RF_SHAPE_PART_SHARES:
        return rf_forest_nodes(desc->forest, desc->rank, NULL) * desc->ranks;
    case RF_SHAPE_SLOTS:
        return rf_prefix_slots(desc->leaves, desc->ranks);
    default:
        return 1;
    }
}

/* Sets the begins of the parts of a window, stored consecutively. */
static void pack(const struct rf_windows *windows, struct rf_side *side, uint32_t w)
{
    size_t at = 0;
    for (int i = 0; i < side->count; i++) {
        side->packed[i] = at;
        at += part_of(windows, piece_of(windows, side, i).bytes, w);
    }
    side->packed[side->count] = at;
}

/* Sets the places of a window's sides in its slot: in place if the operation allows it. */
static void place(struct rf_windows *windows, uint32_t w)
{
    struct rf_side *in = &windows->in, *out = &windows->out;
    const int own = windows->desc->rank;
    pack(windows, in, w);
    pack(windows, out, w);
    const enum rf_coll_in_place rule = rf_operation(windows->desc->op)->in_place;
    in->base = rule == RF_IN_PLACE_IN_OUT && out->count > 0 ? out->packed[own] : 0;
    out->base = rule == RF_IN_PLACE_OUT_IN && in->count > 0 ? in->packed[own] : 0;
    if (rule == RF_IN_PLACE_NEVER)
        out->base = in->packed[in->count];
}

/* ---- how a call is cut ----------------------------------------------------------------------- */

/* The number of pieces with a part in a window: all ranks agree about it. */
static size_t breadth(const struct rf_coll_desc *desc)
{
    const struct rf_operation *row = rf_operation(desc->op);
    if (row->out == RF_SHAPE_SLOTS)
        return (size_t)desc->ranks + (size_t)rf_prefix_slots(desc->leaves, desc->ranks);
    if (!desc->forest)
        return row->in == RF_SHAPE_WHOLE ? 1 : (size_t)desc->ranks;
    const int most = desc->most_parts > 0 ? desc->most_parts : rf_forest_most_parts(desc->forest);
    return (size_t)most * (size_t)(desc->counts ? desc->ranks : 1);
}

/* Whole segments of the usual length, if one fits. */
static size_t width_of(const struct rf_coll_desc *desc)
{
    size_t width = desc->window_bytes / breadth(desc);
    if (desc->window_bytes >= SHORTEST_WIDTH && width < SHORTEST_WIDTH)
        width = SHORTEST_WIDTH;
    const size_t grain = width > GRAIN ? GRAIN : sizeof(uint64_t);
    return width < grain ? grain : width / grain * grain;
}

/* More tags than any builder uses in one window (direct.c uses the shortest segments); 0: too many
 * for several windows in the field. */
static uint32_t tags_of(const struct rf_coll_desc *desc, size_t width)
{
    size_t segment = desc->segment_bytes && desc->segment_bytes < SHORTEST_WIDTH
                         ? desc->segment_bytes
                         : SHORTEST_WIDTH;
    size_t tags = (2 * (size_t)desc->ranks + 64) * ((width + segment - 1) / segment + 1);
    return tags < RF_MAX_TAG / 16 ? (uint32_t)tags : 0;
}

static size_t longest_piece(const struct rf_windows *windows)
{
    size_t longest = 0;
    const struct rf_side *sides[2] = {&windows->in, &windows->out};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->count; i++) {
            size_t bytes = piece_of(windows, sides[s], i).bytes;
            longest = bytes > longest ? bytes : longest;
        }
    return longest;
}

static int make_side(struct rf_side *side, const struct rf_coll_desc *desc,
                     enum rf_coll_shape shape, const size_t *counts, bool staged)
{
    /* The shares of such a call are chunks with given lengths. */
    const bool given = counts && shape == RF_SHAPE_CHUNKS;
    side->shape = given || shape == RF_SHAPE_LEAF ? RF_SHAPE_SHARES : shape;
    side->counts = counts;
    side->count = piece_count(desc, side->shape);
    side->staged = staged && side->count > 0;
    side->packed = rf_alloc(((size_t)side->count + 1) * sizeof(*side->packed));
    return side->packed ? 0
                        : rf_fail(RF_ENOMEM, "%s: out of memory while building a schedule",
                                  rf_coll_op_name(desc->op));
}

void rf_windows_cut(struct rf_windows *windows, const struct rf_coll_desc *desc, size_t longest,
                    bool can_cut)
{
    windows->width = SIZE_MAX;
    windows->count = 1;
    windows->tags = 0;
    if (!can_cut || desc->window_bytes == 0)
        return;
    const size_t width = width_of(desc);
    windows->tags = tags_of(desc, width);
    if (windows->tags == 0 || longest == 0)
        return;
    windows->width = width;
    windows->count = (uint32_t)((longest + width - 1) / width);
}

int rf_windows_init(struct rf_windows *windows, const struct rf_coll_desc *desc, bool can_cut)
{
    *windows = (struct rf_windows){.desc = desc, .element = rf_dtype_bytes(desc->dtype)};
    const size_t *received = desc->recv_counts ? desc->recv_counts : desc->counts;
    int rc = make_side(&windows->in, desc, rf_coll_in_shape(desc), desc->counts,
                       desc->staged & RF_STAGED_IN);
    if (rc == 0)
        rc = make_side(&windows->out, desc, rf_coll_out_shape(desc), received,
                       desc->staged & RF_STAGED_OUT);
    if (rc < 0)
        return rc;
    rf_windows_cut(windows, desc, longest_piece(windows), can_cut);
    place(windows, 0); /* no window is larger */
    const size_t in_end = windows->in.base + windows->in.packed[windows->in.count];
    const size_t out_end = windows->out.base + windows->out.packed[windows->out.count];
    windows->slot_bytes = in_end > out_end ? in_end : out_end;
    windows->slots = windows->count < RF_STAGING_SLOTS ? windows->count : RF_STAGING_SLOTS;
    if (windows->slots > 1)
        windows->slot_bytes = (windows->slot_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return 0;
}

void rf_windows_fini(struct rf_windows *windows)
{
    rf_free(windows->in.packed);
    rf_free(windows->out.packed);
}

/* ---- the list -------------------------------------------------------------------------------- */

struct list {
    struct rf_windows windows;
    struct rf_sched *sched;
    rf_builder *build;
    struct rf_coll_desc desc; /* of the current window */
    size_t *counts, *recv_counts;
    uint32_t free_after[RF_STAGING_SLOTS], ended[IN_TRANSFER];
    size_t temp; /* bytes of one window */
};

/* The description of one window as a call. */
static void describe(struct list *list, uint32_t w)
{
    const struct rf_windows *windows = &list->windows;
    const struct rf_coll_desc *whole = windows->desc;
    const size_t element = windows->element;
    struct rf_coll_desc *desc = &list->desc;
    const int ranks = whole->ranks;
    *desc = *whole;
    desc->is_window = windows->count > 1;
    if (rf_operation(whole->op)->in == RF_SHAPE_CHUNKS && !whole->counts) {
        desc->count = 0;
        for (int c = 0; c < ranks; c++)
            desc->count +=
                part_of(windows, rf_chunk(whole->count, ranks, c, element).bytes, w) / element;
        return;
    }
    if (!whole->counts) {
        desc->count = part_of(windows, whole->count * element, w) / element;
        desc->stride = desc->count;
        return;
    }
    desc->count = 0;
    for (int r = 0; r < ranks; r++) {
        list->counts[r] = part_of(windows, whole->counts[r] * element, w) / element;
        desc->count += list->counts[r];
        if (whole->recv_counts)
            list->recv_counts[r] = part_of(windows, whole->recv_counts[r] * element, w) / element;
    }
    desc->counts = list->counts;
    desc->stride = desc->count;
    desc->recv_counts = whole->recv_counts ? list->recv_counts : NULL;
}

static size_t slot_of(const struct rf_windows *windows, uint32_t w)
{
    return (w % windows->slots) * windows->slot_bytes;
}

/* The piece that contains a byte of the window. */
static int piece_at(const struct rf_side *side, size_t offset)
{
    int low = 0, high = side->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (side->packed[middle] <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Moves an operand from the window's own IN or OUT to the call's, or to the slot. */
static void relocate(const struct list *list, struct rf_operand *operand, uint32_t w)
{
    const struct rf_windows *windows = &list->windows;
    const struct rf_side *side = operand->space == RF_SPACE_IN ? &windows->in : &windows->out;
    if (operand->space == RF_SPACE_TMP)
        return;
    if (side->staged) {
        operand->offset += slot_of(windows, w) + side->base;
        return;
    }
    const bool is_packed = windows->count == 1 && windows->desc->stride <= windows->desc->count;
    if (is_packed || side->count == 0)
        return;
    const int i = piece_at(side, operand->offset);
    operand->offset +=
        piece_of(windows, side, i).offset + (size_t)w * windows->width - side->packed[i];
}

static bool uses(uint8_t verb, int operand) /* dst, a, b */
{
    static const uint8_t used[] = {
        [RF_STEP_SEND] = 2, [RF_STEP_RECV] = 1, [RF_STEP_REDUCE] = 7, [RF_STEP_COPY] = 3};
    return verb <= RF_STEP_COPY && used[verb] >> operand & 1;
}

/* The pieces of OUT that a call reads or writes may be only some of its slots. */
static bool is_moved(const struct rf_windows *windows, const struct rf_side *side, int i,
                     bool store)
{
    if (side->shape != RF_SHAPE_SLOTS)
        return true;
    const struct rf_prefix_round round = rf_prefix_round(windows->desc);
    return (store ? round.writes : round.reads) >> (round.lowest + i) & 1;
}

/* Fetches (store: false) or stores a window's parts of IN or OUT, merging neighbours. */
static uint32_t move_step(struct list *list, uint32_t w, bool store, bool in_out)
{
    struct rf_windows *windows = &list->windows;
    struct rf_sched *sched = list->sched;
    const struct rf_side *side = in_out ? &windows->out : &windows->in;
    const uint32_t first = sched->move_count;
    uint64_t total = 0;
    for (int i = 0; i < side->count; i++) {
        struct rf_byte_range piece = piece_of(windows, side, i);
        const size_t bytes = part_of(windows, piece.bytes, w);
        const uint64_t tensor = piece.offset + (size_t)w * windows->width;
        const uint64_t slot = slot_of(windows, w) + side->base + side->packed[i];
        if (bytes == 0 || !is_moved(windows, side, i, store))
            continue;
        struct rf_move *last =
            sched->move_count > first ? &sched->moves[sched->move_count - 1] : NULL;
        total += bytes;
        if (last && last->tensor + last->bytes == tensor && last->slot + last->bytes == slot)
            last->bytes += bytes;
        else
            rf_sched_move(sched, (struct rf_move){.tensor = tensor, .slot = slot, .bytes = bytes});
    }
    if (total == 0 || sched->status < 0)
        return RF_NO_STEP;
    return rf_sched_move_step(sched, store ? RF_STEP_STORE : RF_STEP_FETCH, in_out, first, total);
}

/* Fetches what the call reads. A broadcast's data are in OUT, also on the root; slots are added to.
 */
static uint32_t fetch_step(struct list *list, uint32_t w, uint32_t after)
{
    const struct rf_windows *windows = &list->windows;
    const struct rf_coll_desc *desc = windows->desc;
    const bool one = rf_operation(desc->op)->in_place == RF_IN_PLACE_ONE;
    const bool reads_out =
        windows->out.shape == RF_SHAPE_SLOTS || (one && desc->rank == desc->root);
    uint32_t in = windows->in.staged && !one ? move_step(list, w, false, false) : RF_NO_STEP;
    uint32_t out = windows->out.staged && reads_out ? move_step(list, w, false, true) : RF_NO_STEP;
    rf_sched_dep(list->sched, in, after);
    rf_sched_dep(list->sched, out, after);
    if (in == RF_NO_STEP || out == RF_NO_STEP)
        return in == RF_NO_STEP ? out : in;
    uint32_t both = rf_sched_join(list->sched);
    rf_sched_dep(list->sched, both, in);
    rf_sched_dep(list->sched, both, out);
    return both;
}

static bool stores(const struct rf_windows *windows)
{
    const struct rf_coll_desc *desc = windows->desc;
    const bool one = rf_operation(desc->op)->in_place == RF_IN_PLACE_ONE;
    return windows->out.staged && !(one && desc->rank == desc->root);
}

/* Connects a window's steps to the list: `begin` before the steps without predecessors, and those
 * without successors before `end`. */
static void frame(struct list *list, uint32_t first, uint32_t last, uint32_t first_edge,
                  uint32_t begin, uint32_t end)
{
    struct rf_sched *sched = list->sched;
    const uint32_t count = last - first, edges = sched->edge_count;
    uint8_t *has = rf_sched_scratch(sched, (size_t)count + 1, 1); /* 1: has a predecessor, 2: a
                                                                   * successor */
    for (uint32_t e = first_edge; has && e < edges; e++) {
        has[sched->edges[e].step - first] |= 1;
        has[sched->edges[e].after - first] |= 2;
    }
    for (uint32_t i = 0; has && i < count; i++) {
        if (!(has[i] & 1))
            rf_sched_dep(sched, first + i, begin);
        if (!(has[i] & 2))
            rf_sched_dep(sched, end, first + i);
    }
    rf_free(has);
}

static void add_window(struct list *list, uint32_t w)
{
    struct rf_windows *windows = &list->windows;
    struct rf_sched *sched = list->sched;
    uint32_t *ended = &list->ended[w % IN_TRANSFER];
    uint32_t *free_after = &list->free_after[w % RF_STAGING_SLOTS];
    place(windows, w);
    describe(list, w);
    uint32_t fetch = fetch_step(list, w, *free_after);
    uint32_t begin = fetch;
    if (*ended != RF_NO_STEP) {
        begin = rf_sched_join(sched);
        rf_sched_dep(sched, begin, *ended);
        rf_sched_dep(sched, begin, fetch != RF_NO_STEP ? fetch : *free_after);
    }

    sched->temp_bytes = (w % IN_TRANSFER) * list->temp;
    const uint32_t first = sched->count, edge = sched->edge_count, operand = sched->operand_count;
    list->build(sched, &list->desc);
    if (sched->status < 0)
        return;
    list->temp = w == 0 ? sched->temp_bytes : list->temp;
    const uint32_t last = sched->count;
    for (uint32_t i = first; i < last; i++) {
        struct rf_step *step = &sched->steps[i];
        if (windows->count > 1 && (step->verb == RF_STEP_SEND || step->verb == RF_STEP_RECV))
            step->tag += w % (RF_MAX_TAG / windows->tags) * windows->tags;
        struct rf_operand *const operands[3] = {&step->dst, &step->a, &step->b};
        for (int k = 0; k < 3; k++)
            if (uses(step->verb, k) && !(k > 0 && step->list_count > 0))
                relocate(list, operands[k], w);
    }
    for (uint32_t i = operand; i < sched->operand_count; i++)
        relocate(list, &sched->operands[i], w);

    if (windows->count == 1 && begin == RF_NO_STEP && !stores(windows))
        return;
    const uint32_t end = rf_sched_join(sched);
    frame(list, first, last, edge, begin, end);
    rf_sched_dep(sched, end, begin); /* a window without steps */
    uint32_t store = stores(windows) ? move_step(list, w, true, true) : RF_NO_STEP;
    rf_sched_dep(sched, store, end);
    *ended = end;
    *free_after = store != RF_NO_STEP ? store : end;
}

static bool prepare(struct list *list)
{
    const size_t ranks = (size_t)list->windows.desc->ranks;
    list->counts = rf_sched_scratch(list->sched, 2 * ranks, sizeof(size_t));
    list->recv_counts = list->counts ? list->counts + ranks : NULL;
    for (int i = 0; i < RF_STAGING_SLOTS; i++)
        list->free_after[i] = RF_NO_STEP;
    for (int i = 0; i < IN_TRANSFER; i++)
        list->ended[i] = RF_NO_STEP;
    return list->counts != NULL;
}

void rf_build_windows(struct rf_sched *sched, const struct rf_coll_desc *desc, rf_builder *build,
                      bool can_cut)
{
    struct list list = {.sched = sched, .build = build};
    int rc = rf_windows_init(&list.windows, desc, can_cut);
    const bool staged = list.windows.in.staged || list.windows.out.staged;
    if (rc < 0) {
        sched->status = rc;
    } else if (list.windows.count == 1 && !staged && !desc->counts) {
        build(sched, desc);
    } else if (prepare(&list)) {
        for (uint32_t w = 0; sched->status == 0 && w < list.windows.count; w++)
            add_window(&list, w);
        sched->temp_bytes =
            list.temp * (list.windows.count < IN_TRANSFER ? list.windows.count : IN_TRANSFER);
    }
    rf_free(list.counts);
    rf_windows_fini(&list.windows);
}
