// SPDX-License-Identifier: MIT
//
// Greedy texts and logits of two models of each architecture against those of transformers
// (generate_torch.txt, by generate_torch.py): with the cache, and from the forward pass of
// training.
#include <cmath>
#include <fstream>
#include <sstream>

#include "hub_model.h"

namespace
{
using namespace hub_models;
using Ids = std::vector<int32_t>;

const int VOCAB = 61, POSITIONS[] = {0, 4, 10};

struct Case {
    std::string name, config;
    std::vector<Ids> prompts, texts;
    std::vector<double> logits; // at POSITIONS of the last prompt
};

std::vector<Case> read_cases()
{
    std::ifstream file(RF_REFERENCE_FOLDER "/generate_torch.txt");
    std::vector<Case> all;
    std::string line;
    std::getline(file, line); // a comment
    while (std::getline(file, line)) {
        Case c;
        c.name = line;
        std::getline(file, c.config);
        for (int k = 0; k < 3; k++) {
            Ids prompt, text;
            std::string word;
            bool after = false;
            std::getline(file, line);
            for (std::istringstream in(line); in >> word;)
                if (word == ">")
                    after = true;
                else
                    (after ? text : prompt).push_back(std::stoi(word));
            c.prompts.push_back(prompt);
            c.texts.push_back(text);
        }
        std::getline(file, line);
        std::istringstream in(line);
        for (double x; in >> x;)
            c.logits.push_back(x);
        all.push_back(c);
    }
    return all;
}

std::vector<Ids> generate(rf_generator *g, const Case &c)
{
    std::vector<rf_prompt> in;
    std::vector<rf_generated> out;
    std::vector<Ids> texts(c.prompts.size());
    rf_sampling s = {};
    s.max_new = (int64_t)c.texts[0].size();
    for (size_t i = 0; i < texts.size(); i++) {
        texts[i].resize((size_t)s.max_new);
        in.push_back({c.prompts[i].data(), (int64_t)c.prompts[i].size()});
        out.push_back({texts[i].data(), nullptr, 0, RF_FINISH_LENGTH});
    }
    EXPECT_RF(rf_generate(g, in.data(), (int64_t)in.size(), &s, out.data()));
    return texts;
}

Floats decoded(rf_generator *g, const Ids &prompt)
{
    const Ids zero(prompt.size(), 0);
    Ids position;
    Floats logits(prompt.size() * VOCAB);
    for (size_t i = 0; i < prompt.size(); i++)
        position.push_back((int32_t)i);
    EXPECT_RF(rf_generator_logits(
        g, {(int64_t)prompt.size(), prompt.data(), zero.data(), position.data()}, logits.data(),
        4 * logits.size()));
    return logits;
}

Floats forward(const Made &made, const Ids &prompt)
{
    rf_mesh mesh = {};
    mesh.dp = 1;
    rf_policy policy = {};
    policy.batch = 1;
    policy.seq = (int64_t)prompt.size();
    policy.forward_only = true;
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    Floats logits(prompt.size() * VOCAB);
    EXPECT_RF(rf_plan_build({made.blocks, made.count}, &mesh, &policy, 0, &plan));
    EXPECT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
    made.with_source([&](const rf_param_source &from) { EXPECT_RF(rf_run_fill(run, &from)); });
    EXPECT_RF(rf_run_forward(run, prompt.data(), logits.data(), 4 * logits.size()));
    rf_run_close(run);
    rf_plan_destroy(plan);
    return logits;
}
} // namespace

TEST(GenerateTorch, GreedyTextsAndLogitsAreThoseOfTransformers)
{
    std::vector<std::string> configs;
    for (const Case &c : read_cases()) {
        SCOPED_TRACE(c.name);
        configs.push_back(c.config);
        Made made;
        ASSERT_EQ(made.make(c.config, 4), ""); // SCALE of generate_torch.py
        const rf_generator_opts opts = {2, 24, 0, false};
        rf_generator *g = nullptr;
        ASSERT_RF(rf_generator_open(rank_device(0), nullptr, {made.blocks, made.count}, &opts, &g));
        made.with_source(
            [&](const rf_param_source &from) { ASSERT_RF(rf_generator_fill(g, &from)); });
        EXPECT_EQ(generate(g, c), c.texts);
        const Ids &prompt = c.prompts.back();
        const Floats cached = decoded(g, prompt), whole = forward(made, prompt);
        rf_generator_close(g);
        ASSERT_EQ(c.logits.size(), 3u * VOCAB);
        for (size_t i = 0; i < c.logits.size(); i++) {
            const size_t at = (size_t)POSITIONS[i / VOCAB] * VOCAB + i % VOCAB;
            ASSERT_NEAR(cached[at], c.logits[i], 1e-4) << i;
            ASSERT_NEAR(whole[at], c.logits[i], 1e-4) << i;
        }
    }
    expect_each_architecture(configs);
}
