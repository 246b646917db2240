/* SPDX-License-Identifier: MIT
 *
 * How many elements of parameters, gradients and optimizer states the rank with a given shard has.
 */
#include <stdlib.h>

#include "../../base/base.h"
#include "plan.h"

uint64_t rf_plan_shard_elements(const struct rf_plan *plan, int shard, bool frozen)
{
    uint64_t elements = 0;
    for (int k = 0; k < (frozen ? plan->piece_count : plan->trained_pieces); k++)
        if (plan->pieces[k].use < 0)
            elements += rf_plan_padded(plan, plan->pieces[k].counts[shard]);
    return elements;
}

uint64_t rf_plan_state_elements(const struct rf_plan *plan, int shard)
{
    return plan->shards == 1 ? plan->train_elements : rf_plan_shard_elements(plan, shard, false);
}

/* Of these, those with states in 8 bits. */
static uint64_t coded_elements(const struct rf_plan *plan, int shard)
{
    uint64_t elements = 0;
    if (plan->shards == 1)
        return plan->coded_elements;
    for (int k = 0; k < plan->trained_pieces; k++)
        if (plan->pieces[k].use < 0 && plan->pieces[k].coded)
            elements += rf_plan_padded(plan, plan->pieces[k].counts[shard]);
    return elements;
}

uint64_t rf_plan_state_offset(const struct rf_plan *plan, int k, int shard, uint64_t element)
{
    if (k == RF_STATE_BEFORE || !rf_plan_codes(plan))
        return element *
               (k == RF_STATE_BEFORE ? sizeof(float) : rf_dtype_bytes(plan->policy.state_dtype));
    const uint64_t most = coded_elements(plan, shard), coded = element < most ? element : most;
    return coded / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES + (element - coded) * sizeof(float);
}

uint64_t rf_plan_state_bytes(const struct rf_plan *plan, int k, int shard)
{
    return rf_plan_state_offset(plan, k, shard, rf_plan_state_elements(plan, shard));
}

uint64_t rf_plan_largest_shard(const struct rf_plan *plan, const struct rf_plan_piece *piece)
{
    uint64_t most = 0;
    for (int k = 0; k < plan->shards; k++)
        most = piece->counts[k] > most ? piece->counts[k] : most;
    return rf_plan_padded(plan, most);
}

/* ---- blocks of states on a disk -------------------------------------------------------------- */

enum { DISK_GRAIN = 1024 }; /* elements: blocks of 8-bit states and words of decay stay whole */

uint64_t rf_plan_disk_block(const struct rf_plan *plan, int piece)
{
    const enum rf_dtype type = rf_plan_state_type(plan, piece);
    const uint64_t grain_bytes = type == RF_U8 ? DISK_GRAIN / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES
                                               : DISK_GRAIN * rf_dtype_bytes(type);
    uint64_t states = 0;
    for (int k = 0; k < RF_PLAN_STATES; k++)
        states += rf_plan_has_state(plan, k);
    const uint64_t grains = plan->policy.disk_block_bytes / (grain_bytes * (states ? states : 1));
    return (grains ? grains : 1) * DISK_GRAIN;
}

int rf_plan_disk_blocks(const struct rf_plan *plan, int piece)
{
    const uint64_t block = rf_plan_disk_block(plan, piece);
    return (int)((rf_plan_largest_shard(plan, &plan->pieces[piece]) + block - 1) / block);
}

struct rf_plan_span rf_plan_disk_span(const struct rf_plan *plan, int piece, int block)
{
    const uint64_t each = rf_plan_disk_block(plan, piece);
    struct rf_plan_span span = {(uint64_t)block * each, each};
    rf_plan_clip(&span, 0, rf_plan_padded(plan, plan->pieces[piece].counts[plan->shard]));
    return span;
}

uint64_t rf_plan_place_words(const struct rf_plan *plan, int shard)
{
    const uint64_t blocks = rf_plan_state_elements(plan, shard) / RF_FLAT_GRAIN;
    return plan->place_runs
               ? 2 * blocks + plan->place_runs * sizeof(struct rf_place_run) / sizeof(uint32_t)
               : 0;
}

uint64_t rf_plan_param_elements(const struct rf_plan *plan, int shard)
{
    return rf_plan_shards_params(plan) ? rf_plan_shard_elements(plan, shard, true)
                                       : plan->param_elements;
}

/* Elements of the bare pieces, or of the single ones. */
static uint64_t frozen_elements(const struct rf_plan *plan, int shard, bool single)
{
    uint64_t elements = 0;
    for (int k = plan->trained_pieces; k < plan->piece_count; k++)
        if (single ? plan->pieces[k].single : plan->pieces[k].bare)
            elements += rf_plan_padded(plan, plan->pieces[k].counts[shard]);
    return elements;
}

uint64_t rf_plan_copy_elements(const struct rf_plan *plan, int shard)
{
    return rf_plan_shards_params(plan)
               ? rf_plan_param_elements(plan, shard) - frozen_elements(plan, shard, true)
               : plan->copy_elements;
}

uint64_t rf_plan_bare_elements(const struct rf_plan *plan, int shard)
{
    return rf_plan_shards_params(plan) ? frozen_elements(plan, shard, false)
                                       : plan->copy_elements - plan->master_elements;
}

uint64_t rf_plan_master_elements(const struct rf_plan *plan, int shard)
{
    return rf_plan_copy_elements(plan, shard) - rf_plan_bare_elements(plan, shard);
}

/* Slots of gradients. With sharded gradients, the partial sums of the shards: place_shards in
 * pieces.c. */
uint64_t rf_plan_grad_elements(const struct rf_plan *plan, int shard)
{
    uint64_t elements = 0;
    if (rf_plan_in_backward(plan))
        return 0;
    if (plan->stage < 2)
        return (uint64_t)plan->slots * plan->slot_elements;
    for (int k = 0; k < plan->trained_pieces; k++) {
        const uint64_t count = plan->pieces[k].counts[shard];
        elements += rf_plan_padded(plan, count * (uint64_t)(plan->sum_slots - 1)) +
                    rf_plan_padded(plan, count);
    }
    return elements;
}

struct rf_plan_span rf_plan_trained_span(const struct rf_plan *plan, int i)
{
    const struct rf_plan_param *param = &plan->params[i];
    struct rf_plan_span ours = {param->first, (uint64_t)param->count};
    if (param->owner != i || !rf_plan_trains(plan, i))
        return (struct rf_plan_span){0, 0};
    const struct rf_plan_piece *piece = &plan->pieces[param->piece];
    if (rf_plan_shards_params(plan))
        rf_plan_clip(&ours, piece->first + piece->borders[plan->shard], piece->counts[plan->shard]);
    ours.first -= param->first;
    return ours;
}

int64_t rf_plan_trained_count(const struct rf_plan *plan)
{
    uint64_t count = 0;
    for (int i = 0; i < plan->param_count; i++)
        count += rf_plan_trained_span(plan, i).count;
    return (int64_t)count;
}

/* The elements of trained parameters before one of the whole model. */
static int64_t elements_before(const struct rf_plan *plan, int param)
{
    int64_t count = 0;
    for (int i = 0; i < param; i++)
        if (plan->params[i].logical == i && rf_plan_trains(plan, i))
            count += rf_shape_count(plan->params[i].cut.shape);
    return count;
}

int64_t rf_plan_trained_all(const struct rf_plan *plan)
{
    return elements_before(plan, plan->param_count);
}

int rf_plan_use_apart(const struct rf_plan *plan, int index, int64_t *first, int64_t *count)
{
    for (int i = 0; rf_plan_leaves_apart(plan) && i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->logical == i || !rf_plan_trains(plan, i) || index-- > 0)
            continue;
        *first = elements_before(plan, param->logical);
        *count = rf_shape_count(param->cut.shape);
        return i;
    }
    return -1;
}

int rf_plan_trained_use(const struct rf_plan *plan, int index, int64_t *first, int64_t *count)
{
    if (!plan || !first || !count || rf_plan_use_apart(plan, index, first, count) < 0)
        return rf_fail(RF_EINVAL, "the plan has no further uses of parameters apart");
    return 0;
}

int rf_plan_trained_undecayed(const struct rf_plan *plan, int index, int64_t *first, int64_t *count)
{
    for (int i = 0; plan && first && count && i < plan->param_count; i++)
        if (plan->params[i].logical == i && rf_plan_trains(plan, i) &&
            !(rf_plan_desc(plan, i)->flags & RF_PARAM_DECAY) && index-- == 0) {
            *first = elements_before(plan, i);
            *count = rf_shape_count(plan->params[i].cut.shape);
            return 0;
        }
    return rf_fail(RF_EINVAL, "the plan has no further parameters that are not decayed");
}

int rf_plan_rows_of(int64_t first, int64_t count, const struct rf_shape *shape,
                    struct rf_round_shape out[3])
{
    const int64_t columns = shape->ndim > 1 ? rf_shape_count(*shape) / shape->dim[0] : 1;
    int64_t before = (columns - first % columns) % columns;
    before = before < count ? before : count;
    const struct rf_round_shape all[] = {
        {1, before}, {(count - before) / columns, columns}, {1, (count - before) % columns}};
    int used = 0;
    for (int k = 0; k < 3; k++)
        if (all[k].rows > 0 && all[k].columns > 0)
            out[used++] = all[k];
    return used;
}

int rf_plan_trained_shapes(const struct rf_plan *plan, struct rf_round_shape **out, int *count)
{
    struct rf_round_shape *list = malloc(3 * (size_t)plan->param_count * sizeof(*list) + 1);
    int all = 0;
    if (!list)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the shapes of parameters");
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_span ours = rf_plan_trained_span(plan, i);
        if (ours.count == 0)
            continue;
        const struct rf_shape shape = rf_cut_shape(&plan->params[i].cut);
        all += rf_plan_rows_of((int64_t)ours.first, (int64_t)ours.count, &shape, list + all);
    }
    *out = list;
    *count = all;
    return 0;
}
