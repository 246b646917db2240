// SPDX-License-Identifier: MIT
//
// The plans of all ranks of a job, and a machine that runs their lists without knowing the meaning
// of verbs: lanes in random order and with random durations; written values are mixtures of the
// values read. Two jobs with equal results compute the same; a job with several results has a race.
#ifndef RF_TESTS_TRAIN_PLAN_MACHINE_H
#define RF_TESTS_TRAIN_PLAN_MACHINE_H

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <vector>

#include "stub_blocks.h"

extern "C" {
#include "base/base.h"
#include "parallel/passes/intervals.h"
#include "parallel/passes/passes.h"
}

struct Setting {
    const char *name = "";
    int dp = 1, micro_batches = 1;
    rf_order order = RF_ORDER_RING;
    bool rank0 = false, scaled = false, tied = false, copies = false;
    int zero = 0, shard = 0, recompute = 0, offload = 0;
    bool frozen = false;
    bool disk = false; // of the optimizer's states, in blocks of 1024 elements
    rf_dtype reduce = RF_F32;
    bool no_masters = false;
    bool invert = false; // block b, and those behind c but the last
    bool eager = false;  // updates in the backward pass
    int more_blocks = 0; // than three
    int pp = 1;
    rf_pipeline_kind pipeline = RF_PIPELINE_1F1B;
    int tp = 1; // tensor ranks, which share all blocks but the first, or with sequence: all
    bool sequence = false;
    int cp = 1; // context ranks
};

// Words of a setting: numbers as name=value, all else by its name alone.
inline Setting of(const char *name, const char *text)
{
    static const std::map<std::string, int Setting::*> numbers = {
        {"dp", &Setting::dp},
        {"micro_batches", &Setting::micro_batches},
        {"zero", &Setting::zero},
        {"shard", &Setting::shard},
        {"recompute", &Setting::recompute},
        {"offload", &Setting::offload},
        {"more_blocks", &Setting::more_blocks},
        {"pp", &Setting::pp},
        {"tp", &Setting::tp},
        {"cp", &Setting::cp}};
    static const std::map<std::string, bool Setting::*> flags = {
        {"rank0", &Setting::rank0},       {"scaled", &Setting::scaled},
        {"tied", &Setting::tied},         {"copies", &Setting::copies},
        {"frozen", &Setting::frozen},     {"no_masters", &Setting::no_masters},
        {"sequence", &Setting::sequence}, {"invert", &Setting::invert},
        {"disk", &Setting::disk},         {"eager", &Setting::eager}};
    static const std::map<std::string, rf_dtype> types = {{"bf16", RF_BF16}, {"f16", RF_F16}};
    static const std::map<std::string, rf_pipeline_kind> pipelines = {
        {"gpipe", RF_PIPELINE_GPIPE},
        {"interleaved", RF_PIPELINE_INTERLEAVED},
        {"zbh1", RF_PIPELINE_ZBH1},
        {"zbv", RF_PIPELINE_ZBV}};
    Setting s;
    s.name = name;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals != word.npos)
            s.*numbers.at(word.substr(0, equals)) = std::stoi(word.substr(equals + 1));
        else if (flags.count(word))
            s.*flags.at(word) = true;
        else if (types.count(word))
            s.reduce = types.at(word);
        else if (word == "tree")
            s.order = RF_ORDER_TREE;
        else
            s.pipeline = pipelines.at(word);
    }
    return s;
}

inline StubBlocks blocks_of(const Setting &s)
{
    StubBlocks blocks;
    const bool narrow = s.no_masters;
    const rf_dtype type = narrow ? RF_BF16 : RF_F32;
    const auto share = [&](bool also) {
        if (s.cp > 1)
            blocks.in_context();
        else if (s.tp > 1 && also)
            blocks.shared();
    };
    blocks.add("a", {300, 64}).type(0, type).type(1, type);
    share(s.sequence);
    blocks.add("b", {s.disk ? 5000 : 200, 70}).type(0, type).type(1, type);
    share(true);
    if (s.invert)
        blocks.reversible();
    if (s.frozen)
        blocks.flag(0, RF_PARAM_FROZEN);
    if (s.tied && s.sequence) // a.0 is cut, as all but the last parameter of a block are
        blocks.add("c", {130, 300, 20}).type(1, type).type(2, type);
    else
        blocks.add("c", {130, 300}).type(1, type);
    share(true);
    if (s.tied)
        blocks.tie(1, "a.0");
    for (int more = 0; s.pp > 1 && more < 5; more++) {
        blocks.add("p" + std::to_string(more), {90 + more});
        share(true);
        if (s.invert && more < 4)
            blocks.reversible();
    }
    if (s.copies || narrow)
        blocks.type(0, RF_BF16);
    for (int k = 0; k < s.more_blocks; k++) {
        blocks.add("d" + std::to_string(k), {100}).type(0, type);
        share(true);
    }
    if (s.scaled)
        blocks.scales_loss();
    return blocks;
}

inline rf_policy policy_of(const Setting &s)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = s.micro_batches;
    policy.seq = 8;
    policy.order = s.order;
    policy.update_on_rank_0 = s.rank0;
    policy.zero = s.zero;
    policy.recompute = s.recompute;
    policy.offload = s.offload;
    policy.disk = s.disk ? RF_OFFLOAD_OPTIMIZER : 0;
    policy.disk_block_bytes = 1;
    policy.reduce_dtype = s.reduce;
    policy.no_masters = s.no_masters;
    policy.invert = s.invert;
    policy.update_in_backward = s.eager;
    policy.pipeline = s.pipeline;
    policy.sequence_parallel = s.sequence;
    policy.optimizer.stochastic_rounding = s.zero && s.scaled;
    policy.loss_scale = s.scaled ? 64.0f : 0.0f;
    policy.first_bucket_bytes = 4;
    policy.bucket_bytes = 256 * 4;
    return policy;
}

class Job
{
  public:
    explicit Job(const Setting &s) : blocks_(blocks_of(s))
    {
        rf_policy policy = policy_of(s);
        rf_mesh mesh = {s.dp, s.tp, s.pp, s.shard, s.cp};
        for (int rank = 0; rank < s.dp * s.tp * s.cp * s.pp; rank++) {
            rf_plan *plan = nullptr;
            EXPECT_EQ(
                rf_plan_build({blocks_.blocks(), blocks_.count()}, &mesh, &policy, rank, &plan), 0)
                << rf_last_error()->message;
            plans_.push_back(plan);
        }
    }
    ~Job()
    {
        for (rf_plan *plan : plans_)
            rf_plan_destroy(plan);
    }
    int check() const
    {
        return rf_plan_check(plans_.data(), (int)plans_.size());
    }
    rf_plan *rank(int r) const
    {
        return plans_[(size_t)r];
    }
    int ranks() const
    {
        return (int)plans_.size();
    }
    rf_list &list(int r) const
    {
        return plans_[(size_t)r]->lists[RF_LIST_STEP];
    }

  private:
    StubBlocks blocks_;
    std::vector<rf_plan *> plans_;
};

// ------------------------------------------------------------

inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 29);
}

// Memory as cells between all ends of values, one history each; for gradients one per block, since
// blocks write different parts of a piece.
class Memory
{
  public:
    explicit Memory(const rf_plan *plan) : plan_(plan)
    {
        std::map<int, std::set<uint64_t>> ends;
        for (int v = 0; v < plan->value_count; v++) {
            ends[plan->values[v].region].insert(plan->values[v].offset);
            ends[plan->values[v].region].insert(plan->values[v].offset + plan->values[v].bytes);
        }
        for (auto &region : ends)
            for (uint64_t byte : region.second)
                cells_[{region.first, byte}] = mix((uint64_t)region.first, byte);
    }
    // The histories of a value for this block (-1: for all).
    std::vector<uint64_t *> of(int value, int block)
    {
        const rf_value &v = plan_->values[value];
        std::vector<uint64_t *> out;
        const auto end = cells_.lower_bound({v.region, v.offset + v.bytes});
        for (auto at = cells_.lower_bound({v.region, v.offset}); at != end; ++at) {
            auto &cell = *at;
            if (v.kind != RF_VALUE_GRAD || block < 0)
                out.push_back(&cell.second);
            if (v.kind == RF_VALUE_GRAD)
                for (int b = 0; b < plan_->block_count; b++)
                    if (block < 0 || b == block)
                        out.push_back(&parts_[{v.region, cell.first.second, b + 1}]);
        }
        return out;
    }
    const rf_plan *plan() const
    {
        return plan_;
    }

  private:
    const rf_plan *plan_;
    std::map<std::pair<int, uint64_t>, uint64_t> cells_; // by region and byte
    std::map<std::tuple<int, uint64_t, int>, uint64_t> parts_;
};

// Runs lanes in random order with random durations: reads when an instruction begins, writes when
// it ends. A written value depends on everything that was read, and on the instruction's place; a
// copy of one history is that history. Results are the parameters, states and scalars of all ranks;
// 0: it did not terminate.
class Machine
{
  public:
    Machine(const Job &job, uint32_t seed) : job_(job), random_(seed)
    {
        for (int r = 0; r < job.ranks(); r++) {
            memory_.emplace_back(job.rank(r));
            std::vector<int> lanes[RF_LANE_COUNT];
            for (int i = 0; i < job.list(r).count; i++)
                lanes[job.list(r).instructions[i].lane].push_back(i);
            lanes_.emplace_back(std::begin(lanes), std::end(lanes));
            next_.emplace_back(RF_LANE_COUNT, 0);
            busy_.emplace_back(RF_LANE_COUNT, false);
        }
    }
    uint64_t run()
    {
        for (;;) {
            std::vector<std::function<void()>> can;
            for (int r = 0; r < job_.ranks(); r++)
                for (int lane = 0; lane < RF_LANE_COUNT; lane++)
                    offer(r, lane, can);
            for (int r = 0; r < job_.ranks(); r++) {
                for (int lane = RF_LANE_DATA; rf_lane_collects(lane); lane++)
                    offer_transfer(job_.rank(r)->groups[lane], r, lane, can);
                for (int lane = 0; lane < RF_LANE_COUNT; lane++)
                    if (rf_lane_sends(lane))
                        offer_message(r, lane, lane + 1, can);
            }
            if (can.empty())
                break;
            can[random_() % can.size()]();
        }
        return result();
    }

  private:
    struct Work {
        std::vector<std::pair<uint64_t *, uint64_t>> writes;
    };
    const rf_instruction *head(int r, int lane) const
    {
        size_t at = (size_t)next_[(size_t)r][(size_t)lane];
        const auto &list = lanes_[(size_t)r][(size_t)lane];
        return at < list.size() ? &job_.list(r).instructions[list[at]] : nullptr;
    }
    bool free_to_go(int r, const rf_instruction *i) const
    {
        const rf_wait *waits = rf_plan_waits(job_.rank(r), i);
        for (int k = 0; k < i->waits; k++)
            if (next_[(size_t)r][(size_t)waits[k].lane] <= waits[k].position)
                return false;
        return true;
    }
    void offer(int r, int lane, std::vector<std::function<void()>> &can)
    {
        if (busy_[(size_t)r][(size_t)lane]) {
            can.push_back([=] { end(r, lane); });
            return;
        }
        const rf_instruction *i = rf_lane_transfers(lane) ? nullptr : head(r, lane);
        if (i && free_to_go(r, i))
            can.push_back([=] { begin(r, lane, read(r, i)); });
    }
    // Once for a group: by its first rank.
    void offer_transfer(const rf_plan_group &group, int first, int lane,
                        std::vector<std::function<void()>> &can)
    {
        if (!group.size || group.first != first)
            return;
        for (int k = 0; k < group.size; k++) {
            const int r = group.first + k * group.stride;
            const rf_instruction *i = head(r, lane);
            if (busy_[(size_t)r][(size_t)lane] || !i || !free_to_go(r, i))
                return;
        }
        can.push_back([=] {
            uint64_t all = 0;
            for (int k = 0; k < group.size; k++)
                all = mix(all, read(group.first + k * group.stride,
                                    head(group.first + k * group.stride, lane)));
            for (int k = 0; k < group.size; k++)
                begin(group.first + k * group.stride, lane, all);
        });
    }
    static bool copies(rf_verb verb)
    {
        return verb == RF_VERB_FETCH || verb == RF_VERB_EVICT;
    }
    // The sent value is received unchanged.
    void offer_message(int r, int lane, int other, std::vector<std::function<void()>> &can)
    {
        const rf_instruction *send = head(r, lane);
        if (!send || busy_[(size_t)r][(size_t)lane] || !free_to_go(r, send))
            return;
        const int peer = rf_plan_transfer(job_.rank(r), send)->peer;
        const rf_instruction *recv = peer >= 0 && peer < job_.ranks() ? head(peer, other) : nullptr;
        if (!recv || busy_[(size_t)peer][(size_t)other] || !free_to_go(peer, recv) ||
            rf_plan_transfer(job_.rank(peer), recv)->peer != r)
            return;
        can.push_back([=] {
            const uint64_t seen = read(r, send);
            begin(r, lane, seen);
            begin(peer, other, seen);
        });
    }
    uint64_t read(int r, const rf_instruction *i)
    {
        const int *operands = rf_plan_operands(job_.rank(r), i);
        // A repeated forward pass computes the same.
        const rf_verb verb = i->verb == RF_VERB_RECOMPUTE ? RF_VERB_FORWARD : i->verb;
        uint64_t seen = mix((uint64_t)verb, (uint64_t)(i->micro_batch + 1));
        seen = i->phase ? mix(seen, (uint64_t)i->phase) : seen;
        if (copies(verb)) {
            std::set<uint64_t> histories;
            for (int k = 0; k < i->ins; k++)
                for (uint64_t *cell : memory_[(size_t)r].of(operands[k], i->block))
                    histories.insert(*cell);
            if (histories.size() == 1)
                return *histories.begin();
        }
        for (int k = 0; k < i->ins; k++) { // cells with one history count as one
            std::set<uint64_t> histories;
            for (uint64_t *cell : memory_[(size_t)r].of(operands[k], i->block))
                if (histories.insert(*cell).second)
                    seen = mix(seen, *cell);
        }
        if (const rf_transfer *t = rf_plan_transfer(job_.rank(r), i))
            seen = mix(mix(seen, (uint64_t)t->op), mix(t->count, (uint64_t)t->order));
        return mix(seen, (uint64_t)(i->block + 1));
    }
    void begin(int r, int lane, uint64_t seen)
    {
        const rf_instruction *i = head(r, lane);
        const int *outs = rf_plan_operands(job_.rank(r), i) + i->ins;
        Work &work = work_[{r, lane}];
        work.writes.clear();
        for (int k = 0; k < i->outs; k++) {
            for (uint64_t *cell : memory_[(size_t)r].of(outs[k], i->block))
                work.writes.emplace_back(cell, copies(i->verb) ? seen : mix(seen, (uint64_t)k));
        }
        // While it runs nobody finds usable values there.
        for (auto &write : work.writes)
            *write.first = random_();
        busy_[(size_t)r][(size_t)lane] = true;
    }
    void end(int r, int lane)
    {
        for (auto &write : work_[{r, lane}].writes)
            *write.first = write.second;
        busy_[(size_t)r][(size_t)lane] = false;
        next_[(size_t)r][(size_t)lane]++;
    }
    uint64_t result()
    {
        uint64_t all = 1;
        for (int r = 0; r < job_.ranks(); r++) {
            for (int lane = 0; lane < RF_LANE_COUNT; lane++)
                if (head(r, lane))
                    return 0;
            for (int v = 0; v < job_.rank(r)->value_count; v++) {
                rf_value_kind kind = job_.rank(r)->values[v].kind;
                if (rf_value_is_temporary(job_.rank(r), kind))
                    continue;
                if (kind == RF_VALUE_PARAM || kind == RF_VALUE_COPY || kind == RF_VALUE_STATE ||
                    kind == RF_VALUE_PARAM_SHARD || kind == RF_VALUE_COPY_SHARD ||
                    kind == RF_VALUE_SCALARS)
                    for (uint64_t *cell : memory_[(size_t)r].of(v, -1))
                        all = mix(all, *cell);
            }
        }
        return all;
    }

    const Job &job_;
    std::mt19937 random_;
    std::vector<Memory> memory_;
    std::vector<std::vector<std::vector<int>>> lanes_;
    std::vector<std::vector<int>> next_;
    std::vector<std::vector<bool>> busy_;
    std::map<std::pair<int, int>, Work> work_;
};

#endif
