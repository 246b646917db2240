// SPDX-License-Identifier: MIT
//
// Ranks that return for the next job, that do not join, or that get too little from their launcher.
#include "job_helpers.h"

using namespace job;

// Leaving and joining are complete when they return, so the next job at the same address waits for
// a rank 0 that is still closing the one before.
TEST(Refusal, RanksThatHaveLeftWaitForTheNextJobAtTheSameAddress)
{
    for (const std::string &url : {tcp_url(free_port()), "file:" + temp_path("again")}) {
        Member zero, one;
        on_threads(2, [&](int rank) { (rank == 0 ? zero : one) = join(url, rank, 2); });
        ASSERT_EQ(zero.status, 0) << zero.message;
        ASSERT_EQ(one.status, 0) << one.message;
        one.c->ops->leave(one.c, 0);
        // Rank 0 has not left yet.
        Member early = join(url, 1, 2, nullptr, 0.3);
        EXPECT_EQ(early.status, RF_ETIMEOUT) << early.message;
        std::thread again([&] {
            Member m = join(url, 1, 2, nullptr, 60);
            gather_and_leave(m);
        });
        zero.c->ops->leave(zero.c, 5);
        Member next = join(url, 0, 2, nullptr, 60);
        gather_and_leave(next);
        again.join();
    }
}

TEST(Refusal, ARankThatIsInAJobIsNotLetInAgain)
{
    const std::string url = tcp_url(free_port());
    Member members[2];
    on_threads(2, [&](int rank) { members[rank] = join(url, rank, 2); });
    Member second = join(url, 1, 2);
    EXPECT_EQ(second.status, RF_EBUSY);
    EXPECT_TRUE(contains(second.message, "rank 1 has joined it before")) << second.message;
    on_threads(2, [&](int rank) { gather_and_leave(members[rank]); });
}

namespace
{

struct Said {
    int status;
    std::string message;
};
Said decline(const std::string &url, int rank, int size, const char *why, double timeout = 60)
{
    rf_comm_opts opts{};
    opts.rank = rank;
    opts.size = size;
    opts.start_timeout_s = timeout;
    const int status = rf_bootstrap_decline(url.c_str(), &opts, why);
    return {status, status < 0 ? rf_last_error()->message : ""};
}

} // namespace

#define NO_DATA                                                                                    \
    "it has no data: cannot open a-file-with-a-rather-long-name.txt, which is not there at all"

// Nobody waits for it: neither ranks that have joined nor those that arrive later.
TEST(Refusal, ARankThatDoesNotJoinEndsAllOthersWithItsReason)
{
    for (const std::string &url : {tcp_url(free_port()), "file:" + temp_path("declined")}) {
        const int size = 4;
        Member members[4];
        std::thread zero([&] { members[0] = join(url, 0, size, nullptr, 60); });
        std::thread one([&] { members[1] = join(url, 1, size, nullptr, 60); });
        const Said two = decline(url, 2, size, NO_DATA);
        EXPECT_EQ(two.status, 0) << two.message;
        one.join();
        members[3] = join(url, 3, size, nullptr, 60);
        zero.join();
        EXPECT_EQ(members[0].message, "rank 2 does not join: " NO_DATA);
        EXPECT_EQ(members[1].message, "rank 0 says: rank 2 does not join: " NO_DATA);
        EXPECT_EQ(members[0].status, RF_EABORT);
        EXPECT_EQ(members[1].status, RF_EABORT);
        EXPECT_EQ(members[3].message, members[1].message);
    }
}

TEST(Refusal, RankZeroThatDoesNotJoinTellsAllThatCome)
{
    const std::string url = tcp_url(free_port());
    on_threads(3, [&](int rank) {
        if (rank == 0) {
            const Said zero = decline(url, 0, 3, "a typing error");
            EXPECT_EQ(zero.status, 0) << zero.message;
        } else if (rank == 1) {
            Member m = join(url, 1, 3, nullptr, 60);
            EXPECT_EQ(m.status, RF_EABORT);
            EXPECT_EQ(m.message, "rank 0 says: a typing error");
        } else { // which does not join either
            const Said two = decline(url, 2, 3, "a typing error");
            EXPECT_EQ(two.status, RF_EABORT);
            EXPECT_EQ(two.message, "rank 0 says: a typing error");
        }
    });
    EXPECT_EQ(decline("self:", 0, 1, "alone").status, 0);
    EXPECT_EQ(decline(tcp_url(free_port()), 0, 2, "nobody comes", 0.1).status, 0);
    EXPECT_EQ(decline(tcp_url(free_port()), 1, 2, "nobody is there", 0.1).status, RF_ETIMEOUT);
}

TEST(Refusal, WhoDoesNotJoinAJobThatHasBegunChangesNothing)
{
    const std::string url = tcp_url(free_port());
    Member members[2];
    on_threads(2, [&](int rank) { members[rank] = join(url, rank, 2); });
    const Said late = decline(url, 1, 2, "too late");
    EXPECT_EQ(late.status, RF_EBUSY);
    EXPECT_EQ(late.message, "rank 0 says: the job has begun");
    on_threads(2, [&](int rank) { gather_and_leave(members[rank]); });
}

// Other variables that imply several ranks, where a process would run alone.
TEST(Refusal, LaunchersThatAreNotFollowedOrContradictAreNamed)
{
    using Variables = std::vector<std::pair<const char *, const char *>>;
    const struct {
        Variables set;
        int size;
        const char *others;
    } rows[] = {
        {{}, 1, ""},
        {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"FLUX_TASK_RANK", "1"}}, 2, ""},
        {{{"JOB_COMPLETION_INDEX", "3"}}, 1, "JOB_COMPLETION_INDEX=3"},
        {{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "4"}}, 1, "FLUX_TASK_RANK=0, FLUX_JOB_SIZE=4"},
        {{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "1"}}, 1, ""},
        {{{"PALS_RANKID", "2"}}, 1, "PALS_RANKID=2"},
        {{{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}},
         1,
         "JSM_NAMESPACE_RANK=0, JSM_NAMESPACE_SIZE=2"},
        {{{"LSF_PM_TASKID", "1"}}, 1, "LSF_PM_TASKID=1"},
        {{{"PBS_TASKNUM", "1"}}, 1, "PBS_TASKNUM=1"},
        {{{"PET_NNODES", "2"}}, 1, "PET_NNODES=2"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}},
         1,
         "PMI_RANK=1, PMI_SIZE=3"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}}, 1, ""},
    };
    for (const auto &row : rows) {
        for (auto [name, value] : row.set)
            setenv(name, value, 1);
        rf_launcher_info info;
        ASSERT_EQ(rf_launcher_find(&info), 0) << rf_last_error()->message;
        EXPECT_EQ(info.size, row.size);
        EXPECT_STREQ(info.others, row.others);
        for (auto [name, value] : row.set)
            unsetenv(name);
    }
}

TEST(Refusal, HalfOfWhatALauncherSetsIsRefused)
{
    const struct {
        const char *set, *value, *part;
    } rows[] = {{"RANK", "1", "WORLD_SIZE is not set"}, {"WORLD_SIZE", "2", "RANK is not set"}};
    rf_launcher_info info;
    for (const auto &row : rows) {
        setenv(row.set, row.value, 1);
        EXPECT_EQ(rf_launcher_find(&info), RF_EINVAL);
        EXPECT_TRUE(contains(rf_last_error()->message, row.part)) << rf_last_error()->message;
        Member m = join("env:", -1, 0);
        EXPECT_EQ(m.status, RF_EINVAL);
        EXPECT_TRUE(contains(m.message, row.part)) << m.message;
        unsetenv(row.set);
    }
    for (const char *size : {"0", "two", "4294967298"}) {
        setenv("RANK", "0", 1);
        setenv("WORLD_SIZE", size, 1);
        EXPECT_EQ(rf_launcher_find(&info), RF_EINVAL);
        EXPECT_TRUE(contains(rf_last_error()->message, "1 to 65536") ||
                    contains(rf_last_error()->message, "from 1 to 65536"))
            << rf_last_error()->message;
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}
