/* SPDX-License-Identifier: MIT
 *
 * The names of activations.
 */
#include <ringforge/ops.h>
#include <stddef.h>

const char *rf_activation_name(enum rf_activation kind)
{
#define NAME(constant, name) name,
    static const char *const names[] = {RF_ACTIVATIONS(NAME)};
#undef NAME
    return (unsigned)kind < RF_ACTIVATION_COUNT ? names[kind] : NULL;
}
