/* SPDX-License-Identifier: MIT
 *
 * Starting the program under test, with a time limit and both outputs collected.
 */
#include "program.h"
#include "support/fair_clock.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double now()
{
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static void become(const std::vector<std::string> &argv, const ProgramOptions &options)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL); /* a shell's background jobs ignore it */
    for (const char *name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "RF_JOB_KEY"})
        unsetenv(name);
    for (const std::string &row : options.environment) {
        size_t equal = row.find('=');
        if (equal == std::string::npos)
            unsetenv(row.c_str());
        else
            setenv(row.substr(0, equal).c_str(), row.substr(equal + 1).c_str(), 1);
    }
    if (options.file_bytes_limit) {
        struct rlimit limit = {(rlim_t)options.file_bytes_limit, (rlim_t)options.file_bytes_limit};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    std::vector<char *> words;
    for (const std::string &word : argv)
        words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
}

Background start_command(const std::vector<std::string> &argv, const ProgramOptions &options)
{
    int out[2], err[2];
    Background b;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        abort();
    b.pid = fork();
    if (b.pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        become(argv, options);
    }
    close(out[1]);
    close(err[1]);
    b.out = out[0];
    b.err = err[0];
    return b;
}

ProgramResult finish_command(Background b, double timeout_s)
{
    ProgramResult result = {0, "", "", 0, 0};
    const FairClock clock;
    double start = now();
    struct pollfd fds[2] = {{b.out, POLLIN, 0}, {b.err, POLLIN, 0}};
    bool killed = false;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        poll(fds, 2, 100);
        if (!killed && now() - start > timeout_s) {
            kill(-b.pid, SIGKILL);
            kill(b.pid, SIGKILL);
            killed = true;
        }
        for (int i = 0; i < 2; i++) {
            char text[4096];
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            ssize_t n = read(fds[i].fd, text, sizeof(text));
            if (n > 0) {
                (i ? result.err : result.out).append(text, (size_t)n);
            } else {
                close(fds[i].fd);
                fds[i].fd = -1;
            }
        }
        if (killed && now() - start > timeout_s + 5)
            break; /* another process holds the pipes */
    }
    int status = 0;
    waitpid(b.pid, &status, 0);
    result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result.seconds = now() - start;
    result.fair_seconds = clock.seconds();
    return result;
}

ProgramResult run_command(const std::vector<std::string> &argv, const ProgramOptions &options)
{
    return finish_command(start_command(argv, options), options.timeout_s);
}

std::string program_path()
{
    return RF_PROGRAM;
}

ProgramResult run_program(const std::vector<std::string> &arguments, const ProgramOptions &options)
{
    std::vector<std::string> argv = {program_path()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command(argv, options);
}

TempFolder::TempFolder()
{
    char name[] = "/tmp/ringforge-test-XXXXXX";
    if (!mkdtemp(name))
        abort();
    path = name;
}

TempFolder::~TempFolder()
{
    run_command({"rm", "-rf", path});
}

std::string TempFolder::file(const std::string &name, const std::string &content) const
{
    std::string full = path + "/" + name;
    std::ofstream(full, std::ios::binary) << content;
    return full;
}

std::string read_text(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string some_text()
{
    std::string text;
    for (int i = 0; i < 100; i++)
        text += "Line " + std::to_string(i) + " of a text that is easy to learn.\n";
    return text;
}
