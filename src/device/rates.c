/* SPDX-License-Identifier: MIT
 *
 * The measured rates of a device: a text file next to the pipeline cache, named by device and
 * driver. `ringforge tune` writes it; the simulator and others read it. Files are not trusted, and
 * an incomplete one is ignored.
 */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "internal.h"

enum { VERSION = 2 };

static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
#define TYPES (sizeof(types) / sizeof(types[0]))
_Static_assert(TYPES == sizeof(((struct rf_device_rates *)0)->products) / sizeof(double),
               "a rate for each type");

double rf_device_rates_of(const struct rf_device_rates *rates, enum rf_dtype type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i] == type)
            return rates->products[i];
    return 0;
}

void rf_device_rates_note(struct rf_device_rates *rates, enum rf_dtype type, double flops_per_s)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i] == type && isfinite(flops_per_s) && flops_per_s > rates->products[i])
            rates->products[i] = flops_per_s;
}

static void head_text(const struct rf_device *device, char *text, size_t bytes)
{
    const struct rf_device_info *info = &device->info;
    char uuid[2][33];
    for (int i = 0; i < 16; i++) {
        snprintf(uuid[0] + 2 * i, 3, "%02x", info->device_uuid[i]);
        snprintf(uuid[1] + 2 * i, 3, "%02x", info->driver_uuid[i]);
    }
    const int used = snprintf(text, bytes, "ringforge-rates %d %s %s %u", VERSION, uuid[0], uuid[1],
                              info->driver_version);
    if (device->cpu)
        snprintf(text + used, bytes - (size_t)used, " %08x\n", device->cpu);
    else
        snprintf(text + used, bytes - (size_t)used, "\n");
}

/* Reads "name number"; the number must be finite and not negative. */
static bool read_line(FILE *file, const char *name, double *out)
{
    char line[128], word[8], end;
    return fgets(line, sizeof(line), file) && sscanf(line, "%7s %lf %c", word, out, &end) == 2 &&
           strcmp(word, name) == 0 && isfinite(*out) && *out >= 0;
}

/* The reason why the file is not used; NULL if it is. */
static const char *read_file(const struct rf_device *device, FILE *file,
                             struct rf_device_rates *out)
{
    char line[128], head[128];
    head_text(device, head, sizeof(head));
    if (!fgets(line, sizeof(line), file) || strcmp(line, head) != 0)
        return "it belongs to another version, device or driver";
    bool good = true;
    for (size_t i = 0; good && i < TYPES; i++)
        good = read_line(file, rf_dtype_name(types[i]), &out->products[i]);
    if (!good || !read_line(file, "memory", &out->bytes_per_s) ||
        !read_line(file, "launch", &out->launch_s))
        return "a line of it is not valid";
    return fgets(line, sizeof(line), file) && strcmp(line, "end\n") == 0 ? NULL
                                                                         : "it is not complete";
}

bool rf_device_rates_load(const struct rf_device *device, struct rf_device_rates *out)
{
    char path[RF_CACHE_PATH_BYTES];
    const char *why;
    struct rf_device_rates rates = {0};
    if (!device || !out || !rf_device_cache_path(device, "rates", path, false))
        return false;
    FILE *file = rf_open_input(path, &why);
    if (!file && errno == ENOENT)
        return false;
    if (file) {
        why = read_file(device, file, &rates);
        fclose(file);
    }
    if (why)
        rf_log("device", 1, "%s is ignored: %s; run `ringforge tune` again", path, why);
    else
        *out = rates;
    return !why;
}

int rf_device_rates_save(const struct rf_device *device, const struct rf_device_rates *rates)
{
    char name[RF_CACHE_PATH_BYTES], temporary[RF_CACHE_PATH_BYTES + 16], head[128];
    if (!device || !rates)
        return rf_fail(RF_EINVAL, "rf_device_rates_save needs a device and its rates");
    if (!rf_device_cache_path(device, "rates", name, true))
        return rf_fail(RF_EIO, "there is no folder for the rates; set RF_CACHE_DIR");
    snprintf(temporary, sizeof(temporary), "%s.%ld", name, (long)getpid());
    unlink(temporary); /* of a killed process with the same number */
    FILE *file = fopen(temporary, "wxe");
    if (!file)
        return rf_fail(RF_EIO, "%s cannot be written", temporary);
    head_text(device, head, sizeof(head));
    fputs(head, file);
    for (size_t i = 0; i < TYPES; i++)
        fprintf(file, "%s %.6g\n", rf_dtype_name(types[i]), rates->products[i]);
    fprintf(file, "memory %.6g\nlaunch %.6g\nend\n", rates->bytes_per_s, rates->launch_s);
    bool ok = fflush(file) == 0 && fsync(fileno(file)) == 0;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(temporary, name) != 0) {
        unlink(temporary);
        return rf_fail(RF_EIO, "%s cannot be written", name);
    }
    return 0;
}
