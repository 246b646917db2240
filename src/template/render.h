/* SPDX-License-Identifier: MIT
 *
 * The state of a rendering, and the functions that templates call. Used inside this layer; others
 * use template.h.
 */
#ifndef RF_TEMPLATE_RENDER_H
#define RF_TEMPLATE_RENDER_H

#include "ast.h"
#include "text.h"

/* The arguments of a call. */
struct rf_args {
    const struct rf_value *positional;
    size_t count;
    struct rf_list names, named; /* in the same order */
};

/* The variables of a running function. */
struct rf_activation {
    struct rf_activation *outer; /* of the function in which this one was defined */
    struct rf_value *slots;
};

struct rf_span {
    size_t begin, end; /* code points of the page */
    int message;       /* the current message of the innermost loop over them, from 1; 0: none */
};

struct rf_render {
    struct rf_room *room;
    struct rf_dict *context; /* the variables that the caller gives */
    int64_t now;             /* seconds since 1970, which strftime_now writes as local time */
    struct rf_activation *activation;
    struct rf_build *buffer; /* where output goes; NULL: to the page */
    struct rf_text *page;
    size_t page_letters;
    int message; /* as in struct rf_span */
    struct rf_span *spans;
    size_t span_count, span_capacity;
    /* run.c: runs the body of a macro or called block, for eval.c. *out: its text. */
    int (*run_macro)(struct rf_render *r, const struct rf_macro *macro, const struct rf_args *args,
                     struct rf_value *out);
};

/* A macro or a called block, with the variables around its definition. */
struct rf_macro {
    const struct rf_node *node;
    struct rf_activation *outer;
};

/* A function, filter, test or method. */
struct rf_builtin {
    const char *name;
    /* The names of its parameters, separated by spaces. A leading "/": they cannot be named; "*":
     * any arguments. */
    const char *parameters;
    size_t required; /* the number of parameters that must be given */
    /* a[0]: the object of the filter, test or method; then the parameters, RF_V_MISSING if not
     * given. */
    int (*call)(struct rf_render *r, const struct rf_value *a, struct rf_value *out);
    int (*call_any)(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                    struct rf_value *out); /* for "*" */
};

enum { RF_MAX_PARAMETERS = 6 };

/* builtin.c: binds the arguments and calls. RF_ECORRUPT: they do not fit. */
RF_MUST_CHECK int rf_builtin_call(struct rf_render *r, const struct rf_builtin *row,
                                  const struct rf_value *of, const struct rf_args *args,
                                  struct rf_value *out);
/* The row of a table with this name; NULL: none. A row without a name ends the table. */
const struct rf_builtin *rf_builtin_find(const struct rf_builtin *table,
                                         const struct rf_string *name);
/* Whether a word is in a list separated by spaces. */
bool rf_word_in(const char *words, const struct rf_string *word);
/* An argument that must be a whole number or a text. RF_ECORRUPT: it is not. */
RF_MUST_CHECK int rf_need_whole(struct rf_render *r, const char *what, const struct rf_value *value,
                                int64_t *out);
RF_MUST_CHECK int rf_need_string(struct rf_render *r, const char *what,
                                 const struct rf_value *value, struct rf_string **out);

/* methods.c: the method of values of this kind; *known: Python has such an attribute. NULL: not
 * implemented. */
const struct rf_builtin *rf_method_find(enum rf_kind kind, const struct rf_string *name,
                                        bool *known);
/* Whether the method changes its value, which templates must not do. */
bool rf_method_changes(enum rf_kind kind, const struct rf_string *name);
/* Whether this is the name of a method that is not implemented. */
bool rf_method_is_missing(const struct rf_string *name);

/* attribute.c: of.name, of[key], of[start:stop:step] (NULL: not given), by the rules of Jinja2's
 * sandbox. */
RF_MUST_CHECK int rf_get_attribute(struct rf_render *r, const struct rf_value *of,
                                   struct rf_string *name, struct rf_value *out);
RF_MUST_CHECK int rf_get_item(struct rf_render *r, const struct rf_value *of,
                              const struct rf_value *key, struct rf_value *out);
RF_MUST_CHECK int rf_get_slice(struct rf_render *r, const struct rf_value *of,
                               const struct rf_value *start, const struct rf_value *stop,
                               const struct rf_value *step, struct rf_value *out);

/* loop.c: the variable `loop`. */
struct rf_loop {
    struct rf_walk walk;
    /* Takes the next item that passes the loop's condition: 1, or 0 at the end. */
    int (*pull)(struct rf_render *r, struct rf_loop *loop, struct rf_value *out);
    const struct rf_node *node;
    struct rf_activation *outer, *inner; /* of the condition: its surroundings, and its own */
    size_t index;                        /* from 0; SIZE_MAX: before the first */
    struct rf_value before, current, after;
    struct rf_list rest; /* items that were fetched to count them */
    size_t rest_at;
    size_t length;
    bool has_after, counted, ended;
};
/* The next item: 1, or 0 at the end. */
RF_MUST_CHECK int rf_loop_next(struct rf_render *r, struct rf_loop *loop, struct rf_value *out);
RF_MUST_CHECK int rf_loop_attribute(struct rf_render *r, struct rf_loop *loop,
                                    const struct rf_string *name, struct rf_value *out);
bool rf_loop_has(const struct rf_string *name);

/* filters.c, tests.c, functions.c: NULL: no row of that name. */
const struct rf_builtin *rf_filter_find(const struct rf_string *name);
const struct rf_builtin *rf_test_find(const struct rf_string *name);
const struct rf_builtin *rf_function_find(const struct rf_string *name);
/* Whether Jinja2 has one of that name that is not implemented here. */
bool rf_filter_is_missing(const struct rf_string *name);
bool rf_test_is_missing(const struct rf_string *name);
bool rf_function_is_missing(const struct rf_string *name);

/* filters_list.c, filters_text.c: parts of the table of filters.c. */
extern const struct rf_builtin rf_filters_of_texts[], rf_filters_of_lists[];
/* item[path], with a path such as "function.name" or 0; the item itself if path is NULL. */
RF_MUST_CHECK int rf_get_path(struct rf_render *r, const struct rf_value *item,
                              const struct rf_value *path, struct rf_value *out);
/* The same, with `absent` in place of an undefined part; NULL: no default. */
RF_MUST_CHECK int rf_get_path_or(struct rf_render *r, const struct rf_value *item,
                                 const struct rf_value *path, const struct rf_value *absent,
                                 struct rf_value *out);
/* All items, as a new list. */
RF_MUST_CHECK int rf_collect(struct rf_render *r, const struct rf_value *of, struct rf_value *out);
RF_MUST_CHECK int rf_as_generator(struct rf_render *r, const struct rf_list *list,
                                  struct rf_value *out);

#endif
