/* SPDX-License-Identifier: MIT
 *
 * Random programs of mixed collectives over two to six threads. Without faults, or with a delayed
 * message, every call is exact. If one rank deviates in one call or dies, or a message is lost or
 * damaged, every rank gets the structured error that an oracle predicts. RF_PROGRAMS sets the
 * number of programs of each kind (default 150 without faults, 30 or 50 with); a watchdog detects
 * hangs. They mostly wait, so several run at a time.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "programs.h"

namespace
{

using namespace programs;

void for_seeds(uint32_t usual, const std::function<void(uint32_t seed)> &body)
{
    const char *wanted = getenv("RF_PROGRAMS");
    const uint32_t count = wanted ? (uint32_t)atoi(wanted) : usual;
    std::atomic<uint32_t> next{1};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (uint32_t seed; (seed = next++) <= count && !testing::Test::HasFailure();)
                body(seed);
        });
    for (std::thread &thread : threads)
        thread.join();
}

/* The program without its fault, which succeeds. */
std::vector<Outcome> clean(uint32_t seed)
{
    std::vector<Outcome> outcomes = run(make(seed, NONE));
    for (const Outcome &outcome : outcomes)
        EXPECT_EQ(outcome.error.status, RF_OK) << "seed " << seed << ": " << outcome.error.message;
    return outcomes;
}

uint64_t messages_of(const std::vector<Outcome> &outcomes)
{
    uint64_t all = 0;
    for (const Outcome &outcome : outcomes)
        all += outcome.messages.back();
    return std::max<uint64_t>(all, 1);
}

std::string where(const Program &program, size_t rank, const Outcome &outcome)
{
    return "seed " + std::to_string(program.seed) + ", rank " + std::to_string(rank) + " of " +
           std::to_string(program.world.size) + ", call " + std::to_string(outcome.failed_at) +
           " of " + std::to_string(program.calls.size()) + ": " +
           rf_status_name(outcome.error.status) + ": " + outcome.error.message;
}

void expect_contract(const rf_contract &got, const rf_contract &want, const std::string &where)
{
    EXPECT_EQ(got.sequence, want.sequence) << where;
    EXPECT_EQ(got.count, want.count) << where;
    EXPECT_EQ(got.op, want.op) << where;
    EXPECT_EQ(got.dtype, want.dtype) << where;
    EXPECT_EQ(got.redop, want.redop) << where;
    EXPECT_EQ(got.order, want.order) << where;
    EXPECT_EQ(got.root, want.root) << where;
}

TEST(Programs, WithoutFaultsEveryCallIsExact)
{
    for_seeds(150, [](uint32_t seed) { clean(seed); });
}

TEST(Programs, ALateMessageIsNoError)
{
    for_seeds(30, [](uint32_t seed) {
        Program program = make(seed, DELAY, messages_of(clean(seed)));
        std::vector<Outcome> outcomes = run(program);
        for (size_t rank = 0; rank < outcomes.size(); rank++)
            EXPECT_EQ(outcomes[rank].error.status, RF_OK) << where(program, rank, outcomes[rank]);
    });
}

TEST(Programs, ADeviationIsReportedToAllRanksWithBothCalls)
{
    for_seeds(50, [](uint32_t seed) {
        Program program = make(seed, DEVIATION);
        std::vector<Outcome> outcomes = run(program);
        const rf_contract usual = contract(program.calls[program.at], program.at),
                          deviating = contract(program.deviation, program.at);
        for (int rank = 0; rank < program.world.size; rank++) {
            const Outcome &outcome = outcomes[(size_t)rank];
            const rf_error &error = outcome.error;
            const std::string here = where(program, (size_t)rank, outcome);
            EXPECT_EQ(error.status, RF_EMISMATCH) << here;
            EXPECT_EQ(error.sequence, program.at) << here;
            EXPECT_EQ(outcome.afterwards.status, RF_EABORT) << here;
            EXPECT_TRUE(error.rank >= 0 && error.rank < program.world.size) << here;
            EXPECT_NE(error.rank, rank) << here;
            /* A rank that has not reached this call has no call to compare. */
            const bool sided = outcome.failed_at >= program.at;
            const bool is_deviating =
                sided ? rank == program.deviating_rank : error.rank != program.deviating_rank;
            EXPECT_EQ(error.rank == program.deviating_rank, !is_deviating) << here;
            expect_contract(error.mine, is_deviating ? deviating : usual, here);
            expect_contract(error.theirs, is_deviating ? usual : deviating, here);
        }
    });
}

/* The call in which the victim sends one message too many; none if that is after the last. */
size_t dies_in(const Program &program, const Outcome &alive)
{
    size_t call = 0;
    while (call < alive.messages.size() &&
           alive.messages[call] <= program.world.faults.kill_after_messages)
        call++;
    return call;
}

TEST(Programs, ADeathIsReportedToAllSurvivorsByTheCallTheyAreIn)
{
    std::atomic<int> deaths{0}, programs{0};
    for_seeds(50, [&](uint32_t seed) {
        Program program = make(seed, DEATH);
        const int victim = program.world.faults.kill_rank;
        const size_t end = program.calls.size(); /* the barrier */
        const size_t death = dies_in(program, clean(seed)[(size_t)victim]);
        std::vector<Outcome> outcomes = run(program);
        programs++;
        deaths += death <= end;
        for (int rank = 0; rank < program.world.size; rank++) {
            const Outcome &outcome = outcomes[(size_t)rank];
            const rf_error &error = outcome.error;
            const std::string here = where(program, (size_t)rank, outcome) + " (rank " +
                                     std::to_string(victim) + " dies in call " +
                                     std::to_string(death) + ")";
            if (death > end) {
                EXPECT_EQ(error.status, RF_OK) << here;
                continue;
            }
            if (rank == victim) {
                EXPECT_EQ(outcome.failed_at, death) << here;
                EXPECT_EQ(error.rank, victim) << here;
                continue;
            }
            /* A rank that dies at the end may have released others before. */
            if (death == end && error.status == RF_OK)
                continue;
            EXPECT_EQ(error.status, RF_EPEER) << here;
            EXPECT_EQ(error.rank, victim) << here;
            EXPECT_EQ(error.sequence, outcome.failed_at) << here;
            EXPECT_EQ(outcome.afterwards.status, RF_EABORT) << here;
            EXPECT_EQ(outcome.afterwards.rank, victim) << here;
        }
    });
    EXPECT_GT(deaths, programs / 2) << "of " << programs << " programs";
}

/* Whose messages wait for each other is not predicted. Predicted are that some deadline passes, and
 * that nobody gets past the barrier, where some may have been released. */
TEST(Programs, ALostMessageIsATimeoutOnAllRanks)
{
    for_seeds(30, [](uint32_t seed) {
        Program program = make(seed, LOSS, messages_of(clean(seed)));
        std::vector<Outcome> outcomes = run(program);
        int late = 0;
        for (int rank = 0; rank < program.world.size; rank++) {
            const Outcome &outcome = outcomes[(size_t)rank];
            const std::string here = where(program, (size_t)rank, outcome);
            late += outcome.error.status == RF_ETIMEOUT;
            if (outcome.error.status == RF_OK)
                continue;
            EXPECT_EQ(outcome.error.status, RF_ETIMEOUT) << here;
            EXPECT_TRUE(outcome.error.rank >= 0 && outcome.error.rank < program.world.size) << here;
            EXPECT_LE(outcome.error.sequence, program.calls.size()) << here;
        }
        EXPECT_GT(late, 0) << "seed " << seed;
    });
}

/* Damage to data does not hit an empty message. Damage beside the data may hit the barrier at the
 * end: some may have been released by then, and cannot report their call any more. */
TEST(Programs, ADamagedMessageIsTheSameErrorOnAllRanks)
{
    std::atomic<int> noticed{0}, programs{0};
    for_seeds(30, [&](uint32_t seed) {
        Program program = make(seed, DAMAGE, messages_of(clean(seed)));
        const bool of_data = program.world.faults.damage_message > 0;
        std::vector<Outcome> outcomes = run(program);
        const Outcome *first = nullptr;
        size_t failed = 0;
        for (size_t rank = 0; rank < outcomes.size(); rank++) {
            const Outcome &outcome = outcomes[rank];
            const rf_error &error = outcome.error;
            const std::string here = where(program, rank, outcome);
            if (error.status == RF_OK)
                continue;
            failed++;
            first = first ? first : &outcome;
            const bool at_end = !of_data && error.sequence == program.calls.size();
            if (!at_end || error.status != RF_EMISMATCH) {
                EXPECT_EQ(error.status, RF_ECORRUPT) << here;
            }
            EXPECT_EQ(error.sequence, first->error.sequence) << here;
            if (error.status == RF_ECORRUPT) {
                EXPECT_STREQ(error.message, first->error.message) << here;
            }
        }
        programs++;
        noticed += failed > 0;
        EXPECT_TRUE(of_data || failed > 0) << "seed " << seed;
        if (failed > 0 && first->error.sequence < program.calls.size()) {
            EXPECT_EQ(failed, outcomes.size()) << where(program, 0, *first);
        }
    });
    EXPECT_GT(noticed, programs / 2) << "of " << programs << " programs";
}

} // namespace
