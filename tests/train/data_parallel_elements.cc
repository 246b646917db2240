// SPDX-License-Identifier: MIT
//
// Data parallelism element by element, at every stage of sharding and in both orders: the norm, the
// decay and the update of frozen, tied, ragged and tiny parameters, where every sum is exact.
#include <cmath>
#include <map>

#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

namespace
{

// Blocks whose gradients are whole numbers, the same for every element of a parameter: sums are
// exact in any order, so every element of a parameter is the same on any mesh, to the bit.
struct Counting {
    std::vector<float> each; // gradient of each parameter in a micro-batch

    static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
    {
        return ctx->losses.buffer ? rf_fill(ctx->stream, ctx->losses, 1) : 0; // the last block
    }
    static int input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int weight(rf_ctx *ctx, void *self, rf_tensor, rf_tensor)
    {
        const Counting *counting = static_cast<const Counting *>(self);
        for (int i = 0; i < ctx->param_count; i++) {
            rf_tensor grad = ctx->grads[i], part = {};
            uint64_t at = 0;
            if (!grad.buffer)
                continue; // frozen
            int rc = rf_suballocate(ctx->scratch, &at, grad.shape, RF_F32, &part);
            if (rc == 0)
                rc = rf_fill(ctx->stream, part, counting->each[(size_t)i]);
            if (rc == 0)
                rc = rf_add(ctx->stream, grad, grad, part);
            if (rc < 0)
                return rc;
        }
        return 0;
    }
    static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->scratch = 32768;
        out->out = rf_shape2(rows, 4);
        return 0;
    }
};
const rf_block_ops counting_ops = {Counting::forward, Counting::input, Counting::weight,
                                   Counting::sizes};

struct Counted {
    std::vector<float> norms;
    std::map<std::string, std::vector<float>> params;
};

// Three steps of AdamW on 6 micro-batches. Rank 0's parameters.
Counted count(const Sharding &s, int ranks)
{
    Counted counted;
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 6;
    policy.seq = 4;
    policy.order = s.order;
    policy.zero = s.zero;
    policy.offload = s.offload;
    policy.clip = 1;
    policy.optimizer.weight_decay = 0.25f;
    policy.first_bucket_bytes = 4096;
    policy.bucket_bytes = 12000;
    auto body = [&](rf_comm *comm, int rank) {
        StubBlocks stubs;
        stubs.add("a", {2500, 100}).flag(0, RF_PARAM_DECAY);
        stubs.add("b", {3000, 4097}).flag(0, RF_PARAM_FROZEN | RF_PARAM_DECAY);
        stubs.add("c", {700, 2500, 1}).flag(0, RF_PARAM_DECAY).tie(1, "a.0");
        std::vector<Counting> each = {{{1, 2}}, {{3, 4}}, {{5, 6, 7}}};
        std::vector<rf_block> blocks(stubs.blocks(), stubs.blocks() + 3);
        std::vector<std::vector<rf_param_desc>> params;
        for (size_t b = 0; b < 3; b++) {
            params.emplace_back(blocks[b].params, blocks[b].params + blocks[b].param_count);
            for (rf_param_desc &desc : params[b])
                desc.init_value = 0.5f;
            blocks[b].params = params[b].data();
            blocks[b].ops = &counting_ops;
            blocks[b].self = &each[b];
        }
        rf_mesh mesh = {ranks, 1, 1, s.shard};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        const int32_t words[24] = {};
        ASSERT_RF(rf_plan_build({blocks.data(), 3}, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        for (int step = 0; step < 3; step++) {
            rf_step_stats stats = {};
            ASSERT_RF(rf_run_step(run, words, words, 0.125f, &stats));
            if (rank == 0)
                counted.norms.push_back(stats.grad_norm);
        }
        for (const std::vector<rf_param_desc> &list : params)
            for (const rf_param_desc &desc : list) {
                std::vector<float> values((size_t)rf_shape_count(desc.shape));
                ASSERT_RF(rf_run_read_param(run, desc.name, values.data(), values.size() * 4));
                if (rank == 0)
                    counted.params[desc.name] = values;
            }
        rf_run_close(run);
        rf_plan_destroy(plan);
    };
    for (int r = 0; r < ranks; r++)
        rank_device(r);
    ranks::World world;
    world.size = ranks;
    if (ranks == 1)
        body(nullptr, 0);
    else
        ranks::run(world, body);
    return counted;
}

} // namespace

// Frozen, tied, ragged and tiny parameters: the norm counts each logical element once, and decay
// follows the declaration, on both sides of a shard's cut.
TEST(DataParallel, NormDecayAndUpdateAreThoseOfEachElementOnAnyMesh)
{
    const Counted one = count({0, RF_ORDER_RING}, 1);
    // Mean gradients are a quarter of a micro-batch's: 6 of them, over 24 tokens.
    double squares = 0;
    for (auto [elements, grad] : std::vector<std::pair<double, double>>{
             {2500, 1 + 6}, {100, 2}, {4097, 4}, {700, 5}, {1, 7}})
        squares += elements * grad * grad / 16;
    for (float norm : one.norms)
        EXPECT_FLOAT_EQ(norm, (float)std::sqrt(squares));
    EXPECT_EQ(one.params.at("b.0")[0], 0.5f) << "frozen";
    EXPECT_EQ(one.params.at("a.0"), one.params.at("c.1")) << "tied";
    EXPECT_LT(one.params.at("a.0")[0], one.params.at("a.1")[0]) << "decay, or not";
    const Counted by_host = count({0, RF_ORDER_RING, 0, RF_OFFLOAD_OPTIMIZER}, 1);
    for (const Sharding &s : all_shardings())
        for (int ranks = s.shard ? 4 : 1; ranks <= 4; ranks++) {
            const std::string where = s.text() + " on " + std::to_string(ranks);
            const Counted many = count(s, ranks);
            const Counted &alone = s.offload & RF_OFFLOAD_OPTIMIZER ? by_host : one;
            EXPECT_EQ(many.norms, alone.norms) << where;
            for (const auto &[name, values] : many.params) {
                const std::vector<float> same(values.size(), alone.params.at(name)[0]);
                EXPECT_EQ(values, same) << name << ", " << where;
            }
        }
}
