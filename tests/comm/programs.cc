/* SPDX-License-Identifier: MIT
 *
 * See programs.h.
 */
#include "programs.h"
#include "support/described_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace programs
{

namespace
{

using Words = std::vector<int64_t>;

int64_t value(int rank, size_t i)
{
    return (int64_t)((rank + 1) * 7919 + (int)(i * 31 % 1013));
}

int64_t fold(rf_redop redop, int ranks, size_t i)
{
    int64_t result = value(0, i);
    for (int r = 1; r < ranks; r++) {
        int64_t v = value(r, i);
        result = redop == RF_MIN   ? std::min(result, v)
                 : redop == RF_MAX ? std::max(result, v)
                                   : result + v;
    }
    return redop == RF_AVG ? result / ranks : result;
}

Call random_call(std::mt19937 &random, int ranks)
{
    const rf_coll_op ops[] = {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER,
                              RF_COLL_BROADCAST,  RF_COLL_BARRIER,        RF_COLL_REDUCE,
                              RF_COLL_GATHER,     RF_COLL_SCATTER,        RF_COLL_ALL_TO_ALL};
    const size_t sizes[] = {0, 1, 5, 64, 1000, 20000};
    const rf_redop redops[] = {RF_SUM, RF_AVG, RF_MIN, RF_MAX};
    Call call = {};
    call.op = ops[random() % 9];
    call.count = call.op == RF_COLL_BARRIER ? 0 : sizes[random() % 6];
    call.redop = redops[random() % 4];
    call.order = (rf_order)(random() % 3);
    call.root = (int)(random() % (unsigned)ranks);
    bool can_v = call.op == RF_COLL_ALL_GATHER || call.op == RF_COLL_GATHER ||
                 call.op == RF_COLL_SCATTER || call.op == RF_COLL_REDUCE_SCATTER;
    if (can_v && random() % 2)
        for (int r = 0; r < ranks; r++)
            call.counts.push_back(random() % 3 * call.count);
    return call;
}

struct Buffers {
    Words in, out;
};

/* Offsets and lengths of the pieces. */
size_t piece_of(const Call &call, int rank)
{
    return call.counts.empty() ? call.count : call.counts[(size_t)rank];
}
size_t begin_of(const Call &call, int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++)
        begin += piece_of(call, r);
    return begin;
}

/* The rank's input: element i of the whole is value(rank, i). */
int start_call(rf_comm *comm, const Call &call, Buffers &b, rf_coll_opts opts)
{
    int ranks = rf_comm_size(comm), rank = rf_comm_rank(comm);
    size_t whole = std::max(begin_of(call, ranks), call.count * (size_t)ranks) + 1;
    opts.order = call.order;
    b.in.resize(whole);
    b.out.assign(whole, -1);
    for (size_t i = 0; i < whole; i++)
        b.in[i] = value(rank, i);
    const int64_t *in = b.in.data();
    int64_t *out = b.out.data();
    const size_t *counts = call.counts.data();
    bool v = !call.counts.empty();
    switch (call.op) {
    case RF_COLL_ALL_REDUCE:
        return rf_all_reduce(comm, in, out, call.count, RF_I64, call.redop, &opts);
    case RF_COLL_REDUCE:
        return rf_reduce(comm, in, out, call.count, RF_I64, call.redop, call.root, &opts);
    case RF_COLL_REDUCE_SCATTER:
        return v ? described::reduce_scatter_v(comm, in, out, counts, RF_I64, call.redop, &opts)
                 : rf_reduce_scatter(comm, in, out, call.count, RF_I64, call.redop, &opts);
    case RF_COLL_ALL_GATHER:
        return v ? described::all_gather_v(comm, in, out, counts, RF_I64, &opts)
                 : rf_all_gather(comm, in, out, call.count, RF_I64, &opts);
    case RF_COLL_GATHER:
        return v ? described::gather_v(comm, in, out, counts, RF_I64, call.root, &opts)
                 : rf_gather(comm, in, out, call.count, RF_I64, call.root, &opts);
    case RF_COLL_SCATTER:
        return v ? described::scatter_v(comm, in, out, counts, RF_I64, call.root, &opts)
                 : rf_scatter(comm, in, out, call.count, RF_I64, call.root, &opts);
    case RF_COLL_ALL_TO_ALL:
        return rf_all_to_all(comm, in, out, call.count, RF_I64, &opts);
    case RF_COLL_BROADCAST:
        if (rank == call.root)
            b.out = b.in;
        return rf_broadcast(comm, b.out.data(), call.count, RF_I64, call.root, &opts);
    default:
        return rf_barrier(comm, &opts);
    }
}

/* Blocking, or by a request: the other ranks see no difference. */
int run_call(rf_comm *comm, const Call &call, Buffers &b, bool asynchronous)
{
    rf_request *request = nullptr;
    rf_coll_opts opts = {};
    opts.request = asynchronous ? &request : nullptr;
    int rc = start_call(comm, call, b, opts);
    if (request)
        rc = rf_request_wait(request, 0);
    rf_request_free(request);
    return rc;
}

Words expected(const Call &call, int ranks, int rank)
{
    Words want;
    bool is_root = rank == call.root;
    size_t begin = begin_of(call, rank), mine = piece_of(call, rank);
    switch (call.op) {
    case RF_COLL_ALL_REDUCE:
    case RF_COLL_REDUCE:
        for (size_t i = 0; (is_root || call.op != RF_COLL_REDUCE) && i < call.count; i++)
            want.push_back(fold(call.redop, ranks, i));
        break;
    case RF_COLL_REDUCE_SCATTER:
        for (size_t i = 0; i < mine; i++)
            want.push_back(fold(call.redop, ranks, begin + i));
        break;
    case RF_COLL_ALL_GATHER:
    case RF_COLL_GATHER:
        for (int r = 0; (is_root || call.op != RF_COLL_GATHER) && r < ranks; r++)
            for (size_t i = 0; i < piece_of(call, r); i++)
                want.push_back(value(r, i));
        break;
    case RF_COLL_SCATTER:
        for (size_t i = 0; i < mine; i++)
            want.push_back(value(call.root, begin + i));
        break;
    case RF_COLL_ALL_TO_ALL:
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < call.count; i++)
                want.push_back(value(r, (size_t)rank * call.count + i));
        break;
    case RF_COLL_BROADCAST:
        for (size_t i = 0; i < call.count; i++)
            want.push_back(value(call.root, i));
        break;
    default:
        break;
    }
    return want;
}

bool is_rooted(const Call &call)
{
    return call.op == RF_COLL_BROADCAST || call.op == RF_COLL_REDUCE || call.op == RF_COLL_GATHER ||
           call.op == RF_COLL_SCATTER;
}

/* The same call with one difference in an argument that must be equal on all ranks. */
Call deviating(std::mt19937 &random, Call call, int ranks)
{
    Call other = call;
    bool reduces = call.op == RF_COLL_ALL_REDUCE || call.op == RF_COLL_REDUCE ||
                   call.op == RF_COLL_REDUCE_SCATTER;
    for (;;)
        switch (random() % 5) {
        case 0:
            if (call.op == RF_COLL_BARRIER || !call.counts.empty())
                break;
            other.count = call.count + 1 + random() % 3;
            return other;
        case 1:
            if (!is_rooted(call))
                break;
            other.root = (call.root + 1) % ranks;
            return other;
        case 2:
            if (!reduces)
                break;
            other.redop = call.redop == RF_MAX ? RF_MIN : RF_MAX;
            return other;
        case 3:
            other.order = (rf_order)((call.order + 1) % 3);
            return other;
        default:
            other = random_call(random, ranks);
            if (other.op == call.op)
                break;
            return other;
        }
}

ranks::World world_of(std::mt19937 &random, int size, Fault fault, uint64_t messages)
{
    ranks::World world;
    world.size = size;
    uint64_t number = 1 + random() % messages;
    switch (fault) {
    case DEATH:
        world.faults.kill_rank = (int)(random() % (unsigned)size);
        world.faults.kill_after_messages = 1 + random() % 16;
        break;
    case LOSS:
        world.faults.drop_message = number;
        world.timeout_s = 0.4;
        break;
    case DELAY:
        world.faults.delay_message = number;
        world.faults.delay_s = (double)(random() % 400) * 1e-3;
        break;
    case DAMAGE:
        world.checksum = true;
        (random() % 2 ? world.faults.damage_message : world.faults.corrupt_message) = number;
        break;
    default:
        break;
    }
    return world;
}

void check(const Program &program, int rank, size_t i, Words &out)
{
    Words want = expected(program.calls[i], program.world.size, rank);
    out.resize(want.size());
    EXPECT_EQ(out, want) << "seed " << program.seed << ", rank " << rank << ", call " << i << ": "
                         << text(program.calls[i]);
}

Outcome run_rank(rf_comm *comm, int rank, const Program &program)
{
    Buffers buffers;
    Outcome outcome;
    int rc = RF_OK;
    for (size_t i = 0; rc == RF_OK && i <= program.calls.size(); i++) {
        outcome.failed_at = i;
        if (i == program.calls.size()) {
            rc = rf_barrier(comm, nullptr);
        } else {
            bool deviates = rank == program.deviating_rank && i == program.at;
            bool asynchronous = (program.seed + i + (size_t)rank) % 4 == 0;
            rc = run_call(comm, deviates ? program.deviation : program.calls[i], buffers,
                          asynchronous);
            /* Otherwise its part completed before anybody noticed, and the result is invalid. */
            if (rc == RF_OK && (program.deviating_rank < 0 || i < program.at))
                check(program, rank, i, buffers.out);
        }
        outcome.messages.push_back(rf_comm_sent_messages(comm));
    }
    if (rc < 0)
        outcome.error = *rf_last_error();
    if (rc < 0 && rf_barrier(comm, nullptr) < 0)
        outcome.afterwards = *rf_last_error();
    return outcome;
}

} // namespace

std::string text(const Call &call)
{
    return std::string(rf_coll_op_name(call.op)) + " of " + std::to_string(call.count) + " " +
           rf_redop_name(call.redop) + " root " + std::to_string(call.root) +
           (call.counts.empty() ? "" : " with counts");
}

rf_contract contract(const Call &call, size_t sequence)
{
    bool reduces = call.op == RF_COLL_ALL_REDUCE || call.op == RF_COLL_REDUCE ||
                   call.op == RF_COLL_REDUCE_SCATTER;
    rf_contract made = {};
    made.sequence = sequence;
    made.count = call.count;
    if (!call.counts.empty())
        made.count = std::accumulate(call.counts.begin(), call.counts.end(), size_t{0});
    made.op = (uint8_t)call.op;
    made.dtype = (uint8_t)(call.op == RF_COLL_BARRIER ? RF_U8 : RF_I64);
    made.redop = reduces ? (uint8_t)call.redop : 0;
    made.order = (uint8_t)call.order;
    made.root = is_rooted(call) ? call.root : -1;
    return made;
}

Program make(uint32_t seed, Fault fault, uint64_t messages)
{
    std::mt19937 random(seed);
    Program program;
    program.seed = seed;
    int size = 2 + (int)(random() % 5);
    for (size_t n = 3 + random() % 12; program.calls.size() < n;)
        program.calls.push_back(random_call(random, size));
    if (fault == DEVIATION) {
        program.deviating_rank = (int)(random() % (unsigned)size);
        program.at = random() % program.calls.size();
        program.deviation = deviating(random, program.calls[program.at], size);
    }
    program.world = world_of(random, size, fault, messages);
    return program;
}

std::vector<Outcome> run(const Program &program)
{
    std::vector<Outcome> outcomes((size_t)program.world.size);
    ranks::run(program.world, [&](rf_comm *comm, int rank) {
        outcomes[(size_t)rank] = run_rank(comm, rank, program);
    });
    return outcomes;
}

} // namespace programs
