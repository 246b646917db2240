// SPDX-License-Identifier: MIT
//
// Saves a checkpoint of step 1, then is killed while saving steps 2, 3, ...: `save_victim DIR
// MOMENT RANKS WAY`. MOMENT: a stage of a save, or @N, N microseconds after step 1 was saved. RANKS
// are threads. WAY: blocking or background. The parameter ln_f.bias is the step's number. Started
// by checkpoint_test.cc.
#include <ringforge/ringforge.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <thread>
#include <vector>

#include "gpt2.h"

extern "C" {
#include "train/run.h"
}

namespace
{

struct Victim {
    const char *dir;
    char *moment;
    int ranks;
    bool background;
    rf_loopback *loopback = nullptr;
    pthread_barrier_t armed;
};

void die(void *wanted, const char *stage)
{
    if (strcmp((const char *)wanted, stage) == 0)
        raise(SIGKILL);
}

// Kills the process at a moment unknown to the program.
void die_after(long us)
{
    timer_t timer;
    sigevent event = {};
    itimerspec when = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    when.it_value.tv_sec = us / 1000000;
    when.it_value.tv_nsec = us % 1000000 * 1000 + 1;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &when, nullptr) != 0)
        abort();
}

int save(const Victim &v, rf_run *run, int step)
{
    float bias[16];
    rf_progress progress = {step, 77, 4 * step};
    const rf_save_opts opts = {2};
    for (float &b : bias)
        b = (float)step;
    int rc = rf_run_write_param(run, "ln_f.bias", bias, sizeof(bias));
    if (rc == 0 && v.background)
        return rf_run_save_begin(run, v.dir, &progress, &opts);
    return rc < 0 ? rc : rf_run_save(run, v.dir, &progress);
}

int work(Victim &v, rf_comm *comm, int rank)
{
    const gpt2_config config = {1, 16, 2, 8, 17};
    const rf_mesh mesh = {v.ranks, 1, 1};
    rf_policy policy = {};
    gpt2 *model = nullptr;
    rf_device *device = nullptr;
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    int count = 0;
    policy.batch = 4;
    policy.seq = 8;
    policy.micro_batches = 4;
    if (gpt2_create(&config, &model) < 0)
        return -1;
    const rf_block *blocks = gpt2_blocks(model, &count);
    if (rf_device_open(nullptr, nullptr, &device) < 0 ||
        rf_plan_build({blocks, count}, &mesh, &policy, rank, &plan) < 0 ||
        rf_run_open(device, comm, plan, nullptr, &run) < 0)
        return -1;
    run->files.piece_bytes = 2048;
    if (rf_run_reserve(run, v.dir) < 0 || save(v, run, 1) < 0 || rf_run_save_wait(run) < 0)
        return -1;
    pthread_barrier_wait(&v.armed);
    if (*v.moment != '@')
        run->files.saves = {die, v.moment};
    else if (rank == 0)
        die_after(atol(v.moment + 1));
    int rc = 0;
    for (int step = 2; rc == 0 && (*v.moment == '@' || step < 4); step++)
        rc = save(v, run, step);
    return rc < 0 ? rc : rf_run_save_wait(run);
}

void rank(Victim &v, int r)
{
    rf_comm *comm = nullptr;
    if (rf_comm_open_loopback(v.loopback, r, nullptr, &comm) < 0 || work(v, comm, r) < 0)
        fprintf(stderr, "save_victim, rank %d: %s\n", r, rf_last_error()->message);
    fprintf(stderr, "save_victim was not killed\n");
    exit(2);
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    Victim v = {arguments[1],
                arguments[2],
                atoi(arguments[3]),
                strcmp(arguments[4], "background") == 0,
                nullptr,
                {}};
    if (rf_loopback_create(v.ranks, nullptr, &v.loopback) < 0)
        return 2;
    pthread_barrier_init(&v.armed, nullptr, (unsigned)v.ranks);
    std::vector<std::thread> ranks;
    for (int r = 0; r < v.ranks; r++)
        ranks.emplace_back([&v, r] { rank(v, r); });
    for (std::thread &t : ranks)
        t.join();
    return 2;
}
