/* SPDX-License-Identifier: MIT
 *
 * Strided (B,T,H,D) operands: their memory ranges, and overlaps between them.
 */
#include "heads.h"

#include "../base/base.h"

struct rf_heads rf_heads_in(struct rf_tensor tensor, int64_t size, int64_t first, int64_t heads)
{
    int32_t ndim = tensor.shape.ndim;
    bool rows = ndim == 2 || ndim == 3;
    int64_t width = rows ? tensor.shape.dim[ndim - 1] : 0;
    int64_t length = rows ? tensor.shape.dim[ndim - 2] : 0;
    bool inside =
        rows && size > 0 && first >= 0 && first <= width / size && heads <= width / size - first;
    return (struct rf_heads){.tensor = tensor,
                             .first = inside ? first * size : 0,
                             .batch = ndim == 3 ? tensor.shape.dim[0] : 1,
                             .rows = length,
                             .heads = inside ? heads : 0, /* refused by every operation */
                             .size = size,
                             .batch_stride = length * width,
                             .row_stride = width,
                             .head_stride = size};
}

struct rf_heads rf_heads_flat(struct rf_tensor tensor)
{
    int64_t count = rf_tensor_count(tensor);
    return (struct rf_heads){
        .tensor = tensor, .batch = 1, .rows = count > 0, .heads = 1, .size = count};
}

static int64_t reach(int64_t count, int64_t stride)
{
    return count > 1 ? (count - 1) * stride : 0;
}

/* The number of elements from the first to the last. */
static int64_t extent(const struct rf_heads *h)
{
    if (h->batch == 0 || h->rows == 0)
        return 0;
    return reach(h->batch, h->batch_stride) + reach(h->rows, h->row_stride) +
           reach(h->heads, h->head_stride) + h->size;
}

struct rf_tensor rf_heads_extent(const struct rf_heads *h)
{
    struct rf_tensor tensor = h->tensor;
    tensor.offset += (uint64_t)h->first * rf_dtype_bytes(tensor.dtype);
    tensor.shape = rf_shape1(tensor.buffer ? extent(h) : 0);
    return tensor;
}

bool rf_heads_vector(const struct rf_heads *h)
{
    struct rf_tensor all = rf_heads_extent(h);
    return rf_pick_vector(h->size, &all, 1) && h->batch_stride % 4 == 0 && h->row_stride % 4 == 0 &&
           h->head_stride % 4 == 0;
}

void rf_heads_strides(const struct rf_heads *h, uint32_t out[3])
{
    out[0] = (uint32_t)h->batch_stride;
    out[1] = (uint32_t)h->row_stride;
    out[2] = (uint32_t)h->head_stride;
}

bool rf_heads_same_strides(const struct rf_heads *a, const struct rf_heads *b)
{
    return a->batch_stride == b->batch_stride && a->row_stride == b->row_stride &&
           a->head_stride == b->head_stride;
}

bool rf_heads_same_place(const struct rf_heads *a, const struct rf_heads *b)
{
    struct rf_tensor x = rf_heads_extent(a), y = rf_heads_extent(b);
    return x.buffer == y.buffer && x.offset == y.offset && rf_heads_same_strides(a, b);
}

/* Whether `count` steps of this stride stay within the tensor. */
static bool stays(int64_t count, int64_t stride, int64_t most)
{
    return count >= 0 && stride >= 0 && count <= INT32_MAX && stride <= INT32_MAX &&
           reach(count, stride) <= most;
}

int rf_check_heads(const char *op, const char *what, const struct rf_heads *h)
{
    char text[96];
    RETURN_IF_ERROR(rf_check_typed(op, what, h->tensor, -1));
    int64_t most = rf_tensor_count(h->tensor);
    if (h->heads > 0 && h->size > 0 && h->size <= most && h->first >= 0 && h->first <= most &&
        stays(h->batch, h->batch_stride, most) && stays(h->rows, h->row_stride, most) &&
        stays(h->heads, h->head_stride, most) && h->first + extent(h) <= most)
        return 0;
    if (h->heads > 0 && h->size > 0 && (h->batch == 0 || h->rows == 0))
        return 0;
    return rf_fail(
        RF_EINVAL,
        "%s: %s, %lld x %lld rows of %lld heads of %lld elements from element %lld, does "
        "not lie within %s",
        op, what, (long long)h->batch, (long long)h->rows, (long long)h->heads, (long long)h->size,
        (long long)h->first, rf_tensor_text(h->tensor, text, sizeof(text)));
}

static const char *shape_text(const int64_t shape[4], char *text, size_t bytes)
{
    static const char *const any[] = {"B", "T", "H", "D"};
    char part[4][24];
    for (int i = 0; i < 4; i++) {
        if (shape[i] < 0)
            snprintf(part[i], sizeof(part[i]), "%s", any[i]);
        else
            snprintf(part[i], sizeof(part[i]), "%lld", (long long)shape[i]);
    }
    snprintf(text, bytes, "(%s, %s, %s, %s)", part[0], part[1], part[2], part[3]);
    return text;
}

int rf_check_heads_like(const char *op, const char *what, const struct rf_heads *h,
                        enum rf_dtype dtype, const int64_t shape[4])
{
    char got[112], want[112];
    RETURN_IF_ERROR(rf_check_heads(op, what, h));
    const int64_t is[4] = {h->batch, h->rows, h->heads, h->size};
    bool same = h->tensor.dtype == dtype;
    for (int i = 0; i < 4; i++)
        same = same && (shape[i] < 0 || is[i] == shape[i]);
    if (same)
        return 0;
    return rf_fail(RF_EINVAL, "%s: %s is %s %s, expected %s %s", op, what,
                   rf_dtype_name(h->tensor.dtype), shape_text(is, got, sizeof(got)),
                   rf_dtype_name(dtype), shape_text(shape, want, sizeof(want)));
}

/* Whether all its elements are distinct: each stride, from the smallest, exceeds the extent inside
 * it. */
static bool distinct(const struct rf_heads *h)
{
    int64_t count[3] = {h->batch, h->rows, h->heads};
    int64_t stride[3] = {h->batch_stride, h->row_stride, h->head_stride};
    int64_t within = h->size;
    for (int round = 0; round < 3; round++) {
        int least = -1;
        for (int i = 0; i < 3; i++) {
            if (count[i] > 1 && (least < 0 || stride[i] < stride[least]))
                least = i;
        }
        if (least < 0)
            return true;
        if (stride[least] < within)
            return false;
        within += reach(count[least], stride[least]);
        count[least] = 0;
    }
    return true;
}

/* Whether heads lie within rows, and rows are evenly spaced over the batch. */
static bool in_rows(const struct rf_heads *h)
{
    return h->row_stride > 0 && reach(h->heads, h->head_stride) + h->size <= h->row_stride &&
           (h->batch <= 1 || h->batch_stride % h->row_stride == 0);
}

/* Whether they share an element. Parts of the same rows (a packed qkv) are distinguished; other
 * interleaved forms count as overlapping. */
static bool meet(const struct rf_heads *a, const struct rf_heads *b)
{
    struct rf_tensor x = rf_heads_extent(a), y = rf_heads_extent(b);
    if (!x.buffer || x.buffer != y.buffer || x.offset >= y.offset + rf_tensor_bytes(y) ||
        y.offset >= x.offset + rf_tensor_bytes(x))
        return false;
    if (x.dtype != y.dtype || a->row_stride != b->row_stride || !in_rows(a) || !in_rows(b))
        return true;
    uint64_t row = (uint64_t)a->row_stride * rf_dtype_bytes(x.dtype);
    uint64_t a_width = (uint64_t)(reach(a->heads, a->head_stride) + a->size);
    uint64_t b_width = (uint64_t)(reach(b->heads, b->head_stride) + b->size);
    uint64_t apart =
        (y.offset + row - x.offset % row) % row; /* from a's start to the next start of b */
    return apart < a_width * rf_dtype_bytes(x.dtype) ||
           row - apart < b_width * rf_dtype_bytes(x.dtype);
}

int rf_check_heads_apart(const char *op, const struct rf_named_heads *operands, size_t outs,
                         size_t count)
{
    for (size_t i = 0; i < outs; i++) {
        if (operands[i].heads.tensor.buffer && !distinct(&operands[i].heads))
            return rf_fail(RF_EINVAL, "%s: %s has strides by which its elements overlap", op,
                           operands[i].name);
        for (size_t k = 0; k < count; k++) {
            if ((k > i || k >= outs) && meet(&operands[i].heads, &operands[k].heads))
                return rf_fail(RF_EINVAL, "%s: %s must not overlap %s", op, operands[i].name,
                               operands[k].name);
        }
    }
    return 0;
}
