/* SPDX-License-Identifier: MIT
 *
 * Evaluates expressions of a template during rendering; see eval.h.
 */
#include "eval.h"

#include "../base/base.h"
#include "arithmetic.h"
#include "show.h"

struct rf_value *rf_variable(struct rf_render *r, struct rf_ref ref)
{
    struct rf_activation *activation = r->activation;
    for (int i = 0; i < ref.out; i++)
        activation = activation->outer;
    return &activation->slots[ref.slot];
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int eval_list(struct rf_render *r, const struct rf_nodes *nodes, struct rf_list *out)
{
    struct rf_value value;
    for (size_t i = 0; i < nodes->count; i++) {
        RETURN_IF_ERROR(rf_eval(r, nodes->list[i], &value));
        RETURN_IF_ERROR(rf_list_add(r->room, out, value));
    }
    return 0;
}

static int add_named(struct rf_render *r, const struct rf_value *name, const struct rf_value *value,
                     struct rf_args *out)
{
    bool equal = false;
    if (name->kind != RF_V_STRING)
        return rf_room_fail(r->room, RF_ECORRUPT, "the name of an argument is no text");
    for (size_t i = 0; i < out->names.count && !equal; i++)
        RETURN_IF_ERROR(rf_value_equal(r->room, &out->names.items[i], name, &equal));
    if (equal)
        return rf_room_fail(r->room, RF_ECORRUPT, "a call has the same argument twice");
    RETURN_IF_ERROR(rf_list_add(r->room, &out->names, *name));
    return rf_list_add(r->room, &out->named, *value);
}

/* Evaluates *list and **dict. */
static int eval_stars(struct rf_render *r, const struct rf_arguments *arguments,
                      struct rf_list *positional, struct rf_args *out)
{
    struct rf_value value, item;
    struct rf_walk walk;
    int more = 0;
    if (arguments->star) {
        RETURN_IF_ERROR(rf_eval(r, arguments->star, &value));
        RETURN_IF_ERROR(rf_walk_begin(r->room, &value, &walk));
        while ((more = rf_walk_next(r->room, &walk, &item)) > 0)
            RETURN_IF_ERROR(rf_list_add(r->room, positional, item));
        RETURN_IF_ERROR(more);
    }
    if (!arguments->stars)
        return 0;
    RETURN_IF_ERROR(rf_eval(r, arguments->stars, &value));
    if (value.kind != RF_V_DICT)
        return rf_room_fail(r->room, RF_ECORRUPT, "** needs a dict");
    rf_dict_note_all(value.dict);
    for (size_t i = 0; i < value.dict->count; i++)
        RETURN_IF_ERROR(add_named(r, &value.dict->pairs[i].key, &value.dict->pairs[i].value, out));
    return 0;
}

static int eval_arguments(struct rf_render *r, const struct rf_arguments *arguments,
                          struct rf_args *out)
{
    struct rf_list positional = {0};
    struct rf_value value;
    *out = (struct rf_args){0};
    RETURN_IF_ERROR(eval_list(r, &arguments->positional, &positional));
    for (size_t i = 0; i < arguments->named.count; i++) {
        RETURN_IF_ERROR(rf_eval(r, arguments->named.list[i], &value));
        RETURN_IF_ERROR(add_named(r, &arguments->names.items[i], &value, out));
    }
    RETURN_IF_ERROR(eval_stars(r, arguments, &positional, out));
    out->positional = positional.items;
    out->count = positional.count;
    return 0;
}

static int call_undefined(struct rf_render *r, const struct rf_value *callee)
{
    const struct rf_string *name = callee->string;
    const int length = name ? (int)(name->count < 60 ? name->count : 60) : 9;
    const char *text = name ? name->bytes : "something";
    if (callee->refused)
        return rf_room_fail(r->room, RF_ECORRUPT, "templates may not change values (%.*s)", length,
                            text);
    return rf_room_fail(r->room, RF_ECORRUPT, "\"%.*s\" is called, and it is undefined", length,
                        text);
}

static int call_value(struct rf_render *r, const struct rf_value *callee,
                      const struct rf_args *args, struct rf_value *out)
{
    const struct rf_value nothing = {0};
    switch (callee->kind) {
    case RF_V_FUNCTION:
        return rf_builtin_call(r, callee->function, &nothing, args, out);
    case RF_V_METHOD:
        if (!callee->method->row)
            return rf_room_fail(r->room, RF_ENOTSUP, "this method of a %s is not implemented",
                                rf_kind_name(callee->method->of.kind));
        return rf_builtin_call(r, callee->method->row, &callee->method->of, args, out);
    case RF_V_MACRO:
        return r->run_macro(r, callee->macro, args, out);
    case RF_V_UNDEFINED:
        return call_undefined(r, callee);
    default:
        return rf_room_fail(r->room, RF_ECORRUPT, "a %s cannot be called",
                            rf_kind_name(callee->kind));
    }
}

int rf_eval_call(struct rf_render *r, const struct rf_node *node, const struct rf_value *caller,
                 struct rf_value *out)
{
    struct rf_value callee;
    struct rf_args args;
    RETURN_IF_ERROR(rf_room_enter(r->room));
    RETURN_IF_ERROR(rf_eval(r, node->first, &callee));
    RETURN_IF_ERROR(eval_arguments(r, node->arguments, &args));
    if (caller) {
        struct rf_string *name = rf_string_from(r->room, "caller");
        if (!name)
            return rf_last_error()->status;
        const struct rf_value key = rf_string_value(name);
        RETURN_IF_ERROR(add_named(r, &key, caller, &args));
    }
    r->room->line = node->line;
    RETURN_IF_ERROR(call_value(r, &callee, &args, out));
    rf_room_leave(r->room);
    return 0;
}

/* Applies a filter or test. */
static int eval_builtin(struct rf_render *r, const struct rf_node *node,
                        const struct rf_value *block, struct rf_value *out)
{
    struct rf_value of;
    struct rf_args args;
    if (node->first)
        RETURN_IF_ERROR(rf_eval_block(r, node->first, block, &of));
    else if (block)
        of = *block;
    else
        return rf_room_fail(r->room, RF_ECORRUPT, "a filter has nothing to filter");
    RETURN_IF_ERROR(eval_arguments(r, node->arguments, &args));
    r->room->line = node->line;
    if (!node->row)
        return rf_room_fail(r->room, RF_ECORRUPT, "there is no filter or test \"%.*s\"",
                            (int)(node->name->count < 60 ? node->name->count : 60),
                            node->name->bytes);
    return rf_builtin_call(r, node->row, &of, &args, out);
}

/* ---- others ---------------------------------------------------------------------------------- */

static int eval_name(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    *out = *rf_variable(r, node->ref);
    if (out->kind != RF_V_MISSING)
        return 0;
    /* Jinja2 treats loop variables as defined: a macro that was defined in the loop and outlives it
     * writes the word "missing" for them. */
    if (node->ref.by_loop)
        return rf_room_fail(r->room, RF_ENOTSUP, "the variable \"%.*s\" has lost its loop",
                            (int)(node->name->count < 60 ? node->name->count : 60),
                            node->name->bytes);
    *out = rf_undefined(node->name);
    return 0;
}

static int eval_sequence(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    RETURN_IF_ERROR(rf_list_make(r->room, node->kind == RF_N_LIST ? RF_V_LIST : RF_V_TUPLE, out));
    return eval_list(r, &node->items, out->list);
}

static int eval_dict(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_value key, value;
    RETURN_IF_ERROR(rf_dict_make(r->room, RF_V_DICT, out));
    for (size_t i = 0; i + 1 < node->items.count; i += 2) {
        RETURN_IF_ERROR(rf_eval(r, node->items.list[i], &key));
        RETURN_IF_ERROR(rf_eval(r, node->items.list[i + 1], &value));
        RETURN_IF_ERROR(rf_dict_put(r->room, out->dict, key, value));
    }
    return 0;
}

static int eval_slice(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_value of, bounds[3];
    RETURN_IF_ERROR(rf_eval(r, node->first, &of));
    for (size_t i = 0; i < 3; i++)
        if (node->items.list[i])
            RETURN_IF_ERROR(rf_eval(r, node->items.list[i], &bounds[i]));
        else
            bounds[i] = rf_none();
    r->room->line = node->line;
    return rf_get_slice(r, &of, &bounds[0], &bounds[1], &bounds[2], out);
}

/* a ~ b: concatenates without the safe mark. */
static int eval_join(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_build build = {0};
    struct rf_value value;
    struct rf_string *text;
    for (size_t i = 0; i < node->items.count; i++) {
        RETURN_IF_ERROR(rf_eval(r, node->items.list[i], &value));
        RETURN_IF_ERROR(rf_show(r->room, &value, &text));
        RETURN_IF_ERROR(rf_build_string(r->room, &build, text));
    }
    return rf_build_end(r->room, &build, false, out);
}

static int eval_choice(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    RETURN_IF_ERROR(rf_eval(r, node->first, out));
    if (rf_value_truth(out))
        return rf_eval(r, node->second, out);
    if (node->third)
        return rf_eval(r, node->third, out);
    *out = rf_undefined(NULL);
    return 0;
}

/* Evaluates the second operand only if the first one does not decide. */
static int eval_logic(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    RETURN_IF_ERROR(rf_eval(r, node->first, out));
    return rf_value_truth(out) == (node->kind == RF_N_AND) ? rf_eval(r, node->second, out) : 0;
}

static int eval_two(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_value a, b;
    bool truth;
    RETURN_IF_ERROR(rf_eval(r, node->first, &a));
    RETURN_IF_ERROR(rf_eval(r, node->second, &b));
    r->room->line = node->line;
    if (node->kind == RF_N_ITEM)
        return rf_get_item(r, &a, &b, out);
    if (node->kind != RF_N_COMPARE)
        return rf_calculate(r->room, node->kind, &a, &b, out);
    RETURN_IF_ERROR(rf_compare(r->room, node->compare, &a, &b, &truth));
    *out = rf_bool(truth);
    return 0;
}

static int eval_one(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    struct rf_value of;
    RETURN_IF_ERROR(rf_eval(r, node->first, &of));
    r->room->line = node->line;
    if (node->kind == RF_N_ATTRIBUTE)
        return rf_get_attribute(r, &of, node->name, out);
    if (node->kind != RF_N_NOT)
        return rf_sign(r->room, node->kind == RF_N_NEGATE, &of, out);
    *out = rf_bool(!rf_value_truth(&of));
    return 0;
}

static int eval_any(struct rf_render *r, const struct rf_node *node, const struct rf_value *block,
                    struct rf_value *out)
{
    switch (node->kind) {
    case RF_N_CONSTANT:
        *out = node->value;
        return 0;
    case RF_N_NAME:
        return eval_name(r, node, out);
    case RF_N_TUPLE:
    case RF_N_LIST:
        return eval_sequence(r, node, out);
    case RF_N_DICT:
        return eval_dict(r, node, out);
    case RF_N_SLICE:
        return eval_slice(r, node, out);
    case RF_N_CALL:
        return rf_eval_call(r, node, NULL, out);
    case RF_N_FILTER:
    case RF_N_TEST:
        return eval_builtin(r, node, block, out);
    case RF_N_AND:
    case RF_N_OR:
        return eval_logic(r, node, out);
    case RF_N_JOIN:
        return eval_join(r, node, out);
    case RF_N_CHOOSE:
        return eval_choice(r, node, out);
    case RF_N_ATTRIBUTE:
    case RF_N_NOT:
    case RF_N_NEGATE:
    case RF_N_PLUS:
        return eval_one(r, node, out);
    default:
        return eval_two(r, node, out);
    }
}

int rf_eval_block(struct rf_render *r, const struct rf_node *node, const struct rf_value *block,
                  struct rf_value *out)
{
    RETURN_IF_ERROR(rf_room_enter(r->room));
    RETURN_IF_ERROR(eval_any(r, node, block, out));
    rf_room_leave(r->room);
    return 0;
}

int rf_eval(struct rf_render *r, const struct rf_node *node, struct rf_value *out)
{
    return rf_eval_block(r, node, NULL, out);
}
