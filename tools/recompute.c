/* SPDX-License-Identifier: MIT
 *
 * The options --recompute and --reversible of `train` and `plan`: values that are recomputed in the
 * backward pass instead of being kept. Parts of layers (recompute.h) are the model's, whole blocks
 * are the plan's (rf_policy.recompute).
 */
#include <recompute.h>
#include <string.h>

#include "setup.h"

enum { MOST_EVERY = 1 << 20 };
#define CHOICES                                                                                    \
    "none, or a list of gelu, norms, attention, mlp, and one of block, every=N, sqrt, auto"

static bool is_every(const char *word)
{
    return strncmp(word, "every=", 6) == 0;
}

/* The number of blocks of a segment; 0: not such a word. */
static int blocks_of(const char *word)
{
    int64_t every = 0;
    if (strcmp(word, "block") == 0)
        return 1;
    if (strcmp(word, "sqrt") == 0)
        return RF_RECOMPUTE_SQRT;
    if (strcmp(word, "auto") == 0)
        return RF_RECOMPUTE_AUTO;
    if (is_every(word))
        (void)tool_read_int(word + 6, strlen(word + 6), 1, MOST_EVERY, &every);
    return (int)every;
}

/* One word of the list; false: unknown, or contradicts another one. */
static bool take_word(const char *word, struct recompute *to)
{
    static const struct {
        const char *name;
        unsigned part;
    } parts[] = {{"gelu", MODEL_RECOMPUTE_GELU},
                 {"norms", MODEL_RECOMPUTE_NORMS},
                 {"attention", MODEL_RECOMPUTE_ATTENTION},
                 {"mlp", MODEL_RECOMPUTE_MLP}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(word, parts[i].name) == 0) {
            to->parts |= parts[i].part;
            return true;
        }
    const int blocks = blocks_of(word);
    if (blocks == 0 || to->blocks != 0)
        return false;
    to->blocks = blocks;
    return true;
}

int recompute_parse(const struct tool_command *command, const char *text, struct recompute *out)
{
    char word[24];
    *out = (struct recompute){0};
    if (strcmp(text, "none") == 0)
        return TOOL_OK;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const int bytes = (int)(end - at);
        snprintf(word, sizeof(word), "%.*s", bytes, at);
        if (bytes < (int)sizeof(word) && take_word(word, out))
            continue;
        int64_t every;
        if (is_every(word) && !out->blocks)
            return tool_take_int(command, "--recompute every", word + 6, strlen(word + 6), 1,
                                 MOST_EVERY, &every);
        if (out->blocks && blocks_of(word))
            return tool_usage_error(
                command, "--recompute %s: use one of block, every=N, sqrt and auto", text);
        return tool_usage_error(command, "there is no --recompute \"%.*s\"; use " CHOICES, bytes,
                                at);
    }
    return TOOL_OK;
}

int reversible_parse(const struct tool_command *command, struct setup *setup)
{
    static const char *const kinds[] = {"none", "f32", "fixed", NULL};
    const int kind = tool_choice(setup->streams, kinds);
    if (kind < 0)
        return tool_usage_error(command, "there is no --reversible \"%s\"; use none, f32 or fixed",
                                setup->streams);
    if (kind > 0 && setup->from)
        return tool_usage_error(command,
                                "--reversible %s: the weights of --from are those of layers with "
                                "one stream; leave out one of the two",
                                setup->streams);
    setup->reversible = kind;
    return TOOL_OK;
}
