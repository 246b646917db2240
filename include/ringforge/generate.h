/* SPDX-License-Identifier: MIT
 *
 * Text generation by a model: a list of blocks (block.h) that can decode. A generator's memory
 * holds the parameters in the types that blocks use, a key-value cache, two activations and
 * scratch. All of it is allocated when the generator is opened. ringforge.h includes this.
 */
#ifndef RINGFORGE_GENERATE_H
#define RINGFORGE_GENERATE_H

#include "block.h"
#include "checkpoint.h"
#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding by blocks ---------------------------------------------------------------------- */

/* The rows of a call are new tokens of any sequences, at any positions; several may belong to one
 * sequence. A row may depend on other tokens only through the cache. So a token has the same bits
 * whether a prompt is computed at once or token by token, and whatever the other sequences
 * (ops_decode.h). */
struct rf_decode_shape {
    int64_t rows;      /* maximum rows of a call */
    int64_t sequences; /* of the cache */
    int64_t length;    /* maximum tokens of a sequence */
};

struct rf_decode_sizes {
    uint64_t cache;      /* bytes that the block keeps between calls; zeroed at first */
    uint64_t table;      /* bytes that all blocks share, which prepare() fills */
    uint64_t scratch;    /* bytes of working memory inside one call */
    struct rf_shape out; /* for the maximum number of rows; for the last block the logits */
    enum rf_dtype dtype; /* of out; that of logits is always f32 */
    int64_t vocabulary;  /* for the first block: tokens must be below it */
};

/* The arguments of a call. Tensors are valid during the call only. */
struct rf_decode {
    struct rf_stream *stream;
    struct rf_decode_shape shape;           /* rows: of this call */
    int64_t most;                           /* all positions are below it */
    const struct rf_tensor *params;         /* in the order of rf_block.params */
    struct rf_tensor sequence, position;    /* (rows) i32 */
    struct rf_tensor cache, table, scratch; /* u8, of the sizes given by sizes() */
};

struct rf_decode_ops {
    /* Pure. Not possible: a status, by rf_fail with the reason and the remedy. */
    int (*sizes)(const void *self, const struct rf_decode_shape *shape,
                 struct rf_decode_sizes *out);

    /* Records the computation of call->table, once, after the parameters are written. Blocks that
     * use a table compute the same one. NULL: the block needs none. */
    int (*prepare)(const struct rf_decode *call, void *self);

    /* Records the call, and does not wait. in: for the first block (rows) i32 tokens. out: for the
     * last block logits (rows,V) f32. */
    int (*decode)(const struct rf_decode *call, void *self, struct rf_tensor in,
                  struct rf_tensor out);
};

/* ---- generators ------------------------------------------------------------------------------ */

struct rf_generator;

struct rf_generator_opts {
    int64_t sequences;     /* computed together; 0 = 1 */
    int64_t length;        /* of the longest prompt with its text, in tokens; at least 1 */
    int64_t rows;          /* tokens of a call; 0 = the larger of 32 and sequences */
    bool record_each_call; /* true: repeated calls are not replayed. The bits are the same. */
};

/* Bytes by purpose. activations: two outputs of the largest block other than the last one. */
struct rf_generator_bytes {
    uint64_t params, cache, activations, scratch;
    uint64_t host; /* the part of these in host memory: tokens and logits */
};

/* The bytes that a generator will allocate. Pure. Errors: as rf_generator_open. */
RF_API int rf_generator_plan(struct rf_blocks blocks, const struct rf_generator_opts *opts,
                             struct rf_generator_bytes *out);

/* Allocates all memory. Parameters are zero until they are written. The ranks of comm (NULL: one
 * rank) share the prompts of rf_generate; each holds the whole model. Not collective. device, comm
 * and blocks must outlive the generator. Errors: RF_ENOTSUP (a block cannot decode), RF_EINVAL (the
 * reason of a block), RF_ENOMEM. */
RF_API int rf_generator_open(struct rf_device *device, struct rf_comm *comm,
                             struct rf_blocks blocks, const struct rf_generator_opts *opts,
                             struct rf_generator **out);

/* NULL is allowed. */
RF_EXPORT void rf_generator_close(struct rf_generator *generator);

/* Bytes passed to vkAllocateMemory since the generator was opened, by category. `host` is not
 * measured. Valid only if no other objects of the device were allocated meanwhile. */
RF_EXPORT void rf_generator_measured(const struct rf_generator *generator,
                                     struct rf_generator_bytes *out);

/* Writes a whole parameter by name, with those tied to it, rounded to nearest. count: its number of
 * elements; in a parameter of u8 (quantised weights) 4 bytes count as one f32. Overwrites values.
 * Blocking. RF_EINVAL: unknown name, or another number of elements. */
RF_API int rf_generator_write_param(struct rf_generator *generator, const char *name, float *values,
                                    uint64_t count);

/* Fills all parameters from a source (checkpoint.h): each once, from its first element on. Needs
 * host memory for the largest parameter. Blocking. Errors: those of the source, RF_ENOMEM. */
RF_API int rf_generator_fill(struct rf_generator *generator, const struct rf_param_source *source);

/* ---- generating ------------------------------------------------------------------------------ */

/* Row i is token[i] at position[i] of sequence[i]. */
struct rf_generator_rows {
    int64_t count;
    const int32_t *token, *sequence, *position; /* [count], in host memory */
};

/* Writes the keys and values of all rows into the cache; logits (rows,V), in host memory, receives
 * the logits of each row. All positions of the sequence below must have been written, by this call
 * or before. Blocking; not collective. RF_EINVAL: more rows than opts.rows, or a token, sequence or
 * position out of range. */
RF_API int rf_generator_logits(struct rf_generator *generator, struct rf_generator_rows rows,
                               float *logits, uint64_t logits_bytes);

struct rf_prompt {
    const int32_t *ids;
    int64_t count; /* at least 1 */
};

/* How the next token is chosen. The processors and their order are those of transformers'
 * `generate`: repetition penalty (of the prompt and the text; Keskar et al. 2019), temperature,
 * top-k, top-p (Holtzman et al. 2020), then a draw from the remaining tokens. */
struct rf_sampling {
    int64_t max_new;          /* tokens of text, at least 1 */
    float temperature;        /* 0: the largest logit; the lowest id if several are equal */
    int32_t top_k;            /* 0 = all */
    float top_p;              /* 0 or 1 = all */
    float repetition_penalty; /* 0 or 1 = none */
    uint64_t seed;            /* Philox by (seed, index of the prompt, position in the sequence) */
    const int32_t *stop;      /* ids that end the text; they are part of it */
    int stop_count;
    /* Called after each token of the prompts of this rank. Returns true to end the text of this
     * prompt. NULL: none. */
    bool (*token)(void *user, int64_t prompt, int32_t id, float logprob);
    void *user;
};

enum rf_finish {
    RF_FINISH_LENGTH = 0, /* max_new tokens */
    RF_FINISH_STOP,       /* a stop id, or the callback */
    RF_FINISH_FULL        /* the sequence has opts.length tokens */
};

struct rf_generated {
    int32_t *ids;    /* max_new elements, of the caller */
    float *logprobs; /* the same; log-softmax of the model's logits at the id; or NULL */
    int64_t count;
    enum rf_finish finish;
};

/* Text for each prompt. Prompts of any lengths are computed together, opts.sequences at a time; a
 * prompt takes the slot of one whose text has ended. The text of a prompt depends only on the
 * prompt, its index and the sampling, not on the other prompts, on opts or on the number of ranks.
 * Every rank passes all prompts, and gets all results. Blocking; collective. Errors: RF_EINVAL (a
 * token outside the vocabulary, a prompt that is empty or longer than opts.length, a sampling
 * option; nothing was computed), RF_ECORRUPT (a logit is NaN), RF_EABORT (another rank failed). */
RF_API int rf_generate(struct rf_generator *generator, const struct rf_prompt *prompts,
                       int64_t count, const struct rf_sampling *sampling,
                       struct rf_generated *results);

#ifdef __cplusplus
}
#endif
#endif
