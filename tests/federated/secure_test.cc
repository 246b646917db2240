// SPDX-License-Identifier: MIT
//
// Secure aggregation in whole trainings: its mean is that of the updates to the last bit of its
// integers, and what reaches the coordinator is noise.
#include "training.h"

#include <cmath>
#include <cstring>
#include <set>

extern "C" {
#include "federated/secure_round.h"
}

using namespace federated;

namespace
{

/* Updates, shares and weights that all tests can repeat. */
float change(int client, int64_t round, int64_t i)
{
    return 0.01f * static_cast<float>(std::sin(1.3 * client + 0.7 * round + 0.11 * i));
}

double share(int client)
{
    return client == 0 ? 0.3 : 100.5 * client * client;
}

struct Training {
    int clients = 3, threshold = 2;
    int64_t count = 70, rounds = 2;
    rf_rounds_rule rule = {};
    std::function<void(Coordinator &)> look; /* after each round, in the coordinator */
    std::function<void(Client &, int)> change_options;
    std::vector<Round> reports;
    std::vector<rf_client_stats> stats;

    Vector initial() const
    {
        Vector out(count);
        for (int64_t i = 0; i < count; i++)
            out[i] = static_cast<float>(std::cos(0.3 * i));
        return out;
    }

    void run()
    {
        Coordinator c(clients);
        const Vector first = initial();
        c.rule = rule;
        c.opts.initial = first.data();
        c.opts.count = count;
        c.opts.rounds = rounds;
        c.opts.min_clients = clients;
        c.opts.secure = threshold;
        c.on_round = [&](const Round &) {
            if (look)
                look(c);
            return 0;
        };
        c.start();
        std::vector<std::thread> threads;
        stats.resize(clients);
        for (int k = 0; k < clients; k++)
            threads.emplace_back([&, k] {
                Client client(c, k, count);
                if (change_options)
                    change_options(client, k);
                client.train(
                    [&](Client &self) {
                        const int64_t round = rf_client_round(self.client);
                        for (int64_t i = 0; i < count; i++)
                            self.values[i] -= change(k, round, i);
                    },
                    rule.weighted ? share(k) : 0);
                stats[k] = client.stats;
            });
        for (std::thread &thread : threads)
            thread.join();
        c.join();
        ASSERT_EQ(c.status, RF_OK) << c.message << c.notes;
        reports = c.rounds;
    }
};

} // namespace

/* Another round costs each client what is planned; heartbeats have 34 bytes. */
TEST(FederatedSecure, ARoundCostsWhatIsPlanned)
{
    const int64_t count = 70000; /* three pieces of values */
    std::vector<rf_client_stats> stats[2];
    for (const int more : {0, 1}) {
        Training t;
        t.count = count;
        t.rounds = 1 + more;
        t.run();
        stats[more] = t.stats;
    }
    const rf_rounds_rule rule = {};
    struct rf_federated_usage usage = {}, plain = {};
    ASSERT_EQ(rf_federated_usage(&rule, count, 3, 2, &usage), RF_OK);
    ASSERT_EQ(rf_federated_usage(&rule, count, 3, 0, &plain), RF_OK);
    for (int k = 0; k < 3; k++) {
        const uint64_t sent = stats[1][k].sent_bytes - stats[0][k].sent_bytes,
                       received = stats[1][k].received_bytes - stats[0][k].received_bytes;
        EXPECT_EQ(sent, usage.sent_bytes);
        EXPECT_EQ((received - usage.received_bytes) % 34, 0u);
        EXPECT_LT(received - usage.received_bytes, 34u * 100);
    }
    EXPECT_EQ(usage.memory_bytes - plain.memory_bytes,
              3u * (4 * count + 8) + 9u * (80 + 32)); /* shares, sealed and revealed */
    EXPECT_EQ(rf_federated_usage(&rule, count, 4, 2, &usage), RF_EINVAL);
}

/* The integers as the client makes them, of its f32 update: the mean is theirs to the bit. It is
 * that of the real numbers within the bound of fixed.c. */
TEST(FederatedSecure, TheMeanIsExactInIntegersAndNearTheTrueOneForEveryNumberOfClients)
{
    for (int clients = 2; clients <= 5; clients++)
        for (const bool difference : {false, true})
            for (const bool weighted : {false, true}) {
                Training t;
                t.clients = clients;
                t.threshold = clients / 2 + 1;
                t.rule.difference = difference;
                t.rule.weighted = weighted;
                t.run();
                ASSERT_EQ(t.reports.size(), 2u);
                Vector before = t.initial();
                const double unit = std::ldexp(1, weighted ? 24 : 40);
                for (const Round &round : t.reports) {
                    double all = 0, whole = 0;
                    for (int k = 0; k < clients; k++) {
                        const double weight = weighted ? share(k) : 1;
                        all += weight;
                        whole += std::rint(weight * unit);
                        EXPECT_EQ(round.parts[k], RF_FEDERATED_COUNTED);
                        EXPECT_EQ(round.weights[k], 0); /* nobody knows */
                    }
                    EXPECT_EQ(round.weight, whole / unit);
                    for (int64_t i = 0; i < t.count; i++) {
                        int64_t sum = 0;
                        double mean = 0;
                        for (int k = 0; k < clients; k++) {
                            const double weight = weighted ? share(k) : 1;
                            const float now = before[i] - change(k, round.round, i);
                            const float update = difference ? before[i] - now : now;
                            sum += std::llrint(update * std::rint(weight * unit));
                            mean += weight * update / all;
                        }
                        const float got = static_cast<float>(static_cast<double>(sum) / whole);
                        EXPECT_EQ(round.values[i], difference ? before[i] - got : got) << i;
                        EXPECT_NEAR(static_cast<double>(sum) / whole, mean,
                                    0.5 / unit * 3 * clients / all + 1e-15);
                    }
                    before = round.values;
                }
            }
}

TEST(FederatedSecure, OuterRulesStepsAndClippingAreThoseOfPlainRounds)
{
    for (const char *text : {"fedopt:2", "fedprox:2,mu=0.1", "diloco:3", "local:2"}) {
        rf_rounds_text rule = {};
        ASSERT_EQ(rf_rounds_text_read(text, 1, &rule), RF_OK) << rf_last_error()->message;
        std::vector<Round> reports[2];
        for (const int threshold : {0, 2}) {
            Coordinator c(2);
            const Vector initial(50, 0.5f);
            c.rule = rule.rule;
            c.opts.initial = initial.data();
            c.opts.count = 50;
            c.opts.rounds = 2;
            c.opts.min_clients = 2;
            c.opts.secure = threshold;
            c.start();
            std::vector<std::thread> threads;
            for (int k = 0; k < 2; k++)
                threads.emplace_back([&, k] {
                    Client client(c, k, 50);
                    client.opts.clip = c.rule.difference && k == 1 ? 0.05f : 0;
                    client.train(
                        [&](Client &self) {
                            for (int64_t i = 0; i < 50; i++)
                                self.values[i] -= change(k, rf_client_round(self.client), i);
                            if (c.rule.proximal != 0) {
                                EXPECT_EQ(rf_client_pull(self.client, 0.1f), RF_OK);
                            }
                        },
                        c.rule.weighted ? k + 1 : 0);
                });
            for (std::thread &thread : threads)
                thread.join();
            c.join();
            ASSERT_EQ(c.status, RF_OK) << c.message;
            reports[threshold > 0] = c.rounds;
        }
        /* Adam divides by the root of the square of the mean: small means are the same to 1e-5. */
        for (int64_t i = 0; i < 50; i++)
            EXPECT_NEAR(reports[0][1].values[i], reports[1][1].values[i], 1e-5) << text << " " << i;
        rf_rounds_text_free(&rule);
    }
}

/* The coordinator has masked vectors only. A byte of them is any byte: chi-squared of 255 degrees
 * of freedom is below 400, but with probability 2e-8. */
TEST(FederatedSecure, WhatTheCoordinatorReceivesIsNoiseOfKnownSize)
{
    const int64_t count = 40000, rounds = 2;
    const int n = 3;
    Training t;
    t.count = count;
    t.rounds = rounds;
    t.threshold = 3;
    t.rule.difference = true;
    using Seen = std::map<std::pair<bool, int>, std::vector<uint64_t>>;
    std::vector<Seen> seen(n);
    std::vector<std::vector<uint64_t>> masked;
    t.look = [&](Coordinator &c) {
        for (int k = 0; k < n; k++)
            masked.emplace_back(c.coordinator->clients[k].masked,
                                c.coordinator->clients[k].masked + count + 1);
    };
    t.change_options = [&](Client &client, int k) {
        client.opts.user = &seen[k];
        client.opts.audit = [](void *user, bool sent, rf_federated_message kind, uint64_t size) {
            (*static_cast<Seen *>(user))[{sent, kind}].push_back(size);
        };
    };
    t.run();
    ASSERT_EQ(masked.size(), static_cast<size_t>(rounds * n));
    for (const std::vector<uint64_t> &vector : masked) {
        double expected = count * 8 / 256.0, squares = 0;
        std::vector<int> bytes(256);
        for (int64_t i = 0; i < count; i++)
            for (int b = 0; b < 8; b++)
                bytes[vector[i] >> 8 * b & 255]++;
        for (const int found : bytes)
            squares += (found - expected) * (found - expected) / expected;
        EXPECT_LT(squares, 400);
        EXPECT_GT(squares, 140);
    }
    /* Neither differences of rounds nor the sum of all clients without their own masks are small:
     * updates and their sums are below 2^36. */
    const auto small = [](uint64_t value) {
        return std::llabs(static_cast<int64_t>(value)) < int64_t{1} << 36;
    };
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int k = 0; k < n; k++)
            found += small(masked[k][i] - masked[n + k][i]) + small(masked[k][i]);
        found += small(masked[0][i] + masked[1][i] + masked[2][i]);
    }
    EXPECT_LT(found, 8); /* of 280,000; a number is by chance with probability 2^-27 */

    const uint64_t values = 4 * static_cast<uint64_t>(count), sent_values = 2 * values + 8;
    for (int k = 0; k < n; k++) {
        const std::map<int, uint64_t> sent = {{RF_FEDERATED_READY, 176},
                                              {RF_FEDERATED_SHARES, 48 + 80 * (n - 1)},
                                              {RF_FEDERATED_MASKED, 16},
                                              {RF_FEDERATED_CONFIRM, 16 + 64},
                                              {RF_FEDERATED_REVEAL, 16 + 32 * n}},
                                      received = {{RF_FEDERATED_ROUND, 16},
                                                  {RF_FEDERATED_PEERS, 16 + 192 * n},
                                                  {RF_FEDERATED_SHARES, 48 + 80 * (n - 1)},
                                                  {RF_FEDERATED_UNMASK, 48},
                                                  {RF_FEDERATED_AGREED, 48 + 64 * n}};
        for (const auto &[kind, size] : sent)
            EXPECT_EQ((seen[k][{true, kind}]), std::vector<uint64_t>(rounds, size)) << kind;
        for (const auto &[kind, size] : received)
            EXPECT_EQ((seen[k][{false, kind}]), std::vector<uint64_t>(rounds, size)) << kind;
        EXPECT_EQ(seen[k].count({true, RF_FEDERATED_UPDATE}), 0u);
        EXPECT_EQ((seen[k][{true, RF_FEDERATED_VALUES}]),
                  (std::vector<uint64_t>{256 << 10, sent_values - (256 << 10), 256 << 10,
                                         sent_values - (256 << 10)}));
        EXPECT_EQ((seen[k][{false, RF_FEDERATED_SECURE}]), std::vector<uint64_t>(1, 4));
    }
    /* All of a round, with 34 bytes for each message; heartbeats are empty. */
    const uint64_t shares = 48 + 80 * (n - 1),
                   to = n * (values + 16 + (16 + 192 * n) + shares + 48 + (48 + 64 * n) + 6 * 34),
                   from = n * (sent_values + 176 + shares + 16 + 80 + (16 + 32 * n) + 7 * 34);
    EXPECT_EQ(t.reports[1].received - t.reports[0].received, from);
    EXPECT_EQ((t.reports[1].sent - t.reports[0].sent - to) % 34, 0u);
    EXPECT_LT(t.reports[1].sent - t.reports[0].sent - to, 34u * 100);
}

/* Each has its own list; that of c1 has another identity for c2. */
TEST(FederatedSecure, ClientsWithListsOfIdentitiesTrainAndAWrongOneIsNamed)
{
    for (const bool wrong : {false, true}) {
        Coordinator c(3);
        const Vector initial(4, 0);
        char identities[4][65];
        for (int k = 0; k < 4; k++)
            ASSERT_EQ(rf_client_identity(("secret " + std::to_string(k)).c_str(), identities[k]),
                      RF_OK);
        c.opts.initial = initial.data();
        c.opts.count = 4;
        c.opts.rounds = 2;
        c.opts.secure = 2;
        c.opts.min_clients = wrong ? 2 : 3;
        c.start();
        std::vector<std::thread> threads;
        for (int k = 0; k < 3; k++)
            threads.emplace_back([&, k] {
                Client client(c, k, 4);
                const std::string secret = "secret " + std::to_string(k);
                const rf_federated_client_key peers[] = {
                    {"c0", identities[0]},
                    {"c1", identities[1]},
                    {"c2", identities[wrong && k == 1 ? 3 : 2]}};
                client.opts.secret = secret.c_str();
                client.opts.secure = 2;
                client.opts.peers = peers;
                client.opts.peer_count = 3;
                ASSERT_EQ(client.open(), RF_OK) << rf_last_error()->message;
                if (wrong) /* nobody is ready before all three are here */
                    c.wait_for(": 3 here");
                if (wrong && k == 1) {
                    int rc = RF_OK;
                    while (rc == RF_OK && !client.stats.ended)
                        rc = rf_client_step(client.client, 0, &client.stats);
                    EXPECT_EQ(rc, RF_EAUTH);
                    EXPECT_NE(std::string(rf_last_error()->message).find("keys of client c2"),
                              std::string::npos)
                        << rf_last_error()->message;
                } else {
                    client.train([](Client &self) { self.values[0] += 1; });
                }
            });
        for (std::thread &thread : threads)
            thread.join();
        c.join();
        EXPECT_EQ(c.status, RF_OK) << c.message << c.notes;
    }
}
