/* SPDX-License-Identifier: MIT
 *
 * A client by hand, for tests: it has proved its key, and may send anything.
 */
#ifndef RF_TESTS_FEDERATED_RAW_H
#define RF_TESTS_FEDERATED_RAW_H

#include "training.h"

#include <poll.h>

extern "C" {
#include "federated/message.h"
#include "transport/bootstrap/join.h"
#include "transport/control/socket.h"
}

namespace federated
{

inline uint64_t soon()
{
    return rf_now_ns() + 10000000000ull;
}

/* A client by hand: it has proved its key, and may send anything. */
struct Raw {
    Raw(const Coordinator &c, const char *name, const char *key)
    {
        rf_job_key job_key;
        rf_handshake h = {};
        rf_link link;
        int fd = -1;
        EXPECT_EQ(rf_job_key_init(&job_key, key), 0);
        EXPECT_EQ(rf_socket_connect("127.0.0.1", c.port, soon(), &fd), 0);
        rf_link_init(&link, fd, RF_FRAME_MAX_SEALED);
        h.version = RF_FRAME_VERSION;
        h.rank = 1;
        h.size = FEDERATED_WORLD_SIZE;
        std::snprintf(h.name, sizeof h.name, "%s", name);
        EXPECT_EQ(rf_join_prove(&job_key, &h, &link, soon()), 0) << rf_last_error()->message;
        EXPECT_EQ(rf_channel_open(&channel, &link, &job_key, &h, false), 0);
    }
    ~Raw()
    {
        rf_channel_close(&channel);
    }

    void send(int kind, const std::vector<uint8_t> &bytes)
    {
        EXPECT_EQ(rf_channel_queue(&channel, kind, bytes.data(), bytes.size()), 0);
        EXPECT_LE(rf_link_flush_by(&channel.link, soon()), 0); /* it may have closed */
    }

    std::vector<uint8_t> join(int64_t count, const rf_rounds_rule &rule)
    {
        char text[FEDERATED_RULE_BYTES];
        std::vector<uint8_t> bytes(FEDERATED_JOIN_BYTES);
        federated_rule_text(&rule, text);
        federated_message m = {};
        m.kind = RF_FEDERATED_JOIN;
        m.version = FEDERATED_VERSION;
        m.count = count;
        m.rule = text;
        m.terms = "";
        bytes.resize(federated_write(&m, bytes.data()));
        return bytes;
    }

    std::vector<uint8_t> update(uint64_t run, int64_t round, double weight)
    {
        std::vector<uint8_t> bytes(FEDERATED_JOIN_BYTES);
        federated_message m = {};
        m.kind = RF_FEDERATED_UPDATE;
        m.run = run;
        m.round = round;
        m.weight = weight;
        bytes.resize(federated_write(&m, bytes.data()));
        return bytes;
    }

    /* The run of the round whose parameters have arrived completely. */
    uint64_t take_round(int64_t count)
    {
        uint64_t run = 0;
        for (int64_t values = 0; values < count;) {
            rf_channel_message bytes;
            federated_message m;
            const int rc = rf_channel_next(&channel, &bytes);
            if (rc == 0) {
                EXPECT_TRUE(rf_socket_wait(channel.link.fd, POLLIN, soon()));
                EXPECT_GE(rf_link_fill(&channel.link), 0) << rf_last_error()->message;
                continue;
            }
            EXPECT_EQ(rc, 1);
            EXPECT_EQ(federated_parse(&bytes, false, &m), 0);
            run = m.kind == RF_FEDERATED_ROUND ? m.run : run;
            values += m.value_count;
        }
        return run;
    }

    /* The next message of a kind; its texts and body live until the next call. */
    federated_message next(rf_federated_message kind)
    {
        for (;;) {
            rf_channel_message bytes;
            federated_message m = {};
            const int rc = rf_channel_next(&channel, &bytes);
            if (rc == 1 && federated_parse(&bytes, false, &m) == 0 && m.kind == kind)
                return m;
            if (rc == 0 && rf_socket_wait(channel.link.fd, POLLIN, soon()) &&
                rf_link_fill(&channel.link) >= 0)
                continue;
            if (rc != 1) {
                ADD_FAILURE() << "no message of kind " << kind << ": " << rf_last_error()->message;
                return m;
            }
        }
    }

    /* Of a secure aggregation. */
    void send_body(int kind, uint64_t run, int64_t round, const std::vector<uint8_t> &body)
    {
        std::vector<uint8_t> bytes(FEDERATED_MESSAGE_BYTES);
        federated_message m = {};
        m.kind = static_cast<rf_federated_message>(kind);
        m.run = run;
        m.round = round;
        m.body = body.data();
        m.body_bytes = body.size();
        bytes.resize(federated_write(&m, bytes.data()));
        send(kind, bytes);
    }

    /* Until the coordinator closes; what it says last. */
    std::string last_words()
    {
        std::string text;
        for (;;) {
            rf_channel_message bytes;
            federated_message m;
            const int rc = rf_channel_next(&channel, &bytes);
            if (rc > 0 && federated_parse(&bytes, false, &m) == 0 && m.kind == RF_FEDERATED_REFUSE)
                text = m.text;
            if (rc < 0 || (rc == 0 && rf_link_fill(&channel.link) < 0))
                return text;
            EXPECT_TRUE(rf_socket_wait(channel.link.fd, POLLIN, soon()));
        }
    }

    rf_channel channel = {};
};

} // namespace federated

#endif
