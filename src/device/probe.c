/* SPDX-License-Identifier: MIT
 *
 * Gets the compiler's statistics of a kernel before one is chosen. The kernel is compiled with
 * captured statistics, examined and discarded, so that the flag does not affect the kernels that
 * run. Called by ops/forms.c.
 */
#include "internal.h"

bool rf_device_probes(const struct rf_device *device)
{
    return device->fake_figures || device->core->has_statistics;
}

int rf_device_probe(struct rf_device *device, const struct rf_kernel_desc *desc,
                    struct rf_kernel_figures *out)
{
    struct rf_kernel *kernel = NULL;
    bool known;
    if (device->fake_figures)
        known = device->fake_figures(device->fake_user, desc, out);
    else {
        RETURN_IF_ERROR(rf_kernel_create_captured(device, desc, &kernel));
        known = rf_kernel_get_figures(kernel, out);
        rf_kernel_destroy(kernel);
    }
    if (!known)
        *out = (struct rf_kernel_figures){-1, -1, -1, -1, -1, -1, -1};
    return 0;
}

void rf_device_fake_figures(struct rf_device *device,
                            bool (*figures)(void *user, const struct rf_kernel_desc *desc,
                                            struct rf_kernel_figures *figures),
                            void *user)
{
    device->fake_figures = figures;
    device->fake_user = user;
}
