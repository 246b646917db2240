/* SPDX-License-Identifier: MIT
 *
 * Frozen parameters by name; see parts.h.
 */
#include <fnmatch.h>
#include <string.h>

#include "parts.h"

static void set_frozen(struct rf_param_desc *param, bool frozen)
{
    param->flags &= ~(uint32_t)RF_PARAM_FROZEN;
    if (frozen)
        param->flags |= RF_PARAM_FROZEN;
}

/* The declaration of the first of tied parameters applies to all of them. */
static void set_tied(struct model_blocks *model, const char *first, bool frozen)
{
    for (int b = 0; b < model->count; b++)
        for (int k = 0; k < model->parts[b].param_count; k++) {
            struct rf_param_desc *param = &model->parts[b].params[k];
            if (strcmp(param->name, first) == 0 ||
                (param->tied_to && strcmp(param->tied_to, first) == 0))
                set_frozen(param, frozen);
        }
}

int model_freeze(struct model_blocks *model, const char *pattern)
{
    const bool frozen = pattern[0] != '!';
    int matched = 0;
    for (int b = 0; b < model->count; b++)
        for (int k = 0; k < model->parts[b].param_count; k++) {
            const struct rf_param_desc *param = &model->parts[b].params[k];
            if (fnmatch(pattern + !frozen, param->name, 0) != 0)
                continue;
            set_tied(model, param->tied_to ? param->tied_to : param->name, frozen);
            matched++;
        }
    return matched;
}
