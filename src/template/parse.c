/* SPDX-License-Identifier: MIT
 *
 * Statements of templates; see parse.h.
 */
#include "parse.h"
#include "../base/base.h"

/* Parses statements up to one whose name is in `ends`, which is not passed. ends NULL: up to the
 * end of the template. */
static int parse_body(struct rf_parser *p, const char *const *ends, struct rf_nodes *out);

static int expect_tag_end(struct rf_parser *p)
{
    return rf_expect(p, RF_T_BLOCK_END, "the end of a tag");
}

/* Parses the rest of a tag, then its body up to `end`, which is passed. */
static int parse_block(struct rf_parser *p, const char *end, struct rf_nodes *out)
{
    const char *const ends[] = {end, NULL};
    rf_pass_operator(p, ":");
    RETURN_IF_ERROR(expect_tag_end(p));
    RETURN_IF_ERROR(parse_body(p, ends, out));
    p->token++;
    return 0;
}

static int parse_for(struct rf_parser *p, struct rf_node **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    RETURN_IF_ERROR(rf_node_make(p, RF_N_FOR, out));
    p->token++;
    RETURN_IF_ERROR(rf_parse_target(p, false, &(*out)->first));
    if (!rf_pass_name(p, "in"))
        return rf_parse_fail(p, RF_ECORRUPT, "a loop has no \"in\"");
    RETURN_IF_ERROR(rf_parse_tuple(p, false, &(*out)->second));
    if (rf_pass_name(p, "if"))
        RETURN_IF_ERROR(rf_parse_expression(p, &(*out)->third));
    if (rf_at_name(p, "recursive"))
        return rf_parse_fail(p, RF_ENOTSUP, "recursive loops are not implemented");
    rf_pass_operator(p, ":");
    RETURN_IF_ERROR(expect_tag_end(p));
    RETURN_IF_ERROR(parse_body(p, ends, &(*out)->body));
    if (rf_at_name(p, "else"))
        return rf_parse_fail(p, RF_ENOTSUP, "\"else\" of a loop is not implemented");
    p->token++;
    return 0;
}

static int parse_if(struct rf_parser *p, struct rf_node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct rf_node *node = NULL;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_IF, out));
    for (node = *out;;) {
        p->token++;
        RETURN_IF_ERROR(rf_parse_tuple(p, false, &node->first));
        rf_pass_operator(p, ":");
        RETURN_IF_ERROR(expect_tag_end(p));
        RETURN_IF_ERROR(parse_body(p, ends, &node->body));
        if (!rf_at_name(p, "elif"))
            break;
        RETURN_IF_ERROR(rf_node_make(p, RF_N_IF, &node));
        RETURN_IF_ERROR(rf_nodes_add(p->room, &(*out)->items, node));
    }
    if (rf_pass_name(p, "else"))
        return parse_block(p, "endif", &(*out)->other);
    p->token++;
    return 0;
}

static int parse_set(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_SET, out));
    p->token++;
    RETURN_IF_ERROR(rf_parse_target(p, true, &(*out)->first));
    if (rf_pass_operator(p, "="))
        return rf_parse_tuple(p, true, &(*out)->second);
    (*out)->kind = RF_N_SET_BLOCK;
    RETURN_IF_ERROR(rf_parse_filters(p, false, &(*out)->second));
    return parse_block(p, "endset", &(*out)->body);
}

static int parse_macro(struct rf_parser *p, struct rf_node **out)
{
    struct rf_node *name = NULL;
    RETURN_IF_ERROR(rf_node_make(p, RF_N_MACRO, out));
    p->token++;
    RETURN_IF_ERROR(rf_parse_target(p, false, &name));
    if (name->kind != RF_N_NAME)
        return rf_parse_fail(p, RF_ECORRUPT, "the name of a macro is expected");
    (*out)->name = name->name;
    RETURN_IF_ERROR(rf_parse_parameters(p, *out));
    return parse_block(p, "endmacro", &(*out)->body);
}

static int parse_call_block(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_CALL_BLOCK, out));
    p->token++;
    if (rf_at_operator(p, "("))
        RETURN_IF_ERROR(rf_parse_parameters(p, *out));
    RETURN_IF_ERROR(rf_parse_expression(p, &(*out)->first));
    if ((*out)->first->kind != RF_N_CALL)
        return rf_parse_fail(p, RF_ECORRUPT, "\"call\" is followed by no call");
    return parse_block(p, "endcall", &(*out)->body);
}

static int parse_filter_block(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_FILTER_BLOCK, out));
    p->token++;
    RETURN_IF_ERROR(rf_parse_filters(p, true, &(*out)->second));
    return parse_block(p, "endfilter", &(*out)->body);
}

static int parse_generation(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_GENERATION, out));
    p->token++;
    return parse_block(p, "endgeneration", &(*out)->body);
}

static int parse_break(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, rf_at_name(p, "break") ? RF_N_BREAK : RF_N_CONTINUE, out));
    p->token++;
    return 0;
}

/* In the order of Jinja2's documentation. NULL: known, but not implemented. */
static const struct {
    const char *name;
    int (*parse)(struct rf_parser *p, struct rf_node **out);
} statements[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_break},
    {"raw", NULL},
    {"block", NULL},
    {"extends", NULL},
    {"print", NULL},
    {"include", NULL},
    {"from", NULL},
    {"import", NULL},
    {"with", NULL},
    {"autoescape", NULL},
};

static int parse_statement(struct rf_parser *p, struct rf_node **out)
{
    char text[48];
    if (p->token->kind != RF_T_NAME)
        return rf_parse_fail(p, RF_ECORRUPT, "the name of a statement is expected, and not %s",
                             rf_describe_word(p, text));
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (!rf_at_name(p, statements[i].name))
            continue;
        if (!statements[i].parse)
            return rf_parse_fail(p, RF_ENOTSUP, "the statement \"%s\" is not implemented",
                                 statements[i].name);
        RETURN_IF_ERROR(rf_room_enter(p->room));
        RETURN_IF_ERROR(statements[i].parse(p, out));
        rf_room_leave(p->room);
        return expect_tag_end(p);
    }
    return rf_parse_fail(p, RF_ECORRUPT, "there is no statement %s here",
                         rf_describe_word(p, text));
}

static bool at_any(const struct rf_parser *p, const char *const *names)
{
    for (; names && *names; names++)
        if (rf_at_name(p, *names))
            return true;
    return false;
}

static int parse_output(struct rf_parser *p, struct rf_node **out)
{
    RETURN_IF_ERROR(rf_node_make(p, RF_N_OUTPUT, out));
    if (p->token->kind == RF_T_DATA) {
        (*out)->kind = RF_N_DATA;
        (*out)->value = rf_string_value((p->token++)->string);
        return 0;
    }
    p->token++;
    RETURN_IF_ERROR(rf_parse_tuple(p, true, &(*out)->first));
    return rf_expect(p, RF_T_VARIABLE_END, "}}");
}

static int parse_body(struct rf_parser *p, const char *const *ends, struct rf_nodes *out)
{
    struct rf_node *node = NULL;
    while (p->token->kind != RF_T_END) {
        if (p->token->kind == RF_T_BLOCK_BEGIN) {
            p->token++;
            if (at_any(p, ends))
                return 0;
            RETURN_IF_ERROR(parse_statement(p, &node));
        } else {
            RETURN_IF_ERROR(parse_output(p, &node));
        }
        RETURN_IF_ERROR(rf_nodes_add(p->room, out, node));
    }
    return ends ? rf_parse_fail(p, RF_ECORRUPT, "the template ends, and \"%s\" is missing", *ends)
                : 0;
}

int rf_parse(struct rf_room *room, const struct rf_tokens *tokens, struct rf_nodes *out)
{
    struct rf_parser p = {room, tokens->list};
    RETURN_IF_ERROR(parse_body(&p, NULL, out));
    room->line = 0;
    return 0;
}
