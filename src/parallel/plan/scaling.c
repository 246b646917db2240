/* SPDX-License-Identifier: MIT
 *
 * Divides a plan's memory into the part that grows with the parameters, and the part that grows
 * with the tokens of a micro-batch.
 */
#include "../../base/base.h"
#include "plan.h"

static uint64_t *place_of(struct rf_scaling *scaling, int region, enum rf_category category)
{
    switch (region) {
    case RF_REGION_SCALARS:
    case RF_REGION_NORM:
    case RF_REGION_PARTIALS:
    case RF_REGION_WORKSPACE:
        return &scaling->fixed;
    case RF_REGION_SCRATCH:
        return &scaling->tokens;
    case RF_REGION_DECAY:
    case RF_REGION_PLACES:
    case RF_REGION_CHUNKS:
    case RF_REGION_SQUARES:
        return &scaling->params;
    default:
        if (region >= RF_REGION_FIXED && category == RF_CATEGORY_OPTIMIZER)
            return &scaling->fixed; /* blocks of states on a disk, of which there are two */
        /* of temporary values, the scratch of activations has no reader */
        return category == RF_CATEGORY_ACTIVATIONS || category == RF_CATEGORY_SCRATCH
                   ? &scaling->tokens
                   : &scaling->params;
    }
}

void rf_plan_scaling(const struct rf_plan *plan, struct rf_scaling *out)
{
    *out = (struct rf_scaling){0};
    for (int i = 0; i < plan->region_count; i++)
        if (plan->regions[i].memory != RF_MEMORY_DISK)
            *place_of(out, i, plan->regions[i].category) += plan->regions[i].bytes;
}
