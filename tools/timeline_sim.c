/* SPDX-License-Identifier: MIT
 *
 * A predicted step as a timeline: a box for each instruction of each simulated plan.
 */
#include "timeline.h"

/* Verbs that are not here are TIMELINE_OTHER. */
static const enum timeline_kind kind_of[RF_VERB_COUNT] = {
    [RF_VERB_FORWARD] = TIMELINE_FORWARD,
    [RF_VERB_RECOMPUTE] = TIMELINE_AGAIN,
    [RF_VERB_INVERT] = TIMELINE_AGAIN,
    [RF_VERB_BACKWARD_INPUT] = TIMELINE_BACKWARD,
    [RF_VERB_BACKWARD_WEIGHT] = TIMELINE_WEIGHT,
    [RF_VERB_REDUCE] = TIMELINE_COLLECT,
    [RF_VERB_LOSS] = TIMELINE_COLLECT,
    [RF_VERB_SQUARES] = TIMELINE_OPTIMIZER,
    [RF_VERB_NORM_PARTIAL] = TIMELINE_OPTIMIZER,
    [RF_VERB_NORM_SHARE] = TIMELINE_COLLECT,
    [RF_VERB_NORM] = TIMELINE_OPTIMIZER,
    [RF_VERB_BEGIN_STEP] = TIMELINE_OPTIMIZER,
    [RF_VERB_STEP] = TIMELINE_OPTIMIZER,
    [RF_VERB_END_STEP] = TIMELINE_OPTIMIZER,
    [RF_VERB_GATHER] = TIMELINE_COLLECT,
    [RF_VERB_BROADCAST] = TIMELINE_COLLECT,
    [RF_VERB_HOST_STEP] = TIMELINE_OPTIMIZER,
    [RF_VERB_SEND] = TIMELINE_SEND,
    [RF_VERB_RECV] = TIMELINE_SEND,
    [RF_VERB_EXCHANGE] = TIMELINE_EXCHANGE,
};

/* False: nothing runs on the lane. */
static bool draw_lane(struct timeline *t, const struct rf_sim *sim, int number, int lane,
                      const char *label)
{
    const struct rf_plan *plan = rf_sim_plan(sim, number);
    int count;
    bool drawn = false;
    const struct rf_instruction *list = rf_plan_instructions(plan, &count);
    const struct rf_sim_time *times = rf_sim_times(sim, number, &count);
    for (int k = 0; k < count; k++) {
        char text[96];
        if ((int)list[k].lane != lane)
            continue;
        if (!drawn)
            timeline_row(t, label, lane == RF_LANE_COMPUTE);
        drawn = true;
        timeline_box(
            t, &(struct timeline_box){kind_of[list[k].verb], times[k].begin_s, times[k].end_s,
                                      list[k].micro_batch,
                                      rf_instruction_text(plan, &list[k], text, sizeof(text))});
    }
    return drawn;
}

void timeline_sim(struct timeline *t, const struct rf_sim *sim, const char *heading, bool lanes)
{
    const struct rf_plan *plan;
    timeline_panel(t, heading);
    for (int number = 0; (plan = rf_sim_plan(sim, number)); number++) {
        char label[32];
        snprintf(label, sizeof(label), "rank %d", rf_plan_rank(plan));
        draw_lane(t, sim, number, RF_LANE_COMPUTE, label);
        for (int lane = 0; lanes && lane < RF_LANE_COUNT; lane++)
            if (lane != RF_LANE_COMPUTE)
                draw_lane(t, sim, number, lane, rf_lane_name((enum rf_lane)lane));
    }
    timeline_panel_end(t);
}

double timeline_sim_end_s(const struct rf_sim *sim)
{
    double end_s = 0;
    for (int number = 0; rf_sim_plan(sim, number); number++) {
        int count;
        const struct rf_sim_time *times = rf_sim_times(sim, number, &count);
        for (int k = 0; k < count; k++)
            end_s = times[k].end_s > end_s ? times[k].end_s : end_s;
    }
    return end_s;
}

double timeline_sim_bubble(const struct rf_sim *sim)
{
    double sum = 0;
    int count = 0;
    for (; rf_sim_plan(sim, count); count++) {
        struct rf_sim_result result;
        rf_sim_get_result(sim, count, &result);
        sum += result.idle;
    }
    return count ? sum / count : 0;
}
