// SPDX-License-Identifier: MIT
//
// A launcher's key-value store: the record of rank 0, and PMI as Hydra and Slurm speak it. The test
// plays the launcher; tests/tools/launchers_test.sh uses real ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <map>

#include "job_helpers.h"

extern "C" {
#include "transport/bootstrap/kvs.h"
}

namespace
{
using namespace job;

bool contains(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

// ---- the record ---------------------------------------------------------------------------------

char posted[RF_KVS_TEXT];
int post(bool writes, char text[RF_KVS_TEXT], uint64_t)
{
    if (writes)
        memcpy(posted, text, RF_KVS_TEXT);
    else
        memcpy(text, posted, RF_KVS_TEXT);
    return 0;
}
const rf_kvs a_kvs = {"kvs", post};

TEST(Kvs, WhatRank0WritesIsReadByTheOthers)
{
    for (const char *host : {"10.0.0.7", "fe80::1%eth0", ""})
        for (bool with_key : {true, false}) {
            rf_rendezvous_record written{}, read{};
            snprintf(written.host, sizeof written.host, "%s", host);
            written.port = *host ? 65535 : 0;
            rf_random(written.job, sizeof written.job);
            if (with_key)
                rf_rendezvous_record_make_key(&written);
            ASSERT_EQ(rf_rendezvous_record_exchange(&a_kvs, true, &written, 0), 0)
                << rf_last_error()->message;
            ASSERT_EQ(rf_rendezvous_record_exchange(&a_kvs, false, &read, 0), 0)
                << rf_last_error()->message;
            EXPECT_STREQ(read.host, *host ? host : "-");
            EXPECT_EQ(read.port, *host ? 65535 : 0);
            EXPECT_EQ(memcmp(read.job, written.job, sizeof read.job), 0);
            EXPECT_STREQ(read.key, written.key);
            EXPECT_EQ(strlen(read.key), with_key ? 64u : 0u);
        }
}

TEST(Kvs, WhatIsNoRecordIsRefused)
{
    for (const char *text : {"", "ringforge", "ringforge,1,host", "ringforge,2,h,1,00,-",
                             "ringforge,1,h,-1,00,-", "ringforge,1,h,70000,00,-",
                             "ringforge,1,h,1,xx,-", "ringforge,1,h,1,000,-", "other,1,h,1,00,-"}) {
        rf_rendezvous_record read{};
        snprintf(posted, sizeof posted, "%s", text);
        EXPECT_EQ(rf_rendezvous_record_exchange(&a_kvs, false, &read, 0), RF_ECORRUPT) << text;
        EXPECT_STREQ(rf_last_error()->message, "the launcher's kvs has no valid record of rank 0");
    }
}

// ---- PMI ----------------------------------------------------------------------------------------

// One end per rank; a rank's requests are answered as by a launcher.
struct Launcher {
    std::vector<int> fds, ends;
    std::map<std::string, std::string> table;
    std::vector<std::string> partial;
    int waiting = 0, goodbyes = 0;
    // Tests: replaces the answer; empty: the usual one.
    std::function<std::string(int rank, const std::string &line)> instead;

    explicit Launcher(int size)
    {
        for (int r = 0; r < size; r++) {
            int pair[2];
            EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            fds.push_back(pair[0]);
            ends.push_back(pair[1]);
        }
        partial.resize((size_t)size);
    }
    ~Launcher()
    {
        for (int fd : fds)
            close(fd);
    }
    void say(int rank, const std::string &text)
    {
        std::string line = text + "\n";
        EXPECT_EQ(send(fds[(size_t)rank], line.data(), line.size(), MSG_NOSIGNAL),
                  (ssize_t)line.size());
    }
    static std::string word(const std::string &line, const std::string &name)
    {
        size_t at = line.find(name + "=");
        if (at == std::string::npos)
            return "";
        at += name.size() + 1;
        return line.substr(at, line.find(' ', at) - at);
    }
    void keep(int rank, const std::string &line)
    {
        std::string own = instead ? instead(rank, line) : "", cmd = word(line, "cmd");
        if (!own.empty())
            say(rank, own);
        else if (cmd == "init")
            say(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
        else if (cmd == "get_my_kvsname")
            say(rank, "cmd=my_kvsname kvsname=kvs_7");
        else if (cmd == "put")
            table[word(line, "key")] = word(line, "value"), say(rank, "cmd=put_result rc=0");
        else if (cmd == "get" && table.count(word(line, "key")))
            say(rank, "cmd=get_result rc=0 msg=success value=" + table[word(line, "key")]);
        else if (cmd == "get")
            say(rank, "cmd=get_result rc=-1 msg=key_not_found");
        else if (cmd == "finalize")
            goodbyes++, say(rank, "cmd=finalize_ack");
        else if (cmd == "barrier_in" && ++waiting == (int)fds.size()) {
            waiting = 0;
            for (size_t r = 0; r < fds.size(); r++)
                say((int)r, "cmd=barrier_out");
        }
    }
    // Until every rank has closed its end.
    void serve()
    {
        for (int end : ends)
            close(end);
        size_t open = fds.size();
        std::vector<pollfd> polls;
        for (int fd : fds)
            polls.push_back({fd, POLLIN, 0});
        while (open > 0 && poll(polls.data(), polls.size(), 30000) > 0)
            for (size_t r = 0; r < polls.size(); r++) {
                char text[256];
                if (polls[r].fd < 0 || !polls[r].revents)
                    continue;
                ssize_t got = read(polls[r].fd, text, sizeof text);
                if (got <= 0) {
                    polls[r].fd = -1;
                    open--;
                    continue;
                }
                partial[r].append(text, (size_t)got);
                for (size_t end; (end = partial[r].find('\n')) != std::string::npos;
                     partial[r].erase(0, end + 1))
                    keep((int)r, partial[r].substr(0, end));
            }
        EXPECT_EQ(open, 0u) << "a rank hangs";
    }
};

// The work of each rank, as a process; it leaves by exit(), as programs do.
void run(Launcher &launcher, const std::function<int(int rank)> &body)
{
    int size = (int)launcher.fds.size();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            for (int r = 0; r < size; r++) {
                close(launcher.fds[(size_t)r]);
                if (r != rank)
                    close(launcher.ends[(size_t)r]);
            }
            setenv("PMI_FD", std::to_string(launcher.ends[(size_t)rank]).c_str(), 1);
            setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
            setenv("PMI_SIZE", std::to_string(size).c_str(), 1);
            setenv("MPI_LOCALNRANKS", "1", 1); /* each on a host of its own */
            int code = body(rank);
            fflush(nullptr);
            exit(code);
        }
        pids.push_back(pid);
    }
    launcher.serve();
    for (int rank = 0; rank < size; rank++) {
        int status = -1;
        waitpid(pids[(size_t)rank], &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
    }
}

// Joins and says farewell; twice, as a program may.
int join_twice(int rank, int size)
{
    for (int time = 0; time < 2; time++) {
        Member m = join("env:", -1, 0);
        if (m.status < 0 || m.rank != rank || m.size != size) {
            fprintf(stderr, "rank %d: %s\n", rank, m.message.c_str());
            return 1;
        }
        std::vector<int> all((size_t)size);
        if (m.c->ops->all_gather(m.c, &rank, sizeof rank, all.data(), 60) < 0)
            return 2;
        for (int r = 0; r < size; r++)
            if (all[(size_t)r] != r)
                return 3;
        m.c->ops->leave(m.c, 5);
    }
    return 0;
}

TEST(BoardPmi, RanksOfSeveralHostsMeetWithoutAddressOrKey)
{
    for (int size = 2; size <= 5; size++) {
        Launcher launcher(size);
        run(launcher, [&](int rank) { return join_twice(rank, size); });
        EXPECT_EQ(launcher.goodbyes, size); // otherwise Hydra assumes a crash
        EXPECT_EQ(launcher.table.size(), 2u);
        EXPECT_NE(launcher.table["ringforge-0"], launcher.table["ringforge-1"]);
    }
}

TEST(BoardPmi, AKeyOfTheUsersIsNotPosted)
{
    setenv("RF_JOB_KEY", "a key of the user's", 1);
    Launcher launcher(2);
    run(launcher, [&](int rank) { return join_twice(rank, 2); });
    unsetenv("RF_JOB_KEY");
    EXPECT_EQ(launcher.table["ringforge-0"].substr(launcher.table["ringforge-0"].size() - 2), ",-");
}

TEST(BoardPmi, ALauncherThatAnswersNonsenseIsNamed)
{
    for (const char *answer : {"cmd=what", "nothing", "cmd=response_to_init rc=-1 pmi_version=1"}) {
        Launcher launcher(1);
        launcher.instead = [&](int, const std::string &) { return std::string(answer); };
        run(launcher, [&](int) {
            char text[RF_KVS_TEXT] = "x";
            const rf_kvs *kvs = rf_kvs_pmi();
            std::string first, wanted = std::string("the launcher answers over PMI_FD: ") + answer;
            int rc = kvs->exchange(true, text, rf_now_ns() + 5000000000u);
            first = rf_last_error()->message;
            int again = kvs->exchange(true, text, rf_now_ns() + 5000000000u);
            bool refused = contains(rf_last_error()->message, "nothing more is asked");
            return rc == RF_ENET && first == wanted && again == RF_ENET && refused ? 0 : 1;
        });
    }
}

TEST(BoardPmi, ARankThatNeverComesIsATimeout)
{
    Launcher launcher(2);
    run(launcher, [&](int rank) {
        if (rank == 1)
            return 0;
        Member m = join("env:", -1, 0, nullptr, 0.5);
        bool said = contains(m.message, "not all ranks of the job came to the launcher in time");
        return m.status == RF_ETIMEOUT && said ? 0 : 1;
    });
}

TEST(BoardPmi, AFileThatIsNoConnectionIsSaid)
{
    Launcher launcher(1);
    run(launcher, [&](int) {
        char text[RF_KVS_TEXT] = "x";
        setenv("PMI_FD", std::to_string(open("/dev/null", O_RDWR)).c_str(), 1);
        int rc = rf_kvs_pmi()->exchange(true, text, rf_now_ns() + 1000000000u);
        return rc == RF_ENET && contains(rf_last_error()->message,
                                         "PMI_FD is not a connection to a launcher")
                   ? 0
                   : 1;
    });
}

TEST(BoardPmi, RanksThatCannotHaveADoorHearOfIt)
{
    Launcher launcher(2);
    run(launcher, [&](int rank) {
        if (rank == 0)
            setenv("RF_INTERFACE", "no-such-host.invalid", 1);
        Member m = join("env:", -1, 0);
        const char *wanted =
            rank == 0 ? "no-such-host.invalid" : "rank 0 could not open the job's listener";
        return m.status < 0 && contains(m.message, wanted) ? 0 : 1;
    });
}

} // namespace
