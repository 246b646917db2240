// SPDX-License-Identifier: MIT
//
// Shared by the tests of all transports: contexts, patterns, waiting for completions.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

extern "C" {
#include "base/base.h"
#include "base/transport_interface.h"
#include "transport/transport.h"
}

namespace transport
{

struct Context {
    alignas(64) char provider[64];
    int id = 0;
};

// Byte i of message m: differs between messages and with position.
inline uint8_t pattern(uint64_t message, size_t i)
{
    return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3 + 1);
}
inline std::vector<uint8_t> payload(uint64_t message, size_t bytes)
{
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(message, i);
    return data;
}

// Polls one completion at a time; gives up after the deadline with count 0.
inline int poll_one(struct rf_transport *t, struct rf_completion *out, double seconds = 20)
{
    uint64_t end = rf_now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        int rc = t->ops->poll(t, out, 1);
        if (rc != 0)
            return rc;
        if (rf_now_ns() > end)
            return 0;
        std::this_thread::yield();
    }
}

// Posts until it is accepted; completions seen meanwhile are kept in `stash`.
inline int post_all(struct rf_transport *t, std::vector<rf_completion> &stash,
                    const std::function<int()> &post, double seconds = 20)
{
    uint64_t end = rf_now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        int rc = post();
        if (rc != RF_EAGAIN || rf_now_ns() > end)
            return rc;
        rf_completion done;
        if (t->ops->poll(t, &done, 1) == 1)
            stash.push_back(done);
        else
            std::this_thread::yield();
    }
}

} // namespace transport
