/* SPDX-License-Identifier: MIT
 *
 * The safetensors names of element types. Used by its reader and its writer.
 */
#ifndef RF_IO_SAFETENSORS_NAMES_H
#define RF_IO_SAFETENSORS_NAMES_H

#include <ringforge/types.h>

const char *rf_safetensors_dtype_name(enum rf_dtype dtype);
/* RF_DTYPE_COUNT: unknown. */
enum rf_dtype rf_safetensors_dtype_of(const char *name);

#endif
