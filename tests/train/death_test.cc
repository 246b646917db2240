// SPDX-License-Identifier: MIT
//
// A process is killed, or stopped, in the midst of a transfer of a training step, over shared
// memory and over a network: what fault_test.cc does with threads, in one transfer of each verb. No
// device may be opened here before the ranks are.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "faults.h"

namespace
{

constexpr uint64_t generous_ns =
    10000000000; /* two seconds are promised: the machine may be busy */

struct Death {
    const StepKind *kind;
    rf_verb verb; // in its last transfer
    std::string provider;
    fault_kind fault;
};

std::string name_of(const testing::TestParamInfo<Death> &info)
{
    const char *texts[RF_VERB_COUNT] = {};
    texts[RF_VERB_REDUCE] = "reduce";
    texts[RF_VERB_LOSS] = "loss";
    texts[RF_VERB_NORM_SHARE] = "norm_share";
    texts[RF_VERB_GATHER] = "gather";
    texts[RF_VERB_BROADCAST] = "broadcast";
    const Death &d = info.param;
    const char *text = texts[d.verb];
    return std::string(d.fault == FAULT_STOP ? "stop_" : "kill_") + d.provider + "_" +
           d.kind->name + "_" + (text ? text : std::to_string((int)d.verb).c_str());
}

// One for each verb of each kind of step but copies, which are more of the same to processes. What
// takes long, and the higher stages of sharding, are over one provider each.
std::vector<Death> deaths(fault_kind fault)
{
    std::vector<Death> all;
    for (const StepKind &kind : step_kinds)
        for (size_t v = 0; v < kind.transfers.size() && !kind.rounded_copies; v++)
            for (const char *provider : {"shm", "net"}) {
                const bool one = fault == FAULT_STOP || kind.zero >= 2;
                const bool other = (v + (kind.order == RF_ORDER_TREE)) % 2 == 1;
                if (one && other == (strcmp(provider, "shm") == 0))
                    continue;
                // On rank 0 alone, who waits for rank 0 must hear from it in time: comm's tests.
                if (fault == FAULT_DEATH || (kind.zero < 2 && !kind.on_rank_0))
                    all.push_back({&kind, kind.transfers[v], provider, fault});
            }
    return all;
}

struct Common { // of all processes
    std::atomic<int> arrived, done;
    std::atomic<pid_t> odd;
};

void die_in_step(const Death &death, rf_comm *comm, int rank, Common *common)
{
    const int odd = 1;
    Job job(comm, rank, *death.kind);
    fault_wire fault;
    const std::vector<rf_verb> all = transfers_of(job.plan);
    const auto last = std::find(all.rbegin(), all.rend(), death.verb);
    ASSERT_RF(job.open());
    ASSERT_RF(job.step());
    all_have_come(&common->arrived);
    const std::string before = job.state();
    fault_wire_timeout(comm, death.fault == FAULT_STOP ? 1 : 60);
    if (rank == odd) {
        common->odd = getpid();
        fault_wire_place(&fault, comm);
        fault_wire_arm(&fault, death.fault, (uint64_t)(all.rend() - last - 1), 1);
    }
    const uint64_t start = rf_now_ns();
    const int status = job.step();
    ASSERT_NE(rank, odd) << "it has outlived its transfer";
    EXPECT_LT(rf_now_ns() - start, generous_ns);
    expect_heard(job, status, before, odd);
    if (++common->done == FAULT_RANKS - 1) // a process that is stopped does not end by itself
        kill(common->odd, SIGKILL);
}

void run_one(const Death &death)
{
    ranks::Shared memory(sizeof(Common));
    Common *common = memory.as<Common>();
    ranks::World world;
    world.provider = death.provider;
    world.size = FAULT_RANKS;
    world.expect_killed = 1;
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

// Several at once, as survivors wait for a second.
TEST(Stopped, InATransferIsNamedByAllSurvivorsAtTheDeadline)
{
    const std::vector<Death> some = deaths(FAULT_STOP);
    const size_t at_once = 4;
    for (size_t first = 0; first < some.size(); first += at_once) {
        std::vector<pid_t> worlds;
        for (size_t k = first; k < std::min(first + at_once, some.size()); k++) {
            fflush(nullptr);
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                run_one(some[k]);
                fflush(nullptr);
                _exit(testing::Test::HasFailure() ? 1 : 0);
            }
            worlds.push_back(child);
        }
        for (size_t k = 0; k < worlds.size(); k++) {
            int status = 0;
            ASSERT_EQ(waitpid(worlds[k], &status, 0), worlds[k]);
            EXPECT_EQ(status, 0) << name_of({some[first + k], 0});
        }
    }
}
