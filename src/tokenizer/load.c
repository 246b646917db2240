/* SPDX-License-Identifier: MIT
 *
 * Opens tokenizer.json: the model, and the file as a whole. Nothing in the file is trusted. Added
 * tokens are read by load_added.c, the steps by load_steps.c.
 */
#include <cjson/cJSON.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "config.h"
#include "fields.h"
#include "json.h"
#include "utf8.h"

#define MAX_FILE ((size_t)256 << 20)

/* ---- the model ------------------------------------------------------------------------------- */

static int load_vocabulary(struct rf_bpe *bpe, const cJSON *json)
{
    const cJSON *vocabulary, *item;
    RETURN_IF_ERROR(rf_json_get(json, "model", "vocab", cJSON_Object, &vocabulary));
    cJSON_ArrayForEach(item, vocabulary)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < 1e15) ||
            item->valuedouble != (double)(int64_t)item->valuedouble)
            return rf_fail(RF_ECORRUPT,
                           "tokenizer: model.vocab: the id of \"%.40s\" is no whole "
                           "number",
                           item->string);
        RETURN_IF_ERROR(rf_vocabulary_add(&bpe->vocabulary, "model.vocab", item->string,
                                          strlen(item->string), (int64_t)item->valuedouble));
    }
    return bpe->vocabulary.ids > 0 ? 0 : rf_fail(RF_ECORRUPT, "tokenizer: model.vocab: is empty");
}

static int load_merges(struct rf_bpe *bpe, const cJSON *json)
{
    const cJSON *merges, *item;
    int32_t index = 0;
    RETURN_IF_ERROR(rf_json_get(json, "model", "merges", cJSON_Array, &merges));
    cJSON_ArrayForEach(item, merges)
    {
        const char *left = cJSON_GetStringValue(item), *right = NULL;
        size_t left_bytes = 0;
        if (left) { /* "a b" */
            const char *space = strchr(left, ' ');
            if (strncmp(left, "#version", 8) == 0)
                continue;
            if (space && !strchr(space + 1, ' ')) {
                left_bytes = (size_t)(space - left);
                right = space + 1;
            }
        } else if (cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2) { /* ["a", "b"] */
            left = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
            right = left ? cJSON_GetStringValue(cJSON_GetArrayItem(item, 1)) : NULL;
            left_bytes = right ? strlen(left) : 0;
        }
        if (!right)
            return rf_fail(RF_ECORRUPT, "tokenizer: model.merges[%d]: is no pair of tokens", index);
        RETURN_IF_ERROR(rf_bpe_add_merge(bpe, index, left, left_bytes, right, strlen(right)));
        index++;
    }
    return 0;
}

/* Refuses a field unless it is absent, null, empty or zero. */
static int refuse(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    const char *text = cJSON_GetStringValue(item);
    if (!item || cJSON_IsNull(item) || (text && !text[0]) ||
        (cJSON_IsNumber(item) && item->valuedouble == 0))
        return 0;
    return rf_fail(RF_ENOTSUP, "tokenizer: model.%s: is not implemented", name);
}

int rf_load_bpe(struct rf_bpe *bpe, const struct cJSON *json)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "type");
    const cJSON *unknown = cJSON_GetObjectItemCaseSensitive(json, "unk_token");
    if (!cJSON_IsObject(json))
        return rf_fail(RF_ECORRUPT, "tokenizer: model: is missing or no object");
    if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "BPE") != 0))
        return rf_fail(RF_ENOTSUP, "tokenizer: model.type: %.60s is not implemented, only BPE is",
                       cJSON_IsString(type) ? type->valuestring : "what is no text");
    RETURN_IF_ERROR(rf_check_fields(rf_bpe_fields, "model", json));
    RETURN_IF_ERROR(refuse(json, "dropout"));
    RETURN_IF_ERROR(refuse(json, "continuing_subword_prefix"));
    RETURN_IF_ERROR(refuse(json, "end_of_word_suffix"));
    RETURN_IF_ERROR(rf_json_bool(json, "model", "fuse_unk", 0, &bpe->fuse_unknown));
    RETURN_IF_ERROR(rf_json_bool(json, "model", "byte_fallback", 0, &bpe->byte_fallback));
    RETURN_IF_ERROR(rf_json_bool(json, "model", "ignore_merges", 0, &bpe->ignore_merges));
    RETURN_IF_ERROR(load_vocabulary(bpe, json));
    bpe->unknown = -1;
    if (unknown && !cJSON_IsNull(unknown)) {
        const char *text = cJSON_GetStringValue(unknown);
        bpe->unknown = text ? rf_vocabulary_find(&bpe->vocabulary, text, strlen(text)) : -1;
        if (bpe->unknown < 0)
            return rf_fail(RF_ECORRUPT, "tokenizer: model.unk_token: is not in the vocabulary");
    }
    RETURN_IF_ERROR(rf_bpe_prepare(bpe));
    return load_merges(bpe, json);
}

/* ---- the files ------------------------------------------------------------------------------- */

/* Reads a regular file of at most MAX_FILE bytes as JSON. */
static int read_json(const char *path, cJSON **out)
{
    const char *why;
    FILE *file = rf_open_input(path, &why);
    if (!file)
        return rf_fail(RF_EIO, "tokenizer: cannot open %s: %s", path, why);
    struct stat about;
    const bool fits = fstat(fileno(file), &about) == 0 && (uint64_t)about.st_size <= MAX_FILE;
    const size_t bytes = fits ? (size_t)about.st_size : 0;
    char *text = fits ? rf_alloc(bytes + 1) : NULL;
    int rc = !fits   ? rf_fail(RF_ECORRUPT, "tokenizer: %s is larger than 256 MiB", path)
             : !text ? rf_fail(RF_ENOMEM, "tokenizer: cannot read %s: out of memory", path)
             : fread(text, 1, bytes, file) != bytes
                 ? rf_fail(RF_EIO, "tokenizer: cannot read %s: it became shorter", path)
                 : 0;
    fclose(file);
    if (rc == 0)
        rc = rf_json_parse(path, text, bytes, out);
    rf_free(text);
    return rc;
}

static int load_parts(struct rf_tokenizer *tokenizer, const cJSON *root)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "version");
    if (!cJSON_IsObject(root))
        return rf_fail(RF_ECORRUPT, "tokenizer: the file is no JSON object");
    RETURN_IF_ERROR(rf_check_fields(rf_tokenizer_fields, "", root));
    if (version && (!cJSON_IsString(version) || strcmp(version->valuestring, "1.0") != 0))
        return rf_fail(RF_ENOTSUP, "tokenizer: version: only 1.0 is known");
    RETURN_IF_ERROR(
        rf_load_normalizer(tokenizer, cJSON_GetObjectItemCaseSensitive(root, "normalizer")));
    RETURN_IF_ERROR(
        rf_load_pretokenizer(tokenizer, cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer")));
    RETURN_IF_ERROR(rf_load_bpe(&tokenizer->bpe, cJSON_GetObjectItemCaseSensitive(root, "model")));
    RETURN_IF_ERROR(
        rf_load_added(tokenizer, cJSON_GetObjectItemCaseSensitive(root, "added_tokens")));
    RETURN_IF_ERROR(
        rf_load_template(tokenizer, cJSON_GetObjectItemCaseSensitive(root, "post_processor")));
    return rf_load_decoder(tokenizer, cJSON_GetObjectItemCaseSensitive(root, "decoder"));
}

/* Reads a file of the folder, if it exists. */
static int read_beside(const char *folder, const char *name, cJSON **out)
{
    char path[4096];
    struct stat about;
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", folder);
    return stat(path, &about) == 0 ? read_json(path, out) : 0;
}

static int load(struct rf_tokenizer *tokenizer, const char *path)
{
    char file[4096];
    struct stat about;
    struct rf_tokenizer_files files = {NULL};
    cJSON *root = NULL;
    const bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    if (snprintf(file, sizeof(file), folder ? "%s/tokenizer.json" : "%s", path) >= 4096)
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", path);
    int rc = read_json(file, &root);
    if (rc == 0)
        rc = load_parts(tokenizer, root);
    if (rc == 0 && folder)
        rc = read_beside(path, "tokenizer_config.json", &files.config);
    if (rc == 0 && folder)
        rc = read_beside(path, "special_tokens_map.json", &files.special);
    if (rc == 0 && folder)
        rc = read_beside(path, "added_tokens.json", &files.added);
    if (rc == 0)
        rc = rf_load_config(tokenizer, &files);
    cJSON_Delete(root);
    cJSON_Delete(files.config);
    cJSON_Delete(files.special);
    cJSON_Delete(files.added);
    return rc;
}

int rf_tokenizer_open(const char *path, struct rf_tokenizer **out)
{
    if (!path || !out)
        return rf_fail(RF_EINVAL, "tokenizer: a path and a pointer for the result are needed");
    struct rf_tokenizer *tokenizer = rf_alloc(sizeof(*tokenizer));
    if (!tokenizer)
        return rf_fail(RF_ENOMEM, "tokenizer %s: out of memory", path);
    pthread_mutex_init(&tokenizer->lock, NULL);
    const int rc = load(tokenizer, path);
    if (rc < 0) {
        rf_tokenizer_close(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return 0;
}

void rf_tokenizer_close(struct rf_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (struct rf_work *work = tokenizer->free, *next; work; work = next) {
        next = work->next;
        rf_work_free(work);
    }
    for (int32_t i = 0; i < tokenizer->added_count; i++) {
        rf_free(tokenizer->added[i].content);
        rf_free(tokenizer->added[i].normalized);
    }
    rf_free(tokenizer->added);
    rf_free(tokenizer->added_at);
    rf_trie_free(&tokenizer->plain);
    rf_trie_free(&tokenizer->normalized);
    rf_steps_free(&tokenizer->normalizer);
    rf_steps_free(&tokenizer->pre);
    rf_steps_free(&tokenizer->decoder);
    rf_bpe_free(&tokenizer->bpe);
    pthread_mutex_destroy(&tokenizer->lock);
    rf_free(tokenizer);
}
