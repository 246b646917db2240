// SPDX-License-Identifier: MIT
//
// A training whose state, gradients or parameters are sharded, with buckets small enough that there
// are several.
#ifndef RF_TESTS_TRAIN_SHARDED_H
#define RF_TESTS_TRAIN_SHARDED_H

#include "world.h"

inline Training sharded(rf_order order, int stage)
{
    Training t;
    t.model.vocab = 257;
    t.policy.order = order;
    t.policy.zero = stage;
    t.policy.clip = 0.25f;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    return t;
}

#endif
