// SPDX-License-Identifier: MIT
//
// The library's training against two independent ones: a plain fp64 GPT-2 in this folder, run here,
// and PyTorch, whose losses are kept in reference_torch.txt. Same weights, tokens and AdamW.
#include "train/reference_model.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "reference_setup.h"
#include "world.h"

namespace
{

// f32 rounding of 20 steps of Adam on losses near 4: 2e-5 was seen; a wrong sign or factor shows at
// 1e-2.
const double loss_tolerance = 1e-4;

Training same_training(int64_t micro_batches)
{
    Training t;
    t.model = {reference::config.layers, reference::config.channels, reference::config.heads,
               reference::config.seq, reference::config.vocab};
    t.policy.batch = reference::batch;
    t.policy.seq = reference::config.seq;
    t.policy.micro_batches = micro_batches;
    t.policy.order = RF_ORDER_RING;
    t.policy.optimizer.beta1 = (float)reference::adamw.beta1;
    t.policy.optimizer.beta2 = (float)reference::adamw.beta2;
    t.policy.optimizer.eps = (float)reference::adamw.eps;
    t.policy.optimizer.weight_decay = (float)reference::adamw.weight_decay;
    t.policy.clip = (float)reference::adamw.clip;
    t.steps = 0;
    return t;
}

void set_weights(const ReferenceModel &model, rf_run *run)
{
    uint64_t site = 0;
    for (const auto &param : model.sizes()) {
        std::vector<float> values = reference::weights(param.first, param.second, site++);
        ASSERT_RF(rf_run_write_param(run, param.first.c_str(), values.data(), values.size() * 4));
    }
}

struct Curve {
    std::vector<double> loss, norm;
};

Curve library_curve(int ranks, int64_t micro_batches)
{
    Curve curve;
    Training t = same_training(micro_batches);
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        set_weights(ReferenceModel(reference::config), run);
        for (int step = 0; step < reference::steps; step++) {
            std::vector<int32_t> in, out;
            rf_step_stats stats = {};
            reference::tokens(step, in, out);
            ASSERT_RF(rf_run_step(run, in.data(), out.data(), (float)reference::adamw.lr, &stats));
            if (rank == 0) {
                curve.loss.push_back(stats.loss);
                curve.norm.push_back(stats.grad_norm);
            }
        }
    };
    train(t, ranks);
    return curve;
}

void fill(ReferenceModel *model)
{
    uint64_t site = 0;
    for (const auto &param : model->sizes()) {
        std::vector<float> values = reference::weights(param.first, param.second, site++);
        model->params[param.first].assign(values.begin(), values.end());
    }
}

} // namespace

TEST(Reference, TwentyLossesAndNormsAgreeWithAPlainFp64Model)
{
    ReferenceModel model(reference::config);
    fill(&model);
    Curve library = library_curve(1, 3);
    ASSERT_EQ(library.loss.size(), (size_t)reference::steps);
    for (int step = 0; step < reference::steps; step++) {
        std::vector<int32_t> in, out;
        int64_t counted = 0;
        reference::tokens(step, in, out);
        double loss = model.loss(in, out, reference::batch, &counted) / (double)counted;
        double norm = model.step(reference::adamw, counted);
        EXPECT_NEAR(library.loss[(size_t)step], loss, loss_tolerance) << "step " << step;
        EXPECT_NEAR(library.norm[(size_t)step], norm, 1e-3 * norm) << "step " << step;
    }
}

TEST(Reference, TwentyLossesOnTwoRanksAgreeWithPyTorch)
{
    Curve library = library_curve(2, 6);
    std::ifstream file(RF_REFERENCE_FOLDER "/reference_torch.txt");
    std::string line;
    int rows = 0;
    ASSERT_EQ(library.loss.size(), (size_t)reference::steps);
    while (std::getline(file, line)) {
        std::istringstream words(line);
        int step = 0;
        double loss = 0, norm = 0;
        if (line[0] == '#' || !(words >> step >> loss >> norm))
            continue;
        rows++;
        EXPECT_NEAR(library.loss[(size_t)step], loss, loss_tolerance) << "step " << step;
        EXPECT_NEAR(library.norm[(size_t)step], norm, 1e-3 * norm) << "step " << step;
    }
    EXPECT_EQ(rows, reference::steps);
}

TEST(Gradients, OfTheWholeModelAgreeWithTheReferenceInEveryParameter)
{
    // Ignored targets leave micro-batches with 16, 9, 3, 1, 0 and 12 valid tokens; one micro-batch
    // of everything gives the same sums up to rounding.
    ReferenceModel model(reference::config);
    fill(&model);
    std::vector<int32_t> in, out;
    reference::tokens(0, in, out);
    const int valid[] = {16, 9, 3, 1, 0, 12};
    for (size_t i = 0; i < out.size(); i++)
        if ((int)(i % 16) >= valid[i / 16])
            out[i] = -1;
    int64_t counted = 0;
    double loss = model.loss(in, out, reference::batch, &counted) / (double)counted;
    ASSERT_EQ(counted, 41);
    for (int64_t micro_batches : {1, 2, 6}) {
        Training t = same_training(micro_batches);
        t.after = [&](rf_run *run, rf_comm *, int rank) {
            rf_step_stats stats = {};
            set_weights(model, run);
            ASSERT_RF(rf_run_step(run, in.data(), out.data(), 0, &stats));
            EXPECT_EQ(stats.tokens, 41);
            EXPECT_NEAR(stats.loss, loss, 1e-6 * loss);
            for (const auto &param : model.sizes()) {
                std::vector<float> grad(param.second);
                ASSERT_RF(rf_run_read_grad(run, param.first.c_str(), grad.data(), grad.size() * 4));
                const std::vector<double> &want = model.grads[param.first];
                double largest = 0, worst = 0;
                for (size_t i = 0; i < grad.size(); i++) {
                    largest = std::max(largest, std::fabs(want[i]));
                    worst = std::max(worst, std::fabs(grad[i] - want[i]));
                }
                // Sums over 96 tokens and 128 channels in f32; relative to the largest element.
                EXPECT_LT(worst, 2e-5 * (largest + 0.1)) << param.first;
            }
        };
        train(t, micro_batches == 2 ? 2 : 1);
    }
}

TEST(Gradients, AreTheSlopesOfTheLoss)
{
    // Central differences of the library's own loss in f32: the sum of 96 losses is accurate to
    // about 1e-5, which over a step of 2e-2 leaves 1e-3 of a slope near 1.
    Training t = same_training(1);
    ReferenceModel model(reference::config);
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> in, out;
        reference::tokens(0, in, out);
        set_weights(model, run);
        rf_step_stats stats = {};
        ASSERT_RF(rf_run_step(run, in.data(), out.data(), 0, &stats));
        for (const char *name :
             {"wte.weight", "wpe.weight", "blocks.0.ln1.weight", "blocks.0.attention.qkv.weight",
              "blocks.0.attention.qkv.bias", "blocks.1.attention.proj.weight", "blocks.1.ln2.bias",
              "blocks.1.mlp.fc.weight", "blocks.0.mlp.proj.bias", "ln_f.weight"}) {
            const size_t count = model.sizes().at(name), at = count / 3;
            std::vector<float> values(count), grad(count);
            double slope = 0, losses[2];
            const float h = 2e-2f;
            ASSERT_RF(rf_run_read_grad(run, name, grad.data(), count * 4));
            ASSERT_RF(rf_run_read_param(run, name, values.data(), count * 4));
            const float middle = values[at];
            for (int side = 0; side < 2; side++) {
                values[at] = middle + (side ? h : -h);
                ASSERT_RF(rf_run_write_param(run, name, values.data(), count * 4));
                ASSERT_RF(rf_run_evaluate(run, in.data(), out.data(), 1, &losses[side]));
            }
            values[at] = middle;
            ASSERT_RF(rf_run_write_param(run, name, values.data(), count * 4));
            slope = (losses[1] - losses[0]) * 96 / (2 * (double)h);
            EXPECT_NEAR(grad[at], slope, 0.01 + 0.02 * std::fabs(slope)) << name;
        }
    };
    train(t, 1);
}
