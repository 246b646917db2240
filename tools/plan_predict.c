/* SPDX-License-Identifier: MIT
 *
 * A predicted step in numbers, for people and as JSON.
 */
#include "plan.h"

int predict(const struct tool_command *command, const struct rf_plan *plan,
            const struct rf_block_cost *costs, const struct setup *setup,
            const struct plan_rates *rates, struct prediction *out)
{
    const struct rf_sim_opts opts = {.costs = costs, .rates = rates->rates};
    *out = (struct prediction){NULL};
    if (rf_plan_simulate_job(plan, &opts, &out->sim) < 0)
        return tool_library_error(command, -1);
    rf_sim_get_result(out->sim, 0, &out->result);
    const double tokens = (double)setup->policy.batch * (double)setup->policy.seq;
    out->tokens_per_s = out->result.step_s > 0 ? tokens / out->result.step_s : 0;
    return TOOL_OK;
}

void prediction_free(struct prediction *prediction)
{
    rf_sim_destroy(prediction->sim);
    prediction->sim = NULL;
}

const char *plan_time_text(double seconds, char *text, size_t bytes)
{
    static const char *const units[] = {"s", "ms", "us"};
    int unit = 0;
    while (seconds < 0.9995 && unit < 2) {
        seconds *= 1000;
        unit++;
    }
    snprintf(text, bytes, "%.*f %s",
             seconds < 9.995   ? 2
             : seconds < 99.95 ? 1
                               : 0,
             seconds, units[unit]);
    return text;
}

void prediction_print(const struct prediction *p)
{
    const struct rf_sim_result *r = &p->result;
    const char *comma = " (";
    char text[2][24];
    printf("Predicted step: %s, %.0f tokens/s, model FLOPs utilization %.1f %%; bound by %s",
           plan_time_text(r->step_s, text[0], sizeof(text[0])), p->tokens_per_s, 100 * r->mfu,
           rf_bound_name(r->bound));
    for (int k = 0; k < RF_BOUND_COUNT && r->step_s > 0; k++) {
        if (r->path_s[k] <= 0)
            continue;
        printf("%s%s %.0f %%", comma, rf_bound_name((enum rf_bound)k),
               100 * r->path_s[k] / r->step_s);
        comma = ", ";
    }
    printf("%s\nof it exposed communication %s; nothing to compute for %.1f %%\n",
           comma[0] == ',' ? ")" : "", plan_time_text(r->exposed_s, text[1], sizeof(text[1])),
           100 * r->idle);
}

void prediction_json(const struct prediction *p, cJSON *json)
{
    const struct rf_sim_result *r = &p->result;
    cJSON *object = cJSON_AddObjectToObject(json, "prediction");
    tool_json_put(object, "step_us=%g tokens_per_s=%g mfu=%g exposed_comm_us=%g idle=%g bound=%s",
                  1e6 * r->step_s, p->tokens_per_s, r->mfu, 1e6 * r->exposed_s, r->idle,
                  rf_bound_name(r->bound));
    cJSON *path = cJSON_AddObjectToObject(object, "path_us");
    for (int k = 0; k < RF_BOUND_COUNT; k++)
        cJSON_AddNumberToObject(path, rf_bound_name((enum rf_bound)k), 1e6 * r->path_s[k]);
    cJSON *busy = cJSON_AddObjectToObject(object, "busy_us");
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        cJSON_AddNumberToObject(busy, rf_lane_name((enum rf_lane)lane), 1e6 * r->busy_s[lane]);
}
