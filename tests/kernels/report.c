/* SPDX-License-Identifier: MIT
 *
 * Compiles every pipeline of the library for the device, and reports the compiler's figures:
 * registers, spills, shared memory, occupancy. Nothing runs, so the device need not be able to:
 * RADV's null hardware, or a driver on a stub of its kernel (ci/drivers.sh).
 *
 *   kernel_report [--brief] [--json FILE] [--table FILE]
 *
 * --brief: fewer forms and sizes of paths that are only forced, of masks, and of bf16. Pipelines
 * come from the library's own launchers, with the constants that these choose; shaders that no
 * launcher reached are compiled with their default constants. Fails if a pipeline does not compile,
 * if a launch is refused that should run, if the driver does not report spills, or if a pipeline
 * that the library would choose spills: a matmul or attention at all, others more than
 * SPILLS_OF_OTHERS.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "device/internal.h"
#include "kept.h"
#include "launches.h"
#include "ops/shader_table.h"
#include "record_nothing.h"

#define MAX_ROWS 4096
#define BUFFER_BYTES ((uint64_t)64 << 20)

#define SPILLS_OF_OTHERS 8

static const struct column {
    const char *key; /* in JSON */
    size_t figure;
} columns[] = {
#define COLUMN(name)                                                                               \
    {                                                                                              \
#name, offsetof(struct rf_kernel_figures, name)                                            \
    }
    COLUMN(registers), COLUMN(spills),       COLUMN(scratch_bytes), COLUMN(shared_bytes),
    COLUMN(subgroup),  COLUMN(instructions), COLUMN(occupancy),
#undef COLUMN
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

struct row {
    char shader[64], launch[64], constants[128];
    const struct rf_kernel *kernel;
    struct rf_kernel_figures figures;
    bool chosen;
};

struct report {
    struct rf_device *device;
    struct row *rows;
    uint32_t count, failures, refused, unfit;
    uint32_t spilling,
        others;       /* chosen: matmuls and attentions; others: other pipelines that spill much */
    uint32_t unknown; /* the driver does not report spills */
    const struct launch *launch; /* while its pipelines are collected */
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
    if (!rf_kernel_get_figures(kernel, &row->figures))
        report->unknown++;
    return row;
}

static void note_spills(struct report *report, const struct row *row)
{
    const struct rf_kernel_figures *f = &row->figures;
    const bool strict = report->launch->may_not_spill;
    if (!row->chosen ||
        (strict ? f->spills <= 0 && f->scratch_bytes <= 0 : f->spills <= SPILLS_OF_OTHERS))
        return;
    *(strict ? &report->spilling : &report->others) += 1;
    printf("SPILLS: %s (%s): %lld spills, %lld bytes of scratch memory\n", row->shader, row->launch,
           (long long)f->spills, (long long)f->scratch_bytes);
}

static void visit(void *user, const struct rf_kernel_desc *desc, const struct rf_kernel *kernel)
{
    struct report *report = user;
    if (find(report, kernel))
        return;
    struct row *row = add(report, desc, kernel, report->launch->name);
    if (!row)
        return;
    row->chosen = report->launch->chosen;
    note_spills(report, row);
}

/* ---- sources of pipelines --------------------------------------------------------------- */

static bool may_refuse(const struct report *report, const struct launch *launch)
{
    const struct rf_device_info *info = rf_device_get_info(report->device);
    for (const struct refusal *r = launch->refusals; r && r->reason; r++)
        if (r->by(info) && strstr(rf_last_error()->message, r->reason))
            return true;
    return false;
}

static void launched(void *user, const struct launch *launch, int status)
{
    struct report *report = user;
    if (status < 0 && may_refuse(report, launch))
        report->refused++;
    else if (status < 0)
        failed(report, "%s: %s", launch->name, rf_last_error()->message);
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

/* Shaders of the paths for CPUs: GPUs' compilers take minutes for them, and they never run there.
 */
static bool is_left_out(const struct report *report, const char *shader)
{
    static const char *const beginnings[] = {"attention_s", "attention_v", "attention_backward_",
                                             "matmul_subgroup"};
    const bool cpu = rf_device_get_info(report->device)->kind == RF_DEVICE_CPU;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]) && !cpu; i++)
        if (strncmp(shader, beginnings[i], strlen(beginnings[i])) == 0)
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
        if (reached(report, shader->name) || is_left_out(report, shader->name))
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
        for (size_t column = 0; column < COLUMNS; column++) {
            const int64_t value =
                *(const int64_t *)((const char *)&row->figures + columns[column].figure);
            if (value >= 0)
                fprintf(file, ", \"%s\": %lld", columns[column].key, (long long)value);
        }
        fprintf(file, "}");
    }
    fprintf(file, "]}\n");
    fclose(file);
}

/* Lines of "shader | launch | registers / spills / subgroup / scratch bytes", sorted; "-": not
 * reported. */
static void write_table(const struct report *report, FILE *file)
{
    for (uint32_t i = 0; i < report->count; i++) {
        const struct row *row = &report->rows[i];
        const struct rf_kernel_figures *f = &row->figures;
        const int64_t cells[] = {f->registers, f->spills, f->subgroup, f->scratch_bytes};
        fprintf(file, "%s | %s |", row->shader, row->launch);
        for (size_t cell = 0; cell < sizeof(cells) / sizeof(cells[0]); cell++) {
            fprintf(file, cell ? " / " : " ");
            if (cells[cell] < 0)
                fprintf(file, "-");
            else
                fprintf(file, "%lld", (long long)cells[cell]);
        }
        fprintf(file, "\n");
    }
}

static void check_counts(struct report *report)
{
    if (report->unknown)
        failed(report,
               "the driver does not say of %u pipelines whether they spill, or not under a "
               "name that src/device/statistics.c knows",
               report->unknown);
    if (report->spilling)
        failed(report, "%u matmuls and attentions spill; none may", report->spilling);
    if (report->others)
        failed(report, "%u other pipelines have more than %d spills; none may", report->others,
               SPILLS_OF_OTHERS);
}

static void report_all(struct report *report, bool brief, const char *json, const char *table)
{
    struct rf_buffer buffer = {/* without memory */
                               .device = report->device,
                               .bytes = BUFFER_BYTES,
                               .address = (uint64_t)1 << 32};
    struct operands operands = {
        .buffer = &buffer, .info = rf_device_get_info(report->device), .brief = brief};
    record_nothing(report->device);
    kept_begin(report->device);
    if (rf_stream_create(report->device, "report", &operands.stream) < 0) {
        failed(report, "%s", rf_last_error()->message);
        return;
    }
    launch_all(&operands, launched, report);
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
}

static void usage(void)
{
    fprintf(stderr, "use: kernel_report [--brief] [--json FILE] [--table FILE]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"--json", "--table"};
    const char *values[2] = {NULL, NULL};
    const bool brief = argc > 1 && strcmp(argv[1], "--brief") == 0;
    for (int i = 1 + brief; i < argc; i += 2) {
        int option = 0;
        while (option < 2 && strcmp(argv[i], names[option]) != 0)
            option++;
        if (option == 2 || i + 1 == argc)
            usage();
        values[option] = argv[i + 1];
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* compilers take minutes */
    struct report report = {.rows = calloc(MAX_ROWS, sizeof(*report.rows))};
    if (!report.rows ||
        rf_device_open(NULL, &(struct rf_device_opts){.kernel_statistics = true}, &report.device)) {
        fprintf(stderr, "kernel_report: %s\n", rf_last_error()->message);
        return 1;
    }
    report_all(&report, brief, values[0], values[1]);
    check_counts(&report);
    const uint32_t compiled = kept_end();
    printf("%u pipelines, %u compiled now, %u shaders not for this device, %u launches "
           "refused as expected; %u matmuls and attentions spill, %u others over %d, %u failures\n",
           report.count, getenv("KERNELS_KEPT") ? compiled : report.count, report.unfit, report.refused, report.spilling, report.others,
           SPILLS_OF_OTHERS, report.failures);
    fflush(NULL);
    /* Nothing is closed: RADV's null hardware crashes when waited for. */
    _exit(report.failures > 0);
}
