/* SPDX-License-Identifier: MIT
 *
 * A data set: tokens in memory or mapped from a file. Used by text.c, token_file.c and samples.c.
 */
#ifndef RF_IO_DATASET_H
#define RF_IO_DATASET_H

#include <ringforge/data.h>

struct rf_dataset {
    void *tokens; /* u16 or u32; within the map if there is one */
    void *map;
    size_t map_bytes;
    int width; /* bytes per token, 2 or 4 */
    int64_t count, capacity, train, vocabulary;
    int files;
    /* Documents (else NULL and 0): the begin of each, and the end of the last; the first document
     * of each row, and the end of the last; a flag per token: it is a target. */
    int64_t *starts, *rows;
    int64_t documents, row_count, train_rows, starts_capacity;
    int64_t left_out; /* documents without a target inside a row */
    char *chat;       /* the chat template; NULL: no conversations */
    uint8_t *learned;
    int32_t padding;
    bool packed; /* rows may have several documents */
};

static inline int32_t rf_dataset_token(const struct rf_dataset *data, int64_t at)
{
    return data->width == 2 ? ((const uint16_t *)data->tokens)[at]
                            : ((const int32_t *)data->tokens)[at];
}

/* token_file.c: 1 if path is a token file, which is then mapped into data; 0 if not. raw_bytes: as
 * in struct rf_data_opts. */
RF_MUST_CHECK int rf_token_file_map(struct rf_dataset *data, const char *path, int raw_bytes);
int64_t rf_dataset_highest(const struct rf_dataset *data);

/* rows.c: copies the name of the chat template. */
RF_MUST_CHECK int rf_dataset_name_chat(struct rf_dataset *data, const char *name);

/* rows.c: divides the documents into rows. pack: the tokens of a row with several documents; 0: one
 * document per row. The last tenth of the rows is held out. */
RF_MUST_CHECK int rf_rows_make(struct rf_dataset *data, int64_t pack);
/* Copies row `row`: seq tokens and targets. Row row_count is padding only. */
void rf_row_copy(const struct rf_dataset *data, int64_t row, int64_t seq, int32_t *tokens,
                 int32_t *targets);
/* The row of sample k. Each block of train_rows samples has every row once. */
int64_t rf_row_of_sample(const struct rf_dataset *data, uint64_t seed, int64_t sample);

#endif
