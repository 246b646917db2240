// SPDX-License-Identifier: MIT
//
// Saves a checkpoint of step 1, then kills itself in the midst of saving step 2: `save_victim DIR
// STAGE`. Started by checkpoint_test.cc.
#include <ringforge/ringforge.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "gpt2.h"

extern "C" {
#include "train/run.h"
}

static void die(void *wanted, const char *stage)
{
    if (strcmp((const char *)wanted, stage) == 0)
        raise(SIGKILL);
}

static int save(rf_run *run, const char *dir, int step)
{
    float bias[16];
    rf_progress progress = {step, 77, 4 * step};
    for (float &b : bias)
        b = (float)step;
    int rc = rf_run_write_param(run, "ln_f.bias", bias, sizeof(bias));
    return rc < 0 ? rc : rf_run_save(run, dir, &progress);
}

static int work(const char *dir, char *stage)
{
    const gpt2_config config = {1, 16, 2, 8, 17};
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
        return 2;
    const rf_block *blocks = gpt2_blocks(model, &count);
    if (rf_device_open(nullptr, nullptr, &device) < 0 ||
        rf_plan_build(blocks, count, nullptr, &policy, 0, &plan) < 0 ||
        rf_run_open(device, nullptr, plan, nullptr, &run) < 0 || save(run, dir, 1) < 0)
        return 2;
    run->save_hook = {die, stage};
    return save(run, dir, 2) < 0 ? 2 : 0;
}

int main(int count, char **arguments)
{
    int status = count == 3 ? work(arguments[1], arguments[2]) : 2;
    fprintf(stderr, "save_victim was not killed: %s\n", rf_last_error()->message);
    return status;
}
