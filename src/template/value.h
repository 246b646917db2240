/* SPDX-License-Identifier: MIT
 *
 * The values of templates, which are Python's: texts count in code points, dictionaries keep the
 * order of their keys, True is 1. All memory is of a room; a value lives until the room is emptied.
 */
#ifndef RF_TEMPLATE_VALUE_H
#define RF_TEMPLATE_VALUE_H

#include <stdint.h>

#include "room.h"

enum rf_kind {
    RF_V_MISSING, /* no value: an unset variable, an argument that was not given */
    RF_V_UNDEFINED,
    RF_V_NONE,
    RF_V_BOOL,
    RF_V_INT,
    RF_V_FLOAT,
    RF_V_STRING,
    RF_V_LIST,
    RF_V_TUPLE,
    RF_V_DICT,
    RF_V_RANGE,
    RF_V_VIEW,      /* keys, values or items of a dictionary */
    RF_V_GENERATOR, /* result of selectattr and others: can be iterated once */
    RF_V_NAMESPACE,
    RF_V_LOOP,
    RF_V_MACRO,
    RF_V_FUNCTION,
    RF_V_METHOD
};

/* The source of a text in the conversation, to check that the template writes it. A concatenated
 * text has the origins of both parts. */
struct rf_origin {
    struct rf_origin *left, *right; /* NULL: it is one key of a message, or a list of tools */
    struct rf_origin *next;         /* of those still to be marked */
    bool written;
    bool in_parts; /* the texts are parts of a list; its Python form does not count as them */
};

struct rf_string {
    const char *bytes; /* UTF-8, not zero-terminated; zeros are text */
    size_t count;
    size_t letters; /* code points; SIZE_MAX: not counted yet */
    struct rf_origin *from;
    bool safe; /* markupsafe's Markup: text added to it is escaped */
};

struct rf_value {
    enum rf_kind kind;
    bool refused; /* undefined because templates may not use the attribute */
    union {
        bool truth;
        int64_t whole;
        double real;
        struct rf_string *string; /* RF_V_UNDEFINED: the name, or NULL */
        struct rf_list *list;     /* also of a tuple */
        struct rf_dict *dict;     /* also of a namespace */
        struct rf_range *range;
        struct rf_view *view;
        struct rf_generator *generator;
        struct rf_loop *loop;
        struct rf_macro *macro;
        const struct rf_builtin *function;
        struct rf_method *method;
    };
};

struct rf_list {
    struct rf_value *items;
    size_t count, capacity;
};

struct rf_pair {
    struct rf_value key, value;
};

struct rf_dict {
    struct rf_pair *pairs;
    size_t count, capacity;
    uint32_t *slots; /* of many pairs: index plus 1; 0: free */
    size_t slot_count;
    bool *read;  /* of each pair: the template has read it; NULL: not tracked */
    int message; /* the message of the conversation, from 1; 0: none */
};

struct rf_range {
    int64_t start, step;
    size_t count;
    int64_t stop; /* as it was given */
};

enum rf_view_kind { RF_VIEW_KEYS, RF_VIEW_VALUES, RF_VIEW_ITEMS };

struct rf_view {
    enum rf_view_kind kind;
    struct rf_dict *dict;
};

struct rf_generator {
    struct rf_list list;
    size_t at;
};

/* An attribute that is callable. */
struct rf_method {
    struct rf_value of;
    const struct rf_builtin *row; /* NULL: Python has the method, this library lacks it */
    const char *name;
};

/* ---- making them: RF_ENOMEM, RF_ENOTSUP (the room's limits) ---------------------------------- */

static inline struct rf_value rf_none(void)
{
    return (struct rf_value){.kind = RF_V_NONE};
}

static inline struct rf_value rf_bool(bool truth)
{
    return (struct rf_value){.kind = RF_V_BOOL, .truth = truth};
}

static inline struct rf_value rf_whole(int64_t whole)
{
    return (struct rf_value){.kind = RF_V_INT, .whole = whole};
}

static inline struct rf_value rf_real(double real)
{
    return (struct rf_value){.kind = RF_V_FLOAT, .real = real};
}

/* name: of the undefined value, for messages; NULL: unknown. */
static inline struct rf_value rf_undefined(struct rf_string *name)
{
    return (struct rf_value){.kind = RF_V_UNDEFINED, .string = name};
}

static inline struct rf_value rf_string_value(struct rf_string *string)
{
    return (struct rf_value){.kind = RF_V_STRING, .string = string};
}

/* A text from valid UTF-8 bytes that last as long as the room. NULL: out of room. */
struct rf_string *rf_string_of(struct rf_room *room, const char *bytes, size_t count,
                               struct rf_origin *from, bool safe);
/* The same from a C string. */
struct rf_string *rf_string_from(struct rf_room *room, const char *text);
/* A part of a text, with its origin and mark. */
RF_MUST_CHECK int rf_string_part(struct rf_room *room, const struct rf_string *of, size_t begin,
                                 size_t end, struct rf_value *out);

/* An empty list or tuple. */
RF_MUST_CHECK int rf_list_make(struct rf_room *room, enum rf_kind kind, struct rf_value *out);
RF_MUST_CHECK int rf_list_add(struct rf_room *room, struct rf_list *list, struct rf_value item);
/* A tuple of two. */
RF_MUST_CHECK int rf_pair_make(struct rf_room *room, struct rf_value first, struct rf_value second,
                               struct rf_value *out);
/* An empty dictionary or namespace. */
RF_MUST_CHECK int rf_dict_make(struct rf_room *room, enum rf_kind kind, struct rf_value *out);
/* *out is the pair, or NULL. RF_ECORRUPT: the key is of an unhashable kind. */
RF_MUST_CHECK int rf_dict_find(struct rf_room *room, struct rf_dict *dict, struct rf_value key,
                               struct rf_pair **out);
/* NULL: absent. */
struct rf_pair *rf_dict_get(struct rf_dict *dict, const char *key);
/* Adds a pair, or replaces the value of an existing one. */
RF_MUST_CHECK int rf_dict_put(struct rf_room *room, struct rf_dict *dict, struct rf_value key,
                              struct rf_value value);
/* Notes that a pair was read. */
void rf_dict_note(struct rf_dict *dict, const struct rf_pair *pair);
void rf_dict_note_all(struct rf_dict *dict);

/* ---- asking ---------------------------------------------------------------------------------- */

/* The name of Python's type: "str", "list". */
const char *rf_kind_name(enum rf_kind kind);
size_t rf_string_letters(struct rf_string *string);
bool rf_string_is(const struct rf_string *string, const char *text);
bool rf_value_truth(const struct rf_value *value);
/* False: the kind has no len(). */
bool rf_value_length(const struct rf_value *value, size_t *out);
/* bool, int and float. */
bool rf_is_number(const struct rf_value *value);
/* The whole number of a bool or int. False: another kind. */
bool rf_as_whole(const struct rf_value *value, int64_t *out);
double rf_as_real(const struct rf_value *value);

/* a == b. */
RF_MUST_CHECK int rf_value_equal(struct rf_room *room, const struct rf_value *a,
                                 const struct rf_value *b, bool *out);
/* -1, 0 or 1; 2: not comparable (NaN). RF_ECORRUPT: kinds without an order. */
RF_MUST_CHECK int rf_value_order(struct rf_room *room, const struct rf_value *a,
                                 const struct rf_value *b, int *out);

/* ---- origins --------------------------------------------------------------------------------- */

/* The origin of both. NULL if neither has one; also if the room is out of memory, with *rc set. */
struct rf_origin *rf_origin_join(struct rf_room *room, struct rf_origin *a, struct rf_origin *b,
                                 int *rc);
/* Marks the origin, and all that it is made of, as written. */
void rf_origin_write(struct rf_origin *origin);

/* ---- walking --------------------------------------------------------------------------------- */

struct rf_walk {
    struct rf_value of;
    size_t at;
};

/* RF_ECORRUPT: not iterable. */
RF_MUST_CHECK int rf_walk_begin(struct rf_room *room, const struct rf_value *of,
                                struct rf_walk *out);
/* 1 and the next item, or 0. */
RF_MUST_CHECK int rf_walk_next(struct rf_room *room, struct rf_walk *walk, struct rf_value *out);
bool rf_can_walk(const struct rf_value *value);

#endif
