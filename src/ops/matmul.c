/* SPDX-License-Identifier: MIT
 *
 * rf_matmul: checks the operands, and takes the first path of the table that suits the device. How
 * a path runs is in matmul_paths.c.
 */
#include "matmul.h"

#include "../base/base.h"

/* The first that suits is taken; the last suits every device. */
static const struct rf_matmul_path paths[] = {
    {"subgroup", rf_matmul_subgroup_can, rf_matmul_subgroup_suits, rf_matmul_subgroup_run},
    {"tiled", rf_matmul_tiled_can, rf_matmul_tiled_suits, rf_matmul_tiled_run},
};
#define PATHS (sizeof(paths) / sizeof(paths[0]))

static const char op[] = "matmul";

/* The path that `forced` names, or the best one; NULL when it cannot run. */
static const struct rf_matmul_path *pick_path(const struct rf_product *product, const char *forced)
{
    const struct rf_device_info *info = rf_device_get_info(product->device);
    for (size_t i = 0; i < PATHS; i++) {
        if (forced ? strcmp(forced, paths[i].name) == 0 : paths[i].suits(info, product))
            if (paths[i].can(info, product))
                return &paths[i];
    }
    return NULL;
}

const char *rf_matmul_path(struct rf_device *device, int64_t m, int64_t n, int64_t k,
                           const struct rf_matmul_opts *opts)
{
    struct rf_product product = {.device = device, .m = m, .n = n, .k = k};
    if (opts) {
        product.transpose_a = opts->transpose_a;
        product.transpose_b = opts->transpose_b;
        product.accumulate = opts->accumulate;
        product.gelu = opts->gelu;
    }
    const struct rf_matmul_path *path = pick_path(&product, opts ? opts->path : NULL);
    return path ? path->name : "none";
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
        RETURN_IF_ERROR(rf_check_rows(op, "pre", p->pre, RF_F32, p->m, p->n));
    return 0;
}

static int check_options(const struct rf_matmul_opts *opts)
{
    if (opts->accumulate && (opts->bias || opts->gelu))
        return rf_fail(RF_EINVAL, "matmul: accumulate goes with neither bias nor gelu");
    if (opts->pre && !opts->gelu)
        return rf_fail(RF_EINVAL, "matmul: pre is written with gelu only");
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

int rf_matmul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
              struct rf_tensor b, const struct rf_matmul_opts *opts)
{
    static const struct rf_matmul_opts none;
    if (!opts)
        opts = &none;
    if (!stream)
        return rf_fail(RF_EINVAL, "matmul: no stream");
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_F32, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "a", a, RF_F32, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "b", b, RF_F32, -1));
    RETURN_IF_ERROR(check_options(opts));
    struct rf_product product = {.device = rf_stream_device(stream),
                                 .out = out,
                                 .a = a,
                                 .b = b,
                                 .transpose_a = opts->transpose_a,
                                 .transpose_b = opts->transpose_b,
                                 .accumulate = opts->accumulate,
                                 .gelu = opts->gelu};
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
        return rf_fail(RF_ENOTSUP,
                       "matmul: path %s does not run (%lld, %lld, %lld)%s%s on %s; leave path NULL",
                       opts->path ? opts->path : "NULL", (long long)product.m, (long long)product.n,
                       (long long)product.k, product.transpose_a ? " with a transposed" : "",
                       product.transpose_b ? " with b transposed" : "",
                       rf_device_get_info(product.device)->name);
    return path->run(stream, &product);
}
