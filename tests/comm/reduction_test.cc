/* SPDX-License-Identifier: MIT
 *
 * Other kinds of reduction: inputs scaled by a factor of each rank, a function of the caller, and
 * f32 data sent in 16 bits.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "element.h"
#include "support/described_calls.h"
#include "support/ranks.h"
#include "support/usage.h"

extern "C" int rf_comm_follow(rf_comm *comm, int status, bool flushes); /* communicator.h */

namespace
{

class Reduction : public testing::TestWithParam<ranks::World>
{
};

std::vector<size_t> pieces(int size, size_t count)
{
    std::vector<size_t> counts(static_cast<size_t>(size), count);
    counts[0] = 2 * count + 1;
    return counts;
}

/* The forms of a reduction; the reduced elements that this rank gets are [*first, *first + *n). */
enum Form { ALL, IN_PLACE, ROOTED, SCATTERED, SCATTERED_V, REQUESTED };
constexpr Form forms[] = {ALL, IN_PLACE, ROOTED, SCATTERED, SCATTERED_V, REQUESTED};

size_t input_count(Form form, int size, size_t count)
{
    return form == SCATTERED     ? count * static_cast<size_t>(size)
           : form == SCATTERED_V ? count * static_cast<size_t>(size + 1) + 1
                                 : count;
}

int reduce(rf_comm *comm, Form form, std::vector<uint8_t> &in, std::vector<uint8_t> &out,
           size_t count, rf_dtype dtype, rf_redop redop, rf_coll_opts opts, size_t *first,
           size_t *n)
{
    int size = rf_comm_size(comm), rank = rf_comm_rank(comm), root = size - 1;
    auto place = static_cast<size_t>(rank);
    std::vector<size_t> counts = pieces(size, count);
    out.assign(in.size(), 0xee);
    *first = 0;
    *n = count;
    switch (form) {
    case ALL:
        return rf_all_reduce(comm, in.data(), out.data(), count, dtype, redop, &opts);
    case IN_PLACE:
        out = in;
        return rf_all_reduce(comm, out.data(), out.data(), count, dtype, redop, &opts);
    case ROOTED:
        *n = rank == root ? count : 0;
        return rf_reduce(comm, in.data(), rank == root ? out.data() : nullptr, count, dtype, redop,
                         root, &opts);
    case SCATTERED:
        *first = place * count;
        return rf_reduce_scatter(comm, in.data(), out.data(), count, dtype, redop, &opts);
    case SCATTERED_V:
        *n = counts[place];
        *first = place * count + (rank > 0 ? count + 1 : 0);
        return described::reduce_scatter_v(comm, in.data(), out.data(), counts.data(), dtype, redop,
                                           &opts);
    default: {
        rf_request *request = nullptr;
        opts.request = &request;
        int rc = rf_all_reduce(comm, in.data(), out.data(), count, dtype, redop, &opts);
        if (rc == RF_OK)
            rc = rf_request_wait(request, 0);
        rf_request_free(request);
        return rc;
    }
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

TEST_P(Reduction, AScaleOfEachRanksOwnIsExactForEveryTypeAndForm)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        for (int d = 0; d < RF_DTYPE_COUNT; d++)
            for (Form form : forms)
                for (size_t count :
                     {size_t{0}, size_t{1}, size_t{7}, size_t{1031}, size_t{40000}}) {
                    if (count == 40000 && d != RF_F32 && d != RF_BF16)
                        continue;
                    auto dtype = static_cast<rf_dtype>(d);
                    size_t element = rf_dtype_bytes(dtype), n, first;
                    size_t all = input_count(form, size, count);
                    std::vector<uint8_t> out, in = element::inputs(dtype, RF_SUM, rank, 0, all);
                    const std::vector<uint8_t> before = in;
                    double scale = rank + 1; /* rank 0 passes none, which means 1 */
                    rf_coll_opts opts = {};
                    opts.scale = rank > 0 ? &scale : nullptr;
                    ASSERT_EQ(reduce(comm, form, in, out, count, dtype, RF_SUM, opts, &first, &n),
                              RF_OK)
                        << rf_last_error()->message;
                    EXPECT_EQ(in, before);
                    std::vector<uint8_t> want(element);
                    for (size_t i = 0; i < n; i++) {
                        double sum = 0;
                        for (int r = 0; r < size; r++)
                            sum += element::input(dtype, RF_SUM, r, first + i) * (r + 1);
                        /* Sums of small types wrap around. */
                        if (dtype == RF_U8 || dtype == RF_I8)
                            want[0] = static_cast<uint8_t>(static_cast<int64_t>(sum));
                        else
                            element::store(dtype, want.data(), sum);
                        ASSERT_EQ(memcmp(want.data(), out.data() + i * element, element), 0)
                            << rf_dtype_name(dtype) << " form " << form << " count " << count
                            << " at " << i;
                    }
                }
    });
}

/* ---- the caller's own ------------------------------------------------------------------------ */

void farther(void *out, const void *left, const void *right, size_t count, void *)
{
    for (size_t i = 0; i < count; i++) {
        float a, b;
        memcpy(&a, static_cast<const char *>(left) + 4 * i, 4);
        memcpy(&b, static_cast<const char *>(right) + 4 * i, 4);
        float far = std::fabs(a) >= std::fabs(b) ? a : b;
        memcpy(static_cast<char *>(out) + 4 * i, &far, 4);
    }
}

/* x -> a x + b modulo 2^32, packed in 64 bits: composing such maps is associative and does not
 * commute. *user counts the elements. */
uint64_t after(uint64_t f, uint64_t g)
{
    auto a = static_cast<uint32_t>(f >> 32), b = static_cast<uint32_t>(f);
    auto c = static_cast<uint32_t>(g >> 32), d = static_cast<uint32_t>(g);
    return static_cast<uint64_t>(a * c) << 32 | static_cast<uint32_t>(c * b + d);
}

void compose(void *out, const void *left, const void *right, size_t count, void *user)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t f, g;
        memcpy(&f, static_cast<const char *>(left) + 8 * i, 8);
        memcpy(&g, static_cast<const char *>(right) + 8 * i, 8);
        f = after(f, g);
        memcpy(static_cast<char *>(out) + 8 * i, &f, 8);
    }
    *static_cast<size_t *>(user) += count;
}

uint64_t map_of(int rank, size_t i)
{
    return (i * 2654435761u + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15u) | 1ull << 32;
}

TEST_P(Reduction, OfOnesOwnKeepsTheRanksOrderWhereItDoesNotCommute)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        size_t elements = 0, first, n;
        const rf_reduction reduction = {compose, &elements, false, "compose"};
        rf_coll_opts opts = {};
        opts.reduction = &reduction;
        for (Form form : forms)
            for (size_t count : {size_t{0}, size_t{1}, size_t{6}, size_t{1031}, size_t{150001}}) {
                size_t all = input_count(form, size, count);
                std::vector<uint8_t> out, in(8 * all + 1);
                for (size_t i = 0; i < all; i++) {
                    uint64_t map = map_of(rank, i);
                    memcpy(in.data() + 8 * i, &map, 8);
                }
                ASSERT_EQ(reduce(comm, form, in, out, count, RF_I64, RF_CUSTOM, opts, &first, &n),
                          RF_OK)
                    << rf_last_error()->message;
                for (size_t i = 0; i < n; i++) {
                    uint64_t got, want = map_of(0, first + i);
                    for (int r = 1; r < size; r++)
                        want = after(want, map_of(r, first + i));
                    memcpy(&got, out.data() + 8 * i, 8);
                    ASSERT_EQ(got, want) << "form " << form << " count " << count << " at " << i;
                }
            }
        EXPECT_EQ(elements > 0, size > 1);
    });
}

TEST_P(Reduction, OfOnesOwnThatCommutesMayTakeEveryAlgorithm)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        const rf_reduction reduction = {farther, nullptr, true, nullptr};
        for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE})
            for (Form form : forms)
                for (size_t count : {size_t{5}, size_t{1031}, size_t{300001}}) {
                    size_t all = input_count(form, size, count), first, n;
                    rf_coll_opts opts = {};
                    opts.reduction = &reduction;
                    opts.order = order;
                    auto value = [](int r, size_t i) {
                        auto x = static_cast<float>((i * 31 + static_cast<size_t>(r) * 17) % 101);
                        return (i + static_cast<size_t>(r)) % 2 ? -x - 0.25f * static_cast<float>(r)
                                                                : x + 0.25f * static_cast<float>(r);
                    };
                    std::vector<uint8_t> out, in(4 * all + 1);
                    for (size_t i = 0; i < all; i++) {
                        float x = value(rank, i);
                        memcpy(in.data() + 4 * i, &x, 4);
                    }
                    ASSERT_EQ(
                        reduce(comm, form, in, out, count, RF_F32, RF_CUSTOM, opts, &first, &n),
                        RF_OK)
                        << rf_last_error()->message;
                    for (size_t i = 0; i < n; i++) {
                        float got, want = value(0, first + i);
                        for (int r = 1; r < size; r++)
                            if (std::fabs(value(r, first + i)) > std::fabs(want))
                                want = value(r, first + i);
                        memcpy(&got, out.data() + 4 * i, 4);
                        ASSERT_EQ(got, want)
                            << "form " << form << " count " << count << " at " << i;
                    }
                }
    });
}

/* ---- 16-bit messages ------------------------------------------------------------------------- */

TEST_P(Reduction, In16BitMessagesStaysWithinItsBoundAndSendsHalfTheBytes)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        const size_t counts[] = {0, 1, 1031, 300001};
        size_t most = 0;
        for (Form form : forms)
            most = std::max(most, input_count(form, size, counts[3]));
        std::vector<std::vector<float>> inputs; /* of each rank: its first elements are used */
        for (int r = 0; r < size; r++) {
            std::mt19937 random(static_cast<unsigned>(r + 1));
            std::vector<float> x(most);
            for (float &each : x)
                each = (static_cast<float>(random() % 2000001) - 1e6f) * 0.01f +
                       (random() % 2 ? 1.0f : -1.0f);
            inputs.push_back(x);
        }
        for (rf_dtype wire_dtype : {RF_F16, RF_BF16})
            for (Form form : forms)
                for (size_t count : counts) {
                    size_t all = input_count(form, size, count), first, n;
                    const double u = wire_dtype == RF_F16 ? 0x1p-11 : 0x1p-8;
                    rf_coll_opts opts = {};
                    opts.wire_dtype = wire_dtype;
                    double scale = 0.5;
                    opts.scale = form == ALL ? &scale : nullptr;
                    std::vector<uint8_t> out, in(4 * all + 1);
                    if (all > 0)
                        memcpy(in.data(), inputs[static_cast<size_t>(rank)].data(), 4 * all);
                    uint64_t before = rf_comm_sent_bytes(comm);
                    ASSERT_EQ(reduce(comm, form, in, out, count, RF_F32, RF_SUM, opts, &first, &n),
                              RF_OK)
                        << rf_last_error()->message;
                    uint64_t sent = rf_comm_sent_bytes(comm) - before, narrow = 0;
                    if (form == ALL && count > 100000) { /* a ring of f32 sends twice as much */
                        ASSERT_EQ(sent_of(call_of(RF_COLL_ALL_REDUCE, rank, size, count, wire_dtype,
                                                  RF_ORDER_ANY, -1),
                                          &narrow),
                                  RF_OK);
                        EXPECT_EQ(sent, narrow);
                        const auto ranks = static_cast<size_t>(size);
                        EXPECT_LE(sent, 2 * (ranks - 1) * (count / ranks + 1) * sizeof(uint16_t));
                    }
                    for (size_t i = 0; i < n; i++) {
                        double sum = 0, absolute = 0;
                        for (const std::vector<float> &x : inputs) {
                            double value = x[first + i] * (form == ALL ? 0.5 : 1.0);
                            sum += value;
                            absolute += std::fabs(value);
                        }
                        float got;
                        memcpy(&got, out.data() + 4 * i, 4);
                        ASSERT_LE(std::fabs(got - sum),
                                  (u * (2 + u) + size * 0x1p-24) * absolute + 0x1p-24)
                            << "form " << form << " count " << count << " at " << i;
                    }
                }
    });
}

INSTANTIATE_TEST_SUITE_P(All, Reduction, testing::ValuesIn(ranks::worlds({1, 2, 3, 4, 5, 6}, {3})),
                         [](const auto &info) { return ranks::name(info.param); });

/* ---- subnormal numbers ----------------------------------------------------------------------- */

/* The smallest normal number, halved on each of two ranks: 0 if sums flush. MAX returns an operand.
 */
static void expect_flushed(rf_comm *comm, bool flush)
{
    EXPECT_EQ(rf_comm_flushes_subnormals(comm), flush);
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE, RF_ORDER_ANY})
        for (size_t count : {size_t{1}, size_t{40000}})
            for (rf_redop redop : {RF_SUM, RF_AVG, RF_PROD, RF_MAX}) {
                const float x = redop == RF_PROD ? 0x1p-70f : 0x1p-130f;
                std::vector<float> in(count, x), out(count, -1.0f);
                rf_coll_opts opts = {};
                opts.order = order;
                ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_F32, redop, &opts),
                          RF_OK)
                    << rf_last_error()->message;
                const float wanted = redop == RF_SUM    ? x * static_cast<float>(rf_comm_size(comm))
                                     : redop == RF_PROD ? x * x
                                                        : x;
                for (float each : out)
                    ASSERT_EQ(each, flush && redop != RF_MAX ? 0 : wanted) << redop;
            }
    double half = 0.5;
    rf_coll_opts opts = {};
    opts.scale = &half;
    float in = std::numeric_limits<float>::min(), out = -1;
    ASSERT_EQ(rf_all_reduce(comm, &in, &out, 1, RF_F32, RF_SUM, &opts), RF_OK);
    EXPECT_EQ(out, flush ? 0 : in) << "each half is subnormal, their sum is not";
}

/* Ranks whose devices differ use the stricter setting, and so do communicators derived from them.
 */
TEST(SubnormalsInSums, AreThoseOfTheStrictestDevice)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_comm *group = nullptr;
        ASSERT_EQ(rf_comm_follow(comm, 0, false), RF_OK) << rf_last_error()->message;
        expect_flushed(comm, false);
        ASSERT_EQ(rf_comm_follow(comm, 0, rank == 1), RF_OK) << rf_last_error()->message;
        expect_flushed(comm, true);
        ASSERT_EQ(rf_comm_split(comm, 0, rank, &group), RF_OK) << rf_last_error()->message;
        expect_flushed(group, true);
        EXPECT_EQ(rf_comm_close(group), RF_OK);
        ASSERT_EQ(rf_comm_follow(comm, 0, false), RF_OK);
        expect_flushed(comm, true);
    });
}

TEST(SubnormalsInSums, AreNotAgreedOnIfADeviceCannotBeAsked)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int rank) {
        EXPECT_EQ(rf_comm_follow(comm, rank == 2 ? RF_EDEVICE : 0, true), RF_EDEVICE);
        if (rank != 2) {
            EXPECT_EQ(rf_last_error()->rank, 2);
            EXPECT_NE(strstr(rf_last_error()->message, "rank 2 could not ask its device"), nullptr)
                << rf_last_error()->message;
        }
        EXPECT_FALSE(rf_comm_flushes_subnormals(comm));
    });
}

/* ---- refused calls --------------------------------------------------------------------------- */

TEST(ReductionErrors, WhatMakesNoSenseIsRefused)
{
    rf_comm *comm = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
    float x[4] = {}, y[4];
    double bad = NAN, half = 0.5;
    rf_coll_opts opts = {};
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_CUSTOM, nullptr), RF_EINVAL);
    opts.scale = &bad;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_SUM, &opts), RF_EINVAL);
    opts.scale = &half;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_I32, RF_SUM, &opts), RF_EINVAL);
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_MAX, &opts), RF_EINVAL);
    EXPECT_EQ(rf_all_gather(comm, x, y, 4, RF_F32, &opts), RF_EINVAL);
    opts = {};
    opts.wire_dtype = RF_BF16;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 2, RF_F64, RF_SUM, &opts), RF_EINVAL);
    opts.wire_dtype = RF_I8;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_SUM, &opts), RF_EINVAL);
    opts = {};
    const rf_reduction reduction = {farther, nullptr, false, "f"};
    opts.reduction = &reduction;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_SUM, &opts), RF_EINVAL);
    opts.order = RF_ORDER_RING;
    EXPECT_EQ(rf_all_reduce(comm, x, y, 4, RF_F32, RF_CUSTOM, &opts), RF_EINVAL);
    rf_comm_close(comm);
}

TEST(ReductionErrors, DifferentNamesAreAMismatch)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int rank) {
        const rf_reduction reduction = {farther, nullptr, true, rank ? "farther" : "nearer"};
        rf_coll_opts opts = {};
        opts.reduction = &reduction;
        float x[4] = {};
        EXPECT_EQ(rf_all_reduce(comm, x, x, 4, RF_F32, RF_CUSTOM, &opts), RF_EMISMATCH);
        EXPECT_NE(strstr(rf_last_error()->message, "names"), nullptr) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1 - rank);
    });
}

} // namespace
