/* SPDX-License-Identifier: MIT
 *
 * Names and sizes of the types that every layer uses.
 */
#include "base.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[RF_DTYPE_COUNT] = {
    [RF_F32] = {"f32", 4}, [RF_F64] = {"f64", 8}, [RF_F16] = {"f16", 2}, [RF_BF16] = {"bf16", 2},
    [RF_I32] = {"i32", 4}, [RF_I64] = {"i64", 8}, [RF_U8] = {"u8", 1},   [RF_I8] = {"i8", 1},
};
static const char *const redops[RF_CUSTOM + 1] = {"sum", "avg", "min", "max", "prod", "custom"};
static const char *const orders[] = {"any", "ring", "tree"};

size_t rf_dtype_bytes(enum rf_dtype dtype)
{
    return (unsigned)dtype < RF_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *rf_dtype_name(enum rf_dtype dtype)
{
    return (unsigned)dtype < RF_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

const char *rf_redop_name(enum rf_redop redop)
{
    return (unsigned)redop <= RF_CUSTOM ? redops[redop] : "?";
}

const char *rf_order_name(enum rf_order order)
{
    return (unsigned)order <= RF_ORDER_TREE ? orders[order] : "?";
}
