/* SPDX-License-Identifier: MIT
 *
 * Which of several forms of a kernel (tiles, registers of an invocation) a launcher takes on a
 * device: the first that the driver's compiler does not have to spill. Of variants of one form it
 * is the one with the fewest instructions.
 */
#ifndef RF_OPS_FORMS_H
#define RF_OPS_FORMS_H

#include "launch.h"

/* One form of a kernel. */
struct rf_form {
    struct rf_job job;      /* shader, type, constants, bytes of push constants, subgroup size; the
                             * instructions of this build count */
    struct rf_job other[3]; /* builds of the same form that may spill where job does not */
    uint32_t other_count;
    uint32_t registers; /* bytes that a subgroup is expected to need: rf_register_bytes */
    char text[RF_KERNEL_FORM_BYTES]; /* "128x128 tile, 64x64 per subgroup" */
};

/* The forms of one kernel, or of kernels that are to have the same one. */
struct rf_forms {
    char family[RF_KERNEL_FAMILY_BYTES]; /* a-z, 0-9, '_' and '/': "matmul_cooperative/f16/nt" */
    size_t count;                        /* of forms; the ones to be preferred come first */
    size_t variants; /* so many in a row do the same work in another way; 0: 1 */
    /* Whether form i can run what is asked for, and is wanted for its size. NULL: all are. */
    bool (*fits)(void *user, size_t i);
    /* Form i, which may depend on the family and the device and on nothing else: every call that
     * takes this form has to do with the answer. */
    void (*describe)(void *user, size_t i, struct rf_form *out);
};

/* The first form that fits and does not spill; if all do, the one that spills least; forms->count
 * if none fits. Where the compiler counts instructions, of the variants of that form which do not
 * spill either the one with the fewest, the first of equal ones. The driver is asked where it has statistics of kernels. A form is compiled for that
 * the first time that it is considered, unless the answer is in the cache folder. It is not
 * compiled if it needs twice the registers that the device is expected to have. Elsewhere
 * a form that needs more than these counts as spilling (budget.h). What is known of a form stays
 * the same in a process. It depends on device and driver only. CPU devices, and devices that count,
 * take the first form that fits. Thread-safe; blocks while a form is compiled. */
size_t rf_pick_form(struct rf_device *device, const struct rf_forms *forms, void *user);

#endif
