/* SPDX-License-Identifier: MIT
 *
 * Recorded bits of sums: hashes of the results of collectives at the last intended change. Sums are
 * made in C without contraction, so the hashes hold on every processor.
 */
#include <gtest/gtest.h>

#include "comm/element.h"
#include "support/ranks.h"

namespace
{

struct Kept {
    rf_coll_op op;
    rf_dtype dtype;
    rf_redop redop;
    rf_order order;
    int ranks;
    size_t count;
    const char *algorithm;
    rf_dtype wire_dtype;
    uint64_t hash;
};

const Kept kept[] = {

    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_RING, 2, 1000, nullptr, RF_F32,
     0x682072a76bdad4c1u},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_RING, 3, 65537, nullptr, RF_F32,
     0x2cc6d341d7c14061u},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_AVG, RF_ORDER_RING, 4, 257, nullptr, RF_F32,
     0x18215c9c10a2b465u},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_TREE, 3, 1000, nullptr, RF_F32,
     0x537ed32bc8a894bcu},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_TREE, 5, 65537, nullptr, RF_F32,
     0xd9b584a117823216u},
    {RF_COLL_ALL_REDUCE, RF_F16, RF_SUM, RF_ORDER_RING, 4, 1000, nullptr, RF_F32,
     0xfb10d0c2b5200c1du},
    {RF_COLL_ALL_REDUCE, RF_BF16, RF_SUM, RF_ORDER_TREE, 3, 1000, nullptr, RF_F32,
     0xaa1a910ec9853c96u},
    {RF_COLL_ALL_REDUCE, RF_F64, RF_PROD, RF_ORDER_RING, 3, 1000, nullptr, RF_F32,
     0x3d0babb11b977cc5u},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_ANY, 4, 1000, "recursive_doubling", RF_F32,
     0x4d2619f06293306du},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_ANY, 4, 65537, "rabenseifner", RF_F32,
     0x11d4776eaa505cd5u},
    {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_RING, 3, 65537, nullptr, RF_BF16,
     0xea3cafc21c924107u},
    {RF_COLL_REDUCE_SCATTER, RF_F32, RF_SUM, RF_ORDER_RING, 3, 1001, nullptr, RF_F32,
     0x6052ba2930ce6732u},
    {RF_COLL_REDUCE_SCATTER, RF_BF16, RF_AVG, RF_ORDER_TREE, 4, 1001, nullptr, RF_F32,
     0x2b0145640f923eb3u},

};

/* Numbers whose sums are rounded: 24 bits, times varying powers of two. */
std::vector<uint8_t> numbers(rf_dtype dtype, int rank, size_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(rank + 1);
    std::vector<uint8_t> out(count * rf_dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double mantissa = static_cast<double>(state >> 40) - 8388608;
        element::store(dtype, &out[i * rf_dtype_bytes(dtype)],
                       std::ldexp(mantissa, -20 - static_cast<int>(state >> 36 & 7)));
    }
    return out;
}

uint64_t fnv(uint64_t hash, const std::vector<uint8_t> &bytes)
{
    for (uint8_t byte : bytes)
        hash = (hash ^ byte) * 0x100000001b3u;
    return hash;
}

/* Over all ranks' results, in rank order. */
uint64_t hash_of(const Kept &k)
{
    const bool scatter = k.op == RF_COLL_REDUCE_SCATTER;
    std::vector<std::vector<uint8_t>> results(static_cast<size_t>(k.ranks));
    ranks::World world;
    world.size = k.ranks;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_coll_opts opts = {};
        opts.order = k.order;
        opts.algorithm = k.algorithm;
        opts.wire_dtype = k.wire_dtype;
        auto in = numbers(k.dtype, rank, k.count * static_cast<size_t>(scatter ? k.ranks : 1));
        std::vector<uint8_t> out(k.count * rf_dtype_bytes(k.dtype));
        ASSERT_EQ(
            scatter
                ? rf_reduce_scatter(comm, in.data(), out.data(), k.count, k.dtype, k.redop, &opts)
                : rf_all_reduce(comm, in.data(), out.data(), k.count, k.dtype, k.redop, &opts),
            RF_OK)
            << rf_last_error()->message;
        results[static_cast<size_t>(rank)] = out;
    });
    uint64_t hash = 0xcbf29ce484222325u;
    for (const auto &result : results)
        hash = fnv(hash, result);
    return hash;
}

} // namespace

TEST(Bits, OfSumsAreThoseThatWereKept)
{
    for (size_t i = 0; i < std::size(kept); i++)
        EXPECT_EQ(hash_of(kept[i]), kept[i].hash)
            << "row " << i << std::hex << " is 0x" << hash_of(kept[i]);
}
