/* SPDX-License-Identifier: MIT
 *
 * The forms of attention by tiles: the size of tiles, and an invocation's part of one.
 * attention_paths.c launches them.
 */
#ifndef RF_OPS_ATTENTION_FORMS_H
#define RF_OPS_ATTENTION_FORMS_H

#include "forms.h"

struct rf_attention_form {
    uint8_t tile;           /* rows of a tile: TILE of attention_tiled.glsl */
    uint8_t each_m, each_n; /* scores of an invocation */
    uint8_t step;           /* products of an inner loop that are unrolled together */
    bool split;             /* the key pass computes dV, then dK */
    uint8_t fixed;          /* registers of an invocation besides its sums, as compiled */
};

/* In order of preference. A path of attention names a form by its index: "tiled:2". */
extern const struct rf_attention_form rf_attention_forms[];
extern const size_t rf_attention_form_count;

/* The number of invocations in a workgroup. */
uint32_t rf_attention_form_lanes(const struct rf_attention_form *form);

/* Whether the device has enough shared memory and invocations for the form. */
bool rf_attention_form_fits(const struct rf_device_info *info, const struct rf_attention_form *form,
                            int64_t head_size);

/* The bytes of registers that a subgroup is expected to need for `sums` sums of rows of a head. */
uint32_t rf_attention_form_registers(const struct rf_device_info *info,
                                     const struct rf_attention_form *form, int64_t head_size,
                                     uint32_t sums);

/* "64x64 tile, 4x4 each, 16 unrolled, split" */
void rf_attention_form_text(const struct rf_attention_form *form, char text[RF_KERNEL_FORM_BYTES]);

/* The index that a path such as "tiled:2" names; -1: none. */
int rf_attention_form_named(const char *path);

#endif
