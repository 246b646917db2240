/* SPDX-License-Identifier: MIT
 *
 * The flags that `train` and `plan` share. Unsupported values are refused by name, so that nobody
 * measures something other than requested.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <adapter_file.h>

#include "from.h"

/* The rules by name; the default is the first. */
static void list_optimizers(char *text, size_t bytes)
{
    size_t at = 0;
    for (int k = 0; k < RF_OPTIMIZER_COUNT && at < bytes; k++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s",
                               k == 0                        ? ""
                               : k + 1 == RF_OPTIMIZER_COUNT ? " or "
                                                             : ", ",
                               rf_optimizer_get_info((enum rf_optimizer)k)->name);
}

static bool is_same_recipe(const char *a, const char *b)
{
    return rf_recipe_find(a) >= 0 && rf_recipe_find(a) == rf_recipe_find(b);
}

void setup_init(struct setup *s, struct tool_option *rows)
{
    *s = (struct setup){.model = "gpt2",
                        .layers = 4,
                        .channels = 128,
                        .heads = 4,
                        .seq = 64,
                        .batch = 16,
                        .clip = 1.0,
                        .weight_decay = -1,
                        .beta1 = -1,
                        .beta2 = -1,
                        .eps = -1,
                        .loss_scale = -1,
                        .workspace = -1,
                        .momentum = -1,
                        .dampening = -1,
                        .dtype = "f32",
                        .residual = "f32",
                        .reduce = "f32",
                        .compress = "none",
                        .order = "ring",
                        .update = "all",
                        .again = "none",
                        .streams = "none",
                        .products = "none",
                        .offload = "none",
                        .schedule = "1f1b",
                        .stages = "even",
                        .quantize = "auto",
                        .states = "f32",
                        .optimizer = "adamw"};
    list_optimizers(s->optimizers, sizeof(s->optimizers));
    snprintf(s->optimizers_help, sizeof(s->optimizers_help), "update rule: %s (%s)", s->optimizers,
             s->optimizer);
    const struct tool_option all[] = {
        {"from", TOOL_TEXT, &s->from, "DIR",
         "model and weights as a hub's folder: config.json, model.safetensors or its shards",
         .path = TOOL_READS, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"allow-nan", TOOL_FLAG, &s->allow_nan, NULL,
         "acceptance of weights that are not finite numbers", .needs = "from"},
        {"model", TOOL_TEXT, &s->model, "NAME", "architecture: gpt2 or llama (gpt2)", 0,
         &s->given[0]},
        {"layers", TOOL_INT, &s->layers, "N", "number of transformer blocks (4)", 0,
         &s->given[SETUP_LAYERS], 1, 1024},
        {"channels", TOOL_INT, &s->channels, "N", "width of the model (128)", 0, &s->given[2], 1,
         1 << 16},
        {"heads", TOOL_INT, &s->heads, "N",
         "number of attention heads, a divisor of --channels (4)", 0, &s->given[3], 1, 1 << 12},
        {"kv-heads", TOOL_INT, &s->kv_heads, "N",
         "llama: number of heads of keys and values, a divisor of --heads (--heads)", 0,
         &s->given[4], 1, 1 << 12},
        {"head-rows", TOOL_INT, &s->head_rows, "N", "rows of logits in memory at once; 0 = all (0)",
         .most = 1 << 24},
        {"reversible", TOOL_TEXT, &s->streams, "KIND",
         "a pair of streams from layer to layer, from which the backward pass computes their "
         "input: "
         "activations of any number of layers take the same memory; none, f32, or fixed, to the "
         "same bits as stored ones (none)"},
        {"seq", TOOL_INT, &s->seq, "N", "tokens of a sequence (64)", .least = 1, .most = 1 << 20},
        {"batch", TOOL_INT, &s->batch, "N", "sequences of a step, over all ranks (16)", 0,
         &s->batch_given, 1, 1 << 24, .of_job = true},
        {"micro-batches", TOOL_INT, &s->micro_batches, "N",
         "number of pieces of the batch, over all ranks; a divisor of it (one per rank)",
         .least = 1, .most = 1 << 24, .of_job = true},
        {"dtype", TOOL_TEXT, &s->dtype, "TYPE",
         "type of activations and of the weights in use: f32, bf16, f16 (f32)", .kept = true},
        {"residual", TOOL_TEXT, &s->residual, "TYPE",
         "type of the residual stream: f32, or same as --dtype (f32)", .kept = true},
        {"matmul-precision", TOOL_TEXT, &s->products, "RECIPE",
         "8- or 4-bit formats to whose numbers the operands of the layers' products are rounded, "
         "as "
         "recipes of Transformer Engine and torchao: none, fp8, fp8-e4m3, fp8-rows, fp8-blocks, "
         "mxfp8; experimental: mxfp4, nvfp4 (none)",
         .kept = true, .same = is_same_recipe},
        {"freeze", TOOL_LIST, &s->freeze, "PATTERN",
         "names of parameters not to train, such as \"blocks.0.*\"; \"!PATTERN\": exceptions; may "
         "be repeated"},
        {"adapter", TOOL_TEXT, &s->adapter_dir, "DIR",
         "low-rank adapters to train further, as PEFT's folder: adapter_config.json, "
         "adapter_model.safetensors",
         .path = TOOL_READS, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"lora", TOOL_TEXT, &s->lora, "LIST",
         "new low-rank adapters, all other weights frozen: "
         "r=16,alpha=32,dropout=0.05,rslora,bias=none|all|lora_only,targets=q_proj,v_proj (hub "
         "names, patterns, or all-linear)"},
        {"quantize", TOOL_TEXT, &s->quantize, "KIND",
         "type of the frozen layers' weights beside adapters, of a model by --from: none, nf4, "
         "int8, fp8, mxfp4, nvfp4; auto: nf4 if the files have them so, else none (auto)"},
        {"no-masters", TOOL_FLAG, &s->no_masters, NULL,
         "weights in --dtype alone, without f32 copies: less memory; needs --residual same",
         .kept = true},
        {"stochastic-rounding", TOOL_FLAG, &s->stochastic, NULL,
         "random rounding of updated 16-bit weights, up or down", .kept = true},
        {"reduce-dtype", TOOL_TEXT, &s->reduce, "TYPE",
         "type in which ranks send and add gradients: f32, bf16, f16 (f32)", .kept = true},
        {"compress", TOOL_TEXT, &s->compress, "FORM",
         "form in which data-parallel ranks send gradients, and what it loses is added to the next "
         "ones: none, bf16, int8, nf4, sign, top:SHARE, powersgd:RANK (none)",
         .kept = true},
        {"loss-scale", TOOL_REAL, &s->loss_scale, "X",
         "initial value of the dynamic loss scale; 0 = none (64 for f16, else none)", .kept = true},
        {"mesh", TOOL_TEXT, &s->mesh_text, "MESH",
         "ranks as a grid: dp=N copies of the model, tp=N parts of each block, cp=N parts of each "
         "sequence (not with tp), pp=N parts of the model; shard=N ranks that share a copy with "
         "--zero (dp=all ranks)",
         .of_job = true},
        {"tensor-parts", TOOL_INT, &s->tensor_parts, "P",
         "number of parts in which blocks are computed, for any number of tensor ranks, to the "
         "same bits",
         .most = 1 << 16},
        {"sequence-parallel", TOOL_FLAG, &s->sequence_parallel, NULL,
         "tp: division of the activations between products, too, along the sequence"},
        {"zero", TOOL_INT, &s->zero, "STAGE",
         "what is divided among data-parallel ranks: 1 optimizer states, 2 also gradients, 3 also "
         "parameters (0)",
         .most = 3},
        {"keep-gathered", TOOL_FLAG, &s->keep_gathered, NULL,
         "zero 3: gathered parameters kept from their first use in a step to the last"},
        {"no-prefetch", TOOL_FLAG, &s->no_prefetch, NULL,
         "zero 3: no gathers ahead of the block that needs them"},
        {"offload", TOOL_TEXT, &s->offload, "LIST",
         "what lies in host memory: optimizer (with its step; optimizer=disk: its states in a "
         "file), "
         "params, grads (zero 2, 3), activations (none)"},
        {"device-bytes", TOOL_INT, &s->device_bytes, "BYTES",
         "limit of device memory; a plan beyond it is refused, with what would fit (none)"},
        {"order", TOOL_TEXT, &s->order, "ORDER",
         "order of gradient sums: ring (fast), or tree (bits depend on --micro-batches, not on "
         "ranks) (ring)"},
        {"update", TOOL_TEXT, &s->update, "WHERE",
         "who updates the weights: all ranks, or rank0, which then broadcasts them (slow) (all)"},
        {"recompute", TOOL_TEXT, &s->again, "WHAT",
         "values to recompute in the backward pass instead of storing: gelu,norms,attention,mlp; "
         "block, every=N, sqrt or auto (none)"},
        {"update-in-backward", TOOL_FLAG, &s->in_backward, NULL,
         "update of a block's weights as soon as its gradients are complete: only those of a few "
         "blocks are in memory; needs --clip 0 and one micro-batch a rank"},
        {"schedule", TOOL_TEXT, &s->schedule, "NAME",
         "pp: order of micro-batches: 1f1b, gpipe, naive, interleaved:V (V parts of a rank), zbh1, "
         "zbv, or 2bw: never idle, with weights one update behind (1f1b)"},
        {"stages", TOOL_TEXT, &s->stages, "HOW",
         "pp: division of the blocks: even, by cost (arithmetic), or a list such as 3,4,4,1 "
         "(even)"},
        {"workspace", TOOL_INT, &s->workspace, "BYTES",
         "scratch memory for split-k matrix products (32M on a GPU, else 0)"},
        {"optimizer", TOOL_TEXT, &s->optimizer, "NAME", s->optimizers_help, .kept = true},
        {"optimizer-state", TOOL_TEXT, &s->states, "TYPE",
         "type in which the optimizer's states are stored: f32, bf16, or 8bit for parameters of "
         "4096 elements or more (f32)",
         .kept = true},
        {"beta1", TOOL_REAL, &s->beta1, "X",
         "decay of the mean of gradients: adamw, adam, lion (0.9)", .kept = true},
        {"beta2", TOOL_REAL, &s->beta2, "X",
         "decay of the second mean: adamw, adam (0.95), lion, rmsprop (0.99)", .kept = true},
        {"eps", TOOL_REAL, &s->eps, "X",
         "term that keeps divisions by roots finite (1e-8; adagrad 1e-10)", .kept = true},
        {"eps-inside", TOOL_FLAG, &s->eps_inside, NULL,
         "place of eps under the root, not beside it", .kept = true},
        {"no-bias-correction", TOOL_FLAG, &s->no_bias_correction, NULL,
         "adamw, adam: no division by 1 - beta^t", .kept = true},
        {"momentum", TOOL_REAL, &s->momentum, "X",
         "factor of the last update: momentum, nesterov (0.9), rmsprop (0)", .kept = true},
        {"dampening", TOOL_REAL, &s->dampening, "X", "dampening of momentum (0)", .kept = true},
        {"centered", TOOL_FLAG, &s->centered, NULL,
         "rmsprop: variance of gradients in place of their mean square", .kept = true},
        {"clip", TOOL_REAL, &s->clip, "NORM", "largest global gradient norm; 0 = no limit (1)",
         .kept = true},
        {"weight-decay", TOOL_REAL, &s->weight_decay, "X",
         "weight decay: decoupled for adamw, sgd and lion (0.1), else added to gradients (0)",
         .kept = true},
    };
    _Static_assert(sizeof(all) == SETUP_ROWS * sizeof(all[0]), "a row each");
    memcpy(rows, all, sizeof(all));
}

/* "not in this version" or "there is no", whichever is true. */
static int refuse(const struct tool_command *command, const char *flag, const char *value,
                  const char *const *planned, const char *instead)
{
    for (int i = 0; planned[i]; i++) {
        size_t bytes = strlen(planned[i]);
        bool open_end = planned[i][bytes - 1] == ':';
        if (open_end ? strncmp(value, planned[i], bytes) == 0 : strcmp(value, planned[i]) == 0)
            return tool_usage_error(command, "--%s %s is not in this version; use %s", flag, value,
                                    instead);
    }
    return tool_usage_error(command, "there is no --%s \"%s\"; use %s", flag, value, instead);
}

int setup_mesh_read(const struct tool_command *command, const char *text, const char *const *names,
                    int64_t *values)
{
    unsigned seen = 0;
    for (const char *at = text;; at++) {
        const size_t name = strcspn(at, "=,"), bytes = strcspn(at, ",");
        char what[32];
        int axis = 0;
        while (names[axis] && (strlen(names[axis]) != name || memcmp(names[axis], at, name) != 0))
            axis++;
        if (at[name] != '=' || !names[axis] || bytes == name + 1)
            return tool_usage_error(
                command,
                "--mesh wants a list such as dp=4, dp=4,shard=2 or dp=2,tp=2,pp=2, not \"%s\"",
                text);
        snprintf(what, sizeof(what), "--mesh %s", names[axis]);
        if (seen & 1u << axis)
            return tool_usage_error(command, "%s is given twice in \"%s\"", what, text);
        seen |= 1u << axis;
        const int status = tool_take_int(command, what, at + name + 1, bytes - name - 1, 1,
                                         SETUP_MOST_RANKS, &values[axis]);
        if (status != TOOL_OK)
            return status;
        at += bytes;
        if (!*at)
            return TOOL_OK;
    }
}

static int parse_mesh(const struct tool_command *command, const char *text, struct rf_mesh *mesh)
{
    static const char *const names[] = {"dp", "tp", "pp", "shard", "cp", NULL};
    int64_t values[5] = {1, 1, 1, 0, 1}, ranks = 1;
    const int status = setup_mesh_read(command, text, names, values);
    if (status != TOOL_OK)
        return status;
    for (int k = 0; k < 5; k++)
        if (k != 3 && (ranks *= values[k]) > INT32_MAX)
            return tool_usage_error(command, "--mesh %s has more ranks than a number holds", text);
    *mesh = (struct rf_mesh){.dp = (int)values[0],
                             .tp = (int)values[1],
                             .pp = (int)values[2],
                             .shard = (int)values[3],
                             .cp = (int)values[4]};
    if (mesh->tp > 1 && mesh->cp > 1)
        return tool_usage_error(command,
                                "--mesh %s: tp and cp together are not in this version; "
                                "use one of the two",
                                text);
    return TOOL_OK;
}

int setup_ranks(const struct setup *s)
{
    return s->mesh.dp * s->mesh.tp * s->mesh.cp * s->mesh.pp;
}

const char *setup_mesh_text(const struct setup *s, char text[64])
{
    const struct {
        const char *name;
        int size;
    } axes[] = {
        {"tp", s->mesh.tp}, {"cp", s->mesh.cp}, {"pp", s->mesh.pp}, {"shard", s->mesh.shard}};
    int used = snprintf(text, 64, "dp=%d", s->mesh.dp);
    for (int k = 0; k < 4; k++)
        if (axes[k].size > (k < 3))
            used += snprintf(text + used, 64 - (size_t)used, ",%s=%d", axes[k].name, axes[k].size);
    return text;
}

/* "1f1b", or "interleaved:V". */
static int parse_schedule(const struct tool_command *command, struct setup *s)
{
    char name[16] = "";
    const size_t bytes = strcspn(s->schedule, ":");
    const bool counted = s->schedule[bytes] == ':';
    int64_t chunks = 0;
    if (bytes < sizeof(name))
        memcpy(name, s->schedule, bytes);
    if (rf_pipeline_find(name, &s->policy_pipeline) < 0 ||
        (counted && s->policy_pipeline != RF_PIPELINE_INTERLEAVED))
        return tool_usage_error(command,
                                "there is no --schedule \"%s\"; use 1f1b, gpipe, naive, "
                                "interleaved, interleaved:V, zbh1, zbv or 2bw",
                                s->schedule);
    const char *parts = s->schedule + bytes + counted;
    int status = TOOL_OK;
    if (counted)
        status = tool_take_int(command, "--schedule interleaved", parts, strlen(parts), 1, 1024,
                               &chunks);
    if (status != TOOL_OK)
        return status;
    s->chunks = (int)chunks;
    if (s->mesh.pp == 1 && strcmp(s->stages, "even") != 0)
        return tool_usage_error(command,
                                "--stages %s is for blocks that are spread over ranks; "
                                "use --mesh pp=N with it",
                                s->stages);
    if (s->mesh.pp == 1 && s->policy_pipeline != RF_PIPELINE_1F1B)
        return tool_usage_error(command,
                                "--schedule %s is for blocks that are spread over ranks; "
                                "use --mesh pp=N with it",
                                s->schedule);
    return TOOL_OK;
}

static int recipe_parse(const struct tool_command *command, struct setup *s)
{
    static const char *const none[] = {NULL};
    const int recipe = rf_recipe_find(s->products);
    if (strcasecmp(s->products, "DelayedScaling") == 0)
        return tool_usage_error(command,
                                "--matmul-precision %s takes scales from earlier products, which "
                                "ranks would not have alike; use fp8, with scales of each product",
                                s->products);
    if (recipe < 0)
        return refuse(command, "matmul-precision", s->products, none,
                      "none, fp8, fp8-e4m3, fp8-rows, fp8-blocks, mxfp8, mxfp4 or nvfp4");
    s->recipe = (enum rf_recipe)recipe;
    s->products = rf_recipe_name(s->recipe); /* which checkpoints keep */
    if (s->recipe && (s->quantization || setup_adapter(s)))
        return tool_usage_error(command,
                                "--matmul-precision %s is for weights that are trained; leave it "
                                "out with adapters",
                                s->products);
    for (int k = 0; s->recipe && k < 2; k++)
        if (k ? s->mesh.cp > 1
              : !rf_recipe_block(s->recipe) && (s->mesh.tp > 1 || s->tensor_parts > 1))
            return tool_usage_error(command,
                                    "--matmul-precision %s has scales of numbers that several %s "
                                    "ranks have; leave out one of the two",
                                    s->products, k ? "context" : "tensor");
    return TOOL_OK;
}

int quantize_parse(const struct tool_command *command, const char *text, bool kept, struct setup *s)
{
    const char *names[RF_QUANTIZATION_COUNT + 2] = {[RF_QUANTIZATION_COUNT] = "auto"};
    static const char *const none[] = {NULL};
    for (int k = 0; k < RF_QUANTIZATION_COUNT; k++)
        names[k] = rf_quantization_name((enum rf_quantization)k);
    const int kind = tool_choice(text, names);
    if (kind < 0)
        return refuse(command, "quantize", text, none,
                      "auto, none, nf4, int8, fp8, mxfp4 or nvfp4");
    s->quantize_auto = kind == RF_QUANTIZATION_COUNT;
    s->quantization = !s->quantize_auto ? (enum rf_quantization)kind
                      : s->hub && kept  ? hub_packing_of(s->hub).quantized
                                        : RF_QUANTIZE_NONE;
    return TOOL_OK;
}

static int check_names(const struct tool_command *command, struct setup *s)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    static const char *const states[] = {"f32", "bf16", "8bit", NULL};
    static const enum rf_dtype state_types[] = {RF_F32, RF_BF16, RF_U8};
    static const char *const models[] = {"gpt2", "llama", NULL};
    static const char *const orders[] = {"ring", "tree", NULL};
    static const char *const updates[] = {"all", "rank0", NULL};
    static const char *const residuals[] = {"f32", "same", NULL};
    static const char *const none[] = {NULL};
    const int residual = tool_choice(s->residual, residuals);
    const int dtype = tool_choice(s->dtype, dtypes), reduce = tool_choice(s->reduce, dtypes);
    const int model = tool_choice(s->model, models);
    if (model < 0)
        return refuse(command, "model", s->model, none, "gpt2 or llama");
    if (model == 0 && s->kv_heads)
        return tool_usage_error(command, "--model gpt2 has no --kv-heads");
    if (dtype < 0)
        return refuse(command, "dtype", s->dtype, none, "f32, bf16 or f16");
    if (residual < 0)
        return refuse(command, "residual", s->residual, none, "f32 or same");
    if (reduce < 0)
        return refuse(command, "reduce-dtype", s->reduce, none, "f32, bf16 or f16");
    s->compression = (struct rf_compression){0};
    if (strcmp(s->compress, "none") != 0 &&
        (rf_form_read(s->compress, &s->compression.form, &s->compression.fraction,
                      &s->compression.rank) < 0 ||
         s->compression.form == RF_FORM_F32))
        return refuse(command, "compress", s->compress, none,
                      "none, bf16, int8, nf4, sign, top, top:SHARE, powersgd or powersgd:RANK");
    s->type = types[dtype];
    s->reduce_type = types[reduce];
    s->residual_type = residual == 0 ? RF_F32 : s->type;
    if (s->no_masters && (dtype == 0 || residual == 0))
        return tool_usage_error(command, "--no-masters is for weights that are all in 16 bits; use "
                                         "--dtype bf16 (or f16) and --residual same with it");
    if (s->stochastic && dtype == 0)
        return tool_usage_error(command, "--stochastic-rounding is for weights in 16 bits; use "
                                         "--dtype bf16 or f16 with it");
    int status = recompute_parse(command, s->again, &s->recompute);
    if (status == TOOL_OK)
        status = reversible_parse(command, s);
    if (status == TOOL_OK)
        status = offload_parse(command, s->offload, &s->offloaded, &s->on_disk);
    if (status == TOOL_OK)
        status = adapter_open(command, s);
    if (status == TOOL_OK && s->lora)
        status = lora_parse(command, s->lora, hub_arch_targets(model_arch(s)), &s->adapter);
    if (status != TOOL_OK)
        return status;
    status = quantize_parse(command, s->quantize, setup_adapter(s), s);
    if (status != TOOL_OK)
        return status;
    if (s->quantization && !s->from)
        return tool_usage_error(command, "--quantize %s needs weights: use --from DIR with it",
                                s->quantize);
    if (s->quantization && !setup_adapter(s))
        return tool_usage_error(command,
                                "--quantize %s: quantised weights are not trained; use "
                                "adapters with them, by --lora or --adapter",
                                s->quantize);
    if (rf_optimizer_find(s->optimizer) < 0)
        return refuse(command, "optimizer", s->optimizer, none, s->optimizers);
    const int state = tool_choice(s->states, states);
    if (state < 0)
        return refuse(command, "optimizer-state", s->states, none, "f32, bf16 or 8bit");
    s->state_type = state_types[state];
    if (tool_choice(s->order, orders) < 0)
        return refuse(command, "order", s->order, none, "ring or tree");
    if (tool_choice(s->update, updates) < 0)
        return refuse(command, "update", s->update, none, "all or rank0");
    if (strcmp(s->update, "rank0") == 0 && strcmp(s->order, "tree") == 0)
        return tool_usage_error(command, "--update rank0 with --order tree is not in this version; "
                                         "use --order ring");
    if (reduce > 0 && strcmp(s->order, "tree") == 0)
        return tool_usage_error(command,
                                "--order tree gives the bits of one process, which rounds "
                                "no gradients; use --order ring with --reduce-dtype %s",
                                s->reduce);
    if (s->compression.form != RF_FORM_F32 && strcmp(s->order, "tree") == 0)
        return tool_usage_error(command,
                                "--order tree gives the bits of one process, which sends no "
                                "gradients; use --order ring with --compress %s",
                                s->compress);
    if (s->zero != 3 && (s->keep_gathered || s->no_prefetch))
        return tool_usage_error(command, "%s is for --zero 3",
                                s->keep_gathered ? "--keep-gathered" : "--no-prefetch");
    if (s->zero && strcmp(s->update, "rank0") == 0)
        return tool_usage_error(command, "--zero spreads the update over the ranks, --update rank0 "
                                         "does it on one; use one of the two");
    return TOOL_OK;
}

static int check_sizes(const struct tool_command *command, const struct setup *s)
{
    if (s->kv_heads > s->heads || (s->kv_heads && s->heads % s->kv_heads))
        return tool_usage_error(command, "--kv-heads %lld does not divide --heads %lld",
                                (long long)s->kv_heads, (long long)s->heads);
    if (s->channels % s->heads && !s->hub)
        return tool_usage_error(command, "--channels %lld cannot be divided among --heads %lld",
                                (long long)s->channels, (long long)s->heads);
    return TOOL_OK;
}

int setup_check(const struct tool_command *command, struct setup *s, int ranks)
{
    int status = from_open(command, s);
    if (status == TOOL_OK)
        status = check_names(command, s);
    if (status == TOOL_OK)
        status = check_sizes(command, s);
    s->mesh = (struct rf_mesh){.dp = ranks, .tp = 1, .pp = 1, .cp = 1};
    if (status == TOOL_OK && s->mesh_text)
        status = parse_mesh(command, s->mesh_text, &s->mesh);
    if (status == TOOL_OK)
        status = parse_schedule(command, s);
    if (status == TOOL_OK)
        status = stages_parse(command, s->stages, &s->stage_list);
    if (status == TOOL_OK)
        status = recipe_parse(command, s);
    if (status != TOOL_OK)
        return status;
    if (s->sequence_parallel && s->mesh.tp == 1)
        return tool_usage_error(command, "--sequence-parallel is for tensor ranks; use --mesh tp=N "
                                         "with it");
    int64_t dp = s->mesh.dp;
    if (!s->batch_given && s->any_batch)
        s->batch = (15 + dp) / dp * dp;
    /* A pipeline needs several for each rank. */
    const int64_t ranks_of_job = dp * s->mesh.pp;
    int64_t pieces = s->micro_batches          ? s->micro_batches
                     : s->batch % ranks_of_job ? dp
                                               : ranks_of_job;
    if (pieces < s->mesh.dp)
        return tool_usage_error(command,
                                "--micro-batches %lld is less than the %d data-parallel "
                                "ranks: some would have nothing to do",
                                (long long)pieces, s->mesh.dp);
    if (s->batch % pieces)
        return tool_usage_error(command,
                                "--batch %lld cannot be divided into %lld micro-batches; "
                                "change --batch or --micro-batches",
                                (long long)s->batch, (long long)pieces);
    if (s->in_backward && s->clip != 0)
        return tool_usage_error(command,
                                "--update-in-backward with --clip %g: the norm of all gradients is "
                                "known after the last update only; use --clip 0 with it",
                                s->clip);
    const double unasked = s->type == RF_F16 ? SETUP_F16_SCALE : 0;
    s->policy = (struct rf_policy){
        .batch = s->batch,
        .seq = s->seq,
        .micro_batches = pieces,
        .order = strcmp(s->order, "tree") == 0 ? RF_ORDER_TREE : RF_ORDER_RING,
        .update_on_rank_0 = strcmp(s->update, "rank0") == 0,
        .clip = (float)s->clip,
        .state_dtype = s->state_type,
        .no_masters = s->no_masters,
        .reduce_dtype = s->reduce_type,
        .compress = s->compression,
        .loss_scale = (float)(s->loss_scale >= 0 ? s->loss_scale : unasked),
        .sequence_parallel = s->sequence_parallel,
        .tensor_parts = (int)s->tensor_parts,
        .pipeline = s->policy_pipeline,
        .chunks = s->chunks,
        .stages = s->stage_list.split,
        .stage_blocks = s->stage_list.count ? s->stage_list.blocks : NULL,
        .stage_count = s->stage_list.count,
        .zero = (int)s->zero,
        .keep_gathered = s->keep_gathered,
        .no_prefetch = s->no_prefetch,
        .recompute = s->recompute.blocks,
        .invert = s->reversible && !s->recompute.blocks,
        .update_in_backward = s->in_backward,
        .offload = s->offloaded,
        .disk = s->on_disk,
        .device_bytes = s->device_bytes > 0 ? (uint64_t)s->device_bytes : 0,
        .workspace_bytes = s->workspace > 0 ? (uint64_t)s->workspace : 0,
    };
    return setup_check_optimizer(command, s);
}

void setup_close(struct setup *s)
{
    hub_destroy(s->hub);
    adapter_file_close(s->adapter_file);
    s->hub = NULL;
    s->adapter_file = NULL;
}
