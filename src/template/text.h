/* SPDX-License-Identifier: MIT
 *
 * Operations on texts of templates, as Python's str and markupsafe's Markup have them. Places are
 * bytes, unless letters (code points) are named. Results are texts of the room.
 */
#ifndef RF_TEMPLATE_TEXT_H
#define RF_TEMPLATE_TEXT_H

#include "letters.h"
#include "value.h"

/* A text that is put together; zeroed at first. */
struct rf_build {
    char *bytes;
    size_t count, capacity;
    struct rf_origin *from;
};

RF_MUST_CHECK int rf_build_add(struct rf_room *room, struct rf_build *build, const char *bytes,
                               size_t count);
RF_MUST_CHECK int rf_build_text(struct rf_room *room, struct rf_build *build, const char *text);
/* With its origin. */
RF_MUST_CHECK int rf_build_string(struct rf_room *room, struct rf_build *build,
                                  const struct rf_string *string);
/* The text, which the build must not change any more. */
RF_MUST_CHECK int rf_build_end(struct rf_room *room, const struct rf_build *build, bool safe,
                               struct rf_value *out);

/* a + b: beside a safe text another one is escaped. */
RF_MUST_CHECK int rf_string_join(struct rf_room *room, struct rf_string *a, struct rf_string *b,
                                 struct rf_value *out);
/* Markup.escape: itself if it is safe. */
RF_MUST_CHECK int rf_string_escape(struct rf_room *room, struct rf_string *string,
                                   struct rf_string **out);

/* strip, lstrip, rstrip. letters: what is taken away; NULL: white space. */
RF_MUST_CHECK int rf_string_strip(struct rf_room *room, const struct rf_string *string,
                                  const struct rf_string *letters, bool left, bool right,
                                  struct rf_value *out);
/* Where `what` begins at or after `from`; SIZE_MAX: nowhere. */
size_t rf_string_find(const struct rf_string *string, const struct rf_string *what, size_t from);
/* split: separator NULL: at white space; most < 0: as often as it can be. */
RF_MUST_CHECK int rf_string_split(struct rf_room *room, const struct rf_string *string,
                                  const struct rf_string *separator, int64_t most,
                                  struct rf_value *out);
RF_MUST_CHECK int rf_string_lines(struct rf_room *room, const struct rf_string *string,
                                  struct rf_value *out);
/* replace; most < 0: everywhere. */
RF_MUST_CHECK int rf_string_replace(struct rf_room *room, const struct rf_string *string,
                                    const struct rf_string *old, struct rf_string *by, int64_t most,
                                    struct rf_value *out);
/* The byte at which a letter begins; letters beyond the end: the end. */
size_t rf_string_byte_of(struct rf_string *string, size_t letter);
/* string[start:stop:step], bounds as Python has adjusted them (see rf_slice_bounds). */
RF_MUST_CHECK int rf_string_slice(struct rf_room *room, struct rf_string *string, int64_t start,
                                  int64_t count, int64_t step, struct rf_value *out);

/* capitalize and title of str; the filter title divides words in another way. */
enum rf_casing {
    RF_CASING_LOWER,
    RF_CASING_UPPER,
    RF_CASING_CAPITALIZE,
    RF_CASING_TITLE,
    RF_CASING_FILTER_TITLE
};
RF_MUST_CHECK int rf_string_cased(struct rf_room *room, const struct rf_string *string,
                                  enum rf_casing casing, struct rf_value *out);

#endif
