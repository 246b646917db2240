/* SPDX-License-Identifier: MIT
 *
 * Determines the variables of a frame and their initial values; see scope_frame.h. The rules are
 * those of Jinja2 3.1 (its idtracking.py). A name that is assigned to in a frame is a variable of
 * it. Its initial value is that of the outer variable of that name, or else the caller's. It has
 * none if it is assigned to unconditionally before it is read.
 */
#include "scope_frame.h"

#include "../base/base.h"
#include "render.h"

bool rf_same_name(const struct rf_string *a, const struct rf_string *b)
{
    return a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

int rf_fail_name(struct rf_resolver *r, int status, const char *format,
                 const struct rf_string *name)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*s", (int)(name->count < 60 ? name->count : 60), name->bytes);
    return rf_room_fail(r->room, status, format, text);
}

/* ---- the variables of a frame ---------------------------------------------------------------- */

static struct rf_scope_entry *entry_of(const struct rf_scope_frame *frame,
                                       const struct rf_string *name)
{
    for (size_t i = 0; i < frame->count; i++)
        if (rf_same_name(frame->entries[i].name, name))
            return &frame->entries[i];
    return NULL;
}

/* The innermost frame, from this one outwards, that has the variable; NULL: none. */
const struct rf_scope_frame *rf_frame_owner(const struct rf_scope_frame *frame,
                                            const struct rf_string *name)
{
    while (frame && !entry_of(frame, name))
        frame = frame->outer;
    return frame;
}

enum rf_beginning rf_frame_beginning(const struct rf_scope_frame *frame,
                                     const struct rf_string *name)
{
    return entry_of(frame, name)->beginning;
}

int rf_frame_define(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_string *name,
                    enum rf_beginning beginning, bool stored)
{
    struct rf_scope_entry *there = entry_of(frame, name);
    RETURN_IF_ERROR(rf_room_spend(r->room, 1 + frame->count / 8));
    if (there) {
        there->beginning = beginning;
        there->stored = there->stored || stored;
        return 0;
    }
    RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&frame->entries, frame->count, &frame->capacity,
                                 sizeof(*frame->entries)));
    frame->entries[frame->count++] = (struct rf_scope_entry){name, beginning, stored};
    return 0;
}

static int note_load(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_string *name)
{
    return rf_frame_owner(frame, name)
               ? 0
               : rf_frame_define(r, frame, name, RF_BEGINS_IN_CONTEXT, false);
}

static int note_store(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_string *name)
{
    struct rf_scope_entry *there = entry_of(frame, name);
    if (rf_word_in("caller kwargs loop self super varargs", name))
        return rf_fail_name(r, RF_ENOTSUP, "a variable \"%s\" of the template is not implemented",
                            name);
    if (there) {
        there->stored = true;
        return 0;
    }
    return rf_frame_define(
        r, frame, name, rf_frame_owner(frame->outer, name) ? RF_BEGINS_OUTSIDE : RF_BEGINS_NOWHERE,
        true);
}

/* Merges the variables of the branches of a condition. A variable that only branches assign to
 * begins with its outer value. */
static int merge(struct rf_resolver *r, struct rf_scope_frame *frame,
                 const struct rf_scope_frame *branches, int count)
{
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < branches[k].count; i++)
            RETURN_IF_ERROR(rf_frame_define(r, frame, branches[k].entries[i].name,
                                            branches[k].entries[i].beginning, false));
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < branches[k].count; i++) {
            struct rf_scope_entry *entry = entry_of(frame, branches[k].entries[i].name);
            if (branches[k].entries[i].stored && !entry->stored)
                entry->beginning = rf_frame_owner(frame->outer, entry->name) ? RF_BEGINS_OUTSIDE
                                                                             : RF_BEGINS_IN_CONTEXT;
        }
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < branches[k].count; i++)
            if (branches[k].entries[i].stored)
                entry_of(frame, branches[k].entries[i].name)->stored = true;
    return 0;
}

static int copy_frame(struct rf_resolver *r, const struct rf_scope_frame *from,
                      struct rf_scope_frame *to)
{
    *to = *from;
    to->capacity = from->count + 8;
    to->entries = rf_room_take(r->room, to->capacity * sizeof(*to->entries));
    if (!to->entries)
        return rf_last_error()->status;
    if (from->count > 0)
        memcpy(to->entries, from->entries, from->count * sizeof(*to->entries));
    return rf_room_spend(r->room, 1 + from->count);
}

/* ---- which names a frame has ----------------------------------------------------------------- */

int rf_note_expressions(struct rf_resolver *r, struct rf_scope_frame *frame,
                        const struct rf_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        RETURN_IF_ERROR(rf_note_expression(r, frame, nodes->list[i]));
    return 0;
}

int rf_note_expression(struct rf_resolver *r, struct rf_scope_frame *frame,
                       const struct rf_node *node)
{
    if (!node)
        return 0;
    if (node->kind == RF_N_NAME)
        RETURN_IF_ERROR(note_load(r, frame, node->name));
    RETURN_IF_ERROR(rf_note_expression(r, frame, node->first));
    RETURN_IF_ERROR(rf_note_expression(r, frame, node->second));
    RETURN_IF_ERROR(rf_note_expression(r, frame, node->third));
    RETURN_IF_ERROR(rf_note_expressions(r, frame, &node->items));
    if (!node->arguments)
        return 0;
    RETURN_IF_ERROR(rf_note_expressions(r, frame, &node->arguments->positional));
    RETURN_IF_ERROR(rf_note_expressions(r, frame, &node->arguments->named));
    RETURN_IF_ERROR(rf_note_expression(r, frame, node->arguments->star));
    return rf_note_expression(r, frame, node->arguments->stars);
}

int rf_note_target(struct rf_resolver *r, struct rf_scope_frame *frame,
                   const struct rf_node *target, enum rf_beginning by)
{
    if (target->kind == RF_N_TUPLE) {
        for (size_t i = 0; i < target->items.count; i++)
            RETURN_IF_ERROR(rf_note_target(r, frame, target->items.list[i], by));
        return 0;
    }
    if (target->kind == RF_N_NAMESPACE)
        return note_load(r, frame, target->name);
    RETURN_IF_ERROR(note_store(r, frame, target->name));
    return by != RF_BEGINS_NOWHERE ? rf_frame_define(r, frame, target->name, by, true) : 0;
}

static int note_if(struct rf_resolver *r, struct rf_scope_frame *frame, const struct rf_node *node)
{
    struct rf_scope_frame branches[3];
    RETURN_IF_ERROR(rf_note_expression(r, frame, node->first));
    for (int i = 0; i < 3; i++)
        RETURN_IF_ERROR(copy_frame(r, frame, &branches[i]));
    RETURN_IF_ERROR(rf_note_statements(r, &branches[0], &node->body));
    for (size_t i = 0; i < node->items.count; i++)
        RETURN_IF_ERROR(note_if(r, &branches[1], node->items.list[i]));
    RETURN_IF_ERROR(rf_note_statements(r, &branches[2], &node->other));
    return merge(r, frame, branches, 3);
}

static int note_statement(struct rf_resolver *r, struct rf_scope_frame *frame,
                          const struct rf_node *node)
{
    switch (node->kind) {
    case RF_N_OUTPUT:
        return rf_note_expression(r, frame, node->first);
    case RF_N_FOR: /* the rest belongs to another frame */
        return rf_note_expression(r, frame, node->second);
    case RF_N_IF:
        return note_if(r, frame, node);
    case RF_N_SET:
        RETURN_IF_ERROR(rf_note_expression(r, frame, node->second));
        return rf_note_target(r, frame, node->first, RF_BEGINS_NOWHERE);
    case RF_N_SET_BLOCK:
        return rf_note_target(r, frame, node->first, RF_BEGINS_NOWHERE);
    case RF_N_MACRO:
        return note_store(r, frame, node->name);
    case RF_N_CALL_BLOCK:
        return rf_note_expression(r, frame, node->first);
    case RF_N_FILTER_BLOCK:
        return rf_note_expression(r, frame, node->second);
    default:
        return 0;
    }
}

int rf_note_statements(struct rf_resolver *r, struct rf_scope_frame *frame,
                       const struct rf_nodes *body)
{
    for (size_t i = 0; i < body->count; i++)
        RETURN_IF_ERROR(note_statement(r, frame, body->list[i]));
    return 0;
}

/* Whether a name is read anywhere inside, inner frames included. */
static bool reads(const struct rf_node *node, const char *name);

bool rf_any_reads(const struct rf_nodes *nodes, const char *name)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->list[i] && reads(nodes->list[i], name))
            return true;
    return false;
}

static bool reads(const struct rf_node *node, const char *name)
{
    const struct rf_arguments *arguments = node->arguments;
    if (node->kind == RF_N_NAME && rf_string_is(node->name, name))
        return true;
    return (node->first && reads(node->first, name)) ||
           (node->second && reads(node->second, name)) ||
           (node->third && reads(node->third, name)) || rf_any_reads(&node->items, name) ||
           rf_any_reads(&node->defaults, name) || rf_any_reads(&node->body, name) ||
           rf_any_reads(&node->other, name) ||
           (arguments &&
            (rf_any_reads(&arguments->positional, name) || rf_any_reads(&arguments->named, name) ||
             (arguments->star && reads(arguments->star, name)) ||
             (arguments->stars && reads(arguments->stars, name))));
}
