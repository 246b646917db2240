/* SPDX-License-Identifier: MIT
 *
 * Byte-pair encoding of words; see bpe.h. It splits a word into symbols with ids, has bpe_merge.c
 * merge them, and keeps the ids of short words in a cache.
 *   A word may be a whole text (Llama 2 has no pre-tokenizer). It is then cut between two
 * characters that no merge joins: nothing is merged across such a place, so the ids are the same.
 */
#include "bpe.h"

#include "../base/base.h"
#include "utf8.h"

enum { CACHE_KEY = 42, CACHE_IDS = 20, CACHE_SLOTS = 1 << 14, MAX_WORD = 1 << 30 };

struct cached {
    uint32_t hash;
    uint8_t bytes, count; /* no bytes: free */
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
};

struct rf_bpe_state {
    struct rf_symbols symbols;
    struct cached cache[CACHE_SLOTS];
};

/* ---- tables ---------------------------------------------------------------------------------- */

void rf_bpe_free(struct rf_bpe *bpe)
{
    rf_vocabulary_free(&bpe->vocabulary);
    rf_free(bpe->direct);
    rf_free(bpe->merges);
    rf_free(bpe->joints);
}

int rf_bpe_prepare(struct rf_bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8], letter[2];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        bpe->byte_tokens[byte] = rf_vocabulary_find(&bpe->vocabulary, text, 6);
        bpe->letters[byte] =
            rf_vocabulary_find(&bpe->vocabulary, letter, rf_byte_to_letter((uint8_t)byte, letter));
    }
    bpe->direct = rf_alloc(RF_DIRECT_LETTERS * sizeof(*bpe->direct));
    if (!bpe->direct)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a table of characters");
    memset(bpe->direct, 0xff, RF_DIRECT_LETTERS * sizeof(*bpe->direct));
    for (int32_t id = 0; id < bpe->vocabulary.ids; id++) {
        const char *text = rf_vocabulary_text(&bpe->vocabulary, id);
        if (!text || !text[0] || text[rf_utf8_length(text[0])])
            continue;
        const uint32_t letter = rf_utf8_read(text);
        if (letter < RF_DIRECT_LETTERS)
            bpe->direct[letter] = id;
    }
    return 0;
}

static uint64_t mix(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

static void put_merge(struct rf_bpe *bpe, const struct rf_merge *merge)
{
    uint64_t at = mix(merge->pair) & bpe->merge_mask;
    while (bpe->merges[at].rank != 0 && bpe->merges[at].pair != merge->pair)
        at = (at + 1) & bpe->merge_mask;
    bpe->merge_count += bpe->merges[at].rank == 0;
    bpe->merges[at] = *merge; /* of equal pairs the last merge counts */
}

static int grow_merges(struct rf_bpe *bpe)
{
    struct rf_merge *old = bpe->merges;
    const uint64_t count = old ? bpe->merge_mask + 1 : 0, wanted = count ? 2 * count : 1024;
    bpe->merges = rf_alloc(wanted * sizeof(*bpe->merges));
    if (!bpe->merges) {
        bpe->merges = old;
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for the merges");
    }
    bpe->merge_mask = wanted - 1;
    bpe->merge_count = 0;
    for (uint64_t i = 0; i < count; i++)
        if (old[i].rank != 0)
            put_merge(bpe, &old[i]);
    rf_free(old);
    return 0;
}

static void put_joint(struct rf_bpe *bpe, uint64_t joint)
{
    uint64_t at = mix(joint) & bpe->joint_mask;
    while (bpe->joints[at] != 0 && bpe->joints[at] != joint)
        at = (at + 1) & bpe->joint_mask;
    bpe->joint_count += bpe->joints[at] == 0;
    bpe->joints[at] = joint;
}

static bool has_joint(const struct rf_bpe *bpe, uint64_t joint)
{
    if (bpe->joint_count == 0)
        return false;
    uint64_t at = mix(joint) & bpe->joint_mask;
    while (bpe->joints[at] != 0 && bpe->joints[at] != joint)
        at = (at + 1) & bpe->joint_mask;
    return bpe->joints[at] == joint;
}

static uint64_t joint_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right | (uint64_t)1 << 63;
}

static int add_joint(struct rf_bpe *bpe, const char *left, size_t left_bytes, const char *right)
{
    const char *last = left + left_bytes - 1;
    while (((uint8_t)*last & 0xc0) == 0x80)
        last--;
    if (2 * bpe->joint_count >= bpe->joint_mask) {
        uint64_t *old = bpe->joints;
        const uint64_t count = old ? bpe->joint_mask + 1 : 0, wanted = count ? 2 * count : 1024;
        bpe->joints = rf_alloc(wanted * sizeof(*bpe->joints));
        if (!bpe->joints) {
            bpe->joints = old;
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for the merges");
        }
        bpe->joint_mask = wanted - 1;
        bpe->joint_count = 0;
        for (uint64_t i = 0; i < count; i++)
            if (old[i] != 0)
                put_joint(bpe, old[i]);
        rf_free(old);
    }
    put_joint(bpe, joint_of(rf_utf8_read(last), rf_utf8_read(right)));
    return 0;
}

static bool is_byte_token(const struct rf_bpe *bpe, int32_t id)
{
    const char *text = rf_vocabulary_text(&bpe->vocabulary, id);
    return strncmp(text, "<0x", 3) == 0 && strlen(text) == 6;
}

int rf_bpe_add_merge(struct rf_bpe *bpe, int32_t index, const char *left, size_t left_bytes,
                     const char *right, size_t right_bytes)
{
    char both[2 * RF_MAX_TOKEN_BYTES];
    int32_t ids[3] = {-1, -1, -1};
    const bool fits = left_bytes > 0 && right_bytes > 0 && left_bytes <= RF_MAX_TOKEN_BYTES &&
                      right_bytes <= RF_MAX_TOKEN_BYTES;
    if (fits) {
        memcpy(both, left, left_bytes);
        memcpy(both + left_bytes, right, right_bytes);
        ids[0] = rf_vocabulary_find(&bpe->vocabulary, left, left_bytes);
        ids[1] = rf_vocabulary_find(&bpe->vocabulary, right, right_bytes);
        ids[2] = rf_vocabulary_find(&bpe->vocabulary, both, left_bytes + right_bytes);
    }
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
        return rf_fail(
            RF_ECORRUPT,
            "tokenizer: model.merges[%d]: \"%.*s\", \"%.*s\" or the two together is not in "
            "the vocabulary",
            index, (int)(left_bytes < 40 ? left_bytes : 40), left,
            (int)(right_bytes < 40 ? right_bytes : 40), right);
    if (2 * bpe->merge_count >= bpe->merge_mask)
        RETURN_IF_ERROR(grow_merges(bpe));
    put_merge(bpe, &(struct rf_merge){(uint64_t)(uint32_t)ids[0] << 32 | (uint32_t)ids[1],
                                      index + 1, ids[2]});
    /* The name of a byte token is not its text, so its characters do not end or begin a merge. */
    if (is_byte_token(bpe, ids[0]) || is_byte_token(bpe, ids[1]) || ids[0] == bpe->unknown ||
        ids[1] == bpe->unknown)
        bpe->no_cuts = true;
    return bpe->on_bytes ? 0 : add_joint(bpe, left, left_bytes, right);
}

/* ---- symbols --------------------------------------------------------------------------------- */

int rf_bpe_state_open(struct rf_bpe_state **out)
{
    struct rf_bpe_state *state = rf_alloc(sizeof(*state));
    if (!state)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a cache of words");
    *out = state;
    return 0;
}

void rf_bpe_state_close(struct rf_bpe_state *state)
{
    if (!state)
        return;
    rf_symbols_free(&state->symbols);
    rf_free(state);
}

static int add_symbol(struct rf_symbols *symbols, int32_t id)
{
    if (symbols->count == symbols->capacity) {
        const size_t capacity = 2 * symbols->capacity + 256;
        struct rf_symbol *list = rf_realloc(symbols->list, capacity * sizeof(*list));
        if (!list)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a word");
        symbols->list = list;
        symbols->capacity = capacity;
    }
    symbols->list[symbols->count++].id = id;
    return 0;
}

/* A character without a token: the tokens of its bytes, or the unknown token. The unknown token
 * stays in *pending until the next token, so that several can be fused. */
static int add_unknown(const struct rf_bpe *bpe, struct rf_symbols *symbols, const char *letter,
                       size_t bytes, bool *pending)
{
    bool all = bpe->byte_fallback;
    for (size_t i = 0; all && i < bytes; i++)
        all = bpe->byte_tokens[(uint8_t)letter[i]] >= 0;
    if (all) {
        for (size_t i = 0; i < bytes; i++)
            RETURN_IF_ERROR(add_symbol(symbols, bpe->byte_tokens[(uint8_t)letter[i]]));
        return 0;
    }
    if (bpe->unknown < 0)
        return 0;
    if (*pending && !bpe->fuse_unknown)
        RETURN_IF_ERROR(add_symbol(symbols, bpe->unknown));
    *pending = true;
    return 0;
}

static int32_t id_of_letter(const struct rf_bpe *bpe, const char *letter, size_t bytes)
{
    const uint32_t code = rf_utf8_read(letter);
    return code < RF_DIRECT_LETTERS ? bpe->direct[code]
                                    : rf_vocabulary_find(&bpe->vocabulary, letter, bytes);
}

static int add_known(const struct rf_bpe *bpe, struct rf_symbols *symbols, int32_t id,
                     bool *pending)
{
    if (*pending)
        RETURN_IF_ERROR(add_symbol(symbols, bpe->unknown));
    *pending = false;
    return add_symbol(symbols, id);
}

static int make_symbols(const struct rf_bpe *bpe, struct rf_symbols *symbols, const char *word,
                        size_t bytes)
{
    bool pending = false;
    char letter[2];
    symbols->count = 0;
    for (size_t i = 0, length; i < bytes; i += length) {
        length = bpe->on_bytes ? 1 : rf_utf8_length(word[i]);
        const int32_t id =
            bpe->on_bytes ? bpe->letters[(uint8_t)word[i]] : id_of_letter(bpe, word + i, length);
        if (id >= 0)
            RETURN_IF_ERROR(add_known(bpe, symbols, id, &pending));
        else if (bpe->on_bytes)
            RETURN_IF_ERROR(add_unknown(bpe, symbols, letter,
                                        rf_byte_to_letter((uint8_t)word[i], letter), &pending));
        else
            RETURN_IF_ERROR(add_unknown(bpe, symbols, word + i, length, &pending));
    }
    return pending ? add_symbol(symbols, bpe->unknown) : 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The id of a whole word; -1: not a token. */
static int32_t whole_word(const struct rf_bpe *bpe, const char *word, size_t bytes)
{
    char text[2 * 256];
    size_t length = 0;
    if (!bpe->on_bytes)
        return rf_vocabulary_find(&bpe->vocabulary, word, bytes);
    if (bytes > 256)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        length += rf_byte_to_letter((uint8_t)word[i], text + length);
    return rf_vocabulary_find(&bpe->vocabulary, text, length);
}

static int encode_piece(const struct rf_bpe *bpe, struct rf_bpe_state *state, const char *word,
                        size_t bytes, bool whole, struct rf_token_list *out)
{
    const uint32_t hash = rf_hash_bytes(word, bytes);
    struct cached *slot = &state->cache[hash % CACHE_SLOTS];
    if (slot->bytes == bytes && slot->hash == hash && memcmp(slot->key, word, bytes) == 0) {
        if (slot->count == 0) /* a piece without tokens: the list may have no memory yet */
            return 0;
        RETURN_IF_ERROR(rf_token_list_reserve(out, slot->count));
        memcpy(out->ids + out->count, slot->ids, slot->count * sizeof(*slot->ids));
        out->count += slot->count;
        return 0;
    }
    const size_t before = out->count;
    const int32_t id = whole && bpe->ignore_merges ? whole_word(bpe, word, bytes) : -1;
    if (id >= 0) {
        RETURN_IF_ERROR(rf_token_list_add(out, id));
    } else {
        RETURN_IF_ERROR(make_symbols(bpe, &state->symbols, word, bytes));
        RETURN_IF_ERROR(rf_bpe_merge_all(bpe, &state->symbols, out));
    }
    const size_t count = out->count - before;
    if (bytes <= CACHE_KEY && count <= CACHE_IDS) {
        *slot = (struct cached){.hash = hash, .bytes = (uint8_t)bytes, .count = (uint8_t)count};
        memcpy(slot->key, word, bytes);
        if (count > 0)
            memcpy(slot->ids, out->ids + before, count * sizeof(*slot->ids));
    }
    return 0;
}

/* The end of the next piece, from `at` on. */
static size_t next_cut(const struct rf_bpe *bpe, const char *word, size_t at, size_t bytes)
{
    size_t length = rf_utf8_length(word[at]);
    uint32_t left = rf_utf8_read(word + at);
    bool known = id_of_letter(bpe, word + at, length) >= 0;
    for (at += length; at < bytes; at += length) {
        length = rf_utf8_length(word[at]);
        const uint32_t right = rf_utf8_read(word + at);
        const bool next_known = id_of_letter(bpe, word + at, length) >= 0;
        if (known && next_known && !has_joint(bpe, joint_of(left, right)))
            return at;
        left = right;
        known = next_known;
    }
    return bytes;
}

int rf_bpe_encode(const struct rf_bpe *bpe, struct rf_bpe_state *state, const char *word,
                  size_t bytes, struct rf_token_list *out)
{
    if (bytes == 0)
        return 0;
    if (bytes > MAX_WORD)
        return rf_fail(RF_EINVAL,
                       "tokenizer: a text without a place to divide it has %zu bytes; at "
                       "most 1 GiB is possible",
                       bytes);
    /* The cache does not distinguish words from pieces, so words that ignore merges are cut only if
     * they are too long for it. */
    if (bpe->on_bytes || bpe->no_cuts || bytes <= CACHE_KEY)
        return encode_piece(bpe, state, word, bytes, true, out);
    if (bpe->ignore_merges)
        return encode_piece(bpe, state, word, bytes, true, out);
    for (size_t at = 0, end; at < bytes; at = end) {
        end = next_cut(bpe, word, at, bytes);
        RETURN_IF_ERROR(encode_piece(bpe, state, word + at, end - at, false, out));
    }
    return 0;
}

/* ---- the bytes of tokens --------------------------------------------------------------------- */

/* Whether the character at `at` has no token of its own. */
static bool is_strange(const struct rf_bpe *bpe, const char *word, size_t at, size_t bytes)
{
    if (bpe->on_bytes)
        return bpe->letters[(uint8_t)word[at]] < 0;
    return at + rf_utf8_length(word[at]) <= bytes &&
           id_of_letter(bpe, word + at, rf_utf8_length(word[at])) < 0;
}

/* The bytes of the unknown token: of one character, or of a run of unknown characters. */
static size_t unknown_bytes(const struct rf_bpe *bpe, const char *word, size_t at, size_t bytes)
{
    const size_t begin = at;
    do
        at += bpe->on_bytes ? 1 : rf_utf8_length(word[at]);
    while (bpe->fuse_unknown && at < bytes && is_strange(bpe, word, at, bytes));
    return (at < bytes ? at : bytes) - begin;
}

static size_t token_bytes(const struct rf_bpe *bpe, int32_t id)
{
    const char *text = rf_vocabulary_text(&bpe->vocabulary, id);
    size_t bytes = text ? strlen(text) : 0, letters = 0;
    for (size_t i = 0; bpe->on_bytes && i < bytes; i += rf_utf8_length(text[i]))
        letters++;
    return bpe->on_bytes ? letters : bytes;
}

int rf_bpe_measure(const struct rf_bpe *bpe, const char *word, size_t bytes, const int32_t *ids,
                   size_t count, uint32_t *lengths)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        /* Inside a character, or at one without a token: a byte token, or the unknown token. */
        const bool strange =
            at < bytes && (((uint8_t)word[at] & 0xc0) == 0x80 || is_strange(bpe, word, at, bytes));
        if (strange && !bpe->on_bytes && ids[i] == bpe->byte_tokens[(uint8_t)word[at]])
            length = 1;
        else if (strange && ids[i] == bpe->unknown)
            length = unknown_bytes(bpe, word, at, bytes);
        else
            length = token_bytes(bpe, ids[i]);
        at += length;
        if (at > bytes)
            return rf_fail(RF_ENOTSUP,
                           "tokenizer: where token %d begins and ends is not known, as "
                           "tokens of bytes were merged",
                           ids[i]);
        lengths[i] = (uint32_t)length;
    }
    return 0;
}
