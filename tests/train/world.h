// SPDX-License-Identifier: MIT
//
// Trains a small GPT-2 or Llama-style model on ranks that are threads over loopback, each with a
// device of its own, and returns what every rank saw. Devices are kept for the whole process:
// opening one compiles kernels.
#ifndef RF_TESTS_TRAIN_WORLD_H
#define RF_TESTS_TRAIN_WORLD_H

#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <functional>
#include <string>
#include <vector>

#include "gpt2.h"
#include "llama.h"

extern "C" {
#include "train/run.h"
}

// The rank's device; opened on first use.
rf_device *rank_device(int rank);

struct Training {
    gpt2_config model = {2, 32, 4, 16, 61};
    // With layers, trained in place of the GPT-2; its vocabulary must be the same.
    llama_config llama = {};
    rf_policy policy = {};
    int shard = 0; // of the mesh
    int steps = 3;
    int first_step = 0; // which batch is the first
    float lr = 0.01f;
    uint64_t seed = 5;
    bool record_each_step = false;
    // Share of targets that are ignored, drawn per token; uneven over the micro-batches.
    double ignored = 0;
    // Changes the plan of a rank before it is run.
    std::function<void(rf_plan *, int rank)> edit;
    // Before the first and after the last step, while the run is open.
    std::function<void(rf_run *, rf_comm *, int rank)> before, after;
    rf_loopback_opts loopback = {};

    Training()
    {
        policy.batch = 8;
        policy.seq = 16;
        policy.micro_batches = 8;
        policy.order = RF_ORDER_TREE;
    }
    // The whole batch of a step.
    void batch(int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) const;
};

struct Seen { // by one rank
    std::string sha;
    std::vector<double> loss;
    std::vector<float> norm;
    std::vector<rf_step_stats> stats;
    rf_bytes planned, measured;
};

// What was measured is what was planned, to the byte, in every category.
void expect_planned(const Seen &s, const std::string &where);

// Fails the test when anything in it fails.
std::vector<Seen> train(const Training &training, int ranks);

#define ASSERT_RF(call) ASSERT_EQ(call, 0) << rf_last_error()->message
#define EXPECT_RF(call) EXPECT_EQ(call, 0) << rf_last_error()->message

#endif
