/* SPDX-License-Identifier: MIT
 *
 * Packed weights. The first byte of an input selects the packing, the second the size of groups;
 * then follow the header of model.safetensors up to the first newline, and its tensors' bytes.
 */
#include <ringforge/weights.h>
#include <sys/stat.h>

#include "fuzz.h"

static char folder[64];

static void read_weight(struct rf_weights *weights, int index)
{
    const struct rf_weight *weight = rf_weights_get(weights, index);
    const uint64_t count = (uint64_t)rf_shape_count(weight->shape);
    if (count > 1 << 20 || rf_weights_read(weights, index, 0, 0, NULL) < 0)
        return;
    float *values = malloc((count + 1) * sizeof(*values));
    void *bytes = malloc(rf_quantized_bytes(RF_FP8, (int64_t)count + 1));
    if (rf_weights_read(weights, index, 0, count, values) == 0)
        REQUIRE(rf_weights_read(weights, index, 1, count, values) < 0);
    if (count > 0)
        REQUIRE(rf_weights_quantized(weights, index, RF_NF4, bytes) <= 1);
    if (count > 0)
        REQUIRE(rf_weights_quantized(weights, index, RF_FP8, bytes) <= 1);
    free(values);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[128];
    uint8_t file[1 << 16] = {0};
    struct rf_weights *weights = NULL;
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "/tmp/fuzz-packed-%ld", (long)getpid());
        REQUIRE(mkdir(folder, 0700) == 0);
    }
    if (size < 2 || size > sizeof(file) - 8)
        return 0;
    const struct rf_weights_opts opts = {.allow_nan = true,
                                         .packing = (enum rf_packing)(1 + data[0] % 5),
                                         .group = (int64_t)(data[1] % 64) - 1,
                                         .reordered = data[1] >= 64};
    data += 2;
    size -= 2;
    const uint8_t *line = memchr(data, '\n', size);
    const size_t length = line ? (size_t)(line - data) : size, skip = length + (line != NULL);
    file[0] = (uint8_t)length;
    file[1] = (uint8_t)(length >> 8);
    memcpy(file + 8, data, length);
    memcpy(file + 8 + length, data + skip, size - skip);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    write_whole(path, file, 8 + length + size - skip);
    if (rf_weights_open(folder, &opts, &weights) == 0)
        for (int i = 0; i < rf_weights_count(weights); i++)
            read_weight(weights, i);
    rf_weights_close(weights);
    return 0;
}
