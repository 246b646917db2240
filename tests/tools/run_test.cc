/* SPDX-License-Identifier: MIT
 *
 * `ringforge run`: the environment it sets, the lines it forwards, and how a job ends.
 */
#include "program.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

static ProgramResult run_shell(int ranks, const std::string &script, double timeout_s = 60)
{
    ProgramOptions options;
    options.timeout_s = timeout_s;
    options.environment = {"LP_NUM_THREADS"};
    return run_program({"run", "--ranks", std::to_string(ranks), "--", "sh", "-c", script},
                       options);
}

TEST(Run, GivesEveryRankTheVariablesOfALauncher)
{
    ProgramResult r = run_shell(3, "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                                   "$MASTER_ADDR ${#RF_JOB_KEY} $LP_NUM_THREADS");
    EXPECT_EQ(r.status, 0) << r.err;
    for (int i = 0; i < 3; i++) {
        std::string n = std::to_string(i);
        EXPECT_NE(r.out.find("[" + n + "] " + n + "/3 " + n + "/3 127.0.0.1 64 "),
                  std::string::npos)
            << r.out;
    }
    r = run_shell(2, "echo port $MASTER_PORT");
    size_t first = r.out.find("port "), second = r.out.rfind("port ");
    EXPECT_EQ(r.out.substr(first, r.out.find('\n', first) - first),
              r.out.substr(second, r.out.find('\n', second) - second));
}

TEST(Run, PrefixesLinesOnlyWhereThereAreSeveralRanks)
{
    EXPECT_EQ(run_shell(1, "echo one; echo two >&2").out, "one\n");
    ProgramResult r = run_shell(2, "printf 'a\\nb'; echo c >&2");
    for (const char *line : {"[0] a\n", "[0] b\n", "[1] a\n", "[1] b\n"})
        EXPECT_NE(r.out.find(line), std::string::npos) << r.out;
    EXPECT_NE(r.err.find("[1] c\n"), std::string::npos) << r.err;
    ProgramResult plain = run_program({"run", "--ranks", "2", "--no-prefix", "--", "echo", "x"});
    EXPECT_EQ(plain.out, "x\nx\n");
}

TEST(Run, LosesNoLineOfARankThatWritesMuch)
{
    ProgramResult r =
        run_shell(2, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
    EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 40000);
    EXPECT_NE(r.out.find("[1] line 19999\n"), std::string::npos);
}

TEST(Run, EndsWithTheFirstFailureAndSurvivorsStillSpeak)
{
    /* Rank 2 fails at once; the others notice nothing, print after a second, and end normally. */
    ProgramResult r = run_shell(3, "if [ $RANK = 2 ]; then exit 7; fi; sleep 1; echo I saw it");
    EXPECT_EQ(r.status, 7);
    EXPECT_NE(r.out.find("[0] I saw it"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("[1] I saw it"), std::string::npos) << r.out;
    EXPECT_NE(r.err.find("rank 2 failed with exit status 7"), std::string::npos) << r.err;
}

TEST(Run, AKilledRankIsStatus128PlusSignalAndTheOthersAreAskedToEnd)
{
    /* exec: the signal has to reach the sleeping process. */
    ProgramResult r = run_shell(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 600");
    EXPECT_EQ(r.status, 137);
    EXPECT_GE(r.seconds, 4.5); /* the time to print */
    EXPECT_LT(r.fair_seconds, 12);
    EXPECT_NE(r.err.find("rank 1 was ended by signal 9"), std::string::npos) << r.err;
}

TEST(Run, ARankThatIgnoresTheRequestIsEnded)
{
    ProgramResult r = run_shell(2, "if [ $RANK = 1 ]; then exit 3; fi; trap '' TERM; "
                                   "while :; do sleep 1; done");
    EXPECT_EQ(r.status, 3);
    EXPECT_LT(r.fair_seconds, 20);
}

TEST(Run, PassesSignalsOnAndLeavesNoOrphan)
{
    TempFolder folder;
    Background b = start_command({program_path(), "run", "--ranks", "2", "--", "sh", "-c",
                                  "echo $$ >" + folder.path + "/pid.$RANK; exec sleep 600"});
    std::string pids[2];
    for (int i = 0; i < 2; i++)
        while (pids[i].find('\n') == std::string::npos)
            pids[i] = read_text(folder.path + "/pid." + std::to_string(i));
    kill(b.pid, SIGTERM);
    ProgramResult r = finish_command(b, 30);
    EXPECT_EQ(r.status, 143);
    EXPECT_LT(r.fair_seconds, 4); /* the ranks end at once: nobody waits for deadlines */
    for (const std::string &pid : pids)
        EXPECT_NE(kill(std::stoi(pid), 0), 0) << "rank with process " << pid << " lives on";
}

/* An earlier lost rank is not a failure of those that continued. */
TEST(Run, ElasticRanksThatAreToldToEndEndTheLauncherByThatSignal)
{
    TempFolder folder;
    Background b =
        start_command({program_path(), "run", "--ranks", "2", "--elastic", "--", "sh", "-c",
                       "[ $RANK = 0 ] || kill -KILL $$; "
                       "until grep -qs Killed " +
                           folder.path +
                           "/said; do :; done; "
                           "echo $$ >" +
                           folder.path + "/pid; exec sleep 600"});
    std::string said, pid;
    for (char byte; said.find("was ended by signal 9") == std::string::npos;) {
        ASSERT_EQ(read(b.err, &byte, 1), 1) << said;
        said += byte;
    }
    folder.file("said", "Killed");
    while (pid.find('\n') == std::string::npos)
        pid = read_text(folder.path + "/pid");
    kill(b.pid, SIGTERM);
    EXPECT_EQ(finish_command(b, 30).status, 128 + SIGTERM);
}

TEST(Run, RanksDieWithALauncherThatIsKilled)
{
    TempFolder folder;
    Background b = start_command({program_path(), "run", "--ranks", "1", "--", "sh", "-c",
                                  "echo $$ >" + folder.path + "/pid; exec sleep 600"});
    std::string pid;
    while (pid.find('\n') == std::string::npos)
        pid = read_text(folder.path + "/pid");
    kill(b.pid, SIGKILL);
    /* With one rank the output is not piped: it ends when the rank has ended. */
    ProgramResult r = finish_command(b, 30);
    EXPECT_EQ(r.status, 137);
    EXPECT_LT(r.fair_seconds, 20);
}

/* Both survive exec: processes start with the settings of their parent. */
static std::vector<std::string> with_signals_of_a_parent(const std::vector<std::string> &words)
{
    std::vector<std::string> all = {"env", "--ignore-signal=CHLD", "--block-signal=TERM,INT,CHLD",
                                    program_path()};
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

TEST(Run, EndsAsItsRanksDoWhateverSignalsItsParentIgnoresOrBlocks)
{
    ProgramOptions options;
    options.timeout_s = 20;
    ProgramResult r = run_command(
        with_signals_of_a_parent({"run", "--ranks", "2", "--", "sh", "-c", "exit $RANK"}), options);
    EXPECT_EQ(r.status, 1) << r.err;
    r = run_command(with_signals_of_a_parent({"run", "--ranks", "2", "--", "grep", "-E",
                                              "^Sig(Blk|Ign)", "/proc/self/status"}),
                    options);
    EXPECT_EQ(r.status, 0) << r.err;
    for (const char *line : {"[1] SigBlk:\t0000000000000000\n", "[1] SigIgn:\t0000000000000000\n"})
        EXPECT_NE(r.out.find(line), std::string::npos) << r.out;
}

TEST(Run, APlotIsDrawnAndARankIsWaitedForThoughTheParentIgnoresTheirEnds)
{
    TempFolder folder;
    ProgramOptions options;
    options.timeout_s = 60;
    const std::string plot = folder.path + "/p.svg";
    ProgramResult r = run_command(
        with_signals_of_a_parent({"bench", "all_reduce", "-b", "4", "-e", "8", "-n", "2", "-w", "0",
                                  "--ranks", "2", "--provider", "shm", "--plot", plot}),
        options);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(read_text(plot).find("<svg"), std::string::npos);
}

TEST(Run, ACommandThatDoesNotExistIsStatus127)
{
    ProgramResult r = run_program({"run", "--ranks", "2", "--", "no-such-command-here"});
    EXPECT_EQ(r.status, 127);
    EXPECT_NE(r.err.find("cannot start no-such-command-here"), std::string::npos) << r.err;
}

TEST(Flight, NamesWhoNeverCame)
{
    TempFolder folder;
    ProgramOptions options;
    options.timeout_s = 60;
    /* Rank 1 is killed once all have recordings, long before the last operation. */
    ProgramResult run =
        run_shell(3, "export RF_FLIGHT=" + folder.path +
                         "/f; bench='" RF_PROGRAM
                         " bench all_reduce -b 4M -e 4M -n 100000 -w 0 --provider tcp'; "
                         "[ $RANK = 1 ] || exec timeout -s KILL 40 $bench; $bench & job=$!; "
                         "until [ $(ls $RF_FLIGHT 2>/dev/null | wc -l) = 3 ]; do sleep 0.1; done; "
                         "sleep 1; kill -KILL $job; wait $job");
    EXPECT_NE(run.status, 0);
    ProgramResult r = run_program({"flight", folder.path + "/f"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("3 ranks over tcp, 3 recordings"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("=> rank "), std::string::npos) << r.out;
    r = run_program({"flight", folder.path + "/f", "--json"});
    EXPECT_NE(r.out.find("\"findings\""), std::string::npos) << r.out;
    EXPECT_EQ(run_program({"flight"}).status, 2);
    EXPECT_EQ(run_program({"flight", folder.path + "/none"}).status, 1);
}
