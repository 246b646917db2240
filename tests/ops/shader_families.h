/* SPDX-License-Identifier: MIT
 *
 * The shaders that a test of ranges_test.cc launches, by the prefixes of their names. Each shader
 * has one family.
 */
#ifndef RF_TESTS_OPS_SHADER_FAMILIES_H
#define RF_TESTS_OPS_SHADER_FAMILIES_H

#include <ostream>
#include <string>
#include <vector>

struct Family {
    const char *name;
    std::vector<std::string> shaders; /* prefixes */
};
inline std::ostream &operator<<(std::ostream &out, const Family &family)
{
    return out << family.name;
}
const Family families[] = {
    {"Flat",
     {"add_bias_", "elementwise_", "activation_", "glu_", "dropout_", "fill_", "cast_", "fixed"}},
    {"Rows", {"layernorm", "softmax_", "round_operand"}},
    {"Vocabulary", {"embedding", "cross_entropy"}},
    {"Attention", {"attention", "rotary", "copy_heads"}},
    {"Decode", {"gemv", "cache_append", "attend_cache"}},
    {"Matmul", {"matmul"}},
    {"Reductions", {"reduce", "squares"}},
    {"Optimizers", {"optimizer", "step_begin", "loss_scale"}},
};

#endif
