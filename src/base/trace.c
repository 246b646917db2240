/* SPDX-License-Identifier: MIT
 *
 * Trace events of all layers, kept in memory until they are written (comm/job/trace_gather.c).
 */
#include <pthread.h>
#include <ringforge/ringforge.h>
#include <stdatomic.h>

#include "base.h"

#define MAX_ITEMS 1000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rf_trace_item *items;
static size_t item_count, item_capacity;
static atomic_bool enabled;

void rf_trace_start(void)
{
    atomic_store(&enabled, true);
}

bool rf_trace_enabled(void)
{
    return atomic_load_explicit(&enabled, memory_order_relaxed);
}

static bool room_for_one(void)
{
    if (item_count < item_capacity)
        return true;
    if (item_capacity >= MAX_ITEMS)
        return false;
    size_t capacity = item_capacity ? item_capacity * 2 : 4096;
    struct rf_trace_item *larger = rf_realloc(items, capacity * sizeof(*items));
    if (!larger)
        return false;
    items = larger;
    item_capacity = capacity;
    return true;
}

void rf_trace_event(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns)
{
    if (!rf_trace_enabled())
        return;
    int rank = rf_thread_rank();
    pthread_mutex_lock(&lock);
    if (room_for_one()) {
        struct rf_trace_item *item = &items[item_count++];
        memset(item, 0, sizeof(*item));
        snprintf(item->track, sizeof(item->track), "%s", track);
        snprintf(item->name, sizeof(item->name), "%s", name);
        item->start_ns = start_ns;
        item->end_ns = end_ns;
        item->rank = rank;
    }
    pthread_mutex_unlock(&lock);
}

size_t rf_trace_items(struct rf_trace_item *out, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t count = item_count;
    if (out && items)
        memcpy(out, items, (count < capacity ? count : capacity) * sizeof(*items));
    pthread_mutex_unlock(&lock);
    return count;
}
