/* SPDX-License-Identifier: MIT
 *
 * Chat templates: the part of Jinja2 that published ones use, with Python's values, as transformers
 * runs it (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, generation).
 * Constructs that are not implemented are refused by name: at opening if they can be seen there,
 * else when they are reached. A template is hostile input: steps, depth and memory are limited.
 * Used by io.
 */
#ifndef RF_TEMPLATE_TEMPLATE_H
#define RF_TEMPLATE_TEMPLATE_H

#include <ringforge/tokenizer.h>

#include "value.h"

struct rf_template;

/* The limits for parsing a template, and for each rendering. */
struct rf_template_limits {
    size_t bytes;   /* of memory; 0: 256 MiB */
    uint64_t steps; /* 0: 30 million */
};
void rf_room_init(struct rf_room *room, const char *where,
                  const struct rf_template_limits *limits); /* NULL: zeros */

/* Reads a template. where: begins the messages of all its errors; copied. limits: NULL means zeros.
 * RF_ECORRUPT: not a template, or not UTF-8; RF_ENOTSUP: a construct is not implemented; RF_ENOMEM.
 * The caller closes it. */
RF_MUST_CHECK int rf_template_open(const char *where, const char *text, size_t bytes,
                                   const struct rf_template_limits *limits,
                                   struct rf_template **out);
void rf_template_close(struct rf_template *t); /* NULL is allowed */

/* Whether the template reads a variable of the caller. */
bool rf_template_asks(const struct rf_template *t, const char *name);
/* Whether the template marks the assistant's output with {% generation %}. */
bool rf_template_marks(const struct rf_template *t);

struct rf_marked {
    size_t begin, end; /* bytes of the text; end may lie past it */
    int message;       /* the message that was written, from 1; 0: unknown */
};

/* A rendered text. Zeroed at first; freed with rf_rendered_free; reused by the next call. */
struct rf_rendered {
    struct rf_text text; /* zero-terminated */
    struct rf_marked *marked;
    size_t marked_count;
    struct rf_room room;
};
void rf_rendered_free(struct rf_rendered *rendered);

/* Renders a template with the variables of a dictionary of strings. now: seconds since 1970, for
 * strftime_now. Each text of the dictionary that reaches the page has its origin marked as written.
 * The template must not be rendered by two threads at once. RF_ECORRUPT: the template refuses the
 * conversation, or Python would raise an exception; RF_ENOTSUP: not implemented, or beyond a limit.
 */
RF_MUST_CHECK int rf_template_render(struct rf_template *t, struct rf_dict *variables, int64_t now,
                                     struct rf_rendered *out);

#endif
