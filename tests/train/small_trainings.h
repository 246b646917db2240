/* SPDX-License-Identifier: MIT
 *
 * Trainings that several tests begin with.
 */
#ifndef RF_TESTS_TRAIN_SMALL_TRAININGS_H
#define RF_TESTS_TRAIN_SMALL_TRAININGS_H

#include "world.h"

/* Parameters of 8440, 4800 and 6400 elements, not all of whole blocks of states, and small ones. */
inline Training coded(rf_dtype states = RF_U8)
{
    Training t;
    t.model = {1, 40, 4, 8, 211};
    t.policy.batch = t.policy.micro_batches = 4;
    t.policy.seq = 8;
    t.policy.clip = 1;
    t.policy.state_dtype = states;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 20000;
    return t;
}

/* Twenty steps on a batch that can be learned, with tokens below 61. */
inline void learn(Training *t)
{
    t->steps = 20;
    t->lr = 0.004f;
    t->edit_batch = [](int, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        for (size_t i = 0; i < tokens.size(); i++) {
            tokens[i] = (int32_t)(i * i / 7 % 61);
            targets[i] = (int32_t)((i + 1) * (i + 1) / 7 % 61);
        }
    };
}

#endif
