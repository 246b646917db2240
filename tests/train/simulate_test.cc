// SPDX-License-Identifier: MIT
//
// Predicted times: timelines of tiny lists worked out by hand, and claims about plans whose verbs
// take whole numbers of seconds. No device is needed.
#include "simulate_lists.h"

// Lanes in list order, waits between them; worked out by hand:
//   compute: a [0, 2)  b [2, 5)              d waits for c: [7, 8)
//   data:              c waits for a: [2, 7)
TEST(Simulate, LanesRunInListOrderAndAfterTheirWaits)
{
    List list;
    list.add(RF_VERB_FORWARD, RF_LANE_COMPUTE)
        .add(RF_VERB_NORM, RF_LANE_COMPUTE)
        .add(RF_VERB_REDUCE, RF_LANE_DATA, {{RF_LANE_COMPUTE, 0}})
        .reduces(1)
        .add(RF_VERB_STEP, RF_LANE_COMPUTE, {{RF_LANE_DATA, 0}});
    std::vector<double> verb_s(RF_VERB_COUNT, 0);
    verb_s[RF_VERB_FORWARD] = 2;
    verb_s[RF_VERB_NORM] = 3;
    verb_s[RF_VERB_REDUCE] = 5;
    verb_s[RF_VERB_STEP] = 1;
    rf_sim_opts opts = free_of_cost();
    opts.verb_s = verb_s.data();
    Sim sim = run({list.plan()}, opts);
    EXPECT_EQ(times_of(sim), (Times{{0, 0, 2}, {2, 2, 5}, {2, 2, 7}, {7, 7, 8}}));
    const rf_sim_result r = result_of(sim);
    EXPECT_EQ(r.step_s, 8);
    EXPECT_EQ(r.busy_s[RF_LANE_COMPUTE], 6);
    EXPECT_EQ(r.busy_s[RF_LANE_DATA], 5);
    EXPECT_EQ(r.exposed_s, 2); // from 5 to 7
    EXPECT_EQ(r.idle, 0.25);
    EXPECT_EQ(r.path_s[RF_BOUND_COMPUTE], 3); // forward, reduce, step
    EXPECT_EQ(r.path_s[RF_BOUND_NETWORK], 5);
    EXPECT_EQ(r.bound, RF_BOUND_NETWORK);
}

TEST(Simulate, ATransferBeginsWhenTheLastRankOfItsGroupIsThereAndEndsOnAllAtOnce)
{
    // The same verbs; rank 1 computes twice before the first transfer.
    List fast(2), slow(2);
    fast.add(RF_VERB_FORWARD, RF_LANE_COMPUTE)
        .add(RF_VERB_REDUCE, RF_LANE_DATA, {{RF_LANE_COMPUTE, 0}})
        .reduces(8)
        .add(RF_VERB_STEP, RF_LANE_COMPUTE, {{RF_LANE_DATA, 0}});
    slow.add(RF_VERB_FORWARD, RF_LANE_COMPUTE)
        .add(RF_VERB_FORWARD, RF_LANE_COMPUTE)
        .add(RF_VERB_REDUCE, RF_LANE_DATA, {{RF_LANE_COMPUTE, 1}})
        .reduces(8)
        .add(RF_VERB_STEP, RF_LANE_COMPUTE, {{RF_LANE_DATA, 0}});
    std::vector<double> verb_s = all_by_rates();
    verb_s[RF_VERB_FORWARD] = 4;
    verb_s[RF_VERB_STEP] = 1;
    rf_sim_opts opts = free_of_cost();
    opts.verb_s = verb_s.data();
    opts.rates.link_bytes_per_s = 16;
    opts.rates.link_latency_s = 0.25;
    // 32 bytes on two ranks: in one round, each sends all of it (algorithm "recursive_doubling").
    const double link = 0.25 + 32 / 16.0;
    Sim sim = run({fast.plan(), slow.plan()}, opts);
    EXPECT_EQ(times_of(sim, 0),
              (Times{{0, 0, 4}, {4, 8, 8 + link}, {8 + link, 8 + link, 9 + link}}));
    EXPECT_EQ(times_of(sim, 1),
              (Times{{0, 0, 4}, {4, 4, 8}, {8, 8, 8 + link}, {8 + link, 8 + link, 9 + link}}));
    EXPECT_EQ(result_of(sim, 0).exposed_s, 4 + link); // it waits for rank 1, too
    EXPECT_EQ(result_of(sim, 1).exposed_s, link);
    EXPECT_EQ(result_of(sim, 0).path_s[RF_BOUND_COMPUTE], 9); // of rank 1, which all wait for
    EXPECT_EQ(result_of(sim, 0).step_s, 9 + link);
    EXPECT_EQ(result_of(sim, 1).step_s, 9 + link);
}

TEST(Simulate, GroupsOfOneLaneDoNotWaitForEachOther)
{
    std::vector<List> lists(4, List(4));
    std::vector<const rf_plan *> plans;
    for (int rank = 0; rank < 4; rank++) { // groups 0, 1 and 2, 3; rank r computes r times
        lists[(size_t)rank].group(RF_LANE_SHARD, rank / 2 * 2, 2);
        for (int k = 0; k < rank; k++)
            lists[(size_t)rank].add(RF_VERB_FORWARD, RF_LANE_COMPUTE);
        std::vector<rf_wait> waits;
        if (rank > 0)
            waits.push_back({RF_LANE_COMPUTE, rank - 1});
        lists[(size_t)rank].add(RF_VERB_REDUCE, RF_LANE_SHARD, waits).reduces(8);
        plans.push_back(lists[(size_t)rank].plan());
    }
    std::vector<double> verb_s(RF_VERB_COUNT, 1);
    rf_sim_opts opts = free_of_cost();
    opts.verb_s = verb_s.data();
    Sim sim = run(plans, opts);
    EXPECT_EQ(times_of(sim, 0).back(), (std::vector<double>{0, 1, 2}));
    EXPECT_EQ(times_of(sim, 1).back(), (std::vector<double>{1, 1, 2}));
    EXPECT_EQ(times_of(sim, 2).back(), (std::vector<double>{2, 3, 4}));
    EXPECT_EQ(times_of(sim, 3).back(), (std::vector<double>{3, 3, 4}));
    EXPECT_EQ(result_of(sim, 0).step_s, 4);
    EXPECT_EQ(result_of(sim, 0).busy_s[RF_LANE_SHARD], 1);
}

// The host's work moves all its operands, a copy moves the copied bytes once.
TEST(Simulate, AnInstructionWithoutARuleMovesItsOperands)
{
    List list;
    list.add(RF_VERB_LOAD, RF_LANE_HOST)
        .touches({600, 400}, RF_MEMORY_HOST)
        .add(RF_VERB_FETCH, RF_LANE_FETCH, {{RF_LANE_HOST, 0}})
        .touches({500}, RF_MEMORY_HOST)
        .touches({250, 250}, RF_MEMORY_DEVICE)
        .add(RF_VERB_BEGIN_STEP, RF_LANE_COMPUTE, {{RF_LANE_FETCH, 0}})
        .touches({100, 0, 100}, RF_MEMORY_DEVICE);
    rf_sim_opts opts = free_of_cost();
    opts.rates.host_bytes_per_s = 500;
    opts.rates.bytes_per_s = 800;
    opts.rates.launch_s = 0.5;
    Sim sim = run({list.plan()}, opts);
    EXPECT_EQ(times_of(sim), (Times{{0, 0, 2}, {2, 2, 3}, {3, 3, 3.75}}));
    EXPECT_EQ(result_of(sim).path_s[RF_BOUND_HOST], 3);
    EXPECT_EQ(result_of(sim).path_s[RF_BOUND_MEMORY], 0.25);
    EXPECT_EQ(result_of(sim).path_s[RF_BOUND_LAUNCH], 0.5);
    EXPECT_EQ(result_of(sim).bound, RF_BOUND_HOST);
}

TEST(Simulate, EveryVerbLaneAndBoundHasAName)
{
    for (int verb = 0; verb < RF_VERB_COUNT; verb++)
        EXPECT_STRNE(rf_verb_name((rf_verb)verb), nullptr) << verb;
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        EXPECT_STRNE(rf_lane_name((rf_lane)lane), nullptr) << lane;
    for (int bound = 0; bound < RF_BOUND_COUNT; bound++)
        EXPECT_STRNE(rf_bound_name((rf_bound)bound), nullptr) << bound;
    EXPECT_STREQ(rf_lane_name(RF_LANE_COUNT), "?");
}

// States, gradients and weights on the host: each gradient leaves the device once, and each weight
// returns once.
TEST(Simulate, OffloadedStatesTakeTheirCopiesOverTheHostsMemory)
{
    StubBlocks blocks = chain();
    rf_policy policy = policy_of(1);
    policy.offload = RF_OFFLOAD_OPTIMIZER;
    Plan plan = plan_of(blocks, 1, policy);
    rf_sim_opts opts = free_of_cost();
    opts.rates.host_bytes_per_s = 4 * (double)elements; // a block's gradients in 1 s
    Sim sim = run({plan.get()}, opts);
    const rf_sim_result r = result_of(sim);
    EXPECT_EQ(r.busy_s[RF_LANE_EVICT], blocks_of_chain);
    EXPECT_GE(r.busy_s[RF_LANE_HOST], blocks_of_chain);
    EXPECT_EQ(r.bound, RF_BOUND_HOST);
    EXPECT_EQ(r.busy_s[RF_LANE_COMPUTE], 0);
}

// A saved value and an output of each block are copied out within the time of its forward pass, and
// back within half of that of its backward pass, one block ahead: nothing waits for them. If they
// take longer, the computation takes as long.
TEST(Simulate, ActivationsLeaveAndComeBackWhileOtherBlocksCompute)
{
    StubBlocks blocks = chain();
    for (int b = blocks_of_chain; b < 12; b++)
        blocks.add("b" + std::to_string(b), {64});
    for (int micro_batches : {1, 3}) {
        rf_policy policy = policy_of(micro_batches);
        policy.offload = RF_OFFLOAD_ACTIVATIONS;
        Plan plan = plan_of(blocks, 1, policy);
        Seconds s(0);
        const double compute_s = 3.0 * 12 * micro_batches;
        s.verb_s[RF_VERB_EVICT] = s.verb_s[RF_VERB_FETCH] = 0.5;
        EXPECT_EQ(result_of(run({plan.get()}, s.opts)).step_s, compute_s);
        s.verb_s[RF_VERB_EVICT] = 1;
        EXPECT_GT(result_of(run({plan.get()}, s.opts)).step_s, compute_s + 12 / 2);
    }
}

TEST(Simulate, DataParallelExposesTheLastBucketAloneWhereABucketTakesHalfOfItsCompute)
{
    StubBlocks blocks = chain();
    Plan plan = plan_of(blocks, 2, policy_of(2));
    ASSERT_EQ(plan->trained_pieces, blocks_of_chain);
    for (double bucket_s : {0.25, 1.0, 2.0}) { // a block's backward pass: 2
        Sim sim = run({plan.get()}, Seconds(bucket_s).opts);
        const rf_sim_result r = result_of(sim);
        EXPECT_EQ(r.step_s, 3 * blocks_of_chain + bucket_s);
        EXPECT_EQ(r.exposed_s, bucket_s);
        EXPECT_EQ(r.busy_s[RF_LANE_COMPUTE], 3 * blocks_of_chain);
        EXPECT_EQ(r.busy_s[RF_LANE_DATA], blocks_of_chain * bucket_s);
        EXPECT_EQ(r.bound, RF_BOUND_COMPUTE);
    }
}

// As soon as a bucket takes longer than a block's backward pass, each exposes the difference.
TEST(Simulate, ASlowLinkExposesWhatItTakesLongerThanTheBackwardPass)
{
    StubBlocks blocks = chain();
    Plan plan = plan_of(blocks, 2, policy_of(2));
    Sim sim = run({plan.get()}, Seconds(8).opts);
    const rf_sim_result r = result_of(sim);
    EXPECT_EQ(r.step_s, blocks_of_chain + 2 + blocks_of_chain * 8);
    EXPECT_EQ(r.exposed_s, blocks_of_chain * 8 - 2 * (blocks_of_chain - 1));
    EXPECT_EQ(r.bound, RF_BOUND_NETWORK);
}

TEST(Simulate, AFreeLinkLeavesTheSumOfCompute)
{
    StubBlocks blocks = chain();
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int zero = 0; zero < 4; zero++) {
            rf_policy policy = policy_of(4, order);
            policy.zero = zero;
            Plan plan = plan_of(blocks, 2, policy);
            Sim sim = run({plan.get()}, Seconds(0).opts);
            EXPECT_EQ(result_of(sim).step_s, 2 * 3 * blocks_of_chain);
            EXPECT_EQ(result_of(sim).exposed_s, 0);
            EXPECT_EQ(result_of(sim).idle, 0);
        }
}

// Parameters gathered one block ahead are hidden behind the block before; otherwise each gather is
// waited for: once for the forward pass and once for the backward pass, except for the last
// block's, which stays.
TEST(Simulate, GatheringAheadExposesTheFirstGatherAlone)
{
    StubBlocks blocks = chain();
    for (bool ahead : {true, false})
        for (double gather_s : {0.25, 1.0}) { // a block's forward pass: 1
            rf_policy policy = policy_of(2);
            policy.zero = 3;
            policy.no_prefetch = !ahead;
            Plan plan = plan_of(blocks, 2, policy);
            Seconds s(0);
            s.verb_s[RF_VERB_GATHER] = gather_s;
            Sim sim = run({plan.get()}, s.opts);
            const double gathers = ahead ? 1 : 2 * blocks_of_chain - 1;
            EXPECT_EQ(result_of(sim).exposed_s, gathers * gather_s) << ahead;
            EXPECT_EQ(result_of(sim).step_s, 3 * blocks_of_chain + gathers * gather_s);
        }
}

TEST(Simulate, RecomputationTakesOneMoreForwardPassOfWhatIsNotKept)
{
    StubBlocks blocks = chain();
    std::vector<rf_block_cost> costs(blocks_of_chain);
    for (rf_block_cost &cost : costs) {
        cost.forward.flops = 10;
        for (int k = 0; k < 2; k++)
            cost.backward_input[k].flops = cost.backward_weight[k].flops = 10;
    }
    double step_s[2], mfu[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        rf_policy policy = policy_of(1);
        policy.recompute = recompute;
        Plan plan = plan_of(blocks, 1, policy);
        rf_sim_opts opts = free_of_cost();
        opts.costs = costs.data();
        opts.rates.block_flops_per_s = 10;
        Sim sim = run({plan.get()}, opts);
        step_s[recompute] = result_of(sim).step_s;
        mfu[recompute] = result_of(sim).mfu;
    }
    EXPECT_EQ(step_s[0], 3 * blocks_of_chain);
    EXPECT_EQ(step_s[1], 4 * blocks_of_chain - 1); // the last block keeps its parameters
    EXPECT_NEAR(mfu[1] / mfu[0], 12 / 15.0, 1e-9); // repeated work does not belong to the model
}

// Two steps of the ring of N ranks, a bucket each: the form of docs/collectives.md.
TEST(Simulate, ALongAllReduceTakesTheRoundsAndTheBytesOfARing)
{
    StubBlocks blocks;
    blocks.add("b", {1 << 22});
    for (int ranks : {3, 4, 64}) {
        Plan plan = plan_of(blocks, ranks, policy_of(ranks));
        rf_sim_opts opts = free_of_cost();
        opts.rates.link_bytes_per_s = 1 << 20;
        opts.rates.link_latency_s = 0.5;
        std::vector<double> verb_s(RF_VERB_COUNT, 0);
        verb_s[RF_VERB_REDUCE] = -1;
        opts.verb_s = verb_s.data();
        Sim sim = run({plan.get()}, opts);
        uint64_t sent = 0;
        EXPECT_EQ(rf_coll_sent_bytes_as(RF_COLL_ALL_REDUCE, "ring", 0, ranks, 1 << 22, RF_F32,
                                        RF_ORDER_RING, 0, &sent),
                  0);
        EXPECT_EQ(result_of(sim).step_s, 2 * (ranks - 1) * 0.5 + (double)sent / (1 << 20));
    }
}

TEST(Simulate, AnUpdateOnRankZeroWaitsForItsLink)
{
    StubBlocks blocks = chain();
    rf_policy policy = policy_of(4);
    policy.update_on_rank_0 = true;
    Plan root = plan_of(blocks, 4, policy), other = plan_of(blocks, 4, policy, 1);
    Seconds s(1);
    s.verb_s[RF_VERB_BROADCAST] = -1;
    // All gradients and all weights, three times in each direction.
    const double wanted = 3.0 * blocks_of_chain * 2;
    for (const Sim &sim :
         {run({root.get(), other.get()}, s.opts), run({other.get(), root.get()}, s.opts)})
        for (int rank = 0; rank < 2; rank++)
            EXPECT_NEAR(result_of(sim, rank).busy_s[RF_LANE_DATA], wanted, 1e-3);
}

TEST(Simulate, AStepTakesAtLeastAsLongAsEachLaneIsBusyAndItsPathAddsUpToIt)
{
    StubBlocks blocks = chain();
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int zero = 0; zero < 4; zero++)
            for (int ranks : {1, 2, 3, 5})
                for (double bucket_s : {0.5, 3.0}) {
                    rf_policy policy = policy_of(7, order);
                    policy.zero = zero;
                    policy.recompute = zero % 2;
                    policy.offload = ranks % 2 ? RF_OFFLOAD_OPTIMIZER : 0;
                    std::vector<Plan> owned;
                    std::vector<const rf_plan *> plans;
                    for (int rank = 0; rank < ranks; rank++) {
                        owned.push_back(plan_of(blocks, ranks, policy, rank));
                        plans.push_back(owned.back().get());
                    }
                    rf_sim_opts opts = Seconds(bucket_s).opts;
                    opts.verb_s = nullptr;
                    opts.rates.bytes_per_s = opts.rates.host_bytes_per_s = 1e6;
                    opts.rates.link_latency_s = 0.01;
                    Sim sim = run(plans, opts);
                    for (int rank = 0; rank < ranks; rank++) {
                        const rf_sim_result r = result_of(sim, rank);
                        double path = 0;
                        for (double s : r.path_s)
                            path += s;
                        EXPECT_NEAR(path, r.step_s, 1e-9 * r.step_s);
                        for (double busy : r.busy_s)
                            EXPECT_LE(busy, r.step_s * (1 + 1e-12));
                        EXPECT_LE(r.exposed_s, r.step_s);
                        EXPECT_GE(r.idle, 0);
                    }
                }
}

// No instruction begins before what it waits for has ended, on any rank; transfers of all ranks
// have the same times.
TEST(Simulate, TimesOfAllRanksKeepTheOrderOfTheirListsAndTransfers)
{
    StubBlocks blocks = chain();
    const int ranks = 3;
    rf_policy policy = policy_of(7, RF_ORDER_TREE);
    policy.zero = 1;
    std::vector<Plan> owned;
    std::vector<const rf_plan *> plans;
    for (int rank = 0; rank < ranks; rank++) {
        owned.push_back(plan_of(blocks, ranks, policy, rank));
        plans.push_back(owned.back().get());
    }
    Sim sim = run(plans, Seconds(0.75).opts);
    std::vector<Times> transfers;
    for (int rank = 0; rank < ranks; rank++) {
        const Times times = times_of(sim, rank);
        const rf_list &list = plans[(size_t)rank]->lists[RF_LIST_STEP];
        std::vector<std::vector<double>> ends(RF_LANE_COUNT);
        transfers.emplace_back();
        for (int k = 0; k < list.count; k++) {
            const rf_instruction &i = list.instructions[k];
            const std::vector<double> &t = times[(size_t)k];
            if (!ends[i.lane].empty()) {
                EXPECT_GE(t[1], ends[i.lane].back());
            }
            for (int n = 0; n < i.waits; n++) {
                const rf_wait wait = plans[(size_t)rank]->waits[i.first_wait + n];
                EXPECT_GE(t[1], ends[(size_t)wait.lane][(size_t)wait.position]);
            }
            ends[i.lane].push_back(t[2]);
            if (i.transfer >= 0)
                transfers.back().push_back({t[1], t[2]});
        }
    }
    EXPECT_EQ(transfers[0], transfers[1]);
    EXPECT_EQ(transfers[0], transfers[2]);
}

TEST(Simulate, OneRankOfEachKindIsAsGoodAsAllRanks)
{
    StubBlocks blocks = chain();
    for (const auto &[order, zero] : {std::pair<rf_order, int>{RF_ORDER_RING, 0},
                                      {RF_ORDER_TREE, 0},
                                      {RF_ORDER_RING, 2},
                                      {RF_ORDER_TREE, 3}}) {
        const int ranks = 6;
        rf_policy policy = policy_of(15, order);
        policy.zero = zero;
        // Shards of equivalent ranks differ by some chunks of the norm, and their messages around a
        // ring by two elements for each bucket.
        const double two_elements_s = 2 * 4 / Seconds(0.5).opts.rates.link_bytes_per_s;
        const double tolerance = zero ? 0.01 : blocks_of_chain * two_elements_s;
        std::vector<Plan> owned;
        std::vector<const rf_plan *> plans;
        for (int rank = 0; rank < ranks; rank++) {
            owned.push_back(plan_of(blocks, ranks, policy, rank));
            plans.push_back(owned.back().get());
        }
        const Seconds s(0.5);
        Sim all = run(plans, s.opts);
        for (int rank = 0; rank < ranks; rank++) {
            rf_sim *job = nullptr;
            ASSERT_EQ(rf_plan_simulate_job(plans[(size_t)rank], &s.opts, &job), 0);
            Sim own(job, rf_sim_destroy);
            const Times one = times_of(own), each = times_of(all, rank);
            ASSERT_EQ(one.size(), each.size());
            for (size_t i = 0; i < one.size(); i++)
                for (int k = 0; k < 3; k++)
                    EXPECT_NEAR(one[i][(size_t)k], each[i][(size_t)k], tolerance) << rank;
        }
    }
}

TEST(Simulate, OutOfHostMemoryAtAnyCallIsAnErrorAndLeavesNothing)
{
    StubBlocks blocks = chain();
    Plan plan = plan_of(blocks, 2, policy_of(3)); // two kinds of ranks
    const Seconds s(1);
    rf_sim *sim = nullptr;
    uint64_t nth = 1;
    for (;; nth++) {
        rf_alloc_fail_at(nth);
        const int rc = rf_plan_simulate_job(plan.get(), &s.opts, &sim);
        rf_alloc_fail_at(0);
        if (rc == 0)
            break;
        ASSERT_EQ(rc, RF_ENOMEM) << nth << ": " << rf_last_error()->message;
        ASSERT_EQ(sim, nullptr) << nth;
    }
    EXPECT_GT(nth, 10u);
    rf_sim_destroy(sim);
}

// 64 bytes on the ranks of a group: each passes on 2 (n - 1) / n of them.
TEST(Simulate, RanksOfOneHostReachEachOtherByTheirOwnLinks)
{
    auto all_reduce_s = [](int first, int size, int host_ranks) {
        List list(size);
        list.group(RF_LANE_DATA, first, size);
        list.add(RF_VERB_REDUCE, RF_LANE_DATA).reduces(16);
        rf_sim_opts opts = free_of_cost();
        opts.rates.link_bytes_per_s = 1;
        opts.rates.link_latency_s = 1000;
        opts.rates.host_ranks = host_ranks;
        opts.rates.intra_host_bytes_per_s = 16;
        opts.rates.intra_host_latency_s = 2000;
        return result_of(run({list.plan()}, opts)).step_s;
    };
    const double rounds = std::floor(all_reduce_s(0, 4, 0) / 1000);
    const double bytes = all_reduce_s(0, 4, 0) - 1000 * rounds;
    EXPECT_EQ(all_reduce_s(4, 4, 4), 2000 * rounds + bytes / 16);
    EXPECT_EQ(all_reduce_s(0, 4, 8), 2000 * rounds + bytes / 16);
    // Each host has one of them: everything goes between hosts.
    EXPECT_EQ(all_reduce_s(0, 4, 1), 1000 * rounds + bytes);
    // Two on each of two hosts: between hosts a third, within them two thirds, at 16 times the
    // rate.
    EXPECT_NEAR(all_reduce_s(0, 4, 2), 1000 * rounds + bytes / 3 + bytes / 16 * 2 / 3, 1e-9);
}

// Of three tensor groups the middle one is on both hosts of 6 ranks.
TEST(Simulate, TensorGroupsTakeAsLongAsTheSlowestWhereHostsCutThemUnevenly)
{
    auto all_reduce_s = [](int first, int host_ranks) {
        List list;
        list.mesh(3, 4);
        list.group(RF_LANE_TENSOR, first, 4);
        list.add(RF_VERB_EXCHANGE, RF_LANE_TENSOR).reduces(16);
        rf_sim_opts opts = free_of_cost();
        opts.rates.link_bytes_per_s = 1;
        opts.rates.link_latency_s = 1000;
        opts.rates.host_ranks = host_ranks;
        opts.rates.intra_host_bytes_per_s = 16;
        opts.rates.intra_host_latency_s = 10;
        return result_of(run({list.plan()}, opts)).step_s;
    };
    for (const int first : {0, 4, 8}) {
        for (const int host_ranks : {6, 3, 5, 7})
            EXPECT_EQ(all_reduce_s(first, host_ranks), all_reduce_s(0, 0)) << first;
        for (const int host_ranks : {4, 12, 16})
            EXPECT_LT(all_reduce_s(first, host_ranks), all_reduce_s(0, 0) / 10) << first;
    }
}

TEST(Simulate, RefusesRatesThatAreNoneAndListsThatWaitForEver)
{
    List list;
    list.add(RF_VERB_FORWARD, RF_LANE_COMPUTE);
    const rf_plan *plan = list.plan();
    rf_sim *sim = nullptr;
    struct Rate {
        double rf_sim_rates::*field;
        const char *name;
    };
    const Rate rates[] = {{&rf_sim_rates::block_flops_per_s, "block_flops_per_s"},
                          {&rf_sim_rates::flops_per_s, "flops_per_s"},
                          {&rf_sim_rates::bytes_per_s, "bytes_per_s"},
                          {&rf_sim_rates::host_bytes_per_s, "host_bytes_per_s"},
                          {&rf_sim_rates::link_bytes_per_s, "link_bytes_per_s"}};
    auto refused = [&](const rf_sim_opts &opts, const std::string &sentence) {
        EXPECT_EQ(rf_plan_simulate(&plan, 1, &opts, &sim), RF_EINVAL);
        EXPECT_EQ(rf_plan_simulate_job(plan, &opts, &sim), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(sentence), std::string::npos)
            << rf_last_error()->message;
        EXPECT_EQ(sim, nullptr);
    };
    for (const Rate &rate : rates)
        for (double bad : {nan_, -1.0, 0.0, -inf}) {
            rf_sim_opts opts = free_of_cost();
            opts.rates.*rate.field = bad;
            refused(opts, std::string(rate.name) + " is ");
        }
    for (double bad : {nan_, -1.0, inf}) {
        rf_sim_opts opts = free_of_cost();
        opts.rates.launch_s = bad;
        refused(opts, "launch_s is ");
        opts = free_of_cost();
        opts.rates.link_latency_s = bad;
        refused(opts, "link_latency_s is ");
        opts = free_of_cost();
        opts.rates.host_ranks = 2;
        opts.rates.intra_host_bytes_per_s = 1;
        opts.rates.intra_host_latency_s = bad;
        refused(opts, "intra_host_latency_s is ");
    }
    rf_sim_opts hosts = free_of_cost();
    hosts.rates.host_ranks = 2;
    refused(hosts, "intra_host_bytes_per_s is 0");
    hosts.rates.host_ranks = -1;
    refused(hosts, "host_ranks is -1");
    std::vector<double> verb_s(RF_VERB_COUNT, 0);
    verb_s[RF_VERB_NORM] = nan_;
    rf_sim_opts opts = free_of_cost();
    opts.verb_s = verb_s.data();
    refused(opts, "\"global norm\" takes nan seconds");

    List waits;
    waits.add(RF_VERB_FORWARD, RF_LANE_COMPUTE, {{RF_LANE_DATA, 0}})
        .add(RF_VERB_NORM, RF_LANE_COMPUTE);
    plan = waits.plan();
    opts = free_of_cost();
    EXPECT_EQ(rf_plan_simulate(&plan, 1, &opts, &sim), RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message, "simulate: rank 0 waits forever at \"forward\"");
}
