/* SPDX-License-Identifier: MIT
 *
 * Training data: text, as one token per byte or as tokens of a tokenizer; files of tokens;
 * learning-rate rules. Training consumes samples 0, 1, 2, ... of an endless sequence. The sequence
 * depends on the seed only, not on the batch or the number of ranks.
 *
 * Thread safety: a data set does not change after it was opened; any thread may read it.
 */
#ifndef RINGFORGE_DATA_H
#define RINGFORGE_DATA_H

#include "tokenizer.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RF_BYTE_VOCABULARY 257 /* 256 bytes, then end of text */
#define RF_END_OF_TEXT 256

/* ---- text ------------------------------------------------------------------------------------ */

struct rf_dataset;

/* Reads a text file, or all text files below a folder, in the order of their paths. RF_END_OF_TEXT
 * follows each file. The last tenth of the tokens is held out for evaluation.
 *   In a folder it skips names that begin with a dot, files with a zero byte in their first 4096
 * bytes, and everything that is not a regular file. A path of a pipe or device is refused, because
 * every rank reads the text itself: write it to a file first. The caller closes the data set.
 * Errors: RF_EIO (no such file), RF_EINVAL (no text: the message says what was found). */
RF_API int rf_dataset_open(const char *path, struct rf_dataset **out);

struct rf_data_opts {
    /* The tokenizer of texts: its special tokens surround a text, and its end-of-text token follows
     * each text. NULL: bytes. Used only during the call. */
    const struct rf_tokenizer *tokenizer;
    int raw_bytes; /* 2 or 4: path is a file of tokens of this many bytes each, without a header */
    /* Called after each text, with the bytes read and the tokens made so far; or NULL. */
    void (*progress)(void *user, int64_t bytes, int64_t tokens);
    void *user;
    /* Documents: rows of this many tokens hold several documents, as many consecutive ones as fit.
     * rf_policy.packed keeps attention within each. 0: each document is a row. */
    int64_t pack;
    /* Documents: the tokens per row of later batches, the seq of rf_dataset_samples. Documents
     * whose row would have nothing to learn are left out, and counted. 0: unknown; none is left
     * out. */
    int64_t seq;
    /* The form of "messages": the name of a form in docs/tokenizers.md, or the path of a template.
     * NULL: the chat template in the folder `model`; without one, a form whose tokens the tokenizer
     * has. An error if it is unknown, or if the data have no "messages". */
    const char *chat;
    const char *model; /* a folder; NULL: none */
    int64_t now; /* the time for chat templates, as seconds since 1970; 0: the time of the call */
};

/* The same with options (NULL: none). A file whose name ends in ".jsonl" or ".ndjson" has one JSON
 * object on each line, whose "text" is a text of its own. A file ".json" has such objects, or a
 * list of them; within a folder only if it begins with one.
 *   A line may instead be a document for fine-tuning, with "prompt" and "completion" or with
 * "messages", as docs/tokenizers.md describes them; this needs a tokenizer. A data set has only
 * texts or only documents. A document is a row of its own in a batch.
 *   A file of tokens is recognized by its first bytes, with or without a tokenizer. It is mapped
 * into memory, and counts as one file. Formats, little-endian: those of llm.c
 * (https://github.com/karpathy/llm.c), a header of 256 i32 and then the tokens. The header begins
 * with 20240520, 1, count (tokens of 16 bits) or 20240801, 7, count (32 bits).
 *   More errors: RF_ECORRUPT (a line that is not such an object, or has an unused key; a header
 * that differs from the file's size), RF_EINVAL (a text of more than 1 GiB; a tokenizer without a
 * token for the end of a text; all documents are left out), those of rf_chat_open and of its
 * templates. */
RF_API int rf_dataset_open_as(const char *path, const struct rf_data_opts *opts,
                              struct rf_dataset **out);

/* The highest token plus one, the minimum vocabulary of a model. At least RF_BYTE_VOCABULARY if
 * tokens are bytes. */
RF_EXPORT int64_t rf_dataset_vocabulary(const struct rf_dataset *dataset);

/* The number of documents; 0: texts. */
RF_EXPORT int64_t rf_dataset_documents(const struct rf_dataset *dataset);

/* The number of rows that the documents make; the last tenth is held out. */
RF_EXPORT int64_t rf_dataset_rows(const struct rf_dataset *dataset);

/* The number of documents that were left out because of rf_data_opts.seq or pack. */
RF_EXPORT int64_t rf_dataset_left_out(const struct rf_dataset *dataset);

/* The form or the file of the chat template; NULL: no conversations. */
RF_EXPORT const char *rf_dataset_chat(const struct rf_dataset *dataset);

/* The number of documents that lose tokens at their end in rows of seq tokens. */
RF_EXPORT int64_t rf_dataset_cut(const struct rf_dataset *dataset, int64_t seq);

/* Writes all tokens into a file that rf_dataset_open_as reads: 16 bits a token if all are below
 * 65536, else 32. raw: without a header. The file gets its name only when it is complete. Errors:
 * RF_EIO, RF_EINVAL (more than 2147483647 tokens need raw, as the header's count has 32 bits),
 * RF_ENOTSUP (documents). */
RF_API int rf_dataset_write(const struct rf_dataset *dataset, const char *path, bool raw);

/* NULL is allowed. */
RF_EXPORT void rf_dataset_close(struct rf_dataset *dataset);

/* The number of tokens in the part for training. */
RF_EXPORT int64_t rf_dataset_train_tokens(const struct rf_dataset *dataset);

/* The number of tokens in the held-out part. */
RF_EXPORT int64_t rf_dataset_held_out_tokens(const struct rf_dataset *dataset);

/* The number of files. */
RF_EXPORT int rf_dataset_files(const struct rf_dataset *dataset);

/* A hash of the tokens: equal texts have equal hashes on every machine. If there are more than 2^28
 * tokens, it reads 4096 pieces of 2^14, evenly spaced, so two long texts that differ elsewhere may
 * have equal hashes. */
RF_EXPORT uint64_t rf_dataset_hash(const struct rf_dataset *dataset);

/* Sequences first to first + count - 1, of seq tokens each. */
struct rf_sample_range {
    int64_t first, count, seq;
};

/* Writes a range of samples. tokens and targets: (count * seq) each; the target of a token is the
 * token that follows it. Sample k begins at a position that Philox draws from (seed, k). A step
 * begins with the samples after those that earlier steps have consumed (struct rf_progress).
 *   Of documents, sample k is a row: each row is drawn once in as many samples as there are rows
 * for training, in an order by (seed, k / rows). The end of a row has padding, with targets of
 * RF_TARGET_NONE, as have the tokens that are not learned. The last token of a document has
 * RF_TARGET_LAST where rows have several. A row is cut after seq tokens.
 * RF_EINVAL: the part for training is shorter than one sequence. */
RF_API int rf_dataset_samples(const struct rf_dataset *dataset, uint64_t seed,
                              struct rf_sample_range range, int32_t *tokens, int32_t *targets);

/* The number of sequences that the held-out part is divided into. */
RF_EXPORT int64_t rf_dataset_held_out_sequences(const struct rf_dataset *dataset, int64_t seq);

/* Writes a range of held-out sequences. tokens and targets: (count * seq) each. Behind the end of
 * the text, targets are -1 (ignored). */
RF_API int rf_dataset_held_out(const struct rf_dataset *dataset, struct rf_sample_range range,
                               int32_t *tokens, int32_t *targets);

/* ---- learning rates -------------------------------------------------------------------------- */

/* The learning rate of `step` (from 0). It rises linearly to `lr` over `warmup` steps, falls along
 * a half cosine to `min_lr` at step `steps`, and stays there (Loshchilov, Hutter 2017). Because
 * steps count from 0, the last of `steps` steps is still above `min_lr`. */
RF_EXPORT float rf_lr_cosine(int64_t step, int64_t warmup, int64_t steps, float lr, float min_lr);

/* The learning rate for another batch size, proportional to it (SGD; Goyal et al. 2017). */
RF_EXPORT float rf_lr_scale_linear(float lr, int64_t batch_from, int64_t batch_to);

/* The same, proportional to the square root of the batch size (Adam; Krizhevsky 2014). */
RF_EXPORT float rf_lr_scale_sqrt(float lr, int64_t batch_from, int64_t batch_to);

#ifdef __cplusplus
}
#endif
#endif
