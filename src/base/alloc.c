/* SPDX-License-Identifier: MIT
 *
 * Host memory. It is zeroed. Tests can make a chosen allocation fail, to test error paths.
 */
#include <stdatomic.h>

#include "base.h"

static _Atomic uint64_t fail_at, calls, largest;

static bool told_to_fail(size_t bytes)
{
    uint64_t most = atomic_load_explicit(&largest, memory_order_relaxed);
    while (bytes > most && !atomic_compare_exchange_weak(&largest, &most, bytes))
        ;
    uint64_t nth = atomic_fetch_add(&calls, 1) + 1;
    return nth == atomic_load(&fail_at);
}

uint64_t rf_alloc_fail_at(uint64_t nth)
{
    atomic_store(&fail_at, nth);
    return atomic_exchange(&calls, 0);
}

uint64_t rf_alloc_largest(void)
{
    return atomic_exchange(&largest, 0);
}

void *rf_alloc(size_t bytes)
{
    if (told_to_fail(bytes))
        return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *rf_alloc_aligned(size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (told_to_fail(bytes) || posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0)
        return NULL;
    memset(memory, 0, bytes ? bytes : 1);
    return memory;
}

void *rf_realloc(void *memory, size_t bytes)
{
    if (told_to_fail(bytes))
        return NULL;
    return realloc(memory, bytes ? bytes : 1);
}

char *rf_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = rf_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void rf_free(void *memory)
{
    free(memory);
}
