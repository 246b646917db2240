/* SPDX-License-Identifier: MIT
 *
 * `ringforge merge`: adds adapters of PEFT's format to the weights of a hub's folder. It needs no
 * device, and memory for one tensor at a time.
 */
#include <adapter_file.h>
#include <ringforge/weights.h>
#include <string.h>

#include "tool.h"

struct merge_options {
    const char *from, *adapter, *dir;
    bool allow_nan;
};

struct merge {
    const struct tool_command *command;
    const struct merge_options *o;
    struct rf_weights *weights;
    struct adapter_file *adapter;
    struct rf_export *to;
    int merged;
};

static int begin(struct merge *m)
{
    const int count = rf_weights_count(m->weights);
    struct rf_weight *list = calloc((size_t)count + 1, sizeof(*list));
    if (!list)
        return tool_error(m->command, "out of memory");
    for (int i = 0; i < count; i++)
        list[i] = *rf_weights_get(m->weights, i);
    const struct rf_export_opts opts = {.weights = list, .count = count};
    const int rc = rf_export_open(m->o->dir, &opts, &m->to);
    free(list);
    return rc < 0 ? tool_library_error(m->command, -1) : TOOL_OK;
}

static int copy_tensor(struct merge *m, int index)
{
    const struct rf_weight *w = rf_weights_get(m->weights, index);
    const uint64_t count = (uint64_t)rf_shape_count(w->shape);
    char fault[ADAPTER_FAULT_BYTES];
    bool merged = false;
    float *values = malloc((count + 1) * sizeof(*values));
    if (!values)
        return tool_error(m->command, "out of memory for %s", w->name);
    int status = rf_weights_read(m->weights, index, 0, count, values) < 0
                     ? tool_library_error(m->command, -1)
                     : TOOL_OK;
    if (status == TOOL_OK && adapter_file_merge(m->adapter, w, values, &merged, fault) < 0)
        status = tool_error(m->command, "--adapter %s: %s", m->o->adapter, fault);
    if (status == TOOL_OK && rf_export_write(m->to, values, count) < 0)
        status = tool_library_error(m->command, -1);
    m->merged += merged;
    free(values);
    return status;
}

static int copy_others(struct merge *m)
{
    static const char *const names[] = {"config.json",         "generation_config.json",
                                        "tokenizer.json",      "tokenizer_config.json",
                                        "tokenizer.model",     "special_tokens_map.json",
                                        "added_tokens.json",   "vocab.json",
                                        "vocab.txt",           "merges.txt",
                                        "chat_template.jinja", "chat_template.json"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (rf_export_copy(m->to, m->o->from, names[i]) < 0)
            return tool_library_error(m->command, -1);
    return TOOL_OK;
}

static int merge_all(struct merge *m)
{
    const struct rf_weights_opts opts = {.allow_nan = m->o->allow_nan};
    char fault[ADAPTER_FAULT_BYTES];
    if (adapter_file_open(m->o->adapter, &m->adapter, fault) < 0)
        return tool_error(m->command, "--adapter %s: %s", m->o->adapter, fault);
    if (rf_weights_open(m->o->from, &opts, &m->weights) < 0)
        return tool_library_error(m->command, -1);
    int status = begin(m);
    for (int i = 0; status == TOOL_OK && i < rf_weights_count(m->weights); i++)
        status = copy_tensor(m, i);
    if (status == TOOL_OK && m->merged != adapter_file_modules(m->adapter))
        status = tool_error(m->command,
                            "--adapter %s has adapters of %d modules, but %d weights of --from %s "
                            "have one: it belongs to another model",
                            m->o->adapter, adapter_file_modules(m->adapter), m->merged, m->o->from);
    return status == TOOL_OK ? copy_others(m) : status;
}

static int merge_main(const struct tool_command *command, int argc, char **argv)
{
    struct merge_options o = {NULL};
    const struct tool_option table[] = {
        {"from", 0, TOOL_TEXT, &o.from, "DIR",
         "the base: config.json, model.safetensors or shards"},
        {"adapter", 0, TOOL_TEXT, &o.adapter, "DIR",
         "adapter_config.json and adapter_model.safetensors"},
        {"export", 0, TOOL_TEXT, &o.dir, "DIR", "where the merged weights are written"},
        {"allow-nan", 0, TOOL_FLAG, &o.allow_nan, NULL, "take weights that are not finite numbers"},
        {NULL}};
    int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status == TOOL_DONE ? TOOL_OK : status;
    if (!o.from || !o.adapter || !o.dir)
        return tool_usage_error(command, "it needs --from DIR, --adapter DIR and --export DIR");
    if (strcmp(o.from, o.dir) == 0)
        return tool_usage_error(command, "--export %s would replace the base; name another folder",
                                o.dir);
    struct merge m = {.command = command, .o = &o};
    status = merge_all(&m);
    if (m.to && rf_export_close(m.to, status == TOOL_OK) < 0)
        status = tool_library_error(command, -1);
    rf_weights_close(m.weights);
    adapter_file_close(m.adapter);
    if (status == TOOL_OK)
        printf("merged the adapters of %d modules into %s\n", m.merged, o.dir);
    return status;
}

const struct tool_command tool_merge = {
    .name = "merge",
    .summary = "add low-rank adapters to the weights of a model",
    .usage = "--from DIR --adapter DIR --export DIR",
    .main = merge_main,
    .notes = "W + scale B A, as merge_and_unload of PEFT, rounded once to the type of W.\n",
};
