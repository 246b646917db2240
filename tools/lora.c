/* SPDX-License-Identifier: MIT
 *
 * The option --lora of `train` and `plan`: low-rank adapters (adapter.h), as a list of settings;
 * and the adapters of a setup.
 */
#include <adapter_file.h>
#include <string.h>

#include "setup.h"

#define EXAMPLE "r=16,alpha=32,dropout=0.05,targets=q_proj,v_proj"

/* The settings that are numbers. */
static const struct {
    const char *name;
    bool whole;
    double least, most;
} numbers[] = {{"r", true, 1, 1024}, {"alpha", false, 1e-6, 1e9}, {"dropout", false, 0, 1}};
enum { RANK, ALPHA, DROPOUT, NUMBERS };

/* "r=16": the setting's number, and its text; -1: unknown. */
static int number_of(const char *word, const char **text)
{
    for (int k = 0; k < NUMBERS; k++) {
        const size_t bytes = strlen(numbers[k].name);
        if (strncmp(word, numbers[k].name, bytes) == 0 && word[bytes] == '=') {
            *text = word + bytes + 1;
            return k;
        }
    }
    return -1;
}

static enum tool_number read_number(int k, const char *text, double *out)
{
    const size_t bytes = strlen(text);
    int64_t whole = 0;
    if (!numbers[k].whole)
        return tool_read_real(text, bytes, numbers[k].least, numbers[k].most, out);
    const enum tool_number fault =
        tool_read_int(text, bytes, (int64_t)numbers[k].least, (int64_t)numbers[k].most, &whole);
    *out = (double)whole;
    return fault;
}

static bool take_number(int k, const char *text, struct model_adapter *to)
{
    double value = 0;
    if (read_number(k, text, &value) != TOOL_NUMBER_OK)
        return false;
    if (k == RANK)
        to->rank = (int)value;
    else if (k == ALPHA)
        to->alpha = (float)value;
    else
        to->dropout = (float)value;
    return true;
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

/* A word "key=value" or "rslora"; *key is the bit of the key. */
static bool take_setting(const char *word, struct lora_option *to, unsigned *key)
{
    const char *text = NULL;
    const int k = number_of(word, &text);
    *key = 1u << (k + 1);
    if (k >= 0)
        return take_number(k, text, &to->adapter);
    if (strcmp(word, "rslora") == 0)
        return to->adapter.rslora = true;
    *key = 1u << (NUMBERS + 1);
    return strncmp(word, "bias=", 5) == 0 && take_bias(word + 5, &to->adapter.bias);
}

/* One word of the list. Words without "=" after targets= are targets, too. A repeated key is
 * refused. */
static bool take_word(const char *word, struct lora_option *to, bool *in_targets, unsigned *keys)
{
    const size_t used = strlen(to->targets), bytes = strlen(word);
    unsigned key = 0;
    if (*in_targets && !strchr(word, '=') && strcmp(word, "rslora") != 0 && bytes > 0 &&
        used + bytes + 2 < sizeof(to->targets)) {
        snprintf(to->targets + used, sizeof(to->targets) - used, "%s%s", used ? "," : "", word);
        return true;
    }
    *in_targets = strncmp(word, "targets=", 8) == 0 && !*to->targets;
    if (*in_targets)
        return strchr(word + 8, '=') == NULL && take_word(word + 8, to, in_targets, keys);
    if (!take_setting(word, to, &key) || (*keys & key) != 0)
        return false;
    *keys |= key;
    return true;
}

int lora_parse(const struct tool_command *command, const char *text, const char *targets,
               struct lora_option *out)
{
    char word[64], what[24];
    bool in_targets = false;
    unsigned keys = 0;
    *out = (struct lora_option){.adapter = {.rank = 8}};
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const int bytes = (int)(end - at);
        snprintf(word, sizeof(word), "%.*s", bytes, at);
        if (bytes < (int)sizeof(word) && take_word(word, out, &in_targets, &keys))
            continue;
        const char *given = NULL;
        const int k = bytes < (int)sizeof(word) ? number_of(word, &given) : -1;
        double value;
        if (k >= 0 && read_number(k, given, &value) == TOOL_NUMBER_RANGE) {
            snprintf(what, sizeof(what), "--lora %s", numbers[k].name);
            return tool_number_error(command, what, given, strlen(given), TOOL_NUMBER_RANGE,
                                     numbers[k].least, numbers[k].most);
        }
        return tool_usage_error(
            command, "--lora wants a list such as " EXAMPLE ", with each key once, not \"%s\"",
            text);
    }
    if (!*out->targets)
        snprintf(out->targets, sizeof(out->targets), "%s", targets);
    out->adapter.targets = out->targets;
    return model_adapter_check(&out->adapter) < 0
               ? tool_usage_error(command, "--lora %s: %s", text, rf_last_error()->message)
               : TOOL_OK;
}

const struct model_adapter *setup_adapter(const struct setup *s)
{
    if (s->adapter_file)
        return &adapter_file_config(s->adapter_file)->adapter;
    return s->lora ? &s->adapter.adapter : NULL;
}
