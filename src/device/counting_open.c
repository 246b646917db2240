/* SPDX-License-Identifier: MIT
 *
 * Opens a counting device (counting.c).
 */
#include "internal.h"

/* The profile of a discrete GPU with all features except matrix units. Nothing is measured or taken
 * from a driver, so counts are the same everywhere. */
static const struct rf_device_info profile = {
    .name = "a device that counts",
    .driver = "none: nothing runs",
    .device_uuid = "ringforge count", /* identifies no real device, for tables by device */
    .kind = RF_DEVICE_DISCRETE,
    .usable = true,
    .subgroup_size = 32,
    .min_subgroup_size = 32,
    .max_subgroup_size = 32,
    .subgroup_shuffle = true,
    .subgroup_arithmetic = true,
    .int64 = true,
    .float16 = true,
    .int16 = true,
    .int8 = true,
    .float64 = true,
    .storage16 = true,
    .storage8 = true,
    .max_workgroup_invocations = 1024,
    .max_workgroup_size = {1024, 1024, 64},
    .max_workgroup_count = {INT32_MAX, 65535, 65535},
    .max_shared_bytes = 48 << 10,
    .max_push_bytes = 256,
    .max_allocation_bytes = RF_COUNTING_BYTES,
    .heap_bytes = RF_COUNTING_BYTES,
    .matrix_reason = "it runs nothing",
    .workgroup_reason = "it runs nothing",
    .bfloat16_reason = "it runs nothing",
    .dma_buf_reason = "it runs nothing",
};

int rf_device_open_counting(struct rf_device **out)
{
    if (!out)
        return rf_fail(RF_EINVAL, "rf_device_open_counting needs a pointer for its result");
    struct rf_device *device = rf_alloc(sizeof(*device));
    if (!device)
        return rf_fail(RF_ENOMEM, "no memory for a device's record");
    device->counting = true;
    device->info = profile;
    device->caps = (struct rf_device_caps){
        .subgroup_size_control = true, .subgroup_min = 1, .subgroup_max = 128};
    device->next_address = RF_COUNTING_BYTES; /* above the addresses that drivers return */
    pthread_mutex_init(&device->memory_lock, NULL);
    pthread_mutex_init(&device->staging.lock, NULL);
    int rc = rf_core_open_counting(device);
    if (rc == 0)
        rc = rf_submit_open(device);
    if (rc < 0) {
        rf_device_close(device);
        return rc;
    }
    *out = device;
    return 0;
}
