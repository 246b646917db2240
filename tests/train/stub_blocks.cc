// SPDX-License-Identifier: MIT
//
// See stub_blocks.h.
#include "stub_blocks.h"

namespace
{

int never_forward(rf_ctx *, void *, rf_tensor, rf_tensor)
{
    return RF_ENOTSUP;
}
int never_backward_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
{
    return RF_ENOTSUP;
}
int never_backward_weight(rf_ctx *, void *, rf_tensor, rf_tensor)
{
    return RF_ENOTSUP;
}
int never_invert(rf_ctx *, void *, rf_tensor, rf_tensor)
{
    return RF_ENOTSUP;
}
int some_sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    out->saved = (uint64_t)rows * 12;
    out->saved_for_weight = (uint64_t)rows * 8;
    out->scratch = 1000;
    out->out = rf_shape2(rows, 10);
    return 0;
}
// Like a layer of a transformer: two pairs of products, each with a sum at its end; or a gather
// before and a scatter after, and two gathers for the weights.
int shared_sizes(const void *, const rf_tensor_part *part, int64_t rows, int64_t,
                 rf_block_sizes *out)
{
    const bool s = part->sequence;
    const rf_exchange sum = {RF_EXCHANGE_SUM, rf_shape2(rows, 10), RF_F32};
    const rf_exchange gather = {RF_EXCHANGE_GATHER, rf_shape2(rows, 10), RF_BF16};
    const rf_exchange scatter = {RF_EXCHANGE_SCATTER, rf_shape2(rows, 10), RF_F32};
    out->saved = (uint64_t)rows * 12 / (uint64_t)part->ranks;
    out->saved_for_weight = (uint64_t)rows * 8;
    out->scratch = 1000;
    out->out = rf_shape2(s ? rows / part->ranks : rows, 10);
    for (rf_exchange *call : {out->forward, out->backward_input})
        for (int k = 0; k < (s ? 4 : 2); k++)
            call[k] = !s ? sum : k % 2 ? scatter : gather;
    for (int k = 0; k < (s ? 4 : 2); k++) // the other branch first
        out->invert[k] = out->forward[k];
    for (int k = 0; s && k < 2; k++)
        out->backward_weight[k] = gather;
    return 0;
}
// Like a layer of a transformer: keys and values gathered in both directions, and their gradients
// scattered.
int context_sizes(const void *, const rf_context_part *part, int64_t rows, int64_t seq,
                  rf_block_sizes *out)
{
    const rf_shape all = rf_shape2(part->ranks * rows, 6);
    some_sizes(nullptr, rows, seq, out);
    out->forward[0] = out->invert[0] = out->backward_input[0] = {RF_EXCHANGE_GATHER, all, RF_BF16};
    out->backward_input[1] = {RF_EXCHANGE_SCATTER, all, RF_F32};
    return 0;
}
const rf_block_ops context_ops = {
    never_forward, never_backward_input, never_backward_weight, some_sizes, nullptr, context_sizes};
const rf_block_ops shared_ops = {never_forward, never_backward_input, never_backward_weight,
                                 some_sizes, shared_sizes};
const rf_block_ops ops = {never_forward, never_backward_input, never_backward_weight, some_sizes};

} // namespace

StubBlocks &StubBlocks::add(const std::string &name, const std::vector<int64_t> &counts)
{
    names_.push_back(name);
    rf_block block = {};
    block.name = names_.back().c_str();
    block.ops = &ops;
    params_.emplace_back();
    for (size_t i = 0; i < counts.size(); i++) {
        names_.push_back(name + "." + std::to_string(i));
        rf_param_desc desc = {};
        desc.name = names_.back().c_str();
        desc.shape = rf_shape1(counts[i]);
        desc.dtype = RF_F32;
        params_.back().push_back(desc);
    }
    block.params = params_.back().data();
    block.param_count = (int)counts.size();
    blocks_.push_back(block);
    return *this;
}

StubBlocks &StubBlocks::tie(int index, const std::string &owner)
{
    names_.push_back(owner);
    params_.back()[(size_t)index].tied_to = names_.back().c_str();
    return *this;
}

StubBlocks &StubBlocks::flag(int index, uint32_t flags)
{
    params_.back()[(size_t)index].flags = flags;
    return *this;
}

StubBlocks &StubBlocks::type(int index, rf_dtype dtype)
{
    params_.back()[(size_t)index].dtype = dtype;
    return *this;
}

StubBlocks &StubBlocks::start(int index, float std, float value)
{
    params_.back()[(size_t)index].init_std = std;
    params_.back()[(size_t)index].init_value = value;
    return *this;
}

StubBlocks &StubBlocks::rounds(const char *text)
{
    blocks_.back().rounding = text;
    return *this;
}

StubBlocks &StubBlocks::scales_loss()
{
    blocks_.back().scales_loss = true;
    return *this;
}

StubBlocks &StubBlocks::in_context()
{
    blocks_.back().ops = &context_ops;
    return *this;
}

StubBlocks &StubBlocks::shared()
{
    blocks_.back().ops = &shared_ops;
    for (size_t i = 0; i + 1 < params_.back().size(); i++)
        params_.back()[i].split.kind = RF_SPLIT_ROWS;
    return *this;
}

StubBlocks &StubBlocks::reversible()
{
    reversible_.push_back(*blocks_.back().ops);
    reversible_.back().invert = never_invert;
    blocks_.back().ops = &reversible_.back();
    return *this;
}
