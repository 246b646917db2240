/* SPDX-License-Identifier: MIT
 *
 * Preserves the program's signal dispositions. Libraries that libfabric loads (libinfinipath,
 * libpsm2) install handlers in their constructors, and providers do when they open: these print, or
 * clean up, and call exit() within the handler. The previous dispositions are restored here.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "signals.h"

#include <link.h>

#include "base/base.h"

enum { BROUGHT_MAX = 256 };

/* The objects loaded with libfabric, for the life of the process: it is never unloaded. */
static struct {
    pthread_mutex_t lock;
    struct rf_object items[BROUGHT_MAX];
    size_t count;
} brought = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool holds(const struct rf_object *objects, size_t count, uintptr_t address)
{
    for (size_t i = 0; i < count; i++)
        if (address >= objects[i].from && address < objects[i].to)
            return true;
    return false;
}

static struct rf_object extent(const struct dl_phdr_info *info)
{
    struct rf_object object = {.from = UINTPTR_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type != PT_LOAD)
            continue;
        object.from = from < object.from ? from : object.from;
        object.to = to > object.to ? to : object.to;
    }
    return object;
}

static int count_object(struct dl_phdr_info *info, size_t bytes, void *count)
{
    ++*(size_t *)count;
    return 0;
}

static int list_object(struct dl_phdr_info *info, size_t bytes, void *user)
{
    struct rf_signals *kept = user;
    if (kept->object_count < kept->object_capacity)
        kept->objects[kept->object_count++] = extent(info);
    return 0;
}

static int add_brought(struct dl_phdr_info *info, size_t bytes, void *user)
{
    const struct rf_signals *kept = user;
    struct rf_object object = extent(info);
    bool ours = kept->library && kept->library >= object.from && kept->library < object.to;
    if ((ours || !holds(kept->objects, kept->object_count, object.from)) &&
        !holds(brought.items, brought.count, object.from) && brought.count < BROUGHT_MAX)
        brought.items[brought.count++] = object;
    return 0;
}

static uintptr_t handler(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO ? (uintptr_t)action->sa_sigaction
                                         : (uintptr_t)action->sa_handler;
}

int rf_signals_keep(struct rf_signals *kept)
{
    sigset_t held;
    *kept = (struct rf_signals){0};
    dl_iterate_phdr(count_object, &kept->object_capacity);
    kept->objects = rf_alloc((kept->object_capacity + 1) * sizeof(*kept->objects));
    if (!kept->objects)
        return rf_fail(RF_ENOMEM, "no memory to remember how signals are handled");
    pthread_mutex_lock(&brought.lock);
    /* None of their handlers runs on this thread meanwhile; faults are this thread's own. */
    sigfillset(&held);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&held, faults[i]);
    pthread_sigmask(SIG_SETMASK, &held, &kept->mask);
    dl_iterate_phdr(list_object, kept);
    for (int s = 1; s < NSIG; s++)
        kept->known[s] = sigaction(s, NULL, &kept->before[s]) == 0;
    return 0;
}

void rf_signals_put_back(struct rf_signals *kept, const void *library)
{
    kept->library = (uintptr_t)library;
    dl_iterate_phdr(add_brought, kept);
    for (int s = 1; s < NSIG; s++) {
        struct sigaction now;
        if (!kept->known[s] || sigaction(s, NULL, &now) != 0)
            continue;
        const uintptr_t is = handler(&now);
        /* Another thread of the program may just have installed its own handler: that stays. */
        bool theirs = is == (uintptr_t)SIG_DFL || is == (uintptr_t)SIG_IGN ||
                      holds(brought.items, brought.count, is);
        if (is != handler(&kept->before[s]) && theirs)
            sigaction(s, &kept->before[s], NULL);
    }
    pthread_mutex_unlock(&brought.lock);
    pthread_sigmask(SIG_SETMASK, &kept->mask, NULL);
    rf_free(kept->objects);
}
