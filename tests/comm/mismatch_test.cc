/* SPDX-License-Identifier: MIT
 *
 * Ranks that disagree about a call: both sides get RF_EMISMATCH with both contracts, for every kind
 * of difference, and the communicator cannot be used any more. The structured error is checked.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include "support/fair_clock.h"
#include "support/ranks.h"

namespace
{

constexpr double promised_s = 2;

class Mismatch : public testing::TestWithParam<ranks::World>
{
};

/* Rank `deviating` makes one call, and all others another one. */
void disagree(ranks::World world, int deviating, rf_coll_op deviating_op, rf_coll_op other_op,
              const std::function<int(rf_comm *)> &deviating_call,
              const std::function<int(rf_comm *)> &other_call)
{
    ranks::run(world, [&](rf_comm *comm, int rank) {
        int32_t one = 1;
        for (int i = 0; i < 3; i++) { /* so that the sequence is not trivial */
            if (rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_MAX, nullptr) == RF_OK)
                continue;
            /* A slow third rank learns of the disagreement before it makes the call. */
            EXPECT_GT(world.size, 2);
            EXPECT_EQ(rf_last_error()->status, RF_EMISMATCH) << rf_last_error()->message;
            return;
        }
        const FairClock clock;
        int rc = rank == deviating ? deviating_call(comm) : other_call(comm);
        /* A rank whose part had completed gets the error from its next call. */
        if (rc == RF_OK)
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << "rank " << rank << ": " << rf_last_error()->message;
        EXPECT_LT(clock.seconds(), promised_s);
        const rf_error error = *rf_last_error();
        EXPECT_EQ(error.status, RF_EMISMATCH);
        EXPECT_EQ(error.mine.op, rank == deviating ? deviating_op : other_op) << error.message;
        EXPECT_EQ(error.theirs.op, rank == deviating ? other_op : deviating_op) << error.message;
        if (rank == deviating)
            EXPECT_NE(error.rank, deviating) << error.message;
        else
            EXPECT_EQ(error.rank, deviating) << error.message;
        EXPECT_EQ(error.sequence, 3u) << error.message;
        std::string named =
            "rank " + std::to_string(deviating) + " called " + rf_coll_op_name(deviating_op);
        EXPECT_NE(strstr(error.message, named.c_str()), nullptr) << error.message;
        EXPECT_NE(strstr(error.message, rf_coll_op_name(other_op)), nullptr) << error.message;
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        EXPECT_EQ(rf_send(comm, &one, 1, RF_I32, (rank + 1) % world.size, 0, nullptr), RF_EABORT);
    });
}

std::vector<float> &buffer()
{
    static thread_local std::vector<float> data(1 << 20);
    return data;
}

int all_reduce(rf_comm *comm, size_t count, rf_dtype dtype = RF_F32, rf_redop redop = RF_SUM,
               const char *label = nullptr, rf_order order = RF_ORDER_ANY)
{
    rf_coll_opts opts = {};
    opts.label = label;
    opts.order = order;
    return rf_all_reduce(comm, buffer().data(), buffer().data(), count, dtype, redop, &opts);
}

TEST_P(Mismatch, OfTheCountIsReportedOnBothSidesForShortAndLongMessages)
{
    for (size_t count : {size_t{1000}, size_t{500000}})
        disagree(
            GetParam(), 1, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
            [=](rf_comm *comm) {
                int rc = all_reduce(comm, count / 2);
                EXPECT_EQ(rf_last_error()->mine.count, count / 2);
                EXPECT_EQ(rf_last_error()->theirs.count, count);
                return rc;
            },
            [=](rf_comm *comm) {
                int rc = all_reduce(comm, count);
                EXPECT_EQ(rf_last_error()->mine.count, count);
                EXPECT_EQ(rf_last_error()->theirs.count, count / 2);
                return rc;
            });
}

TEST_P(Mismatch, OfTheTypeAtEqualBytesIsReported)
{
    disagree(
        GetParam(), 0, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) {
            int rc = all_reduce(comm, 100, RF_I32);
            EXPECT_EQ(rf_last_error()->theirs.dtype, RF_F32);
            return rc;
        },
        [](rf_comm *comm) { return all_reduce(comm, 100, RF_F32); });
}

TEST_P(Mismatch, OfTheReductionIsReported)
{
    disagree(
        GetParam(), 1, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) { return all_reduce(comm, 100, RF_F32, RF_MAX); },
        [](rf_comm *comm) {
            int rc = all_reduce(comm, 100, RF_F32, RF_SUM);
            EXPECT_EQ(rf_last_error()->theirs.redop, RF_MAX);
            return rc;
        });
}

TEST_P(Mismatch, OfTheOrderIsReported)
{
    disagree(
        GetParam(), 1, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) {
            return all_reduce(comm, 10000, RF_F32, RF_SUM, nullptr, RF_ORDER_TREE);
        },
        [](rf_comm *comm) {
            return all_reduce(comm, 10000, RF_F32, RF_SUM, nullptr, RF_ORDER_RING);
        });
}

TEST_P(Mismatch, OfTheAlgorithmIsReported)
{
    const auto by = [](const char *algorithm) {
        return [algorithm](rf_comm *comm) {
            rf_coll_opts opts = {};
            opts.algorithm = algorithm;
            int rc =
                rf_all_reduce(comm, buffer().data(), buffer().data(), 100, RF_F32, RF_SUM, &opts);
            EXPECT_NE(strstr(rf_last_error()->message, "all_reduce(100 f32 sum by ring)"), nullptr)
                << rf_last_error()->message;
            EXPECT_NE(strstr(rf_last_error()->message, "all_reduce(100 f32 sum by direct)"),
                      nullptr)
                << rf_last_error()->message;
            return rc;
        };
    };
    disagree(GetParam(), 1, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE, by("ring"), by("direct"));
}

TEST_P(Mismatch, OfTheOperationIsReported)
{
    disagree(
        GetParam(), 1, RF_COLL_BROADCAST, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) { return rf_broadcast(comm, buffer().data(), 1000, RF_F32, 0, nullptr); },
        [](rf_comm *comm) { return all_reduce(comm, 1000); });
}

TEST_P(Mismatch, OfTheRootIsReported)
{
    auto broadcast = [](int root) {
        return [root](rf_comm *comm) {
            return rf_broadcast(comm, buffer().data(), 1000, RF_F32, root, nullptr);
        };
    };
    disagree(GetParam(), 1, RF_COLL_BROADCAST, RF_COLL_BROADCAST, broadcast(1), broadcast(0));
    /* Each waits for the other: no message is sent. */
    disagree(GetParam(), 1, RF_COLL_BROADCAST, RF_COLL_BROADCAST, broadcast(0), broadcast(1));
}

/* If a transport buffers messages, a root completes its part without the others. */
TEST_P(Mismatch, IsReportedThoughBothRanksHaveMadeLaterCalls)
{
    auto broadcasts = [](int first_root) {
        return [first_root](rf_comm *comm) {
            int rc = rf_broadcast(comm, buffer().data(), 100, RF_F32, first_root, nullptr);
            for (int i = 0; i < 20 && rc == RF_OK; i++)
                rc = rf_broadcast(comm, buffer().data(), 100, RF_F32, rf_comm_rank(comm) ? 1 : 0,
                                  nullptr);
            return rc;
        };
    };
    disagree(GetParam(), 1, RF_COLL_BROADCAST, RF_COLL_BROADCAST, broadcasts(1), broadcasts(0));
}

TEST_P(Mismatch, IsReportedThoughTheRecordOfTheCallIsGone)
{
    ranks::World world = GetParam();
    world.size = 2;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        int rc = RF_OK;
        for (int i = 0; i < 300 && rc == RF_OK; i++)
            rc = rf_broadcast(comm, buffer().data(), 1, RF_F32, rank, nullptr);
        if (rc == RF_OK)
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "rank 0"), nullptr);
        EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr);
    });
}

TEST_P(Mismatch, OfTheLabelIsReportedAndAnEmptyLabelMatchesAny)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        EXPECT_EQ(all_reduce(comm, 10, RF_F32, RF_SUM, rank == 0 ? "here" : nullptr), RF_OK);
        EXPECT_EQ(all_reduce(comm, 10, RF_F32, RF_SUM, "here"), RF_OK);
    });
    disagree(
        GetParam(), 1, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) { return all_reduce(comm, 100, RF_F32, RF_SUM, "bucket 2"); },
        [](rf_comm *comm) {
            int rc = all_reduce(comm, 100, RF_F32, RF_SUM, "bucket 1");
            EXPECT_STREQ(rf_last_error()->mine.label, "bucket 1");
            EXPECT_STREQ(rf_last_error()->theirs.label, "bucket 2");
            return rc;
        });
}

TEST_P(Mismatch, OfACallThatOneRankSkipsIsReportedByTheNextCall)
{
    disagree(
        GetParam(), 1, RF_COLL_ALL_GATHER, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) {
            std::vector<float> all(10 * static_cast<size_t>(rf_comm_size(comm)));
            return rf_all_gather(comm, buffer().data(), all.data(), 10, RF_F32, nullptr);
        },
        [](rf_comm *comm) { return all_reduce(comm, 10); });
}

TEST_P(Mismatch, OfAReceiveAgainstACollectiveIsReported)
{
    disagree(
        GetParam(), 1, RF_COLL_RECV, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) { return rf_recv(comm, buffer().data(), 10, RF_F32, 0, 4, nullptr); },
        [](rf_comm *comm) { return all_reduce(comm, 10); });
}

/* The other one detects it first, as it has been quiet for longer. */
TEST(Deadlock, OfALateReceiveAndACollectiveIsReportedAsWithAnEarlyReceive)
{
    disagree(
        ranks::World(), 1, RF_COLL_RECV, RF_COLL_ALL_REDUCE,
        [](rf_comm *comm) {
            const uint64_t until = rf_now_ns() + 100000000;
            while (rf_now_ns() < until)
                continue;
            return rf_recv(comm, buffer().data(), 10, RF_F32, 0, 4, nullptr);
        },
        [](rf_comm *comm) { return all_reduce(comm, 10); });
}

TEST_P(Mismatch, RanksThatReceiveFromEachOtherAreADeadlock)
{
    for (bool long_sends : {false, true}) /* which wait for their receiver */
        ranks::run(GetParam(), [=](rf_comm *comm, int rank) {
            const int size = rf_comm_size(comm), next = (rank + 1) % size;
            const FairClock clock;
            EXPECT_EQ(long_sends ? rf_send(comm, buffer().data(), 100000, RF_F32, next, 4, nullptr)
                                 : rf_recv(comm, buffer().data(), 10, RF_F32, next, 4, nullptr),
                      RF_EMISMATCH)
                << rf_last_error()->message;
            EXPECT_LT(clock.seconds(), promised_s);
            EXPECT_NE(strstr(rf_last_error()->message, "deadlock: ranks wait for each other"),
                      nullptr)
                << rf_last_error()->message;
            for (int r = 0; r < size; r++) {
                const std::string edge = "rank " + std::to_string(r) + " waits for rank " +
                                         std::to_string((r + 1) % size) + " in ";
                EXPECT_NE(strstr(rf_last_error()->message, edge.c_str()), nullptr)
                    << rf_last_error()->message;
            }
        });
}

/* The cycle includes a collective: no rank is in the same call as the one it waits for. */
TEST(Deadlock, OfAReceiveAndACollectiveIsFoundAmongThree)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int rank) {
        int rc = rank == 2 ? rf_broadcast(comm, buffer().data(), 10, RF_F32, 0, nullptr)
                           : rf_recv(comm, buffer().data(), 10, RF_F32, rank + 1, 0, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
    });
}

/* All but one wait for the next, and that one is busy for longer than the quiet time. */
TEST_P(Mismatch, AChainOfReceivesBehindASlowRankIsNoDeadlock)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm), next = (rank + 1) % size;
        const uint64_t until = rf_now_ns() + 400000000;
        while (rank == 0 && rf_now_ns() < until)
            continue;
        if (rank == 0) {
            EXPECT_EQ(rf_send(comm, buffer().data(), 10, RF_F32, size - 1, 4, nullptr), RF_OK);
        }
        EXPECT_EQ(rf_recv(comm, buffer().data(), 10, RF_F32, next, 4, nullptr), RF_OK)
            << rf_last_error()->message;
        if (rank > 0) {
            EXPECT_EQ(rf_send(comm, buffer().data(), 10, RF_F32, rank - 1, 4, nullptr), RF_OK);
        }
    });
}

TEST_P(Mismatch, OfASendAndItsReceiveIsReportedOnBothSides)
{
    for (size_t count : {size_t{100}, size_t{100000}}) /* travels with its envelope; announced */
        for (bool types : {false, true})
            ranks::run(GetParam(), [=](rf_comm *comm, int rank) {
                size_t wanted = types ? count : count + 1;
                rf_dtype dtype = types ? RF_I32 : RF_F32;
                int rc = RF_OK;
                if (rank == 0)
                    rc = rf_send(comm, buffer().data(), count, RF_F32, 1, 4, nullptr);
                if (rank == 1)
                    rc = rf_recv(comm, buffer().data(), wanted, dtype, 0, 4, nullptr);
                if (rc == RF_OK)
                    rc = rf_barrier(comm, nullptr);
                EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
                const rf_error &error = *rf_last_error();
                if (rank > 1)
                    return;
                EXPECT_EQ(error.rank, 1 - rank);
                const rf_contract &sent = rank == 0 ? error.mine : error.theirs;
                const rf_contract &received = rank == 0 ? error.theirs : error.mine;
                EXPECT_EQ(sent.op, RF_COLL_SEND);
                EXPECT_EQ(sent.count, count);
                EXPECT_EQ(received.op, RF_COLL_RECV);
                EXPECT_EQ(received.count, wanted);
                EXPECT_EQ(received.dtype, dtype);
            });
}

/* Two disagree; the third at first neither talks to both nor knows which is right. */
class MismatchOfThree : public testing::TestWithParam<ranks::World>
{
};

TEST_P(MismatchOfThree, IsReportedToAllForShortAndLongMessages)
{
    for (size_t count : {size_t{10}, size_t{700000}})
        disagree(
            GetParam(), 2, RF_COLL_ALL_REDUCE, RF_COLL_ALL_REDUCE,
            [=](rf_comm *comm) { return all_reduce(comm, count + 1); },
            [=](rf_comm *comm) { return all_reduce(comm, count); });
}

INSTANTIATE_TEST_SUITE_P(All, MismatchOfThree,
                         testing::ValuesIn(ranks::worlds({3}, {3}, {"a,b,b"})),
                         [](const auto &info) { return ranks::name(info.param); });
INSTANTIATE_TEST_SUITE_P(All, Mismatch, testing::ValuesIn(ranks::worlds({2, 4}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
