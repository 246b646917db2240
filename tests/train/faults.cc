// SPDX-License-Identifier: MIT
//
// See faults.h.
#include "faults.h"

#include <sched.h>

#include <cstring>

namespace
{

int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
{
    const bool last = ctx->losses.buffer != nullptr;
    const int rc = last ? rf_fill(ctx->stream, ctx->losses, 1.0f) : 0;
    return rc < 0 ? rc : rf_fill(ctx->stream, out, 0.0f);
}
int backward_input(rf_ctx *ctx, void *, rf_tensor, rf_tensor, rf_tensor din)
{
    return din.buffer ? rf_fill(ctx->stream, din, 0.0f) : 0;
}
int backward_weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    for (int k = 0; k < ctx->param_count; k++) {
        const int rc = rf_fill(ctx->stream, ctx->grads[k], 1.0f);
        if (rc < 0)
            return rc;
    }
    return 0;
}
int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 4);
    return 0;
}
int tensor_sizes(const void *, const rf_tensor_part *part, int64_t rows, int64_t,
                 rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(part->sequence ? rows / part->ranks : rows, 4);
    out->forward[0] = {RF_EXCHANGE_GATHER, rf_shape2(rows, 4), RF_F32};
    out->backward_input[0] = {RF_EXCHANGE_SCATTER, rf_shape2(rows, 4), RF_F32};
    return 0;
}
const rf_block_ops ops = {forward, backward_input, backward_weight, sizes, tensor_sizes};

} // namespace

const std::vector<StepKind> step_kinds = {
    {"ring", {RF_VERB_REDUCE, RF_VERB_LOSS}, RF_ORDER_RING, 0, false, false},
    {"tree", {RF_VERB_REDUCE, RF_VERB_LOSS}, RF_ORDER_TREE, 0, false, false},
    {"ring_zero1",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     1,
     false,
     false},
    {"tree_zero1",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_TREE,
     1,
     false,
     false},
    {"copies_zero1",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     1,
     false,
     true},
    {"ring_zero2",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     2,
     false,
     false},
    {"tree_zero2",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_TREE,
     2,
     false,
     false},
    {"ring_zero3",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     3,
     false,
     false},
    {"tree_zero3",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_TREE,
     3,
     false,
     false},
    {"copies_of_shards_zero1",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     1,
     false,
     false,
     2},
    {"copies_of_shards_zero2",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     2,
     false,
     false,
     2},
    {"copies_of_shards_zero3",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     3,
     false,
     false,
     2},
    {"offload_zero2",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     2,
     false,
     false,
     0,
     RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS},
    {"offload_zero3",
     {RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS, RF_VERB_GATHER},
     RF_ORDER_RING,
     3,
     false,
     false,
     0,
     RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS},
    {"pipeline",
     {RF_VERB_SEND, RF_VERB_RECV, RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS},
     RF_ORDER_RING,
     0,
     false,
     false,
     0,
     0,
     2},
    {"pipeline_of_4",
     {RF_VERB_SEND, RF_VERB_RECV, RF_VERB_NORM_SHARE, RF_VERB_LOSS},
     RF_ORDER_RING,
     0,
     false,
     false,
     0,
     0,
     4},
    {"tensor",
     {RF_VERB_EXCHANGE, RF_VERB_REDUCE, RF_VERB_NORM_SHARE, RF_VERB_LOSS},
     RF_ORDER_RING,
     0,
     false,
     false,
     0,
     0,
     1,
     2},
    {"rank_0", {RF_VERB_REDUCE, RF_VERB_LOSS, RF_VERB_BROADCAST}, RF_ORDER_RING, 0, true, false},
};

const StepKind cube = {"cube",
                       {RF_VERB_SEND, RF_VERB_RECV, RF_VERB_EXCHANGE, RF_VERB_REDUCE,
                        RF_VERB_NORM_SHARE, RF_VERB_LOSS},
                       RF_ORDER_RING,
                       0,
                       false,
                       false,
                       0,
                       0,
                       2,
                       2};

int ranks_of(const StepKind &kind)
{
    if (kind.pp > 1 && kind.tp > 1)
        return FAULT_RANKS_OF_CUBE;
    return kind.groups() ? FAULT_RANKS_OF_GROUPS : FAULT_RANKS;
}

rf_policy policy_of(const StepKind &kind)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = ranks_of(kind) + 1;
    policy.seq = 4;
    policy.order = kind.order;
    policy.zero = kind.zero;
    policy.offload = kind.offload;
    policy.update_on_rank_0 = kind.on_rank_0;
    policy.optimizer.stochastic_rounding = kind.rounded_copies;
    policy.bucket_bytes = policy.first_bucket_bytes = 16000;
    policy.clip = 1;
    policy.sequence_parallel = kind.tp > 1;
    return policy;
}

std::vector<Transfer> transfers_of(const rf_plan *plan)
{
    std::vector<Transfer> transfers;
    uint64_t started[RF_LANE_COUNT] = {};
    const rf_list &list = plan->lists[RF_LIST_STEP];
    for (int k = 0; k < list.count; k++) {
        const rf_instruction &i = list.instructions[k];
        if (i.transfer >= 0)
            transfers.push_back({i.verb, (int)i.lane, started[i.lane]++});
    }
    return transfers;
}

void FaultTransports::insert(const rf_run *run, double timeout_s)
{
    fault_transport *all = of(run, rf_plan_loss_lane(run->plan));
    fault_transport_insert(all, run->comm);
    fault_transport_timeout(run->comm, timeout_s);
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++) {
        if (!run->comms[lane] || run->comms[lane] == run->comm)
            continue;
        fault_transport_insert_beside(&lanes[lane], run->comms[lane], all);
        fault_transport_timeout(run->comms[lane], timeout_s);
    }
}

fault_transport *FaultTransports::of(const rf_run *run, int lane)
{
    return &lanes[run->comms[lane] == run->comm ? (int)rf_plan_loss_lane(run->plan) : lane];
}

bool before_update(const StepKind &kind, rf_verb verb)
{
    return verb == RF_VERB_SEND || verb == RF_VERB_RECV || verb == RF_VERB_EXCHANGE ||
           verb == RF_VERB_REDUCE || verb == RF_VERB_NORM_SHARE || verb == RF_VERB_LOSS ||
           (verb == RF_VERB_GATHER && kind.zero == 3);
}

/* ---- one rank's run -------------------------------------------------------------------------- */

// Two pieces of equal size; every rank has a shard of each.
Job::Job(rf_comm *comm, int rank, const StepKind &kind, int ranks) : comm_(comm), rank_(rank)
{
    const rf_policy policy = policy_of(kind);
    const int all = ranks ? ranks : ranks_of(kind);
    const int pp = all > 1 ? kind.pp : 1, tp = all > 1 ? kind.tp : 1;
    const rf_mesh mesh = {all / pp / tp, tp, pp, all > 1 ? kind.shard : 0};
    stubs_.add("a", {3500});
    if (kind.rounded_copies)
        stubs_.type(0, RF_BF16);
    for (const char *name : {"c", "d"}) // a block for each stage
        if (kind.pp > 2)
            stubs_.add(name, {3500});
    stubs_.add("b", {3500});
    if (kind.pp > 1) // a part of its gradients is sent, too
        stubs_.tie(0, "a.0");
    blocks_.assign(stubs_.blocks(), stubs_.blocks() + stubs_.count());
    for (rf_block &block : blocks_)
        block.ops = &ops;
    EXPECT_RF(rf_plan_build({blocks_.data(), (int)blocks_.size()}, &mesh, &policy, rank, &plan));
}

Job::~Job()
{
    rf_run_close(run);
    rf_plan_destroy(plan);
}

int Job::open()
{
    return rf_run_open(rank_device(rank_), comm_, plan, nullptr, &run);
}

static const std::vector<int32_t> &words()
{
    static const std::vector<int32_t> zeros(4 * (FAULT_RANKS_OF_CUBE + 1), 0);
    return zeros;
}

int Job::step()
{
    return rf_run_step(run, words().data(), words().data(), 0.01f, nullptr);
}

int Job::evaluate()
{
    double loss = 0;
    return rf_run_evaluate(run, words().data(), words().data(), FAULT_RANKS_OF_GROUPS + 1, &loss);
}

int Job::forward()
{
    float out[4 * 4];
    return rf_run_forward(run, words().data(), out, sizeof(out));
}

int Job::hash()
{
    char hex[65];
    return rf_run_params_sha256(run, hex);
}

int Job::save(const std::string &dir)
{
    const rf_progress progress = {run->step, 0, run->step * plan->policy.batch};
    return rf_run_save(run, dir.c_str(), &progress);
}

int Job::load(const std::string &dir)
{
    return rf_run_load(run, dir.c_str(), nullptr);
}

int Job::reserve(const std::string &dir)
{
    return rf_run_reserve(run, dir.c_str());
}

std::string Job::state() const
{
    std::string all;
    for (int v = 0; v < plan->value_count; v++) {
        const rf_value &value = plan->values[v];
        const bool gathered = value.kind == RF_VALUE_PARAM || value.kind == RF_VALUE_COPY;
        if (value.bytes == 0 ||
            (gathered ? plan->units // then it is there only temporarily
                      : value.kind != RF_VALUE_PARAM_SHARD && value.kind != RF_VALUE_COPY_SHARD &&
                            value.kind != RF_VALUE_STATE))
            continue;
        const rf_tensor t = rf_run_value(run, v);
        const size_t at = all.size();
        all.resize(at + value.bytes);
        EXPECT_RF(rf_buffer_read(t.buffer, t.offset, &all[at], value.bytes));
    }
    return all;
}

/* ---- what survivors see ---------------------------------------------------------------------- */

void expect_inconsistent_or_unchanged(Job &job, const std::string &before)
{
    if (!job.run->inconsistent.status) {
        EXPECT_TRUE(job.state() == before) << "a failed step changed parameters without a word";
        return;
    }
    Folder folder;
    const std::function<int()> calls[] = {
        [&] { return job.step(); }, [&] { return job.evaluate(); }, [&] { return job.forward(); },
        [&] { return job.save(folder.path()); }};
    for (const auto &call : calls) {
        EXPECT_EQ(call(), RF_EABORT);
        EXPECT_NE(strstr(rf_last_error()->message, "parameters may be of two steps"), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, job.run->inconsistent.rank);
    }
    EXPECT_EQ(folder.read("latest"), "");
}

void expect_failure_reported(Job &job, int status, const std::string &before, int failed_rank)
{
    const std::string name = "rank " + std::to_string(failed_rank);
    const bool in_time = status == 0;
    const std::string then = in_time ? job.state() : before;
    if (in_time) // it had received everything it needed; but the next step has not
        status = job.step();
    EXPECT_TRUE(status == RF_EPEER || status == RF_ETIMEOUT || status == RF_EABORT) << status;
    EXPECT_NE(strstr(rf_last_error()->message, name.c_str()), nullptr) << rf_last_error()->message;
    EXPECT_EQ(rf_last_error()->rank, failed_rank) << rf_last_error()->message;
    expect_inconsistent_or_unchanged(job, then);
    Folder folder;
    for (const auto &call : {std::function<int()>([&] { return job.step(); }),
                             std::function<int()>([&] { return job.save(folder.path()); })}) {
        EXPECT_EQ(call(), RF_EABORT);
        EXPECT_NE(strstr(rf_last_error()->message, name.c_str()), nullptr)
            << rf_last_error()->message;
    }
}

void all_have_come(std::atomic<int> *arrived, int ranks)
{
    for (arrived->fetch_add(1); arrived->load() < ranks;)
        sched_yield();
}
