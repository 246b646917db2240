/* SPDX-License-Identifier: MIT
 *
 * The merges of one word: always the pair of neighbours with the lowest rank, leftmost first. Short
 * words search linearly; long ones use a heap, so that n symbols take n log n steps.
 */
#include "../base/base.h"
#include "bpe.h"

enum { SHORT = 24 };

void rf_symbols_free(struct rf_symbols *symbols)
{
    rf_free(symbols->list);
    rf_free(symbols->heap);
    *symbols = (struct rf_symbols){0};
}

const struct rf_merge *rf_bpe_merge_of(const struct rf_bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (bpe->merge_count == 0)
        return NULL;
    uint64_t at = pair * 0x9e3779b97f4a7c15u;
    at ^= at >> 32;
    for (at &= bpe->merge_mask;; at = (at + 1) & bpe->merge_mask) {
        const struct rf_merge *merge = &bpe->merges[at];
        if (merge->rank == 0 || merge->pair == pair)
            return merge->rank == 0 ? NULL : merge;
    }
}

/* ---- short words ----------------------------------------------------------------------------- */

static void merge_short(const struct rf_bpe *bpe, struct rf_symbol *list, size_t *count)
{
    const struct rf_merge *merges[SHORT];
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++)
        merges[i] = rf_bpe_merge_of(bpe, list[i].id, list[i + 1].id);
    while (n > 1) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (merges[i] && (best == n || merges[i]->rank < merges[best]->rank))
                best = i;
        if (best == n)
            break;
        list[best].id = merges[best]->id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            list[i].id = list[i + 1].id;
            merges[i - 1] = merges[i];
        }
        if (best > 0)
            merges[best - 1] = rf_bpe_merge_of(bpe, list[best - 1].id, list[best].id);
        if (best + 1 < n)
            merges[best] = rf_bpe_merge_of(bpe, list[best].id, list[best + 1].id);
    }
    *count = n;
}

/* ---- long words ------------------------------------------------------------------------------ */

static int push(const struct rf_bpe *bpe, struct rf_symbols *symbols, int32_t left)
{
    const int32_t right = symbols->list[left].next;
    const struct rf_merge *merge =
        rf_bpe_merge_of(bpe, symbols->list[left].id, symbols->list[right].id);
    if (!merge)
        return 0;
    if (symbols->heap_count == symbols->heap_capacity) {
        const size_t capacity = 2 * symbols->heap_capacity + 256;
        struct rf_candidate *heap = rf_realloc(symbols->heap, capacity * sizeof(*heap));
        if (!heap)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a word");
        symbols->heap = heap;
        symbols->heap_capacity = capacity;
    }
    const struct rf_candidate added = {(uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)left,
                                       merge->id};
    size_t at = symbols->heap_count++;
    for (; at > 0 && symbols->heap[(at - 1) / 4].order > added.order; at = (at - 1) / 4)
        symbols->heap[at] = symbols->heap[(at - 1) / 4];
    symbols->heap[at] = added;
    return 0;
}

static struct rf_candidate pop(struct rf_symbols *symbols)
{
    struct rf_candidate *heap = symbols->heap;
    const struct rf_candidate top = heap[0], last = heap[--symbols->heap_count];
    const size_t count = symbols->heap_count;
    size_t at = 0;
    while (4 * at + 1 < count) {
        size_t least = 4 * at + 1;
        for (size_t child = least + 1; child < 4 * at + 5 && child < count; child++)
            if (heap[child].order < heap[least].order)
                least = child;
        if (heap[least].order >= last.order)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return top;
}

static int merge_long(const struct rf_bpe *bpe, struct rf_symbols *symbols)
{
    struct rf_symbol *list = symbols->list;
    symbols->heap_count = 0;
    for (size_t i = 0; i < symbols->count; i++) {
        list[i].previous = (int32_t)i - 1;
        list[i].next = i + 1 < symbols->count ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < symbols->count; i++)
        RETURN_IF_ERROR(push(bpe, symbols, (int32_t)i));
    while (symbols->heap_count > 0) {
        const struct rf_candidate top = pop(symbols);
        const int32_t left = (int32_t)(uint32_t)top.order, right = list[left].next;
        if (list[left].id < 0 || right < 0)
            continue;
        const struct rf_merge *merge = rf_bpe_merge_of(bpe, list[left].id, list[right].id);
        if (!merge || merge->id != top.id)
            continue; /* one of the two was merged meanwhile */
        list[left].id = top.id;
        list[left].next = list[right].next;
        list[right].id = -1;
        if (list[left].next >= 0)
            list[list[left].next].previous = left;
        if (list[left].previous >= 0)
            RETURN_IF_ERROR(push(bpe, symbols, list[left].previous));
        if (list[left].next >= 0)
            RETURN_IF_ERROR(push(bpe, symbols, left));
    }
    size_t count = 0;
    for (size_t i = 0; i < symbols->count; i++)
        if (list[i].id >= 0)
            list[count++] = list[i];
    symbols->count = count;
    return 0;
}

int rf_bpe_merge_all(const struct rf_bpe *bpe, struct rf_symbols *symbols,
                     struct rf_token_list *out)
{
    if (symbols->count > SHORT)
        RETURN_IF_ERROR(merge_long(bpe, symbols));
    else
        merge_short(bpe, symbols->list, &symbols->count);
    RETURN_IF_ERROR(rf_token_list_reserve(out, symbols->count));
    for (size_t i = 0; i < symbols->count; i++)
        out->ids[out->count++] = symbols->list[i].id;
    return 0;
}
