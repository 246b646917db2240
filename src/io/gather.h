/* SPDX-License-Identifier: MIT
 *
 * Tokens of a data set while it is read. Used by text.c and lines.c.
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
    uint32_t end; /* of text */
    bool texts;   /* some were read */
    bool chats;   /* so were conversations */
    struct rf_line line;
};
void rf_gather_free(struct rf_gather *gather);

/* One text, and the end of it. RF_ENOMEM; errors of rf_tokenizer_encode. path: for messages. */
RF_MUST_CHECK int rf_gather_text(struct rf_gather *gather, const char *path, const char *text,
                                 size_t bytes);

/* The document of gather->line, which was learned from `bytes` bytes. One whose tokens to learn are
 * all behind the end of a row is counted and left out. RF_ENOMEM. */
RF_MUST_CHECK int rf_gather_document(struct rf_gather *gather, const char *path, size_t bytes);

#endif
