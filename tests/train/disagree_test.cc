// SPDX-License-Identifier: MIT
//
// One of three ranks disagrees: in its terms when a run is opened, or, with equal terms, in its
// list. The error on every rank names the rank and the difference.
#include <algorithm>
#include <cstring>
#include <thread>

#include "faults.h"

namespace
{

constexpr int differing_rank = 1;

struct Difference {
    const char *words; // in the message
    std::function<void(rf_policy *, StubBlocks *)> change;
    int zero = 0; // on all ranks
};

void expect_named(int status)
{
    EXPECT_EQ(status, RF_EMISMATCH) << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr) << rf_last_error()->message;
}

void open_differently(const Difference &difference)
{
    ranks::World world;
    world.size = FAULT_RANKS;
    for (int r = 0; r < FAULT_RANKS; r++)
        rank_device(r);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        StubBlocks blocks;
        rf_policy policy = policy_of(step_kinds[0]);
        rf_mesh mesh = {FAULT_RANKS, 1, 1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        blocks.add("a", {3000, 40}).add("b", {3000});
        policy.batch = 12;
        policy.first_bucket_bytes = 2 << 20;
        policy.bucket_bytes = 4 << 20;
        policy.zero = difference.zero;
        if (rank == differing_rank)
            difference.change(&policy, &blocks);
        ASSERT_RF(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, rank, &plan));
        expect_named(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        EXPECT_NE(strstr(rf_last_error()->message, difference.words), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(run, nullptr);
        rf_plan_destroy(plan);
    });
}

/* ---- lists ------------------------------------------------------------------------------------
 */

rf_list &list_of(rf_plan *plan)
{
    return plan->lists[RF_LIST_STEP];
}

// The positions of the transfers in the list.
std::vector<int> places_of(rf_plan *plan)
{
    std::vector<int> places;
    for (int i = 0; i < list_of(plan).count; i++)
        if (list_of(plan).instructions[i].transfer >= 0)
            places.push_back(i);
    return places;
}

// Each changes transfer `number` of a list; false: not applicable.
bool leave_out(rf_plan *plan, size_t number)
{
    rf_list &list = list_of(plan);
    rf_instruction *at = list.instructions + places_of(plan)[number];
    const int lane = (int)at->lane;
    const int place = (int)std::count_if(
        list.instructions, at, [lane](const rf_instruction &i) { return (int)i.lane == lane; });
    std::copy(at + 1, list.instructions + list.count, at);
    list.count--;
    list.positions[lane]--;
    for (int i = 0; i < list.count; i++) { // waits for it become waits for the instruction before
                                           // it
        rf_wait *waits = plan->waits + list.instructions[i].first_wait;
        for (int k = list.instructions[i].waits; k-- > 0;) {
            waits[k].position -= waits[k].lane == lane && waits[k].position >= place;
            if (waits[k].position < 0)
                waits[k] = waits[--list.instructions[i].waits];
        }
    }
    return true;
}

// Swaps it with the next one of the same verb and lane.
bool exchange(rf_plan *plan, size_t number)
{
    const std::vector<int> places = places_of(plan);
    rf_instruction *all = list_of(plan).instructions, *at = &all[places[number]];
    size_t next = number + 1;
    while (next < places.size() && all[places[next]].lane != at->lane)
        next++;
    if (next == places.size() || at->verb != all[places[next]].verb)
        return false;
    std::swap(at->first_operand, all[places[next]].first_operand);
    std::swap(at->transfer, all[places[next]].transfer);
    return true;
}

bool reorder(rf_plan *plan, size_t number)
{
    const rf_instruction &at = list_of(plan).instructions[places_of(plan)[number]];
    rf_transfer &transfer = plan->transfers[at.transfer];
    if (at.verb == RF_VERB_LOSS || transfer.op == RF_COLL_FOREST_ALL_REDUCE ||
        transfer.op == RF_COLL_FOREST_REDUCE_SCATTER ||
        transfer.op == RF_COLL_PREFIX_REDUCE_SCATTER) // they have only one
        return false;
    transfer.order = RF_ORDER_TREE;
    return true;
}

bool shorten(rf_plan *plan, size_t number)
{
    const rf_instruction &at = list_of(plan).instructions[places_of(plan)[number]];
    rf_transfer &transfer = plan->transfers[at.transfer];
    if (at.verb != RF_VERB_NORM_SHARE && at.verb != RF_VERB_BROADCAST) // others have a piece's
        return false;
    transfer.count--;
    return true;
}

struct Change {
    const char *name;
    bool (*make)(rf_plan *, size_t number);
    bool at_once; // the transfer itself reports it
};
const Change changes[] = {{"left out", leave_out, false},
                          {"exchanged with the next", exchange, false},
                          {"in another order", reorder, true},
                          {"shorter", shorten, true}};

void step_differently(const StepKind &kind, const Change &change, size_t number)
{
    const std::string where =
        std::string(kind.name) + ", transfer " + std::to_string(number) + " " + change.name;
    std::atomic<int> arrived{0};
    ranks::World world;
    world.size = ranks_of(kind);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Job job(comm, rank, kind);
        const auto transfers = transfers_of(job.plan);
        /* A rank may have fewer than the one that differs. */
        const rf_verb verb = number < transfers.size() ? transfers[number].verb : rf_verb{};
        if (rank == differing_rank) {
            EXPECT_TRUE(change.make(job.plan, number));
        }
        ASSERT_RF(job.open());
        for (int lane = RF_LANE_DATA; kind.groups() && rf_lane_collects(lane); lane++)
            if (job.run->comms[lane])
                fault_transport_timeout(job.run->comms[lane], 1);
        all_have_come(&arrived, world.size);
        std::string before;
        int status = 0;
        for (int k = 0; k < 3 && status == 0; k++) { // a later call misses the omitted one
            before = job.state();
            status = job.step();
        }
        const rf_error error = *rf_last_error();
        // A rank that omits a group's call may wait in another communicator for one that waits for
        // it: that ends at the deadline.
        const bool late = kind.groups() && change.make == leave_out && status == RF_ETIMEOUT;
        EXPECT_TRUE(status == RF_EMISMATCH || late) << where << ": " << error.message;
        EXPECT_NE(strstr(error.message, "rank 1"), nullptr) << where << ": " << error.message;
        if (change.at_once && before_update(kind, verb)) {
            EXPECT_EQ(job.run->inconsistent.status, 0) << where;
        }
        expect_inconsistent_or_unchanged(job, before);
    });
}

} // namespace

// Several at once, as ranks compare their calls after a quarter of a second.
TEST(Disagree, AListThatIsAnotherOnOneRankIsNamedInTheStep)
{
    std::vector<std::thread> threads;
    const auto join = [&] {
        for (std::thread &thread : threads)
            thread.join();
        threads.clear();
    };
    for (int r = 0; r < FAULT_RANKS_OF_GROUPS; r++)
        rank_device(r);
    for (const StepKind &kind : step_kinds) {
        if (kind.offload || (kind.shard && kind.zero != 2) || kind.pp > 1)
            continue; // their lists do not differ in any kind of collective
        for (size_t number = 0; number < transfers_of(Job(nullptr, 0, kind).plan).size(); number++)
            for (const Change &change : changes) {
                if (!change.make(Job(nullptr, 0, kind).plan, number))
                    continue;
                threads.emplace_back(step_differently, kind, change, number);
                if (threads.size() == 16)
                    join();
            }
    }
    join();
}

// Messages are matched by their tags.
TEST(Disagree, AMessageOfAPipelineThatIsAnotherOnOneRankIsNamed)
{
    const StepKind &kind = *std::find_if(step_kinds.begin(), step_kinds.end(),
                                         [](const StepKind &k) { return k.pp > 1; });
    ranks::World world;
    world.size = ranks_of(kind);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Job job(comm, rank, kind);
        for (const int place : places_of(job.plan)) {
            const rf_instruction &i = list_of(job.plan).instructions[place];
            if (rank == differing_rank && i.verb == RF_VERB_SEND)
                job.plan->transfers[i.transfer].count--;
        }
        ASSERT_RF(job.open());
        const std::string before = job.state();
        EXPECT_EQ(job.step(), RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr) << rf_last_error()->message;
        EXPECT_EQ(job.run->inconsistent.status, 0);
        expect_inconsistent_or_unchanged(job, before);
    });
}

// In groups of their own, or in messages, the others wait for a rank that is in a collective of
// all. A call that succeeds without them is missed by the next one.
TEST(Disagree, AnotherCallOnOneRankIsNamedByAllWithoutADeadline)
{
    const std::pair<const char *, std::function<int(Job &, const Folder &)>> calls[] = {
        {"evaluate", [](Job &job, const Folder &) { return job.evaluate(); }},
        {"forward", [](Job &job, const Folder &) { return job.forward(); }},
        {"hash", [](Job &job, const Folder &) { return job.hash(); }},
        {"save", [](Job &job, const Folder &folder) { return job.save(folder.path()); }},
        {"load", [](Job &job, const Folder &folder) { return job.load(folder.path()); }},
        {"reserve", [](Job &job, const Folder &folder) { return job.reserve(folder.path()); }},
        {"audit", [](Job &job, const Folder &) { return rf_run_audit(job.run, nullptr); }},
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < FAULT_RANKS_OF_GROUPS; r++)
        rank_device(r);
    for (const StepKind &kind : step_kinds)
        for (const auto &call : calls) {
            const bool is_forward = strcmp(call.first, "forward") == 0;
            if (!kind.groups() || (kind.shard && kind.zero == 2) ||
                (kind.tp > 1 && is_forward)) // its blocks have no logits
                continue;
            if (kind.shard && kind.zero == 1 && (is_forward || strcmp(call.first, "hash") == 0))
                continue; // only one rank there
            threads.emplace_back([&kind, &call] {
                const std::string where = std::string(kind.name) + ", " + call.first;
                const Folder folder;
                ranks::World world;
                world.size = ranks_of(kind);
                world.timeout_s = 600;
                ranks::run(world, [&](rf_comm *comm, int rank) {
                    Job job(comm, rank, kind);
                    ASSERT_RF(job.open());
                    int status = rank == differing_rank ? call.second(job, folder) : 0;
                    if (status == 0)
                        status = job.step();
                    EXPECT_EQ(status, RF_EMISMATCH) << where << ": " << rf_last_error()->message;
                    EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr)
                        << where << ": " << rf_last_error()->message;
                });
            });
            if (threads.size() % 8 == 0)
                for (std::thread &thread : threads)
                    if (thread.joinable())
                        thread.join();
        }
    for (std::thread &thread : threads)
        if (thread.joinable())
            thread.join();
}

TEST(Disagree, EachDifferenceOfPolicyOrModelIsNamedWhenARunIsOpened)
{
    const char *const params = "parameters' names, shapes and initial values";
    const Difference differences[] = {
        {"batch", [](rf_policy *p, StubBlocks *) { p->batch *= 2; }},
        {"sequence length", [](rf_policy *p, StubBlocks *) { p->seq = 8; }},
        {"several documents", [](rf_policy *p, StubBlocks *) { p->packed = true; }},
        {"micro-batches", [](rf_policy *p, StubBlocks *) { p->micro_batches = 6; }},
        {"order", [](rf_policy *p, StubBlocks *) { p->order = RF_ORDER_TREE; }},
        {"update on rank 0", [](rf_policy *p, StubBlocks *) { p->update_on_rank_0 = true; }},
        {"uses of tied parameters", [](rf_policy *p, StubBlocks *) { p->uses_apart = true; }},
        {"zero stage", [](rf_policy *p, StubBlocks *) { p->zero = 1; }},
        {"offload", [](rf_policy *p, StubBlocks *) { p->offload = RF_OFFLOAD_OPTIMIZER; }},
        {"gathers of parameters", [](rf_policy *p, StubBlocks *) { p->keep_gathered = true; }, 3},
        {"gathers of parameters", [](rf_policy *p, StubBlocks *) { p->recompute = 1; }, 3},
        {"gathers of parameters",
         [](rf_policy *p, StubBlocks *) { p->offload = RF_OFFLOAD_PARAMS; }, 3},
        {"type of the optimizer's states",
         [](rf_policy *p, StubBlocks *) { p->state_dtype = RF_U8; }},
        {"data on a disk",
         [](rf_policy *p, StubBlocks *) { p->offload = p->disk = RF_OFFLOAD_OPTIMIZER; }},
        {"blocks of data on a disk",
         [](rf_policy *p, StubBlocks *) { p->disk_block_bytes = 1 << 20; }},
        {"type in which gradients travel",
         [](rf_policy *p, StubBlocks *) { p->reduce_dtype = RF_BF16; }},
        {"bucket sizes", [](rf_policy *p, StubBlocks *) { p->bucket_bytes = 1 << 20; }},
        {"bucket sizes", [](rf_policy *p, StubBlocks *) { p->first_bucket_bytes = 1 << 20; }},
        // The exclusive or, with the first one doubled, is the same.
        {"bucket sizes",
         [](rf_policy *p, StubBlocks *) {
             p->first_bucket_bytes = 3 << 20;
             p->bucket_bytes = 6 << 20;
         }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.kind = RF_LION; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.beta2 = 0.9f; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.beta1 = 0.5f; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.eps = 0.5f; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.weight_decay = 0.5f; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.eps_inside = true; }},
        {"optimizer", [](rf_policy *p, StubBlocks *) { p->optimizer.no_bias_correction = true; }},
        {"parts of tensor sums", [](rf_policy *p, StubBlocks *) { p->tensor_parts = 2; }},
        {"clipping norm", [](rf_policy *p, StubBlocks *) { p->clip = 2; }},
        {"update in the backward pass",
         [](rf_policy *p, StubBlocks *) {
             p->update_in_backward = true;
             p->clip = 0;
             p->micro_batches = FAULT_RANKS;
         }},
        {"loss scale",
         [](rf_policy *p, StubBlocks *b) {
             b->scales_loss();
             p->loss_scale = 64;
         }},
        {"parameters without f32 masters",
         [](rf_policy *p, StubBlocks *b) {
             StubBlocks all;
             all.add("a", {3000, 40}).type(0, RF_BF16).type(1, RF_BF16);
             all.add("b", {3000}).type(0, RF_BF16);
             *b = std::move(all);
             p->no_masters = true;
         }},
        {"form of gradients", [](rf_policy *p, StubBlocks *) { p->compress.form = RF_FORM_NF4; }},
        {"form of gradients",
         [](rf_policy *p, StubBlocks *) {
             p->compress.form = RF_FORM_TOP;
             p->compress.fraction = 0.5f;
         }},
        {"workspace bytes", [](rf_policy *p, StubBlocks *) { p->workspace_bytes = 1 << 16; }},
        {"forward only", [](rf_policy *p, StubBlocks *) { p->forward_only = true; }},
        {"blocks' rounding", [](rf_policy *, StubBlocks *b) { b->rounds("mxfp8"); }},
        {"blocks", [](rf_policy *, StubBlocks *b) { b->add("c", {10}); }},
        {params, [](rf_policy *, StubBlocks *b) { b->flag(0, RF_PARAM_DECAY); }},
        {params, [](rf_policy *, StubBlocks *b) { b->type(0, RF_F16); }},
        {params, [](rf_policy *, StubBlocks *b) { b->start(0, 0.5f, 0); }},
        {params, [](rf_policy *, StubBlocks *b) { b->start(0, 0, 0.5f); }},
        {"parameter elements", [](rf_policy *, StubBlocks *b) { b->tie(0, "a.0"); }},
    };
    for (const Difference &difference : differences) {
        SCOPED_TRACE(difference.words);
        open_differently(difference);
    }
}
