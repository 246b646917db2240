// SPDX-License-Identifier: MIT
//
// Text of models with quantised weights: the bits of the same weights unpacked, with and without
// the cache, with adapters, on any number of ranks, and bytes as planned.
#include "generate_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "quantized.h"
#include "support/ranks.h"
#include "unpacked.h"

namespace
{
using namespace generation;

const model_adapter adapter = {3, 4, 0, false, "all-linear"};

struct Case {
    bool is_llama;
    rf_quantization kind;
    bool adapted;
    std::string name() const
    {
        return std::string(is_llama ? "llama " : "gpt2 ") + rf_quantization_name(kind) +
               (adapted ? " adapted" : "");
    }
};
std::vector<Case> cases()
{
    std::vector<Case> all;
    for (bool is_llama : {false, true})
        for (rf_quantization kind : {RF_NF4, RF_INT8})
            for (bool adapted : {false, true})
                all.push_back({is_llama, kind, adapted});
    for (rf_quantization kind : {RF_FP8, RF_MXFP4, RF_NVFP4})
        all.push_back({true, kind, false});
    return all;
}

/* The model of a case, with packed weights or without. */
Model model_of(const Case &c, bool packed, rf_dtype dtype = RF_F32)
{
    return Model(c.is_llama, dtype, 2, 160, dtype, c.adapted ? &adapter : nullptr,
                 packed ? c.kind : RF_QUANTIZE_NONE);
}

/* A model whose weights are quantised as they are read. */
struct Packed {
    const Model model, plain;
    quantized_source *source = nullptr;
    explicit Packed(const Case &c, rf_dtype dtype = RF_F32)
        : model(model_of(c, true, dtype)),
          plain(model_of({c.is_llama, c.kind, false}, false, dtype))
    {
        EXPECT_EQ(quantized_source_create(c.kind, model.blocks, plain.blocks, plain.count,
                                          {generation::source}, &source),
                  0);
    }
    ~Packed()
    {
        quantized_source_destroy(source);
    }
    Packed(const Packed &) = delete;
    rf_param_source from() const
    {
        return quantized_source_of(source);
    }
};

/* The values that kernels compute with, in f32. */
struct Unpacked {
    std::map<std::string, std::vector<float>> weights; /* that are quantised */
    explicit Unpacked(const Packed &packed, rf_quantization kind)
    {
        for (int b = 0; b < packed.plain.count; b++)
            for (int k = 0; k < packed.plain.blocks[b].param_count; k++) {
                const rf_param_desc &plain = packed.plain.blocks[b].params[k];
                if (packed.model.blocks[b].params[k].dtype != RF_U8)
                    continue;
                std::vector<float> &values = weights[plain.name];
                values.resize((size_t)rf_shape_count(plain.shape));
                any_values(nullptr, plain.name, 0, values.size(), values.data());
                unpack(kind, packed.model.blocks[b], k, values);
            }
        EXPECT_EQ(weights.size(), 8u); /* four in each of two layers */
    }
    static int read(void *self, const char *name, uint64_t first, uint64_t count, void *out)
    {
        const Unpacked *u = static_cast<Unpacked *>(self);
        const auto found = u->weights.find(name);
        if (found == u->weights.end())
            return any_values(nullptr, name, first, count, out);
        std::copy_n(found->second.begin() + (ptrdiff_t)first, count, static_cast<float *>(out));
        return 0;
    }
};

const std::vector<std::vector<int32_t>> prompts = {tokens(3, 1), tokens(1, 2), tokens(25, 3)};

rf_sampling greedy()
{
    rf_sampling s = {};
    s.max_new = 12;
    return s;
}
} // namespace

TEST(GenerateQuantized, LogitsAndTextHaveTheBitsOfTheUnpackedWeightsWithTheCacheAndWithout)
{
    for (const Case &c : cases()) {
        const Packed packed(c);
        Unpacked unpacked(packed, c.kind);
        const Model plain = model_of(c, false);
        const int n = 12;
        const std::vector<int32_t> text = tokens(n, 1), zero(n, 0);
        const Generator all(packed.model, 4, 64, 0, nullptr, 0, false, packed.from()),
            steps(packed.model, 1, 64, 1, nullptr, 0, false, packed.from()),
            wide(plain, 4, 64, 0, nullptr, 0, false, {&unpacked, Unpacked::read});
        const auto whole = all.logits(text, zero, range(0, n)),
                   want = wide.logits(text, zero, range(0, n));
        EXPECT_EQ(memcmp(whole.data(), want.data(), 4 * want.size()), 0) << c.name();
        for (int i = 0; i < n; i++) {
            const auto row = steps.logits({text[i]}, {0}, {i});
            ASSERT_EQ(memcmp(row.data(), &whole[i * 61], 4 * 61), 0) << c.name() << ", " << i;
        }
        EXPECT_EQ(generate(all.g, prompts, greedy()), generate(wide.g, prompts, greedy()))
            << c.name();
        EXPECT_EQ(generate(steps.g, prompts, greedy()), generate(all.g, prompts, greedy()))
            << c.name();
    }
}

/* Packed weights are not rounded to the type; the other weights are. */
TEST(GenerateQuantized, LogitsIn16BitsAreNearThoseOfTheUnpackedWeights)
{
    for (const Case &c : cases())
        for (rf_dtype dtype : {RF_F16, RF_BF16}) {
            const Packed packed(c, dtype);
            Unpacked unpacked(packed, c.kind);
            const Model plain = model_of(c, false, dtype);
            const int n = 12;
            const auto text = tokens(n, 1);
            const std::vector<int32_t> zero(n, 0);
            const auto got = Generator(packed.model, 1, 16, 0, nullptr, 0, false, packed.from())
                                 .logits(text, zero, range(0, n));
            const auto want =
                Generator(plain, 1, 16, 0, nullptr, 0, false, {&unpacked, Unpacked::read})
                    .logits(text, zero, range(0, n));
            for (size_t i = 0; i < got.size(); i++)
                ASSERT_NEAR(got[i], want[i],
                            (dtype == RF_F16 ? 0.02 : 0.15) * (1 + std::fabs(want[i])))
                    << c.name() << ", " << i;
        }
}

TEST(GenerateQuantized, TextIsTheSameOnTwoRanks)
{
    const Packed packed({true, RF_NF4, true});
    rf_sampling s = greedy();
    s.temperature = 0.8f;
    s.seed = 3;
    const auto want =
        generate(Generator(packed.model, 2, 60, 0, nullptr, 0, false, packed.from()).g, prompts, s);
    ranks::World world;
    world.size = 2;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const Packed own({true, RF_NF4, true}); /* a source belongs to one rank */
        const Generator g(own.model, 2, 60, 0, comm, rank, false, own.from());
        EXPECT_EQ(generate(g.g, prompts, s), want);
    });
}

TEST(GenerateQuantized, MemoryIsWhatIsPlannedAndThatOfTheBytes)
{
    for (const Case &c : cases()) {
        const Packed packed(c);
        const Model plain = model_of(c, false);
        const rf_generator_opts opts = {2, 50, 0, false};
        rf_generator_bytes planned = {}, measured = {}, wide = {};
        ASSERT_RF(rf_generator_plan({packed.model.blocks, packed.model.count}, &opts, &planned));
        ASSERT_RF(rf_generator_plan({plain.blocks, plain.count}, &opts, &wide));
        const Generator g(packed.model, 2, 50, 0, nullptr, 0, false, packed.from());
        generate(g.g, prompts, greedy());
        rf_generator_measured(g.g, &measured);
        EXPECT_EQ(measured.params, planned.params) << c.name();
        EXPECT_EQ(measured.cache, planned.cache);
        EXPECT_EQ(measured.activations, planned.activations);
        EXPECT_EQ(measured.scratch, planned.scratch);
        uint64_t less = 0;
        const auto aligned = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
        for (int b = 0; b < packed.plain.count; b++)
            for (int k = 0; k < packed.plain.blocks[b].param_count; k++) {
                const rf_param_desc &param = packed.model.blocks[b].params[k];
                if (param.dtype == RF_U8)
                    less += aligned(4 * rf_shape_count(packed.plain.blocks[b].params[k].shape)) -
                            aligned(rf_shape_count(param.shape));
            }
        EXPECT_EQ(wide.params - planned.params, less) << c.name();
    }
}

TEST(GenerateQuantized, BytesAreWrittenAsF32AndTheirNumberIsChecked)
{
    const Packed packed({false, RF_NF4, false});
    const Generator g(packed.model, 1, 16, 0, nullptr, 0, false, packed.from());
    const char *name = "blocks.0.attention.proj.weight";
    std::vector<float> values(32 * 32);
    EXPECT_EQ(rf_generator_write_param(g.g, name, values.data(), values.size()), RF_EINVAL);
    const uint64_t bytes = rf_quantized_bytes(RF_NF4, 32 * 32);
    EXPECT_RF(rf_generator_write_param(g.g, name, values.data(), bytes / 4));
}
