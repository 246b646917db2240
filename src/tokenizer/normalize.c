/* SPDX-License-Identifier: MIT
 *
 * Normalizers: Unicode's normal forms by utf8proc, and replacements. See internal.h.
 */
#include <utf8proc.h>

#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

/* ---- normal forms ---------------------------------------------------------------------------- */

static int normal_form(const char *from, size_t bytes, utf8proc_option_t options,
                       struct rf_text *out)
{
    utf8proc_uint8_t *result = NULL;
    const utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)from, (utf8proc_ssize_t)bytes, &result, options);
    if (length < 0)
        return rf_fail(length == UTF8PROC_ERROR_NOMEM ? RF_ENOMEM : RF_EINVAL,
                       "tokenizer: normal form: %s", utf8proc_errmsg(length));
    const int rc = rf_text_add(out, (const char *)result, (size_t)length);
    free(result);
    return rc;
}

/* Two adjacent characters below `limit` do not change, and nothing composes across them. So only
 * the text between such places goes through utf8proc. */
static int normal_forms(struct rf_work *work, utf8proc_option_t options, uint32_t limit)
{
    const char *text = work->text.bytes;
    const size_t bytes = work->text.count;
    struct rf_text *out = &work->other;
    size_t done = 0, last = 0; /* `last`: the begin of the last character */
    for (size_t i = 0; i < bytes;) {
        if (rf_utf8_read(text + i) < limit) {
            last = i;
            i += rf_utf8_length(text[i]);
            continue;
        }
        const size_t begin = last > done ? last : done;
        size_t below = 0;
        RETURN_IF_ERROR(rf_text_add(out, text + done, begin - done));
        RETURN_IF_ERROR(rf_places_keep(work, done, begin - done));
        while (i < bytes && below < 2) {
            below = rf_utf8_read(text + i) < limit ? below + 1 : 0;
            last = i;
            i += rf_utf8_length(text[i]);
        }
        /* The second of two characters below the limit is not part of it. */
        done = below == 2 ? last : i;
        RETURN_IF_ERROR(work->places
                            ? rf_normal_form_places(work, begin, done - begin, (int)options)
                            : normal_form(text + begin, done - begin, options, out));
    }
    RETURN_IF_ERROR(rf_places_keep(work, done, bytes - done));
    return rf_text_add(out, text + done, bytes - done);
}

/* ---- others ---------------------------------------------------------------------------------- */

int rf_replace(const struct rf_step *step, struct rf_regex_state *state, const char *from,
               size_t bytes, struct rf_text *out)
{
    struct rf_regex_walk walk = {0};
    size_t done = 0, begin, end, length = strlen(step->text);
    int found = 0;
    while (bytes > 0 &&
           (found = rf_regex_next(step->regex, state, from, bytes, &walk, &begin, &end)) > 0) {
        RETURN_IF_ERROR(rf_text_add(out, from + done, begin - done));
        RETURN_IF_ERROR(rf_text_add(out, step->text, length));
        done = end;
    }
    RETURN_IF_ERROR(found);
    return rf_text_add(out, from + done, bytes - done);
}

/* Sets the places after rf_replace: a replacement has the place of its match's last byte, and that
 * of an empty match the place of the byte before. */
static int replace_places(const struct rf_step *step, struct rf_work *work)
{
    struct rf_regex_walk walk = {0};
    const size_t bytes = work->text.count;
    size_t done = 0, begin, end;
    int found = 0;
    while (work->places && bytes > 0 &&
           (found = rf_regex_next(step->regex, work->regex, work->text.bytes, bytes, &walk, &begin,
                                  &end)) > 0) {
        RETURN_IF_ERROR(rf_places_keep(work, done, begin - done));
        RETURN_IF_ERROR(rf_places_put(work, end > 0 ? end - 1 : 0, strlen(step->text)));
        done = end;
    }
    RETURN_IF_ERROR(found);
    return rf_places_keep(work, done, bytes - done);
}

static int strip(const struct rf_step *step, struct rf_work *work)
{
    const char *text = work->text.bytes;
    size_t begin = 0, end = work->text.count;
    while (step->left && begin < end && rf_utf8_is_space(rf_utf8_read(text + begin)))
        begin += rf_utf8_length(text[begin]);
    while (step->right && end > begin) {
        const char *last = rf_utf8_before(text + end);
        if (!rf_utf8_is_space(rf_utf8_read(last)))
            break;
        end = (size_t)(last - text);
    }
    RETURN_IF_ERROR(rf_places_keep(work, begin, end - begin));
    return rf_text_add(&work->other, text + begin, end - begin);
}

static int run_step(const struct rf_step *step, struct rf_work *work)
{
    const char *text = work->text.bytes;
    const size_t bytes = work->text.count;
    const utf8proc_option_t stable = UTF8PROC_STABLE;
    switch (step->kind) {
    case RF_STEP_NFC:
        return normal_forms(work, stable | UTF8PROC_COMPOSE, 0x300);
    case RF_STEP_NFD:
        return normal_forms(work, stable | UTF8PROC_DECOMPOSE, 0x80);
    case RF_STEP_NFKC:
        return normal_forms(work, stable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80);
    case RF_STEP_NFKD:
        return normal_forms(work, stable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80);
    case RF_STEP_PREPEND:
        if (bytes > 0) {
            RETURN_IF_ERROR(rf_text_add(&work->other, step->text, strlen(step->text)));
            RETURN_IF_ERROR(rf_places_put(work, 0, strlen(step->text)));
        }
        RETURN_IF_ERROR(rf_places_keep(work, 0, bytes));
        return rf_text_add(&work->other, text, bytes);
    case RF_STEP_REPLACE:
        RETURN_IF_ERROR(replace_places(step, work));
        return rf_replace(step, work->regex, text, bytes, &work->other);
    case RF_STEP_STRIP:
        return strip(step, work);
    default:
        return rf_fail(RF_EINVAL, "tokenizer: this step is no normalizer");
    }
}

int rf_normalize(const struct rf_steps *steps, struct rf_work *work)
{
    for (int i = 0; i < steps->count; i++) {
        work->other.count = work->other_from.count = 0;
        RETURN_IF_ERROR(run_step(&steps->list[i], work));
        const struct rf_text swap = work->text;
        work->text = work->other;
        work->other = swap;
        rf_places_swap(work);
    }
    return 0;
}
