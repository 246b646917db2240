/* SPDX-License-Identifier: MIT
 *
 * The file of a device's measured rates. An input that begins with 'r' is a whole file; any other
 * follows the right first line.
 */
#include <math.h>

#include "device/internal.h"
#include "fuzz.h"

static char folder[] = "rates-XXXXXX"; /* in the working directory */
static char path[RF_CACHE_PATH_BYTES], first_line[128];

static void clean_up(void)
{
    unlink(path);
    rmdir(folder);
}

/* A device whose properties are all 0. */
static void set_up(const struct rf_device *device)
{
    const struct rf_device_rates none = {{0}};
    REQUIRE(mkdtemp(folder) && setenv("RF_CACHE_DIR", folder, 1) == 0);
    atexit(clean_up);
    REQUIRE(rf_device_rates_save(device, &none) == 0);
    REQUIRE(rf_device_cache_path(device, "rates", path, false));
    FILE *file = fopen(path, "r");
    REQUIRE(file && fgets(first_line, sizeof(first_line), file));
    fclose(file);
}

static void check(const struct rf_device *device, const struct rf_device_rates *rates)
{
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    struct rf_device_rates again;
    REQUIRE(rf_device_rates_save(device, rates) == 0);
    REQUIRE(rf_device_rates_load(device, &again));
    for (int i = 0; i < 3; i++) {
        const double rate = rf_device_rates_of(rates, types[i]);
        REQUIRE(isfinite(rate) && rate >= 0);
        REQUIRE(fabs(rf_device_rates_of(&again, types[i]) - rate) <= 1e-5 * rate);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_device *device;
    char text[4096];
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
    struct rf_device_rates rates;
    if (rf_device_rates_load(device, &rates))
        check(device, &rates);
    return 0;
}
