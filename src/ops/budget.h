/* SPDX-License-Identifier: MIT
 *
 * How many registers a subgroup has, and how many a kernel is expected to need. Launchers choose
 * tiles that fit. Both figures are estimates; tests/kernels/report.c shows what compilers do.
 */
#ifndef RF_OPS_BUDGET_H
#define RF_OPS_BUDGET_H

#include <ringforge/device.h>

#define RF_REGISTERS_UNLIMITED UINT32_MAX

/* Bytes of registers of one subgroup. Devices that offer subgroups below 32 run them on registers
 * of that width, of which a subgroup has 128, whatever size it takes; elsewhere each invocation has
 * 256 registers of its own. RF_REGISTERS_UNLIMITED: a CPU, whose registers spill to the caches. */
uint32_t rf_register_budget(const struct rf_device_info *info);

/* Whether it is that of registers which subgroups of any size share: few, if these are large. */
bool rf_register_narrow(const struct rf_device_info *info);

/* The subgroup size to require where a subgroup holds matrices: the one whose registers are not
 * shared by more invocations than there have to be. */
uint32_t rf_register_lanes(const struct rf_device_info *info);

/* What a kernel keeps at once, in its innermost loop. */
struct rf_register_need {
    uint32_t lanes;    /* of a subgroup */
    uint32_t sums;     /* elements of 32 bits that the subgroup holds together */
    uint32_t operands; /* elements of 16 bits likewise */
    uint32_t staged;   /* bytes that each invocation holds on their way from memory */
};

/* Bytes of registers of one subgroup, with addresses and counters. */
uint32_t rf_register_bytes(const struct rf_register_need *need);

#endif
