/* SPDX-License-Identifier: MIT
 *
 * Chooses among several forms of a kernel (tiles, registers of an invocation) for a device: the
 * first that the driver's compiler does not spill. Among variants of one form, the one with the
 * fewest instructions.
 */
#ifndef RF_OPS_FORMS_H
#define RF_OPS_FORMS_H

#include "launch.h"

/* One form of a kernel. */
struct rf_form {
    struct rf_job job;      /* shader, type, constants, bytes of push constants, subgroup size;
                             * instructions are counted for this build */
    struct rf_job other[3]; /* other builds of the same form that may spill even if job does not */
    uint32_t other_count;
    uint32_t registers;              /* expected register bytes of a subgroup: rf_register_bytes */
    char text[RF_KERNEL_FORM_BYTES]; /* "128x128 tile, 64x64 per subgroup" */
};

/* The forms of one kernel, or of kernels that must use the same one. */
struct rf_forms {
    char family[RF_KERNEL_FAMILY_BYTES]; /* a-z, 0-9, '_' and '/': "matmul_cooperative/f16/nt" */
    size_t count;                        /* number of forms; in order of preference */
    size_t variants; /* number of consecutive forms that do the same work; 0: 1 */
    /* Whether form i can run the call, and suits its size. NULL: all do. */
    bool (*fits)(void *user, size_t i);
    /* Describes form i. It may depend only on the family and the device, because every call with
     * this form uses the result. */
    void (*describe)(void *user, size_t i, struct rf_form *out);
};

/* The first form that fits and does not spill; if all spill, the one that spills least;
 * forms->count if none fits. If the compiler counts instructions, then of that form's variants
 * without spills the one with the fewest, the first of equal ones. The driver is asked if it has
 * kernel statistics: a form is compiled for that the first time that it is considered, unless the
 * answer is in the cache folder. It is not compiled if it needs twice the registers that the device
 * is expected to have. Without statistics, a form that needs more than these counts as spilling
 * (budget.h). Results stay the same in a process and depend on device and driver only. CPU devices
 * and counting devices use the first form that fits. Thread-safe; blocks while a form is compiled.
 */
size_t rf_pick_form(struct rf_device *device, const struct rf_forms *forms, void *user);

#endif
