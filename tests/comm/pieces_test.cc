/* SPDX-License-Identifier: MIT
 *
 * Reduce, gather, scatter and all-to-all, and the forms with a count for each rank: every root, in
 * and out of place, over threads and every provider; algorithms by name; and the errors when ranks
 * disagree about counts.
 */
#include <gtest/gtest.h>

#include "comm/element.h"
#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

using Words = std::vector<int32_t>;

/* Element i of the data from `from` to `to`. */
int32_t word(int from, int to, size_t i)
{
    return (int32_t)(from * 1000003 + to * 1009 + (int)i);
}

Words piece(int from, int to, size_t count)
{
    Words words(count);
    for (size_t i = 0; i < count; i++)
        words[i] = word(from, to, i);
    return words;
}

void append(Words &all, const Words &more)
{
    all.insert(all.end(), more.begin(), more.end());
}

#define OK(call) ASSERT_EQ(call, RF_OK) << rf_last_error()->message

void check_rooted(rf_comm *comm, int rank, const std::vector<size_t> &counts, bool equal, int root)
{
    int ranks = rf_comm_size(comm);
    Words mine = piece(rank, 0, counts[(size_t)rank]), all;
    size_t before = 0;
    for (int r = 0; r < ranks; r++) {
        before += r < rank ? counts[(size_t)r] : 0;
        append(all, piece(r, 0, counts[(size_t)r]));
    }
    bool is_root = rank == root;
    Words whole(is_root ? all.size() : 0, -1), own(mine.size(), -1);
    auto gather = [&](const int32_t *in, int32_t *out) {
        return equal ? rf_gather(comm, in, out, counts[0], RF_I32, root, nullptr)
                     : described::gather_v(comm, in, out, counts.data(), RF_I32, root, nullptr);
    };
    auto scatter = [&](const int32_t *in, int32_t *out) {
        return equal ? rf_scatter(comm, in, out, counts[0], RF_I32, root, nullptr)
                     : described::scatter_v(comm, in, out, counts.data(), RF_I32, root, nullptr);
    };
    OK(gather(mine.data(), is_root ? whole.data() : nullptr));
    if (is_root) {
        EXPECT_EQ(whole, all);
    }
    OK(scatter(is_root ? whole.data() : nullptr, own.data()));
    EXPECT_EQ(own, mine);
    if (is_root) { /* in place */
        std::fill(whole.begin(), whole.end(), -1);
        std::copy(mine.begin(), mine.end(), whole.begin() + (long)before);
        OK(gather(whole.data() + before, whole.data()));
        EXPECT_EQ(whole, all);
        OK(scatter(whole.data(), whole.data() + before));
        EXPECT_EQ(whole, all);
    } else {
        OK(gather(mine.data(), nullptr));
        OK(scatter(nullptr, own.data()));
    }
}

void check_reduce(rf_comm *comm, int rank, size_t count, rf_dtype dtype, rf_redop redop, int root)
{
    int ranks = rf_comm_size(comm);
    bool is_root = rank == root;
    size_t bytes = count * rf_dtype_bytes(dtype);
    for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
        rf_coll_opts opts = {};
        opts.order = order;
        std::vector<uint8_t> in = element::inputs(dtype, redop, rank, 0, count), kept = in;
        std::vector<uint8_t> want = element::folds(dtype, redop, ranks, 0, count);
        std::vector<uint8_t> out(bytes + 1, 0xff);
        OK(rf_reduce(comm, in.data(), is_root ? out.data() : nullptr, count, dtype, redop, root,
                     &opts));
        EXPECT_EQ(in, kept);
        if (is_root) {
            EXPECT_EQ(memcmp(out.data(), want.data(), bytes), 0);
        }
        OK(rf_reduce(comm, in.data(), is_root ? in.data() : nullptr, count, dtype, redop, root,
                     &opts));
        EXPECT_EQ(memcmp(in.data(), is_root ? want.data() : kept.data(), bytes), 0);
    }
}

void check_exchange(rf_comm *comm, int rank, const std::vector<size_t> &counts, bool equal)
{
    int ranks = rf_comm_size(comm);
    Words in, want, sums, own;
    std::vector<size_t> send, recv;
    size_t before = 0;
    for (int r = 0; r < ranks; r++) {
        auto pair_count = [&](int from, int to) {
            return equal ? counts[0] : counts[(size_t)((from + 2 * to) % ranks)];
        };
        send.push_back(pair_count(rank, r));
        recv.push_back(pair_count(r, rank));
        append(in, piece(rank, r, send.back()));
        append(want, piece(r, rank, recv.back()));
        before += r < rank ? counts[(size_t)r] : 0;
    }
    Words out(want.size(), -1);
    if (equal)
        OK(rf_all_to_all(comm, in.data(), out.data(), counts[0], RF_I32, nullptr));
    else
        OK(described::all_to_all_v(comm, in.data(), send.data(), out.data(), recv.data(), RF_I32,
                                   nullptr));
    EXPECT_EQ(out, want);
    if (equal)
        return;
    Words mine = piece(rank, 0, counts[(size_t)rank]), all, summand;
    for (int r = 0; r < ranks; r++)
        append(all, piece(r, 0, counts[(size_t)r]));
    Words gathered(all.size(), -1);
    OK(described::all_gather_v(comm, mine.data(), gathered.data(), counts.data(), RF_I32, nullptr));
    EXPECT_EQ(gathered, all);
    for (size_t i = 0; i < all.size(); i++) {
        summand.push_back((int32_t)i * (rank + 1));
        sums.push_back((int32_t)i * ranks * (ranks + 1) / 2);
    }
    Words share(mine.size(), -1);
    OK(described::reduce_scatter_v(comm, summand.data(), share.data(), counts.data(), RF_I32,
                                   RF_SUM, nullptr));
    for (size_t i = 0; i < share.size(); i++)
        ASSERT_EQ(share[i], sums[before + i]);
}

class Pieces : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Pieces, AreExactForEveryRootAndAnyCounts)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        size_t ranks = (size_t)rf_comm_size(comm);
        for (size_t scale : {size_t{0}, size_t{1}, size_t{13}, size_t{40000}}) {
            std::vector<size_t> even(ranks, scale), uneven;
            for (size_t r = 0; r < ranks; r++)
                uneven.push_back(r * 3 % 4 * scale);
            for (bool equal : {true, false}) {
                check_exchange(comm, rank, equal ? even : uneven, equal);
                for (int root = 0; root < (int)ranks; root++)
                    check_rooted(comm, rank, equal ? even : uneven, equal, root);
                if (testing::Test::HasFailure())
                    return;
            }
        }
    });
}

TEST_P(Pieces, ReduceIsExactForEveryTypeReductionAndRoot)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (int root = 0; root < rf_comm_size(comm); root++) {
            for (int d = 0; d < RF_DTYPE_COUNT; d++)
                for (int r = 0; r < RF_REDOP_COUNT; r++)
                    for (size_t count : {size_t{0}, size_t{1}, size_t{101}})
                        check_reduce(comm, rank, count, (rf_dtype)d, (rf_redop)r, root);
            check_reduce(comm, rank, 300001, RF_F32, RF_SUM, root);
            check_reduce(comm, rank, 70001, RF_BF16, RF_AVG, root);
            if (testing::Test::HasFailure())
                return;
        }
    });
}

TEST_P(Pieces, AlgorithmsByNameAreExactAndUnknownOnesRefused)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int ranks = rf_comm_size(comm);
        bool power = (ranks & (ranks - 1)) == 0;
        for (const char *name :
             {"ring", "flat", "direct", "naive", "recursive_doubling", "rabenseifner", "best"}) {
            bool can =
                strcmp(name, "best") != 0 && (power || (strcmp(name, "recursive_doubling") != 0 &&
                                                        strcmp(name, "rabenseifner") != 0));
            for (size_t count : {size_t{1}, size_t{1000}, size_t{90001}}) {
                rf_coll_opts opts = {};
                opts.algorithm = name;
                std::vector<uint8_t> in = element::inputs(RF_F32, RF_SUM, rank, 0, count);
                std::vector<uint8_t> want = element::folds(RF_F32, RF_SUM, ranks, 0, count);
                int rc = rf_all_reduce(comm, in.data(), in.data(), count, RF_F32, RF_SUM, &opts);
                ASSERT_EQ(rc, can ? RF_OK : RF_EINVAL) << name << rf_last_error()->message;
                if (can) {
                    ASSERT_EQ(memcmp(in.data(), want.data(), 4 * count), 0) << name;
                }
            }
        }
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

/* Every rank calls; rank 1 calls something else. All get RF_EMISMATCH. */
void disagree(const ranks::World &world, const std::function<int(rf_comm *, bool)> &call)
{
    ranks::run(world, [&](rf_comm *comm, int rank) {
        int rc = call(comm, rank == 1);
        if (rc == RF_OK) /* its part completed before the others noticed */
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
    });
}

TEST_P(Pieces, DifferentCallsAreReported)
{
    static thread_local int32_t in[4096], out[4096];
    const size_t counts[4] = {5, 6, 7, 8}, swapped[4] = {6, 5, 7, 8};
    disagree(GetParam(), [&](rf_comm *comm, bool deviates) {
        return described::gather_v(comm, in, out, deviates ? swapped : counts, RF_I32, 0, nullptr);
    });
    disagree(GetParam(), [&](rf_comm *comm, bool deviates) {
        return described::all_gather_v(comm, in, out, deviates ? swapped : counts, RF_I32, nullptr);
    });
    disagree(GetParam(), [&](rf_comm *comm, bool deviates) {
        return rf_reduce(comm, in, out, 100, RF_I32, RF_SUM, deviates ? 1 : 0, nullptr);
    });
    disagree(GetParam(), [&](rf_comm *comm, bool deviates) {
        return deviates ? rf_scatter(comm, in, out, 10, RF_I32, 0, nullptr)
                        : rf_all_to_all(comm, in, out, 10, RF_I32, nullptr);
    });
    disagree(GetParam(), [&](rf_comm *comm, bool deviates) {
        rf_coll_opts opts = {};
        opts.algorithm = deviates ? "ring" : "direct";
        return rf_all_reduce(comm, in, out, 100, RF_I32, RF_SUM, &opts);
    });
    disagree(
        GetParam(),
        [&](rf_comm *comm,
            bool deviates) { /* rank 1 expects more than is sent */
                             const size_t tens[4] = {10, 10, 10, 10}, more[4] = {11, 10, 10, 10};
                             return described::all_to_all_v(
                                 comm, in, tens, out, deviates ? more : tens, RF_I32, nullptr);
        });
}

TEST_P(Pieces, BadArgumentsAreRefused)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        int32_t a[64] = {}, b[64] = {};
        const size_t huge[4] = {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2};
        EXPECT_EQ(rf_gather(comm, a, b, 1, RF_I32, 9, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_reduce(comm, a, b, 1, RF_I32, RF_SUM, -1, nullptr), RF_EINVAL);
        EXPECT_EQ(described::all_gather_v(comm, a, b, huge, RF_I32, nullptr), RF_EINVAL);
        const struct {
            rf_coll_desc desc;
            const char *message;
        } wrong[] = {
            {{RF_COLL_FOREST_ALL_REDUCE}, "a function of its own"},
            {{RF_COLL_SEND}, "a function of its own"},
            {{RF_COLL_ALL_REDUCE, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_ANY, huge}, "counts NULL"},
            {{RF_COLL_ALL_REDUCE, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_RING}, "order"},
            {{RF_COLL_ALL_REDUCE, 0, 99, 1, RF_I32}, "of rank 0 of 99"},
            {{RF_COLL_ALL_GATHER, 0, 0, 1, RF_I32, RF_MAX}, "reduces nothing"},
            {{RF_COLL_ALL_GATHER, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_ANY, nullptr, huge},
             "for all_to_all"},
            {{RF_COLL_ALL_TO_ALL, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_ANY, huge}, "together"},
            {{RF_COLL_ALL_GATHER, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_ANY, nullptr, nullptr, 1},
             "no root"},
            {{RF_COLL_ALL_GATHER, 0, 0, 1, RF_I32, RF_SUM, RF_ORDER_ANY, nullptr, nullptr, 0,
              nullptr, 1},
             "leave them 0"},
        };
        for (const auto &row : wrong) {
            EXPECT_EQ(rf_collective(comm, a, b, &row.desc, nullptr), RF_EINVAL) << row.message;
            EXPECT_NE(strstr(rf_last_error()->message, row.message), nullptr)
                << rf_last_error()->message;
        }
        EXPECT_EQ(rf_collective(comm, a, b, nullptr, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_to_all(comm, a, a, 1, RF_I32, nullptr), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "overlap"), nullptr);
        EXPECT_EQ(rf_scatter(comm, a, nullptr, 1, RF_I32, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

INSTANTIATE_TEST_SUITE_P(All, Pieces, testing::ValuesIn(ranks::worlds({2, 3, 4}, {2, 3})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
