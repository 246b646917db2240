/* SPDX-License-Identifier: MIT
 *
 * A generator: its memory and its state; shared by the files of this folder. generator.c opens it,
 * bytes.c computes its size, call.c runs the blocks, batch.c chooses the rows of each call, and
 * sample.c the next token.
 */
#ifndef RF_GENERATE_GENERATOR_H
#define RF_GENERATE_GENERATOR_H

#include <ringforge/generate.h>

#include "../device/arena.h"

/* A parameter of a block. Tied parameters of one type share their memory. */
struct rf_generator_param {
    const struct rf_param_desc *desc;
    const char *root; /* name of the first parameter that it is tied to */
    int piece;        /* of the arena of parameters */
};

/* Pieces of the other arena. */
enum rf_generator_piece {
    RF_PIECE_X0 = 0, /* activations */
    RF_PIECE_X1,
    RF_PIECE_TABLE, /* scratch */
    RF_PIECE_SCRATCH,
    RF_PIECE_ROWS, /* host: tokens, sequences and positions */
    RF_PIECE_LOGITS,
    RF_PIECE_COUNT
};

/* Everything that depends on blocks and options only. */
struct rf_generator_layout {
    const struct rf_block *blocks;
    int count, param_count, piece_count;
    struct rf_decode_shape shape;
    int64_t vocabulary; /* of tokens; 0 = any */
    int64_t classes;    /* columns of the logits */
    struct rf_generator_param *params;
    uint64_t *param_bytes, *cache_bytes; /* by piece; by block */
    uint64_t bytes[RF_PIECE_COUNT];
    struct rf_decode_sizes *sizes; /* by block */
};

/* Identifies a recorded call: when its commands may be replayed. */
struct rf_generator_key {
    int64_t rows, wanted, most;
};

struct rf_generator {
    struct rf_generator_layout layout;
    struct rf_device *device;
    struct rf_comm *comm;
    struct rf_stream *stream;
    struct rf_arena *params, *cache, *activations, *scratch, *host;
    struct rf_tensor *call_params; /* of one block */
    struct rf_recording *recording;
    struct rf_generator_key recorded, last;
    bool record_each_call, prepared;
    struct rf_memory_stats before;
    /* Host views of the rows of a call. */
    int32_t *token, *sequence, *position;
    const float *logits;
    /* Work space of sampling, of `classes` elements each. */
    float *scores;
    int32_t *order;
    uint8_t *seen;
};

/* bytes.c. A zeroed layout may be freed. */
RF_MUST_CHECK int rf_generator_layout_make(struct rf_blocks all,
                                           const struct rf_generator_opts *opts,
                                           struct rf_generator_layout *out);
void rf_generator_layout_destroy(struct rf_generator_layout *layout);

/* call.c. Computes `rows` rows, given by token, sequence and position; logits then has those of the
 * first `wanted` rows, at most shape.sequences. Blocking. */
RF_MUST_CHECK int rf_generator_call(struct rf_generator *g, int64_t rows, int64_t wanted);

/* sample.c. Sets g->scores to the logits of a text of `known` ids after all processors; -infinity:
 * the token is never drawn. With temperature 0, only the penalty applies. */
void rf_generator_process(struct rf_generator *g, const struct rf_sampling *s, const int32_t *ids,
                          int64_t known, const float *logits);
/* Draws the next token after `known` ids, from logits of that text. */
RF_MUST_CHECK int rf_generator_sample(struct rf_generator *g, const struct rf_sampling *s,
                                      int64_t prompt, const int32_t *ids, int64_t known,
                                      const float *logits, int32_t *id, float *logprob);
RF_MUST_CHECK int rf_sampling_check(const struct rf_sampling *s);

#endif
