// SPDX-License-Identifier: MIT
//
// Averages lie between the least and the greatest operand, for every type, algorithm, order and
// number of ranks, however large the sum is. An algorithm that sends partial sums refuses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "simulator.h"

extern "C" {
#include "coll/reduce.h"
#include "coll/table.h"
}

namespace
{

using Bytes = std::vector<unsigned char>;

template <class T> T read(const unsigned char *at)
{
    T value;
    memcpy(&value, at, sizeof(value));
    return value;
}

float widened(const unsigned char *at, rf_dtype dtype)
{
    float wide;
    rf_widen(&wide, at, 1, dtype);
    return wide;
}

// Exact for every type but i64, which has a path of its own below.
long double number(const unsigned char *at, rf_dtype dtype)
{
    switch (dtype) {
    case RF_F32:
        return read<float>(at);
    case RF_F64:
        return read<double>(at);
    case RF_I32:
        return read<int32_t>(at);
    case RF_I64:
        return read<int64_t>(at);
    case RF_U8:
        return *at;
    case RF_I8:
        return static_cast<int8_t>(*at);
    default:
        return widened(at, dtype);
    }
}

bool is_integer(rf_dtype dtype)
{
    return dtype == RF_I32 || dtype == RF_I64 || dtype == RF_U8 || dtype == RF_I8;
}

uint64_t mixed(uint64_t x)
{
    x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Random bits, including the limits of the type and values equal on all ranks. No NaN and no
// infinity.
void fill(unsigned char *at, rf_dtype dtype, size_t element, uint32_t rank)
{
    const size_t bytes = rf_dtype_bytes(dtype);
    const bool equal = element % 3 == 0;
    const uint64_t bits = mixed(equal ? element : element * 512 + rank + 1);
    memcpy(at, &bits, bytes);
    const bool negative = element % 4 == 3 || (element % 4 == 2 && bits >> 63);
    if (element % 5 == 1) { // limits: of one sign, or of both
        memset(at, is_integer(dtype) == negative ? 0 : 0xff, bytes);
        at[bytes - 1] = dtype == RF_U8      ? negative ? 0 : 0xff
                        : is_integer(dtype) ? negative ? 0x80 : 0x7f
                        : negative          ? 0xff
                                            : 0x7f;
        if (!is_integer(dtype)) {
            memset(at, 0xff, bytes - 1);
            at[bytes - 2] = dtype == RF_F32 || dtype == RF_BF16 ? 0x7f : 0xef;
            if (dtype == RF_F16)
                at[1] = negative ? 0xfb : 0x7b, at[0] = 0xff;
        }
    }
    if (!is_integer(dtype) && !std::isfinite(number(at, dtype)))
        memset(at, 0, bytes);
}

using Operands = std::vector<const unsigned char *>;

// Integers: the exact average without its fraction. `out`: the average of the operands.
testing::AssertionResult is_average(const unsigned char *out, const Operands &in, rf_dtype dtype)
{
    long double low = number(in[0], dtype), high = low, sum = 0, most = 0;
    __int128 whole = 0;
    for (const unsigned char *x : in) {
        const long double value = number(x, dtype);
        low = std::min(low, value);
        high = std::max(high, value);
        most = std::max(most, std::fabs(value));
        sum += value;
        whole += is_integer(dtype) ? static_cast<int64_t>(value) : 0;
    }
    const long double got = number(out, dtype);
    const int count = static_cast<int>(in.size());
    bool right = got >= low && got <= high;
    if (is_integer(dtype)) {
        right = right && got == static_cast<long double>(static_cast<int64_t>(whole / count));
    } else { // one rounding for each addition, of the largest partial sum, and the final one
        const int digits = dtype == RF_F64 ? 52 : dtype == RF_F32 ? 23 : dtype == RF_F16 ? 10 : 7;
        const long double error = std::ldexp(most, -digits - 1) +
                                  std::ldexp(most * count, dtype == RF_F64 ? -53 : -24) +
                                  (dtype == RF_F64    ? 0x1p-1074L
                                   : dtype == RF_F16  ? 0x1p-24L
                                   : dtype == RF_BF16 ? 0x1p-133L
                                                      : 0x1p-149L);
        right = right && std::fabs(got - sum / count) <= error;
    }
    if (right)
        return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "the average of " << count << " " << rf_dtype_name(dtype) << " from " << low << " to "
           << high << " is " << sum / count << ", not " << got;
}

const rf_dtype types[] = {RF_F32, RF_F64, RF_F16, RF_BF16, RF_I32, RF_I64, RF_U8, RF_I8};

struct Case {
    rf_coll_desc desc;
    const char *algorithm;
};

std::string text(const Case &c)
{
    return std::string(rf_coll_op_name(c.desc.op)) + " " + c.algorithm + " of " +
           std::to_string(c.desc.count) + " " + rf_dtype_name(c.desc.dtype) + " in " +
           rf_order_name(c.desc.order) + " order on " + std::to_string(c.desc.ranks) + " ranks";
}

testing::AssertionResult runs_right(const Case &c, bool in_place)
{
    const size_t bytes = rf_dtype_bytes(c.desc.dtype);
    sim::World world(c.desc, c.algorithm, in_place);
    if (!world.error.empty())
        return testing::AssertionFailure() << world.error;
    std::vector<Bytes> in;
    for (auto &rank : world.ranks) {
        for (size_t i = 0; i < rank->layout.in_bytes / bytes; i++)
            fill(rank->in() + i * bytes, c.desc.dtype, i, static_cast<uint32_t>(in.size()));
        in.emplace_back(rank->in(), rank->in() + rank->layout.in_bytes);
    }
    const std::string fault = sim::run_executor(world, 1);
    if (!fault.empty())
        return testing::AssertionFailure() << fault;
    for (size_t r = 0; r < world.ranks.size(); r++) {
        const bool scatters = c.desc.op == RF_COLL_REDUCE_SCATTER;
        if (c.desc.op == RF_COLL_REDUCE && static_cast<int>(r) != c.desc.root)
            continue;
        for (size_t i = 0; i < c.desc.count; i++) {
            Operands operands;
            for (const Bytes &data : in)
                operands.push_back(&data[(scatters ? r * c.desc.count + i : i) * bytes]);
            const auto right =
                is_average(world.ranks[r]->out() + i * bytes, operands, c.desc.dtype);
            if (!right)
                return testing::AssertionFailure()
                       << "element " << i << " of rank " << r << ": " << right.message();
        }
    }
    return testing::AssertionSuccess();
}

// All rows of the table that reduce; "fused" needs shared memory (tests/comm).
std::vector<Case> all_cases()
{
    static const int hosts[] = {0, 0, 1, 1, 2, 2, 3, 3, 4};
    std::vector<Case> cases;
    for (int number = 1; rf_coll_at(number); number++)
        for (rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE, RF_COLL_REDUCE_SCATTER}) {
            const rf_algorithm &row = *rf_coll_at(number);
            if (row.op != op || strcmp(row.name, "fused") == 0)
                continue;
            for (int ranks = 2; ranks <= 9; ranks++)
                for (rf_dtype dtype : types)
                    for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
                        Case c = {{}, row.name};
                        c.desc.op = op;
                        c.desc.ranks = ranks;
                        c.desc.dtype = dtype;
                        c.desc.order = order;
                        c.desc.redop = RF_AVG;
                        c.desc.count = 61;
                        c.desc.root = ranks - 1;
                        c.desc.hosts = ranks > 2 ? hosts : nullptr;
                        c.desc.shared = strcmp(row.name, "shared") == 0;
                        cases.push_back(c);
                    }
        }
    return cases;
}

TEST(Average, LiesBetweenItsOperandsWithEveryAlgorithmOrIsRefused)
{
    std::set<std::string> served, refused;
    for (const Case &c : all_cases()) {
        const std::string name = std::string(rf_coll_op_name(c.desc.op)) + " " + c.algorithm;
        const rf_algorithm *row = nullptr;
        if (rf_coll_find(&c.desc, c.algorithm, &row) < 0) {
            refused.insert(name);
            continue;
        }
        served.insert(name);
        ASSERT_TRUE(runs_right(c, c.desc.dtype == RF_F32)) << text(c);
    }
    for (const char *name :
         {"all_reduce direct", "all_reduce flat", "all_reduce naive", "all_reduce shared",
          "reduce direct", "reduce flat", "reduce_scatter direct"})
        EXPECT_EQ(served.count(name), 1u) << name;
    EXPECT_EQ(refused.count("all_reduce ring"), 1u) << "it sends partial sums";
}

// For any size and links, the chosen algorithm supports averages.
TEST(Average, HasAnAlgorithmOfEverySize)
{
    for (rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE, RF_COLL_REDUCE_SCATTER})
        for (int ranks : {1, 2, 3, 4, 8, 16, 33})
            for (size_t count = 1; count <= 16 << 20; count *= 4)
                for (bool shared : {false, true})
                    for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
                        rf_coll_desc desc = {};
                        desc.op = op;
                        desc.ranks = ranks;
                        desc.count = count;
                        desc.shared = shared;
                        desc.order = order;
                        desc.redop = RF_AVG;
                        const rf_algorithm *row = nullptr;
                        EXPECT_EQ(rf_coll_find(&desc, nullptr, &row), 0)
                            << rf_last_error()->message;
                    }
}

TEST(Average, OfFoldsOfManyOperandsIsExactOrWithinThem)
{
    std::mt19937 random(3);
    for (rf_dtype dtype : types)
        for (int parts : {2, 3, 5, 17, 300})
            for (bool tree : {false, true}) {
                const size_t count = 1 + random() % (parts > 100 ? 400 : 3000),
                             bytes = rf_dtype_bytes(dtype);
                std::vector<Bytes> data;
                std::vector<struct rf_fold_part> list;
                for (int p = 0; p < parts; p++) {
                    data.emplace_back(count * bytes);
                    for (size_t i = 0; i < count; i++)
                        fill(&data.back()[i * bytes], dtype, i, static_cast<uint32_t>(p));
                }
                for (const Bytes &part : data)
                    list.push_back({part.data(), 0});
                const std::vector<Bytes> before = data;
                const struct rf_fold fold = {
                    list.data(), static_cast<uint32_t>(parts), dtype, RF_SUM, tree, parts, nullptr};
                unsigned char *out = data[random() % data.size()].data(); // in place
                rf_fold(out, &fold, count);
                for (size_t i = 0; i < count; i++) {
                    Operands operands;
                    for (const Bytes &part : before)
                        operands.push_back(&part[i * bytes]);
                    ASSERT_TRUE(is_average(out + i * bytes, operands, dtype))
                        << "element " << i << (tree ? ", by tree" : "");
                }
            }
}

// All significands, since the rounding depends on them.
TEST(Average, OfEqualNumbersIsThatNumber)
{
    const uint32_t block = 1 << 16;
    std::vector<float> numbers(block), out(block);
    for (int parts : {2, 3, 6})
        for (bool tree : {false, true})
            for (uint32_t first = 0; first < 1 << 23; first += block) {
                for (uint32_t i = 0; i < block; i++)
                    numbers[i] = 1 + std::ldexp(static_cast<float>(first + i), -23);
                const std::vector<struct rf_fold_part> list(static_cast<size_t>(parts),
                                                            {numbers.data(), 0});
                const struct rf_fold fold = {
                    list.data(), static_cast<uint32_t>(parts), RF_F32, RF_SUM, tree, parts,
                    nullptr};
                rf_fold(out.data(), &fold, block);
                ASSERT_EQ(memcmp(out.data(), numbers.data(), block * sizeof(float)), 0)
                    << parts << (tree ? " by tree" : " in order") << ", from " << numbers[0];
            }
}

template <class T> T average_of(const std::vector<T> &operands, rf_dtype dtype)
{
    std::vector<struct rf_fold_part> list;
    for (const T &x : operands)
        list.push_back({&x, 0});
    const int count = static_cast<int>(operands.size());
    const struct rf_fold fold = {
        list.data(), static_cast<uint32_t>(count), dtype, RF_SUM, false, count, nullptr};
    T out;
    rf_fold(&out, &fold, 1);
    return out;
}

TEST(Average, OfIntegersTruncatesAndOfInfinitiesIsOne)
{
    const float most = std::numeric_limits<float>::max(), inf = INFINITY;
    EXPECT_EQ(average_of<int8_t>({100, 100, 100}, RF_I8), 100);
    EXPECT_EQ(average_of<uint8_t>({200, 200}, RF_U8), 200);
    EXPECT_EQ(average_of<int32_t>({-3, -4}, RF_I32), -3);
    EXPECT_EQ(average_of<int32_t>({3, 4}, RF_I32), 3);
    // The quotients nearest to whole numbers, with many operands and few.
    for (size_t count : {2u, 3u, 5u, 7u, 49u, 100u, 641u, 4095u})
        for (int32_t x : {INT32_MAX, INT32_MIN, 1, -1, 0, 1 << 30}) {
            std::vector<int32_t> equal(count, x);
            EXPECT_EQ(average_of(equal, RF_I32), x) << count;
            if (x == INT32_MIN)
                continue;
            equal[count / 2] -= x < 0 ? -1 : 1; // 1 / count nearer to zero than x
            EXPECT_EQ(average_of(equal, RF_I32), x == 0 ? 0 : x - (x < 0 ? -1 : 1)) << count;
        }
    EXPECT_EQ(average_of<int64_t>({INT64_MAX, INT64_MAX, INT64_MAX - 3}, RF_I64), INT64_MAX - 1);
    EXPECT_EQ(average_of<int64_t>({INT64_MIN, INT64_MIN}, RF_I64), INT64_MIN);
    EXPECT_EQ(average_of<float>({most, most, -most}, RF_F32), most / 3);
    EXPECT_EQ(average_of<float>({most, most, -inf}, RF_F32), -inf);
    EXPECT_EQ(average_of<float>({inf, 1}, RF_F32), inf);
    EXPECT_TRUE(std::isnan(average_of<float>({inf, -inf, most}, RF_F32)));
    EXPECT_TRUE(std::isnan(average_of<float>({1, NAN, most}, RF_F32)));
    EXPECT_EQ(average_of<double>({1.7e308, 1.7e308, 1.7e308}, RF_F64), 1.7e308);
    // 0x1.8p-149 is not an f32: halves of the least number.
    EXPECT_EQ(average_of<float>({0x1p-149f, 0x1p-149f}, RF_F32), 0x1p-149f);
}

} // namespace
