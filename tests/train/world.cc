// SPDX-License-Identifier: MIT
//
// See world.h.
#include "world.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "support/ranks.h"

extern "C" {
#include "base/base.h"
}

std::string Sharding::text() const
{
    return "zero=" + std::to_string(zero) + ", " + rf_order_name(order) +
           (shard ? ", shard=" + std::to_string(shard) : "") +
           (offload ? ", offload=" + std::to_string(offload) : "");
}

std::vector<Sharding> shardings()
{
    std::vector<Sharding> all;
    for (int zero : zero_stages)
        for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
            all.push_back({zero, order});
    return all;
}

std::vector<Sharding> all_shardings()
{
    std::vector<Sharding> all = shardings();
    for (int zero : zero_stages) {
        if (zero > 0)
            all.push_back({zero, RF_ORDER_RING, 2});
        const int grads = zero >= 2 ? RF_OFFLOAD_GRADS : 0;
        if (zero != 1) // parameters stay on the device then
            all.push_back({zero, RF_ORDER_TREE, 0, RF_OFFLOAD_PARAMS | grads});
        all.push_back(
            {zero, RF_ORDER_TREE, 0, RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_ACTIVATIONS | grads});
    }
    return all;
}

rf_device *rank_device(int rank)
{
    static std::mutex mutex;
    static std::vector<rf_device *> devices;
    std::lock_guard<std::mutex> lock(mutex);
    if (devices.size() <= (size_t)rank)
        devices.resize((size_t)rank + 1);
    if (!devices[(size_t)rank]) {
        EXPECT_RF(rf_device_open(nullptr, nullptr, &devices[(size_t)rank]));
    }
    return devices[(size_t)rank];
}

void Training::batch(int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) const
{
    const int64_t count = policy.batch * policy.seq, first = step * count;
    tokens.resize((size_t)count);
    targets.resize((size_t)count);
    for (int64_t i = 0; i < count; i++) {
        auto at = [&](int64_t k) {
            return (int32_t)rf_philox_below(seed, 900, (uint64_t)(first + k),
                                            (uint64_t)model.vocab);
        };
        tokens[(size_t)i] = at(i);
        targets[(size_t)i] = at(i + 1);
        // More are ignored towards the end, so that micro-batches differ.
        double chance = ignored * 2 * (double)i / (double)count;
        if ((double)rf_philox_below(seed, 901, (uint64_t)(first + i), 1000) < chance * 1000)
            targets[(size_t)i] = -1;
    }
    if (edit_batch)
        edit_batch(step, tokens, targets);
}

// Records the statistics of a step that a call has completed, if any.
static void see(const rf_step_stats &stats, Seen *seen)
{
    if (stats.of_step < 0)
        return;
    seen->loss.push_back(stats.loss);
    seen->norm.push_back(stats.grad_norm);
    seen->stats.push_back(stats);
}

static void train_rank(const Training &t, rf_comm *comm, int ranks, int rank, Seen *seen)
{
    gpt2 *model = nullptr;
    llama *other = nullptr;
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    int blocks = 0;
    const rf_block *list = nullptr;
    if (t.llama.layers > 0) {
        ASSERT_EQ(t.llama.vocab, t.model.vocab);
        ASSERT_RF(llama_create(&t.llama, &other));
        for (const std::string &pattern : t.freeze)
            ASSERT_GT(llama_freeze(other, pattern.c_str()), 0) << pattern;
        list = llama_blocks(other, &blocks);
    } else {
        ASSERT_RF(gpt2_create(&t.model, &model));
        for (const std::string &pattern : t.freeze)
            ASSERT_GT(gpt2_freeze(model, pattern.c_str()), 0) << pattern;
        list = gpt2_blocks(model, &blocks);
    }
    std::vector<rf_block> edited(list, list + blocks);
    if (t.edit_blocks)
        t.edit_blocks(edited, rank);
    rf_mesh mesh = {ranks / t.tp / t.cp / t.pp, t.tp, t.pp, t.shard, t.cp};
    ASSERT_RF(rf_plan_build({edited.data(), (int)edited.size()}, &mesh, &t.policy, rank, &plan));
    if (t.edit)
        t.edit(plan, rank);
    rf_run_opts opts = {t.seed, t.record_each_step};
    opts.disk = t.disk.empty() ? nullptr : t.disk.c_str();
    ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, &opts, &run));
    if (t.before)
        t.before(run, comm, rank);
    for (int step = 0; step < t.steps; step++) {
        std::vector<int32_t> tokens, targets;
        rf_step_stats stats = {};
        t.batch(t.first_step + step, tokens, targets);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
        see(stats, seen);
        if (t.drain_every > 0 && (step + 1) % t.drain_every == 0) {
            ASSERT_RF(rf_run_drain(run, &stats));
            see(stats, seen);
        }
    }
    rf_step_stats rest = {};
    ASSERT_RF(rf_run_drain(run, &rest));
    see(rest, seen);
    seen->sha = sha_of(run);
    if (t.after)
        t.after(run, comm, rank);
    rf_run_measured(run, &seen->measured);
    rf_run_planned(run, &seen->planned);
    rf_run_close(run);
    rf_plan_destroy(plan);
    gpt2_destroy(model);
    llama_destroy(other);
}

std::string sha_of(rf_run *run)
{
    char hex[65] = "";
    EXPECT_RF(rf_run_params_sha256(run, hex));
    return hex;
}

Training tiny(int steps, float clip)
{
    Training t;
    t.model = {1, 16, 2, 8, 17};
    t.policy.batch = t.policy.micro_batches = 4;
    t.policy.seq = 8;
    t.policy.clip = clip;
    t.steps = steps;
    return t;
}

void take_steps(const Training &t, rf_run *run, int from, int to)
{
    for (int step = from; step < to; step++) {
        std::vector<int32_t> tokens, targets;
        t.batch(step, tokens, targets);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
    }
}

void save_at(rf_run *run, const std::string &folder, int step)
{
    const rf_progress progress = {step, 77, 4 * step};
    ASSERT_RF(rf_run_save(run, folder.c_str(), &progress));
}

// A driver compiles a kernel at its first launch, and keeps it for later devices and processes
// (Mesa's cache of shaders). All ranks at once would each compile it: so one runs alone before.
static void compile_once(const Training &t)
{
    static std::set<std::vector<int>> compiled;
    const rf_policy &p = t.policy;
    const bool is_llama = t.llama.layers > 0;
    if (t.steps == 0 || t.edit_blocks ||
        !compiled
             .insert({is_llama, is_llama ? t.llama.dtype : t.model.dtype,
                      is_llama ? t.llama.residual : t.model.residual, p.optimizer.kind})
             .second)
        return;
    Training one;
    Seen ignored;
    one.model = t.model;
    one.llama = t.llama;
    one.steps = 1;
    one.policy.seq = p.seq;
    one.policy.batch = p.batch / p.micro_batches;
    one.policy.micro_batches = 1;
    one.policy.clip = p.clip;
    one.policy.loss_scale = p.loss_scale;
    one.policy.optimizer.kind = p.optimizer.kind;
    train_rank(one, nullptr, 1, 0, &ignored);
}

std::vector<Seen> train(const Training &training, int ranks)
{
    std::vector<Seen> seen((size_t)ranks);
    if (ranks == 1) {
        train_rank(training, nullptr, 1, 0, &seen[0]);
        return seen;
    }
    compile_once(training);
    for (int r = 0; r < ranks; r++)
        rank_device(r);
    ranks::World world;
    world.size = ranks;
    world.faults = training.loopback;
    /* Deadlines are tested elsewhere; a slow driver and few cores make a peer wait for long. */
    world.timeout_s = 100.0 * ranks::patience();
    world.watchdog_s = 120;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        train_rank(training, comm, ranks, rank, &seen[(size_t)rank]);
    });
    return seen;
}

std::vector<float> trained_parameters(Training training, int ranks)
{
    std::vector<float> all;
    training.after = [&](rf_run *run, rf_comm *, int rank) {
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_plan_param &param = run->plan->params[i];
            std::vector<float> values((size_t)param.count);
            ASSERT_RF(rf_run_read_param(run, param.desc->name, values.data(), values.size() * 4));
            if (rank == 0)
                all.insert(all.end(), values.begin(), values.end());
        }
    };
    train(training, ranks);
    return all;
}

float worst_difference(const std::vector<float> &a, const std::vector<float> &b)
{
    float worst = 0;
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
        worst = std::max(worst, std::fabs(a[i] - b[i]));
    return worst;
}

void expect_planned(const Seen &s, const std::string &where)
{
    EXPECT_EQ(s.measured.params, s.planned.params) << where;
    EXPECT_EQ(s.measured.grads, s.planned.grads) << where;
    EXPECT_EQ(s.measured.optimizer, s.planned.optimizer) << where;
    EXPECT_EQ(s.measured.activations, s.planned.activations) << where;
    EXPECT_EQ(s.measured.comm, s.planned.comm) << where;
    EXPECT_EQ(s.measured.scratch, s.planned.scratch) << where;
    EXPECT_EQ(s.measured.host, s.planned.host) << where;
    EXPECT_EQ(s.measured.sent, s.planned.sent) << where;
    EXPECT_EQ(s.measured.disk, s.planned.disk) << where;
    EXPECT_EQ(s.measured.disk_moved, s.planned.disk_moved) << where;
}
