/* SPDX-License-Identifier: MIT
 *
 * Runs statements of a template during rendering; see run.h.
 */
#include "run.h"

#include "../base/base.h"
#include "../tokenizer/lists.h"
#include "eval.h"
#include "show.h"

/* How a body ended. */
enum flow { GOES_ON, BREAKS, CONTINUES };

static int run_body(struct rf_render *r, const struct rf_nodes *body, enum flow *flow);

/* ---- output ---------------------------------------------------------------------------------- */

static int emit(struct rf_render *r, struct rf_string *text)
{
    if (r->buffer)
        return rf_build_string(r->room, r->buffer, text);
    RETURN_IF_ERROR(rf_room_spend(r->room, 1 + text->count / 16));
    if (text->count > r->room->most - r->page->count)
        return rf_room_fail(r->room, RF_ENOTSUP, "writes more than %zu MiB", r->room->most >> 20);
    rf_origin_write(text->from);
    r->page_letters += rf_string_letters(text);
    return rf_text_add(r->page, text->bytes, text->count);
}

static int emit_value(struct rf_render *r, const struct rf_value *value)
{
    struct rf_string *text;
    RETURN_IF_ERROR(rf_show(r->room, value, &text));
    return emit(r, text);
}

/* ---- variables ------------------------------------------------------------------------------- */

static int enter_frame(struct rf_render *r, const struct rf_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++) {
        const struct rf_load *load = &frame->loads[i];
        struct rf_value *slot = &r->activation->slots[load->slot];
        struct rf_pair *pair;
        RETURN_IF_ERROR(rf_room_spend(r->room, 1));
        *slot = (struct rf_value){0};
        if (load->kind == RF_LOAD_ALIAS)
            *slot = *rf_variable(r, load->from);
        if (load->kind != RF_LOAD_CONTEXT)
            continue;
        RETURN_IF_ERROR(rf_dict_find(r->room, r->context, rf_string_value(load->name), &pair));
        const struct rf_builtin *function = pair ? NULL : rf_function_find(load->name);
        if (pair)
            *slot = pair->value;
        else if (function)
            *slot = (struct rf_value){.kind = RF_V_FUNCTION, .function = function};
    }
    return 0;
}

static void leave_frame(struct rf_render *r, const struct rf_frame *frame)
{
    for (size_t i = 0; i < frame->slot_count; i++)
        r->activation->slots[frame->slots[i]] = (struct rf_value){0};
}

static int make_activation(struct rf_render *r, const struct rf_scope *scope,
                           struct rf_activation *outer, struct rf_activation **out)
{
    struct rf_activation *made = rf_room_take(r->room, sizeof(*made));
    struct rf_value *slots =
        made ? rf_room_take(r->room, ((size_t)scope->slots + 1) * sizeof(*slots)) : NULL;
    if (!slots)
        return rf_last_error()->status;
    *made = (struct rf_activation){outer, slots};
    *out = made;
    return 0;
}

static int assign_one(struct rf_render *r, const struct rf_node *target,
                      const struct rf_value *value)
{
    struct rf_value *slot = rf_variable(r, target->ref);
    if (target->kind == RF_N_NAME) {
        *slot = *value;
        return 0;
    }
    if (slot->kind != RF_V_NAMESPACE)
        return rf_room_fail(r->room, RF_ECORRUPT, "an attribute is set of what is no namespace");
    if (target->attribute->bytes[0] == '_')
        return rf_room_fail(r->room, RF_ECORRUPT, "a namespace has no names with _ in front");
    return rf_dict_put(r->room, slot->dict, rf_string_value(target->attribute), *value);
}

static int assign(struct rf_render *r, const struct rf_node *target, const struct rf_value *value)
{
    struct rf_value all;
    if (target->kind != RF_N_TUPLE)
        return assign_one(r, target, value);
    RETURN_IF_ERROR(rf_collect(r, value, &all));
    if (all.list->count != target->items.count)
        return rf_room_fail(r->room, RF_ECORRUPT, "%zu values for %zu variables", all.list->count,
                            target->items.count);
    for (size_t i = 0; i < all.list->count; i++)
        RETURN_IF_ERROR(assign_one(r, target->items.list[i], &all.list->items[i]));
    return 0;
}

/* ---- macros and blocks ----------------------------------------------------------------------- */

static bool same(const struct rf_string *a, const struct rf_string *b)
{
    return a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

/* The slot of the parameter; NULL: no such parameter. */
static struct rf_value *parameter(struct rf_render *r, const struct rf_node *node,
                                  const struct rf_string *name)
{
    for (size_t i = 0; i < node->items.count; i++)
        if (same(node->items.list[i]->name, name))
            return rf_variable(r, node->items.list[i]->ref);
    return node->scope->caller >= 0 && rf_string_is(name, "caller")
               ? &r->activation->slots[node->scope->caller]
               : NULL;
}

static int bind(struct rf_render *r, const struct rf_node *node, const struct rf_args *args)
{
    if (args->count > node->items.count)
        return rf_room_fail(r->room, RF_ECORRUPT, "a macro takes %zu arguments, and %zu are given",
                            node->items.count, args->count);
    for (size_t i = 0; i < args->count; i++)
        *rf_variable(r, node->items.list[i]->ref) = args->positional[i];
    for (size_t i = 0; i < args->names.count; i++) {
        const struct rf_string *name = args->names.items[i].string;
        struct rf_value *slot = parameter(r, node, name);
        if (!slot || slot->kind != RF_V_MISSING)
            return rf_room_fail(r->room, RF_ECORRUPT, "a macro takes no argument \"%.*s\" here",
                                (int)(name->count < 60 ? name->count : 60), name->bytes);
        *slot = args->named.items[i];
    }
    return 0;
}

/* Sets parameters that were not given. */
static int fill_in(struct rf_render *r, const struct rf_node *node)
{
    const size_t without = node->items.count - node->defaults.count;
    for (size_t i = 0; i < node->items.count; i++) {
        const struct rf_node *item = node->items.list[i];
        struct rf_value value;
        if (rf_variable(r, item->ref)->kind != RF_V_MISSING)
            continue;
        if (i >= without)
            RETURN_IF_ERROR(rf_eval(r, node->defaults.list[i - without], &value));
        else
            value = rf_undefined(item->name);
        *rf_variable(r, item->ref) = value;
    }
    struct rf_value *caller =
        node->scope->caller >= 0 ? &r->activation->slots[node->scope->caller] : NULL;
    if (caller && caller->kind == RF_V_MISSING)
        *caller = rf_undefined(NULL);
    return 0;
}

/* Runs a body whose text is a value. */
static int capture(struct rf_render *r, const struct rf_nodes *body, enum flow *flow,
                   struct rf_value *out)
{
    struct rf_build *const around = r->buffer;
    struct rf_build build = {0};
    r->buffer = &build;
    RETURN_IF_ERROR(run_body(r, body, flow));
    r->buffer = around;
    return rf_build_end(r->room, &build, false, out);
}

static int run_macro(struct rf_render *r, const struct rf_macro *macro, const struct rf_args *args,
                     struct rf_value *out)
{
    const struct rf_node *node = macro->node;
    struct rf_activation *const around = r->activation;
    struct rf_activation *inner = NULL;
    enum flow flow = GOES_ON;
    RETURN_IF_ERROR(make_activation(r, node->scope, macro->outer, &inner));
    r->activation = inner;
    RETURN_IF_ERROR(bind(r, node, args));
    RETURN_IF_ERROR(enter_frame(r, &node->scope->frame));
    RETURN_IF_ERROR(fill_in(r, node));
    RETURN_IF_ERROR(capture(r, &node->body, &flow, out));
    r->activation = around;
    return 0;
}

static int make_macro(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_macro *macro = rf_room_take(r->room, sizeof(*macro));
    if (!macro)
        return rf_last_error()->status;
    *macro = (struct rf_macro){node, r->activation};
    *out = (struct rf_value){.kind = RF_V_MACRO, .macro = macro};
    return 0;
}

static int need_text(struct rf_render *r, const struct rf_value *value)
{
    return value->kind == RF_V_STRING
               ? 0
               : rf_room_fail(r->room, RF_ECORRUPT, "a block makes a %s, and no text",
                              rf_kind_name(value->kind));
}

static int run_call_block(struct rf_render *r, const struct rf_node *node)
{
    struct rf_value caller, value;
    RETURN_IF_ERROR(make_macro(r, node, &caller));
    RETURN_IF_ERROR(rf_eval_call(r, node->first, &caller, &value));
    RETURN_IF_ERROR(need_text(r, &value));
    return emit(r, value.string);
}

/* The block's output is marked at the place where it would be written to the page now. */
static int run_generation(struct rf_render *r, const struct rf_node *node)
{
    const struct rf_macro macro = {node, r->activation};
    const struct rf_args none = {0};
    struct rf_value text;
    RETURN_IF_ERROR(run_macro(r, &macro, &none, &text));
    RETURN_IF_ERROR(rf_room_grow(r->room, (void **)&r->spans, r->span_count, &r->span_capacity,
                                 sizeof(*r->spans)));
    r->spans[r->span_count++] = (struct rf_span){
        r->page_letters, r->page_letters + rf_string_letters(text.string), r->message};
    return emit(r, text.string);
}

/* Runs a block that sets a variable, or whose text is filtered. */
static int run_block(struct rf_render *r, const struct rf_node *node, enum flow *flow)
{
    struct rf_value text;
    RETURN_IF_ERROR(enter_frame(r, node->frame));
    RETURN_IF_ERROR(capture(r, &node->body, flow, &text));
    if (*flow != GOES_ON)
        return 0;
    if (node->second) {
        const struct rf_value block = text;
        RETURN_IF_ERROR(rf_eval_block(r, node->second, &block, &text));
    }
    if (node->kind == RF_N_SET_BLOCK) {
        RETURN_IF_ERROR(assign(r, node->first, &text));
    } else {
        RETURN_IF_ERROR(need_text(r, &text));
        RETURN_IF_ERROR(emit(r, text.string));
    }
    leave_frame(r, node->frame);
    return 0;
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* Whether an item passes the condition of a loop. */
static int passes(struct rf_render *r, struct rf_loop *loop, const struct rf_value *item, bool *out)
{
    struct rf_activation *const around = r->activation;
    struct rf_value truth;
    if (!loop->inner) {
        RETURN_IF_ERROR(make_activation(r, loop->node->scope, loop->outer, &loop->inner));
        r->activation = loop->inner;
        RETURN_IF_ERROR(enter_frame(r, &loop->node->scope->frame));
    }
    r->activation = loop->inner;
    RETURN_IF_ERROR(assign(r, loop->node->items.list[0], item));
    RETURN_IF_ERROR(rf_eval(r, loop->node->third, &truth));
    r->activation = around;
    *out = rf_value_truth(&truth);
    return 0;
}

static int pull(struct rf_render *r, struct rf_loop *loop, struct rf_value *out)
{
    bool pass = true;
    int more;
    do {
        more = rf_walk_next(r->room, &loop->walk, out);
        if (more > 0 && loop->node->third)
            RETURN_IF_ERROR(passes(r, loop, out, &pass));
    } while (more > 0 && !pass);
    return more;
}

static int run_round(struct rf_render *r, const struct rf_node *node, struct rf_loop *loop,
                     const struct rf_value *item, enum flow *flow)
{
    const int around = r->message;
    RETURN_IF_ERROR(assign(r, node->first, item));
    if (node->loop >= 0)
        r->activation->slots[node->loop] = (struct rf_value){.kind = RF_V_LOOP, .loop = loop};
    RETURN_IF_ERROR(enter_frame(r, node->frame));
    if (item->kind == RF_V_DICT && item->dict->message > 0)
        r->message = item->dict->message;
    *flow = GOES_ON;
    RETURN_IF_ERROR(run_body(r, &node->body, flow));
    r->message = around;
    return 0;
}

static int run_for(struct rf_render *r, const struct rf_node *node)
{
    struct rf_loop *loop = rf_room_take(r->room, sizeof(*loop));
    struct rf_value of, item;
    enum flow flow = GOES_ON;
    int more = 0;
    if (!loop)
        return rf_last_error()->status;
    RETURN_IF_ERROR(rf_eval(r, node->second, &of));
    *loop = (struct rf_loop){.pull = pull, .node = node, .outer = r->activation, .index = SIZE_MAX};
    RETURN_IF_ERROR(rf_walk_begin(r->room, &of, &loop->walk));
    while (flow != BREAKS && (more = rf_loop_next(r, loop, &item)) > 0)
        RETURN_IF_ERROR(run_round(r, node, loop, &item, &flow));
    RETURN_IF_ERROR(more);
    leave_frame(r, node->frame);
    return 0;
}

/* ---- statements ------------------------------------------------------------------------------ */

static int run_if(struct rf_render *r, const struct rf_node *node, enum flow *flow)
{
    struct rf_value truth;
    RETURN_IF_ERROR(rf_eval(r, node->first, &truth));
    if (rf_value_truth(&truth))
        return run_body(r, &node->body, flow);
    for (size_t i = 0; i < node->items.count; i++) {
        const struct rf_node *branch = node->items.list[i];
        RETURN_IF_ERROR(rf_eval(r, branch->first, &truth));
        if (rf_value_truth(&truth))
            return run_body(r, &branch->body, flow);
    }
    return run_body(r, &node->other, flow);
}

static int run_set(struct rf_render *r, const struct rf_node *node)
{
    struct rf_value value;
    RETURN_IF_ERROR(rf_eval(r, node->second, &value));
    return assign(r, node->first, &value);
}

static int run_statement(struct rf_render *r, const struct rf_node *node, enum flow *flow)
{
    struct rf_value value;
    r->room->line = node->line;
    switch (node->kind) {
    case RF_N_DATA:
        return emit(r, node->value.string);
    case RF_N_OUTPUT:
        RETURN_IF_ERROR(rf_eval(r, node->first, &value));
        return emit_value(r, &value);
    case RF_N_FOR:
        return run_for(r, node);
    case RF_N_IF:
        return run_if(r, node, flow);
    case RF_N_SET:
        return run_set(r, node);
    case RF_N_MACRO:
        RETURN_IF_ERROR(make_macro(r, node, &value));
        *rf_variable(r, node->ref) = value;
        return 0;
    case RF_N_CALL_BLOCK:
        return run_call_block(r, node);
    case RF_N_GENERATION:
        return run_generation(r, node);
    case RF_N_SET_BLOCK:
    case RF_N_FILTER_BLOCK:
        return run_block(r, node, flow);
    default:
        *flow = node->kind == RF_N_BREAK ? BREAKS : CONTINUES;
        return 0;
    }
}

static int run_body(struct rf_render *r, const struct rf_nodes *body, enum flow *flow)
{
    RETURN_IF_ERROR(rf_room_enter(r->room));
    for (size_t i = 0; i < body->count && *flow == GOES_ON; i++)
        RETURN_IF_ERROR(run_statement(r, body->list[i], flow));
    rf_room_leave(r->room);
    return 0;
}

int rf_run_template(struct rf_render *r, const struct rf_scope *scope, const struct rf_nodes *body)
{
    enum flow flow = GOES_ON;
    r->run_macro = run_macro;
    RETURN_IF_ERROR(make_activation(r, scope, NULL, &r->activation));
    RETURN_IF_ERROR(enter_frame(r, &scope->frame));
    return run_body(r, body, &flow);
}
