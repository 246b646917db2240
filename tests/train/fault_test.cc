// SPDX-License-Identifier: MIT
//
// A rank dies, or stands still, in each of the transfers that a run has: every survivor hears whom
// it missed, and parameters are those of before or the run says that they may not be. Ranks are
// threads here, of which every transfer of every kind of step is tried; death_test.cc has
// processes.
#include <cstring>
#include <set>

#include "faults.h"

extern "C" {
#include "base/base.h"
}

namespace
{

constexpr uint64_t generous_ns =
    10000000000; /* two seconds are promised: the machine may be busy */

struct Strike {
    int odd;
    uint64_t number; // of the collective of the call
    int message;     // of it
    bool point;      // `message` is one from rank to rank instead
};

struct Call {
    const char *name;
    std::function<int(Job &, const Folder &)> make;
    bool unseen; // ranks other than 0 do not see the folder
};

// What one call of three ranks, of which one fails, after a step that went well, has come to.
struct Outcome {
    bool struck = false;
    std::atomic<int> spoiled{0}; // runs of survivors
    uint64_t collectives = 0;    // of the call, where nobody fails
};

struct Trial {
    const StepKind &kind;
    const Call &call;
    Strike at;
    const Folder &folder;
};

void try_rank(const Trial &trial, rf_comm *comm, int rank, fault_wire *fault,
              std::atomic<int> *arrived, Outcome *out)
{
    const Strike &at = trial.at;
    const bool odd = rank == at.odd;
    Job job(comm, rank, trial.kind);
    ASSERT_RF(job.open());
    ASSERT_RF(job.step());
    all_have_come(arrived);
    job.run->hide_folders = trial.call.unseen && rank > 0;
    const std::string before = job.state();
    fault_wire_place(fault, comm);
    fault_wire_timeout(comm, 60);
    if (odd && at.point)
        fault_wire_arm_point(fault, FAULT_DEATH, at.message);
    else if (odd)
        fault_wire_arm(fault, FAULT_DEATH, at.number, at.message);
    const uint64_t start = rf_now_ns(), first = fault_wire_started(comm);
    const int status = trial.call.make(job, trial.folder);
    if (at.odd < 0) {
        EXPECT_RF(status);
        if (rank == 0)
            out->collectives = fault_wire_started(comm) - first;
        return;
    }
    if (odd) {
        out->struck = fault->struck;
        return;
    }
    EXPECT_LT(rf_now_ns() - start, generous_ns);
    expect_heard(job, status, before, at.odd);
    out->spoiled += job.run->spoiled.status != 0;
}

void try_call(const Trial &trial, Outcome *out)
{
    std::atomic<int> arrived{0};
    fault_wire faults[FAULT_RANKS];
    ranks::World world;
    world.size = FAULT_RANKS;
    for (int r = 0; r < FAULT_RANKS; r++)
        rank_device(r);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        try_rank(trial, comm, rank, &faults[rank], &arrived, out);
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

// A checkpoint of one rank, of the model at its beginning.
void save_before(const Folder &folder)
{
    Job job(nullptr, 0, step_kinds[0], 1);
    ASSERT_RF(job.open());
    ASSERT_RF(job.save(folder.path()));
}

// Whatever was interrupted, there is a sound one.
void expect_loadable(const Folder &folder)
{
    Job job(nullptr, 0, step_kinds[0], 1);
    ASSERT_RF(job.open());
    EXPECT_RF(job.load(folder.path()));
}

// What comes before the update, which needs all ranks: nobody has begun to update.
bool before_update(const StepKind &kind, rf_verb verb)
{
    return verb == RF_VERB_REDUCE || verb == RF_VERB_NORM_SHARE || verb == RF_VERB_LOSS ||
           (verb == RF_VERB_GATHER && kind.zero == 3);
}

std::string text_of(const Trial &t)
{
    return std::string(t.kind.name) + ", " + t.call.name + ", collective " +
           std::to_string(t.at.number) + ", message " + std::to_string(t.at.message) + ", rank " +
           std::to_string(t.at.odd);
}

void try_step(const Trial &trial)
{
    const std::vector<rf_verb> transfers = transfers_of(Job(nullptr, 0, trial.kind).plan);
    Outcome out;
    SCOPED_TRACE(text_of(trial));
    try_call(trial, &out);
    EXPECT_TRUE(out.struck || trial.at.message > 1) << text_of(trial);
    if (trial.at.message == 1 && before_update(trial.kind, transfers[trial.at.number])) {
        EXPECT_EQ(out.spoiled, 0) << text_of(trial);
    }
}

} // namespace

TEST(Fault, EveryVerbThatTransfersHasARow)
{
    for (const StepKind &kind : step_kinds) {
        const std::vector<rf_verb> all = transfers_of(Job(nullptr, 0, kind).plan);
        EXPECT_EQ(std::set<rf_verb>(all.begin(), all.end()),
                  std::set<rf_verb>(kind.transfers.begin(), kind.transfers.end()))
            << kind.name;
    }
}

TEST(Fault, ADeathInAnyTransferOfAStepIsHeardByAllSurvivors)
{
    const Folder folder;
    for (const StepKind &kind : step_kinds) {
        const uint64_t transfers = transfers_of(Job(nullptr, 0, kind).plan).size();
        for (uint64_t number = 0; number < transfers; number++)
            for (int message : {1, 2})
                for (int odd : {0, 1})
                    try_step({kind, step, {odd, number, message, false}, folder});
    }
}

// Of evaluation, checkpoints and reservations; what was saved before stays.
TEST(Fault, ADeathInAnyTransferOfAnotherCallIsHeardByAllSurvivors)
{
    for (const Call &call : calls) {
        Outcome whole;
        {
            const Folder folder;
            save_before(folder);
            try_call({step_kinds[0], call, {-1, 0, 0, false}, folder}, &whole);
        }
        EXPECT_GT(whole.collectives, 0u);
        for (uint64_t number = 0; number <= whole.collectives; number++) {
            const bool point = number == whole.collectives;
            SCOPED_TRACE(std::string(call.name) + ", collective " + std::to_string(number));
            const Folder folder;
            save_before(folder);
            Outcome out;
            try_call({step_kinds[0], call, {1, number, 1, point}, folder}, &out);
            EXPECT_TRUE(out.struck || point);
            if (strncmp(call.name, "load", 4) != 0) {
                EXPECT_EQ(out.spoiled, 0);
            }
            expect_loadable(folder);
        }
    }
}

// It may be an echo: a rank that hears of a death removes the files that others are about to open.
TEST(Fault, ADeathIsNamedByARankThatHasFailedByItself)
{
    fault_wire faults[FAULT_RANKS];
    ranks::World world;
    world.size = FAULT_RANKS;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_run run = {};
        run.comm = comm;
        fault_wire_place(&faults[rank], comm);
        if (rank == 1)
            fault_wire_arm(&faults[rank], FAULT_DEATH, 0, 1);
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

TEST(Fault, ADeathWhileARunIsOpenedIsHeardByAllSurvivors)
{
    uint64_t collectives = 1;
    for (uint64_t number = 0; number < collectives; number++) {
        fault_wire faults[FAULT_RANKS];
        ranks::World world;
        world.size = FAULT_RANKS;
        for (int r = 0; r < FAULT_RANKS; r++)
            rank_device(r);
        if (number == 0) // how many there are
            ranks::run(world, [&](rf_comm *comm, int rank) {
                Job job(comm, rank, step_kinds[0]);
                ASSERT_RF(job.open());
                if (rank == 0)
                    collectives = fault_wire_started(comm);
            });
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Job job(comm, rank, step_kinds[0]);
            fault_wire_place(&faults[rank], comm);
            if (rank == 1)
                fault_wire_arm(&faults[rank], FAULT_DEATH, number, 1);
            const int status = job.open();
            EXPECT_EQ(job.run, nullptr);
            if (rank == 1)
                return;
            EXPECT_EQ(status, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        });
    }
    EXPECT_GT(collectives, 1u);
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
    rf_run_spoil(job.run, "load");
    expect_spoiled_or_unchanged(job, job.state());
    ASSERT_RF(job.load(folder.path()));
    EXPECT_TRUE(job.state() == saved);
    EXPECT_RF(job.step());
}
