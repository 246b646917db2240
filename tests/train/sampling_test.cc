// SPDX-License-Identifier: MIT
//
// The processors of logits against those of transformers, on logits by a formula
// (sampling_torch.txt, by sampling_torch.py).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <vector>

extern "C" {
#include "generate/generator.h"
}

namespace
{
const int VOCAB = 48;

std::vector<float> logits(uint32_t kind)
{
    std::vector<float> out(VOCAB, 1.0f);
    for (uint32_t i = 0; kind < 3 && i < VOCAB; i++) {
        uint32_t h = (i + 1) * 2654435761u ^ (kind + 1) * 2246822519u;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        const int x = (int)(h >> 8);
        out[i] = (float)(kind < 2 ? x % 512 - 256 : x % 6 * 64 - 192) / 64;
    }
    return out;
}

struct Case {
    uint32_t kind;
    std::vector<int32_t> ids;
    rf_sampling s;
    std::vector<double> want; /* 0: not left */
};

std::vector<Case> read_cases()
{
    std::ifstream file(RF_REFERENCE_FOLDER "/sampling_torch.txt");
    std::vector<Case> all;
    std::string line, second;
    std::getline(file, line); /* a comment */
    while (std::getline(file, line) && std::getline(file, second)) {
        std::istringstream first(line), rest(second);
        Case c = {};
        size_t count = 0;
        first >> c.kind >> count;
        c.ids.resize(count);
        for (int32_t &id : c.ids)
            first >> id;
        first >> c.s.temperature >> c.s.top_k >> c.s.top_p >> c.s.repetition_penalty;
        EXPECT_TRUE(first) << line;
        c.s.max_new = 1;
        c.want.resize(VOCAB);
        int id = 0;
        for (double p; rest >> id >> p;)
            c.want.at((size_t)id) = p;
        all.push_back(c);
    }
    return all;
}

/* Probabilities after the processors. */
std::vector<double> processed(const Case &c)
{
    std::vector<float> scores(VOCAB);
    std::vector<int32_t> order(VOCAB);
    std::vector<uint8_t> seen(VOCAB);
    rf_generator g = {};
    g.layout.classes = VOCAB;
    g.scores = scores.data();
    g.order = order.data();
    g.seen = seen.data();
    EXPECT_EQ(rf_sampling_check(&c.s), 0);
    rf_generator_process(&g, &c.s, c.ids.data(), (int64_t)c.ids.size(), logits(c.kind).data());
    double sum = 0;
    std::vector<double> out;
    const double most = *std::max_element(scores.begin(), scores.end());
    for (float x : scores)
        out.push_back(std::exp(x - most));
    for (double p : out)
        sum += p;
    for (double &p : out)
        p /= sum;
    return out;
}
} // namespace

/* Among tokens with equal logits at the limit of top-p, transformers keeps some, in the order of
 * its sort, and this library those with the largest ids. So there the probabilities are compared in
 * order of size. */
TEST(Sampling, ProcessorsLeaveTheProbabilitiesOfTransformers)
{
    const std::vector<Case> all = read_cases();
    ASSERT_EQ(all.size(), 23u);
    for (size_t k = 0; k < all.size(); k++) {
        std::vector<double> got = processed(all[k]), want = all[k].want;
        if (all[k].kind >= 2 && all[k].s.top_p < 1) {
            std::sort(got.begin(), got.end());
            std::sort(want.begin(), want.end());
        }
        for (int i = 0; i < VOCAB; i++) {
            EXPECT_EQ(got[i] > 0, want[i] > 0) << "case " << k << ", token " << i;
            EXPECT_NEAR(got[i], want[i], 1e-6) << "case " << k << ", token " << i;
        }
    }
}

/* The effect of an empty filter, and of one that leaves one token. */
TEST(Sampling, TheLargestLogitIsAlwaysLeft)
{
    Case c = {0, {3}, {}, {}};
    c.s.max_new = 1;
    c.s.temperature = 1;
    const std::vector<float> x = logits(0);
    const size_t best = (size_t)(std::max_element(x.begin(), x.end()) - x.begin());
    for (float top_p : {1e-30f, 1e-6f}) {
        c.s.top_p = top_p;
        const std::vector<double> got = processed(c);
        EXPECT_EQ(got[best], 1);
        EXPECT_EQ(std::count(got.begin(), got.end(), 0.0), VOCAB - 1);
    }
    for (float top_p : {0.0f, 1.0f}) {
        c.s.top_p = top_p;
        c.s.top_k = VOCAB + 1;
        const std::vector<double> got = processed(c);
        EXPECT_EQ(std::count(got.begin(), got.end(), 0.0), 0);
    }
}
