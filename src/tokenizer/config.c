/* SPDX-License-Identifier: MIT
 *
 * tokenizer_config.json, special_tokens_map.json and added_tokens.json, as AutoTokenizer of
 * transformers 5 reads them beside a tokenizer.json; see config.h.
 */
#include "config.h"

#include "../base/base.h"
#include "fields.h"
#include "json.h"

#define CONFIG "tokenizer_config.json"

/* The named tokens, in the order in which they get ids. */
enum { NAMED = 7 };
static const char *const names[NAMED] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

/* The state of loading. */
struct loading {
    struct rf_tokenizer *tokenizer;
    const struct rf_tokenizer_files *files;
    const cJSON *decoder;      /* added_tokens_decoder, or NULL: then the older files count */
    struct rf_vocabulary seen; /* added tokens, those of tokenizer.json and others */
    /* Texts of named tokens, and of those that added_tokens.json treats as special: with one of the
     * seven names, or in the list of additional ones. */
    struct rf_vocabulary named, older;
    int32_t *at;    /* of each id: the index of its added token plus 1 */
    int32_t listed; /* added tokens before the named and additional ones */
    bool *again;    /* of each added token: it gets the flags from the files */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The text of a token: "text", or {"content": "text", ...}; NULL: neither. */
static const char *content_of(const cJSON *item)
{
    return cJSON_GetStringValue(
        cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "content") : item);
}

/* special: the value of an absent field. */
static int read_flags(const cJSON *json, const char *field, bool special, struct rf_added *out)
{
    RETURN_IF_ERROR(rf_json_bool(json, field, "special", special, &out->special));
    RETURN_IF_ERROR(rf_json_bool(json, field, "normalized", !out->special, &out->in_normalized));
    RETURN_IF_ERROR(rf_json_bool(json, field, "single_word", 0, &out->single_word));
    RETURN_IF_ERROR(rf_json_bool(json, field, "lstrip", 0, &out->left));
    return rf_json_bool(json, field, "rstrip", 0, &out->right);
}

static struct rf_added *find(const struct loading *l, const char *content)
{
    const int32_t id = rf_vocabulary_find(&l->seen, content, strlen(content));
    return id < 0 ? NULL : &l->tokenizer->added[l->at[id] - 1];
}

/* The id for a new added token: that of the vocabulary, or the next one. */
static int32_t next_id(const struct loading *l, const char *content)
{
    const struct rf_bpe *bpe = &l->tokenizer->bpe;
    const int32_t known = rf_vocabulary_find(&bpe->vocabulary, content, strlen(content));
    const int32_t size = (int32_t)bpe->vocabulary.used;
    return known >= 0 ? known : l->seen.ids > size ? l->seen.ids : size;
}

/* Adds a token. id: from the file; -1: none. */
static int add(struct loading *l, const char *field, const char *content, int64_t id,
               const struct rf_added *flags)
{
    struct rf_tokenizer *t = l->tokenizer;
    const int32_t next = next_id(l, content);
    if (!content[0] || strlen(content) > RF_MAX_TOKEN_BYTES)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: a token is empty or too long", field);
    if (id >= 0 && id != next)
        return rf_fail(RF_EINVAL,
                       "tokenizer: %s has the id %lld for \"%.40s\", which would get %d beside "
                       "tokenizer.json; save both files again with one program",
                       field, (long long)id, content, next);
    const char *other = rf_vocabulary_text(&t->bpe.vocabulary, next);
    if (next > RF_MAX_TOKEN_ID || l->at[next] || (other && strcmp(other, content) != 0))
        return rf_fail(RF_EINVAL, "tokenizer: %s: there is no free id for \"%.40s\"", field,
                       content);
    RETURN_IF_ERROR(rf_vocabulary_add(&l->seen, field, content, strlen(content), next));
    struct rf_added *added = &t->added[t->added_count++];
    *added = *flags;
    added->id = next;
    added->content = added->normalized = NULL;
    l->at[next] = t->added_count;
    RETURN_IF_ERROR(rf_json_copy(field, content, &added->content));
    return rf_normalize_added(t, added);
}

static int set_flags(struct loading *l, struct rf_added *there, const struct rf_added *flags)
{
    there->special = there->special || flags->special;
    there->in_normalized = flags->in_normalized;
    there->single_word = flags->single_word;
    there->left = flags->left;
    there->right = flags->right;
    rf_free(there->normalized);
    there->normalized = NULL;
    return rf_normalize_added(l->tokenizer, there);
}

/* Adds a token that a file lists with an id, or changes the entry of tokenizer.json. */
static int add_listed(struct loading *l, const char *field, const char *content, int64_t id,
                      const struct rf_added *flags, bool again)
{
    struct rf_added *there = find(l, content);
    if (!there)
        return add(l, field, content, id, flags);
    if (there->id != id)
        return rf_fail(RF_EINVAL,
                       "tokenizer: %s has the id %lld for \"%.40s\", and tokenizer.json %d; save "
                       "both files again with one program",
                       field, (long long)id, content, there->id);
    if (!again)
        return 0;
    l->again[there - l->tokenizer->added] = true;
    return set_flags(l, there, flags);
}

/* ---- added_tokens_decoder, added_tokens.json --------------------------------------------------
 */

struct listed {
    int64_t id;
    const cJSON *item;
};

static int by_id(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int64_t id_of(const cJSON *item)
{
    const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return id >= 0 && id <= RF_MAX_TOKEN_ID && id == (double)(int64_t)id ? (int64_t)id : -1;
}

/* The number in an object's key. */
static int64_t id_in(const char *text)
{
    char *end = NULL;
    const long id = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    return end && !*end && id <= RF_MAX_TOKEN_ID ? id : -1;
}

/* Sorts the entries of an object by id. is_names: ids are the keys. */
static int sort_entries(const cJSON *json, const char *field, bool is_names, struct listed **out,
                        int *count)
{
    struct listed *list = rf_alloc(((size_t)cJSON_GetArraySize(json) + 1) * sizeof(*list));
    if (!list)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
    *count = 0;
    for (const cJSON *item = json->child; item; item = item->next) {
        const int64_t id = is_names ? id_in(item->string) : id_of(item);
        if (id < 0) {
            rf_free(list);
            return rf_fail(RF_ECORRUPT, "tokenizer: %s: \"%.40s\" has no id", field, item->string);
        }
        list[(*count)++] = (struct listed){id, item};
    }
    qsort(list, (size_t)*count, sizeof(*list), by_id);
    *out = list;
    return 0;
}

static bool is_in(const struct rf_vocabulary *texts, const char *content)
{
    return rf_vocabulary_find(texts, content, strlen(content)) >= 0;
}

static int add_entry(struct loading *l, const struct listed *entry, bool is_decoder)
{
    char field[RF_FIELD];
    struct rf_added flags = {0};
    if (!is_decoder) {
        flags.in_normalized = !is_in(&l->older, entry->item->string);
        flags.special = !flags.in_normalized || is_in(&l->named, entry->item->string);
        return add_listed(l, "added_tokens.json", entry->item->string, entry->id, &flags, false);
    }
    snprintf(field, sizeof(field), "%s: added_tokens_decoder[%lld]", CONFIG, (long long)entry->id);
    const struct rf_fields fields = {field, NULL, rf_added_fields, "null", RF_TOKENIZER_ADVICE};
    const char *content = content_of(entry->item);
    if (!cJSON_IsObject(entry->item) || !content)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: is no object with the content of a token",
                       field);
    RETURN_IF_ERROR(rf_fields_read(&fields, entry->item, NULL));
    RETURN_IF_ERROR(read_flags(entry->item, field, false, &flags));
    flags.special = flags.special || is_in(&l->named, content);
    return add_listed(l, field, content, entry->id, &flags, true);
}

static int add_all(struct loading *l)
{
    const bool is_decoder = l->decoder != NULL;
    const cJSON *json = is_decoder ? l->decoder : l->files->added;
    const char *field = is_decoder ? CONFIG ": added_tokens_decoder" : "added_tokens.json";
    struct listed *list = NULL;
    int count = 0, rc;
    if (!json)
        return 0;
    rc = sort_entries(json, field, is_decoder, &list, &count);
    for (int i = 0; rc == 0 && i < count; i++)
        rc = add_entry(l, &list[i], is_decoder);
    rf_free(list);
    return rc;
}

/* ---- tokens with a name -----------------------------------------------------------------------
 */

/* The field of the older file if that applies and has it, else of the config; NULL: absent or null.
 */
static const cJSON *get(const struct loading *l, const char *name)
{
    const cJSON *item =
        l->decoder ? NULL : cJSON_GetObjectItemCaseSensitive(l->files->special, name);
    item = item ? item : cJSON_GetObjectItemCaseSensitive(l->files->config, name);
    return cJSON_IsNull(item) ? NULL : item;
}

/* Whether the value of a further field is a token. */
static bool has_token_name(const cJSON *item)
{
    static const char ending[] = "_token";
    const size_t bytes = strlen(item->string), end = strlen(ending);
    if (bytes <= end || strcmp(item->string + bytes - end, ending) != 0 || cJSON_IsBool(item))
        return false;
    for (int i = 0; i < NAMED; i++)
        if (strcmp(item->string, names[i]) == 0)
            return false;
    return !cJSON_IsNull(item);
}

typedef int (*use_token)(struct loading *l, const char *name, const cJSON *item);

enum { TEXTS = 1, OBJECTS = 2, ALL = 4 };

/* Calls use for the tokens of an object: those with the name of a token, or all. */
static int each_of(struct loading *l, const cJSON *object, int which, use_token use)
{
    for (const cJSON *item = cJSON_IsObject(object) ? object->child : NULL; item; item = item->next)
        if ((which & ALL) ||
            (has_token_name(item) && (which & (cJSON_IsObject(item) ? OBJECTS : TEXTS))))
            RETURN_IF_ERROR(use(l, item->string, item));
    return 0;
}

/* Calls use for each named token, in the order in which they get ids: the seven; other fields whose
 * names end in _token; and objects that map names to tokens. */
static int each_named(struct loading *l, use_token use)
{
    for (int i = 0; i < NAMED; i++)
        if (get(l, names[i]))
            RETURN_IF_ERROR(use(l, names[i], get(l, names[i])));
    RETURN_IF_ERROR(each_of(l, l->files->config, OBJECTS, use));
    if (!l->decoder)
        RETURN_IF_ERROR(each_of(l, l->files->special, TEXTS | OBJECTS, use));
    RETURN_IF_ERROR(each_of(l, l->files->config, TEXTS, use));
    RETURN_IF_ERROR(each_of(l, get(l, "extra_special_tokens"), ALL, use));
    return each_of(l, get(l, "model_specific_special_tokens"), ALL, use);
}

/* Adds a text to a set. */
static int note(struct rf_vocabulary *set, const char *name, const cJSON *item)
{
    const char *content = content_of(item);
    if (!content || !content[0] || strlen(content) > RF_MAX_TOKEN_BYTES)
        return rf_fail(RF_ECORRUPT, "tokenizer: " CONFIG ": %.60s: is no token", name);
    return is_in(set, content) ? 0
                               : rf_vocabulary_add(set, CONFIG, content, strlen(content), set->ids);
}

static int note_named(struct loading *l, const char *name, const cJSON *item)
{
    return note(&l->named, name, item);
}

static int note_older(struct loading *l)
{
    const char *name = "extra_special_tokens";
    const cJSON *list = get(l, name);
    if (!cJSON_IsArray(list) || !list->child)
        list = get(l, name = "additional_special_tokens");
    for (int i = 0; i < NAMED; i++)
        if (get(l, names[i]))
            RETURN_IF_ERROR(note(&l->older, names[i], get(l, names[i])));
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
        RETURN_IF_ERROR(note(&l->older, name, item));
    return 0;
}

/* Adds a special token. A token of tokenizer.json keeps its flags, but becomes special if it is
 * named. Otherwise the flags of a later entry count. */
static int add_special(struct loading *l, const char *name, const cJSON *item, bool has_name)
{
    char field[RF_FIELD];
    struct rf_added flags = {.special = true};
    const char *content = content_of(item);
    struct rf_added *there = content ? find(l, content) : NULL;
    snprintf(field, sizeof(field), CONFIG ": %.60s", name);
    if (!content)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: is no token", field);
    if (cJSON_IsObject(item))
        RETURN_IF_ERROR(read_flags(item, field, has_name, &flags));
    flags.special = flags.special || has_name;
    if (!there)
        return add(l, field, content, -1, &flags);
    const int32_t index = (int32_t)(there - l->tokenizer->added);
    if (index >= l->listed)
        return set_flags(l, there, &flags);
    if (has_name && (!l->decoder || l->again[index]))
        there->special = true;
    return 0;
}

static int add_named(struct loading *l, const char *name, const cJSON *item)
{
    return add_special(l, name, item, true);
}

static int add_list(struct loading *l, const char *name, const cJSON *list)
{
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list) && !cJSON_IsObject(list))
        return rf_fail(RF_ECORRUPT, "tokenizer: " CONFIG ": %s: is no list of tokens", name);
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
        RETURN_IF_ERROR(add_special(l, name, item, false));
    return 0;
}

/* Adds lists of unnamed tokens. additional_special_tokens is the older name, used if the newer
 * field has no list; that of the older file, if the config has neither. */
static int add_extra(struct loading *l)
{
    static const char newer[] = "extra_special_tokens", older[] = "additional_special_tokens";
    const cJSON *special = l->decoder ? NULL : l->files->special;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(l->files->config, newer);
    const cJSON *old = cJSON_GetObjectItemCaseSensitive(l->files->config, older);
    const cJSON *oldest = cJSON_GetObjectItemCaseSensitive(special, older);
    const bool named = cJSON_IsObject(list) && list->child;
    RETURN_IF_ERROR(add_list(l, newer, list));
    if (!(cJSON_IsArray(list) && list->child))
        RETURN_IF_ERROR(add_list(l, older,
                                 named && oldest ? oldest
                                 : old           ? old
                                 : list          ? NULL
                                                 : oldest));
    return add_list(l, newer, cJSON_GetObjectItemCaseSensitive(special, newer));
}

/* ---- the whole --------------------------------------------------------------------------------
 */

/* Finds the roles by the files, or by the families' usual names. */
static void find_roles(const struct loading *l)
{
    static const char *const fields[4] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    static const char *const usual[4][8] = {
        {"<|begin_of_text|>", "<s>", "<|startoftext|>"},
        {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<|eot_id|>"},
        {"<pad>", "<|finetune_right_pad_id|>", "<|pad|>"},
        {"<unk>"}};
    struct rf_tokenizer *t = l->tokenizer;
    for (int role = 0; role < 4; role++) {
        const char *content = content_of(get(l, fields[role]));
        t->roles[role] = content ? rf_tokenizer_id(t, content) : -1;
        for (int i = 0; t->roles[role] < 0 && i < 8 && usual[role][i]; i++)
            t->roles[role] = rf_tokenizer_id(t, usual[role][i]);
    }
}

/* The maximum number of tokens that the files can add. */
static int32_t most_tokens(const struct rf_tokenizer_files *files)
{
    static const char *const lists[] = {"added_tokens_decoder", "extra_special_tokens",
                                        "additional_special_tokens",
                                        "model_specific_special_tokens"};
    int64_t most = cJSON_GetArraySize(files->added);
    for (int f = 0; f < 2; f++) {
        const cJSON *file = f == 0 ? files->config : files->special;
        most += cJSON_GetArraySize(file);
        for (int i = 0; i < 4; i++)
            most += cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(file, lists[i]));
    }
    return (int32_t)(most < RF_MAX_TOKEN_ID ? most : RF_MAX_TOKEN_ID);
}

static int prepare(struct loading *l)
{
    struct rf_tokenizer *t = l->tokenizer;
    const int32_t most = most_tokens(l->files);
    const size_t tokens = (size_t)t->added_count + (size_t)most + 1;
    const size_t ids = (size_t)t->vocabulary + tokens;
    struct rf_added *added = rf_realloc(t->added, tokens * sizeof(*added));
    if (!added)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
    t->added = added;
    l->at = rf_alloc(ids * sizeof(*l->at));
    l->again = rf_alloc(tokens * sizeof(*l->again));
    if (!l->at || !l->again)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
    for (int32_t i = 0; i < t->added_count; i++) {
        l->at[t->added[i].id] = i + 1;
        RETURN_IF_ERROR(rf_vocabulary_add(&l->seen, "added_tokens", t->added[i].content,
                                          strlen(t->added[i].content), t->added[i].id));
    }
    return 0;
}

static int add_tokens(struct loading *l)
{
    const int32_t before = l->tokenizer->added_count;
    RETURN_IF_ERROR(each_named(l, note_named));
    RETURN_IF_ERROR(note_older(l));
    RETURN_IF_ERROR(add_all(l));
    l->listed = l->tokenizer->added_count;
    RETURN_IF_ERROR(each_named(l, add_named));
    RETURN_IF_ERROR(add_extra(l));
    return before == l->tokenizer->added_count && !l->decoder ? 0 : rf_index_added(l->tokenizer);
}

static int load(struct loading *l)
{
    const struct rf_fields fields = {CONFIG, NULL, rf_tokenizer_config_fields,
                                     "null false [] {} \"\"", RF_TOKENIZER_ADVICE};
    const struct rf_fields special = {"special_tokens_map.json", NULL, rf_special_fields,
                                      "null [] {}", RF_TOKENIZER_ADVICE};
    if (l->files->config)
        RETURN_IF_ERROR(rf_fields_read(&fields, l->files->config, NULL));
    if (l->files->special)
        RETURN_IF_ERROR(rf_fields_read(&special, l->files->special, NULL));
    RETURN_IF_ERROR(rf_check_prefix(
        l->tokenizer, cJSON_GetObjectItemCaseSensitive(l->files->config, "add_prefix_space")));
    RETURN_IF_ERROR(prepare(l));
    return add_tokens(l);
}

int rf_load_config(struct rf_tokenizer *tokenizer, const struct rf_tokenizer_files *files)
{
    struct loading l = {.tokenizer = tokenizer, .files = files};
    const cJSON *all[] = {files->config, files->special, files->added};
    int rc = 0;
    for (int i = 0; i < 3; i++)
        if (all[i] && !cJSON_IsObject(all[i]))
            return rf_fail(RF_ECORRUPT, "tokenizer: %s is no JSON object",
                           i == 0   ? CONFIG
                           : i == 1 ? "special_tokens_map.json"
                                    : "added_tokens.json");
    l.decoder = cJSON_GetObjectItemCaseSensitive(files->config, "added_tokens_decoder");
    if (l.decoder && !cJSON_IsObject(l.decoder))
        return rf_fail(RF_ECORRUPT, "tokenizer: " CONFIG ": added_tokens_decoder: is no object");
    rc = load(&l);
    if (rc == 0)
        find_roles(&l);
    rf_vocabulary_free(&l.seen);
    rf_vocabulary_free(&l.named);
    rf_vocabulary_free(&l.older);
    rf_free(l.at);
    rf_free(l.again);
    return rc;
}
