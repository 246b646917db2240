/* SPDX-License-Identifier: MIT
 *
 * --adapter DIR and --export-adapter DIR: adapters of a run from and to the files of PEFT.
 */
#include <adapter_file.h>
#include <math.h>
#include <ringforge/generate.h>
#include <string.h>

#include "from.h"

int adapter_open(const struct tool_command *command, struct setup *s)
{
    if (!s->adapter_dir || s->adapter_file)
        return TOOL_OK;
    if (s->lora)
        return tool_usage_error(command,
                                "--lora contradicts --adapter %s, whose adapter_config.json "
                                "describes the adapters; leave it out",
                                s->adapter_dir);
    if (adapter_file_open(s->adapter_dir, &s->adapter_file) < 0)
        return tool_error(command, "--adapter %s: %s", s->adapter_dir, rf_last_error()->message);
    return TOOL_OK;
}

/* ---- values of a new adapter ----------------------------------------------------------------- */

bool adapter_has(const char *param)
{
    return strstr(param, ".lora_A.") || strstr(param, ".lora_B.");
}

/* Steele, Lea, Flood 2014. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void adapter_initial(const struct rf_param_desc *param, uint64_t seed, uint64_t first,
                     uint64_t count, float *values)
{
    const double bound = 1 / sqrt((double)param->shape.dim[1]);
    uint64_t key = seed;
    for (const char *c = param->name; *c; c++)
        key = mix(key ^ (uint8_t)*c);
    for (uint64_t i = 0; i < count; i++) {
        const double unit = (double)(mix(key ^ mix(first + i)) >> 11) * 0x1p-53;
        values[i] = strstr(param->name, ".lora_A.") ? (float)(bound * (2 * unit - 1)) : 0;
    }
}

/* ---- modules --------------------------------------------------------------------------------- */

static struct model_adapter_module *modules_of(const struct model *model, int *count)
{
    *count = model->modules(model->owner, NULL, 0);
    struct model_adapter_module *list = calloc((size_t)*count + 1, sizeof(*list));
    if (list)
        model->modules(model->owner, list, *count);
    return list;
}

/* The end of the modules that share the parameters of `from`. */
static int group_end(const struct model_adapter_module *list, int from, int count)
{
    int to = from + 1;
    while (to < count && strcmp(list[to].a, list[from].a) == 0)
        to++;
    return to;
}

/* Elements of the parameter A or B that the modules [from, to) share. */
static uint64_t group_elements(const struct model_adapter_module *list, int from, int to, bool is_b)
{
    uint64_t rows = 0;
    for (int i = from; i < to; i++)
        rows += (uint64_t)(is_b ? list[i].rows : list[i].rank);
    return rows * (uint64_t)(is_b ? list[from].rank : list[from].in);
}

static uint64_t first_of(const struct model_adapter_module *m, bool is_b)
{
    return (uint64_t)(is_b ? m->b_first * m->rank : m->a_first * m->in);
}

int adapter_check(const struct tool_command *command, const struct setup *s,
                  const struct model *model)
{
    int count = 0;
    if (!s->adapter_file)
        return TOOL_OK;
    struct model_adapter_module *list = modules_of(model, &count);
    if (!list)
        return tool_error(command, "out of memory");
    const int rc = adapter_file_check(s->adapter_file, list, count);
    free(list);
    return rc < 0
               ? tool_error(command, "--adapter %s: %s", s->adapter_dir, rf_last_error()->message)
               : TOOL_OK;
}

/* The destination: one of the two. */
struct target {
    struct rf_run *run;
    struct rf_generator *generator;
};

static int write_param(const struct target *to, const char *name, float *values, uint64_t count)
{
    return to->run ? rf_run_write_param(to->run, name, values, count * sizeof(*values))
                   : rf_generator_write_param(to->generator, name, values, count);
}

static int fill_group(const struct tool_command *command, const struct setup *s,
                      const struct target *target, const struct model_adapter_module *list,
                      int from, int to, bool is_b)
{
    const uint64_t count = group_elements(list, from, to, is_b);
    float *values = malloc(count * sizeof(*values));
    int status = values ? TOOL_OK : tool_error(command, "out of memory");
    for (int i = from; status == TOOL_OK && i < to; i++)
        if (adapter_file_read(s->adapter_file, &list[i], is_b, values + first_of(&list[i], is_b)) <
            0)
            status =
                tool_error(command, "--adapter %s: %s", s->adapter_dir, rf_last_error()->message);
    if (status == TOOL_OK &&
        write_param(target, is_b ? list[from].b : list[from].a, values, count) < 0)
        status = tool_library_error(command, -1);
    free(values);
    return status;
}

static int fill(const struct tool_command *command, const struct setup *s,
                const struct model *model, const struct target *target)
{
    int count = 0, status = TOOL_OK;
    if (!s->adapter_file)
        return TOOL_OK;
    struct model_adapter_module *list = modules_of(model, &count);
    if (!list)
        return tool_error(command, "out of memory");
    for (int from = 0, to; status == TOOL_OK && from < count; from = to) {
        to = group_end(list, from, count);
        for (int b = 0; status == TOOL_OK && b < 2; b++)
            status = fill_group(command, s, target, list, from, to, b);
    }
    free(list);
    return status;
}

int adapter_fill(const struct tool_command *command, const struct setup *s,
                 const struct model *model, struct rf_run *run)
{
    return fill(command, s, model, &(struct target){.run = run});
}

int adapter_fill_generator(const struct tool_command *command, const struct setup *s,
                           const struct model *model, struct rf_generator *generator)
{
    return fill(command, s, model, &(struct target){.generator = generator});
}

/* ---- export ---------------------------------------------------------------------------------- */

/* All adapters: of module i, A is at[2 i] and B at[2 i + 1]. */
struct all {
    struct model_adapter_module *list;
    int count;
    float **at;
};

static int copy(void *self, const struct model_adapter_module *module, bool is_b, float *values)
{
    const struct all *all = self;
    const int64_t count = module->rank * (is_b ? module->rows : module->in);
    memcpy(values, all->at[2 * (module - all->list) + is_b], (size_t)count * sizeof(*values));
    return 0;
}

static int read_group(const struct tool_command *command, struct all *all, struct rf_run *run,
                      int from, int to, bool is_b)
{
    const uint64_t count = group_elements(all->list, from, to, is_b);
    float *values = malloc(count * sizeof(*values));
    if (!values)
        return tool_error(command, "out of memory");
    all->at[2 * from + is_b] = values; /* the first owns the memory */
    for (int i = from; i < to; i++)
        all->at[2 * i + is_b] = values + first_of(&all->list[i], is_b);
    return rf_run_read_param(run, is_b ? all->list[from].b : all->list[from].a, values,
                             count * sizeof(*values)) < 0
               ? tool_library_error(command, -1)
               : TOOL_OK;
}

/* The source: one of the two. */
struct output {
    const char *dir;
    const struct export_options *merged;
};

static int write_files(const struct tool_command *command, const struct setup *s, const char *dir,
                       struct all *all)
{
    const struct adapter_source source = {all, copy};
    char *text = adapter_config_text(setup_adapter(s), hub_arch_transposes(model_arch(s)), s->from,
                                     all->list, all->count);
    if (!text)
        return tool_error(command, "out of memory");
    const int rc = adapter_file_write(dir, text, all->list, all->count, &source);
    free(text);
    return rc < 0 ? tool_error(command, "--export-adapter %s: %s", dir, rf_last_error()->message)
                  : TOOL_OK;
}

static int write_merged(const struct tool_command *command, const struct setup *s,
                        const struct export_options *export, struct all *all)
{
    const struct adapter_set set = {.adapter = setup_adapter(s),
                                    .modules = all->list,
                                    .count = all->count,
                                    .source = {all, copy}};
    enum rf_dtype dtype = RF_F32;
    int merged = 0;
    int status = export->dtype ? tool_read_dtype(command, export->dtype, &dtype) : TOOL_OK;
    char *config = export->dtype ? hub_config_text(s->hub, dtype) : NULL;
    if (status == TOOL_OK && export->dtype && !config)
        status = tool_error(command, "out of memory");
    const struct merge_options options = {.from = s->from,
                                          .set = &set,
                                          .export = *export,
                                          .config = config,
                                          .allow_nan = s->allow_nan};
    if (status == TOOL_OK)
        status = merge_weights(command, &options, &merged);
    free(config);
    return status;
}

int adapter_check_export(const struct tool_command *command, const struct setup *s,
                         const struct model *model, bool merged)
{
    if (merged && !s->from)
        return tool_usage_error(command, "--export with adapters merges them into the weights of "
                                         "--from DIR; use --export-adapter DIR");
    for (int b = 0; b < model->count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++) {
            const struct rf_param_desc *param = &model->blocks[b].params[k];
            if (!adapter_has(param->name) && !(param->flags & RF_PARAM_FROZEN))
                return tool_usage_error(command,
                                        "--export%s writes %s, but %s is trained, too: its values "
                                        "would be lost; use --save",
                                        merged ? "" : "-adapter",
                                        merged ? "the weights of --from with the adapters in them"
                                               : "adapters alone",
                                        param->name);
        }
    return TOOL_OK;
}

static int export(const struct tool_command *command, const struct setup *s,
                  const struct output *to, const struct model *model, struct rf_run *run, int rank)
{
    struct all all = {NULL};
    int status = TOOL_OK, failed = TOOL_OK;
    all.list = modules_of(model, &all.count);
    all.at = calloc((size_t)all.count * 2 + 1, sizeof(*all.at));
    if (!all.list || !all.at)
        status = tool_error(command, "out of memory");
    for (int from = 0, to; status == TOOL_OK && from < all.count; from = to) {
        to = group_end(all.list, from, all.count);
        for (int b = 0; status == TOOL_OK && b < 2; b++)
            status = read_group(command, &all, run, from, to, b);
    }
    if (status == TOOL_OK && rank == 0)
        failed = to->dir ? write_files(command, s, to->dir, &all)
                         : write_merged(command, s, to->merged, &all);
    if (status == TOOL_OK && rf_run_share(run, &failed, sizeof(failed)) < 0)
        status = tool_library_error(command, -1);
    for (int from = 0; all.at && all.list && from < all.count;
         from = group_end(all.list, from, all.count)) {
        free(all.at[2 * from]);
        free(all.at[2 * from + 1]);
    }
    free(all.at);
    free(all.list);
    return status == TOOL_OK ? failed : status;
}

int adapter_export(const struct tool_command *command, const struct setup *s, const char *dir,
                   const struct model *model, struct rf_run *run, int rank)
{
    return export(command, s, &(struct output){.dir = dir}, model, run, rank);
}

int adapter_export_merged(const struct tool_command *command, const struct setup *s,
                          const struct export_options *options, const struct model *model,
                          struct rf_run *run, int rank)
{
    return export(command, s, &(struct output){.merged = options}, model, run, rank);
}
