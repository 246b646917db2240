/* SPDX-License-Identifier: MIT
 *
 * Makes a whole schedule: the builder writes it, window by window (windows.c), and its dependencies
 * become lists of successors. Called by build.c.
 */
#include "../base/base.h"
#include "sched.h"
#include "windows.h"

/* Receives first, so that nothing arrives unexpected; local work last, so that it runs while the
 * network does. */
static int root_class(const struct rf_step *step)
{
    return step->verb == RF_STEP_RECV ? 0 : step->verb == RF_STEP_SEND ? 1 : 2;
}

static int compile(struct rf_sched *sched)
{
    sched->successors = rf_alloc((sched->edge_count + 1) * sizeof(uint32_t));
    sched->roots = rf_alloc((sched->count + 1) * sizeof(uint32_t));
    if (!sched->successors || !sched->roots)
        return rf_fail(RF_ENOMEM, "%s: out of memory for a schedule of %u steps",
                       rf_coll_op_name(sched->op), sched->count);
    for (uint32_t e = 0; e < sched->edge_count; e++) {
        sched->steps[sched->edges[e].step].need++;
        sched->steps[sched->edges[e].after].next_count++;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < sched->count; i++) {
        sched->steps[i].next = next;
        next += sched->steps[i].next_count;
        sched->steps[i].next_count = 0;
    }
    for (uint32_t e = 0; e < sched->edge_count; e++) {
        struct rf_step *after = &sched->steps[sched->edges[e].after];
        sched->successors[after->next + after->next_count++] = sched->edges[e].step;
    }
    rf_free(sched->edges);
    sched->edges = NULL;
    for (int class = 0; class < 2; class ++)
        for (uint32_t i = 0; i < sched->count; i++)
            if (sched->steps[i].need == 0 && root_class(&sched->steps[i]) == class)
                sched->roots[sched->root_count++] = i;
    for (uint32_t i = sched->count; i-- > 0;) /* a stack: the first must be on top */
        if (sched->steps[i].need == 0 && root_class(&sched->steps[i]) == 2)
            sched->roots[sched->root_count++] = i;
    for (uint32_t i = 0; i < sched->count; i++) {
        const struct rf_step *step = &sched->steps[i];
        sched->recv_count += step->verb == RF_STEP_RECV;
        sched->recv_roots += step->verb == RF_STEP_RECV && step->need == 0;
    }
    return 0;
}

int rf_sched_create(const struct rf_coll_desc *desc, const char *algorithm, rf_builder *build,
                    bool can_cut, struct rf_sched **out)
{
    struct rf_sched *sched = rf_alloc(sizeof(*sched));
    if (!sched)
        return rf_fail(RF_ENOMEM, "%s: out of memory for a schedule", rf_coll_op_name(desc->op));
    sched->op = desc->op;
    sched->rank = desc->rank;
    sched->ranks = desc->ranks;
    sched->dtype = desc->dtype;
    sched->redop = desc->redop;
    sched->element_bytes = rf_dtype_bytes(desc->dtype);
    sched->algorithm = algorithm;
    rf_build_windows(sched, desc, build, can_cut);
    int status = sched->status < 0 ? sched->status : compile(sched);
    if (status < 0) {
        rf_sched_destroy(sched);
        return status;
    }
    sched->counted_bytes = sched->sent_bytes;
    *out = sched;
    return 0;
}
