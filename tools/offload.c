/* SPDX-License-Identifier: MIT
 *
 * The option --offload of `train` and `plan`: what is kept in host memory, or on a disk
 * (rf_policy.offload and disk).
 */
#include <string.h>

#include "setup.h"

int offload_parse(const struct tool_command *command, const char *text, int *out, int *disk)
{
    static const char on_disk[] = "=disk";
    static const char *const names[] = {"optimizer", "params", "grads", "activations"};
    static const int flags[] = {RF_OFFLOAD_OPTIMIZER, RF_OFFLOAD_PARAMS, RF_OFFLOAD_GRADS,
                                RF_OFFLOAD_ACTIVATIONS};
    const size_t count = sizeof(flags) / sizeof(flags[0]);
    *out = *disk = 0;
    if (strcmp(text, "none") == 0)
        return TOOL_OK;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        size_t k = 0;
        end = at + strcspn(at, ",");
        const size_t all = (size_t)(end - at), behind = sizeof(on_disk) - 1;
        const bool file = all > behind && strncmp(end - behind, on_disk, behind) == 0;
        const size_t bytes = all - (file ? behind : 0);
        while (k < count && (strlen(names[k]) != bytes || strncmp(at, names[k], bytes) != 0))
            k++;
        if (k == count)
            return tool_usage_error(command,
                                    "there is no --offload \"%.*s\"; use none, or a list of "
                                    "optimizer, params, grads, activations; optimizer=disk and "
                                    "activations=disk are on a disk",
                                    (int)all, at);
        if (file && !(flags[k] & (RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_ACTIVATIONS)))
            return tool_usage_error(command,
                                    "--offload %s=disk is not in this version; only the "
                                    "optimizer's states and activations can be on a disk: use "
                                    "optimizer=disk, activations=disk",
                                    names[k]);
        if (*out & flags[k])
            return tool_usage_error(command, "--offload names %s twice; it is in one place only",
                                    names[k]);
        *out |= flags[k];
        *disk |= file ? flags[k] : 0;
    }
    return TOOL_OK;
}
