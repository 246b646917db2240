/* SPDX-License-Identifier: MIT
 *
 * The schedules of all ranks of a call, and a simulation that assigns each message a round: every
 * message takes one round and nothing else takes time.
 */
#include <string.h>

#include "schedule.h"

enum { MOST_SIMULATED = 8 << 20, MOST_DETAILED = 100000 };

static int out_of_memory(const struct tool_command *command)
{
    return tool_error(command, "out of memory");
}

/* ---- the list of a rank ---------------------------------------------------------------------- */

static int by_peer_and_tag(const void *a, const void *b)
{
    const struct schedule_receive *x = a, *y = b;
    if (x->peer != y->peer)
        return x->peer < y->peer ? -1 : 1;
    return x->tag < y->tag ? -1 : x->tag > y->tag;
}

static bool get(const struct rf_schedule *schedule, uint32_t number, struct rf_schedule_step *step)
{
    return rf_schedule_get_step(schedule, number, step) == 0;
}

/* Adds up the totals of a rank, whether its list is kept or not. */
static void count(struct schedule_job *job, int rank, const struct rf_schedule *schedule)
{
    struct schedule_rank *own = &job->of[rank];
    const int *hosts = job->call->hosts;
    struct rf_schedule_step step;
    own->steps = rf_schedule_step_count(schedule);
    own->sent_bytes = rf_schedule_sent_bytes(schedule);
    own->temp_bytes = rf_schedule_temp_bytes(schedule);
    for (uint32_t k = 0; k < own->steps && get(schedule, k, &step); k++) {
        if (step.verb != RF_SCHEDULE_SEND)
            continue;
        own->messages++;
        if (hosts && hosts[rank] != hosts[step.peer])
            own->between_bytes += step.bytes;
    }
}

/* Keeps the data that the simulation needs; false: out of memory. */
static bool keep(struct schedule_rank *own, const struct rf_schedule *schedule)
{
    struct rf_schedule_step step;
    uint32_t edges = 0;
    own->list = calloc((size_t)own->steps + 1, sizeof(*own->list));
    own->first = calloc((size_t)own->steps + 2, sizeof(uint32_t));
    own->receives = malloc(((size_t)own->steps + 1) * sizeof(*own->receives));
    if (!own->list || !own->first || !own->receives)
        return false;
    for (uint32_t k = 0; k < own->steps && get(schedule, k, &step); k++) {
        own->list[k] = (struct schedule_step){.bytes = step.bytes,
                                              .peer = step.peer,
                                              .tag = step.tag,
                                              .need = step.after_count,
                                              .verb = (uint8_t)step.verb};
        if (step.verb == RF_SCHEDULE_RECV) {
            own->list[k].need++; /* its message */
            own->receives[own->received++] = (struct schedule_receive){step.peer, step.tag, k};
        }
        for (uint32_t i = 0; i < step.after_count; i++)
            own->first[step.after[i] + 2]++;
        edges += step.after_count;
    }
    for (uint32_t k = 0; k < own->steps; k++)
        own->first[k + 1] += own->first[k];
    own->next = malloc(((size_t)edges + 1) * sizeof(uint32_t));
    if (!own->next)
        return false;
    for (uint32_t k = 0; k < own->steps && get(schedule, k, &step); k++)
        for (uint32_t i = 0; i < step.after_count; i++)
            own->next[own->first[step.after[i] + 1]++] = k;
    qsort(own->receives, own->received, sizeof(*own->receives), by_peer_and_tag);
    return true;
}

/* ---- the simulation -------------------------------------------------------------------------- */

struct place {
    int rank;
    uint32_t number;
};

struct queue {
    struct place *places;
    uint64_t begin, end;
};

/* The receive of a message; UINT32_MAX: none. */
static uint32_t receive_of(const struct schedule_rank *to, int from, uint32_t tag)
{
    const struct schedule_receive wanted = {from, tag, 0};
    const struct schedule_receive *found =
        to->received ? bsearch(&wanted, to->receives, to->received, sizeof(wanted), by_peer_and_tag)
                     : NULL;
    return found ? found->number : UINT32_MAX;
}

static void reach(struct schedule_job *job, struct queue *queue, int rank, uint32_t number,
                  uint32_t round)
{
    struct schedule_step *step = &job->of[rank].list[number];
    step->round = round > step->round ? round : step->round;
    if (--step->need == 0)
        queue->places[queue->end++] = (struct place){rank, number};
}

/* Ends a step: what waits for it may begin. False: its message has no receive. */
static bool end_step(struct schedule_job *job, struct queue *queue, struct place at)
{
    const struct schedule_rank *own = &job->of[at.rank];
    struct schedule_step *step = &own->list[at.number];
    const uint32_t round = step->round;
    job->rounds = round > job->rounds ? round : job->rounds;
    if (step->verb == RF_SCHEDULE_SEND) {
        const uint32_t receive = receive_of(&job->of[step->peer], at.rank, step->tag);
        if (receive == UINT32_MAX)
            return false;
        step->round = round + 1;
        job->of[step->peer].list[receive].range = step->range;
        job->of[step->peer].list[receive].range_count = step->range_count;
        reach(job, queue, step->peer, receive, step->round);
    }
    for (uint32_t n = own->first[at.number]; n < own->first[at.number + 1]; n++)
        reach(job, queue, at.rank, own->next[n], round);
    return true;
}

static int simulate(const struct tool_command *command, struct schedule_job *job)
{
    struct queue queue = {malloc((job->steps + 1) * sizeof(struct place)), 0, 0};
    struct schedule_memory *memory = job->detailed ? schedule_memory_create(job->ranks) : NULL;
    int status = queue.places && (memory || !job->detailed) ? TOOL_OK : out_of_memory(command);
    for (int r = 0; r < job->ranks && status == TOOL_OK; r++)
        for (uint32_t k = 0; k < job->of[r].steps; k++)
            if (job->of[r].list[k].need == 0)
                queue.places[queue.end++] = (struct place){r, k};
    while (queue.begin < queue.end && status == TOOL_OK) {
        const struct place at = queue.places[queue.begin++];
        if (job->detailed && schedule_find_ranges(job, memory, at.rank, at.number) < 0)
            status = out_of_memory(command);
        else if (!end_step(job, &queue, at))
            status = tool_error(command, "step %u of rank %d sends what nobody receives", at.number,
                                at.rank);
    }
    if (status == TOOL_OK && queue.begin < job->steps)
        status = tool_error(command, "%llu steps wait for each other",
                            (unsigned long long)(job->steps - queue.begin));
    schedule_memory_free(memory, job->ranks);
    free(queue.places);
    job->simulated = status == TOOL_OK;
    return status;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static int library_error(const struct tool_command *command, int rc)
{
    if (rc == RF_EINVAL || rc == RF_ENOTSUP)
        return tool_usage_error(command, "%s", rf_last_error()->message);
    return tool_library_error(command, -1);
}

static int make_schedule(const struct tool_command *command, const struct schedule_job *job,
                         int rank, struct rf_schedule **out)
{
    struct rf_schedule_desc desc;
    *out = NULL;
    if (!schedule_desc_of(job->call, rank, &desc))
        return TOOL_OK;
    if (job->whole)
        desc.segment_bytes = desc.window_bytes = SIZE_MAX;
    int rc = rf_schedule_create(&desc, rank, job->algorithm, out);
    return rc < 0 ? library_error(command, rc) : TOOL_OK;
}

static void add_up(struct schedule_job *job)
{
    const struct schedule_call *call = job->call;
    for (int r = 0; r < job->ranks; r++) {
        const struct schedule_rank *own = &job->of[r];
        job->steps += own->steps;
        job->messages += own->messages;
        job->sent_bytes += own->sent_bytes;
        job->between_bytes += own->between_bytes;
        job->most_steps = own->steps > job->most_steps ? own->steps : job->most_steps;
        if (own->messages > job->most_messages)
            job->most_messages = own->messages;
        if (own->sent_bytes > job->most_sent_bytes)
            job->most_sent_bytes = own->sent_bytes;
        if (own->temp_bytes > job->most_temp_bytes)
            job->most_temp_bytes = own->temp_bytes;
    }
    for (int host = 0; call->hosts && host < call->host_count; host++) {
        uint64_t bytes = 0;
        for (int r = 0; r < job->ranks; r++)
            bytes += call->hosts[r] == host ? job->of[r].between_bytes : 0;
        job->most_between_bytes = bytes > job->most_between_bytes ? bytes : job->most_between_bytes;
    }
}

/* Decides how much of the job is simulated, by the number of steps of its first rank. */
static int choose_extent(const struct tool_command *command, struct schedule_job *job, bool *kept)
{
    struct rf_schedule *schedule;
    int status = make_schedule(command, job, 0, &schedule);
    if (status != TOOL_OK)
        return status;
    uint64_t steps = (uint64_t)rf_schedule_step_count(schedule) * (uint64_t)job->ranks;
    job->algorithm = rf_schedule_algorithm(schedule);
    rf_schedule_destroy(schedule);
    if (steps > MOST_SIMULATED) {
        job->whole = true;
        status = make_schedule(command, job, 0, &schedule);
        if (status != TOOL_OK)
            return status;
        steps = (uint64_t)rf_schedule_step_count(schedule) * (uint64_t)job->ranks;
        rf_schedule_destroy(schedule);
    }
    *kept = steps <= MOST_SIMULATED;
    job->detailed = steps <= MOST_DETAILED && !job->whole;
    return TOOL_OK;
}

static int load(const struct tool_command *command, struct schedule_job *job, int rank, bool kept)
{
    struct schedule_rank *own = &job->of[rank];
    struct rf_schedule *schedule;
    int status = make_schedule(command, job, rank, &schedule);
    if (status != TOOL_OK)
        return status;
    if (schedule)
        count(job, rank, schedule);
    if (kept && !keep(own, schedule))
        status = out_of_memory(command);
    if (job->detailed)
        own->schedule = schedule;
    else
        rf_schedule_destroy(schedule);
    return status;
}

int schedule_job_make(const struct tool_command *command, const struct schedule_call *call,
                      struct schedule_job *job)
{
    bool kept = false;
    *job = (struct schedule_job){
        .call = call, .algorithm = call->algorithm, .ranks = call->desc.ranks};
    int status = choose_extent(command, job, &kept);
    if (status != TOOL_OK)
        return status;
    job->of = calloc((size_t)job->ranks, sizeof(*job->of));
    if (!job->of)
        return out_of_memory(command);
    for (int r = 0; r < job->ranks && status == TOOL_OK; r++)
        status = load(command, job, r, kept);
    if (status != TOOL_OK)
        return status;
    add_up(job);
    return kept ? simulate(command, job) : TOOL_OK;
}

void schedule_job_free(struct schedule_job *job)
{
    for (int r = 0; job->of && r < job->ranks; r++) {
        rf_schedule_destroy(job->of[r].schedule);
        free(job->of[r].list);
        free(job->of[r].first);
        free(job->of[r].next);
        free(job->of[r].receives);
    }
    free(job->of);
    free(job->ranges);
    *job = (struct schedule_job){0};
}

const struct rf_schedule *schedule_of(const struct schedule_job *job, int rank,
                                      struct rf_schedule **made)
{
    struct rf_schedule_desc desc;
    *made = NULL;
    if (job->of[rank].schedule || !schedule_desc_of(job->call, rank, &desc))
        return job->of[rank].schedule;
    if (job->whole)
        desc.segment_bytes = desc.window_bytes = SIZE_MAX;
    return rf_schedule_create(&desc, rank, job->algorithm, made) < 0 ? NULL : *made;
}
