/* SPDX-License-Identifier: MIT
 *
 * Text for many prompts: assigns rows to each call. A sequence of the cache is a slot; a prompt
 * takes a slot whose text has ended. Each call has the next token of every text, and as many tokens
 * of new prompts as rows are left.
 */
#include "generator.h"

#include "../base/base.h"

struct slot {
    int64_t prompt; /* -1: free */
    int64_t known;  /* number of tokens of prompt and text */
    int64_t done;   /* number of these in the cache */
    int64_t text;   /* tokens of text */
    int64_t taken;  /* number of rows in this call */
    int64_t row;    /* the row whose logits it needs; -1: none */
    int32_t *ids;   /* shape.length */
};

struct batch {
    struct rf_generator *g;
    const struct rf_prompt *prompts;
    const struct rf_sampling *sampling;
    struct rf_generated *results;
    int64_t count, next; /* number of prompts; the next one of this rank */
    int64_t step;        /* ranks */
    struct slot *slots;
    int32_t *ids;
};

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_prompt(const struct rf_generator *g, const struct rf_prompt *p, int64_t index)
{
    const struct rf_generator_layout *l = &g->layout;
    const int64_t limit = l->vocabulary && l->vocabulary < l->classes ? l->vocabulary : l->classes;
    if (p->count < 1 || p->count > l->shape.length)
        return rf_fail(RF_EINVAL, "prompt %lld has %lld tokens; it must have 1 to %lld",
                       (long long)index, (long long)p->count, (long long)l->shape.length);
    for (int64_t i = 0; i < p->count; i++)
        if (p->ids[i] < 0 || p->ids[i] >= limit)
            return rf_fail(RF_EINVAL, "prompt %lld: token %lld is %d, and the vocabulary has %lld",
                           (long long)index, (long long)i, p->ids[i], (long long)limit);
    return 0;
}

static int check(const struct rf_generator *g, const struct rf_prompt *prompts, int64_t count,
                 const struct rf_sampling *s, const struct rf_generated *results)
{
    if (!g || count < 0 || !s || (count > 0 && (!prompts || !results)))
        return rf_fail(RF_EINVAL, "generate: an argument is missing");
    RETURN_IF_ERROR(rf_sampling_check(s));
    for (int64_t i = 0; i < count; i++)
        RETURN_IF_ERROR(check_prompt(g, &prompts[i], i));
    return 0;
}

int rf_generator_logits(struct rf_generator *g, struct rf_generator_rows all, float *logits,
                        uint64_t logits_bytes)
{
    const int64_t rows = all.count;
    const struct rf_decode_shape *s = &g->layout.shape;
    const int64_t classes = g->layout.classes;
    if (rows < 1 || rows > s->rows || logits_bytes != (uint64_t)(rows * classes) * sizeof(float))
        return rf_fail(RF_EINVAL,
                       "logits: %lld rows with %llu bytes of logits; at most %lld rows with %llu "
                       "bytes each",
                       (long long)rows, (unsigned long long)logits_bytes, (long long)s->rows,
                       (unsigned long long)classes * sizeof(float));
    for (int64_t i = 0; i < rows; i++) {
        RETURN_IF_ERROR(check_prompt(g, &(struct rf_prompt){&all.token[i], 1}, i));
        if (all.sequence[i] < 0 || all.sequence[i] >= s->sequences || all.position[i] < 0 ||
            all.position[i] >= s->length)
            return rf_fail(RF_EINVAL,
                           "logits: row %lld is of sequence %d, position %d; there are %lld "
                           "sequences of %lld",
                           (long long)i, all.sequence[i], all.position[i], (long long)s->sequences,
                           (long long)s->length);
    }
    /* Computes the logits of `sequences` rows at a time; earlier rows are recomputed, with the same
     * bits. */
    for (int64_t first = 0; first < rows; first += s->sequences) {
        const int64_t some = rows - first < s->sequences ? rows - first : s->sequences;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t from = (first + i) % rows;
            g->token[i] = all.token[from];
            g->sequence[i] = all.sequence[from];
            g->position[i] = all.position[from];
        }
        RETURN_IF_ERROR(rf_generator_call(g, rows, some));
        memcpy(logits + first * classes, g->logits, (size_t)(some * classes) * sizeof(float));
    }
    return 0;
}

/* ---- one call -------------------------------------------------------------------------------- */

static void fill_slots(struct batch *b)
{
    for (int64_t i = 0; i < b->g->layout.shape.sequences && b->next < b->count; i++) {
        struct slot *s = &b->slots[i];
        if (s->prompt >= 0)
            continue;
        const struct rf_prompt *p = &b->prompts[b->next];
        *s = (struct slot){.prompt = b->next, .known = p->count, .ids = s->ids};
        memcpy(s->ids, p->ids, (size_t)p->count * sizeof(*p->ids));
        b->next += b->step;
    }
}

/* Assigns rows to every slot; texts come before new prompts. Returns the number of rows. */
static int64_t divide_rows(struct batch *b)
{
    const struct rf_decode_shape *shape = &b->g->layout.shape;
    int64_t left = shape->rows;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < shape->sequences; i++) {
            struct slot *s = &b->slots[i];
            const int64_t open = s->known - s->done;
            if (pass == 0)
                s->taken = 0;
            if (s->prompt < 0 || (pass == 0) != (open == 1))
                continue;
            s->taken = open < left ? open : left;
            left -= s->taken;
        }
    return shape->rows - left;
}

static void put_row(struct batch *b, int64_t row, int64_t slot, int64_t position)
{
    struct rf_generator *g = b->g;
    g->token[row] = b->slots[slot].ids[position];
    g->sequence[row] = (int32_t)slot;
    g->position[row] = (int32_t)position;
}

/* Rows with wanted logits come first. Returns their number. */
static int64_t write_rows(struct batch *b)
{
    const int64_t sequences = b->g->layout.shape.sequences;
    int64_t rows = 0;
    for (int64_t i = 0; i < sequences; i++) {
        struct slot *s = &b->slots[i];
        s->row = s->taken > 0 && s->done + s->taken == s->known ? rows : -1;
        if (s->row >= 0)
            put_row(b, rows++, i, s->known - 1);
    }
    const int64_t wanted = rows;
    for (int64_t i = 0; i < sequences; i++) {
        const struct slot *s = &b->slots[i];
        for (int64_t k = 0; k < s->taken - (s->row >= 0); k++)
            put_row(b, rows++, i, s->done + k);
    }
    return wanted;
}

static bool stops(const struct rf_sampling *s, int64_t prompt, int32_t id, float logprob)
{
    bool stop = false;
    for (int i = 0; i < s->stop_count; i++)
        stop |= s->stop[i] == id;
    if (s->token)
        stop |= s->token(s->user, prompt, id, logprob);
    return stop;
}

/* Adds a token to the text of a slot. The slot is free afterwards if the text ends. */
static int add_token(struct batch *b, struct slot *s)
{
    const struct rf_generator_layout *l = &b->g->layout;
    struct rf_generated *result = &b->results[s->prompt];
    const bool full = s->known == l->shape.length;
    int32_t id = 0;
    float logprob = 0;
    if (!full) {
        RETURN_IF_ERROR(rf_generator_sample(b->g, b->sampling, s->prompt, s->ids, s->known,
                                            b->g->logits + s->row * l->classes, &id, &logprob));
        s->ids[s->known++] = id;
        result->ids[s->text] = id;
        if (result->logprobs)
            result->logprobs[s->text] = logprob;
        result->count = ++s->text;
    }
    const bool stop = !full && stops(b->sampling, s->prompt, id, logprob);
    if (!full && !stop && s->text < b->sampling->max_new)
        return 0;
    result->finish = full ? RF_FINISH_FULL : stop ? RF_FINISH_STOP : RF_FINISH_LENGTH;
    s->prompt = -1;
    return 0;
}

static int run(struct batch *b)
{
    for (;;) {
        fill_slots(b);
        const int64_t rows = divide_rows(b);
        if (rows == 0)
            return 0;
        const int64_t wanted = write_rows(b);
        RETURN_IF_ERROR(rf_generator_call(b->g, rows, wanted));
        for (int64_t i = 0; i < b->g->layout.shape.sequences; i++) {
            struct slot *s = &b->slots[i];
            s->done += s->taken;
            if (s->taken > 0 && s->row >= 0)
                RETURN_IF_ERROR(add_token(b, s));
        }
    }
}

static int run_own(struct batch *b)
{
    const struct rf_decode_shape *shape = &b->g->layout.shape;
    int rc = 0;
    b->slots = rf_alloc((size_t)shape->sequences * sizeof(*b->slots));
    b->ids = rf_alloc((size_t)(shape->sequences * shape->length) * sizeof(*b->ids));
    if (!b->slots || !b->ids)
        rc = rf_fail(RF_ENOMEM, "generate: out of host memory");
    for (int64_t i = 0; rc == 0 && i < shape->sequences; i++)
        b->slots[i] = (struct slot){.prompt = -1, .ids = b->ids + i * shape->length};
    if (rc == 0)
        rc = run(b);
    rf_free(b->slots);
    rf_free(b->ids);
    return rc;
}

/* ---- several ranks --------------------------------------------------------------------------- */

/* Packs a result into words: count, finish, ids, logprobs. */
static void pack(const struct rf_generated *r, int64_t most, int32_t *words)
{
    words[0] = (int32_t)r->count;
    words[1] = (int32_t)r->finish;
    memcpy(words + 2, r->ids, (size_t)r->count * sizeof(*r->ids));
    if (r->logprobs)
        memcpy(words + 2 + most, r->logprobs, (size_t)r->count * sizeof(*r->logprobs));
}

static void unpack(struct rf_generated *r, int64_t most, const int32_t *words)
{
    r->count = words[0];
    r->finish = (enum rf_finish)words[1];
    memcpy(r->ids, words + 2, (size_t)r->count * sizeof(*r->ids));
    if (r->logprobs)
        memcpy(r->logprobs, words + 2 + most, (size_t)r->count * sizeof(*r->logprobs));
}

/* Words of other ranks' prompts are 0 here, so their sum over the ranks is exact. The first word
 * counts the ranks that failed. */
static int share(struct batch *b, int status)
{
    const int64_t most = b->sampling->max_new, each = 2 + 2 * most;
    const size_t count = (size_t)(1 + b->count * each);
    int32_t *words = rf_alloc(count * sizeof(*words));
    if (!words)
        return rf_fail(RF_ENOMEM, "generate: out of host memory for the results of all ranks");
    words[0] = status < 0;
    for (int64_t i = rf_comm_rank(b->g->comm); status == 0 && i < b->count; i += b->step)
        pack(&b->results[i], most, words + 1 + i * each);
    int rc = rf_all_reduce(b->g->comm, words, words, count, RF_I32, RF_SUM,
                           &(struct rf_coll_opts){.label = "generated text"});
    if (rc == 0 && words[0] > 0)
        rc = status < 0 ? status : rf_fail(RF_EABORT, "generate: %d other ranks failed", words[0]);
    for (int64_t i = 0; rc == 0 && i < b->count; i++)
        unpack(&b->results[i], most, words + 1 + i * each);
    rf_free(words);
    return rc;
}

int rf_generate(struct rf_generator *g, const struct rf_prompt *prompts, int64_t count,
                const struct rf_sampling *sampling, struct rf_generated *results)
{
    RETURN_IF_ERROR(check(g, prompts, count, sampling, results));
    struct batch b = {.g = g,
                      .prompts = prompts,
                      .sampling = sampling,
                      .results = results,
                      .count = count,
                      .next = g->comm ? rf_comm_rank(g->comm) : 0,
                      .step = g->comm ? rf_comm_size(g->comm) : 1};
    for (int64_t i = 0; i < count; i++)
        results[i].count = 0;
    const int rc = run_own(&b);
    return b.step > 1 ? share(&b, rc) : rc;
}
