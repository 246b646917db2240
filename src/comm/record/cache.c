/* SPDX-License-Identifier: MIT
 *
 * Compiled schedules by call, so that a repeated call builds nothing: a small table, preceded by
 * the last call, which is the most likely one.
 */
#include "../communicator.h"

enum { SLOTS = 256, PROBES = 4 };

struct rf_cache {
    struct rf_cached slots[SLOTS];
    struct rf_cached *last;
    uint32_t victim;
};

int rf_cache_create(struct rf_cache **out)
{
    struct rf_cache *cache = rf_alloc(sizeof(*cache));
    if (!cache)
        return rf_fail(RF_ENOMEM, "no memory for the table of schedules");
    *out = cache;
    return 0;
}

static void forget(struct rf_cached *entry)
{
    rf_sched_destroy(entry->sched);
    rf_free((void *)(uintptr_t)entry->forest.first);
    rf_free(entry->memory);
    memset(entry, 0, sizeof(*entry));
}

void rf_cache_clear(struct rf_cache *cache)
{
    for (int i = 0; i < SLOTS; i++)
        if (cache->slots[i].sched)
            forget(&cache->slots[i]);
    cache->last = NULL;
}

void rf_cache_destroy(struct rf_cache *cache)
{
    if (!cache)
        return;
    rf_cache_clear(cache);
    rf_free(cache);
}

static size_t first_bytes(const struct rf_forest *forest)
{
    return ((size_t)forest->ranks + 1) * sizeof(*forest->first);
}

static bool same_forest(const struct rf_forest *a, const struct rf_forest *b)
{
    return a->leaves == b->leaves && a->ranks == b->ranks &&
           memcmp(a->first, b->first, first_bytes(a)) == 0;
}

static bool same_counts(const size_t *a, const size_t *b, int ranks)
{
    return !a == !b && (!a || memcmp(a, b, (size_t)ranks * sizeof(*a)) == 0);
}

static bool same_algorithm(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same(const struct rf_cached *entry, const struct rf_call *call)
{
    const struct rf_call *key = &entry->key;
    return entry->sched && key->desc.count == call->desc.count && key->desc.op == call->desc.op &&
           key->desc.dtype == call->desc.dtype && key->desc.redop == call->desc.redop &&
           key->desc.order == call->desc.order && key->desc.root == call->desc.root &&
           key->desc.leaves == call->desc.leaves && key->desc.round == call->desc.round &&
           key->reduction_hash == call->reduction_hash && key->desc.staged == call->desc.staged &&
           same_algorithm(key->algorithm, call->algorithm) &&
           same_counts(key->desc.counts, call->desc.counts, key->desc.ranks) &&
           same_counts(key->desc.recv_counts, call->desc.recv_counts, key->desc.ranks) &&
           (!call->desc.forest || (key->desc.stride == call->desc.stride &&
                                   same_forest(key->desc.forest, call->desc.forest)));
}

static uint32_t slot_of(const struct rf_call *call)
{
    uint64_t mixed = (uint64_t)call->desc.count * 0x9e3779b97f4a7c15ull;
    mixed ^= (uint64_t)call->desc.op << 40 ^ (uint64_t)call->desc.dtype << 36 ^
             (uint64_t)call->desc.redop << 32 ^ (uint64_t)call->desc.order << 28 ^
             (uint64_t)(uint32_t)call->desc.root;
    mixed += (uint64_t)(uint32_t)call->desc.round * 0xc2b2ae3d27d4eb4full;
    return (uint32_t)((mixed * 0x9e3779b97f4a7c15ull) >> 56) % SLOTS;
}

/* Copies counts and name into one allocation. */
static int copy_counts(const struct rf_call *call, struct rf_cached *entry)
{
    const size_t ranks = (size_t)entry->key.desc.ranks, bytes = ranks * sizeof(size_t);
    const size_t name = call->algorithm ? strlen(call->algorithm) + 1 : 0;
    if (!call->desc.counts && !name)
        return 0;
    size_t *counts = rf_alloc(2 * bytes + name);
    if (!counts)
        return rf_fail(RF_ENOMEM, "no memory for the counts of %zu ranks", ranks);
    entry->memory = counts;
    if (call->desc.counts)
        entry->key.desc.counts = memcpy(counts, call->desc.counts, bytes);
    if (call->desc.recv_counts)
        entry->key.desc.recv_counts = memcpy(counts + ranks, call->desc.recv_counts, bytes);
    if (name)
        entry->key.algorithm = memcpy(counts + 2 * ranks, call->algorithm, name);
    return 0;
}

static int copy_forest(const struct rf_call *call, struct rf_cached *entry)
{
    if (!call->desc.forest)
        return 0;
    const size_t bytes = first_bytes(call->desc.forest);
    int *first = rf_alloc(bytes);
    if (!first)
        return rf_fail(RF_ENOMEM, "no memory for the leaves of %d ranks", call->desc.forest->ranks);
    memcpy(first, call->desc.forest->first, bytes);
    entry->forest = *call->desc.forest;
    entry->forest.first = first;
    entry->key.desc.forest = &entry->forest;
    return 0;
}

struct rf_coll_desc rf_call_desc(const struct rf_comm *comm, const struct rf_call *call)
{
    struct rf_coll_desc desc = call->desc;
    desc.rank = comm->rank;
    desc.ranks = comm->size;
    desc.root = desc.root < 0 ? 0 : desc.root;
    desc.segment_bytes = comm->settings.segment_bytes;
    desc.model = comm->links.model;
    desc.hosts = comm->layout.hosts;
    desc.window_bytes = RF_WINDOW_BYTES;
    /* Checksums cover messages, so without messages nothing would be checked. */
    desc.shared = comm->links.transport->one_host && !comm->settings.checksum;
    return desc;
}

static int build(struct rf_comm *comm, const struct rf_call *call, struct rf_cached *entry)
{
    entry->key = *call;
    entry->key.desc.forest = NULL;
    entry->key.desc.counts = entry->key.desc.recv_counts = NULL;
    entry->key.desc.ranks = comm->size;
    entry->key.algorithm = NULL;
    entry->key.mover = NULL;
    RETURN_IF_ERROR(copy_counts(call, entry));
    RETURN_IF_ERROR(copy_forest(call, entry));
    const struct rf_coll_desc desc = rf_call_desc(comm, &entry->key);
    if (call->algorithm)
        RETURN_IF_ERROR(rf_sched_build_as(&desc, call->algorithm, &entry->sched));
    else
        RETURN_IF_ERROR(rf_sched_build(&desc, &entry->sched));
    rf_contract_fill(&entry->contract, call);
    entry->hash = rf_call_hash(&entry->key);
    return 0;
}

void rf_cache_hold(struct rf_cached *cached)
{
    cached->holders++;
}

void rf_cache_release(struct rf_cached *cached)
{
    cached->holders--;
}

int rf_cache_find(struct rf_comm *comm, const struct rf_call *call, struct rf_cached **out)
{
    struct rf_cache *cache = comm->cache;
    if (cache->last && same(cache->last, call)) {
        *out = cache->last;
        return 0;
    }
    uint32_t home = slot_of(call);
    struct rf_cached *entry = NULL;
    for (uint32_t i = 0; i < PROBES && !entry; i++) {
        struct rf_cached *slot = &cache->slots[(home + i) % SLOTS];
        if (!slot->sched || same(slot, call))
            entry = slot;
    }
    for (uint32_t i = 0; i < PROBES && !entry; i++) {
        entry = &cache->slots[(home + cache->victim++ % PROBES) % SLOTS];
        if (entry->holders > 0)
            entry = NULL;
        else
            forget(entry);
    }
    if (!entry)
        return RF_EAGAIN;
    cache->last = NULL;
    if (!entry->sched) {
        int rc = build(comm, call, entry);
        if (rc < 0) {
            forget(entry);
            return rc;
        }
    }
    cache->last = entry;
    *out = entry;
    return 0;
}
