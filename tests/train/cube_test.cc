// SPDX-License-Identifier: MIT
//
// One of eight processes (tensor ranks in the stages of a pipeline, twice) disagrees with the
// others: when it opens its run, in a call, or in its list. All others name it. death_test.cc tests
// killed and stopped ranks there, disagree_test.cc other differences. No device may be opened here
// before the ranks are.
#include <cstring>

#include "faults.h"

namespace
{

constexpr int failed_rank = 5; // of the second stage, and second in its tensor group

struct Disagreement {
    const char *name;
    void (*before_open)(Job &job);
    int (*call)(Job &job, const Folder &folder); // instead of a step
    bool opens;                                  // the others do not know of it before the call
};

int step(Job &job, const Folder &)
{
    return job.step();
}

void send_less(Job &job)
{
    const rf_list &list = job.plan->lists[RF_LIST_STEP];
    for (int k = 0; k < list.count; k++)
        if (list.instructions[k].verb == RF_VERB_SEND)
            job.plan->transfers[list.instructions[k].transfer].count--;
}

void exchange_less(Job &job)
{
    const rf_list &list = job.plan->lists[RF_LIST_STEP];
    for (int k = 0; k < list.count; k++)
        if (list.instructions[k].verb == RF_VERB_EXCHANGE)
            job.plan->transfers[list.instructions[k].transfer].order = RF_ORDER_TREE;
}

const Disagreement disagreements[] = {
    {"another_clip", [](Job &job) { job.plan->policy.clip = 2; }, step, false},
    {"another_message", send_less, step, true},
    {"another_exchange", exchange_less, step, true},
    {"evaluation", nullptr, [](Job &job, const Folder &) { return job.evaluate(); }, true},
    {"hash", nullptr, [](Job &job, const Folder &) { return job.hash(); }, true},
    {"save", nullptr, [](Job &job, const Folder &folder) { return job.save(folder.path()); }, true},
};

struct Case {
    const Disagreement *what;
    std::string provider;
};

std::string name_of(const testing::TestParamInfo<Case> &info)
{
    return info.param.provider + "_" + info.param.what->name;
}

// One provider each; all with RF_TEST_ALL=1.
std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const Disagreement &d : disagreements)
        for (const char *provider : {"shm", "tcp"})
            if (getenv("RF_TEST_ALL") || (&d - disagreements) % 2 == (strcmp(provider, "tcp") == 0))
                all.push_back({&d, provider});
    return all;
}

struct Common { // shared by all processes
    std::atomic<int> arrived, done;
};

void disagree(const Case &c, rf_comm *comm, int rank, Common *common, const Folder &folder)
{
    Job job(comm, rank, cube);
    if (rank == failed_rank && c.what->before_open)
        c.what->before_open(job);
    if (c.what->opens) {
        ASSERT_RF(job.open());
    }
    all_have_come(&common->arrived, FAULT_RANKS_OF_CUBE);
    const FairClock clock;
    const uint64_t start_ns = rf_now_ns();
    int status = 0;
    if (!c.what->opens)
        status = job.open();
    else
        status = rank == failed_rank ? c.what->call(job, folder) : job.step();
    const double fair_s = clock.seconds(), real_s = (double)(rf_now_ns() - start_ns) * 1e-9;
    EXPECT_EQ(status, RF_EMISMATCH) << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, "rank 5"), nullptr) << rf_last_error()->message;
    EXPECT_LT(fair_s, promised_s());
    EXPECT_EQ(folder.read("latest"), "");
    if (++common->done == FAULT_RANKS_OF_CUBE)
        printf("%s: by the last rank after %.2f s (fair %.2f s): %s\n", name_of({c, 0}).c_str(),
               real_s, fair_s, rf_last_error()->message);
}

class Cube : public testing::TestWithParam<Case>
{
};

} // namespace

TEST_P(Cube, ARankThatDisagreesIsNamedByAll)
{
    ranks::Shared memory(sizeof(Common));
    const Folder folder;
    ranks::World world;
    world.provider = GetParam().provider;
    world.size = FAULT_RANKS_OF_CUBE;
    world.timeout_s = 60;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        disagree(GetParam(), comm, rank, memory.as<Common>(), folder);
    });
}

INSTANTIATE_TEST_SUITE_P(Process, Cube, testing::ValuesIn(cases()), name_of);
