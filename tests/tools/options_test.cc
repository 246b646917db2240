/* SPDX-License-Identifier: MIT
 *
 * Rules for every option of every command, by the tables that the program prints: numbers out of
 * range, options without an effect, and outputs that would be inputs.
 */
#include <fstream>
#include <map>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include "option_table.h"

namespace
{

/* A command with the arguments it needs before its options are checked. */
Words begin(const std::string &command)
{
    if (command == "bench")
        return {"bench", "all_reduce"};
    if (command == "schedule")
        return {"schedule", "all_reduce"};
    return {command};
}

void expect_usage(const Words &words, const std::string &sentence)
{
    const ProgramResult r = run_program(words);
    EXPECT_EQ(r.status, 2) << joined(words) << r.out << r.err;
    EXPECT_NE(r.err.find(sentence), std::string::npos) << joined(words) << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << joined(words) << "\n" << r.err;
}

bool is_number(const OptionRow &row)
{
    return row.kind == "int" || row.kind == "count" || row.kind == "real";
}

std::string value_for(const OptionRow &row)
{
    return is_number(row) ? std::to_string((long long)std::max(row.least, 1.0)) : "x";
}

/* A word for an option; a flag has no value. */
Words given(const OptionRow &row, const std::string &value)
{
    return row.kind == "flag" ? Words{"--" + row.name} : Words{"--" + row.name, value};
}

bool writes(const OptionRow &row)
{
    return row.path == "writes" || row.path == "writes into" || row.path == "replaces";
}

/* The options without which this one has no effect, and without which those have none. */
Words needed(const std::vector<OptionRow> &rows, const OptionRow &row, std::set<std::string> *said)
{
    const std::string first = row.needs.substr(0, row.needs.find('|'));
    for (const OptionRow &other : rows)
        if (other.name == first && said->insert(first).second)
            return given(other, first == "lora" ? "r=2" : value_for(other)) +
                   needed(rows, other, said);
    return {};
}

} // namespace

TEST(Options, ALetterMeansOneThingAndEveryOptionHasAGroupAndANounPhrase)
{
    const std::set<std::string> words = {"of",    "in",   "with", "how",   "which",
                                         "where", "and",  "draw", "write", "print",
                                         "do",    "take", "go",   "keep",  "say"};
    std::map<std::string, std::string> meaning;
    std::string commands = run_program({"--help"}).out;
    for (const std::string &command : all_commands()) {
        EXPECT_NE(commands.find("\n  " + command + " "), std::string::npos) << command;
        const std::string help = run_program({command, "--help"}).out;
        for (const OptionRow &row : options_of(command)) {
            if (!row.letter.empty()) {
                EXPECT_EQ(meaning.emplace(row.letter, row.name).first->second, row.name)
                    << command << " -" << row.letter;
            }
            EXPECT_NE(help.find("\n" + row.group + ":\n"), std::string::npos)
                << command << " --" << row.name << " in \"" << row.group << "\"";
            EXPECT_NE(help.find(" --" + row.name), std::string::npos) << command << " " << row.name;
            EXPECT_EQ(words.count(row.help.substr(0, row.help.find(' '))), 0u)
                << command << " --" << row.name << ": " << row.help;
        }
    }
    EXPECT_EQ(std::count(commands.begin(), commands.end(), '\n'), (long)all_commands().size() + 7);
}

TEST(Options, EveryOptionOfEveryTableIsWholeAndSaysWhyRanksMayDiffer)
{
    for (const std::string &command : all_commands())
        for (const OptionRow &row : options_of(command)) {
            EXPECT_EQ(row.ranks == "alike", row.why.empty()) << command << " --" << row.name;
            if (row.ranks == "content") {
                EXPECT_TRUE(row.path == "reads" || row.path == "reads all") << row.name;
            }
        }
}

TEST(Options, WhatIsNoNumberIsNamedAndWhatIsOutOfRangeIsToldTheRange)
{
    for (const std::string &command : all_commands())
        for (const OptionRow &row : options_of(command)) {
            if (!is_number(row))
                continue;
            const std::string name = "--" + row.name;
            for (const char *junk : {"1x", "nan", ""})
                expect_usage(begin(command) + Words{name, junk},
                             "number, not \"" + std::string(junk) + "\"");
            expect_usage(begin(command) + Words{name, "-1"}, name + " has to be ");
            if (row.least >= 1 || row.kind == "count")
                expect_usage(begin(command) + Words{name, "0"}, name + " has to be ");
            if (row.kind == "int" && std::isfinite(row.most))
                expect_usage(begin(command) + Words{name, std::to_string((long long)row.most + 1)},
                             name + " has to be ");
            expect_usage(begin(command) + Words{name, row.kind == "int" ? "1e300" : "1e999"},
                         name + " has to be ");
        }
}

TEST(Options, ListsOfNumbersHaveTheSameReader)
{
    const struct {
        Words words;
        const char *sentence;
    } cases[] = {
        {{"plan", "--mesh", "dp=4294967298"}, "--mesh dp has to be 1 to 1048576, not 4294967298"},
        {{"plan", "--mesh", "pp=2,pp=4"}, "--mesh pp is given twice in \"pp=2,pp=4\""},
        {{"plan", "--mesh", "dp=2x"}, "--mesh dp wants a whole number, not \"2x\""},
        {{"plan", "--mesh", "dp=0"}, "--mesh dp has to be 1 to 1048576, not 0"},
        {{"plan", "--search", "--ranks", "4", "--mesh", "pp=2,pp=4"}, "--mesh pp is given twice"},
        {{"plan", "--mesh", "pp=2", "--stages", "3,4294967299"},
         "each number of --stages has to be 1 to 1048576, not 4294967299"},
        {{"plan", "--mesh", "pp=2", "--schedule", "interleaved:4294967298"},
         "--schedule interleaved has to be 1 to 1024, not 4294967298"},
        {{"plan", "--recompute", "every=4294967298"}, "--recompute every has to be 1 to 1048576"},
        {{"plan", "--lora", "r=4294967298"}, "--lora r has to be 1 to 1024, not 4294967298"},
        {{"plan", "--lora", "r=2,dropout=7"}, "--lora dropout has to be 0 to 1, not 7"},
        {{"plan", "--hosts", "2x99999999999"}, "each number of --hosts has to be 1 to 65536"},
        {{"schedule", "all_reduce", "-c", "4", "--hosts", "2x99999999999"},
         "each number of --hosts has to be 1 to 1024"},
        {{"bench", "step", "--shape", "1x2x3x4x5x4294967298"}, "--shape"},
        {{"train", "--data", "x", "--join", "host:70000"},
         "the port of --join has to be 1 to 65535, not 70000"},
    };
    for (const auto &c : cases)
        expect_usage(c.words, c.sentence);
}

TEST(Options, AnOptionThatHasNoEffectIsRefusedByName)
{
    int seen = 0;
    for (const std::string &command : all_commands())
        for (const OptionRow &row : options_of(command)) {
            if (row.needs.empty())
                continue;
            const std::string first = row.needs.substr(0, row.needs.find('|'));
            expect_usage(begin(command) + given(row, value_for(row)),
                         "--" + row.name + " has no effect without --" + first);
            seen++;
        }
    EXPECT_GT(seen, 20);
    const struct {
        Words words;
        const char *sentence;
    } others[] = {
        {{"plan", "--top", "5"}, "--top has no effect without --search"},
        {{"bench", "all_reduce", "-f", "2", "-i", "1M"}, "--stepfactor has no effect beside"},
        {{"bench", "barrier", "--check", "1"}, "--check is not used by barrier"},
        {{"schedule", "--list", "--count", "4"}, "--count has no effect with --list without"},
        {{"schedule", "all_reduce", "--list", "--rank", "0"}, "--rank has no effect with --list"},
        {{"info", "--algorithms", "--provider", "tcp"}, "--provider has no effect on --algorithms"},
        {{"info", "--algorithms", "--markdown", "--ranks", "3"},
         "--markdown prints the same table"},
        {{"train", "--data", "x", "--sample", "0", "--prompt", "a"},
         "--prompt has no effect without --sample"},
    };
    for (const auto &other : others)
        expect_usage(other.words, other.sentence);
}

/* By any name, and before anything is opened: the files need not even exist. */
TEST(Options, NoOutputIsAnInputOrAnotherOutputOfTheSameCommand)
{
    TempFolder folder;
    const std::string file = folder.file("file", "text"), made = folder.path + "/made/there";
    const std::string in = folder.path + "/in", link = folder.path + "/link";
    ASSERT_EQ(mkdir(in.c_str(), 0700), 0);
    ASSERT_EQ(symlink("in", link.c_str()), 0);
    ASSERT_EQ(symlink("nothing", (folder.path + "/dangling").c_str()), 0);
    ASSERT_EQ(::link(file.c_str(), (folder.path + "/hard").c_str()), 0);
    const std::string same[][2] = {
        {file, folder.path + "/./in/../file"},
        {in, in + "/"},
        {in, link},
        {made, folder.path + "//made/./there"}, /* neither exists */
        {link + "/new", in + "/new"},
        {folder.path + "/nothing", folder.path + "/dangling"},
        {file, folder.path + "/hard"},
    };
    int pairs = 0;
    for (const std::string &command : all_commands()) {
        const std::vector<OptionRow> rows = options_of(command);
        for (const OptionRow &out : rows)
            for (const OptionRow &other : rows) {
                if (!writes(out) || other.path.empty() || out.name == other.name ||
                    (out.name == "save" && other.name == "resume") ||
                    (out.name == "resume" && other.name == "save"))
                    continue;
                const auto &names = same[pairs++ % (sizeof(same) / sizeof(same[0]))];
                Words words = begin(command) + given(out, names[0]) + given(other, names[1]);
                std::set<std::string> said = {out.name, other.name};
                words = words + needed(rows, out, &said) + needed(rows, other, &said);
                expect_usage(words, "do not go together");
            }
    }
    EXPECT_GT(pairs, 40);
}

TEST(Options, AnOutputInAFolderThatIsReadOrReplacedIsRefused)
{
    TempFolder folder;
    const std::string d = folder.path, m = d + "/links";
    for (const char *made : {"/links", "/store", "/run", "/run/step-4"})
        ASSERT_EQ(mkdir((d + made).c_str(), 0700), 0);
    const std::string kept = folder.file("store/1", "{}"), log = folder.file("run/log", "");
    ASSERT_EQ(symlink("../store/1", (m + "/tokenizer.json").c_str()), 0);
    ASSERT_EQ(symlink("../store/1", (m + "/README").c_str()), 0); /* nobody reads it */
    ASSERT_EQ(::link(log.c_str(), (d + "/run/step-4/state.json").c_str()), 0);
    const struct {
        Words words;
        bool refused;
    } cases[] = {
        {{"tokenize", "--from", m, "--data", "x", "--out", m + "/tokenizer.json"}, true},
        {{"tokenize", "--from", m, "--data", "x", "--out", kept}, true},
        {{"tokenize", "--from", m, "--data", "x", "--out", log}, false},
        {{"train", "--from", m, "--data", "x", "--export", d + "/store"}, true},
        {{"train", "--from", m, "--data", "x", "--save", d + "/store"}, false},
        {{"train", "--from", "x", "--data", m, "--log", kept}, true},
        {{"train", "--resume", d + "/run", "--log", log}, true},
        {{"train", "--data", d, "--log", d + "/log.txt"}, true}, /* it would become training data */
        {{"train", "--data", d, "--save", d + "/deep/er"}, true},
        {{"train", "--from", d, "--log", d + "/config.json"}, true},
        {{"train", "--from", d, "--log", d + "/train.log"}, false},
        {{"train", "--resume", d, "--log", d + "/latest"}, true},
        {{"train", "--resume", d, "--log", d + "/step-4/state.json"}, true},
        {{"train", "--resume", d + "/step-4", "--log", d + "/step-4/x"}, true},
        {{"train", "--save", d, "--resume", d, "--log", d + "/log.json"}, false},
        {{"train", "--save", d, "--export", d + "/model"}, false},
        {{"train", "--export", d, "--log", d + "/log.json"}, true}, /* it would be deleted with the
                                                                     * rest */
        {{"train", "--export", d, "--data", d + "/t.txt"}, true},
        {{"train", "--export", d, "--data", d + ".tmp/t.txt"}, true},
        {{"train", "--export", d + "/e", "--from", d}, false},
        {{"tokenize", "--from", d, "--data", d + "/x", "--out", d + "/tokenizer.json"}, true},
        {{"flight", d, "--json", d + "/a.flight"}, true},
        {{"flight", d, "--json", d + "/a.json"}, false},
        {{"plan", "--json", "-", "--plot", "-"}, true},
        {{"plan", "--json", "/dev/null", "--plot", "/dev/null"}, false},
    };
    for (const auto &c : cases) {
        const ProgramResult r = run_program(c.words);
        EXPECT_EQ(r.err.find("do not go together") != std::string::npos, c.refused)
            << joined(c.words) << r.err;
    }
    for (const char *name : {"RF_FLIGHT", "RF_CACHE_DIR"}) {
        const char *set = getenv(name);
        const std::string before = set ? set : "";
        ASSERT_EQ(setenv(name, (m + "/of/it").c_str(), 1), 0);
        expect_usage({"train", "--data", m}, std::string(name) + " " + m + "/of/it and --data ");
        expect_usage({"train", "--data", "x", "--export", m}, "the whole folder would be replaced");
        ASSERT_EQ(set ? setenv(name, before.c_str(), 1) : unsetenv(name), 0);
    }
}

/* Overwriting with status 0 used to be possible here. */
TEST(Options, TheBaseOfAMergeAndTheTextOfATokenizerStayAsTheyAre)
{
    TempFolder folder;
    const std::string base = folder.path + "/base", text = folder.file("t.txt", "some text");
    ASSERT_EQ(mkdir(base.c_str(), 0700), 0);
    std::ofstream(base + "/config.json") << "{}";
    ASSERT_EQ(chdir(folder.path.c_str()), 0);
    for (const char *spelling : {"base", "./base", "base/", "base/../base"})
        expect_usage({"merge", "--from", "base", "--adapter", "a", "--export", spelling},
                     "do not go together");
    expect_usage({"tokenize", "--from", "base", "--data", text, "--out", "t.txt"},
                 "do not go together");
    ASSERT_EQ(chdir("/"), 0);
    EXPECT_EQ(read_text(base + "/config.json"), "{}");
    EXPECT_EQ(read_text(text), "some text");
}

/* A folder without a model is refused after the date. */
TEST(Options, OfADateAreTheDaysThatTheCalendarHas)
{
    const TempFolder folder;
    const auto error_of = [&](const std::string &date) {
        return run_program({"generate", "--from", folder.path, "--message", "a", "--date", date})
            .err;
    };
    for (const char *date : {"1970-01-02", "2000-02-29", "2024-02-29", "2026-04-30", "2026-12-31"})
        EXPECT_NE(error_of(date).find("has no tokenizer.json"), std::string::npos) << date;
    for (const char *date :
         {"1969-12-31", "2026-02-29", "2026-02-30", "2026-02-31", "2026-04-31", "2100-02-29",
          "2026-01-00", "2026-01-32", "2026-00-10", "2026-13-01", "2026-01", "2026-01-02x", "x"})
        EXPECT_NE(error_of(date).find("--date wants a day"), std::string::npos) << date;
}
