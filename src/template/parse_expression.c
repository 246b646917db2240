/* SPDX-License-Identifier: MIT
 *
 * Expressions of templates; see parse.h. Each function is a rule of Jinja2's parser, with its name.
 */
#include "../base/base.h"
#include "parse.h"

/* ---- the smallest parts ---------------------------------------------------------------------- */

static int parse_unary(struct rf_parser *p, bool filters, struct rf_node **out);
static int parse_or(struct rf_parser *p, struct rf_node **out);

static int make_constant(struct rf_parser *p, struct rf_value value, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_CONSTANT, out));
    (*out)->value = value;
    return 0;
}

/* Adjacent texts are concatenated. */
static int parse_text(struct rf_parser *p, struct rf_node **out)
{
    struct rf_value whole = rf_string_value((p->token++)->string);
    RETURN_IF_ERROR(make_constant(p, whole, out));
    while (p->token->kind == RF_T_STRING) {
        const struct rf_string *more = (p->token++)->string;
        const struct rf_string *text = (*out)->value.string;
        char *bytes = rf_room_take(p->room, text->count + more->count + 1);
        if (!bytes)
            return rf_last_error()->status;
        RETURN_IF_ERROR(rf_room_spend(p->room, 1 + text->count / 16));
        memcpy(bytes, text->bytes, text->count);
        memcpy(bytes + text->count, more->bytes, more->count);
        struct rf_string *both =
            rf_string_of(p->room, bytes, text->count + more->count, NULL, false);
        if (!both)
            return rf_last_error()->status;
        (*out)->value = rf_string_value(both);
    }
    return 0;
}

static int parse_name(struct rf_parser *p, bool namespaces, struct rf_node **out)
{
    struct rf_string *name = p->token->string;
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (int i = 0; i < 6; i++)
        if (rf_string_is(name, words[i])) {
            p->token++;
            return make_constant(p, i < 4 ? rf_bool(i < 2) : rf_none(), out);
        }
    p->token++;
    if (!namespaces || !rf_pass_operator(p, ".")) {
        RETURN_IF_ERROR(rf_node_make(p, RF_N_NAME, out));
        (*out)->name = name;
        return 0;
    }
    RETURN_IF_ERROR(rf_node_make(p, RF_N_NAMESPACE, out));
    (*out)->name = name;
    (*out)->attribute = p->token->string;
    return rf_expect(p, RF_T_NAME, "the name of an attribute");
}

/* Parses expressions separated by commas, up to a bracket, which is passed. */
static int parse_until(struct rf_parser *p, const char *bracket, bool pairs, struct rf_nodes *items)
{
    struct rf_node *item = NULL;
    while (!rf_at_operator(p, bracket)) {
        if (items->count > 0) {
            RETURN_IF_ERROR(rf_expect_operator(p, ","));
            if (rf_at_operator(p, bracket))
                break;
        }
        RETURN_IF_ERROR(rf_parse_expression(p, &item));
        RETURN_IF_ERROR(rf_nodes_add(p->room, items, item));
        if (!pairs)
            continue;
        RETURN_IF_ERROR(rf_expect_operator(p, ":"));
        RETURN_IF_ERROR(rf_parse_expression(p, &item));
        RETURN_IF_ERROR(rf_nodes_add(p->room, items, item));
    }
    p->token++;
    return 0;
}

/* "(a)", "(a, b)", "()". */
static int parse_parentheses(struct rf_parser *p, struct rf_node **out)
{
    p->token++;
    if (rf_pass_operator(p, ")"))
        return rf_node_make(p, RF_N_TUPLE, out);
    RETURN_IF_ERROR(rf_parse_tuple(p, true, out));
    return rf_expect_operator(p, ")");
}

static int parse_primary(struct rf_parser *p, bool namespaces, struct rf_node **out)
{
    char text[48];
    if (p->token->kind == RF_T_NAME)
        return parse_name(p, namespaces, out);
    if (p->token->kind == RF_T_STRING)
        return parse_text(p, out);
    if (p->token->kind == RF_T_INTEGER)
        return make_constant(p, rf_whole((p->token++)->whole), out);
    if (rf_at_operator(p, "("))
        return parse_parentheses(p, out);
    const bool list = rf_at_operator(p, "[");
    if (!list && !rf_at_operator(p, "{"))
        return rf_parse_fail(p, RF_ECORRUPT, "an expression is expected, and not %s",
                             rf_describe_word(p, text));
    RETURN_IF_ERROR(rf_node_make(p, list ? RF_N_LIST : RF_N_DICT, out));
    p->token++;
    return parse_until(p, list ? "]" : "}", !list, &(*out)->items);
}

/* ---- what follows them ----------------------------------------------------------------------- */

static int parse_argument(struct rf_parser *p, struct rf_arguments *out)
{
    struct rf_node *value = NULL;
    if (rf_at_operator(p, "*") || rf_at_operator(p, "**")) {
        struct rf_node **star = rf_at_operator(p, "*") ? &out->star : &out->stars;
        p->token++;
        if (*star || out->stars)
            return rf_parse_fail(p, RF_ECORRUPT, "the arguments of a call are out of order");
        return rf_parse_expression(p, star);
    }
    if (p->token->kind == RF_T_NAME && p->token[1].kind == RF_T_OPERATOR &&
        strcmp(p->token[1].sign, "=") == 0) {
        struct rf_string *name = p->token->string;
        p->token += 2;
        if (out->stars)
            return rf_parse_fail(p, RF_ECORRUPT, "the arguments of a call are out of order");
        RETURN_IF_ERROR(rf_parse_expression(p, &value));
        for (size_t i = 0; i < out->names.count; i++)
            if (out->names.items[i].string->count == name->count &&
                memcmp(out->names.items[i].string->bytes, name->bytes, name->count) == 0)
                return rf_parse_fail(p, RF_ECORRUPT, "a call has the same argument twice");
        RETURN_IF_ERROR(rf_nodes_add(p->room, &out->named, value));
        return rf_list_add(p->room, &out->names, rf_string_value(name));
    }
    if (out->named.count > 0 || out->star || out->stars)
        return rf_parse_fail(p, RF_ECORRUPT, "the arguments of a call are out of order");
    RETURN_IF_ERROR(rf_parse_expression(p, &value));
    return rf_nodes_add(p->room, &out->positional, value);
}

/* "(a, b=c, *d, **e)"; no arguments without "(". */
static int parse_arguments(struct rf_parser *p, struct rf_arguments **out)
{
    *out = rf_room_take(p->room, sizeof(**out));
    if (!*out)
        return rf_last_error()->status;
    if (!rf_pass_operator(p, "("))
        return 0;
    for (bool first = true; !rf_at_operator(p, ")"); first = false) {
        if (!first) {
            RETURN_IF_ERROR(rf_expect_operator(p, ","));
            if (rf_at_operator(p, ")"))
                break;
        }
        RETURN_IF_ERROR(parse_argument(p, *out));
    }
    p->token++;
    return 0;
}

/* "[a]", "[a:b:c]". */
static int parse_subscript(struct rf_parser *p, struct rf_node *of, struct rf_node **out)
{
    struct rf_node *part = NULL;
    p->token++;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_ITEM, out));
    (*out)->first = of;
    if (!rf_at_operator(p, ":"))
        RETURN_IF_ERROR(rf_parse_expression(p, &part));
    if (!rf_at_operator(p, ":")) {
        (*out)->second = part;
        if (rf_at_operator(p, ","))
            return rf_parse_fail(p, RF_ENOTSUP, "several subscripts are not implemented");
        return rf_expect_operator(p, "]");
    }
    (*out)->kind = RF_N_SLICE;
    RETURN_IF_ERROR(rf_nodes_add(p->room, &(*out)->items, part));
    for (int i = 1; i < 3; i++) {
        part = NULL;
        if (rf_pass_operator(p, ":") && !rf_at_operator(p, ":") && !rf_at_operator(p, "]"))
            RETURN_IF_ERROR(rf_parse_expression(p, &part));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &(*out)->items, part));
    }
    return rf_expect_operator(p, "]");
}

static int parse_attribute(struct rf_parser *p, struct rf_node *of, struct rf_node **out)
{
    p->token++;
    if (p->token->kind == RF_T_INTEGER) {
        RETURN_IF_ERROR(rf_node_make(p, RF_N_ITEM, out));
        (*out)->first = of;
        return make_constant(p, rf_whole((p->token++)->whole), &(*out)->second);
    }
    RETURN_IF_ERROR(rf_node_make(p, RF_N_ATTRIBUTE, out));
    (*out)->first = of;
    (*out)->name = p->token->string;
    return rf_expect(p, RF_T_NAME, "the name of an attribute");
}

static int parse_call(struct rf_parser *p, struct rf_node *of, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_CALL, out));
    (*out)->first = of;
    return parse_arguments(p, &(*out)->arguments);
}

static int parse_postfix(struct rf_parser *p, struct rf_node **node)
{
    for (;;) {
        if (rf_at_operator(p, "."))
            RETURN_IF_ERROR(parse_attribute(p, *node, node));
        else if (rf_at_operator(p, "["))
            RETURN_IF_ERROR(parse_subscript(p, *node, node));
        else if (rf_at_operator(p, "("))
            RETURN_IF_ERROR(parse_call(p, *node, node));
        else
            return 0;
    }
}

/* Parses the name of a filter or test and its arguments. */
static int parse_filter(struct rf_parser *p, struct rf_node *of, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_FILTER, out));
    (*out)->first = of;
    (*out)->name = p->token->string;
    RETURN_IF_ERROR(rf_expect(p, RF_T_NAME, "the name of a filter"));
    return parse_arguments(p, &(*out)->arguments);
}

int rf_parse_filters(struct rf_parser *p, bool named, struct rf_node **out)
{
    *out = NULL;
    if (named)
        RETURN_IF_ERROR(parse_filter(p, NULL, out));
    while (rf_pass_operator(p, "|"))
        RETURN_IF_ERROR(parse_filter(p, *out, out));
    return 0;
}

/* A test may have one argument without parentheses. */
static bool at_argument(const struct rf_parser *p)
{
    if (p->token->kind == RF_T_NAME)
        return !rf_at_name(p, "else") && !rf_at_name(p, "or") && !rf_at_name(p, "and");
    return p->token->kind == RF_T_STRING || p->token->kind == RF_T_INTEGER ||
           rf_at_operator(p, "[") || rf_at_operator(p, "{");
}

static int parse_test(struct rf_parser *p, struct rf_node *of, struct rf_node **out)
{
    struct rf_node *argument = NULL, *test = NULL;
    p->token++;
    const bool negated = rf_pass_name(p, "not");
    RETURN_IF_ERROR(rf_node_make(p, RF_N_TEST, &test));
    test->first = of;
    test->name = p->token->string;
    RETURN_IF_ERROR(rf_expect(p, RF_T_NAME, "the name of a test"));
    const bool bare = at_argument(p);
    if (rf_at_name(p, "is"))
        return rf_parse_fail(p, RF_ECORRUPT, "tests cannot follow each other");
    RETURN_IF_ERROR(parse_arguments(p, &test->arguments));
    if (bare) {
        RETURN_IF_ERROR(parse_primary(p, false, &argument));
        RETURN_IF_ERROR(parse_postfix(p, &argument));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &test->arguments->positional, argument));
    }
    *out = test;
    if (!negated)
        return 0;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_NOT, out));
    (*out)->first = test;
    return 0;
}

static int parse_filter_expression(struct rf_parser *p, struct rf_node **node)
{
    for (;;) {
        if (rf_pass_operator(p, "|"))
            RETURN_IF_ERROR(parse_filter(p, *node, node));
        else if (rf_at_name(p, "is"))
            RETURN_IF_ERROR(parse_test(p, *node, node));
        else if (rf_at_operator(p, "("))
            RETURN_IF_ERROR(parse_call(p, *node, node));
        else
            return 0;
    }
}

/* ---- operators ------------------------------------------------------------------------------- */

static int parse_unary(struct rf_parser *p, bool filters, struct rf_node **out)
{
    const bool minus = rf_at_operator(p, "-");
    struct rf_node *of = NULL;
    RETURN_IF_ERROR(rf_room_enter(p->room));
    if (minus || rf_at_operator(p, "+")) {
        p->token++;
        RETURN_IF_ERROR(parse_unary(p, false, &of));
        RETURN_IF_ERROR(rf_node_make(p, minus ? RF_N_NEGATE : RF_N_PLUS, out));
        (*out)->first = of;
    } else {
        RETURN_IF_ERROR(parse_primary(p, false, out));
    }
    RETURN_IF_ERROR(parse_postfix(p, out));
    if (filters)
        RETURN_IF_ERROR(parse_filter_expression(p, out));
    rf_room_leave(p->room);
    return 0;
}

/* Parses the second operand by `parse` and makes the node. The first operand is in *out. */
static int parse_second(struct rf_parser *p, enum rf_node_kind kind,
                        int (*parse)(struct rf_parser *, struct rf_node **), struct rf_node **out)
{
    struct rf_node *both = NULL;
    p->token++;
    RETURN_IF_ERROR(rf_node_make(p, kind, &both));
    both->first = *out;
    RETURN_IF_ERROR(parse(p, &both->second));
    *out = both;
    return 0;
}

static int parse_power(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(parse_unary(p, true, out));
    if (rf_at_operator(p, "**"))
        return rf_parse_fail(p, RF_ENOTSUP, "the operator ** is not implemented");
    return 0;
}

static int parse_product(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(parse_power(p, out));
    for (;;) {
        if (rf_at_operator(p, "/") || rf_at_operator(p, "//"))
            return rf_parse_fail(p, RF_ENOTSUP, "the operator %s is not implemented",
                                 p->token->sign);
        if (rf_at_operator(p, "*"))
            RETURN_IF_ERROR(parse_second(p, RF_N_MULTIPLY, parse_power, out));
        else if (rf_at_operator(p, "%"))
            RETURN_IF_ERROR(parse_second(p, RF_N_MODULO, parse_power, out));
        else
            return 0;
    }
}

static int parse_concatenation(struct rf_parser *p, struct rf_node **out)
{
    struct rf_node *all = NULL, *item = NULL;
    RETURN_IF_ERROR(parse_product(p, out));
    if (!rf_at_operator(p, "~"))
        return 0;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_JOIN, &all));
    RETURN_IF_ERROR(rf_nodes_add(p->room, &all->items, *out));
    while (rf_pass_operator(p, "~")) {
        RETURN_IF_ERROR(parse_product(p, &item));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &all->items, item));
    }
    *out = all;
    return 0;
}

static int parse_sum(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(parse_concatenation(p, out));
    for (;;) {
        if (rf_at_operator(p, "+"))
            RETURN_IF_ERROR(parse_second(p, RF_N_ADD, parse_concatenation, out));
        else if (rf_at_operator(p, "-"))
            RETURN_IF_ERROR(parse_second(p, RF_N_SUBTRACT, parse_concatenation, out));
        else
            return 0;
    }
}

/* Passes a comparison operator. */
static bool pass_comparison(struct rf_parser *p, enum rf_comparison *out)
{
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < 6; i++)
        if (rf_pass_operator(p, operators[i])) {
            *out = (enum rf_comparison)i;
            return true;
        }
    *out = RF_C_IN;
    if (rf_pass_name(p, "in"))
        return true;
    *out = RF_C_NOT_IN;
    if (!rf_at_name(p, "not") || p->token[1].kind != RF_T_NAME ||
        !rf_string_is(p->token[1].string, "in"))
        return false;
    p->token += 2;
    return true;
}

static int parse_comparison(struct rf_parser *p, struct rf_node **out)
{
    struct rf_node *both = NULL;
    enum rf_comparison compare, more;
    RETURN_IF_ERROR(parse_sum(p, out));
    if (!pass_comparison(p, &compare))
        return 0;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_COMPARE, &both));
    both->first = *out;
    both->compare = compare;
    RETURN_IF_ERROR(parse_sum(p, &both->second));
    *out = both;
    return pass_comparison(p, &more)
               ? rf_parse_fail(p, RF_ENOTSUP, "comparisons in a row are not implemented")
               : 0;
}

static int parse_not(struct rf_parser *p, struct rf_node **out)
{
    struct rf_node *of = NULL;
    if (!rf_pass_name(p, "not"))
        return parse_comparison(p, out);
    RETURN_IF_ERROR(rf_room_enter(p->room));
    RETURN_IF_ERROR(parse_not(p, &of));
    rf_room_leave(p->room);
    RETURN_IF_ERROR(rf_node_make(p, RF_N_NOT, out));
    (*out)->first = of;
    return 0;
}

static int parse_and(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(parse_not(p, out));
    while (rf_at_name(p, "and"))
        RETURN_IF_ERROR(parse_second(p, RF_N_AND, parse_not, out));
    return 0;
}

static int parse_or(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(parse_and(p, out));
    while (rf_at_name(p, "or"))
        RETURN_IF_ERROR(parse_second(p, RF_N_OR, parse_and, out));
    return 0;
}

/* ---- whole expressions ----------------------------------------------------------------------- */

int rf_parse_expression(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_room_enter(p->room));
    RETURN_IF_ERROR(parse_or(p, out));
    while (rf_pass_name(p, "if")) {
        struct rf_node *choice = NULL;
        RETURN_IF_ERROR(rf_node_make(p, RF_N_CHOOSE, &choice));
        choice->second = *out;
        RETURN_IF_ERROR(parse_or(p, &choice->first));
        if (rf_pass_name(p, "else"))
            RETURN_IF_ERROR(rf_parse_expression(p, &choice->third));
        *out = choice;
    }
    rf_room_leave(p->room);
    return 0;
}

static bool at_tuple_end(const struct rf_parser *p)
{
    return p->token->kind == RF_T_BLOCK_END || p->token->kind == RF_T_VARIABLE_END ||
           rf_at_operator(p, ")");
}

int rf_parse_tuple(struct rf_parser *p, bool choices, struct rf_node **out)
{
    struct rf_node *tuple = NULL, *item = NULL;
    RETURN_IF_ERROR(choices ? rf_parse_expression(p, out) : parse_or(p, out));
    if (!rf_at_operator(p, ","))
        return 0;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_TUPLE, &tuple));
    RETURN_IF_ERROR(rf_nodes_add(p->room, &tuple->items, *out));
    while (rf_pass_operator(p, ",") && !at_tuple_end(p)) {
        RETURN_IF_ERROR(choices ? rf_parse_expression(p, &item) : parse_or(p, &item));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &tuple->items, item));
    }
    *out = tuple;
    return 0;
}

static int check_target(struct rf_parser *p, const struct rf_node *target)
{
    if (target->kind == RF_N_NAME || target->kind == RF_N_NAMESPACE)
        return 0;
    if (target->kind != RF_N_TUPLE)
        return rf_parse_fail(p, RF_ECORRUPT, "this cannot be assigned to");
    for (size_t i = 0; i < target->items.count; i++)
        if (target->items.list[i]->kind == RF_N_TUPLE)
            return rf_parse_fail(p, RF_ENOTSUP, "assigning to tuples of tuples is not implemented");
        else
            RETURN_IF_ERROR(check_target(p, target->items.list[i]));
    return 0;
}

int rf_parse_target(struct rf_parser *p, bool namespaces, struct rf_node **out)
{
    struct rf_node *tuple = NULL, *item = NULL;
    RETURN_IF_ERROR(parse_primary(p, namespaces, out));
    if (rf_at_operator(p, ",")) {
        RETURN_IF_ERROR(rf_node_make(p, RF_N_TUPLE, &tuple));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &tuple->items, *out));
        while (rf_pass_operator(p, ",") && !at_tuple_end(p) && !rf_at_name(p, "in")) {
            RETURN_IF_ERROR(parse_primary(p, namespaces, &item));
            RETURN_IF_ERROR(rf_nodes_add(p->room, &tuple->items, item));
        }
        *out = tuple;
    }
    return check_target(p, *out);
}

int rf_parse_parameters(struct rf_parser *p, struct rf_node *node)
{
    RETURN_IF_ERROR(rf_expect_operator(p, "("));
    while (!rf_at_operator(p, ")")) {
        struct rf_node *parameter = NULL, *value = NULL;
        if (node->items.count > 0)
            RETURN_IF_ERROR(rf_expect_operator(p, ","));
        if (p->token->kind != RF_T_NAME)
            return rf_parse_fail(p, RF_ECORRUPT, "the name of a parameter is expected");
        RETURN_IF_ERROR(parse_name(p, false, &parameter));
        RETURN_IF_ERROR(check_target(p, parameter));
        for (size_t i = 0; i < node->items.count; i++)
            if (node->items.list[i]->name->count == parameter->name->count &&
                memcmp(node->items.list[i]->name->bytes, parameter->name->bytes,
                       parameter->name->count) == 0)
                return rf_parse_fail(p, RF_ECORRUPT, "a macro has the same parameter twice");
        RETURN_IF_ERROR(rf_nodes_add(p->room, &node->items, parameter));
        if (rf_pass_operator(p, "=")) {
            RETURN_IF_ERROR(rf_parse_expression(p, &value));
            RETURN_IF_ERROR(rf_nodes_add(p->room, &node->defaults, value));
        } else if (node->defaults.count > 0) {
            return rf_parse_fail(p, RF_ECORRUPT, "a parameter without a value follows one with it");
        }
    }
    p->token++;
    return 0;
}
