// SPDX-License-Identifier: MIT
//
// A run on any mesh resumes the checkpoint of any other: the loaded state has the bits of the saved
// one, and the next step is that of the uninterrupted run; with the same bits if the number of
// tensor ranks is the same. layouts_test.cc and tensor_state_test.cc test more sources of
// checkpoints, without further steps.
#include <algorithm>
#include <cmath>
#include <map>

#include "folder.h"
#include "world.h"

namespace
{

struct Mesh {
    int dp, tp, pp;
    int zero = 0;
    rf_pipeline_kind pipeline = RF_PIPELINE_1F1B;
    int ranks() const
    {
        return dp * tp * pp;
    }
    std::string text() const
    {
        return "dp=" + std::to_string(dp) + ",tp=" + std::to_string(tp) +
               ",pp=" + std::to_string(pp) + " zero=" + std::to_string(zero);
    }
};

// The one of eight ranks is the last.
const Mesh meshes[] = {
    {1, 1, 1},    {2, 1, 1, 3}, {1, 2, 1},    {1, 1, 2, 0, RF_PIPELINE_ZBV},
    {3, 1, 1, 1}, {1, 4, 1},    {2, 2, 1, 2}, {1, 2, 2},
    {2, 1, 2, 1}, {1, 1, 4},    {4, 1, 1, 2}, {2, 2, 2, 1},
};
constexpr size_t mesh_count = std::size(meshes);

Training on(const Mesh &m, bool is_llama)
{
    Training t;
    t.model = {2, 32, 4, 8, 61};
    if (is_llama)
        t.llama = {2, 32, 4, 2, 64, 61};
    t.policy.batch = t.policy.micro_batches = 4;
    t.policy.seq = 8;
    t.policy.clip = 0.25f;
    t.policy.zero = m.zero;
    t.policy.pipeline = m.pipeline;
    t.tp = m.tp;
    t.pp = m.pp;
    return t;
}

constexpr int saved_steps = 2;

void save(rf_run *run, const Training &t, const Folder &folder)
{
    const rf_progress progress = {saved_steps, t.seed, saved_steps * t.policy.batch, 0, 0};
    ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
}

// All parameters and states.
std::string state(const Folder &folder)
{
    const std::string at = "step-" + std::to_string(saved_steps);
    const std::string model = folder.read(at + "/model.safetensors"),
                      states = folder.read(at + "/optimizer.safetensors");
    EXPECT_GT(model.size(), 4u * 61 * 32);
    EXPECT_GT(states.size(), 2 * model.size() - 2 * 8192);
    return model + states;
}

// A run on one of the meshes that saves, and continues.
struct Saved {
    Folder folder;
    std::string files;
    Seen next; // its step after that
};

void train_and_save(Training t, int ranks, Saved *saved)
{
    t.steps = saved_steps;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        std::vector<int32_t> tokens, targets;
        rf_step_stats stats = {};
        save(run, t, saved->folder);
        t.batch(saved_steps, tokens, targets);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
        const std::string sha = sha_of(run);
        if (rank == 0)
            saved->next = {sha, {stats.loss}, {stats.grad_norm}, {}, {}, {}};
    };
    train(t, ranks);
    saved->files = state(saved->folder);
}

// The next step on another mesh, where the checkpoint is saved again first.
Seen load_and_train(Training t, int ranks, const Saved &saved, const Folder &again)
{
    t.steps = 1;
    t.first_step = saved_steps;
    t.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, saved.folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, saved_steps);
        EXPECT_EQ(progress.samples, saved_steps * t.policy.batch);
        save(run, t, again);
    };
    return train(t, ranks)[0];
}

double difference(double a, double b)
{
    return std::fabs(a - b) / std::fabs(b);
}

// `tried`: selects pairs of a saving and a loading mesh.
void expect_to_go_on(bool is_llama, bool (*tried)(size_t from, size_t to))
{
    double worst = 0;
    int pairs = 0;
    std::map<int, std::string> files; // by the number of tensor ranks
    for (size_t from = 0; from < mesh_count; from++) {
        std::map<int, Seen> next; // likewise
        Saved saved;
        for (size_t to = 0; to < mesh_count; to++) {
            const Mesh &a = meshes[from], &b = meshes[to];
            const std::string where = a.text() + ", then " + b.text();
            if (!tried(from, to))
                continue;
            if (saved.files.empty()) {
                train_and_save(on(a, is_llama), a.ranks(), &saved);
                next[a.tp] = saved.next;
                EXPECT_TRUE(files.emplace(a.tp, saved.files).first->second == saved.files) << where;
            }
            const Folder again;
            const Seen s = load_and_train(on(b, is_llama), b.ranks(), saved, again);
            const Seen &same = next.emplace(b.tp, s).first->second;
            EXPECT_TRUE(state(again) == saved.files) << where;
            EXPECT_EQ(s.loss, same.loss) << where;
            EXPECT_EQ(s.norm, same.norm) << where;
            EXPECT_EQ(s.sha, same.sha) << where;
            worst = std::max({worst, difference(s.loss.at(0), saved.next.loss.at(0)),
                              difference(s.norm.at(0), saved.next.norm.at(0))});
            EXPECT_LE(worst, 1e-6) << where;
            pairs++;
        }
    }
    printf("%d pairs: the next step's loss and gradient norm differ by %.1e at most\n", pairs,
           worst);
}

} // namespace

// A dozen pairs: each mesh of up to four ranks saves and loads.
TEST(Resume, OnAnotherMeshTheStateIsWhatWasSavedAndTheNextStepTheSame)
{
    expect_to_go_on(false, [](size_t from, size_t to) {
        const size_t quick = mesh_count - 1;
        return from < quick && (to == (from + 4) % quick || (from == 0 && to == 7));
    });
}

TEST(Resume, OnEveryMeshFromEveryOtherTheStateIsWhatWasSavedAndTheNextStepTheSame)
{
    if (!getenv("RF_TEST_ALL"))
        GTEST_SKIP() << "takes minutes: set RF_TEST_ALL=1";
    for (bool is_llama : {false, true})
        expect_to_go_on(is_llama, [](size_t, size_t) { return true; });
}
