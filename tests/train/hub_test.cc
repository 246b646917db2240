// SPDX-License-Identifier: MIT
//
// Folders of a hub: filling a run on any mesh, and losses against those of transformers
// (hub_torch.txt, by hub_torch.py, with weights from the same formula). hub_weights_test.cc tests
// the files of weights, hub_config_test.cc the fields of config.json.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <malloc.h>
#include <sstream>

#include "hub_model.h"

#include <ringforge/quantize.h>

namespace
{

using namespace hub_models;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// ---- models -------------------------------------------------------------------------------------

struct Case {
    std::string name, config;
    std::vector<double> losses;
};

// The cases of hub_torch.txt: a name, config.json on one line, and the losses.
std::vector<Case> cases()
{
    std::ifstream file(RF_REFERENCE_FOLDER "/hub_torch.txt");
    std::vector<Case> all;
    std::string line;
    while (std::getline(file, line)) {
        if (line.empty() || line[0] == '#')
            continue;
        Case c;
        double loss;
        c.name = line;
        std::getline(file, c.config);
        std::getline(file, line);
        for (std::istringstream in(line); in >> loss;)
            c.losses.push_back(loss);
        all.push_back(c);
    }
    return all;
}

enum { SEQ = 16, BATCH = 8 };

Training training_of(const Made &made)
{
    Training t;
    t.model = made.g;
    if (made.llama)
        t.llama = made.l;
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.05f;
    t.edit_batch = [](int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        for (size_t i = 0; i < tokens.size(); i++) {
            const auto at = [&](size_t k) { return (int32_t)((k * k * 7 + k * 3) % 61); };
            const size_t row = i / SEQ + (size_t)step * BATCH, column = i % SEQ;
            tokens[i] = at(row * 5 + column);
            targets[i] = at(row * 5 + column + 1);
        }
    };
    t.before = [&made](rf_run *run, rf_comm *, int) {
        made.with_source([&](const rf_param_source &from) { ASSERT_RF(rf_run_fill(run, &from)); });
    };
    return t;
}

TEST(Hub, LossesAreThoseOfTransformers)
{
    std::vector<std::string> configs;
    for (const Case &c : cases()) {
        SCOPED_TRACE(c.name);
        configs.push_back(c.config);
        Made made;
        ASSERT_EQ(made.make(c.config), "");
        Training t = training_of(made);
        t.steps = (int)c.losses.size();
        const Seen seen = train(t, 1)[0];
        // Rounding of f32 in another order; the losses are near 4.
        for (size_t i = 0; i < c.losses.size(); i++)
            EXPECT_NEAR(seen.loss[i], c.losses[i], 2e-5) << i;
    }
    expect_each_architecture(configs);
}

TEST(Hub, EveryMeshIsFilledWithTheSame)
{
    const std::vector<Case> all = cases();
    for (size_t k : {(size_t)0, (size_t)2}) {
        Made made;
        ASSERT_EQ(made.make(all.at(k).config), "");
        const Training one = training_of(made);
        const auto filled = [&](Training t, int ranks) {
            t.steps = 0;
            return train(t, ranks)[0].sha;
        };
        const std::string sha = filled(one, 1);
        Training tp = one, pp = one, zero = one;
        tp.tp = 2;
        tp.policy.order = RF_ORDER_RING;
        pp.pp = 2;
        zero.policy.zero = 3;
        EXPECT_EQ(filled(tp, 2), sha);
        EXPECT_EQ(filled(pp, 2), sha);
        EXPECT_EQ(filled(zero, 2), sha);
    }
}

TEST(Hub, AWrongTensorIsNamed)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(0).config), "");
    hub_tensors list = {};
    ASSERT_RF(hub_list(made.h, made.blocks, made.count, false, &list));
    const auto fault_of = [&](const std::vector<Tensor> &tensors) {
        rf_weights *w = nullptr;
        hub_source *source = nullptr;
        write_weights(made.weights(), tensors, RF_F32, 0);
        EXPECT_EQ(rf_weights_open(made.weights().c_str(), nullptr, &w), 0);
        const int rc = hub_source_create(made.h, w, made.blocks, made.count, &source);
        hub_source_destroy(source);
        rf_weights_close(w);
        return std::string(rc < 0 ? rf_last_error()->message : "");
    };
    std::vector<Tensor> good;
    for (int i = 0; i < list.count; i++)
        good.push_back({list.list[i].name, hub_tensor_shape(&list.list[i])});
    hub_tensors_free(&list);
    EXPECT_EQ(fault_of(good), ""); // without the prefix
    std::vector<Tensor> more = good;
    more.push_back({"h.0.attn.bias", rf_shape4(1, 1, 4, 4)});
    EXPECT_EQ(fault_of(more), "");
    more.push_back({"h.99.attn.bias", rf_shape1(1)});
    EXPECT_HAS(fault_of(more), "h.99.attn.bias belongs to no parameter");
    more.back() = {"lm_head.weight", good[0].shape};
    EXPECT_HAS(fault_of(more), "lm_head.weight differs from wte.weight");
    std::vector<Tensor> fewer = good;
    const std::string last = fewer.back().name;
    fewer.pop_back();
    EXPECT_HAS(fault_of(fewer), "tensor " + last + " is missing");
    fewer.push_back({last, rf_shape1(3)});
    EXPECT_HAS(fault_of(fewer), last + " is f32 (3)");
}

uint64_t host_bytes_in_use()
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Nothing is mapped, so memory means allocations. A sanitizer does not count them.
TEST(Hub, AFillHoldsLessThanTheLargestTensorInHostMemory)
{
    Made made;
    const std::string error = made.make(R"({"architectures":["GPT2LMHeadModel"],
        "model_type":"gpt2","vocab_size":4096,"n_positions":16,"n_embd":128,"n_layer":8,
        "n_head":4,"activation_function":"gelu_new","layer_norm_epsilon":1e-5})");
    ASSERT_EQ(error, "");
    const uint64_t largest = 4096 * 128 * sizeof(float);
    Training t = training_of(made);
    t.steps = 0;
    t.before = [&made](rf_run *run, rf_comm *, int) {
        made.with_source([&](const rf_param_source &from) {
            struct Self {
                const rf_param_source *from;
                uint64_t read, most;
            } self = {&from, 0, 0};
            rf_param_source source = {};
            source.self = &self;
            source.read = [](void *user, const char *name, uint64_t first, uint64_t count,
                             void *values) {
                Self *s = static_cast<Self *>(user);
                const int rc = s->from->read(s->from->self, name, first, count, values);
                s->read += count * sizeof(float);
                s->most = std::max(s->most, host_bytes_in_use());
                return rc;
            };
            run->files.piece_bytes = 1 << 18;
            const uint64_t before = host_bytes_in_use();
            ASSERT_RF(rf_run_fill(run, &source));
            EXPECT_GE(self.read, 4 * largest);
            EXPECT_LE(self.most, before + largest) << self.most - before;
        });
    };
    train(t, 1);
}

TEST(Hub, AFillNeedsMemoryForPiecesAloneAndAnErrorOfOneRankIsThatOfAll)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.policy.zero = 3;
    t.before = [](rf_run *run, rf_comm *, int rank) {
        struct Self {
            int rank;
            uint64_t most;
        } self = {rank, 0};
        rf_param_source source = {};
        source.self = &self;
        source.read = [](void *user, const char *, uint64_t, uint64_t count, void *values) {
            Self *s = static_cast<Self *>(user);
            s->most = std::max(s->most, count);
            memset(values, 0, count * sizeof(float));
            return s->rank == 1 ? rf_fail(RF_EIO, "the disk is gone") : 0;
        };
        run->files.piece_bytes = 1024;
        EXPECT_EQ(rf_run_fill(run, &source), RF_EIO);
        EXPECT_HAS(std::string(rf_last_error()->message), "the disk is gone");
        self.rank = 0;
        EXPECT_RF(rf_run_fill(run, &source));
        EXPECT_LE(self.most, 256u);
    };
    train(t, 2);
}

// The ranks' requests add up to the parameters: each is read once, by the rank that stores it.
TEST(Hub, EachRankReadsOnlyWhatItStores)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    uint64_t all = 0;
    for (int b = 0; b < made.count; b++)
        for (int k = 0; k < made.blocks[b].param_count; k++)
            if (!made.blocks[b].params[k].tied_to)
                all += (uint64_t)rf_shape_count(made.blocks[b].params[k].shape);
    for (int ranks : {1, 2, 4}) {
        Training t = training_of(made);
        std::atomic<uint64_t> total(0), most(0);
        t.steps = 0;
        t.policy.zero = 3;
        t.before = [&](rf_run *run, rf_comm *, int) {
            uint64_t own = 0;
            rf_param_source source = {};
            source.self = &own;
            source.read = [](void *user, const char *, uint64_t, uint64_t count, void *values) {
                *static_cast<uint64_t *>(user) += count;
                memset(values, 0, count * sizeof(float));
                return 0;
            };
            ASSERT_RF(rf_run_fill(run, &source));
            total += own;
            for (uint64_t seen = most; own > seen && !most.compare_exchange_weak(seen, own);)
                ;
        };
        train(t, ranks);
        EXPECT_EQ(total, all) << ranks;
        EXPECT_LE(most, all / (uint64_t)ranks + all / 8) << ranks;
    }
}

TEST(Hub, AParameterOfTensorRanksIsReadWholeInPiecesOfAnySize)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(2).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.tp = 2;
    t.policy.order = RF_ORDER_RING;
    for (size_t piece : {(size_t)4 << 20, (size_t)256}) {
        t.before = [&](rf_run *run, rf_comm *, int rank) {
            made.with_source(
                [&](const rf_param_source &from) { ASSERT_RF(rf_run_fill(run, &from)); });
            run->files.piece_bytes = piece;
            for (int b = 0; b < made.count; b++)
                for (int k = 0; k < made.blocks[b].param_count; k++) {
                    const rf_param_desc &param = made.blocks[b].params[k];
                    Floats got((size_t)rf_shape_count(param.shape)), wanted(got.size());
                    ASSERT_RF(rf_run_read_param(run, param.name, got.data(), got.size() * 4));
                    made.with_source([&](const rf_param_source &from) {
                        const char *name = param.tied_to ? param.tied_to : param.name;
                        ASSERT_RF(from.read(from.self, name, 0, wanted.size(), wanted.data()));
                    });
                    EXPECT_EQ(got, wanted) << param.name << " of rank " << rank;
                }
        };
        train(t, 2);
    }
}

TEST(Hub, AWeightThatIsNotFiniteIsNamedWhenItIsFilled)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.before = [](rf_run *run, rf_comm *, int) {
        rf_param_source source = {};
        source.read = [](void *, const char *, uint64_t, uint64_t count, void *values) {
            memset(values, 0, count * sizeof(float));
            static_cast<float *>(values)[0] = NAN;
            alignas(4) char bytes[4096];
            return rf_quantize(RF_INT8, static_cast<float *>(values), 64, bytes);
        };
        EXPECT_EQ(rf_run_fill(run, &source), RF_EINVAL);
        const std::string said = rf_last_error()->message;
        EXPECT_HAS(said, "parameter ");
        EXPECT_HAS(said, "element 0 is nan");
        source.read = [](void *, const char *, uint64_t, uint64_t count, void *values) {
            memset(values, 0, count * sizeof(float));
            return 0;
        };
        EXPECT_RF(rf_run_fill(run, &source));
    };
    train(t, 1);
}

} // namespace
