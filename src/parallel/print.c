/* SPDX-License-Identifier: MIT
 *
 * Instructions as text, for plans that print themselves, for labels and for tests.
 */
#include "../base/base.h"
#include "passes.h"

const char *rf_instruction_text(const struct rf_instruction *i, char *text, size_t bytes)
{
    switch (i->verb) {
    case RF_VERB_ZERO_GRADS:
        snprintf(text, bytes, "zero gradients slot %d", i->a);
        break;
    case RF_VERB_FORWARD:
        snprintf(text, bytes, "forward block %d micro-batch %d", i->block, i->micro_batch);
        break;
    case RF_VERB_BACKWARD_INPUT:
        snprintf(text, bytes, "backward input block %d micro-batch %d", i->block, i->micro_batch);
        break;
    case RF_VERB_BACKWARD_WEIGHT:
        snprintf(text, bytes, "backward weight block %d micro-batch %d slot %d", i->block,
                 i->micro_batch, i->a);
        break;
    case RF_VERB_MERGE:
        if (i->bucket >= 0)
            snprintf(text, bytes, "merge slot %d += slot %d bucket %d", i->a, i->b, i->bucket);
        else
            snprintf(text, bytes, "merge slot %d += slot %d", i->a, i->b);
        break;
    case RF_VERB_TIE:
        snprintf(text, bytes, "tie parameter %d += parameter %d", i->a, i->b);
        break;
    case RF_VERB_REDUCE:
        snprintf(text, bytes, "reduce bucket %d", i->a);
        break;
    case RF_VERB_LOSS:
        snprintf(text, bytes, "share losses and token counts");
        break;
    case RF_VERB_NORM:
        snprintf(text, bytes, "global norm");
        break;
    case RF_VERB_STEP:
        snprintf(text, bytes, "optimizer step");
        break;
    case RF_VERB_SPREAD:
        snprintf(text, bytes, "spread the weights");
        break;
    default:
        snprintf(text, bytes, "unknown instruction %d", (int)i->verb);
    }
    return text;
}
