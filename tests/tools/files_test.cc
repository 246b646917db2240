/* SPDX-License-Identifier: MIT
 *
 * Output files of the program: a file that cannot be written is reported before any work, the check
 * destroys nothing, and a full disk is never a success.
 */
#include "program.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

/* Would run for hours. */
static Words long_training(const TempFolder &folder)
{
    return {"train",    "--data",  folder.file("t.txt", some_text()),
            "--layers", "1",       "--channels",
            "32",       "--heads", "2",
            "--seq",    "16",      "--batch",
            "4",        "--steps", "1000000"};
}

static Words short_training(const TempFolder &folder)
{
    return long_training(folder) + Words{"--steps", "1"};
}

static const Words small_bench = {"bench",    "all_reduce", "--ranks", "2",  "--provider",
                                  "loopback", "-e",         "1K",      "-n", "1"};

static void expect_refused(const Words &words, const std::string &sentence,
                           const ProgramOptions &more = {})
{
    ProgramOptions options = more;
    options.timeout_s = 30;
    ProgramResult r = run_program(words, options);
    std::string shown;
    for (const std::string &word : words)
        shown += word + " ";
    EXPECT_EQ(r.status, 1) << shown << "\n" << r.err;
    EXPECT_NE(r.err.find(sentence), std::string::npos) << shown << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << shown << "\n" << r.err;
    EXPECT_EQ(r.out, "") << shown;
}

/* The files in a folder except for the training text. */
static std::vector<std::string> files_in(const std::string &path)
{
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(path))
        if (entry.path().filename() != "t.txt")
            names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

TEST(OutputFiles, WhatCannotBeWrittenIsSaidBeforeAnyWork)
{
    TempFolder folder;
    const std::string dir = folder.path + "/dir.svg", none = folder.path + "/no/x.svg";
    const std::string file = folder.file("file", "old"), dangling = folder.path + "/link.svg";
    fs::create_directory(dir);
    fs::create_symlink("/nonexistent/x", dangling);
    const Words train = long_training(folder);
    const std::vector<std::pair<Words, std::string>> commands = {
        {train, "log"},
        {train, "trace"},
        {train, "plot"},
        {{"plan"}, "json"},
        {{"info"}, "json"},
        {{"tune", "--iters", "100000"}, "json"},
        {{"flight", folder.path}, "json"},
        {{"info", "--algorithms", "--measure", "--ranks", "2"}, "json"},
        {{"bench", "gelu", "-n", "100000"}, "json"},
        {{"bench", "all_reduce", "--ranks", "2", "-n", "100000"}, "plot"},
    };
    for (const auto &[command, option] : commands)
        expect_refused(command + Words{"--" + option, dir},
                       "cannot write --" + option + " " + dir + ": it is a folder; name a file");
    expect_refused(train + Words{"--plot", none}, none + ": No such file or directory");
    expect_refused(train + Words{"--log", dangling}, dangling + ": it is a link to a file");
    expect_refused(train + Words{"--save", file}, "it is a file; name a folder");
    expect_refused(train + Words{"--save", folder.path + "/no/x"}, "cannot make the folder --save");
    expect_refused(train + Words{"--save", "/proc"}, "cannot write --save /proc");
    EXPECT_EQ(read_text(file), "old");
    EXPECT_EQ(files_in(folder.path), (Words{"dir.svg", "file", "link.svg"}));
}

TEST(OutputFiles, AReadOnlyFileOrFolderIsRefused)
{
    TempFolder folder;
    const std::string file = folder.file("x.json", "old"), closed = folder.path + "/closed";
    fs::create_directory(closed);
    chmod(file.c_str(), 0444);
    chmod(closed.c_str(), 0555);
    if (access(file.c_str(), W_OK) == 0)
        GTEST_SKIP() << "this user may write everything";
    expect_refused({"plan", "--json", file}, "x.json: Permission denied");
    expect_refused({"plan", "--json", closed + "/x.json"}, "x.json: Permission denied");
    expect_refused(long_training(folder) + Words{"--save", closed}, "closed: Permission denied");
    EXPECT_EQ(read_text(file), "old");
}

TEST(OutputFiles, RanksEndTogetherWhenRankZeroCannotWrite)
{
    TempFolder folder;
    const Words train = long_training(folder) + Words{"--log", folder.path};
    expect_refused(train + Words{"--ranks", "2"}, "it is a folder");
    expect_refused(train + Words{"--ranks", "2", "--provider", "loopback"}, "it is a folder");
    ProgramOptions options;
    options.timeout_s = 30;
    ProgramResult r =
        run_program(Words{"run", "--ranks", "2", "--", program_path()} + train, options);
    EXPECT_EQ(r.status, 1);
    const size_t first = r.err.find("[0] ringforge train: cannot write --log");
    EXPECT_NE(first, std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("[1] "), std::string::npos) << r.err;
}

TEST(OutputFiles, ARunThatFailsLaterLeavesWhatWasThereAsItWas)
{
    TempFolder folder;
    const Words names = {"j.json", "l.log", "p.svg", "t.json"};
    auto path = [&](size_t i) { return folder.path + "/" + names[i]; };
    const Words train =
        long_training(folder) + Words{"--device", "99",      "--log", path(1),  "--plot",
                                      path(2),    "--trace", path(3), "--save", folder.path};
    for (const char *before : {"", "old"}) {
        for (size_t i = 0; *before && i < names.size(); i++)
            folder.file(names[i], before);
        expect_refused(train, "99");
        expect_refused({"bench", "gelu", "--device", "99", "--json", path(0)}, "99");
        EXPECT_EQ(files_in(folder.path), *before ? names : Words{});
        for (size_t i = 0; i < names.size(); i++)
            EXPECT_EQ(read_text(path(i)), before) << names[i];
    }
}

TEST(OutputFiles, AFileIsReplacedWithItsModeAndALinkIsFollowed)
{
    TempFolder folder;
    const std::string file = folder.file("x.json", "old"), link = folder.path + "/link.json";
    chmod(file.c_str(), 0600);
    fs::create_symlink("x.json", link);
    struct stat about;
    for (const std::string &name : {file, link}) {
        folder.file("x.json", "old, and longer than what follows" + std::string(1 << 16, '.'));
        ASSERT_EQ(run_program({"plan", "--json", name}).status, 0);
        ASSERT_EQ(lstat(file.c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 0777, 0600u);
        EXPECT_EQ(read_text(file).back(), '\n');
        EXPECT_EQ(read_text(file).find("old"), std::string::npos);
        EXPECT_TRUE(fs::is_symlink(link));
    }
    EXPECT_EQ(files_in(folder.path), (Words{"link.json", "x.json"}));
}

TEST(OutputFiles, APipeNeedsAReaderAndKeepsIt)
{
    TempFolder folder;
    const std::string pipe = folder.path + "/pipe", copy = folder.path + "/copy";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    expect_refused(long_training(folder) + Words{"--trace", pipe}, "a pipe that no process reads");
    expect_refused({"plan", "--json", pipe}, "a pipe that no process reads");
    Background reader = start_command({"sh", "-c", "cat <" + pipe + " >" + copy});
    ProgramResult r;
    do /* the reader may not have opened it yet */
        r = run_program({"plan", "--json", pipe});
    while (r.status == 1 && r.err.find("no process reads") != std::string::npos);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(finish_command(reader, 30).status, 0);
    EXPECT_NE(read_text(copy).find("per_rank"), std::string::npos);
}

TEST(OutputFiles, AFullDeviceIsAnErrorForEveryFile)
{
    TempFolder folder;
    const std::string plot = folder.path + "/x.svg";
    fs::create_symlink("/dev/full", plot);
    const std::vector<Words> commands = {
        {"plan", "--json", "/dev/full"},
        small_bench + Words{"--plot", plot},
        short_training(folder) + Words{"--trace", "/dev/full"},
    };
    for (const Words &words : commands) {
        ProgramResult r = run_program(words);
        EXPECT_EQ(r.status, 1) << words[0] << " " << words.end()[-2];
        EXPECT_NE(r.err.find("No space left"), std::string::npos) << words.end()[-2] << r.err;
    }
    EXPECT_TRUE(fs::is_symlink(plot));
}

TEST(OutputFiles, AFullDiskKeepsTheOldFileAndLeavesNoRemains)
{
    TempFolder folder;
    const std::string plot = folder.file("x.svg", "old"), json = folder.file("x.json", "old");
    ProgramOptions full;
    full.file_bytes_limit = 200;
    for (const Words &words :
         {small_bench + Words{"--plot", plot}, Words{"plan", "--json", json}}) {
        ProgramResult r = run_program(words, full);
        EXPECT_EQ(r.status, 1) << words[0];
        EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    }
    EXPECT_EQ(read_text(plot), "old");
    EXPECT_EQ(read_text(json), "old");
    EXPECT_EQ(files_in(folder.path), (Words{"x.json", "x.svg"}));
}

TEST(OutputFiles, AFullFileSystemIsAnErrorOfThePlot)
{
    TempFolder folder;
    const std::string disk = folder.path + "/disk", plot = disk + "/x.svg";
    fs::create_directory(disk);
    /* The mount ends with the process. */
    const std::string script = "mount -t tmpfs -o size=4k tmpfs " + disk + " || exit 77; " +
                               "head -c 4096 /dev/zero >" + disk + "/zeros; \"$@\"";
    ProgramResult r = run_command(Words{"unshare", "-m", "sh", "-c", script, "sh", program_path()} +
                                  small_bench + Words{"--plot", plot});
    if (r.status != 0 && r.err.find("cannot write") == std::string::npos)
        GTEST_SKIP() << "no file system can be mounted here: " << r.err;
    EXPECT_EQ(r.status, 1) << r.out;
    EXPECT_NE(r.err.find("x.svg: No space left"), std::string::npos) << r.err;
}
