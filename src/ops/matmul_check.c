/* SPDX-License-Identifier: MIT
 *
 * Makes a product from rf_matmul's arguments, or names the invalid operand or option. Called by
 * matmul.c before a path is picked.
 */
#include "matmul.h"

#include "../base/base.h"
#include "quantize.h"

#define MOST_PRODUCTS 65535 /* the least maxComputeWorkGroupCount */

static const char op[] = "matmul";

static int64_t columns_of(struct rf_tensor tensor)
{
    return tensor.shape.ndim ? tensor.shape.dim[tensor.shape.ndim - 1] : 1;
}

static int64_t rows_of(struct rf_tensor tensor)
{
    int64_t columns = columns_of(tensor);
    return columns ? rf_tensor_count(tensor) / columns : 0;
}

void rf_matmul_take_options(struct rf_product *p, const struct rf_matmul_opts *opts)
{
    p->transpose_a = opts->transpose_a;
    p->transpose_b = opts->transpose_b;
    p->accumulate = opts->accumulate;
    p->act = opts->act;
    p->act_backward = opts->act_backward;
    p->alpha = rf_option(opts->alpha, 1);
    p->batch = opts->batch ? opts->batch : 1;
    p->a_layout = opts->a_layout;
    p->b_layout = opts->b_layout;
    p->out_layout = opts->out_layout;
    p->m = opts->m;
    p->n = opts->n;
    p->k = opts->k;
    p->split = opts->split;
    p->quantized = opts->b_quantized;
    p->b_part = opts->b_part;
    p->split_type = opts->split_type == RF_F16 ? RF_F16 : RF_BF16;
    const char *tile = opts->path ? strchr(opts->path, ':') : NULL;
    p->tile = tile ? (uint32_t)strtoul(tile + 1, NULL, 10) : 0;
}

static int check_options(const struct rf_matmul_opts *o)
{
    const struct {
        const char *name;
        const struct rf_tensor *tensor;
    } all[] = {
        {"bias", o->bias}, {"pre", o->pre}, {"residual", o->residual}, {"scratch", o->scratch}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].tensor && !all[i].tensor->buffer)
            return rf_fail(RF_EINVAL, "matmul: %s has no buffer", all[i].name);
    if (o->accumulate && (o->bias || o->act || o->residual))
        return rf_fail(RF_EINVAL, "matmul: accumulate goes with none of bias, act and residual");
    if ((int)o->act < 0 || o->act > RF_ACT_SILU)
        return rf_fail(RF_EINVAL,
                       "matmul: act is %d; take one of the first four of enum rf_activation",
                       (int)o->act);
    if (o->pre && !o->act)
        return rf_fail(RF_EINVAL, "matmul: pre is used with act only");
    if (o->act_backward && (!o->act || !o->pre || o->bias))
        return rf_fail(RF_EINVAL,
                       "matmul: act_backward needs act and pre, and goes without bias, which "
                       "is in pre");
    if ((int)o->b_quantized < 0 || o->b_quantized >= RF_QUANTIZATION_COUNT)
        return rf_fail(RF_EINVAL, "matmul: b_quantized is %d; it is a kind of enum rf_quantization",
                       (int)o->b_quantized);
    if (o->b_quantized && (o->transpose_a || o->batch > 1 || o->b_layout.row || o->b_layout.step))
        return rf_fail(RF_EINVAL,
                       "matmul: a quantised b goes without transpose_a, batch and b_layout");
    if (o->split > 3)
        return rf_fail(RF_EINVAL, "matmul: split is %u; at most 3 parts make sense for f32",
                       o->split);
    if (o->split_type != RF_F32 && o->split_type != RF_F16 && o->split_type != RF_BF16)
        return rf_fail(RF_EINVAL, "matmul: split_type is %s; parts are f16 or bf16",
                       rf_dtype_name(o->split_type));
    if (o->batch < 0 || o->batch > MOST_PRODUCTS)
        return rf_fail(RF_EINVAL, "matmul: batch is %lld; give 1 to %d products",
                       (long long)o->batch, MOST_PRODUCTS);
    if ((o->m || o->n || o->k) && (o->m < 1 || o->n < 1 || o->k < 1))
        return rf_fail(RF_EINVAL,
                       "matmul: m, n and k are (%lld, %lld, %lld); give all three, from 1, or none",
                       (long long)o->m, (long long)o->n, (long long)o->k);
    if (!o->m && (o->a_layout.row || o->b_layout.row || o->out_layout.row))
        return rf_fail(RF_EINVAL, "matmul: a layout with a row length needs m, n and k as well");
    return 0;
}

static int check_types(const struct rf_product *p, enum rf_quantization quantized)
{
    char text[96];
    RETURN_IF_ERROR(rf_check_typed(op, "a", p->a, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "b", p->b, quantized ? RF_U8 : p->a.dtype, -1));
    RETURN_IF_ERROR(rf_check_typed(op, "out", p->out, -1));
    if (p->out.dtype != p->a.dtype && p->out.dtype != RF_F32 && p->a.dtype != RF_F32)
        return rf_fail(RF_EINVAL, "matmul: out is %s; of %s operands it is %s or f32",
                       rf_tensor_text(p->out, text, sizeof(text)), rf_dtype_name(p->a.dtype),
                       rf_dtype_name(p->a.dtype));
    return 0;
}

/* Rows of one product's matrix; 0 if the batch does not divide them. */
static int64_t own_rows(struct rf_tensor tensor, int64_t products)
{
    return rows_of(tensor) % products == 0 ? rows_of(tensor) / products : 0;
}

static int64_t blocks_of(int64_t elements)
{
    return (elements + RF_QUANTIZE_BLOCK - 1) / RF_QUANTIZE_BLOCK;
}

/* The part of a quantised matrix that has these sizes. */
static int check_part(const struct rf_product *p, int64_t rows, int64_t columns)
{
    const struct rf_quantized_part *o = &p->b_part;
    const bool fits = o->rows > 0 && o->columns > 0 && o->columns <= INT32_MAX / o->rows &&
                      o->first_row >= 0 && o->first_row <= o->rows - rows && o->first_column >= 0 &&
                      o->first_column <= o->columns - columns;
    const int64_t first = fits ? o->first_row * o->columns + o->first_column : 0;
    const int64_t end = first + (fits ? rows * columns : 0);
    const bool blocks = columns == o->columns
                            ? first % RF_QUANTIZE_BLOCK == 0 &&
                                  (end % RF_QUANTIZE_BLOCK == 0 || end == o->rows * o->columns)
                            : columns % RF_QUANTIZE_BLOCK == 0 && first % RF_QUANTIZE_BLOCK == 0 &&
                                  o->columns % RF_QUANTIZE_BLOCK == 0;
    const uint64_t least = rf_quantized_layout(p->quantized, rows * columns).blocks;
    if (fits && blocks && o->numbers >= least && o->numbers % 4 == 0 && o->numbers <= INT32_MAX)
        return 0;
    return rf_fail(RF_EINVAL,
                   "matmul: b_part is (%lld, %lld) from (%lld, %lld) on of (%lld, %lld), with the "
                   "numbers of blocks at byte %llu; it has to consist of whole blocks of %d of a "
                   "matrix below 2^31 elements, and the numbers be behind its elements",
                   (long long)rows, (long long)columns, (long long)o->first_row,
                   (long long)o->first_column, (long long)o->rows, (long long)o->columns,
                   (unsigned long long)o->numbers, RF_QUANTIZE_BLOCK);
}

/* A quantised b has no shape: the sizes come from a and out. */
static int check_quantized(struct rf_product *p)
{
    char text[96];
    if (!p->m) {
        p->m = rows_of(p->a);
        p->k = columns_of(p->a);
        p->n = columns_of(p->out);
        if (p->m < 1 || p->k < 1 || p->n < 1 || rows_of(p->out) != p->m)
            return rf_fail(RF_EINVAL, "matmul: out is %s, but a has %lld rows",
                           rf_tensor_text(p->out, text, sizeof(text)), (long long)p->m);
    }
    const int64_t elements = p->k <= INT32_MAX / p->n ? p->n * p->k : 0;
    const int64_t rows = p->transpose_b ? p->n : p->k, columns = p->transpose_b ? p->k : p->n;
    if (!p->b_part.rows) {
        p->b_part = (struct rf_quantized_part){.rows = rows, .columns = columns};
        p->b_part.numbers = rf_quantized_layout(p->quantized, elements).blocks;
    }
    if (elements)
        RETURN_IF_ERROR(check_part(p, rows, columns));
    const struct rf_quantized_part *part = &p->b_part;
    const uint64_t numbers =
        rf_quantized_sizes(p->quantized, elements, part->rows * part->columns).numbers;
    const uint64_t bytes = numbers ? part->numbers + numbers : 0;
    if (!bytes || (uint64_t)rf_tensor_count(p->b) != bytes || p->b.offset % 4)
        return rf_fail(RF_EINVAL,
                       "matmul: b is %s; (%lld, %lld) in %s, below 2^31 elements, has %llu bytes, "
                       "from a multiple of 4 on",
                       rf_tensor_text(p->b, text, sizeof(text)), (long long)rows,
                       (long long)columns, rf_quantization_name(p->quantized),
                       (unsigned long long)bytes);
    p->b_layout = (struct rf_layout){.row = columns};
    p->numbers = (uint32_t)(part->numbers / 4);
    p->blocks = (uint32_t)blocks_of(part->rows * part->columns);
    if (!rf_numbers_are_whole(p->quantized))
        return 0;
    p->first_block = (uint32_t)blocks_of(part->first_row * part->columns + part->first_column);
    p->block_gap = (uint32_t)blocks_of(part->columns - columns);
    return 0;
}

/* Takes the sizes from the shapes of a, b and out. */
static int take_sizes(struct rf_product *p)
{
    char a[96], b[96], out[96];
    const char *a_form = p->transpose_a ? " transposed" : "";
    const char *b_form = p->transpose_b ? " transposed" : "";
    int64_t a_rows = own_rows(p->a, p->a_layout.step ? p->batch : 1);
    int64_t b_rows = own_rows(p->b, p->b_layout.step ? p->batch : 1);
    rf_tensor_text(p->a, a, sizeof(a));
    rf_tensor_text(p->b, b, sizeof(b));
    rf_tensor_text(p->out, out, sizeof(out));
    p->m = p->transpose_a ? columns_of(p->a) : a_rows;
    p->k = p->transpose_a ? a_rows : columns_of(p->a);
    p->n = p->transpose_b ? b_rows : columns_of(p->b);
    int64_t inner = p->transpose_b ? columns_of(p->b) : b_rows;
    if (p->m < 1 || p->n < 1 || p->k < 1 || inner < 1)
        return rf_fail(RF_EINVAL,
                       "matmul: a is %s, b is %s; every dimension must be at least 1, and a batch "
                       "(here %lld) must divide the rows",
                       a, b, (long long)p->batch);
    if (p->k != inner)
        return rf_fail(
            RF_EINVAL,
            "matmul: a is %s%s, b is %s%s; inner sizes differ: a has %lld columns, b %lld rows", a,
            a_form, b, b_form, (long long)p->k, (long long)inner);
    if (own_rows(p->out, p->batch) != p->m || columns_of(p->out) != p->n)
        return rf_fail(RF_EINVAL, "matmul: out is %s, but a %s%s times b %s%s is (%lld, %lld)", out,
                       a, a_form, b, b_form, (long long)(p->m * p->batch), (long long)p->n);
    return 0;
}

/* Completes a layout, and sets the tensor's length to what is used of it. */
static int check_layout(const char *what, struct rf_tensor *tensor, struct rf_layout *layout,
                        int64_t rows, int64_t columns, int64_t batch, int64_t dense_step)
{
    char text[96];
    layout->row = layout->row ? layout->row : columns;
    layout->step = batch == 1 ? 0 : layout->step ? layout->step : dense_step;
    if (layout->row < columns || layout->step < 0 || layout->row > INT32_MAX ||
        layout->step > INT32_MAX)
        return rf_fail(RF_EINVAL,
                       "matmul: %s has rows of %lld, %lld elements apart, and products %lld apart; "
                       "rows must not overlap, and steps not be negative",
                       what, (long long)columns, (long long)layout->row, (long long)layout->step);
    int64_t capacity = rf_tensor_count(*tensor), count = 0;
    bool fits =
        rows <= capacity && columns <= capacity &&
        (count = (rows - 1) * layout->row + (batch - 1) * layout->step + columns) <= capacity;
    if (!fits)
        return rf_fail(RF_EINVAL,
                       "matmul: %s is %s; %lld products of (%lld, %lld), rows %lld and products "
                       "%lld elements apart, do not fit into it",
                       what, rf_tensor_text(*tensor, text, sizeof(text)), (long long)batch,
                       (long long)rows, (long long)columns, (long long)layout->row,
                       (long long)layout->step);
    tensor->shape = rf_shape1(count);
    return 0;
}

/* Checks that the products of a batch are consecutive, or side by side within rows. */
static int check_out_apart(const struct rf_product *p)
{
    int64_t row = p->out_layout.row, step = p->out_layout.step;
    bool behind = step >= (p->m - 1) * row + p->n;
    bool beside = step >= p->n && (p->batch - 1) * step + p->n <= row;
    if (p->batch == 1 || behind || beside)
        return 0;
    return rf_fail(RF_EINVAL,
                   "matmul: products of the batch overlap in out: (%lld, %lld) with rows %lld and "
                   "products %lld elements apart",
                   (long long)p->m, (long long)p->n, (long long)row, (long long)step);
}

/* Checks pre or residual. */
static int check_like_out(const struct rf_product *p, const char *what, struct rf_tensor *tensor,
                          bool by_shape)
{
    if (!tensor->buffer)
        return 0;
    if (by_shape)
        RETURN_IF_ERROR(rf_check_rows(op, what, *tensor, p->out.dtype, p->m * p->batch, p->n));
    else
        RETURN_IF_ERROR(rf_check_operand(op, what, *tensor, p->out.dtype, -1));
    struct rf_layout layout = p->out_layout;
    return check_layout(what, tensor, &layout, p->m, p->n, p->batch, layout.step);
}

static int check_sizes(struct rf_product *p)
{
    bool by_shape = p->m == 0;
    if (p->quantized)
        RETURN_IF_ERROR(check_quantized(p));
    else if (by_shape)
        RETURN_IF_ERROR(take_sizes(p));
    RETURN_IF_ERROR(check_layout("a", &p->a, &p->a_layout, p->transpose_a ? p->k : p->m,
                                 p->transpose_a ? p->m : p->k, p->batch, 0));
    if (!p->quantized)
        RETURN_IF_ERROR(check_layout("b", &p->b, &p->b_layout, p->transpose_b ? p->n : p->k,
                                     p->transpose_b ? p->k : p->n, p->batch, 0));
    int64_t out_row = p->out_layout.row ? p->out_layout.row : p->n;
    RETURN_IF_ERROR(check_layout("out", &p->out, &p->out_layout, p->m, p->n, p->batch,
                                 p->m <= INT32_MAX ? p->m * out_row : 0));
    RETURN_IF_ERROR(check_out_apart(p));
    if (p->bias.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "bias", p->bias, p->a.dtype, p->n));
    RETURN_IF_ERROR(check_like_out(p, "pre", &p->pre, by_shape));
    return check_like_out(p, "residual", &p->residual, by_shape);
}

static int check_memory(const struct rf_product *p, struct rf_tensor scratch)
{
    const struct rf_named_tensor all[] = {{"out", p->out},     {"a", p->a},
                                          {"b", p->b},         {"bias", p->bias},
                                          {"pre", p->pre},     {"residual", p->residual},
                                          {"scratch", scratch}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].tensor.buffer && rf_buffer_device(all[i].tensor.buffer) != p->device)
            return rf_fail(RF_EINVAL, "matmul: %s and the stream are of different devices",
                           all[i].name);
    struct rf_tensor none = {0}, written = p->act_backward ? none : p->pre;
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"out", p->out}, {"pre", written}, {"scratch", scratch}}, 3,
        (struct rf_named_tensor[]){{"a", p->a}, {"b", p->b}, {"bias", p->bias}}, 3));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"pre", written}, {"scratch", scratch}}, 2,
                       (struct rf_named_tensor[]){{"residual", p->residual}}, 1));
    if (p->act_backward)
        RETURN_IF_ERROR(rf_check_alias(op, "scratch", scratch, "pre", p->pre));
    if (p->act_backward)
        RETURN_IF_ERROR(rf_check_in_place(op, "out", p->out, "pre", p->pre));
    return rf_check_in_place(op, "out", p->out, "residual", p->residual);
}

int rf_matmul_check(struct rf_product *p, struct rf_stream *stream, struct rf_tensor out,
                    struct rf_tensor a, struct rf_tensor b, const struct rf_matmul_opts *opts)
{
    struct rf_tensor scratch = {0};
    if (!stream)
        return rf_fail(RF_EINVAL, "matmul: no stream");
    *p = (struct rf_product){.device = rf_stream_device(stream), .out = out, .a = a, .b = b};
    RETURN_IF_ERROR(check_options(opts));
    RETURN_IF_ERROR(check_types(p, opts->b_quantized));
    rf_matmul_take_options(p, opts);
    if (opts->bias)
        p->bias = *opts->bias;
    if (opts->pre)
        p->pre = *opts->pre;
    if (opts->residual)
        p->residual = *opts->residual;
    if (opts->scratch) {
        scratch = *opts->scratch;
        RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, -1));
    }
    RETURN_IF_ERROR(check_sizes(p));
    return check_memory(p, scratch);
}
