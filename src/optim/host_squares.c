/* SPDX-License-Identifier: MIT
 *
 * Sums of squares in memory of the host, by the tree of shaders/reduce.comp and reduce_fold.comp
 * and in the form of squares.glsl: what f32 does not hold is minus the sum over 2^192.
 */
#include "host_half.h"

#include "../base/base.h"

static const char op[] = "host_squares";

enum { CHUNK = 1024, PARTS = 16 };
#define SHRINK 0x1p-96f /* of what is squared */

/* ---- a chunk --------------------------------------------------------------------------------- */

/* 16 running values, joined pairwise. */
RF_LOOPS float sum_of(const struct rf_host_flat *flat, int64_t first, int64_t count, float scale)
{
    float part[PARTS] = {0}, four[4];
    for (int64_t i = 0; i < count; i += GRAIN) {
        const int64_t n = count - i < GRAIN ? count - i : GRAIN;
        float buffer[GRAIN];
        const f32_place *x = take((void *)flat->data, flat->dtype, first + i, n, buffer);
        for (int e = 0; e < GRAIN; e += PARTS)
            for (int k = 0; k < PARTS; k++) {
                const float scaled = x[e + k] * scale;
                part[k] = part[k] + scaled * scaled;
            }
    }
    for (int k = 0; k < 4; k++)
        four[k] = (part[k] + part[4 + k]) + (part[8 + k] + part[12 + k]);
    return (four[0] + four[1]) + (four[2] + four[3]);
}

RF_LOOPS float chunk_squares(const struct rf_host_flat *flat, int64_t first, int64_t count)
{
    const float plain = sum_of(flat, first, count, 1);
    if (isfinite(plain))
        return plain;
    const float small = sum_of(flat, first, count, SHRINK);
    return isfinite(small) ? -small : plain;
}

RF_LOOPS void squares(float *out, const struct rf_host_flat *flat,
                      const struct rf_norm_chunk *chunks, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = chunks[i].first;
        const int64_t n = chunks[i].count < CHUNK ? chunks[i].count : CHUNK;
        out[i] = first + n <= flat->elements ? chunk_squares(flat, first, n) : NAN;
    }
}

static void squares_plain(float *out, const struct rf_host_flat *flat,
                          const struct rf_norm_chunk *chunks, int64_t count)
{
    squares(out, flat, chunks, count);
}

RF_ON_AVX2 static void squares_avx2(float *out, const struct rf_host_flat *flat,
                                    const struct rf_norm_chunk *chunks, int64_t count)
{
    squares(out, flat, chunks, count);
}

RF_ON_AVX512 static void squares_avx512(float *out, const struct rf_host_flat *flat,
                                        const struct rf_norm_chunk *chunks, int64_t count)
{
    squares(out, flat, chunks, count);
}

static void (*const paths[RF_HOST_PATHS])(float *out, const struct rf_host_flat *flat,
                                          const struct rf_norm_chunk *chunks, int64_t count) = {
    squares_plain, squares_avx2, squares_avx512};

int rf_host_squares_by(enum rf_host_path path, float *out, const struct rf_host_flat *flat,
                       const struct rf_norm_chunk *chunks, int64_t count)
{
    if (count < 0 || !flat || flat->elements < 0 || (count > 0 && (!out || !chunks)))
        return rf_fail(RF_EINVAL, "%s: out, a flat buffer and a table of chunks are needed", op);
    if (flat->dtype != RF_F32 && flat->dtype != RF_F16 && flat->dtype != RF_BF16)
        return rf_fail(RF_EINVAL, "%s: flat is %s; it must be f32, f16 or bf16", op,
                       rf_dtype_name(flat->dtype));
    if (flat->elements > 0 && !flat->data)
        return rf_fail(RF_EINVAL, "%s: flat has %lld elements and no data", op,
                       (long long)flat->elements);
    paths[path](out, flat, chunks, count);
    return 0;
}

int rf_host_squares(float *out, const struct rf_host_flat *flat, const struct rf_norm_chunk *chunks,
                    int64_t count)
{
    return rf_host_squares_by(rf_host_best_path(), out, flat, chunks, count);
}

/* ---- the sum of chunks ----------------------------------------------------------------------- */

/* Over 2^192, of either form. */
static float shrunk(float sum)
{
    return sum < 0 ? -sum : sum * SHRINK * SHRINK; /* f32 has no 2^-192 */
}

static float join(float a, float b)
{
    const float plain = a + b;
    if (!isfinite(a) || !isfinite(b) || (a >= 0 && b >= 0 && isfinite(plain)))
        return plain;
    return -(shrunk(a) + shrunk(b));
}

float rf_host_join_squares(float *squares, int64_t count)
{
    if (count <= 0)
        return 0;
    for (int64_t n = count; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            squares[i] = join(squares[2 * i], squares[2 * i + 1]);
        if (n % 2)
            squares[n / 2] = squares[n - 1];
    }
    return squares[0];
}
