// SPDX-License-Identifier: MIT
//
// The base layer: errors, environment, failing allocations, random numbers, log, trace.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include <ringforge/ringforge.h>

#include "base/base.h"
}

TEST(Fail, KeepsSentencePerThread)
{
    EXPECT_EQ(rf_fail(RF_EINVAL, "count is %d", 7), RF_EINVAL);
    std::thread([] { rf_fail_rank(RF_EPEER, 3, "rank 3 died"); }).join();
    EXPECT_STREQ(rf_last_error()->message, "count is 7");
    EXPECT_EQ(rf_last_error()->rank, -1);
}

TEST(Fail, TakesItsOwnMessageAsArgument)
{
    rf_fail(RF_EIO, "disk full");
    rf_fail(RF_EIO, "save failed: %s", rf_last_error()->message);
    EXPECT_STREQ(rf_last_error()->message, "save failed: disk full");
}

TEST(Fail, CutsLongSentencesWithoutOverrun)
{
    std::string text(5000, 'x');
    rf_fail(RF_EINVAL, "%s", text.c_str());
    EXPECT_EQ(strlen(rf_last_error()->message), sizeof(rf_last_error()->message) - 1);
}

TEST(Status, EveryCodeHasNameAndText)
{
    EXPECT_STREQ(rf_status_name(RF_EMISMATCH), "RF_EMISMATCH");
    EXPECT_STREQ(rf_status_name(-999), "RF_?");
    for (int status = 0; status >= RF_EAGAIN; status--)
        EXPECT_STRNE(rf_status_text(status), "unknown status") << status;
}

TEST(Env, NumberMustBeANumber)
{
    long value = 0;
    setenv("RF_PORT", "12x", 1);
    EXPECT_EQ(rf_env_int("RF_PORT", 5, &value), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("RF_PORT"), std::string::npos);
    setenv("RF_PORT", "12", 1);
    EXPECT_EQ(rf_env_int("RF_PORT", 5, &value), 0);
    EXPECT_EQ(value, 12);
    unsetenv("RF_PORT");
    EXPECT_EQ(rf_env_int("RF_PORT", 5, &value), 0);
    EXPECT_EQ(value, 5);
}

TEST(Environment, WhatAVariableMayNotBeIsNamedWithWhatItMay)
{
    const struct {
        const char *name, *value, *message;
    } rows[] = {
        {"RF_MEASURE", "yes",
         "the environment variable RF_MEASURE is \"yes\"; it has to be 0 or 1"},
        {"RF_PEER_READS", "some",
         "the environment variable RF_PEER_READS is \"some\"; it has to be auto, exchanges, 0, 1 "
         "or "
         "any"},
        {"RF_PORT", "70000", "the environment variable RF_PORT has to be 1 to 65535, not 70000"},
        {"RF_PORT", "x",
         "the environment variable RF_PORT is \"x\"; it has to be a whole number from 1 to 65535"},
        {"RF_LOG", "comm:3,device",
         "the environment variable RF_LOG is \"comm:3,device\"; it has to be a level, such as 2, "
         "or "
         "levels of components, such as comm:3,device:1"},
    };
    EXPECT_EQ(rf_env_check(), 0);
    setenv("RF_LOG", "comm:3,1", 1);
    EXPECT_EQ(rf_env_check(), 0);
    unsetenv("RF_LOG");
    for (const auto &row : rows) {
        setenv(row.name, row.value, 1);
        EXPECT_EQ(rf_env_check(), RF_EINVAL);
        EXPECT_STREQ(rf_last_error()->message, row.message);
        unsetenv(row.name);
    }
    setenv("RF_CHECKSUM", "", 1); // as if it were not set
    EXPECT_EQ(rf_env_check(), 0);
    unsetenv("RF_CHECKSUM");
}

TEST(Env, UnlistedVariableIsNotRead)
{
    setenv("RF_NOT_IN_TABLE", "1", 1);
    EXPECT_EQ(rf_env("RF_NOT_IN_TABLE"), nullptr);
}

TEST(Alloc, FailsAtTheChosenCallOnly)
{
    rf_alloc_fail_at(2);
    void *a = rf_alloc(8), *b = rf_alloc(8), *c = rf_alloc(8);
    rf_alloc_fail_at(0);
    EXPECT_NE(a, nullptr);
    EXPECT_EQ(b, nullptr);
    EXPECT_NE(c, nullptr);
    rf_free(a);
    rf_free(c);
}

TEST(Philox, MatchesThePublishedVectors)
{
    // known answers of Random123 1.09 for philox4x32-10
    uint32_t r[4];
    rf_philox(0, 0, 0, r);
    EXPECT_EQ(r[0], 0x6627e8d5u);
    EXPECT_EQ(r[3], 0x9b00dbd8u);
    rf_philox(~0ull, ~0ull, ~0ull, r);
    EXPECT_EQ(r[0], 0x408f276du);
    EXPECT_EQ(r[3], 0x6d5451fdu);
    rf_philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull, r);
    EXPECT_EQ(r[0], 0xd16cfe09u);
    EXPECT_EQ(r[1], 0x94fdccebu);
    EXPECT_EQ(r[2], 0x5001e420u);
    EXPECT_EQ(r[3], 0x24126ea1u);
}

TEST(Philox, NormalHasItsMomentsAndStaysFinite)
{
    double sum = 0, squares = 0;
    const int n = 100000;
    for (int i = 0; i < n; i++) {
        double x = rf_philox_normal(7, 1, (uint64_t)i);
        ASSERT_TRUE(std::isfinite(x));
        sum += x;
        squares += x * x;
    }
    // five standard errors: 5/sqrt(n) and 5*sqrt(2/n)
    EXPECT_LT(std::fabs(sum / n), 0.016);
    EXPECT_LT(std::fabs(squares / n - 1), 0.023);
}

TEST(Philox, BelowStaysBelow)
{
    for (uint64_t i = 0; i < 1000; i++)
        EXPECT_LT(rf_philox_below(3, 0, i, 7), 7u);
}

TEST(Log, ComponentLevelChoosesLines)
{
    static std::vector<std::string> lines;
    lines.clear();
    rf_log_callback([](void *, int, const char *line) { lines.push_back(line); }, nullptr);
    setenv("RF_LOG", "comm:2,device:1", 1);
    rf_log("comm", 2, "yes");
    rf_log("comm", 3, "no");
    rf_log("device", 1, "yes too");
    rf_log("ops", 1, "no");
    rf_log("ops", 0, "always");
    unsetenv("RF_LOG");
    rf_log_callback(nullptr, nullptr);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_NE(lines[1].find("device: yes too"), std::string::npos);
}

TEST(Trace, KeepsEventsWithTheThreadsRank)
{
    size_t before = rf_trace_items(nullptr, 0);
    rf_trace_event("compute", "ignored", 1, 2);
    EXPECT_EQ(rf_trace_items(nullptr, 0), before);
    rf_trace_start();
    std::thread([] {
        rf_set_thread_rank(5);
        rf_trace_event("comm", "all_reduce", 10, 20);
    }).join();
    std::vector<rf_trace_item> items(before + 1);
    ASSERT_EQ(rf_trace_items(items.data(), items.size()), before + 1);
    EXPECT_EQ(items.back().rank, 5);
    EXPECT_STREQ(items.back().track, "comm");
    EXPECT_EQ(items.back().end_ns, 20u);
}

TEST(Types, NamesAndSizes)
{
    EXPECT_EQ(rf_dtype_bytes(RF_BF16), 2u);
    EXPECT_EQ(rf_dtype_bytes((enum rf_dtype)99), 0u);
    EXPECT_STREQ(rf_dtype_name(RF_I64), "i64");
    EXPECT_STREQ(rf_order_name(RF_ORDER_TREE), "tree");
}

TEST(Clock, SecondsThatAreTooManyAreForeverAndNegativeOnesAreNone)
{
    const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
    EXPECT_EQ(rf_seconds_to_ns(0), 0u);
    EXPECT_EQ(rf_seconds_to_ns(1.5), 1500000000u);
    EXPECT_EQ(rf_seconds_to_ns(1e10), 10000000000000000000u);
    for (double many : {1.8446744073709552e10, 2e10, 1e300, inf})
        EXPECT_EQ(rf_seconds_to_ns(many), UINT64_MAX) << many;
    for (double none : {-1e-300, -1.0, -inf, nan})
        EXPECT_EQ(rf_seconds_to_ns(none), 0u) << none;
    for (double no_time : {-1e-300, -1.0, -inf, nan}) {
        EXPECT_EQ(rf_check_seconds("wait", no_time), RF_EINVAL);
        EXPECT_EQ(strncmp(rf_last_error()->message, "wait: ", 6), 0) << rf_last_error()->message;
    }
    for (double time : {0.0, 1e-9, 3.0, inf})
        EXPECT_EQ(rf_check_seconds("wait", time), RF_OK);
}

TEST(Clock, ADeadlineBeyondTheClockIsNever)
{
    EXPECT_EQ(rf_add_ns(5, 7), 12u);
    EXPECT_EQ(rf_add_ns(5, UINT64_MAX), UINT64_MAX);
    EXPECT_EQ(rf_add_ns(UINT64_MAX, 5), UINT64_MAX);
    for (double seconds : {1.8e10, 2e10, 1e300})
        EXPECT_GT(rf_after_s(seconds), rf_now_ns()) << seconds;
    /* The argument of poll(): never too early, and -1 means no limit. */
    EXPECT_EQ(rf_poll_ms(10, 10), 0);
    EXPECT_EQ(rf_poll_ms(9, 10), 0);
    EXPECT_EQ(rf_poll_ms(11, 10), 1);
    EXPECT_EQ(rf_poll_ms(2500010, 10), 3);
    EXPECT_EQ(rf_poll_ms(UINT64_MAX - 1, 10), INT_MAX);
    EXPECT_EQ(rf_poll_ms(UINT64_MAX, 10), -1);
}

TEST(Clock, AConditionIsWokenOrTheTimeIsOver)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    rf_cond_init(&cond);
    pthread_mutex_lock(&lock);
    const uint64_t until_ns = rf_after_s(0.001);
    while (rf_cond_wait(&cond, &lock, until_ns))
        ; // it may wake spuriously
    EXPECT_GE(rf_now_ns(), until_ns);
    EXPECT_FALSE(rf_cond_wait(&cond, &lock, rf_after_s(-1)));
    bool woken = false;
    std::thread other([&] {
        pthread_mutex_lock(&lock);
        woken = true;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&lock);
    });
    while (!woken)
        EXPECT_TRUE(rf_cond_wait(&cond, &lock, UINT64_MAX));
    pthread_mutex_unlock(&lock);
    other.join();
    pthread_cond_destroy(&cond);
}
