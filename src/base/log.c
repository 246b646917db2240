/* SPDX-License-Identifier: MIT
 *
 * Log lines: "rank component: text" to stderr or to a callback. RF_LOG selects them, for example
 * RF_LOG=comm:3,device:1, or RF_LOG=2 for every component.
 */
#include <pthread.h>
#include <ringforge/ringforge.h>

#include "base.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink)(void *user, int level, const char *line);
static void *sink_user;
static _Thread_local int thread_rank = -1;

void rf_log_callback(void (*fn)(void *user, int level, const char *line), void *user)
{
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_user = user;
    pthread_mutex_unlock(&lock);
}

void rf_set_thread_rank(int rank)
{
    thread_rank = rank;
}

uint64_t rf_thread_number(void)
{
    static uint64_t count;
    /* Every call on a communicator reads it, so the access must not need a function call. */
    static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t number;
    if (number == 0)
        number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return number;
}

int rf_thread_rank(void)
{
    long rank = -1;
    if (thread_rank >= 0)
        return thread_rank;
    return rf_env_int("RANK", -1, &rank) == 0 ? (int)rank : -1;
}

bool rf_log_on(const char *component, int level)
{
    const char *spec = level == 0 ? NULL : rf_env("RF_LOG");
    if (level == 0)
        return true;
    size_t length = strlen(component);
    while (spec && *spec) {
        const char *end = strchr(spec, ',');
        size_t item = end ? (size_t)(end - spec) : strlen(spec);
        if (item > length && spec[length] == ':' && strncmp(spec, component, length) == 0)
            return atoi(spec + length + 1) >= level;
        if (spec[0] >= '0' && spec[0] <= '9')
            return atoi(spec) >= level;
        spec = end ? end + 1 : NULL;
    }
    return false;
}

void rf_log(const char *component, int level, const char *format, ...)
{
    if (!rf_log_on(component, level))
        return;
    char text[1024], line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    int rank = rf_thread_rank();
    if (rank >= 0)
        snprintf(line, sizeof(line), "ringforge[%d] %s: %s", rank, component, text);
    else
        snprintf(line, sizeof(line), "ringforge %s: %s", component, text);
    pthread_mutex_lock(&lock);
    if (sink)
        sink(sink_user, level, line);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&lock);
}
