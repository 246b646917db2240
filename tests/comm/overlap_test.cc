/* SPDX-License-Identifier: MIT
 *
 * Several operations in progress on one communicator: concurrent collectives, sends and receives
 * beside them, in every order of starting and waiting; dependencies between them; and how all end
 * when one fails.
 */
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "support/ranks.h"

namespace
{

using Ints = std::vector<int32_t>;

#define RUNS(call)                                                                                 \
    do {                                                                                           \
        ASSERT_EQ(call, RF_OK) << rf_last_error()->message;                                        \
    } while (0)

rf_coll_opts with(rf_request **request)
{
    rf_coll_opts opts = {};
    opts.request = request;
    return opts;
}

int ended(rf_request *request)
{
    int rc = rf_request_wait(request, 0);
    rf_request_free(request);
    return rc;
}

rf_request *start_sum(rf_comm *comm, const Ints &in, Ints &out)
{
    rf_request *request = nullptr;
    rf_coll_opts opts = with(&request);
    EXPECT_EQ(rf_all_reduce(comm, in.data(), out.data(), in.size(), RF_I32, RF_SUM, &opts), RF_OK)
        << rf_last_error()->message;
    return request;
}

rf_request *start_send(rf_comm *comm, const Ints &data, int peer, int tag)
{
    rf_request *request = nullptr;
    rf_coll_opts opts = with(&request);
    EXPECT_EQ(rf_send(comm, data.data(), data.size(), RF_I32, peer, tag, &opts), RF_OK)
        << rf_last_error()->message;
    return request;
}

rf_request *start_recv(rf_comm *comm, Ints &data, int peer, int tag)
{
    rf_request *request = nullptr;
    rf_coll_opts opts = with(&request);
    EXPECT_EQ(rf_recv(comm, data.data(), data.size(), RF_I32, peer, tag, &opts), RF_OK)
        << rf_last_error()->message;
    return request;
}

class Overlap : public testing::TestWithParam<ranks::World>
{
};
INSTANTIATE_TEST_SUITE_P(All, Overlap, testing::ValuesIn(ranks::worlds({1, 3, 4}, {2, 4})),
                         [](const testing::TestParamInfo<ranks::World> &info) {
                             return ranks::name(info.param);
                         });

/* One step of a program that all ranks follow; each decides for itself what it waits for. */
struct Step {
    int kind, root, src, dst, tag;
    size_t count;
};

std::vector<Step> program(unsigned seed, int size, size_t steps)
{
    std::mt19937 random(seed);
    const size_t counts[] = {0, 1, 2, 3, 17, 100, 1021, 3000, 9000, 70001, 1500000};
    std::vector<Step> out;
    for (size_t i = 0; i < steps; i++)
        out.push_back({(int)(random() % 7), (int)(random() % (unsigned)size),
                       (int)(random() % (unsigned)size), (int)(random() % (unsigned)size),
                       (int)(random() % 3), counts[random() % (i % 25 == 9 ? 11 : 9)]});
    return out;
}

/* A started step and its expected result. */
struct PendingOp {
    Ints in, out, want;
    rf_request *request = nullptr;
};

int32_t value(size_t step, int rank)
{
    return (int32_t)(step * 31 + (size_t)rank * 7 + 1);
}

/* Starts this rank's part of the step; false: it has none. */
bool begin(rf_comm *comm, const Step &step, size_t number, PendingOp &pending, bool later)
{
    const int rank = rf_comm_rank(comm), size = rf_comm_size(comm);
    const size_t n = step.count, all = n * (size_t)size;
    rf_coll_opts opts = {};
    opts.request = later || (step.kind == 6 && step.src == step.dst) ? &pending.request : nullptr;
    int32_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(number, r);
    Ints mine(n, value(number, rank)), each;
    for (int r = 0; r < size; r++)
        each.insert(each.end(), n, value(number, r));
    int rc = RF_OK;
    switch (step.kind) {
    case 0:
    case 1:
        pending.in = mine;
        pending.out.assign(n, -1);
        pending.want.assign(n, sum);
        rc = rf_all_reduce(comm, pending.in.data(), pending.out.data(), n, RF_I32, RF_SUM, &opts);
        break;
    case 2:
        pending.in = mine;
        pending.out.assign(all, -1);
        pending.want = each;
        rc = rf_all_gather(comm, pending.in.data(), pending.out.data(), n, RF_I32, &opts);
        break;
    case 3:
        pending.out = mine;
        pending.want.assign(n, value(number, step.root));
        rc = rf_broadcast(comm, pending.out.data(), n, RF_I32, step.root, &opts);
        break;
    case 4:
        pending.in = Ints(all, value(number, rank));
        pending.out.assign(n, -1);
        pending.want.assign(n, sum);
        rc = rf_reduce_scatter(comm, pending.in.data(), pending.out.data(), n, RF_I32, RF_SUM,
                               &opts);
        break;
    case 5:
        pending.in = Ints(all, value(number, rank));
        pending.out.assign(all, -1);
        pending.want = each;
        rc = rf_all_to_all(comm, pending.in.data(), pending.out.data(), n, RF_I32, &opts);
        break;
    default:
        if (rank != step.src && rank != step.dst)
            return false;
        if (rank == step.src) {
            pending.in.assign(n, value(number, rank));
            rc = rf_send(comm, pending.in.data(), n, RF_I32, step.dst, step.tag, &opts);
            EXPECT_EQ(rc, RF_OK) << rf_last_error()->message;
        }
        if (rank == step.src && rank == step.dst) {
            EXPECT_EQ(ended(pending.request), RF_OK) << rf_last_error()->message;
        }
        if (rank == step.dst) {
            pending.out.assign(n, -1);
            pending.want.assign(n, value(number, step.src));
            rc = rf_recv(comm, pending.out.data(), n, RF_I32, step.src, step.tag, &opts);
        }
    }
    EXPECT_EQ(rc, RF_OK) << rf_last_error()->message;
    return rc == RF_OK;
}

TEST_P(Overlap, AnyMixOfOperationsIsExactInAnyOrderOfWaits)
{
    const char *programs = getenv("RF_PROGRAMS");
    const unsigned seeds = programs ? (unsigned)atoi(programs) / 100 : 1;
    for (unsigned seed = 1; seed <= std::max(seeds, 1u); seed++)
        ranks::run(GetParam(), [seed](rf_comm *comm, int rank) {
            std::mt19937 mood(seed * 977 + (unsigned)rank);
            std::vector<std::unique_ptr<PendingOp>> pending_ops;
            size_t number = 0;
            auto finish = [&](size_t i) {
                EXPECT_EQ(ended(pending_ops[i]->request), RF_OK) << rf_last_error()->message;
                EXPECT_EQ(pending_ops[i]->out, pending_ops[i]->want);
                pending_ops.erase(pending_ops.begin() + (long)i);
            };
            for (const Step &step : program(seed, rf_comm_size(comm), 150)) {
                auto pending = std::make_unique<PendingOp>();
                number++;
                if (!begin(comm, step, number, *pending, mood() % 4 != 0))
                    continue;
                if (pending->request) {
                    pending_ops.push_back(std::move(pending));
                } else {
                    EXPECT_EQ(pending->out, pending->want);
                }
                while (!pending_ops.empty() && (pending_ops.size() > 20 || mood() % 8 == 0))
                    finish(mood() % pending_ops.size());
            }
            while (!pending_ops.empty())
                finish(mood() % pending_ops.size());
            EXPECT_EQ(rf_comm_wait(comm), RF_OK);
        });
}

/* One writes what another reads, without a wait in between; a short one behind a long one. */
TEST_P(Overlap, ADependentOperationRunsAfterTheOlderOne)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        const int32_t size = rf_comm_size(comm);
        for (size_t count : {size_t{3}, size_t{2000000}}) {
            Ints a(count, 1), b(count, 0), first(2, -1), other(2, 5);
            std::vector<rf_request *> requests;
            requests.push_back(start_sum(comm, a, b)); /* b = size */
            rf_request *request = nullptr;
            rf_coll_opts opts = with(&request);
            /* Reads the end of the previous output. */
            RUNS(rf_all_reduce(comm, b.data() + count - 2, first.data(), 2, RF_I32, RF_SUM, &opts));
            requests.push_back(request);
            /* Writes the input of the first and reads the output of the previous one. */
            RUNS(rf_all_reduce(comm, other.data(), a.data(), 2, RF_I32, RF_MAX, &opts));
            requests.push_back(request);
            RUNS(rf_broadcast(comm, first.data(), 1, RF_I32, 0, &opts));
            requests.push_back(request);
            RUNS(rf_all_reduce(comm, first.data(), other.data(), 2, RF_I32, RF_SUM, &opts));
            requests.push_back(request);
            RUNS(rf_request_wait_all(requests.data(), requests.size(), 0));
            EXPECT_EQ(b, Ints(count, size));
            EXPECT_EQ(first, Ints(2, size * size));
            EXPECT_EQ(other, Ints(2, size * size * size));
            EXPECT_EQ(a[0], 5);
            EXPECT_EQ(a[2], 1);
            for (rf_request *r : requests)
                rf_request_free(r);
        }
    });
}

/* Messages of one rank, sent and received in the order of `order`. */
struct Message {
    bool is_send;
    int peer, tag;
    Ints data, want;
};

TEST_P(Overlap, TenThousandTaggedPairsInRandomOrders)
{
    if (GetParam().size != 4)
        GTEST_SKIP() << "one number of ranks is enough";
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        std::mt19937 all(5), own(17 + (unsigned)rank);
        std::vector<Message> messages;
        for (int i = 0; i < 10000; i++) {
            const int src = (int)(all() % 4), dst = (int)(all() % 4), tag = (int)(all() % 40) * 25;
            const size_t count = i % 100 == 7 ? 4000 : all() % 4;
            if (rank == src)
                messages.push_back({true, dst, tag, Ints(count, i), {}});
            if (rank == dst)
                messages.push_back({false, src, tag, Ints(count, -1), Ints(count, i)});
        }
        /* In any order, except that messages of equal side, peer and tag stay in order. */
        std::vector<size_t> order(messages.size());
        std::map<std::tuple<bool, int, int>, std::vector<size_t>> lines;
        for (size_t i = 0; i < order.size(); i++) {
            order[i] = i;
            lines[{messages[i].is_send, messages[i].peer, messages[i].tag}].push_back(i);
        }
        std::shuffle(order.begin(), order.end(), own);
        std::map<std::tuple<bool, int, int>, size_t> next;
        std::vector<rf_request *> requests;
        for (size_t i : order) {
            const std::tuple<bool, int, int> key{messages[i].is_send, messages[i].peer,
                                                 messages[i].tag};
            Message &m = messages[lines[key][next[key]++]];
            requests.push_back(m.is_send ? start_send(comm, m.data, m.peer, m.tag)
                                         : start_recv(comm, m.data, m.peer, m.tag));
        }
        for (int i = 0; i < 50; i++) {
            size_t index = 0;
            RUNS(rf_request_wait_any(requests.data(), requests.size(), 0, &index));
            ASSERT_LT(index, requests.size());
            rf_request_free(requests[index]);
            requests[index] = nullptr;
        }
        RUNS(rf_request_wait_all(requests.data(), requests.size(), 0));
        for (rf_request *request : requests)
            rf_request_free(request);
        for (const Message &m : messages) {
            if (!m.is_send) {
                ASSERT_EQ(m.data, m.want) << "from rank " << m.peer << ", tag " << m.tag;
            }
        }
    });
}

/* Sends to the next rank cross those of all others, with receives before or after them and sums
 * around the ring between them: what a sender awaits may be queued behind its own send. */
TEST_P(Overlap, SendsThatCrossARingOfRanksAndSumsAroundItAllEnd)
{
    static constexpr size_t SIZES[] = {1, 1500, 5000, 70000}, SUM = 40000;
    constexpr int MESSAGES = 12, ROUNDS = 6;
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int ranks = rf_comm_size(comm), next = (rank + 1) % ranks;
        const int previous = (rank + ranks - 1) % ranks;
        if (ranks == 1)
            return; /* a ring of one rank */
        for (int round = 0; round < ROUNDS; round++) {
            std::vector<Ints> out(MESSAGES), in(MESSAGES), sums(MESSAGES, Ints(SUM, -1));
            const Ints ones(SUM, 1);
            std::vector<rf_request *> requests;
            /* Receives first, last, or mixed, and different on different ranks. */
            const int order = (round + (round >= ROUNDS / 2 ? rank : 0)) % 3;
            auto receive = [&](int i) { requests.push_back(start_recv(comm, in[i], previous, i)); };
            for (int i = 0; i < MESSAGES; i++) {
                out[i].assign(SIZES[(i + round) % 4], rank * 1000 + i);
                in[i].assign(out[i].size(), -1);
            }
            for (int i = 0; i < MESSAGES && order == 0; i++)
                receive(i);
            for (int i = 0; i < MESSAGES; i++) {
                requests.push_back(start_send(comm, out[i], next, i));
                rf_request *sum = nullptr;
                rf_coll_opts opts = with(&sum);
                opts.algorithm = i % 2 ? "ring" : nullptr;
                if (i % 3 == 0) {
                    RUNS(rf_all_reduce(comm, ones.data(), sums[i].data(), SUM, RF_I32, RF_SUM,
                                       &opts));
                    requests.push_back(sum);
                }
                if (order == 1)
                    receive(MESSAGES - 1 - i);
            }
            for (int i = 0; i < MESSAGES && order == 2; i++)
                receive(MESSAGES - 1 - i);
            for (rf_request *request : requests)
                RUNS(ended(request));
            for (int i = 0; i < MESSAGES; i++) {
                EXPECT_EQ(in[i], Ints(in[i].size(), previous * 1000 + i));
                if (i % 3 == 0) {
                    EXPECT_EQ(sums[i], Ints(SUM, ranks));
                }
            }
        }
    });
}

TEST_P(Overlap, MessagesToOneselfInEitherOrder)
{
    if (GetParam().size > 2)
        GTEST_SKIP() << "nobody else has a part in it";
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (size_t count : {0, 5, 100000}) {
            Ints a(count, 1), b(count, 2), x(count), y(count);
            rf_request *first = start_recv(comm, x, rank, 3),
                       *second = start_send(comm, a, rank, 3);
            rf_request *third = start_send(comm, b, rank, 3), *last = start_recv(comm, y, rank, 3);
            for (rf_request *request : {last, first, second, third})
                EXPECT_EQ(ended(request), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(x, a);
            EXPECT_EQ(y, b);
        }
    });
}

/* A pending receive does not forbid other calls. */
TEST_P(Overlap, WaitingReceivesBlockNoOtherOperation)
{
    if (GetParam().size != 2)
        GTEST_SKIP() << "one number of ranks is enough";
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm);
        Ints token(3000, -1), mine(3000, rank), one(1, 1), sum(1);
        const int next = (rank + 1) % size, before = (rank + size - 1) % size;
        rf_request *receive = start_recv(comm, token, before, 1);
        if (rank == 0)
            usleep(700000); /* longer than the quiet time */
        RUNS(rf_barrier(comm, nullptr));
        rf_request *total = start_sum(comm, one, sum);
        if (rank == 0)
            usleep(700000);
        RUNS(rf_send(comm, mine.data(), mine.size(), RF_I32, next, 1, nullptr));
        EXPECT_EQ(ended(receive), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(ended(total), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(token, Ints(3000, before));
        EXPECT_EQ(sum[0], size);
    });
}

TEST_P(Overlap, GroupsStartWhatHasARequestAndDoNotWaitForIt)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm);
        Ints one(40000, 1), sum(40000), got((size_t)size, -1), mine(1, rank);
        std::vector<rf_request *> requests;
        rf_request *request = nullptr;
        rf_coll_opts opts = with(&request);
        RUNS(rf_group_start(comm));
        RUNS(rf_all_reduce(comm, one.data(), sum.data(), sum.size(), RF_I32, RF_SUM, &opts));
        ASSERT_NE(request, nullptr);
        requests.push_back(request);
        for (int peer = 0; peer < size; peer++) {
            RUNS(rf_recv(comm, &got[(size_t)peer], 1, RF_I32, peer, 9, &opts));
            requests.push_back(request);
            RUNS(rf_send(comm, mine.data(), 1, RF_I32, peer, 9, &opts));
            requests.push_back(request);
        }
        int32_t x = 2, y = 0;
        RUNS(rf_all_reduce(comm, &x, &y, 1, RF_I32, RF_SUM, nullptr));
        RUNS(rf_group_end(comm));
        EXPECT_EQ(y, 2 * size);
        RUNS(rf_request_wait_all(requests.data(), requests.size(), 0));
        EXPECT_EQ(sum, Ints(40000, size));
        for (int peer = 0; peer < size; peer++)
            EXPECT_EQ(got[(size_t)peer], peer);
        for (rf_request *r : requests)
            rf_request_free(r);
    });
}

/* ---- ends ------------------------------------------------------------------------------------ */

TEST(OverlapEnds, ADeathIsTheErrorOfAllOperations)
{
    ranks::World world;
    world.size = 3;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 7;
    std::atomic<int> through{0};
    ranks::run(world, [&](rf_comm *comm, int rank) {
        while (rank == 2 && through < 2)
            usleep(1000);
        std::vector<Ints> data(30, Ints(50000, 1));
        Ints never(5);
        std::vector<rf_request *> requests;
        for (Ints &d : data)
            requests.push_back(start_sum(comm, d, d));
        requests.push_back(start_recv(comm, never, rank == 0 ? 1 : 0, 4));
        through++;
        int deaths = 0;
        for (rf_request *request : requests) {
            int rc = ended(request);
            if (rank == 2 || rc == RF_OK)
                continue;
            deaths++;
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 2);
        }
        if (rank != 2) {
            EXPECT_GT(deaths, 1);
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        }
    });
}

TEST(OverlapEnds, AnAbortIsTheErrorOfAllOperations)
{
    ranks::World world;
    std::atomic<int> begun{0}; // ranks; a barrier could be ended by the abort
    ranks::run(world, [&](rf_comm *comm, int rank) {
        std::vector<Ints> data(5, Ints(3, 1));
        Ints never(5);
        std::vector<rf_request *> requests{start_recv(comm, never, 1 - rank, 4)};
        if (rank == 0) /* the other never calls it */
            for (Ints &d : data)
                requests.push_back(start_sum(comm, d, d));
        begun++;
        while (rank == 0 && begun < 2)
            std::this_thread::yield();
        if (rank == 0)
            rf_comm_abort(comm, "enough");
        for (rf_request *request : requests) {
            EXPECT_EQ(ended(request), RF_EABORT) << rf_last_error()->message;
            EXPECT_NE(std::string(rf_last_error()->message).find("enough"), std::string::npos)
                << rf_last_error()->message;
        }
    });
}

TEST_P(Overlap, ADifferenceIsFoundAndIsTheErrorOfAllOthers)
{
    if (GetParam().size != 2)
        GTEST_SKIP() << "one number of ranks is enough";
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        std::vector<Ints> data(6, Ints(300000, 1)), out(6, Ints(300000));
        data[2] = data[4] = Ints(rank == 0 ? 4 : 5, 1);
        std::vector<rf_request *> requests;
        for (size_t i = 0; i < data.size(); i++)
            requests.push_back(start_sum(comm, data[i], out[i]));
        for (size_t i = 0; i < requests.size(); i++) {
            int rc = ended(requests[i]);
            if (i >= 2 && i != 3 && i != 5) {
                EXPECT_EQ(rc, RF_EMISMATCH) << i << ": " << rf_last_error()->message;
            } else if (rc != RF_OK) {
                EXPECT_EQ(rc, RF_EMISMATCH) << i << ": " << rf_last_error()->message;
            }
            if (rc == RF_EMISMATCH) {
                EXPECT_NE(std::string(rf_last_error()->message).find("all_reduce(4 i32 sum)"),
                          std::string::npos)
                    << rf_last_error()->message;
            }
        }
    });
}

TEST(OverlapEnds, AMessageToOneselfThatDiffersIsNamed)
{
    rf_comm *comm = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
    Ints a(3), b(4);
    rf_request *sent = start_send(comm, a, 0, 1), *got = start_recv(comm, b, 0, 1);
    EXPECT_EQ(ended(got), RF_EMISMATCH);
    EXPECT_NE(std::string(rf_last_error()->message).find("must be equal"), std::string::npos)
        << rf_last_error()->message;
    rf_request_free(sent);
    rf_comm_close(comm);
}

TEST(OverlapEnds, OfSeveralRequestsAnyOrAllAreWaitedFor)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int rank) {
        Ints early(2, 1), late(2, 1), token(1, 7);
        std::vector<rf_request *> requests{nullptr, start_recv(comm, late, 1 - rank, 2),
                                           start_recv(comm, early, 1 - rank, 1)};
        size_t index = 77;
        bool over = true;
        RUNS(rf_request_test_any(requests.data(), 3, &index, &over));
        EXPECT_FALSE(over);
        EXPECT_EQ(index, 3u);
        EXPECT_EQ(rf_request_wait_any(requests.data(), 3, 0.01, &index), RF_ETIMEOUT);
        EXPECT_EQ(rf_request_wait_all(requests.data(), 3, 0.01), RF_ETIMEOUT);
        RUNS(rf_barrier(comm, nullptr));
        Ints one(2, rank), two(2, rank + 10);
        EXPECT_EQ(ended(start_send(comm, one, 1 - rank, 1)), RF_OK);
        RUNS(rf_request_wait_any(requests.data(), 3, 0, &index));
        EXPECT_EQ(index, 2u);
        EXPECT_EQ(early, Ints(2, 1 - rank));
        RUNS(rf_request_test_any(requests.data(), 3, &index, &over));
        EXPECT_TRUE(over);
        rf_request_free(requests[2]);
        requests[2] = nullptr;
        RUNS(rf_barrier(comm, nullptr));
        EXPECT_EQ(ended(start_send(comm, two, 1 - rank, 2)), RF_OK);
        RUNS(rf_request_wait_all(requests.data(), 3, 0));
        EXPECT_EQ(late, Ints(2, 11 - rank));
        rf_request_free(requests[1]);
        requests[1] = nullptr;
        RUNS(rf_request_wait_any(requests.data(), 3, 0, &index));
        EXPECT_EQ(index, 3u) << "none is left";
        RUNS(rf_request_test_any(requests.data(), 0, &index, &over));
        EXPECT_TRUE(over);
        EXPECT_EQ(rf_request_wait_any(nullptr, 1, 0, &index), RF_EINVAL);
        EXPECT_EQ(rf_request_wait_all(requests.data(), 3, -1), RF_EINVAL);
        EXPECT_EQ(rf_request_test_any(requests.data(), 3, nullptr, &over), RF_EINVAL);
        EXPECT_EQ(rf_request_wait_any(requests.data(), 3, 0, nullptr), RF_EINVAL);
    });
}

} // namespace
