/* SPDX-License-Identifier: MIT
 *
 * The size of a sentence that says what is wrong with the files of a model or of adapters.
 */
#ifndef RF_MODELS_FAULT_H
#define RF_MODELS_FAULT_H

#define MODEL_FAULT_BYTES 512

#endif
