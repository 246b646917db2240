// SPDX-License-Identifier: MIT
//
// One of three ranks disagrees: in what it says when a run is opened, or, though all agreed then,
// in what its list does. All ranks hear which one, and what differs.
#include <cstring>

#include "faults.h"

namespace
{

constexpr int odd = 1;

struct Difference {
    const char *words; // in the message
    std::function<void(rf_policy *, StubBlocks *)> change;
};

void expect_named(int status)
{
    EXPECT_EQ(status, RF_EMISMATCH) << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr) << rf_last_error()->message;
}

void open_differently(const Difference &difference)
{
    ranks::World world;
    world.size = FAULT_RANKS;
    for (int r = 0; r < FAULT_RANKS; r++)
        rank_device(r);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        StubBlocks blocks;
        rf_policy policy = policy_of(step_kinds[0]);
        rf_mesh mesh = {FAULT_RANKS, 1, 1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        blocks.add("a", {3000, 40}).add("b", {3000});
        policy.batch = 12;
        policy.first_bucket_bytes = 2 << 20;
        policy.bucket_bytes = 4 << 20;
        if (rank == odd)
            difference.change(&policy, &blocks);
        ASSERT_RF(rf_plan_build(blocks.blocks(), blocks.count(), &mesh, &policy, rank, &plan));
        expect_named(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        EXPECT_NE(strstr(rf_last_error()->message, difference.words), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(run, nullptr);
        rf_plan_destroy(plan);
    });
}

} // namespace

TEST(Disagree, EachDifferenceOfPolicyOrModelIsNamedWhenARunIsOpened)
{
    const Difference differences[] = {
        {"batch", [](rf_policy *p, StubBlocks *) { p->batch *= 2; }},
        {"sequence length", [](rf_policy *p, StubBlocks *) { p->seq = 8; }},
        {"micro-batches", [](rf_policy *p, StubBlocks *) { p->micro_batches = 6; }},
        {"order", [](rf_policy *p, StubBlocks *) { p->order = RF_ORDER_TREE; }},
        {"update on rank 0", [](rf_policy *p, StubBlocks *) { p->update_on_rank_0 = true; }},
        {"zero stage", [](rf_policy *p, StubBlocks *) { p->zero = 1; }},
        {"bucket sizes", [](rf_policy *p, StubBlocks *) { p->bucket_bytes = 1 << 20; }},
        {"bucket sizes", [](rf_policy *p, StubBlocks *) { p->first_bucket_bytes = 1 << 20; }},
        // Whose exclusive or, the first one doubled, is the same.
        {"bucket sizes",
         [](rf_policy *p, StubBlocks *) {
             p->first_bucket_bytes = 3 << 20;
             p->bucket_bytes = 6 << 20;
         }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.kind = RF_LION; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.beta2 = 0.9f; }},
        {"clipping norm", [](rf_policy *p, StubBlocks *) { p->clip = 2; }},
        {"loss scale",
         [](rf_policy *p, StubBlocks *b) {
             b->scales_loss();
             p->loss_scale = 64;
         }},
        {"forward only", [](rf_policy *p, StubBlocks *) { p->forward_only = true; }},
        {"blocks", [](rf_policy *, StubBlocks *b) { b->add("c", {10}); }},
        {"parameters' names and shapes",
         [](rf_policy *, StubBlocks *b) { b->flag(0, RF_PARAM_DECAY); }},
        {"parameters' names and shapes", [](rf_policy *, StubBlocks *b) { b->type(0, RF_F16); }},
        {"parameter elements", [](rf_policy *, StubBlocks *b) { b->tie(0, "a.0"); }},
    };
    for (const Difference &difference : differences) {
        SCOPED_TRACE(difference.words);
        open_differently(difference);
    }
}
