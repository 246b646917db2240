/* SPDX-License-Identifier: MIT
 *
 * Text as training data, byte by byte, and learning-rate rules. Training consumes samples 0, 1, 2,
 * ... of an endless sequence that depends on the seed alone, never on the batch or the ranks.
 *
 * Thread safety: a data set is not changed after it was opened; any thread may draw from it.
 */
#ifndef RINGFORGE_DATA_H
#define RINGFORGE_DATA_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RF_BYTE_VOCABULARY 257 /* 256 bytes, then end of text */
#define RF_END_OF_TEXT 256

struct rf_dataset;

/* Reads a text file, or every text file below a folder, in the order of the sorted paths, each
 * followed by RF_END_OF_TEXT. In a folder, names that start with a dot and files with zero bytes in
 * their first 4096 are passed over, and so is what is no regular file; by name it is refused,
 * because every rank reads the whole text by itself: write what comes through a pipe into a file
 * first. The last tenth is held out for evaluation. Errors: RF_EIO (no such file), RF_EINVAL (no
 * text in it: says what was found). */
RF_API int rf_dataset_open(const char *path, struct rf_dataset **out);
RF_EXPORT void rf_dataset_close(struct rf_dataset *dataset); /* NULL is allowed */
/* Tokens in the training part and in the held-out part. */
RF_EXPORT int64_t rf_dataset_train_tokens(const struct rf_dataset *dataset);
RF_EXPORT int64_t rf_dataset_held_out_tokens(const struct rf_dataset *dataset);
RF_EXPORT int rf_dataset_files(const struct rf_dataset *dataset);
/* Of all tokens, in both parts: the same text gives the same number on every machine. */
RF_EXPORT uint64_t rf_dataset_hash(const struct rf_dataset *dataset);

/* Samples `first` to `first + count`: sequences of `seq` tokens and the tokens that follow them,
 * (count * seq) each. Sample k begins at a position drawn by Philox from (seed, k). The batch of a
 * step begins at the samples that were consumed before it (struct rf_progress). RF_EINVAL: the
 * training part is shorter than a sequence. */
RF_API int rf_dataset_samples(const struct rf_dataset *dataset, uint64_t seed, int64_t first,
                              int64_t count, int64_t seq, int32_t *tokens, int32_t *targets);
/* Sequences `first` to `first + batch` of the held-out part, evenly cut; where it ends, targets are
 * -1 (ignored). rf_dataset_held_out_sequences says how many there are. */
RF_EXPORT int64_t rf_dataset_held_out_sequences(const struct rf_dataset *dataset, int64_t seq);
RF_API int rf_dataset_held_out(const struct rf_dataset *dataset, int64_t first, int64_t batch,
                               int64_t seq, int32_t *tokens, int32_t *targets);

/* Learning rate of `step` (from 0): rises linearly to `lr` over `warmup` steps, then falls to
 * `min_lr` along a half cosine at `steps` (Loshchilov, Hutter 2017), and stays there. */
RF_EXPORT float rf_lr_cosine(int64_t step, int64_t warmup, int64_t steps, float lr, float min_lr);
/* The learning rate for another batch size: proportional to it (Goyal et al. 2017; SGD), or to its
 * square root (Krizhevsky 2014; Adam). */
RF_EXPORT float rf_lr_scale_linear(float lr, int64_t batch_from, int64_t batch_to);
RF_EXPORT float rf_lr_scale_sqrt(float lr, int64_t batch_from, int64_t batch_to);

#ifdef __cplusplus
}
#endif
#endif
