// SPDX-License-Identifier: MIT
//
// Snapshots: the remaining ranks of a run continue as another run, with the bits of one that was
// never interrupted; losses with a rank are reported by name.
#include "world.h"

#include <map>

namespace
{

Training small()
{
    Training t;
    t.model = {1, 32, 2, 16, 61};
    t.policy.batch = 6;
    t.policy.micro_batches = 6;
    return t;
}

using Snapshots = std::map<int, rf_snapshot *>;

// Trains on this number of ranks, and keeps each one's snapshot.
Snapshots snapshots_of(Training t, int ranks)
{
    Snapshots kept;
    for (int rank = 0; rank < ranks; rank++)
        kept[rank] = nullptr;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        const rf_progress progress = {0, 0, (t.first_step + t.steps) * t.policy.batch, 0, 0};
        ASSERT_RF(rf_run_snapshot(run, &progress, &kept[rank]));
    };
    train(t, ranks);
    return kept;
}

// Continues from these, and returns the hash of the parameters at the end.
std::string trained_from(Training t, int ranks, const Snapshots &snapshots, int64_t step)
{
    t.before = [&](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {};
        ASSERT_RF(
            rf_run_restore(run, snapshots.count(rank) ? snapshots.at(rank) : nullptr, &progress));
        EXPECT_EQ(progress.step, step);
        EXPECT_EQ(progress.samples, step * t.policy.batch);
        EXPECT_EQ(progress.seed, t.seed);
        ASSERT_RF(rf_run_audit(run, &progress));
    };
    t.first_step = (int)step;
    const std::vector<Seen> seen = train(t, ranks);
    for (const Seen &s : seen)
        EXPECT_EQ(s.measured.sent, s.planned.sent);
    return seen[0].sha;
}

void destroy(const Snapshots &snapshots)
{
    for (const auto &kept : snapshots)
        rf_snapshot_destroy(kept.second);
}

} // namespace

TEST(Restore, OnFewerRanksTheBitsAreThoseOfARunThatWasNotInterrupted)
{
    Training whole = small(), first = small(), second = small();
    whole.steps = 4;
    first.steps = second.steps = 2;
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        first.model.dtype = second.model.dtype = whole.model.dtype = dtype;
        const std::string want = train(whole, 1)[0].sha;
        const Snapshots kept = snapshots_of(first, 3);
        EXPECT_EQ(trained_from(second, 2, {{0, kept.at(0)}, {1, kept.at(2)}}, 2), want);
        // One rank has nothing, and gets everything from the others; another mesh.
        second.pp = 2;
        EXPECT_EQ(trained_from(second, 2, {{1, kept.at(1)}}, 2), want);
        second.pp = 1;
        destroy(kept);
    }
}

// One after the other in memory; their rows alternate in the whole tensors.
TEST(Restore, TheRowsOfARankWithSeveralPartsAreFound)
{
    Training t = small();
    t.policy.tensor_parts = 2;
    t.policy.batch = t.policy.micro_batches = 2;
    t.steps = 1;
    Training whole = t;
    whole.steps = 2;
    const std::string want = train(whole, 1)[0].sha;
    const Snapshots kept = snapshots_of(t, 2);
    EXPECT_EQ(trained_from(t, 1, {{0, kept.at(1)}}, 1), want);
    t.tp = 2;
    EXPECT_EQ(trained_from(t, 2, {{1, kept.at(0)}}, 1), want);
    destroy(kept);
}

TEST(Restore, OfTwoStepsTheNewestIsTaken)
{
    Training t = small();
    t.steps = 2;
    const Snapshots older = snapshots_of(t, 2);
    t.steps = 3;
    const Snapshots newer = snapshots_of(t, 2);
    t.steps = 1;
    Training whole = small();
    whole.steps = 4;
    const std::string want = train(whole, 1)[0].sha;
    EXPECT_EQ(trained_from(t, 2, {{0, older.at(0)}, {1, newer.at(1)}}, 3), want);
    destroy(older);
    destroy(newer);
}

// Its ranks got the error of a death after their update: others may not have made it.
TEST(Restore, OfAStepThatFailedBehindItsUpdateTheNewParametersAreTaken)
{
    Training t = small();
    t.steps = 2;
    rf_snapshot *kept = nullptr;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        if (rank != 1)
            return;
        const rf_progress progress = {1, 0, t.policy.batch, 0, 0}; // that of before the step
        run->step--;
        run->inconsistent.status = RF_EPEER;
        EXPECT_EQ(rf_run_snapshot(run, &progress, &kept), RF_EABORT);
        run->ahead = true;
        ASSERT_RF(rf_run_snapshot(run, &progress, &kept));
    };
    train(t, 2);
    t.after = nullptr;
    Training whole = small();
    whole.steps = 4;
    EXPECT_EQ(trained_from(t, 1, {{0, kept}}, 2), train(whole, 1)[0].sha);
    rf_snapshot_destroy(kept);
}

TEST(Restore, ShardsComeFromTheCopiesThatAreLeft)
{
    Training t = small();
    t.steps = 2;
    t.policy.zero = 3;
    t.policy.order = RF_ORDER_RING;
    t.shard = 2;
    const Snapshots kept = snapshots_of(t, 4);
    const std::string want = train(t, 4)[0].sha;
    t.steps = 0;
    t.shard = 0;
    EXPECT_EQ(trained_from(t, 3, {{0, kept.at(0)}, {1, kept.at(1)}, {2, kept.at(2)}}, 2), want);
    EXPECT_EQ(trained_from(t, 2, {{0, kept.at(3)}, {1, kept.at(0)}}, 2), want);
    destroy(kept);
}

TEST(Restore, WhatWasLostWithARankIsNamedAndChangesNothing)
{
    Training t = small();
    t.steps = 1;
    t.policy.zero = 1;
    const Snapshots kept = snapshots_of(t, 3);
    std::string before;
    t.before = [&](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {};
        EXPECT_EQ(rf_run_restore(run, kept.at(rank), &progress), RF_ECORRUPT);
        EXPECT_NE(
            std::string(rf_last_error()->message).find("restore: no remaining rank has element "),
            std::string::npos)
            << rf_last_error()->message;
        EXPECT_EQ(rf_run_restore(run, nullptr, &progress), RF_ECORRUPT);
    };
    const std::string sha = train(t, 2)[0].sha; // a step from the beginning
    t.before = nullptr;
    EXPECT_EQ(train(t, 2)[0].sha, sha);
    destroy(kept);
}

TEST(Restore, ASnapshotOfAnotherModelIsRefused)
{
    Training t = small();
    t.steps = 0;
    const Snapshots kept = snapshots_of(t, 1);
    t.model.layers = 2;
    t.before = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_restore(run, kept.at(0), nullptr), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("of another model"),
                  std::string::npos);
    };
    train(t, 1);
    destroy(kept);
}
