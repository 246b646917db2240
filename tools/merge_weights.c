/* SPDX-License-Identifier: MIT
 *
 * Adapters, of PEFT's files or of a run, added to the weights of a hub's folder. One tensor at a
 * time is in memory.
 */
#include <string.h>

#include "from.h"

struct merge {
    const struct tool_command *command;
    const struct merge_options *o;
    struct rf_weights *weights;
    struct hub_look look; /* at the base; look.arch NULL: unknown to the tables */
    struct rf_export *to;
    int merged;
};

/* The architecture's rows about a tensor. For other architectures the adapters determine the layout
 * of weights. */
static struct hub_about about(const struct merge *m, const char *name)
{
    if (m->look.arch)
        return hub_tensor_about(m->look.arch, name);
    return (struct hub_about){.transposed =
                                  m->o->file && adapter_file_config(m->o->file)->fan_in_fan_out};
}

/* Tensors of other types that hold no parameters, such as masks, are skipped. */
static bool is_left_out(const struct merge *m, const struct rf_weight *w)
{
    return w->dtype != RF_F32 && w->dtype != RF_F16 && w->dtype != RF_BF16 &&
           about(m, w->name).ignored;
}

static int begin(struct merge *m)
{
    const struct export_options *export = &m->o->export;
    const int all = rf_weights_count(m->weights);
    int count = 0;
    enum rf_dtype dtype = RF_F32;
    const int status = export->dtype ? tool_read_dtype(m->command, export->dtype, &dtype) : TOOL_OK;
    struct rf_weight *list = calloc((size_t)all + 1, sizeof(*list));
    if (status != TOOL_OK || !list) {
        free(list);
        return status == TOOL_OK ? tool_error(m->command, "out of memory") : status;
    }
    for (int i = 0; i < all; i++) {
        list[count] = *rf_weights_get(m->weights, i);
        list[count].dtype = export->dtype ? dtype : list[count].dtype;
        count += !is_left_out(m, rf_weights_get(m->weights, i));
    }
    const struct rf_export_opts opts = {
        .weights = list, .count = count, .shard_bytes = (uint64_t) export->shard_bytes};
    const int rc = rf_export_open(export->dir, &opts, &m->to);
    free(list);
    return rc < 0 ? tool_library_error(m->command, -1) : TOOL_OK;
}

static int copy_tensor(struct merge *m, int index)
{
    const struct merge_options *o = m->o;
    const struct rf_weight *w = rf_weights_get(m->weights, index);
    const uint64_t count = (uint64_t)rf_shape_count(w->shape);
    bool merged = false;
    if (is_left_out(m, w))
        return TOOL_OK;
    const bool transposed = about(m, w->name).transposed;
    float *values = malloc((count + 1) * sizeof(*values));
    if (!values)
        return tool_error(m->command, "out of memory for %s", w->name);
    int status = rf_weights_read(m->weights, index, 0, count, values) < 0
                     ? tool_library_error(m->command, -1)
                     : TOOL_OK;
    if (status == TOOL_OK && (o->file ? adapter_file_merge(o->file, w, transposed, values, &merged)
                                      : adapter_merge(o->set, w, transposed, values, &merged)) < 0)
        status = tool_error(m->command, "%s: %s", o->file ? o->adapter : o->from,
                            rf_last_error()->message);
    if (status == TOOL_OK && rf_export_write(m->to, values, count) < 0)
        status = tool_library_error(m->command, -1);
    m->merged += merged;
    free(values);
    return status;
}

/* Whether every adapter was merged into a weight. */
static int check_merged(const struct merge *m)
{
    const struct merge_options *o = m->o;
    const char *unused = o->file ? adapter_file_unused(o->file) : NULL;
    if (unused)
        return tool_error(m->command,
                          "--adapter %s: the tensor %s belongs to no weight of --from %s; take the "
                          "base that the adapters were made for, or save them without it",
                          o->adapter, unused, o->from);
    if (!o->file && m->merged != o->set->count)
        return tool_error(m->command,
                          "there are adapters of %d modules, but %d weights of --from %s have "
                          "one: the adapter belongs to another model",
                          o->set->count, m->merged, o->from);
    return TOOL_OK;
}

/* The weights that are written are not packed. */
static int write_config(const struct merge *m)
{
    if (m->o->config)
        return rf_export_text(m->to, "config.json", m->o->config);
    if (!m->look.packing.kind)
        return rf_export_copy(m->to, m->o->from, "config.json");
    char *text = hub_unpacked_text(m->look.text);
    const int rc = text ? rf_export_text(m->to, "config.json", text) : RF_ENOMEM;
    free(text);
    return rc;
}

static int merge_all(struct merge *m)
{
    const struct merge_options *o = m->o;
    if (hub_look_at(o->from, &m->look) < 0)
        return tool_error(m->command, "--from %s: %s", o->from, rf_last_error()->message);
    const struct rf_weights_opts opts = hub_weights_opts(&m->look.packing, o->allow_nan);
    if (rf_weights_open(o->from, &opts, &m->weights) < 0 || export_copy_others(NULL, o->from) < 0)
        return tool_library_error(m->command, -1);
    int status = begin(m);
    for (int i = 0; status == TOOL_OK && i < rf_weights_count(m->weights); i++)
        status = copy_tensor(m, i);
    if (status == TOOL_OK)
        status = check_merged(m);
    if (status == TOOL_OK && (write_config(m) < 0 || export_copy_others(m->to, o->from) < 0))
        status = tool_library_error(m->command, -1);
    return status;
}

int merge_weights(const struct tool_command *command, const struct merge_options *o, int *merged)
{
    struct merge m = {.command = command, .o = o};
    int status = merge_all(&m);
    if (m.to && rf_export_close(m.to, status == TOOL_OK) < 0)
        status = tool_library_error(command, -1);
    rf_weights_close(m.weights);
    free(m.look.text);
    *merged = m.merged;
    return status;
}
