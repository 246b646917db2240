/* SPDX-License-Identifier: MIT
 *
 * Random programs of mixed collectives over two to six threads. Without faults every call is exact;
 * where one rank deviates in one call, or dies, the structured error is the one that an oracle
 * predicts, on every rank. RF_PROGRAMS says how many (default 150); a watchdog is the judge of
 * hangs.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "support/ranks.h"

namespace
{

struct Call {
    rf_coll_op op;
    size_t count;
    rf_redop redop;
    rf_order order;
    int root;
    std::vector<size_t> counts; /* a v form, if there are any */
};

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

/* What the rank brings: element i of the whole it could bring is value(rank, i). */
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
        return v ? rf_reduce_scatter_v(comm, in, out, counts, RF_I64, call.redop, &opts)
                 : rf_reduce_scatter(comm, in, out, call.count, RF_I64, call.redop, &opts);
    case RF_COLL_ALL_GATHER:
        return v ? rf_all_gather_v(comm, in, out, counts, RF_I64, &opts)
                 : rf_all_gather(comm, in, out, call.count, RF_I64, &opts);
    case RF_COLL_GATHER:
        return v ? rf_gather_v(comm, in, out, counts, RF_I64, call.root, &opts)
                 : rf_gather(comm, in, out, call.count, RF_I64, call.root, &opts);
    case RF_COLL_SCATTER:
        return v ? rf_scatter_v(comm, in, out, counts, RF_I64, call.root, &opts)
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

/* Blocking, or by a request: to the other ranks that is the same. */
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

std::string text(const Call &call)
{
    return std::string(rf_coll_op_name(call.op)) + " of " + std::to_string(call.count) + " " +
           rf_redop_name(call.redop) + " root " + std::to_string(call.root) +
           (call.counts.empty() ? "" : " with counts");
}

/* The same call, but for one thing that all ranks must agree about. */
Call deviating(std::mt19937 &random, Call call, int ranks)
{
    Call other = call;
    bool rooted = call.op == RF_COLL_BROADCAST || call.op == RF_COLL_REDUCE ||
                  call.op == RF_COLL_GATHER || call.op == RF_COLL_SCATTER;
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
            if (!rooted)
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

struct Program {
    int ranks;
    std::vector<Call> calls;
    int odd = -1; /* deviates in call `at` */
    size_t at = 0;
    Call deviation = {};
    uint64_t kill_after = 0;
    int victim = -1;
};

Program random_program(uint32_t seed, int kind)
{
    std::mt19937 random(seed);
    Program program;
    program.ranks = 2 + (int)(random() % 5);
    for (size_t n = 3 + random() % 12; program.calls.size() < n;)
        program.calls.push_back(random_call(random, program.ranks));
    if (kind == 1) {
        program.odd = (int)(random() % (unsigned)program.ranks);
        program.at = random() % program.calls.size();
        program.deviation = deviating(random, program.calls[program.at], program.ranks);
    }
    if (kind == 2) {
        program.victim = (int)(random() % (unsigned)program.ranks);
        program.kill_after = 1 + random() % 16;
    }
    return program;
}

/* Returns the status of the first call that failed, else of a barrier at the end. */
int run_program(rf_comm *comm, int rank, const Program &program, uint32_t seed)
{
    Buffers buffers;
    for (size_t i = 0; i < program.calls.size(); i++) {
        bool deviates = rank == program.odd && i == program.at;
        const Call &call = deviates ? program.deviation : program.calls[i];
        int rc = run_call(comm, call, buffers, (seed + i + (size_t)rank) % 4 == 0);
        if (rc < 0)
            return rc;
        if (program.odd >= 0 && i >= program.at)
            continue; /* its part was over before anybody noticed; the result is worth nothing */
        Words want = expected(call, program.ranks, rank);
        buffers.out.resize(want.size());
        EXPECT_EQ(buffers.out, want)
            << "seed " << seed << ", rank " << rank << ", call " << i << ": " << text(call);
        if (testing::Test::HasFailure())
            return RF_ECORRUPT;
    }
    return rf_barrier(comm, nullptr);
}

uint32_t program_count()
{
    const char *wanted = getenv("RF_PROGRAMS");
    return wanted ? (uint32_t)atoi(wanted) : 150;
}

TEST(Programs, WithoutFaultsEveryCallIsExact)
{
    for (uint32_t seed = 1; seed <= program_count() && !HasFailure(); seed++) {
        Program program = random_program(seed, 0);
        ranks::World world;
        world.size = program.ranks;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            EXPECT_EQ(run_program(comm, rank, program, seed), RF_OK)
                << "seed " << seed << ": " << rf_last_error()->message;
        });
    }
}

TEST(Programs, ADeviationIsNamedByAllRanksWithItsCall)
{
    for (uint32_t seed = 1; seed <= program_count() / 3 && !HasFailure(); seed++) {
        Program program = random_program(seed, 1);
        ranks::World world;
        world.size = program.ranks;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            EXPECT_EQ(run_program(comm, rank, program, seed), RF_EMISMATCH);
            const rf_error error = *rf_last_error();
            std::string where = "seed " + std::to_string(seed) + ", rank " + std::to_string(rank) +
                                ": " + error.message + " (call " + text(program.calls[program.at]) +
                                ", rank " + std::to_string(program.odd) + " makes " +
                                text(program.deviation) + ")";
            EXPECT_EQ(error.status, RF_EMISMATCH) << where;
            EXPECT_EQ(error.sequence, program.at) << where;
            if (rank == program.odd)
                EXPECT_NE(error.rank, rank) << where;
            else
                EXPECT_EQ(error.rank, program.odd) << where;
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        });
    }
}

TEST(Programs, ADeathIsNamedByAllSurvivors)
{
    std::atomic<int> survivors{0}, named{0};
    for (uint32_t seed = 1; seed <= program_count() / 3 && !HasFailure(); seed++) {
        Program program = random_program(seed, 2);
        ranks::World world;
        world.size = program.ranks;
        world.faults.kill_rank = program.victim;
        world.faults.kill_after_messages = program.kill_after;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            int rc = run_program(comm, rank, program, seed);
            if (rank == program.victim)
                return;
            survivors++;
            if (rc == RF_OK) /* the victim may not have sent so many, or not to this rank */
                return;
            named++;
            EXPECT_EQ(rc, RF_EPEER) << "seed " << seed << ": " << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, program.victim)
                << "seed " << seed << ": " << rf_last_error()->message;
        });
    }
    /* Six of seven do; some programs are shorter than the victim's life. */
    EXPECT_GT(named, survivors / 2) << "of " << survivors << " survivors";
}

} // namespace
