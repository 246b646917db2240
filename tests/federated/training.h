/* SPDX-License-Identifier: MIT
 *
 * A coordinator on a thread of its own, for tests, and clients whose local steps are functions.
 */
#ifndef RF_TESTS_FEDERATED_TRAINING_H
#define RF_TESTS_FEDERATED_TRAINING_H

#include <gtest/gtest.h>
#include <ringforge/federated.h>
#include <ringforge/ringforge.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace federated
{

using Vector = std::vector<float>;

/* A round as the coordinator reported it. */
struct Round {
    int64_t round;
    Vector values;
    std::vector<rf_federated_part> parts;
    std::vector<double> weights;
    double weight;
    uint64_t sent, received, ns;
};

/* Set before start(); read after join(). Names are c0, c1, ..., and keys "key of c0". */
class Coordinator
{
  public:
    explicit Coordinator(int clients)
    {
        for (int k = 0; k < clients; k++)
            names.push_back("c" + std::to_string(k)),
                keys.push_back("key of c" + std::to_string(k));
        opts.rounds = 1;
        opts.rule = &rule;
        opts.round_s = opts.wait_s = 20;
        opts.user = this;
        opts.ended = [](void *user, const rf_federated_round *r) {
            return static_cast<Coordinator *>(user)->ended(r);
        };
        opts.note = [](void *user, const char *text) {
            Coordinator *c = static_cast<Coordinator *>(user);
            const std::lock_guard<std::mutex> lock(c->mutex);
            c->notes += std::string(text) + "\n";
            c->changed.notify_all();
        };
    }

    ~Coordinator()
    {
        if (thread.joinable())
            join();
    }

    int open()
    {
        list.clear();
        for (size_t k = 0; k < names.size(); k++)
            list.push_back({names[k].c_str(), keys[k].c_str()});
        opts.clients = list.data();
        opts.client_count = static_cast<int>(list.size());
        return rf_coordinator_open(&opts, &coordinator);
    }

    void start()
    {
        ASSERT_EQ(open(), RF_OK) << rf_last_error()->message;
        port = rf_coordinator_port(coordinator);
        thread = std::thread([this] {
            status = rf_coordinator_run(coordinator);
            if (status < 0)
                message = rf_last_error()->message;
        });
    }

    void join()
    {
        thread.join();
        rf_coordinator_close(coordinator);
        coordinator = nullptr;
    }

    /* Until `text` is among the notes. */
    void wait_for(const std::string &text)
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return notes.find(text) != std::string::npos; });
    }

    /* Until that many rounds have ended. */
    void wait_for_rounds(size_t count)
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return rounds.size() >= count; });
    }

    rf_rounds_rule rule = {};
    rf_coordinator_opts opts = {};
    std::vector<std::string> names, keys;
    std::vector<Round> rounds;
    std::string notes, message;
    int port = 0, status = 1;
    rf_coordinator *coordinator = nullptr;
    std::function<int(const Round &)> on_round;

  private:
    int ended(const rf_federated_round *r)
    {
        const std::lock_guard<std::mutex> lock(mutex);
        rounds.push_back({r->round, Vector(r->values, r->values + r->count),
                          std::vector<rf_federated_part>(r->parts, r->parts + names.size()),
                          std::vector<double>(r->weights, r->weights + names.size()), r->weight,
                          r->sent_bytes, r->received_bytes, r->ns});
        changed.notify_all();
        return on_round ? on_round(rounds.back()) : 0;
    }

    std::vector<rf_federated_client_key> list;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable changed;
};

/* A client's options for a coordinator, and its parameters. */
struct Client {
    Client(const Coordinator &c, int number, int64_t count, float value = 0)
        : name("c" + std::to_string(number)), key("key of " + name), values(count, value)
    {
        opts.host = "127.0.0.1";
        opts.port = c.port;
        opts.name = name.c_str();
        opts.key = key.c_str();
        opts.rule = &c.rule;
        opts.timeout_s = 20;
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;
    ~Client()
    {
        rf_client_close(client);
    }

    int open()
    {
        const rf_rounds_params params =
            rf_rounds_in_host(values.data(), static_cast<int64_t>(values.size()));
        return rf_client_open(&opts, &params, &client);
    }

    /* The parameters after local steps of `step`, until training ends. */
    void train(const std::function<void(Client &)> &step, double share = 0)
    {
        if (!client) {
            ASSERT_EQ(open(), RF_OK) << rf_last_error()->message;
        }
        while (!stats.ended) {
            step(*this);
            ASSERT_EQ(rf_client_step(client, share, &stats), RF_OK) << rf_last_error()->message;
        }
    }

    std::string name, key;
    Vector values;
    rf_client_opts opts = {};
    rf_client *client = nullptr;
    rf_client_stats stats = {};
};

} // namespace federated

#endif
