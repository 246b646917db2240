/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of ringforge generate.
 */
#ifndef RF_TOOLS_GENERATE_H
#define RF_TOOLS_GENERATE_H

#include <ringforge/chat.h>
#include <ringforge/generate.h>
#include <ringforge/tokenizer.h>

#include "tool.h"

struct generate_options {
    const char *from, *adapter, *prompt, *prompts, *dtype, *json, *device, *quantize;
    const char *message, *messages, *tools, *chat, *date;
    int64_t now; /* of --date; 0: not given */
    struct tool_list prompt_ids, stop, stop_ids;
    int64_t max_new, top_k, seed, batch, length;
    double temperature, top_p, repetition_penalty;
    bool ignore_end;
    struct tool_ranks ranks;
};

/* A prompt and its text. */
struct generate_item {
    struct rf_token_list prompt;
    int32_t *ids;
    float *logprobs;
    struct rf_decoder *decoder; /* for the text so far; NULL: without a tokenizer */
    struct rf_text text;
    size_t checked; /* no stop string begins before it; shown up to it */
};

struct generate_job {
    const struct tool_command *command;
    struct generate_options o;
    struct rf_tokenizer *tokenizer; /* NULL: the folder has none */
    struct rf_chat *chat;           /* of --message and --messages; NULL: none given */
    char *tools;                    /* the text of --tools; NULL: none */
    struct generate_item *items;
    int count;
    struct rf_token_list stops;
    bool shows; /* the text is printed while it is generated */
};

/* ---- generate_text.c: prompts and texts ------------------------------------------------------ */

/* Reads the tokenizer, if the folder has one, the prompts and the ids that end a text. */
int generate_open(struct generate_job *job);
void generate_close(struct generate_job *job);
/* rf_sampling.token: adds the token to the text; true if a stop string has appeared. */
bool generate_token(void *user, int64_t prompt, int32_t id, float logprob);
/* Prints the rest of a text that is printed while it is generated. An exit status. */
int generate_end(const struct generate_job *job, struct generate_item *item);
/* The whole text of an item, up to a stop string; freed with rf_text_free. */
int generate_text(const struct generate_job *job, const struct generate_item *item, int64_t count,
                  struct rf_text *out);

#endif
