/* SPDX-License-Identifier: MIT
 *
 * A template as a tree. Made by the parser, completed by scope.c, walked by eval.c and run.c.
 */
#ifndef RF_TEMPLATE_AST_H
#define RF_TEMPLATE_AST_H

#include "value.h"

enum rf_node_kind {
    /* expressions */
    RF_N_CONSTANT,
    RF_N_NAME,
    RF_N_TUPLE,
    RF_N_LIST,
    RF_N_DICT,      /* items: key, value, key, value */
    RF_N_ATTRIBUTE, /* first.name */
    RF_N_ITEM,      /* first[second] */
    RF_N_SLICE,     /* first[items[0]:items[1]:items[2]]; each may be NULL */
    RF_N_CALL,      /* first(arguments) */
    RF_N_FILTER,    /* first|name(arguments); first NULL: the text of the block */
    RF_N_TEST,      /* first is name(arguments) */
    RF_N_NOT,
    RF_N_NEGATE,
    RF_N_PLUS,
    RF_N_AND,
    RF_N_OR,
    RF_N_ADD,
    RF_N_SUBTRACT,
    RF_N_MULTIPLY,
    RF_N_MODULO,
    RF_N_JOIN,    /* items with ~ between */
    RF_N_COMPARE, /* first and second, by compare */
    RF_N_CHOOSE,  /* second if first else third, which may be NULL */
    /* assignment targets, other than names and tuples */
    RF_N_NAMESPACE, /* name.attribute */
    /* statements */
    RF_N_DATA,
    RF_N_OUTPUT,
    RF_N_FOR,          /* first: target; second: the iterable; third: condition or NULL */
    RF_N_IF,           /* first: condition; items: the elifs, each an RF_N_IF; other: else */
    RF_N_SET,          /* first: target; second: value */
    RF_N_SET_BLOCK,    /* first: target; second: filters, or NULL */
    RF_N_MACRO,        /* items: parameters; defaults: of the last parameters */
    RF_N_CALL_BLOCK,   /* first: the call; items, defaults: parameters of the block */
    RF_N_FILTER_BLOCK, /* second: filters */
    RF_N_GENERATION,
    RF_N_BREAK,
    RF_N_CONTINUE
};

enum rf_comparison {
    RF_C_EQUAL,
    RF_C_UNEQUAL,
    RF_C_LESS,
    RF_C_LESS_EQUAL,
    RF_C_GREATER,
    RF_C_GREATER_EQUAL,
    RF_C_IN,
    RF_C_NOT_IN
};

struct rf_nodes {
    struct rf_node **list;
    size_t count, capacity;
};

struct rf_arguments {
    struct rf_nodes positional, named;
    struct rf_list names;         /* of the named arguments */
    struct rf_node *star, *stars; /* *list, **dict; NULL: none */
};

/* The place of a variable: the number of functions outwards, and the slot there. */
struct rf_ref {
    int out;
    int slot;
    bool by_loop; /* assigned in each round of a loop */
};

/* How a frame sets a variable before its body runs. */
struct rf_load {
    enum rf_load_kind { RF_LOAD_CONTEXT, RF_LOAD_ALIAS, RF_LOAD_NOTHING } kind;
    int slot;
    struct rf_ref from;     /* of an alias */
    struct rf_string *name; /* in the context */
};

/* The variables of a body with a frame of its own: a loop, macro or block. */
struct rf_frame {
    struct rf_load *loads;
    size_t count, capacity;
    int *slots; /* all of this frame */
    size_t slot_count, slot_capacity;
};

/* A body with memory of its own: the template, a macro, a called block, a loop's condition. */
struct rf_scope {
    int slots;
    struct rf_frame frame;
    int caller; /* the slot of `caller`; -1: unused */
};

struct rf_node {
    enum rf_node_kind kind;
    unsigned line;
    enum rf_comparison compare;
    struct rf_string *name, *attribute;
    struct rf_value value;
    struct rf_node *first, *second, *third;
    struct rf_nodes items, defaults, body, other;
    struct rf_arguments *arguments;
    const struct rf_builtin *row; /* of a filter or test; NULL: none */
    struct rf_ref ref;            /* of a name */
    struct rf_frame *frame;       /* of a loop's body or a block */
    struct rf_scope *scope;       /* of a macro or called block; of a loop's condition */
    int loop;                     /* the slot of `loop`; -1: unused */
};

#endif
