/* SPDX-License-Identifier: MIT
 *
 * Signals belong to the program: the library, and every library it loads, does not change their
 * dispositions, and a signal ends a rank like any process.
 */
#include <algorithm>
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <sys/resource.h>

#include <csignal>

#include "support/fair_clock.h"
#include "support/ranks.h"

/* A sanitizer handles the signals of faults unless told not to, here and in children. It asks
 * before instrumented code may run. */
#define ASKED_EARLY                                                                                \
    __attribute__((visibility("default"), no_sanitize("address", "thread", "undefined")))
static const char no_signals[] =
    "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0";
extern "C" ASKED_EARLY const char *__asan_default_options()
{
    return no_signals;
}
extern "C" ASKED_EARLY const char *__tsan_default_options()
{
    return no_signals;
}

namespace
{

constexpr double PROMISED_S = 2;
constexpr int SA_RESTORER_BIT = 0x04000000; /* set by the C library with every action */

struct Disposition {
    void *handler = nullptr;
    int flags = 0;
    std::string mask;
    bool operator==(const Disposition &other) const
    {
        return handler == other.handler && flags == other.flags && mask == other.mask;
    }
};

Disposition disposition(int number)
{
    struct sigaction action = {};
    Disposition found;
    if (sigaction(number, nullptr, &action) != 0)
        return found; /* internal to the C library */
    found.handler = action.sa_flags & SA_SIGINFO ? reinterpret_cast<void *>(action.sa_sigaction)
                                                 : reinterpret_cast<void *>(action.sa_handler);
    found.flags = action.sa_flags & ~SA_RESTORER_BIT;
    for (int s = 1; s < NSIG; s++)
        found.mask += sigismember(&action.sa_mask, s) == 1 ? '1' : '0';
    return found;
}

std::vector<Disposition> all_dispositions()
{
    std::vector<Disposition> all(1);
    for (int s = 1; s < NSIG; s++)
        all.push_back(disposition(s));
    return all;
}

void expect_same(const std::vector<Disposition> &before)
{
    for (int s = 1; s < NSIG; s++)
        EXPECT_TRUE(disposition(s) == before[static_cast<size_t>(s)]) << "signal " << s;
}

/* Before main, and before any test can change them. */
const std::vector<Disposition> at_start = all_dispositions();

void on_signal(int)
{
}
void on_signal_with_information(int, siginfo_t *, void *)
{
}

/* Handlers of a program's own, with flags and masks, and ignored signals; restored at the end of
 * the test. */
class Own
{
  public:
    Own()
    {
        struct sigaction action = {};
        action.sa_handler = SIG_IGN;
        install(SIGINT, action);
        install(SIGPIPE, action);
        action.sa_handler = on_signal;
        action.sa_flags = SA_RESTART | SA_NODEFER;
        sigaddset(&action.sa_mask, SIGUSR2);
        install(SIGSEGV, action);
        install(SIGCHLD, action);
        action.sa_sigaction = on_signal_with_information;
        action.sa_flags = SA_SIGINFO;
        install(SIGTERM, action);
        install(SIGRTMIN + 3, action);
    }
    ~Own()
    {
        for (auto row = before_.rbegin(); row != before_.rend(); ++row)
            sigaction(row->first, &row->second, nullptr);
    }
    Own(const Own &) = delete;
    Own &operator=(const Own &) = delete;

  private:
    std::vector<std::pair<int, struct sigaction>> before_;
    void install(int number, const struct sigaction &action)
    {
        struct sigaction was;
        sigaction(number, &action, &was);
        before_.emplace_back(number, was);
    }
};

TEST(Signals, AProgramWithTheLibraryStartsWithTheDispositionsItWasGiven)
{
    for (int s : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGPIPE, SIGHUP})
        EXPECT_TRUE(at_start[static_cast<size_t>(s)].handler == reinterpret_cast<void *>(SIG_DFL) ||
                    at_start[static_cast<size_t>(s)].handler == reinterpret_cast<void *>(SIG_IGN))
            << "signal " << s << " has a handler before main";
}

class Dispositions : public testing::TestWithParam<const char *>
{
};

TEST_P(Dispositions, EveryDispositionIsAsTheProgramLeftItOnceACommunicatorIsOpen)
{
    Own own;
    const std::vector<Disposition> before = all_dispositions();
    ranks::World world;
    world.provider = GetParam();
    world.cold = true;
    ranks::run(world, [&before](rf_comm *comm, int) {
        expect_same(before);
        uint32_t count = 0;
        EXPECT_EQ(rf_provider_list(nullptr, nullptr, 0, &count), RF_OK);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK) << rf_last_error()->message;
        expect_same(before);
        struct sigaction late = {}; /* a handler installed afterwards stays as well */
        late.sa_handler = on_signal;
        sigaction(SIGTERM, &late, nullptr);
        EXPECT_EQ(rf_provider_list(nullptr, nullptr, 0, &count), RF_OK);
        EXPECT_EQ(disposition(SIGTERM).handler, reinterpret_cast<void *>(on_signal));
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        EXPECT_EQ(sigisemptyset(&mask), 1);
    });
}

TEST(Signals, ASignalEndsARankByItselfAndTheOtherNamesTheRankSoon)
{
    const std::pair<const char *, int> cases[] = {
        {"shm", SIGINT}, {"shm", SIGABRT}, {"tcp", SIGTERM}, {"tcp", SIGSEGV}};
    for (const auto &[provider, number] : cases) {
        ranks::World world;
        world.provider = provider;
        world.cold = true;
        world.expect_killed = 1;
        world.by_signal = number;
        ranks::run(world, [number = number](rf_comm *comm, int rank) {
            const struct rlimit no_core = {0, 0};
            setrlimit(RLIMIT_CORE, &no_core);
            ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK) << rf_last_error()->message;
            const FairClock clock;
            if (rank == 1)
                kill(getpid(), number);
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
            EXPECT_LT(clock.seconds(), PROMISED_S);
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Providers, Dispositions, testing::Values("shm", "tcp", "ofi-shm"),
                         [](const auto &info) {
                             std::string name = info.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

} // namespace
