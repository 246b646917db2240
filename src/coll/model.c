/* SPDX-License-Identifier: MIT
 *
 * Predicted times: what messages cost (Hockney 1994: one takes alpha + beta * bytes), for the costs
 * in the files of the algorithms. Called by these and table.c.
 */
#include "model.h"

#include <math.h>

#include "../base/base.h"

static double messages(const struct rf_cost_view *v, double bytes)
{
    return bytes > v->segment ? ceil(bytes / v->segment) : 1;
}

double rf_cost_fan(const struct rf_cost_view *v, double bytes)
{
    double all = v->others * messages(v, bytes);
    return v->m->round_s + (all - 1) * v->m->fan_message_s + v->others * bytes * v->m->fan_byte_s;
}

double rf_cost_hop(const struct rf_cost_view *v, double bytes)
{
    return v->m->round_s + (messages(v, bytes) - 1) * v->m->fan_message_s + bytes * v->m->byte_s;
}

double rf_cost_uncut(double message, double most, double seconds)
{
    return message <= most ? seconds : HUGE_VAL;
}

double rf_model_time(const struct rf_coll_model *model, const struct rf_coll_desc *desc,
                     size_t segment_bytes, rf_cost *cost)
{
    struct rf_cost_view v = {.m = model, .ranks = desc->ranks, .others = desc->ranks - 1};
    while (1 << (int)v.rounds < desc->ranks)
        v.rounds++;
    v.bytes = (double)desc->count * (double)rf_dtype_bytes(desc->dtype);
    if (rf_coll_has_shares(desc->op) && !desc->counts)
        v.bytes *= v.ranks;
    v.share = v.bytes / v.ranks;
    v.segment = (double)segment_bytes;
    for (int r = 0; desc->hosts && model->intra_host.round_s > 0 && r < desc->ranks; r++)
        v.hosts = desc->hosts[r] >= v.hosts ? desc->hosts[r] + 1 : v.hosts;
    v.here = v.hosts > 0 ? v.ranks / v.hosts : v.ranks;
    v.windows = ceil(fmax(v.bytes, 1) / (double)RF_WINDOW_BYTES);
    return cost(&v);
}
