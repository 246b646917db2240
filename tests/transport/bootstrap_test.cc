// SPDX-License-Identifier: MIT
//
// Joining a job: every URL, every kind of error in one, and connections of other programs.
#include <sys/resource.h>

#include "job_helpers.h"
#include "support/fair_clock.h"

#include <fcntl.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <random>

extern "C" {
#include "transport/bootstrap/handshake.h"
#include "transport/control/control.h"
#include "transport/control/link.h"
#include "transport/control/socket.h"
}

using namespace job;

namespace
{

void join_all(const std::string &url, int size, const char *key = nullptr)
{
    on_threads(size, [&](int rank) {
        Member m = join(url, rank, size, key, 60);
        EXPECT_EQ(m.rank, rank);
        EXPECT_EQ(m.size, size);
        gather_and_leave(m);
    });
}

} // namespace

TEST(Bootstrap, TcpJoinsOneToFiveRanks)
{
    for (int size = 1; size <= 5; size++)
        join_all(tcp_url(free_port()), size);
}

TEST(Bootstrap, ATimeoutTooLongForTheClockIsNone)
{
    for (double seconds : {2e10, 1e300, HUGE_VAL}) {
        std::string url = tcp_url(free_port());
        on_threads(3, [&](int rank) {
            Member m = join(url, rank, 3, nullptr, seconds);
            ASSERT_EQ(m.status, 0) << m.message;
            EXPECT_EQ(rf_survivors_prepare(m.c, seconds), 0) << rf_last_error()->message;
            int members[3], count = 0;
            rf_control *next = nullptr;
            ASSERT_EQ(rf_survivors_join(m.c, seconds, members, &count, &next), 0)
                << rf_last_error()->message;
            EXPECT_EQ(count, 3);
            next->ops->leave(next, 5);
            gather_and_leave(m);
        });
    }
}

TEST(Bootstrap, AHundredRanksJoinAtOnce)
{
    const FairClock clock;
    join_all(tcp_url(free_port()), 100, "a secret");
    EXPECT_LT(clock.seconds(), 20);
}

TEST(Bootstrap, WithAKeyRanksMeetOnAnAddressThatOtherHostsReach)
{
    char host[64];
    rf_host_address(host, sizeof host);
    if (!strncmp(host, "127.", 4))
        GTEST_SKIP() << "this machine has loopback addresses only";
    std::string url = "tcp://" + std::string(host) + ":" + std::to_string(free_port());
    on_threads(2, [&](int rank) {
        Member m = join(url, rank, 2, "a secret");
        ASSERT_EQ(m.status, 0) << m.message;
        char own[64];
        rf_control_local_address(m.c, own, sizeof own);
        EXPECT_STREQ(own, host);
        gather_and_leave(m);
    });
}

TEST(Bootstrap, RunningOutOfMemoryIsAnErrorAndNothingLeaks)
{
    // Every allocation of a job of one, and of a rank 0 that nobody joins, fails once.
    for (uint64_t nth = 1; nth < 12; nth++) {
        rf_alloc_fail_at(nth);
        Member alone = join("self:", 0, 1);
        rf_alloc_fail_at(0);
        if (alone.status == 0)
            alone.c->ops->leave(alone.c, 1);
        else
            EXPECT_EQ(alone.status, RF_ENOMEM);
        rf_alloc_fail_at(nth);
        Member host = join(tcp_url(free_port()), 0, 2, nullptr, 0.01);
        rf_alloc_fail_at(0);
        EXPECT_TRUE(host.status == RF_ENOMEM || host.status == RF_ETIMEOUT) << host.message;
    }
}

TEST(Bootstrap, TcpJoinsWithAJobKey)
{
    join_all(tcp_url(free_port()), 3, "a secret");
}

TEST(Bootstrap, FileJoinsOneToFiveRanksAndIsRemoved)
{
    std::string path = temp_path("meet");
    for (int size = 1; size <= 5; size++)
        join_all("file:" + path, size);
    join_all("file://" + path, 2, "a secret");
    EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Bootstrap, FileLeftByAnEarlierRunIsReplaced)
{
    std::string path = temp_path("stale");
    // Another program listens at the address in the file.
    int port = free_port();
    int other = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    ASSERT_EQ(bind(other, (sockaddr *)&address, sizeof address), 0);
    std::ofstream(path) << "ringforge-rendezvous 1 127.0.0.1 " << port
                        << " 00112233445566778899aabbccddeeff\n";
    std::atomic<bool> tried{false};
    std::thread connection([&] {
        tried = true;
        Member m = join("file:" + path, 1, 2);
        gather_and_leave(m);
    });
    while (!tried)
        std::this_thread::yield();
    Member host = join("file:" + path, 0, 2);
    gather_and_leave(host);
    connection.join();
    close(other);
}

TEST(Bootstrap, EnvironmentJoinsAndRfPortOverridesMasterPort)
{
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
    for (int size = 1; size <= 5; size++)
        join_all("env:", size);
    setenv("MASTER_PORT", "1", 1); // would need privilege
    setenv("RF_PORT", std::to_string(free_port()).c_str(), 1);
    join_all("env:", 2);
    unsetenv("RF_PORT");
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
    Member m = join("env:", 0, 2);
    EXPECT_EQ(m.status, RF_EINVAL);
    EXPECT_TRUE(contains(m.message, "MASTER_ADDR is not set")) << m.message;
}

TEST(Bootstrap, TorchrunsOwnPortIsLeftToIt)
{
    int port = free_port(), store = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    ASSERT_EQ(bind(store, (sockaddr *)&address, sizeof address), 0);
    ASSERT_EQ(listen(store, 4), 0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    setenv("TORCHELASTIC_RUN_ID", std::to_string(getpid()).c_str(), 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    join_all("env:", 3);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1); // then it is meant for rank 0
    EXPECT_EQ(join("env:", 0, 2, nullptr, 0.2).status, RF_EBUSY);
    for (const char *name :
         {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"})
        unsetenv(name);
    close(store);
}

// Ranks of one host whose launcher sets only rank and size.
TEST(Bootstrap, RanksOfOneHostMeetByTheNameOfTheirJob)
{
    using Variables = std::vector<std::pair<const char *, const char *>>;
    std::string folder = testing::TempDir();
    setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
    const Variables launchers[] = {{{"OMPI_COMM_WORLD_RANK", "0"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                    {"PMIX_NAMESPACE", "12345"}},
                                   {{"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "3"}},
                                   {{"SLURM_PROCID", "0"},
                                    {"SLURM_STEP_NUM_NODES", "1"},
                                    {"SLURM_STEP_NODELIST", "here"},
                                    {"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_ID", "0"}}};
    for (const Variables &variables : launchers) {
        for (auto [name, value] : variables)
            setenv(name, value, 1);
        join_all("env:", 3);
        if (!getenv("SLURM_PROCID")) { // srun counts hosts, the others their ranks
            Member m = join("env:", 0, 4);
            EXPECT_LT(m.status, 0);
            // No launcher runs here whose key-value store could be asked.
            EXPECT_TRUE(contains(m.message, getenv("PMI_RANK") ? "MASTER_ADDR is not set" : "PMIx"))
                << m.message;
        }
        for (auto [name, value] : variables)
            unsetenv(name);
    }
    unsetenv("XDG_RUNTIME_DIR");
}

TEST(Bootstrap, RankAndSizeComeFromEachLauncher)
{
    const char *names[][2] = {{"RANK", "WORLD_SIZE"},
                              {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                              {"PMI_RANK", "PMI_SIZE"},
                              {"SLURM_PROCID", "SLURM_NTASKS"}};
    int rank, size;
    rf_control *c;
    for (auto &name : names) {
        setenv(name[0], "0", 1);
        setenv(name[1], "1", 1);
        ASSERT_EQ(rf_bootstrap_join("env:", nullptr, &rank, &size, &c), 0) << name[0];
        EXPECT_EQ(rank, 0);
        EXPECT_EQ(size, 1);
        c->ops->leave(c, 1);
        setenv(name[0], "7", 1);
        EXPECT_EQ(rf_bootstrap_join("env:", nullptr, &rank, &size, &c), RF_EINVAL);
        EXPECT_STREQ(rf_last_error()->message, "rank 7 is outside a world of 1 ranks");
        EXPECT_EQ(rf_last_error()->rank, 7);
        unsetenv(name[0]);
        unsetenv(name[1]);
    }
    EXPECT_EQ(rf_bootstrap_join("env:", nullptr, &rank, &size, &c), RF_EINVAL);
}

TEST(Bootstrap, SelfNeedsNothing)
{
    int rank = -1, size = -1;
    rf_control *c;
    ASSERT_EQ(rf_bootstrap_join("self:", nullptr, &rank, &size, &c), 0);
    EXPECT_EQ(rank, 0);
    EXPECT_EQ(size, 1);
    rf_transport *t;
    char why[256];
    ASSERT_EQ(rf_transport_create(c, "ofi-shm", &t, why, sizeof why), 0);
    EXPECT_STREQ(why, "there is only one rank");
    t->ops->destroy(t);
    c->ops->leave(c, 1);
}

TEST(Bootstrap, BadUrlsAreRefusedInWords)
{
    for (const char *url : {"", "http://x:1", "tcp://", "tcp://host", "tcp://:5", "tcp://h:0",
                            "tcp://h:70000", "tcp://h:12x", "file:", "tcp://[]:7"}) {
        Member m = join(url, 0, 2);
        EXPECT_EQ(m.status, RF_EINVAL) << url;
        EXPECT_FALSE(m.message.empty()) << url;
    }
}

TEST(Bootstrap, WrongKeyIsRefusedAndTheJobGoesOn)
{
    std::string url = tcp_url(free_port());
    on_threads(3, [&](int who) {
        if (who == 2) {
            const FairClock clock;
            Member stranger = join(url, 1, 2, "guess");
            EXPECT_EQ(stranger.status, RF_EAUTH);
            EXPECT_TRUE(contains(stranger.message, "RF_JOB_KEY")) << stranger.message;
            EXPECT_LT(clock.seconds(), 5);
            Member keyless = join(url, 1, 2, nullptr);
            EXPECT_EQ(keyless.status, RF_EAUTH);
            Member m = join(url, 1, 2, "right");
            gather_and_leave(m);
        } else if (who == 0) {
            Member m = join(url, 0, 2, "right");
            gather_and_leave(m);
        }
    });
}

TEST(Bootstrap, WithoutAKeyOnlyLoopbackAddressesAreTaken)
{
    for (int rank = 0; rank < 2; rank++) {
        const FairClock clock;
        Member m = join("tcp://192.0.2.77:4000", rank, 2);
        EXPECT_EQ(m.status, RF_EAUTH) << m.message;
        EXPECT_TRUE(contains(m.message, "set RF_JOB_KEY")) << m.message;
        EXPECT_LT(clock.seconds(), 5);
    }
}

TEST(Bootstrap, PortInUseIsSaid)
{
    int port = free_port();
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    ASSERT_EQ(bind(taken, (sockaddr *)&address, sizeof address), 0);
    ASSERT_EQ(listen(taken, 1), 0);
    Member m = join(tcp_url(port), 0, 2);
    EXPECT_EQ(m.status, RF_EBUSY);
    EXPECT_TRUE(contains(m.message, "port " + std::to_string(port))) << m.message;
    EXPECT_TRUE(contains(m.message, "RF_PORT")) << m.message;
    close(taken);
}

TEST(Bootstrap, MisconfiguredRanksAreToldAndTheJobGoesOn)
{
    std::string url = tcp_url(free_port());
    std::thread host([&] {
        Member m = join(url, 0, 3);
        gather_and_leave(m);
    });
    Member sized = join(url, 2, 4);
    EXPECT_EQ(sized.status, RF_EINVAL);
    EXPECT_TRUE(contains(sized.message, "rank 2 was told of 4 ranks, rank 0 of 3"))
        << sized.message;
    Member outside = join(url, 3, 3);
    EXPECT_EQ(outside.status, RF_EINVAL);
    Member second_zero = join(url, 0, 3);
    EXPECT_EQ(second_zero.status, RF_EBUSY);
    // Two processes with rank 1: the first one to arrive joins.
    std::atomic<int> refused{0};
    auto rank_1 = [&] {
        Member m = join(url, 1, 3);
        if (m.status == 0) {
            gather_and_leave(m);
            return;
        }
        refused++;
        EXPECT_EQ(m.status, RF_EBUSY) << m.message;
        EXPECT_TRUE(contains(m.message, "rank 1 has joined already")) << m.message;
    };
    std::thread one(rank_1), other(rank_1);
    while (refused == 0)
        std::this_thread::yield();
    Member last = join(url, 2, 3);
    gather_and_leave(last);
    one.join();
    other.join();
    host.join();
    EXPECT_EQ(refused, 1);
}

// In a process of its own with these limits.
int join_with_files(rlim_t now, rlim_t most, const std::function<int(const Member &)> &judge)
{
    Processes one;
    one.start(1, [&](int) {
        struct rlimit files = {now, most};
        setrlimit(RLIMIT_NOFILE, &files);
        return judge(join(tcp_url(free_port()), 0, 200, nullptr, 0.1));
    });
    return one.wait(0);
}

TEST(Bootstrap, MoreRanksThanFilesIsSaidBeforeWaiting)
{
    EXPECT_EQ(join_with_files(
                  128, 128,
                  [](const Member &m) {
                      return m.status == RF_ENET && contains(m.message, "ulimit -Hn 296") ? 0 : 1;
                  }),
              0);
}

TEST(Bootstrap, AProcessTakesTheFilesThatItMayHave)
{
    EXPECT_EQ(join_with_files(128, 512,
                              [](const Member &m) {
                                  struct rlimit files;
                                  getrlimit(RLIMIT_NOFILE, &files);
                                  return m.status == RF_ETIMEOUT && files.rlim_cur == 296 ? 0 : 1;
                              }),
              0);
}

TEST(Bootstrap, MissingRanksAreNamedToEverybody)
{
    std::string url = tcp_url(free_port());
    on_threads(4, [&](int rank) {
        if (rank == 1 || rank == 3)
            return;
        Member m = join(url, rank, 4, nullptr, 0.6);
        EXPECT_EQ(m.status, RF_ETIMEOUT) << m.message;
        EXPECT_TRUE(contains(m.message, "ranks 1, 3 did not join within 0.6 s (2 of 4 are here)"))
            << m.message;
    });
    Member alone = join(tcp_url(free_port()), 1, 2, nullptr, 0.2);
    EXPECT_EQ(alone.status, RF_ETIMEOUT);
    EXPECT_TRUE(contains(alone.message, "rank 0 cannot be reached")) << alone.message;
}

TEST(Bootstrap, RandomBytesAndIdleConnectionsChangeNothing)
{
    int port = free_port();
    std::string url = tcp_url(port);
    std::mt19937 random(7);
    auto throw_noise = [&](int count) {
        for (int i = 0; i < count; i++) {
            int fd = connect_to(port);
            if (fd < 0)
                continue;
            std::vector<uint8_t> bytes(random() % 600);
            for (auto &byte : bytes)
                byte = (uint8_t)random();
            if (i % 3 == 0 && bytes.size() > 16) // begins like a frame
                memcpy(bytes.data(), "RFC1\0\0\0\1", 8);
            (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            close(fd);
        }
    };
    Member ranks[3];
    std::thread host([&] { ranks[0] = join(url, 0, 3, "key"); });
    std::thread first([&] { ranks[1] = join(url, 1, 3, "key"); });
    int probe;
    while ((probe = connect_to(port)) < 0)
        std::this_thread::yield();
    close(probe);
    throw_noise(100);
    std::vector<int> idle;
    for (int i = 0; i < 150; i++)
        idle.push_back(connect_to(port));
    {
        const FairClock clock;
        ranks[2] = join(url, 2, 3, "key");
        EXPECT_LT(clock.seconds(), 3);
    }
    host.join();
    first.join();
    for (int fd : idle)
        close(fd);
    throw_noise(100);
    Member stranger = join(url, 1, 3, "guess");
    EXPECT_EQ(stranger.status, RF_EAUTH) << stranger.message;
    Member late = join(url, 1, 3, "key");
    EXPECT_EQ(late.status, RF_EBUSY);
    EXPECT_TRUE(contains(late.message, "the job is complete")) << late.message;
    rf_event event;
    for (auto &m : ranks) {
        ASSERT_EQ(m.status, 0) << m.message;
        EXPECT_EQ(m.c->ops->next_event(m.c, &event), 0);
    }
    on_threads(3, [&](int r) { gather_and_leave(ranks[r]); });
}

namespace
{

// Joins by hand, up to the welcome and no further.
void be_welcomed(int port, uint32_t rank, uint32_t size, rf_link *link)
{
    rf_job_key key;
    rf_handshake h{RF_FRAME_VERSION, rank, size, {}, {}};
    rf_frame frame;
    uint8_t hello[RF_HELLO_BYTES], proof[RF_PROOF_BYTES];
    uint64_t deadline = rf_now_ns() + 10000000000u;
    int fd;
    ASSERT_EQ(rf_job_key_init(&key, nullptr), 0);
    while ((fd = connect_to(port)) < 0)
        std::this_thread::yield();
    rf_link_init(link, fd, 4096);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    rf_random(h.joiner, sizeof h.joiner);
    rf_handshake_hello(&h, hello);
    ASSERT_EQ(rf_link_queue(link, RF_FRAME_HELLO, 0, 0, hello, sizeof hello), 0);
    ASSERT_EQ(rf_link_flush_by(link, deadline), 0);
    ASSERT_EQ(rf_link_next_by(link, &frame, deadline), 1);
    ASSERT_EQ(frame.kind, RF_FRAME_CHALLENGE);
    memcpy(h.listener, frame.payload, sizeof h.listener);
    rf_handshake_prove(&key, &h, 'J', proof);
    ASSERT_EQ(rf_link_queue(link, RF_FRAME_PROOF, 0, 0, proof, sizeof proof), 0);
    ASSERT_EQ(rf_link_flush_by(link, deadline), 0);
    ASSERT_EQ(rf_link_next_by(link, &frame, deadline), 1);
    ASSERT_EQ(frame.kind, RF_FRAME_WELCOME);
    EXPECT_TRUE(rf_handshake_check(&key, &h, 'H', frame.payload));
}

} // namespace

TEST(Bootstrap, AJoinerThatDiesBeforeTheStartMayBeReplaced)
{
    int port = free_port();
    std::string url = tcp_url(port);
    std::thread host([&] {
        Member m = join(url, 0, 3);
        gather_and_leave(m);
    });
    rf_link first;
    be_welcomed(port, 1, 3, &first);
    Member refused = join(url, 1, 3);
    EXPECT_EQ(refused.status, RF_EBUSY);
    rf_link_close(&first);
    std::thread third([&] {
        Member m = join(url, 2, 3);
        gather_and_leave(m);
    });
    /* The last one joins before rank 0 has served those that are connected already. */
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Member second = {};
    const FairClock clock;
    do
        second = join(url, 1, 3);
    while (second.status == RF_EBUSY && clock.seconds() < 20);
    gather_and_leave(second);
    third.join();
    host.join();
}
