/* SPDX-License-Identifier: MIT
 *
 * Opens and renders templates; see template.h.
 */
#include "template.h"

#include "../base/base.h"
#include "../tokenizer/utf8.h"
#include "lex.h"
#include "parse.h"
#include "run.h"
#include "scope.h"

enum { MAX_SOURCE = 4 << 20, MAX_DEPTH = 250, MAX_STEPS = 30 << 20 };

struct rf_template {
    struct rf_room room; /* the tree */
    struct rf_template_limits limits;
    char *where;
    struct rf_nodes body;
    struct rf_scope scope;
    struct rf_list context; /* names that the template reads */
    bool marks;
};

void rf_room_init(struct rf_room *room, const char *where, const struct rf_template_limits *limits)
{
    rf_room_empty(room);
    room->most = limits && limits->bytes ? limits->bytes : (size_t)256 << 20;
    room->steps = limits && limits->steps ? limits->steps : MAX_STEPS;
    room->deepest = MAX_DEPTH;
    room->where = where;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Chains of operators make deep trees without deep brackets, so their depth is checked before any
 * recursion. Also finds generation blocks. */
static int check_depth(struct rf_template *t, const struct rf_node *node);

static int check_depths(struct rf_template *t, const struct rf_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        RETURN_IF_ERROR(check_depth(t, nodes->list[i]));
    return 0;
}

static int check_depth(struct rf_template *t, const struct rf_node *node)
{
    if (!node)
        return 0;
    t->room.line = node->line;
    t->marks = t->marks || node->kind == RF_N_GENERATION;
    RETURN_IF_ERROR(rf_room_enter(&t->room));
    RETURN_IF_ERROR(check_depth(t, node->first));
    RETURN_IF_ERROR(check_depth(t, node->second));
    RETURN_IF_ERROR(check_depth(t, node->third));
    RETURN_IF_ERROR(check_depths(t, &node->items));
    RETURN_IF_ERROR(check_depths(t, &node->defaults));
    RETURN_IF_ERROR(check_depths(t, &node->body));
    RETURN_IF_ERROR(check_depths(t, &node->other));
    if (node->arguments) {
        RETURN_IF_ERROR(check_depths(t, &node->arguments->positional));
        RETURN_IF_ERROR(check_depths(t, &node->arguments->named));
        RETURN_IF_ERROR(check_depth(t, node->arguments->star));
        RETURN_IF_ERROR(check_depth(t, node->arguments->stars));
    }
    rf_room_leave(&t->room);
    return 0;
}

static int open(struct rf_template *t, const char *text, size_t bytes)
{
    struct rf_tokens tokens = {0};
    if (bytes > MAX_SOURCE)
        return rf_room_fail(&t->room, RF_ENOTSUP, "has more than %d MiB", MAX_SOURCE >> 20);
    if (rf_utf8_valid(text, bytes) < bytes)
        return rf_room_fail(&t->room, RF_ECORRUPT, "is not UTF-8");
    RETURN_IF_ERROR(rf_lex(&t->room, text, bytes, &tokens));
    RETURN_IF_ERROR(rf_parse(&t->room, &tokens, &t->body));
    RETURN_IF_ERROR(check_depths(t, &t->body));
    RETURN_IF_ERROR(rf_scope_resolve(&t->room, &t->body, &t->scope, &t->context));
    return 0;
}

int rf_template_open(const char *where, const char *text, size_t bytes,
                     const struct rf_template_limits *limits, struct rf_template **out)
{
    struct rf_template *t = rf_alloc(sizeof(*t));
    if (!t)
        return rf_fail(RF_ENOMEM, "%s: out of memory", where);
    t->where = rf_strdup(where);
    if (limits)
        t->limits = *limits;
    rf_room_init(&t->room, t->where, limits);
    const int rc = t->where ? open(t, text, bytes) : rf_fail(RF_ENOMEM, "%s: out of memory", where);
    if (rc < 0) {
        rf_template_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void rf_template_close(struct rf_template *t)
{
    if (!t)
        return;
    rf_room_free(&t->room);
    rf_free(t->where);
    rf_free(t);
}

bool rf_template_asks(const struct rf_template *t, const char *name)
{
    for (size_t i = 0; i < t->context.count; i++)
        if (rf_string_is(t->context.items[i].string, name))
            return true;
    return false;
}

bool rf_template_marks(const struct rf_template *t)
{
    return t->marks;
}

/* ---- rendering ------------------------------------------------------------------------------- */

void rf_rendered_free(struct rf_rendered *rendered)
{
    rf_text_free(&rendered->text);
    rf_room_free(&rendered->room);
    *rendered = (struct rf_rendered){0};
}

static int by_place(const void *a, const void *b)
{
    const size_t left = **(size_t *const *)a, right = **(size_t *const *)b;
    return left < right ? -1 : left > right;
}

/* Converts code points to bytes in one pass over the text. */
static int to_bytes(struct rf_rendered *out, const struct rf_span *spans, size_t count)
{
    struct rf_marked *marked = rf_room_take(&out->room, (count + 1) * sizeof(*marked));
    size_t **places = rf_room_take(&out->room, (2 * count + 1) * sizeof(*places));
    size_t letter = 0, at = 0;
    if (!marked || !places)
        return rf_last_error()->status;
    for (size_t i = 0; i < count; i++) {
        marked[i] = (struct rf_marked){spans[i].begin, spans[i].end, spans[i].message};
        places[2 * i] = &marked[i].begin;
        places[2 * i + 1] = &marked[i].end;
    }
    qsort(places, 2 * count, sizeof(*places), by_place);
    for (size_t i = 0; i < 2 * count; i++) {
        for (; letter < *places[i] && at < out->text.count; letter++)
            at += rf_utf8_length(out->text.bytes[at]);
        *places[i] = at + (*places[i] - letter); /* places past the end stay past the end */
    }
    out->marked = marked;
    out->marked_count = count;
    return 0;
}

int rf_template_render(struct rf_template *t, struct rf_dict *variables, int64_t now,
                       struct rf_rendered *out)
{
    struct rf_render r = {.room = &out->room, .context = variables, .now = now, .page = &out->text};
    rf_room_init(&out->room, t->where, &t->limits);
    out->text.count = 0;
    out->marked_count = 0;
    RETURN_IF_ERROR(rf_text_add(&out->text, "", 0));
    RETURN_IF_ERROR(rf_run_template(&r, &t->scope, &t->body));
    return to_bytes(out, r.spans, r.span_count);
}
