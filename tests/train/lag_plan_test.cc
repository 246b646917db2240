// SPDX-License-Identifier: MIT
//
// Plans of pipelines without a flush (2bw), without a device: lists of several steps that the
// checker accepts, wrong versions and steps that it refuses by name, idle time, and refused
// options.
#include <functional>
#include <set>

#include "simulate_lists.h"

namespace
{

struct Lagging {
    Lagging(int pp, int dp, int micro_batches, rf_order order, bool tied = false, int count = 0)
    {
        for (int i = 0; i < (count ? count : pp + 1); i++)
            blocks.add("b" + std::to_string(i), {8, 5});
        if (tied)
            blocks.tie(0, "b0.0");
        rf_policy policy = {};
        policy.batch = policy.micro_batches = micro_batches;
        policy.seq = 4;
        policy.order = order;
        policy.pipeline = RF_PIPELINE_2BW;
        const rf_mesh mesh = {dp, 1, pp};
        for (int rank = 0; rank < pp * dp; rank++) {
            rf_plan *plan = nullptr;
            const int rc =
                rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, rank, &plan);
            if (rc < 0)
                refused = rf_last_error()->message;
            EXPECT_EQ(rc < 0, !refused.empty()) << "not all ranks";
            if (rc < 0)
                continue;
            plans.emplace_back(plan, rf_plan_destroy);
            borrowed.push_back(plan);
        }
    }
    int check() const
    {
        return rf_plan_check(borrowed.data(), (int)borrowed.size());
    }

    std::string refused;
    StubBlocks blocks;
    std::vector<Plan> plans;
    std::vector<const rf_plan *> borrowed;
};

// A call of a block with this verb in a list of a rank.
rf_instruction *find(const Lagging &job, int rank, rf_list_id id, rf_verb verb, int behind)
{
    rf_list &list = job.plans[(size_t)rank]->lists[id];
    for (int k = 0; k < list.count; k++)
        if (list.instructions[k].verb == verb && list.instructions[k].behind == behind)
            return &list.instructions[k];
    ADD_FAILURE() << "none";
    return nullptr;
}

// The operand of one of these kinds that this instruction reads.
int *operand(const Lagging &job, int rank, const rf_instruction *i, std::set<rf_value_kind> kinds)
{
    rf_plan *plan = job.plans[(size_t)rank].get();
    for (int k = 0; k < i->ins; k++)
        if (kinds.count(plan->values[plan->operands[i->first_operand + k]].kind))
            return &plan->operands[i->first_operand + k];
    ADD_FAILURE() << "none";
    return nullptr;
}

int value(const Lagging &job, int rank, rf_value like)
{
    const rf_plan *plan = job.borrowed[(size_t)rank];
    for (int v = 0; v < plan->value_count; v++) {
        const rf_value &o = plan->values[v];
        if (o.kind == like.kind && o.block == like.block && o.micro_batch == like.micro_batch &&
            o.slot == like.slot && o.piece == like.piece)
            return v;
    }
    ADD_FAILURE() << "no such value";
    return -1;
}

// Replaces a version of the weights by the other one.
void see_other_version(const Lagging &job, int rank, const rf_instruction *i)
{
    int *at = operand(job, rank, i, {RF_VALUE_PARAM, RF_VALUE_STATE});
    rf_value v = job.borrowed[(size_t)rank]->values[*at];
    const bool newest = v.kind == RF_VALUE_PARAM;
    v.kind = newest ? RF_VALUE_STATE : RF_VALUE_PARAM;
    v.slot = newest ? (int)RF_STATE_BEFORE : -1;
    *at = value(job, rank, v);
}

void expect_refused(const Lagging &job, const std::string &why)
{
    EXPECT_LT(job.check(), 0) << why;
    EXPECT_NE(std::string(rf_last_error()->message).find(why), std::string::npos)
        << rf_last_error()->message;
}

} // namespace

TEST(LagPlan, TheCheckerAcceptsEveryNumberOfRanksAndMicroBatches)
{
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int pp : {2, 3, 4})
            for (int dp : {1, 2, 3})
                for (int m : {pp * dp, pp * dp + 1, 3 * pp * dp + 2})
                    for (bool tied : {false, true}) {
                        const Lagging job(pp, dp, m, order, tied);
                        if (!job.refused.empty()) { // tree parts have different sizes
                            EXPECT_TRUE(order == RF_ORDER_TREE && dp > 1) << job.refused;
                            EXPECT_NE(job.refused.find("as many as it has stages"),
                                      std::string::npos);
                            continue;
                        }
                        EXPECT_EQ(job.check(), 0)
                            << pp << " " << dp << " " << m << ": " << rf_last_error()->message;
                    }
}

TEST(LagPlan, ABackwardPassWithAnotherVersionOfTheWeightsThanItsForwardPassIsRefused)
{
    for (const auto id : {RF_LIST_STEP, RF_LIST_DRAIN})
        for (const auto verb : {RF_VERB_BACKWARD_INPUT, RF_VERB_BACKWARD_WEIGHT}) {
            const Lagging job(3, 1, 5, RF_ORDER_RING);
            see_other_version(job, 0, find(job, 0, id, verb, 1));
            expect_refused(job, "but its forward pass saw version");
        }
    const Lagging job(3, 1, 5, RF_ORDER_RING);
    see_other_version(job, 2, find(job, 2, RF_LIST_STEP, RF_VERB_BACKWARD_INPUT, 0));
    expect_refused(job, "but its forward pass saw version");
}

TEST(LagPlan, EveryCallThatSeesTheOtherVersionOrIsOfTheOtherStepIsRefused)
{
    const Lagging job(3, 1, 4, RF_ORDER_TREE);
    int tried = 0;
    for (int rank = 0; rank < 3; rank++)
        for (const auto id : {RF_LIST_FILL, RF_LIST_STEP, RF_LIST_DRAIN}) {
            rf_list &list = job.plans[(size_t)rank]->lists[id];
            for (int k = 0; k < list.count; k++) {
                rf_instruction *i = &list.instructions[k];
                if (rf_verb_calls_block(i->verb)) {
                    see_other_version(job, rank, i);
                    expect_refused(job, "of the weights");
                    see_other_version(job, rank, i);
                    tried++;
                }
                if (i->micro_batch >= 0 || (i->verb == RF_VERB_LOSS && i->ins > 0)) {
                    i->behind = !i->behind;
                    EXPECT_LT(job.check(), 0) << rf_verb_name(i->verb);
                    i->behind = !i->behind;
                    tried++;
                }
            }
        }
    EXPECT_EQ(job.check(), 0) << rf_last_error()->message;
    EXPECT_GT(tried, 100);
}

TEST(LagPlan, AForwardPassThatIsNotOneUpdateBehindIsRefused)
{
    const Lagging fills(2, 1, 4, RF_ORDER_RING), goes_on(2, 1, 4, RF_ORDER_TREE);
    see_other_version(fills, 1, find(fills, 1, RF_LIST_FILL, RF_VERB_FORWARD, 0));
    expect_refused(fills, "one update behind the newest");
    see_other_version(goes_on, 0, find(goes_on, 0, RF_LIST_STEP, RF_VERB_FORWARD, 0));
    expect_refused(goes_on, "one update behind the newest");
}

TEST(LagPlan, InputsOfAnotherStepAndGradientsThatAreNotHeldAreRefused)
{
    const Lagging inputs(2, 1, 4, RF_ORDER_RING);
    int *at = operand(inputs, 0, find(inputs, 0, RF_LIST_STEP, RF_VERB_BACKWARD_WEIGHT, 1),
                      {RF_VALUE_TOKENS, RF_VALUE_TARGETS});
    rf_value v = inputs.borrowed[0]->values[*at];
    v.slot = -1;
    *at = value(inputs, 0, v);
    expect_refused(inputs, "of another step");

    const Lagging losses(2, 1, 4, RF_ORDER_RING);
    at = operand(losses, 1, find(losses, 1, RF_LIST_STEP, RF_VERB_LOSS, 1), {RF_VALUE_LOSSES});
    v = losses.borrowed[1]->values[*at];
    v.slot = -1;
    *at = value(losses, 1, v);
    EXPECT_LT(losses.check(), 0);

    const Lagging gradients(2, 1, 4, RF_ORDER_RING);
    rf_instruction *hold = find(gradients, 1, RF_LIST_DRAIN, RF_VERB_HOLD, 0);
    hold->ins = hold->outs = 0;
    EXPECT_LT(gradients.check(), 0);
}

// Over many steps: a step's time is the ranks' computation.
TEST(LagPlan, ARankIsNeverIdleBetweenSteps)
{
    for (int pp : {2, 4, 8})
        for (int m : {pp, pp + 1, 4 * pp}) {
            std::vector<double> verb_s(RF_VERB_COUNT, 0);
            verb_s[RF_VERB_FORWARD] = verb_s[RF_VERB_BACKWARD_INPUT] = 1;
            verb_s[RF_VERB_BACKWARD_WEIGHT] = 1;
            rf_sim_opts opts = free_of_cost();
            opts.verb_s = verb_s.data();
            const Lagging job(pp, 1, m, RF_ORDER_RING, false, pp);
            const Sim sim = run(job.borrowed, opts);
            for (int rank = 0; rank < pp; rank++) {
                const rf_sim_result result = result_of(sim, rank);
                EXPECT_NEAR(result.step_s, 3 * m, 1e-9) << pp << " " << m;
                EXPECT_NEAR(result.idle, 0, 1e-9) << pp << " " << m << " rank " << rank;
                EXPECT_EQ(rf_plan_bubble(job.borrowed[(size_t)rank]), 0);
            }
        }
}

TEST(LagPlan, WhatDoesNotGoWithItIsRefusedByName)
{
    StubBlocks blocks;
    for (int i = 0; i < 2; i++)
        blocks.add("b" + std::to_string(i), {8}).scales_loss();
    const struct {
        const char *name;
        void (*ask)(rf_policy *, rf_mesh *);
    } rows[] = {
        {"sharding (zero)", [](rf_policy *p, rf_mesh *) { p->zero = 1; }},
        {"tensor ranks", [](rf_policy *, rf_mesh *m) { m->tp = 2; }},
        {"blocks in parts", [](rf_policy *p, rf_mesh *) { p->tensor_parts = 2; }},
        {"offload", [](rf_policy *p, rf_mesh *) { p->offload = RF_OFFLOAD_ACTIVATIONS; }},
        {"recomputation", [](rf_policy *p, rf_mesh *) { p->recompute = 1; }},
        {"a loss scale", [](rf_policy *p, rf_mesh *) { p->loss_scale = 8; }},
        {"f32 masters", [](rf_policy *p, rf_mesh *) { p->no_masters = true; }},
        {"pp=1", [](rf_policy *, rf_mesh *m) { m->pp = 1; }},
        {"as many as it has stages", [](rf_policy *p, rf_mesh *) { p->micro_batches = 1; }}};
    for (const auto &row : rows) {
        rf_policy policy = {};
        rf_mesh mesh = {1, 1, 2};
        rf_plan *plan = nullptr;
        policy.batch = policy.micro_batches = 4;
        policy.seq = 4;
        policy.order = RF_ORDER_TREE;
        policy.pipeline = RF_PIPELINE_2BW;
        row.ask(&policy, &mesh);
        EXPECT_LT(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, 0, &plan), 0)
            << row.name;
        const std::string says = rf_last_error()->message;
        EXPECT_NE(says.find("2bw"), std::string::npos) << says;
        EXPECT_NE(says.find(row.name), std::string::npos) << says;
    }
}
