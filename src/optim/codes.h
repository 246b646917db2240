/* SPDX-License-Identifier: MIT
 *
 * States in 8 bits (ops_optimizer.h): the levels of a dynamic map, and a table that finds the
 * nearest one. The updates on the host include it, and so does what converts checkpoints.
 */
#ifndef RF_OPTIM_CODES_H
#define RF_OPTIM_CODES_H

#include "host.h"

/* Magnitudes with equal upper 16 bits are a cell. A cell has at most one border between levels. */
enum { RF_CODE_CELLS = 2900 };

/* Levels are numbered from 0 upwards: with signs, number n is code 127 + n, and minus that level
 * code 127 - n. A cell is (number << 16) + 65535 - the lower bits of the border above that number,
 * or 0 after the number if there is no border: (cell + lower bits of x) >> 16 is x's number. */
struct rf_codes {
    bool has_signs;
    uint32_t first; /* the upper bits of the first cell, which is below all borders */
    float levels[256];
    uint32_t cells[RF_CODE_CELLS];
};
void rf_codes_make(bool has_signs, struct rf_codes *out);

/* The bytes of the states of `count` elements. */
static inline uint64_t rf_code_bytes(uint64_t count)
{
    return (count + RF_STATE_BLOCK - 1) / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES;
}

/* Whole blocks of RF_STATE_BLOCK values, by each instruction set. */
struct rf_code_loops {
    void (*write)(const struct rf_codes *codes, const float *values, void *block);
    void (*read)(const struct rf_codes *codes, const void *block, float *values);
};
extern const struct rf_code_loops rf_code_loops[RF_HOST_PATHS];

/* A block of `count` elements, at most RF_STATE_BLOCK; the others are 0. */
void rf_codes_write(const struct rf_codes *codes, const float *values, int count, void *block);
void rf_codes_read(const struct rf_codes *codes, const void *block, int count, float *values);

#endif
