/* SPDX-License-Identifier: MIT
 *
 * Collectives on host memory that progress while the caller does something else: several on one
 * communicator and on several, and how each reports its end, with or without an error.
 */
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

rf_request *start_sum(rf_comm *comm, std::vector<int32_t> &data, const char *label = nullptr)
{
    rf_request *request = nullptr;
    rf_coll_opts opts = {};
    opts.request = &request;
    opts.label = label;
    EXPECT_EQ(rf_all_reduce(comm, data.data(), data.data(), data.size(), RF_I32, RF_SUM, &opts),
              RF_OK)
        << rf_last_error()->message;
    return request;
}

void expect_all(const std::vector<int32_t> &data, int32_t want)
{
    for (int32_t value : data)
        ASSERT_EQ(value, want);
}

/* Waits for it and frees it. */
int ended(rf_request *request)
{
    int rc = rf_request_wait(request, 0);
    rf_request_free(request);
    return rc;
}

class Request : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Request, ManyAreOutstandingAtOnceAndAllAreExact)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm), all = size * (size + 1) / 2;
        std::vector<std::vector<int32_t>> data;
        std::vector<rf_request *> requests;
        for (int i = 0; i < 40; i++)
            data.emplace_back(i % 7 == 0 ? 0 : 1 << (i % 14), (rank + 1) * (i + 1));
        for (auto &d : data)
            requests.push_back(start_sum(comm, d));
        /* In any order, by testing or by waiting. */
        for (int i = 39; i >= 0; i -= 2) {
            bool over = false;
            while (!over)
                ASSERT_EQ(rf_request_test(requests[i], &over), RF_OK) << rf_last_error()->message;
        }
        for (int i = 0; i < 40; i++) {
            ASSERT_EQ(ended(requests[i]), RF_OK) << rf_last_error()->message;
            expect_all(data[i], all * (i + 1));
        }
        EXPECT_EQ(rf_comm_async_error(comm), RF_OK);
        EXPECT_EQ(rf_comm_wait(comm), RF_OK);
    });
}

TEST_P(Request, ABlockingCallComesBehindThoseBeforeIt)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        const int size = rf_comm_size(comm);
        std::vector<int32_t> data(10000, 1);
        rf_request *request = start_sum(comm, data);
        int32_t value = 1, sum = 0;
        ASSERT_EQ(rf_all_reduce(comm, &value, &sum, 1, RF_I32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(sum, size);
        bool over = false;
        ASSERT_EQ(rf_request_test(request, &over), RF_OK);
        EXPECT_TRUE(over);
        expect_all(data, size);
        rf_request_free(request);
    });
}

TEST_P(Request, CountsAndTextsAreCopied)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const size_t size = (size_t)rf_comm_size(comm);
        std::vector<size_t> counts(size);
        size_t before = 0, all = 0;
        for (size_t r = 0; r < size; r++) {
            counts[r] = 3 * r + 1;
            before += (int)r < rank ? counts[r] : 0;
            all += counts[r];
        }
        std::vector<int32_t> in(counts[rank], rank), out(all, -1), sent(all), got;
        char label[] = "gather it";
        rf_request *first = nullptr, *second = nullptr;
        rf_coll_opts opts = {};
        opts.label = label;
        opts.request = &first;
        ASSERT_EQ(
            described::all_gather_v(comm, in.data(), out.data(), counts.data(), RF_I32, &opts),
            RF_OK)
            << rf_last_error()->message;
        /* Rank r gets 3 r + 1 elements from every rank. */
        std::vector<size_t> from(size, counts[rank]);
        got.assign(size * counts[rank], -1);
        for (size_t i = 0; i < all; i++)
            sent[i] = rank;
        opts.request = &second;
        ASSERT_EQ(described::all_to_all_v(comm, sent.data(), counts.data(), got.data(), from.data(),
                                          RF_I32, &opts),
                  RF_OK)
            << rf_last_error()->message;
        std::fill(counts.begin(), counts.end(), 999);
        std::fill(from.begin(), from.end(), 999);
        strcpy(label, "damaged");
        ASSERT_EQ(ended(first), RF_OK) << rf_last_error()->message;
        ASSERT_EQ(ended(second), RF_OK) << rf_last_error()->message;
        for (size_t r = 0, at = 0; r < size; at += 3 * r + 1, r++) {
            EXPECT_EQ(out[at], (int32_t)r);
            EXPECT_EQ(got[r * (3 * (size_t)rank + 1)], (int32_t)r);
        }
    });
}

TEST_P(Request, SeveralCommunicatorsWorkAtTheSameTime)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm);
        rf_comm *other = nullptr;
        ASSERT_EQ(rf_comm_split(comm, 0, 0, &other), RF_OK) << rf_last_error()->message;
        std::vector<int32_t> a(5000, 1), b(3000, 2);
        /* Blocking calls in these orders would never complete. */
        rf_comm *first = rank % 2 ? comm : other, *second = rank % 2 ? other : comm;
        rf_request *in_first = start_sum(first, rank % 2 ? a : b);
        std::vector<int32_t> &second_input = rank % 2 ? b : a;
        EXPECT_EQ(rf_all_reduce(second, second_input.data(), second_input.data(),
                                second_input.size(), RF_I32, RF_SUM, nullptr),
                  RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(ended(in_first), RF_OK);
        expect_all(a, size);
        expect_all(b, 2 * size);
        rf_comm_close(other);
    });
}

TEST_P(Request, AMismatchIsTheErrorOfTheRequestAndThenOfTheCommunicator)
{
    if (GetParam().size == 1)
        GTEST_SKIP() << "nobody to disagree with";
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        std::vector<int32_t> good(10, 1), bad(rank == 1 ? 11 : 10, 1), later(10, 1);
        EXPECT_EQ(ended(start_sum(comm, good)), RF_OK);
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK) << "all have ended it";
        rf_request *second = start_sum(comm, bad);
        rf_request *third = start_sum(comm, later);
        int rc = rf_request_wait(second, 0);
        if (rc == RF_OK) /* with more than two ranks one may get the error only later */
            rc = rf_request_wait(third, 0);
        EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_NE(std::string(rf_last_error()->message).find("11"), std::string::npos)
            << rf_last_error()->message;
        EXPECT_LT(rf_request_wait(third, 0), RF_OK);
        rf_request_free(second);
        rf_request_free(third);
        EXPECT_LT(rf_comm_async_error(comm), RF_OK);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
    });
}

INSTANTIATE_TEST_SUITE_P(All, Request, testing::ValuesIn(ranks::worlds({1, 2, 3}, {2, 3})),
                         [](const testing::TestParamInfo<ranks::World> &info) {
                             return ranks::name(info.param);
                         });

TEST(RequestEnds, WaitingHasATimeoutAfterWhichItMayBeWaitedForAgain)
{
    ranks::World world;
    std::atomic<bool> waited{false};
    ranks::run(world, [&](rf_comm *comm, int rank) {
        std::vector<int32_t> data(10, 1);
        while (rank == 1 && !waited)
            usleep(1000);
        rf_request *request = start_sum(comm, data);
        if (rank == 0) {
            EXPECT_EQ(rf_request_wait(request, 0.01), RF_ETIMEOUT);
            bool over = true;
            EXPECT_EQ(rf_request_test(request, &over), RF_OK);
            EXPECT_FALSE(over);
            EXPECT_EQ(rf_comm_async_error(comm), RF_OK);
            waited = true;
        }
        EXPECT_EQ(ended(request), RF_OK);
        expect_all(data, 2);
    });
}

TEST(RequestEnds, WhenAPeerDiesItNamesIt)
{
    ranks::World world;
    world.size = 3;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 1;
    ranks::run(world, [](rf_comm *comm, int rank) {
        std::vector<int32_t> data(100000, 1);
        int rc = RF_OK;
        for (int i = 0; i < 50 && rc == RF_OK; i++)
            rc = ended(start_sum(comm, data));
        if (rank == 2)
            return;
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 2);
    });
}

TEST(RequestEnds, WhenTheCommunicatorIsAbortedAndOutlivesIt)
{
    std::vector<rf_request *> left(2);
    std::vector<int32_t> data[2] = {std::vector<int32_t>(10, 1), std::vector<int32_t>(10, 1)};
    std::atomic<bool> through{false};
    ranks::run({}, [&](rf_comm *comm, int rank) {
        left[rank] = start_sum(comm, data[rank]);
        EXPECT_EQ(rf_request_wait(left[rank], 0), RF_OK);
        if (rank == 1)
            through = true;
        if (rank == 0) { /* the other does not call again */
            while (!through)
                usleep(1000);
            rf_request_free(left[0]);
            left[0] = start_sum(comm, data[0]);
            rf_comm_abort(comm, "enough");
        }
    });
    EXPECT_EQ(rf_request_wait(left[0], 0), RF_EABORT) << rf_last_error()->message;
    EXPECT_EQ(rf_request_wait(left[1], 0), RF_OK);
    rf_request_free(left[0]);
    rf_request_free(left[1]);
}

TEST(RequestEnds, WrongUseIsNamed)
{
    rf_comm *comm = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
    rf_request *request = nullptr;
    rf_coll_opts opts = {};
    opts.request = &request;
    bool over = false;
    float x = 1;
    EXPECT_EQ(rf_request_test(nullptr, &over), RF_EINVAL);
    EXPECT_EQ(rf_request_wait(nullptr, 0), RF_EINVAL);
    EXPECT_EQ(rf_comm_async_error(nullptr), RF_EINVAL);
    rf_request_free(nullptr);
    EXPECT_EQ(rf_all_reduce(comm, &x, nullptr, 1, RF_F32, RF_SUM, &opts), RF_EINVAL);
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(rf_broadcast(comm, &x, 1, RF_F32, 0, &opts), RF_OK);
    EXPECT_EQ(rf_request_wait(request, -1), RF_EINVAL);
    EXPECT_EQ(ended(request), RF_OK);
    rf_comm_close(comm);
}

/* Nobody waits for the request, so no call has returned the error before the next one. */
TEST(RequestAfterADeath, ADeathThatTheWorkerNoticedIsTheNextCallsErrorOnce)
{
    ranks::World world;
    world.faults.kill_rank = 1;
    world.faults.kill_after_messages = 5;
    ranks::run(world, [](rf_comm *comm, int rank) {
        int32_t x = 0;
        for (int rc = RF_OK; rank == 1 && rc == RF_OK;)
            rc = rf_send(comm, &x, 1, RF_I32, 0, 3, nullptr);
        if (rank == 1)
            return;
        rf_request *request = nullptr;
        rf_coll_opts opts = {};
        opts.request = &request;
        ASSERT_EQ(rf_recv(comm, &x, 1, RF_I32, 1, 4, &opts), RF_OK);
        while (rf_comm_async_error(comm) == RF_OK)
            std::this_thread::yield();
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        EXPECT_EQ(ended(request), RF_EPEER);
    });
}

} // namespace
