/* SPDX-License-Identifier: MIT
 *
 * The last error of each thread: a status, a message, and for collectives the rank and the
 * contracts.
 */
#include "base.h"

static _Thread_local struct rf_error last = {.rank = -1, .message = "no error"};

static const struct {
    int number;
    const char *name, *text;
} statuses[] = {
#define STATUS_ROW(name, number, text) {number, #name, text},
    RF_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static _Thread_local uint64_t stored;

uint64_t rf_fail_count(void)
{
    return stored;
}

static void start(int status, int rank)
{
    stored++;
    memset(&last, 0, sizeof(last));
    last.status = status;
    last.rank = rank;
}

int rf_fail(int status, const char *format, ...)
{
    char text[sizeof(last.message)]; /* the arguments may include the last message itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    start(status, -1);
    memcpy(last.message, text, sizeof(text));
    return status;
}

int rf_fail_rank(int status, int rank, const char *format, ...)
{
    char text[sizeof(last.message)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    start(status, rank);
    memcpy(last.message, text, sizeof(text));
    return status;
}

int rf_fail_error(const struct rf_error *error)
{
    if (error != &last)
        last = *error;
    stored++;
    return last.status;
}

const struct rf_error *rf_last_error(void)
{
    return &last;
}

const char *rf_status_text(int status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].number == status)
            return statuses[i].text;
    return "unknown status";
}

const char *rf_status_name(int status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].number == status)
            return statuses[i].name;
    return "RF_?";
}
