/* SPDX-License-Identifier: MIT
 *
 * The operands of a fold, in the type of the arithmetic. Called by fold.c and average.c.
 */
#include "reduce.h"

/* Whether the type is widened: a caller's own reduction works on its type. */
static bool is_narrow(const struct rf_fold *fold)
{
    return (fold->dtype == RF_F16 || fold->dtype == RF_BF16) && !fold->custom;
}

enum rf_dtype rf_fold_type(const struct rf_fold *fold)
{
    return is_narrow(fold) ? RF_F32 : fold->dtype;
}

const void *rf_fold_part(const struct rf_fold *fold, uint32_t i, size_t offset, size_t count,
                         float *wide)
{
    const unsigned char *data = (const unsigned char *)fold->parts[i].data + offset;
    if (!is_narrow(fold))
        return data;
    rf_widen(wide, data, count, fold->dtype);
    return wide;
}
