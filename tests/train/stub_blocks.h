// SPDX-License-Identifier: MIT
//
// Blocks that compute nothing: for tests of plans, which never run them.
#ifndef RF_TESTS_TRAIN_STUB_BLOCKS_H
#define RF_TESTS_TRAIN_STUB_BLOCKS_H

#include <ringforge/parallel.h>

#include <deque>
#include <string>
#include <vector>

class StubBlocks
{
  public:
    // Adds a block with parameters of these sizes in elements.
    StubBlocks &add(const std::string &name, const std::vector<int64_t> &counts);
    // Ties parameter `index` of the last block to `owner`.
    StubBlocks &tie(int index, const std::string &owner);
    StubBlocks &flag(int index, uint32_t flags);
    // The type in which the last block sees its parameter.
    StubBlocks &type(int index, rf_dtype dtype);
    // The initial value of a parameter of the last block.
    StubBlocks &start(int index, float std, float value);
    // The last block multiplies its input's gradient by the loss scale.
    StubBlocks &scales_loss();
    // rf_block.rounding of the last block.
    StubBlocks &rounds(const char *text);
    // Tensor ranks share the last block, like a layer of a transformer: its parameters except the
    // last are cut by rows.
    StubBlocks &shared();
    // Context ranks share the sequences of the last block, like a layer of a transformer.
    StubBlocks &in_context();
    // The backward pass may invert the last block.
    StubBlocks &reversible();
    const rf_block *blocks() const
    {
        return blocks_.data();
    }
    int count() const
    {
        return (int)blocks_.size();
    }

  private:
    std::deque<std::string> names_;
    std::deque<std::vector<rf_param_desc>> params_;
    std::vector<rf_block> blocks_;
    std::deque<rf_block_ops> reversible_;
};

#endif
