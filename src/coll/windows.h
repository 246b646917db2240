/* SPDX-License-Identifier: MIT
 *
 * How a call is cut into windows, and where those lie in staging memory. Used by windows.c,
 * compile.c, build.c and forest.c.
 */
#ifndef RF_COLL_WINDOWS_H
#define RF_COLL_WINDOWS_H

#include "sched.h"

/* IN or OUT of a call. */
struct rf_side {
    enum rf_coll_shape shape; /* the form of its pieces */
    const size_t *counts;     /* of shares */
    int count;                /* pieces */
    bool staged;
    size_t *packed; /* [count + 1] the begins of their parts in the current window */
    size_t base;    /* of the side in the window's slot */
};

struct rf_windows {
    const struct rf_coll_desc *desc;
    size_t element;
    struct rf_side in, out;
    size_t width; /* bytes of every piece in a window; the last may have fewer */
    uint32_t count, slots;
    uint32_t tags;     /* of one window; 0: only one window */
    size_t slot_bytes; /* of staging, for one window */
};

/* Sets only the division: width, count and tags. longest: bytes of the longest piece. */
void rf_windows_cut(struct rf_windows *windows, const struct rf_coll_desc *desc, size_t longest,
                    bool can_cut);
/* can_cut: the algorithm keeps pieces separate, so several windows are possible. */
RF_MUST_CHECK int rf_windows_init(struct rf_windows *windows, const struct rf_coll_desc *desc,
                                  bool can_cut);
void rf_windows_fini(struct rf_windows *windows); /* also after a failed rf_windows_init */

/* Writes a call into the list, with `build`. */
void rf_build_windows(struct rf_sched *sched, const struct rf_coll_desc *desc, rf_builder *build,
                      bool can_cut);

#endif
