/* SPDX-License-Identifier: MIT
 *
 * Results of collectives, over threads and over every provider: worked examples, all types and
 * reductions against sums made in double, sizes without divisors, equal bits on all ranks in ring
 * order, and the predicted bytes.
 */
#include <gtest/gtest.h>
#include <ringforge/schedule.h>

#include "comm/element.h"
#include "support/described_calls.h"
#include "support/ranks.h"
#include "support/usage.h"

namespace
{

struct Case {
    rf_dtype dtype;
    rf_redop redop;
    rf_order order;
    size_t count;
};

std::string text(const Case &c)
{
    return std::string(rf_dtype_name(c.dtype)) + " " + rf_redop_name(c.redop) + " " +
           rf_order_name(c.order) + " order, count " + std::to_string(c.count);
}

/* The bytes sent by the last operation are those of its schedule. */
class Ledger
{
  public:
    explicit Ledger(rf_comm *comm) : comm_(comm), before_(rf_comm_sent_bytes(comm))
    {
    }
    void check(rf_coll_op op, const Case &c, int root = 0)
    {
        uint64_t predicted = 0, now = rf_comm_sent_bytes(comm_);
        rf_coll_desc desc =
            call_of(op, rf_comm_rank(comm_), rf_comm_size(comm_), c.count, c.dtype, c.order, root);
        desc.redop = c.redop;
        ASSERT_EQ(sent_of(desc, &predicted), RF_OK);
        EXPECT_EQ(now - before_, predicted) << rf_coll_op_name(op) << " " << text(c);
        before_ = now;
    }

  private:
    rf_comm *comm_;
    uint64_t before_;
};

void expect_bytes(const std::vector<uint8_t> &got, const std::vector<uint8_t> &want, size_t bytes,
                  const char *op, const Case &c)
{
    if (memcmp(got.data(), want.data(), bytes) == 0)
        return;
    size_t at = 0;
    while (got[at] == want[at])
        at++;
    ADD_FAILURE() << op << " " << text(c) << ": wrong from element " << at / rf_dtype_bytes(c.dtype)
                  << " on";
}

void check_all_reduce(rf_comm *comm, int rank, const Case &c)
{
    int ranks = rf_comm_size(comm);
    size_t bytes = c.count * rf_dtype_bytes(c.dtype);
    rf_coll_opts opts = {};
    opts.order = c.order;
    std::vector<uint8_t> in = element::inputs(c.dtype, c.redop, rank, 0, c.count);
    std::vector<uint8_t> want = element::folds(c.dtype, c.redop, ranks, 0, c.count);
    std::vector<uint8_t> out(bytes + 1, 0xff), kept = in;
    Ledger ledger(comm);
    ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), c.count, c.dtype, c.redop, &opts), RF_OK)
        << rf_last_error()->message;
    ledger.check(RF_COLL_ALL_REDUCE, c);
    expect_bytes(out, want, bytes, "all_reduce", c);
    EXPECT_EQ(out[bytes], 0xff) << "written behind the end";
    EXPECT_EQ(in, kept) << "the input was changed";
    ASSERT_EQ(rf_all_reduce(comm, in.data(), in.data(), c.count, c.dtype, c.redop, &opts), RF_OK);
    expect_bytes(in, want, bytes, "all_reduce in place", c);
}

void check_reduce_scatter(rf_comm *comm, int rank, const Case &c)
{
    int ranks = rf_comm_size(comm);
    size_t bytes = c.count * rf_dtype_bytes(c.dtype), all = c.count * static_cast<size_t>(ranks);
    size_t own = static_cast<size_t>(rank) * c.count;
    rf_coll_opts opts = {};
    opts.order = c.order;
    std::vector<uint8_t> in = element::inputs(c.dtype, c.redop, rank, 0, all);
    std::vector<uint8_t> want = element::folds(c.dtype, c.redop, ranks, own, c.count);
    std::vector<uint8_t> out(bytes + 1, 0xff);
    Ledger ledger(comm);
    ASSERT_EQ(rf_reduce_scatter(comm, in.data(), out.data(), c.count, c.dtype, c.redop, &opts),
              RF_OK)
        << rf_last_error()->message;
    ledger.check(RF_COLL_REDUCE_SCATTER, c);
    expect_bytes(out, want, bytes, "reduce_scatter", c);
    uint8_t *place = in.data() + own * rf_dtype_bytes(c.dtype);
    ASSERT_EQ(rf_reduce_scatter(comm, in.data(), place, c.count, c.dtype, c.redop, &opts), RF_OK);
    EXPECT_EQ(memcmp(place, want.data(), bytes), 0) << "in place: " << text(c);
}

void check_all_gather(rf_comm *comm, int rank, const Case &c)
{
    int ranks = rf_comm_size(comm);
    size_t bytes = c.count * rf_dtype_bytes(c.dtype), all = bytes * static_cast<size_t>(ranks);
    std::vector<uint8_t> in = element::inputs(c.dtype, c.redop, rank, 0, c.count), want;
    for (int r = 0; r < ranks; r++) {
        std::vector<uint8_t> part = element::inputs(c.dtype, c.redop, r, 0, c.count);
        want.insert(want.end(), part.begin(), part.begin() + static_cast<long>(bytes));
    }
    std::vector<uint8_t> out(all + 1, 0xff);
    want.resize(all + 1, 0xff);
    Ledger ledger(comm);
    ASSERT_EQ(rf_all_gather(comm, in.data(), out.data(), c.count, c.dtype, nullptr), RF_OK)
        << rf_last_error()->message;
    ledger.check(RF_COLL_ALL_GATHER, {c.dtype, RF_SUM, RF_ORDER_ANY, c.count});
    EXPECT_EQ(out, want) << "all_gather " << text(c);
    std::vector<uint8_t> place(all + 1, 0xff);
    uint8_t *own = place.data() + static_cast<size_t>(rank) * bytes;
    memcpy(own, in.data(), bytes);
    ASSERT_EQ(rf_all_gather(comm, own, place.data(), c.count, c.dtype, nullptr), RF_OK);
    EXPECT_EQ(place, want) << "all_gather in place " << text(c);
}

void check_broadcast(rf_comm *comm, int rank, const Case &c, int root)
{
    size_t bytes = c.count * rf_dtype_bytes(c.dtype);
    std::vector<uint8_t> want = element::inputs(c.dtype, c.redop, root, 0, c.count);
    std::vector<uint8_t> buffer = want;
    if (rank != root)
        memset(buffer.data(), 0xff, bytes);
    Ledger ledger(comm);
    ASSERT_EQ(rf_broadcast(comm, buffer.data(), c.count, c.dtype, root, nullptr), RF_OK)
        << rf_last_error()->message;
    ledger.check(RF_COLL_BROADCAST, {c.dtype, RF_SUM, RF_ORDER_ANY, c.count}, root);
    expect_bytes(buffer, want, bytes, "broadcast", c);
}

void check_everything(rf_comm *comm, int rank, const Case &c)
{
    check_all_reduce(comm, rank, c);
    check_reduce_scatter(comm, rank, c);
    if (c.redop == RF_SUM && c.order == RF_ORDER_ANY) {
        check_all_gather(comm, rank, c);
        for (int root = 0; root < rf_comm_size(comm); root++)
            check_broadcast(comm, rank, c, root);
    }
}

class Collectives : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Collectives, GiveTheWorkedExamples)
{
    ranks::World world = GetParam();
    world.size = 2;
    ranks::run(world, [](rf_comm *comm, int rank) {
        const float in[2][3] = {{1, 2, 3}, {1, 0, 1}};
        const std::vector<float> want = {2, 2, 4}, gathered = {1, 2, 3, 4};
        std::vector<float> out(3), all(4);
        ASSERT_EQ(rf_all_reduce(comm, in[rank], out.data(), 3, RF_F32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(out, want);
        const float mine[2][2] = {{1, 2}, {3, 4}};
        ASSERT_EQ(rf_all_gather(comm, mine[rank], all.data(), 2, RF_F32, nullptr), RF_OK);
        EXPECT_EQ(all, gathered);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

/* The call between evicts its schedule from the table, or leaves it there. */
TEST_P(Collectives, ACallThatRepeatsIsTheSameWhateverRanBetween)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int size = rf_comm_size(comm);
        std::vector<float> in(700, 1), out(700), a(5), b(5);
        rf_coll_opts labelled = {}, with_request = {};
        labelled.label = "again";
        auto again = [&](int round, const rf_coll_opts *opts) {
            std::fill(a.begin(), a.end(), float(rank + round));
            ASSERT_EQ(rf_all_reduce(comm, a.data(), b.data(), a.size(), RF_F32, RF_SUM, opts),
                      RF_OK);
            EXPECT_EQ(b, std::vector<float>(5, float(size * (size - 1) / 2 + size * round)));
        };
        auto other = [&](size_t count, const rf_coll_opts *opts) {
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_F32, RF_SUM, opts),
                      RF_OK);
        };
        for (int round = 0; round < 40; round++) {
            again(round, nullptr);
            again(round + 1, round % 2 ? &labelled : nullptr);
            if (round == 10 || round == 20)
                for (size_t count = 1; count < 700; count++)
                    other(count, nullptr);
            if (round > 20) {
                rf_request *request = nullptr;
                with_request.request = &request;
                other((size_t)round * 7, &with_request);
                again(round, nullptr);
                EXPECT_EQ(rf_request_wait(request, 0), RF_OK);
                rf_request_free(request);
            }
        }
    });
}

TEST_P(Collectives, AreExactForEveryTypeReductionOrderAndUnevenCount)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        size_t n = static_cast<size_t>(rf_comm_size(comm));
        for (int d = 0; d < RF_DTYPE_COUNT; d++)
            for (int r = 0; r < RF_REDOP_COUNT; r++)
                for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE})
                    for (size_t count : {size_t{0}, size_t{1}, n - 1, n, size_t{1009}}) {
                        Case c = {static_cast<rf_dtype>(d), static_cast<rf_redop>(r), order, count};
                        check_everything(comm, rank, c);
                        if (testing::Test::HasFailure())
                            return;
                    }
    });
}

TEST_P(Collectives, AreExactForManySegmentsAndARemainder)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const size_t count = (1u << 20) + 1;
        for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE})
            check_all_reduce(comm, rank, {RF_F32, RF_SUM, order, count});
        check_all_reduce(comm, rank, {RF_BF16, RF_AVG, RF_ORDER_RING, count});
        check_reduce_scatter(comm, rank, {RF_F32, RF_SUM, RF_ORDER_RING, count / 3});
        check_all_gather(comm, rank, {RF_I64, RF_SUM, RF_ORDER_ANY, count / 4});
        check_broadcast(comm, rank, {RF_F32, RF_SUM, RF_ORDER_ANY, count}, rf_comm_size(comm) - 1);
    });
}

/* 1/3, 2/3, ... have no exact sum: their bits show the order of the fold. */
std::vector<float> thirds(int rank, size_t count)
{
    std::vector<float> out(count);
    for (size_t i = 0; i < count; i++)
        out[i] =
            static_cast<float>((i * 2654435761u + static_cast<size_t>(rank) * 40503u) % 100003) /
            3.0f;
    return out;
}

TEST_P(Collectives, ReduceScatterThenAllGatherHasTheBitsOfAllReduceInRingOrder)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (size_t part : {size_t{1}, size_t{333}, size_t{70001}}) {
            size_t count = part * static_cast<size_t>(rf_comm_size(comm));
            std::vector<float> in = thirds(rank, count), whole(count), mine(part), parts(count);
            rf_coll_opts opts = {};
            opts.order = RF_ORDER_RING;
            ASSERT_EQ(rf_all_reduce(comm, in.data(), whole.data(), count, RF_F32, RF_SUM, &opts),
                      RF_OK);
            ASSERT_EQ(rf_reduce_scatter(comm, in.data(), mine.data(), part, RF_F32, RF_SUM, &opts),
                      RF_OK);
            ASSERT_EQ(rf_all_gather(comm, mine.data(), parts.data(), part, RF_F32, nullptr), RF_OK);
            EXPECT_EQ(memcmp(whole.data(), parts.data(), count * sizeof(float)), 0) << part;
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Threads, Collectives,
                         testing::ValuesIn(ranks::worlds({1, 2, 3, 4, 5}, {})),
                         [](const auto &info) { return ranks::name(info.param); });
INSTANTIATE_TEST_SUITE_P(Processes, Collectives,
                         testing::ValuesIn(ranks::worlds({}, {2, 3, 4}, {"a,b,b,a"})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(Orders, RingAndTreeHaveTheSameBitsOnEveryTransport)
{
    constexpr size_t counts[] = {1, 1000, 20011, 300007};
    constexpr size_t total = 1 + 1000 + 20011 + 300007;
    for (int size : {2, 3, 4}) {
        ranks::Shared reference(2 * total * sizeof(float)), result(2 * total * sizeof(float));
        bool first = true;
        const std::vector<const char *> layouts[] = {{}, {}, {}, {"a,b,b"}, {"a,a,b,a"}};
        for (ranks::World world : ranks::worlds({size}, {size}, layouts[size])) {
            ranks::Shared &target = first ? reference : result;
            ranks::run(world, [&](rf_comm *comm, int rank) {
                float *at = target.as<float>();
                for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
                    for (size_t count : counts) {
                        std::vector<float> data = thirds(rank, count);
                        rf_coll_opts opts = {};
                        opts.order = order;
                        ASSERT_EQ(rf_all_reduce(comm, data.data(), data.data(), count, RF_F32,
                                                RF_SUM, &opts),
                                  RF_OK);
                        if (rank == size - 1)
                            memcpy(at, data.data(), count * sizeof(float));
                        at += count;
                    }
            });
            ASSERT_NE(reference.as<float>()[0], 0.0f);
            if (!first) {
                EXPECT_EQ(
                    memcmp(reference.as<float>(), result.as<float>(), 2 * total * sizeof(float)), 0)
                    << ranks::name(world);
            }
            first = false;
        }
    }
}

TEST(Communicators, TwoInOneProcessDoNotDisturbEachOther)
{
    rf_loopback *other = nullptr;
    ASSERT_EQ(rf_loopback_create(3, nullptr, &other), RF_OK);
    ranks::World world;
    world.size = 3;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_comm *second = nullptr;
        ASSERT_EQ(rf_comm_open_loopback(other, rank, nullptr, &second), RF_OK);
        for (int i = 0; i < 50; i++) {
            int32_t a = rank + i, b = rank * i;
            ASSERT_EQ(rf_all_reduce(comm, &a, &a, 1, RF_I32, RF_SUM, nullptr), RF_OK);
            ASSERT_EQ(rf_all_reduce(second, &b, &b, 1, RF_I32, RF_SUM, nullptr), RF_OK);
            EXPECT_EQ(a, 3 + 3 * i);
            EXPECT_EQ(b, 3 * i);
        }
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK); /* all have completed the second */
        rf_comm_abort(second, "enough");
        int32_t one = 1;
        EXPECT_EQ(rf_all_reduce(second, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_EABORT);
        EXPECT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(one, 3);
        rf_comm_close(second);
    });
    rf_loopback_destroy(other);
}

TEST(Communicators, OneRankNeedsNoNetwork)
{
    rf_comm *comm = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(rf_comm_size(comm), 1);
    float in[3] = {1, 2, 3}, out[3] = {};
    EXPECT_EQ(rf_all_reduce(comm, in, out, 3, RF_F32, RF_AVG, nullptr), RF_OK);
    EXPECT_EQ(out[2], 3);
    EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    EXPECT_EQ(rf_comm_sent_bytes(comm), 0u);
    rf_comm_close(comm);
    rf_comm_close(nullptr);
}

/* The product with the element's size wraps around to 0, to a few bytes, or to less than 0. */
TEST(Arguments, ACountWhoseBytesOverflowIsRefusedByEveryOperationBeforeItBegins)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int) {
        float a[8] = {}, b[8] = {};
        const auto is_refused = [](int rc, const char *name) {
            EXPECT_EQ(rc, RF_EINVAL) << name;
            EXPECT_NE(strstr(rf_last_error()->message, "more than memory can hold"), nullptr)
                << name << ": " << rf_last_error()->message;
        };
        for (size_t n : {SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1, SIZE_MAX / 8 + 2, SIZE_MAX / 16 + 1}) {
            const size_t uneven[] = {n / 2 + 1, n - n / 2 - 1}, few[] = {2, 2};
            is_refused(rf_all_reduce(comm, a, b, n, RF_F32, RF_SUM, nullptr), "all_reduce");
            is_refused(rf_reduce_scatter(comm, a, b, n, RF_F32, RF_SUM, nullptr), "reduce_scatter");
            is_refused(rf_all_gather(comm, a, b, n, RF_F32, nullptr), "all_gather");
            is_refused(rf_broadcast(comm, a, n, RF_F32, 0, nullptr), "broadcast");
            is_refused(rf_reduce(comm, a, b, n, RF_F32, RF_SUM, 0, nullptr), "reduce");
            is_refused(rf_gather(comm, a, b, n, RF_F32, 0, nullptr), "gather");
            is_refused(rf_scatter(comm, a, b, n, RF_F32, 0, nullptr), "scatter");
            is_refused(rf_all_to_all(comm, a, b, n, RF_F32, nullptr), "all_to_all");
            is_refused(described::all_gather_v(comm, a, b, uneven, RF_F32, nullptr),
                       "all_gather_v");
            is_refused(described::reduce_scatter_v(comm, a, b, uneven, RF_F32, RF_SUM, nullptr),
                       "reduce_scatter_v");
            is_refused(described::gather_v(comm, a, b, uneven, RF_F32, 0, nullptr), "gather_v");
            is_refused(described::scatter_v(comm, a, b, uneven, RF_F32, 0, nullptr), "scatter_v");
            is_refused(described::all_to_all_v(comm, a, uneven, b, few, RF_F32, nullptr),
                       "all_to_all_v");
            is_refused(described::all_to_all_v(comm, a, few, b, uneven, RF_F32, nullptr),
                       "all_to_all_v, received");
        }
        for (size_t n : {SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1}) {
            is_refused(rf_send(comm, a, n, RF_F32, 1 - rf_comm_rank(comm), 0, nullptr), "send");
            is_refused(rf_recv(comm, a, n, RF_F32, 1 - rf_comm_rank(comm), 0, nullptr), "recv");
        }
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

TEST(Arguments, AreRefusedWithASentenceAndDoNotFailTheCommunicator)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int) {
        float a[8] = {}, b[8] = {};
        rf_coll_opts opts = {};
        /* The second round follows a call that differs only in the wrong argument. */
        for (int round = 0; round < 2; round++) {
            EXPECT_EQ(rf_all_reduce(nullptr, a, b, 4, RF_F32, RF_SUM, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, nullptr, b, 4, RF_F32, RF_SUM, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, a, nullptr, 4, RF_F32, RF_SUM, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, a, a + 1, 4, RF_F32, RF_SUM, nullptr), RF_EINVAL);
            EXPECT_NE(strstr(rf_last_error()->message, "overlap"), nullptr);
            EXPECT_EQ(rf_all_reduce(comm, a, b, SIZE_MAX / 2, RF_F32, RF_SUM, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, a, b, 4, static_cast<rf_dtype>(99), RF_SUM, nullptr),
                      RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, a, b, 4, RF_F32, static_cast<rf_redop>(9), nullptr),
                      RF_EINVAL);
            opts.order = static_cast<rf_order>(7);
            EXPECT_EQ(rf_all_reduce(comm, a, b, 4, RF_F32, RF_SUM, &opts), RF_EINVAL);
            opts = {};
            opts.timeout_s = -1;
            EXPECT_EQ(rf_all_reduce(comm, a, b, 4, RF_F32, RF_SUM, &opts), RF_EINVAL);
            EXPECT_EQ(rf_broadcast(comm, a, 4, RF_F32, 0, nullptr), RF_OK);
            EXPECT_EQ(rf_broadcast(comm, a, 4, RF_F32, 2, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_broadcast(comm, a, 4, RF_F32, -1, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_send(comm, a, 4, RF_F32, 5, 0, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_send(comm, a, 4, RF_F32, rf_comm_rank(comm), 0, nullptr), RF_EINVAL);
            EXPECT_EQ(rf_send(comm, a, 4, RF_F32, 1 - rf_comm_rank(comm), 1024, nullptr),
                      RF_EINVAL);
            EXPECT_EQ(rf_all_reduce(comm, a, b, 4, RF_F32, RF_SUM, nullptr), RF_OK);
        }
        EXPECT_EQ(rf_all_reduce(comm, nullptr, nullptr, 0, RF_F32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

} // namespace
