/* SPDX-License-Identifier: MIT
 *
 * The number of registers of a subgroup, and the expected need of a kernel. Launchers choose tiles
 * that fit. Both figures are estimates; tests/kernels/report.c shows the compilers' results.
 */
#ifndef RF_OPS_BUDGET_H
#define RF_OPS_BUDGET_H

#include <ringforge/device.h>

#define RF_REGISTERS_UNLIMITED UINT32_MAX

/* Bytes of registers of one subgroup. Devices that offer subgroups below 32 run them on registers
 * of that width; a subgroup has 128 of them, whatever its size. On other devices each invocation
 * has 256 registers of its own. RF_REGISTERS_UNLIMITED: a CPU, whose registers spill to the caches.
 */
uint32_t rf_register_budget(const struct rf_device_info *info);

/* Whether subgroups of any size share the same registers: few per invocation in large subgroups. */
bool rf_register_narrow(const struct rf_device_info *info);

/* The subgroup size to require for matrices in registers: the one with the most registers per
 * invocation. */
uint32_t rf_register_lanes(const struct rf_device_info *info);

/* What a kernel keeps in registers at once, in its innermost loop. */
struct rf_register_need {
    uint32_t lanes;    /* of a subgroup */
    uint32_t sums;     /* 32-bit elements held by the subgroup */
    uint32_t operands; /* 16-bit elements held by the subgroup */
    uint32_t staged;   /* bytes that each invocation holds between memory and shared memory */
};

/* Bytes of registers of one subgroup, addresses and counters included. */
uint32_t rf_register_bytes(const struct rf_register_need *need);

#endif
