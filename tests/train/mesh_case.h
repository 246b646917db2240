// SPDX-License-Identifier: MIT
//
// A mesh with the techniques that a training on it uses, and the small training that is compared on
// meshes: for the tests of tensor ranks, context ranks, fixed parts and pipelines without a flush.
#ifndef RF_TESTS_TRAIN_MESH_CASE_H
#define RF_TESTS_TRAIN_MESH_CASE_H

#include "world.h"

struct MeshCase {
    int dp = 1, tp = 1, cp = 1, pp = 1;
    bool sequence = false;
    int zero = 0;
    rf_order order = RF_ORDER_TREE;
    rf_pipeline_kind pipeline = RF_PIPELINE_1F1B;
    int recompute = 0, offload = 0;

    int ranks() const
    {
        return dp * tp * cp * pp;
    }
    std::string text() const
    {
        return "dp=" + std::to_string(dp) + ",tp=" + std::to_string(tp) +
               ",cp=" + std::to_string(cp) + ",pp=" + std::to_string(pp) +
               (sequence ? ", sequence" : "") + ", zero=" + std::to_string(zero) +
               ", recompute=" + std::to_string(recompute) + ", " + rf_order_name(order);
    }
    Training on(Training t) const
    {
        t.tp = tp;
        t.cp = cp;
        t.pp = pp;
        t.policy.sequence_parallel = sequence;
        t.policy.zero = zero;
        t.policy.order = order;
        t.policy.pipeline = pipeline;
        t.policy.recompute = recompute;
        t.policy.offload = offload;
        return t;
    }
};

// On every rank of the mesh.
inline std::vector<Seen> train_on(const Training &t, const MeshCase &m)
{
    return train(m.on(t), m.ranks());
}

// With clipping, weight decay, several buckets, and ignored targets.
inline Training clipped_training(int steps)
{
    Training t;
    t.policy.clip = 0.25f;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    t.steps = steps;
    return t;
}

inline Training with_llama(Training t, int kv_heads = 2)
{
    t.llama = {2, 32, 4, kv_heads, 64, 61};
    return t;
}

#endif
