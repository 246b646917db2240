// SPDX-License-Identifier: MIT
//
// A process is killed or stopped during a transfer of a training step, over shared memory and over
// a network; fault_test.cc does the same with threads. One transfer of each verb. No device may be
// opened here before the ranks are.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "faults.h"

namespace
{

struct Death {
    const StepKind *kind;
    rf_verb verb; // in its last transfer
    std::string provider;
    fault_kind fault;
    int lane; // of its lane
};

std::string name_of(const testing::TestParamInfo<Death> &info)
{
    const char *texts[RF_VERB_COUNT] = {};
    texts[RF_VERB_SEND] = "send";
    texts[RF_VERB_EXCHANGE] = "exchange";
    texts[RF_VERB_REDUCE] = "reduce";
    texts[RF_VERB_LOSS] = "loss";
    texts[RF_VERB_NORM_SHARE] = "norm_share";
    texts[RF_VERB_GATHER] = "gather";
    texts[RF_VERB_BROADCAST] = "broadcast";
    const Death &d = info.param;
    const char *text = texts[d.verb];
    return std::string(d.fault == FAULT_STOP ? "stop_" : "kill_") + d.provider + "_" +
           d.kind->name + "_" + (text ? text : std::to_string((int)d.verb).c_str()) +
           (d.lane == RF_LANE_REPLICATE ? "_of_copies" : "");
}

// The transfers of a kind of step. With copies of shards, gradients are added in two lanes.
std::vector<std::pair<rf_verb, int>> places_of(const StepKind &kind)
{
    std::vector<std::pair<rf_verb, int>> places;
    if (kind.pp > 1 && kind.tp > 1)
        return {{RF_VERB_SEND, RF_LANE_SEND_GRAD},
                {RF_VERB_EXCHANGE, RF_LANE_TENSOR},
                {RF_VERB_REDUCE, RF_LANE_DATA},
                {RF_VERB_LOSS, RF_LANE_JOB}};
    if (kind.pp > 1)
        return {{RF_VERB_SEND, RF_LANE_SEND_GRAD}, {RF_VERB_LOSS, RF_LANE_JOB}};
    if (kind.tp > 1)
        return {{RF_VERB_EXCHANGE, RF_LANE_TENSOR},
                {RF_VERB_REDUCE, RF_LANE_DATA},
                {RF_VERB_LOSS, RF_LANE_JOB}};
    for (const rf_verb verb : kind.transfers)
        places.push_back({verb, kind.shard && verb != RF_VERB_LOSS ? RF_LANE_SHARD : RF_LANE_DATA});
    if (kind.shard)
        places.push_back({RF_VERB_REDUCE, RF_LANE_REPLICATE});
    return places;
}

// Fewer for groups and the host's work: fault_test.cc has all.
bool is_tried(const StepKind &kind, fault_kind fault, rf_verb verb, int lane)
{
    if (kind.rounded_copies) // no difference for processes
        return false;
    if (kind.shard)
        return kind.zero == 3 && (lane == RF_LANE_REPLICATE || verb == RF_VERB_NORM_SHARE);
    if (kind.tp > 1 && kind.pp > 1) // of a stage and of a tensor group; with RF_TEST_ALL=1 all
        return getenv("RF_TEST_ALL") || verb == RF_VERB_SEND || verb == RF_VERB_EXCHANGE;
    if (kind.pp > 2) // fault_test.cc tests every rank
        return fault == FAULT_STOP;
    if (kind.pp > 1)
        return true;
    if (kind.offload)
        return kind.zero == 3 && verb == RF_VERB_GATHER;
    // With the update on rank 0 alone, ranks that wait for rank 0 must hear from it in time: comm's
    // tests.
    return fault == FAULT_DEATH || (kind.zero < 2 && !kind.on_rank_0);
}

// One for each verb of each kind of step. Slow ones, and the higher stages of sharding, over one
// provider each.
std::vector<Death> deaths(fault_kind fault)
{
    std::vector<Death> all;
    std::vector<const StepKind *> kinds = {&cube};
    for (const StepKind &kind : step_kinds)
        kinds.push_back(&kind);
    for (const StepKind *at : kinds) {
        const StepKind &kind = *at;
        const std::vector<std::pair<rf_verb, int>> places = places_of(kind);
        for (size_t v = 0; v < places.size(); v++)
            for (const char *provider : {"shm", "tcp"}) {
                const bool is_cube = at == &cube, is_stop = fault == FAULT_STOP;
                const bool one =
                    is_cube ? !getenv("RF_TEST_ALL") : is_stop || kind.zero >= 2 || kind.shard;
                const bool other = (v + (kind.order == RF_ORDER_TREE) + (is_cube && is_stop)) % 2;
                if ((!one || other == (strcmp(provider, "tcp") == 0)) &&
                    is_tried(kind, fault, places[v].first, places[v].second))
                    all.push_back({&kind, places[v].first, provider, fault, places[v].second});
            }
    }
    return all;
}

struct Common { // shared by all processes
    std::atomic<int> arrived, done;
    std::atomic<pid_t> failed_rank;
};

// In a pipeline: one that sends gradients.
int odd_of(const Death &death)
{
    if (death.kind == &cube)
        return 5;
    return death.kind->pp > 1 ? 2 : 1;
}

void die_in_step(const Death &death, rf_comm *comm, int rank, Common *common)
{
    const int failed_rank = odd_of(death);
    Job job(comm, rank, *death.kind);
    static FaultTransports transports; // outlives the communicator; a rank is a process
    const std::vector<Transfer> all = transfers_of(job.plan);
    const auto last = std::find_if(all.rbegin(), all.rend(), [&](const Transfer &t) {
        return t.verb == death.verb && t.lane == death.lane;
    });
    ASSERT_TRUE(rank != failed_rank || last != all.rend());
    ASSERT_RF(job.open());
    ASSERT_RF(job.step());
    all_have_come(&common->arrived, ranks_of(*death.kind));
    const std::string before = job.state();
    const double timeout_s = death.fault == FAULT_STOP ? 2.0 * ranks::patience() : 60;
    transports.insert(job.run, timeout_s);
    if (rank == failed_rank) {
        common->failed_rank = getpid();
        fault_transport *transport = transports.of(job.run, last->lane);
        if (rf_lane_collects(last->lane))
            fault_transport_arm(transport, death.fault, last->number, 1);
        else
            fault_transport_arm_point(transport, death.fault, 1);
    }
    FairClock clock;
    const uint64_t start_ns = rf_now_ns();
    const int status = job.step();
    ASSERT_NE(rank, failed_rank) << "it has outlived its transfer";
    const double late_s = death.fault == FAULT_STOP ? timeout_s : 0;
    const double fair_s = clock.seconds() - late_s;
    const double real_s = (double)(rf_now_ns() - start_ns) * 1e-9 - late_s;
    EXPECT_LT(fair_s, promised_s());
    expect_failure_reported(job, status, before, failed_rank);
    if (++common->done < ranks_of(*death.kind) - 1)
        return;
    printf("%s: by the last survivor %.2f s after the %s (fair %.2f s)\n",
           name_of({death, 0}).c_str(), real_s, late_s > 0 ? "deadline" : "death", fair_s);
    kill(common->failed_rank, SIGKILL); // a stopped process does not end by itself
}

void run_one(const Death &death)
{
    ranks::Shared memory(sizeof(Common));
    Common *common = memory.as<Common>();
    ranks::World world;
    world.provider = death.provider;
    world.size = ranks_of(*death.kind);
    world.expect_killed = odd_of(death);
    world.by_signal = SIGKILL;
    ranks::run(world, [&](rf_comm *comm, int rank) { die_in_step(death, comm, rank, common); });
}

class Killed : public testing::TestWithParam<Death>
{
};

} // namespace

TEST_P(Killed, InATransferIsNamedByAllSurvivorsAndSpoilsNothingWithoutAWord)
{
    run_one(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Process, Killed, testing::ValuesIn(deaths(FAULT_DEATH)), name_of);

// Several at once, as survivors wait for the deadline.
TEST(Stopped, InATransferIsNamedByAllSurvivorsAtTheDeadline)
{
    const int at_once = 12; // processes: on an overloaded core others miss the deadline
    std::vector<std::pair<pid_t, std::string>> worlds;
    const auto join = [&] {
        for (const auto &world : worlds) {
            int status = 0;
            EXPECT_EQ(waitpid(world.first, &status, 0), world.first);
            EXPECT_EQ(status, 0) << world.second;
        }
        worlds.clear();
    };
    int processes = 0;
    for (const Death &death : deaths(FAULT_STOP)) {
        const int more = ranks_of(*death.kind);
        if (processes + more > at_once) {
            join();
            processes = 0;
        }
        processes += more;
        fflush(nullptr);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            run_one(death);
            fflush(nullptr);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        worlds.push_back({child, name_of({death, 0})});
    }
    join();
}
