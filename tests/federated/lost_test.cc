// SPDX-License-Identifier: MIT
//
// Clients that come late, are slow, leave and come back, and rounds without enough of them.
#include "training.h"

using namespace federated;

namespace
{

const int64_t COUNT = 100;

/* Adds a number of the client to every parameter. */
std::function<void(Client &)> add(float value)
{
    return [value](Client &self) {
        for (float &v : self.values)
            v += value;
    };
}

} // namespace

TEST(FederatedClients, ALateOneJoinsAtTheNextRoundWithTheStateThatItIsSent)
{
    Coordinator c(2);
    const Vector initial(COUNT, 1);
    c.rule.difference = true;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = 6;
    c.start();
    std::thread early([&] {
        Client client(c, 0, COUNT);
        /* After two rounds of its own it waits for the other one. */
        client.train([&, steps = 0](Client &self) mutable {
            if (steps++ == 2)
                c.wait_for("client c1 has joined");
            add(1)(self);
        });
        EXPECT_EQ(client.values[0], 1 + 1 + 1 + 1 + 2 + 2 + 2);
    });
    c.wait_for_rounds(2);
    Client late(c, 1, COUNT, 77);
    ASSERT_EQ(late.open(), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(late.values[0], 1 + 1 + 1 + 1); /* of the round that it begins */
    late.train(add(3));
    early.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    for (int r = 0; r < 6; r++) {
        EXPECT_EQ(c.rounds[r].parts[0], RF_FEDERATED_COUNTED);
        EXPECT_EQ(c.rounds[r].parts[1], r < 3 ? RF_FEDERATED_ABSENT : RF_FEDERATED_COUNTED) << r;
    }
    EXPECT_EQ(late.values, c.rounds[5].values);
}

/* A slow client is left out after the deadline; its late update is not counted, and it has part in
 * later rounds. */
TEST(FederatedClients, ASlowOneIsLeftOutAfterTheDeadlineAndComesBack)
{
    Coordinator c(2);
    const Vector initial(COUNT, 0);
    c.rule.weighted = c.rule.difference = true;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = 4;
    c.opts.min_clients = 1;
    c.opts.round_s = 0.2;
    c.start();
    Client slow(c, 1, COUNT), fast(c, 0, COUNT);
    /* A round of both: c0 is held until c1 is there. */
    ASSERT_EQ(slow.open(), RF_OK) << rf_last_error()->message;
    std::thread other([&] {
        fast.train(
            [&, steps = 0](Client &self) mutable {
                if (++steps == 3)
                    c.wait_for("not counted");
                add(1)(self);
            },
            1);
    });
    c.wait_for_rounds(2); /* without c1, who has had the parameters of round 0 all the time */
    add(100)(slow);
    ASSERT_EQ(rf_client_step(slow.client, 1, &slow.stats), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(slow.values, c.rounds.back().values);
    slow.train(add(3), 3);
    other.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    for (const Round &round : c.rounds)
        for (const float v : round.values)
            EXPECT_LT(v, 50) << round.round; /* the late update of 100 is in none */
    EXPECT_EQ(c.rounds[3].parts[1], RF_FEDERATED_COUNTED);
    EXPECT_EQ(c.rounds[3].values[0] - c.rounds[2].values[0], (1 * 1 + 3 * 3) / 4.0f);
}

/* After a death the weights of the others are those of the mean. */
TEST(FederatedClients, TheWeightsOfThoseThatAreLeftAreRenormalised)
{
    Coordinator c(3);
    const Vector initial(COUNT, 0);
    c.rule.weighted = true;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = 1;
    c.opts.min_clients = 3;
    c.start();
    std::vector<std::thread> threads;
    for (int k = 0; k < 3; k++)
        threads.emplace_back([&, k] {
            Client client(c, k, COUNT);
            ASSERT_EQ(client.open(), RF_OK) << rf_last_error()->message;
            if (k == 2) { /* leaves, and is replaced by its next process */
                rf_client_close(client.client);
                client.client = nullptr;
            }
            client.train(add(static_cast<float>(k + 1)), 1 << k);
        });
    for (std::thread &thread : threads)
        thread.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    EXPECT_EQ(c.rounds[0].values[0], (1 * 1 + 2 * 2 + 4 * 3) / 7.0f);

    Coordinator d(3);
    d.rule.weighted = true;
    d.opts.initial = initial.data();
    d.opts.count = COUNT;
    d.opts.rounds = 2;
    d.opts.min_clients = 2;
    d.start();
    const auto train = [&](int k) {
        Client client(d, k, COUNT);
        client.train(add(static_cast<float>(k + 1)), 1 << k);
    };
    std::thread c0([&] { train(0); });
    {
        Client lost(d, 2, COUNT);
        ASSERT_EQ(lost.open(), RF_OK) << rf_last_error()->message; /* round 0 has begun */
    }
    std::thread c1([&] { train(1); });
    c0.join();
    c1.join();
    d.join();
    ASSERT_EQ(d.status, RF_OK) << d.message;
    EXPECT_EQ(d.rounds[0].parts[2], RF_FEDERATED_LOST);
    EXPECT_EQ(d.rounds[0].values[0], (1 * 1 + 2 * 2) / 3.0f);
    EXPECT_EQ(d.rounds[1].parts[2], RF_FEDERATED_ABSENT);
}

TEST(FederatedClients, TooFewAreWaitedForAndThenNamed)
{
    Coordinator c(3);
    c.opts.rounds = 2;
    c.opts.min_clients = 2;
    c.opts.wait_s = 0.2;
    c.start();
    Client alone(c, 1, COUNT);
    alone.opts.timeout_s = 0.3;
    EXPECT_EQ(alone.open(), RF_ETIMEOUT) << rf_last_error()->message;
    c.join();
    EXPECT_EQ(c.status, RF_ETIMEOUT);
    EXPECT_NE(c.message.find("round 0 has 1 of at least 2 clients"), std::string::npos)
        << c.message;
    EXPECT_NE(c.message.find("missing: c0, c2"), std::string::npos) << c.message;
    EXPECT_TRUE(c.rounds.empty());
}

/* Of two processes with one name and key the later one is the client. */
TEST(FederatedClients, ASecondProcessReplacesTheFirstWhichIsTold)
{
    Coordinator c(2);
    c.opts.rounds = 1;
    c.opts.min_clients = 2;
    c.start();
    Client first(c, 0, COUNT);
    std::thread waiting([&] {
        EXPECT_EQ(first.open(), RF_EBUSY);
        EXPECT_NE(std::string(rf_last_error()->message).find("another process"), std::string::npos)
            << rf_last_error()->message;
    });
    c.wait_for("client c0 has joined");
    std::thread second([&] {
        Client client(c, 0, COUNT);
        client.train(add(1));
    });
    waiting.join();
    Client other(c, 1, COUNT);
    other.train(add(1));
    second.join();
    c.join();
    EXPECT_EQ(c.status, RF_OK) << c.message;
}

TEST(FederatedClients, OtherRulesTermsAndModelsAreRefusedByName)
{
    Coordinator c(2);
    c.opts.rounds = 1;
    c.rule.every = 2;
    c.start();
    Client sound(c, 0, COUNT);
    sound.opts.terms = "layers=2\nwidth=64\n";
    ASSERT_EQ(sound.open(), RF_OK) << rf_last_error()->message;
    const auto refused = [&](const char *terms, int64_t count, int64_t every, const char *word) {
        Client client(c, 1, count);
        rf_rounds_rule rule = c.rule;
        rule.every = every;
        client.opts.rule = &rule;
        client.opts.terms = terms;
        EXPECT_EQ(client.open(), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(word), std::string::npos)
            << rf_last_error()->message;
    };
    refused("layers=3\nwidth=64\n", COUNT, 2, "layers 2");
    refused("layers=2\n", COUNT, 2, "width");
    refused("layers=2\nwidth=64\n", COUNT + 1, 2, "101 parameters");
    refused("layers=2\nwidth=64\n", COUNT, 3, "local steps 2");
    sound.train(add(1));
    c.join();
    EXPECT_EQ(c.status, RF_OK) << c.message;
}
