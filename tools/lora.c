/* SPDX-License-Identifier: MIT
 *
 * The option --lora of `train` and `plan`: low-rank adapters (adapter.h), as a list of settings.
 */
#include <math.h>
#include <string.h>

#include "setup.h"

#define EXAMPLE "r=16,alpha=32,dropout=0.05,targets=q_proj,v_proj"

static bool number(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

static bool take_bias(const char *word, enum model_adapter_bias *out)
{
    static const char *const names[] = {"none", "all", "lora_only"}; /* those of PEFT */
    for (int i = 0; i < 3; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = (enum model_adapter_bias)i;
            return true;
        }
    return false;
}

/* Whether a word names a key of the list: *value is what follows it. */
static bool is_key(const char *word, const char *key, const char **value)
{
    const size_t bytes = strlen(key);
    *value = word + bytes;
    return strncmp(word, key, bytes) == 0;
}

/* A word "key=value" or "rslora"; *key is set to the number of the key. */
static bool take_setting(const char *word, struct lora_option *to, int *key)
{
    const char *text;
    double value = 0;
    if (strcmp(word, "rslora") == 0) {
        *key = 0;
        return to->adapter.rslora = true;
    }
    *key = 1;
    if (is_key(word, "r=", &text)) {
        if (!number(text, &value) || value < 1 || value > 1024)
            return false;
        to->adapter.rank = (int)value;
        return value == to->adapter.rank;
    }
    *key = 2;
    if (is_key(word, "alpha=", &text)) {
        to->adapter.alpha = number(text, &value) ? (float)value : 0;
        return to->adapter.alpha > 0;
    }
    *key = 3;
    if (is_key(word, "bias=", &text))
        return take_bias(text, &to->adapter.bias);
    *key = 4;
    if (!is_key(word, "dropout=", &text) || !number(text, &value))
        return false;
    to->adapter.dropout = (float)value;
    return true;
}

/* One word of the list. Words without "=" after targets= are targets, too. No key counts twice. */
static bool take_word(const char *word, struct lora_option *to, bool *in_targets, unsigned *keys)
{
    const size_t used = strlen(to->targets), bytes = strlen(word);
    int key = 0;
    if (*in_targets && !strchr(word, '=') && strcmp(word, "rslora") != 0 && bytes > 0 &&
        used + bytes + 2 < sizeof(to->targets)) {
        snprintf(to->targets + used, sizeof(to->targets) - used, "%s%s", used ? "," : "", word);
        return true;
    }
    *in_targets = strncmp(word, "targets=", 8) == 0 && !*to->targets;
    if (*in_targets)
        return strchr(word + 8, '=') == NULL && take_word(word + 8, to, in_targets, keys);
    if (!take_setting(word, to, &key) || (*keys & 1u << key) != 0)
        return false;
    *keys |= 1u << key;
    return true;
}

int lora_parse(const struct tool_command *command, const char *text, const char *targets,
               struct lora_option *out)
{
    char word[64];
    bool in_targets = false;
    unsigned keys = 0;
    *out = (struct lora_option){.adapter = {.rank = 8}};
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const int bytes = (int)(end - at);
        snprintf(word, sizeof(word), "%.*s", bytes, at);
        if (bytes >= (int)sizeof(word) || !take_word(word, out, &in_targets, &keys))
            return tool_usage_error(
                command, "--lora wants a list such as " EXAMPLE ", with each key once, not \"%s\"",
                text);
    }
    if (!*out->targets)
        snprintf(out->targets, sizeof(out->targets), "%s", targets);
    out->adapter.targets = out->targets;
    const char *fault = model_adapter_fault(&out->adapter);
    return fault ? tool_usage_error(command, "--lora %s: %s", text, fault) : TOOL_OK;
}
