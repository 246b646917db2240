/* SPDX-License-Identifier: MIT
 *
 * Runs statements of a template during rendering. Used by template.c.
 */
#ifndef RF_TEMPLATE_RUN_H
#define RF_TEMPLATE_RUN_H

#include "render.h"

/* Renders the whole template to r->page, with the spans of {% generation %} in r->spans. Errors:
 * see eval.h. */
RF_MUST_CHECK int rf_run_template(struct rf_render *r, const struct rf_scope *scope,
                                  const struct rf_nodes *body);

#endif
