/* SPDX-License-Identifier: MIT
 *
 * A kernel's SPIR-V, as far as the library parses it: the declared capabilities.
 */
#include "device/internal.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rf_device *device = calloc(1, sizeof(*device));
    uint32_t *words = malloc(size + 1);
    memcpy(words, data, size);
    const struct rf_kernel_desc desc = {.name = "fuzz", .spirv = words, .spirv_bytes = size};
    device->caps.views = true;
    if (rf_spirv_check(device, &desc) == 0)
        rf_spirv_declares(&desc, 46);
    free(words);
    free(device);
    return 0;
}
