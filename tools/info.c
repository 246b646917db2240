/* SPDX-License-Identifier: MIT
 *
 * ringforge info: what this machine offers, what would be chosen, and why.
 */
#include <string.h>

#include "tool.h"

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

#define FLAG_COUNT 14

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
        {"bfloat16", d->bfloat16},
        {"host_visible", d->host_visible},
        {"single_queue", d->single_queue},
        {"external_memory_host", d->external_memory_host},
    };
    memcpy(flags, all, sizeof(all));
}

/* The matmul path that a product of a transformer would take. Empty when the device cannot open. */
static void matmul_path(const struct rf_device_info *info, char *path, size_t bytes)
{
    char select[16];
    struct rf_device *device = NULL;
    path[0] = 0;
    if (!info->usable)
        return;
    snprintf(select, sizeof(select), "%u", info->index);
    if (rf_device_open(select, NULL, &device) < 0)
        return;
    const char *name = rf_matmul_path(device, RF_F32, 1024, 1024, 1024, NULL);
    snprintf(path, bytes, "%s", name ? name : "none");
    rf_device_close(device);
}

static void print_device(const struct rf_device_info *d, const char *path)
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
    if (path[0])
        printf("     matmul: %s path\n", path);
    device_flags(d, flags);
    for (int on = 1; on >= 0; on--) {
        printf("     %s:", on ? "has" : "has not");
        for (int i = 0; i < FLAG_COUNT; i++)
            if (flags[i].on == (on == 1))
                printf(" %s", flags[i].name);
        printf("\n");
    }
}

static cJSON *device_json(const struct rf_device_info *d, const char *path)
{
    cJSON *json = cJSON_CreateObject();
    struct flag flags[FLAG_COUNT];
    cJSON_AddNumberToObject(json, "index", d->index);
    cJSON_AddStringToObject(json, "name", d->name);
    cJSON_AddStringToObject(json, "driver", d->driver);
    cJSON_AddStringToObject(json, "kind", kind_name(d->kind));
    cJSON_AddBoolToObject(json, "usable", d->usable);
    cJSON_AddStringToObject(json, "reason", d->reason);
    cJSON_AddStringToObject(json, "matmul_path", path);
    cJSON_AddNumberToObject(json, "vendor_id", d->vendor_id);
    cJSON_AddNumberToObject(json, "device_id", d->device_id);
    cJSON_AddNumberToObject(json, "api_version", d->api_version);
    cJSON_AddNumberToObject(json, "heap_bytes", (double)d->heap_bytes);
    cJSON_AddNumberToObject(json, "max_allocation_bytes", (double)d->max_allocation_bytes);
    cJSON_AddNumberToObject(json, "subgroup_size", d->subgroup_size);
    cJSON_AddNumberToObject(json, "max_workgroup_invocations", d->max_workgroup_invocations);
    cJSON_AddNumberToObject(json, "max_shared_bytes", d->max_shared_bytes);
    cJSON_AddNumberToObject(json, "max_push_bytes", d->max_push_bytes);
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
    /* A machine without Vulkan is no error here: it may still run collectives. */
    if (!infos || rf_device_list(infos, MAX_DEVICES, &count) < 0) {
        cJSON_AddStringToObject(json, "devices_error", rf_last_error()->message);
        if (!quiet)
            printf("  none: %s\n", rf_last_error()->message);
        count = 0;
    }
    for (uint32_t i = 0; i < count && i < MAX_DEVICES; i++) {
        char path[64];
        matmul_path(&infos[i], path, sizeof(path));
        if (!quiet)
            print_device(&infos[i], path);
        cJSON_AddItemToArray(list, device_json(&infos[i], path));
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
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", infos[i].name);
        cJSON_AddStringToObject(row, "address", infos[i].address);
        cJSON_AddStringToObject(row, "note", infos[i].note);
        cJSON_AddBoolToObject(row, "chosen", infos[i].chosen);
        cJSON_AddItemToArray(list, row);
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
        bool secret = strcmp(rows[i].name, "RF_JOB_KEY") == 0;
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
        cJSON_AddItemToArray(list, row);
    }
}

static int info_main(const struct tool_command *command, int argc, char **argv)
{
    const char *json_path = NULL, *provider = NULL;
    const struct tool_option table[] = {
        {"json", 0, TOOL_FILE, &json_path, "FILE", "write everything as JSON (no FILE: print it)"},
        {"provider", 0, TOOL_TEXT, &provider, "NAME", "ask for this provider, as a job would"},
        {NULL},
    };
    int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status;
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
    .usage = "[--json [FILE]]",
    .main = info_main,
};
