/* SPDX-License-Identifier: MIT
 *
 * Inputs and expected results of the collective benchmarks. The values are small whole numbers, so
 * every sum is exact in every type and every order, and any wrong element shows; only reductions
 * with 16-bit messages round, within a bound.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

static uint32_t mix(uint64_t index)
{
    return (uint32_t)((index * 0x9e3779b97f4a7c15ull) >> 32);
}

/* The value of one rank at one place. */
static int64_t value_at(const struct bench_pattern *p, int rank, size_t index)
{
    uint32_t h = mix(index);
    if (p->redop == RF_PROD)
        return (h & 1) && (h >> 8) % (uint32_t)p->ranks == (uint32_t)rank ? 2 : 1;
    return (h & 7) + ((size_t)rank + index) % (size_t)p->ranks;
}

/* Up to this number of ranks an average of the values fits into 8 bits; a sum may wrap around. */
enum { MOST_IN_8_BITS = 100 };

static int64_t stored(const struct bench_pattern *p, int64_t value)
{
    return p->dtype == RF_I8 ? (int8_t)value : p->dtype == RF_U8 ? (uint8_t)value : value;
}

static int64_t reduced_at(const struct bench_pattern *p, size_t index)
{
    int64_t sum = 0, low = INT64_MAX, high = INT64_MIN, product = 1;
    const bool wraps = rf_dtype_bytes(p->dtype) == 1 && p->ranks > MOST_IN_8_BITS;
    if (p->redop == RF_SUM || (p->redop == RF_AVG && !wraps)) /* every remainder occurs once */
        return (int64_t)p->ranks * (mix(index) & 7) + (int64_t)p->ranks * (p->ranks - 1) / 2;
    for (int r = 0; r < p->ranks; r++) {
        int64_t v = stored(p, value_at(p, r, index));
        sum += v;
        low = v < low ? v : low;
        high = v > high ? v : high;
        product *= v;
    }
    return p->redop == RF_AVG   ? sum
           : p->redop == RF_MIN ? low
           : p->redop == RF_MAX ? high
                                : product;
}

static uint16_t to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value == 0)
        return 0;
    /* Only normal values that are representable exactly, or rounded once, occur here. */
    int exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
    uint32_t mantissa = bits & 0x7fffff, kept = mantissa >> 13, rest = mantissa & 0x1fff;
    uint32_t half = ((uint32_t)exponent << 10) | kept;
    if (rest > 0x1000 || (rest == 0x1000 && (kept & 1)))
        half++;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits += 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

/* Stores value, or value / divisor for an average, as one element. */
static void encode(enum rf_dtype dtype, int64_t value, int divisor, void *at)
{
    float f = (float)value / (float)divisor;
    double d = (double)value / divisor;
    int64_t whole = value;
    switch (dtype) {
    case RF_F32:
        memcpy(at, &f, 4);
        return;
    case RF_F64:
        memcpy(at, &d, 8);
        return;
    case RF_F16:
        *(uint16_t *)at = to_f16(f);
        return;
    case RF_BF16:
        *(uint16_t *)at = to_bf16(f);
        return;
    case RF_I32:
        *(int32_t *)at = (int32_t)(whole / divisor);
        return;
    case RF_I64:
        *(int64_t *)at = whole / divisor;
        return;
    case RF_U8: /* a sum wraps */
        *(uint8_t *)at = (uint8_t)(whole / divisor);
        return;
    default:
        *(int8_t *)at = (int8_t)(whole / divisor);
        return;
    }
}

void bench_fill(const struct bench_pattern *p, void *in)
{
    size_t bytes = rf_dtype_bytes(p->dtype);
    for (size_t i = 0; i < p->in_count; i++)
        encode(p->dtype, value_at(p, p->rank, i), 1, (char *)in + i * bytes);
}

void bench_poison(const struct bench_pattern *p, void *out)
{
    memset(out, 0xa5, p->out_count * rf_dtype_bytes(p->dtype));
}

static int64_t expected_at(const struct bench_pattern *p, size_t i, int *divisor)
{
    *divisor = 1;
    switch (p->op) {
    case RF_COLL_ALL_REDUCE:
    case RF_COLL_REDUCE:
        *divisor = p->redop == RF_AVG ? p->ranks : 1;
        return reduced_at(p, i);
    case RF_COLL_REDUCE_SCATTER:
        *divisor = p->redop == RF_AVG ? p->ranks : 1;
        return reduced_at(p, (size_t)p->rank * p->out_count + i);
    case RF_COLL_ALL_GATHER:
    case RF_COLL_GATHER:
        return value_at(p, (int)(i / p->in_count), i % p->in_count);
    case RF_COLL_SCATTER:
        return value_at(p, p->root, (size_t)p->rank * p->out_count + i);
    case RF_COLL_ALL_TO_ALL: {
        size_t part = p->out_count / (size_t)p->ranks;
        return value_at(p, (int)(i / part), (size_t)p->rank * part + i % part);
    }
    case RF_COLL_BROADCAST:
        return value_at(p, p->root, i);
    default:
        return value_at(p, (p->rank + p->ranks - 1) % p->ranks, i);
    }
}

/* No value is negative, so that a sum is the S of the bound. */
static bool is_within(const struct bench_pattern *p, double want, const void *at)
{
    const double u = p->wire_dtype == RF_F16 ? 0x1p-11 : 0x1p-8;
    float got;
    memcpy(&got, at, sizeof(got));
    return fabs(got - want) <= (u * (2 + u) + p->ranks * 0x1p-24) * want;
}

uint64_t bench_wrong(const struct bench_pattern *p, const void *out)
{
    size_t bytes = rf_dtype_bytes(p->dtype);
    uint64_t wrong = 0;
    for (size_t i = 0; i < p->out_count; i++) {
        int divisor;
        uint64_t want = 0;
        int64_t value = expected_at(p, i, &divisor);
        if (p->wire_dtype != RF_F32) {
            wrong += !is_within(p, (double)value / divisor, (const char *)out + i * bytes);
            continue;
        }
        encode(p->dtype, value, divisor, &want);
        wrong += memcmp(&want, (const char *)out + i * bytes, bytes) != 0;
    }
    return wrong;
}
