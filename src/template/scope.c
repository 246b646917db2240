/* SPDX-License-Identifier: MIT
 *
 * Resolves the names of a template to slots of functions; see scope.h. Frames of one function share
 * its slots, by name and depth, as they share Python's local variables in Jinja2's compiled code: a
 * macro that was defined in a loop sees the variables of the current round.
 */
#include "scope.h"

#include "../base/base.h"
#include "render.h"
#include "scope_frame.h"

/* ---- slots ----------------------------------------------------------------------------------- */

static int slot_of(struct rf_resolver *r, struct rf_scope_function *function,
                   struct rf_string *name, int level, int *out)
{
    RETURN_IF_ERROR(rf_room_spend(r->room, 1 + function->count / 8));
    for (size_t i = 0; i < function->count; i++)
        if (function->slots[i].level == level && rf_same_name(function->slots[i].name, name)) {
            *out = (int)i;
            return 0;
        }
    RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&function->slots, function->count,
                                 &function->capacity, sizeof(*function->slots)));
    function->slots[function->count].name = name;
    function->slots[function->count].level = level;
    *out = (int)function->count++;
    function->scope->slots = (int)function->count;
    return 0;
}

/* The place of the variable as seen from a function. */
static int ref_of(struct rf_resolver *r, const struct rf_scope_frame *owner,
                  const struct rf_scope_function *from, struct rf_string *name, struct rf_ref *out)
{
    out->out = 0;
    for (; from != owner->function; from = from->outer)
        out->out++;
    return slot_of(r, owner->function, name, owner->level, &out->slot);
}

static int add_slot(struct rf_resolver *r, struct rf_frame *out, int slot)
{
    RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&out->slots, out->slot_count,
                                 &out->slot_capacity, sizeof(*out->slots)));
    out->slots[out->slot_count++] = slot;
    return 0;
}

/* Writes how the frame sets its variables at its beginning. */
static int write_frame(struct rf_resolver *r, const struct rf_scope_frame *frame,
                       struct rf_frame *out)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct rf_scope_entry *entry = &frame->entries[i];
        struct rf_load load = {.name = entry->name};
        RETURN_IF_ERROR(slot_of(r, frame->function, entry->name, frame->level, &load.slot));
        RETURN_IF_ERROR(add_slot(r, out, load.slot));
        if (entry->beginning <= RF_BEGINS_BY_LOOP)
            continue;
        load.kind = entry->beginning == RF_BEGINS_IN_CONTEXT ? RF_LOAD_CONTEXT
                    : entry->beginning == RF_BEGINS_OUTSIDE  ? RF_LOAD_ALIAS
                                                             : RF_LOAD_NOTHING;
        if (load.kind == RF_LOAD_ALIAS)
            RETURN_IF_ERROR(ref_of(r, rf_frame_owner(frame->outer, entry->name), frame->function,
                                   entry->name, &load.from));
        if (load.kind == RF_LOAD_CONTEXT) {
            if (rf_function_is_missing(entry->name))
                return rf_fail_name(r, RF_ENOTSUP, "the function \"%s\" is not implemented",
                                    entry->name);
            RETURN_IF_ERROR(rf_list_add(r->room, r->context, rf_string_value(entry->name)));
        }
        RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&out->loads, out->count, &out->capacity,
                                     sizeof(*out->loads)));
        out->loads[out->count++] = load;
    }
    return 0;
}

/* ---- the names in the tree ------------------------------------------------------------------- */

static int resolve_name(struct rf_resolver *r, const struct rf_scope_frame *frame,
                        struct rf_node *node)
{
    const struct rf_scope_frame *owner = rf_frame_owner(frame, node->name);
    if (!owner)
        return rf_fail_name(r, RF_ENOTSUP, "the name \"%s\" is out of reach here", node->name);
    node->ref.by_loop = rf_frame_beginning(owner, node->name) == RF_BEGINS_BY_LOOP;
    return ref_of(r, owner, frame->function, node->name, &node->ref);
}

static int check_missing(struct rf_resolver *r, const struct rf_string *name, bool filter)
{
    if (filter ? !rf_filter_is_missing(name) : !rf_test_is_missing(name))
        return 0;
    return rf_fail_name(r, RF_ENOTSUP,
                        filter ? "the filter \"%s\" is not implemented"
                               : "the test \"%s\" is not implemented",
                        name);
}

/* Checks filters that apply other filters or tests, named by an argument. */
static int check_applied(struct rf_resolver *r, const struct rf_node *node)
{
    static const struct {
        const char *filter;
        size_t at;
        bool of_filter;
    } rows[] = {{"map", 0, true},
                {"select", 0, false},
                {"reject", 0, false},
                {"selectattr", 1, false},
                {"rejectattr", 1, false}};
    for (size_t i = 0; node->arguments && i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct rf_nodes *given = &node->arguments->positional;
        if (!rf_string_is(node->name, rows[i].filter) || given->count <= rows[i].at)
            continue;
        const struct rf_node *name = given->list[rows[i].at];
        if (name->kind == RF_N_CONSTANT && name->value.kind == RF_V_STRING)
            return check_missing(r, name->value.string, rows[i].of_filter);
    }
    return 0;
}

/* Refuses filters, tests, methods and attributes that do not exist. soft: within a condition, where
 * Jinja2 refuses them only when called. */
static int check_names(struct rf_resolver *r, struct rf_node *node, bool soft)
{
    r->room->line = node->line;
    if (node->kind == RF_N_CALL && node->first->kind == RF_N_ATTRIBUTE &&
        rf_method_is_missing(node->first->name))
        return rf_fail_name(r, RF_ENOTSUP, "the method \"%s\" is not implemented",
                            node->first->name);
    if (node->kind == RF_N_ATTRIBUTE && node->first->kind == RF_N_NAME &&
        rf_string_is(node->first->name, "loop") && rf_word_in("cycle changed", node->name))
        return rf_fail_name(r, RF_ENOTSUP, "loop.%s is not implemented", node->name);
    if (node->kind != RF_N_FILTER && node->kind != RF_N_TEST)
        return 0;
    const bool filter = node->kind == RF_N_FILTER;
    node->row = filter ? rf_filter_find(node->name) : rf_test_find(node->name);
    RETURN_IF_ERROR(check_missing(r, node->name, filter));
    if (filter)
        RETURN_IF_ERROR(check_applied(r, node));
    if (node->row || soft)
        return 0;
    return rf_fail_name(r, RF_ECORRUPT,
                        filter ? "there is no filter \"%s\"" : "there is no test \"%s\"",
                        node->name);
}

static int resolve_expression(struct rf_resolver *r, const struct rf_scope_frame *frame,
                              struct rf_node *node, bool soft);

static int resolve_expressions(struct rf_resolver *r, const struct rf_scope_frame *frame,
                               const struct rf_nodes *nodes, bool soft)
{
    for (size_t i = 0; i < nodes->count; i++)
        RETURN_IF_ERROR(resolve_expression(r, frame, nodes->list[i], soft));
    return 0;
}

static int resolve_expression(struct rf_resolver *r, const struct rf_scope_frame *frame,
                              struct rf_node *node, bool soft)
{
    if (!node)
        return 0;
    soft = soft || node->kind == RF_N_CHOOSE;
    RETURN_IF_ERROR(check_names(r, node, soft));
    if (node->kind == RF_N_NAME)
        RETURN_IF_ERROR(resolve_name(r, frame, node));
    RETURN_IF_ERROR(resolve_expression(r, frame, node->first, soft));
    RETURN_IF_ERROR(resolve_expression(r, frame, node->second, soft));
    RETURN_IF_ERROR(resolve_expression(r, frame, node->third, soft));
    RETURN_IF_ERROR(resolve_expressions(r, frame, &node->items, soft));
    if (!node->arguments)
        return 0;
    RETURN_IF_ERROR(resolve_expressions(r, frame, &node->arguments->positional, soft));
    RETURN_IF_ERROR(resolve_expressions(r, frame, &node->arguments->named, soft));
    RETURN_IF_ERROR(resolve_expression(r, frame, node->arguments->star, soft));
    return resolve_expression(r, frame, node->arguments->stars, soft);
}

static int resolve_target(struct rf_resolver *r, const struct rf_scope_frame *frame,
                          struct rf_node *target)
{
    if (target->kind != RF_N_TUPLE)
        return resolve_name(r, frame, target);
    for (size_t i = 0; i < target->items.count; i++)
        RETURN_IF_ERROR(resolve_name(r, frame, target->items.list[i]));
    return 0;
}

static int resolve_statements(struct rf_resolver *r, const struct rf_scope_frame *frame,
                              const struct rf_nodes *body, bool soft);

static struct rf_scope_frame inner_frame(struct rf_scope_frame *outer,
                                         struct rf_scope_function *function)
{
    return (struct rf_scope_frame){outer, function, outer->level + 1, NULL, 0, 0};
}

static int make_scope(struct rf_resolver *r, struct rf_node *node, struct rf_scope_function *outer,
                      struct rf_scope_function *out)
{
    node->scope = rf_room_take(r->room, sizeof(*node->scope));
    if (!node->scope)
        return rf_last_error()->status;
    node->scope->caller = -1;
    *out = (struct rf_scope_function){.outer = outer, .scope = node->scope};
    return 0;
}

static int make_frame(struct rf_resolver *r, struct rf_node *node)
{
    node->frame = rf_room_take(r->room, sizeof(*node->frame));
    return node->frame ? 0 : rf_last_error()->status;
}

/* Copies a loop's target. The names of the copy are slots of the loop's condition. */
static int copy_target(struct rf_resolver *r, const struct rf_node *from, struct rf_node **out)
{
    *out = rf_room_take(r->room, sizeof(**out));
    if (!*out)
        return rf_last_error()->status;
    **out = *from;
    (*out)->items = (struct rf_nodes){0};
    for (size_t i = 0; i < from->items.count; i++) {
        struct rf_node *item = NULL;
        RETURN_IF_ERROR(copy_target(r, from->items.list[i], &item));
        RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&(*out)->items.list, i,
                                     &(*out)->items.capacity, sizeof(item)));
        (*out)->items.list[(*out)->items.count++] = item;
    }
    return 0;
}

/* The condition of a loop is a function with the target as its variables. */
static int resolve_condition(struct rf_resolver *r, struct rf_scope_frame *frame,
                             struct rf_node *node)
{
    struct rf_scope_function function;
    struct rf_node *target = NULL;
    RETURN_IF_ERROR(make_scope(r, node, frame->function, &function));
    struct rf_scope_frame inner = inner_frame(frame, &function);
    RETURN_IF_ERROR(rf_note_target(r, &inner, node->first, RF_BEGINS_BY_CALL));
    RETURN_IF_ERROR(rf_note_expression(r, &inner, node->third));
    RETURN_IF_ERROR(write_frame(r, &inner, &node->scope->frame));
    RETURN_IF_ERROR(copy_target(r, node->first, &target));
    RETURN_IF_ERROR(resolve_target(r, &inner, target));
    RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&node->items.list, 0, &node->items.capacity,
                                 sizeof(target)));
    node->items.list[node->items.count++] = target;
    return resolve_expression(r, &inner, node->third, false);
}

static int resolve_for(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_node *node,
                       bool soft)
{
    struct rf_scope_frame inner = inner_frame(frame, frame->function);
    RETURN_IF_ERROR(resolve_expression(r, frame, node->second, soft));
    if (node->third)
        RETURN_IF_ERROR(resolve_condition(r, frame, node));
    if (rf_any_reads(&node->body, "loop")) {
        struct rf_string *loop = rf_string_from(r->room, "loop");
        if (!loop)
            return rf_last_error()->status;
        RETURN_IF_ERROR(rf_frame_define(r, &inner, loop, RF_BEGINS_BY_LOOP, true));
        RETURN_IF_ERROR(slot_of(r, frame->function, loop, inner.level, &node->loop));
    }
    RETURN_IF_ERROR(rf_note_target(r, &inner, node->first, RF_BEGINS_BY_LOOP));
    RETURN_IF_ERROR(rf_note_statements(r, &inner, &node->body));
    RETURN_IF_ERROR(make_frame(r, node));
    RETURN_IF_ERROR(write_frame(r, &inner, node->frame));
    RETURN_IF_ERROR(resolve_target(r, &inner, node->first));
    frame->function->loops++;
    RETURN_IF_ERROR(resolve_statements(r, &inner, &node->body, false));
    frame->function->loops--;
    return 0;
}

/* Resolves a macro, a called block or a generation, each a function. */
static int resolve_macro(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_node *node)
{
    struct rf_scope_function function;
    RETURN_IF_ERROR(make_scope(r, node, frame->function, &function));
    struct rf_scope_frame inner = inner_frame(frame, &function);
    for (size_t i = 0; i < node->items.count; i++)
        RETURN_IF_ERROR(rf_note_target(r, &inner, node->items.list[i], RF_BEGINS_BY_CALL));
    if (rf_any_reads(&node->body, "caller")) {
        struct rf_string *caller = rf_string_from(r->room, "caller");
        if (!caller)
            return rf_last_error()->status;
        RETURN_IF_ERROR(rf_frame_define(r, &inner, caller, RF_BEGINS_BY_CALL, true));
        RETURN_IF_ERROR(slot_of(r, &function, caller, inner.level, &node->scope->caller));
    }
    RETURN_IF_ERROR(rf_note_expressions(r, &inner, &node->defaults));
    RETURN_IF_ERROR(rf_note_statements(r, &inner, &node->body));
    RETURN_IF_ERROR(write_frame(r, &inner, &node->scope->frame));
    for (size_t i = 0; i < node->items.count; i++)
        RETURN_IF_ERROR(resolve_target(r, &inner, node->items.list[i]));
    RETURN_IF_ERROR(resolve_expressions(r, &inner, &node->defaults, false));
    return resolve_statements(r, &inner, &node->body, false);
}

static int resolve_block(struct rf_resolver *r, struct rf_scope_frame *frame, struct rf_node *node)
{
    struct rf_scope_frame inner = inner_frame(frame, frame->function);
    RETURN_IF_ERROR(rf_note_statements(r, &inner, &node->body));
    if (node->kind == RF_N_FILTER_BLOCK)
        RETURN_IF_ERROR(rf_note_expression(r, &inner, node->second));
    RETURN_IF_ERROR(make_frame(r, node));
    RETURN_IF_ERROR(write_frame(r, &inner, node->frame));
    RETURN_IF_ERROR(resolve_statements(r, &inner, &node->body, false));
    RETURN_IF_ERROR(resolve_expression(r, &inner, node->second, false));
    return node->kind == RF_N_SET_BLOCK ? resolve_target(r, frame, node->first) : 0;
}

static int resolve_statement(struct rf_resolver *r, struct rf_scope_frame *frame,
                             struct rf_node *node, bool soft)
{
    r->room->line = node->line;
    switch (node->kind) {
    case RF_N_OUTPUT:
        return resolve_expression(r, frame, node->first, soft);
    case RF_N_FOR:
        return resolve_for(r, frame, node, soft);
    case RF_N_IF:
        RETURN_IF_ERROR(resolve_expression(r, frame, node->first, true));
        RETURN_IF_ERROR(resolve_statements(r, frame, &node->body, true));
        RETURN_IF_ERROR(resolve_statements(r, frame, &node->items, true));
        return resolve_statements(r, frame, &node->other, true);
    case RF_N_SET:
        RETURN_IF_ERROR(resolve_expression(r, frame, node->second, soft));
        return resolve_target(r, frame, node->first);
    case RF_N_CALL_BLOCK:
        RETURN_IF_ERROR(resolve_macro(r, frame, node));
        return resolve_expression(r, frame, node->first, soft);
    case RF_N_MACRO: {
        struct rf_node name = {.kind = RF_N_NAME, .name = node->name};
        RETURN_IF_ERROR(resolve_macro(r, frame, node));
        RETURN_IF_ERROR(resolve_name(r, frame, &name));
        node->ref = name.ref;
        return 0;
    }
    case RF_N_GENERATION:
        return resolve_macro(r, frame, node);
    case RF_N_SET_BLOCK:
    case RF_N_FILTER_BLOCK:
        return resolve_block(r, frame, node);
    case RF_N_BREAK:
    case RF_N_CONTINUE:
        return frame->function->loops > 0
                   ? 0
                   : rf_room_fail(r->room, RF_ECORRUPT,
                                  "break and continue have to be in a loop, and in the macro or "
                                  "block of that loop");
    default:
        return 0;
    }
}

static int resolve_statements(struct rf_resolver *r, const struct rf_scope_frame *frame,
                              const struct rf_nodes *body, bool soft)
{
    for (size_t i = 0; i < body->count; i++)
        RETURN_IF_ERROR(resolve_statement(r, (struct rf_scope_frame *)frame, body->list[i], soft));
    return 0;
}

int rf_scope_resolve(struct rf_room *room, const struct rf_nodes *body, struct rf_scope *out,
                     struct rf_list *context)
{
    struct rf_resolver r = {room, context};
    struct rf_scope_function function = {.scope = out};
    struct rf_scope_frame frame = {.function = &function};
    out->caller = -1;
    RETURN_IF_ERROR(rf_note_statements(&r, &frame, body));
    RETURN_IF_ERROR(write_frame(&r, &frame, &out->frame));
    RETURN_IF_ERROR(resolve_statements(&r, &frame, body, false));
    room->line = 0;
    return 0;
}
