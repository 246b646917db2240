/* SPDX-License-Identifier: MIT
 *
 * Unicode's normal forms with the place of each character (UAX 15): decomposition, ordering and
 * composition as separate steps, because utf8proc alone does all at once. A composed character has
 * the place of its first part. See internal.h.
 */
#include <utf8proc.h>

#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

enum { MOST_PARTS = 32 }; /* of one character; Unicode has 18 */

/* change: 0: a character of the text; 1: new; -n: stands for n + 1 characters. */
struct letter {
    utf8proc_int32_t code;
    int change, order; /* order: canonical combining class */
};

struct letters {
    struct letter *list;
    size_t count, capacity;
};

static int add(struct letters *letters, struct letter letter)
{
    if (letters->count == letters->capacity) {
        const size_t capacity = 2 * letters->capacity + 32;
        struct letter *list = rf_realloc(letters->list, capacity * sizeof(*list));
        if (!list)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a normal form");
        letters->list = list;
        letters->capacity = capacity;
    }
    letters->list[letters->count++] = letter;
    return 0;
}

static int decompose(const char *text, size_t bytes, utf8proc_option_t options, struct letters *out)
{
    options = (options & ~(unsigned)UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE;
    for (size_t i = 0; i < bytes; i += rf_utf8_length(text[i])) {
        utf8proc_int32_t parts[MOST_PARTS];
        const utf8proc_ssize_t count = utf8proc_decompose_char(
            (utf8proc_int32_t)rf_utf8_read(text + i), parts, MOST_PARTS, options, NULL);
        if (count < 0 || count > MOST_PARTS)
            return rf_fail(RF_EINVAL, "tokenizer: normal form: %s", utf8proc_errmsg(count));
        for (utf8proc_ssize_t k = 0; k < count; k++)
            RETURN_IF_ERROR(
                add(out, (struct letter){parts[k], k > 0,
                                         utf8proc_get_property(parts[k])->combining_class}));
    }
    return 0;
}

/* Sorts combining characters by class; stable. */
static void order(struct letters *letters)
{
    for (size_t i = 1; i < letters->count; i++) {
        const struct letter letter = letters->list[i];
        size_t at = i;
        if (letter.order == 0)
            continue;
        for (; at > 0 && letters->list[at - 1].order > letter.order; at--)
            letters->list[at] = letters->list[at - 1];
        letters->list[at] = letter;
    }
}

/* The composition of two characters; -1: none. */
static utf8proc_int32_t pair(utf8proc_int32_t a, utf8proc_int32_t b, utf8proc_option_t options)
{
    utf8proc_int32_t both[3] = {a, b, 0};
    options = UTF8PROC_COMPOSE | (options & UTF8PROC_STABLE);
    return utf8proc_normalize_utf32(both, 2, options) == 1 ? both[0] : -1;
}

static void compose(struct letters *letters, utf8proc_option_t options)
{
    struct letter *list = letters->list;
    size_t kept = 0, starter = SIZE_MAX;
    int last = -1; /* the class of the previous character that was not composed; -1: none since the
                    * starter */
    for (size_t i = 0; i < letters->count; i++) {
        const struct letter letter = list[i];
        const bool blocked = starter == SIZE_MAX || (last >= 0 && last >= letter.order);
        const utf8proc_int32_t both = blocked ? -1 : pair(list[starter].code, letter.code, options);
        if (both >= 0) {
            list[starter].code = both;
            list[starter].change += letter.change - 1;
            continue;
        }
        list[kept] = letter;
        if (letter.order == 0)
            starter = kept;
        last = letter.order == 0 ? -1 : letter.order;
        kept++;
    }
    letters->count = kept;
}

/* Appends the letters to work->other, with the places of the text from `at` on. */
static int put(struct rf_work *work, const struct letters *letters, size_t at, size_t end)
{
    const char *text = work->text.bytes;
    for (size_t i = 0; i < letters->count; i++) {
        const struct letter *letter = &letters->list[i];
        utf8proc_uint8_t bytes[4];
        const size_t length = (size_t)utf8proc_encode_char(letter->code, bytes);
        RETURN_IF_ERROR(rf_text_add(&work->other, (const char *)bytes, length));
        RETURN_IF_ERROR(rf_places_put(work, letter->change > 0 && at > 0 ? at - 1 : at, length));
        for (int k = letter->change; k <= 0 && at < end; k++)
            at += rf_utf8_length(text[at]);
    }
    return 0;
}

int rf_normal_form_places(struct rf_work *work, size_t begin, size_t bytes, int options)
{
    struct letters letters = {0};
    int rc = decompose(work->text.bytes + begin, bytes, (utf8proc_option_t)options, &letters);
    if (rc == 0) {
        order(&letters);
        if (options & UTF8PROC_COMPOSE)
            compose(&letters, (utf8proc_option_t)options);
        rc = put(work, &letters, begin, begin + bytes);
    }
    rf_free(letters.list);
    return rc;
}
