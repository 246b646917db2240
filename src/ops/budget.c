/* SPDX-License-Identifier: MIT
 *
 * The register budget of a subgroup, and the estimated need of a kernel.
 */
#include "budget.h"

#define NARROW_REGISTERS 128 /* of a subgroup, each as wide as the smallest subgroup */
#define OWN_REGISTERS 256    /* of an invocation */
/* Addresses, indices and counters of each invocation. Compilers for narrow subgroups keep more of
 * them, because uniform values have no other registers. */
#define FIXED_REGISTERS 24
#define NARROW_FIXED_REGISTERS 52

bool rf_register_narrow(const struct rf_device_info *info)
{
    return info->kind != RF_DEVICE_CPU && info->min_subgroup_size > 0 &&
           info->min_subgroup_size < 32;
}

uint32_t rf_register_budget(const struct rf_device_info *info)
{
    if (info->kind == RF_DEVICE_CPU)
        return RF_REGISTERS_UNLIMITED;
    return rf_register_narrow(info) ? 4 * NARROW_REGISTERS * info->min_subgroup_size
                                    : 4 * OWN_REGISTERS * info->subgroup_size;
}

uint32_t rf_register_lanes(const struct rf_device_info *info)
{
    return rf_register_narrow(info) ? info->min_subgroup_size : info->subgroup_size;
}

uint32_t rf_register_bytes(const struct rf_register_need *need)
{
    const uint32_t fixed = need->lanes < 32 ? NARROW_FIXED_REGISTERS : FIXED_REGISTERS;
    return 4 * need->sums + 2 * need->operands + need->lanes * (need->staged + 4 * fixed);
}
