// SPDX-License-Identifier: MIT
//
// Trains a small GPT-2 or Llama-style model on ranks that are threads over loopback, each with a
// device of its own, and returns each rank's results. Devices are kept for the whole process:
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

// Supported stages of sharding (rf_policy.zero). The promises of data parallelism are tested at
// each of them, in both orders.
inline const int zero_stages[] = {0, 1, 2, 3};
struct Sharding {
    int zero;
    rf_order order;
    int shard = 0;            // rf_mesh.shard
    int offload = 0;          // rf_policy.offload
    std::string text() const; // "zero=1, tree"
};
std::vector<Sharding> shardings();
// Also those with two ranks per copy, for an even number of ranks; and in host memory.
std::vector<Sharding> all_shardings();

// As if this rank had no file system in common with rank 0.
inline void hide_folders(rf_run *run)
{
    run->files.sees = [](const char *, const char *, const char *, char *) { return false; };
    run->files.has = [](const char *, const char *, const char *) { return false; };
}

// The hash of all parameters.
std::string sha_of(rf_run *run);

// The rank's device; opened on first use.
rf_device *rank_device(int rank);

struct Training {
    gpt2_config model = {2, 32, 4, 16, 61};
    // With layers, it is trained instead of the GPT-2; its vocabulary must be the same.
    llama_config llama = {};
    std::vector<std::string> freeze; // patterns of gpt2_freeze
    rf_policy policy = {};
    int shard = 0; // of the mesh
    int tp = 1;    // likewise
    int pp = 1;    // likewise
    int cp = 1;    // likewise; ranks are dp * tp * cp * pp
    int steps = 3;
    int first_step = 0;  // the first batch
    int drain_every = 0; // interval of rf_run_drain in steps; 0: only after the last one
    float lr = 0.01f;
    uint64_t seed = 5;
    bool record_each_step = false;
    std::string disk; // rf_run_opts.disk
    // Share of targets that are ignored, drawn per token; uneven over the micro-batches.
    double ignored = 0;
    // Changes the input of a step, the same on every rank.
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

// A GPT-2 with one layer, for tests that open many runs.
Training tiny(int steps = 3, float clip = 0);

// Steps `from` to `to` - 1 of a run.
void take_steps(const Training &t, rf_run *run, int from, int to);

// Saves as step `step`, after 4 samples a step.
void save_at(rf_run *run, const std::string &folder, int step);

struct Seen { // by one rank
    std::string sha;
    std::vector<double> loss;
    std::vector<float> norm;
    std::vector<rf_step_stats> stats;
    rf_bytes planned, measured;
};

// Measurements equal the plan, to the byte, in every category.
void expect_planned(const Seen &s, const std::string &where);

// Fails the test if anything in it fails.
std::vector<Seen> train(const Training &training, int ranks);

// Rank 0's parameters after the last step on `ranks` ranks.
std::vector<float> trained_parameters(Training training, int ranks);
// The largest difference; fails the test if the lengths differ.
float worst_difference(const std::vector<float> &a, const std::vector<float> &b);

#define ASSERT_RF(call) ASSERT_EQ(call, 0) << rf_last_error()->message
#define EXPECT_RF(call) EXPECT_EQ(call, 0) << rf_last_error()->message

#endif
