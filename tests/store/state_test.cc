/* SPDX-License-Identifier: MIT
 *
 * The state of a store's servers: saved in files, and read by a worker. A store that begins with it
 * continues to the bit.
 */
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "server_run.h"

namespace
{

struct Folder {
    std::string path;
    Folder()
    {
        char name[] = "/tmp/rf-store-XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder()
    {
        const std::string command = "rm -rf " + path;
        EXPECT_EQ(system(command.c_str()), 0);
    }
};

/* What a worker has read of the servers at the end of a training. */
struct State {
    Vector m, v;
    rf_store_state is = {};
    explicit State(int64_t count) : m(count), v(count)
    {
        is.states[RF_STATE_M] = m.data();
        is.states[RF_STATE_V] = v.data();
    }
};

Vector train(const rf_store_opts &opts, int64_t from, int64_t to, bool save, State *state = nullptr)
{
    Vector out;
    run(2, opts, [&](rf_store *store, int worker) {
        const rf_store_keys all = rf_store_range(0, opts.count);
        Vector got(opts.count);
        rf_store_update update = {};
        update.lr = 0.01f;
        for (int64_t step = from; step < to; step++) {
            const Vector mine = gradients(worker, step, opts.count);
            ASSERT_EQ(rf_store_push(store, &all, mine.data(), &update), RF_OK);
            ASSERT_EQ(rf_store_pull(store, &all, step + 1, got.data()), RF_OK)
                << rf_last_error()->message;
            const int saved = save && worker == 0 ? rf_store_save(store) : RF_OK;
            ASSERT_EQ(saved, RF_OK) << rf_last_error()->message;
        }
        if (worker == 0 && state) {
            ASSERT_EQ(rf_store_read_state(store, &state->is), RF_OK) << rf_last_error()->message;
        }
        if (worker == 0)
            out = got;
    });
    return out;
}

void overwrite(const std::string &path, int64_t at)
{
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x55');
}

rf_store_opts by_adam(const Vector &initial)
{
    static const rf_optimizer_opts adam = [] {
        rf_optimizer_opts opts = {};
        opts.kind = RF_ADAM;
        opts.beta1 = 0.9f;
        opts.beta2 = 0.99f;
        opts.eps = 1e-8f;
        return opts;
    }();
    rf_store_opts opts = {};
    opts.count = (int64_t)initial.size();
    opts.servers = 2;
    opts.optimizer = &adam;
    opts.initial = initial.data();
    return opts;
}

/* Whatever is lost behind the last save, training continues as if it had not been. */
TEST(StoreState, RestoredStateContinuesToTheBit)
{
    const Folder folder;
    const std::string a1 = folder.path + "/server-1-of-2.a.safetensors",
                      b1 = folder.path + "/server-1-of-2.b.safetensors";
    const Vector initial = start(97);
    rf_store_opts opts = by_adam(initial);
    const Vector want = train(opts, 0, 6, false);
    opts.folder = folder.path.c_str();
    train(opts, 0, 3, true); /* versions 1 to 3, of which 2 and 3 are kept: b and a */
    opts.restore = true;
    EXPECT_EQ(train(opts, 3, 6, false), want);
    /* One server has lost its last file, and both continue from the one before. */
    overwrite(a1, 4096 + 5);
    EXPECT_EQ(train(opts, 2, 6, false), want);
    overwrite(b1, 4096 + 5);
    ranks::World world;
    world.size = 4;
    ranks::run(world, [&](rf_comm *comm, int) {
        rf_store *store = nullptr;
        EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_EIO) << rf_last_error()->message;
    });
    /* A new store does not replace the state of another one. */
    opts.restore = false;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = nullptr;
        EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_EINVAL) << rf_last_error()->message;
        if (rank == 3) {
            EXPECT_NE(strstr(rf_last_error()->message, "server-2-of-2.a.safetensors is the state"),
                      nullptr)
                << rf_last_error()->message;
        }
    });
}

/* A worker's copy of the state continues on another number of servers. */
TEST(StoreState, AStateThatAWorkerHasReadContinuesToTheBit)
{
    const Vector initial = start(97);
    rf_store_opts opts = by_adam(initial);
    const Vector want = train(opts, 0, 6, false);
    State state(97);
    const Vector middle = train(opts, 0, 3, false, &state);
    EXPECT_EQ(state.is.version, 3);
    EXPECT_EQ(state.is.updates, 3);
    opts.servers = 3;
    opts.initial = middle.data();
    opts.state = &state.is;
    EXPECT_EQ(train(opts, 3, 6, false), want);
    /* The first gradient of a worker is not stale by what was before. */
    run(2, opts, [&](rf_store *store, int worker) {
        const rf_store_keys all = rf_store_range(0, 97);
        rf_store_server_stats stats = {};
        ASSERT_EQ(rf_store_push(store, &all, gradients(worker, 3, 97).data(), nullptr), RF_OK);
        ASSERT_EQ(rf_store_ask(store, 0, &stats), RF_OK);
        EXPECT_EQ(stats.most_stale, 0);
        state.is.states[RF_STATE_A] = state.m.data();
        EXPECT_EQ(rf_store_read_state(store, &state.is), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "no state of number 2"), nullptr);
    });
}
} // namespace
