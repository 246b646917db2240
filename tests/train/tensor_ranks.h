// SPDX-License-Identifier: MIT
//
// One block on several tensor ranks that are all in this process and on one device: parameters are
// cut by their rf_split, every call goes phase by phase through all ranks, exchanges are made on
// the host as train.h describes them, and the ranks' results are joined. For comparison with the
// same block on one rank. Knows nothing of plans and communicators.
#ifndef RF_TESTS_TRAIN_TENSOR_RANKS_H
#define RF_TESTS_TRAIN_TENSOR_RANKS_H

#include <functional>
#include <string>
#include <vector>

#include "world.h"

struct TensorCase {
    const rf_block *block = nullptr;
    int ranks = 1;
    bool sequence = false;
    int64_t rows = 0, seq = 0; // of the micro-batch
    // The whole input: for a block in the middle f32 values (rows, C), which are rounded to
    // in_dtype; for a first block `tokens`, which every rank gets whole.
    std::vector<float> in;
    rf_dtype in_dtype = RF_F32;
    int64_t columns = 0; // C of in
    std::vector<int32_t> tokens;
    // The gradient of the whole output; rounded to the output's type. For a last block `targets`;
    // its output is replaced by its gradient.
    std::vector<float> dout;
    std::vector<int32_t> targets;
    std::vector<std::vector<float>> params; // whole, in the order of the block
    bool evaluate = false;                  // forward alone, with ctx->evaluate

    // Gradients of split parameters start at 1 and are added to, even if they would be overwritten:
    // as in a later micro-batch.
    bool later = false;

    // Deliberate mistakes, which the comparison must find.
    bool skip_sums = false; // gradients of unsplit parameters are not added over the ranks
    std::function<void(rf_param_desc &)> edit_split; // cuts parameters in another way
    // Changes a rank's contribution to exchange `index` of a call ("forward", "backward_input",
    // "backward_weight").
    std::function<void(const char *call, int index, int rank, std::vector<float> &given)>
        edit_given;
};

struct TensorSeen {
    int status = 0; // of tensor_sizes() or the first call that failed
    std::string fault;
    std::vector<float> out, din, losses; // whole: rows of all ranks
    std::vector<std::vector<float>> grads;
    std::vector<rf_exchange> forward, backward_input, backward_weight;
    std::vector<rf_block_sizes> sizes;
    // Names of values that should be equal on all ranks, bit by bit, and are not. Outputs and
    // gradients that are not split (without sequence parallelism), losses, gradients of copies.
    std::vector<std::string> unequal;
};

// Fails the test when a call fails; not when tensor_sizes() refuses: see status and fault.
TensorSeen run_tensor_ranks(const TensorCase &c);

// The parts of a dimension of `extent` that a rank has by the rules of struct rf_split: first and
// count of each, in order.
struct TensorRange {
    int64_t first, count;
};
std::vector<TensorRange> tensor_ranges(const rf_split &split, int64_t extent, int ranks, int rank);

// Numbers for parameters and inputs: normal, of this size, the same for the same site.
std::vector<float> tensor_numbers(int64_t count, float size, uint64_t site);
// For every parameter of a block, norms around 1; large enough that mistakes show.
std::vector<std::vector<float>> tensor_params(const rf_block &block);

// The largest difference of two tensors over the largest absolute value of the first; infinite if
// their sizes differ or a number is NaN.
double tensor_difference(const std::vector<float> &a, const std::vector<float> &b);
// The worst of output, din, losses and gradients; `where` names it.
double tensor_difference(const rf_block &block, const TensorSeen &a, const TensorSeen &b,
                         std::string *where);

#endif
