/* SPDX-License-Identifier: MIT
 *
 * The option --recompute of `train` and `plan`: what is computed again in the backward pass instead
 * of being kept. Parts of layers (recompute.h) are the models'; whole blocks are read here and
 * refused.
 */
#include <recompute.h>
#include <string.h>

#include "setup.h"

#define CHOICES "none, or a list of gelu, norms, attention and mlp"

/* One word of the list. */
static bool take_word(const char *word, struct recompute *to)
{
    static const struct {
        const char *name;
        unsigned part;
    } parts[] = {{"gelu", RF_RECOMPUTE_GELU},
                 {"norms", RF_RECOMPUTE_NORMS},
                 {"attention", RF_RECOMPUTE_ATTENTION},
                 {"mlp", RF_RECOMPUTE_MLP}};
    char more;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(word, parts[i].name) == 0) {
            to->parts |= parts[i].part;
            return true;
        }
    if (strcmp(word, "block") == 0)
        return to->every_block = true;
    if (strcmp(word, "sqrt") == 0)
        return to->by_root = true;
    return sscanf(word, "every=%9d%c", &to->every, &more) == 1 && to->every > 0;
}

/* The first of the words that are for whole blocks; NULL: there is none. */
static const char *of_blocks(const struct recompute *r, char word[24])
{
    snprintf(word, 24, "every=%d", r->every);
    return r->every_block ? "block" : r->every ? word : r->by_root ? "sqrt" : NULL;
}

int recompute_parse(const struct tool_command *command, const char *text, struct recompute *out)
{
    char word[24], blocks[24];
    *out = (struct recompute){0};
    if (strcmp(text, "none") == 0)
        return TOOL_OK;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const int bytes = (int)(end - at);
        snprintf(word, sizeof(word), "%.*s", bytes, at);
        if (bytes >= (int)sizeof(word) || !take_word(word, out))
            return tool_usage_error(command, "there is no --recompute \"%.*s\"; use " CHOICES,
                                    bytes, at);
    }
    const char *refused = of_blocks(out, blocks);
    if (refused)
        return tool_usage_error(command, "--recompute %s is not in this version; use " CHOICES,
                                refused);
    return TOOL_OK;
}
