/* SPDX-License-Identifier: MIT
 *
 * A checkpoint with one hostile file: the first byte of the input chooses which (latest,
 * state.json, the tensors of the model or their hashes), the others are valid.
 */
#include "fuzz.h"
#include "io/checkpoint.h"

static char folder[] = "checkpoint-XXXXXX"; /* in the working directory */
static const char *const names[] = {"latest", "step-3/state.json", "step-3/model.safetensors",
                                    "step-3/model.hashes"};
#define NAMES (sizeof(names) / sizeof(names[0]))
static struct {
    char path[256], bytes[8192];
    size_t size;
} sound[NAMES];

static void clean_up(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        perror(folder);
}

static void make_checkpoint(void)
{
    const struct rf_file_tensor tensor = {"w", RF_F32, rf_shape2(3, 5)};
    const struct rf_file_content content = {.tensors = &tensor, .tensor_count = 1};
    const struct rf_checkpoint_state state = {3, 12, 3, 4, 64, 99};
    const struct rf_checkpoint_hook none = {0};
    struct rf_checkpoint_draft draft;
    struct rf_safetensors_layout layout;
    struct rf_shared_file file;
    struct rf_pieces pieces[RF_PART_COUNT];
    uint64_t bytes[RF_PART_COUNT];
    char path[4096];
    REQUIRE(rf_safetensors_lay_out(&content, &layout) == 0);
    REQUIRE(rf_checkpoint_begin(folder, 3, &none, &draft) == 0);
    for (int part = 0; part < RF_PART_COUNT; part++) {
        const uint8_t data[60] = {7};
        REQUIRE(rf_checkpoint_part_path(draft.folder, part, path) == 0);
        REQUIRE(rf_shared_create(&file, path, layout.bytes) == 0);
        REQUIRE(rf_shared_put(&file, 0, layout.header, layout.header_bytes) == 0);
        const struct rf_piece left = {layout.begin[0], 8, 3, 20}; /* two columns, and three */
        const struct rf_piece right = {layout.begin[0] + 8, 12, 3, 20};
        REQUIRE(rf_shared_put_runs(&file, &left, data, 20) == 0);
        REQUIRE(rf_shared_put_runs(&file, &right, data + 8, 20) == 0);
        REQUIRE(rf_shared_sync(&file) == 0);
        pieces[part] = file.pieces;
        bytes[part] = layout.bytes;
    }
    REQUIRE(rf_checkpoint_end(&draft, &state, "heads=4", "lr=1", pieces, bytes, 0) == 0);
    rf_pieces_free(&pieces[RF_PART_MODEL]);
    rf_pieces_free(&pieces[RF_PART_OPTIMIZER]);
    rf_safetensors_layout_free(&layout);
}

static int open_and_verify(struct rf_checkpoint *out)
{
    char name[64];
    RETURN_IF_ERROR(rf_checkpoint_find(folder, name));
    RETURN_IF_ERROR(rf_checkpoint_open(folder, name, out));
    int rc = rf_checkpoint_verify(out, 0, 1);
    if (rc < 0)
        rf_checkpoint_close(out);
    return rc;
}

static void set_up(void)
{
    REQUIRE(mkdtemp(folder));
    atexit(clean_up);
    make_checkpoint();
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
    int rc = open_and_verify(&checkpoint);
    /* "latest" can be written in several ways; the other files are hashed. */
    REQUIRE(rc < 0 || same || which == 0);
    REQUIRE(rc == 0 || !same);
    if (rc == 0) {
        REQUIRE(checkpoint.state.step == 3 && checkpoint.state.seed == 99);
        rf_checkpoint_close(&checkpoint);
    }
    write_whole(sound[which].path, sound[which].bytes, sound[which].size);
    return 0;
}
