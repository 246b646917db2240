/* SPDX-License-Identifier: MIT
 *
 * Reads the added tokens of a tokenizer's files, and builds the tries that find them.
 */
#include <cjson/cJSON.h>
#include <string.h>

#include "../base/base.h"
#include "fields.h"
#include "internal.h"
#include "json.h"

int rf_normalize_added(struct rf_tokenizer *tokenizer, struct rf_added *added)
{
    struct rf_work *work;
    if (!added->in_normalized || tokenizer->normalizer.count == 0)
        return 0;
    RETURN_IF_ERROR(rf_work_take(tokenizer, &work));
    work->text.count = 0;
    int rc = rf_text_add(&work->text, added->content, strlen(added->content));
    if (rc == 0)
        rc = rf_normalize(&tokenizer->normalizer, work);
    if (rc == 0 && strcmp(work->text.bytes, added->content) != 0)
        rc = rf_json_copy("added_tokens", work->text.bytes, &added->normalized);
    rf_work_give(tokenizer, work);
    return rc;
}

static int load_one(struct rf_tokenizer *tokenizer, const cJSON *json, int index)
{
    struct rf_added *added = &tokenizer->added[index];
    const char *content;
    char field[RF_FIELD];
    snprintf(field, sizeof(field), "added_tokens[%d]", index);
    if (cJSON_IsObject(json))
        RETURN_IF_ERROR(rf_check_fields(rf_added_fields, field, json));
    RETURN_IF_ERROR(rf_json_text(json, field, "content", &content));
    RETURN_IF_ERROR(rf_json_int(json, field, "id", RF_MAX_TOKEN_ID, &added->id));
    RETURN_IF_ERROR(rf_json_bool(json, field, "special", 0, &added->special));
    RETURN_IF_ERROR(rf_json_bool(json, field, "normalized", 1, &added->in_normalized));
    RETURN_IF_ERROR(rf_json_bool(json, field, "single_word", 0, &added->single_word));
    RETURN_IF_ERROR(rf_json_bool(json, field, "lstrip", 0, &added->left));
    RETURN_IF_ERROR(rf_json_bool(json, field, "rstrip", 0, &added->right));
    if (!content[0] || strlen(content) > RF_MAX_TOKEN_BYTES)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s.content: is empty or too long", field);
    const int32_t known = rf_vocabulary_find(&tokenizer->bpe.vocabulary, content, strlen(content));
    const char *there = rf_vocabulary_text(&tokenizer->bpe.vocabulary, added->id);
    if ((known >= 0 && known != added->id) || (there && strcmp(there, content) != 0))
        return rf_fail(RF_ECORRUPT,
                       "tokenizer: %s: model.vocab has another id for \"%.40s\", or "
                       "another token with the id %d",
                       field, content, added->id);
    RETURN_IF_ERROR(rf_json_copy(field, content, &added->content));
    return rf_normalize_added(tokenizer, added);
}

int rf_index_added(struct rf_tokenizer *tokenizer)
{
    struct rf_vocabulary seen = {0};
    int rc = 0;
    rf_free(tokenizer->added_at);
    rf_trie_free(&tokenizer->plain);
    rf_trie_free(&tokenizer->normalized);
    tokenizer->vocabulary = tokenizer->bpe.vocabulary.ids;
    for (int32_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id >= tokenizer->vocabulary)
            tokenizer->vocabulary = tokenizer->added[i].id + 1;
    tokenizer->added_at = rf_alloc((size_t)tokenizer->vocabulary * sizeof(*tokenizer->added_at));
    if (!tokenizer->added_at)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
    for (int32_t i = 0; rc == 0 && i < tokenizer->added_count; i++) {
        const struct rf_added *added = &tokenizer->added[i];
        const char *text = added->normalized ? added->normalized : added->content;
        rc = rf_vocabulary_add(&seen, "added_tokens", added->content, strlen(added->content),
                               added->id);
        if (rc == 0 && text[0])
            rc = rf_trie_add(added->in_normalized ? &tokenizer->normalized : &tokenizer->plain,
                             text, i);
        tokenizer->added_at[added->id] = i + 1;
    }
    rf_vocabulary_free(&seen);
    return rc;
}

int rf_load_added(struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    const cJSON *item;
    int index = 0;
    if (json && !cJSON_IsNull(json)) {
        const int count = cJSON_IsArray(json) ? cJSON_GetArraySize(json) : -1;
        if (count < 0)
            return rf_fail(RF_ECORRUPT, "tokenizer: added_tokens: is no list");
        tokenizer->added = rf_alloc(((size_t)count + 1) * sizeof(*tokenizer->added));
        if (!tokenizer->added)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
        tokenizer->added_count = count;
        cJSON_ArrayForEach(item, json) RETURN_IF_ERROR(load_one(tokenizer, item, index++));
    }
    return rf_index_added(tokenizer);
}
