/* SPDX-License-Identifier: MIT
 *
 * Between plan_search.c, which searches, and plan_search_print.c, which prints the results.
 */
#ifndef RF_TOOLS_PLAN_SEARCH_H
#define RF_TOOLS_PLAN_SEARCH_H

#include <ringforge/search.h>
#include <stddef.h>

#include "plan.h"

/* The axes of a mesh, in the order of columns. */
enum { PLAN_AXES = 4 };
struct plan_axis {
    const char *name;
    size_t offset; /* in struct rf_mesh */
};
extern const struct plan_axis plan_axes[PLAN_AXES];

static inline int *plan_axis_of(struct rf_mesh *mesh, int axis)
{
    return (int *)((char *)mesh + plan_axes[axis].offset);
}

struct plan_found {
    const struct rf_search *search;
    const struct rf_search_opts *opts;
    const char *const *dtypes; /* of each model */
    int64_t top;               /* rows */
};
void plan_found_print(const struct plan_found *found);
cJSON *plan_found_json(const struct plan_found *found);

/* As options: "--mesh dp=4,pp=2 --zero 1 ..."; returns text. */
enum { PLAN_CANDIDATE_TEXT = 256 };
const char *plan_candidate_text(const struct rf_candidate *candidate, const char *dtype,
                                char text[PLAN_CANDIDATE_TEXT]);

#endif
