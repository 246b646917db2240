// SPDX-License-Identifier: MIT
//
// Inputs and expected results of collectives: small integers, exact in every type and order.
#ifndef RF_TESTS_COLL_VALUES_H
#define RF_TESTS_COLL_VALUES_H

#include "simulator.h"

extern "C" {
#include "coll/table.h"
}

namespace values
{

// Small integers: every sum is exact in every type and order.
inline int value(int rank, size_t element)
{
    return (rank * 31 + static_cast<int>(element % 1009) * 7) % 41 - 13;
}

// The sum over all ranks. Values repeat every 1009 elements, and so do their sums.
inline int sum_of(int ranks, size_t element)
{
    static std::map<int, std::vector<int>> known;
    std::vector<int> &sums = known[ranks];
    if (sums.empty()) {
        sums.resize(1009);
        for (size_t i = 0; i < sums.size(); i++)
            for (int r = 0; r < ranks; r++)
                sums[i] += value(r, i);
    }
    return sums[element % 1009];
}

// Averages for odd counts if the algorithm supports them; otherwise sums.
inline rf_redop redop_for(struct rf_coll_desc desc, const char *algorithm)
{
    const struct rf_algorithm *row = nullptr;
    desc.redop = RF_AVG;
    return desc.count % 2 && rf_coll_find(&desc, algorithm, &row) == 0 ? RF_AVG : RF_SUM;
}

// The counts of all ranks in an all-to-all of the v form: elements from `from` to `to`.
inline size_t pair_count(int from, int to)
{
    return static_cast<size_t>((from * 7 + to * 3) % 5 * 11);
}

// The rank whose piece contains element `element` of the whole, and the offset in the piece.
inline std::pair<int, size_t> owner(const struct rf_coll_desc &desc, const size_t *counts,
                                    size_t element)
{
    int rank = 0;
    while (element >= (counts ? counts[rank] : desc.count))
        element -= counts ? counts[rank++] : (rank++, desc.count);
    return {rank, element};
}

inline int expected(const struct rf_coll_desc &desc, size_t element)
{
    size_t own = rf_share(&desc, desc.counts, desc.rank, 1).offset;
    switch (desc.op) {
    case RF_COLL_GATHER:
    case RF_COLL_ALL_GATHER: {
        auto [rank, at] = owner(desc, desc.counts, element);
        return value(rank, at);
    }
    case RF_COLL_ALL_TO_ALL: {
        auto [rank, at] = owner(desc, desc.recv_counts, element);
        for (int r = 0; desc.counts && r < desc.rank; r++)
            at += pair_count(rank, r);
        return value(rank, desc.counts ? at : own + at);
    }
    case RF_COLL_SCATTER:
        return value(desc.root, own + element);
    case RF_COLL_BROADCAST:
        return value(desc.root, element);
    case RF_COLL_REDUCE_SCATTER:
        element += own;
        break;
    default:
        break;
    }
    const int sum = sum_of(desc.ranks, element);
    return desc.redop == RF_AVG ? sum / desc.ranks : sum;
}

template <class T> void fill(sim::World &world, const struct rf_coll_desc &desc)
{
    for (int r = 0; r < desc.ranks; r++) {
        sim::Rank &rank = *world.ranks[r];
        bool in_out = desc.op == RF_COLL_BROADCAST;
        if (in_out && r != desc.root)
            continue;
        T *in = reinterpret_cast<T *>(in_out ? rank.out() : rank.in());
        for (size_t i = 0; i < rank.layout.in_bytes / sizeof(T); i++)
            in[i] = static_cast<T>(value(r, i));
    }
}

template <class T> std::string check(sim::World &world, struct rf_coll_desc desc)
{
    for (desc.rank = 0; desc.rank < desc.ranks; desc.rank++) {
        sim::Rank &rank = *world.ranks[desc.rank];
        const T *out = reinterpret_cast<const T *>(rank.out());
        const T *in = reinterpret_cast<const T *>(rank.in());
        std::string where = " of rank " + std::to_string(desc.rank);
        for (size_t i = 0; i < rank.layout.out_bytes / sizeof(T); i++)
            if (out[i] != static_cast<T>(expected(desc, i)))
                return "element " + std::to_string(i) + where + " is wrong";
        bool has_in = !rank.layout.in_place && desc.op != RF_COLL_BROADCAST;
        for (size_t i = 0; has_in && i < rank.layout.in_bytes / sizeof(T); i++)
            if (in[i] != static_cast<T>(value(desc.rank, i)))
                return "input " + std::to_string(i) + where + " was written";
    }
    return "";
}

} // namespace values

#endif
