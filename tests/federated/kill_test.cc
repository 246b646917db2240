// SPDX-License-Identifier: MIT
//
// Clients are processes that are killed at random points and started again. No round hangs, and
// every mean is that of the updates that the coordinator says it has counted, to the bit.
#include "training.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "support/ranks.h"

using namespace federated;

namespace
{

const int CLIENTS = 3;
const int64_t COUNT = 300000; /* five pieces */

/* 60 is a multiple of every sum of weights, so that all parameters are whole numbers. */
float difference(int client, int64_t round, int64_t i)
{
    return static_cast<float>(60 * (client + 1) * ((round * 7 + i) % 5));
}

void die(int)
{
    kill(getpid(), SIGKILL);
}

/* A process that trains until the end, or dies after that time, or before it sends that message. */
void be_client(const Coordinator &c, int number, int die_us, int die_message)
{
    Client client(c, number, COUNT);
    itimerval timer = {};
    timer.it_value.tv_usec = die_us;
    signal(SIGALRM, die);
    client.opts.user = &die_message;
    client.opts.audit = [](void *user, bool sent, rf_federated_message, uint64_t) {
        if (sent && --*static_cast<int *>(user) == 0)
            die(0);
    };
    if (die_us)
        setitimer(ITIMER_REAL, &timer, nullptr);
    if (client.open() < 0)
        _exit(1);
    while (!client.stats.ended) {
        const int64_t round = rf_client_round(client.client);
        for (int64_t i = 0; i < COUNT; i++)
            client.values[i] -= difference(number, round, i);
        if (rf_client_step(client.client, number + 1, &client.stats) < 0)
            _exit(1);
    }
    _exit(0);
}

struct Progress { /* shared by all processes */
    int deaths;
    bool calm; /* nobody dies any more */
};

/* Starts a client again and again. */
void be_supervisor(const Coordinator &c, int number, Progress *progress)
{
    const unsigned messages = c.opts.secure ? 60 : 20; /* of three rounds, at most */
    std::mt19937 random(static_cast<unsigned>(number));
    for (;;) {
        const bool calm = __atomic_load_n(&progress->calm, __ATOMIC_RELAXED);
        const bool by_time = random() % 4 == 0;
        const int die_us = calm || !by_time ? 0 : 1 + static_cast<int>(random() % 40000);
        const int die_message = calm || by_time ? 0 : 1 + static_cast<int>(random() % messages);
        const pid_t child = fork();
        if (child == 0)
            be_client(c, number, die_us, die_message);
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status))
            _exit(WEXITSTATUS(status));
        __atomic_add_fetch(&progress->deaths, 1, __ATOMIC_RELAXED);
    }
}

/* Means are whole numbers, so that those of integers with 24 bits behind the point are the same. */
void kill_clients(int threshold, int deaths)
{
    const ranks::Shared shared(sizeof(Progress));
    Progress *progress = shared.as<Progress>();
    Coordinator c(CLIENTS);
    Vector now(COUNT, 5);
    c.rule.weighted = c.rule.difference = true;
    c.opts.initial = now.data();
    c.opts.count = COUNT;
    c.opts.rounds = 1 << 20;
    c.opts.round_s = 5;
    c.opts.secure = threshold;
    int wrong = 0, after = 0, renormalised = 0, failed = 0;
    int64_t last = 0;
    c.on_round = [&](const Round &round) {
        double weights = 0;
        for (int k = 0; k < CLIENTS; k++)
            if (round.parts[k] == RF_FEDERATED_COUNTED)
                weights += k + 1;
        for (int64_t i = 0; i < COUNT; i++) {
            double sum = 0;
            for (int k = 0; k < CLIENTS; k++)
                if (round.parts[k] == RF_FEDERATED_COUNTED)
                    sum += (k + 1) * static_cast<double>(difference(k, round.round, i));
            const float mean = weights > 0 ? static_cast<float>(sum / weights) : 0;
            wrong += now[i] - mean != round.values[i];
        }
        now = round.values;
        renormalised += weights > 0 && weights < 6;
        failed += weights == 0;
        last = round.round;
        c.rounds.clear();
        if (__atomic_load_n(&progress->deaths, __ATOMIC_RELAXED) >= deaths && renormalised >= 5)
            __atomic_store_n(&progress->calm, true, __ATOMIC_RELAXED);
        after += progress->calm;
        return after == 3;
    };
    ASSERT_EQ(c.open(), RF_OK) << rf_last_error()->message;
    c.port = rf_coordinator_port(c.coordinator);
    std::vector<pid_t> supervisors;
    for (int k = 0; k < CLIENTS; k++) {
        const pid_t child = fork();
        if (child == 0) {
            setpgid(0, 0);
            be_supervisor(c, k, progress);
        }
        supervisors.push_back(child);
    }
    EXPECT_EQ(rf_coordinator_run(c.coordinator), RF_EABORT); /* stopped by the test */
    rf_coordinator_close(c.coordinator);
    for (const pid_t child : supervisors) {
        kill(-child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    EXPECT_EQ(wrong, 0);
    std::printf("%d deaths in %lld rounds, %d of them without a client, %d without a mean\n",
                progress->deaths, static_cast<long long>(last + 1), renormalised, failed);
}

} // namespace

TEST(FederatedKills, NoHangAndNoWrongMean)
{
    kill_clients(0, 60);
}

TEST(FederatedKills, NoHangAndNoWrongMeanOfASecureAggregation)
{
    kill_clients(2, 40);
}
