/* SPDX-License-Identifier: MIT
 *
 * The file of spilling kernel forms. An input that begins with 'r' is a whole file; any other
 * follows the right first line.
 */
#include "ops/forms.c" /* for its static functions */

#include "device/internal.h"
#include "fuzz.h"

static char folder[] = "forms-XXXXXX"; /* in the working directory */
static char path[RF_CACHE_PATH_BYTES], first_line[128];

static void clean_up(void)
{
    unlink(path);
    rmdir(folder);
}

/* A device whose properties are all 0. */
static void set_up(const struct rf_device *device)
{
    REQUIRE(mkdtemp(folder) && setenv("RF_CACHE_DIR", folder, 1) == 0);
    atexit(clean_up);
    REQUIRE(rf_cache_lines_save(device, &lines, 0, print_line, NULL, NULL, 0) == 0);
    REQUIRE(rf_device_cache_path(device, lines.suffix, path, false));
    FILE *file = fopen(path, "r");
    REQUIRE(file && fgets(first_line, sizeof(first_line), file));
    fclose(file);
}

/* The accepted lines are valid, and read back the same after writing. */
static void check(struct rf_device *device, struct table *table)
{
    struct table again = {0};
    REQUIRE(table->count <= MOST_ROWS);
    save(device, table);
    merge_file(device, &again);
    REQUIRE(again.count == table->count);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        const struct row *same = find_row(&again, row->family, row->family_hash, row->form);
        REQUIRE(strlen(row->family) < sizeof(row->family) && row->form < MOST_FORMS);
        REQUIRE(row->cost >= 0 && row->cost < OVER_BUDGET && row->asked && !row->checked);
        REQUIRE(same && same->kernel == row->kernel && same->cost == row->cost &&
                same->instructions == row->instructions);
    }
    rf_free(again.rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_device *device;
    static char text[1 << 16];
    struct table table = {0};
    if (!device) {
        device = calloc(1, sizeof(*device));
        REQUIRE(device);
        set_up(device);
    }
    const size_t front = size > 0 && data[0] == 'r' ? 0 : strlen(first_line);
    if (front + size > sizeof(text))
        return 0;
    memcpy(text, first_line, front);
    memcpy(text + front, data, size);
    write_whole(path, text, front + size);
    merge_file(device, &table);
    check(device, &table);
    rf_free(table.rows);
    return 0;
}
