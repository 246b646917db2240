/* SPDX-License-Identifier: MIT
 *
 * Terms: the text in which a process says what has to be the same on all ranks of its job, a line
 * "name=value" for each. Used by join_listener.c. Nothing here reads a socket.
 */
#include "join_listener.h"

#include "base/base.h"

struct line {
    const char *name, *value;
    int name_bytes, value_bytes;
};

/* The next line that has a name; NULL: there is none. */
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

/* As much of it as a sentence takes. */
static const char *shown(const char *value, int bytes, char text[84])
{
    snprintf(text, 84, "%.*s%s", bytes < 80 ? bytes : 80, value, bytes > 80 ? "..." : "");
    return bytes > 0 ? text : "none";
}

bool rf_terms_agree(const char *job, const char *theirs, char *why, size_t why_bytes)
{
    struct line mine, own;
    while ((theirs = next_line(theirs, &own)) != NULL) {
        const bool known = find(job, &own, &mine);
        if (known && mine.value_bytes == own.value_bytes &&
            memcmp(mine.value, own.value, (size_t)own.value_bytes) == 0)
            continue;
        char name[84], value[84], other[84];
        shown(own.name, own.name_bytes, name);
        if (known)
            snprintf(why, why_bytes,
                     "the job has %s %s, the newcomer %s; start it with what the job has", name,
                     shown(mine.value, mine.value_bytes, value),
                     shown(own.value, own.value_bytes, other));
        else
            snprintf(why, why_bytes,
                     "the job knows no %s; start the newcomer with the job's version", name);
        return false;
    }
    return true;
}
