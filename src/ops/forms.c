/* SPDX-License-Identifier: MIT
 *
 * Remembers which forms of kernels spill on a device: in this process, and for later ones in a file
 * beside the pipeline cache. A row of the file is valid for one exact kernel, so a library with
 * another shader asks again. Called by launchers that have several forms; independent of what a
 * form computes.
 */
#include "forms.h"

#include <inttypes.h>
#include <pthread.h>

#include "../base/base.h"
#include "budget.h"

enum { MOST_TABLES = 16, MOST_ROWS = 2048, MOST_FORMS = 1000 };
#define OVER_BUDGET (INT64_C(1) << 40) /* more than any compiler spills */

static const struct rf_cache_lines lines = {"forms", 2, MOST_ROWS, "the compiler is asked again"};

struct row {
    char family[RF_KERNEL_FAMILY_BYTES], text[RF_KERNEL_FORM_BYTES];
    uint32_t family_hash, form, place; /* place: the same for all variants of a form */
    uint64_t kernel;                   /* hash of the examined kernel */
    int64_t cost;                      /* 0: does not spill, or is not expected to */
    int64_t instructions;              /* of the first build; -1: unknown */
    bool asked;                        /* the compiler was asked, and has answered */
    bool checked;                      /* valid for this process; otherwise from the file */
};

struct table {
    struct rf_driver_key key;
    struct row *rows;
    uint32_t count, capacity;
    bool asks;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table tables[MOST_TABLES];
static int table_count;

static uint32_t hash_name(const char *family)
{
    return rf_hash32(family, strlen(family), 0);
}

static struct row *find_row(const struct table *table, const char *family, uint32_t hash,
                            size_t form)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct row *row = &table->rows[i];
        if (row->family_hash == hash && row->form == form && strcmp(row->family, family) == 0)
            return row;
    }
    return NULL;
}

/* NULL: the table is full. */
static struct row *add_row(struct table *table, const struct row *row)
{
    if (table->count == table->capacity) {
        const uint32_t wider = table->capacity ? 2 * table->capacity : 32;
        struct row *rows =
            wider <= MOST_ROWS ? rf_realloc(table->rows, wider * sizeof(*rows)) : NULL;
        if (!rows)
            return NULL;
        table->rows = rows;
        table->capacity = wider;
    }
    table->rows[table->count] = *row;
    return &table->rows[table->count++];
}

/* ---- the file -------------------------------------------------------------------------------- */

/* "matmul_cooperative/f16/nt 2 0123456789abcdef 14 2345" */
static bool take_line(void *user, const char *line)
{
    struct table *table = user;
    struct row row = {.asked = true};
    char end;
    _Static_assert(RF_KERNEL_FAMILY_BYTES == 48, "the length in the format");
    if (sscanf(line, "%47s %" SCNu32 " %16" SCNx64 " %" SCNd64 " %" SCNd64 " %c", row.family,
               &row.form, &row.kernel, &row.cost, &row.instructions, &end) != 5 ||
        strspn(row.family, "abcdefghijklmnopqrstuvwxyz0123456789_/") != strlen(row.family) ||
        row.form >= MOST_FORMS || row.cost < 0 || row.cost >= OVER_BUDGET || row.instructions < -1)
        return false;
    row.family_hash = hash_name(row.family);
    /* A known row takes precedence. */
    return find_row(table, row.family, row.family_hash, row.form) || add_row(table, &row);
}

static void print_line(void *user, uint32_t i, FILE *file)
{
    const struct row *row = *((const struct row **)user + i);
    fprintf(file, "%s %u %016" PRIx64 " %" PRId64 " %" PRId64 "\n", row->family, row->form,
            row->kernel, row->cost, row->instructions);
}

/* Adds the file's rows of other forms. A damaged file adds none. */
static void merge_file(struct rf_device *device, struct table *table)
{
    struct table read = {0};
    if (rf_cache_lines_load(device, &lines, take_line, &read))
        for (uint32_t i = 0; i < read.count; i++) {
            const struct row *row = &read.rows[i];
            if (!find_row(table, row->family, row->family_hash, row->form))
                add_row(table, row);
        }
    rf_free(read.rows);
}

/* Saves the table, merged with what other processes have written. A folder that cannot be written
 * is no error. */
static void save(struct rf_device *device, struct table *table)
{
    uint32_t count = 0;
    merge_file(device, table);
    const struct row **told = rf_alloc((table->count + 1) * sizeof(struct row *));
    for (uint32_t i = 0; told && i < table->count; i++)
        if (table->rows[i].asked)
            told[count++] = &table->rows[i];
    if (told && rf_cache_lines_save(device, &lines, count, print_line, told, NULL, 0) < 0)
        rf_log("ops", 1, "what was found out about kernels is not kept: %s",
               rf_last_error()->message);
    rf_free(told);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Called with the lock held. NULL: too many devices. */
static struct table *table_of(struct rf_device *device)
{
    const struct rf_driver_key key = rf_driver_key_of(device);
    const char *how = rf_env("RF_KERNEL_FORMS");
    for (int i = 0; i < table_count; i++)
        if (rf_driver_keys_equal(&tables[i].key, &key))
            return &tables[i];
    if (table_count == MOST_TABLES)
        return NULL;
    struct table *table = &tables[table_count++];
    const bool budget = how && strcmp(how, "budget") == 0, fresh = how && strcmp(how, "fresh") == 0;
    *table = (struct table){.key = key, .asks = !budget && rf_device_probes(device)};
    if (table->asks && !fresh)
        merge_file(device, table);
    return table;
}

static uint64_t hash_kernel(const struct rf_kernel_desc *desc)
{
    const uint32_t rest[2] = {desc->push_bytes, desc->subgroup_size};
    uint64_t hash = 0;
    for (uint32_t seed = 1; seed <= 2; seed++) {
        uint32_t h = rf_hash32(desc->spirv, desc->spirv_bytes, seed);
        h = rf_hash32(desc->specs, desc->spec_count * sizeof(*desc->specs), h);
        hash = hash << 32 | rf_hash32(rest, sizeof(rest), h);
    }
    return hash;
}

static int64_t over_budget(const struct rf_device *device, const struct rf_form *form,
                           uint32_t allowance)
{
    const uint64_t budget = rf_register_budget(rf_device_get_info(device));
    return form->registers <= allowance * budget
               ? 0
               : OVER_BUDGET + (int64_t)(form->registers - budget);
}

/* Gets the compiler's figures for one kernel; -1: none. */
static int ask(struct rf_device *device, const struct rf_job *job, int64_t *spills,
               int64_t *instructions)
{
    struct rf_kernel_desc desc;
    struct rf_kernel_figures figures;
    RETURN_IF_ERROR(rf_job_kernel(job, &desc));
    RETURN_IF_ERROR(rf_device_probe(device, &desc, &figures));
    *instructions = figures.instructions;
    *spills = figures.spills > 0                                  ? figures.spills
              : figures.scratch_bytes > 0                         ? figures.scratch_bytes
              : figures.spills == 0 || figures.scratch_bytes == 0 ? 0
                                                                  : -1;
    return 0;
}

static int hash_form(const struct rf_form *form, uint64_t *hash)
{
    struct rf_kernel_desc desc;
    RETURN_IF_ERROR(rf_job_kernel(&form->job, &desc));
    *hash = hash_kernel(&desc);
    for (uint32_t i = 0; i < form->other_count; i++) {
        RETURN_IF_ERROR(rf_job_kernel(&form->other[i], &desc));
        *hash = *hash * 0x9e3779b97f4a7c15u ^ hash_kernel(&desc);
    }
    return 0;
}

/* Asks the compiler, unless it has already answered about these exact kernels; otherwise counts
 * registers. */
static void judge(struct rf_device *device, const struct table *table, const struct rf_form *form,
                  const struct row *known, struct row *row, bool *told)
{
    int64_t spills = 0, most = 0, instructions;
    row->cost = INT64_MAX; /* the kernel is unavailable */
    row->instructions = -1;
    if (hash_form(form, &row->kernel) < 0)
        return;
    row->asked = known && known->asked && known->kernel == row->kernel;
    row->instructions = row->asked ? known->instructions : -1;
    row->cost = row->asked ? known->cost : over_budget(device, form, table->asks ? 2 : 1);
    if (row->asked || !table->asks || row->cost > 0)
        return;
    for (uint32_t i = 0; i <= form->other_count && spills >= 0; i++) {
        if (ask(device, i ? &form->other[i - 1] : &form->job, &spills, &instructions) < 0) {
            row->cost = INT64_MAX;
            rf_log("ops", 1, "%s: %s is passed over: %s", row->family, row->text,
                   rf_last_error()->message);
            return;
        }
        most = spills > most ? spills : most;
        row->instructions = i ? row->instructions : instructions;
    }
    row->asked = *told = spills >= 0;
    row->cost =
        !row->asked ? over_budget(device, form, 1) : (most < OVER_BUDGET ? most : OVER_BUDGET - 1);
}

static size_t variants_of(const struct rf_forms *forms)
{
    return forms->variants ? forms->variants : 1;
}

/* The row of a form, valid for this process; *told: the file needs an update. */
static struct row *row_of(struct rf_device *device, struct table *table,
                          const struct rf_forms *forms, uint32_t hash, size_t i, void *user,
                          bool *told)
{
    struct row *known = find_row(table, forms->family, hash, i);
    if (known && known->checked)
        return known;
    struct rf_form form = {.job = {.op = forms->family}};
    struct row row = {.family_hash = hash,
                      .form = (uint32_t)i,
                      .place = (uint32_t)(i / variants_of(forms)),
                      .checked = true};
    forms->describe(user, i, &form);
    snprintf(row.family, sizeof(row.family), "%s", forms->family);
    snprintf(row.text, sizeof(row.text), "%s", form.text);
    judge(device, table, &form, known, &row, told);
    rf_log("ops", 2, "%s: %s %s", row.family, row.text,
           row.cost == 0 ? "does not spill"
           : row.asked   ? "spills"
                         : "needs too many registers");
    if (known)
        *known = row;
    return known ? known : add_row(table, &row);
}

/* Whether a form is better than one that comes before it. */
static bool is_better(const struct row *row, const struct row *before)
{
    if (row->cost != before->cost)
        return row->cost < before->cost;
    return row->place == before->place && row->asked && before->asked && row->cost == 0 &&
           row->instructions >= 0 && row->instructions < before->instructions;
}

static size_t pick(struct rf_device *device, struct table *table, const struct rf_forms *forms,
                   void *user)
{
    const uint32_t hash = hash_name(forms->family);
    struct row best = {.cost = INT64_MAX};
    bool any = false, told = false;
    for (size_t i = 0; i < forms->count; i++) {
        if (any && best.cost == 0 && i / variants_of(forms) != best.place)
            break;
        if (forms->fits && !forms->fits(user, i))
            continue;
        const struct row *row = row_of(device, table, forms, hash, i, user, &told);
        const struct row none = {.form = (uint32_t)i, .cost = INT64_MAX};
        if (!any || (row && is_better(row, &best)))
            best = row ? *row : none;
        any = true;
    }
    if (told)
        save(device, table);
    return any ? best.form : forms->count;
}

size_t rf_pick_form(struct rf_device *device, const struct rf_forms *forms, void *user)
{
    const bool any = rf_device_get_info(device)->kind == RF_DEVICE_CPU || rf_device_counts(device);
    size_t i = 0;
    if (any) {
        while (i < forms->count && forms->fits && !forms->fits(user, i))
            i++;
        return i;
    }
    struct table none = {0}; /* nothing is asked or kept */
    pthread_mutex_lock(&lock);
    struct table *table = table_of(device);
    i = pick(device, table ? table : &none, forms, user);
    pthread_mutex_unlock(&lock);
    rf_free(none.rows);
    return i;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* "no spills; of larger forms 2 spill, 1 needs too many registers" */
static void explain(struct rf_kernel_form *form, bool good)
{
    const char *fit = !good         ? "all forms spill or need too many registers, this one least"
                      : form->asked ? "it does not spill"
                                    : "it fits the estimated registers";
    char larger[80] = "";
    if (form->spilling && form->over_budget)
        snprintf(larger, sizeof(larger),
                 "; of larger forms %u spill%s, %u need%s too many registers", form->spilling,
                 form->spilling == 1 ? "s" : "", form->over_budget,
                 form->over_budget == 1 ? "s" : "");
    else if (form->spilling)
        snprintf(larger, sizeof(larger), "; %u larger form%s", form->spilling,
                 form->spilling == 1 ? " spills" : "s spill");
    else if (form->over_budget)
        snprintf(larger, sizeof(larger), "; %u larger form%s too many registers", form->over_budget,
                 form->over_budget == 1 ? " needs" : "s need");
    snprintf(form->why, sizeof(form->why), "%s%s", fit, good ? larger : "");
}

/* Describes the family of `first`, its first row. */
static void describe(const struct table *table, uint32_t first, struct rf_kernel_form *out)
{
    const struct row *best = &table->rows[first];
    uint32_t spilling = 0, wide = 0;
    for (uint32_t i = first; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        if (!row->checked || strcmp(row->family, best->family) != 0)
            continue;
        if (row->form < best->form ? !is_better(best, row) : is_better(row, best))
            best = row;
    }
    for (uint32_t i = first; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        if (!row->checked || row->place >= best->place || strcmp(row->family, best->family) != 0)
            continue;
        spilling += row->asked;
        wide += !row->asked;
    }
    *out = (struct rf_kernel_form){.asked = best->asked,
                                   .spills = best->asked ? best->cost : -1,
                                   .spilling = spilling,
                                   .over_budget = wide};
    snprintf(out->family, sizeof(out->family), "%s", best->family);
    snprintf(out->form, sizeof(out->form), "%s", best->text);
    explain(out, best->cost == 0);
}

int rf_kernel_forms(struct rf_device *device, struct rf_kernel_form *forms, uint32_t capacity,
                    uint32_t *count)
{
    if (!device || !count || (capacity > 0 && !forms))
        return rf_fail(RF_EINVAL, "rf_kernel_forms needs a device and a place for its results");
    *count = 0;
    if (rf_device_get_info(device)->kind == RF_DEVICE_CPU || rf_device_counts(device))
        return 0;
    pthread_mutex_lock(&lock);
    const struct table *table = table_of(device);
    for (uint32_t i = 0; table && i < table->count; i++) {
        bool first = table->rows[i].checked;
        for (uint32_t k = 0; k < i && first; k++)
            first = !table->rows[k].checked ||
                    strcmp(table->rows[k].family, table->rows[i].family) != 0;
        if (first && *count < capacity)
            describe(table, i, &forms[*count]);
        *count += first;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
