/* SPDX-License-Identifier: MIT
 *
 * Merges the config texts of a model's blocks (struct rf_block, config) into one text, and lists
 * the differences of two such texts by name. Called when a run is opened, saved and loaded.
 */
#define _GNU_SOURCE /* memrchr */
#include "../base/base.h"
#include "run.h"

enum { MOST_BYTES = 16384 };

/* A "name=value" inside a text. */
struct setting {
    const char *name, *value;
    int name_bytes, value_bytes;
};

/* Reads the next setting and advances *at; false at the end. A setting without '=' has an empty
 * value. */
static bool next(const char **at, struct setting *out)
{
    *at += strspn(*at, " ");
    const int bytes = (int)strcspn(*at, " "), equal = (int)strcspn(*at, " =");
    *out = (struct setting){.name = *at, .name_bytes = equal, .value = *at + bytes};
    if (equal < bytes) {
        out->value = *at + equal + 1;
        out->value_bytes = bytes - equal - 1;
    }
    *at += bytes;
    return bytes > 0;
}

static bool find(const char *text, const struct setting *wanted, struct setting *out)
{
    while (next(&text, out))
        if (out->name_bytes == wanted->name_bytes &&
            memcmp(out->name, wanted->name, (size_t)wanted->name_bytes) == 0)
            return true;
    return false;
}

static bool same_value(const struct setting *a, const struct setting *b)
{
    return a->value_bytes == b->value_bytes &&
           memcmp(a->value, b->value, (size_t)a->value_bytes) == 0;
}

/* ---- one text for all blocks ------------------------------------------------------------------
 */

static int check(const struct rf_block *block)
{
    const char *at = block->config;
    for (const char *c = at; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            return rf_fail(RF_EINVAL, "the config of block %s has the character %d", block->name,
                           (unsigned char)*c);
    for (struct setting s; next(&at, &s);)
        if (s.name_bytes == 0 || s.value_bytes == 0)
            return rf_fail(RF_EINVAL, "the config of block %s has \"%.40s\", not name=value",
                           block->name, s.name);
    return 0;
}

/* Appends a value that differs from the last one of its name: heads=4,8,4. */
static int add(char *text, const struct setting *s, const char *block)
{
    struct setting have;
    const size_t used = strlen(text);
    const bool known = find(text, s, &have);
    const char *comma = known ? memrchr(have.value, ',', (size_t)have.value_bytes) : NULL;
    struct setting last = have;
    if (comma) {
        last.value = comma + 1;
        last.value_bytes = have.value_bytes - (int)(last.value - have.value);
    }
    if (known && same_value(&last, s))
        return 0;
    if (used + (size_t)s->name_bytes + (size_t)s->value_bytes + 3 > MOST_BYTES)
        return rf_fail(RF_EINVAL, "the configs of the blocks up to %s have more than %d bytes",
                       block, MOST_BYTES);
    if (!known) {
        snprintf(text + used, MOST_BYTES - used, "%s%.*s=%.*s", used ? " " : "", s->name_bytes,
                 s->name, s->value_bytes, s->value);
        return 0;
    }
    char *end = text + (have.value - text) + have.value_bytes;
    memmove(end + s->value_bytes + 1, end, strlen(end) + 1);
    *end = ',';
    memcpy(end + 1, s->value, (size_t)s->value_bytes);
    return 0;
}

int rf_config_merge(const struct rf_block *blocks, int count, char **out)
{
    char *text = rf_alloc(MOST_BYTES);
    int rc = text ? 0 : rf_fail(RF_ENOMEM, "run: out of host memory");
    for (int b = 0; b < count && rc == 0; b++) {
        const char *at = blocks[b].config;
        if (!at || (b > 0 && at == blocks[b - 1].config))
            continue;
        rc = check(&blocks[b]);
        for (struct setting s; rc == 0 && next(&at, &s);)
            rc = add(text, &s, blocks[b].name);
    }
    if (rc < 0)
        rf_free(text);
    else
        *out = text;
    return rc;
}

/* ---- differences ----------------------------------------------------------------------------- */

static void say(char *text, size_t bytes, const struct setting *theirs, const struct setting *ours)
{
    const struct setting *named = theirs ? theirs : ours;
    const struct setting none = {.value = "none", .value_bytes = 4};
    size_t used = strlen(text);
    theirs = theirs ? theirs : &none;
    ours = ours ? ours : &none;
    snprintf(text + used, bytes - used, "%s%.*s: %.*s in the checkpoint, %.*s here",
             used ? "; " : "", named->name_bytes, named->name, theirs->value_bytes, theirs->value,
             ours->value_bytes, ours->value);
}

bool rf_config_differs(const char *theirs, const char *ours, char *text, size_t bytes)
{
    struct setting a, b;
    *text = 0;
    for (const char *at = theirs; next(&at, &a);)
        if (!find(ours, &a, &b))
            say(text, bytes, &a, NULL);
        else if (!same_value(&a, &b))
            say(text, bytes, &a, &b);
    for (const char *at = ours; next(&at, &b);)
        if (!find(theirs, &b, &a))
            say(text, bytes, NULL, &b);
    return *text;
}
