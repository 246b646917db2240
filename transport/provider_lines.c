/* SPDX-License-Identifier: MIT
 *
 * Lists the providers of this machine, as each row of a table probes them, for people and for the
 * error that names them.
 */
#include "base/base.h"
#include "providers.h"

const struct rf_provider *rf_provider_of_fabric(const struct rf_provider_table *table,
                                                const char *fabric)
{
    for (int row = 0; row < table->count - 1; row++)
        if (table->rows[row].fabric && strcmp(table->rows[row].fabric, fabric) == 0)
            return &table->rows[row];
    return NULL;
}

void rf_provider_describe(const struct rf_provider *row, const char *name, const char *address,
                          struct rf_provider_info *out)
{
    *out = (struct rf_provider_info){.threads = row->reach == RF_REACH_THREADS,
                                     .shares_memory = row->reach == RF_REACH_HOST};
    snprintf(out->name, sizeof(out->name), "%s", name);
    snprintf(out->address, sizeof(out->address), "%s", address);
    snprintf(out->note, sizeof(out->note), "%s", row->note);
}

void rf_provider_add(struct rf_provider_lines *lines, const struct rf_provider *row,
                     const char *name, const char *address)
{
    const bool chosen = strcmp(name, lines->chosen) == 0;
    if (lines->count < lines->capacity) {
        rf_provider_describe(row, name, address, &lines->infos[lines->count]);
        lines->infos[lines->count].chosen = chosen;
    }
    lines->found = lines->found || chosen;
    lines->count++;
}

int rf_provider_probe_all(struct rf_provider_lines *lines)
{
    const struct rf_provider_table *table = lines->table;
    for (int row = 0; row < table->count; row++)
        RETURN_IF_ERROR(table->rows[row].probe(&table->rows[row], lines));
    return 0;
}

int rf_provider_fail_unknown(const struct rf_provider_table *table, const char *name)
{
    enum { MOST = 64 };
    char names[300] = "auto";
    struct rf_provider_info *infos = rf_alloc(MOST * sizeof(*infos));
    struct rf_provider_lines lines = {
        .table = table, .infos = infos, .capacity = MOST, .chosen = ""};
    int rc =
        infos ? rf_provider_probe_all(&lines) : rf_fail(RF_ENOMEM, "no memory to list providers");
    for (uint32_t i = 0; rc == 0 && i < lines.count && i < MOST; i++) {
        size_t used = strlen(names);
        if (used + strlen(infos[i].name) + 3 < sizeof(names))
            snprintf(names + used, sizeof(names) - used, ", %s", infos[i].name);
    }
    rf_free(infos);
    if (rc < 0)
        return rc;
    return rf_fail(RF_EINVAL, "there is no provider %.60s on this machine; there are %s", name,
                   names);
}
