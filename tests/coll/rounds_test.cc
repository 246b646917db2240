// SPDX-License-Identifier: MIT
//
// Rounds by formula (rounds.c), held against the longest chain of messages through the lists of all
// ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "simulator.h"

extern "C" {
#include "coll/table.h"
}

namespace
{

using Sched = std::unique_ptr<rf_sched, void (*)(rf_sched *)>;

// A message by who sends it to whom, and its tag.
using Message = std::tuple<int, int, uint32_t>;

// The messages that have come one after the other when each step of each rank has ended.
class Chains
{
  public:
    explicit Chains(const std::vector<Sched> &scheds) : scheds_(scheds), depth_(scheds.size())
    {
        for (size_t rank = 0; rank < scheds.size(); rank++) {
            before_.emplace_back(scheds[rank]->count);
            depth_[rank].assign(scheds[rank]->count, -1);
            for (uint32_t k = 0; k < scheds[rank]->count; k++) {
                const rf_step &step = scheds[rank]->steps[k];
                for (uint32_t n = 0; n < step.next_count; n++)
                    before_[rank][scheds[rank]->successors[step.next + n]].push_back(k);
                if (step.verb == RF_STEP_SEND)
                    sender_[{(int)rank, step.peer, step.tag}] = {(int)rank, k};
            }
        }
    }
    int longest()
    {
        int most = 0;
        for (size_t rank = 0; rank < scheds_.size(); rank++)
            for (uint32_t k = 0; k < scheds_[rank]->count; k++)
                most = std::max(most, of((int)rank, k));
        return most;
    }

  private:
    int of(int rank, uint32_t k)
    {
        int &known = depth_[(size_t)rank][k];
        if (known >= 0)
            return known;
        int depth = 0;
        for (uint32_t other : before_[(size_t)rank][k])
            depth = std::max(depth, of(rank, other));
        const rf_step &step = scheds_[(size_t)rank]->steps[k];
        if (step.verb == RF_STEP_RECV) {
            const auto from = sender_.at({step.peer, rank, step.tag});
            depth = std::max(depth, of(from.first, from.second) + 1);
        }
        return known = depth;
    }
    const std::vector<Sched> &scheds_;
    std::vector<std::vector<std::vector<uint32_t>>> before_;
    std::vector<std::vector<int>> depth_;
    std::map<Message, std::pair<int, uint32_t>> sender_;
};

void expect_rounds(rf_coll_desc desc, const char *algorithm, int &compared)
{
    std::vector<Sched> scheds;
    uint64_t rounds = 0;
    if (rf_coll_count_rounds(&desc, algorithm, &rounds) < 0)
        return;
    for (desc.rank = 0; desc.rank < desc.ranks; desc.rank++) {
        rf_sched *sched = nullptr;
        if (rf_sched_build_as(&desc, algorithm, &sched) < 0)
            return; // of ranks that share memory
        scheds.emplace_back(sched, rf_sched_destroy);
    }
    compared++;
    EXPECT_EQ(rounds, (uint64_t)Chains(scheds).longest())
        << rf_coll_op_name(desc.op) << " " << algorithm << " on " << desc.ranks << " ranks";
}

TEST(Rounds, AreTheLongestChainOfMessagesOfEveryAlgorithm)
{
    int compared = 0;
    for (int op = RF_COLL_NONE + 1; op < RF_COLL_SEND; op++)
        for (int number = 1; strcmp(rf_coll_numbered((uint8_t)number), "?") != 0; number++) {
            const char *name = rf_coll_numbered((uint8_t)number);
            if (rf_coll_number((enum rf_coll_op)op, name) != number)
                continue; // of another operation
            for (int ranks = 1; ranks <= 9; ranks++) {
                rf_coll_desc desc = {};
                desc.op = (enum rf_coll_op)op;
                desc.ranks = ranks;
                desc.count = op == RF_COLL_BARRIER ? 0 : 36;
                desc.dtype = RF_F32;
                expect_rounds(desc, name, compared);
            }
        }
    EXPECT_GT(compared, 150);
}

TEST(Rounds, OfAForestAreTwoAndOfItsScatterAndOfAPrefixOne)
{
    for (int ranks = 2; ranks <= 5; ranks++) {
        std::vector<int> first;
        for (int rank = 0; rank <= ranks; rank++)
            first.push_back(2 * rank);
        rf_forest forest = {};
        forest.ranks = ranks;
        forest.leaves = 2 * ranks;
        forest.first = first.data();
        const std::vector<size_t> counts((size_t)ranks, 36);
        rf_coll_desc desc = {};
        desc.op = RF_COLL_FOREST_ALL_REDUCE;
        desc.ranks = ranks;
        desc.dtype = RF_F32;
        desc.order = RF_ORDER_TREE;
        desc.forest = &forest;
        desc.count = desc.stride = 36 * (size_t)ranks;
        int compared = 0;
        expect_rounds(desc, "forest", compared);
        desc.op = RF_COLL_FOREST_REDUCE_SCATTER;
        desc.counts = counts.data();
        expect_rounds(desc, "forest", compared);
        desc.op = RF_COLL_PREFIX_REDUCE_SCATTER;
        desc.leaves = 2 * ranks;
        for (desc.round = 0; desc.round < 2; desc.round++)
            expect_rounds(desc, "prefix", compared);
        EXPECT_EQ(compared, 4);
    }
}

} // namespace
