/* SPDX-License-Identifier: MIT
 *
 * Prints the forms of kernels that the library chooses for the device, with the reasons, and
 * whether these kernels spill. Nothing runs, so the device need not be able to.
 *
 *   kernel_forms [--masked] [WORD...]     only launches whose name holds a WORD
 *
 * --masked: name, vendor, numbers and identifiers of device and driver are replaced before anything
 * is chosen, so the choice is that for an unknown device. With RF_KERNEL_FORMS=budget the compiler
 * is not used either. Fails if a kernel spills; results about a form are kept in RF_CACHE_DIR as
 * usual.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "device/internal.h"
#include "kept.h"
#include "launches.h"
#include "record_nothing.h"

enum { MOST_KERNELS = 4096, MOST_FORMS = 256 };
#define BUFFER_BYTES ((uint64_t)1 << 30)

struct state {
    struct rf_device *device;
    const struct rf_kernel *seen[MOST_KERNELS];
    uint32_t count, spilling, unknown, failures;
    const char *launch; /* while its kernels are examined */
};

static void visit(void *user, const struct rf_kernel_desc *desc, const struct rf_kernel *kernel)
{
    struct state *s = user;
    struct rf_kernel_figures figures;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->seen[i] == kernel)
            return;
    if (s->count < MOST_KERNELS)
        s->seen[s->count++] = kernel;
    if (!rf_kernel_get_figures(kernel, &figures)) {
        s->unknown++;
        return;
    }
    if (figures.spills <= 0 && figures.scratch_bytes <= 0)
        return;
    printf("SPILLS: %s (%s):", desc->name, s->launch);
    for (uint32_t i = 0; i < desc->spec_count; i++)
        printf(" %u", desc->specs[i].value);
    printf(": %lld spills, %lld bytes of scratch memory\n", (long long)figures.spills,
           (long long)figures.scratch_bytes);
    s->spilling++;
}

static void launched(void *user, const struct launch *launch, int status)
{
    struct state *s = user;
    s->launch = launch->name;
    if (status < 0 && status != RF_ENOTSUP) {
        printf("FAILED: %s: %s\n", launch->name, rf_last_error()->message);
        s->failures++;
    }
    rf_device_each_kernel(s->device, visit, s);
}

static void mask(struct rf_device_info *info)
{
    snprintf(info->name, sizeof(info->name), "masked");
    snprintf(info->driver, sizeof(info->driver), "masked");
    info->vendor_id = info->device_id = info->driver_id = info->driver_version = 0;
    memset(info->device_uuid, 0, sizeof(info->device_uuid));
    memset(info->driver_uuid, 0, sizeof(info->driver_uuid));
}

static void print_forms(struct rf_device *device)
{
    static struct rf_kernel_form forms[MOST_FORMS];
    uint32_t count = 0;
    if (rf_kernel_forms(device, forms, MOST_FORMS, &count) < 0)
        printf("FAILED: %s\n", rf_last_error()->message);
    for (uint32_t i = 0; i < count && i < MOST_FORMS; i++)
        printf("%-36s %-40s %s\n", forms[i].family, forms[i].form, forms[i].why);
}

int main(int argc, char **argv)
{
    static struct state s;
    const bool masked = argc > 1 && strcmp(argv[1], "--masked") == 0;
    if (argc > 1 && !masked && argv[1][0] == '-') {
        fprintf(stderr, "use: kernel_forms [--masked] [WORD...]\n");
        return 2;
    }
    const struct rf_device_opts opts = {.kernel_statistics = true};
    if (rf_device_open(NULL, &opts, &s.device) < 0) {
        fprintf(stderr, "kernel_forms: %s\n", rf_last_error()->message);
        return 1;
    }
    const struct rf_device_info *info = &s.device->info;
    printf("%s, %s, statistics: %s\n", info->name, info->driver,
           s.device->core->has_statistics ? "yes" : "no");
    if (masked)
        mask(&s.device->info);
    struct rf_buffer buffer = {/* without memory */
                               .device = s.device,
                               .bytes = BUFFER_BYTES,
                               .address = (uint64_t)1 << 32};
    struct operands operands = {.info = info,
                                .buffer = &buffer,
                                .words = (const char *const *)argv + 1 + masked,
                                .word_count = argc - 1 - masked};
    record_nothing(s.device);
    kept_begin(s.device);
    if (rf_stream_create(s.device, "forms", &operands.stream) < 0) {
        fprintf(stderr, "kernel_forms: %s\n", rf_last_error()->message);
        return 1;
    }
    launch_chosen(&operands, launched, &s);
    print_forms(s.device);
    (void)kept_end();
    printf(
        "%u kernels of chosen forms: %u spill, %u of which the driver says nothing; %u failures\n",
        s.count, s.spilling, s.unknown, s.failures);
    fflush(NULL);
    /* Nothing is closed: RADV's null hardware crashes when waited for. */
    _exit(s.failures > 0 || s.spilling > 0);
}
