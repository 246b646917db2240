/* SPDX-License-Identifier: MIT
 *
 * Tests of templates ("x is defined"); see render.h.
 */
#include "../base/base.h"
#include "render.h"

#define IS(name, condition)                                                                        \
    static int name(struct rf_render *r, const struct rf_value *a, struct rf_value *out)           \
    {                                                                                              \
        (void)r;                                                                                   \
        *out = rf_bool(condition);                                                                 \
        return 0;                                                                                  \
    }

IS(is_defined, a->kind != RF_V_UNDEFINED)
IS(is_undefined, a->kind == RF_V_UNDEFINED)
IS(is_none, a->kind == RF_V_NONE)
IS(is_boolean, a->kind == RF_V_BOOL)
IS(is_true, a->kind == RF_V_BOOL && a->truth)
IS(is_false, a->kind == RF_V_BOOL && !a->truth)
IS(is_integer, a->kind == RF_V_INT)
IS(is_float, a->kind == RF_V_FLOAT)
IS(is_number, rf_is_number(a))
IS(is_string, a->kind == RF_V_STRING)
IS(is_mapping, a->kind == RF_V_DICT)
IS(is_iterable, rf_can_walk(a) || a->kind == RF_V_LOOP)
/* Whether it has a length and items. */
IS(is_sequence, rf_can_walk(a) && a->kind != RF_V_VIEW && a->kind != RF_V_GENERATOR)

static int is_equal(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    bool equal;
    RETURN_IF_ERROR(rf_value_equal(r->room, &a[0], &a[1], &equal));
    *out = rf_bool(equal);
    return 0;
}

static int is_unequal(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    RETURN_IF_ERROR(is_equal(r, a, out));
    *out = rf_bool(!out->truth);
    return 0;
}

static const struct rf_builtin tests[] = {{"defined", "", 0, is_defined, NULL},
                                          {"undefined", "", 0, is_undefined, NULL},
                                          {"none", "", 0, is_none, NULL},
                                          {"boolean", "", 0, is_boolean, NULL},
                                          {"true", "", 0, is_true, NULL},
                                          {"false", "", 0, is_false, NULL},
                                          {"integer", "", 0, is_integer, NULL},
                                          {"float", "", 0, is_float, NULL},
                                          {"number", "", 0, is_number, NULL},
                                          {"string", "", 0, is_string, NULL},
                                          {"mapping", "", 0, is_mapping, NULL},
                                          {"iterable", "", 0, is_iterable, NULL},
                                          {"sequence", "", 0, is_sequence, NULL},
                                          {"equalto", "/other", 1, is_equal, NULL},
                                          {"eq", "/other", 1, is_equal, NULL},
                                          {"==", "/other", 1, is_equal, NULL},
                                          {"ne", "/other", 1, is_unequal, NULL},
                                          {"!=", "/other", 1, is_unequal, NULL},
                                          {NULL}};

const struct rf_builtin *rf_test_find(const struct rf_string *name)
{
    return rf_builtin_find(tests, name);
}

bool rf_test_is_missing(const struct rf_string *name)
{
    return rf_word_in(
        "odd even divisibleby filter test lower upper callable sameas escaped in > gt "
        "greaterthan ge >= < lt lessthan <= le",
        name);
}
