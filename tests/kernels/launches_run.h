/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of launches: operands, names, refusals.
 */
#ifndef RF_TESTS_KERNELS_LAUNCHES_RUN_H
#define RF_TESTS_KERNELS_LAUNCHES_RUN_H

#include <stdio.h>
#include <string.h>

#include "launches.h"

static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
#define TYPES (sizeof(types) / sizeof(types[0]))

struct run {
    struct operands *operands;
    void (*done)(void *user, const struct launch *launch, int status);
    void *user;
};

static inline struct rf_tensor take(const struct run *run, enum rf_dtype dtype, int64_t rows,
                                    int64_t columns)
{
    struct operands *o = run->operands;
    struct rf_tensor tensor = {o->buffer, o->used, rf_shape2(rows, columns), dtype};
    o->used = (tensor.offset + rf_tensor_bytes(tensor) + 255) / 256 * 256;
    return tensor;
}

static inline struct rf_tensor reshape(struct rf_tensor tensor, struct rf_shape shape)
{
    tensor.shape = shape;
    return tensor;
}

/* The next operands may overlap earlier ones: nothing runs. */
static inline void afresh(const struct run *run)
{
    run->operands->used = 0;
}

static inline bool on_cpu(const struct run *run)
{
    return run->operands->info->kind == RF_DEVICE_CPU;
}

/* ---- devices that may refuse ---------------------------------------------------------------- */

static inline bool no_units(const struct rf_device_info *info)
{
    return !info->cooperative_matrix;
}

static inline bool no_bfloat16(const struct rf_device_info *info)
{
    return info->cooperative_matrix && !info->bfloat16;
}

/* Forced paths on matrix units. */
static const struct refusal without_units[] = {
    {no_units, "its driver does not offer VK_KHR_cooperative_matrix"},
    {no_bfloat16, "its driver does not offer VK_KHR_shader_bfloat16"},
    {no_bfloat16, "the driver does not offer arithmetic in this type"},
    {0}};

static inline void add_type(struct launch *launch, enum rf_dtype dtype)
{
    size_t used = strlen(launch->name);
    snprintf(launch->name + used, sizeof(launch->name) - used, " %s", rf_dtype_name(dtype));
}

/* Ends a launch; a buffer that is too small shows as a refusal. */
static inline void end(const struct run *run, struct launch launch, enum rf_dtype dtype, int status)
{
    add_type(&launch, dtype);
    run->done(run->user, &launch, status);
}

static inline bool is_wanted(const struct run *run, const struct launch *launch)
{
    const struct operands *o = run->operands;
    for (int i = 0; i < o->word_count; i++)
        if (strstr(launch->name, o->words[i]))
            return true;
    return o->word_count == 0;
}

static inline void plain(const struct run *run, const char *name, enum rf_dtype dtype, int status)
{
    struct launch launch = {.chosen = true};
    snprintf(launch.name, sizeof(launch.name), "%s", name);
    end(run, launch, dtype, status);
}

/* launches_attention.c */
void launch_attentions(const struct run *run, enum rf_dtype dtype);

/* Those for which the library chooses path and form. */
void launch_attentions_chosen(const struct run *run, enum rf_dtype dtype);

/* Rotary embedding and copies of heads. */
void launch_heads(const struct run *run, enum rf_dtype dtype);

#endif
