// SPDX-License-Identifier: MIT
//
// Rounds of a coordinator and its clients: the mean and the outer rules against formulas and
// against rounds of a communicator, and the messages, which are a closed list.
#include "training.h"

#include <cmath>
#include <set>

#include "support/ranks.h"

using namespace federated;

namespace
{

/* What a local step subtracts from parameter i: any number that all tests can repeat. */
float local_step(int client, int64_t step, int64_t i)
{
    return 0.01f * static_cast<float>(sin(1.3 * client + 0.7 * step + 0.11 * i));
}

Vector start(int64_t count)
{
    Vector out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = static_cast<float>(cos(0.3 * i));
    return out;
}

/* The last parameters of a training of some clients, the k-th with weight k + 1. */
Vector train(const rf_rounds_rule &rule, int clients, int64_t count, int64_t rounds,
             std::vector<Round> *reports = nullptr)
{
    Coordinator c(clients);
    const Vector initial = start(count);
    std::vector<Vector> last(clients);
    c.rule = rule;
    c.opts.initial = initial.data();
    c.opts.count = count;
    c.opts.rounds = rounds;
    c.opts.min_clients = clients;
    c.start();
    std::vector<std::thread> threads;
    for (int k = 0; k < clients; k++)
        threads.emplace_back([&, k] {
            Client client(c, k, count);
            int64_t step = 0;
            client.train(
                [&](Client &self) {
                    step++;
                    for (int64_t i = 0; i < count; i++)
                        self.values[i] -= local_step(k, step, i);
                },
                rule.weighted ? k + 1 : 0);
            last[k] = client.values;
        });
    for (std::thread &thread : threads)
        thread.join();
    c.join();
    EXPECT_EQ(c.status, RF_OK) << c.message;
    EXPECT_EQ(c.rounds.size(), static_cast<size_t>(rounds));
    for (int k = 0; k < clients; k++)
        EXPECT_EQ(last[k], c.rounds.back().values) << k;
    if (reports)
        *reports = c.rounds;
    return last[0];
}

} // namespace

/* A step of each client on its own n(k) samples, weighted by n(k)/n, is the step on all samples
 * (McMahan et al. 2017, section 2); as whole parameters and as differences. */
TEST(Federated, OneWeightedLocalStepIsOneGlobalStepAndBothPayloadsAgree)
{
    Vector by_payload[2];
    for (const bool difference : {false, true}) {
        rf_rounds_rule rule = {};
        rule.weighted = true;
        rule.difference = difference;
        by_payload[difference] = train(rule, 3, 70, 1);
        for (int64_t i = 0; i < 70; i++) {
            double want = start(70)[i];
            for (int k = 0; k < 3; k++)
                want -= local_step(k, 1, i) * (k + 1) / 6.0;
            EXPECT_NEAR(by_payload[difference][i], want, 1e-6);
        }
    }
    for (int64_t i = 0; i < 70; i++)
        EXPECT_NEAR(by_payload[0][i], by_payload[1][i], 2e-7); /* one rounding of values below 1 */
}

/* The same rule gives the same parameters as among the ranks of a communicator, but for the order
 * of sums. */
TEST(Federated, EveryRuleIsThatOfRounds)
{
    for (const char *text : {"local:3", "fedavg:2", "fedopt:2", "diloco:3",
                             "fedavg:1,outer=adamw,lr=0.01", "fedavg:2,lr=0.5"}) {
        const int64_t count = 70, rounds = 3;
        rf_rounds_text rule = {};
        ASSERT_EQ(rf_rounds_text_read(text, 3, &rule), RF_OK) << rf_last_error()->message;
        const Vector got = train(rule.rule, 3, count, rounds);
        ranks::World world;
        world.size = 3;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Vector values = start(count);
            const rf_rounds_params params = rf_rounds_in_host(values.data(), count);
            rf_rounds *workers = nullptr;
            ASSERT_EQ(rf_rounds_open(comm, &params, &rule.rule, &workers), RF_OK);
            for (int64_t step = 1; step <= rounds * rule.rule.every; step++) {
                for (int64_t i = 0; i < count; i++)
                    values[i] -= local_step(rank, step, i);
                ASSERT_EQ(rf_rounds_step(workers, rule.rule.weighted ? rank + 1 : 0, nullptr),
                          RF_OK);
            }
            rf_rounds_close(workers);
            for (int64_t i = 0; i < count; i++)
                EXPECT_NEAR(got[i], values[i], 3e-6) << text << " " << i;
        });
        rf_rounds_text_free(&rule);
    }
}

/* The order of arrival differs from run to run, the order of the sum does not. */
TEST(Federated, BitsDoNotDependOnTheOrderOfArrival)
{
    rf_rounds_rule rule = {};
    rule.weighted = rule.difference = true;
    const Vector first = train(rule, 5, 1000, 3);
    for (int repeat = 0; repeat < 3; repeat++)
        EXPECT_EQ(train(rule, 5, 1000, 3), first);
}

/* Everything that leaves a client or reaches it: kinds, sizes and numbers. Two times the parameters
 * in a round, and at most 0.2 % more. */
TEST(Federated, MessagesAreAClosedListOfKnownSizes)
{
    const int64_t count = 1 << 20, rounds = 3, bytes = 4 * count;
    using Seen = std::map<std::pair<bool, int>, std::vector<uint64_t>>;
    Coordinator c(2);
    Seen seen[2];
    c.rule.weighted = c.rule.difference = true;
    c.opts.rounds = rounds;
    c.opts.min_clients = 2;
    c.start();
    std::vector<std::thread> threads;
    rf_client_stats last[2];
    for (int k = 0; k < 2; k++)
        threads.emplace_back([&, k] {
            Client client(c, k, count, 1);
            client.opts.user = &seen[k];
            client.opts.audit = [](void *user, bool sent, rf_federated_message kind,
                                   uint64_t size) {
                (*static_cast<Seen *>(user))[{sent, kind}].push_back(size);
            };
            client.train([&](Client &self) { self.values[k] += 1; }, 1);
            last[k] = client.stats;
        });
    for (std::thread &thread : threads)
        thread.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    const std::set<int> outgoing = {RF_FEDERATED_JOIN, RF_FEDERATED_STATE, RF_FEDERATED_UPDATE,
                                    RF_FEDERATED_VALUES, RF_FEDERATED_LEAVE};
    size_t states = 0;
    for (int k = 0; k < 2; k++) {
        uint64_t sent = 0, received = 0, messages = 0;
        for (const auto &[what, sizes] : seen[k]) {
            const rf_federated_message_info *info = rf_federated_message_get_info(what.second);
            ASSERT_NE(info, nullptr);
            EXPECT_TRUE(what.first ? info->from_client : info->from_coordinator) << info->name;
            EXPECT_TRUE(!what.first || outgoing.count(what.second)) << info->name;
            for (const uint64_t size : sizes) {
                EXPECT_GE(size, info->least);
                EXPECT_LE(size, info->most);
                (what.first ? sent : received) += size;
                messages += what.first;
            }
        }
        const size_t gave = seen[k].count({true, RF_FEDERATED_STATE});
        states += gave;
        const size_t pieces = static_cast<size_t>(bytes / (256 << 10));
        const std::vector<uint64_t> whole((rounds + gave) * pieces, 256 << 10);
        EXPECT_EQ((seen[k][{true, RF_FEDERATED_VALUES}]), whole);
        EXPECT_EQ((seen[k][{true, RF_FEDERATED_UPDATE}]), std::vector<uint64_t>(rounds, 24));
        EXPECT_EQ((seen[k][{true, RF_FEDERATED_JOIN}]).size(), 1u);
        EXPECT_EQ((seen[k][{false, RF_FEDERATED_ROUND}]), std::vector<uint64_t>(rounds, 16));
        EXPECT_EQ((seen[k][{false, RF_FEDERATED_END}]), std::vector<uint64_t>(1, 16));
        EXPECT_EQ((seen[k][{false, RF_FEDERATED_VALUES}]).size(), (rounds + 1) * pieces);
        /* On the wire: 34 bytes more for each message, and 40 once. LEAVE is sent after the last
         * stats. */
        EXPECT_EQ(last[k].sent_bytes, sent + 34 * messages + 40);
        /* The plan of a round has all but the beginning and messages without values. */
        const rf_rounds_rule rule = {};
        struct rf_federated_usage usage = {};
        ASSERT_EQ(rf_federated_usage(&rule, count, 2, 0, &usage), RF_OK);
        const auto bytes_of = [&](bool out, int kind) {
            uint64_t sum = 0;
            for (const uint64_t size : seen[k][{out, kind}])
                sum += size + 34;
            return sum;
        };
        EXPECT_EQ(last[k].sent_bytes,
                  rounds * usage.sent_bytes + 40 + bytes_of(true, RF_FEDERATED_JOIN) +
                      bytes_of(true, RF_FEDERATED_STATE) + bytes_of(true, RF_FEDERATED_LEAVE) +
                      gave * (bytes + 34 * pieces));
        EXPECT_EQ(last[k].received_bytes, (rounds + 1) * usage.received_bytes + 40 +
                                              bytes_of(false, RF_FEDERATED_ASK) +
                                              bytes_of(false, RF_FEDERATED_HEARTBEAT));
        EXPECT_LT(last[k].sent_bytes, 1.002 * static_cast<double>((rounds + gave) * bytes));
        EXPECT_LT(last[k].received_bytes, 1.002 * static_cast<double>((rounds + 1) * bytes));
    }
    EXPECT_EQ(states, 1u); /* the parameters of one of them are the first */
    const uint64_t round = c.rounds[2].sent - c.rounds[1].sent,
                   back = c.rounds[2].received - c.rounds[1].received;
    EXPECT_EQ((round - 2u * (bytes + 16 * 34 + 16 + 34)) % 34, 0u); /* heartbeats are empty */
    EXPECT_LT(round, 1.002 * 2 * static_cast<double>(bytes));
    EXPECT_EQ(back, 2u * (bytes + 16 * 34 + 24 + 34));
}

/* FedProx: each local step of SGD is that of the gradient g + mu (w - w0). */
TEST(Federated, AProximalTermIsPartOfTheGradientOfSgd)
{
    const int64_t count = 50, rounds = 2, every = 3;
    const double mu = 0.5, rate = 0.2;
    rf_rounds_text rule = {};
    ASSERT_EQ(rf_rounds_text_read("fedprox:3,mu=0.5", 1, &rule), RF_OK);
    const auto gradient = [](double w, int64_t i) { return w - static_cast<double>(i) / 10; };
    Coordinator c(1);
    const Vector initial = start(count);
    c.rule = rule.rule;
    c.opts.initial = initial.data();
    c.opts.count = count;
    c.opts.rounds = rounds;
    c.start();
    Client client(c, 0, count);
    client.train(
        [&](Client &self) {
            EXPECT_EQ(rf_client_step(self.client, 1, nullptr), RF_EINVAL); /* not pulled */
            for (int64_t i = 0; i < count; i++)
                self.values[i] -= static_cast<float>(rate * gradient(self.values[i], i));
            ASSERT_EQ(rf_client_pull(self.client, static_cast<float>(rate)), RF_OK);
            EXPECT_EQ(rf_client_pull(self.client, 0.1f), RF_EINVAL); /* twice */
        },
        1);
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    for (int64_t i = 0; i < count; i++) {
        double w = initial[i];
        for (int64_t round = 0; round < rounds; round++) {
            const double w0 = w;
            for (int64_t step = 0; step < every; step++)
                w -= rate * (gradient(w, i) + mu * (w - w0));
        }
        EXPECT_NEAR(client.values[i], w, 2e-6);
    }
    rf_comm *self = nullptr;
    rf_rounds *rounds_of_ranks = nullptr;
    float value = 0;
    const rf_rounds_params params = rf_rounds_in_host(&value, 1);
    ASSERT_EQ(rf_comm_open("self:", nullptr, &self), RF_OK);
    EXPECT_EQ(rf_rounds_open(self, &params, &rule.rule, &rounds_of_ranks), RF_EINVAL);
    EXPECT_EQ(rf_comm_close(self), RF_OK);
    rf_rounds_text_free(&rule);
}

TEST(Federated, RulesOfNeighboursAndNarrowFormsAreRefusedByName)
{
    for (const auto &[text, word] : std::map<std::string, std::string>{
             {"gossip:1", "ring"}, {"diloco:4,form=nf4", "nf4"}, {"diloco:4,delay=1", "delay"}}) {
        rf_rounds_text rule = {};
        ASSERT_EQ(rf_rounds_text_read(text.c_str(), 3, &rule), RF_OK);
        Coordinator c(1);
        c.rule = rule.rule;
        EXPECT_EQ(c.open(), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(word), std::string::npos)
            << rf_last_error()->message;
        rf_rounds_text_free(&rule);
    }
}
