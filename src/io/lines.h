/* SPDX-License-Identifier: MIT
 *
 * Files of JSON as lines of data. Used by text.c.
 */
#ifndef RF_IO_LINES_H
#define RF_IO_LINES_H

#include "gather.h"

enum rf_file_kind {
    RF_FILE_TEXT,
    RF_FILE_LINES,  /* .jsonl, .ndjson: an object on each line */
    RF_FILE_OBJECTS /* .json: objects, or a list of them */
};

/* The kind by the file's name. A .json file found in a folder is also judged by its beginning:
 * source folders have other JSON files, which are texts. */
enum rf_file_kind rf_file_kind(const char *path, const char *text, size_t bytes, bool found);

/* Adds all lines of a file. RF_ECORRUPT, with the number of the line or object: damaged, or
 * followed by other text. Errors of rf_line_read and rf_line_learn. */
RF_MUST_CHECK int rf_lines_read(struct rf_gather *gather, const char *path, enum rf_file_kind kind,
                                const char *text, size_t bytes);

#endif
