/* SPDX-License-Identifier: MIT
 *
 * Access to the tokens of a template, and creation of nodes; see parse.h.
 */
#include "../base/base.h"
#include "parse.h"

int rf_parse_fail(struct rf_parser *p, int status, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    p->room->line = p->token->line;
    return rf_room_fail(p->room, status, "%s", text);
}

int rf_node_make(struct rf_parser *p, enum rf_node_kind kind, struct rf_node **out)
{
    struct rf_node *node = rf_room_take(p->room, sizeof(*node));
    if (!node)
        return rf_last_error()->status;
    node->kind = kind;
    node->line = p->token->line;
    node->loop = -1;
    *out = node;
    return rf_room_spend(p->room, 1);
}

int rf_nodes_add(struct rf_room *room, struct rf_nodes *nodes, struct rf_node *node)
{
    RETURN_IF_ERROR(rf_room_grow(room, (void **)&nodes->list, nodes->count, &nodes->capacity,
                                 sizeof(struct rf_node *)));
    nodes->list[nodes->count++] = node;
    return 0;
}

bool rf_at_name(const struct rf_parser *p, const char *name)
{
    return p->token->kind == RF_T_NAME && rf_string_is(p->token->string, name);
}

bool rf_at_operator(const struct rf_parser *p, const char *sign)
{
    return p->token->kind == RF_T_OPERATOR && strcmp(p->token->sign, sign) == 0;
}

bool rf_pass_name(struct rf_parser *p, const char *name)
{
    const bool is = rf_at_name(p, name);
    p->token += is;
    return is;
}

bool rf_pass_operator(struct rf_parser *p, const char *sign)
{
    const bool is = rf_at_operator(p, sign);
    p->token += is;
    return is;
}

const char *rf_describe_word(const struct rf_parser *p, char out[48])
{
    static const char *const names[] = {
        "the end of the template", "text", "a tag",  "the end of a tag", "a tag",
        "the end of a tag",        "",     "a text", "a number",         ""};
    const struct rf_token *token = p->token;
    if (token->kind == RF_T_NAME)
        snprintf(out, 48, "\"%.*s\"", (int)(token->string->count < 40 ? token->string->count : 40),
                 token->string->bytes);
    else
        snprintf(out, 48, "%s", token->kind == RF_T_OPERATOR ? token->sign : names[token->kind]);
    return out;
}

int rf_expect_operator(struct rf_parser *p, const char *sign)
{
    char text[48];
    return rf_pass_operator(p, sign) ? 0
                                     : rf_parse_fail(p, RF_ECORRUPT, "%s is expected, and not %s",
                                                     sign, rf_describe_word(p, text));
}

int rf_expect(struct rf_parser *p, enum rf_token_kind kind, const char *what)
{
    char text[48];
    if (p->token->kind != kind)
        return rf_parse_fail(p, RF_ECORRUPT, "%s is expected, and not %s", what,
                             rf_describe_word(p, text));
    p->token++;
    return 0;
}
