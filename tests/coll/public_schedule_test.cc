// SPDX-License-Identifier: MIT
//
// The public view of schedules (ringforge/schedule.h) equals the steps that a communicator runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "coll/sched.h"
#include <ringforge/schedule.h>
}

namespace
{

rf_schedule_desc call(rf_coll_op op, int ranks, size_t count)
{
    rf_schedule_desc desc = {};
    desc.op = op;
    desc.ranks = ranks;
    desc.count = count;
    return desc;
}

void expect_refused(const rf_schedule_desc &desc, const char *sentence, int rank = 0,
                    const char *algorithm = nullptr)
{
    rf_schedule *schedule = nullptr;
    EXPECT_EQ(rf_schedule_create(&desc, rank, algorithm, &schedule), RF_EINVAL) << sentence;
    EXPECT_EQ(schedule, nullptr);
    EXPECT_NE(strstr(rf_last_error()->message, sentence), nullptr) << rf_last_error()->message;
}

TEST(PublicSchedule, RefusesWhatIsNoCall)
{
    const std::vector<size_t> counts = {1, 2, SIZE_MAX};
    const std::vector<int> hosts = {0, 2, 1};
    expect_refused(call(RF_COLL_NONE, 2, 1), "cannot be shown");
    expect_refused(call(RF_COLL_OP_COUNT, 2, 1), "cannot be shown");
    expect_refused(call(RF_COLL_FOREST_ALL_REDUCE, 2, 1), "cannot be shown");
    expect_refused(call(RF_COLL_ALL_REDUCE, 0, 1), "cannot be 0 ranks");
    expect_refused(call(RF_COLL_ALL_REDUCE, 3, 1), "rank 3 of 3", 3);
    expect_refused(call(RF_COLL_ALL_REDUCE, 3, 1), "no algorithm \"rinng\"", 0, "rinng");
    expect_refused(call(RF_COLL_ALL_REDUCE, 3, 8), "that share memory", 0, "fused");
    expect_refused(call(RF_COLL_ALL_REDUCE, 3, SIZE_MAX), "too many");
    rf_schedule_desc desc = call(RF_COLL_ALL_REDUCE, 3, 8);
    desc.counts = counts.data();
    expect_refused(desc, "does not take one count for each rank");
    desc.op = RF_COLL_ALL_GATHER;
    expect_refused(desc, "more than memory can hold");
    desc.recv_counts = counts.data();
    expect_refused(desc, "no recv_counts");
    desc.op = RF_COLL_ALL_TO_ALL;
    desc.recv_counts = nullptr;
    expect_refused(desc, "both counts and recv_counts");
    desc = call(RF_COLL_BROADCAST, 3, 8);
    desc.root = 3;
    expect_refused(desc, "rank 3 does not exist");
    desc = call(RF_COLL_ALL_REDUCE, 3, 8);
    desc.hosts = hosts.data();
    expect_refused(desc, "rank 1 is on host 2");
    desc.dtype = RF_DTYPE_COUNT;
    desc.hosts = nullptr;
    expect_refused(desc, "unknown type");
    rf_schedule *schedule = nullptr;
    EXPECT_EQ(rf_schedule_create(nullptr, 0, nullptr, &schedule), RF_EINVAL);
    desc.dtype = RF_F32;
    EXPECT_EQ(rf_schedule_create(&desc, 0, nullptr, nullptr), RF_EINVAL);
    uint32_t count = 0;
    EXPECT_EQ(rf_schedule_algorithms(&desc, nullptr, 0, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_schedule_algorithms(nullptr, nullptr, 0, &count), RF_EINVAL);
    rf_schedule_destroy(nullptr);
}

TEST(PublicSchedule, RefusesStepsAndOperandsThatDoNotExist)
{
    const rf_schedule_desc desc = call(RF_COLL_ALL_REDUCE, 2, 8);
    rf_schedule *schedule = nullptr;
    ASSERT_EQ(rf_schedule_create(&desc, 0, "ring", &schedule), 0);
    const uint32_t count = rf_schedule_step_count(schedule);
    rf_schedule_step step = {};
    rf_schedule_place place = {};
    EXPECT_EQ(rf_schedule_get_step(schedule, count, &step), RF_EINVAL);
    EXPECT_EQ(rf_schedule_get_step(schedule, 0, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_schedule_get_step(nullptr, 0, &step), RF_EINVAL);
    for (uint32_t k = 0; k < count; k++) {
        ASSERT_EQ(rf_schedule_get_step(schedule, k, &step), 0);
        for (uint32_t i = 0; i < step.operands; i++)
            EXPECT_EQ(rf_schedule_get_operand(schedule, k, i, &place), 0);
        EXPECT_EQ(rf_schedule_get_operand(schedule, k, step.operands, &place), RF_EINVAL);
    }
    EXPECT_STREQ(rf_schedule_verb_name(RF_SCHEDULE_REDUCE_ALL), "reduce_all");
    EXPECT_STREQ(rf_schedule_verb_name((rf_schedule_verb)99), "?");
    rf_schedule_destroy(schedule);
}

rf_schedule_verb verb_of(uint8_t verb)
{
    switch (verb) {
    case RF_STEP_ADDRESSES:
        return RF_SCHEDULE_ADDRESSES;
    case RF_STEP_AGREE:
        return RF_SCHEDULE_AGREE;
    case RF_STEP_REDUCE_ALL:
        return RF_SCHEDULE_REDUCE_ALL;
    default: // the others have the same numbers
        return (rf_schedule_verb)verb;
    }
}

// Compares every step and its dependencies with the list that is run.
void expect_same(const rf_schedule *schedule, const rf_sched *sched)
{
    ASSERT_EQ(rf_schedule_step_count(schedule), sched->count);
    EXPECT_STREQ(rf_schedule_algorithm(schedule), sched->algorithm);
    EXPECT_EQ(rf_schedule_sent_bytes(schedule), sched->sent_bytes);
    EXPECT_EQ(rf_schedule_temp_bytes(schedule), sched->temp_bytes);
    std::vector<std::vector<uint32_t>> before(sched->count);
    for (uint32_t k = 0; k < sched->count; k++)
        for (uint32_t n = 0; n < sched->steps[k].next_count; n++)
            before[sched->successors[sched->steps[k].next + n]].push_back(k);
    for (uint32_t k = 0; k < sched->count; k++) {
        rf_schedule_step step = {};
        ASSERT_EQ(rf_schedule_get_step(schedule, k, &step), 0);
        const rf_step &own = sched->steps[k];
        EXPECT_EQ(step.verb, verb_of(own.verb));
        EXPECT_EQ(step.bytes, own.bytes);
        EXPECT_EQ(std::vector<uint32_t>(step.after, step.after + step.after_count), before[k]);
        const bool message = own.verb == RF_STEP_SEND || own.verb == RF_STEP_RECV;
        EXPECT_EQ(step.peer, message ? own.peer : -1);
        if (own.verb != RF_STEP_REDUCE)
            continue;
        EXPECT_EQ(step.to.offset, own.dst.offset);
        EXPECT_EQ(step.operands, own.list_count ? own.list_count : 2);
    }
}

TEST(PublicSchedule, IsTheListThatRunsAndItsAlgorithmsAreThoseThatCanServe)
{
    int compared = 0;
    for (int op = RF_COLL_ALL_REDUCE; op < RF_COLL_SEND; op++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            rf_schedule_desc desc = call((rf_coll_op)op, ranks, 1000);
            desc.shared = ranks % 2;
            rf_schedule_algorithm_info infos[16];
            uint32_t count = 0, chosen = 0;
            ASSERT_EQ(rf_schedule_algorithms(&desc, infos, 16, &count), 0);
            ASSERT_LE(count, 16u);
            for (uint32_t i = 0; i < count; i++) {
                chosen += infos[i].chosen;
                rf_schedule *schedule = nullptr;
                const int rc = rf_schedule_create(&desc, 0, infos[i].name, &schedule);
                EXPECT_EQ(rc == 0, infos[i].why_not == nullptr) << infos[i].name;
                if (rc < 0) {
                    EXPECT_NE(strstr(rf_last_error()->message, infos[i].why_not), nullptr);
                    continue;
                }
                rf_coll_desc own = {};
                own.op = desc.op;
                own.ranks = ranks;
                own.count = op == RF_COLL_BARRIER ? 0 : desc.count;
                own.shared = desc.shared;
                own.segment_bytes = 256 << 10;
                own.window_bytes = RF_WINDOW_BYTES;
                rf_sched *sched = nullptr;
                ASSERT_EQ(rf_sched_build_as(&own, infos[i].name, &sched), 0);
                expect_same(schedule, sched);
                rf_sched_destroy(sched);
                rf_schedule_destroy(schedule);
                compared++;
            }
            EXPECT_EQ(chosen, 1u);
        }
    EXPECT_GT(compared, 150);
}

TEST(PublicSchedule, IsCutAsItIsAsked)
{
    rf_schedule_desc desc = call(RF_COLL_ALL_REDUCE, 4, 4 << 20);
    uint32_t steps[3] = {};
    const size_t segments[3] = {0, 64 << 10, SIZE_MAX};
    for (int i = 0; i < 3; i++) {
        rf_schedule *schedule = nullptr;
        desc.segment_bytes = segments[i];
        desc.window_bytes = segments[i] == SIZE_MAX ? SIZE_MAX : 0;
        ASSERT_EQ(rf_schedule_create(&desc, 0, "ring", &schedule), 0);
        steps[i] = rf_schedule_step_count(schedule);
        EXPECT_EQ(rf_schedule_sent_bytes(schedule), 24u << 20);
        rf_schedule_destroy(schedule);
    }
    EXPECT_EQ(steps[2], 15u); // six messages each way, and three reductions
    EXPECT_GT(steps[0], 15u);
    EXPECT_GT(steps[1], steps[0]);
}

// Every step stays within the side that it reads or writes, and the sides of all ranks make up the
// whole.
void expect_within(const rf_schedule_desc &desc)
{
    size_t whole[2] = {0, 0}, covered[2] = {0, 0};
    for (int rank = 0; rank < desc.ranks; rank++) {
        rf_schedule *schedule = nullptr;
        rf_schedule_range sides[2] = {};
        const std::string where =
            std::string(rf_coll_op_name(desc.op)) + " rank " + std::to_string(rank);
        for (int k = 0; k < 2; k++) {
            ASSERT_EQ(rf_schedule_get_side(&desc, rank, (rf_schedule_space)k, &sides[k]), 0);
            whole[k] = std::max<size_t>(whole[k], sides[k].first + sides[k].count);
            covered[k] += sides[k].count;
        }
        ASSERT_EQ(rf_schedule_create(&desc, rank, nullptr, &schedule), 0);
        const auto expect_inside = [&](rf_schedule_place place, uint64_t bytes) {
            if (place.space != RF_SCHEDULE_TEMP) {
                EXPECT_LE(place.offset + bytes, sides[place.space].count * 4) << where;
            }
        };
        for (uint32_t k = 0; k < rf_schedule_step_count(schedule); k++) {
            rf_schedule_step step = {};
            rf_schedule_place place = {};
            ASSERT_EQ(rf_schedule_get_step(schedule, k, &step), 0);
            for (uint32_t i = 0; i < step.operands; i++) {
                ASSERT_EQ(rf_schedule_get_operand(schedule, k, i, &place), 0);
                expect_inside(place, step.bytes);
            }
            if (step.verb == RF_SCHEDULE_RECV || step.verb == RF_SCHEDULE_COPY ||
                step.verb == RF_SCHEDULE_REDUCE)
                expect_inside(step.to, step.bytes);
        }
        rf_schedule_destroy(schedule);
    }
    for (int k = 0; k < 2; k++)
        if (covered[k] > 0) {
            EXPECT_EQ(covered[k] % whole[k], 0u) << rf_coll_op_name(desc.op);
        }
}

TEST(PublicSchedule, StepsStayWithinTheSidesOfTheCall)
{
    const std::vector<size_t> counts = {3, 0, 7, 2, 5};
    const rf_coll_op ops[] = {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER,
                              RF_COLL_BROADCAST,  RF_COLL_REDUCE,         RF_COLL_GATHER,
                              RF_COLL_SCATTER,    RF_COLL_BARRIER};
    for (rf_coll_op op : ops) {
        rf_schedule_desc desc = call(op, 5, 12);
        desc.root = 2;
        expect_within(desc);
        desc.counts = rf_coll_has_shares(op) ? counts.data() : nullptr;
        expect_within(desc);
    }
    expect_within(call(RF_COLL_ALL_TO_ALL, 5, 12));
}

TEST(PublicSchedule, SidesAreThoseOfTheCall)
{
    const std::vector<size_t> counts = {3, 0, 7, 2}, received = {2, 2, 2, 2};
    const auto side = [](const rf_schedule_desc &desc, int rank, rf_schedule_space space) {
        rf_schedule_range range = {99, 99};
        EXPECT_EQ(rf_schedule_get_side(&desc, rank, space, &range), 0) << rf_last_error()->message;
        return std::vector<uint64_t>{range.first, range.count};
    };
    using Side = std::vector<uint64_t>;
    rf_schedule_desc desc = call(RF_COLL_GATHER, 4, 5);
    desc.root = 1;
    EXPECT_EQ(side(desc, 2, RF_SCHEDULE_IN), (Side{10, 5}));
    EXPECT_EQ(side(desc, 2, RF_SCHEDULE_OUT), (Side{0, 0}));
    EXPECT_EQ(side(desc, 1, RF_SCHEDULE_OUT), (Side{0, 20}));
    desc.counts = counts.data();
    EXPECT_EQ(side(desc, 3, RF_SCHEDULE_IN), (Side{10, 2}));
    EXPECT_EQ(side(desc, 1, RF_SCHEDULE_OUT), (Side{0, 12}));
    desc.op = RF_COLL_ALL_TO_ALL;
    desc.recv_counts = received.data();
    EXPECT_EQ(side(desc, 2, RF_SCHEDULE_IN), (Side{0, 12}));
    EXPECT_EQ(side(desc, 2, RF_SCHEDULE_OUT), (Side{0, 8}));
    desc = call(RF_COLL_BROADCAST, 4, 5);
    desc.root = 1;
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_IN), (Side{0, 0}));
    EXPECT_EQ(side(desc, 1, RF_SCHEDULE_IN), (Side{0, 5}));
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_OUT), (Side{0, 5}));
    desc = call(RF_COLL_SEND, 4, 5);
    desc.root = 1;
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_IN), (Side{0, 5}));
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_OUT), (Side{0, 0}));
    EXPECT_EQ(side(desc, 1, RF_SCHEDULE_OUT), (Side{0, 5})); // to itself
    desc.op = RF_COLL_RECV;
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_IN), (Side{0, 0}));
    EXPECT_EQ(side(desc, 0, RF_SCHEDULE_OUT), (Side{0, 5}));
    rf_schedule_range range = {};
    EXPECT_EQ(rf_schedule_get_side(&desc, 0, RF_SCHEDULE_TEMP, &range), RF_EINVAL);
    EXPECT_EQ(rf_schedule_get_side(&desc, 4, RF_SCHEDULE_IN, &range), RF_EINVAL);
    EXPECT_EQ(rf_schedule_get_side(&desc, 0, RF_SCHEDULE_IN, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_schedule_get_side(nullptr, 0, RF_SCHEDULE_IN, &range), RF_EINVAL);
}

} // namespace
