/* SPDX-License-Identifier: MIT
 *
 * Workers and servers of a store as the ranks of one process, and gradients that all tests can
 * repeat.
 */
#ifndef RF_TESTS_STORE_SERVER_RUN_H
#define RF_TESTS_STORE_SERVER_RUN_H

#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <cmath>
#include <functional>
#include <vector>

#include "support/ranks.h"

using Vector = std::vector<float>;

/* A gradient that all tests can repeat, with rounding in each sum. */
inline float gradient(int worker, int64_t step, int64_t i)
{
    return 0.1f * static_cast<float>(sin(1.3 * worker + 0.7 * step + 0.11 * i));
}

inline Vector gradients(int worker, int64_t step, int64_t count)
{
    Vector out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = gradient(worker, step, i);
    return out;
}

inline Vector start(int64_t count)
{
    Vector out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = static_cast<float>(cos(0.3 * i));
    return out;
}

using Work = std::function<void(rf_store *store, int worker)>;
using Served = std::function<void(int server, const rf_store_server_stats &stats)>;

/* Workers work, and servers serve until they have ended. */
inline void run(int workers, const rf_store_opts &given, const Work &work,
                const Served &served = nullptr)
{
    ranks::World world;
    const int servers = given.servers ? given.servers : 1;
    world.size = workers + servers;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = nullptr;
        rf_store_opts opts = given;
        opts.initial = rank == 0 ? given.initial : nullptr;
        opts.state = rank == 0 ? given.state : nullptr;
        ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
        ASSERT_EQ(rf_store_server(store), rank < workers ? -1 : rank - workers);
        rf_store_server_stats stats = {};
        if (rank < workers)
            work(store, rank);
        else
            ASSERT_EQ(rf_store_serve(store, &stats), RF_OK) << rf_last_error()->message;
        if (rank >= workers && served)
            served(rank - workers, stats);
        rf_store_close(store);
    });
}

#endif
