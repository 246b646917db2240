// SPDX-License-Identifier: MIT
//
// Changes of one instruction, operand, wait, transfer or value of a plan's list: the mutants that
// the checker must refuse.
#ifndef RF_TESTS_TRAIN_PLAN_MUTANTS_H
#define RF_TESTS_TRAIN_PLAN_MUTANTS_H

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "plan_machine.h"

namespace
{

void count_positions(rf_list &list)
{
    std::fill(std::begin(list.positions), std::end(list.positions), 0);
    for (int i = 0; i < list.count; i++)
        list.positions[list.instructions[i].lane]++;
}

// Restores the previous value at the end.
class Restored
{
  public:
    Restored(const Job &job, int r) : job_(job), r_(r)
    {
        const rf_plan *p = job.rank(r);
        const rf_list &list = job.list(r);
        instructions_.assign(list.instructions, list.instructions + list.count);
        operands_.assign(p->operands, p->operands + p->operand_count);
        roles_.assign(p->roles, p->roles + p->operand_count);
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
        std::copy(roles_.begin(), roles_.end(), p->roles);
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
    std::vector<uint8_t> roles_;
    std::vector<rf_wait> waits_;
    std::vector<rf_transfer> transfers_;
    std::vector<rf_value> values_;
};

// Waits count places of lanes: they are adjusted to keep the same instruction.
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

// One kind of change; false: not applicable.
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
    for (int i = 0; i < list.count; i++) // a wait for the very first becomes none
        for (int k = 0; k < list.instructions[i].waits; k++)
            if (plan->waits[list.instructions[i].first_wait + k].position < 0)
                return false;
    return true;
}

bool duplicate(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    const int at = any(random, list.count), place = place_of(list, at);
    if (list.count == list.capacity)
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
    if (a.lane != b.lane) // only their place in the list changes, which does not matter
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
    uint8_t *roles = plan->roles + i.first_operand;
    std::copy(first + k + 1, first + i.ins + i.outs, first + k);
    std::copy(roles + k + 1, roles + i.ins + i.outs, roles + k);
    (k < i.ins ? i.ins : i.outs)--;
    return true;
}

template <class T> bool set(T &to, T value)
{
    const bool changes = to != value;
    to = value;
    return changes;
}

// Another role, or that of another operand of the same side, which gets this one.
bool change_role(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    const rf_instruction &i = list.instructions[any(random, list.count)];
    if (i.ins + i.outs == 0)
        return false;
    const int k = any(random, i.ins + i.outs), begin = k < i.ins ? 0 : i.ins;
    uint8_t *roles = plan->roles + i.first_operand;
    uint8_t &other = roles[begin + any(random, k < i.ins ? i.ins : i.outs)];
    if (random() % 2 == 0)
        return set(roles[k], (uint8_t)any(random, RF_ROLE_COUNT));
    std::swap(roles[k], other);
    return roles[k] != other;
}

bool change_field(rf_plan *plan, rf_list &list, std::mt19937 &random)
{
    rf_instruction &i = list.instructions[any(random, list.count)];
    switch (random() % 6) {
    case 4:
        i.phase += random() % 2 ? 1 : -1;
        return rf_verb_calls_block(i.verb) || i.verb == RF_VERB_EXCHANGE;
    case 5:
        return i.verb == RF_VERB_EXCHANGE && set(i.call, (rf_verb)any(random, RF_VERB_COUNT));
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
    {"change role", change_role},
    {"change field", change_field},
    {"change transfer", change_transfer},
};

} // namespace

#endif
