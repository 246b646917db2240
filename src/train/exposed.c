/* SPDX-License-Identifier: MIT
 *
 * Measures how long compute waits for communication. The device waits for transfers by itself, so
 * the host records which submission waits for which transfer. It checks them when it submits the
 * next segment, and while it only waits. Called by the executor.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "run.h"

#define LOOK_NS 20000000ull

int rf_stalls_open(struct rf_run *run)
{
    int most = 0;
    for (int id = 0; id < RF_LIST_COUNT; id++) {
        const struct rf_list *list = &run->plan->lists[id];
        int waits = 0;
        for (int i = 0; i < list->count; i++)
            waits += list->instructions[i].waits;
        most = waits > most ? waits : most;
    }
    run->stalls = rf_alloc(((size_t)most + 1) * sizeof(*run->stalls));
    return run->stalls ? 0 : rf_fail(RF_ENOMEM, "run: out of host memory");
}

void rf_stalls_close(struct rf_run *run)
{
    rf_free(run->stalls);
    run->stalls = NULL;
}

/* The device has reached the stall. */
static void begin(struct rf_stall *s)
{
    s->begin_ns = s->begin_ns ? s->begin_ns : rf_now_ns();
}

static void end(struct rf_execution *p, const struct rf_stall *s)
{
    uint64_t *sum = s->disk ? &p->stats.exposed_disk_ns : &p->stats.exposed_comm_ns;
    *sum += s->begin_ns ? rf_now_ns() - s->begin_ns : 0;
    p->stalls_seen++;
}

void rf_stalls_poll(struct rf_execution *p)
{
    while (p->stalls_seen < p->stalls) {
        struct rf_stall *s = &p->run->stalls[p->stalls_seen];
        const bool over = rf_point_reached(s->transfer);
        if (!over && rf_point_reached(s->before))
            begin(s);
        if (!over)
            return;
        end(p, s);
    }
}

void rf_stalls_add(struct rf_execution *p, struct rf_point transfer, bool disk)
{
    if (rf_point_reached(transfer))
        return;
    p->run->stalls[p->stalls++] =
        (struct rf_stall){.before = p->computed, .transfer = transfer, .disk = disk};
    rf_stalls_poll(p);
}

/* If the job has failed, a transfer that this rank waits for in a group may never complete. */
int rf_run_wait(struct rf_execution *p, struct rf_point point)
{
    struct rf_comm *job = p->run->comm;
    for (;;) {
        int rc = rf_point_wait(point, job ? LOOK_NS : UINT64_MAX);
        if (rc != RF_ETIMEOUT)
            return rc;
        const int status = rf_comm_async_error(job);
        if (status == 0)
            continue;
        const struct rf_error error = *rf_last_error();
        rc = rf_comm_wait(job); /* also returns the reason if a transfer failed */
        return rc == status ? rc : rf_fail_error(&error);
    }
}

int rf_stalls_wait(struct rf_execution *p)
{
    for (rf_stalls_poll(p); p->stalls_seen < p->stalls; rf_stalls_poll(p)) {
        struct rf_stall *s = &p->run->stalls[p->stalls_seen];
        RETURN_IF_ERROR(rf_run_wait(p, s->before));
        if (!rf_point_reached(s->transfer))
            begin(s);
        RETURN_IF_ERROR(rf_run_wait(p, s->transfer));
        end(p, s);
    }
    return 0;
}
