// SPDX-License-Identifier: MIT
//
// Random jobs against one rank. A seed draws a model, with matrices just under and over the sizes
// at which a path changes; a mesh; a policy; and how the job may lose a rank. Losses, norms,
// held-out losses and parameters are those of one rank without sharding: the same bits in tree
// order, otherwise up to the rounding of sums in another order. Measurements equal the plan, copies
// are equal, and the checker accepts the plans.
//
// RF_TEST_MESHES=COUNT draws COUNT jobs, starting with RF_TEST_SEED=FIRST, and prints each. Those
// draw from all models, types and optimizers; without it all jobs use few kernels, which a driver
// translates once.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>

#include "folder.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{

enum Loss { NONE, FROM_MEMORY, FROM_CHECKPOINT };

struct Job {
    Training t;
    int dp = 1;
    Loss loss = NONE; // a rank is lost before step `lost_at`
    int lost_at = 0;
    int left = 0; // data-parallel ranks after that
    bool exact = false, narrow = false;
    int64_t evaluated = 1; // micro-batches of held-out text
    int ranks() const
    {
        return dp * t.tp * t.cp * t.pp;
    }
    std::string text() const;
};

std::string Job::text() const
{
    static const char *const losses[] = {"", ", loses a rank", ", loses a rank (checkpoint)"};
    const rf_policy &p = t.policy;
    const bool llama = t.llama.layers > 0;
    std::string s = llama ? "llama" : "gpt2";
    auto put = [&](const char *name, int64_t value) {
        if (value)
            s += std::string(" ") + name + "=" + std::to_string(value);
    };
    put("layers", llama ? t.llama.layers : t.model.layers);
    put("channels", llama ? t.llama.channels : t.model.channels);
    put("heads", llama ? t.llama.heads : t.model.heads);
    put("kv", llama ? t.llama.kv_heads : 0);
    put("hidden", t.llama.hidden);
    put("tied", t.llama.tied);
    put("vocab", t.model.vocab);
    put("head_rows", llama ? t.llama.head_rows : t.model.head_rows);
    s += std::string(" ") + rf_dtype_name(llama ? t.llama.dtype : t.model.dtype) + "/" +
         rf_dtype_name(llama ? t.llama.residual : t.model.residual);
    for (const std::string &pattern : t.freeze)
        s += " freeze=" + pattern;
    s += ";";
    put("dp", dp);
    put("tp", t.tp);
    put("cp", t.cp);
    put("pp", t.pp);
    put("shard", t.shard);
    put("zero", p.zero);
    s += std::string(" ") + rf_order_name(p.order) + " ";
    s += t.pp > 1 ? rf_pipeline_name(p.pipeline) : "";
    put("chunks", p.chunks);
    put("parts", p.tensor_parts);
    put("sequence", p.sequence_parallel);
    put("batch", p.batch);
    put("micro_batches", p.micro_batches);
    put("seq", p.seq);
    put("packed", p.packed);
    put("ignored%", (int64_t)(t.ignored * 100));
    put("recompute", p.recompute);
    put("offload", p.offload);
    put("rank0", p.update_on_rank_0);
    put("kept", p.keep_gathered);
    put("late", p.no_prefetch);
    put("no_overlap", p.no_overlap);
    put("no_masters", p.no_masters);
    put("bucket", (int64_t)p.bucket_bytes);
    put("first", (int64_t)p.first_bucket_bytes);
    s += std::string("; ") + rf_optimizer_get_info(p.optimizer.kind)->name;
    put("stochastic", p.optimizer.stochastic_rounding);
    put("clip%", (int64_t)(p.clip * 100));
    put("scale", (int64_t)p.loss_scale);
    if (p.reduce_dtype != RF_F32)
        s += std::string(" reduce ") + rf_dtype_name(p.reduce_dtype);
    put("steps", t.steps);
    s += losses[loss];
    if (loss != NONE)
        s += " before step " + std::to_string(lost_at) + ", then dp=" + std::to_string(left);
    return s + (exact ? " (exact)" : "");
}

class Draw
{
  public:
    Draw(uint64_t seed, bool few) : few_kernels(few), seed_(seed)
    {
    }
    const bool few_kernels;
    int below(int n)
    {
        return (int)rf_philox_below(seed_, 77, at_++, (uint64_t)n);
    }
    bool one_in(int n)
    {
        return below(n) == 0;
    }
    template <class T> T of(std::initializer_list<T> list)
    {
        return list.begin()[below((int)list.size())];
    }

  private:
    uint64_t seed_, at_ = 0;
};

// 64 x 256, or 256 x 64, is the smallest matrix that is overwritten instead of cleared.
void draw_model(Draw &d, Training &t)
{
    struct Width {
        int channels, heads;
    };
    const Width widths[] = {{64, 4}, {32, 4}, {64, 2}, {60, 2}, {36, 3}, {64, 4}};
    const Width w = widths[d.few_kernels ? 0 : d.below(6)];
    const int layers = 1 + d.below(2), vocab = d.of({61, 255, 256, 257, 64});
    const int head_rows = !d.few_kernels && d.one_in(4) ? 5 : 0;
    t.model = {layers, w.channels, w.heads, 16, vocab, head_rows};
    if (!d.few_kernels && d.one_in(2)) {
        t.llama.layers = layers;
        t.llama.channels = w.channels;
        t.llama.heads = w.heads;
        t.llama.kv_heads = w.heads % 2 == 0 ? d.of({w.heads, w.heads / 2, 1}) : w.heads;
        t.llama.hidden = d.of({64, 252, 256, 128});
        t.llama.vocab = vocab;
        t.llama.tied = d.one_in(2);
        t.llama.head_rows = head_rows;
    }
    if (d.one_in(5))
        t.freeze = {d.of<const char *>({"blocks.0.*", "*.weight", "wte*", "*bias", "model.*"})};
}

void draw_types(Draw &d, Job &job)
{
    Training &t = job.t;
    rf_policy &p = t.policy;
    const rf_dtype types[] = {RF_F32, RF_F32, RF_F32, RF_BF16, RF_BF16, RF_F16};
    const rf_dtype type = types[d.below(d.few_kernels ? 4 : 6)];
    const rf_dtype residual = d.few_kernels || d.one_in(2) ? type : RF_F32;
    p.optimizer.stochastic_rounding = type != RF_F32 && d.one_in(2);
    p.no_masters = type != RF_F32 && residual == type && d.one_in(2);
    p.loss_scale = type == RF_F16 || d.one_in(8) ? 64.0f : 0.0f;
    t.model.dtype = t.llama.dtype = type;
    t.model.residual = t.llama.residual = residual;
    job.narrow = type != RF_F32;
}

void draw_mesh(Draw &d, Job &job)
{
    Training &t = job.t;
    rf_policy &p = t.policy;
    job.dp = d.of({1, 2, 2, 3, 3, 4});
    t.pp = d.of({1, 1, 1, 2, 2, 3});
    t.tp = d.of({1, 1, 1, 2, 2, 3, 4});
    t.cp = t.tp == 1 ? d.of({1, 1, 2}) : 1;
    p.zero = d.below(4);
    t.shard = p.zero && job.dp % 2 == 0 && d.one_in(3) ? 2 : 0;
    p.order = d.one_in(2) ? RF_ORDER_RING : RF_ORDER_TREE;
    p.pipeline = d.of({RF_PIPELINE_1F1B, RF_PIPELINE_GPIPE, RF_PIPELINE_INTERLEAVED,
                       RF_PIPELINE_ZBH1, RF_PIPELINE_ZBV, RF_PIPELINE_NAIVE});
    p.sequence_parallel = t.tp > 1 && d.one_in(2);
    p.tensor_parts = !p.sequence_parallel && t.cp == 1 && d.one_in(3) ? d.of({2, 4}) : 0;
}

void draw_policy(Draw &d, Job &job)
{
    Training &t = job.t;
    rf_policy &p = t.policy;
    p.micro_batches = job.dp + d.below(job.dp + 3);
    p.batch = p.micro_batches * (d.one_in(4) ? 2 : 1);
    p.seq = d.few_kernels ? 8 : d.of({8, 16, 12});
    p.packed = !d.few_kernels && t.cp == 1 && d.one_in(6);
    t.ignored = d.one_in(2) ? 0.3 : 0;
    p.recompute = d.of({0, 0, 0, 1, 2, RF_RECOMPUTE_AUTO});
    p.offload = d.one_in(3) ? d.below(16) : 0;
    p.update_on_rank_0 = p.order == RF_ORDER_RING && d.one_in(4);
    if (p.update_on_rank_0)
        p.zero = t.shard = 0;
    p.keep_gathered = p.zero == 3 && d.one_in(4);
    p.no_prefetch = p.zero == 3 && d.one_in(4);
    p.no_overlap = d.one_in(6);
    p.first_bucket_bytes = d.of({4096, 65536, 0});
    p.bucket_bytes = d.of({30000, 65536, 0});
    p.optimizer.kind =
        d.few_kernels || d.one_in(2) ? RF_SGD : (rf_optimizer)d.below(RF_OPTIMIZER_COUNT);
    p.optimizer.weight_decay = d.one_in(2) ? 0.1f : 0;
    p.clip = d.one_in(2) ? 0.25f : 0;
    p.reduce_dtype = p.order == RF_ORDER_RING && d.one_in(5) ? d.of({RF_BF16, RF_F16}) : RF_F32;
    t.lr = p.optimizer.kind == RF_SGD ? 0.1f : 0.001f;
    t.steps = 1 + d.below(3);
    job.evaluated = 1 + d.below(7);
    if (job.dp > 1 && t.steps > 1 && d.one_in(3)) {
        const bool copies = p.zero == 0 ? !p.update_on_rank_0 : t.shard && job.dp / t.shard > 1;
        job.loss = copies && d.one_in(2) ? FROM_MEMORY : FROM_CHECKPOINT;
        job.lost_at = 1 + d.below(t.steps - 1);
        job.left = job.dp - 1;
    }
}

// In tree order with the same parts of every sum.
void find_exact(Job &job)
{
    const Training &t = job.t;
    const bool alike = t.cp == 1 && (t.tp == 1 || t.policy.tensor_parts);
    job.exact = alike && t.policy.order == RF_ORDER_TREE && !t.policy.sequence_parallel;
}

Job drawn(Draw &d)
{
    Job job;
    draw_model(d, job.t);
    draw_types(d, job);
    draw_mesh(d, job);
    draw_policy(d, job);
    if (job.t.policy.packed)
        job.t.edit_batch = [](int step, std::vector<int32_t> &, std::vector<int32_t> &targets) {
            for (size_t i = 0; i < targets.size(); i++)
                if (rf_philox_below(3, 902, (uint64_t)step * 10000 + i, 6) == 0)
                    targets[i] = RF_TARGET_LAST;
        };
    find_exact(job);
    return job;
}

// ---- plans -------------------------------------------------------------------------------------

// The blocks of a training.
struct Model {
    gpt2 *of_gpt = nullptr;
    llama *of_llama = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    explicit Model(const Training &t)
    {
        if (t.llama.layers > 0 && llama_create(&t.llama, &of_llama) == 0) {
            for (const std::string &pattern : t.freeze)
                found = found && llama_freeze(of_llama, pattern.c_str()) > 0;
            blocks = llama_blocks(of_llama, &count);
        } else if (t.llama.layers == 0 && gpt2_create(&t.model, &of_gpt) == 0) {
            for (const std::string &pattern : t.freeze)
                found = found && gpt2_freeze(of_gpt, pattern.c_str()) > 0;
            blocks = gpt2_blocks(of_gpt, &count);
        }
    }
    ~Model()
    {
        gpt2_destroy(of_gpt);
        llama_destroy(of_llama);
    }
    bool found = true; // all patterns
};

// Whether every rank has a plan, which the checker must then accept.
bool is_possible(const Training &t, int dp, int shard, const std::string &text)
{
    const Model model(t);
    if (!model.blocks || !model.found)
        return false;
    const rf_mesh mesh = {dp, t.tp, t.pp, shard, t.cp};
    std::vector<rf_plan *> plans;
    int rc = 0;
    for (int rank = 0; rc == 0 && rank < dp * t.tp * t.pp * t.cp; rank++) {
        plans.push_back(nullptr);
        rc = rf_plan_build({model.blocks, model.count}, &mesh, &t.policy, rank, &plans.back());
    }
    if (rc < 0) {
        const std::string why = rf_last_error()->message;
        EXPECT_TRUE(rc == RF_EINVAL || rc == RF_ENOTSUP) << why;
    } else {
        EXPECT_RF(rf_plan_check(plans.data(), (int)plans.size())) << text;
    }
    for (rf_plan *plan : plans)
        rf_plan_destroy(plan);
    return rc == 0;
}

// The same on one rank: everything that determines the arithmetic of a micro-batch or of an update
// is kept.
Training alone(const Job &job)
{
    Training t = job.t;
    rf_policy &p = t.policy;
    t.tp = t.cp = t.pp = 1;
    t.shard = p.zero = p.recompute = 0;
    p.offload &= RF_OFFLOAD_OPTIMIZER;
    p.update_on_rank_0 = p.keep_gathered = p.no_prefetch = p.no_overlap = false;
    p.sequence_parallel = false;
    p.tensor_parts = job.exact ? p.tensor_parts : 0;
    p.reduce_dtype = RF_F32;
    return t;
}

// After a loss there may be fewer copies than a shard needs.
int shard_left(const Job &job)
{
    return job.t.shard && job.left % job.t.shard == 0 ? job.t.shard : 0;
}

Job next_possible(uint64_t seed, bool few_kernels)
{
    for (Draw d(seed, few_kernels);;) {
        Job job = drawn(d);
        const std::string text = job.text();
        if (job.ranks() > (few_kernels ? 4 : 6) || !is_possible(job.t, job.dp, job.t.shard, text) ||
            !is_possible(alone(job), 1, 0, text))
            continue;
        if (job.loss != NONE && !is_possible(job.t, job.left, shard_left(job), text))
            job.loss = NONE;
        return job;
    }
}

// ---- runs --------------------------------------------------------------------------------------

struct Result {
    std::vector<Seen> seen; // by rank, of the last run
    std::vector<double> loss, norm;
    double held_out = 0;
    std::map<std::string, std::vector<float>> params, first;
};

std::map<std::string, std::vector<float>> params_of(rf_run *run)
{
    std::map<std::string, std::vector<float>> all;
    for (int i = 0; i < run->plan->param_count; i++) {
        const rf_plan_param &param = run->plan->params[i];
        std::vector<float> values((size_t)rf_shape_count(param.cut.shape));
        if (param.logical == i) {
            EXPECT_RF(rf_run_read_param(run, param.desc->name, values.data(), values.size() * 4));
            all[param.desc->name] = values;
        }
    }
    return all;
}

void add_steps(const std::vector<Seen> &seen, Result *out)
{
    out->seen = seen;
    out->loss.insert(out->loss.end(), seen[0].loss.begin(), seen[0].loss.end());
    out->norm.insert(out->norm.end(), seen[0].norm.begin(), seen[0].norm.end());
}

// Records the beginning and the end of a run.
void watch(Training &t, const Job &job, Result *out, std::mutex *mutex)
{
    auto before = t.before;
    t.before = [=, &job](rf_run *run, rf_comm *comm, int rank) {
        if (before)
            before(run, comm, rank);
        const auto params = params_of(run);
        std::lock_guard<std::mutex> lock(*mutex);
        if (out->first.empty())
            out->first = params;
    };
    t.after = [=, &job](rf_run *run, rf_comm *, int rank) {
        const rf_progress progress = {job.t.steps, job.t.seed, 0};
        std::vector<int32_t> tokens, targets;
        Training text = job.t;
        text.policy.batch *= 7; // the most that can be evaluated
        text.batch(50, tokens, targets);
        double loss = 0;
        EXPECT_RF(rf_run_audit(run, &progress));
        EXPECT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), job.evaluated, &loss));
        const auto params = params_of(run);
        if (rank == 0) {
            out->params = params;
            out->held_out = loss;
        }
    };
}

Result run_alone(const Job &job)
{
    Result out;
    std::mutex mutex;
    Training t = alone(job);
    watch(t, job, &out, &mutex);
    add_steps(train(t, 1), &out);
    return out;
}

// The rank of the whole job that is rank `rank` of the survivors: those without data-parallel rank
// 0.
int survivor(const Job &job, int rank)
{
    const int tensor = job.t.tp * job.t.cp;
    const int data = rank / tensor % job.left + 1, stage = rank / tensor / job.left;
    return (stage * job.dp + data) * tensor + rank % tensor;
}

// Continues without one rank, from the others' state or from a checkpoint.
void run_in_two(const Job &job, Result *out, std::mutex *mutex)
{
    Folder folder;
    std::map<int, rf_snapshot *> kept;
    Training first = job.t, second = job.t;
    const bool memory = job.loss == FROM_MEMORY;
    for (int rank = 0; rank < job.ranks(); rank++)
        kept[rank] = nullptr;
    first.steps = job.lost_at;
    second.first_step = job.lost_at;
    second.steps -= job.lost_at;
    second.shard = shard_left(job);
    second.before = [&](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {};
        EXPECT_RF(memory ? rf_run_restore(run, kept[survivor(job, rank)], &progress)
                         : rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, job.lost_at);
    };
    watch(first, job, out, mutex);
    first.after = [&](rf_run *run, rf_comm *, int rank) {
        const rf_progress progress = {job.lost_at, job.t.seed, job.lost_at * job.t.policy.batch};
        EXPECT_RF(memory ? rf_run_snapshot(run, &progress, &kept[rank])
                         : rf_run_save(run, folder.path().c_str(), &progress));
    };
    add_steps(train(first, job.ranks()), out);
    watch(second, job, out, mutex);
    add_steps(train(second, job.ranks() / job.dp * job.left), out);
    for (auto &snapshot : kept)
        rf_snapshot_destroy(snapshot.second);
}

Result run_job(const Job &job)
{
    Result out;
    std::mutex mutex;
    Training t = job.t;
    if (job.loss != NONE) {
        run_in_two(job, &out, &mutex);
        return out;
    }
    watch(t, job, &out, &mutex);
    add_steps(train(t, job.ranks()), &out);
    return out;
}

// ---- comparisons -------------------------------------------------------------------------------

struct Tolerance {
    double loss, norm; // of the first step; relative
    double later;      // of later steps, relative to the first
    double update;     // of a parameter's change; relative
    double value;      // of a parameter, relative
};

// f32: sums in another order. 16 bits: their products are those of the same micro-batches, unless
// ranks share these; but a weight's last bit that is rounded the other way is 2^-8 of it, or 2^-11.
// A rule that divides by a root scales the roundings of a zero gradient up to whole steps.
Tolerance tolerance_of(const Job &job)
{
    const rf_policy &p = job.t.policy;
    const bool shared = job.t.tp > 1 || job.t.cp > 1 || p.tensor_parts;
    const bool linear = p.optimizer.kind == RF_SGD || p.optimizer.kind == RF_MOMENTUM ||
                        p.optimizer.kind == RF_NESTEROV;
    Tolerance t = {1e-6, 1e-5, 10, 1e-4, 1e-6};
    if (job.narrow && shared)
        t = {3e-3, 3e-2, 2, 0.2, 1e-2};
    else if (job.narrow)
        t = {1e-6, 1e-5, 3000, 0.05, 1e-2};
    if (p.reduce_dtype != RF_F32) {
        t.norm = std::max(t.norm, 8e-3);
        t.later = std::max(t.later, 100.0);
        t.update = std::max(t.update, 0.05);
    }
    if (!linear) {
        t.later = std::max(t.later, 3000.0);
        t.update = 1e9;
    }
    return t;
}

void expect_params(const Result &job, const Result &one, const Tolerance &t)
{
    ASSERT_EQ(job.params.size(), one.params.size());
    for (const auto &param : one.params) {
        const std::vector<float> &want = param.second, &got = job.params.at(param.first);
        const std::vector<float> &first = one.first.at(param.first);
        double worst = 0, change = 0, size = 0;
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); i++) {
            worst = std::max(worst, std::fabs((double)got[i] - (double)want[i]));
            change = std::max(change, std::fabs((double)first[i] - (double)want[i]));
            size = std::max(size, std::fabs((double)want[i]));
        }
        EXPECT_LE(worst, t.update * change + t.value * size) << param.first;
    }
}

void expect_equal(const Job &job, const Result &got, const Result &one)
{
    EXPECT_EQ(got.loss, one.loss);
    EXPECT_EQ(got.norm, one.norm);
    EXPECT_EQ(got.held_out, one.held_out);
    for (const Seen &s : got.seen)
        EXPECT_EQ(s.sha, one.seen[0].sha);
    (void)job;
}

void expect_near(const Job &job, const Result &got, const Result &one)
{
    const Tolerance t = tolerance_of(job);
    ASSERT_EQ(got.loss.size(), one.loss.size());
    for (size_t k = 0; k < one.loss.size(); k++) {
        const double later = k ? t.later : 1;
        EXPECT_NEAR(got.loss[k], one.loss[k], later * t.loss * std::fabs(one.loss[k])) << k;
        EXPECT_NEAR(got.norm[k], one.norm[k], later * t.norm * one.norm[k]) << k;
    }
    EXPECT_NEAR(got.held_out, one.held_out, t.later * t.loss * one.held_out);
    expect_params(got, one, t);
}

void expect_same(const Job &job)
{
    const Result one = run_alone(job), got = run_job(job);
    for (size_t rank = 0; rank < got.seen.size(); rank++) {
        EXPECT_EQ(got.seen[rank].sha, got.seen[0].sha) << rank;
        EXPECT_EQ(got.seen[rank].norm, got.seen[0].norm) << rank;
        expect_planned(got.seen[rank], "rank " + std::to_string(rank));
    }
    if (job.exact)
        expect_equal(job, got, one);
    else
        expect_near(job, got, one);
}

} // namespace

TEST(RandomMeshes, TrainAsOneRankDoes)
{
    const char *count = getenv("RF_TEST_MESHES"), *first = getenv("RF_TEST_SEED");
    const uint64_t begin = first ? strtoull(first, nullptr, 10) : 1;
    const uint64_t end = begin + (count ? strtoull(count, nullptr, 10) : 160);
    for (uint64_t seed = begin; seed < end; seed++) {
        const Job job = next_possible(seed, !count);
        const std::string text =
            "RF_TEST_SEED=" + std::to_string(seed) + " RF_TEST_MESHES=1: " + job.text();
        const testing::ScopedTrace trace(__FILE__, __LINE__, text);
        if (count) {
            printf("%s\n", text.c_str());
            fflush(stdout);
        }
        expect_same(job);
    }
}

// Plans alone are checked in milliseconds.
TEST(RandomMeshes, HavePlansThatTheCheckerAccepts)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        const testing::ScopedTrace trace(__FILE__, __LINE__, seed);
        next_possible(seed, false);
    }
}
