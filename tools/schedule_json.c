/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule --json: the summary, and the steps of every rank, or of the one that was asked
 * for. Names: docs/json.md.
 */
#include <math.h>
#include <string.h>

#include "schedule.h"

static void add_algorithms(cJSON *json, const struct schedule_job *job)
{
    struct rf_schedule_algorithm_info infos[32];
    uint32_t count = 0;
    cJSON *list = cJSON_AddArrayToObject(json, "algorithms");
    if (rf_schedule_algorithms(&job->call->desc, infos, 32, &count) < 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", infos[i].name);
        cJSON_AddStringToObject(row, "note", infos[i].note);
        cJSON_AddBoolToObject(row, "chosen", infos[i].chosen);
        cJSON_AddStringToObject(row, "reason", infos[i].why_not ? infos[i].why_not : "");
        cJSON_AddItemToArray(list, row);
    }
}

static cJSON *place_json(struct rf_schedule_place place)
{
    static const char *const names[] = {"in", "out", "temp"};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "space", names[place.space]);
    cJSON_AddNumberToObject(json, "offset", (double)place.offset);
    return json;
}

static bool writes(enum rf_schedule_verb verb)
{
    return verb != RF_SCHEDULE_SEND && verb != RF_SCHEDULE_JOIN && verb != RF_SCHEDULE_AGREE;
}

static cJSON *step_json(const struct schedule_job *job, int rank,
                        const struct rf_schedule *schedule, uint32_t number)
{
    const struct schedule_step *own = job->simulated ? &job->of[rank].list[number] : NULL;
    struct rf_schedule_step step;
    struct rf_schedule_place place;
    cJSON *json = cJSON_CreateObject();
    if (rf_schedule_get_step(schedule, number, &step) < 0)
        return json;
    cJSON_AddStringToObject(json, "verb", rf_schedule_verb_name(step.verb));
    cJSON_AddNumberToObject(json, "round", own ? own->round : NAN);
    cJSON_AddNumberToObject(json, "bytes", (double)step.bytes);
    if (step.peer >= 0) {
        cJSON_AddNumberToObject(json, "peer", step.peer);
        cJSON_AddNumberToObject(json, "tag", step.tag);
    }
    cJSON *ranges = cJSON_AddArrayToObject(json, "elements");
    for (uint32_t i = 0; own && i < own->range_count; i++) {
        const struct rf_schedule_range *range = &job->ranges[own->range + i];
        const double pair[2] = {(double)range->first, (double)range->count};
        cJSON_AddItemToArray(ranges, cJSON_CreateDoubleArray(pair, 2));
    }
    if (writes(step.verb))
        cJSON_AddItemToObject(json, "to", place_json(step.to));
    cJSON *from = cJSON_AddArrayToObject(json, "from");
    for (uint32_t i = 0; i < step.operands; i++)
        if (rf_schedule_get_operand(schedule, number, i, &place) == 0)
            cJSON_AddItemToArray(from, place_json(place));
    cJSON *after = cJSON_AddArrayToObject(json, "after");
    for (uint32_t i = 0; i < step.after_count; i++)
        cJSON_AddItemToArray(after, cJSON_CreateNumber(step.after[i]));
    return json;
}

static cJSON *rank_json(const struct schedule_job *job, int rank, bool with_steps)
{
    const struct schedule_rank *own = &job->of[rank];
    struct rf_schedule *made = NULL;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rank", rank);
    cJSON_AddNumberToObject(json, "host", job->call->hosts ? job->call->hosts[rank] : 0);
    cJSON_AddNumberToObject(json, "step_count", own->steps);
    cJSON_AddNumberToObject(json, "messages", own->messages);
    cJSON_AddNumberToObject(json, "sent_bytes", (double)own->sent_bytes);
    cJSON_AddNumberToObject(json, "temp_bytes", (double)own->temp_bytes);
    if (!with_steps)
        return json;
    cJSON *steps = cJSON_AddArrayToObject(json, "steps");
    const struct rf_schedule *schedule = schedule_of(job, rank, &made);
    for (uint32_t k = 0; schedule && k < own->steps; k++)
        cJSON_AddItemToArray(steps, step_json(job, rank, schedule, k));
    rf_schedule_destroy(made);
    return json;
}

int schedule_write_json(const struct tool_command *command, const struct schedule_job *job,
                        int rank, const char *path)
{
    const struct rf_schedule_desc *desc = &job->call->desc;
    const char *formula;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", rf_coll_op_name(desc->op));
    cJSON_AddNumberToObject(json, "ranks", desc->ranks);
    cJSON_AddNumberToObject(json, "count", (double)schedule_elements(job->call));
    cJSON_AddStringToObject(json, "dtype", rf_dtype_name(desc->dtype));
    cJSON_AddStringToObject(json, "redop", rf_redop_name(desc->redop));
    cJSON_AddStringToObject(json, "order", rf_order_name(desc->order));
    cJSON_AddNumberToObject(json, "root", desc->root);
    cJSON_AddStringToObject(json, "algorithm", job->algorithm);
    add_algorithms(json, job);
    cJSON_AddBoolToObject(json, "in_one_piece", job->whole);
    cJSON_AddNumberToObject(json, "rounds", job->simulated ? job->rounds : NAN);
    cJSON_AddNumberToObject(json, "step_count", (double)job->steps);
    cJSON_AddNumberToObject(json, "messages", (double)job->messages);
    cJSON_AddNumberToObject(json, "sent_bytes", (double)job->sent_bytes);
    cJSON_AddNumberToObject(json, "most_sent_bytes", (double)job->most_sent_bytes);
    cJSON_AddNumberToObject(json, "least_sent_bytes",
                            (double)schedule_least_bytes(job->call, &formula));
    cJSON_AddNumberToObject(json, "between_hosts_bytes", (double)job->between_bytes);
    cJSON_AddNumberToObject(json, "most_temp_bytes", (double)job->most_temp_bytes);
    cJSON *list = cJSON_AddArrayToObject(json, "per_rank");
    for (int r = 0; r < job->ranks; r++)
        if (rank < 0 || r == rank)
            cJSON_AddItemToArray(list, rank_json(job, r, rank >= 0 || job->detailed));
    return tool_json_write(command, path, json);
}
