// SPDX-License-Identifier: MIT
//
// The state of a coordinator: continued, it gives the bits of an uninterrupted training, and what
// is damaged or does not fit is refused.
#include "training.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace federated;

namespace
{

const int64_t COUNT = 5000, ROUNDS = 6;

struct Folder {
    Folder()
    {
        char name[] = "/tmp/rf_federated_XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder()
    {
        EXPECT_EQ(system(("rm -rf " + path).c_str()), 0);
    }
    std::string file() const
    {
        return path + "/federated.safetensors";
    }
    std::string path;
};

void configure(Coordinator &c, const rf_rounds_rule &rule, const Vector &initial)
{
    c.rule = rule;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = ROUNDS;
    c.opts.min_clients = 2;
}

/* Steps that depend on the client and on the round only. */
void train(Client &client, int number)
{
    client.train(
        [&](Client &self) {
            const int64_t round = rf_client_round(self.client);
            for (int64_t i = 0; i < COUNT; i++)
                self.values[i] -= 0.01f * static_cast<float>(sin(number + 0.7 * round + 0.1 * i));
        },
        number + 1);
}

Vector uninterrupted(const rf_rounds_rule &rule, const Vector &initial)
{
    Coordinator c(2);
    configure(c, rule, initial);
    c.start();
    std::vector<std::thread> threads;
    for (int k = 0; k < 2; k++)
        threads.emplace_back([&, k] {
            Client client(c, k, COUNT);
            train(client, k);
        });
    for (std::thread &thread : threads)
        thread.join();
    c.join();
    EXPECT_EQ(c.status, RF_OK) << c.message;
    return c.rounds.back().values;
}

} // namespace

/* The clients are the same processes all the time: they connect to the next coordinator. */
TEST(FederatedState, ARestartedCoordinatorContinuesWithTheSameBits)
{
    for (const char *text : {"fedavg:1", "fedopt:1", "diloco:1"}) {
        rf_rounds_text rule = {};
        ASSERT_EQ(rf_rounds_text_read(text, 2, &rule), RF_OK);
        rule.rule.weighted = true;
        const Vector initial(COUNT, 0.5f);
        const Vector want = uninterrupted(rule.rule, initial);
        const Folder folder;
        Coordinator first(2);
        configure(first, rule.rule, initial);
        first.opts.save = folder.path.c_str();
        first.on_round = [](const Round &round) { return round.round == 2; };
        first.start();
        std::vector<std::thread> threads;
        std::vector<Vector> last(2);
        for (int k = 0; k < 2; k++)
            threads.emplace_back([&, k] {
                Client client(first, k, COUNT);
                train(client, k);
                last[k] = client.values;
            });
        first.join();
        EXPECT_EQ(first.status, RF_EABORT);
        Coordinator second(2);
        configure(second, rule.rule, initial);
        second.opts.port = first.port;
        second.opts.save = folder.path.c_str();
        second.opts.resume = true;
        second.start();
        for (std::thread &thread : threads)
            thread.join();
        second.join();
        ASSERT_EQ(second.status, RF_OK) << second.message;
        EXPECT_EQ(second.rounds.front().round, 3);
        EXPECT_EQ(second.rounds.size(), 3u);
        EXPECT_EQ(second.rounds.back().values, want) << text;
        EXPECT_EQ(last[0], want);
        EXPECT_EQ(last[1], want);
        rf_rounds_text_free(&rule);
    }
}

TEST(FederatedState, WhatDoesNotFitIsRefusedByName)
{
    const Folder folder;
    const Vector initial(COUNT, 0.5f);
    rf_rounds_rule rule = {};
    rule.difference = true;
    Coordinator c(2);
    configure(c, rule, initial);
    c.opts.save = folder.path.c_str();
    const auto refused = [&](int status, const std::string &word) {
        EXPECT_EQ(c.open(), status);
        EXPECT_NE(std::string(rf_last_error()->message).find(word), std::string::npos)
            << rf_last_error()->message;
    };
    c.opts.resume = true;
    refused(RF_EINVAL, "no state to continue from");
    c.opts.resume = false;
    c.on_round = [](const Round &) { return 1; };
    c.start();
    std::vector<std::thread> threads;
    for (int k = 0; k < 2; k++)
        threads.emplace_back([&, k] {
            Client client(c, k, COUNT);
            client.opts.timeout_s = 0.3;
            EXPECT_EQ(client.open(), RF_OK);
            EXPECT_EQ(rf_client_step(client.client, 0, nullptr), RF_ETIMEOUT);
        });
    for (std::thread &thread : threads)
        thread.join();
    Coordinator beside(2);
    configure(beside, rule, initial);
    beside.opts.save = folder.path.c_str();
    beside.opts.resume = true;
    EXPECT_EQ(beside.open(), RF_EBUSY) << rf_last_error()->message; /* of this folder */
    c.join();
    refused(RF_EINVAL, "has the state of a training");
    c.opts.resume = true;
    c.rule.every = 7;
    refused(RF_EINVAL, "another rule");
    c.rule.every = 0;
    std::ifstream in(folder.file(), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    const auto write = [&](const std::string &bytes) {
        std::ofstream(folder.file(), std::ios::binary | std::ios::trunc) << bytes;
    };
    std::string changed = whole;
    changed[whole.size() - 5] ^= 1; /* a parameter */
    write(changed);
    refused(RF_ECORRUPT, "hash");
    changed = whole;
    changed.replace(changed.find("\"rounds\":\"1\""), 12, "\"rounds\":\"2\"");
    write(changed);
    refused(RF_ECORRUPT, "hash");
    write(whole.substr(0, whole.size() - 4));
    EXPECT_EQ(c.open(), RF_ECORRUPT) << rf_last_error()->message;
    write(whole);
    EXPECT_EQ(c.open(), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(rf_coordinator_rounds(c.coordinator), 1);
    rf_coordinator_close(c.coordinator);
}
