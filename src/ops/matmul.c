/* SPDX-License-Identifier: MIT
 *
 * rf_matmul: checks the operands, and takes the first path of the table that suits the device. How
 * a path runs is in matmul_paths.c.
 */
#include "matmul.h"

#include "../base/base.h"

/* The first that suits is taken; the last suits every device. */
static const struct rf_matmul_path paths[] = {
    {"cooperative", rf_matmul_cooperative_why_not, rf_matmul_cooperative_suits,
     rf_matmul_cooperative_run},
    {"subgroup", rf_matmul_subgroup_why_not, rf_matmul_subgroup_suits, rf_matmul_subgroup_run},
    {"tiled", rf_matmul_tiled_why_not, rf_matmul_tiled_suits, rf_matmul_tiled_run},
};
#define PATHS (sizeof(paths) / sizeof(paths[0]))

static const char op[] = "matmul";

/* Whether `forced` names it: "NAME" or "NAME:TILE". */
static bool is_named(const struct rf_matmul_path *path, const char *forced)
{
    size_t length = strcspn(forced, ":");
    return strlen(path->name) == length && strncmp(path->name, forced, length) == 0;
}

/* The path that `forced` names, or the best one; NULL when none can run the product. */
static const struct rf_matmul_path *pick_path(const struct rf_product *product, const char *forced)
{
    const struct rf_device_info *info = rf_device_get_info(product->device);
    for (size_t i = 0; i < PATHS; i++) {
        if (forced ? is_named(&paths[i], forced) : paths[i].suits(info, product))
            if (!paths[i].why_not(info, product))
                return &paths[i];
    }
    for (size_t i = 0; i < PATHS && !forced; i++) /* slow is better than not at all */
        if (!paths[i].why_not(info, product))
            return &paths[i];
    return NULL;
}

/* A product of tensors that there are not yet. */
static struct rf_product plan_product(struct rf_device *device, enum rf_dtype type)
{
    return (struct rf_product){.device = device,
                               .a.dtype = type,
                               .b.dtype = type,
                               .out.dtype = type,
                               .m = 1,
                               .n = 1,
                               .k = 1,
                               .split_type = RF_BF16};
}

static void take_options(struct rf_product *product, const struct rf_matmul_opts *opts)
{
    product->transpose_a = opts->transpose_a;
    product->transpose_b = opts->transpose_b;
    product->accumulate = opts->accumulate;
    product->gelu = opts->gelu;
    product->split = opts->split;
    product->split_type = opts->split_type == RF_F16 ? RF_F16 : RF_BF16;
    const char *tile = opts->path ? strchr(opts->path, ':') : NULL;
    product->tile = tile ? (uint32_t)strtoul(tile + 1, NULL, 10) : 0;
}

const char *rf_matmul_path(struct rf_device *device, enum rf_dtype type, int64_t m, int64_t n,
                           int64_t k, const struct rf_matmul_opts *opts)
{
    struct rf_product product = plan_product(device, type);
    product.m = m;
    product.n = n;
    product.k = k;
    if (opts)
        take_options(&product, opts);
    const struct rf_matmul_path *path = pick_path(&product, opts ? opts->path : NULL);
    return path ? path->name : "none";
}

static void describe(const struct rf_matmul_path *path, struct rf_device *device,
                     enum rf_dtype type, struct rf_matmul_path_info *out)
{
    struct rf_product product = plan_product(device, type);
    const struct rf_device_info *info = rf_device_get_info(device);
    const char *reason = path->why_not(info, &product);
    if (reason && type == RF_F32) { /* the one option without which a path may not take f32 */
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

static int64_t columns_of(struct rf_tensor tensor)
{
    return tensor.shape.ndim ? tensor.shape.dim[tensor.shape.ndim - 1] : 1;
}

static int64_t rows_of(struct rf_tensor tensor)
{
    int64_t columns = columns_of(tensor);
    return columns ? rf_tensor_count(tensor) / columns : 0;
}

/* Fails when the sizes of a, b, out, bias and pre do not fit each other. */
static int check_sizes(struct rf_product *p)
{
    char a[96], b[96], out[96];
    const char *a_form = p->transpose_a ? " transposed" : "";
    const char *b_form = p->transpose_b ? " transposed" : "";
    rf_tensor_text(p->a, a, sizeof(a));
    rf_tensor_text(p->b, b, sizeof(b));
    rf_tensor_text(p->out, out, sizeof(out));
    p->m = p->transpose_a ? columns_of(p->a) : rows_of(p->a);
    p->k = p->transpose_a ? rows_of(p->a) : columns_of(p->a);
    p->n = p->transpose_b ? rows_of(p->b) : columns_of(p->b);
    int64_t inner = p->transpose_b ? columns_of(p->b) : rows_of(p->b);
    if (p->m < 1 || p->n < 1 || p->k < 1 || inner < 1)
        return rf_fail(RF_EINVAL, "matmul: a is %s, b is %s; every dimension must be at least 1", a,
                       b);
    if (p->k != inner)
        return rf_fail(
            RF_EINVAL,
            "matmul: a is %s%s, b is %s%s; inner sizes differ: a has %lld columns, b %lld rows", a,
            a_form, b, b_form, (long long)p->k, (long long)inner);
    if (rows_of(p->out) != p->m || columns_of(p->out) != p->n)
        return rf_fail(RF_EINVAL, "matmul: out is %s, but a %s%s times b %s%s is (%lld, %lld)", out,
                       a, a_form, b, b_form, (long long)p->m, (long long)p->n);
    if (p->bias.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "bias", p->bias, RF_F32, p->n));
    if (p->pre.buffer)
        RETURN_IF_ERROR(rf_check_rows(op, "pre", p->pre, p->out.dtype, p->m, p->n));
    return 0;
}

static int check_options(const struct rf_matmul_opts *opts)
{
    if (opts->accumulate && (opts->bias || opts->gelu))
        return rf_fail(RF_EINVAL, "matmul: accumulate goes with neither bias nor gelu");
    if (opts->pre && !opts->gelu)
        return rf_fail(RF_EINVAL, "matmul: pre is written with gelu only");
    if (opts->split > 3)
        return rf_fail(RF_EINVAL, "matmul: split is %u; at most 3 parts make sense for f32",
                       opts->split);
    if (opts->split_type != RF_F32 && opts->split_type != RF_F16 && opts->split_type != RF_BF16)
        return rf_fail(RF_EINVAL, "matmul: split_type is %s; parts are f16 or bf16",
                       rf_dtype_name(opts->split_type));
    if ((opts->bias && !opts->bias->buffer) || (opts->pre && !opts->pre->buffer))
        return rf_fail(RF_EINVAL, "matmul: %s has no buffer",
                       opts->bias && !opts->bias->buffer ? "bias" : "pre");
    return 0;
}

static int check_devices(const struct rf_product *p)
{
    const struct rf_operand all[] = {
        {"out", p->out}, {"a", p->a}, {"b", p->b}, {"bias", p->bias}, {"pre", p->pre}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].tensor.buffer && rf_buffer_device(all[i].tensor.buffer) != p->device)
            return rf_fail(RF_EINVAL, "matmul: %s and the stream are of different devices",
                           all[i].name);
    return 0;
}

/* Why no path runs the product, or not the one that is forced. */
static const char *why_none(const struct rf_product *product, const char *forced)
{
    if (!forced)
        return "leave out what the paths lack (see ringforge info)";
    for (size_t i = 0; i < PATHS; i++)
        if (is_named(&paths[i], forced))
            return paths[i].why_not(rf_device_get_info(product->device), product);
    return "there is no such path; leave path NULL";
}

int rf_matmul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
              struct rf_tensor b, const struct rf_matmul_opts *opts)
{
    static const struct rf_matmul_opts none;
    if (!opts)
        opts = &none;
    if (!stream)
        return rf_fail(RF_EINVAL, "matmul: no stream");
    RETURN_IF_ERROR(rf_check_typed(op, "a", a, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "b", b, a.dtype, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, out.dtype == RF_F32 ? RF_F32 : a.dtype, -1));
    RETURN_IF_ERROR(check_options(opts));
    struct rf_product product = {.device = rf_stream_device(stream), .out = out, .a = a, .b = b};
    take_options(&product, opts);
    if (opts->bias)
        product.bias = *opts->bias;
    if (opts->pre)
        product.pre = *opts->pre;
    RETURN_IF_ERROR(check_sizes(&product));
    RETURN_IF_ERROR(check_devices(&product));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_operand[]){{"out", out}, {"pre", product.pre}}, 2,
                       (struct rf_operand[]){{"a", a}, {"b", b}, {"bias", product.bias}}, 3));
    const struct rf_matmul_path *path = pick_path(&product, opts->path);
    if (!path)
        return rf_fail(RF_ENOTSUP, "matmul: %s does not run %s (%lld, %lld, %lld)%s%s on %s: %s",
                       opts->path ? opts->path : "any path", rf_dtype_name(a.dtype),
                       (long long)product.m, (long long)product.n, (long long)product.k,
                       product.transpose_a ? " with a transposed" : "",
                       product.transpose_b ? " with b transposed" : "",
                       rf_device_get_info(product.device)->name, why_none(&product, opts->path));
    return path->run(stream, &product);
}
