/* SPDX-License-Identifier: MIT
 *
 * Errors of the files of adapters.
 */
#ifndef RF_MODELS_ADAPTER_FAIL_H
#define RF_MODELS_ADAPTER_FAIL_H

#include "adapter_file.h"

/* Writes the sentence and returns status. */
int adapter_fail(int status, char fault[ADAPTER_FAULT_BYTES], const char *format, ...)
    RF_PRINTF(3, 4);

#endif
