/* SPDX-License-Identifier: MIT
 *
 * Compiles every pipeline of the library for the device that is found, and tells what the driver's
 * compiler made of it: registers, spills, shared memory, occupancy. Nothing runs, so the device may
 * be one that cannot: RADV's null hardware, which compiles for AMD GPUs that are not there.
 *
 *   kernel_report [--json FILE] [--table FILE]
 *
 * Pipelines come from the library's own launchers, with the constants that these choose; shaders
 * that no launcher reached are compiled with their default constants. Fails when a pipeline does
 * not compile, or when one spills that the library would choose for a matmul or attention.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "device/internal.h"
#include "launches.h"
#include "ops/shader_table.h"
#include "record_nothing.h"

#define MAX_ROWS 4096
#define BUFFER_BYTES ((uint64_t)64 << 20)

static const struct column {
    const char *key, *driver; /* in JSON; as drivers call it */
} columns[] = {
    {"subgroup", "Subgroup size"},
    {"vgprs", "VGPRs"},
    {"sgprs", "SGPRs"},
    {"spilled_vgprs", "Spilled VGPRs"},
    {"spilled_sgprs", "Spilled SGPRs"},
    {"lds_bytes", "LDS size"},
    {"scratch_bytes", "Scratch size"},
    {"subgroups_per_simd", "Subgroups per SIMD"},
    {"instructions", "Instructions"},
    {"code_bytes", "Code size"},
};
enum {
    SUBGROUP,
    VGPRS,
    SGPRS,
    SPILLED_VGPRS,
    SPILLED_SGPRS,
    LDS,
    SCRATCH,
    OCCUPANCY,
    COLUMNS = 10
};

struct row {
    char shader[64], launch[64], constants[128];
    const struct rf_kernel *kernel;
    bool chosen;
    long values[COLUMNS]; /* -1: the driver does not say */
};

struct report {
    struct rf_device *device;
    struct row *rows;
    uint32_t count, failures, refused, spilling, unfit;
    const struct launch *launch; /* while its pipelines are gathered */
};

static void failed(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void failed(struct report *report, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("FAILED: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    report->failures++;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void fill_values(struct row *row)
{
    struct rf_kernel_statistic list[RF_MAX_STATISTICS];
    uint32_t count = rf_kernel_statistics(row->kernel, list, RF_MAX_STATISTICS);
    for (int column = 0; column < COLUMNS; column++) {
        row->values[column] = -1;
        for (uint32_t i = 0; i < count; i++)
            if (strcmp(list[i].name, columns[column].driver) == 0)
                row->values[column] = (long)list[i].value;
    }
}

static struct row *find(struct report *report, const struct rf_kernel *kernel)
{
    for (uint32_t i = 0; i < report->count; i++)
        if (report->rows[i].kernel == kernel)
            return &report->rows[i];
    return NULL;
}

static struct row *add(struct report *report, const struct rf_kernel_desc *desc,
                       const struct rf_kernel *kernel, const char *launch)
{
    if (report->count == MAX_ROWS) {
        failed(report, "more than %d pipelines: raise MAX_ROWS", MAX_ROWS);
        return NULL;
    }
    struct row *row = &report->rows[report->count++];
    *row = (struct row){.kernel = kernel};
    snprintf(row->shader, sizeof(row->shader), "%s", desc->name);
    snprintf(row->launch, sizeof(row->launch), "%s", launch);
    size_t used = 0;
    for (uint32_t i = 0; i < desc->spec_count && used < sizeof(row->constants); i++)
        used += (size_t)snprintf(row->constants + used, sizeof(row->constants) - used, "%s%u",
                                 i ? " " : "", desc->specs[i].value);
    fill_values(row);
    return row;
}

static void visit(void *user, const struct rf_kernel_desc *desc, const struct rf_kernel *kernel)
{
    struct report *report = user;
    const struct launch *launch = report->launch;
    if (find(report, kernel))
        return;
    struct row *row = add(report, desc, kernel, launch->name);
    if (!row)
        return;
    row->chosen = launch->chosen;
    if (!launch->may_not_spill || (row->values[SPILLED_VGPRS] <= 0 && row->values[SCRATCH] <= 0))
        return;
    report->spilling++;
    failed(report, "%s (%s) spills %ld registers and uses %ld bytes of scratch memory", row->shader,
           row->launch, row->values[SPILLED_VGPRS], row->values[SCRATCH]);
}

/* ---- where pipelines come from --------------------------------------------------------------- */

static void launched(void *user, const struct launch *launch, int status)
{
    struct report *report = user;
    if (status < 0 && (launch->must_run || (status != RF_EINVAL && status != RF_ENOTSUP)))
        failed(report, "%s: %s", launch->name, rf_last_error()->message);
    else if (status < 0)
        report->refused++;
    report->launch = launch;
    rf_device_each_kernel(report->device, visit, report);
}

static bool reached(const struct report *report, const char *shader)
{
    for (uint32_t i = 0; i < report->count; i++)
        if (strcmp(report->rows[i].shader, shader) == 0)
            return true;
    return false;
}

static void compile_rest(struct report *report)
{
    for (size_t i = 0; i < rf_shader_count; i++) {
        const struct rf_shader *shader = &rf_shader_table[i];
        struct rf_kernel_desc desc = {.name = shader->name,
                                      .spirv = shader->words,
                                      .spirv_bytes = shader->bytes,
                                      .push_bytes = 128};
        struct rf_kernel *kernel;
        if (reached(report, shader->name))
            continue;
        int rc = rf_kernel_create(report->device, &desc, &kernel);
        if (rc == 0)
            add(report, &desc, kernel, "default constants");
        else if (rc == RF_ENOTSUP) {
            printf("not for this device: %s\n", rf_last_error()->message);
            report->unfit++;
        } else
            failed(report, "%s", rf_last_error()->message);
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = strcmp(x->shader, y->shader);
    return order ? order : strcmp(x->launch, y->launch);
}

static FILE *open_file(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "kernel_report: cannot write %s\n", path);
        exit(2);
    }
    return file;
}

static void write_json(const struct report *report, const char *path)
{
    const struct rf_device_info *info = rf_device_get_info(report->device);
    FILE *file = open_file(path);
    fprintf(file, "{\"device\": \"%s\", \"driver\": \"%s\", \"rows\": [", info->name, info->driver);
    for (uint32_t i = 0; i < report->count; i++) {
        const struct row *row = &report->rows[i];
        fprintf(file, "%s\n {\"shader\": \"%s\", \"launch\": \"%s\", \"constants\": \"%s\", ",
                i ? "," : "", row->shader, row->launch, row->constants);
        fprintf(file, "\"chosen\": %s", row->chosen ? "true" : "false");
        for (int column = 0; column < COLUMNS; column++)
            if (row->values[column] >= 0)
                fprintf(file, ", \"%s\": %ld", columns[column].key, row->values[column]);
        fprintf(file, "}");
    }
    fprintf(file, "]}\n");
    fclose(file);
}

/* Lines of "shader | launch | VGPRs / spilled / LDS / subgroups per SIMD", sorted. */
static void write_table(const struct report *report, FILE *file)
{
    for (uint32_t i = 0; i < report->count; i++) {
        const struct row *row = &report->rows[i];
        fprintf(file, "%s | %s | %ld / %ld / %ld / %ld\n", row->shader, row->launch,
                row->values[VGPRS], row->values[SPILLED_VGPRS], row->values[LDS],
                row->values[OCCUPANCY]);
    }
}

static void report_all(struct report *report, const char *json, const char *table)
{
    struct rf_buffer buffer = {/* of no memory */
                               .device = report->device,
                               .bytes = BUFFER_BYTES,
                               .address = (uint64_t)1 << 32};
    struct operands operands = {.buffer = &buffer};
    record_nothing(report->device);
    if (rf_stream_create(report->device, "report", &operands.stream) < 0) {
        failed(report, "%s", rf_last_error()->message);
        return;
    }
    launch_all(&operands, launched, report);
    uint32_t from_launches = report->count;
    compile_rest(report);
    qsort(report->rows, report->count, sizeof(*report->rows), compare);
    write_table(report, stdout);
    if (json)
        write_json(report, json);
    if (table) {
        FILE *file = open_file(table);
        write_table(report, file);
        fclose(file);
    }
    printf("%u pipelines of launchers, %u with default constants, %u shaders not for this device; "
           "%u matmuls and attentions spill, %u failures\n",
           from_launches, report->count - from_launches, report->unfit, report->spilling,
           report->failures);
}

int main(int argc, char **argv)
{
    const char *json = NULL, *table = NULL;
    for (int i = 1; i < argc; i += 2) {
        const char **file = NULL;
        if (strcmp(argv[i], "--json") == 0)
            file = &json;
        else if (strcmp(argv[i], "--table") == 0)
            file = &table;
        if (!file || i + 1 == argc) {
            fprintf(stderr, "use: kernel_report [--json FILE] [--table FILE]\n");
            return 2;
        }
        *file = argv[i + 1];
    }
    struct report report = {.rows = calloc(MAX_ROWS, sizeof(*report.rows))};
    if (!report.rows ||
        rf_device_open(NULL, &(struct rf_device_opts){.kernel_statistics = true}, &report.device)) {
        fprintf(stderr, "kernel_report: %s\n", rf_last_error()->message);
        return 1;
    }
    report_all(&report, json, table);
    fflush(NULL);
    /* Nothing is closed: RADV's null hardware crashes when it is waited for. */
    _exit(report.failures > 0);
}
