/* SPDX-License-Identifier: MIT
 *
 * ringforge flight: merges the recordings of a job's ranks (see flight.h of the library), and
 * reports the fault: ranks that made a different call, ranks that never made it, and late ones.
 */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "tool.h"

enum { MOST_FILES = 4096 };

struct files {
    struct rf_flight *of[MOST_FILES];
    int count;
};

/* The files of one communicator, by rank. */
struct job {
    struct rf_flight *const *ranks;
    int count;
    cJSON *findings;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int by_job_and_rank(const void *a, const void *b)
{
    const struct rf_flight *x = *(struct rf_flight *const *)a, *y = *(struct rf_flight *const *)b;
    int order = strcmp(x->job, y->job);
    return order ? order : x->rank - y->rank;
}

static int read_folder(const struct tool_command *command, const char *folder, struct files *files)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return tool_error(command, "the folder %s cannot be read: %s", folder, strerror(errno));
    struct dirent *item;
    char path[4096];
    while ((item = readdir(dir))) {
        const char *dot = strrchr(item->d_name, '.');
        if (!dot || strcmp(dot, ".flight") != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, item->d_name);
        if (files->count == MOST_FILES)
            fprintf(stderr, "ringforge flight: more than %d files; %s is left out\n", MOST_FILES,
                    path);
        else if (rf_flight_read(path, &files->of[files->count]) < 0)
            fprintf(stderr, "ringforge flight: %s\n", rf_last_error()->message);
        else
            files->count++;
    }
    closedir(dir);
    if (files->count == 0)
        return tool_error(command, "there are no recordings in %s; run with RF_FLIGHT=%s first",
                          folder, folder);
    qsort(files->of, (size_t)files->count, sizeof(files->of[0]), by_job_and_rank);
    return TOOL_OK;
}

/* ---- findings -------------------------------------------------------------------------------- */

static void find(struct job *job, const char *kind, int rank, uint64_t sequence, const char *format,
                 ...) RF_PRINTF(5, 6);
static void find(struct job *job, const char *kind, int rank, uint64_t sequence, const char *format,
                 ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    cJSON *finding = cJSON_CreateObject();
    tool_json_put(finding, "kind=%s rank=%d sequence=%g text=%s", kind, rank, (double)sequence,
                  text);
    cJSON_AddItemToArray(job->findings, finding);
}

static const struct rf_flight_call *call_of(const struct rf_flight *flight, uint64_t sequence)
{
    for (size_t i = 0; i < flight->count; i++)
        if (flight->calls[i].contract.sequence == sequence)
            return &flight->calls[i];
    return NULL;
}

static const struct rf_flight_call *last_of(const struct rf_flight *flight)
{
    return flight->count ? &flight->calls[flight->count - 1] : NULL;
}

static bool differ(const struct rf_flight_call *a, const struct rf_flight_call *b)
{
    bool labels = a->contract.label[0] && b->contract.label[0] &&
                  strcmp(a->contract.label, b->contract.label) != 0;
    return labels || a->hash != b->hash;
}

static void find_missing(struct job *job)
{
    int at = 0;
    for (int rank = 0; rank < job->ranks[0]->size; rank++) {
        if (at < job->count && job->ranks[at]->rank == rank)
            at++;
        else
            find(job, "missing", rank, 0, "rank %d has left no recording", rank);
    }
}

/* The first operation about which two ranks differ: lists the ranks that differ from the most
 * common call. */
static bool find_difference(struct job *job)
{
    uint64_t first = 0, last = 0;
    for (int i = 0; i < job->count; i++) {
        const struct rf_flight *r = job->ranks[i];
        if (r->count == 0)
            continue;
        first = r->calls[0].contract.sequence > first ? r->calls[0].contract.sequence : first;
        last = last_of(r)->contract.sequence > last ? last_of(r)->contract.sequence : last;
    }
    for (uint64_t sequence = first; sequence <= last; sequence++) {
        const struct rf_flight_call *common = NULL;
        int most = 0;
        for (int i = 0; i < job->count; i++) {
            const struct rf_flight_call *mine = call_of(job->ranks[i], sequence);
            int same = 0;
            for (int k = 0; mine && k < job->count; k++) {
                const struct rf_flight_call *other = call_of(job->ranks[k], sequence);
                same += other && !differ(mine, other);
            }
            if (same > most) {
                most = same;
                common = mine;
            }
        }
        bool found = false;
        for (int i = 0; i < job->count; i++) {
            const struct rf_flight_call *mine = call_of(job->ranks[i], sequence);
            char a[160], b[160];
            if (!mine || !differ(mine, common))
                continue;
            found = true;
            find(job, "different", job->ranks[i]->rank, sequence,
                 "rank %d called %s in operation %llu, where %d rank%s called %s",
                 job->ranks[i]->rank, rf_contract_text(&mine->contract, a, sizeof(a)),
                 (unsigned long long)sequence, most, most == 1 ? "" : "s",
                 rf_contract_text(&common->contract, b, sizeof(b)));
        }
        if (found)
            return true;
    }
    return false;
}

/* The ranks that have not reached the last operation that any rank has started. */
static bool find_absent(struct job *job, const struct rf_flight_call *newest)
{
    bool found = false;
    char text[160];
    uint64_t sequence = newest->contract.sequence;
    for (int i = 0; i < job->count; i++) {
        const struct rf_flight_call *last = last_of(job->ranks[i]);
        if (last && last->contract.sequence == sequence)
            continue;
        found = true;
        find(job, "absent", job->ranks[i]->rank, sequence,
             "rank %d never came to operation %llu, %s; %s", job->ranks[i]->rank,
             (unsigned long long)sequence, rf_contract_text(&newest->contract, text, sizeof(text)),
             !last            ? "it recorded nothing"
             : last->ended_ns ? "it had ended the one before"
                              : "it was still in an earlier one");
    }
    return found;
}

static void find_late(struct job *job, const struct rf_flight_call *newest)
{
    int late = -1, early = -1;
    int64_t latest = 0, earliest = 0;
    char text[160];
    for (int i = 0; i < job->count; i++) {
        int64_t started = last_of(job->ranks[i])->started_ns;
        if (late < 0 || started > latest) {
            late = i;
            latest = started;
        }
        if (early < 0 || started < earliest) {
            early = i;
            earliest = started;
        }
    }
    find(job, "late", job->ranks[late]->rank, newest->contract.sequence,
         "rank %d came last to operation %llu, %s, %.3f s after rank %d", job->ranks[late]->rank,
         (unsigned long long)newest->contract.sequence,
         rf_contract_text(&newest->contract, text, sizeof(text)), (double)(latest - earliest) / 1e9,
         job->ranks[early]->rank);
}

static void find_all(struct job *job)
{
    const struct rf_flight_call *newest = NULL;
    find_missing(job);
    for (int i = 0; i < job->count; i++) {
        const struct rf_flight_call *last = last_of(job->ranks[i]);
        if (last && (!newest || last->contract.sequence > newest->contract.sequence))
            newest = last;
    }
    if (newest && !find_difference(job) && !find_absent(job, newest) && job->count > 1)
        find_late(job, newest);
}

/* ---- output ---------------------------------------------------------------------------------- */

static const char *state_of(const struct rf_flight_call *call)
{
    return !call->ended_ns ? "running" : call->status == 0 ? "done" : rf_status_name(call->status);
}

static void print_job(const struct job *job, int64_t zero)
{
    const struct rf_flight *any = job->ranks[0];
    printf("# communicator %.8s: %d rank%s over %s, %d recording%s\n", any->job, any->size,
           any->size == 1 ? "" : "s", any->provider, job->count, job->count == 1 ? "" : "s");
    printf("%6s %-20s %8s %10s %12s %-10s %s\n", "rank", "host", "pid", "operation", "started(s)",
           "state", "last call");
    for (int i = 0; i < job->count; i++) {
        const struct rf_flight *r = job->ranks[i];
        const struct rf_flight_call *last = last_of(r);
        char text[160];
        printf("%6d %-20.20s %8lld ", r->rank, r->host, (long long)r->pid);
        if (last)
            printf("%10llu %12.6f %-10s %s\n", (unsigned long long)last->contract.sequence,
                   (double)(last->started_ns - zero) / 1e9, state_of(last),
                   rf_contract_text(&last->contract, text, sizeof(text)));
        else
            printf("%10s %12s %-10s\n", "-", "-", "nothing");
    }
    const cJSON *finding;
    cJSON_ArrayForEach(finding, job->findings)
    {
        printf("=> %s\n", cJSON_GetObjectItem(finding, "text")->valuestring);
    }
}

static cJSON *job_json(const struct job *job)
{
    cJSON *json = tool_json_new("job=%s size=%d provider=%s", job->ranks[0]->job,
                                job->ranks[0]->size, job->ranks[0]->provider);
    cJSON *ranks = cJSON_AddArrayToObject(json, "ranks");
    for (int i = 0; i < job->count; i++) {
        const struct rf_flight_call *last = last_of(job->ranks[i]);
        cJSON *row = cJSON_CreateObject();
        char text[160];
        tool_json_put(row, "rank=%d host=%s pid=%g calls=%g", job->ranks[i]->rank,
                      job->ranks[i]->host, (double)job->ranks[i]->pid,
                      (double)job->ranks[i]->count);
        if (last) {
            tool_json_put(row, "sequence=%g call=%s state=%s started=%g",
                          (double)last->contract.sequence,
                          rf_contract_text(&last->contract, text, sizeof(text)), state_of(last),
                          (double)last->started_ns / 1e9);
        }
        cJSON_AddItemToArray(ranks, row);
    }
    cJSON_AddItemToObject(json, "findings", cJSON_Duplicate(job->findings, true));
    return json;
}

static int flight_main(const struct tool_command *command, int argc, char **argv)
{
    static struct files files;
    const char *json_path = NULL, *folder = NULL;
    struct tool_option table[] = {{"json", TOOL_FILE, &json_path, "FILE",
                                   "the findings as JSON (no FILE: printed)", .path = TOOL_WRITES},
                                  {"the folder", TOOL_TEXT, &folder, "DIR", "", .path = TOOL_READS,
                                   .endings = ".flight", .operand = true},
                                  {NULL}};
    int after = 0, status = tool_options(command, table, argc, argv, &after);
    if (status != TOOL_OK)
        return status;
    if (after >= argc)
        return tool_usage_error(command, "say which folder: that of RF_FLIGHT");
    folder = argv[after];
    status = tool_options(command, table, argc - after, argv + after, NULL);
    if (status == TOOL_OK)
        status = tool_outputs_check(command, table);
    if (status == TOOL_OK)
        status = read_folder(command, folder, &files);
    cJSON *json = cJSON_CreateObject(), *jobs = cJSON_AddArrayToObject(json, "communicators");
    bool quiet = json_path && strcmp(json_path, "-") == 0;
    for (int i = 0, next; status == TOOL_OK && i < files.count; i = next) {
        int64_t zero = INT64_MAX;
        for (next = i; next < files.count && !strcmp(files.of[i]->job, files.of[next]->job); next++)
            if (files.of[next]->count && files.of[next]->calls[0].started_ns < zero)
                zero = files.of[next]->calls[0].started_ns;
        struct job job = {&files.of[i], next - i, cJSON_CreateArray()};
        find_all(&job);
        if (!quiet)
            print_job(&job, zero);
        cJSON_AddItemToArray(jobs, job_json(&job));
        cJSON_Delete(job.findings);
    }
    if (status == TOOL_OK && json_path)
        status = tool_json_write(command, json_path, json);
    else
        cJSON_Delete(json);
    for (int i = 0; i < files.count; i++)
        rf_flight_free(files.of[i]);
    return status;
}

const struct tool_command tool_flight = {
    .name = "flight",
    .summary = "merge the ranks' flight recordings, and say who was late or different",
    .usage = "DIR [--json FILE]     DIR: what RF_FLIGHT named when the job ran",
    .main = flight_main,
};
