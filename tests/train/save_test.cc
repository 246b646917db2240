// SPDX-License-Identifier: MIT
//
// Saves and loads of many ranks: each writes and reads its own part, in the background too, and all
// get the status of any of them.
#include <csignal>
#include <cstring>
#include <future>
#include <sys/resource.h>

#include "folder.h"
#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{

// Everything that a checkpoint must restore.
std::vector<float> state_of(rf_run *run)
{
    std::vector<float> all = {(float)run->step, (float)run->updates};
    for (int i = 0; i < run->plan->param_count; i++) {
        const rf_plan_param &param = run->plan->params[i];
        for (int id : {(int)RF_REGION_PARAMS, (int)RF_REGION_STATE, (int)RF_REGION_STATE + 1}) {
            const rf_tensor region = run->regions[id];
            const size_t at = all.size(), count = (size_t)param.count;
            if (param.owner != i || !region.buffer)
                continue;
            all.resize(at + count);
            EXPECT_RF(rf_buffer_read(region.buffer, region.offset + param.first * sizeof(float),
                                     &all[at], count * sizeof(float)));
        }
    }
    return all;
}

// The folder after a save of `ranks` ranks, and the state that was saved.
std::vector<float> make_checkpoint(const Training &t, const Folder &folder, int ranks,
                                   const std::vector<int> &hidden = {})
{
    std::vector<float> state;
    Training first = t;
    first.before = [&](rf_run *run, rf_comm *, int rank) {
        run->files.piece_bytes = 1536;
        if (std::count(hidden.begin(), hidden.end(), rank))
            hide_folders(run);
    };
    first.after = [&](rf_run *run, rf_comm *, int rank) {
        save_at(run, folder.path(), 2);
        if (rank == 0)
            state = state_of(run);
    };
    const std::vector<Seen> seen = train(first, ranks);
    for (const Seen &s : seen)
        EXPECT_EQ(s.measured.sent, s.planned.sent);
    return state;
}

void expect_loads(const Training &t, const Folder &folder, int ranks,
                  const std::vector<float> &want, const std::vector<int> &hidden = {})
{
    Training rest = t;
    rest.steps = 0;
    rest.seed = 6;
    rest.after = [&](rf_run *run, rf_comm *, int rank) {
        run->files.piece_bytes = 1000;
        if (std::count(hidden.begin(), hidden.end(), rank))
            hide_folders(run);
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, 2);
        EXPECT_EQ(progress.samples, 8);
        EXPECT_TRUE(state_of(run) == want) << "rank " << rank << " of " << ranks;
    };
    for (const Seen &s : train(rest, ranks))
        EXPECT_EQ(s.measured.sent, s.planned.sent);
}

// A hook that stops a background thread until released.
struct Gate {
    std::promise<void> reached, open;
    std::shared_future<void> opened = open.get_future().share();
    std::atomic<bool> first{true};
    static void wait(void *user, const char *stage)
    {
        Gate *gate = (Gate *)user;
        if (strcmp(stage, "piece written") != 0 || !gate->first.exchange(false))
            return;
        gate->reached.set_value();
        gate->opened.wait();
    }
};

} // namespace

TEST(SharedSave, EveryNumberOfRanksWritesTheSameBytesAndEveryNumberLoadsThem)
{
    const Training t = tiny(2);
    Folder folders[5];
    std::vector<float> want;
    for (int savers = 1; savers <= 4; savers++) {
        const std::vector<float> state = make_checkpoint(t, folders[savers], savers);
        if (savers == 1)
            want = state;
        EXPECT_TRUE(state == want) << savers;
        for (const char *file : {"step-2/model.safetensors", "step-2/optimizer.safetensors"})
            EXPECT_TRUE(folders[savers].read(file) == folders[1].read(file)) << file << savers;
    }
    for (int loaders = 1; loaders <= 4; loaders++)
        for (int savers = 1; savers <= 4; savers++)
            expect_loads(t, folders[savers], loaders, want);
}

TEST(SharedSave, RanksThatDoNotSeeTheFolderSaveAndLoadThroughRank0)
{
    const Training t = tiny(2);
    Folder seen, hidden;
    const std::vector<float> want = make_checkpoint(t, seen, 1);
    EXPECT_TRUE(make_checkpoint(t, hidden, 3, {1, 2}) == want);
    for (const char *file : {"step-2/model.safetensors", "step-2/optimizer.safetensors"})
        EXPECT_TRUE(hidden.read(file) == seen.read(file)) << file;
    expect_loads(t, hidden, 3, want, {2});
    expect_loads(t, hidden, 3, want, {1, 2});
}

TEST(SharedSave, ARankThatUpdatesNothingSavesAndLoadsNoStates)
{
    Training t = tiny(2);
    t.policy.order = RF_ORDER_RING;
    t.policy.update_on_rank_0 = true;
    Folder folder;
    const std::vector<float> want = make_checkpoint(t, folder, 3);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
        if (rank == 0) {
            EXPECT_TRUE(state_of(run) == want);
        }
    };
    train(t, 3);
    t.policy.update_on_rank_0 = false;
    expect_loads(t, folder, 2, want);
}

TEST(SharedSave, NoRankTakesMoreMemoryThanAFewPieces)
{
    Training t = tiny(2);
    t.model = {1, 128, 2, 8, 257};
    t.steps = 0;
    Folder folder;
    std::atomic<uint64_t> most_save{0}, most_load{0}, bytes{0};
    t.after = [&](rf_run *run, rf_comm *comm, int rank) {
        run->files.piece_bytes = 4096;
        for (const bool load : {false, true}) {
            ASSERT_RF(rf_barrier(comm, nullptr));
            if (rank == 0)
                rf_alloc_largest();
            ASSERT_RF(rf_barrier(comm, nullptr));
            if (load)
                ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
            else
                save_at(run, folder.path(), 2);
            ASSERT_RF(rf_barrier(comm, nullptr));
            if (rank == 0)
                (load ? most_load : most_save) = rf_alloc_largest();
            ASSERT_RF(rf_barrier(comm, nullptr));
        }
        bytes = run->plan->param_elements * sizeof(float);
    };
    train(t, 2);
    EXPECT_GT(bytes, 900000u);     // the parameters, and twice that for the states
    EXPECT_LE(most_save, 65536u);  // the buffer for small files
    EXPECT_LE(most_load, 262144u); // the block that is verified at once
}

TEST(SharedSave, WhatOneRankCannotOpenIsToldToAllAndTheLastGoodOneStays)
{
    Training t = tiny(2);
    Folder folder;
    const std::vector<float> want = make_checkpoint(t, folder, 1);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *comm, int rank) {
        const rf_progress progress = {3, 77, 12};
        if (rank == 2)
            hide_folders(run); // otherwise it would miss the file as well
        if (rank == 1)
            run->files.saves = {
                [](void *user, const char *stage) {
                    if (strcmp(stage, "folder announced") == 0)
                        std::filesystem::remove(
                            ((Folder *)user)->path("step-3.tmp/optimizer.safetensors"));
                },
                (void *)&folder};
        EXPECT_EQ(rf_run_save(run, folder.path().c_str(), &progress), RF_EIO);
        const std::string message = rf_last_error()->message;
        EXPECT_NE(message.find("optimizer.safetensors, which rank 0 has created"),
                  std::string::npos)
            << message;
        EXPECT_EQ(message.find("rank 1: ") == 0, rank != 1) << message;
        ASSERT_RF(rf_barrier(comm, nullptr));
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-3.tmp")));
        EXPECT_EQ(folder.read("latest"), "step-2\n");
        run->files.saves = {};
        ASSERT_RF(rf_barrier(comm, nullptr));
        save_at(run, folder.path(), 3);
    };
    train(t, 3);
}

TEST(SharedSave, ACopyOnAnotherRankIsVerifiedByThatRank)
{
    Training t = tiny(2);
    Folder folder, copy;
    const std::vector<float> want = make_checkpoint(t, folder, 1);
    const auto options = std::filesystem::copy_options::recursive |
                         std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy(folder.path(), copy.path(), options);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *comm, int rank) {
        const Folder &mine = rank == 1 ? copy : folder;
        ASSERT_RF(rf_run_load(run, mine.path().c_str(), nullptr));
        EXPECT_TRUE(state_of(run) == want);
        const char *name = "step-2/optimizer.safetensors";
        if (rank == 1) {
            std::string bytes = copy.read(name);
            bytes[bytes.size() - 5] ^= 1;
            copy.write(name, bytes);
        }
        EXPECT_EQ(rf_run_load(run, mine.path().c_str(), nullptr), RF_ECORRUPT);
        const std::string message = rf_last_error()->message;
        EXPECT_NE(message.find(copy.path(name)), std::string::npos) << message;
        EXPECT_EQ(message.find("rank 1: ") == 0, rank != 1) << message;
        EXPECT_TRUE(state_of(run) == want);
        ASSERT_RF(rf_barrier(comm, nullptr));
        if (rank == 1) // another checkpoint does not count: rank 0 sends its own
            copy.write("step-2/state.json", "{}");
        ASSERT_RF(rf_run_load(run, mine.path().c_str(), nullptr));
    };
    train(t, 2);
}

TEST(SharedSave, ARankThatDiesEndsItForAllAndLeavesACompleteOne)
{
    const Training t = tiny(2);
    Folder folder;
    make_checkpoint(t, folder, 3);
    std::atomic<int> refused{0};
    const struct {
        uint64_t messages;
        bool hidden, background;
    } deaths[] = {{12, false, false},
                  {14, false, true},
                  {16, true, true},
                  {24, true, false},
                  {40, true, true}};
    for (const auto &death : deaths) {
        ranks::World world;
        world.size = 3;
        world.faults.kill_rank = 2;
        world.faults.kill_after_messages = death.messages;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            gpt2 *model = nullptr;
            rf_plan *plan = nullptr;
            rf_run *run = nullptr;
            int count = 0;
            const rf_mesh mesh = {3, 1, 1};
            const rf_progress progress = {3, 77, 12};
            ASSERT_RF(gpt2_create(&t.model, &model));
            const rf_block *blocks = gpt2_blocks(model, &count);
            ASSERT_RF(rf_plan_build({blocks, count}, &mesh, &t.policy, rank, &plan));
            int rc = rf_run_open(rank_device(rank), comm, plan, nullptr, &run);
            if (rc == 0) {
                run->files.piece_bytes = 2000;
                if (rank == 2 && death.hidden)
                    hide_folders(run);
                rc = death.background
                         ? rf_run_save_begin(run, folder.path().c_str(), &progress, nullptr)
                         : rf_run_save(run, folder.path().c_str(), &progress);
            }
            rc = rc == 0 ? rf_run_save_wait(run) : rc;
            refused += rank == 0 && rc == RF_EPEER;
            rf_run_close(run);
            rf_plan_destroy(plan);
            gpt2_destroy(model);
        });
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-3.tmp"))) << death.messages;
        char name[64];
        rf_checkpoint c = {};
        ASSERT_RF(rf_checkpoint_find(folder.path().c_str(), name));
        ASSERT_RF(rf_checkpoint_open(folder.path().c_str(), name, &c));
        EXPECT_RF(rf_checkpoint_verify(&c, 0, 1));
        rf_checkpoint_close(&c);
    }
    EXPECT_GE(refused, 3);
}

TEST(BackgroundSave, WritesTheStateOfItsBeginWhileTrainingGoesOn)
{
    const Training t = tiny(2);
    Folder want, folder;
    const std::vector<float> state = make_checkpoint(t, want, 1);
    Training go = t;
    Gate gate;
    go.after = [&](rf_run *run, rf_comm *, int rank) {
        const rf_progress progress = {2, 77, 8};
        rf_save_progress far = {};
        if (rank == 1)
            run->files.saves = {Gate::wait, &gate};
        run->files.piece_bytes = 1000;
        ASSERT_RF(rf_run_save_begin(run, folder.path().c_str(), &progress, nullptr));
        take_steps(t, run, 2, 2 + 1);
        if (rank == 1)
            gate.reached.get_future().wait();
        ASSERT_RF(rf_run_save_test(run, &far));
        EXPECT_FALSE(far.ended);
        EXPECT_LT(far.written, far.bytes);
        EXPECT_FALSE(std::filesystem::exists(folder.path("latest")));
        take_steps(t, run, 3, 3 + 1);
        if (rank == 1)
            gate.open.set_value();
        while (!far.ended)
            ASSERT_RF(rf_run_save_test(run, &far));
        EXPECT_EQ(folder.read("latest"), "step-2\n");
        EXPECT_RF(rf_run_save_wait(run)); // there is none
    };
    for (const Seen &s : train(go, 2))
        EXPECT_EQ(s.measured.sent, s.planned.sent);
    for (const char *file : {"step-2/model.safetensors", "step-2/optimizer.safetensors"})
        EXPECT_TRUE(folder.read(file) == want.read(file)) << file;
    expect_loads(t, folder, 1, state);
}

TEST(BackgroundSave, AnErrorOfTheThreadIsReturnedByTheCallThatEndsTheSave)
{
    Training t = tiny(2);
    Folder folder;
    make_checkpoint(t, folder, 1);
    t.steps = 0;
    signal(SIGXFSZ, SIG_IGN); // a write past the limit is then EFBIG, as ENOSPC is on a full disk
    rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (const bool by_begin : {false, true}) {
        t.after = [&](rf_run *run, rf_comm *comm, int rank) {
            const rf_progress progress = {3, 77, 12};
            if (rank == 1) // the files exist, and later writes fail
                run->files.saves = {[](void *, const char *stage) {
                                        rlimit small;
                                        getrlimit(RLIMIT_FSIZE, &small);
                                        small.rlim_cur = 4096;
                                        if (strcmp(stage, "folder announced") == 0)
                                            setrlimit(RLIMIT_FSIZE, &small);
                                    },
                                    nullptr};
            ASSERT_RF(rf_run_save_begin(run, folder.path().c_str(), &progress, nullptr));
            EXPECT_EQ(by_begin ? rf_run_save_begin(run, folder.path().c_str(), &progress, nullptr)
                               : rf_run_save_wait(run),
                      RF_EIO);
            EXPECT_NE(strstr(rf_last_error()->message, "model.safetensors"), nullptr)
                << rf_last_error()->message;
            ASSERT_RF(rf_barrier(comm, nullptr));
            if (rank == 1)
                setrlimit(RLIMIT_FSIZE, &old);
            run->files.saves = {};
            EXPECT_FALSE(std::filesystem::exists(folder.path("step-3.tmp")));
            EXPECT_EQ(folder.read("latest"), "step-2\n");
            EXPECT_RF(rf_run_save_wait(run)); // none is in progress any more
        };
        train(t, 2);
    }
}

TEST(BackgroundSave, IsGivenUpByClosingTheRun)
{
    Training t = tiny(2);
    Folder folder;
    make_checkpoint(t, folder, 1);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {3, 77, 12};
        run->files.piece_bytes = 64;
        ASSERT_RF(rf_run_save_begin(run, folder.path().c_str(), &progress, nullptr));
    };
    train(t, 2);
    EXPECT_FALSE(std::filesystem::exists(folder.path("step-3.tmp")));
    EXPECT_FALSE(std::filesystem::exists(folder.path("step-3")));
    EXPECT_EQ(folder.read("latest"), "step-2\n");
}

TEST(BackgroundSave, KeepsTheLastCheckpointsAndTheLaterOnes)
{
    Training t = tiny(2);
    t.steps = 0;
    Folder folder;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const auto save_keeping = [&](int number, int keep) {
            const rf_progress progress = {number, 77, 4 * number};
            const rf_save_opts opts = {keep};
            ASSERT_RF(rf_run_save_begin(run, folder.path().c_str(), &progress, &opts));
            ASSERT_RF(rf_run_save_wait(run));
        };
        for (int number : {1, 2, 11, 3, 4})
            save_keeping(number, 0);
        std::filesystem::create_directory(folder.path("step-2.tmp")); // a killed save's
        folder.write("step-2.tmp/model.safetensors", "cut off");
        folder.write("step-x", "not ours");
        save_keeping(5, 2);
    };
    train(t, 1);
    std::vector<std::string> left;
    for (const auto &item : std::filesystem::directory_iterator(folder.path()))
        left.push_back(item.path().filename());
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left, (std::vector<std::string>{"latest", "lock", "step-11", "step-4", "step-5",
                                              "step-x"}));
    EXPECT_EQ(folder.read("latest"), "step-5\n");
}
