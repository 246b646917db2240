// SPDX-License-Identifier: MIT
//
// The checker accepts the plans of every rank count, order and policy, and refuses nearly every
// change of one; what it lets pass changes no result, which another way of running a list shows:
// one that knows nothing of what verbs mean, runs lanes at random and mixes what is read into what
// is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "stub_blocks.h"

extern "C" {
#include "parallel/passes.h"
}

namespace
{

struct Setting {
    const char *name;
    int dp, micro_batches;
    rf_order order;
    bool rank0, scaled, tied, copies;
    int zero = 0;
};

StubBlocks blocks_of(const Setting &s)
{
    StubBlocks blocks;
    blocks.add("a", {300, 64}).add("b", {200, 70}).add("c", {130, 300});
    if (s.tied)
        blocks.tie(1, "a.0");
    if (s.copies)
        blocks.type(0, RF_BF16);
    if (s.scaled)
        blocks.scales_loss();
    return blocks;
}

rf_policy policy_of(const Setting &s)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = s.micro_batches;
    policy.seq = 8;
    policy.order = s.order;
    policy.update_on_rank_0 = s.rank0;
    policy.zero = s.zero;
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
        rf_mesh mesh = {s.dp, 1, 1};
        for (int rank = 0; rank < s.dp; rank++) {
            rf_plan *plan = nullptr;
            EXPECT_EQ(rf_plan_build(blocks_.blocks(), blocks_.count(), &mesh, &policy, rank, &plan),
                      0)
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

const Setting settings[] = {
    {"one", 1, 1, RF_ORDER_RING, false, false, false, false},
    {"accumulates", 1, 3, RF_ORDER_RING, false, true, true, false},
    {"tree_of_one", 1, 7, RF_ORDER_TREE, false, false, true, true},
    {"ring", 2, 4, RF_ORDER_RING, false, false, true, false},
    {"tree", 2, 4, RF_ORDER_TREE, false, true, true, false},
    {"uneven", 3, 7, RF_ORDER_TREE, false, false, true, true},
    {"uneven_ring", 3, 8, RF_ORDER_RING, false, true, false, true},
    {"four", 4, 6, RF_ORDER_TREE, false, false, false, false},
    {"rank_0", 2, 4, RF_ORDER_RING, true, true, true, true},
    {"rank_0_of_3", 3, 4, RF_ORDER_RING, true, false, false, false},
    {"zero_1", 2, 4, RF_ORDER_TREE, false, true, true, true, 1},
    {"zero_1_of_3", 3, 4, RF_ORDER_RING, false, false, true, false, 1},
};

// ---- an interpreter that knows nothing
// ------------------------------------------------------------

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 29);
}

// Memory as cells between all ends of values, one history each; of gradients one for every block,
// since blocks write different parts of a piece.
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
                cells_[{region.first, byte, 0}] = mix((uint64_t)region.first, byte);
    }
    // Which histories a value has for this block (-1: for all).
    std::vector<uint64_t *> of(int value, int block)
    {
        const rf_value &v = plan_->values[value];
        std::vector<uint64_t *> out;
        for (auto &cell : cells_) {
            if (std::get<0>(cell.first) != v.region || std::get<1>(cell.first) < v.offset ||
                std::get<1>(cell.first) >= v.offset + v.bytes || std::get<2>(cell.first) != 0)
                continue;
            if (v.kind != RF_VALUE_GRAD || block < 0)
                out.push_back(&cell.second);
            if (v.kind == RF_VALUE_GRAD)
                for (int b = 0; b < plan_->block_count; b++)
                    if (block < 0 || b == block)
                        out.push_back(&parts_[{v.region, std::get<1>(cell.first), b + 1}]);
        }
        return out;
    }
    const rf_plan *plan() const
    {
        return plan_;
    }

  private:
    using Key = std::tuple<int, uint64_t, int>;
    const rf_plan *plan_;
    std::map<Key, uint64_t> cells_, parts_;
};

// Runs lanes in random order with random durations: reads when an instruction begins, writes when
// it ends. What is written depends on everything that was read, and on where it stands. Results are
// the parameters, states and scalars of all ranks; 0: it did not come to an end.
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
            offer_transfer(can);
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
        const rf_instruction *i = lane == RF_LANE_DATA ? nullptr : head(r, lane);
        if (i && free_to_go(r, i))
            can.push_back([=] { begin(r, lane, read(r, i)); });
    }
    void offer_transfer(std::vector<std::function<void()>> &can)
    {
        for (int r = 0; r < job_.ranks(); r++) {
            const rf_instruction *i = head(r, RF_LANE_DATA);
            if (busy_[(size_t)r][RF_LANE_DATA] || !i || !free_to_go(r, i))
                return;
        }
        can.push_back([=] {
            uint64_t all = 0;
            for (int r = 0; r < job_.ranks(); r++)
                all = mix(all, read(r, head(r, RF_LANE_DATA)));
            for (int r = 0; r < job_.ranks(); r++)
                begin(r, RF_LANE_DATA, all);
        });
    }
    uint64_t read(int r, const rf_instruction *i)
    {
        const int *operands = rf_plan_operands(job_.rank(r), i);
        uint64_t seen = mix((uint64_t)i->verb, (uint64_t)(i->micro_batch + 1));
        for (int k = 0; k < i->ins; k++) { // cells with one history count as one
            uint64_t last = 0;
            for (uint64_t *cell : memory_[(size_t)r].of(operands[k], i->block))
                seen = *cell == last ? seen : mix(seen, last = *cell);
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
                work.writes.emplace_back(cell, mix(seen, (uint64_t)k));
        }
        // While it runs nobody finds there anything to use.
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
                if (kind == RF_VALUE_PARAM || kind == RF_VALUE_COPY || kind == RF_VALUE_STATE ||
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

// ---- mutants
// ---------------------------------------------------------------------------------------

void count_positions(rf_list &list)
{
    std::fill(std::begin(list.positions), std::end(list.positions), 0);
    for (int i = 0; i < list.count; i++)
        list.positions[list.instructions[i].lane]++;
}

// What it was is put back at the end.
class Restored
{
  public:
    Restored(const Job &job, int r) : job_(job), r_(r)
    {
        const rf_plan *p = job.rank(r);
        const rf_list &list = job.list(r);
        instructions_.assign(list.instructions, list.instructions + list.count);
        operands_.assign(p->operands, p->operands + p->operand_count);
        waits_.assign(p->waits, p->waits + p->wait_count);
        transfers_.assign(p->transfers, p->transfers + p->transfer_count);
        values_.assign(p->values, p->values + p->value_count);
    }
    ~Restored()
    {
        rf_plan *p = job_.rank(r_);
        rf_list &list = job_.list(r_);
        list.count = (int)instructions_.size();
        std::copy(instructions_.begin(), instructions_.end(), list.instructions);
        std::copy(operands_.begin(), operands_.end(), p->operands);
        std::copy(waits_.begin(), waits_.end(), p->waits);
        std::copy(transfers_.begin(), transfers_.end(), p->transfers);
        std::copy(values_.begin(), values_.end(), p->values);
        count_positions(list);
    }

  private:
    const Job &job_;
    int r_;
    std::vector<rf_instruction> instructions_;
    std::vector<int> operands_;
    std::vector<rf_wait> waits_;
    std::vector<rf_transfer> transfers_;
    std::vector<rf_value> values_;
};

// Waits count places of lanes: they follow the instruction that they meant.
void shift_waits(rf_plan *plan, rf_list &list, int lane, int from, int by)
{
    for (int i = 0; i < list.count; i++)
        for (int k = 0; k < list.instructions[i].waits; k++) {
            rf_wait &wait = plan->waits[list.instructions[i].first_wait + k];
            if (wait.lane == lane && wait.position >= from)
                wait.position += by;
        }
}

int place_of(const rf_list &list, int at)
{
    return (int)std::count_if(
        list.instructions, list.instructions + at,
        [&](const rf_instruction &i) { return i.lane == list.instructions[at].lane; });
}

// One kind of change; false: it does not apply there.
using Mutation = std::function<bool(rf_plan *, rf_list &, std::mt19937 &)>;

int any(std::mt19937 &random, int count)
{
    return (int)(random() % (uint32_t)count);
}

bool remove(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    const int at = any(random, list.count), place = place_of(list, at);
    const int lane = (int)list.instructions[at].lane;
    std::copy(list.instructions + at + 1, list.instructions + list.count, list.instructions + at);
    list.count--;
    shift_waits(plan, list, lane, place, -1);
    for (int i = 0; i < list.count; i++) // what waited for the very first has nothing to wait for
        for (int k = 0; k < list.instructions[i].waits; k++)
            if (plan->waits[list.instructions[i].first_wait + k].position < 0)
                return false;
    return true;
}

bool duplicate(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    const int at = any(random, list.count), place = place_of(list, at);
    if (list.count == list.room)
        return false;
    shift_waits(plan, list, (int)list.instructions[at].lane, place, 1);
    std::copy_backward(list.instructions + at, list.instructions + list.count,
                       list.instructions + list.count + 1);
    list.count++;
    return true;
}

bool swap(rf_plan *, rf_list &list, std::mt19937 &random)
{
    const int at = any(random, list.count - 1);
    rf_instruction &a = list.instructions[at], &b = list.instructions[at + 1];
    if (a.lane != b.lane) // only their place in the list changes, which is nobody's business
        return false;
    std::swap(a, b);
    std::swap(a.posts, b.posts);
    return true;
}

rf_instruction *with_waits(rf_list &list, std::mt19937 &random)
{
    std::vector<rf_instruction *> found;
    for (int i = 0; i < list.count; i++)
        if (list.instructions[i].waits > 0)
            found.push_back(&list.instructions[i]);
    return found.empty() ? nullptr : found[(size_t)any(random, (int)found.size())];
}

bool drop_wait(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction *i = with_waits(list, random);
    if (!i)
        return false;
    std::swap(plan->waits[i->first_wait + any(random, i->waits)],
              plan->waits[i->first_wait + i->waits - 1]);
    i->waits--;
    return true;
}

bool weaken_wait(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction *i = with_waits(list, random);
    rf_wait *wait = i ? &plan->waits[i->first_wait + any(random, i->waits)] : nullptr;
    return wait && wait->position-- > 0;
}

bool strengthen_wait(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction *i = with_waits(list, random);
    if (i)
        plan->waits[i->first_wait + any(random, i->waits)].position += 1 + any(random, 3);
    return i != nullptr;
}

bool move_value(rf_plan *plan, rf_list &, std::mt19937 &random)
{
    rf_value &v = plan->values[any(random, plan->value_count)];
    const uint64_t by = 64 * (uint64_t)(1 + any(random, 8));
    if (v.bytes == 0)
        return false;
    if (random() % 2)
        v.offset += by;
    else if (v.offset >= by)
        v.offset -= by;
    else
        return false;
    return true;
}

bool change_operand(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    const rf_instruction &i = list.instructions[any(random, list.count)];
    if (i.ins + i.outs == 0)
        return false;
    int &operand = plan->operands[i.first_operand + any(random, i.ins + i.outs)];
    const int before = operand;
    operand = any(random, plan->value_count);
    return operand != before;
}

bool drop_operand(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction &i = list.instructions[any(random, list.count)];
    if (i.ins + i.outs == 0)
        return false;
    const int k = any(random, i.ins + i.outs);
    int *first = plan->operands + i.first_operand;
    std::copy(first + k + 1, first + i.ins + i.outs, first + k);
    (k < i.ins ? i.ins : i.outs)--;
    return true;
}

template <class T> bool set(T &to, T value)
{
    const bool changes = to != value;
    to = value;
    return changes;
}

bool change_field(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction &i = list.instructions[any(random, list.count)];
    switch (random() % 4) {
    case 0:
        i.block += random() % 2 ? 1 : -1;
        return i.block >= -1 && list.instructions->verb == RF_VERB_LOAD &&
               rf_plan_operands(plan, &i) && (i.verb == RF_VERB_FORWARD || i.block >= 0);
    case 1:
        i.micro_batch += random() % 2 ? 1 : -1;
        return i.verb == RF_VERB_FORWARD || i.verb == RF_VERB_BACKWARD_INPUT ||
               i.verb == RF_VERB_BACKWARD_WEIGHT;
    case 2:
        return set(i.verb, (rf_verb)any(random, RF_VERB_COUNT));
    default:
        i.posts = !i.posts;
        return i.lane == RF_LANE_COMPUTE && !i.posts;
    }
}

bool change_transfer(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    std::vector<rf_transfer *> found;
    for (int i = 0; i < list.count; i++)
        if (list.instructions[i].transfer >= 0)
            found.push_back(&plan->transfers[list.instructions[i].transfer]);
    rf_transfer &t = *found[(size_t)any(random, (int)found.size())];
    switch (random() % 5) {
    case 0:
        return set(t.op, (rf_coll_op)any(random, RF_COLL_BROADCAST + 1));
    case 1:
        t.count += random() % 2 ? 64 : (size_t)-1;
        return true;
    case 2:
        t.order = t.order == RF_ORDER_RING ? RF_ORDER_TREE : RF_ORDER_RING;
        return true;
    case 3:
        return set(t.dtype, (rf_dtype)any(random, RF_DTYPE_COUNT));
    default:
        t.root++;
        return t.op == RF_COLL_REDUCE || t.op == RF_COLL_BROADCAST;
    }
}

const std::pair<const char *, Mutation> mutations[] = {
    {"remove", remove},
    {"duplicate", duplicate},
    {"swap", swap},
    {"drop wait", drop_wait},
    {"weaken wait", weaken_wait},
    {"strengthen wait", strengthen_wait},
    {"move value", move_value},
    {"change operand", change_operand},
    {"drop operand", drop_operand},
    {"change field", change_field},
    {"change transfer", change_transfer},
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
                for (int variant = 0; variant < 8; variant++) {
                    Setting s = {"",
                                 dp,
                                 m,
                                 order,
                                 (variant & 1) != 0,
                                 (variant & 2) != 0,
                                 (variant & 4) != 0,
                                 (variant & 4) == 0};
                    if (s.rank0 && order == RF_ORDER_TREE)
                        continue;
                    Job job(s);
                    ASSERT_EQ(job.check(), 0)
                        << rf_last_error()->message << " with dp " << dp << " m " << m;
                    jobs++;
                }
    EXPECT_GT(jobs, 700);
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
    for (int k = 0; k < 2000; k++) {
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
    EXPECT_GT(made, 1500);
    EXPECT_LT(survived, made / 10);
    EXPECT_EQ(seen["drop wait"].second, 0);
}
INSTANTIATE_TEST_SUITE_P(All, OfSetting, testing::ValuesIn(settings), name_of);
