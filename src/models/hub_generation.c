/* SPDX-License-Identifier: MIT
 *
 * generation_config.json, and the ids that end a text. Used by `ringforge generate`. The files are
 * not trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

#define MAX_TEXT ((size_t)4 << 20)

static const struct rf_field *const tables[] = {hub_generation_fields, NULL};
const struct rf_fields hub_generation = {.file = "generation_config.json",
                                         .tables = tables,
                                         .unset = "null",
                                         .advice =
                                             "delete it if a text is to be generated without it"};

/* One id. In some files -1 means none. */
static int add_end(const struct rf_fields *fields, const cJSON *item, struct hub_ends *out)
{
    const double id = cJSON_IsNumber(item) ? item->valuedouble : 0.5;
    if (id < 0 && id == (double)(int32_t)id)
        return 0;
    if (!(id >= 0 && id < INT32_MAX) || id != (double)(int32_t)id)
        return rf_fields_refuse(fields, "eos_token_id", item,
                                "it has to be an id or a list of ids");
    if (out->count == HUB_MOST_ENDS)
        return rf_fields_refuse(fields, "eos_token_id", item, "there are too many ids");
    out->ids[out->count++] = (int32_t)id;
    return 0;
}

static int read_ends(const struct rf_fields *fields, const cJSON *config, struct hub_ends *out)
{
    const cJSON *ends = config_get(config, "eos_token_id");
    if (!ends || cJSON_IsNull(ends))
        return 0;
    if (!cJSON_IsArray(ends))
        return add_end(fields, ends, out);
    for (const cJSON *end = ends->child; end; end = end->next)
        RETURN_IF_FAILED(add_end(fields, end, out));
    return 0;
}

/* Reads a file if it exists. */
static int read_file(const char *dir, const struct rf_fields *fields, bool check,
                     struct hub_ends *out)
{
    char *text = NULL;
    int rc = rf_weights_read_text(dir, fields->file, MAX_TEXT, &text);
    if (rc < 0)
        return rc;
    cJSON *config = config_parse(text);
    free(text);
    if (!config)
        return rf_fail(RF_ECORRUPT, "%s is not a JSON object", fields->file);
    rc = check ? rf_fields_read(fields, config, NULL) : 0;
    if (rc == 0)
        rc = read_ends(fields, config, out);
    cJSON_Delete(config);
    return rc;
}

int hub_read_ends(const char *dir, bool has_generation, struct hub_ends *out)
{
    static const struct rf_fields config = {.file = "config.json"};
    *out = (struct hub_ends){.count = 0};
    if (has_generation)
        RETURN_IF_FAILED(read_file(dir, &hub_generation, true, out));
    return out->count > 0 ? 0 : read_file(dir, &config, false, out);
}
