/* SPDX-License-Identifier: MIT
 *
 * The index of a folder of weights. Beside it are two files: a.safetensors with the tensors x and
 * y, and b.safetensors with z.
 */
#include <ringforge/weights.h>
#include <sys/stat.h>

#include "fuzz.h"

static char folder[64];

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    write_whole(path, data, bytes);
}

static void write_tensors(const char *name, const char *header, size_t data_bytes)
{
    uint8_t file[512] = {0};
    const size_t length = strlen(header);
    file[0] = (uint8_t)length;
    memcpy(file + 8, header, length);
    write_file(name, file, 8 + length + data_bytes);
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/fuzz-weights-%ld", (long)getpid());
    REQUIRE(mkdir(folder, 0700) == 0);
    write_tensors("a.safetensors",
                  "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                  "\"y\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[8,10]}}",
                  10);
    write_tensors("b.safetensors",
                  "{\"z\":{\"dtype\":\"F16\",\"shape\":[1,3],\"data_offsets\":[0,6]}}", 6);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rf_weights *weights = NULL;
    float values[4];
    if (!folder[0])
        make_folder();
    write_file("model.safetensors.index.json", data, size);
    if (rf_weights_open(folder, NULL, &weights) != 0)
        return 0;
    REQUIRE(rf_weights_count(weights) > 0 && rf_weights_count(weights) <= 3);
    for (int i = 0; i < rf_weights_count(weights); i++) {
        const struct rf_weight *weight = rf_weights_get(weights, i);
        const uint64_t count = (uint64_t)rf_shape_count(weight->shape);
        REQUIRE(count <= 3 && rf_weights_find(weights, weight->name) == i);
        REQUIRE(rf_weights_read(weights, i, 0, count, values) == 0);
        REQUIRE(rf_weights_read(weights, i, 1, count, values) < 0);
    }
    rf_weights_close(weights);
    return 0;
}
