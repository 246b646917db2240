/* SPDX-License-Identifier: MIT
 *
 * Operations on texts of templates, as in Python's str and markupsafe's Markup. Places are bytes,
 * unless letters (code points) are named. Results are texts of the room.
 */
#ifndef RF_TEMPLATE_TEXT_H
#define RF_TEMPLATE_TEXT_H

#include "letters.h"
#include "value.h"

/* A text under construction; zeroed at first. */
struct rf_build {
    char *bytes;
    size_t count, capacity;
    struct rf_origin *from;
};

RF_MUST_CHECK int rf_build_add(struct rf_room *room, struct rf_build *build, const char *bytes,
                               size_t count);
RF_MUST_CHECK int rf_build_text(struct rf_room *room, struct rf_build *build, const char *text);
/* Adds a text with its origin. */
RF_MUST_CHECK int rf_build_string(struct rf_room *room, struct rf_build *build,
                                  const struct rf_string *string);
/* The finished text. The build must not change afterwards. */
RF_MUST_CHECK int rf_build_end(struct rf_room *room, const struct rf_build *build, bool safe,
                               struct rf_value *out);

/* a + b. If one is safe, the other is escaped. */
RF_MUST_CHECK int rf_string_join(struct rf_room *room, struct rf_string *a, struct rf_string *b,
                                 struct rf_value *out);
/* Markup.escape: the text itself if it is safe. */
RF_MUST_CHECK int rf_string_escape(struct rf_room *room, struct rf_string *string,
                                   struct rf_string **out);

/* strip, lstrip, rstrip. letters: the characters to strip; NULL: white space. */
RF_MUST_CHECK int rf_string_strip(struct rf_room *room, const struct rf_string *string,
                                  const struct rf_string *letters, bool left, bool right,
                                  struct rf_value *out);
/* The first place of `what` at or after `from`; SIZE_MAX: none. */
size_t rf_string_find(const struct rf_string *string, const struct rf_string *what, size_t from);
/* split. separator NULL: white space; most < 0: no limit. */
RF_MUST_CHECK int rf_string_split(struct rf_room *room, const struct rf_string *string,
                                  const struct rf_string *separator, int64_t most,
                                  struct rf_value *out);
RF_MUST_CHECK int rf_string_lines(struct rf_room *room, const struct rf_string *string,
                                  struct rf_value *out);
/* replace; most < 0: no limit. */
RF_MUST_CHECK int rf_string_replace(struct rf_room *room, const struct rf_string *string,
                                    const struct rf_string *old, struct rf_string *by, int64_t most,
                                    struct rf_value *out);
/* The byte at which a letter begins; the end for letters past it. */
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
