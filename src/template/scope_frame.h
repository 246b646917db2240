/* SPDX-License-Identifier: MIT
 *
 * The frames of a template during name resolution, and their variables. Used by scope.c.
 */
#ifndef RF_TEMPLATE_SCOPE_FRAME_H
#define RF_TEMPLATE_SCOPE_FRAME_H

#include "ast.h"

/* How a variable begins. */
enum rf_beginning {
    RF_BEGINS_BY_CALL, /* a parameter */
    RF_BEGINS_BY_LOOP, /* assigned in each round */
    RF_BEGINS_IN_CONTEXT,
    RF_BEGINS_OUTSIDE,
    RF_BEGINS_NOWHERE
};

struct rf_scope_entry {
    struct rf_string *name;
    enum rf_beginning beginning;
    bool stored;
};

/* A body that runs with slots of its own. */
struct rf_scope_function {
    struct rf_scope_function *outer;
    struct rf_scope *scope;
    struct {
        struct rf_string *name;
        int level;
    } * slots;
    size_t count, capacity;
    int loops; /* that are open */
};

struct rf_scope_frame {
    struct rf_scope_frame *outer;
    struct rf_scope_function *function;
    int level;
    struct rf_scope_entry *entries;
    size_t count, capacity;
};

struct rf_resolver {
    struct rf_room *room;
    struct rf_list *context;
};

bool rf_same_name(const struct rf_string *a, const struct rf_string *b);

/* Reports an error about a name; format has one %s. Returns status. */
int rf_fail_name(struct rf_resolver *r, int status, const char *format,
                 const struct rf_string *name);

/* The innermost frame, from this one outwards, that has the variable; NULL: none. */
const struct rf_scope_frame *rf_frame_owner(const struct rf_scope_frame *frame,
                                            const struct rf_string *name);
/* How the frame's variable begins. */
enum rf_beginning rf_frame_beginning(const struct rf_scope_frame *frame,
                                     const struct rf_string *name);
RF_MUST_CHECK int rf_frame_define(struct rf_resolver *r, struct rf_scope_frame *frame,
                                  struct rf_string *name, enum rf_beginning beginning, bool stored);

/* Adds the names that the nodes read and assign to. For a loop, a macro or a block, only the names
 * that belong to the surrounding frame. */
RF_MUST_CHECK int rf_note_expression(struct rf_resolver *r, struct rf_scope_frame *frame,
                                     const struct rf_node *node);
RF_MUST_CHECK int rf_note_expressions(struct rf_resolver *r, struct rf_scope_frame *frame,
                                      const struct rf_nodes *nodes);
RF_MUST_CHECK int rf_note_statements(struct rf_resolver *r, struct rf_scope_frame *frame,
                                     const struct rf_nodes *body);
/* by: RF_BEGINS_BY_CALL, RF_BEGINS_BY_LOOP, or RF_BEGINS_NOWHERE for an assignment. */
RF_MUST_CHECK int rf_note_target(struct rf_resolver *r, struct rf_scope_frame *frame,
                                 const struct rf_node *target, enum rf_beginning by);

/* Whether a name is read anywhere inside, inner frames included. */
bool rf_any_reads(const struct rf_nodes *nodes, const char *name);

#endif
