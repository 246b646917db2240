/* SPDX-License-Identifier: MIT
 *
 * rf_matmul: uses the first path of the table that suits the device and the product. matmul_check.c
 * checks operands; matmul_paths.c runs a path.
 */
#include "matmul.h"

#include "../base/base.h"

/* The first that suits is used; the last suits every device. */
static const struct rf_matmul_path paths[] = {
    {"cooperative", rf_matmul_cooperative_why_not, rf_matmul_cooperative_suits,
     rf_matmul_cooperative_tiles, rf_matmul_cooperative_run, rf_matmul_cooperative_built, true},
    {"workgroup", rf_matmul_workgroup_why_not, rf_matmul_workgroup_suits, rf_matmul_workgroup_tiles,
     rf_matmul_workgroup_run, rf_matmul_workgroup_built},
    {"subgroup", rf_matmul_subgroup_why_not, rf_matmul_subgroup_suits, rf_matmul_subgroup_tiles,
     rf_matmul_subgroup_run, .quantized = true},
    {"tiled", rf_matmul_tiled_why_not, rf_matmul_tiled_suits, rf_matmul_tiled_tiles,
     rf_matmul_tiled_run, .quantized = true},
};
#define PATHS (sizeof(paths) / sizeof(paths[0]))

static const char *why_not(const struct rf_matmul_path *path, const struct rf_device_info *info,
                           const struct rf_product *product)
{
    if (product->quantized && !path->quantized)
        return "it does not unpack a quantised b";
    return path->why_not(info, product);
}

/* Whether `forced` names this path: "NAME" or "NAME:TILE". */
static bool is_named(const struct rf_matmul_path *path, const char *forced)
{
    size_t length = strcspn(forced, ":");
    return strlen(path->name) == length && strncmp(path->name, forced, length) == 0;
}

/* The path that was measured as fastest, with its tile; NULL: no measurement, or the path cannot
 * run this product. */
static const struct rf_matmul_path *pick_tuned(struct rf_product *product)
{
    const struct rf_device_info *info = rf_device_get_info(product->device);
    char tuned[RF_MATMUL_PATH_BYTES];
    if (!rf_matmul_tuned(product, tuned))
        return NULL;
    const char *tile = strchr(tuned, ':');
    product->tile = tile ? (uint32_t)strtoul(tile + 1, NULL, 10) : 0;
    for (size_t i = 0; i < PATHS; i++)
        if (is_named(&paths[i], tuned) && !why_not(&paths[i], info, product))
            return &paths[i];
    product->tile = 0;
    return NULL;
}

/* The path that `forced` names, or the best one; NULL if none can run the product. */
static const struct rf_matmul_path *pick_path(struct rf_product *product, const char *forced)
{
    const struct rf_device_info *info = rf_device_get_info(product->device);
    const struct rf_matmul_path *tuned = forced ? NULL : pick_tuned(product);
    if (tuned)
        return tuned;
    for (size_t i = 0; i < PATHS; i++) {
        if (forced ? is_named(&paths[i], forced) : paths[i].suits(info, product))
            if (!why_not(&paths[i], info, product))
                return &paths[i];
    }
    for (size_t i = 0; i < PATHS && !forced; i++) /* a slow path is better than none */
        if (!why_not(&paths[i], info, product))
            return &paths[i];
    return NULL;
}

/* A product whose tensors do not exist yet, for planning. */
static struct rf_product plan_product(struct rf_device *device, enum rf_dtype type,
                                      const struct rf_matmul_opts *opts)
{
    struct rf_product product = {.device = device};
    rf_matmul_take_options(&product, opts);
    product.a.dtype = product.b.dtype = product.out.dtype = type;
    return product;
}

/* NULL: no path runs it, or it has no sizes. */
static const struct rf_matmul_path *plan_path(struct rf_product *product, const char *forced)
{
    const bool sized = product->m >= 1 && product->n >= 1 && product->k >= 1;
    return sized ? pick_path(product, forced) : NULL;
}

const char *rf_matmul_path(struct rf_device *device, enum rf_dtype type,
                           const struct rf_matmul_opts *opts)
{
    struct rf_product product = plan_product(device, type, opts);
    const struct rf_matmul_path *path = plan_path(&product, opts->path);
    return path ? path->name : "none";
}

int64_t rf_matmul_scratch(struct rf_device *device, enum rf_dtype type,
                          const struct rf_matmul_opts *opts)
{
    struct rf_product product = plan_product(device, type, opts);
    const struct rf_matmul_path *path = plan_path(&product, opts->path);
    int64_t part = path ? rf_matmul_part(&product, path, INT64_MAX) : 0;
    return part ? rf_matmul_parts(&product, part) * product.m * product.n : 0;
}

static void describe(const struct rf_matmul_path *path, struct rf_device *device,
                     enum rf_dtype type, struct rf_matmul_path_info *out)
{
    struct rf_product product =
        plan_product(device, type, &(struct rf_matmul_opts){.m = 1, .n = 1, .k = 1});
    const struct rf_device_info *info = rf_device_get_info(device);
    const char *reason = path->why_not(info, &product);
    if (reason && type == RF_F32) { /* the option without which a path may not accept f32 */
        product.split = 1;
        out->split_only = !path->why_not(info, &product);
        product.split_type = RF_F16;
        out->split_only |= !path->why_not(info, &product);
        reason = out->split_only ? NULL : reason;
    }
    out->name = path->name;
    out->type = type;
    out->built = !path->built || path->built(type);
    out->reason = reason ? reason : "";
    out->usable = !reason;
}

int rf_matmul_paths(struct rf_device *device, struct rf_matmul_path_info *infos, uint32_t capacity,
                    uint32_t *count)
{
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    const uint32_t type_count = sizeof(types) / sizeof(types[0]);
    if (!device || !count || (capacity > 0 && !infos))
        return rf_fail(RF_EINVAL, "rf_matmul_paths needs a device and a place for its results");
    *count = PATHS * type_count;
    for (uint32_t i = 0; i < *count && i < capacity; i++) {
        infos[i] = (struct rf_matmul_path_info){0};
        describe(&paths[i / type_count], device, types[i % type_count], &infos[i]);
    }
    return 0;
}

/* The reason why no path, or not the forced one, runs the product. */
static const char *why_none(const struct rf_product *product, const char *forced)
{
    if (!forced)
        return "omit options that the paths lack (see ringforge info)";
    for (size_t i = 0; i < PATHS; i++)
        if (is_named(&paths[i], forced))
            return why_not(&paths[i], rf_device_get_info(product->device), product);
    return "unknown path; leave path NULL";
}

int rf_matmul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
              struct rf_tensor b, const struct rf_matmul_opts *opts)
{
    static const struct rf_matmul_opts none;
    struct rf_product p;
    if (!opts)
        opts = &none;
    RETURN_IF_ERROR(rf_matmul_check(&p, stream, out, a, b, opts));
    const struct rf_matmul_path *path = pick_path(&p, opts->path);
    if (!path)
        return rf_fail(RF_ENOTSUP, "matmul: %s does not run %s (%lld, %lld, %lld)%s%s on %s: %s",
                       opts->path ? opts->path : "any path", rf_dtype_name(a.dtype), (long long)p.m,
                       (long long)p.n, (long long)p.k, p.transpose_a ? " with a transposed" : "",
                       p.transpose_b ? " with b transposed" : "",
                       rf_device_get_info(p.device)->name, why_none(&p, opts->path));
    int64_t part = opts->scratch ? rf_matmul_part(&p, path, rf_tensor_count(*opts->scratch)) : 0;
    return part ? rf_matmul_run_split(stream, path, &p, *opts->scratch, part)
                : path->run(stream, &p);
}
