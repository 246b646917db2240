/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule --json: the summary, and the steps of every rank, or of the requested one.
 * Names: docs/json.md.
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
        tool_json_row(list, "name=%s note=%s chosen=%hhd reason=%s", infos[i].name, infos[i].note,
                      infos[i].chosen, infos[i].why_not ? infos[i].why_not : "");
    }
}

static cJSON *place_json(struct rf_schedule_place place)
{
    static const char *const names[] = {"in", "out", "temp"};
    cJSON *json = tool_json_new("space=%s offset=%g", names[place.space], (double)place.offset);
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
    tool_json_put(json, "verb=%s round=%g bytes=%g", rf_schedule_verb_name(step.verb),
                  own ? own->round : NAN, (double)step.bytes);
    if (step.peer >= 0) {
        tool_json_put(json, "peer=%d tag=%u", step.peer, step.tag);
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
    cJSON *json =
        tool_json_new("rank=%d host=%d step_count=%u messages=%u sent_bytes=%g temp_bytes=%g", rank,
                      job->call->hosts ? job->call->hosts[rank] : 0, own->steps, own->messages,
                      (double)own->sent_bytes, (double)own->temp_bytes);
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
    cJSON *json =
        tool_json_new("op=%s ranks=%d count=%g dtype=%s redop=%s order=%s root=%d algorithm=%s",
                      rf_coll_op_name(desc->op), desc->ranks, (double)schedule_elements(job->call),
                      rf_dtype_name(desc->dtype), rf_redop_name(desc->redop),
                      rf_order_name(desc->order), desc->root, job->algorithm);
    add_algorithms(json, job);
    tool_json_put(
        json,
        "in_one_piece=%hhd rounds=%g step_count=%g messages=%g sent_bytes=%g most_sent_bytes=%g "
        "least_sent_bytes=%g between_hosts_bytes=%g most_temp_bytes=%g",
        job->whole, job->simulated ? job->rounds : NAN, (double)job->steps, (double)job->messages,
        (double)job->sent_bytes, (double)job->most_sent_bytes,
        (double)schedule_least_bytes(job->call, &formula), (double)job->between_bytes,
        (double)job->most_temp_bytes);
    cJSON *list = cJSON_AddArrayToObject(json, "per_rank");
    for (int r = 0; r < job->ranks; r++)
        if (rank < 0 || r == rank)
            cJSON_AddItemToArray(list, rank_json(job, r, rank >= 0 || job->detailed));
    return tool_json_write(command, path, json);
}
