/* SPDX-License-Identifier: MIT
 *
 * Parameters in host memory and in tensors, for rounds.
 */
#include <ringforge/rounds.h>

#include "base/base.h"

static int read_host(void *user, int64_t first, int64_t count, float *to)
{
    memcpy(to, (const float *)user + first, (size_t)count * sizeof *to);
    return RF_OK;
}

static int write_host(void *user, int64_t first, int64_t count, const float *from)
{
    memcpy((float *)user + first, from, (size_t)count * sizeof *from);
    return RF_OK;
}

struct rf_rounds_params rf_rounds_in_host(float *values, int64_t count)
{
    return (struct rf_rounds_params){count, read_host, write_host, values, NULL};
}

/* The part of the range [first, first + count) that lies in the tensor whose first element is
 * number `at` of all. */
static int view_of(struct rf_tensor tensor, int64_t at, int64_t *first, int64_t *count,
                   struct rf_tensor *out)
{
    const int64_t end = at + rf_tensor_count(tensor), skip = *first - at;
    *count = *first + *count < end ? *count : end - *first;
    return rf_tensor_view(tensor.buffer, tensor.offset + 4 * (uint64_t)skip, rf_shape1(*count),
                          RF_F32, out);
}

static int copy(const struct rf_rounds_tensors *all, int64_t first, int64_t count, float *to,
                const float *from)
{
    int64_t at = 0;
    for (int t = 0; t < all->count && count > 0; t++) {
        const int64_t elements = rf_tensor_count(all->tensors[t]);
        if (first < at + elements) {
            struct rf_tensor part;
            int64_t taken = count;
            RETURN_IF_ERROR(view_of(all->tensors[t], at, &first, &taken, &part));
            if (to)
                RETURN_IF_ERROR(rf_tensor_read(part, to, 4 * (uint64_t)taken));
            else
                RETURN_IF_ERROR(rf_tensor_write(part, from, 4 * (uint64_t)taken));
            to += to ? taken : 0, from += from ? taken : 0;
            first += taken, count -= taken;
        }
        at += elements;
    }
    return RF_OK;
}

static int read_tensors(void *user, int64_t first, int64_t count, float *to)
{
    return copy(user, first, count, to, NULL);
}

static int write_tensors(void *user, int64_t first, int64_t count, const float *from)
{
    return copy(user, first, count, NULL, from);
}

/* Rows are along the first dimension (Vogels et al. 2019). */
static int shape_of(void *user, int index, struct rf_round_shape *out)
{
    const struct rf_rounds_tensors *all = user;
    if (index >= all->count)
        return RF_EINVAL;
    const struct rf_tensor *t = all->tensors + index;
    out->rows = t->shape.ndim > 0 ? t->shape.dim[0] : 1;
    out->columns = rf_tensor_count(*t) / out->rows;
    return RF_OK;
}

struct rf_rounds_params rf_rounds_in_tensors(struct rf_rounds_tensors *tensors)
{
    struct rf_rounds_params params = {0, read_tensors, write_tensors, tensors, shape_of};
    for (int t = 0; t < tensors->count; t++)
        params.count += rf_tensor_count(tensors->tensors[t]);
    return params;
}
