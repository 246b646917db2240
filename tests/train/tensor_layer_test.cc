// SPDX-License-Identifier: MIT
//
// Layers that tensor ranks share, with and without sequence parallelism, against the same layer on
// one rank: outputs, gradients of inputs and of all parameters.
#include "tensor_ranks.h"

namespace
{

const int64_t ROWS = 24, SEQ = 12; // two sequences

struct Layer { // of one of the two models
    std::string name;
    bool llama;
    int heads, keys, channels, hidden;
    rf_dtype dtype = RF_F32, residual = RF_F32;
    unsigned recompute = 0;
    int size = 0; // head size; if set, also with biases and norms of queries and keys
};
// The model that a layer is taken from, and the layer with its numbers.
class Model
{
  public:
    Model(const Layer &l)
    {
        gpt2_config g = {1, l.channels, l.heads, (int)SEQ, 61};
        g.dtype = l.dtype;
        g.residual = l.residual;
        g.recompute = l.recompute;
        llama_config c = {};
        c.layers = 1;
        c.channels = l.channels;
        c.heads = l.heads;
        c.kv_heads = l.keys;
        c.hidden = l.hidden;
        c.dtype = l.dtype;
        c.residual = l.residual;
        c.recompute = l.recompute;
        c.head_size = l.size;
        c.qkv_bias = c.qk_norm = l.size > 0;
        int count = 0;
        EXPECT_EQ(l.llama ? llama_create(&c, &llama_) : gpt2_create(&g, &gpt2_), 0);
        block = l.llama ? &llama_blocks(llama_, &count)[1] : &gpt2_blocks(gpt2_, &count)[1];
        whole.block = block;
        whole.rows = ROWS;
        whole.seq = SEQ;
        whole.columns = l.channels;
        whole.in_dtype = l.residual;
        whole.in = tensor_numbers(ROWS * l.channels, 1, 1);
        whole.dout = tensor_numbers(ROWS * l.channels, 1, 2);
        whole.params = tensor_params(*block);
    }
    ~Model()
    {
        llama_destroy(llama_);
        gpt2_destroy(gpt2_);
    }
    TensorCase shared(int ranks, bool sequence) const
    {
        TensorCase c = whole;
        c.ranks = ranks;
        c.sequence = sequence;
        return c;
    }
    const rf_block *block;
    TensorCase whole;

  private:
    struct llama *llama_ = nullptr;
    struct gpt2 *gpt2_ = nullptr;
};

// f32: sums of up to some hundred numbers, added in another order. 16 bits: parts of sums are
// rounded to f32 or to the type, then as always to the type at about ten places in a row.
double tolerance(const Layer &l)
{
    return l.dtype == RF_F32 ? 1e-5 : l.dtype == RF_F16 ? 0.005 : 0.04;
}

int count(const std::vector<rf_exchange> &exchanges, rf_exchange_kind kind)
{
    int n = 0;
    for (const rf_exchange &e : exchanges)
        n += e.kind == kind;
    return n;
}

// All ways of sharing among these ranks give the results of one rank.
void expect_same(const Layer &layer, const std::vector<int> &rank_counts)
{
    const Model model(layer);
    const TensorSeen one = run_tensor_ranks(model.whole);
    for (int ranks : rank_counts)
        for (bool sequence : {false, true}) {
            SCOPED_TRACE(layer.name + ", " + std::to_string(ranks) + " ranks" +
                         (sequence ? ", sequence" : ""));
            const TensorSeen seen = run_tensor_ranks(model.shared(ranks, sequence));
            ASSERT_EQ(seen.status, 0) << seen.fault;
            std::string where;
            EXPECT_LE(tensor_difference(*model.block, one, seen, &where), tolerance(layer))
                << where;
            EXPECT_TRUE(seen.unequal.empty()) << seen.unequal[0];
        }
}

const Layer gpt2_layer = {"GPT-2", false, 4, 0, 16, 0};
const Layer llama_layer = {"Llama", true, 4, 4, 16, 24};
// With the features of all other architectures.
Layer every_layer(int keys)
{
    Layer l = {"Llama of large heads, " + std::to_string(keys) + " of keys", true, 4, keys, 16, 24};
    l.size = 6;
    return l;
}

Layer with(Layer layer, const char *name, rf_dtype dtype, rf_dtype residual)
{
    layer.name += std::string(", ") + name;
    layer.dtype = dtype;
    layer.residual = residual;
    return layer;
}

} // namespace

TEST(TensorLayer, OfAGpt2IsTheSameOnTwoThreeAndFourRanks)
{
    expect_same(gpt2_layer, {1, 2, 4});
    expect_same({"GPT-2 of 6 heads", false, 6, 0, 24, 0}, {2, 3, 6});
    expect_same({"GPT-2 of odd heads", false, 3, 0, 15, 0}, {3});
}

TEST(TensorLayer, OfALlamaIsTheSameWithKeysForEachHeadForGroupsAndForAll)
{
    expect_same(llama_layer, {1, 2, 4});
    expect_same({"Llama of 4 heads, 2 of keys", true, 4, 2, 16, 24}, {2, 4});
    expect_same({"Llama of 4 heads, 1 of keys", true, 4, 1, 16, 24}, {2, 4});
    expect_same({"Llama of 6 heads, 3 of keys", true, 6, 3, 36, 30}, {2 + 1, 6});
    for (int keys : {1, 2, 4})
        expect_same(every_layer(keys), {2, 4});
}

TEST(TensorLayer, IsTheSameIn16Bits)
{
    Layer grouped = llama_layer;
    grouped.keys = 2;
    for (const Layer &layer : {gpt2_layer, grouped, every_layer(2)}) {
        expect_same(with(layer, "bf16 beside f32", RF_BF16, RF_F32), {4});
        expect_same(with(layer, "bf16", RF_BF16, RF_BF16), {2});
        expect_same(with(layer, "f16", RF_F16, RF_F16), {2});
    }
}

TEST(TensorLayer, WhatIsComputedAgainHasTheSameBitsInAllWaysOfSharing)
{
    Layer grouped = llama_layer;
    grouped.keys = 1;
    for (Layer layer : {gpt2_layer, grouped, every_layer(1)})
        for (int ranks : {1, 2})
            for (bool sequence : {false, true}) {
                if (ranks == 1 && sequence)
                    continue; // the same as without
                layer.recompute = 0;
                const Model kept(layer);
                const TensorSeen want = run_tensor_ranks(kept.shared(ranks, sequence));
                for (unsigned parts : {1u, 2u, 4u, 8u, 15u}) {
                    layer.recompute = parts;
                    const Model model(layer);
                    const TensorSeen seen = run_tensor_ranks(model.shared(ranks, sequence));
                    std::string where;
                    EXPECT_EQ(tensor_difference(*model.block, want, seen, &where), 0)
                        << layer.name << " " << ranks << " ranks, recompute " << parts << ": "
                        << where;
                    EXPECT_LT(seen.sizes[0].saved, want.sizes[0].saved);
                }
            }
}

TEST(TensorLayer, AddsToGradientsOfEarlierMicroBatches)
{
    Layer copied = llama_layer;
    copied.keys = 1;
    for (const Layer &layer : {gpt2_layer, copied, every_layer(1), every_layer(4)})
        for (bool sequence : {false, true}) {
            const Model model(layer);
            TensorCase one = model.whole, two = model.shared(2, sequence);
            one.later = two.later = true;
            const TensorSeen first = run_tensor_ranks(model.whole), seen = run_tensor_ranks(two);
            std::string where;
            EXPECT_LE(tensor_difference(*model.block, run_tensor_ranks(one), seen, &where),
                      tolerance(layer))
                << where;
            EXPECT_GT(tensor_difference(*model.block, first, seen, &where), 0.01);
            EXPECT_TRUE(seen.unequal.empty()) << seen.unequal[0];
        }
}

TEST(TensorLayer, ExchangesTwoSumsInEachDirectionAndNothingForWeights)
{
    for (const Layer &layer : {gpt2_layer, llama_layer}) {
        const Model model(with(layer, "", RF_BF16, RF_F32));
        const TensorSeen one = run_tensor_ranks(model.shared(1, true)),
                         two = run_tensor_ranks(model.shared(2, false));
        EXPECT_TRUE(one.forward.empty() && one.backward_input.empty());
        for (const std::vector<rf_exchange> *call : {&two.forward, &two.backward_input}) {
            ASSERT_EQ(call->size(), 2u);
            for (const rf_exchange &e : *call) {
                EXPECT_EQ(e.kind, RF_EXCHANGE_SUM);
                EXPECT_EQ(e.dtype, RF_F32) << "of the residual stream";
                EXPECT_TRUE(rf_shape_equal(e.shape, rf_shape2(ROWS, layer.channels)));
            }
        }
        EXPECT_TRUE(two.backward_weight.empty());
    }
}

TEST(TensorLayer, WithCutRowsSendsWhatASumSendsAndGathersNormsAgainForWeights)
{
    for (Layer layer : {gpt2_layer, llama_layer})
        for (unsigned recompute : {0u, (unsigned)MODEL_RECOMPUTE_ALL}) {
            layer.recompute = recompute;
            const Model model(with(layer, "", RF_BF16, RF_F32));
            const TensorSeen seen = run_tensor_ranks(model.shared(2, true));
            const int again = recompute ? 1 : 0; // the norm before the MLP
            EXPECT_EQ(count(seen.forward, RF_EXCHANGE_GATHER), 2);
            EXPECT_EQ(count(seen.forward, RF_EXCHANGE_SCATTER), 2);
            EXPECT_EQ(count(seen.backward_input, RF_EXCHANGE_GATHER), 2 + again);
            EXPECT_EQ(count(seen.backward_input, RF_EXCHANGE_SCATTER), 2);
            EXPECT_EQ(count(seen.backward_weight, RF_EXCHANGE_GATHER), 2);
            EXPECT_EQ(seen.backward_weight.size(), 2u);
            for (const rf_exchange &e : seen.forward)
                EXPECT_EQ(e.dtype, e.kind == RF_EXCHANGE_GATHER ? RF_BF16 : RF_F32);
        }
}

TEST(TensorLayer, KeepsWhatARankHasAlone)
{
    for (Layer layer : {gpt2_layer, llama_layer})
        for (unsigned recompute : {0u, (unsigned)MODEL_RECOMPUTE_ALL}) {
            // Rows and channels so large that nothing is rounded up.
            layer.channels = layer.hidden = 256;
            layer.recompute = recompute;
            const Model model(layer);
            rf_block_sizes one = {}, tensor = {}, sequence = {};
            rf_tensor_part part = {4, 1, false};
            const int64_t rows = 1024;
            ASSERT_EQ(model.block->ops->sizes(model.block->self, rows, 64, &one), 0);
            ASSERT_EQ(model.block->ops->tensor_sizes(model.block->self, &part, rows, 64, &tensor),
                      0);
            part.sequence = true;
            ASSERT_EQ(model.block->ops->tensor_sizes(model.block->self, &part, rows, 64, &sequence),
                      0);
            EXPECT_EQ(sequence.saved * 4, one.saved);
            // All rows of both norms, of the sum in the middle, and of means and deviations.
            const int64_t whole = rows * 256 * (recompute ? 1 : 3) + rows * (layer.llama ? 2 : 4);
            EXPECT_EQ((tensor.saved - (uint64_t)whole * 4) * 4, one.saved - (uint64_t)whole * 4);
            EXPECT_LT(tensor.saved_for_weight, one.saved_for_weight);
            EXPECT_EQ(sequence.out.dim[0], rows / 4);
        }
}

TEST(TensorLayer, SaysWhichNumbersOfRanksDivideIt)
{
    auto fault = [](const Layer &layer, int ranks, bool sequence = false) {
        const Model model(layer);
        const TensorSeen seen = run_tensor_ranks(model.shared(ranks, sequence));
        EXPECT_EQ(seen.status, RF_EINVAL);
        return seen.fault;
    };
    EXPECT_EQ(fault(gpt2_layer, 3), "3 tensor ranks do not divide 4 heads; use 2 or 4");
    EXPECT_EQ(fault(gpt2_layer, 8), "8 tensor ranks do not divide 4 heads; use 4");
    EXPECT_EQ(fault({"", false, 5, 0, 20, 0}, 5, true),
              "5 tensor ranks do not divide 24 rows of a micro-batch; use 1");
    EXPECT_EQ(fault({"", true, 12, 4, 24, 36}, 6),
              "6 tensor ranks do not divide 4 heads of keys; use 4 or 12");
    EXPECT_EQ(fault({"", true, 8, 8, 16, 12}, 8),
              "8 tensor ranks do not divide 12 hidden channels; use 4");
}

// ---- the comparison itself --------------------------------------------------------------------

namespace
{
double difference(const Model &model, const TensorCase &c, std::string *where)
{
    return tensor_difference(*model.block, run_tensor_ranks(model.whole), run_tensor_ranks(c),
                             where);
}
} // namespace

TEST(TensorLayer, TheComparisonFindsARowBiasThatIsAddedOnEveryRank)
{
    const Model model(gpt2_layer);
    std::string where;
    TensorCase c = model.shared(2, false);
    c.edit_given = [&](const char *call, int, int rank, std::vector<float> &given) {
        const std::vector<float> &bias = model.whole.params[5]; // proj's and, second, fc2's
        for (size_t i = 0; std::string(call) == "forward" && rank > 0 && i < given.size(); i++)
            given[i] += bias[i % bias.size()];
    };
    EXPECT_GT(difference(model, c, &where), 0.01) << where;
}

TEST(TensorLayer, TheComparisonFindsFusedWeightsThatAreCutAsOne)
{
    for (const Layer &layer : {gpt2_layer, llama_layer})
        for (const char *name : {"attention.qkv", "mlp.gate_up"}) {
            const Model model(layer);
            std::string where;
            bool cut = false;
            TensorCase c = model.shared(2, false);
            c.edit_split = [&](rf_param_desc &desc) {
                if (std::string(desc.name).find(name) == std::string::npos)
                    return;
                cut = true;
                desc.split = {};
                desc.split.kind = RF_SPLIT_ROWS;
            };
            const double found = difference(model, c, &where);
            EXPECT_EQ(cut, layer.llama || std::string(name) == "attention.qkv");
            if (cut) {
                EXPECT_GT(found, 0.01) << name << ": " << where;
            }
        }
}

TEST(TensorLayer, TheComparisonFindsGradientsThatAreNotAddedOverCutRows)
{
    for (const Layer &layer : {gpt2_layer, llama_layer}) {
        const Model model(layer);
        std::string where;
        TensorCase c = model.shared(2, true);
        c.skip_sums = true;
        EXPECT_GT(difference(model, c, &where), 0.01) << where;
        const bool replicated = where.find("norm") != std::string::npos ||
                                where.find("ln") != std::string::npos ||
                                where.find("bias") != std::string::npos;
        EXPECT_TRUE(replicated) << where;
    }
}
