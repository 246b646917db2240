// SPDX-License-Identifier: MIT
//
// The contents of a checkpoint do not depend on who has saved it or who loads it: parameters and
// the optimizer's states have the same bits after a conversion from any layout of ranks, shards,
// memory and types to any other.
#include "folder.h"
#include "world.h"

namespace
{

struct Layout {
    int ranks, zero, shard, offload;
    rf_order order;
    rf_dtype dtype;
    int tp = 1;

    std::string text() const
    {
        return std::to_string(ranks) + " ranks, zero=" + std::to_string(zero) +
               ", shard=" + std::to_string(shard) + ", offload=" + std::to_string(offload) + ", " +
               rf_order_name(order) + ", " + rf_dtype_name(dtype) + ", tp=" + std::to_string(tp);
    }
};

constexpr int optimizer = RF_OFFLOAD_OPTIMIZER, params = RF_OFFLOAD_PARAMS,
              grads = RF_OFFLOAD_GRADS;
const Layout layouts[] = {
    {1, 0, 0, 0, RF_ORDER_RING, RF_F32},
    {2, 1, 0, 0, RF_ORDER_TREE, RF_F32},
    {3, 0, 0, 0, RF_ORDER_RING, RF_F32},
    {2, 2, 0, optimizer, RF_ORDER_RING, RF_F32},
    {3, 3, 0, params | grads, RF_ORDER_TREE, RF_F32},
    {1, 0, 0, optimizer, RF_ORDER_TREE, RF_F32},
    {2, 3, 0, 0, RF_ORDER_TREE, RF_F32},
    {3, 2, 0, params, RF_ORDER_TREE, RF_F32},
    {3, 1, 0, optimizer, RF_ORDER_RING, RF_F32},
    {2, 0, 0, 0, RF_ORDER_RING, RF_F32, 2},
    // Only with RF_TEST_ALL=1, as most of the time is spent on kernels of more devices and types.
    {4, 2, 2, 0, RF_ORDER_RING, RF_F32},
    {4, 3, 2, optimizer | grads, RF_ORDER_RING, RF_BF16},
    {4, 1, 2, 0, RF_ORDER_RING, RF_BF16},
    {4, 0, 0, optimizer | params, RF_ORDER_TREE, RF_F32},
    {2, 3, 0, 0, RF_ORDER_TREE, RF_BF16},
    {4, 3, 0, optimizer | params | grads, RF_ORDER_RING, RF_F32},
    {1, 0, 0, optimizer, RF_ORDER_TREE, RF_BF16},
    {4, 3, 0, 0, RF_ORDER_RING, RF_F32, 2},
    {4, 1, 0, 0, RF_ORDER_RING, RF_BF16, 2},
};
constexpr int quick_count = 10, layout_count = sizeof(layouts) / sizeof(layouts[0]);

Training in(const Layout &l)
{
    Training t;
    t.model = {1, 32, 2, 8, 257};
    t.model.dtype = l.dtype;
    t.model.residual = RF_F32;
    t.policy.batch = t.policy.micro_batches = 4;
    t.policy.seq = 8;
    t.policy.order = l.order;
    t.policy.zero = l.zero;
    t.policy.offload = l.offload;
    t.policy.bucket_bytes = 30000;
    t.shard = l.shard;
    t.tp = l.tp;
    t.steps = 0;
    return t;
}

void save_at_end(Training &t, const Folder &folder)
{
    t.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {2, t.seed, 8};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
}

// All tensors of a checkpoint, with the number of updates.
std::string state(const Folder &folder)
{
    const std::string model = folder.read("step-2/model.safetensors"),
                      states = folder.read("step-2/optimizer.safetensors");
    EXPECT_GT(model.size(), 4u * 257 * 32);
    EXPECT_GT(states.size(), 2 * model.size() - 2 * 4096);
    return model + states;
}

} // namespace

// RF_TEST_ALL=1: every pair. Otherwise each of some saves once and loads once: as a loaded
// checkpoint is saved with the same bytes, the other pairs follow.
TEST(Layouts, ACheckpointOfAnyIsTheSameParametersAndStatesInAnyOther)
{
    const bool all = getenv("RF_TEST_ALL") != nullptr;
    const int count = all ? layout_count : quick_count;
    for (int from = 0; from < count; from++) {
        Folder first;
        Training t = in(layouts[from]);
        t.steps = 2;
        save_at_end(t, first);
        train(t, layouts[from].ranks);
        const std::string saved = state(first);
        for (int to = 0; to < count; to++) {
            if (!all && to != (from + 1) % count)
                continue;
            Folder second;
            Training u = in(layouts[to]);
            u.before = [&](rf_run *run, rf_comm *, int) {
                rf_progress progress = {};
                ASSERT_RF(rf_run_load(run, first.path().c_str(), &progress));
                EXPECT_EQ(progress.samples, 8);
            };
            save_at_end(u, second);
            train(u, layouts[to].ranks);
            EXPECT_TRUE(state(second) == saved)
                << layouts[from].text() << ", then " << layouts[to].text();
        }
    }
}
