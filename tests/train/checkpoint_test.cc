// SPDX-License-Identifier: MIT
//
// Checkpoints: training continues with the same bits, on any number of ranks; damage is named and
// changes nothing; a save that is killed or runs out of disk leaves the last good one.
#include <csignal>
#include <cstring>
#include <random>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

#include "folder.h"
#include "world.h"

extern "C" {
#include "base/base.h"
#include "io/checkpoint.h"
#include "io/lock.h"
}

extern char **environ;

namespace
{

const char *const files[] = {"model.safetensors", "model.hashes", "optimizer.safetensors",
                             "optimizer.hashes", "state.json"};

// The victim (save_victim.cc) dies at this moment.
void kill_a_save(const Folder &folder, const std::string &moment, int ranks, const char *way)
{
    const std::string path = folder.path(), count = std::to_string(ranks);
    char *const arguments[] = {(char *)RF_SAVE_VICTIM, (char *)path.c_str(), (char *)moment.c_str(),
                               (char *)count.c_str(),  (char *)way,          nullptr};
    pid_t child = 0;
    int status = 0;
    ASSERT_EQ(posix_spawn(&child, RF_SAVE_VICTIM, nullptr, nullptr, arguments, environ), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << moment;
}

// Verifies that all its bytes are intact and from one step, without a run.
void check_latest(const Folder &folder, int64_t *step)
{
    char name[64];
    float bias[16];
    rf_checkpoint c = {};
    ASSERT_RF(rf_checkpoint_find(folder.path().c_str(), name));
    ASSERT_RF(rf_checkpoint_open(folder.path().c_str(), name, &c));
    EXPECT_RF(rf_checkpoint_verify(&c, 0, 1));
    rf_safetensors *model = c.parts[RF_PART_MODEL].tensors;
    EXPECT_RF(
        rf_safetensors_read(model, rf_safetensors_find(model, "ln_f.bias"), 0, bias, sizeof(bias)));
    for (float b : bias)
        EXPECT_EQ(b, (float)c.state.step);
    *step = c.state.step;
    rf_checkpoint_close(&c);
}

// A folder with a checkpoint of step 2.
void make_checkpoint(const Training &t, const Folder &folder, int ranks = 1)
{
    Training first = t;
    first.steps = 2;
    first.after = [&](rf_run *run, rf_comm *, int) { save_at(run, folder.path(), 2); };
    train(first, ranks);
}

} // namespace

TEST(Checkpoint, TrainingGoesOnToTheBitOnAnyNumberOfRanks)
{
    Training t = tiny(3, 0.5f);
    t.steps = 5;
    const std::string straight = train(t, 1)[0].sha;
    for (int savers : {1, 3}) {
        Folder folder;
        make_checkpoint(t, folder, savers);
        EXPECT_EQ(folder.read("latest"), "step-2\n");
        for (int ranks : {1, 2}) {
            Training rest = t;
            rest.steps = 0;
            rest.seed = 5;
            std::vector<std::string> ends((size_t)ranks);
            std::vector<Seen> seen;
            rest.after = [&](rf_run *run, rf_comm *, int rank) {
                rf_progress progress = {};
                ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
                EXPECT_EQ(progress.step, 2);
                EXPECT_EQ(progress.samples, 8);
                EXPECT_EQ(progress.seed, 77u);
                take_steps(t, run, 2, 5);
                ends[(size_t)rank] = sha_of(run);
            };
            seen = train(rest, ranks);
            for (int rank = 0; rank < ranks; rank++) {
                EXPECT_EQ(ends[(size_t)rank], straight) << savers << " to " << ranks;
                EXPECT_EQ(seen[(size_t)rank].measured.sent, seen[(size_t)rank].planned.sent);
            }
        }
    }
}

TEST(Checkpoint, AFolderOfOneStepIsLoadedDirectlyAndASaveOfTheSameStepReplacesIt)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    t.steps = 1;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const std::string here = sha_of(run);
        save_at(run, folder.path(), 2);
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-2.tmp")));
        take_steps(t, run, 1, 2);
        EXPECT_NE(sha_of(run), here);
        ASSERT_RF(rf_run_load(run, folder.path("step-2").c_str(), nullptr));
        EXPECT_EQ(sha_of(run), here);
    };
    train(t, 1);
}

TEST(Checkpoint, DamageInAnyFileIsNamedAndTheRunStaysAsItWas)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const std::string before = sha_of(run);
        for (const char *file : files) {
            const std::string name = std::string("step-2/") + file, good = folder.read(name);
            std::vector<std::string> bad = {good.substr(0, good.size() / 2), "",
                                            good.substr(0, good.size() - 3)};
            for (size_t part = 1; part < 8; part++) {
                bad.push_back(good);
                bad.back()[good.size() * part / 8] ^= 1;
            }
            for (const std::string &bytes : bad) {
                folder.write(name, bytes);
                EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ECORRUPT) << name;
                EXPECT_NE(strstr(rf_last_error()->message, file), nullptr)
                    << rf_last_error()->message;
                EXPECT_EQ(sha_of(run), before);
            }
            std::filesystem::remove(folder.path(name));
            EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EIO);
            folder.write(name, good);
        }
        folder.write("latest", "../../etc\n");
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ECORRUPT);
        folder.write("latest", "step-2\n");
        EXPECT_EQ(sha_of(run), before);
        EXPECT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
        EXPECT_NE(sha_of(run), before);
    };
    train(t, 1);
}

TEST(Checkpoint, APipeInPlaceOfAFileIsRefusedAndOneInTheWayOfASaveReplaced)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (const char *name : {"latest", "step-2/state.json", "step-2/model.safetensors",
                                 "step-2/optimizer.safetensors", "step-2/model.hashes"}) {
            const std::string good = folder.read(name);
            std::filesystem::remove(folder.path(name));
            ASSERT_EQ(mkfifo(folder.path(name).c_str(), 0600), 0);
            EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EIO) << name;
            EXPECT_NE(strstr(rf_last_error()->message, name), nullptr) << rf_last_error()->message;
            EXPECT_NE(strstr(rf_last_error()->message, "a pipe"), nullptr);
            std::filesystem::remove(folder.path(name));
            folder.write(name, good);
        }
        ASSERT_EQ(mkfifo(folder.path("latest.tmp").c_str(), 0600), 0);
        save_at(run, folder.path(), 3);
        EXPECT_EQ(folder.read("latest"), "step-3\n");
        std::filesystem::remove(folder.path("lock"));
        ASSERT_EQ(mkfifo(folder.path("lock").c_str(), 0600), 0);
        EXPECT_EQ(rf_run_reserve(run, folder.path().c_str()), RF_EIO);
        EXPECT_NE(strstr(rf_last_error()->message, "lock is not a regular file"), nullptr);
    };
    train(t, 1);
}

TEST(Checkpoint, AnotherModelOrBatchIsRefusedOnEveryRankWithWhatToDo)
{
    Training t = tiny(3, 0.5f);
    Folder folder, empty;
    make_checkpoint(t, folder);
    t.steps = 0;
    std::string want;
    int status = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, (status == RF_EIO ? empty : folder).path().c_str(), nullptr),
                  status);
        EXPECT_NE(strstr(rf_last_error()->message, want.c_str()), nullptr)
            << rf_last_error()->message;
    };
    status = RF_EINVAL;
    want = "was trained with a batch of 4 sequences of 8 tokens, this run has 8 of 8: keep that";
    t.policy.batch = 8;
    train(t, 2);
    t.policy.batch = 4;
    t.model.channels = 32;
    want = "use the options it was trained with";
    train(t, 1);
    t.model.channels = 16;
    t.model.layers = 2;
    train(t, 1);
    status = RF_EIO;
    want = "there is no checkpoint";
    train(t, 2);
}

// Heads change no shape, so only the config shows the difference.
TEST(Checkpoint, AnotherConfigIsRefusedOnEveryRankAndEachDifferenceNamed)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    t.steps = 0;
    t.model.heads = 4;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const std::string before = sha_of(run);
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EINVAL);
        EXPECT_NE(
            strstr(rf_last_error()->message, "another model (heads: 2 in the checkpoint, 4 here)"),
            nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(sha_of(run), before);
    };
    train(t, 1);
    train(t, 2);
    t.model = {2, 32, 2, 8, 17};
    t.after = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "(layers: 1 in the checkpoint, 2 here; "
                                                   "channels: 16 in the checkpoint, 32 here)"),
                  nullptr)
            << rf_last_error()->message;
    };
    train(t, 1);
}

TEST(Checkpoint, OneThatDoesNotSayItsConfigIsRefusedAsOfAnEarlierVersion)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    std::string state = folder.read("step-2/state.json");
    const size_t line = state.find("\t\"config\"");
    state.erase(line, state.find('\n', line) + 1 - line);
    state[state.find("checkpoint 5") + 11] = '1';
    folder.write("step-2/state.json", state);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ENOTSUP);
        EXPECT_NE(strstr(rf_last_error()->message, "an earlier version saved it"), nullptr)
            << rf_last_error()->message;
    };
    train(t, 1);
}

TEST(Checkpoint, OneOfALaterFormatIsRefusedWithItsNumber)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    std::string state = folder.read("step-2/state.json");
    state.replace(state.find("checkpoint 5") + 11, 1, "12");
    folder.write("step-2/state.json", state);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ENOTSUP);
        EXPECT_NE(strstr(rf_last_error()->message, "has format 12, because a later version"),
                  nullptr)
            << rf_last_error()->message;
    };
    train(t, 1);
}

TEST(Checkpoint, AFolderIsReservedForOneRunAndLoadedByAll)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    const std::string dir = folder.path(), same = dir + "/../" + dir.substr(dir.rfind('/') + 1);
    Training second = t;
    t.steps = second.steps = 0;
    second.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {9, 77, 36};
        const std::string holder = "process " + std::to_string(getpid()) + " on ";
        for (const std::string &path : {dir, same}) {
            EXPECT_EQ(rf_run_reserve(run, path.c_str()), RF_EBUSY);
            EXPECT_NE(strstr(rf_last_error()->message, holder.c_str()), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_run_save(run, path.c_str(), &progress), RF_EBUSY);
        }
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-9")));
        EXPECT_RF(rf_run_load(run, dir.c_str(), nullptr));
    };
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        ASSERT_RF(rf_run_reserve(run, dir.c_str()));
        if (rank == 0)
            train(second, 1);
        save_at(run, folder.path(), 3); // its own reservation does not block it
        const rf_progress progress = {4, 77, 16};
        ASSERT_RF(rf_run_save(run, same.c_str(), &progress));
        ASSERT_RF(rf_run_reserve(run, dir.c_str()));
    };
    train(t, 1);
    train(t, 2); // the first run's reservation ended with it
    EXPECT_EQ(folder.read("latest"), "step-4\n");
}

// Whoever takes a dead rank's place comes before the system has closed the dead one's files. Here
// the holder has ended, reaped or not, and its child still has the file for a moment.
TEST(Checkpoint, TheLockOfAProcessThatIsEndingIsWaitedFor)
{
    for (bool reaped : {false, true}) {
        Folder folder;
        struct rf_folder_lock lock = {};
        int hold[2], status;
        siginfo_t about;
        ASSERT_EQ(pipe(hold), 0);
        const pid_t holder = fork();
        if (holder == 0) {
            const int rc = rf_folder_lock(folder.path().c_str(), &lock);
            close(hold[1]);
            char end;
            if (rc == 0 && fork() == 0)
                (void)!read(hold[0], &end, 1);
            _exit(rc == 0 ? 0 : 1);
        }
        ASSERT_EQ(waitid(P_PID, (id_t)holder, &about, WEXITED | WNOWAIT), 0);
        ASSERT_EQ(about.si_status, 0);
        if (reaped) {
            ASSERT_EQ(waitpid(holder, &status, 0), holder);
        }
        std::thread later([&] {
            usleep(50000);
            close(hold[1]);
        });
        EXPECT_RF(rf_folder_lock(folder.path().c_str(), &lock));
        later.join();
        rf_folder_unlock(&lock);
        close(hold[0]);
        if (!reaped) {
            ASSERT_EQ(waitpid(holder, &status, 0), holder);
        }
    }
}

TEST(Checkpoint, ASaveKilledAtAnyStageLeavesACompleteOne)
{
    Training t = tiny(3, 0.5f);
    t.steps = 0;
    // The victim saves step 1, then dies at this stage of saving step 2.
    for (const char *stage : {"folder made", "piece written", "model written", "optimizer written",
                              "state written", "renamed", "latest written", "done"}) {
        Folder folder;
        kill_a_save(folder, stage, 1, "blocking");
        t.after = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {};
            float bias[16];
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
            ASSERT_RF(rf_run_read_param(run, "ln_f.bias", bias, sizeof(bias)));
            EXPECT_EQ(progress.step, strcmp(stage, "done") == 0 ? 2 : 1) << stage;
            for (float b : bias)
                EXPECT_EQ(b, (float)progress.step) << stage;
            // And the remains of the killed save do not block the next one.
            ASSERT_RF(rf_run_reserve(run, folder.path().c_str()));
            save_at(run, folder.path(), 2);
            EXPECT_EQ(folder.read("latest"), "step-2\n");
            EXPECT_FALSE(std::filesystem::exists(folder.path("step-2.tmp")));
        };
        train(t, 1);
    }
}

// RF_TEST_ALL=1: 100 moments.
TEST(Checkpoint, SavesOfSeveralRanksKilledAtRandomMomentsLeaveACompleteOne)
{
    const int moments = getenv("RF_TEST_ALL") ? 100 : 3;
    std::mt19937 random(20);
    int64_t furthest = 0;
    for (int i = 0; i < moments; i++) {
        Folder folder;
        const std::string moment = "@" + std::to_string(random() % 30000);
        kill_a_save(folder, moment, 1 + i % 3, i % 2 ? "blocking" : "background");
        int64_t step = 0;
        check_latest(folder, &step);
        EXPECT_GE(step, 1) << moment;
        furthest = std::max(furthest, step);
    }
    RecordProperty("furthest_step", (int)furthest);
}

TEST(Checkpoint, AFullDiskIsAnErrorThatLeavesTheLastGoodOneAndNoRemains)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder);
    t.steps = 0;
    signal(SIGXFSZ, SIG_IGN); // a write past the limit is then EFBIG, as ENOSPC is on a full disk
    rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {3, 77, 12};
        const std::string before = sha_of(run);
        rlimit small = old;
        small.rlim_cur = 4096;
        if (rank == 0)
            setrlimit(RLIMIT_FSIZE, &small);
        EXPECT_EQ(rf_run_save(run, folder.path().c_str(), &progress), RF_EIO);
        EXPECT_NE(strstr(rf_last_error()->message, "model.safetensors"), nullptr)
            << rf_last_error()->message;
        if (rank == 0)
            setrlimit(RLIMIT_FSIZE, &old);
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-3.tmp")));
        EXPECT_FALSE(std::filesystem::exists(folder.path("step-3")));
        EXPECT_EQ(sha_of(run), before);
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, 2);
    };
    train(t, 2);
}

TEST(Checkpoint, TheCallersSettingsAreKeptAndReadBeforeARunIsOpened)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    t.steps = 0;
    const std::string settings = "lr=0.1\nname=\"quoted\" \\ \xc3\xa4\tend";
    t.after = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {1, 77, 4};
        char *text = nullptr;
        progress.settings = settings.c_str();
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.settings, nullptr);
        ASSERT_RF(rf_checkpoint_settings(folder.path().c_str(), &text));
        EXPECT_EQ(std::string(text), settings);
        free(text);
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress)); // without any
        ASSERT_RF(rf_checkpoint_settings(folder.path().c_str(), &text));
        EXPECT_EQ(text, nullptr);
        const std::string large((16 << 10) + 1, 'x');
        progress.settings = large.c_str();
        EXPECT_EQ(rf_run_save(run, folder.path().c_str(), &progress), RF_EINVAL);
    };
    train(t, 1);
    char *text = nullptr;
    ASSERT_RF(rf_checkpoint_settings(RF_REFERENCE_FOLDER "/checkpoint_format_4", &text));
    EXPECT_EQ(text, nullptr);
    EXPECT_EQ(rf_checkpoint_settings("/nothing", &text), RF_EIO);
    std::string state = folder.read("step-1/state.json");
    state.replace(state.find("\"1\""), 3, "\"2\"");
    folder.write("step-1/state.json", state);
    EXPECT_EQ(rf_checkpoint_settings(folder.path().c_str(), &text), RF_ECORRUPT);
}

// A forged hash that matches does not make invalid contents valid.
TEST(Checkpoint, AForgedStateIsRefusedWithItsFile)
{
    Training t = tiny(3, 0.5f);
    Folder folder;
    make_checkpoint(t, folder); // of step 2
    const std::string path = folder.path("step-2/state.json");
    rf_state_file file;
    ASSERT_RF(rf_state_read(path.c_str(), &file));
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const std::string before = sha_of(run);
        for (int forged = 0; forged < 3; forged++) {
            rf_state_file other = file;
            if (forged == 0)
                other.state.step = 3; // in a folder named step-2
            if (forged == 1)
                other.state.samples = INT64_MAX;
            if (forged == 2)
                other.state.step = INT64_MAX;
            ASSERT_RF(rf_state_write(path.c_str(), &other));
            EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ECORRUPT);
            EXPECT_NE(strstr(rf_last_error()->message, path.c_str()), nullptr)
                << rf_last_error()->message;
        }
        EXPECT_EQ(sha_of(run), before);
        ASSERT_RF(rf_state_write(path.c_str(), &file));
        std::filesystem::rename(folder.path("step-2"), folder.path("best"));
        ASSERT_RF(rf_run_load(run, folder.path("best").c_str(), nullptr)); // not the name of a step
    };
    train(t, 1);
    rf_free(file.config);
    rf_free(file.settings);
}

// checkpoint_format_2, _3 and _4 are saved by the last versions that wrote these formats: element k
// of parameter i, and of the two states of Adam, is 1000 * part + 10 * i + k / 8; their parts are
// 0, 3 and 4.
void load_of_format(const std::string &name)
{
    Training t;
    t.model = {1, 4, 1, 4, 5};
    t.policy.batch = 2;
    t.policy.seq = 4;
    t.policy.micro_batches = 2;
    t.steps = 0;
    Folder folder;
    const auto options = std::filesystem::copy_options::recursive;
    std::filesystem::copy(RF_REFERENCE_FOLDER "/" + name, folder.path(), options);
    t.after = [&](rf_run *run, rf_comm *comm, int rank) {
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, 7);
        EXPECT_EQ(progress.samples, 14);
        EXPECT_EQ(progress.seed, 77u);
        EXPECT_EQ(run->updates, 6);
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_plan_param &param = run->plan->params[i];
            for (auto [id, part] : {std::pair<int, int>{RF_REGION_PARAMS, 0},
                                    {RF_REGION_STATE, 3},
                                    {RF_REGION_STATE + 1, 4}}) {
                std::vector<float> values((size_t)param.count);
                const rf_tensor at = run->regions[id];
                if (param.owner != i)
                    continue;
                ASSERT_RF(rf_buffer_read(at.buffer, at.offset + param.first * sizeof(float),
                                         values.data(), values.size() * sizeof(float)));
                for (size_t k = 0; k < values.size(); k++)
                    ASSERT_EQ(values[k], (float)(1000 * part + 10 * i) + (float)k * 0.125f);
            }
        }
        ASSERT_RF(rf_barrier(comm, nullptr));
        const char *file = "step-7/optimizer.safetensors";
        if (rank == 0) {
            std::string bytes = folder.read(file);
            bytes[bytes.size() - 3] ^= 1;
            folder.write(file, bytes);
        }
        ASSERT_RF(rf_barrier(comm, nullptr));
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_ECORRUPT);
        EXPECT_NE(strstr(rf_last_error()->message, file), nullptr) << rf_last_error()->message;
    };
    train(t, 2);
}

TEST(Checkpoint, OneOfFormat2IsLoadedAndItsDamageNamed)
{
    load_of_format("checkpoint_format_2");
}

TEST(Checkpoint, OneOfFormat3IsLoadedAndItsDamageNamed)
{
    load_of_format("checkpoint_format_3");
}

TEST(Checkpoint, OneOfFormat4IsLoadedAndItsDamageNamed)
{
    load_of_format("checkpoint_format_4");
}
