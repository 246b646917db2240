/* SPDX-License-Identifier: MIT
 *
 * See processes.h. Process numbers are comparable only within one kernel and namespace, and are
 * reused: so a process is identified by its start time as well.
 */
#include "processes.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../transport.h"
#include "base/base.h"
#include "control.h"

/* Rank 0 relays goodbyes, so one may arrive after the process has ended. */
#define GRACE_NS 300000000ull
enum { MOST_WATCHED = 256 };

/* Small, because rank 0 relays the records of all ranks to all ranks. */
struct process {
    uint64_t names; /* hash of the kernel and the namespace of its number; 0 = unknown */
    uint32_t number;
    uint32_t born; /* 0 = unknown */
};

struct watched {
    int rank, fd;      /* fd: -1 = ended */
    uint64_t ended_ns; /* 0 = runs, UINT64_MAX = has been reported */
};

struct rf_processes {
    int epoll, count;
    struct watched watched[MOST_WATCHED];
};

/* The start time of a process, in ticks since boot; 0 = no such process. */
static uint32_t birth_of(uint32_t number)
{
    char path[48], text[1024];
    unsigned long long born = 0;
    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", number);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = 0;
    /* The name may contain any characters; the start time is the 20th field after it. */
    const char *at = strrchr(text, ')');
    for (int field = 0; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%llu", &born) == 1 ? (uint32_t)born : 0;
}

static void describe_self(struct process *out)
{
    struct stat names;
    char kernel[64] = {0};
    memset(out, 0, sizeof(*out));
    rf_host_name(kernel, sizeof(kernel));
    if (stat("/proc/self/ns/pid", &names) == 0) {
        const uint32_t low = rf_hash32(kernel, sizeof(kernel), (uint32_t)names.st_ino);
        out->names = (uint64_t)rf_hash32(kernel, sizeof(kernel), low) << 32 | low;
    }
    out->number = (uint32_t)getpid();
    out->born = birth_of(out->number);
}

static bool is_neighbour(const struct process *own, const struct process *other)
{
    return own->names > 0 && own->names == other->names && own->born > 0 && other->born > 0 &&
           own->number != other->number;
}

/* Does not use glibc's function, which Debian 12 has but others may not. */
static int open_process(uint32_t number)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (int)number, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* An open pidfd keeps its number from being reused, so the start time is compared afterwards. */
static void watch(struct rf_processes *p, int rank, const struct process *process)
{
    int fd = open_process(process->number);
    if (fd < 0 && errno != ESRCH) {
        rf_log("transport", 2, "the process of rank %d cannot be watched: %s", rank,
               strerror(errno));
        return;
    }
    struct watched *w = &p->watched[p->count];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)p->count};
    *w = (struct watched){.rank = rank, .fd = fd};
    if (fd < 0 || birth_of(process->number) != process->born)
        w->ended_ns = rf_now_ns();
    else if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        w->ended_ns = UINT64_MAX; /* never */
    if (w->ended_ns && fd >= 0) {
        close(fd);
        w->fd = -1;
    }
    p->count++;
}

static struct rf_processes *watch_all(const struct rf_control *control, const struct process *all)
{
    const struct process *own = &all[control->rank];
    struct rf_processes *p = NULL;
    for (int r = 0; r < control->size; r++) {
        if (r == control->rank || !is_neighbour(own, &all[r]) || (p && p->count == MOST_WATCHED))
            continue;
        if (!p && (p = rf_alloc(sizeof(*p))))
            p->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (p && p->epoll >= 0)
            watch(p, r, &all[r]);
    }
    if (p && p->count > 0)
        return p;
    rf_processes_close(p);
    return NULL;
}

int rf_processes_open(struct rf_control *control, double timeout_s, struct rf_processes **out)
{
    struct process own, *all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for the processes of %d ranks", control->size);
    describe_self(&own);
    int rc = control->ops->all_gather(control, &own, sizeof(own), all, timeout_s);
    *out = rc == 0 ? watch_all(control, all) : NULL;
    rf_free(all);
    return rc;
}

void rf_processes_close(struct rf_processes *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->count; i++)
        if (p->watched[i].fd >= 0)
            close(p->watched[i].fd);
    if (p->epoll >= 0)
        close(p->epoll);
    rf_free(p);
}

int rf_processes_fd(const struct rf_processes *p)
{
    return p ? p->epoll : -1;
}

int rf_processes_next(struct rf_processes *p, uint64_t now_ns)
{
    struct epoll_event event;
    if (!p)
        return -1;
    while (epoll_wait(p->epoll, &event, 1, 0) == 1) {
        struct watched *w = &p->watched[event.data.u32];
        close(w->fd); /* also removes it from the epoll set */
        w->fd = -1;
        w->ended_ns = now_ns;
    }
    for (int i = 0; i < p->count; i++) {
        struct watched *w = &p->watched[i];
        if (w->ended_ns > 0 && w->ended_ns < UINT64_MAX && now_ns - w->ended_ns >= GRACE_NS) {
            w->ended_ns = UINT64_MAX;
            return w->rank;
        }
    }
    return -1;
}

uint64_t rf_processes_deadline(const struct rf_processes *p)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; p && i < p->count; i++)
        if (p->watched[i].ended_ns > 0 && p->watched[i].ended_ns < first)
            first = p->watched[i].ended_ns;
    return first < UINT64_MAX ? first + GRACE_NS : UINT64_MAX;
}
