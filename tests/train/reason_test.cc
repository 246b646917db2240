// SPDX-License-Identifier: MIT
//
// Why an instruction sends: the declaration of a block, a mesh or a policy that requires its
// transfer. No device is needed.
#include <gtest/gtest.h>
#include <ringforge/parallel.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gpt2.h"

namespace
{

struct Model {
    gpt2 *model = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    Model()
    {
        gpt2_config config = {};
        config.layers = 4;
        config.channels = 64;
        config.heads = 4;
        config.seq = 32;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        blocks = gpt2_blocks(model, &count);
    }
    ~Model()
    {
        gpt2_destroy(model);
    }
};

struct Case {
    rf_mesh mesh;
    int zero;
    bool sequence, rank0;
    std::vector<std::string> reasons; // parts of sentences
};

// The reasons of a rank's list; each transfer has one, and other instructions have none.
std::set<std::string> reasons_of(const rf_plan *plan)
{
    std::set<std::string> all;
    int count = 0;
    const rf_instruction *list = rf_plan_instructions(plan, &count);
    for (int i = 0; i < count; i++) {
        char text[400], name[96];
        const std::string reason = rf_instruction_reason(plan, &list[i], text, sizeof(text));
        rf_instruction_text(plan, &list[i], name, sizeof(name));
        EXPECT_EQ(reason.empty(), rf_plan_transfer(plan, &list[i]) == nullptr) << name;
        EXPECT_NE(reason, rf_verb_name(list[i].verb)); // only its action
        EXPECT_EQ(reason.find('?'), std::string::npos) << reason;
        if (!reason.empty())
            all.insert(reason);
    }
    return all;
}

} // namespace

TEST(Reasons, OfEachTransferNameTheSplitThePhaseAndTheAxisThatItFollowsFrom)
{
    const Model model;
    const std::vector<Case> cases = {
        {{2, 1, 1, 0}, 0, false, false, {"dp=2: ranks have micro-batches of their own, with gra"}},
        {{2, 1, 1, 0}, 0, false, true, {"update on rank 0: the others get what it has updated"}},
        {{2, 1, 1, 0},
         1,
         false,
         false,
         {"zero=1: ranks have micro-batches of their own, and each keeps a shard of the sum, of ",
          "zero=1: each rank has updated its shard of ",
          "the norm of all gradients: those that are counted are spread over the shards"}},
        {{4, 1, 1, 2},
         3,
         false,
         false,
         {"zero=3: ranks have shards, and blocks need all, of ",
          "shard=2 of dp=4: ranks with the same shard add their sums of "}},
        {{1, 2, 1, 0},
         0,
         false,
         false,
         {"declares a sum after phase 0 of forward; it splits blocks.0.attention.qkv.weight by "
          "rows, "
          "blocks.0.attention.proj.weight by columns, blocks.0.mlp.fc.weight by rows, "
          "blocks.0.mlp.proj.weight by columns",
          "declares a maximum after phase 0 of forward; it splits ",
          "the norm of all gradients: those that are counted are spread over the tensor ranks",
          "losses and token counts are on the ranks"}},
        {{1, 2, 1, 0},
         0,
         true,
         false,
         {"declares a gather after phase 0 of forward, as sequence parallelism cuts rows",
          "declares a scattered sum after phase ",
          "sequence parallelism: tensor ranks have gradients of their own rows, of "}},
        {{1, 1, 2, 0},
         0,
         false,
         false,
         {"pp=2: the output of block ", "pp=2: the gradient of the output of block ",
          "tied parameters are used on several stages: ",
          "the norm of all gradients: those that are counted are spread over the stages"}},
    };
    for (const Case &c : cases) {
        rf_policy policy = {};
        policy.batch = policy.micro_batches = 4;
        policy.seq = 32;
        policy.zero = c.zero;
        policy.clip = 1;
        policy.sequence_parallel = c.sequence;
        policy.update_on_rank_0 = c.rank0;
        policy.optimizer.kind = RF_ADAMW;
        std::set<std::string> all;
        for (int rank = 0; rank < c.mesh.dp * c.mesh.tp * c.mesh.pp; rank++) {
            rf_plan *plan = nullptr;
            ASSERT_EQ(rf_plan_build({model.blocks, model.count}, &c.mesh, &policy, rank, &plan), 0)
                << rf_last_error()->message;
            const std::set<std::string> own = reasons_of(plan);
            all.insert(own.begin(), own.end());
            rf_plan_destroy(plan);
        }
        for (const std::string &part : c.reasons) {
            bool found = false;
            std::string text;
            for (const std::string &reason : all) {
                found = found || reason.find(part) != std::string::npos;
                text += reason + "\n";
            }
            EXPECT_TRUE(found) << part << "\nis none of:\n" << text;
        }
    }
}

TEST(Reasons, FitIntoAnyText)
{
    const Model model;
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 2;
    policy.seq = 32;
    const rf_mesh mesh = {1, 2, 1, 0};
    rf_plan *plan = nullptr;
    ASSERT_EQ(rf_plan_build({model.blocks, model.count}, &mesh, &policy, 0, &plan), 0);
    int count = 0;
    const rf_instruction *list = rf_plan_instructions(plan, &count);
    for (size_t bytes : {1, 2, 20})
        for (int i = 0; i < count; i++) {
            std::vector<char> text(bytes + 1, 'x');
            EXPECT_LT(strlen(rf_instruction_reason(plan, &list[i], text.data(), bytes)), bytes);
            EXPECT_EQ(text[bytes], 'x');
        }
    rf_plan_destroy(plan);
}
