/* SPDX-License-Identifier: MIT
 *
 * Collects the tokens of a data set while its files are read; see gather.h.
 */
#include "gather.h"

#include "../base/base.h"

void rf_gather_free(struct rf_gather *gather)
{
    rf_token_list_free(&gather->ids);
    rf_line_free(&gather->line);
}

/* Reserves space for `more` tokens. */
static int reserve(struct rf_dataset *data, const char *path, size_t more)
{
    if ((uint64_t)data->capacity - (uint64_t)data->count >= more)
        return 0;
    const size_t wanted = (size_t)data->count + (size_t)data->count / 2 + more;
    void *grown = rf_realloc(data->tokens, wanted * (size_t)data->width);
    if (!grown)
        return rf_fail(RF_ENOMEM, "data %s: out of memory for %zu tokens", path, wanted);
    data->tokens = grown;
    data->capacity = (int64_t)wanted;
    return 0;
}

static void put(struct rf_dataset *data, uint32_t token)
{
    if (data->width == 2)
        ((uint16_t *)data->tokens)[data->count++] = (uint16_t)token;
    else
        ((uint32_t *)data->tokens)[data->count++] = token;
}

static void tell(struct rf_gather *g, size_t bytes)
{
    g->bytes += (int64_t)bytes;
    if (g->opts->progress)
        g->opts->progress(g->opts->user, g->bytes, g->data->count);
}

int rf_gather_text(struct rf_gather *g, const char *path, const char *text, size_t bytes)
{
    const struct rf_encode_opts with = {.add_special = true};
    g->texts = true;
    if (!g->opts->tokenizer) {
        RETURN_IF_ERROR(reserve(g->data, path, bytes + 1));
        for (size_t i = 0; i < bytes; i++)
            put(g->data, (uint8_t)text[i]);
    } else {
        g->ids.count = 0;
        RETURN_IF_ERROR(rf_tokenizer_encode(g->opts->tokenizer, text, bytes, &with, &g->ids));
        if (g->ids.count > 0 && (uint32_t)g->ids.ids[g->ids.count - 1] == g->end)
            g->ids.count--;
        RETURN_IF_ERROR(reserve(g->data, path, g->ids.count + 1));
        for (size_t i = 0; i < g->ids.count; i++)
            put(g->data, (uint32_t)g->ids.ids[i]);
    }
    put(g->data, g->end);
    tell(g, bytes);
    return 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Reserves flags for the capacity of tokens, and one more document. */
static int reserve_document(struct rf_dataset *data, const char *path, int64_t before)
{
    if (before != data->capacity) {
        uint8_t *grown = rf_realloc(data->learned, (size_t)data->capacity);
        if (!grown)
            return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
        data->learned = grown;
    }
    if (data->documents + 2 > data->starts_capacity) {
        const int64_t wanted = 2 * data->starts_capacity + 64;
        int64_t *grown = rf_realloc(data->starts, (size_t)wanted * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
        data->starts = grown;
        data->starts_capacity = wanted;
    }
    return 0;
}

/* Whether a row of seq tokens contains a learned token as a target. The target of a position is the
 * next token. */
static bool reaches_a_target(const struct rf_learned *d, int64_t seq)
{
    const size_t targets = d->ids.count - 1;
    return seq == 0 ||
           memchr(d->flags + 1, 1, targets < (uint64_t)seq ? targets : (size_t)seq) != NULL;
}

int rf_gather_document(struct rf_gather *g, const char *path, size_t bytes)
{
    struct rf_dataset *data = g->data;
    const struct rf_learned *d = &g->line.learned;
    const int64_t before = data->capacity;
    const int64_t seq = g->opts->pack ? g->opts->pack : g->opts->seq;
    g->chats = g->chats || g->line.kind == RF_LINE_CHAT;
    if (!reaches_a_target(d, seq)) {
        data->left_out++;
        tell(g, bytes);
        return 0;
    }
    RETURN_IF_ERROR(reserve(data, path, d->ids.count));
    RETURN_IF_ERROR(reserve_document(data, path, before));
    memcpy(data->learned + data->count, d->flags, d->ids.count);
    data->starts[data->documents++] = data->count;
    for (size_t i = 0; i < d->ids.count; i++)
        put(data, (uint32_t)d->ids.ids[i]);
    data->starts[data->documents] = data->count;
    tell(g, bytes);
    return 0;
}
