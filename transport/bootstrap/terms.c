/* SPDX-License-Identifier: MIT
 *
 * Terms: a text of the properties that must be equal on all ranks of a job, one line "name=value"
 * each. Used by join_listener.c and comm. Reads no socket.
 */
#include "join_listener.h"

#include "base/base.h"

struct line {
    const char *name, *value;
    int name_bytes, value_bytes;
};

/* The next line with a name; NULL: none. */
static const char *next_line(const char *text, struct line *out)
{
    while (*text) {
        const int bytes = (int)strcspn(text, "\n"), name = (int)strcspn(text, "=\n");
        *out = (struct line){text, text + name + 1, name, bytes - name - 1};
        text += bytes + (text[bytes] == '\n');
        if (name < bytes && name > 0)
            return text;
    }
    return NULL;
}

static bool find(const char *text, const struct line *wanted, struct line *out)
{
    while ((text = next_line(text, out)) != NULL)
        if (out->name_bytes == wanted->name_bytes &&
            memcmp(out->name, wanted->name, (size_t)wanted->name_bytes) == 0)
            return true;
    return false;
}

/* Copies as much of a value as fits in a message. */
static void show(const char *value, int bytes, char text[84])
{
    const char *hidden = memchr(value, '\t', (size_t)bytes);
    if (hidden)
        bytes = (int)(hidden - value);
    snprintf(text, 84, "%.*s%s", bytes < 80 ? bytes : 80, bytes > 0 ? value : "",
             bytes > 80 ? "..." : "");
    if (bytes == 0)
        snprintf(text, 84, "none");
}

bool rf_terms_differ(const char *mine, const char *theirs, struct rf_terms_difference *out)
{
    struct line own, other;
    while ((theirs = next_line(theirs, &other)) != NULL) {
        const bool known = find(mine, &other, &own);
        if (known && own.value_bytes == other.value_bytes &&
            memcmp(own.value, other.value, (size_t)own.value_bytes) == 0)
            continue;
        *out = (struct rf_terms_difference){.known = known};
        show(other.name, other.name_bytes, out->name);
        show(other.value, other.value_bytes, out->theirs);
        if (known)
            show(own.value, own.value_bytes, out->mine);
        return true;
    }
    return false;
}

bool rf_terms_agree(const char *job, const char *theirs, char *why, size_t why_bytes)
{
    struct rf_terms_difference d;
    if (!rf_terms_differ(job, theirs, &d))
        return true;
    if (!d.known)
        snprintf(why, why_bytes, "the job knows no %s; start the newcomer with the job's version",
                 d.name);
    else if (strcmp(d.mine, d.theirs) == 0)
        snprintf(why, why_bytes,
                 "%s of the newcomer is not that of the job, though both are %s; start it with "
                 "what the job has",
                 d.name, d.mine);
    else
        snprintf(why, why_bytes,
                 "the job has %s %s, the newcomer %s; start it with what the job has", d.name,
                 d.mine, d.theirs);
    return false;
}
