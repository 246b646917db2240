/* SPDX-License-Identifier: MIT
 *
 * Predicted times: for each algorithm its rounds, messages and bytes (docs/collectives.md), at what
 * they cost (Hockney 1994: a message takes alpha + beta * bytes). Called by table.c.
 */
#include "model.h"

#include <math.h>

#include "../base/base.h"

enum {
    SHORTEST_SEGMENT = 64 << 10,
    LONGEST_SEGMENT = 1 << 20,
    UNCUT = 256 << 10,
    LONGEST_UNCUT = 2 << 20,
    LONGEST_EXCHANGED = 1 << 20 /* in both directions: 95 % of a link of 1 Gbit/s; 2 MiB: 79 % */
};

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

/* Some algorithms do not cut their messages, and so are for short ones: what overruns the buffers
 * of a connection is slower than was measured. Past this many bytes a message they are not taken.
 */
static double uncut(double message, double most, double seconds)
{
    return message <= most ? seconds : HUGE_VAL;
}

double rf_cost_flat_all_reduce(const struct rf_cost_view *v)
{
    return uncut(v->bytes, UNCUT,
                 rf_cost_fan(v, v->bytes) + v->others * v->bytes * v->m->fold_byte_s);
}
double rf_cost_recursive_doubling_all_reduce(const struct rf_cost_view *v)
{
    return uncut(v->bytes, UNCUT,
                 v->rounds * (rf_cost_hop(v, v->bytes) + v->bytes * v->m->fold_byte_s));
}
double rf_cost_rabenseifner_all_reduce(const struct rf_cost_view *v)
{
    return uncut(v->bytes / 2, LONGEST_EXCHANGED,
                 2 * v->rounds * v->m->round_s +
                     v->others * v->share * (2 * v->m->byte_s + v->m->fold_byte_s));
}
/* Long messages that reach a rank from all others at once hold each other up, which a trial of
 * short ones does not show: 88 % of links of 1 Gbit/s at 4 MiB, where the ring has 95 %. */
double rf_cost_direct_all_reduce(const struct rf_cost_view *v)
{
    const double held_up = v->share >= UNCUT && v->others > 1 ? 1.08 : 1;
    return 2 * held_up * rf_cost_fan(v, v->share) + v->others * v->share * v->m->fold_byte_s;
}
double rf_cost_ring_all_reduce(const struct rf_cost_view *v)
{
    return v->others * (2 * rf_cost_hop(v, v->share) + v->share * v->m->fold_byte_s);
}
double rf_cost_bruck_all_gather(const struct rf_cost_view *v)
{
    return uncut(v->bytes / 2, LONGEST_UNCUT,
                 v->rounds * v->m->round_s + v->others * v->share * v->m->byte_s +
                     2 * v->bytes * v->m->fold_byte_s); /* two copies of the whole */
}
double rf_cost_flat_all_gather(const struct rf_cost_view *v)
{
    return uncut(v->share, v->ranks > 2 ? UNCUT : HUGE_VAL, rf_cost_fan(v, v->share));
}
double rf_cost_flat_rooted(const struct rf_cost_view *v)
{
    return rf_cost_fan(v, v->share);
}
double rf_cost_ring_all_gather(const struct rf_cost_view *v)
{
    return v->others * rf_cost_hop(v, v->share);
}
double rf_cost_tree_broadcast(const struct rf_cost_view *v)
{
    return v->rounds * rf_cost_hop(v, v->bytes);
}
double rf_cost_chain_broadcast(const struct rf_cost_view *v)
{
    double first = v->bytes < v->segment ? v->bytes : v->segment;
    return (v->others - 1) * (v->m->round_s + first * v->m->byte_s) + rf_cost_hop(v, v->bytes);
}
/* Next to the root half of the whole passes a rank, after a quarter has, and so on. */
double rf_cost_tree_rooted(const struct rf_cost_view *v)
{
    return uncut(v->bytes / 2, LONGEST_UNCUT,
                 v->rounds * v->m->round_s + v->others * v->share * v->m->byte_s +
                     v->bytes * v->m->fold_byte_s);
}

/* ---- by hosts: within, between, within (hierarchical.c)
 * --------------------------------------------- */

/* What a rank has to do with ranks of its own host, in one direction: a part of every share of the
 * others, and its own share. */
static double within(const struct rf_cost_view *v)
{
    double others = v->ranks - v->here;
    return v->windows * (others + 1) * v->m->intra_host.round_s +
           v->bytes * (v->here - 1) / v->here * v->m->intra_host.byte_s;
}
static double between(const struct rf_cost_view *v)
{
    return v->windows * v->m->inter_host.round_s +
           v->bytes * (v->hosts - 1) / v->ranks * v->m->inter_host.byte_s;
}
static double fold_by_hosts(const struct rf_cost_view *v)
{
    double parts = v->bytes * (v->hosts - 1) / v->ranks * (v->here - 1);
    double own = v->share * (v->here + v->hosts - 2);
    return (parts + own) * v->m->fold_byte_s;
}
double rf_cost_hierarchical_reduce_scatter(const struct rf_cost_view *v)
{
    return v->hosts > 0 ? within(v) + between(v) + fold_by_hosts(v) : HUGE_VAL;
}
double rf_cost_hierarchical_all_gather(const struct rf_cost_view *v)
{
    return v->hosts > 0 ? within(v) + between(v) : HUGE_VAL;
}
double rf_cost_hierarchical_all_reduce(const struct rf_cost_view *v)
{
    return rf_cost_hierarchical_reduce_scatter(v) + rf_cost_hierarchical_all_gather(v);
}
/* Every byte passes once from host to host, and from rank to rank within each. */
double rf_cost_hierarchical_broadcast(const struct rf_cost_view *v)
{
    double first = v->bytes < v->segment ? v->bytes : v->segment;
    if (v->hosts == 0)
        return HUGE_VAL;
    return (v->hosts - 2) * (v->m->round_s + first * v->m->byte_s) + rf_cost_hop(v, v->bytes) +
           (v->here - 1) * (v->m->intra_host.round_s + first * v->m->intra_host.byte_s) +
           v->bytes * v->m->intra_host.byte_s;
}
double rf_cost_direct_reduce_scatter(const struct rf_cost_view *v)
{
    return rf_cost_fan(v, v->share) + v->others * v->share * v->m->fold_byte_s;
}
double rf_cost_halving_reduce_scatter(const struct rf_cost_view *v)
{
    return uncut(v->bytes / 2, LONGEST_EXCHANGED,
                 v->rounds * v->m->round_s +
                     v->others * v->share * (v->m->byte_s + v->m->fold_byte_s));
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

static size_t usual_segment(const struct rf_coll_desc *desc)
{
    return desc->model ? desc->model->segment_bytes : desc->segment_bytes;
}

/* In a chain each rank but the last waits for one segment, and every segment costs a message: the
 * sum is least where both are equal. */
size_t rf_segment_chain(const struct rf_coll_desc *desc)
{
    const struct rf_coll_model *model = desc->model;
    if (!model || desc->ranks < 3)
        return usual_segment(desc);
    double bytes = (double)desc->count * (double)rf_dtype_bytes(desc->dtype);
    double best = sqrt(bytes * model->fan_message_s / ((desc->ranks - 2) * model->byte_s));
    size_t segment = SHORTEST_SEGMENT;
    while (segment < LONGEST_SEGMENT && (double)segment * M_SQRT2 < best)
        segment *= 2;
    return segment;
}

/* While the root adds a part nobody receives, so that the sender waits once what is under way is
 * full, and nothing overlaps the last part's sum. With a quarter of what suits ranks that send and
 * receive, 1 and 4 MiB over TCP take a seventh less time. */
size_t rf_segment_flat_reduce(const struct rf_coll_desc *desc)
{
    return usual_segment(desc) / (desc->shared ? 1 : 4);
}
