// SPDX-License-Identifier: MIT
//
// Optimizer states in a file on a disk: bits, bytes, checkpoints, and a disk that fails.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "folder.h"
#include "small_trainings.h"
#include "world.h"

extern "C" {
#include "train/run.h"
}

namespace
{

// Blocks of 1024 elements of a state, the fewest there can be.
Training on_disk(const Folder &folder, rf_dtype states = RF_F32)
{
    Training t = coded(states);
    t.policy.offload = t.policy.disk = RF_OFFLOAD_OPTIMIZER;
    t.policy.disk_block_bytes = 1;
    t.disk = folder.path();
    return t;
}

Training in_memory(Training t)
{
    t.policy.disk = 0;
    return t;
}

Training sharded_by(Training t, int zero)
{
    t.policy.zero = zero;
    t.policy.offload |= zero >= 2 ? RF_OFFLOAD_GRADS : 0;
    t.policy.offload |= zero != 1 ? RF_OFFLOAD_PARAMS : 0;
    return t;
}

ssize_t read_fails(int, void *, size_t, off_t)
{
    errno = EIO;
    return -1;
}

ssize_t write_fails(int, const void *, size_t, off_t)
{
    errno = ENOSPC;
    return -1;
}

// Bytes come in odd pieces, and between them a signal.
ssize_t read_some(int fd, void *to, size_t bytes, off_t at)
{
    static thread_local int calls = 0;
    errno = EINTR;
    return ++calls % 3 == 0 ? -1 : pread(fd, to, bytes > 700 ? 700 : bytes, at);
}

ssize_t write_some(int fd, const void *from, size_t bytes, off_t at)
{
    static thread_local int calls = 0;
    errno = EINTR;
    return ++calls % 3 == 0 ? -1 : pwrite(fd, from, bytes > 700 ? 700 : bytes, at);
}

// A step that fails on all ranks; returns the messages of all of them.
std::vector<std::string> fails(Training t, int ranks,
                               const std::function<void(rf_run *, int)> &what)
{
    std::vector<std::string> says((size_t)ranks);
    t.steps = 0;
    t.before = [&](rf_run *run, rf_comm *, int rank) {
        std::vector<int32_t> tokens, targets;
        t.batch(0, tokens, targets);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
        what(run, rank);
        const int rc = rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr);
        EXPECT_TRUE(ranks == 1 ? rc == RF_EIO : rc < 0) << rc;
        says[(size_t)rank] = rf_last_error()->message;
        run->inconsistent = {}; // what follows in train() reads, and the update may have begun
    };
    train(t, ranks);
    return says;
}

} // namespace

TEST(Disk, HasTheBitsAndBytesOfThePlanOnAnyNumberOfRanks)
{
    Folder folder;
    for (rf_dtype states : {RF_F32, RF_BF16, RF_U8}) {
        const Training t = on_disk(folder, states);
        const Seen memory = train(in_memory(t), 1)[0];
        EXPECT_EQ(memory.planned.disk, 0u);
        for (int ranks : {1, 2, 3, 4})
            for (int zero : {0, 1, 2, 3}) {
                if ((states != RF_F32 && (ranks + zero) % 3) || (ranks == 1 && zero))
                    continue;
                const std::string where =
                    std::to_string(ranks) + " ranks, zero=" + std::to_string(zero);
                for (const Seen &s : train(sharded_by(t, zero), ranks)) {
                    EXPECT_EQ(s.sha, memory.sha) << where;
                    expect_planned(s, where);
                    EXPECT_GT(s.planned.disk, 0u) << where;
                    EXPECT_LE(s.planned.disk, memory.planned.optimizer) << where;
                    // Two blocks of two states in f32; a third one does not fit.
                    EXPECT_LT(s.planned.optimizer, 3 * 8192u) << where;
                    EXPECT_GT(s.stats.back().disk_ns, 0u) << where;
                }
            }
    }
}

TEST(Disk, MovesEachStateTwiceAStepAndOneBlockMayHaveAll)
{
    Folder folder;
    Training t = on_disk(folder);
    const Seen small = train(t, 1)[0];
    t.policy.disk_block_bytes = 0;
    const Seen large = train(t, 1)[0];
    EXPECT_EQ(small.sha, large.sha);
    EXPECT_EQ(small.planned.disk_moved, large.planned.disk_moved);
    EXPECT_LE(small.planned.disk_moved, 2 * (uint64_t)t.steps * small.planned.disk);
    EXPECT_GT(large.planned.optimizer, small.planned.optimizer);
}

TEST(Disk, OtherRulesAndTypesOfParameters)
{
    Folder folder;
    for (rf_optimizer kind : {RF_SGD, RF_LION, RF_RMSPROP}) {
        Training t = on_disk(folder);
        t.model.dtype = kind == RF_LION ? RF_BF16 : RF_F32;
        t.model.residual = RF_F32;
        t.policy.optimizer = {};
        t.policy.optimizer.kind = kind;
        t.policy.optimizer.centered = kind == RF_RMSPROP;
        t.policy.optimizer.stochastic_rounding = kind == RF_LION;
        const std::string straight = train(in_memory(t), 1)[0].sha;
        for (const Seen &s : train(sharded_by(t, 2), 2)) {
            EXPECT_EQ(s.sha, straight) << kind;
            expect_planned(s, "rule");
            EXPECT_EQ(s.planned.disk == 0, kind == RF_SGD); // which has no states
        }
    }
}

TEST(Disk, ACheckpointContinuesWithAndWithout)
{
    for (rf_dtype states : {RF_F32, RF_BF16, RF_U8}) {
        Folder folder;
        Training t = on_disk(folder, states);
        t.steps = 4;
        const std::string whole = train(t, 1)[0].sha;
        t.steps = 2;
        for (bool saves_from_disk : {true, false}) {
            const std::string path = folder.path(saves_from_disk ? "from-disk" : "from-memory");
            Training first = saves_from_disk ? sharded_by(t, 1) : in_memory(t);
            first.after = [&](rf_run *run, rf_comm *, int) {
                const rf_progress progress = {2, t.seed, 8};
                ASSERT_RF(rf_run_save_begin(run, path.c_str(), &progress, nullptr));
                ASSERT_RF(rf_run_save_wait(run));
            };
            train(first, saves_from_disk ? 3 : 1);
            Training rest = t;
            rest.first_step = 2;
            rest.before = [&](rf_run *run, rf_comm *, int) {
                rf_progress progress = {};
                ASSERT_RF(rf_run_load(run, path.c_str(), &progress));
            };
            if (saves_from_disk) {
                EXPECT_EQ(train(in_memory(rest), 1)[0].sha, whole);
            }
            EXPECT_EQ(train(sharded_by(rest, 3), 2)[1].sha, whole);
        }
    }
}

TEST(Disk, ReadsAndWritesThatAreCutShortGoOn)
{
    Folder folder;
    Training t = on_disk(folder);
    const std::string whole = train(t, 1)[0].sha;
    t.before = [](rf_run *run, rf_comm *, int) {
        *rf_disk_calls(run->disk) = {read_some, write_some};
    };
    EXPECT_EQ(train(t, 1)[0].sha, whole);
}

TEST(Disk, ThatFailsIsAnErrorOnAllRanksAndNeverWrongNumbers)
{
    Folder folder;
    const Training t = on_disk(folder);
    const auto reads = [](rf_run *run, int rank) {
        if (rank == 0)
            rf_disk_calls(run->disk)->read = read_fails;
    };
    for (int ranks : {1, 2})
        for (const std::string &says : fails(t, ranks, reads))
            EXPECT_NE(says.find("cannot be read at byte"), says.npos) << says;
    const auto writes = [](rf_run *run, int) { rf_disk_calls(run->disk)->write = write_fails; };
    std::string says = fails(t, 1, writes)[0];
    EXPECT_NE(says.find("cannot be written at byte 0 of"), says.npos) << says;
    EXPECT_NE(says.find(strerror(ENOSPC)), says.npos) << says;
    EXPECT_NE(says.find(folder.path()), says.npos) << says;
    says = fails(t, 1, [](rf_run *run, int) {
        ASSERT_EQ(ftruncate(rf_disk_file(run->disk), 5000), 0);
        const float zero = 0; // would make it whole again, with a hole
        EXPECT_EQ(rf_disk_write(run->disk, run->plan->bytes.disk - 4, &zero, 4), RF_EIO);
    })[0];
    EXPECT_NE(says.find("ends at byte 5000 of"), says.npos) << says;
}

TEST(Disk, IsReservedBeforeTheFirstStepAndItsFileHasNoName)
{
    Folder folder;
    Training t = on_disk(folder);
    t.before = [&](rf_run *run, rf_comm *, int) {
        struct stat st = {};
        ASSERT_EQ(fstat(rf_disk_file(run->disk), &st), 0);
        EXPECT_EQ(st.st_nlink, 0u);
        EXPECT_GE((uint64_t)st.st_blocks * 512, run->plan->bytes.disk);
        EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    };
    train(t, 1);
    gpt2 *model = nullptr;
    int count = 0;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan));
    signal(SIGXFSZ, SIG_IGN); // a file past the limit is then EFBIG, as ENOSPC is on a full disk
    struct rlimit old = {}, small = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 10000;
    const std::string missing = folder.path("missing");
    for (const char *dir : {(const char *)nullptr, missing.c_str(), t.disk.c_str()}) {
        rf_run_opts opts = {};
        opts.disk = dir;
        setrlimit(RLIMIT_FSIZE, &small);
        const int rc = rf_run_open(rank_device(0), nullptr, plan, &opts, &run);
        setrlimit(RLIMIT_FSIZE, &old);
        const std::string says = rf_last_error()->message;
        EXPECT_EQ(rc, dir ? RF_EIO : RF_EINVAL) << says;
        EXPECT_NE(says.find(!dir                     ? "name a folder there"
                            : dir == missing.c_str() ? strerror(ENOENT)
                                                     : "cannot reserve the"),
                  says.npos)
            << says;
    }
    rf_plan_destroy(plan);
    gpt2_destroy(model);
}

// A model of several layers, all of whose activations leave the device but those of the last ones.
static Training deep(const Folder &folder, int layers)
{
    Training t = on_disk(folder);
    t.model.layers = layers;
    t.policy.offload = t.policy.disk = RF_OFFLOAD_ACTIVATIONS;
    return t;
}

TEST(Disk, OfActivationsHasTheBitsOfTheDeviceAndHostMemoryOfAFewBlocks)
{
    Folder folder;
    const Training t = deep(folder, 6);
    Training device = t;
    device.policy.offload = device.policy.disk = 0;
    const std::string straight = train(device, 1)[0].sha;
    for (int ranks : {1, 2, 3})
        for (int zero : {0, 3}) {
            Training of = t;
            of.policy.zero = zero;
            of.policy.no_prefetch = zero == 3 && ranks == 3;
            of.policy.offload |= zero ? RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS : 0;
            of.policy.disk |= zero && ranks == 2 ? RF_OFFLOAD_OPTIMIZER : 0;
            Training on = of;
            on.policy.disk = 0;
            const std::string same = zero ? train(on, 1)[0].sha : straight;
            const std::string where = std::to_string(ranks) + " zero=" + std::to_string(zero);
            for (const Seen &s : train(of, ranks)) {
                EXPECT_EQ(s.sha, same) << where;
                expect_planned(s, where);
                EXPECT_GT(s.planned.disk, 0u) << where;
            }
        }
    const Seen six = train(t, 1)[0], nine = train(deep(folder, 9), 1)[0];
    EXPECT_LT(nine.planned.host, train(in_memory(deep(folder, 9)), 1)[0].planned.host);
    EXPECT_EQ(six.planned.host, nine.planned.host);
    EXPECT_GT(nine.planned.disk, six.planned.disk);
}

TEST(Disk, ThatFailsWithActivationsIsAnErrorOnAllRanksBeforeAnyUpdate)
{
    Folder folder;
    const Training t = deep(folder, 5);
    std::vector<std::string> before(2), after(2);
    const auto reads = [&](rf_run *run, int rank) {
        before[(size_t)rank] = sha_of(run);
        if (rank == 0)
            rf_disk_calls(run->disk)->read = read_fails;
    };
    Training seen = t;
    seen.after = [&](rf_run *run, rf_comm *, int rank) { after[(size_t)rank] = sha_of(run); };
    for (const std::string &says : fails(seen, 2, reads))
        EXPECT_NE(says.find("cannot be read at byte"), says.npos) << says;
    EXPECT_EQ(after, before);
}

// Pages of the file that the kernel keeps are host memory beyond the plan.
TEST(Disk, LeavesNoPagesInTheCache)
{
    Folder folder;
    Training t = on_disk(folder);
    t.policy.disk_block_bytes = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const size_t bytes = run->plan->bytes.disk;
        void *map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, rf_disk_file(run->disk), 0);
        ASSERT_NE(map, MAP_FAILED);
        std::vector<unsigned char> resident((bytes + 4095) / 4096);
        ASSERT_EQ(mincore(map, bytes, resident.data()), 0);
        munmap(map, bytes);
        size_t pages = 0;
        for (unsigned char page : resident)
            pages += page & 1;
        EXPECT_LT(pages, resident.size() / 4) << resident.size();
    };
    train(t, 1);
}

TEST(Disk, RefusesByNameWhatItCannotDo)
{
    Folder folder;
    Training t = on_disk(folder);
    const auto refused = [&](const rf_policy &policy) {
        gpt2 *model = nullptr;
        int count = 0;
        rf_plan *plan = nullptr;
        EXPECT_RF(gpt2_create(&t.model, &model));
        const rf_block *blocks = gpt2_blocks(model, &count);
        EXPECT_LT(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan), 0);
        gpt2_destroy(model);
        return std::string(rf_last_error()->message);
    };
    rf_policy policy = t.policy;
    policy.offload = RF_OFFLOAD_PARAMS;
    EXPECT_NE(refused(policy).find("without its offload"), std::string::npos);
    policy.offload = policy.disk = RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS;
    EXPECT_NE(refused(policy).find("only the optimizer's states and activations"),
              std::string::npos);
    t.after = [](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {2, 5, 8};
        rf_snapshot *snapshot = nullptr;
        EXPECT_EQ(rf_run_snapshot(run, &progress, &snapshot), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("use checkpoints"), std::string::npos);
    };
    train(t, 1);
}
