/* SPDX-License-Identifier: MIT
 *
 * Calls of functions, filters, tests and methods: binds arguments to parameters. See render.h.
 */
#include "../base/base.h"
#include "render.h"

/* The next word of a list; NULL: the end. */
static const char *next_word(const char **words, size_t *length)
{
    *words += strspn(*words, " ");
    const char *word = *words;
    *length = strcspn(word, " ");
    *words += *length;
    return *length > 0 ? word : NULL;
}

bool rf_word_in(const char *words, const struct rf_string *word)
{
    size_t length;
    for (const char *at; (at = next_word(&words, &length));)
        if (length == word->count && memcmp(at, word->bytes, length) == 0)
            return true;
    return false;
}

const struct rf_builtin *rf_builtin_find(const struct rf_builtin *table,
                                         const struct rf_string *name)
{
    for (; table->name; table++)
        if (rf_string_is(name, table->name))
            return table;
    return NULL;
}

/* The place of a parameter, from 1; 0: no such parameter. */
static size_t place_of(const char *parameters, const struct rf_string *name)
{
    size_t length, place = 0;
    for (const char *at; (at = next_word(&parameters, &length));) {
        place++;
        if (length == name->count && memcmp(at, name->bytes, length) == 0)
            return place;
    }
    return 0;
}

static size_t count_words(const char *words)
{
    size_t length, count = 0;
    while (next_word(&words, &length))
        count++;
    return count;
}

static int bind(struct rf_render *r, const struct rf_builtin *row, const struct rf_args *args,
                struct rf_value *a)
{
    const bool by_place = row->parameters[0] == '/';
    const char *const parameters = row->parameters + by_place;
    const size_t most = count_words(parameters);
    if (args->count > most)
        return rf_room_fail(r->room, RF_ECORRUPT, "%s takes %zu arguments, and %zu are given",
                            row->name, most, args->count);
    for (size_t i = 0; i < args->count; i++)
        a[i + 1] = args->positional[i];
    for (size_t i = 0; i < args->names.count; i++) {
        const struct rf_string *name = args->names.items[i].string;
        const size_t place = by_place ? 0 : place_of(parameters, name);
        if (place == 0 || a[place].kind != RF_V_MISSING)
            return rf_room_fail(r->room, RF_ECORRUPT, "%s takes no argument \"%.*s\" here",
                                row->name, (int)(name->count < 40 ? name->count : 40), name->bytes);
        a[place] = args->named.items[i];
    }
    for (size_t i = 1; i <= row->required; i++)
        if (a[i].kind == RF_V_MISSING)
            return rf_room_fail(r->room, RF_ECORRUPT, "%s needs %zu arguments", row->name,
                                row->required);
    return 0;
}

int rf_builtin_call(struct rf_render *r, const struct rf_builtin *row, const struct rf_value *of,
                    const struct rf_args *args, struct rf_value *out)
{
    struct rf_value a[1 + RF_MAX_PARAMETERS] = {*of};
    RETURN_IF_ERROR(rf_room_spend(r->room, 1));
    if (row->parameters[0] == '*')
        return row->call_any(r, of, args, out);
    RETURN_IF_ERROR(bind(r, row, args, a));
    return row->call(r, a, out);
}

int rf_need_whole(struct rf_render *r, const char *what, const struct rf_value *value, int64_t *out)
{
    if (rf_as_whole(value, out))
        return 0;
    return rf_room_fail(r->room, RF_ECORRUPT, "%s needs a whole number, and gets a %s", what,
                        rf_kind_name(value->kind));
}

int rf_need_string(struct rf_render *r, const char *what, const struct rf_value *value,
                   struct rf_string **out)
{
    if (value->kind != RF_V_STRING)
        return rf_room_fail(r->room, RF_ECORRUPT, "%s needs a text, and gets a %s", what,
                            rf_kind_name(value->kind));
    *out = value->string;
    return 0;
}
