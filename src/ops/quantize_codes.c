/* SPDX-License-Identifier: MIT
 *
 * The second level of RF_NF4: the largest magnitudes of the blocks, less their mean, as codes of
 * the 8-bit dynamic map (Dettmers 2015; Dettmers et al. 2023). All numbers have the bits that
 * bitsandbytes computes on a CPU with one thread: so the mean is summed in PyTorch's order for a
 * contiguous tensor: 4 vectors of 8 sums, in up to four levels.
 */
#include "quantize.h"

#include <math.h>
#include <string.h>

static const float positive[128] = {
#include "shaders/dynamic_map.h"
};

const float rf_nf4_levels[16] = {
#include "shaders/nf4_levels.h"
};

float rf_dynamic_value(uint8_t code)
{
    return code > 127 ? positive[code - 128] : code == 127 ? 0 : -positive[126 - code];
}

/* ---- the mean -------------------------------------------------------------------------------- */

enum { LANES = 8, ROW = 4 * LANES, LEVELS = 4 };

static int log2_ceil(int64_t x)
{
    int log = 0;
    while (((int64_t)1 << log) < x)
        log++;
    return log;
}

static void add_row(float sums[ROW], const float *values)
{
    for (int i = 0; i < ROW; i++)
        sums[i] += values[i];
}

/* The sums of each of the ROW columns of `rows` rows. */
static void sum_columns(const float *values, int64_t rows, float sums[ROW])
{
    float level[LEVELS][ROW] = {{0}};
    const int quarter = log2_ceil(rows) / LEVELS, power = quarter > 4 ? quarter : 4;
    const int64_t step = (int64_t)1 << power;
    int64_t row = 0;
    while (row + step <= rows) {
        for (int64_t end = row + step; row < end; row++)
            add_row(level[0], values + row * ROW);
        for (int j = 1; j < LEVELS; j++) {
            add_row(level[j], level[j - 1]);
            memset(level[j - 1], 0, sizeof(level[j - 1]));
            if (row & (step - 1) << j * power)
                break;
        }
    }
    for (; row < rows; row++)
        add_row(level[0], values + row * ROW);
    for (int j = 1; j < LEVELS; j++)
        add_row(level[0], level[j]);
    memcpy(sums, level[0], sizeof(level[0]));
}

static float mean(const float *values, int64_t count)
{
    float sums[ROW], total = 0;
    const int64_t vectors = count / LANES;
    sum_columns(values, vectors / 4, sums);
    for (int64_t v = vectors / 4 * 4; v < vectors; v++)
        for (int i = 0; i < LANES; i++)
            sums[i] += values[v * LANES + i];
    for (int k = 1; k < 4; k++)
        for (int i = 0; i < LANES; i++)
            sums[i] += sums[k * LANES + i];
    for (int64_t i = vectors * LANES; i < count; i++)
        total += values[i];
    for (int i = 0; i < LANES; i++)
        total += sums[i];
    return total / (float)count;
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* The code nearest to x in [-1, 1]; the lower one if two are equally near. */
static uint8_t nearest(float x)
{
    int low = 0, high = 255;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (rf_dynamic_value((uint8_t)middle) <= x)
            low = middle;
        else
            high = middle;
    }
    const float below = x - rf_dynamic_value((uint8_t)low);
    return (uint8_t)(rf_dynamic_value((uint8_t)high) - x < below ? high : low);
}

/* bitsandbytes (0.50) looks codes up in a table of 65536 equidistant numbers. */
static uint8_t code_of(float x)
{
    static const float half = 32767.5F;
    return nearest(floorf((x + 1) * half + 0.5F) / half - 1);
}

static float compress_group(const float *values, int64_t count, uint8_t *codes)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    for (int64_t i = 0; i < count; i++)
        codes[i] = largest == 0 ? 0 : code_of(values[i] / largest);
    return largest;
}

void rf_nf4_compress(float *absmax, int64_t count, uint8_t *codes, float *largest, float *offset)
{
    *offset = mean(absmax, count);
    for (int64_t i = 0; i < count; i++)
        absmax[i] -= *offset;
    for (int64_t i = 0; i < count; i += RF_NF4_GROUP) {
        const int64_t group = count - i < RF_NF4_GROUP ? count - i : RF_NF4_GROUP;
        largest[i / RF_NF4_GROUP] = compress_group(absmax + i, group, codes + i);
    }
}
