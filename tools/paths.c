/* SPDX-License-Identifier: MIT
 *
 * Whether two paths are one file, and whether an output of a command is also an input or another
 * output. Called once the options are read, before anything is opened.
 */
#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_LINKS = 40 };

/* ---- one file -------------------------------------------------------------------------------- */

/* Puts a path without links, "." and ".." into out; missing parts are kept by name. False: too
 * long, or its links form a cycle. */
static bool resolve(const char *path, char out[TOOL_PATH_BYTES])
{
    char rest[2 * TOOL_PATH_BYTES], next[2 * TOOL_PATH_BYTES], target[TOOL_PATH_BYTES];
    size_t used = 0;
    int links = 0;
    if (*path != '/') {
        if (!getcwd(out, TOOL_PATH_BYTES))
            return false;
        used = strcmp(out, "/") == 0 ? 0 : strlen(out);
    }
    if (snprintf(rest, sizeof(rest), "%s", path) >= TOOL_PATH_BYTES)
        return false;
    for (char *at = rest; *at;) {
        const size_t slashes = strspn(at, "/"), bytes = strcspn(at + slashes, "/");
        const char *name = at + slashes;
        at += slashes + bytes;
        if (bytes == 0 || (bytes == 1 && name[0] == '.'))
            continue;
        if (bytes == 2 && name[0] == '.' && name[1] == '.') {
            while (used > 0 && out[--used] != '/')
                ;
            continue;
        }
        if (used + bytes + 2 > TOOL_PATH_BYTES)
            return false;
        const size_t before = used;
        out[used++] = '/';
        memcpy(out + used, name, bytes);
        used += bytes;
        out[used] = 0;
        const ssize_t length = readlink(out, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = 0;
        if (++links > MOST_LINKS ||
            snprintf(next, sizeof(next), "%s%s", target, at) >= TOOL_PATH_BYTES)
            return false;
        memcpy(rest, next, sizeof(rest));
        at = rest;
        used = *target == '/' ? 0 : before;
    }
    out[used] = 0;
    if (used == 0)
        memcpy(out, "/", 2);
    return true;
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool tool_paths_same(const char *a, const char *b)
{
    char whole[2][TOOL_PATH_BYTES];
    struct stat about[2];
    if (stat(a, &about[0]) == 0 && stat(b, &about[1]) == 0 && same_inode(&about[0], &about[1]))
        return true;
    return resolve(a, whole[0]) && resolve(b, whole[1]) && strcmp(whole[0], whole[1]) == 0;
}

bool tool_path_within(const char *path, const char *folder)
{
    char inner[TOOL_PATH_BYTES], outer[TOOL_PATH_BYTES];
    struct stat about, wanted;
    const bool exists = stat(folder, &wanted) == 0;
    if (!resolve(path, inner) || !resolve(folder, outer))
        return false;
    const size_t bytes = strcmp(outer, "/") == 0 ? 0 : strlen(outer);
    if (strncmp(inner, outer, bytes) == 0 && inner[bytes] == '/' && inner[bytes + 1])
        return true;
    /* A folder may be mounted in two places. */
    for (char *slash; exists && (slash = strrchr(inner, '/')) && slash != inner;) {
        *slash = 0;
        if (stat(inner, &about) == 0 && same_inode(&about, &wanted))
            return true;
    }
    return false;
}

/* ---- conflicts ------------------------------------------------------------------------------- */

static const char *path_of(const struct tool_option *o)
{
    return o->path ? *(const char *const *)o->value : NULL;
}

static bool writes(const struct tool_option *o)
{
    return o->path >= TOOL_WRITES;
}

static bool is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* Devices and pipes accept several writers. */
static bool is_stream(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

/* The name of a file directly in a folder; NULL: not directly in it. */
static const char *name_in(const char *path, const char *folder, char inner[TOOL_PATH_BYTES])
{
    char parent[TOOL_PATH_BYTES];
    if (!resolve(path, inner))
        return NULL;
    const char *name = strrchr(inner, '/');
    snprintf(parent, sizeof(parent), "%.*s", name == inner ? 1 : (int)(name - inner), inner);
    return tool_paths_same(parent, folder) ? name + 1 : NULL;
}

/* Whether an option reads files of this name in a folder. */
static bool is_name_read(const char *name, const struct tool_option *reader)
{
    const char *endings = reader->path == TOOL_RESUMES ? ".safetensors|.hashes|state.json|latest"
                          : reader->endings            ? reader->endings
                                                       : ".json|.safetensors|.txt|.model|.jinja";
    if (reader->path == TOOL_READS_ALL)
        return true;
    for (const char *at = endings; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t bytes = strcspn(at, "|"), all = strlen(name);
        if (all >= bytes && memcmp(name + all - bytes, at, bytes) == 0)
            return true;
    }
    return false;
}

/* Whether this path would be a file that is read in a folder. */
static bool is_read_there(const char *path, const struct tool_option *reader)
{
    char inner[TOOL_PATH_BYTES];
    const char *name = name_in(path, path_of(reader), inner);
    return name && is_name_read(name, reader);
}

/* Whether a file that is read in a folder is `out` by a link, or a link into the folder that `out`
 * replaces. Folders of models often contain only links into a cache. */
static bool is_linked_there(const struct tool_option *out, const struct tool_option *reader)
{
    enum { FOLDERS = 2 }; /* a folder of models or checkpoints, and those in it */
    struct stat wanted, about;
    char *roots[] = {(char *)path_of(reader), NULL};
    if (reader->path > TOOL_READS_ALL || stat(path_of(out), &wanted) < 0 ||
        (!S_ISREG(wanted.st_mode) && out->path != TOOL_REPLACES))
        return false;
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    bool found = false;
    for (FTSENT *item; tree && !found && (item = fts_read(tree)) != NULL;) {
        const bool link = item->fts_info == FTS_SL;
        if (item->fts_info == FTS_D && item->fts_level == FOLDERS && reader->path != TOOL_READS_ALL)
            (void)fts_set(tree, item, FTS_SKIP);
        if ((link || item->fts_info == FTS_F) && is_name_read(item->fts_name, reader))
            found = (stat(item->fts_path, &about) == 0 && same_inode(&about, &wanted)) ||
                    (link && out->path == TOOL_REPLACES &&
                     tool_path_within(item->fts_path, path_of(out)));
    }
    if (tree)
        (void)fts_close(tree);
    return found;
}

/* Whether the path would be in a folder of checkpoints, or in a checkpoint. */
static bool is_of_checkpoints(const char *path, const char *folder)
{
    char inner[TOOL_PATH_BYTES], whole[TOOL_PATH_BYTES];
    const char *name = name_in(path, folder, inner);
    const char *last = resolve(folder, whole) ? strrchr(whole, '/') : NULL;
    if (last && strncmp(last, "/step-", 6) == 0)
        return tool_path_within(path, folder);
    return (name && (strcmp(name, "latest") == 0 || strcmp(name, "lock") == 0 ||
                     strncmp(name, "step-", 5) == 0)) ||
           (!name && tool_path_within(path, folder) && strstr(inner, "/step-"));
}

/* An unfinished write is beside the folder that it will replace. */
static bool is_under_way(const char *path, const char *replaced)
{
    char beside[TOOL_PATH_BYTES];
    size_t bytes = strlen(replaced);
    while (bytes > 1 && replaced[bytes - 1] == '/')
        bytes--;
    return snprintf(beside, sizeof(beside), "%.*s.tmp", (int)bytes, replaced) <
               (int)sizeof(beside) &&
           (tool_paths_same(path, beside) || tool_path_within(path, beside));
}

/* The reason why the output `out` conflicts with `other`; NULL: no conflict. */
static const char *conflict(const struct tool_option *out, const struct tool_option *other)
{
    const char *path = path_of(out), *theirs = path_of(other);
    const bool both = writes(other);
    if (is_standard(path) || is_standard(theirs))
        return both && is_standard(path) && is_standard(theirs) ? "both would be written to it"
                                                                : NULL;
    if (is_stream(path) || is_stream(theirs))
        return NULL;
    if (tool_paths_same(path, theirs)) {
        if (out->beside && strcmp(out->beside, other->name) == 0)
            return NULL;
        return both ? "one would replace the other" : "what is read would be replaced";
    }
    if (other->path == TOOL_READS_ALL && tool_path_within(path, theirs))
        return "every file of that folder is read";
    if (other->path == TOOL_READS && out->path != TOOL_WRITES_INTO && is_read_there(path, other))
        return "it would be one of the files that are read there";
    if ((other->path == TOOL_RESUMES || other->path == TOOL_WRITES_INTO) &&
        out->path != TOOL_WRITES_INTO && is_of_checkpoints(path, theirs))
        return "it would be a file of a checkpoint";
    if (out->path == TOOL_REPLACES && tool_path_within(theirs, path))
        return "the whole folder would be replaced";
    if (out->path == TOOL_REPLACES && is_under_way(theirs, path))
        return "it is used while that folder is written";
    return is_linked_there(out, other) ? "a file that is read there would be replaced" : NULL;
}

static const char *dashes(const struct tool_option *o)
{
    return o->operand ? "" : "--";
}

static int refuse(const struct tool_command *command, const struct tool_option *out,
                  const struct tool_option *other, const char *why)
{
    return tool_usage_error(
        command, "%s%s %s and %s%s %s do not go together, as %s; name another path", dashes(out),
        out->name, path_of(out), dashes(other), other->name, path_of(other), why);
}

/* Folders into which the library writes for any command. */
static int check_variables(const struct tool_command *command, const struct tool_option *table)
{
    static const char *const names[] = {"RF_FLIGHT", "RF_CACHE_DIR"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        const struct tool_option folder = {
            .name = names[i], .value = &value, .path = TOOL_WRITES_INTO, .operand = true};
        for (const struct tool_option *o = table; value && *value && o->name; o++) {
            const char *why = !path_of(o)                 ? NULL
                              : o->path == TOOL_READS_ALL ? conflict(&folder, o)
                              : o->path == TOOL_REPLACES  ? conflict(o, &folder)
                                                          : NULL;
            if (why)
                return refuse(command, &folder, o, why);
        }
    }
    return TOOL_OK;
}

int tool_paths_check(const struct tool_command *command, const struct tool_option *table)
{
    for (const struct tool_option *out = table; out->name; out++) {
        if (!path_of(out) || !writes(out))
            continue;
        for (const struct tool_option *other = table; other->name; other++) {
            const char *why = other == out || !path_of(other) ? NULL : conflict(out, other);
            if (why)
                return refuse(command, out, other, why);
        }
    }
    return check_variables(command, table);
}
