/* SPDX-License-Identifier: MIT
 *
 * Effects of copies of activations to host memory and back.
 */
#include "meaning.h"

#include "../../base/base.h"

/* Pairs of kinds: on the device and in host memory; in host memory and on a disk. */
static const enum rf_value_kind pairs[][2] = {{RF_VALUE_OUT, RF_VALUE_HOST_OUT},
                                              {RF_VALUE_SAVED, RF_VALUE_HOST_SAVED},
                                              {RF_VALUE_HOST_OUT, RF_VALUE_DISK_OUT},
                                              {RF_VALUE_HOST_SAVED, RF_VALUE_DISK_SAVED}};

static bool goes_back(const struct rf_at *a)
{
    return a->i->verb == RF_VERB_FETCH || a->i->verb == RF_VERB_READ;
}

static int pair_of(const struct rf_at *a)
{
    const bool disk = a->i->verb == RF_VERB_READ || a->i->verb == RF_VERB_WRITE;
    if (a->i->ins == 0)
        return -1;
    const enum rf_value_kind kind = a->plan->values[a->plan->operands[a->i->first_operand]].kind;
    for (int pair = 2 * disk; pair < 2 * disk + 2; pair++)
        if (kind == pairs[pair][goes_back(a)])
            return pair;
    return -1;
}

bool rf_meaning_is_spill(const struct rf_at *a)
{
    return pair_of(a) >= 0;
}

/* The other value must have the same block and micro-batch. */
int rf_meaning_spill(const struct rf_at *a)
{
    const bool back = goes_back(a);
    const int pair = pair_of(a);
    const int from = rf_token_operand(a, false, pairs[pair][back], -1, -1, -1);
    /* Between the halves of the last block's backward pass its output is its own gradient. */
    const bool carried = from >= 0 && a->tokens[from].state == RF_TOKEN_CARRIED;
    const enum rf_token_state state = carried ? RF_TOKEN_CARRIED : RF_TOKEN_HELD;
    RETURN_IF_ERROR(rf_token_demand(a, from, state));
    const struct rf_value *v = &a->plan->values[from];
    return rf_token_write(a, pairs[pair][!back], v->block, v->micro_batch, state);
}
