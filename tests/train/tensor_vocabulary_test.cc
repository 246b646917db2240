// SPDX-License-Identifier: MIT
//
// The blocks with a vocabulary on several tensor ranks: the embedding and the head of both models,
// against the same block on one rank. Most vocabularies are not divisible by the ranks.
#include <algorithm>

#include "tensor_ranks.h"

namespace
{

struct Shape {
    bool llama;
    int vocab, head_rows;
    rf_dtype dtype, residual;
    bool tied;
};

const int64_t channels = 24, seq = 16, rows = 48; // three sequences: ranks' rows begin within one

struct Model {
    gpt2 *g = nullptr;
    llama *l = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;

    explicit Model(const Shape &s)
    {
        if (s.llama) {
            llama_config c = {};
            c.layers = 1;
            c.channels = channels;
            c.heads = 2;
            c.vocab = s.vocab;
            c.head_rows = s.head_rows;
            c.dtype = s.dtype;
            c.residual = s.residual;
            c.tied = s.tied;
            EXPECT_RF(llama_create(&c, &l));
            blocks = llama_blocks(l, &count);
        } else {
            gpt2_config c = {1, channels, 2, seq, s.vocab, s.head_rows, s.dtype, s.residual, 0};
            EXPECT_RF(gpt2_create(&c, &g));
            blocks = gpt2_blocks(g, &count);
        }
    }
    ~Model()
    {
        gpt2_destroy(g);
        llama_destroy(l);
    }
    const rf_block &embedding() const
    {
        return blocks[0];
    }
    const rf_block &head() const
    {
        return blocks[count - 1];
    }
};

// Some of each id, including the first and the last.
std::vector<int32_t> ids(int vocab, int64_t step)
{
    std::vector<int32_t> all;
    for (int64_t i = 0; i < rows; i++)
        all.push_back((int32_t)(i * step % vocab));
    all[1] = vocab - 1;
    return all;
}

TensorCase embedding_case(const Model &m, const Shape &s)
{
    TensorCase c;
    c.block = &m.embedding();
    c.rows = rows;
    c.seq = seq;
    c.tokens = ids(s.vocab, 7);
    c.params = tensor_params(m.embedding());
    c.dout = tensor_numbers(rows * channels, 1, 1);
    return c;
}

TensorCase head_case(const Model &m, const Shape &s)
{
    TensorCase c;
    c.block = &m.head();
    c.rows = rows;
    c.seq = seq;
    c.in = tensor_numbers(rows * channels, 1, 2);
    c.in_dtype = s.residual;
    c.columns = channels;
    c.targets = ids(s.vocab, 11);
    c.targets[5] = -1;
    c.targets[40] = -100;
    c.params = tensor_params(m.head());
    return c;
}

// The difference allowed between the roundings of one rank and of several.
double tolerance(rf_dtype dtype)
{
    return dtype == RF_F32 ? 2e-6 : dtype == RF_F16 ? 4e-3 : 3e-2;
}

std::string text(const Shape &s, int ranks, bool sequence)
{
    return std::string(s.llama ? "llama" : "gpt2") + (s.tied ? " tied" : "") + " V " +
           std::to_string(s.vocab) + " head rows " + std::to_string(s.head_rows) + " " +
           rf_dtype_name(s.dtype) + " " + rf_dtype_name(s.residual) + " on " +
           std::to_string(ranks) + (sequence ? " sequence" : "");
}

// Losses, din and gradients; out belongs to the rank alone.
void expect_same_head(const rf_block &block, const TensorSeen &one, const TensorSeen &many,
                      double most)
{
    // Losses are f32 everywhere; with 16-bit norms, of the same numbers.
    EXPECT_LE(tensor_difference(one.losses, many.losses), 2e-6) << "losses";
    EXPECT_LE(tensor_difference(one.din, many.din), most) << "din";
    ASSERT_EQ(one.grads.size(), many.grads.size());
    for (size_t i = 0; i < one.grads.size(); i++)
        EXPECT_LE(tensor_difference(one.grads[i], many.grads[i]), most) << block.params[i].name;
    for (const std::string &name : many.unequal)
        EXPECT_EQ(name, "out") << "is not the same on all ranks";
}

const Shape setups[] = {
    {false, 257, 0, RF_F32, RF_F32, true},   {false, 257, 20, RF_F32, RF_F32, true},
    {false, 4, 0, RF_F32, RF_F32, true},     {true, 61, 0, RF_F32, RF_F32, false},
    {true, 1030, 100, RF_F32, RF_F32, true}, {false, 257, 0, RF_BF16, RF_F32, true},
    {true, 61, 20, RF_BF16, RF_BF16, false},
};

} // namespace

TEST(TensorVocabulary, AnEmbeddingIsThatOfOneRankToTheBitWithAnyCutOfTheTable)
{
    for (const Shape &s : setups) {
        const Model m(s);
        TensorCase c = embedding_case(m, s);
        const TensorSeen one = run_tensor_ranks(c);
        EXPECT_TRUE(one.forward.empty() && one.backward_weight.empty());
        for (int ranks : {2, 3, 4})
            for (bool sequence : {false, true}) {
                SCOPED_TRACE(text(s, ranks, sequence));
                c.ranks = ranks;
                c.sequence = sequence;
                const TensorSeen many = run_tensor_ranks(c);
                EXPECT_TRUE(many.unequal.empty());
                EXPECT_EQ(many.out, one.out);
                ASSERT_EQ(many.grads.size(), one.grads.size());
                EXPECT_EQ(many.grads[0], one.grads[0]);
                if (s.llama)
                    continue;
                // One rank adds up positions of its rows, and several theirs: in another order.
                EXPECT_LE(tensor_difference(one.grads[1], many.grads[1]), sequence ? 1e-6 : 0.0);
            }
    }
}

TEST(TensorVocabulary, AHeadIsThatOfOneRankUpToRounding)
{
    for (const Shape &s : setups) {
        const Model m(s);
        TensorCase c = head_case(m, s);
        const TensorSeen one = run_tensor_ranks(c);
        EXPECT_TRUE(one.forward.empty() && one.backward_input.empty());
        for (int ranks : {2, 3, 4})
            for (bool sequence : {false, true}) {
                SCOPED_TRACE(text(s, ranks, sequence));
                c.ranks = ranks;
                c.sequence = sequence;
                expect_same_head(m.head(), one, run_tensor_ranks(c), tolerance(s.dtype));
            }
    }
}

// Proves that the comparison above would find a lost part of a rank, or gradients that nobody adds.
TEST(TensorVocabulary, AHeadDependsOnEveryPartOfEveryExchange)
{
    for (bool sequence : {false, true})
        for (int head_rows : {0, 20}) {
            const Shape s = {false, 257, head_rows, RF_F32, RF_F32, true};
            const Model m(s);
            TensorCase c = head_case(m, s);
            TensorSeen one = run_tensor_ranks(c);
            one.out.clear();
            c.ranks = 3;
            c.sequence = sequence;
            const TensorSeen many = run_tensor_ranks(c);
            std::string where;
            auto difference = [&](TensorSeen seen) {
                seen.out.clear();
                return tensor_difference(m.head(), one, seen, &where);
            };
            EXPECT_LT(difference(many), 2e-6) << where;
            for (int call = 0; call < 2; call++)
                for (size_t k = 0; k < (call ? many.backward_input : many.forward).size(); k++)
                    for (int rank = 0; rank < 3; rank++) {
                        if (!call && many.forward[k].kind == RF_EXCHANGE_MAX)
                            continue; // any large number gives the same
                        c.edit_given = [&](const char *name, int index, int r,
                                           std::vector<float> &given) {
                            if (name == std::string(call ? "backward_input" : "forward") &&
                                index == (int)k && r == rank)
                                std::fill(given.begin(), given.end(), 0.0f);
                        };
                        EXPECT_GT(difference(run_tensor_ranks(c)), 1e-3)
                            << (call ? "backward_input " : "forward ") << k << " rank " << rank;
                    }
            c.edit_given = nullptr;
            c.skip_sums = true;
            if (sequence) {
                EXPECT_GT(difference(run_tensor_ranks(c)), 1e-2);
            }
        }
}

TEST(TensorVocabulary, AHeadEvaluatesAsItTrains)
{
    for (int head_rows : {0, 20}) {
        const Shape s = {false, 257, head_rows, RF_F32, RF_F32, true};
        const Model m(s);
        TensorCase c = head_case(m, s);
        c.ranks = 3;
        const TensorSeen trained = run_tensor_ranks(c);
        c.evaluate = true;
        EXPECT_EQ(run_tensor_ranks(c).losses, trained.losses);
    }
}

TEST(TensorVocabulary, ExchangesThreeFloatsOfARowAndTheGradientOfTheNormsOutput)
{
    const Shape s = {false, 257, 0, RF_BF16, RF_F32, true};
    const Model m(s);
    for (bool sequence : {false, true}) {
        const rf_tensor_part part = {4, 1, sequence};
        rf_block_sizes sizes = {};
        ASSERT_RF(m.head().ops->tensor_sizes(m.head().self, &part, rows, seq, &sizes));
        int64_t floats = 0;
        for (const rf_exchange &e : sizes.forward)
            if (e.kind == RF_EXCHANGE_MAX || e.kind == RF_EXCHANGE_SUM)
                floats += rf_shape_count(e.shape);
        EXPECT_EQ(floats, 3 * rows);
        EXPECT_EQ(sizes.forward[0].kind, sequence ? RF_EXCHANGE_GATHER : RF_EXCHANGE_MAX);
        EXPECT_EQ(sizes.backward_input[0].kind, sequence ? RF_EXCHANGE_SCATTER : RF_EXCHANGE_SUM);
        EXPECT_EQ(rf_shape_count(sizes.backward_input[0].shape), rows * channels);
        EXPECT_EQ(sizes.backward_input[0].dtype, RF_BF16);
        EXPECT_EQ(sizes.backward_weight[0].kind, RF_EXCHANGE_NONE);
        EXPECT_EQ(sizes.out.dim[1], 128 - 64); // rows 64 to 127 of 257
        EXPECT_EQ(sizes.classes, 257);
    }
}

TEST(TensorVocabulary, HeadsInChunksTakeLessMemoryOnMoreRanks)
{
    const Shape s = {true, 1030, 20, RF_F32, RF_F32, true};
    const Model m(s);
    rf_block_sizes one = {}, four = {};
    const rf_tensor_part part = {4, 0, false};
    ASSERT_RF(m.head().ops->sizes(m.head().self, rows, seq, &one));
    ASSERT_RF(m.head().ops->tensor_sizes(m.head().self, &part, rows, seq, &four));
    EXPECT_LT(four.scratch, one.scratch / 3);
    EXPECT_TRUE(rf_shape_equal(four.out, one.out));
}

TEST(TensorVocabulary, WhatCannotBeSharedIsSaidInASentence)
{
    const Shape s = {false, 3, 0, RF_F32, RF_F32, true};
    const Model m(s);
    for (const rf_block *block : {&m.embedding(), &m.head()}) {
        rf_block_sizes sizes = {};
        const rf_tensor_part many = {4, 1, false}, uneven = {3, 1, true};
        EXPECT_EQ(block->ops->tensor_sizes(block->self, &many, rows, seq, &sizes), RF_EINVAL);
        EXPECT_EQ(std::string(rf_last_error()->message),
                  "4 tensor ranks are more than the 3 rows of the vocabulary; use fewer ranks");
        EXPECT_EQ(block->ops->tensor_sizes(block->self, &uneven, 32, seq, &sizes), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message)
                      .find("3 tensor ranks do not divide the 32 tokens"),
                  std::string::npos);
    }
}
