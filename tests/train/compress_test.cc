// SPDX-License-Identifier: MIT
//
// Gradients that are sent in another form: every form trains, on all ranks with the same bits and
// with the planned bytes; checkpoints continue with what the form has lost.
#include <functional>

#include "folder.h"
#include "world.h"

namespace
{

const rf_form forms[] = {RF_FORM_BF16, RF_FORM_INT8, RF_FORM_NF4,
                         RF_FORM_TOP,  RF_FORM_SIGN, RF_FORM_POWERSGD};

// Several pieces, of which the first ones are small.
Training with_form(rf_form form, int steps)
{
    Training t = tiny(steps, 1);
    t.policy.order = RF_ORDER_RING;
    t.policy.batch = t.policy.micro_batches = 6;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.edit_batch = [](int, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        for (size_t i = 0; i < tokens.size(); i++) { // the same text in each step
            tokens[i] = static_cast<int32_t>(i * i % 11);
            targets[i] = static_cast<int32_t>((i + 1) * (i + 1) % 11);
        }
    };
    t.policy.compress.form = form;
    t.policy.compress.fraction = form == RF_FORM_TOP ? 0.05f : 0;
    t.policy.compress.rank = form == RF_FORM_POWERSGD ? 2 : 0;
    return t;
}

// The state is of step 2 and of `ranks` ranks.
std::string resumed(const Training &from, const Folder &folder, int ranks, int steps)
{
    Training t = from;
    t.first_step = 2;
    t.steps = steps;
    t.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        EXPECT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, 2);
    };
    return train(t, ranks)[0].sha;
}

} // namespace

TEST(Compress, EveryFormTrainsWithTheSameBitsOnAllRanksAndSendsThePlannedBytes)
{
    const int steps = 12;
    for (const int ranks : {2, 3}) {
        const Seen whole = train(with_form(RF_FORM_F32, steps), ranks)[0];
        for (const rf_form form : forms) {
            const std::string where = std::string(rf_form_name(form)) + std::to_string(ranks);
            const std::vector<Seen> all = train(with_form(form, steps), ranks);
            for (const Seen &s : all) {
                EXPECT_EQ(s.sha, all[0].sha) << where;
                expect_planned(s, where);
                EXPECT_LT(s.measured.sent, whole.measured.sent * 0.7) << where;
            }
            EXPECT_NE(all[0].sha, whole.sha) << where;
            // Half of what f32 has learned, at least: twelve steps are few for error feedback.
            EXPECT_LT(all[0].loss.back(), (whole.loss.front() + whole.loss.back()) / 2) << where;
        }
    }
}

TEST(Compress, ACheckpointContinuesWithTheSameBitsAndOtherRanksWithoutWhatWasLost)
{
    for (const rf_form form : {RF_FORM_NF4, RF_FORM_POWERSGD}) {
        Folder folder;
        Training first = with_form(form, 2);
        first.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {2, first.seed, 2 * first.policy.batch, 0, 0, nullptr};
            EXPECT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(first, 2);
        const std::string want = train(with_form(form, 4), 2)[0].sha;
        EXPECT_EQ(resumed(with_form(form, 0), folder, 2, 2), want);
        // A rank sends its share to rank 0, and asks rank 0 for it.
        if (form == RF_FORM_NF4) {
            Training hidden = with_form(form, 0);
            hidden.first_step = 2;
            hidden.steps = 2;
            hidden.before = [&](rf_run *run, rf_comm *, int rank) {
                rf_progress progress = {};
                if (rank > 0)
                    hide_folders(run);
                EXPECT_RF(rf_run_load(run, folder.path().c_str(), &progress));
            };
            EXPECT_EQ(train(hidden, 2)[0].sha, want);
        }
        EXPECT_NE(resumed(with_form(form, 0), folder, 3, 2), want);
        EXPECT_NE(resumed(with_form(RF_FORM_F32, 0), folder, 2, 2), want);
    }
}

TEST(Compress, WhatItDoesNotGoWithIsRefusedByName)
{
    struct Case {
        const char *says;
        std::function<void(rf_policy &, rf_mesh &)> change;
    };
    const Case cases[] = {
        {"tree order", [](rf_policy &p, rf_mesh &) { p.order = RF_ORDER_TREE; }},
        {"zero", [](rf_policy &p, rf_mesh &) { p.zero = 1; }},
        {"tensor ranks", [](rf_policy &, rf_mesh &m) { m.tp = 2; }},
        {"context ranks", [](rf_policy &, rf_mesh &m) { m.cp = 2; }},
        {"a pipeline", [](rf_policy &, rf_mesh &m) { m.pp = 2; }},
        {"the update on rank 0", [](rf_policy &p, rf_mesh &) { p.update_on_rank_0 = true; }},
        {"offload", [](rf_policy &p, rf_mesh &) { p.offload = RF_OFFLOAD_OPTIMIZER; }},
        {"reduce_dtype", [](rf_policy &p, rf_mesh &) { p.reduce_dtype = RF_BF16; }},
        {"a loss scale", [](rf_policy &p, rf_mesh &) { p.loss_scale = 8; }},
        {"\"powersgd\" only", [](rf_policy &p, rf_mesh &) { p.compress.rank = 2; }},
        {"\"top\" only", [](rf_policy &p, rf_mesh &) { p.compress.fraction = 0.5f; }},
    };
    const Training t = with_form(RF_FORM_NF4, 1);
    gpt2 *model = nullptr;
    int count = 0;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    for (const Case &c : cases) {
        rf_policy policy = t.policy;
        rf_mesh mesh = {2, 1, 1, 0, 1};
        rf_plan *plan = nullptr;
        c.change(policy, mesh);
        EXPECT_LT(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), 0) << c.says;
        EXPECT_NE(std::string(rf_last_error()->message).find(c.says), std::string::npos)
            << rf_last_error()->message;
        rf_plan_destroy(plan);
    }
    gpt2_destroy(model);
}
