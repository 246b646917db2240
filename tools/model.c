/* SPDX-License-Identifier: MIT
 *
 * The blocks that a setup describes: a GPT-2, a Llama-style model, or one block of a given size to
 * plan with.
 */
#include <hub.h>
#include <math.h>
#include <string.h>

#include "setup.h"

static void destroy_gpt2(void *owner)
{
    gpt2_destroy(owner);
}

static void destroy_llama(void *owner)
{
    llama_destroy(owner);
}

static int freeze_gpt2(void *owner, const char *pattern)
{
    return gpt2_freeze(owner, pattern);
}

static int freeze_llama(void *owner, const char *pattern)
{
    return llama_freeze(owner, pattern);
}

static int modules_gpt2(void *owner, struct model_adapter_module *out, int capacity)
{
    return gpt2_adapter_modules(owner, out, capacity);
}

static int modules_llama(void *owner, struct model_adapter_module *out, int capacity)
{
    return llama_adapter_modules(owner, out, capacity);
}

static struct gpt2_config gpt2_config_of(const struct setup *setup)
{
    struct gpt2_config config = {.layers = (int)setup->layers,
                                 .channels = (int)setup->channels,
                                 .heads = (int)setup->heads,
                                 .seq = (int)setup->seq,
                                 .head_rows = (int)setup->head_rows,
                                 .dtype = setup->type,
                                 .residual = setup->residual_type,
                                 .recompute = setup->recompute.parts,
                                 .adapter = setup_adapter(setup),
                                 .quantize = setup->quantization,
                                 .reversible = (enum rf_reversible)setup->reversible,
                                 .recipe = setup->recipe};
    if (setup->hub)
        hub_set_gpt2(setup->hub, &config);
    return config;
}

static struct llama_config llama_config_of(const struct setup *setup)
{
    struct llama_config config = {.layers = (int)setup->layers,
                                  .channels = (int)setup->channels,
                                  .heads = (int)setup->heads,
                                  .kv_heads = (int)setup->kv_heads,
                                  .head_rows = (int)setup->head_rows,
                                  .dtype = setup->type,
                                  .residual = setup->residual_type,
                                  .recompute = setup->recompute.parts,
                                  .adapter = setup_adapter(setup),
                                  .quantize = setup->quantization,
                                  .reversible = (enum rf_reversible)setup->reversible,
                                  .recipe = setup->recipe};
    if (setup->hub)
        hub_set_llama(setup->hub, &config);
    return config;
}

static bool is_llama(const struct setup *setup)
{
    return strcmp(setup->model, "llama") == 0;
}

/* The model alone: nothing is frozen yet. */
static int create(const struct tool_command *command, const struct setup *setup,
                  struct model *model)
{
    const struct gpt2_config gpt2_config = gpt2_config_of(setup);
    const struct llama_config llama_config = llama_config_of(setup);
    const bool llama_wanted = is_llama(setup);
    struct gpt2 *gpt2 = NULL;
    struct llama *llama = NULL;
    const int rc =
        llama_wanted ? llama_create(&llama_config, &llama) : gpt2_create(&gpt2_config, &gpt2);
    if (rc < 0)
        return tool_usage_error(command, "%s", rf_last_error()->message);
    *model = llama_wanted ? (struct model){.owner = llama,
                                           .destroy = destroy_llama,
                                           .freeze = freeze_llama,
                                           .modules = modules_llama}
                          : (struct model){.owner = gpt2,
                                           .destroy = destroy_gpt2,
                                           .freeze = freeze_gpt2,
                                           .modules = modules_gpt2};
    model->blocks =
        llama_wanted ? llama_blocks(llama, &model->count) : gpt2_blocks(gpt2, &model->count);
    return TOOL_OK;
}

/* Each target of adapters must be the name of a module with one. Files of adapters may also have
 * names that no part of the architecture has, as in PEFT. */
static int check_targets(const struct tool_command *command, const struct setup *setup,
                         const struct model *model)
{
    const struct model_adapter *adapter = setup_adapter(setup);
    const int count = adapter ? model->modules(model->owner, NULL, 0) : 0;
    struct model_adapter_module *list = calloc((size_t)count + 1, sizeof(*list));
    char target[128];
    bool wrong = false;
    if (!list)
        return tool_error(command, "out of memory for the model");
    model->modules(model->owner, list, count);
    for (const char *at = NULL; adapter && !wrong && (!at || *at);) {
        at = model_adapter_unmatched(adapter, list, count, at, target);
        if (!at)
            break;
        wrong = !setup->adapter_file || hub_arch_has(model_arch(setup), target);
    }
    free(list);
    return wrong ? tool_usage_error(command,
                                    "\"%s\" of the targets of adapters is no name of a module that "
                                    "can have one, which linear maps of layers can; use such as "
                                    "q_proj, down_proj, c_attn, or all-linear",
                                    target)
                 : TOOL_OK;
}

const struct hub_arch *model_arch(const struct setup *setup)
{
    return setup->hub ? hub_arch_of(setup->hub)
                      : hub_arch_named(is_llama(setup) ? "LlamaForCausalLM" : "GPT2LMHeadModel");
}

int model_describe(const struct setup *setup, struct hub **out)
{
    const struct gpt2_config gpt2 = gpt2_config_of(setup);
    const struct llama_config llama = llama_config_of(setup);
    return is_llama(setup) ? hub_of_llama(&llama, out) : hub_of_gpt2(&gpt2, out);
}

int model_create(const struct tool_command *command, const struct setup *setup, struct model *model)
{
    int rc = create(command, setup, model);
    if (rc == TOOL_OK && check_targets(command, setup, model) != TOOL_OK) {
        model_destroy(model);
        return TOOL_USAGE;
    }
    for (int k = 0; rc == TOOL_OK && k < setup->freeze.count; k++)
        if (model->freeze(model->owner, setup->freeze.item[k]) == 0) {
            rc = tool_usage_error(command,
                                  "--freeze %s matches no parameter; their names are like %s",
                                  setup->freeze.item[k], model->blocks[1].params[0].name);
            model_destroy(model);
        }
    return rc;
}

int model_create_plain(const struct tool_command *command, const struct setup *setup,
                       struct model *model)
{
    struct setup plain = *setup;
    plain.lora = NULL;
    plain.adapter_file = NULL;
    plain.quantization = RF_QUANTIZE_NONE;
    plain.freeze.count = 0;
    return model_create(command, &plain, model);
}

/* ---- a block of a given size: it has parameters and sizes, and is never run
 * ------------------------
 */

static int refuse_forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    return RF_ENOTSUP;
}

static int refuse_backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                 struct rf_tensor dout, struct rf_tensor din)
{
    return RF_ENOTSUP;
}

static int refuse_backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                  struct rf_tensor dout)
{
    return RF_ENOTSUP;
}

static int no_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    *out = (struct rf_block_sizes){.out = rf_shape2(rows, 1)};
    return 0;
}

static int no_tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                           int64_t seq, struct rf_block_sizes *out)
{
    return no_sizes(self, part->sequence ? rows / part->ranks : rows, seq, out);
}

static int no_context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                            int64_t seq, struct rf_block_sizes *out)
{
    (void)part;
    return no_sizes(self, rows, seq, out);
}

static const struct rf_block_ops sized_ops = {.forward = refuse_forward,
                                              .backward_input = refuse_backward_input,
                                              .backward_weight = refuse_backward_weight,
                                              .sizes = no_sizes,
                                              .tensor_sizes = no_tensor_sizes,
                                              .context_sizes = no_context_sizes};

/* Layers of equal size, each with one parameter. */
struct sized_layer {
    struct rf_param_desc param;
    char name[24];
};

struct sized {
    struct rf_block *blocks;
    struct sized_layer *layers;
};

static void sized_destroy(void *owner)
{
    struct sized *sized = owner;
    free(sized->blocks);
    free(sized->layers);
    free(sized);
}

/* GPTs have about 12 L C^2 parameters, and channels C of about 128 L (Brown et al. 2020, table
 * 2.1: L 96 for 175e9). */
static int assumed_layers(double params)
{
    const double layers = round(cbrt(params / (12.0 * 128 * 128)));
    return layers < 1 ? 1 : (int)layers;
}

int model_create_sized(const struct tool_command *command, const struct setup *setup, double params,
                       struct model *model)
{
    if (params < 1 || params > 1e15)
        return tool_usage_error(command, "--params has to be 1 to 1e15");
    if (setup->quantization)
        return tool_usage_error(command, "--quantize is for a model; leave out --params or "
                                         "--quantize");
    if (setup_adapter(setup))
        return tool_usage_error(command, "adapters are for a model; leave out --params, or --lora "
                                         "and --adapter");
    if (setup->freeze.count > 0)
        return tool_usage_error(command, "--freeze is for the parameters of a model; leave out "
                                         "--params or --freeze");
    const int64_t all = (int64_t)params, asked = setup->given[SETUP_LAYERS] ? setup->layers : 0;
    if (asked > all)
        return tool_usage_error(command, "--layers %lld are more than --params %lld",
                                (long long)asked, (long long)all);
    const int count = asked ? (int)asked : assumed_layers(params);
    struct sized *sized = calloc(1, sizeof(*sized));
    if (!sized)
        return tool_error(command, "out of memory");
    sized->blocks = calloc((size_t)count, sizeof(*sized->blocks));
    sized->layers = calloc((size_t)count, sizeof(*sized->layers));
    if (!sized->blocks || !sized->layers) {
        sized_destroy(sized);
        return tool_error(command, "out of memory for %d layers", count);
    }
    for (int k = 0; k < count; k++) {
        struct sized_layer *layer = &sized->layers[k];
        snprintf(layer->name, sizeof(layer->name), "layer.%d", k);
        layer->param = (struct rf_param_desc){.name = layer->name,
                                              .shape = rf_shape1(all / count + (k < all % count)),
                                              .dtype = setup->type,
                                              .flags = RF_PARAM_DECAY,
                                              .split = {.kind = RF_SPLIT_ROWS}};
        sized->blocks[k] = (struct rf_block){.name = layer->name,
                                             .ops = &sized_ops,
                                             .params = &layer->param,
                                             .param_count = 1,
                                             .scales_loss = true};
    }
    *model = (struct model){
        .blocks = sized->blocks, .count = count, .owner = sized, .destroy = sized_destroy};
    return TOOL_OK;
}

void model_destroy(struct model *model)
{
    if (model->owner)
        model->destroy(model->owner);
    *model = (struct model){NULL};
}
