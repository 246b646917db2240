/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --fits: the largest model inputs that fit into --device-bytes with each technique,
 * and the cheapest change with which the given batch does. Plans are built, nothing is allocated.
 */
#include "plan_fits.h"

#include <hub.h>
#include <string.h>

/* ---- the techniques -------------------------------------------------------------------------- */

struct weights {
    const char *dtype;
    bool masters, adapters;
    const char *quantize; /* NULL: not */
    const char *states;   /* NULL: as given */
    bool backward;        /* updates in the backward pass */
};
static const struct weights weights[] = {
    {"f32", true, false},
    {"f32", true, false, NULL, "8bit"},
    {"bf16", true, false},
    {"bf16", false, false},
    {"bf16", false, false, NULL, "8bit"},
    {"bf16", false, false, NULL, "8bit", true},
    {"f32", true, true},
    {"bf16", false, true},
    {"bf16", true, true, "nf4"},
};
static const char *const recomputes[] = {"none", "gelu,norms,attention,mlp", "block"};
struct placement {
    int zero;
    const char *offload;
    bool ranks; /* for several data-parallel ranks */
};
static const struct placement placements[] = {
    {0, "none", false},
    {1, "none", true},
    {2, "none", true},
    {3, "none", true},
    {0, "activations", false},
    {0, "optimizer", false},
    {0, "optimizer,activations", false},
    {3, "optimizer,params,grads,activations", false},
};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
enum { MOST_ROWS = 1 + COUNT(weights) * COUNT(recomputes) * COUNT(placements) };

/* The option as member of setup, or NULL in a version without it. */
static const char **quantize_of(struct setup *setup)
{
    struct setup other;
    struct tool_option rows[SETUP_ROWS];
    setup_init(&other, rows);
    for (int k = 0; k < SETUP_ROWS; k++)
        if (strcmp(rows[k].name, "quantize") == 0)
            return (const char **)((char *)setup + ((char *)rows[k].value - (char *)&other));
    return NULL;
}

static void set_weights(const struct weights *to, const struct setup *base, struct setup *own)
{
    const char **quantize = quantize_of(own);
    own->dtype = to->dtype;
    own->states = to->states ? to->states : base->states;
    own->residual = to->masters ? "f32" : "same";
    own->no_masters = !to->masters;
    own->in_backward = to->backward || base->in_backward;
    own->clip = own->in_backward ? 0 : base->clip;
    own->stochastic = !to->masters && !to->adapters;
    own->adapter_dir = to->adapters ? base->adapter_dir : NULL;
    own->adapter_file = to->adapters ? base->adapter_file : NULL;
    own->lora = !to->adapters || base->adapter_dir ? NULL : base->lora ? base->lora : "r=8";
    if (quantize)
        *quantize = to->quantize ? to->quantize : "none";
}

/* The differences from the given options, and the weights. */
static void name_row(const struct weights *w, const char *recompute, const struct placement *p,
                     const struct setup *base, const struct setup *own, char text[FITS_OPTIONS])
{
    size_t at = (size_t)snprintf(text, FITS_OPTIONS, "--dtype %s%s%s", w->dtype,
                                 w->masters ? "" : " --residual same --no-masters",
                                 own->stochastic ? " --stochastic-rounding" : "");
    if (w->states && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --optimizer-state %s", w->states);
    if (w->backward && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --update-in-backward --clip 0");
    if (w->adapters && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --%s %s",
                               own->lora ? "lora" : "adapter",
                               own->lora ? own->lora : own->adapter_dir);
    const bool packed = w->adapters && base->hub && hub_packing_of(base->hub).quantized;
    if ((w->quantize || packed) && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --quantize %s", own->quantize);
    if (strcmp(recompute, base->again) != 0 && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --recompute %s", recompute);
    if (p->zero != base->zero && at < FITS_OPTIONS)
        at += (size_t)snprintf(text + at, FITS_OPTIONS - at, " --zero %d", p->zero);
    if (strcmp(p->offload, base->offload) != 0 && at < FITS_OPTIONS)
        snprintf(text + at, FITS_OPTIONS - at, " --offload %s", p->offload);
}

/* ---- one plan -------------------------------------------------------------------------------- */

struct probe {
    const struct tool_command *command;
    struct setup setup;
    struct model model; /* for sequences of setup.seq */
    struct rf_bytes *bytes;
    struct rf_work *work;
    int ranks;
    uint64_t limit;
    int64_t params; /* of the last plan */
};

struct needs {
    uint64_t device, host, sent; /* on the rank with the maximum; summed over all ranks */
    struct rf_work work;
};

static uint64_t device_bytes(const struct rf_bytes *b)
{
    return b->params + b->grads + b->optimizer + b->activations + b->comm + b->scratch - b->host;
}

/* The work is that of the last plan whose work was counted. */
static void take_bytes(const struct probe *probe, struct needs *out)
{
    *out = (struct needs){0};
    for (int r = 0; r < probe->ranks; r++) {
        const struct rf_bytes *b = &probe->bytes[r];
        out->sent += b->sent;
        rf_work_add(&out->work, &probe->work[r], 1);
        if (device_bytes(b) < out->device)
            continue;
        out->device = device_bytes(b);
        out->host = b->host;
    }
}

/* False: no such plan; rf_last_error has the reason. */
static bool count(struct probe *probe, const struct rf_policy *policy, struct needs *out)
{
    struct rf_plan *plan = NULL;
    const struct model *model = &probe->model;
    if (rf_plan_build((struct rf_blocks){model->blocks, model->count}, &probe->setup.mesh, policy,
                      0, &plan) < 0)
        return false;
    struct rf_block_cost *costs = calloc((size_t)model->count, sizeof(*costs));
    probe->params = rf_plan_param_count(plan);
    bool counted = costs && rf_plan_all_ranks(plan, NULL, probe->bytes, NULL) == 0;
    if (counted)
        take_bytes(probe, out);
    /* Work that does not fit is only counted for the given batch. */
    if (counted && (out->device <= probe->limit || policy->batch == probe->setup.policy.batch)) {
        counted = rf_block_costs(plan, costs) == 0 &&
                  rf_plan_all_ranks(plan, costs, probe->bytes, probe->work) == 0;
        if (counted)
            take_bytes(probe, out);
    }
    free(costs);
    rf_plan_destroy(plan);
    return counted;
}

/* What a batch of sequences of this length needs. */
static bool needs_of(struct probe *probe, int64_t batch, int64_t seq, int64_t pieces,
                     struct needs *out)
{
    struct rf_policy policy = probe->setup.policy;
    if (probe->setup.hub && hub_check_seq(probe->setup.hub, seq) < 0)
        return false;
    if (!probe->model.owner || (seq != probe->setup.seq && !probe->setup.hub)) {
        model_destroy(&probe->model);
        probe->setup.seq = seq;
        if (model_create(probe->command, &probe->setup, &probe->model) != TOOL_OK)
            return false;
    }
    policy.batch = batch;
    policy.seq = seq;
    policy.micro_batches = pieces;
    /* Without a limit the bytes of a plan that does not fit are known, too. */
    if (policy.recompute != RF_RECOMPUTE_AUTO)
        policy.device_bytes = 0;
    return count(probe, &policy, out);
}

/* ---- the fitting inputs
 * -------------------------------------------------------------------------------
 */

enum { MOST_SEQUENCES = 1024, MOST_TOKENS = 1 << 20 };

/* The largest multiple k of a batch or a length; 0: none. */
static int64_t largest(struct probe *probe, bool of_batch, int64_t unit, int64_t most)
{
    const int64_t pieces = probe->setup.policy.micro_batches, seq = probe->setup.policy.seq;
    int64_t good = 0, bad = most / unit + 1;
    for (int64_t k = 1; bad - good > 1; k = bad > most / unit ? 2 * good : (good + bad) / 2) {
        struct needs needs;
        k = k >= bad ? bad - 1 : k;
        const bool fits = (of_batch ? needs_of(probe, k * unit, seq, pieces, &needs)
                                    : needs_of(probe, pieces, k * unit, pieces, &needs)) &&
                          needs.device <= probe->limit;
        *(fits ? &good : &bad) = k;
    }
    return good * unit;
}

/* The fewest micro-batches with which the batch fits, unless their number is given. */
static void cut(struct probe *probe, struct fits_row *row)
{
    const struct rf_policy *p = &probe->setup.policy;
    const int64_t least = p->micro_batches;
    const int64_t most = probe->setup.micro_batches ? least : p->batch;
    for (int64_t pieces = least; pieces <= most && row->max_batch >= least; pieces += least) {
        struct needs needs;
        if (p->batch % pieces || p->batch / pieces > row->max_batch / least ||
            !needs_of(probe, p->batch, p->seq, pieces, &needs) || needs.device > probe->limit)
            continue;
        row->micro_batches = pieces;
        row->cut_bytes = needs.device;
        row->cut_host = needs.host;
        return;
    }
}

static void keep_reason(struct fits_row *row)
{
    snprintf(row->reason, sizeof(row->reason), "%s", rf_last_error()->message);
}

/* setup: checked. */
static int fill(struct probe *probe, struct fits_row *row)
{
    const struct rf_policy *p = &probe->setup.policy;
    const int64_t step = probe->setup.mesh.cp * probe->setup.mesh.tp > 1
                             ? (int64_t)2 * probe->setup.mesh.cp * probe->setup.mesh.tp
                             : 1;
    struct needs needs;
    int status = model_create(probe->command, &probe->setup, &probe->model);
    if (status != TOOL_OK)
        return status;
    if (needs_of(probe, p->batch, p->seq, p->micro_batches, &needs)) {
        row->device_bytes = needs.device;
        row->host_bytes = needs.host;
        row->sent = needs.sent;
        row->flops = needs.work.flops;
        row->repeated = needs.work.repeated;
        row->fits = needs.device <= probe->limit;
    } else {
        keep_reason(row);
    }
    row->max_batch = largest(probe, true, p->micro_batches, MOST_SEQUENCES * p->micro_batches);
    cut(probe, row);
    row->max_seq = largest(probe, false, step, MOST_TOKENS);
    if (row->max_seq > 0 && row->max_batch > 0)
        row->reason[0] = 0;
    model_destroy(&probe->model);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Different types are a smaller change than different trained weights. */
static int change_of(const struct setup *base, const struct setup *own)
{
    if (!setup_adapter(base) != !setup_adapter(own))
        return 2;
    if (base->quantization != own->quantization)
        return 1;
    return strcmp(base->dtype, own->dtype) != 0 || base->state_type != own->state_type ||
           base->no_masters != own->no_masters || strcmp(base->residual, own->residual) != 0;
}

static int add(const struct tool_command *command, const struct setup *own,
               const struct fits_row *row, struct fits *fits)
{
    struct probe probe = {
        .command = command, .setup = *own, .ranks = setup_ranks(own), .limit = fits->limit};
    probe.bytes = calloc((size_t)probe.ranks, sizeof(*probe.bytes));
    probe.work = calloc((size_t)probe.ranks, sizeof(*probe.work));
    if (own->lora) /* within the copy */
        probe.setup.adapter.adapter.targets = probe.setup.adapter.targets;
    if (own->policy.stage_blocks)
        probe.setup.policy.stage_blocks = probe.setup.stage_list.blocks;
    fits->rows[fits->count] = *row;
    const int status = probe.bytes && probe.work ? fill(&probe, &fits->rows[fits->count])
                                                 : tool_error(command, "out of memory");
    fits->params = fits->count++ ? fits->params : probe.params;
    free(probe.bytes);
    free(probe.work);
    return status;
}

/* Whether the technique applies to the given options. */
static bool applies(const struct setup *base, const struct weights *w, const struct placement *p)
{
    struct setup other = *base;
    const bool several = base->mesh.dp > 1;
    if (w->quantize && (!quantize_of(&other) || !base->from))
        return false;
    /* A row with the states that are given is there anyway. */
    if (w->states &&
        (base->state_type != RF_F32 || !rf_optimizer_can_store(&base->policy.optimizer, RF_U8)))
        return false;
    /* What goes with updates in the backward pass. */
    if ((w->backward || base->in_backward) &&
        (strstr(p->offload, "optimizer") || strstr(p->offload, "grads")))
        return false;
    if (w->backward &&
        (base->in_backward || base->mesh.pp > 1 || base->policy.micro_batches != base->mesh.dp ||
         strcmp(base->update, "rank0") == 0 || base->policy.compress.form != RF_FORM_F32))
        return false;
    if (p->zero && (strcmp(base->update, "rank0") == 0 || strcmp(base->order, "tree") == 0))
        return false;
    return several || !p->ranks;
}

static int add_technique(const struct tool_command *command, const struct weights *w,
                         const char *recompute, const struct placement *p, struct fits *fits)
{
    const struct setup *base = fits->setup;
    struct setup own = *base, given = *base;
    struct fits_row row = {.change = 0};
    if (!applies(base, w, p))
        return TOOL_OK;
    set_weights(w, base, &own);
    own.again = recompute;
    own.offload = p->offload;
    own.zero = p->zero;
    own.keep_gathered &= p->zero == 3; /* other stages would refuse it */
    own.no_prefetch &= p->zero == 3;
    int status = setup_check(command, &own, base->mesh.dp);
    if (status != TOOL_OK)
        return status;
    own.mesh.shard = p->zero ? own.mesh.shard : 0;
    row.change = change_of(&given, &own);
    name_row(w, recompute, p, base, &own, row.options);
    return add(command, &own, &row, fits);
}

/* Smaller in the first criterion that differs: the change itself, repeated FLOPs, bytes in host
 * memory, sent bytes, micro-batches. */
static bool cheaper(const struct fits_row *a, const struct fits_row *b)
{
    const uint64_t keys[][2] = {{(uint64_t)a->change, (uint64_t)b->change},
                                {a->repeated, b->repeated},
                                {a->cut_host, b->cut_host},
                                {a->sent, b->sent},
                                {(uint64_t)a->micro_batches, (uint64_t)b->micro_batches}};
    for (size_t k = 0; k < COUNT(keys); k++)
        if (keys[k][0] != keys[k][1])
            return keys[k][0] < keys[k][1];
    return false;
}

static int answer(const struct tool_command *command, struct fits *fits, const char *json_path)
{
    int status = TOOL_OK;
    for (int k = 0; k < fits->count; k++)
        if (fits->rows[k].micro_batches > 0 && (!fits->best || cheaper(&fits->rows[k], fits->best)))
            fits->best = &fits->rows[k];
    if (!(json_path && strcmp(json_path, "-") == 0))
        fits_print(fits);
    if (json_path)
        status = tool_json_write(command, json_path, fits_json(fits));
    if (status == TOOL_OK && !fits->best)
        status = tool_error(command, "with none of these techniques the batch fits: use a larger "
                                     "--device-bytes, more ranks, a shorter --seq or a smaller "
                                     "model");
    return status;
}

int plan_fits(const struct tool_command *command, const struct setup *setup, const char *json_path)
{
    struct fits fits = {.setup = setup, .limit = (uint64_t)setup->device_bytes};
    if (setup->device_bytes <= 0)
        return tool_usage_error(command, "--fits wants the memory of a device: use "
                                         "--device-bytes 8G or so with it");
    fits.rows = calloc(MOST_ROWS, sizeof(*fits.rows));
    if (!fits.rows)
        return tool_error(command, "out of memory");
    int status = add(command, setup, &(struct fits_row){.change = 0}, &fits);
    for (size_t w = 0; w < COUNT(weights); w++)
        for (size_t p = 0; p < COUNT(placements); p++)
            for (size_t r = 0; r < COUNT(recomputes) && status == TOOL_OK; r++)
                status = add_technique(command, &weights[w], recomputes[r], &placements[p], &fits);
    if (status == TOOL_OK)
        status = answer(command, &fits, json_path);
    free(fits.rows);
    return status;
}
