/* SPDX-License-Identifier: MIT
 *
 * Workers that train over loopback by a rule, with local steps that tests can repeat.
 */
#ifndef RF_TESTS_ROUNDS_TRAINING_H
#define RF_TESTS_ROUNDS_TRAINING_H

#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/rounds.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "support/ranks.h"

using Vector = std::vector<float>;

/* What a local step subtracts from parameter i on a rank: any number that all tests can repeat. */
inline float local_step(int rank, int64_t step, int64_t i)
{
    return 0.01f * static_cast<float>(sin(1.3 * rank + 0.7 * step + 0.11 * i));
}

inline Vector start(int64_t count)
{
    Vector out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = static_cast<float>(cos(0.3 * i));
    return out;
}

/* A matrix of `columns` in rows, and the rest. */
inline int shape_of(int64_t count, int64_t columns, int index, rf_round_shape *out)
{
    const int64_t rows = count / columns, rest = count % columns;
    *out = index == 0 && rows > 0 ? rf_round_shape{rows, columns} : rf_round_shape{1, rest};
    return index > (rows > 0) || out->columns == 0 ? RF_EINVAL : RF_OK;
}

const int64_t kColumns = 20;

struct Host {
    float *values;
    int64_t count;
};

inline rf_rounds_params in_host(Host *host)
{
    rf_rounds_params params = {};
    params.count = host->count;
    params.user = host;
    params.read = [](void *user, int64_t first, int64_t count, float *to) {
        std::copy_n(static_cast<Host *>(user)->values + first, count, to);
        return static_cast<int>(RF_OK);
    };
    params.write = [](void *user, int64_t first, int64_t count, const float *from) {
        std::copy_n(from, count, static_cast<Host *>(user)->values + first);
        return static_cast<int>(RF_OK);
    };
    params.shape = [](void *user, int index, rf_round_shape *out) {
        return shape_of(static_cast<Host *>(user)->count, kColumns, index, out);
    };
    return params;
}

/* The parameters of all ranks after `steps` local steps with exchanges by a rule. */
inline std::vector<Vector> train(const rf_rounds_rule &rule, int ranks, int64_t count,
                                 int64_t steps, std::vector<rf_rounds_stats> *stats = nullptr)
{
    std::vector<Vector> params(ranks, start(count));
    if (stats)
        stats->resize(ranks);
    ranks::World world;
    world.size = ranks;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Host host = {params[rank].data(), count};
        const rf_rounds_params its = in_host(&host);
        rf_rounds *rounds = nullptr;
        rf_rounds_stats now = {};
        ASSERT_EQ(rf_rounds_open(comm, &its, &rule, &rounds), RF_OK) << rf_last_error()->message;
        for (int64_t step = 1; step <= steps; step++) {
            for (int64_t i = 0; i < count; i++)
                params[rank][i] -= local_step(rank, step, i);
            ASSERT_EQ(rf_rounds_step(rounds, rule.weighted ? rank + 1 : 0, &now), RF_OK)
                << rf_last_error()->message;
        }
        if (stats)
            (*stats)[rank] = now;
        rf_rounds_close(rounds);
    });
    return params;
}

#endif
