/* SPDX-License-Identifier: MIT
 *
 * Operators of Python on values; see arithmetic.h.
 */
#include "arithmetic.h"

#include <math.h>

#include "../base/base.h"

static int undefined(struct rf_room *room, const struct rf_value *a, const struct rf_value *b)
{
    const struct rf_string *name = a->kind == RF_V_UNDEFINED ? a->string : b->string;
    return rf_room_fail(room, RF_ECORRUPT, "\"%.*s\" is undefined",
                        name ? (int)(name->count < 60 ? name->count : 60) : 9,
                        name ? name->bytes : "something");
}

static int wrong_kinds(struct rf_room *room, const char *sign, const struct rf_value *a,
                       const struct rf_value *b)
{
    if (a->kind == RF_V_UNDEFINED || b->kind == RF_V_UNDEFINED)
        return undefined(room, a, b);
    return rf_room_fail(room, RF_ECORRUPT, "%s is not for a %s and a %s", sign,
                        rf_kind_name(a->kind), rf_kind_name(b->kind));
}

static int too_large(struct rf_room *room)
{
    return rf_room_fail(room, RF_ENOTSUP, "a whole number has more than 64 bits");
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double modulo_real(double a, double b)
{
    const double rest = fmod(a, b);
    if (rest == 0)
        return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static int calculate_real(struct rf_room *room, enum rf_node_kind operation, double a, double b,
                          struct rf_value *out)
{
    if (operation == RF_N_MODULO && b == 0)
        return rf_room_fail(room, RF_ECORRUPT, "%% by zero");
    *out = rf_real(operation == RF_N_ADD        ? a + b
                   : operation == RF_N_SUBTRACT ? a - b
                   : operation == RF_N_MULTIPLY ? a * b
                                                : modulo_real(a, b));
    return 0;
}

static int calculate_whole(struct rf_room *room, enum rf_node_kind operation, int64_t a, int64_t b,
                           struct rf_value *out)
{
    int64_t result = 0;
    bool over = false;
    if (operation == RF_N_ADD)
        over = __builtin_add_overflow(a, b, &result);
    else if (operation == RF_N_SUBTRACT)
        over = __builtin_sub_overflow(a, b, &result);
    else if (operation == RF_N_MULTIPLY)
        over = __builtin_mul_overflow(a, b, &result);
    else if (b == 0)
        return rf_room_fail(room, RF_ECORRUPT, "%% by zero");
    else if (b != -1) /* the rest has the sign of b */
        result = a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
    if (over)
        return too_large(room);
    *out = rf_whole(result);
    return 0;
}

/* ---- texts and lists ------------------------------------------------------------------------- */

static int repeat(struct rf_room *room, const struct rf_value *of, int64_t times,
                  struct rf_value *out)
{
    if (of->kind == RF_V_STRING) {
        struct rf_build build = {0};
        for (int64_t i = 0; i < times && of->string->count > 0; i++)
            RETURN_IF_ERROR(rf_build_string(room, &build, of->string));
        return rf_build_end(room, &build, of->string->safe, out);
    }
    RETURN_IF_ERROR(rf_list_make(room, of->kind, out));
    for (int64_t i = 0; i < times && of->list->count > 0; i++)
        for (size_t k = 0; k < of->list->count; k++)
            RETURN_IF_ERROR(rf_list_add(room, out->list, of->list->items[k]));
    return 0;
}

static int add_lists(struct rf_room *room, const struct rf_value *a, const struct rf_value *b,
                     struct rf_value *out)
{
    RETURN_IF_ERROR(rf_list_make(room, a->kind, out));
    for (size_t i = 0; i < a->list->count; i++)
        RETURN_IF_ERROR(rf_list_add(room, out->list, a->list->items[i]));
    for (size_t i = 0; i < b->list->count; i++)
        RETURN_IF_ERROR(rf_list_add(room, out->list, b->list->items[i]));
    return 0;
}

static bool repeats(const struct rf_value *value)
{
    return value->kind == RF_V_STRING || value->kind == RF_V_LIST || value->kind == RF_V_TUPLE;
}

int rf_calculate(struct rf_room *room, enum rf_node_kind operation, const struct rf_value *a,
                 const struct rf_value *b, struct rf_value *out)
{
    static const char *const operators[] = {"+", "-", "*", "%"};
    int64_t left, right;
    const bool whole_a = rf_as_whole(a, &left), whole_b = rf_as_whole(b, &right);
    if (whole_a && whole_b)
        return calculate_whole(room, operation, left, right, out);
    if (rf_is_number(a) && rf_is_number(b))
        return calculate_real(room, operation, rf_as_real(a), rf_as_real(b), out);
    if (operation == RF_N_ADD && a->kind == RF_V_STRING && b->kind == RF_V_STRING)
        return rf_string_join(room, a->string, b->string, out);
    if (operation == RF_N_ADD && a->kind == b->kind &&
        (a->kind == RF_V_LIST || a->kind == RF_V_TUPLE))
        return add_lists(room, a, b, out);
    if (operation == RF_N_MULTIPLY && repeats(a) && whole_b)
        return repeat(room, a, right, out);
    if (operation == RF_N_MULTIPLY && repeats(b) && whole_a)
        return repeat(room, b, left, out);
    if (operation == RF_N_MODULO && a->kind == RF_V_STRING)
        return rf_room_fail(room, RF_ENOTSUP, "%% of a text is not implemented");
    return wrong_kinds(room, operators[operation - RF_N_ADD], a, b);
}

int rf_sign(struct rf_room *room, bool negate, const struct rf_value *a, struct rf_value *out)
{
    int64_t whole;
    if (rf_as_whole(a, &whole)) {
        if (negate && whole == INT64_MIN)
            return too_large(room);
        *out = rf_whole(negate ? -whole : whole);
        return 0;
    }
    if (a->kind != RF_V_FLOAT)
        return wrong_kinds(room, negate ? "-" : "+", a, a);
    *out = rf_real(negate ? -a->real : a->real);
    return 0;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static int has_equal(struct rf_room *room, const struct rf_value *item, const struct rf_value *in,
                     bool *out)
{
    struct rf_walk walk;
    struct rf_value each;
    int more;
    RETURN_IF_ERROR(rf_walk_begin(room, in, &walk));
    for (*out = false; !*out && (more = rf_walk_next(room, &walk, &each)) > 0;)
        RETURN_IF_ERROR(rf_value_equal(room, &each, item, out));
    return *out ? 0 : more;
}

static int contains(struct rf_room *room, const struct rf_value *item, const struct rf_value *in,
                    bool *out)
{
    struct rf_pair *pair;
    if (in->kind == RF_V_STRING) {
        if (item->kind != RF_V_STRING)
            return wrong_kinds(room, "in", item, in);
        RETURN_IF_ERROR(rf_room_spend(room, in->string->count / 16));
        *out = rf_string_find(in->string, item->string, 0) != SIZE_MAX;
        return 0;
    }
    if (in->kind == RF_V_DICT || (in->kind == RF_V_VIEW && in->view->kind == RF_VIEW_KEYS)) {
        RETURN_IF_ERROR(
            rf_dict_find(room, in->kind == RF_V_DICT ? in->dict : in->view->dict, *item, &pair));
        *out = pair != NULL;
        return 0;
    }
    return has_equal(room, item, in, out);
}

int rf_compare(struct rf_room *room, enum rf_comparison comparison, const struct rf_value *a,
               const struct rf_value *b, bool *out)
{
    int order;
    switch (comparison) {
    case RF_C_EQUAL:
        return rf_value_equal(room, a, b, out);
    case RF_C_UNEQUAL:
        RETURN_IF_ERROR(rf_value_equal(room, a, b, out));
        *out = !*out;
        return 0;
    case RF_C_IN:
        return contains(room, a, b, out);
    case RF_C_NOT_IN:
        RETURN_IF_ERROR(contains(room, a, b, out));
        *out = !*out;
        return 0;
    default:
        break;
    }
    if (a->kind == RF_V_UNDEFINED || b->kind == RF_V_UNDEFINED)
        return undefined(room, a, b);
    RETURN_IF_ERROR(rf_value_order(room, a, b, &order));
    *out = comparison == RF_C_LESS         ? order == -1
           : comparison == RF_C_LESS_EQUAL ? order == -1 || order == 0
           : comparison == RF_C_GREATER    ? order == 1
                                           : order == 1 || order == 0;
    return 0;
}
