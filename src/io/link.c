/* SPDX-License-Identifier: MIT
 *
 * Links in folders of models; see file.h. Called by weights.c and export.c.
 */
#include <errno.h>
#include <limits.h>

#include "../base/base.h"
#include "file.h"

static bool is_below(const char *path, const char *folder)
{
    const size_t bytes = strlen(folder);
    return strncmp(path, folder, bytes) == 0 && path[bytes] == '/';
}

static size_t hex_digits(const char *text)
{
    return strspn(text, "0123456789abcdef");
}

/* Whether a file is in the store of a hub's cache. A cache keeps models in
 * CACHE/models--NAME/snapshots/COMMIT. Since huggingface_hub 2.0 the store is CACHE/blobs, and a
 * file is CACHE/blobs/XX/HASH, with 64 hexadecimal digits that begin with XX. Earlier versions, and
 * small files, use a store per model, CACHE/models--NAME/blobs/HASH. */
static bool is_in_store(const char *real, const char *folder)
{
    static const char level[] = "/snapshots/", blobs[] = "/blobs/";
    const char *at = NULL;
    for (const char *next = strstr(folder, level); next; next = strstr(next + 1, level))
        at = next;
    if (!at)
        return false;
    const size_t model = (size_t)(at - folder);
    if (strncmp(real, folder, model) == 0 && strncmp(real + model, blobs, strlen(blobs)) == 0)
        return !strchr(real + model + strlen(blobs), '/');
    while (at > folder && at[-1] != '/')
        at--;
    const size_t cache = at > folder ? (size_t)(at - 1 - folder) : 0;
    const char *name = real + cache + strlen(blobs);
    return strncmp(real, folder, cache) == 0 && strncmp(real + cache, blobs, strlen(blobs)) == 0 &&
           hex_digits(name) == 2 && name[2] == '/' && hex_digits(name + 3) == 64 && !name[67] &&
           strncmp(name, name + 3, 2) == 0;
}

int rf_check_link(const char *dir, const char *path)
{
    char real[PATH_MAX], folder[PATH_MAX];
    if (!realpath(path, real) || !realpath(dir, folder))
        return rf_fail(RF_EIO, "cannot open %s: %s", path, strerror(errno));
    if (is_below(real, folder) || is_in_store(real, folder))
        return 0;
    return rf_fail(RF_ECORRUPT,
                   "%s is a link out of its folder, to %s; copy the file into the folder", path,
                   real);
}
