/* SPDX-License-Identifier: MIT
 *
 * adapter_model.safetensors of PEFT, and merging; see adapter_file.h.
 */
#include "adapter_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_json.h"
#include "hub_table.h"

#define MAX_CONFIG (1u << 20)
#define STEM "adapter_model"
#define FRONT "base_model.model."

struct adapter_file {
    char *text;
    struct adapter_config config;
    struct rf_weights *weights;
    bool *used; /* of each tensor */
};

int adapter_file_open(const char *dir, struct adapter_file **out)
{
    const struct rf_weights_opts opts = {.name = STEM};
    struct adapter_file *file = calloc(1, sizeof(*file));
    if (!file)
        return rf_fail(RF_ENOMEM, "out of memory");
    int rc = rf_weights_read_text(dir, "adapter_config.json", MAX_CONFIG, &file->text);
    if (rc == 0)
        rc = rf_weights_open(dir, &opts, &file->weights);
    rc = rc < 0 ? rc : adapter_config_parse(file->text, &file->config);
    if (rc == 0) {
        file->used = calloc((size_t)rf_weights_count(file->weights) + 1, sizeof(*file->used));
        rc = file->used ? 0 : rf_fail(RF_ENOMEM, "out of memory");
    }
    if (rc < 0)
        adapter_file_close(file);
    else
        *out = file;
    return rc;
}

void adapter_file_close(struct adapter_file *file)
{
    if (!file)
        return;
    rf_weights_close(file->weights);
    free(file->used);
    free(file->text);
    free(file);
}

const struct adapter_config *adapter_file_config(const struct adapter_file *file)
{
    return &file->config;
}

const char *adapter_file_unused(const struct adapter_file *file)
{
    for (int i = 0; i < rf_weights_count(file->weights); i++)
        if (!file->used[i])
            return rf_weights_get(file->weights, i)->name;
    return NULL;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void name_of(const char *module, bool is_b, char name[160])
{
    snprintf(name, 160, FRONT "%.100s.lora_%c.weight", module, is_b ? 'B' : 'A');
}

static struct rf_shape shape_of(const struct model_adapter_module *m, bool is_b)
{
    return is_b ? rf_shape2(m->rows, m->rank) : rf_shape2(m->rank, m->in);
}

static int check_tensor(const struct adapter_file *file, const struct model_adapter_module *m,
                        bool is_b, int *index)
{
    char name[160];
    const struct rf_shape want = shape_of(m, is_b);
    name_of(m->name, is_b, name);
    *index = rf_weights_find(file->weights, name);
    if (*index < 0)
        return rf_fail(RF_EINVAL, STEM " has no tensor %s", name);
    const struct rf_shape is = rf_weights_get(file->weights, *index)->shape;
    if (is.ndim != 2 || is.dim[0] != want.dim[0] || is.dim[1] != want.dim[1])
        return rf_fail(RF_EINVAL, STEM ": the shape of %s is not (%lld,%lld), as the model has it",
                       name, (long long)want.dim[0], (long long)want.dim[1]);
    file->used[*index] = true;
    return 0;
}

int adapter_file_check(const struct adapter_file *file, const struct model_adapter_module *modules,
                       int count)
{
    int index = 0;
    memset(file->used, 0, (size_t)rf_weights_count(file->weights) * sizeof(*file->used));
    for (int i = 0; i < 2 * count; i++) {
        const int rc = check_tensor(file, &modules[i / 2], i % 2, &index);
        if (rc < 0)
            return rc;
    }
    const char *unused = adapter_file_unused(file);
    if (!unused)
        return 0;
    return rf_fail(RF_EINVAL,
                   STEM " has the tensor %.200s, and this model has adapters of the linear maps "
                        "of its layers only; save adapters without it",
                   unused);
}

static int read_tensor(struct adapter_file *file, int index, float *values)
{
    const struct rf_weight *w = rf_weights_get(file->weights, index);
    return rf_weights_read(file->weights, index, 0, (uint64_t)rf_shape_count(w->shape), values);
}

int adapter_file_read(struct adapter_file *file, const struct model_adapter_module *module,
                      bool is_b, float *values)
{
    int index = 0;
    const int rc = check_tensor(file, module, is_b, &index);
    return rc < 0 ? rc : read_tensor(file, index, values);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_tensors(struct rf_export *to, const struct model_adapter_module *modules,
                         int count, const struct adapter_source *source)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2 * count; i++) {
        const uint64_t elements = (uint64_t)rf_shape_count(shape_of(&modules[i / 2], i % 2));
        float *values = malloc(elements * sizeof(*values));
        rc = values ? source->read(source->self, &modules[i / 2], i % 2, values) : RF_ENOMEM;
        if (rc == 0)
            rc = rf_export_write(to, values, elements);
        free(values);
    }
    return rc;
}

int adapter_file_write(const char *dir, const char *config,
                       const struct model_adapter_module *modules, int count,
                       const struct adapter_source *source)
{
    struct rf_export *to = NULL;
    struct rf_weight *weights = calloc((size_t)count * 2 + 1, sizeof(*weights));
    char(*names)[160] = calloc((size_t)count * 2 + 1, sizeof(*names));
    int rc = weights && names ? 0 : RF_ENOMEM;
    for (int i = 0; rc == 0 && i < 2 * count; i++) {
        name_of(modules[i / 2].name, i % 2, names[i]);
        weights[i] = (struct rf_weight){names[i], RF_F32, shape_of(&modules[i / 2], i % 2)};
    }
    const struct rf_export_opts opts = {.weights = weights, .count = 2 * count, .name = STEM};
    if (rc == 0)
        rc = rf_export_open(dir, &opts, &to);
    if (rc == 0)
        rc = write_tensors(to, modules, count, source);
    if (rc == 0)
        rc = rf_export_text(to, "adapter_config.json", config);
    const int closed = rf_export_close(to, rc == 0);
    rc = rc < 0 ? rc : closed;
    free(names);
    free(weights);
    if (rc == RF_ENOMEM)
        return rf_fail(rc, "out of memory");
    return rc;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* The module whose weight this tensor is, by its k-th possible name: a base may omit the first part
 * of names, "h.0.attn.c_attn.weight" of a GPT-2. False: no such name. */
static bool module_of(const char *weight, int k, char module[128])
{
    const size_t bytes = strlen(weight);
    const char *front = k == 0 ? "" : hub_archs[k - 1] ? hub_archs[k - 1]->prefix : NULL;
    if (!front || bytes < 8 || bytes > 100 || strcmp(weight + bytes - 7, ".weight") != 0)
        return false;
    snprintf(module, 128, "%s%.*s", front, (int)(bytes - 7), weight);
    return true;
}

static void transpose(float *out, const float *in, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[j * rows + i] = in[i * columns + j];
}

static int merge_module(const struct adapter_set *set, const struct model_adapter_module *m,
                        bool transposed, float *values)
{
    const float scale = model_adapter_scale(set->adapter);
    const size_t all = (size_t)(m->rows * m->in);
    float *a = malloc((size_t)(m->rank * m->in) * sizeof(*a));
    float *b = malloc((size_t)(m->rows * m->rank) * sizeof(*b));
    float *turned = transposed ? malloc(all * sizeof(*turned)) : NULL;
    int rc = a && b && (turned || !transposed) ? 0 : rf_fail(RF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = set->source.read(set->source.self, m, false, a);
    if (rc == 0)
        rc = set->source.read(set->source.self, m, true, b);
    if (rc == 0 && turned) {
        transpose(turned, values, m->in, m->rows);
        model_adapter_merge(turned, a, b, m->rows, m->in, m->rank, scale);
        transpose(values, turned, m->rows, m->in);
    } else if (rc == 0)
        model_adapter_merge(values, a, b, m->rows, m->in, m->rank, scale);
    free(a);
    free(b);
    free(turned);
    return rc;
}

static int read_file(void *self, const struct model_adapter_module *module, bool is_b,
                     float *values)
{
    return adapter_file_read(self, module, is_b, values);
}

int adapter_file_merge(struct adapter_file *file, const struct rf_weight *base, bool transposed,
                       float *values, bool *merged)
{
    struct model_adapter_module m = {.rank = file->config.adapter.rank};
    const struct adapter_set set = {.adapter = &file->config.adapter, .source = {file, read_file}};
    char module[128], name[160];
    int a = -1;
    for (int k = 0; a < 0 && module_of(base->name, k, module); k++) {
        name_of(module, false, name);
        a = rf_weights_find(file->weights, name);
    }
    *merged = false;
    if (a < 0)
        return 0;
    if (base->shape.ndim != 2 || strlen(module) >= sizeof(m.name))
        return rf_fail(RF_EINVAL, "%.100s is not a matrix, but has an adapter", base->name);
    memcpy(m.name, module, strlen(module));
    m.rows = base->shape.dim[transposed ? 1 : 0];
    m.in = base->shape.dim[transposed ? 0 : 1];
    *merged = true;
    return merge_module(&set, &m, transposed, values);
}

int adapter_merge(const struct adapter_set *set, const struct rf_weight *base, bool transposed,
                  float *values, bool *merged)
{
    const struct model_adapter_module *m = NULL;
    char module[128];
    for (int k = 0; !m && module_of(base->name, k, module); k++)
        for (int i = 0; !m && i < set->count; i++)
            if (strcmp(set->modules[i].name, module) == 0)
                m = &set->modules[i];
    *merged = false;
    if (!m)
        return 0;
    if (base->shape.ndim != 2 || base->shape.dim[transposed ? 1 : 0] != m->rows ||
        base->shape.dim[transposed ? 0 : 1] != m->in)
        return rf_fail(RF_EINVAL, "%.100s has another shape than its adapter", base->name);
    *merged = true;
    return merge_module(set, m, transposed, values);
}
