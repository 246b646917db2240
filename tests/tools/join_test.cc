/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --accept` and `--join`: processes join a running job at one of its saves;
 * whatever they do, the job ends with the same bits as an uninterrupted one.
 */
#include "elastic_job.h"
#include "support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

using namespace elastic;

namespace
{

int socket_at(int port, bool listens)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ((listens ? bind : connect)(fd, (sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

ProgramOptions with_key(const char *key = "key of the join test")
{
    ProgramOptions options;
    options.environment = {std::string("RF_JOB_KEY=") + key};
    return options;
}

// A process that joins; its output is in `out`.
struct Newcomer {
    Background program;
    std::string out;
    void read_until(const std::string &text)
    {
        char some[1024];
        while (out.find(text) == std::string::npos) {
            const ssize_t n = read(program.out, some, sizeof(some));
            ASSERT_GT(n, 0) << "ended before it said \"" << text << "\": " << out;
            out.append(some, (size_t)n);
        }
    }
    ProgramResult finish()
    {
        ProgramResult r = finish_command(program, 60);
        r.out = out + r.out;
        return r;
    }
};

class Job
{
  public:
    Job(int ranks, int save_every, const std::vector<std::string> &more = {})
        : port(free_port()), log(folder.path + "/log")
    {
        data = folder.file("t.txt", some_text());
        same = with({"--save", folder.path + "/ckpt", "--save-every", std::to_string(save_every)},
                    more);
        program = start_command(with(with(with({program_path()}, tiny(data)), same),
                                     {"--elastic", "--accept", std::to_string(port), "--log",
                                      folder.path + "/log", "--ranks", std::to_string(ranks)}),
                                with_key());
    }
    // More options follow those of the job.
    Newcomer join(const std::vector<std::string> &more = {},
                  const ProgramOptions &options = with_key())
    {
        return {start_command(with(with(with({program_path()}, tiny(data)), same),
                                   with({"--join", "127.0.0.1:" + std::to_string(port)}, more)),
                              options),
                ""};
    }
    // Continues reading until the log has `count` more steps. Up to twenty further steps may have
    // been made: as many lines are read at once, or in the pipe.
    void read_steps(int count)
    {
        const size_t at = log.text.rfind("\"step\":");
        const int last = at == std::string::npos ? 0 : atoi(log.text.c_str() + at + 7);
        read_until("\"step\":" + std::to_string(last + count) + ",");
    }
    // Continues reading until the log contains this once more.
    void read_until(const std::string &text)
    {
        log.read_until([&](const std::string &all) {
            return all.find(text, from) != std::string::npos || has_ended(program.pid);
        });
        const size_t at = log.text.find(text, from);
        ASSERT_NE(at, std::string::npos) << text << " is not in the log: " << log.text;
        from = at + 1;
    }
    ProgramResult finish()
    {
        std::atomic<bool> ended{false};
        std::thread reader(
            [&] { log.read_until([&](const std::string &) { return ended.load(); }); });
        const ProgramResult r = finish_command(program, 100);
        ended = true;
        reader.join();
        return r;
    }

    TempFolder folder;
    int port;
    std::string data;
    std::vector<std::string> same;
    Log log;
    Background program;

  private:
    size_t from = 0;
};

void expect_bits(Job &job, const ProgramResult &r, const std::vector<std::string> &more = {})
{
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(sha_of(r.out).size(), 64u) << r.out;
    EXPECT_EQ(sha_of(r.out), uninterrupted(job.folder, more)) << r.out << r.err;
}

void expect_has(const std::string &text, const std::string &part)
{
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in:\n" << text;
}

} // namespace

TEST(Join, ANewcomerIsTakenInAtASaveAndTheBitsAreThoseOfARunThatWasNotInterrupted)
{
    Job job(2, 4, {"--zero", "3"}); /* so that newcomers need data from different ranks */
    job.read_until("\"step\":3,");
    const int stranger = socket_at(job.port, false);
    EXPECT_GT(send(stranger, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
    Newcomer newcomer = job.join();
    newcomer.read_until("it takes in newcomers when it saves, every 4 steps\n");
    job.read_until("\"elastic\":true,\"from_step\":");
    job.read_until("\"ranks\":3,\"joined\":1,\"mesh\":\"dp=3,tp=1,pp=1\",\"source\":\"memory\"");
    const ProgramResult r = job.finish(), n = newcomer.finish();
    close(stranger);
    expect_bits(job, r);
    expect_has(r.out, " on 3 ranks (dp=3,tp=1,pp=1), 1 of them new, from memory\n");
    expect_has(r.out, "measured as planned, to the byte");
    EXPECT_EQ(n.status, 0) << n.err;
    EXPECT_EQ(n.err, "");
}

TEST(Join, APlaceThatADeathHasFreedIsFilledAgainAndThatRankMayDieToo)
{
    const std::vector<std::string> longer = {"--steps", "100"};
    Job job(2, 60, longer);
    job.read_until("\"step\":3,");
    Newcomer newcomer = job.join();
    newcomer.read_until("waiting to join");
    kill(process_of(job.program.pid, 0), SIGKILL); // whose join listener it waits at
    job.read_until("\"elastic\":true");
    newcomer.out = "";
    newcomer.read_until("waiting to join"); // at the listener of the next job
    job.read_until("\"ranks\":2,\"joined\":1,");
    job.read_until("\"step\":");
    kill(newcomer.program.pid, SIGKILL);
    EXPECT_EQ(newcomer.finish().status, 137);
    job.read_until("\"elastic\":true");
    const ProgramResult r = job.finish();
    expect_bits(job, r, longer);
    expect_has(r.out, " on 2 ranks (dp=2,tp=1,pp=1), 1 of them new, from memory\n");
}

TEST(Join, OnAMeshWithStagesNewcomersWaitUntilAsManyAreThereAsTheDataAxisGrowsBy)
{
    const std::vector<std::string> longer = {"--steps", "100"};
    Job job(2, 2, with(longer, {"--mesh", "pp=2"}));
    job.read_until("\"step\":3,");
    Newcomer one = job.join();
    one.read_until("waiting to join");
    job.read_steps(24);
    one.read_until("its mesh (dp=1,pp=2) grows by 2 ranks at a time, and 1 waits: waiting for "
                   "more\n");
    Newcomer other = job.join();
    other.read_until("waiting to join");
    job.read_until("\"ranks\":4,\"joined\":2,\"mesh\":\"dp=2,tp=1,pp=2\"");
    const ProgramResult r = job.finish(), a = one.finish(), b = other.finish();
    expect_bits(job, r, longer);
    EXPECT_EQ(a.status, 0) << a.err;
    EXPECT_EQ(b.status, 0) << b.err;
}

TEST(Join, ANewcomerThatDiesOrStandsStillWhileItWaitsChangesNothing)
{
    Job job(2, 10);
    job.read_until("\"step\":1,");
    Newcomer dies = job.join(), stalls = job.join();
    dies.read_until("waiting to join");
    stalls.read_until("waiting to join");
    kill(dies.program.pid, SIGKILL);
    kill(stalls.program.pid, SIGSTOP);
    job.read_until("\"step\":32,");
    kill(stalls.program.pid, SIGKILL);
    const ProgramResult r = job.finish();
    dies.finish();
    stalls.finish();
    expect_bits(job, r);
    EXPECT_EQ(r.err.find("continues without newcomers"), std::string::npos)
        << r.err; // none is called
    EXPECT_EQ(job.log.text.find("elastic"), std::string::npos) << job.log.text;
}

TEST(Join, WhoIsNotOfTheJobIsTurnedAwayInOneSentenceAndWhoFindsNoWorkWaits)
{
    Job job(2, 4, {"--micro-batches", "2"});
    job.read_until("\"step\":3,");
    const std::string other_text = job.folder.file("other.txt", some_text() + "One more line.\n");
    const struct {
        std::vector<std::string> more;
        ProgramOptions options;
        const char *says;
    } cases[] = {
        {{"--seq", "32"},
         with_key(),
         "the job has --seq 16, the newcomer 32; start it with the job's value\n"},
        {{"--data", other_text}, with_key(), "; start it with the job's value\n"},
        {{}, with_key("another key"), "the job key is wrong; set RF_JOB_KEY"},
        {{}, {}, "--accept and --join need RF_JOB_KEY"},
    };
    std::vector<Newcomer> all;
    for (const auto &c : cases)
        all.push_back(job.join(c.more, c.options));
    for (size_t i = 0; i < all.size(); i++) {
        const ProgramResult r = all[i].finish();
        EXPECT_NE(r.status, 0);
        EXPECT_EQ(r.out, "");
        expect_has(r.err, cases[i].says);
        EXPECT_EQ(r.err.find('\n'), r.err.size() - 1) << r.err;
    }
    Newcomer waits = job.join();
    waits.read_until("waiting to join");
    const ProgramResult r = job.finish(), n = waits.finish();
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(job.log.text.find("elastic"), std::string::npos) << job.log.text;
    expect_has(n.out, "its 2 ranks share 2 micro-batches (--micro-batches), which leaves no work "
                      "for more: waiting for a place to become free\n");
    expect_has(n.err, "the job has ended\n");
    EXPECT_EQ(n.status, 1);
}

/* Workers take newcomers in behind an exchange, and a lost one's place is filled again. */
TEST(Join, WorkersTakeNewcomersInBehindAnExchange)
{
    Job job(2, 20, {"--sync", "gossip:2,delay=1", "--steps", "140"});
    job.read_until("\"step\":3,");
    Newcomer one = job.join();
    one.read_until("waiting to join");
    job.read_until("\"workers\":3,\"lost\":0,\"joined\":1}");
    kill(process_of(job.program.pid, 0), SIGKILL); // whose join listener the next one needs
    job.read_until("\"workers\":2,\"lost\":1,\"joined\":0}");
    Newcomer other = job.join();
    other.read_until("waiting to join");
    job.read_until("\"workers\":3,\"lost\":0,\"joined\":1}");
    kill(one.program.pid, SIGKILL);
    job.read_until("\"workers\":2,\"lost\":1,\"joined\":0}");
    const ProgramResult r = job.finish(), b = other.finish();
    EXPECT_EQ(one.finish().status, 137);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(b.status, 0) << b.err;
    EXPECT_EQ(b.err, "");
    expect_has(job.log.text, "\"step\":140,");
    /* All workers that are there have saved together. */
    const ProgramResult rest =
        run_program(with(with(tiny(job.data), {"--sync", "gossip:2,delay=1", "--ranks", "2"}),
                         {"--steps", "142", "--resume", job.folder.path + "/ckpt"}));
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_EQ(rest.out.find("each continues with the mean"), std::string::npos) << rest.out;
}

/* The next newcomer gets the mean of all, also of those that were newcomers themselves. With a
 * learning rate of 0 that is what it was at the start. */
TEST(Join, ANewcomerIsOneOfTheOthersForTheNextOne)
{
    const std::vector<std::string> still = {"--sync", "diloco:2",       "--lr",
                                            "0",      "--weight-decay", "0"};
    Job job(2, 1000, with(still, {"--steps", "91"})); // ends between exchanges: with a mean
    job.read_until("\"step\":3,");
    Newcomer one = job.join();
    one.read_until("waiting to join"); // the job stands still meanwhile
    job.read_until("\"workers\":3,\"lost\":0,\"joined\":1}");
    Newcomer other = job.join();
    other.read_until("waiting to join");
    job.read_until("\"workers\":4,\"lost\":0,\"joined\":1}");
    const ProgramResult r = job.finish(), a = one.finish(), b = other.finish();
    for (const ProgramResult *result : {&r, &a, &b})
        EXPECT_EQ(result->status, 0) << result->err;
    const ProgramResult start = run_program(with(
        tiny(job.data), with(still, {"--steps", "2", "--ranks", "4", "--provider", "loopback"})));
    EXPECT_EQ(start.status, 0) << start.err;
    EXPECT_EQ(sha_of(r.out).size(), 64u);
    EXPECT_EQ(sha_of(r.out), sha_of(start.out));
}

/* Groups of ranks join as a whole, with the state of each of them. */
TEST(Join, AWorkerOfTwoRanksJoinsAsAWhole)
{
    Job job(4, 1000, {"--sync", "diloco:3", "--steps", "90", "--mesh", "tp=2"});
    job.read_until("\"step\":3,");
    Newcomer one = job.join();
    one.read_until("waiting to join");
    job.read_steps(24);
    one.read_until("its workers have 2 ranks each, and 1 waits: waiting for more\n");
    Newcomer other = job.join();
    other.read_until("waiting to join");
    job.read_until("\"workers\":3,\"lost\":0,\"joined\":1}");
    const ProgramResult r = job.finish(), a = one.finish(), b = other.finish();
    for (const ProgramResult *result : {&r, &a, &b}) {
        EXPECT_EQ(result->status, 0) << result->err;
        EXPECT_EQ(result->err, "");
    }
    const std::string w = job.folder.file("w", "0.5 0.5\n0.5 0.5\n");
    const ProgramResult refused =
        finish_command(start_command(with(with({program_path()}, tiny(job.data)),
                                          {"--sync", "gossip:2,weights=" + w, "--ranks", "2",
                                           "--elastic", "--accept", std::to_string(job.port)}),
                                     with_key()),
                       60);
    EXPECT_EQ(refused.status, 2);
    expect_has(refused.err, "none for newcomers: leave out --accept, or use graph=NAME");
}
