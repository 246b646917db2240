// SPDX-License-Identifier: MIT
//
// The control link after joining: gathering, messages, abort, death and goodbye.
#include "job_helpers.h"
#include "support/fair_clock.h"

#include <sys/mman.h>

extern "C" {
#include "transport/control/control.h"
}

using namespace job;

namespace
{

// A joined job of threads.
struct Job {
    std::vector<Member> m;
    explicit Job(int size) : m((size_t)size)
    {
        std::string url = tcp_url(free_port());
        on_threads(size, [&](int r) { m[(size_t)r] = join(url, r, size); });
        for (auto &member : m)
            EXPECT_EQ(member.status, 0) << member.message;
    }
    rf_control *operator[](int rank)
    {
        return m[(size_t)rank].c;
    }
    void leave_all()
    {
        on_threads((int)m.size(), [&](int r) { m[(size_t)r].c->ops->leave(m[(size_t)r].c, 5); });
    }
};

} // namespace

TEST(Control, GathersAnySizeManyTimes)
{
    const int size = 4;
    Job job(size);
    on_threads(size, [&](int me) {
        for (size_t bytes : {(size_t)0, (size_t)1, (size_t)4, (size_t)712, (size_t)300001}) {
            auto mine = transport::payload((uint64_t)me, bytes);
            std::vector<uint8_t> all(bytes * size, 0xee);
            ASSERT_EQ(job[me]->ops->all_gather(job[me], mine.data(), bytes, all.data(), 60), 0)
                << rf_last_error()->message;
            for (int r = 0; r < size; r++) {
                auto theirs = transport::payload((uint64_t)r, bytes);
                EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(),
                                       all.begin() + (long)((size_t)r * bytes)));
            }
        }
    });
    job.leave_all();
}

TEST(Control, GatheringDifferentSizesIsAnErrorOnEveryRank)
{
    Job job(3);
    on_threads(3, [&](int me) {
        char mine[16] = {0}, all[48];
        size_t bytes = me == 2 ? 16 : 8;
        EXPECT_EQ(job[me]->ops->all_gather(job[me], mine, bytes, all, 60), RF_EMISMATCH);
    });
    job.leave_all();
}

TEST(Control, MessagesReachEveryOtherRankInOrder)
{
    const int size = 3, count = 200;
    Job job(size);
    on_threads(size, [&](int me) {
        rf_control *c = job[me];
        for (int i = 0; i < count; i++)
            ASSERT_EQ(c->ops->notify(c, &i, sizeof i), 0);
        int next[size] = {0};
        for (int got = 0; got < count * (size - 1); got++) {
            rf_event event;
            ASSERT_TRUE(wait_event(c, RF_EVENT_MESSAGE, &event));
            ASSERT_NE(event.rank, me);
            ASSERT_EQ(event.bytes, sizeof(int));
            int i;
            memcpy(&i, event.payload, sizeof i);
            EXPECT_EQ(i, next[event.rank]++);
        }
    });
    char big[513] = {0};
    EXPECT_EQ(job[0]->ops->notify(job[0], big, sizeof big), RF_EINVAL);
    job.leave_all();
}

TEST(Control, AbortReachesEveryOtherRankAndEndsItsGather)
{
    for (int who = 0; who < 3; who++) {
        Job job(3);
        on_threads(3, [&](int me) {
            rf_control *c = job[me];
            if (me == who) {
                ASSERT_EQ(c->ops->abort(c, "because"), 0);
                return;
            }
            int mine = 0, all[3];
            EXPECT_EQ(c->ops->all_gather(c, &mine, sizeof mine, all, 60), RF_EABORT);
            rf_event event;
            ASSERT_TRUE(wait_event(c, RF_EVENT_ABORT, &event));
            EXPECT_EQ(event.rank, who);
            EXPECT_STREQ(event.text, "because");
        });
        job.leave_all();
    }
}

/* Rank 3 learns of the death first, aborts and leaves, before the others have begun to gather. */
TEST(Control, ADeathIsNamedToWhoGathersThoughAnAbortBecauseOfItCameFirst)
{
    for (bool seen_by_rank_0 : {true, false}) {
        Job job(4);
        rf_control *witness = job[3];
        rf_event event;
        auto *c = (rf_socket_control *)job[seen_by_rank_0 ? 1 : 3];
        pthread_mutex_lock(&c->lock);
        if (seen_by_rank_0)
            (void)!send(c->peers[0].link.fd, "nonsense nonsense", 17, 0);
        else
            rf_control_send_all(c, -1, RF_FRAME_DEAD, 1, "its process has ended", 21);
        pthread_mutex_unlock(&c->lock);
        if (seen_by_rank_0) {
            ASSERT_TRUE(wait_event(witness, RF_EVENT_DEAD, &event));
        }
        ASSERT_EQ(witness->ops->abort(witness, "rank 1 has died"), 0);
        std::thread leaver([&] { witness->ops->leave(witness, 0); });
        for (int me : {0, 2}) {
            ASSERT_TRUE(wait_event(job[me], RF_EVENT_ABORT, &event));
            ASSERT_TRUE(wait_event(job[me], RF_EVENT_LEFT, &event));
            int mine = 0, all[4];
            EXPECT_EQ(job[me]->ops->all_gather(job[me], &mine, sizeof mine, all, 60), RF_EPEER)
                << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        }
        leaver.join();
        on_threads(3, [&](int r) { job[r]->ops->leave(job[r], 0); });
    }
}

static bool has_part(rf_control *control, int rank)
{
    auto *c = (rf_socket_control *)control;
    pthread_mutex_lock(&c->lock);
    const bool has = c->peers[rank].part != nullptr;
    pthread_mutex_unlock(&c->lock);
    return has;
}

TEST(Control, AGatherWithoutEverybodyTimesOutAndRankZeroNamesTheMissing)
{
    Job job(3);
    on_threads(3, [&](int me) {
        if (me == 2)
            return;
        int mine = 0, all[3];
        while (me == 0 && !has_part(job[0], 1)) // otherwise rank 1 would be missing, too
            usleep(1000);
        EXPECT_EQ(job[me]->ops->all_gather(job[me], &mine, sizeof mine, all, 0.05), RF_ETIMEOUT);
        EXPECT_EQ(rf_last_error()->rank, me == 0 ? 2 : -1);
    });
    job.leave_all();
}

TEST(Control, GoodbyeIsNotDeath)
{
    for (int who = 0; who < 3; who++) {
        Job job(3);
        std::thread leaver([&] { job[who]->ops->leave(job[who], 0); });
        leaver.join();
        for (int r = 0; r < 3; r++) {
            if (r == who)
                continue;
            rf_event event;
            ASSERT_TRUE(wait_event(job[r], RF_EVENT_LEFT, &event));
            EXPECT_EQ(event.rank, who);
            int mine = 0, all[3];
            EXPECT_EQ(job[r]->ops->all_gather(job[r], &mine, sizeof mine, all, 60), RF_EPEER);
            EXPECT_EQ(rf_last_error()->rank, who);
            EXPECT_EQ(job[r]->ops->next_event(job[r], &event), 0);
        }
        std::thread other([&] { job[(who + 1) % 3]->ops->leave(job[(who + 1) % 3], 5); });
        job[(who + 2) % 3]->ops->leave(job[(who + 2) % 3], 5);
        other.join();
    }
}

TEST(Control, LeavingTogetherIsQuick)
{
    Job job(5);
    FairClock clock;
    job.leave_all();
    EXPECT_LT(clock.seconds(), 1.0);
}

namespace
{

// Shared between forked ranks: who has joined, when the victim died, when each learned of it.
struct Shared {
    int joined[3];
    int go;
};
Shared *make_shared()
{
    return (Shared *)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

// Exit code 0: learned of exactly this death.
int survive(rf_control *c, int victim, Shared *shared, int me)
{
    rf_event event;
    if (!wait_event(c, RF_EVENT_DEAD, &event, 20))
        return 3;
    if (event.rank != victim) {
        fprintf(stderr, "rank %d learned of rank %d: %s\n", me, event.rank, event.text);
        return 4;
    }
    int mine = 0, all[3];
    if (c->ops->all_gather(c, &mine, sizeof mine, all, 5) != RF_EPEER ||
        rf_last_error()->rank != victim)
        return 5;
    __atomic_store_n(&shared->joined[me], 2, __ATOMIC_SEQ_CST);
    // Not before all ranks have learned of it, as rank 0 relays.
    while (__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
    c->ops->leave(c, 0);
    return 0;
}

void kill_one(int victim, int signal, double suspicion, double within)
{
    std::string url = tcp_url(free_port());
    Shared *shared = make_shared();
    Processes ranks;
    ranks.start(3, [&](int me) {
        Member m = join(url, me, 3);
        if (m.status < 0) {
            fprintf(stderr, "rank %d: %s\n", me, m.message.c_str());
            return 2;
        }
        if (suspicion > 0)
            rf_control_set_suspicion(m.c, suspicion);
        __atomic_store_n(&shared->joined[me], 1, __ATOMIC_SEQ_CST);
        if (me == victim)
            for (;;)
                pause();
        return survive(m.c, victim, shared, me);
    });
    for (int r = 0; r < 3; r++)
        while (__atomic_load_n(&shared->joined[r], __ATOMIC_SEQ_CST) == 0)
            usleep(1000);
    const uint64_t died = rf_now_ns();
    FairClock clock;
    kill(ranks.pids[(size_t)victim], signal);
    for (int r = 0; r < 3; r++)
        while (r != victim && __atomic_load_n(&shared->joined[r], __ATOMIC_SEQ_CST) < 2 &&
               rf_now_ns() - died < 25000000000u)
            usleep(1000);
    EXPECT_LT(clock.seconds(), within);
    __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < 3; r++) {
        if (r == victim)
            continue;
        EXPECT_EQ(ranks.wait(r), 0) << "rank " << r;
    }
    kill(ranks.pids[(size_t)victim], SIGKILL);
    ranks.wait(victim);
    munmap(shared, sizeof *shared);
}

} // namespace

TEST(Control, AKilledRankIsReportedToEverySurvivorWithinTwoSeconds)
{
    for (int victim = 0; victim < 3; victim++)
        kill_one(victim, SIGKILL, 0, 2.0);
}

TEST(Control, ASilentRankIsReportedAfterTheSuspicionTime)
{
    // Half a second instead of ten; a stopped process still has all its sockets.
    kill_one(1, SIGSTOP, 0.5, 5.0);
    kill_one(0, SIGSTOP, 0.5, 5.0);
}

TEST(Control, NonsenseOnAnAuthenticatedLinkCountsAsThatRanksDeath)
{
    Job job(3);
    auto *c = (rf_socket_control *)job[1];
    pthread_mutex_lock(&c->lock);
    (void)!send(c->peers[0].link.fd, "nonsense nonsense", 17, 0);
    pthread_mutex_unlock(&c->lock);
    rf_event event;
    ASSERT_TRUE(wait_event(job[0], RF_EVENT_DEAD, &event));
    EXPECT_EQ(event.rank, 1);
    EXPECT_NE(strstr(event.text, "not a ringforge control frame"), nullptr) << event.text;
    ASSERT_TRUE(wait_event(job[2], RF_EVENT_DEAD, &event));
    EXPECT_EQ(event.rank, 1);
    job.leave_all();
}
