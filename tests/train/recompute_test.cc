// SPDX-License-Identifier: MIT
//
// Values that layers recompute instead of keeping (src/models/recompute.h): every choice gives the
// same bits, in the bytes of docs/memory.md, and does not belong to the identity of a checkpoint.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "folder.h"
#include "world.h"

namespace
{

struct Case {
    const char *name;
    bool llama;
    rf_dtype dtype, residual;
};
// With RF_TEST_ALL=1 all of them, otherwise the first, which have each type and kind of residual
// once.
const Case cases[] = {
    {"gpt2 f32", false, RF_F32, RF_F32},
    {"llama f32", true, RF_F32, RF_F32},
    {"gpt2 bf16", false, RF_BF16, RF_BF16},
    {"llama f16", true, RF_F16, RF_F16},
    {"gpt2 f16, residual f32", false, RF_F16, RF_F32},
    {"llama bf16, residual f32", true, RF_BF16, RF_F32},
    {"gpt2 f16", false, RF_F16, RF_F16},
    {"llama bf16", true, RF_BF16, RF_BF16},
    {"gpt2 bf16, residual f32", false, RF_BF16, RF_F32},
    {"llama f16, residual f32", true, RF_F16, RF_F32},
};
const bool test_all = getenv("RF_TEST_ALL") != nullptr;

// Adds the parts implied by a part. Choices with equal results are the same for a layer.
unsigned whole(const Case &c, unsigned parts)
{
    if (!c.llama && c.dtype != RF_F32 && (parts & MODEL_RECOMPUTE_GELU))
        parts |= MODEL_RECOMPUTE_MLP;
    return parts & MODEL_RECOMPUTE_MLP ? parts | MODEL_RECOMPUTE_GELU : parts;
}

Training small(const Case &c, unsigned parts)
{
    Training t;
    t.model = {c.dtype == RF_F32 ? 2 : 1, 16, 2, 7, 17}; // layers: two share temporary memory
    if (c.llama) {
        t.llama = {t.model.layers, 16, 4, 2, 24, 17};
        t.llama.dtype = c.dtype;
        t.llama.residual = c.residual;
        t.llama.recompute = parts;
    }
    t.model.dtype = c.dtype;
    t.model.residual = c.residual;
    t.model.recompute = parts;
    t.policy.batch = 2;
    t.policy.seq = 7;
    t.policy.micro_batches = 1;
    t.policy.order = RF_ORDER_RING;
    t.policy.loss_scale = c.dtype == RF_F16 ? 64 : 0;
    t.steps = test_all ? 3 : 1;
    return t;
}

// All results of a run: the bytes of its gradients, and the losses.
struct Result {
    Seen seen;
    std::vector<float> grads;
    double evaluated = 0;
};

void read_all(const Training &t, rf_run *run, Result *result)
{
    for (int i = 0; i < run->plan->param_count; i++) {
        const rf_param_desc *desc = run->plan->params[i].desc;
        const size_t count = (size_t)rf_shape_count(desc->shape), first = result->grads.size();
        if (desc->tied_to)
            continue;
        result->grads.resize(first + count);
        ASSERT_RF(rf_run_read_grad(run, desc->name, &result->grads[first], 4 * count));
    }
    std::vector<int32_t> tokens, targets;
    t.batch(9, tokens, targets);
    ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 1, &result->evaluated));
}

Result result_of(Training t)
{
    Result result;
    t.after = [&](rf_run *run, rf_comm *, int) { read_all(t, run, &result); };
    result.seen = train(t, 1)[0];
    return result;
}

void expect_same(const Result &got, const Result &want, const std::string &where)
{
    ASSERT_EQ(got.grads.size(), want.grads.size()) << where;
    EXPECT_EQ(memcmp(got.grads.data(), want.grads.data(), 4 * want.grads.size()), 0) << where;
    EXPECT_EQ(got.seen.sha, want.seen.sha) << where;
    EXPECT_EQ(got.seen.loss, want.seen.loss) << where;
    EXPECT_EQ(got.seen.norm, want.seen.norm) << where;
    EXPECT_EQ(got.evaluated, want.evaluated) << where;
}

// ---- the formulas of docs/memory.md -----------------------------------------------------------

uint64_t up(int64_t bytes)
{
    return (uint64_t)((bytes + 255) / 256 * 256);
}

struct Layer {
    int64_t n, C, F, H, Q; // tokens; channels; hidden (GPT-2: 4 C); heads; columns of qkv
    int64_t b, r;          // bytes of the type and of the residual's
    bool llama;
    unsigned parts; // as asked for

    bool has(model_recompute_part part) const
    {
        return whole({"", llama, b == 4 ? RF_F32 : RF_F16, RF_F32}, parts) & part;
    }
    uint64_t channels() const
    {
        return up(n * C * b);
    }
    uint64_t act() const
    {
        return up(n * F * b);
    }
    uint64_t pre() const // gate and up of a Llama
    {
        return up((llama ? 2 : 1) * n * F * b);
    }
    uint64_t saved() const
    {
        const int stats = llama ? 1 : 2;
        uint64_t bytes = 2 * stats * up(4 * n) + up(n * Q * b) + up(n * C * r);
        bytes += has(MODEL_RECOMPUTE_NORMS) ? 0 : 2 * channels();
        bytes += has(MODEL_RECOMPUTE_ATTENTION) ? 0 : channels() + up(4 * n * H);
        bytes += has(MODEL_RECOMPUTE_MLP) ? 0 : pre();
        return bytes + (has(MODEL_RECOMPUTE_GELU) ? 0 : act());
    }
    uint64_t saved_for_weight() const
    {
        uint64_t bytes = pre() + 3 * channels() + up(n * Q * b) + (b == r ? 0 : channels());
        bytes += has(MODEL_RECOMPUTE_ATTENTION) ? channels() : 0;
        return bytes + (has(MODEL_RECOMPUTE_MLP) ? act() : 0);
    }
    uint64_t scratch() const
    {
        uint64_t operands =
            has(MODEL_RECOMPUTE_NORMS) ? channels() + (llama ? 1 : 2) * up(4 * n) : 0;
        operands += has(MODEL_RECOMPUTE_GELU) ? act() : 0;
        operands += has(MODEL_RECOMPUTE_MLP) && llama ? pre() : 0;
        const uint64_t heads = (has(MODEL_RECOMPUTE_ATTENTION) ? 2 : 1) * up(4 * n * H);
        int64_t weights = std::max<int64_t>(1, rf_norm_scratch(n, C));
        if (!llama)
            weights = std::max(weights, rf_bias_grad_scratch(n, 4 * C));
        return std::max({operands, channels() + heads, up(4 * weights), llama ? act() : 0});
    }
};

Training keeping(Training t)
{
    t.model.recompute = t.llama.recompute = 0;
    return t;
}

Layer layer_of(const Training &t)
{
    const gpt2_config &g = t.model;
    const llama_config &l = t.llama;
    Layer out = {};
    out.n = t.policy.batch / t.policy.micro_batches * t.policy.seq;
    out.llama = l.layers > 0;
    out.C = out.llama ? l.channels : g.channels;
    out.F = out.llama ? l.hidden : 4 * g.channels;
    out.H = out.llama ? l.heads : g.heads;
    out.Q = out.llama ? l.channels / l.heads * (l.heads + 2 * l.kv_heads) : 3 * g.channels;
    out.b = (int64_t)rf_dtype_bytes(out.llama ? l.dtype : g.dtype);
    out.r = (int64_t)rf_dtype_bytes(out.llama ? l.residual : g.residual);
    out.parts = out.llama ? l.recompute : g.recompute;
    return out;
}

// A model with its plan, which needs no device.
struct Planned {
    gpt2 *model = nullptr;
    llama *other = nullptr;
    rf_plan *plan = nullptr;
    rf_block layer = {};
    explicit Planned(const Training &t)
    {
        const rf_mesh mesh = {1, 1, 1};
        int count = 0;
        EXPECT_EQ(
            t.llama.layers > 0 ? llama_create(&t.llama, &other) : gpt2_create(&t.model, &model), 0);
        const rf_block *blocks = other ? llama_blocks(other, &count) : gpt2_blocks(model, &count);
        layer = blocks[1];
        EXPECT_RF(rf_plan_build({blocks, count}, &mesh, &t.policy, 0, &plan));
    }
    ~Planned()
    {
        rf_plan_destroy(plan);
        gpt2_destroy(model);
        llama_destroy(other);
    }
    // All values of a kind in the plan.
    uint64_t bytes(rf_value_kind kind) const
    {
        uint64_t sum = 0;
        for (int v = 0; v < plan->value_count; v++)
            sum += plan->values[v].kind == kind ? plan->values[v].bytes : 0;
        return sum;
    }
};

} // namespace

TEST(Recompute, EveryChoiceGivesTheSameBitsInThePlannedBytes)
{
    const size_t quick = 6;
    for (size_t i = 0; i < (test_all ? std::size(cases) : quick); i++) {
        const Case &c = cases[i];
        const Training all = small(c, 0);
        const Result kept = result_of(all);
        for (unsigned parts = 1; parts <= MODEL_RECOMPUTE_ALL; parts++) {
            if (parts != whole(c, parts) && !test_all)
                continue;
            const std::string where = std::string(c.name) + ", parts " + std::to_string(parts);
            const Training some = small(c, parts);
            const Result again = result_of(some);
            expect_same(again, kept, where);
            expect_planned(again.seen, where);
            if (parts == MODEL_RECOMPUTE_ALL) {
                EXPECT_LT(again.seen.measured.activations, kept.seen.measured.activations) << where;
            }
        }
    }
}

TEST(Recompute, TheBytesOfALayerAreThoseOfTheFormulas)
{
    for (const Case &c : cases)
        for (unsigned parts = 0; parts <= MODEL_RECOMPUTE_ALL; parts++)
            for (int64_t seq : {3, 7, 64}) {
                Training t = small(c, parts);
                t.model.seq = 64;
                t.policy.seq = seq;
                const Planned planned(t);
                const Layer layer = layer_of(t);
                rf_block_sizes sizes = {};
                ASSERT_EQ(planned.layer.ops->sizes(planned.layer.self, layer.n, seq, &sizes), 0);
                const std::string where = std::string(c.name) + ", parts " + std::to_string(parts);
                EXPECT_EQ(sizes.saved, layer.saved()) << where;
                EXPECT_EQ(sizes.saved_for_weight, layer.saved_for_weight()) << where;
                EXPECT_EQ(sizes.scratch, layer.scratch()) << where;
                // In the plan, those of each layer.
                const Training all = keeping(t);
                const Planned kept(all);
                const Layer before = layer_of(all);
                const uint64_t layers = (uint64_t)t.model.layers;
                EXPECT_EQ(planned.bytes(RF_VALUE_SAVED) + layers * (before.saved() - layer.saved()),
                          kept.bytes(RF_VALUE_SAVED))
                    << where;
                EXPECT_EQ(planned.bytes(RF_VALUE_SAVED_FOR_WEIGHT),
                          kept.bytes(RF_VALUE_SAVED_FOR_WEIGHT) +
                              layers * (layer.saved_for_weight() - before.saved_for_weight()))
                    << where;
            }
}

// On several ranks, in tree order, with everything sharded, with products in parts, and with a plan
// that recomputes whole layers as well.
TEST(Recompute, TheBitsAreTheSameOnSeveralRanksAndWithRecomputedBlocks)
{
    for (bool llama : {false, true}) {
        std::vector<Seen> seen;
        for (int row : {0, 1, 2}) {
            Training t = small({"", llama, RF_F32, RF_F32}, row > 0 ? MODEL_RECOMPUTE_ALL : 0);
            t.policy.batch = t.policy.micro_batches = 3;
            t.policy.order = RF_ORDER_TREE;
            t.policy.zero = row == 2 ? 3 : 1;
            t.policy.recompute = row == 2;
            t.policy.workspace_bytes = 1 << 16;
            t.steps = 3; // recorded twice, then replayed
            for (Seen &s : train(t, 2)) {
                expect_planned(s, std::to_string(row));
                seen.push_back(s);
            }
        }
        for (const Seen &s : seen)
            EXPECT_EQ(s.sha, seen[0].sha);
    }
}

TEST(Recompute, ACheckpointOfOneChoiceIsLoadedWithAnother)
{
    for (bool llama : {false, true}) {
        const Case c = {"", llama, RF_F32, RF_F32};
        const Planned kept(small(c, 0)), again(small(c, MODEL_RECOMPUTE_ALL));
        EXPECT_STREQ(kept.layer.config, again.layer.config);
        Folder folder;
        Training t = small(c, 0);
        t.steps = 2;
        const std::string want = train(t, 1)[0].sha;
        t = small(c, MODEL_RECOMPUTE_NORMS | MODEL_RECOMPUTE_MLP);
        t.steps = 1;
        t.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {1, 5, 2};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(t, 1);
        t = small(c, MODEL_RECOMPUTE_ATTENTION);
        t.seed = 6; // for weights that are replaced
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
            for (int step = 1; step < 2; step++) {
                std::vector<int32_t> tokens, targets;
                small(c, 0).batch(step, tokens, targets);
                ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
            }
            EXPECT_EQ(sha_of(run), want);
        };
        train(t, 1);
    }
}

TEST(Recompute, AnUnknownPartIsRefused)
{
    const Training t = small({"", true, RF_F32, RF_F32}, MODEL_RECOMPUTE_ALL + 1);
    gpt2 *model = nullptr;
    llama *other = nullptr;
    for (const int rc : {gpt2_create(&t.model, &model), llama_create(&t.llama, &other)}) {
        EXPECT_EQ(rc, RF_EINVAL);
        EXPECT_STREQ(rf_last_error()->message,
                     "recompute has an unknown bit; use only bits of enum model_recompute_part");
    }
}
