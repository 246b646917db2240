/* SPDX-License-Identifier: MIT
 *
 * Chat functions for the other files of io: conversations as training data, and which tokens are
 * learned. See ringforge/chat.h.
 */
#ifndef RF_IO_CHAT_H
#define RF_IO_CHAT_H

#include <ringforge/chat.h>

#include "../tokenizer/offsets.h"
#include "conversation.h"

/* Tokens of a conversation. Zeroed at first; freed with rf_learned_free; reused by the next call.
 */
struct rf_learned {
    struct rf_token_list ids;
    struct rf_offsets offsets;
    uint8_t *flags; /* of each id: 1 if it is learned */
    size_t capacity;
};
void rf_learned_free(struct rf_learned *learned);
/* Reserves flags for all ids and clears those from `from` on. RF_ENOMEM. */
RF_MUST_CHECK int rf_learned_grow(struct rf_learned *learned, const char *where, size_t from);

/* Encodes the conversation of a line, whose values are in the room; replaces the content of *out.
 * The tokens inside {% generation %} are learned. If a template has no generation blocks, an answer
 * is what its message adds to the text of the messages before it, up to its last special token;
 * RF_ENOTSUP if the template renders the earlier messages differently without it. Other errors:
 * those of rf_chat_prompt. */
RF_MUST_CHECK int rf_chat_learn(struct rf_chat *chat, const char *where, struct rf_room *room,
                                struct rf_dict *line, struct rf_learned *out);

/* ---- chat_specials.c: special tokens that have names ------------------------------------------
 */

enum { RF_SPECIALS = 7 };
extern const char *const rf_special_names[RF_SPECIALS]; /* bos_token, eos_token, ... */

struct rf_special {
    char *name, *text; /* text NULL: the files say that there is no such token */
};

/* The seven standard special tokens that the files define, and further ones that a model names
 * itself. */
struct rf_specials {
    struct rf_special *items;
    size_t count;
};

struct cJSON;
/* NULL: no token has this name. */
struct rf_special *rf_specials_find(const struct rf_specials *specials, const char *name);
/* Adds what tokenizer_class implies: some classes have none of the seven. path: the file, for
 * messages. RF_ENOMEM. */
RF_MUST_CHECK int rf_specials_of_class(struct rf_specials *specials, const char *path,
                                       const struct cJSON *config);
/* Adds the tokens that an object names, replacing earlier ones of the same name. RF_ECORRUPT,
 * RF_ENOTSUP, RF_ENOMEM. */
RF_MUST_CHECK int rf_specials_read(struct rf_specials *specials, const char *path,
                                   const struct cJSON *config);
void rf_specials_free(struct rf_specials *specials);

/* ---- chat_folder.c: the files of a model ----------------------------------------------------- */

/* A template from the files. */
struct rf_chat_source {
    char *name;  /* "default", "tool_use", ... */
    char *where; /* the file, for messages */
    char *text;
    size_t bytes;
    struct rf_template *open; /* NULL: not yet */
};

struct rf_chat_files {
    struct rf_chat_source *sources;
    size_t count, capacity;
    struct rf_specials specials;
    bool has_processor; /* has chat_template.json, which tokenizers do not read */
};

/* Reads the templates and the special tokens of a folder, both optional. RF_EIO, RF_ECORRUPT,
 * RF_ENOMEM; *out must be freed in any case. */
RF_MUST_CHECK int rf_chat_files_read(const char *folder, struct rf_chat_files *out);
/* Adds the file at a path as the template "default". */
RF_MUST_CHECK int rf_chat_files_add(struct rf_chat_files *files, const char *path);
void rf_chat_files_free(struct rf_chat_files *files);

#endif
