// SPDX-License-Identifier: MIT
//
// Tiny lists written by hand, plans of stub blocks, and the times of their verbs: inputs of
// simulate_test.cc.
#ifndef RF_TESTS_TRAIN_SIMULATE_LISTS_H
#define RF_TESTS_TRAIN_SIMULATE_LISTS_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "stub_blocks.h"

extern "C" {
#include "base/base.h"
#include "parallel/plan/plan.h"
}

const double inf = std::numeric_limits<double>::infinity();
const double nan_ = std::numeric_limits<double>::quiet_NaN();

using Plan = std::unique_ptr<rf_plan, void (*)(rf_plan *)>;
using Sim = std::unique_ptr<rf_sim, void (*)(rf_sim *)>;

// Only the times that a test sets are not zero.
inline rf_sim_opts free_of_cost()
{
    rf_sim_opts opts = {};
    opts.rates = {inf, inf, inf, inf, 0, inf, 0, 0, 0, 0};
    return opts;
}

inline Sim run(const std::vector<const rf_plan *> &plans, const rf_sim_opts &opts)
{
    rf_sim *sim = nullptr;
    EXPECT_EQ(rf_plan_simulate(plans.data(), (int)plans.size(), &opts, &sim), 0)
        << rf_last_error()->message;
    return Sim(sim, rf_sim_destroy);
}

inline rf_sim_result result_of(const Sim &sim, int number = 0)
{
    rf_sim_result result;
    rf_sim_get_result(sim.get(), number, &result);
    return result;
}

// ---- lists by hand

// The list of one rank, instruction by instruction.
class List
{
  public:
    explicit List(int dp = 1)
    {
        plan_.mesh.dp = dp;
        for (auto &group : plan_.groups)
            group.size = group.stride = 1;
        plan_.groups[RF_LANE_DATA].size = dp;
        plan_.regions = regions_;
    }
    List &add(rf_verb verb, rf_lane lane, const std::vector<rf_wait> &waits = {})
    {
        rf_instruction i = {};
        i.verb = verb;
        i.lane = lane;
        i.block = i.micro_batch = -1;
        i.transfer = -1;
        i.first_wait = (int)waits_.size();
        i.waits = (int)waits.size();
        waits_.insert(waits_.end(), waits.begin(), waits.end());
        list_.push_back(i);
        return *this;
    }
    // Its ranks on this lane.
    void group(rf_lane lane, int first, int size)
    {
        plan_.groups[lane].first = first;
        plan_.groups[lane].size = size;
    }
    void mesh(int dp, int tp)
    {
        plan_.mesh.dp = dp;
        plan_.mesh.tp = tp;
        plan_.mesh.pp = 1;
    }
    // The last one reads and writes values of these sizes.
    List &touches(const std::vector<uint64_t> &bytes, rf_memory memory)
    {
        if (list_.back().ins == 0)
            list_.back().first_operand = (int)operands_.size();
        for (uint64_t b : bytes) {
            rf_value v = {};
            v.bytes = b;
            v.region = memory;
            operands_.push_back((int)values_.size());
            values_.push_back(v);
        }
        list_.back().ins += (int)bytes.size();
        return *this;
    }
    // The last one is an all-reduce of `count` floats.
    List &reduces(size_t count)
    {
        rf_transfer t = {};
        t.op = RF_COLL_ALL_REDUCE;
        t.count = count;
        t.dtype = RF_F32;
        t.order = RF_ORDER_RING;
        t.group = list_.back().lane;
        list_.back().transfer = (int)transfers_.size();
        transfers_.push_back(t);
        return *this;
    }
    const rf_plan *plan()
    {
        rf_list &list = plan_.lists[RF_LIST_STEP];
        memset(list.positions, 0, sizeof(list.positions));
        for (const rf_instruction &i : list_)
            list.positions[i.lane]++;
        list.instructions = list_.data();
        list.count = (int)list_.size();
        plan_.waits = waits_.data();
        plan_.operands = operands_.data();
        plan_.values = values_.data();
        plan_.transfers = transfers_.data();
        return &plan_;
    }

  private:
    rf_plan plan_ = {};
    rf_plan_region regions_[2] = {{RF_CATEGORY_OTHER, RF_MEMORY_DEVICE, 0},
                                  {RF_CATEGORY_OTHER, RF_MEMORY_HOST, 0}};
    std::vector<rf_instruction> list_;
    std::vector<rf_wait> waits_;
    std::vector<int> operands_;
    std::vector<rf_value> values_;
    std::vector<rf_transfer> transfers_;
};

using Times = std::vector<std::vector<double>>; // ready, begin, end

inline Times times_of(const Sim &sim, int number = 0)
{
    int count = 0;
    const rf_sim_time *times = rf_sim_times(sim.get(), number, &count);
    Times out;
    for (int i = 0; i < count; i++)
        out.push_back({times[i].ready_s, times[i].begin_s, times[i].end_s});
    return out;
}

inline std::vector<double> all_by_rates()
{
    return std::vector<double>(RF_VERB_COUNT, -1);
}

// ---- plans of four blocks

inline Plan plan_of(const StubBlocks &blocks, int dp, const rf_policy &policy, int rank = 0)
{
    rf_mesh mesh = {};
    mesh.dp = dp;
    rf_plan *plan = nullptr;
    EXPECT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, rank, &plan), 0)
        << rf_last_error()->message;
    return Plan(plan, rf_plan_destroy);
}

const int blocks_of_chain = 4;
const int64_t elements = 1 << 20; // of a block's parameter: a bucket of its own

inline StubBlocks chain()
{
    StubBlocks blocks;
    for (int b = 0; b < blocks_of_chain; b++)
        blocks.add("b" + std::to_string(b), {elements});
    return blocks;
}

inline rf_policy policy_of(int64_t micro_batches, rf_order order = RF_ORDER_RING)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = micro_batches;
    policy.seq = 8;
    policy.order = order;
    policy.bucket_bytes = policy.first_bucket_bytes = 4 * (uint64_t)elements;
    return policy;
}

// A forward pass of a block takes 1 s, each half of its backward pass too; a bucket of a block on
// two ranks, whose all-reduce sends it once, takes `bucket_s`; everything else takes no time.
struct Seconds {
    std::vector<double> verb_s = std::vector<double>(RF_VERB_COUNT, 0);
    rf_sim_opts opts = free_of_cost();
    explicit Seconds(double bucket_s)
    {
        verb_s[RF_VERB_FORWARD] = verb_s[RF_VERB_BACKWARD_INPUT] = 1;
        verb_s[RF_VERB_BACKWARD_WEIGHT] = 1;
        verb_s[RF_VERB_REDUCE] = verb_s[RF_VERB_GATHER] = -1;
        opts.verb_s = verb_s.data();
        if (bucket_s > 0)
            opts.rates.link_bytes_per_s = 4 * (double)elements / bucket_s;
    }
};

#endif
