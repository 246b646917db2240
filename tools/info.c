/* SPDX-License-Identifier: MIT
 *
 * ringforge info: the features of this machine, the choices of the library, and the reasons.
 */
#include <string.h>

#include "info.h"

#define MAX_DEVICES 32
#define MAX_PROVIDERS 32

static const char *kind_name(enum rf_device_kind kind)
{
    static const char *const names[] = {"other", "integrated", "discrete", "cpu"};
    return kind <= RF_DEVICE_CPU ? names[kind] : "other";
}

struct flag {
    const char *name;
    bool on;
};

#define FLAG_COUNT 16

static void device_flags(const struct rf_device_info *d, struct flag flags[FLAG_COUNT])
{
    const struct flag all[FLAG_COUNT] = {
        {"subgroup_shuffle", d->subgroup_shuffle},
        {"subgroup_arithmetic", d->subgroup_arithmetic},
        {"int64", d->int64},
        {"int16", d->int16},
        {"int8", d->int8},
        {"float16", d->float16},
        {"float64", d->float64},
        {"storage16", d->storage16},
        {"storage8", d->storage8},
        {"cooperative_matrix", d->cooperative_matrix},
        {"workgroup_matrix", d->workgroup_matrix},
        {"bfloat16", d->bfloat16},
        {"host_visible", d->host_visible},
        {"single_queue", d->single_queue},
        {"external_memory_host", d->external_memory_host},
        {"dma_buf", d->dma_buf},
    };
    memcpy(flags, all, sizeof(all));
}

/* What one device does: the path that an f32 product of a transformer would take, all paths, and
 * what kernels do with subnormal numbers. Empty when it cannot be opened. */
#define MAX_PATHS 32
#define MAX_FORMS 64
struct matmuls {
    const char *path;
    bool asked, flushes; /* kernels flush subnormal numbers to zero */
    uint32_t count, form_count;
    struct rf_matmul_path_info paths[MAX_PATHS]; /* by name */
    struct rf_kernel_form forms[MAX_FORMS];
};

/* The choices for large products, and for attention with heads of 64 and 128 elements, in each
 * type. On the first run on a GPU this compiles kernels. */
static void find_forms(struct rf_device *device, struct matmuls *out)
{
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    for (int type = 0; type < 3; type++) {
        for (int form = 0; form < 3; form++)
            rf_matmul_scratch(device, types[type],
                              &(struct rf_matmul_opts){.transpose_a = form == 2,
                                                       .transpose_b = form == 1,
                                                       .m = 4096,
                                                       .n = 4096,
                                                       .k = 4096});
        for (int64_t head = 64; head <= 128; head += 64)
            if (rf_attention_choose(device, types[type], head) < 0)
                break; /* not listed */
    }
    if (rf_kernel_forms(device, out->forms, MAX_FORMS, &out->form_count) < 0)
        out->form_count = 0;
    if (out->form_count > MAX_FORMS)
        out->form_count = MAX_FORMS;
}

static void find_matmuls(struct rf_device *device, struct matmuls *out)
{
    out->path =
        rf_matmul_path(device, RF_F32, &(struct rf_matmul_opts){.m = 1024, .n = 1024, .k = 1024});
    if (rf_matmul_paths(device, out->paths, MAX_PATHS, &out->count) < 0)
        out->count = 0;
    if (out->count > MAX_PATHS)
        out->count = MAX_PATHS;
    find_forms(device, out);
    out->asked = rf_device_flushes_subnormals(device, &out->flushes) == 0;
}

/* "not f16, bf16: why", for the types from `i` on that a path does not support for the same reason.
 * Returns the next. */
static uint32_t print_reason(const struct matmuls *m, uint32_t i, uint32_t end)
{
    const char *reason = m->paths[i].reason;
    printf("         not %s", rf_dtype_name(m->paths[i].type));
    for (i++; i < end && strcmp(m->paths[i].reason, reason) == 0; i++)
        printf(", %s", rf_dtype_name(m->paths[i].type));
    printf(": %s\n", reason);
    return i;
}

/* "cooperative   f16, f32 (split)", and the unsupported types. */
static void print_matmuls(const struct matmuls *m)
{
    if (m->path[0])
        printf("     matmul: %s path; what each path takes here:\n", m->path);
    for (uint32_t first = 0, end; first < m->count; first = end) {
        const char *name = m->paths[first].name, *comma = "";
        printf("       %-13s", name);
        for (end = first; end < m->count && strcmp(m->paths[end].name, name) == 0; end++)
            if (m->paths[end].usable) {
                printf("%s%s%s", comma, rf_dtype_name(m->paths[end].type),
                       m->paths[end].split_only ? " (split)" : "");
                comma = ", ";
            }
        printf("%s\n", comma[0] ? "" : "nothing");
        for (uint32_t i = first; i < end;)
            i = m->paths[i].usable ? i + 1 : print_reason(m, i, end);
    }
}

static void print_forms(const struct matmuls *m)
{
    if (m->form_count > 0)
        printf("     forms of kernels:\n");
    for (uint32_t i = 0; i < m->form_count; i++)
        printf("       %s: %s: %s\n", m->forms[i].family, m->forms[i].form, m->forms[i].why);
}

static cJSON *forms_json(const struct matmuls *m)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < m->form_count; i++) {
        const struct rf_kernel_form *form = &m->forms[i];
        tool_json_row(list,
                      "family=%s form=%s asked=%hhd spills=%g spilling=%u over_budget=%u why=%s",
                      form->family, form->form, form->asked, (double)form->spills, form->spilling,
                      form->over_budget, form->why);
    }
    return list;
}

static cJSON *matmuls_json(const struct matmuls *m)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < m->count; i++) {
        const struct rf_matmul_path_info *p = &m->paths[i];
        tool_json_row(list, "name=%s dtype=%s built=%hhd usable=%hhd split_only=%hhd reason=%s",
                      p->name, rf_dtype_name(p->type), p->built, p->usable, p->split_only,
                      p->reason);
    }
    return list;
}

/* "f16 16x16x16" */
static void shape_text(const struct rf_matrix_shape *shape, char *text, size_t bytes)
{
    if (shape->invocations)
        snprintf(text, bytes, "%s by %ux%ux%u in workgroups of %u", rf_dtype_name(shape->operand),
                 shape->m, shape->n, shape->k, shape->invocations);
    else
        snprintf(text, bytes, "%s %ux%ux%u", rf_dtype_name(shape->operand), shape->m, shape->n,
                 shape->k);
}

static void print_shapes(const struct rf_device_info *d)
{
    char text[64];
    if (!d->matrix_shape_count)
        return;
    printf("     matrix units (sums in f32):");
    for (uint32_t i = 0; i < d->matrix_shape_count; i++) {
        shape_text(&d->matrix_shapes[i], text, sizeof(text));
        printf("%s %s", i ? "," : "", text);
    }
    printf("\n");
}

static cJSON *shapes_json(const struct rf_device_info *d)
{
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < d->matrix_shape_count; i++) {
        const struct rf_matrix_shape *s = &d->matrix_shapes[i];
        tool_json_row(list, "dtype=%s m=%d n=%d k=%d invocations=%d", rf_dtype_name(s->operand),
                      s->m, s->n, s->k, s->invocations);
    }
    return list;
}

/* How kernels and the network access memory, and why not otherwise. */
static const char *import_reason(const struct rf_device_info *d)
{
    return d->external_memory_host ? "" : "its driver does not offer VK_EXT_external_memory_host";
}

static const char *dmabuf_reason(const struct rf_device_info *d)
{
    return d->dma_buf ? rf_provider_dmabuf_reason() : d->dma_buf_reason;
}

static void print_memory(const struct rf_device_info *d)
{
    printf("     collectives: tensors %s\n",
           d->host_visible ? "travel in place"
                           : "are staged: the host cannot map device memory, or RF_HOST_VISIBLE=0");
    if (d->external_memory_host)
        printf("     host memory as tensors: in multiples of %llu B\n",
               (unsigned long long)d->min_import_alignment);
    else
        printf("     host memory as tensors: no, %s\n", import_reason(d));
    printf("     dma-buf to the network: no, %s\n", dmabuf_reason(d));
}

static void print_device(const struct rf_device_info *d, const struct matmuls *matmuls)
{
    char memory[32], allocation[32];
    struct flag flags[FLAG_COUNT];
    printf("  %u  %s (%s)%s\n", d->index, d->name, kind_name(d->kind),
           d->usable ? "" : "  NOT USABLE");
    if (!d->usable)
        printf("     why not: %s\n", d->reason);
    printf("     driver: %s; Vulkan %u.%u.%u; vendor 0x%04x, device 0x%04x\n", d->driver,
           d->api_version >> 22, d->api_version >> 12 & 0x3ff, d->api_version & 0xfff, d->vendor_id,
           d->device_id);
    printf("     memory %s, largest allocation %s, subgroup %u, workgroup %u, shared %u B, push "
           "%u B\n",
           tool_bytes_text(d->heap_bytes, memory, sizeof(memory)),
           tool_bytes_text(d->max_allocation_bytes, allocation, sizeof(allocation)),
           d->subgroup_size, d->max_workgroup_invocations, d->max_shared_bytes, d->max_push_bytes);
    print_shapes(d);
    print_matmuls(matmuls);
    print_forms(matmuls);
    if (matmuls->asked)
        printf("     subnormal numbers: %s\n",
               matmuls->flushes ? "kernels take them for 0, and so do sums of several ranks"
                                : "kernels keep them");
    print_memory(d);
    device_flags(d, flags);
    for (int on = 1; on >= 0; on--) {
        printf("     %s:", on ? "has" : "has not");
        for (int i = 0; i < FLAG_COUNT; i++)
            if (flags[i].on == (on == 1))
                printf(" %s", flags[i].name);
        printf("\n");
    }
}

static cJSON *device_json(const struct rf_device_info *d, const struct matmuls *matmuls)
{
    cJSON *json = cJSON_CreateObject();
    struct flag flags[FLAG_COUNT];
    tool_json_put(json, "index=%u name=%s driver=%s kind=%s usable=%hhd reason=%s matmul_path=%s",
                  d->index, d->name, d->driver, kind_name(d->kind), d->usable, d->reason,
                  matmuls->path);
    cJSON_AddItemToObject(json, "matmul_paths", matmuls_json(matmuls));
    cJSON_AddItemToObject(json, "kernel_forms", forms_json(matmuls));
    cJSON_AddItemToObject(json, "matrix_shapes", shapes_json(d));
    if (matmuls->asked)
        cJSON_AddBoolToObject(json, "flushes_subnormals", matmuls->flushes);
    else
        cJSON_AddNullToObject(json, "flushes_subnormals");
    tool_json_put(json,
                  "vendor_id=%u device_id=%u api_version=%u heap_bytes=%g max_allocation_bytes=%g "
                  "subgroup_size=%u max_workgroup_invocations=%u max_shared_bytes=%u "
                  "max_push_bytes=%u min_import_alignment=%g import_reason=%s dmabuf_reason=%s",
                  d->vendor_id, d->device_id, d->api_version, (double)d->heap_bytes,
                  (double)d->max_allocation_bytes, d->subgroup_size, d->max_workgroup_invocations,
                  d->max_shared_bytes, d->max_push_bytes, (double)d->min_import_alignment,
                  import_reason(d), dmabuf_reason(d));
    cJSON *features = cJSON_AddObjectToObject(json, "features");
    device_flags(d, flags);
    for (int i = 0; i < FLAG_COUNT; i++)
        cJSON_AddBoolToObject(features, flags[i].name, flags[i].on);
    return json;
}

static void show_devices(cJSON *json, bool quiet)
{
    struct rf_device_info *infos = calloc(MAX_DEVICES, sizeof(*infos));
    uint32_t count = 0;
    cJSON *list = cJSON_AddArrayToObject(json, "devices");
    if (!quiet)
        printf("Devices\n");
    /* A machine without Vulkan is not an error here: it may still run collectives. */
    if (!infos || rf_device_list(infos, MAX_DEVICES, &count) < 0) {
        cJSON_AddStringToObject(json, "devices_error", rf_last_error()->message);
        if (!quiet)
            printf("  none: %s\n", rf_last_error()->message);
        count = 0;
    }
    for (uint32_t i = 0; i < count && i < MAX_DEVICES; i++) {
        struct matmuls matmuls = {.path = ""};
        struct rf_device *device = NULL;
        char select[16];
        snprintf(select, sizeof(select), "%u", i);
        if (infos[i].usable && rf_device_open(select, NULL, &device) == 0)
            find_matmuls(device, &matmuls);
        if (!quiet)
            print_device(&infos[i], &matmuls);
        cJSON_AddItemToArray(list, device_json(&infos[i], &matmuls));
        rf_device_close(device);
    }
    free(infos);
}

static void show_providers(cJSON *json, const char *wanted, bool quiet)
{
    struct rf_provider_info *infos = calloc(MAX_PROVIDERS, sizeof(*infos));
    uint32_t count = 0;
    cJSON *list = cJSON_AddArrayToObject(json, "providers");
    if (!quiet)
        printf("\nNetwork providers (the first that is chosen carries a job's messages)\n");
    if (!infos || rf_provider_list(wanted, infos, MAX_PROVIDERS, &count) < 0) {
        cJSON_AddStringToObject(json, "providers_error", rf_last_error()->message);
        if (!quiet)
            printf("  none: %s\n", rf_last_error()->message);
        count = 0;
    }
    for (uint32_t i = 0; i < count && i < MAX_PROVIDERS; i++) {
        if (!quiet)
            printf("  %s %-14s %-24s %s\n", infos[i].chosen ? "->" : "  ", infos[i].name,
                   infos[i].address, infos[i].note);
        tool_json_row(list, "name=%s address=%s note=%s chosen=%hhd", infos[i].name,
                      infos[i].address, infos[i].note, infos[i].chosen);
    }
    free(infos);
}

static void show_environment(cJSON *json, bool quiet)
{
    size_t count = 0;
    const struct rf_env_row *rows = rf_env_table(&count);
    cJSON *list = cJSON_AddArrayToObject(json, "environment");
    if (!quiet)
        printf("\nEnvironment variables\n");
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(rows[i].name);
        const char *ending = strrchr(rows[i].name, '_');
        bool secret = ending && strcmp(ending, "_KEY") == 0;
        if (value && secret)
            value = "(set)";
        if (!quiet)
            printf("  %-20s %-14s %s\n", rows[i].name,
                   value              ? value
                   : rows[i].fallback ? rows[i].fallback
                                      : "-",
                   rows[i].text);
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", rows[i].name);
        cJSON_AddItemToObject(row, "value", value ? cJSON_CreateString(value) : cJSON_CreateNull());
        cJSON_AddItemToObject(row, "default",
                              rows[i].fallback ? cJSON_CreateString(rows[i].fallback)
                                               : cJSON_CreateNull());
        cJSON_AddStringToObject(row, "text", rows[i].text);
        if (rows[i].values)
            cJSON_AddStringToObject(row, "values", rows[i].values);
        if (rows[i].most > 0) {
            tool_json_put(row, "least=%g most=%g", (double)rows[i].least, (double)rows[i].most);
        }
        cJSON_AddStringToObject(row, "ranks", rows[i].own ? "own" : "alike");
        if (rows[i].own)
            cJSON_AddStringToObject(row, "why", rows[i].own);
        cJSON_AddItemToArray(list, row);
    }
}

static int info_main(const struct tool_command *command, int argc, char **argv)
{
    const char *json_path = NULL, *provider = NULL;
    bool algorithms = false, measure = false, markdown = false;
    int64_t ranks = -1;
    struct tool_option table[] = {
        {"json", TOOL_FILE, &json_path, "FILE", "everything as JSON (no FILE: printed)",
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"provider", TOOL_TEXT, &provider, "NAME", "provider to ask for, as a job would",
         .ranks = TOOL_OWN, .why = TOOL_JOINED},
        {"algorithms", TOOL_FLAG, &algorithms, NULL,
         "table of which algorithm carries out which collective, by size; nothing else"},
        {"ranks", TOOL_INT, &ranks, "N", "number of ranks of --algorithms (4)", .least = 1,
         .most = 4096, .needs = "algorithms", .ranks = TOOL_OWN, .why = TOOL_LAUNCHED},
        {"measure", TOOL_FLAG, &measure, NULL,
         "measurement of the links between N ranks here, or between a launcher's, for --algorithms",
         .needs = "algorithms"},
        {"markdown", TOOL_FLAG, &markdown, NULL,
         "table of all algorithms, as in docs/collectives.md",
         .needs = "algorithms"},
        {NULL},
    };
    uint32_t count = 0;
    tool_ranks_begin();
    int status = tool_options(command, table, argc, argv, NULL);
    if (status == TOOL_OK && provider && rf_provider_list(provider, NULL, 0, &count) < 0)
        status = tool_usage_error(command, "%s", rf_last_error()->message);
    if (status == TOOL_OK && algorithms && provider && !measure)
        status = tool_usage_error(command, "--provider has no effect on --algorithms without "
                                           "--measure; omit it, or add --measure");
    if (status == TOOL_OK && markdown && (ranks > 0 || measure || json_path))
        status = tool_usage_error(command, "--markdown prints the same table in every case; omit "
                                           "--ranks, --measure and --json");
    if (status != TOOL_OK)
        return tool_ranks_refuse(command, status);
    const struct tool_ranks job = {
        .ranks = ranks > 0 ? ranks : 0, .provider = provider, .options = table};
    if (algorithms && measure)
        return info_measured_algorithms(command, json_path, &job, argv);
    tool_errors_release(command); /* each process reports its own */
    status = tool_outputs_check(command, table);
    if (status != TOOL_OK)
        return status;
    if (markdown)
        return info_algorithms_markdown(command);
    if (algorithms)
        return info_algorithms(command, json_path, ranks > 0 ? (int)ranks : 4);
    bool quiet = json_path && strcmp(json_path, "-") == 0;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "version", rf_version());
    if (!quiet)
        printf("ringforge %s\n\n", rf_version());
    show_devices(json, quiet);
    show_providers(json, provider, quiet);
    show_environment(json, quiet);
    if (json_path)
        return tool_json_write(command, json_path, json);
    cJSON_Delete(json);
    return TOOL_OK;
}

const struct tool_command tool_info = {
    .name = "info",
    .summary = "show devices, network providers and settings, what is chosen and why",
    .usage = "[--algorithms [--ranks N] [--measure] | --algorithms --markdown] [--json [FILE]]",
    .main = info_main,
};
