/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --sync: the same workers, if they trained data-parallel.
 */
#include <string.h>

#include "plan.h"

int plan_beside(const struct tool_command *command, const struct plan_sync *sync,
                const struct setup *setup, const struct model *model, const struct plan_view *view,
                struct plan_beside *out)
{
    struct setup all = *setup;
    struct rf_plan *plan = NULL;
    struct rf_bytes bytes;
    all.policy.optimizer = sync->optimizer;
    all.policy.clip = sync->clip;
    all.policy.uses_apart = false;
    all.mesh.dp *= sync->workers;
    all.policy.batch *= sync->workers;
    all.policy.micro_batches *= sync->workers;
    if (rf_plan_build((struct rf_blocks){model->blocks, model->count}, &all.mesh, &all.policy, 0,
                      &plan) < 0) {
        snprintf(out->reason, sizeof(out->reason), "%s", rf_last_error()->message);
        return TOOL_OK;
    }
    rf_plan_bytes(plan, &bytes);
    out->sent = (double)bytes.sent;
    const int status = view->prediction->sim ? predict(command, plan, view->costs, &all,
                                                       view->rates, &out->prediction)
                                             : TOOL_OK;
    rf_plan_destroy(plan);
    return status;
}

void plan_beside_print(const struct plan_beside *beside, const char *who, double sent)
{
    char text[24];
    if (!beside->reason[0])
        printf("; by data-parallel training of the same %s %s", who,
               tool_bytes_text((uint64_t)beside->sent, text, sizeof(text)));
    if (!beside->reason[0] && sent > 0)
        printf(" (%.*f times as much)", beside->sent < 100 * sent ? 1 : 0, beside->sent / sent);
    printf("\n");
    if (beside->reason[0])
        printf("The same %s cannot train data-parallel: %s\n", who, beside->reason);
}

void plan_beside_print_time(const struct plan_beside *beside)
{
    char text[24];
    const struct prediction *p = &beside->prediction;
    if (p->sim)
        printf("; data-parallel %s, %.0f tokens/s",
               plan_time_text(p->result.step_s, text, sizeof(text)), p->tokens_per_s);
    printf("\n");
}

void plan_beside_to_json(const struct plan_beside *beside, cJSON *object)
{
    if (!beside->reason[0])
        cJSON_AddNumberToObject(object, "data_parallel_sent", beside->sent);
    if (beside->prediction.sim)
        tool_json_put(object, "data_parallel_step_us=%g data_parallel_tokens_per_s=%g",
                      1e6 * beside->prediction.result.step_s, beside->prediction.tokens_per_s);
}
