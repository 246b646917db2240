// SPDX-License-Identifier: MIT
//
// Text generation: the bits with and without the cache, its memory, batches and ranks.
#include <ringforge/layer.h>

#include "generate_model.h"

#include <cmath>
#include <cstring>
#include <map>

#include "support/ranks.h"

namespace
{
using namespace generation;

const std::vector<std::vector<int32_t>> prompts = {tokens(3, 1), tokens(1, 2), tokens(40, 3),
                                                   tokens(7, 4), tokens(12, 5)};
ranks::World world_of(int size)
{
    ranks::World world;
    world.size = size;
    return world;
}
rf_sampling drawn()
{
    rf_sampling s = {};
    s.max_new = 9;
    s.temperature = 0.8f;
    s.top_k = 20;
    s.top_p = 0.9f;
    s.repetition_penalty = 1.3f;
    s.seed = 11;
    return s;
}
} // namespace

TEST(Generate, LogitsHaveTheSameBitsWithTheCacheAndWithout)
{
    for (bool is_llama : {false, true})
        for (rf_dtype dtype : {RF_F32, RF_F16, RF_BF16}) {
            const Model m(is_llama, dtype, 2, 160, dtype == RF_BF16 ? RF_BF16 : RF_F32);
            const int n = dtype == RF_F32 ? 140 : 20; // 140: two chunks of keys
            const std::vector<int32_t> text = tokens(n, 1);
            const Generator all(m, 40, 160, 150), steps(m, 4, 160, 4);
            const auto whole = all.logits(text, std::vector<int32_t>(n, 1), range(0, n));
            for (int first = 0, size = 1; first < n; first += size, size = size % 4 + 1) {
                size = std::min(size, n - first);
                const auto some = steps.logits(
                    std::vector<int32_t>(text.begin() + first, text.begin() + first + size),
                    std::vector<int32_t>(size, 0), range(first, size));
                ASSERT_EQ(memcmp(some.data(), &whole[first * 61], some.size() * 4), 0)
                    << m.name << ", " << size << " tokens from " << first;
            }
        }
}

// A block out of a user's rows, before the head: with attention if the model is a Llama.
std::vector<rf_block> with_block_of_rows(const Model &m)
{
    const rf_layer_op rows[] = {
        {.kind = RF_LAYER_NORM, .in = "in", .out = "a", .param = "n"},
        {.kind = RF_LAYER_LINEAR, .in = "a", .out = "b", .param = "up", .columns = 64},
        {.kind = m.l ? RF_LAYER_ATTEND : RF_LAYER_GATE, .in = "b", .out = "c", .act = RF_ACT_SILU},
        {.kind = RF_LAYER_LINEAR, .in = "c", .out = "d", .param = "down", .columns = 32},
        {.kind = RF_LAYER_ADD, .in = "in", .out = "e", .with = "d"}};
    rf_layer_opts opts = {};
    opts.name = "rows";
    opts.channels = 32;
    opts.heads = 4;
    opts.kv_heads = 2;
    opts.head_size = 8;
    std::vector<rf_block> blocks(m.blocks, m.blocks + m.count);
    rf_block rows_block = {};
    EXPECT_RF(rf_layer_block(rows, 5, &opts, &rows_block));
    blocks.insert(blocks.end() - 1, rows_block);
    return blocks;
}

TEST(Generate, LogitsAreThoseOfTheForwardPass)
{
    for (int kind = 0; kind < 4; kind++) {
        // The rows' block has one stream: it follows the block that joins the two.
        Model m(kind % 2, RF_F32, 2, 160, RF_F32, nullptr, RF_QUANTIZE_NONE,
                (rf_reversible)(kind / 2 * (1 + kind % 2)));
        std::vector<rf_block> blocks = with_block_of_rows(m);
        m.blocks = blocks.data();
        m.count++;
        const int n = 12;
        rf_mesh mesh = {};
        mesh.dp = 1;
        rf_policy policy = {};
        policy.batch = 1;
        policy.seq = n;
        policy.forward_only = true;
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        ASSERT_RF(rf_plan_build({m.blocks, m.count}, &mesh, &policy, 0, &plan));
        ASSERT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
        ASSERT_RF(rf_run_fill(run, &source));
        std::vector<float> want(n * 61);
        const auto text = tokens(n, 1);
        ASSERT_RF(rf_run_forward(run, text.data(), want.data(), 4 * want.size()));
        rf_run_close(run);
        rf_plan_destroy(plan);
        const auto got = Generator(m, 1, 16).logits(text, std::vector<int32_t>(n, 0), range(0, n));
        for (size_t i = 0; i < got.size(); i++)
            ASSERT_NEAR(got[i], want[i], 2e-4 * (1 + std::fabs(want[i]))) << m.name << ", " << i;
        rf_layer_block_free(&blocks[blocks.size() - 2]);
    }
}

// The weights of a model without adapters, with those of another model added.
struct Merged {
    std::vector<model_adapter_module> modules;
    std::map<std::string, std::vector<float>> values;
    float scale;

    Merged(const Model &adapted, const model_adapter &adapter)
        : modules(32), scale(model_adapter_scale(&adapter))
    {
        const Model &m = adapted;
        modules.resize((size_t)(m.l ? llama_adapter_modules(m.l, modules.data(), 32)
                                    : gpt2_adapter_modules(m.g, modules.data(), 32)));
        for (int b = 0; b < m.count; b++)
            for (int k = 0; k < m.blocks[b].param_count; k++) {
                const rf_param_desc &p = m.blocks[b].params[k];
                values[p.name].resize((size_t)rf_shape_count(p.shape));
                any_values(nullptr, p.name, 0, values[p.name].size(), values[p.name].data());
            }
        for (const model_adapter_module &x : modules)
            model_adapter_merge(&values[x.weight][x.weight_first * x.in],
                                &values[x.a][x.a_first * x.in], &values[x.b][x.b_first * x.rank],
                                x.rows, x.in, x.rank, scale);
    }
    static int read(void *self, const char *name, uint64_t first, uint64_t count, void *out)
    {
        memcpy(out, &static_cast<Merged *>(self)->values.at(name)[first], count * 4);
        return 0;
    }
};

TEST(Generate, AdaptersComputeWhatMergedWeightsDoWithTheSameBitsInAnyCalls)
{
    for (bool is_llama : {false, true})
        for (const char *targets : {"all-linear", "q_proj,v_proj,gate_proj,c_proj,c_fc"})
            for (rf_dtype dtype : {RF_F32, RF_F16}) {
                const model_adapter adapter = {3, 2, 0.25f, false, targets};
                const Model m(is_llama, dtype, 2, 160, RF_F32, &adapter);
                const Model base(is_llama, dtype);
                Merged merged(m, adapter);
                const int n = 12;
                const auto text = tokens(n, 1);
                const std::vector<int32_t> zero(n, 0);
                const auto whole = Generator(m, 2, 16).logits(text, zero, range(0, n));
                const auto want =
                    Generator(base, 2, 16, 0, nullptr, 0, false, {&merged, Merged::read})
                        .logits(text, zero, range(0, n));
                const Generator steps(m, 1, 16, 1);
                for (int i = 0; i < n; i++) {
                    const auto row = steps.logits({text[i]}, {0}, {i});
                    ASSERT_EQ(memcmp(row.data(), &whole[i * 61], 61 * 4), 0) << m.name << i;
                }
                for (size_t i = 0; i < want.size(); i++)
                    ASSERT_NEAR(whole[i], want[i],
                                (dtype == RF_F32 ? 1e-5 : 2e-2) * (1 + std::fabs(want[i])))
                        << m.name << ", " << targets << ", " << i;
            }
}

TEST(Generate, TextDependsNeitherOnTheBatchNorOnReplays)
{
    for (bool is_llama : {false, true}) {
        const Model m(is_llama, RF_BF16);
        for (bool greedy : {false, true}) {
            rf_sampling s = drawn();
            s.temperature = greedy ? 0 : s.temperature;
            const auto want = generate(Generator(m, 1, 60).g, prompts, s);
            EXPECT_EQ(want[0].ids.size(), 9u);
            EXPECT_EQ(generate(Generator(m, 4, 60).g, prompts, s), want) << m.name;
            EXPECT_EQ(generate(Generator(m, 3, 64, 5).g, prompts, s), want) << m.name;
            EXPECT_EQ(generate(Generator(m, 5, 60, 0, nullptr, 0, true).g, prompts, s), want);
            s.seed++;
            if (!greedy) {
                EXPECT_NE(generate(Generator(m, 4, 60).g, prompts, s), want);
            }
        }
    }
}

TEST(Generate, TextIsTheSameOnAnyNumberOfRanks)
{
    const Model m(true);
    const auto want = generate(Generator(m, 2, 60).g, prompts, drawn());
    for (int size : {2, 3})
        ranks::run(world_of(size), [&](rf_comm *comm, int rank) {
            const Generator g(m, 2, 60, 0, comm, rank);
            EXPECT_EQ(generate(g.g, prompts, drawn()), want) << size << " ranks";
        });
}

TEST(Generate, MemoryIsWhatIsPlannedWhateverTheNumberOfLayers)
{
    uint64_t activations = 0;
    for (int layers : {1, 5}) {
        const Model m(true, RF_F16, layers, 160, RF_F16);
        const rf_generator_opts opts = {2, 150, 0, false};
        rf_generator_bytes planned = {}, measured = {};
        ASSERT_RF(rf_generator_plan({m.blocks, m.count}, &opts, &planned));
        const Generator g(m, 2, 150);
        rf_sampling s = {};
        s.max_new = 4;
        generate(g.g, {prompts[0], prompts[1]}, s);
        rf_generator_measured(g.g, &measured);
        EXPECT_EQ(measured.params, planned.params);
        EXPECT_EQ(measured.cache, planned.cache);
        EXPECT_EQ(measured.activations, planned.activations);
        EXPECT_EQ(measured.scratch, planned.scratch);
        EXPECT_EQ(measured.host, planned.host);
        EXPECT_EQ(planned.activations, 2u * 32 * 32 * 2); // rows, channels, f16
        EXPECT_EQ(planned.cache, (uint64_t)layers * 2 * ((2 * 150 * 2 * 8 * 2 + 255) / 256 * 256));
        activations = activations ? activations : planned.activations;
        EXPECT_EQ(planned.activations, activations);
    }
}

TEST(Generate, EndsAtStopIdsAtTheCallbackAndWhenTheSequenceIsFull)
{
    const Model m(false);
    const Generator g(m, 2, 12);
    rf_sampling s = {};
    s.max_new = 6;
    const Text whole = generate(g.g, {prompts[0]}, s)[0];
    EXPECT_EQ(whole.finish, RF_FINISH_LENGTH);
    int32_t stop = whole.ids[2];
    s.stop = &stop;
    s.stop_count = 1;
    const Text stopped = generate(g.g, {prompts[0]}, s)[0];
    EXPECT_EQ(stopped.finish, RF_FINISH_STOP);
    EXPECT_EQ(stopped.ids.back(), stop);
    EXPECT_LE(stopped.ids.size(), 3u);
    s.stop_count = 0;
    int calls = 0;
    s.user = &calls;
    s.token = [](void *user, int64_t, int32_t, float) { return ++*(int *)user == 2; };
    EXPECT_EQ(generate(g.g, {prompts[0]}, s)[0].ids.size(), 2u);
    s.token = nullptr;
    s.max_new = 100;
    const Text full = generate(g.g, {prompts[0]}, s)[0];
    EXPECT_EQ(full.finish, RF_FINISH_FULL);
    EXPECT_EQ(full.ids.size(), 9u);
}

TEST(Generate, RefusesWhatItCannotDo)
{
    const Model m(false);
    const Generator g(m, 1, 12);
    const auto fails = [&](const std::vector<int32_t> &prompt, rf_sampling s, const char *why) {
        rf_prompt p = {prompt.data(), (int64_t)prompt.size()};
        int32_t ids[4];
        rf_generated out = {ids, nullptr, 0, RF_FINISH_LENGTH};
        EXPECT_EQ(rf_generate(g.g, &p, 1, &s, &out), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(why), std::string::npos)
            << rf_last_error()->message;
    };
    rf_sampling s = {};
    s.max_new = 4;
    fails({1, 61}, s, "vocabulary");
    fails({-1}, s, "vocabulary");
    fails({}, s, "1 to 12");
    fails(tokens(13, 1), s, "1 to 12");
    s.temperature = -1;
    fails({1}, s, "temperature");
    s.temperature = 1;
    s.top_p = 1.5f;
    fails({1}, s, "top_p");
    rf_generator_opts opts = {1, 200, 0, false};
    rf_generator_bytes bytes;
    EXPECT_EQ(rf_generator_plan({m.blocks, m.count}, &opts, &bytes), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("160 positions"), std::string::npos);
}
