/* SPDX-License-Identifier: MIT
 *
 * A checkpoint in which one file is the input: its first byte chooses which (latest, state.json, or
 * the tensors of the model), the others are sound.
 */
#include "fuzz.h"
#include "io/checkpoint.h"

static char folder[] = "checkpoint-XXXXXX"; /* where the program is run */
static const char *const names[] = {"latest", "step-3/state.json", "step-3/model.safetensors"};
#define NAMES (sizeof(names) / sizeof(names[0]))
static struct {
    char path[256], bytes[8192];
    size_t size;
} sound[NAMES];

static int give(void *user, int index, void *dst, uint64_t bytes)
{
    memset(dst, 7, bytes);
    return 0;
}

static void clean_up(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        perror(folder);
}

static void set_up(void)
{
    const struct rf_file_tensor tensor = {"w", RF_F32, rf_shape2(3, 5)};
    const struct rf_file_content content = {.tensors = &tensor, .tensor_count = 1, .read = give};
    const struct rf_checkpoint_state state = {3, 12, 3, 4, 64, 99};
    REQUIRE(mkdtemp(folder));
    atexit(clean_up);
    REQUIRE(rf_checkpoint_write(folder, &state, "heads=4", &content, &content, NULL) == 0);
    for (size_t i = 0; i < NAMES; i++) {
        snprintf(sound[i].path, sizeof(sound[i].path), "%s/%s", folder, names[i]);
        FILE *file = fopen(sound[i].path, "rb");
        REQUIRE(file);
        sound[i].size = fread(sound[i].bytes, 1, sizeof(sound[i].bytes), file);
        fclose(file);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    struct rf_checkpoint checkpoint;
    if (!ready)
        set_up();
    ready = true;
    if (size == 0)
        return 0;
    const size_t which = data[0] % NAMES;
    data++, size--;
    write_whole(sound[which].path, data, size);
    const bool same = size == sound[which].size && memcmp(data, sound[which].bytes, size) == 0;
    int rc = rf_checkpoint_open(folder, &checkpoint);
    /* "latest" may be written in several ways; the other files are hashed. */
    REQUIRE(rc < 0 || same || which == 0);
    REQUIRE(rc == 0 || !same);
    if (rc == 0) {
        REQUIRE(checkpoint.state.step == 3 && checkpoint.state.seed == 99);
        rf_checkpoint_close(&checkpoint);
    }
    write_whole(sound[which].path, sound[which].bytes, sound[which].size);
    return 0;
}
