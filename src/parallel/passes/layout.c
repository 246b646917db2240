/* SPDX-License-Identifier: MIT
 *
 * Pass: the flat buffers. Parameters are in reverse registration order, because backward completes
 * them in that order; so a bucket is contiguous. Each starts at a multiple of 64 elements. 16-bit
 * parameters precede f32 ones, and frozen parameters are last in the parameter buffer. In ring
 * order all uses of a tied parameter accumulate in the same memory. In tree order that sum would
 * depend on the ranks, so each use has its own memory, at the end of a gradient slot.
 */
#include <stdlib.h>

#include "../../base/base.h"
#include "../plan/frozen.h"
#include "passes.h"

/* Elements: clearing 64 KiB costs no more than another command. */
enum { LEAST_OVERWRITTEN = 16384 };

/* Elements: a vector of 16 bytes of any type. */
enum { LEAST_PART = 8 };

/* Parameters by name, so that the time of planning is linear in their number: a hash table of 2^k
 * entries, at most half of them used. */
struct names {
    int *entries; /* a parameter's index + 1; 0: free */
    uint32_t mask;
};

/* The entry of the parameter with this name, or the free one for it. */
static int *place_of(const struct rf_plan *plan, const struct names *names, const char *name)
{
    uint32_t at = rf_hash32(name, strlen(name), 0) & names->mask;
    while (names->entries[at] && strcmp(plan->params[names->entries[at] - 1].desc->name, name) != 0)
        at = (at + 1) & names->mask;
    return &names->entries[at];
}

static int check_tie(struct rf_plan *plan, const struct names *names, int index)
{
    struct rf_plan_param *param = &plan->params[index];
    const struct rf_param_desc *desc = param->desc;
    int owner = *place_of(plan, names, desc->tied_to) - 1;
    if (owner < 0)
        return rf_fail(RF_EINVAL,
                       "parameter %s is tied to %s, which is not declared before it; tie it to an "
                       "earlier parameter",
                       desc->name, desc->tied_to);
    owner = plan->params[owner].logical;
    if (!rf_shape_equal(plan->params[owner].desc->shape, desc->shape))
        return rf_fail(RF_EINVAL, "parameter %s is tied to %s, but their shapes differ", desc->name,
                       desc->tied_to);
    if (!rf_cut_same(&plan->params[owner].cut, &param->cut))
        return rf_fail(RF_EINVAL,
                       "parameter %s is tied to %s, but tensor ranks split them differently; "
                       "declare the same split, in blocks that both have tensor_sizes",
                       desc->name, desc->tied_to);
    param->logical = owner;
    return 0;
}

static int check_raw(const struct rf_param_desc *desc)
{
    if (!(desc->flags & RF_PARAM_FROZEN) || desc->tied_to || desc->init_std != 0 ||
        desc->init_value != 0 || desc->split.kind == RF_SPLIT_COLUMNS || desc->shape.ndim != 1 ||
        desc->shape.dim[0] % 4 != 0)
        return rf_fail(RF_ENOTSUP,
                       "parameter %s is u8: such a parameter is frozen, of one dimension, a "
                       "multiple of 4, zero at first, not split by columns, and not tied",
                       desc->name);
    return 0;
}

static int check_type(struct rf_plan *plan, const struct rf_param_desc *desc)
{
    if (desc->dtype == RF_F32)
        return 0;
    if (desc->dtype == RF_U8)
        return check_raw(desc);
    if (desc->dtype != RF_F16 && desc->dtype != RF_BF16)
        return rf_fail(RF_ENOTSUP, "parameter %s has the type %s: use f32, f16 or bf16", desc->name,
                       rf_dtype_name(desc->dtype));
    if (plan->copy_type != RF_F32 && plan->copy_type != desc->dtype)
        return rf_fail(RF_ENOTSUP,
                       "parameter %s has the type %s, others have %s: use a single 16-bit type",
                       desc->name, rf_dtype_name(desc->dtype), rf_dtype_name(plan->copy_type));
    plan->copy_type = desc->dtype;
    return 0;
}

/* Kernels choose their form by alignment, so the alignment of a part must not depend on the number
 * of ranks; nor must the blocks of states in 8 bits. */
static int check_grain(const struct rf_plan *plan, const struct rf_param_cut *cut,
                       const struct rf_param_desc *desc)
{
    const bool coded = rf_plan_codes(plan) && !(desc->flags & RF_PARAM_FROZEN) &&
                       rf_shape_count(cut->shape) >= RF_STATE_LEAST;
    const int64_t least = coded ? RF_STATE_BLOCK : LEAST_PART;
    /* Kernels read words of raw parameters. */
    const bool any = desc->dtype == RF_U8;
    for (int k = 0; plan->policy.tensor_parts && !any && k + 1 < cut->ranks; k++) {
        const struct rf_param_cut part = {cut->shape, cut->split, cut->ranks, k, 1};
        const int64_t count = rf_shape_count(rf_cut_shape(&part));
        if (cut->split.kind != RF_SPLIT_NONE && count % least != 0)
            return rf_fail(RF_EINVAL,
                           "parameter %s: each of its %d parts has %lld elements, which must be a "
                           "multiple of %d; use fewer tensor_parts, or a larger model",
                           desc->name, cut->ranks, (long long)count, (int)least);
    }
    return 0;
}

static int add_param(struct rf_plan *plan, struct names *names, int block, int index)
{
    const struct rf_param_desc *desc = &plan->blocks[block].params[index];
    int at = plan->param_count;
    struct rf_plan_param *param = &plan->params[at];
    if (!desc->name || !desc->name[0])
        return rf_fail(RF_EINVAL, "block %s: its parameter %d has no name",
                       plan->blocks[block].name, index);
    if (*place_of(plan, names, desc->name))
        return rf_fail(RF_EINVAL, "parameter %s is declared twice; names must be unique",
                       desc->name);
    RETURN_IF_ERROR(check_type(plan, desc));
    const bool raw = desc->dtype == RF_U8;
    const struct rf_param_cut cut = {.shape = raw ? rf_shape1(desc->shape.dim[0] / 4) : desc->shape,
                                     .split = plan->blocks[block].ops->tensor_sizes &&
                                                      !rf_plan_shares_sequences(plan)
                                                  ? desc->split
                                                  : (struct rf_split){0},
                                     .ranks = rf_plan_all_parts(plan),
                                     .rank = plan->tp_rank * rf_plan_parts(plan),
                                     .count = rf_plan_parts(plan)};
    if (rf_shape_count(desc->shape) < 1)
        return rf_fail(RF_EINVAL, "parameter %s has an empty or impossible shape", desc->name);
    RETURN_IF_ERROR(rf_cut_check(&cut, desc->name));
    RETURN_IF_ERROR(check_grain(plan, &cut, desc));
    *param = (struct rf_plan_param){.desc = desc,
                                    .block = block,
                                    .index = index,
                                    .logical = at,
                                    .owner = -1,
                                    .raw = raw,
                                    .cut = cut,
                                    .count = rf_shape_count(rf_cut_shape(&cut)),
                                    .grad_first = RF_NO_GRAD};
    if (desc->tied_to)
        RETURN_IF_ERROR(check_tie(plan, names, at));
    *place_of(plan, names, desc->name) = at + 1;
    plan->param_count++;
    return 0;
}

static int collect_params(struct rf_plan *plan)
{
    int total = 0;
    for (int b = 0; b < plan->block_count; b++) {
        if (!plan->blocks[b].ops || !plan->blocks[b].name)
            return rf_fail(RF_EINVAL, "block %d has no name or no operations; set both", b);
        total += plan->blocks[b].param_count;
    }
    struct names names = {.mask = 1};
    while ((int64_t)(names.mask / 2) < total)
        names.mask = 2 * names.mask + 1;
    names.entries = rf_alloc(((size_t)names.mask + 1) * sizeof(*names.entries));
    plan->params = rf_alloc((size_t)(total ? total : 1) * sizeof(*plan->params));
    plan->first_param = rf_alloc((size_t)plan->block_count * sizeof(*plan->first_param));
    int rc = 0;
    if (!plan->params || !plan->first_param || !names.entries)
        rc = rf_fail(RF_ENOMEM, "plan: out of memory for %d parameters", total);
    for (int b = 0; rc == 0 && b < plan->block_count; b++) {
        plan->first_param[b] = plan->param_count;
        for (int i = 0; rc == 0 && i < plan->blocks[b].param_count; i++)
            rc = add_param(plan, &names, b, i);
    }
    rf_free(names.entries);
    return rc;
}

/* If the updated parameters are sharded and all blocks use 16-bit parameters, no rank needs the
 * whole f32 parameters. */
void rf_plan_decide_units(struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    plan->units = plan->stage == 3 || rf_plan_params_with_host(plan) ||
                  (plan->stage > 0 && plan->copy_type != RF_F32);
    plan->keep_units =
        policy->keep_gathered || (plan->stage < 3 && !(policy->offload & RF_OFFLOAD_PARAMS));
}

/* Without masters all parameters are stored in the type that blocks use. */
static int check_masters(const struct rf_plan *plan)
{
    for (int i = 0; plan->policy.no_masters && i < plan->param_count; i++)
        if (!rf_plan_narrow(&plan->params[i]))
            return rf_fail(RF_EINVAL,
                           "no_masters: parameter %s is %s; declare all parameters f16, or all "
                           "bf16, or keep the masters",
                           plan->params[i].desc->name, rf_dtype_name(plan->params[i].desc->dtype));
    return 0;
}

/* Finds which parameters of this rank's blocks have their own storage. */
static void find_owners(struct rf_plan *plan)
{
    for (int i = 0; i < plan->param_count; i++) {
        struct rf_plan_param *param = &plan->params[i];
        if (!rf_plan_holds(plan, param->block))
            continue;
        /* Few parameters are tied, and each has at most two uses. */
        const int holder = param->logical == i ? -1 : rf_plan_holder(plan, i);
        param->owner = holder < 0 ? i : holder;
    }
}

/* Uses of a tied parameter are added in the order of their blocks. A sum of two is the same in
 * either order. More than two would first be added rank by rank, which in tree order changes the
 * bits. */
static int check_uses(const struct rf_plan *plan, const int *uses)
{
    const bool adds = plan->policy.order == RF_ORDER_TREE && !plan->policy.uses_apart;
    for (int i = 0; adds && i < plan->param_count; i++) {
        bool elsewhere = false;
        for (int k = i + 1; uses[i] > 2 && k < plan->param_count; k++)
            elsewhere |= plan->params[k].logical == i && plan->home_of[plan->params[k].block] !=
                                                             plan->home_of[plan->params[i].block];
        if (elsewhere)
            return rf_fail(RF_ENOTSUP,
                           "tree order with parameter %s, whose %d uses are on several ranks of a "
                           "pipeline, is not in this version; use ring order, or pp=1",
                           plan->params[i].desc->name, uses[i]);
    }
    return 0;
}

static bool frozen(const struct rf_plan *plan, int param)
{
    return !rf_plan_trains(plan, param);
}

/* A frozen parameter whose uses are all in 16 bits has no f32 values, and one whose uses are all in
 * f32 has no others. */
static void find_bare(struct rf_plan *plan)
{
    const bool one = !plan->policy.forward_only && !plan->policy.no_masters;
    for (int i = 0; i < plan->param_count; i++) {
        plan->params[i].bare = one && frozen(plan, i);
        plan->params[i].single = plan->params[i].bare && plan->copy_type != RF_F32;
    }
    for (int i = 0; i < plan->param_count; i++)
        if (rf_plan_narrow(&plan->params[i]))
            plan->params[plan->params[i].logical].single = false;
        else
            plan->params[plan->params[i].logical].bare = false;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *first = &plan->params[plan->params[i].logical];
        plan->params[i].bare = first->bare;
        plan->params[i].single = first->single || plan->params[i].raw;
    }
}

/* Trained parameters, then frozen ones; within each group one zone after the other. */
static void place_owners(struct rf_plan *plan)
{
    uint64_t at = 0;
    for (int pass = 0; pass < 2 * RF_ZONES; pass++) {
        for (int i = plan->param_count - 1; i >= 0; i--) {
            struct rf_plan_param *param = &plan->params[i];
            if (param->owner != i || RF_ZONES * frozen(plan, i) + rf_plan_zone(plan, i) != pass)
                continue;
            param->first = at;
            if (pass < RF_ZONES)
                param->grad_first = at;
            at += rf_plan_padded(plan, (uint64_t)param->count);
        }
        if (pass == RF_CODED_ZONES - 1)
            plan->coded_elements = at;
        if (pass == RF_ZONES - 1)
            plan->train_elements = at;
        if (pass == 2 * RF_ZONES - 3)
            plan->master_elements = at;
        if (pass == 2 * RF_ZONES - 2)
            plan->copy_elements = at;
    }
    plan->param_elements = at;
}

static void place_params(struct rf_plan *plan)
{
    uint64_t at;
    place_owners(plan);
    at = plan->train_elements;
    for (int i = plan->param_count - 1; i >= 0; i--) {
        struct rf_plan_param *param = &plan->params[i];
        if (param->owner == i || param->owner < 0)
            continue;
        param->first = plan->params[param->owner].first;
        param->grad_first = plan->params[param->owner].grad_first;
        if (plan->policy.order == RF_ORDER_TREE && !frozen(plan, i)) {
            param->grad_first = at;
            at += rf_plan_padded(plan, (uint64_t)param->count);
        }
    }
    plan->slot_elements = at;
}

/* Whether this use is the first in the backward pass. */
static bool touches_first(const struct rf_plan *plan, const int *uses, int param)
{
    const struct rf_plan_param *p = &plan->params[param];
    /* In ring order all uses on a rank share the gradient. Few parameters have several uses. */
    const bool shared = plan->policy.order != RF_ORDER_TREE && uses[p->logical] > 1;
    for (int i = param + 1; shared && i < plan->param_count; i++)
        if (plan->params[i].logical == p->logical &&
            plan->home_of[plan->params[i].block] == plan->home_of[p->block])
            return false;
    return rf_plan_trains(plan, param);
}

static int by_gradient(const void *a, const void *b)
{
    const struct rf_plan_param *const *left = a, *const *right = b;
    return ((*left)->grad_first > (*right)->grad_first) -
           ((*left)->grad_first < (*right)->grad_first);
}

/* The spans of a gradient slot that are cleared: all except the gradients that the first
 * micro-batch overwrites. Spans are in order. Small gradients are cleared in any case, so that
 * there are few spans. */
static int place_cleared(struct rf_plan *plan)
{
    uint64_t at = 0;
    int count = 0;
    const struct rf_plan_param **list =
        rf_alloc(((size_t)plan->param_count + 1) * sizeof(const struct rf_plan_param *));
    plan->cleared = rf_alloc(((size_t)plan->param_count + 1) * sizeof(*plan->cleared));
    if (!list || !plan->cleared) {
        rf_free(list);
        return rf_fail(RF_ENOMEM, "plan: out of memory for the layout");
    }
    for (int i = 0; i < plan->param_count; i++)
        if (plan->params[i].owner >= 0 && plan->params[i].overwrite_grad)
            list[count++] = &plan->params[i];
    qsort(list, (size_t)count, sizeof(*list), by_gradient);
    for (int k = 0; k <= count; k++) {
        uint64_t end = k < count ? list[k]->grad_first : plan->slot_elements;
        if (end > at)
            plan->cleared[plan->cleared_count++] = (struct rf_plan_span){at, end - at};
        if (k < count) /* the padding of a block of states must stay 0 */
            end += rf_plan_codes(plan) ? (uint64_t)list[k]->count
                                       : rf_plan_padded(plan, (uint64_t)list[k]->count);
        at = end;
    }
    rf_free(list);
    return 0;
}

static int mark_overwritten(struct rf_plan *plan, const int *uses)
{
    for (int i = 0; i < plan->param_count; i++) {
        struct rf_plan_param *param = &plan->params[i];
        /* A delayed weight half runs after another micro-batch has added to the gradient. */
        param->overwrite_grad = (param->desc->flags & RF_PARAM_OVERWRITE_GRAD) != 0 &&
                                param->count >= LEAST_OVERWRITTEN && touches_first(plan, uses, i) &&
                                !rf_plan_delays_weights(plan);
    }
    return place_cleared(plan);
}

/* Counts the elements of all ranks. */
static void count_elements(struct rf_plan *plan)
{
    plan->first_back = plan->block_count;
    for (int b = plan->block_count - 1; b >= 0; b--)
        if (rf_plan_block_trains(plan, b))
            plan->first_back = b;
    for (int i = 0; i < plan->param_count; i++) {
        plan->trains = plan->trains || rf_plan_trains(plan, i);
        if (plan->params[i].logical == i)
            plan->logical_elements += rf_shape_count(plan->params[i].cut.shape);
    }
}

static int lay_out(struct rf_plan *plan, int *uses)
{
    for (int i = 0; i < plan->param_count; i++)
        uses[plan->params[i].logical]++;
    RETURN_IF_ERROR(check_masters(plan));
    if (plan->mesh.pp > 1)
        RETURN_IF_ERROR(check_uses(plan, uses));
    rf_plan_decide_units(plan);
    find_owners(plan);
    find_bare(plan);
    place_params(plan);
    RETURN_IF_ERROR(mark_overwritten(plan, uses));
    count_elements(plan);
    if (!plan->trains && !plan->policy.forward_only && plan->param_count > 0)
        return rf_fail(RF_EINVAL,
                       "all %d parameters are frozen, so there is nothing to train; leave one of "
                       "them trained, or set forward_only",
                       plan->param_count);
    return 0;
}

int rf_pass_layout(struct rf_plan *plan)
{
    RETURN_IF_ERROR(collect_params(plan));
    int *uses = rf_alloc(((size_t)plan->param_count + 1) * sizeof(*uses)); /* of logical ones */
    if (!uses)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the layout");
    const int rc = lay_out(plan, uses);
    rf_free(uses);
    return rc;
}
