/* SPDX-License-Identifier: MIT
 *
 * Starts processes on this machine as the ranks of one job, forwards their output line by line, and
 * ends all of them when one fails. Used by `run`, and by --ranks of bench and train. It makes no
 * library call: it must work without Vulkan and without a network.
 */
#define _GNU_SOURCE /* sched_getaffinity, pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

#define LINE_MAX_BYTES 65536
#define SPEAK_NS 5000000000ull /* survivors of a failure may print what they saw */
#define TERM_NS 3000000000ull  /* then SIGTERM, and after this time SIGKILL */
/* A terminal and a forwarding process may both send it: the second follows shortly after the first.
 */
#define SAME_REQUEST_NS 500000000ull

struct outlet {
    int fd; /* reading end of a rank's stdout or stderr; -1 = closed */
    int to;
    char *line;
    size_t used;
};

struct child {
    pid_t pid;  /* 0 = reaped */
    bool ended; /* reaped, and not yet recorded */
    int wait_status;
    struct outlet out[2];
};

enum phase { RUNNING, SPEAKING, TERMINATING, KILLING };

struct crew {
    const struct tool_command *command;
    const struct tool_launch *launch;
    struct child *children;
    int alive, signals;
    enum phase phase;
    uint64_t phase_end_ns;
    int status;  /* of the first failure, or of the first killed rank */
    bool killed; /* the latter */
    bool served; /* a rank succeeded */
    bool obeyed; /* a rank ended by the signal that the launcher received */
    int asked;   /* the signal that the launcher itself received; 0 = none */
    uint64_t asked_ns;
};

static int free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int port = -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &bytes) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static int set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof(text), "%ld", value);
    return setenv(name, text, 1);
}

/* The environment of all ranks. The key is passed in it and never in argv, which every user of the
 * machine can read. */
static int set_job_environment(const struct tool_command *command, const struct tool_launch *launch)
{
    int port = launch->port ? launch->port : free_port();
    if (port < 0)
        return tool_error(command, "there is no free TCP port on 127.0.0.1: %s", strerror(errno));
    cpu_set_t cpus;
    long cores = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    if (!getenv("RF_JOB_KEY")) {
        uint8_t key[32];
        char hex[65];
        if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
            return tool_error(command, "cannot make a job key: %s", strerror(errno));
        for (size_t i = 0; i < sizeof(key); i++)
            snprintf(hex + 2 * i, 3, "%02x", key[i]);
        setenv("RF_JOB_KEY", hex, 1);
    }
    if (!getenv("LP_NUM_THREADS"))
        set_number("LP_NUM_THREADS", cores / launch->ranks > 1 ? cores / launch->ranks : 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    set_number("WORLD_SIZE", launch->ranks);
    set_number("LOCAL_WORLD_SIZE", launch->ranks);
    return TOOL_OK;
}

static void run_child(const struct tool_launch *launch, int rank, int pipes[2][2], pid_t parent)
{
    /* A rank must not outlive the launcher, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (launch->ranks > 1) {
        setpgid(0, 0); /* so that processes started by a rank can be ended with it */
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0)
            dup2(null, STDIN_FILENO);
    }
    if (launch->prefix) {
        dup2(pipes[0][1], STDOUT_FILENO);
        dup2(pipes[1][1], STDERR_FILENO);
    }
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    execvp(launch->argv[0], launch->argv);
    fprintf(stderr, "ringforge: cannot start %s: %s\n", launch->argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int start_child(struct crew *crew, int rank)
{
    const struct tool_launch *launch = crew->launch;
    struct child *child = &crew->children[rank];
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    for (int i = 0; launch->prefix && i < 2; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            return tool_error(crew->command, "cannot make a pipe: %s", strerror(errno));
    pid_t parent = getpid();
    child->pid = fork();
    if (child->pid == 0)
        run_child(launch, rank, pipes, parent);
    if (child->pid < 0) {
        child->pid = 0;
        return tool_error(crew->command, "cannot start rank %d: %s", rank, strerror(errno));
    }
    if (launch->ranks > 1)
        setpgid(child->pid, child->pid); /* whoever is first */
    crew->alive++;
    for (int i = 0; launch->prefix && i < 2; i++) {
        close(pipes[i][1]);
        fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
        child->out[i].fd = pipes[i][0];
        child->out[i].line = malloc(LINE_MAX_BYTES + 16);
        if (!child->out[i].line)
            return tool_error(crew->command, "out of memory");
    }
    return TOOL_OK;
}

static void write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, 1000);
            continue;
        }
        if (n < 0 && errno != EINTR)
            return; /* nobody reads any more: the ranks continue */
        if (n > 0) {
            text += n;
            bytes -= (size_t)n;
        }
    }
}

static void put_line(int rank, struct outlet *outlet, size_t bytes)
{
    char text[LINE_MAX_BYTES + 48];
    int used = snprintf(text, sizeof(text), "[%d] ", rank);
    memcpy(text + used, outlet->line, bytes);
    text[(size_t)used + bytes] = '\n';
    write_all(outlet->to, text, (size_t)used + bytes + 1);
}

/* Forwards available output; false at the end of the stream. */
static bool pump(int rank, struct outlet *outlet)
{
    for (;;) {
        ssize_t n = read(outlet->fd, outlet->line + outlet->used, LINE_MAX_BYTES - outlet->used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            break;
        outlet->used += (size_t)n;
        size_t from = 0;
        for (size_t i = outlet->used - (size_t)n; i < outlet->used; i++) {
            if (outlet->line[i] != '\n')
                continue;
            struct outlet line = *outlet;
            line.line += from;
            put_line(rank, &line, i - from);
            from = i + 1;
        }
        if (from == 0 && outlet->used == LINE_MAX_BYTES) {
            put_line(rank, outlet, outlet->used);
            from = outlet->used;
        }
        memmove(outlet->line, outlet->line + from, outlet->used - from);
        outlet->used -= from;
    }
    if (outlet->used)
        put_line(rank, outlet, outlet->used);
    outlet->used = 0;
    close(outlet->fd);
    outlet->fd = -1;
    return false;
}

static void signal_all(struct crew *crew, int number)
{
    for (int r = 0; r < crew->launch->ranks; r++)
        if (crew->children[r].pid > 0)
            kill(crew->launch->ranks > 1 ? -crew->children[r].pid : crew->children[r].pid, number);
}

static void enter(struct crew *crew, enum phase phase, uint64_t ns)
{
    if (phase <= crew->phase)
        return;
    crew->phase = phase;
    crew->phase_end_ns = rf_now_ns() + ns;
    if (phase == TERMINATING)
        signal_all(crew, SIGTERM);
    if (phase == KILLING)
        signal_all(crew, SIGKILL);
}

static void advance(struct crew *crew)
{
    if (crew->phase == RUNNING || rf_now_ns() < crew->phase_end_ns)
        return;
    if (crew->phase == SPEAKING)
        enter(crew, TERMINATING, TERM_NS);
    else if (crew->phase == TERMINATING)
        enter(crew, KILLING, TERM_NS);
}

static void note_end(struct crew *crew, int rank, int wait_status)
{
    int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    if (crew->launch->ranks > 1 && status != 0)
        kill(-crew->children[rank].pid, SIGKILL); /* ends the processes it had started */
    crew->children[rank].pid = 0;
    crew->alive--;
    crew->served |= status == 0;
    crew->obeyed |= crew->asked && status == 128 + crew->asked;
    /* A killed rank is the cause, even if others noticed and ended before it was reaped: its
     * connections close before it can be waited for. */
    const bool killed = WIFSIGNALED(wait_status) && crew->phase <= SPEAKING && !crew->asked;
    if (status == 0 || (crew->status != 0 && !crew->launch->elastic && (!killed || crew->killed)))
        return;
    if (crew->status == 0 || (killed && !crew->killed)) {
        crew->status = status;
        crew->killed = killed;
    }
    if (crew->launch->ranks == 1 || (crew->asked && status == 128 + crew->asked))
        return;
    if (crew->asked) { /* it failed because of the requested end */
        enter(crew, SPEAKING, SPEAK_NS);
        return;
    }
    char how[64];
    if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof(how), "was ended by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(how, sizeof(how), "failed with exit status %d", status);
    tool_error(crew->command, "rank %d %s%s", rank, how,
               !crew->alive            ? ""
               : crew->launch->elastic ? "; the others continue"
                                       : "; the others have 5 s to finish");
    if (crew->phase == RUNNING && !crew->launch->elastic)
        enter(crew, SPEAKING, SPEAK_NS);
}

static void reap(struct crew *crew)
{
    int ranks = crew->launch->ranks, ended = 0;
    for (int r = 0; r < ranks; r++) {
        struct child *child = &crew->children[r];
        if (child->pid <= 0 || waitpid(child->pid, &child->wait_status, WNOHANG) != child->pid)
            continue;
        child->ended = true;
        ended++;
        /* Its last output comes before ours. */
        for (int i = 0; i < 2; i++)
            if (child->out[i].fd >= 0)
                pump(r, &child->out[i]);
    }
    /* If several have ended, one that was killed is the cause: the others noticed. */
    for (int killed = 1; killed >= 0 && ended; killed--) {
        for (int r = 0; r < ranks; r++) {
            struct child *child = &crew->children[r];
            if (!child->ended || WIFSIGNALED(child->wait_status) != (killed == 1))
                continue;
            child->ended = false;
            note_end(crew, r, child->wait_status);
        }
    }
}

static void be_asked(struct crew *crew, const struct signalfd_siginfo *info)
{
    const uint64_t now = rf_now_ns();
    const bool again = crew->asked != 0;
    if (again && now - crew->asked_ns < SAME_REQUEST_NS)
        return;
    if (!again) {
        crew->asked = (int)info->ssi_signo;
        crew->asked_ns = now;
    }
    /* A single rank is in the launcher's process group: it receives a terminal's signals itself. */
    if (crew->launch->ranks > 1 || info->ssi_code != SI_KERNEL)
        signal_all(crew, (int)info->ssi_signo);
    if (again)
        enter(crew, KILLING, TERM_NS);
}

static void read_signals(struct crew *crew)
{
    struct signalfd_siginfo info;
    while (read(crew->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
            signal_all(crew, (int)info.ssi_signo);
        else if (info.ssi_signo != SIGCHLD)
            be_asked(crew, &info);
    }
}

static void watch(struct crew *crew)
{
    int ranks = crew->launch->ranks;
    struct pollfd *fds = calloc((size_t)ranks * 2 + 1, sizeof(*fds));
    while (fds && crew->alive) {
        fds[0] = (struct pollfd){.fd = crew->signals, .events = POLLIN};
        for (int i = 0; i < 2 * ranks; i++)
            fds[1 + i] =
                (struct pollfd){.fd = crew->children[i / 2].out[i % 2].fd, .events = POLLIN};
        poll(fds, (nfds_t)(2 * ranks + 1), crew->phase == RUNNING ? 1000 : 50);
        for (int i = 0; i < 2 * ranks; i++)
            if (fds[1 + i].fd >= 0 && fds[1 + i].revents)
                pump(i / 2, &crew->children[i / 2].out[i % 2]);
        read_signals(crew);
        reap(crew);
        advance(crew);
    }
    free(fds);
}

int tool_launch(const struct tool_command *command, const struct tool_launch *launch)
{
    struct crew crew = {.command = command, .launch = launch};
    int status = set_job_environment(command, launch);
    if (status != TOOL_OK)
        return status;
    crew.children = calloc((size_t)launch->ranks, sizeof(*crew.children));
    if (!crew.children)
        return tool_error(command, "out of memory");
    for (int i = 0; i < 2 * launch->ranks; i++)
        crew.children[i / 2].out[i % 2] = (struct outlet){.fd = -1, .to = 1 + i % 2};
    sigset_t set, before;
    sigemptyset(&set);
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    crew.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    fflush(NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    for (int r = 0; r < launch->ranks && status == TOOL_OK; r++)
        status = start_child(&crew, r);
    if (status != TOOL_OK) {
        crew.status = status;
        enter(&crew, KILLING, TERM_NS);
    }
    watch(&crew);
    for (int i = 0; i < 2 * launch->ranks; i++) {
        struct outlet *outlet = &crew.children[i / 2].out[i % 2];
        if (outlet->fd >= 0 && pump(i / 2, outlet))
            close(outlet->fd); /* still held by a process that a rank left behind */
        free(outlet->line);
    }
    free(crew.children);
    close(crew.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    /* Elastic ranks lost before are not a failure of those that continued. */
    if (crew.asked && (crew.phase == KILLING || crew.status == 128 + crew.asked ||
                       (launch->elastic && crew.obeyed)))
        return TOOL_BY_SIGNAL + crew.asked;
    return launch->elastic && crew.served ? 0 : crew.status;
}
