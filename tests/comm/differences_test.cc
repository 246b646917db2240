/* SPDX-License-Identifier: MIT
 *
 * A table of the ways in which one rank's call can differ from the others'. Each is RF_EMISMATCH on
 * all ranks, in the operation in which it happens, and names the ranks that differ and both calls.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

struct Memory {
    std::vector<float> in = std::vector<float>(100000), out = std::vector<float>(100000);
};
using Call = std::function<int(rf_comm *comm, Memory &m)>;

struct Difference {
    const char *name;
    rf_coll_op odd_op, other_op;
    Call deviating, other;
    bool alike = false; /* the contracts are equal: they have no field for the difference */
};

rf_coll_opts options(rf_order order, const char *label, const char *algorithm)
{
    rf_coll_opts opts = {};
    opts.order = order;
    opts.label = label;
    opts.algorithm = algorithm;
    return opts;
}

Call all_reduce(size_t count, rf_dtype dtype = RF_F32, rf_redop redop = RF_SUM,
                rf_order order = RF_ORDER_ANY, const char *label = nullptr,
                const char *algorithm = nullptr)
{
    return [=](rf_comm *comm, Memory &m) {
        rf_coll_opts opts = options(order, label, algorithm);
        return rf_all_reduce(comm, m.in.data(), m.out.data(), count, dtype, redop, &opts);
    };
}
Call reduce(size_t count, int root)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_reduce(comm, m.in.data(), m.out.data(), count, RF_F32, RF_SUM, root, nullptr);
    };
}
Call broadcast(size_t count, int root)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_broadcast(comm, m.in.data(), count, RF_F32, root, nullptr);
    };
}
Call gather(size_t count, int root)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_gather(comm, m.in.data(), m.out.data(), count, RF_F32, root, nullptr);
    };
}
Call scatter(size_t count, int root, const char *label = nullptr)
{
    return [=](rf_comm *comm, Memory &m) {
        rf_coll_opts opts = options(RF_ORDER_ANY, label, nullptr);
        return rf_scatter(comm, m.in.data(), m.out.data(), count, RF_F32, root, &opts);
    };
}
Call reduce_scatter(size_t count)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_reduce_scatter(comm, m.in.data(), m.out.data(), count, RF_F32, RF_SUM, nullptr);
    };
}
Call all_gather(size_t count)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_all_gather(comm, m.in.data(), m.out.data(), count, RF_F32, nullptr);
    };
}
Call all_to_all(size_t count, rf_dtype dtype)
{
    return [=](rf_comm *comm, Memory &m) {
        return rf_all_to_all(comm, m.in.data(), m.out.data(), count, dtype, nullptr);
    };
}
/* The same sum, with two divisions into shares. */
Call all_gather_v(size_t first)
{
    return [=](rf_comm *comm, Memory &m) {
        std::vector<size_t> counts(static_cast<size_t>(rf_comm_size(comm)), 10);
        counts[0] = first;
        counts[1] = 20 - first;
        return described::all_gather_v(comm, m.in.data(), m.out.data(), counts.data(), RF_F32,
                                       nullptr);
    };
}
Call barrier()
{
    return [](rf_comm *comm, Memory &) { return rf_barrier(comm, nullptr); };
}
Call then(const Call &first, const Call &second)
{
    return [=](rf_comm *comm, Memory &m) {
        int rc = first(comm, m);
        return rc < 0 ? rc : second(comm, m);
    };
}
Call custom(const char *name)
{
    return [=](rf_comm *comm, Memory &m) {
        const rf_reduction keep = {[](void *out, const void *left, const void *, size_t count,
                                      void *) { memmove(out, left, count * sizeof(float)); },
                                   nullptr, false, name};
        rf_coll_opts opts = {};
        opts.reduction = &keep;
        return rf_all_reduce(comm, m.in.data(), m.out.data(), 100, RF_F32, RF_CUSTOM, &opts);
    };
}
Call narrow(size_t count)
{
    return [=](rf_comm *comm, Memory &m) {
        rf_coll_opts opts = {};
        opts.wire_dtype = RF_BF16;
        return rf_all_reduce(comm, m.in.data(), m.out.data(), count, RF_F32, RF_SUM, &opts);
    };
}

std::vector<Difference> differences()
{
    const rf_coll_op ar = RF_COLL_ALL_REDUCE;
    return {
        {"count", ar, ar, all_reduce(101), all_reduce(100)},
        {"long count", ar, ar, all_reduce(90001), all_reduce(90000)},
        {"count of nothing", ar, ar, all_reduce(0), all_reduce(100)},
        {"type of equal size", ar, ar, all_reduce(100, RF_I32), all_reduce(100)},
        {"type", ar, ar, all_reduce(100, RF_BF16), all_reduce(100)},
        {"reduction", ar, ar, all_reduce(100, RF_F32, RF_MAX), all_reduce(100)},
        {"order", ar, ar, all_reduce(100, RF_F32, RF_SUM, RF_ORDER_TREE), all_reduce(100)},
        {"label", ar, ar, all_reduce(100, RF_F32, RF_SUM, RF_ORDER_ANY, "loss"),
         all_reduce(100, RF_F32, RF_SUM, RF_ORDER_ANY, "norm")},
        {"algorithm", ar, ar, all_reduce(100, RF_F32, RF_SUM, RF_ORDER_ANY, nullptr, "ring"),
         all_reduce(100, RF_F32, RF_SUM, RF_ORDER_ANY, nullptr, "direct"), true},
        {"sent in 16 bits", ar, ar, narrow(100), all_reduce(100)},
        {"own reduction", ar, ar, custom("first"), custom("one"), true},
        {"count of a reduce_scatter", RF_COLL_REDUCE_SCATTER, RF_COLL_REDUCE_SCATTER,
         reduce_scatter(51), reduce_scatter(50)},
        {"count of an all_gather", RF_COLL_ALL_GATHER, RF_COLL_ALL_GATHER, all_gather(9),
         all_gather(10)},
        {"shares of an all_gather", RF_COLL_ALL_GATHER, RF_COLL_ALL_GATHER, all_gather_v(3),
         all_gather_v(4), true},
        {"count of a broadcast", RF_COLL_BROADCAST, RF_COLL_BROADCAST, broadcast(99, 0),
         broadcast(100, 0)},
        {"root of a broadcast", RF_COLL_BROADCAST, RF_COLL_BROADCAST, broadcast(100, 1),
         broadcast(100, 0)},
        {"root of a reduce", RF_COLL_REDUCE, RF_COLL_REDUCE, reduce(100, 1), reduce(100, 0)},
        {"root of a gather", RF_COLL_GATHER, RF_COLL_GATHER, gather(100, 1), gather(100, 0)},
        {"root of a scatter", RF_COLL_SCATTER, RF_COLL_SCATTER, scatter(100, 1), scatter(100, 0)},
        {"label of a scatter", RF_COLL_SCATTER, RF_COLL_SCATTER, scatter(100, 0, "a"),
         scatter(100, 0, "b")},
        {"type of an all_to_all", RF_COLL_ALL_TO_ALL, RF_COLL_ALL_TO_ALL, all_to_all(10, RF_I32),
         all_to_all(10, RF_F32)},
        {"operation: gather or reduce", RF_COLL_GATHER, RF_COLL_REDUCE, gather(100, 0),
         reduce(100, 0)},
        {"operation: all_to_all or all_gather", RF_COLL_ALL_TO_ALL, RF_COLL_ALL_GATHER,
         all_to_all(10, RF_F32), all_gather(10)},
        {"operation: barrier or all_reduce", RF_COLL_BARRIER, ar, barrier(), all_reduce(1)},
        {"order of two calls", RF_COLL_ALL_GATHER, ar, then(all_gather(10), all_reduce(10)),
         then(all_reduce(10), all_gather(10))},
        {"a call left out", RF_COLL_ALL_GATHER, ar, all_gather(10),
         then(all_reduce(10), all_gather(10))},
    };
}

class Differences : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Differences, AreReportedOnAllRanks)
{
    const int deviating = 1;
    for (const Difference &difference : differences())
        ranks::run(GetParam(), [&](rf_comm *comm, int rank) {
            SCOPED_TRACE(difference.name);
            const bool is_deviating = rank == deviating;
            const int size = rf_comm_size(comm);
            Memory memory;
            int rc = RF_OK;
            for (int i = 0; i < 2 && rc == RF_OK; i++)
                rc = rf_barrier(comm, nullptr);
            bool early = rc < 0; /* another rank's error came before this rank's call */
            if (rc == RF_OK)
                rc = (is_deviating ? difference.deviating : difference.other)(comm, memory);
            if (rc == RF_OK) /* its part completed before anybody noticed */
                rc = rf_barrier(comm, nullptr);
            const rf_error error = *rf_last_error();
            EXPECT_EQ(rc, RF_EMISMATCH) << "rank " << rank << ": " << error.message;
            EXPECT_EQ(error.sequence, 2u) << error.message;
            if (early || (difference.alike && size > 2))
                return;
            if (is_deviating)
                EXPECT_NE(error.rank, deviating) << error.message;
            else
                EXPECT_EQ(error.rank, deviating) << error.message;
            EXPECT_EQ(error.mine.op, is_deviating ? difference.odd_op : difference.other_op)
                << error.message;
            EXPECT_EQ(error.theirs.op, is_deviating ? difference.other_op : difference.odd_op)
                << error.message;
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        });
}

INSTANTIATE_TEST_SUITE_P(All, Differences, testing::ValuesIn(ranks::worlds({2, 3, 5}, {3})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
