// SPDX-License-Identifier: MIT
//
// A rank dies or stops in each transfer of a run: every survivor learns which rank it missed, and
// parameters are unchanged or the run reports that they may not be. Ranks are threads here, and
// every transfer of every kind of step is tried; death_test.cc has processes.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "faults.h"

extern "C" {
#include "base/base.h"
}

namespace
{

struct Injection {
    int failed_rank;
    uint64_t number; // of the collective of the call, in the lane's communicator
    int message;     // within the collective
    bool point;      // `message` is one between two ranks instead
    int lane = RF_LANE_DATA;
    fault_kind kind = FAULT_DEATH;
};

struct Call {
    const char *name;
    std::function<int(Job &, const Folder &)> make;
    bool unseen; // ranks other than 0 do not see the folder
};

// The outcome of one call of three ranks, one of which fails, after a step that succeeded.
struct Outcome {
    bool injected = false;
    std::atomic<int> inconsistent{0}; // runs of survivors
    std::atomic<int> done{0};         // survivors
    uint64_t collectives = 0;         // in the call, if nobody fails
};

struct Trial {
    const StepKind &kind;
    const Call &call;
    Injection at;
    const Folder &folder;
};

// How long ranks wait for a stopped one.
constexpr double stop_timeout_s = 1;

void try_rank(const Trial &trial, rf_comm *comm, int rank, std::vector<FaultTransports> &transports,
              std::atomic<int> *arrived, const FairClock &clock, Outcome *out)
{
    const Injection &at = trial.at;
    const bool fails = rank == at.failed_rank;
    Job job(comm, rank, trial.kind);
    ASSERT_RF(job.open());
    ASSERT_RF(job.step());
    all_have_come(arrived, ranks_of(trial.kind));
    if (trial.call.unseen && rank > 0)
        hide_folders(job.run);
    const std::string before = job.state();
    transports[(size_t)rank].insert(job.run, at.kind == FAULT_STOP ? stop_timeout_s : 60);
    fault_transport *fault = transports[(size_t)rank].of(job.run, at.lane);
    rf_comm *injected = job.run->comms[at.lane];
    if (fails && at.point)
        fault_transport_arm_point(fault, FAULT_DEATH, at.message);
    else if (fails)
        fault_transport_arm(fault, at.kind, at.number, at.message);
    const uint64_t first = fault_transport_started(injected);
    const double start = clock.seconds();
    const int status = trial.call.make(job, trial.folder);
    if (at.failed_rank < 0) {
        EXPECT_RF(status);
        if (rank == 0)
            out->collectives = fault_transport_started(injected) - first;
        return;
    }
    if (fails) {
        out->injected = fault->injected;
        return;
    }
    EXPECT_LT(clock.seconds() - start, promised_s() + (at.kind == FAULT_STOP ? stop_timeout_s : 0));
    expect_failure_reported(job, status, before, at.failed_rank);
    out->inconsistent += job.run->inconsistent.status != 0;
    if (++out->done == ranks_of(trial.kind) - 1)
        fault_transport_release(
            transports[(size_t)at.failed_rank].of(job.run, rf_plan_loss_lane(job.plan)));
}

void try_call(const Trial &trial, Outcome *out)
{
    std::atomic<int> arrived{0};
    std::vector<FaultTransports> transports((size_t)ranks_of(trial.kind));
    FairClock clock;
    ranks::World world;
    world.size = ranks_of(trial.kind);
    for (int r = 0; r < world.size; r++)
        rank_device(r);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        try_rank(trial, comm, rank, transports, &arrived, clock, out);
    });
}

const Call step = {"step", [](Job &job, const Folder &) { return job.step(); }, false};
const Call calls[] = {
    {"evaluate", [](Job &job, const Folder &) { return job.evaluate(); }, false},
    {"save", [](Job &job, const Folder &folder) { return job.save(folder.path()); }, false},
    {"save through rank 0", [](Job &job, const Folder &folder) { return job.save(folder.path()); },
     true},
    {"load", [](Job &job, const Folder &folder) { return job.load(folder.path()); }, false},
    {"load through rank 0", [](Job &job, const Folder &folder) { return job.load(folder.path()); },
     true},
    {"reserve", [](Job &job, const Folder &folder) { return job.reserve(folder.path()); }, false},
};

// A checkpoint of one rank, with the initial model.
void save_before(const Folder &folder)
{
    Job job(nullptr, 0, step_kinds[0], 1);
    ASSERT_RF(job.open());
    ASSERT_RF(job.save(folder.path()));
}

// After any interruption, there is an intact one.
void expect_loadable(const Folder &folder)
{
    Job job(nullptr, 0, step_kinds[0], 1);
    ASSERT_RF(job.open());
    EXPECT_RF(job.load(folder.path()));
}

std::string text_of(const Trial &t)
{
    return std::string(t.kind.name) + ", " + t.call.name + ", collective " +
           std::to_string(t.at.number) + ", message " + std::to_string(t.at.message) + ", rank " +
           std::to_string(t.at.failed_rank) + ", lane " + std::to_string(t.at.lane);
}

void try_step(const Trial &trial, rf_verb verb)
{
    Outcome out;
    SCOPED_TRACE(text_of(trial));
    try_call(trial, &out);
    EXPECT_TRUE(out.injected || (trial.at.message > 1 && !trial.at.point)) << text_of(trial);
    if (trial.at.message == 1 && before_update(trial.kind, verb)) {
        EXPECT_EQ(out.inconsistent, 0) << text_of(trial);
    }
}

// Several trials at once, as survivors wait. Devices are already open.
class AtOnce
{
  public:
    explicit AtOnce(size_t count) : count_(count)
    {
        for (int r = 0; r < FAULT_RANKS_OF_GROUPS; r++)
            rank_device(r);
    }
    ~AtOnce()
    {
        join();
    }
    void run(std::function<void()> trial)
    {
        if (threads_.size() == count_)
            join();
        threads_.emplace_back(std::move(trial));
    }

  private:
    void join()
    {
        for (std::thread &thread : threads_)
            thread.join();
        threads_.clear();
    }
    const size_t count_;
    std::vector<std::thread> threads_;
};

} // namespace

TEST(Fault, EveryVerbThatTransfersHasARow)
{
    for (const StepKind &kind : step_kinds) {
        std::set<rf_verb> all;
        for (const Transfer &transfer : transfers_of(Job(nullptr, 0, kind).plan))
            all.insert(transfer.verb);
        EXPECT_EQ(all, std::set<rf_verb>(kind.transfers.begin(), kind.transfers.end()))
            << kind.name;
    }
}

TEST(Fault, ADeathInAnyTransferOfAStepIsHeardByAllSurvivors)
{
    const Folder folder;
    AtOnce all(6);
    for (const StepKind &kind : step_kinds) {
        const bool groups = kind.groups();
        for (const Transfer &t : transfers_of(Job(nullptr, 0, kind).plan))
            for (int message : {1, 2})
                // Two ranks of a group have one message for each other.
                for (int failed_rank = 0; failed_rank < 2 && (message == 1 || !groups);
                     failed_rank++)
                    if (rf_lane_collects(t.lane))
                        all.run([&kind, &folder, failed_rank, t, message] {
                            try_step({kind,
                                      step,
                                      {failed_rank, t.number, message, false, t.lane},
                                      folder},
                                     t.verb);
                        });
    }
}

// Each rank of a pipeline, in each of its messages.
TEST(Fault, ADeathInAnyMessageOfAPipelineIsHeardByAllSurvivors)
{
    const Folder folder;
    AtOnce all(6);
    for (const StepKind &kind : step_kinds)
        for (int failed_rank = 0; kind.pp > 1 && failed_rank < ranks_of(kind); failed_rank++) {
            int messages = 0;
            for (const Transfer &t : transfers_of(Job(nullptr, failed_rank, kind).plan))
                if (!rf_lane_collects(t.lane) && t.verb == RF_VERB_SEND)
                    all.run([&kind, &folder, failed_rank, t, message = ++messages] {
                        try_step({kind, step, {failed_rank, 0, message, true, t.lane}, folder},
                                 t.verb);
                    });
        }
}

// Also with ranks in several groups, and with work on the host; in the last transfer of each verb
// and lane. Several at once, as survivors wait.
TEST(Fault, ARankThatStandsStillInATransferOfAStepIsNamedByAllOthers)
{
    const Folder folder;
    AtOnce all(14); // each takes a second
    for (const StepKind &kind : step_kinds) {
        std::map<std::pair<rf_verb, int>, uint64_t> last;
        if ((!kind.shard && !kind.offload && kind.tp == 1) || kind.zero == 2)
            continue;
        for (const Transfer &t : transfers_of(Job(nullptr, 0, kind).plan))
            last[{t.verb, t.lane}] = t.number;
        for (const auto &place : last) {
            const Injection at = {1, place.second, 1, false, place.first.second, FAULT_STOP};
            all.run([&kind, &folder, at, verb = place.first.first] {
                try_step({kind, step, at, folder}, verb);
            });
        }
    }
}

// One rank of a pipeline stops at its first send or receive, and only the rank farthest from it has
// a deadline soon: it waits for ranks that wait.
static void stop_a_stage(const StepKind &kind, int failed_rank)
{
    const double soon_s = 0.3;
    const int ranks = ranks_of(kind), farthest = failed_rank >= ranks / 2 ? 0 : ranks - 1;
    std::atomic<int> arrived{0}, done{0};
    std::vector<FaultTransports> transports((size_t)ranks);
    ranks::World world;
    world.size = ranks;
    FairClock clock;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Job job(comm, rank, kind);
        ASSERT_RF(job.open());
        ASSERT_RF(job.step());
        all_have_come(&arrived, ranks);
        const std::string before = job.state();
        transports[(size_t)rank].insert(job.run, rank == farthest ? soon_s : 60);
        fault_transport *fault = transports[(size_t)rank].of(job.run, RF_LANE_SEND_OUT);
        if (rank == failed_rank)
            fault_transport_arm_point(fault, FAULT_STOP, 1);
        const double start = clock.seconds();
        const uint64_t start_ns = rf_now_ns();
        const int status = job.step();
        if (rank == failed_rank)
            return;
        const double fair_s = clock.seconds() - start - soon_s;
        const double real_s = (double)(rf_now_ns() - start_ns) * 1e-9 - soon_s;
        if (rank == farthest)
            printf("%s: rank %d, which stood still, was named %.2f s (fair %.2f s) after the first "
                   "deadline\n",
                   kind.name, failed_rank, real_s, fair_s);
        EXPECT_LT(fair_s, promised_s());
        EXPECT_EQ(status, RF_ETIMEOUT) << rf_last_error()->message;
        expect_failure_reported(job, status, before, failed_rank);
        if (++done == ranks - 1)
            fault_transport_release(
                transports[(size_t)failed_rank].of(job.run, rf_plan_loss_lane(job.plan)));
    });
}

TEST(Fault, AStageThatStandsStillIsNamedByAllThoughTheFirstDeadlineIsOfARankThatWaitsForOthers)
{
    std::vector<std::thread> threads;
    for (int r = 0; r < FAULT_RANKS_OF_GROUPS; r++)
        rank_device(r);
    for (const StepKind &kind : step_kinds)
        for (int failed_rank = 0; kind.pp > 1 && failed_rank < ranks_of(kind); failed_rank++)
            threads.emplace_back([&kind, failed_rank] { stop_a_stage(kind, failed_rank); });
    for (std::thread &thread : threads)
        thread.join();
}

// For evaluation, checkpoints and reservations; earlier saves stay intact.
static void die_in_call(const Call &call, uint64_t number, bool point)
{
    SCOPED_TRACE(std::string(call.name) + ", collective " + std::to_string(number));
    const Folder folder;
    save_before(folder);
    Outcome out;
    try_call({step_kinds[0], call, {1, number, 1, point}, folder}, &out);
    EXPECT_TRUE(out.injected || point);
    if (strncmp(call.name, "load", 4) != 0) {
        EXPECT_EQ(out.inconsistent, 0);
    }
    expect_loadable(folder);
}

TEST(Fault, ADeathInAnyTransferOfAnotherCallIsHeardByAllSurvivors)
{
    AtOnce all(6);
    for (const Call &call : calls) {
        Outcome whole;
        {
            const Folder folder;
            save_before(folder);
            try_call({step_kinds[0], call, {-1, 0, 0, false}, folder}, &whole);
        }
        EXPECT_GT(whole.collectives, 0u);
        for (uint64_t number = 0; number <= whole.collectives; number++)
            all.run([&call, number, last = whole.collectives] {
                die_in_call(call, number, number == last);
            });
    }
}

// A rank in another group continues, and learns of it in the next call. Rank 3 is rank 1 of its
// group.
TEST(Fault, ADeathInAGroupIsHeardWithTheRunsNumberInCallsThatGather)
{
    const auto kind = std::find_if(step_kinds.begin(), step_kinds.end(),
                                   [](const StepKind &k) { return k.shard && k.zero == 3; });
    const Call gathering[] = {
        {"evaluate", [](Job &job, const Folder &) { return job.evaluate(); }, false},
        {"forward", [](Job &job, const Folder &) { return job.forward(); }, false},
        {"hash", [](Job &job, const Folder &) { return job.hash(); }, false}};
    const Folder folder;
    for (const Call &call : gathering)
        for (uint64_t number : {0, 1}) {
            const Trial trial = {
                *kind, call, {3, number, 1, false, RF_LANE_SHARD, FAULT_DEATH}, folder};
            SCOPED_TRACE(text_of(trial));
            Outcome out;
            try_call(trial, &out);
            EXPECT_TRUE(out.injected);
            EXPECT_EQ(out.inconsistent, 0);
        }
}

// A rank dies while the parameters of its group are gathered: those of all others may be from two
// steps then, and the survivors restart from the checkpoint.
TEST(Fault, WhatWasSavedBeforeADeathInAGroupIsTrainedOnByTheSurvivors)
{
    const auto kind = std::find_if(step_kinds.begin(), step_kinds.end(),
                                   [](const StepKind &k) { return k.shard && k.zero == 2; });
    const int failed_rank = 1;
    const Folder folder;
    std::atomic<int> inconsistent{0};
    ranks::World world;
    world.size = ranks_of(*kind);
    for (int r = 0; r < world.size; r++)
        rank_device(r);
    const auto save_and_die = [&](std::vector<FaultTransports> &transports, rf_comm *comm,
                                  int rank) {
        Job job(comm, rank, *kind);
        uint64_t gather = 0;
        for (const Transfer &t : transfers_of(job.plan))
            gather = t.verb == RF_VERB_GATHER ? t.number : gather;
        ASSERT_RF(job.open());
        ASSERT_RF(job.step());
        ASSERT_RF(job.save(folder.path()));
        transports[(size_t)rank].insert(job.run, 60);
        if (rank == failed_rank)
            fault_transport_arm(&transports[(size_t)rank].lanes[RF_LANE_SHARD], FAULT_DEATH, gather,
                                1);
        const std::string before = job.state();
        const int status = job.step();
        if (rank == failed_rank)
            return;
        expect_failure_reported(job, status, before, failed_rank);
        inconsistent += job.run->inconsistent.status != 0;
        // This run refuses it, as its communicator has failed.
        EXPECT_EQ(job.load(folder.path()), RF_EABORT);
    };
    // On a busy machine the survivors may learn of the death before any of them has updated.
    for (int trial = 0; trial < 10 && inconsistent == 0; trial++) {
        std::vector<FaultTransports> transports((size_t)world.size);
        ranks::run(world, [&](rf_comm *comm, int rank) { save_and_die(transports, comm, rank); });
    }
    EXPECT_GT(inconsistent, 0);
    world.size = 2; // one group of the survivors, without copies
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Job job(comm, rank, *kind, world.size);
        ASSERT_RF(job.open());
        ASSERT_RF(job.load(folder.path()));
        EXPECT_EQ(job.run->step, 1);
        EXPECT_RF(job.step());
        EXPECT_RF(job.save(folder.path()));
    });
}

// Ranks in groups wait there for the rank that refuses, not where it would report it.
TEST(Fault, InputsThatOneRankRefusesAreHeardByAllWithoutADeadline)
{
    const std::vector<int32_t> good(4 * (FAULT_RANKS_OF_GROUPS + 1), 0);
    std::vector<int32_t> bad = good;
    bad[3] = 77;
    for (const StepKind &kind : step_kinds) {
        if (!kind.groups())
            continue;
        ranks::World world;
        world.size = ranks_of(kind);
        world.timeout_s = 600;
        for (int r = 0; r < world.size; r++)
            rank_device(r);
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Job job(comm, rank, kind);
            ASSERT_RF(job.open());
            const int32_t *targets = rank == 1 ? bad.data() : good.data();
            EXPECT_EQ(rf_run_step(job.run, good.data(), bad.data(), 0.01f, nullptr), RF_EINVAL);
            EXPECT_RF(job.step()); // all refused that
            const int status = rf_run_step(job.run, good.data(), targets, 0.01f, nullptr);
            EXPECT_EQ(status, rank == 1 ? RF_EINVAL : RF_EMISMATCH) << rf_last_error()->message;
        });
    }
}

// It may be a consequence: a rank that learns of a death removes the files that others are about to
// open.
TEST(Fault, ADeathIsNamedByARankThatHasFailedByItself)
{
    fault_transport faults[FAULT_RANKS];
    ranks::World world;
    world.size = FAULT_RANKS;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_run run = {};
        run.comm = comm;
        fault_transport_insert(&faults[rank], comm);
        if (rank == 1)
            fault_transport_arm(&faults[rank], FAULT_DEATH, 0, 1);
        const int own = rank == 2 ? rf_fail(RF_EIO, "cannot open the file") : 0;
        const int status = rf_run_agree_status(&run, own, "save");
        if (rank == 1)
            return;
        const std::string message = rf_last_error()->message;
        EXPECT_EQ(status, RF_EPEER) << message;
        EXPECT_EQ(rf_last_error()->rank, 1) << message;
        EXPECT_EQ(message.find("cannot open the file") != std::string::npos, rank == 2) << message;
    });
}

static void die_while_opening(const StepKind &kind)
{
    uint64_t collectives = 1;
    for (uint64_t number = 0; number < collectives; number++) {
        fault_transport faults[FAULT_RANKS_OF_GROUPS];
        ranks::World world;
        world.size = ranks_of(kind);
        for (int r = 0; r < world.size; r++)
            rank_device(r);
        if (number == 0) // their number
            ranks::run(world, [&](rf_comm *comm, int rank) {
                Job job(comm, rank, kind);
                ASSERT_RF(job.open());
                if (rank == 0)
                    collectives = fault_transport_started(comm);
            });
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Job job(comm, rank, kind);
            fault_transport_insert(&faults[rank], comm);
            if (rank == 1)
                fault_transport_arm(&faults[rank], FAULT_DEATH, number, 1);
            const int status = job.open();
            EXPECT_EQ(job.run, nullptr);
            if (rank == 1)
                return;
            EXPECT_EQ(status, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        });
    }
    EXPECT_GT(collectives, kind.shard ? 3u : 1u); // groups are split off
}

TEST(Fault, ADeathWhileARunIsOpenedIsHeardByAllSurvivors)
{
    for (const StepKind &kind : step_kinds)
        if (&kind == &step_kinds[0] || (kind.shard && kind.zero == 3))
            die_while_opening(kind);
}

TEST(Fault, ARunWithoutOtherRanksThatLoadsACheckpointGoesOn)
{
    const Folder folder;
    Job job(nullptr, 0, step_kinds[0], 1);
    ASSERT_RF(job.open());
    ASSERT_RF(job.step());
    ASSERT_RF(job.save(folder.path()));
    const std::string saved = job.state();
    ASSERT_RF(job.step());
    rf_fail(RF_EIO, "a disk has failed");
    rf_run_mark_inconsistent(job.run, "load");
    expect_inconsistent_or_unchanged(job, job.state());
    ASSERT_RF(job.load(folder.path()));
    EXPECT_TRUE(job.state() == saved);
    EXPECT_RF(job.step());
}
