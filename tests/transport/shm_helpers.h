// SPDX-License-Identifier: MIT
//
// A job whose ranks are threads that share memory through segments of their own, as ranks of one
// host do. Used by the tests of the shared-memory transport.
#pragma once

#include "job_helpers.h"

extern "C" {
#include "transport/providers.h"
#include "transport/shm/shm.h"
}

namespace shm
{

using namespace job;

// All ranks on one host.
inline const rf_opening everybody = {};

struct End {
    rf_control *c = nullptr;
    rf_transport *t = nullptr;
    rf_shm *shm() const
    {
        return reinterpret_cast<rf_shm *>(t);
    }
};

// Ranks as threads: each still has a segment of its own.
struct World {
    std::vector<End> ends;
    // reads: RF_PEER_READS; by default long messages pass through slots.
    explicit World(int size, const char *reads = "0") : ends((size_t)size)
    {
        setenv("RF_PEER_READS", reads, 1);
        std::string url = tcp_url(free_port());
        on_threads(size, [&](int rank) {
            End &end = ends[(size_t)rank];
            Member m = join(url, rank, size);
            EXPECT_EQ(m.status, 0) << m.message;
            end.c = m.c;
            EXPECT_EQ(rf_shm_create(m.c, &everybody, &end.t), 0) << rf_last_error()->message;
        });
    }
    ~World()
    {
        on_threads((int)ends.size(), [&](int rank) {
            End &end = ends[(size_t)rank];
            if (end.t)
                end.t->ops->destroy(end.t);
            end.c->ops->leave(end.c, 5);
        });
    }
    // Polls all ranks until one of `rank`'s posts has ended.
    int next(int rank, rf_completion *done)
    {
        for (int turn = 0; turn < 1000; turn++)
            for (size_t r = 0; r < ends.size(); r++) {
                rf_completion other;
                int got = ends[r].t->ops->poll(ends[r].t, (int)r == rank ? done : &other, 1);
                if ((int)r == rank && got != 0)
                    return got;
            }
        return 0;
    }
    // Polls all ranks, so that pending messages complete.
    void settle()
    {
        rf_completion done;
        for (int turn = 0; turn < 100; turn++)
            for (End &end : ends)
                end.t->ops->poll(end.t, &done, 1);
    }
};

inline bool has(const std::string &text, const char *part)
{
    return text.find(part) != text.npos;
}

} // namespace shm
