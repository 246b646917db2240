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

// Stages of sharding (rf_policy.zero) that this version has. What is promised of data parallelism
// is tested at each of them, in both orders.
inline const int zero_stages[] = {0, 1, 2, 3};
struct Sharding {
    int zero;
    rf_order order;
    int shard = 0;            // rf_mesh.shard
    int offload = 0;          // rf_policy.offload
    std::string text() const; // "zero=1, tree"
};
std::vector<Sharding> shardings();
// And those of which two ranks hold a copy together, for an even number of ranks; and in memory of
// the host.
std::vector<Sharding> all_shardings();

// As if this rank had no file system in common with rank 0.
inline void hide_folders(rf_run *run)
{
    run->files.sees = [](const char *, const char *, const char *, char *) { return false; };
    run->files.has = [](const char *, const char *, const char *) { return false; };
}

// The rank's device; opened on first use.
rf_device *rank_device(int rank);

struct Training {
    gpt2_config model = {2, 32, 4, 16, 61};
    // With layers, trained in place of the GPT-2; its vocabulary must be the same.
    llama_config llama = {};
    std::vector<std::string> freeze; // patterns of gpt2_freeze
    rf_policy policy = {};
    int shard = 0; // of the mesh
    int tp = 1;    // likewise
    int pp = 1;    // likewise
    int cp = 1;    // likewise; ranks are dp * tp * cp * pp
    int steps = 3;
    int first_step = 0;  // which batch is the first
    int drain_every = 0; // rf_run_drain after as many steps; 0: after the last one alone
    float lr = 0.01f;
    uint64_t seed = 5;
    bool record_each_step = false;
    // Share of targets that are ignored, drawn per token; uneven over the micro-batches.
    double ignored = 0;
    // Changes what a step is trained on, the same on every rank.
    std::function<void(int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets)>
        edit_batch;
    // Changes the blocks of a rank.
    std::function<void(std::vector<rf_block> &, int rank)> edit_blocks;
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

// All parameters after the last step on so many ranks, as rank 0 has them.
std::vector<float> trained_parameters(Training training, int ranks);
// The largest difference; fails the test when there are not as many.
float worst_difference(const std::vector<float> &a, const std::vector<float> &b);

#define ASSERT_RF(call) ASSERT_EQ(call, 0) << rf_last_error()->message
#define EXPECT_RF(call) EXPECT_EQ(call, 0) << rf_last_error()->message

#endif
