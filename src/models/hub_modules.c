/* SPDX-License-Identifier: MIT
 *
 * Names of modules by the rows of architectures; see hub_modules.h. Also other properties of a
 * tensor by its name.
 */
#include "hub_modules.h"

#include <stdio.h>
#include <string.h>

#include "hub_names.h"

static const char ending[] = ".weight";

static const struct hub_row *find_row(const struct hub_arch *arch, const char *weight)
{
    char ours[96];
    snprintf(ours, sizeof(ours), "blocks.#.%s%s", weight, ending);
    for (const struct hub_row *row = arch->rows; row->ours; row++)
        if (strcmp(row->ours, ours) == 0)
            return row;
    return NULL;
}

struct lora_modules hub_modules(const struct hub_arch *arch, const struct lora_weight *weight,
                                int layer)
{
    struct lora_modules out = {
        .name = weight->name, .in = weight->in, .activated = weight->activated};
    const struct hub_row *row = find_row(arch, weight->name);
    const int parts = row ? hub_parts(row) : 0;
    if (parts != 1 && parts != weight->parts)
        return out;
    for (int k = 0; k < weight->parts; k++) {
        const int to = parts == 1 ? 0 : k;
        char *name = out.module[to].name;
        hub_name(row->theirs[to], arch->prefix, layer, name, LORA_NAME);
        name[strlen(name) - strlen(ending)] = 0;
        out.module[to].rows += weight->rows[k];
    }
    out.count = parts;
    return out;
}

/* ---- tensors and targets ----------------------------------------------------------------------
 */

/* Whether one of the patterns matches the name, with the prefix or without. */
static bool matches_any(const struct hub_arch *arch, const char *pattern, const char *name)
{
    int layer = 0;
    return hub_matches(pattern, arch->prefix, name, &layer) ||
           hub_matches(pattern, "", name, &layer);
}

struct hub_about hub_tensor_about(const struct hub_arch *arch, const char *name)
{
    struct hub_about about = {false};
    for (const struct hub_row *row = arch->rows; row->ours && !about.known; row++)
        for (int k = 0; k < hub_parts(row); k++)
            if (matches_any(arch, row->theirs[k], name))
                about = (struct hub_about){.known = true, .transposed = row->transposed};
    for (const char *const *ignored = arch->ignored; *ignored && !about.known; ignored++)
        about.ignored = about.ignored || matches_any(arch, *ignored, name);
    return about;
}

bool hub_arch_transposes(const struct hub_arch *arch)
{
    for (const struct hub_row *row = arch->rows; row->ours; row++)
        if (row->transposed)
            return true;
    return false;
}

const char *hub_arch_targets(const struct hub_arch *arch)
{
    return arch->targets;
}

bool hub_arch_has(const struct hub_arch *arch, const char *target)
{
    char name[160], weight[160];
    snprintf(weight, sizeof(weight), ".%.120s%s", target, ending);
    for (const struct hub_row *row = arch->rows; row->ours; row++)
        for (int k = 0; k < hub_parts(row); k++) {
            hub_name(row->theirs[k], arch->prefix, 0, name + 1, sizeof(name) - 1);
            name[0] = '.';
            const size_t all = strlen(name), bytes = strlen(weight);
            if (bytes <= all && strcmp(name + all - bytes, weight) == 0)
                return true;
        }
    for (const char *const *ignored = arch->ignored; *ignored; ignored++)
        if (strncmp(*ignored, target, strlen(target)) == 0 &&
            strcmp(*ignored + strlen(target), ending) == 0)
            return true; /* a tied head */
    return false;
}
