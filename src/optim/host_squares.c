/* SPDX-License-Identifier: MIT
 *
 * Sums of squares in host memory. The tree is that of shaders/reduce.comp, the exact sum that of
 * squares_add.comp, and the form that of squares.glsl: a sum that f32 cannot represent is stored as
 * minus the sum over 2^192.
 */
#include "host_half.h"

#include "../base/base.h"

static const char op[] = "host_squares";

enum { CHUNK = 1024, PARTS = 16 };
#define SHRINK 0x1p-96f /* factor of the numbers to square */

/* ---- a chunk --------------------------------------------------------------------------------- */

/* 16 partial sums, joined pairwise. */
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
    if (flat->flush && !rf_can_flush())
        return rf_fail(RF_ENOTSUP, "%s: this processor cannot flush subnormal numbers; omit flush",
                       op);
    const uint64_t before = rf_flush_begin(flat->flush);
    paths[path](out, flat, chunks, count);
    rf_flush_end(flat->flush, before);
    return 0;
}

int rf_host_squares(float *out, const struct rf_host_flat *flat, const struct rf_norm_chunk *chunks,
                    int64_t count)
{
    return rf_host_squares_by(rf_host_best_path(), out, flat, chunks, count);
}

/* ---- the sum of chunks ----------------------------------------------------------------------- */

/* Like in shaders/exact_squares.glsl. */
enum { WORD_BITS = 12, WORD_MASK = 4095, NUMBER_WORDS = 43, LARGE_BITS = 192 };

static void add_exactly(uint64_t words[NUMBER_WORDS], uint32_t bits)
{
    const uint32_t exponent = bits >> 23 & 255, part = bits & 0x7fffff;
    const uint64_t number = exponent ? part | 0x800000 : part;
    const uint32_t at = (exponent ? exponent - 1 : 0) + (bits >> 31) * LARGE_BITS;
    const uint64_t shifted = number << at % WORD_BITS;
    for (uint32_t k = 0; k < 3; k++)
        words[at / WORD_BITS + k] += shifted >> k * WORD_BITS & WORD_MASK;
}

/* Like squares_round.comp; the words are below 2^12. */
static uint32_t rounded(const uint64_t words[NUMBER_WORDS])
{
    uint64_t window = 0; /* the sum's highest bits */
    int word = NUMBER_WORDS - 1, first = 0, cut = 0;
    bool rest = false;
    while (word > 0 && words[word] == 0)
        word--;
    for (int k = 0; k < 3; k++)
        window = window << WORD_BITS | (word >= k ? words[word - k] : 0);
    for (int k = 0; k + 2 < word; k++)
        rest = rest || words[k];
    first = WORD_BITS * (word - 2); /* bit of the sum that is the window's bit 0 */
    while (window >> cut > 0xffffff || first + cut < 0)
        cut++;
    const uint64_t half = cut ? 1ull << (cut - 1) : 0, lost = window & ((1ull << cut) - 1);
    const uint64_t number = window >> cut;
    const bool up = lost > half || (cut && lost == half && (rest || number & 1));
    const uint32_t bits = ((uint32_t)(first + cut) << 23) + (uint32_t)number + up;
    const uint32_t large = bits - ((uint32_t)LARGE_BITS << 23);
    if (bits < 0x7f800000)
        return bits;
    return large < 0x7f800000 ? large | 0x80000000 : 0x7f800000;
}

float rf_host_join_squares(const float *squares, int64_t count)
{
    uint64_t words[NUMBER_WORDS] = {0}; /* large enough for 2^52 terms */
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(squares[i]))
            add_exactly(words, bits_of(squares[i]));
        else
            sum += squares[i];
    for (int k = 0; k + 1 < NUMBER_WORDS; k++) {
        words[k + 1] += words[k] >> WORD_BITS;
        words[k] &= WORD_MASK;
    }
    return isfinite(sum) ? float_of(rounded(words)) : sum;
}
