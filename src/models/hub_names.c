/* SPDX-License-Identifier: MIT
 *
 * See hub_names.h.
 */
#include "hub_names.h"

#include <stdio.h>
#include <string.h>

bool hub_matches(const char *pattern, const char *prefix, const char *name, int *layer)
{
    if (pattern[0] == '@') {
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            return false;
        name += strlen(prefix);
        pattern++;
    }
    const char *hash = strchr(pattern, '#');
    int used = 0;
    if (!hash)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(hash - pattern);
    return strncmp(pattern, name, before) == 0 && name[before] >= '0' && name[before] <= '9' &&
           sscanf(name + before, "%9d%n", layer, &used) == 1 &&
           strcmp(hash + 1, name + before + used) == 0;
}

void hub_name(const char *pattern, const char *prefix, int layer, char *out, size_t bytes)
{
    const char *hash = strchr(pattern, '#');
    const char *at = pattern + (pattern[0] == '@');
    const char *front = pattern[0] == '@' ? prefix : "";
    if (hash)
        snprintf(out, bytes, "%s%.*s%d%s", front, (int)(hash - at), at, layer, hash + 1);
    else
        snprintf(out, bytes, "%s%s", front, at);
}

int hub_parts(const struct hub_row *row)
{
    int parts = 0;
    while (parts < HUB_PARTS && row->theirs[parts])
        parts++;
    return parts;
}
