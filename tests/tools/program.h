/* SPDX-License-Identifier: MIT
 *
 * Runs the program as a user would, and collects its output. Used by the tests of the tools.
 */
#ifndef RF_TESTS_TOOLS_PROGRAM_H
#define RF_TESTS_TOOLS_PROGRAM_H

#include <string>
#include <vector>

/* Arguments of a program. */
using Words = std::vector<std::string>;
inline Words operator+(Words words, const Words &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}
inline std::string joined(const Words &words)
{
    std::string text;
    for (const std::string &word : words)
        text += word + " ";
    return text;
}

struct ProgramResult {
    int status;          /* exit status, or 128 + signal */
    std::string out;     /* standard output */
    std::string err;     /* standard error */
    double seconds;      /* until it ended */
    double fair_seconds; /* the same, by a FairClock */
};

struct ProgramOptions {
    std::vector<std::string> environment; /* "NAME=value", or "NAME" to unset */
    long file_bytes_limit = 0;            /* a write beyond fails, as on a full disk; 0 = none */
    double timeout_s = 120;               /* then it is killed: status 137 */
};

/* argv[0] is the program under test; `arguments` follow it. */
ProgramResult run_program(const std::vector<std::string> &arguments,
                          const ProgramOptions &options = {});
/* Any command; argv[0] is looked up in PATH. */
ProgramResult run_command(const std::vector<std::string> &argv, const ProgramOptions &options = {});

/* A program that runs beside the test. */
struct Background {
    int pid = -1, out = -1, err = -1;
};
Background start_command(const std::vector<std::string> &argv, const ProgramOptions &options = {});
ProgramResult finish_command(Background background, double timeout_s);

std::string program_path();
/* A folder of this test's own, removed with everything in it at the end. */
struct TempFolder {
    std::string path;
    TempFolder();
    ~TempFolder();
    std::string file(const std::string &name, const std::string &content) const;
};
std::string read_text(const std::string &path);
/* Lines of readable text to train on. */
std::string some_text();

#endif
