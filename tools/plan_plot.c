/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --plot: the predicted step as a timeline of the ranks that differ.
 */
#include <string.h>

#include "plan.h"
#include "timeline.h"

enum { TITLE = 320, HEADING = 192 };

/* The parallelism and the arithmetic of the step. */
static void say_title(const struct setup *setup, double bubble, char title[TITLE])
{
    const struct rf_policy *policy = &setup->policy;
    const bool stages = setup->mesh.pp > 1, again = strcmp(setup->again, "none") != 0;
    char mesh[64];
    snprintf(title, TITLE,
             "%s%s%s%s, zero %d, %s order, %s in %d micro-batches%s%s: bubble %.1f %%",
             setup_mesh_text(setup, mesh), stages ? ", " : "", stages ? setup->schedule : "",
             policy->sequence_parallel ? ", sequence parallel" : "", policy->zero,
             rf_order_name(policy->order), setup->dtype, (int)policy->micro_batches,
             again ? ", recompute " : "", again ? setup->again : "", 100 * bubble);
}

static void say_heading(const struct setup *setup, const struct prediction *prediction,
                        char heading[HEADING])
{
    char step[24];
    int drawn = 0;
    while (rf_sim_plan(prediction->sim, drawn))
        drawn++;
    snprintf(heading, HEADING, "predicted step %s, bound by %s; numbers: micro-batches%s%s",
             plan_time_text(prediction->result.step_s, step, sizeof(step)),
             rf_bound_name(prediction->result.bound),
             setup->policy.pipeline == RF_PIPELINE_2BW ? "; steps overlap" : "",
             drawn < setup_ranks(setup) ? "; ranks that are alike are drawn once" : "");
}

int plan_plot_write(const struct tool_command *command, const char *path, const struct setup *setup,
                    const struct prediction *prediction)
{
    char title[TITLE], heading[HEADING];
    struct timeline picture;
    say_title(setup, timeline_sim_bubble(prediction->sim), title);
    say_heading(setup, prediction, heading);
    timeline_open(&picture, timeline_sim_end_s(prediction->sim));
    timeline_sim(&picture, prediction->sim, heading, true);
    return timeline_write(&picture, command, path, title);
}
