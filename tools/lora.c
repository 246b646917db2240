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

/* One word of the list. Words without "=" after targets= are targets, too. */
static bool take_word(const char *word, struct lora_option *to, bool *in_targets)
{
    const size_t used = strlen(to->targets), bytes = strlen(word);
    double value = 0;
    if (strcmp(word, "rslora") == 0)
        return to->adapter.rslora = true;
    if (*in_targets && !strchr(word, '=') && bytes > 0 && used + bytes + 2 < sizeof(to->targets)) {
        snprintf(to->targets + used, sizeof(to->targets) - used, "%s%s", used ? "," : "", word);
        return true;
    }
    *in_targets = strncmp(word, "targets=", 8) == 0 && !*to->targets;
    if (*in_targets)
        return strchr(word + 8, '=') == NULL && take_word(word + 8, to, in_targets);
    if (strncmp(word, "r=", 2) == 0 && number(word + 2, &value) && value >= 1 && value <= 1024) {
        to->adapter.rank = (int)value;
        return value == to->adapter.rank;
    }
    if (strncmp(word, "alpha=", 6) == 0 && number(word + 6, &value) && value > 0) {
        to->adapter.alpha = (float)value;
        return true;
    }
    if (strncmp(word, "bias=", 5) == 0)
        return take_bias(word + 5, &to->adapter.bias);
    if (strncmp(word, "dropout=", 8) == 0 && number(word + 8, &value)) {
        to->adapter.dropout = (float)value;
        return true;
    }
    return false;
}

int lora_parse(const struct tool_command *command, const char *text, const char *model,
               struct lora_option *out)
{
    char word[64];
    bool in_targets = false;
    *out = (struct lora_option){.adapter = {.rank = 8}};
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const int bytes = (int)(end - at);
        snprintf(word, sizeof(word), "%.*s", bytes, at);
        if (bytes >= (int)sizeof(word) || !take_word(word, out, &in_targets))
            return tool_usage_error(command, "--lora wants a list such as " EXAMPLE ", not \"%s\"",
                                    text);
    }
    if (!*out->targets) /* those of PEFT */
        snprintf(out->targets, sizeof(out->targets), "%s",
                 strcmp(model, "gpt2") == 0 ? "c_attn" : "q_proj,v_proj");
    out->adapter.targets = out->targets;
    const char *fault = model_adapter_fault(&out->adapter);
    return fault ? tool_usage_error(command, "--lora %s: %s", text, fault) : TOOL_OK;
}
