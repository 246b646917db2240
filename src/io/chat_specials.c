/* SPDX-License-Identifier: MIT
 *
 * The named special tokens of a tokenizer's files, which chat templates read as variables; see
 * chat.h.
 */
#include <cjson/cJSON.h>

#include "../base/base.h"
#include "chat.h"

const char *const rf_special_names[RF_SPECIALS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

void rf_specials_free(struct rf_specials *specials)
{
    for (size_t i = 0; i < specials->count; i++) {
        rf_free(specials->items[i].name);
        rf_free(specials->items[i].text);
    }
    rf_free(specials->items);
    *specials = (struct rf_specials){0};
}

struct rf_special *rf_specials_find(const struct rf_specials *specials, const char *name)
{
    for (size_t i = 0; i < specials->count; i++)
        if (strcmp(specials->items[i].name, name) == 0)
            return &specials->items[i];
    return NULL;
}

/* A later token of the same name replaces the earlier one. text NULL: the files define it as
 * absent. */
static int set(struct rf_specials *specials, const char *path, const char *name, const char *text)
{
    struct rf_special *one = rf_specials_find(specials, name);
    char *copy = text ? rf_strdup(text) : NULL;
    if (!one && (!text || copy)) {
        struct rf_special *grown =
            rf_realloc(specials->items, (specials->count + 1) * sizeof(*grown));
        if (grown) {
            specials->items = grown;
            grown[specials->count] = (struct rf_special){.name = rf_strdup(name)};
            one = grown[specials->count].name ? &grown[specials->count++] : NULL;
        }
    }
    if (!one || (text && !copy)) {
        rf_free(copy);
        return rf_fail(RF_ENOMEM, "%s: out of memory", path);
    }
    rf_free(one->text);
    one->text = copy;
    return 0;
}

static bool is_standard(const char *name)
{
    for (int i = 0; i < RF_SPECIALS; i++)
        if (strcmp(name, rf_special_names[i]) == 0)
            return true;
    return false;
}

int rf_specials_of_class(struct rf_specials *specials, const char *path, const cJSON *config)
{
    /* Classes without special tokens. The defaults of other classes depend on the model type and on
     * tokenizer.json. */
    static const char *const generic[] = {"PreTrainedTokenizerFast", "PreTrainedTokenizer",
                                          "TokenizersBackend"};
    const char *class =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class"));
    for (size_t i = 0; class && i < sizeof(generic) / sizeof(generic[0]); i++)
        for (int k = 0; strcmp(class, generic[i]) == 0 && k < RF_SPECIALS; k++)
            RETURN_IF_ERROR(set(specials, path, rf_special_names[k], NULL));
    return 0;
}

/* The text of a token: a string, or an object with "content". NULL: neither. */
static const char *text_of(const cJSON *item)
{
    return cJSON_GetStringValue(
        cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "content") : item);
}

static int add(struct rf_specials *specials, const char *path, const cJSON *item)
{
    const char *text = text_of(item);
    if (!text && !cJSON_IsNull(item))
        return rf_fail(RF_ECORRUPT, "%s: %.60s is no token", path, item->string);
    return set(specials, path, item->string, text);
}

/* A further token, such as "pix_token": "<pix>". Settings such as add_bos_token have the same
 * ending. */
static bool is_other_token(const cJSON *item)
{
    static const char ending[] = "_token";
    const size_t bytes = strlen(item->string), end = sizeof(ending) - 1;
    return bytes > end && memcmp(item->string + bytes - end, ending, end) == 0 &&
           !is_standard(item->string) && text_of(item);
}

/* Adds the model's own names and their tokens. */
static int add_own(struct rf_specials *specials, const char *path, const cJSON *config,
                   const char *field)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(config, field);
    for (const cJSON *item = cJSON_IsObject(own) ? own->child : NULL; item; item = item->next) {
        if (is_standard(item->string))
            return rf_fail(RF_ENOTSUP, "%s: %s has %s, which is a field of its own", path, field,
                           item->string);
        RETURN_IF_ERROR(add(specials, path, item));
    }
    return 0;
}

int rf_specials_read(struct rf_specials *specials, const char *path, const cJSON *config)
{
    RETURN_IF_ERROR(add_own(specials, path, config, "extra_special_tokens"));
    for (int i = 0; i < RF_SPECIALS; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, rf_special_names[i]);
        if (item)
            RETURN_IF_ERROR(add(specials, path, item));
    }
    for (const cJSON *item = config->child; item; item = item->next)
        if (is_other_token(item))
            RETURN_IF_ERROR(add(specials, path, item));
    return add_own(specials, path, config, "model_specific_special_tokens");
}
