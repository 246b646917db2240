/* SPDX-License-Identifier: MIT
 *
 * Collects the tokens of a data set while its files are read. Used by text.c and lines.c.
 */
#ifndef RF_IO_GATHER_H
#define RF_IO_GATHER_H

#include "dataset.h"
#include "document.h"

struct rf_gather {
    struct rf_dataset *data;
    const struct rf_data_opts *opts;
    struct rf_token_list ids;
    int64_t bytes;
    uint32_t end; /* the end-of-text token */
    bool texts;   /* some were read */
    bool chats;   /* so were conversations */
    struct rf_line line;
};
void rf_gather_free(struct rf_gather *gather);

/* Adds one text and its end. RF_ENOMEM; errors of rf_tokenizer_encode. path: for messages. */
RF_MUST_CHECK int rf_gather_text(struct rf_gather *gather, const char *path, const char *text,
                                 size_t bytes);

/* Adds the document of gather->line, which rf_line_learn made from `bytes` bytes. A document
 * without a target inside a row is counted and omitted. RF_ENOMEM. */
RF_MUST_CHECK int rf_gather_document(struct rf_gather *gather, const char *path, size_t bytes);

#endif
