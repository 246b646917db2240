/* SPDX-License-Identifier: MIT
 *
 * What a data set is: tokens in memory, or mapped from a file. Used by text.c, token_file.c and
 * samples.c.
 */
#ifndef RF_IO_DATASET_H
#define RF_IO_DATASET_H

#include <ringforge/data.h>

struct rf_dataset {
    void *tokens; /* u16 or u32; within the map if there is one */
    void *map;
    size_t map_bytes;
    int width; /* bytes a token, 2 or 4 */
    int64_t count, capacity, train, vocabulary;
    int files;
};

static inline int32_t rf_dataset_token(const struct rf_dataset *data, int64_t at)
{
    return data->width == 2 ? ((const uint16_t *)data->tokens)[at]
                            : ((const int32_t *)data->tokens)[at];
}

/* token_file.c: 1 if path is a file of tokens, which then are data's; 0 if it is something else.
 * raw_bytes: as in struct rf_data_opts. */
RF_MUST_CHECK int rf_token_file_map(struct rf_dataset *data, const char *path, int raw_bytes);
int64_t rf_dataset_highest(const struct rf_dataset *data);

#endif
