/* SPDX-License-Identifier: MIT
 *
 * The option --offload of `train` and `plan`: what is kept in host memory (rf_policy.offload).
 */
#include <string.h>

#include "setup.h"

int offload_parse(const struct tool_command *command, const char *text, int *out)
{
    static const char *const names[] = {"optimizer", "params", "grads", "activations"};
    static const int flags[] = {RF_OFFLOAD_OPTIMIZER, RF_OFFLOAD_PARAMS, RF_OFFLOAD_GRADS,
                                RF_OFFLOAD_ACTIVATIONS};
    const size_t count = sizeof(flags) / sizeof(flags[0]);
    *out = 0;
    if (strcmp(text, "none") == 0)
        return TOOL_OK;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        size_t k = 0;
        end = at + strcspn(at, ",");
        const size_t bytes = (size_t)(end - at);
        while (k < count && (strlen(names[k]) != bytes || strncmp(at, names[k], bytes) != 0))
            k++;
        if (k == count)
            return tool_usage_error(command,
                                    "there is no --offload \"%.*s\"; use none, or a list of "
                                    "optimizer, params, grads, activations",
                                    (int)bytes, at);
        *out |= flags[k];
    }
    return TOOL_OK;
}
