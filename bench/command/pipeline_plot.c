/* SPDX-License-Identifier: MIT
 *
 * ringforge bench pipeline --plot: the step of one schedule as predicted by the plan's simulator,
 * and below it as measured, over the same time.
 */
#include <math.h>
#include <string.h>

#include "timed.h"
#include "tools/plan.h"
#include "tools/timeline.h"

enum { FIELDS = sizeof(struct timed_mark) / sizeof(double) };

static enum timeline_kind kind_of(double verb)
{
    return verb == RF_VERB_FORWARD          ? TIMELINE_FORWARD
           : verb == RF_VERB_BACKWARD_INPUT ? TIMELINE_BACKWARD
                                            : TIMELINE_WEIGHT;
}

static void draw_measured(struct timeline *picture, const struct timed_marks *of_rank, int ranks,
                          const char *heading)
{
    timeline_panel(picture, heading);
    for (int rank = 0; rank < ranks; rank++) {
        char label[32];
        snprintf(label, sizeof(label), "rank %d", rank);
        timeline_row(picture, label, true);
        for (int k = 0; k < TIMED_CALLS && of_rank[rank].all[k].verb >= 0; k++) {
            const struct timed_mark *mark = &of_rank[rank].all[k];
            timeline_box(picture, &(struct timeline_box){kind_of(mark->verb), mark->begin_s,
                                                         mark->end_s, (int)mark->micro_batch});
        }
    }
    timeline_panel_end(picture);
}

static void say(const char *how, double step_s, double bubble, char *text, size_t bytes)
{
    char step[24];
    snprintf(text, bytes, "%s: step %s, bubble %.1f %%; numbers: micro-batches", how,
             plan_time_text(step_s, step, sizeof(step)), 100 * bubble);
}

static int draw(const struct tool_command *command, const char *path, const struct timed_setting *s,
                const struct timed_result *result, const double idle[2],
                const struct timed_marks *of_rank)
{
    const double longest = fmax(timeline_sim_end_s(result->sim), result->step_s);
    char heading[2][96], title[256];
    struct timeline picture;
    say("predicted", result->planned_s, idle[0], heading[0], sizeof(heading[0]));
    say("measured", result->step_s, idle[1], heading[1], sizeof(heading[1]));
    snprintf(title, sizeof(title),
             "%s on %d ranks, %d micro-batches: bubble %.1f %% predicted, %.1f %% measured",
             s->name, s->ranks, s->micro_batches, 100 * idle[0], 100 * idle[1]);
    timeline_open(&picture, longest);
    timeline_sim(&picture, result->sim, heading[0], false);
    draw_measured(&picture, of_rank, s->ranks, heading[1]);
    return timeline_write(&picture, command, path, title);
}

int timed_draw(const struct tool_command *command, struct rf_comm *comm, const char *path,
               const struct timed_setting *s, const struct timed_result *result,
               const double idle[2], const struct timed_marks *marks)
{
    const int rank = rf_comm_rank(comm);
    struct timed_marks *of_rank = rank == 0 ? calloc((size_t)s->ranks, sizeof(*of_rank)) : NULL;
    int status = TOOL_OK;
    if (rank == 0 && !of_rank)
        return tool_error(command, "out of memory while drawing %s", path);
    if (rf_gather(comm, marks, of_rank, (size_t)TIMED_CALLS * FIELDS, RF_F64, 0, NULL) < 0)
        status = tool_library_error(command, rank);
    else if (rank == 0)
        status = draw(command, path, s, result, idle, of_rank);
    free(of_rank);
    return status;
}
