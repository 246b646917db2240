// SPDX-License-Identifier: MIT
//
// The checker accepts the plans of every rank count, order and policy, and refuses nearly every
// change of one. Accepted changes do not change a result; a second interpreter of lists shows that:
// it does not know the meaning of verbs, runs lanes at random and mixes everything read into
// everything written.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "plan_mutants.h"

extern "C" {
#include "base/base.h"
#include "parallel/passes/passes.h"
}

namespace
{

const Setting settings[] = {
    of("one", "micro_batches=1"),
    of("accumulates", "micro_batches=3 scaled tied"),
    of("tree_of_one", "micro_batches=7 tree tied copies"),
    of("ring", "dp=2 micro_batches=4 tied"),
    of("tree", "dp=2 micro_batches=4 tree scaled tied"),
    of("uneven", "dp=3 micro_batches=7 tree tied copies"),
    of("uneven_ring", "dp=3 micro_batches=8 scaled copies"),
    of("four", "dp=4 micro_batches=6 tree"),
    of("rank_0", "dp=2 micro_batches=4 rank0 scaled tied copies"),
    of("rank_0_of_3", "dp=3 micro_batches=4 rank0"),
    of("zero_1", "dp=2 micro_batches=4 tree scaled tied copies zero=1"),
    of("zero_1_of_3", "dp=3 micro_batches=4 tied zero=1"),
    of("zero_1_copies", "dp=4 micro_batches=4 tied copies zero=1 shard=2"),
    of("zero_2", "dp=2 micro_batches=3 tied zero=2"),
    of("zero_2_tree", "dp=2 micro_batches=4 tree scaled tied copies zero=2"),
    of("zero_3", "dp=2 micro_batches=4 tied copies zero=3"),
    of("zero_3_of_3", "dp=3 micro_batches=4 tree tied zero=3 recompute=1"),
    of("zero_3_copies", "dp=4 micro_batches=5 zero=3 shard=2"),
    of("host_step", "dp=2 micro_batches=4 tree scaled tied copies zero=1 offload=1"),
    of("host_params", "micro_batches=2 tied recompute=1 offload=3"),
    of("host_all", "dp=3 micro_batches=4 copies zero=3 offload=7"),
    of("disk", "micro_batches=2 tied offload=1 disk"),
    of("disk_zero_1", "dp=2 micro_batches=4 tree scaled tied copies zero=1 offload=1 disk"),
    of("disk_all", "dp=3 micro_batches=4 copies zero=3 offload=15 more_blocks=2 disk"),
    of("activations", "micro_batches=2 tied offload=8 more_blocks=2"),
    of("activations_tree",
       "dp=2 micro_batches=3 tree scaled tied copies zero=1 recompute=2 offload=9 more_blocks=3"),
    of("activations_all",
       "dp=2 micro_batches=3 copies zero=3 recompute=1 offload=15 bf16 more_blocks=2"),
    of("recomputes", "dp=2 micro_batches=4 tree tied recompute=2"),
    of("narrow", "dp=2 micro_batches=4 scaled tied copies bf16"),
    of("narrow_rank_0", "dp=3 micro_batches=4 rank0 tied f16"),
    of("narrow_shards", "dp=3 micro_batches=4 tied copies zero=1 bf16"),
    of("narrow_rounds", "dp=4 micro_batches=5 copies zero=2 shard=2 bf16"),
    of("gpipe", "micro_batches=3 scaled tied copies pp=2 gpipe"),
    of("one_f_one_b", "dp=2 micro_batches=4 tree tied zero=1 pp=2"),
    of("interleaved", "micro_batches=4 tree tied pp=2 interleaved"),
    of("zbh1", "dp=2 micro_batches=4 scaled copies zero=1 bf16 pp=2 zbh1"),
    of("zbv", "micro_batches=3 tied pp=2 zbv"),
    of("zbh1_tree", "dp=2 micro_batches=5 tree tied copies zero=1 pp=2 zbh1"),
    of("zbv_tree", "micro_batches=5 tree scaled tied pp=2 zbv"),
    of("zero_2_pipeline", "dp=2 micro_batches=3 tied copies zero=2 pp=2"),
    of("zero_2_zbh1_tree", "dp=2 micro_batches=3 tree tied zero=2 pp=2 zbh1"),
    of("zero_2_zbv", "dp=2 micro_batches=4 scaled tied copies zero=2 recompute=1 bf16 pp=2 zbv"),
    of("zero_3_interleaved", "dp=2 micro_batches=3 tree tied zero=3 pp=2 interleaved"),
    of("tensor", "micro_batches=2 tp=2"),
    of("tensor_of_3", "micro_batches=1 recompute=1 tp=3"),
    of("tensor_data", "dp=2 micro_batches=3 tree scaled copies tp=2"),
    of("sequence", "micro_batches=2 tied tp=2 sequence"),
    of("sequence_tree", "dp=2 micro_batches=4 tree scaled tied copies tp=2 sequence"),
    of("sequence_zero_1", "dp=2 micro_batches=3 tied copies zero=1 recompute=2 tp=2 sequence"),
    of("sequence_zero_2", "dp=2 micro_batches=3 tree tied zero=2 tp=2 sequence"),
    of("sequence_zero_3", "dp=2 micro_batches=2 scaled tied copies zero=3 tp=2 sequence"),
    of("tensor_pipeline", "micro_batches=3 pp=2 tp=2"),
    of("sequence_pipeline", "dp=2 micro_batches=2 tied copies zero=1 pp=2 tp=2 sequence"),
    of("sequence_zbv", "micro_batches=2 tied pp=2 zbv tp=2 sequence"),
    of("tensor_host", "dp=2 micro_batches=2 copies zero=1 offload=1 tp=2"),
    of("pipeline_host_step", "dp=2 micro_batches=4 tree scaled tied copies zero=1 offload=1 pp=2"),
    of("pipeline_host_all", "dp=2 micro_batches=3 tied copies zero=3 offload=15 pp=2 interleaved"),
    of("pipeline_activations", "micro_batches=4 tree tied offload=8 pp=2"),
    of("pipeline_activations_zbh1", "micro_batches=4 tied recompute=1 offload=10 pp=2 zbh1"),
    of("invert", "dp=2 micro_batches=3 tree tied copies zero=3 invert"),
    of("invert_sequence", "micro_batches=2 tied copies tp=2 sequence invert"),
    of("invert_zbh1", "dp=2 micro_batches=4 tied zero=1 pp=2 zbh1 invert"),
    of("no_masters", "dp=2 micro_batches=4 tree scaled tied copies zero=2 offload=1 no_masters"),
    of("eager", "micro_batches=1 tree tied copies eager"),
    of("eager_ring", "dp=2 micro_batches=2 tied recompute=1 bf16 eager"),
    of("eager_tree", "dp=3 micro_batches=3 tree tied frozen eager"),
    of("eager_zero_1", "dp=3 micro_batches=3 tree tied copies zero=1 eager"),
    of("eager_zero_3", "dp=4 micro_batches=4 tied zero=3 shard=2 bf16 offload=8 eager"),
    of("eager_sequence", "dp=2 micro_batches=2 tree tied copies zero=2 tp=2 sequence eager"),
    of("eager_host", "dp=2 micro_batches=2 tied copies zero=2 offload=2 no_masters eager"),
};

// The same for ranks that share sequences.
const Setting context_settings[] = {
    of("context", "micro_batches=2 tied cp=2"),
    of("context_tree", "dp=2 micro_batches=3 tree scaled tied copies zero=1 cp=2"),
    of("context_zero_3", "dp=2 micro_batches=2 copies zero=3 recompute=1 cp=2"),
    of("context_pipeline", "micro_batches=2 tied pp=2 cp=2"),
    of("context_invert", "micro_batches=2 zero=0 pp=2 cp=2 invert"),
};

class OfSetting : public testing::TestWithParam<Setting>
{
};
std::string name_of(const testing::TestParamInfo<Setting> &info)
{
    return info.param.name;
}

} // namespace

TEST(PlanCheck, EveryPlanUpToEightRanksAndTwelveMicroBatchesIsAccepted)
{
    int jobs = 0;
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int dp = 1; dp <= 8; dp++)
            for (int m = dp; m <= 12; m++)
                for (int variant = 0; variant < 16; variant++) {
                    Setting s = {.dp = dp, .micro_batches = m, .order = order};
                    s.rank0 = variant & 1;
                    s.scaled = variant & 2;
                    s.tied = variant & 4;
                    s.copies = !s.tied;
                    s.zero = variant < 8 ? 0 : 2 + variant % 2;
                    s.rank0 &= !s.zero;
                    s.recompute = variant % 3;
                    s.offload = s.rank0 ? 0 : (dp + m + variant) % (s.zero >= 2 ? 8 : 4);
                    s.reduce = order == RF_ORDER_TREE || m % 3 ? RF_F32 : RF_BF16;
                    s.no_masters = variant % 5 == 0;
                    s.offload |= (dp + m / 2 + variant) % 3 ? 0 : RF_OFFLOAD_ACTIVATIONS;
                    s.more_blocks = s.offload & RF_OFFLOAD_ACTIVATIONS ? m % 3 : 0;
                    s.frozen = m % 2 == 0;
                    s.shard = s.zero && dp % 2 == 0 && order == RF_ORDER_RING ? dp / 2 : 0;
                    if (s.rank0 && order == RF_ORDER_TREE)
                        continue;
                    s.eager = m == dp && !s.scaled && !s.rank0;
                    s.offload &= s.eager ? ~(RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_GRADS) : -1;
                    Job job(s);
                    ASSERT_EQ(job.check(), 0)
                        << rf_last_error()->message << " with dp " << dp << " m " << m;
                    jobs++;
                }
    EXPECT_GT(jobs, 700);
}

TEST(PlanCheck, EveryPipelineIsAccepted)
{
    int jobs = 0;
    for (rf_pipeline_kind kind : {RF_PIPELINE_NAIVE, RF_PIPELINE_GPIPE, RF_PIPELINE_1F1B,
                                  RF_PIPELINE_INTERLEAVED, RF_PIPELINE_ZBH1, RF_PIPELINE_ZBV})
        for (int pp = 2; pp <= 4; pp++)
            for (int dp = 1; dp <= 3; dp++)
                for (int m = dp; m <= 3 * dp + 4; m++)
                    for (int variant = m % 4; variant < 8; variant += 4) {
                        Setting s = {.dp = dp, .micro_batches = m};
                        s.scaled = variant % 2 == 0;
                        s.tied = variant & 2;
                        s.copies = variant == 3;
                        s.zero = (variant + m + dp) % 4;
                        s.order = variant >= 4 ? RF_ORDER_TREE : RF_ORDER_RING;
                        s.frozen = m % 2 == 0;
                        s.offload = (7 * m + 3 * variant + pp + dp) % (s.zero >= 2 ? 16 : 12);
                        s.offload &= s.zero >= 2 ? 15 : s.zero && dp > 1 ? 9 : 11;
                        s.more_blocks = m % 3;
                        s.shard = s.zero && dp == 2 && s.order == RF_ORDER_RING ? 2 - m % 2 : 0;
                        s.reduce = s.order == RF_ORDER_TREE || m % 3 ? RF_F32 : RF_BF16;
                        s.pp = pp;
                        s.recompute = (variant + m) % 3;
                        s.pipeline = kind;
                        Job job(s);
                        ASSERT_EQ(job.check(), 0)
                            << rf_last_error()->message << " with pipeline " << kind << " pp " << pp
                            << " dp " << dp << " m " << m << " variant " << variant;
                        jobs++;
                    }
    EXPECT_GT(jobs, 500);
}

TEST(PlanCheck, EveryMeshWithTensorRanksIsAccepted)
{
    int jobs = 0;
    for (int tp : {2, 3, 4})
        for (int pp = 1; pp <= 2; pp++)
            for (int dp = 1; dp <= 3; dp++)
                for (int variant = 0; variant < 16; variant++) {
                    Setting s = {.dp = dp, .micro_batches = dp + variant % 3};
                    s.scaled = variant % 2 == 0;
                    s.sequence = (variant & 2) != 0 && tp != 3;
                    s.tied = s.sequence && variant % 3;
                    s.copies = variant % 5 == 0;
                    s.zero = variant % 4;
                    s.order = variant & 8 ? RF_ORDER_TREE : RF_ORDER_RING;
                    s.recompute = variant % 3;
                    s.frozen = variant % 7 == 0;
                    s.shard =
                        s.zero && dp == 2 && s.order == RF_ORDER_RING ? 2 - variant / 4 % 2 : 0;
                    s.offload = pp == 1 && s.zero ? variant / 4 % 4 : 0;
                    s.offload |= (variant + tp + dp) % 3 ? 0 : RF_OFFLOAD_ACTIVATIONS;
                    s.more_blocks = s.offload & RF_OFFLOAD_ACTIVATIONS ? variant % 3 : 0;
                    s.tp = tp;
                    s.pp = pp;
                    if ((s.offload & RF_OFFLOAD_PARAMS) && s.zero == 1 && dp > 1)
                        continue;
                    Job job(s);
                    ASSERT_EQ(job.check(), 0)
                        << rf_last_error()->message << " with tp " << tp << " pp " << pp << " dp "
                        << dp << " variant " << variant;
                    jobs++;
                }
    EXPECT_GT(jobs, 250);
}

TEST(PlanCheck, EveryMeshWithContextRanksIsAccepted)
{
    int jobs = 0;
    for (int cp : {2, 4})
        for (int pp = 1; pp <= 2; pp++)
            for (int dp = 1; dp <= 2; dp++)
                for (int variant = 0; variant < 16; variant++) {
                    Setting s = {.dp = dp, .micro_batches = dp + variant % 3};
                    s.scaled = variant % 2 == 0;
                    s.tied = variant % 3;
                    s.copies = variant % 5 == 0;
                    s.zero = variant % 4;
                    s.order = variant & 8 ? RF_ORDER_TREE : RF_ORDER_RING;
                    s.recompute = variant % 3;
                    s.frozen = variant % 7 == 0;
                    s.cp = cp;
                    s.pp = pp;
                    Job job(s);
                    ASSERT_EQ(job.check(), 0)
                        << rf_last_error()->message << " with cp " << cp << " pp " << pp << " dp "
                        << dp << " variant " << variant;
                    jobs++;
                }
    EXPECT_EQ(jobs, 128);
}

// The checker accepts the plans of all ranks of this mesh.
void expect_accepted(const StubBlocks &blocks, const rf_mesh &mesh, const rf_policy &policy)
{
    std::vector<rf_plan *> plans((size_t)(mesh.dp * mesh.tp * mesh.pp), nullptr);
    for (size_t rank = 0; rank < plans.size(); rank++)
        ASSERT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, (int)rank,
                                &plans[rank]),
                  0)
            << rf_last_error()->message;
    EXPECT_EQ(rf_plan_check(plans.data(), (int)plans.size()), 0) << rf_last_error()->message;
    for (rf_plan *plan : plans)
        rf_plan_destroy(plan);
}

// The gradient of a use that is for the caller is complete, and in no sum.
TEST(PlanCheck, UsesOfTiedParametersMayStayApart)
{
    for (const rf_mesh &mesh : {rf_mesh{1, 1, 1}, {2, 1, 1}, {2, 1, 2}})
        for (int zero = 0; zero <= 3; zero++) {
            Setting s = {.dp = mesh.dp, .micro_batches = 4};
            s.order = RF_ORDER_TREE;
            s.zero = zero;
            s.tied = true;
            s.pp = mesh.pp;
            const StubBlocks blocks = blocks_of(s);
            rf_policy policy = policy_of(s);
            policy.uses_apart = true;
            expect_accepted(blocks, mesh, policy);
        }
}

// Of 129 rows one rank has 65, which with the 64 before exceed a bucket.
TEST(PlanCheck, TensorRanksWithUnequalPartsHaveTheSamePieces)
{
    StubBlocks blocks;
    blocks.add("a", {129, 64}).shared();
    blocks.add("b", {128, 64}).shared();
    rf_policy policy = policy_of({.micro_batches = 2});
    policy.sequence_parallel = true;
    policy.first_bucket_bytes = policy.bucket_bytes = 128 * sizeof(float);
    expect_accepted(blocks, {1, 2, 1}, policy);
}

// The gradient of its output is not read again, because no weight half follows. On a stage of its
// own it has no gradients to merge.
TEST(PlanCheck, AFrozenBlockBetweenTrainedOnesIsAccepted)
{
    for (int pp : {1, 3})
        for (int m : {4, 5})
            for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE}) {
                StubBlocks blocks;
                blocks.add("a", {64});
                blocks.add("b", {64}).flag(0, RF_PARAM_FROZEN);
                blocks.add("c", {64});
                expect_accepted(blocks, {1, 1, pp},
                                policy_of({.micro_batches = m, .order = order}));
            }
}

// Removes an instruction, as if a pass had omitted it.
void forget(const Job &job, int r, rf_verb verb)
{
    rf_plan *plan = job.rank(r);
    rf_list &list = job.list(r);
    for (int at = 0; at < list.count; at++) {
        if (list.instructions[at].verb != verb)
            continue;
        const rf_instruction gone = list.instructions[at];
        const int place = place_of(list, at), lane = (int)gone.lane;
        std::copy(list.instructions + at + 1, list.instructions + list.count,
                  list.instructions + at);
        list.count--;
        shift_waits(plan, list, lane, place, -1);
        count_positions(list);
        // The next one on the lane inherits its waits.
        rf_instruction &next =
            *std::find_if(list.instructions + at, list.instructions + list.count,
                          [&](const rf_instruction &i) { return (int)i.lane == lane; });
        plan->wait_capacity = plan->wait_count + gone.waits + next.waits;
        plan->waits =
            (rf_wait *)rf_realloc(plan->waits, (size_t)plan->wait_capacity * sizeof(rf_wait));
        rf_wait *waits = plan->waits + plan->wait_count;
        std::copy_n(plan->waits + gone.first_wait, gone.waits, waits);
        std::copy_n(plan->waits + next.first_wait, next.waits, waits + gone.waits);
        next.first_wait = plan->wait_count;
        next.waits += gone.waits;
        plan->wait_count += next.waits;
        return;
    }
    FAIL() << "nothing to forget";
}

const Setting &setting(const char *name)
{
    return *std::find_if(std::begin(settings), std::end(settings),
                         [&](const Setting &s) { return std::string(s.name) == name; });
}

// Its parameter a.0 is on the first stage and on the second.
Setting tied_over_stages()
{
    return of("", "micro_batches=4 tied pp=4");
}

void expect_refused(const Job &job, const std::vector<std::string> &words)
{
    ASSERT_EQ(job.check(), RF_EINVAL);
    const std::string message = rf_last_error()->message;
    for (const std::string &word : words)
        EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST(PlanCheck, ATieThatIsForgottenIsRefusedByParameterAndRank)
{
    const Job job(setting("tree")); // each use has a gradient of its own
    forget(job, 1, RF_VERB_TIE);
    expect_refused(job, {"plan of rank 1: ", " (a.0)"});
    const Job stages(tied_over_stages());
    forget(stages, 0, RF_VERB_TIE);
    expect_refused(stages, {"plan of rank 0: ", " (a.0)"});
}

TEST(PlanCheck, AnAllReduceThatIsForgottenIsRefusedByParameterAndRank)
{
    const Job everywhere(setting("ring")), once(setting("ring"));
    forget(everywhere, 0, RF_VERB_REDUCE);
    forget(everywhere, 1, RF_VERB_REDUCE);
    expect_refused(everywhere, {"plan of rank 0: ", "gradients piece 0 (c.0)"});
    forget(once, 1, RF_VERB_REDUCE);
    expect_refused(once, {"plan of rank 1: reduce gradients piece 1 (b.1): ", "rank 0"});
}

TEST(PlanCheck, ARoundWithoutAMicroBatchThatSendsWhatCallsWouldOverwriteIsRefused)
{
    for (const char *name : {"zero_2", "zero_3_copies", "narrow_rounds", "zero_2_pipeline"}) {
        const Job job(setting(name));
        int cleared = 0;
        for (int r = 0; r < job.ranks(); r++)
            for (int i = 0; i < job.list(r).count; i++)
                if (job.list(r).instructions[i].verb == RF_VERB_ZERO_WHOLE) {
                    job.list(r).instructions[i].verb = RF_VERB_ZERO;
                    cleared++;
                    expect_refused(job, {"plan of rank " + std::to_string(r), "piece"});
                    job.list(r).instructions[i].verb = RF_VERB_ZERO_WHOLE;
                }
        EXPECT_GT(cleared, 0) << name;
        EXPECT_EQ(job.check(), 0) << name;
    }
}

TEST(PlanCheck, ASumOverTensorRanksThatIsForgottenIsRefusedByParameterAndRank)
{
    const Job job(setting("sequence"));
    forget(job, 0, RF_VERB_REDUCE);
    forget(job, 1, RF_VERB_REDUCE);
    expect_refused(job, {"plan of rank 0: ", "(a.1 and 2 more) was not added over the tensor"});
    const Job unequal(setting("sequence"));
    forget(unequal, 1, RF_VERB_REDUCE);
    expect_refused(unequal, {"plan of rank 1: ", "(a.1 and 2 more)"});
}

TEST(PlanCheck, AnExchangeThatIsForgottenIsRefused)
{
    const Job job(setting("tensor"));
    forget(job, 0, RF_VERB_EXCHANGE);
    forget(job, 1, RF_VERB_EXCHANGE);
    expect_refused(job, {"plan of rank 0: forward block 1 micro-batch 0 phase 1"});
}

TEST(PlanCheck, KeysThatAreNotGatheredAndGradientsThatAreNotAddedOverSequencesAreRefused)
{
    const Job keys(context_settings[0]), grads(context_settings[0]);
    for (int rank = 0; rank < 2; rank++) {
        forget(keys, rank, RF_VERB_EXCHANGE);
        forget(grads, rank, RF_VERB_REDUCE);
    }
    expect_refused(keys, {"plan of rank 0: forward block 0 micro-batch 0 phase 1"});
    expect_refused(grads, {"plan of rank 0: ", "was not added over the tensor"});
}

TEST(PlanCheck, AMessageToTheWrongPeerIsRefusedByParameterAndRank)
{
    const Job job(tied_over_stages());
    rf_plan *plan = job.rank(0);
    rf_list &list = job.list(0);
    for (int i = 0; i < list.count; i++) // the sum of a tied parameter, on its way back
        if (list.instructions[i].verb == RF_VERB_SEND &&
            list.instructions[i].lane == RF_LANE_SEND_GRAD)
            plan->transfers[list.instructions[i].transfer].peer = 3;
    expect_refused(job, {"plan of rank 0: send ", " (a.0): "});
}

// The executor finds operands by their roles, and takes parameters by their order.
TEST(PlanCheck, RolesByWhichTheExecutorWouldFindAnotherValueAreRefused)
{
    const Job job(setting("tree"));
    rf_plan *plan = job.rank(0);
    int roles = 0, orders = 0;
    for (int k = 0; k < job.list(0).count; k++) {
        const rf_instruction &i = job.list(0).instructions[k];
        uint8_t &first = plan->roles[i.first_operand];
        int *params = const_cast<int *>(rf_plan_ins(plan, &i, RF_ROLE_PARAM).values);
        if (i.verb == RF_VERB_STEP) {
            first = RF_ROLE_DECAY;
            expect_refused(job, {"plan of rank 0: optimizer step", "as decay, not as gradients"});
            first = RF_ROLE_GRAD;
            roles++;
        }
        if (rf_verb_calls_block(i.verb) && rf_plan_ins(plan, &i, RF_ROLE_PARAM).count > 1) {
            std::swap(params[0], params[1]);
            expect_refused(job, {"plan of rank 0: ", "where it looks for it"});
            std::swap(params[0], params[1]);
            orders++;
        }
    }
    EXPECT_EQ(roles, 1);
    EXPECT_GT(orders, 0);
    EXPECT_EQ(job.check(), 0) << rf_last_error()->message;
}

// The kinds at the peak are all device memory, and no moment has more temporary values.
TEST_P(OfSetting, ThePeakIsAllDeviceMemory)
{
    Job job(GetParam());
    for (int r = 0; r < job.ranks(); r++) {
        const rf_plan *plan = job.rank(r);
        rf_held held[RF_HELD_COUNT];
        ASSERT_EQ(rf_plan_peak(plan, held), 0);
        uint64_t all = 0, regions = 0, temporary = 0, most = 0;
        for (const rf_held &h : held) {
            all += h.bytes;
            EXPECT_EQ(h.values > 0, h.bytes > 0);
            EXPECT_LE(h.largest, h.bytes);
        }
        for (int k = 0; k < plan->region_count; k++) {
            const bool device = plan->regions[k].memory == RF_MEMORY_DEVICE;
            regions += device ? plan->regions[k].bytes : 0;
            temporary += device && k >= RF_REGION_FIXED ? plan->regions[k].bytes : 0;
        }
        EXPECT_EQ(all, regions);
        rf_interval *intervals = nullptr;
        int count = 0;
        ASSERT_EQ(rf_plan_intervals(plan, &intervals, &count), 0);
        for (int k = 0; k < count; k++) {
            uint64_t alive = 0;
            for (int other = 0; other < count; other++) {
                const rf_value &v = plan->values[intervals[other].value];
                if (intervals[other].begin <= intervals[k].begin &&
                    intervals[other].end >= intervals[k].begin &&
                    plan->regions[v.region].memory == RF_MEMORY_DEVICE)
                    alive += rf_plan_aligned(v.bytes);
            }
            most = std::max(most, alive);
        }
        rf_free(intervals);
        EXPECT_EQ(held[RF_HELD_UNUSED].bytes, temporary - most);
    }
}

TEST_P(OfSetting, AMutantIsRefusedOrChangesNoResult)
{
    const Job job(GetParam());
    ASSERT_EQ(job.check(), 0) << rf_last_error()->message;
    std::set<uint64_t> results;
    for (uint32_t seed = 0; seed < 8; seed++)
        results.insert(Machine(job, seed).run());
    ASSERT_EQ(results.size(), 1u) << "the plan itself has a race";
    ASSERT_NE(*results.begin(), 0u);

    std::mt19937 random(7);
    std::map<std::string, std::pair<int, int>> seen; // made, survived
    const int tries = GetParam().tp * GetParam().cp > 1 ? 600 : 2000;
    for (int k = 0; k < tries; k++) {
        const auto &mutation = mutations[k % std::size(mutations)];
        const bool everywhere = random() % 4 == 0;
        const int one = any(random, job.ranks());
        const uint32_t draw = random();
        std::vector<std::unique_ptr<Restored>> keep;
        bool applied = true;
        for (int r = 0; r < job.ranks(); r++) {
            keep.push_back(std::make_unique<Restored>(job, r));
            std::mt19937 same(draw);
            if (everywhere || r == one) {
                applied = mutation.second(job.rank(r), job.list(r), same) && applied;
                count_positions(job.list(r));
            }
        }
        if (!applied)
            continue;
        auto &figures = seen[mutation.first];
        figures.first++;
        if (job.check() < 0)
            continue;
        figures.second++;
        for (uint32_t seed = 0; seed < 6; seed++)
            ASSERT_EQ(Machine(job, seed).run(), *results.begin())
                << "mutant " << k << " (" << mutation.first << (everywhere ? ", all ranks" : "")
                << ", rank " << one << ") is accepted and changes the result";
    }
    int made = 0, survived = 0;
    for (const auto &row : seen) {
        made += row.second.first;
        survived += row.second.second;
        RecordProperty(row.first, std::to_string(row.second.second) + " of " +
                                      std::to_string(row.second.first) + " survive");
        if (getenv("RF_TEST_ALL"))
            printf("%-16s %5d made, %4d survive\n", row.first.c_str(), row.second.first,
                   row.second.second);
    }
    EXPECT_GT(made, tries * 7 / 10);
    // A second fetch of parameters gives the same ones.
    EXPECT_LT(survived, made / (GetParam().offload ? 7 : 10));
    EXPECT_EQ(seen["drop wait"].second, 0);
    EXPECT_EQ(seen["change role"].second, 0); // which the machine does not see
}
INSTANTIATE_TEST_SUITE_P(All, OfSetting, testing::ValuesIn(settings), name_of);
INSTANTIATE_TEST_SUITE_P(InContext, OfSetting, testing::ValuesIn(context_settings), name_of);
