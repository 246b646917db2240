/* SPDX-License-Identifier: MIT
 *
 * What a plan's device memory holds at its peak, the largest first, and for each kind the cheapest
 * option that removes it or makes it smaller.
 */
#include <string.h>

#include "plan_peak.h"

static bool wide_states(const struct setup *s)
{
    return s->policy.state_dtype != RF_U8 && rf_optimizer_can_store(&s->policy.optimizer, RF_U8);
}

static bool device_states(const struct setup *s)
{
    return !(s->policy.offload & RF_OFFLOAD_OPTIMIZER) && !s->policy.update_in_backward;
}

static bool zero_1(const struct setup *s)
{
    return s->mesh.dp > 1 && s->policy.zero < 1;
}

static bool zero_2(const struct setup *s)
{
    return s->mesh.dp > 1 && s->policy.zero < 2;
}

static bool zero_3(const struct setup *s)
{
    return s->mesh.dp > 1 && s->policy.zero < 3;
}

static bool late(const struct setup *s)
{
    return !s->policy.update_in_backward && s->mesh.pp == 1 && s->policy.loss_scale == 0 &&
           s->policy.micro_batches == s->mesh.dp && !s->policy.update_on_rank_0 &&
           !(s->policy.offload & (RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_GRADS));
}

static bool f32(const struct setup *s)
{
    return s->type == RF_F32;
}

static bool masters(const struct setup *s)
{
    return s->type != RF_F32 && !s->no_masters;
}

static bool plain(const struct setup *s)
{
    return s->from && setup_adapter(s) && s->quantization == RF_QUANTIZE_NONE;
}

static bool device_params(const struct setup *s)
{
    return !(s->policy.offload & ~RF_OFFLOAD_ACTIVATIONS);
}

static bool kept_whole(const struct setup *s)
{
    return s->policy.keep_gathered;
}

static bool large_pieces(const struct setup *s)
{
    return s->policy.micro_batches < s->policy.batch && !s->policy.update_in_backward;
}

static bool stored(const struct setup *s)
{
    return s->policy.recompute == 0 && !s->policy.invert;
}

static bool device_activations(const struct setup *s)
{
    return !(s->policy.offload & RF_OFFLOAD_ACTIVATIONS) && !s->policy.invert;
}

static bool whole_head(const struct setup *s)
{
    return s->head_rows == 0;
}

static bool workspace(const struct setup *s)
{
    return s->policy.workspace_bytes > 0;
}

/* The first that helps is the cheapest. */
static const struct {
    enum rf_held_kind kind;
    const char *option;
    bool (*helps)(const struct setup *s);
} changes[] = {
    {RF_HELD_PARAMS, "--zero 3", zero_3},
    {RF_HELD_PARAMS, "--no-masters --residual same --stochastic-rounding", masters},
    {RF_HELD_PARAMS, "--dtype bf16 --residual same --no-masters --stochastic-rounding", f32},
    {RF_HELD_PARAMS, "--offload params", device_params},
    {RF_HELD_COPIES, "--zero 3", zero_3},
    {RF_HELD_COPIES, "--offload params", device_params},
    {RF_HELD_FROZEN, "--quantize nf4", plain},
    {RF_HELD_FROZEN, "--zero 3", zero_3},
    {RF_HELD_FROZEN, "--offload params", device_params},
    {RF_HELD_GATHERED, "no --keep-gathered", kept_whole},
    {RF_HELD_GRADS, "--update-in-backward --clip 0", late},
    {RF_HELD_GRADS, "--zero 2", zero_2},
    {RF_HELD_STATES, "--optimizer-state 8bit", wide_states},
    {RF_HELD_STATES, "--zero 1", zero_1},
    {RF_HELD_STATES, "--offload optimizer", device_states},
    {RF_HELD_LAST_OUTPUT, "--head-rows 128", whole_head},
    {RF_HELD_LAST_OUTPUT, "--micro-batches", large_pieces},
    {RF_HELD_OUTPUTS, "--micro-batches", large_pieces},
    {RF_HELD_OUTPUTS, "--offload activations", device_activations},
    {RF_HELD_KEPT, "--micro-batches", large_pieces},
    {RF_HELD_KEPT, "--recompute block", stored},
    {RF_HELD_KEPT, "--offload activations", device_activations},
    {RF_HELD_HEAD, "--micro-batches", large_pieces},
    {RF_HELD_FOR_WEIGHT, "--micro-batches", large_pieces},
    {RF_HELD_SCRATCH, "--micro-batches", large_pieces},
    {RF_HELD_WORKSPACE, "--workspace 0", workspace},
    {RF_HELD_TABLES, "--zero 1", zero_1},
    {RF_HELD_SENT, "--zero 2", zero_2},
};

static const char *change_of(enum rf_held_kind kind, const struct setup *setup)
{
    for (size_t k = 0; k < sizeof(changes) / sizeof(changes[0]); k++)
        if (changes[k].kind == kind && changes[k].helps(setup))
            return changes[k].option;
    return NULL;
}

/* The kinds that hold most, in this order; returns their number. */
static int largest(const struct rf_held held[RF_HELD_COUNT], int kinds[PLAN_PEAK_ROWS])
{
    bool taken[RF_HELD_COUNT] = {false};
    int count = 0;
    for (; count < PLAN_PEAK_ROWS; count++) {
        int most = -1;
        for (int k = 0; k < RF_HELD_COUNT; k++)
            if (!taken[k] && held[k].bytes > 0 && (most < 0 || held[k].bytes > held[most].bytes))
                most = k;
        if (most < 0)
            break;
        taken[most] = true;
        kinds[count] = most;
    }
    return count;
}

void plan_peak_json(const struct rf_held held[RF_HELD_COUNT], const struct setup *setup,
                    cJSON *json)
{
    int kinds[PLAN_PEAK_ROWS];
    const int count = largest(held, kinds);
    double rest = 0;
    cJSON *list = cJSON_AddArrayToObject(json, "peak");
    for (int k = 0; k < RF_HELD_COUNT; k++)
        rest += (double)held[k].bytes;
    for (int k = 0; k < count; k++) {
        const enum rf_held_kind kind = (enum rf_held_kind)kinds[k];
        const struct rf_held *h = &held[kind];
        const char *change = change_of(kind, setup);
        cJSON *row = tool_json_new("name=%s values=%d bytes=%g largest_bytes=%g largest=%s",
                                   rf_held_name(kind), h->values, (double)h->bytes,
                                   (double)h->largest, h->largest_of);
        rest -= (double)h->bytes;
        cJSON_AddItemToObject(row, "change",
                              change ? cJSON_CreateString(change) : cJSON_CreateNull());
        cJSON_AddItemToArray(list, row);
    }
    cJSON_AddNumberToObject(json, "peak_rest", rest);
}

void plan_peak_print(const struct rf_held held[RF_HELD_COUNT], const struct setup *setup)
{
    int kinds[PLAN_PEAK_ROWS];
    const int count = largest(held, kinds);
    char text[24];
    printf("\n%11s  in rank 0's device memory when it holds most, and what makes it smaller\n",
           "bytes");
    for (int k = 0; k < count; k++) {
        const struct rf_held *h = &held[kinds[k]];
        const char *change = change_of((enum rf_held_kind)kinds[k], setup);
        printf("%11s  %s%s%s\n", tool_bytes_text(h->bytes, text, sizeof(text)),
               rf_held_name((enum rf_held_kind)kinds[k]), change ? ": " : "", change ? change : "");
    }
}
