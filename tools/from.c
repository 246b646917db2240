/* SPDX-License-Identifier: MIT
 *
 * --from DIR: the model and its weights from a folder of a hub.
 */
#include "from.h"

#include <string.h>

static int check_given(const struct tool_command *command, const struct setup *s)
{
    static const char *const names[SETUP_GIVEN] = {"model", "layers", "channels", "heads",
                                                   "kv-heads"};
    for (int i = 0; i < SETUP_GIVEN; i++)
        if (s->given[i])
            return tool_usage_error(command,
                                    "--%s contradicts --from %s, whose config.json describes the "
                                    "model; leave it out",
                                    names[i], s->from);
    return TOOL_OK;
}

int from_open(const struct tool_command *command, struct setup *s)
{
    if (!s->from && s->allow_nan)
        return tool_usage_error(command, "--allow-nan is for the weights of --from DIR");
    if (!s->from)
        return TOOL_OK;
    int status = check_given(command, s);
    if (status != TOOL_OK)
        return status;
    if (!s->hub && hub_open(s->from, &s->hub) < 0)
        return tool_error(command, "--from %s: %s", s->from, rf_last_error()->message);
    const struct hub_values *v = hub_values(s->hub);
    s->model = hub_is_gpt2(s->hub) ? "gpt2" : "llama";
    s->layers = v->layers;
    s->channels = v->channels;
    s->heads = v->heads;
    if (hub_check_seq(s->hub, s->seq) < 0)
        return tool_error(command, "--from %s: %s; use a smaller --seq", s->from,
                          rf_last_error()->message);
    return TOOL_OK;
}

int from_check(const struct tool_command *command, const struct setup *s, const struct model *model,
               struct from *out)
{
    const struct hub_packing packing = hub_packing_of(s->hub);
    const struct rf_weights_opts opts = hub_weights_opts(&packing, s->allow_nan);
    if (rf_weights_open(s->from, &opts, &out->weights) < 0)
        return tool_library_error(command, -1);
    out->model = model;
    const int status = model_create_plain(command, s, &out->base);
    if (status != TOOL_OK)
        return status;
    const struct rf_block *base = out->base.blocks;
    if (hub_source_create(s->hub, out->weights, base, model->count, &out->source) < 0)
        return tool_error(command, "--from %s: %s", s->from, rf_last_error()->message);
    const struct quantized_values values = {hub_source_of(out->source),
                                            packing.kind ? out->source : NULL, s->quantize_auto};
    if (s->quantization && quantized_source_create(s->quantization, model->blocks, base,
                                                   model->count, values, &out->quantized) < 0)
        return tool_error(command, "out of memory");
    return TOOL_OK;
}

static const struct rf_param_desc *find_param(const struct model *model, const char *name)
{
    for (int i = 0; i < model->count; i++)
        for (int k = 0; k < model->blocks[i].param_count; k++)
            if (strcmp(model->blocks[i].params[k].name, name) == 0)
                return &model->blocks[i].params[k];
    return NULL;
}

static int read_param(void *self, const char *name, uint64_t first, uint64_t count, void *values)
{
    const struct from *from = self;
    const struct rf_param_source base =
        from->quantized ? quantized_source_of(from->quantized) : hub_source_of(from->source);
    const struct rf_param_desc *param = adapter_has(name) ? find_param(from->model, name) : NULL;
    if (!param)
        return base.read(base.self, name, first, count, values);
    adapter_initial(param, from->seed, first, count, values);
    return 0;
}

struct rf_param_source from_source(struct from *from)
{
    return (struct rf_param_source){from, read_param};
}

int from_fill(struct from *from, struct rf_run *run)
{
    const struct rf_param_source source = from_source(from);
    return rf_run_fill(run, &source);
}

void from_close(struct from *from)
{
    quantized_source_destroy(from->quantized);
    hub_source_destroy(from->source);
    rf_weights_close(from->weights);
    model_destroy(&from->base);
    *from = (struct from){NULL};
}
