// SPDX-License-Identifier: MIT
//
// The audit: silent for correct runs, with every way to share a model out, and counted to the byte;
// differences are named, with the ranks, on all ranks. The bugs are planted in the memory of a run
// or in the plan of one rank.
#include "world.h"

#include <algorithm>

namespace
{

// Each rank's message; empty: no difference.
std::vector<std::string> audited(Training t, int ranks,
                                 const std::function<void(rf_run *, int rank)> &damage = nullptr,
                                 const std::function<rf_progress(int rank)> &cursor = nullptr)
{
    std::vector<std::string> said((size_t)ranks);
    t.steps = std::min(t.steps, 1);
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        if (damage)
            damage(run, rank);
        const rf_progress progress = cursor ? cursor(rank) : rf_progress{1, 5, 8, 0, 0};
        const int rc = rf_run_audit(run, &progress);
        EXPECT_TRUE(rc == 0 || rc == RF_ECORRUPT) << rf_last_error()->message;
        said[(size_t)rank] = rc ? rf_last_error()->message : "";
    };
    const std::vector<Seen> seen = train(t, ranks);
    for (int rank = 0; rank < ranks; rank++)
        EXPECT_EQ(seen[(size_t)rank].measured.sent, seen[(size_t)rank].planned.sent) << rank;
    return said;
}

// All ranks have the same message, which contains `what`.
void expect_said(const std::vector<std::string> &said, const std::string &what)
{
    for (const std::string &message : said) {
        EXPECT_EQ(message, said[0]);
        EXPECT_NE(message.find(what), std::string::npos) << message;
    }
}

// Flips a bit of this rank's part of a tensor (region: RF_REGION_*).
void flip(rf_run *run, const std::string &name, int region, uint64_t element)
{
    const rf_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        if (plan->params[i].owner != i || name != plan->params[i].desc->name)
            continue;
        const size_t bytes = region == RF_REGION_COPY ? 2 : 4;
        const uint64_t first = plan->shards > 1 && region >= RF_REGION_STATE
                                   ? plan->pieces[plan->params[i].piece].shard_first
                                   : plan->params[i].first;
        rf_tensor t = run->regions[region];
        uint8_t value[4];
        t.dtype = RF_U8;
        t.offset += (first + element) * bytes;
        t.shape = rf_shape1((int64_t)bytes);
        ASSERT_RF(rf_tensor_read(t, value, bytes));
        value[0] ^= 1;
        ASSERT_RF(rf_tensor_write(t, value, bytes));
        return;
    }
    FAIL() << "rank " << plan->rank << " has no " << name;
}

Training small()
{
    Training t;
    t.model = {1, 32, 2, 16, 61};
    t.policy.batch = 4;
    t.policy.micro_batches = 4;
    return t;
}

// Repeats an instruction on its lane: the list of one rank has it twice.
void duplicate(rf_plan *plan, rf_verb verb)
{
    rf_list &list = plan->lists[RF_LIST_STEP];
    const auto at = std::find_if(list.instructions, list.instructions + list.count,
                                 [&](const rf_instruction &i) { return i.verb == verb; });
    ASSERT_NE(at, list.instructions + list.count);
    const int lane = (int)at->lane;
    const int place = (int)std::count_if(
        list.instructions, at, [&](const rf_instruction &i) { return (int)i.lane == lane; });
    ASSERT_LT(list.count, list.capacity);
    for (int i = 0; i < list.count; i++)
        for (int k = 0; k < list.instructions[i].waits; k++) {
            rf_wait &wait = plan->waits[list.instructions[i].first_wait + k];
            wait.position += wait.lane == lane && wait.position >= place;
        }
    std::copy_backward(at, list.instructions + list.count, list.instructions + list.count + 1);
    list.count++;
    list.positions[lane]++;
    at->posts = false;
}

} // namespace

TEST(Audit, FindsNothingUnderAnyWayToShareAModelOut)
{
    struct Way {
        int ranks, pp, shard, zero, offload;
        rf_order order;
        rf_dtype dtype;
    };
    for (const Way &way :
         {Way{1, 1, 0, 0, 0, RF_ORDER_TREE, RF_F32}, Way{3, 1, 0, 0, 0, RF_ORDER_TREE, RF_BF16},
          Way{2, 1, 0, 1, 0, RF_ORDER_RING, RF_F32}, Way{2, 1, 0, 1, 0, RF_ORDER_TREE, RF_BF16},
          Way{2, 1, 0, 2, RF_OFFLOAD_OPTIMIZER, RF_ORDER_TREE, RF_F32},
          Way{4, 1, 2, 3, 0, RF_ORDER_RING, RF_F32}, Way{4, 2, 0, 1, 0, RF_ORDER_TREE, RF_F32}}) {
        Training t = small();
        t.model.layers = way.pp;
        t.model.dtype = way.dtype;
        t.pp = way.pp;
        t.shard = way.shard;
        t.policy.zero = way.zero;
        t.policy.offload = way.offload;
        t.policy.order = way.order;
        for (const std::string &message : audited(t, way.ranks))
            EXPECT_EQ(message, "") << "zero=" << way.zero << ", pp=" << way.pp;
    }
}

TEST(Audit, OneBitOfOneParameterIsNamedWithTheRankThatDiffers)
{
    expect_said(audited(small(), 3,
                        [](rf_run *run, int rank) {
                            if (rank == 1)
                                flip(run, "blocks.0.mlp.fc.weight", RF_REGION_PARAMS, 7);
                        }),
                "audit after step 1: parameter blocks.0.mlp.fc.weight is not the same on all ranks "
                "that have it: rank 1 differs from ranks 0, 2;");
}

TEST(Audit, AStateThatDiffersIsNamedAndSoIsA16BitCopyThatBlocksSee)
{
    expect_said(audited(small(), 2,
                        [](rf_run *run, int rank) {
                            if (rank == 1)
                                flip(run, "ln_f.bias", RF_REGION_STATE + RF_STATE_V, 3);
                        }),
                "the optimizer's state ln_f.bias.v is not the same on all ranks that have it: "
                "rank 1 differs from rank 0;");
    Training t = small();
    t.model.dtype = RF_BF16;
    expect_said(audited(t, 3,
                        [](rf_run *run, int rank) {
                            if (rank == 0)
                                flip(run, "blocks.0.mlp.fc.weight", RF_REGION_COPY, 5);
                        }),
                "the 16-bit copy of parameter blocks.0.mlp.fc.weight is not the same on all ranks "
                "that have it: rank 0 differs from ranks 1-2;");
}

TEST(Audit, OfCopiesOfShardsItComparesThoseOfTheSameShard)
{
    Training t = small();
    t.shard = 2;
    t.policy.zero = 1;
    t.policy.order = RF_ORDER_RING;
    expect_said(audited(t, 4,
                        [](rf_run *run, int rank) {
                            if (rank == 3)
                                flip(run, "wte.weight", RF_REGION_STATE + RF_STATE_M, 0);
                        }),
                ".m is not the same on all ranks that have it: rank 3 differs from rank 1;");
}

TEST(Audit, TheDataCursorAndTheLossScaleAreCompared)
{
    expect_said(audited(small(), 2, nullptr,
                        [](int rank) {
                            return rf_progress{1, 5, rank ? 12 : 8, 0, 0};
                        }),
                "the data cursor's number of samples is not the same");
    Training t = small();
    t.policy.loss_scale = 64;
    expect_said(audited(t, 2,
                        [](rf_run *run, int rank) {
                            auto *scalars =
                                (rf_step_scalars *)rf_tensor_map(run->regions[RF_REGION_SCALARS]);
                            scalars->loss_scale *= rank ? 2 : 1;
                        }),
                "the loss scale is not the same");
}

TEST(Audit, ATiedCopyThatOnePipelineStageUpdatesAloneIsNamed)
{
    Training t = small();
    t.pp = 2;
    // The rank with the first use sends back the gradient it received instead of the sum.
    t.edit = [](rf_plan *plan, int rank) {
        rf_list &list = plan->lists[RF_LIST_STEP];
        int other = -1;
        for (int i = 0; rank == 0 && i < list.count; i++) {
            const rf_instruction &at = list.instructions[i];
            int *operand = &plan->operands[at.first_operand];
            if (at.verb == RF_VERB_RECV && plan->values[*operand].kind == RF_VALUE_GRAD_TIED)
                other = *operand;
            if (at.verb == RF_VERB_SEND && other >= 0)
                *operand = other;
        }
    };
    expect_said(audited(t, 2), "parameter wte.weight is not the same on all ranks that have it: "
                               "rank 1 differs from rank 0;");
}

TEST(Audit, AGradientThatOneRankCountsTwiceIsNamed)
{
    Training t = small(); // in tree order each use of a tied parameter has a gradient of its own
    t.edit = [](rf_plan *plan, int rank) {
        if (rank == 2)
            duplicate(plan, RF_VERB_TIE);
    };
    expect_said(audited(t, 3), "parameter wte.weight is not the same on all ranks that have it: "
                               "rank 2 differs from ranks 0-1;");
}

TEST(Audit, ManyRanksAreNamedAsRanges)
{
    Training t = small();
    t.steps = 0;
    t.policy.batch = t.policy.micro_batches = 6;
    expect_said(audited(t, 6, nullptr,
                        [](int rank) {
                            return rf_progress{0, 5, rank == 1 ? 1 : rank == 5 ? 2 : 0, 0, 0};
                        }),
                "ranks 1, 5 differ from ranks 0, 2-4;");
}
