/* SPDX-License-Identifier: MIT
 *
 * The table of forms of attention by tiles. A form costs more the later it comes: loops that are
 * less unrolled, then a product that is computed twice, then twice the reads of shared memory.
 */
#include "attention_forms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"

#define DEPTH 16 /* of attention_shares.glsl */

/* fixed: the maximum that Mesa's compilers for Intel and Adreno need. With full unrolling on
 * devices without offsets in shared memory that is an address per product, elsewhere far less. */
const struct rf_attention_form rf_attention_forms[] = {
    {64, 4, 4, 16, false, 216}, /* 0 */
    {64, 4, 4, 4, false, 118},  /* 1 */
    {64, 4, 4, 1, false, 102},  /* 2 */
    {64, 4, 4, 16, true, 216},  /* 3 */
    {64, 4, 4, 4, true, 118},   /* 4 */
    {64, 4, 4, 1, true, 102},   /* 5 */
    {64, 4, 2, 4, false, 94},   /* 6 */
    {64, 4, 2, 4, true, 94},    /* 7 */
    {32, 2, 2, 4, false, 76},   /* 8 */
    {32, 2, 2, 4, true, 76},    /* 9 */
    {32, 4, 4, 16, false, 216}, /* 10: for small workgroups */
};
const size_t rf_attention_form_count = sizeof(rf_attention_forms) / sizeof(rf_attention_forms[0]);

#define SECOND_SUMS 24 /* registers of the key pass besides its second sums */

uint32_t rf_attention_form_lanes(const struct rf_attention_form *form)
{
    return form->tile / form->each_m * (form->tile / form->each_n);
}

/* The elements of a row of sums that an invocation computes: 2 PAIRS of attention_tiled.glsl. */
static uint32_t columns_of(const struct rf_attention_form *form, int64_t head_size)
{
    const uint32_t across = form->tile / form->each_n;
    return (uint32_t)(head_size + 2 * across - 1) / (2 * across) * 2;
}

bool rf_attention_form_fits(const struct rf_device_info *info, const struct rf_attention_form *form,
                            int64_t head_size)
{
    const uint32_t lanes = rf_attention_form_lanes(form), tile = form->tile;
    const uint32_t dots = 2 * DEPTH * (tile + 4);
    const uint32_t mixes = DEPTH * columns_of(form, head_size) * (tile / form->each_n);
    const uint32_t shared = 4 * ((dots > mixes ? dots : mixes) + tile * tile);
    return shared <= info->max_shared_bytes && lanes <= info->max_workgroup_invocations &&
           lanes <= info->max_workgroup_size[0];
}

uint32_t rf_attention_form_registers(const struct rf_device_info *info,
                                     const struct rf_attention_form *form, int64_t head_size,
                                     uint32_t sums)
{
    const uint32_t rows = form->split ? 1 : sums;
    const uint32_t each = rows * form->each_m * columns_of(form, head_size) + form->fixed +
                          (rows > 1 ? SECOND_SUMS : 0);
    return 4 * rf_register_lanes(info) * each;
}

void rf_attention_form_text(const struct rf_attention_form *form, char text[RF_KERNEL_FORM_BYTES])
{
    snprintf(text, RF_KERNEL_FORM_BYTES, "%ux%u tile, %ux%u each, %u unrolled%s", form->tile,
             form->tile, form->each_m, form->each_n, form->step, form->split ? ", split" : "");
}

int rf_attention_form_named(const char *path)
{
    const char *colon = path ? strchr(path, ':') : NULL;
    char *end;
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return -1;
    const unsigned long place = strtoul(colon + 1, &end, 10);
    return *end == 0 && place < rf_attention_form_count ? (int)place : -1;
}
