/* SPDX-License-Identifier: MIT
 *
 * ringforge bench pipeline --plot: the step of one schedule as the plan's simulator predicts it,
 * and below it as it was measured, over the same time.
 */
#include <math.h>
#include <string.h>

#include "pipeline.h"
#include "tools/plan.h"
#include "tools/timeline.h"

enum { FIELDS = sizeof(struct timed_mark) / sizeof(double) };

int pipeline_keep_best(struct rf_comm *comm, const struct timed_device *timed, bool best,
                       struct pipeline_marks *marks)
{
    int32_t keep = best;
    int rc = rf_broadcast(comm, &keep, 1, RF_I32, 0, NULL);
    if (rc < 0 || !keep)
        return rc;
    for (uint64_t k = 0; k < TIMED_CALLS; k++)
        marks->all[k] = k < timed->marked ? timed->marks[k] : (struct timed_mark){.verb = -1};
    return 0;
}

static enum timeline_kind kind_of(double verb)
{
    return verb == RF_VERB_FORWARD          ? TIMELINE_FORWARD
           : verb == RF_VERB_BACKWARD_INPUT ? TIMELINE_BACKWARD
                                            : TIMELINE_WEIGHT;
}

static void draw_measured(struct timeline *picture, const struct pipeline_marks *of_rank, int ranks,
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

static int draw(const struct tool_command *command, const struct pipeline_picture *what,
                const struct pipeline_marks *of_rank)
{
    const double longest = fmax(timeline_sim_end_s(what->sim), what->measured_s);
    char heading[2][96], title[256];
    struct timeline picture;
    say("predicted", what->planned_s, what->planned_bubble, heading[0], sizeof(heading[0]));
    say("measured", what->measured_s, what->measured_bubble, heading[1], sizeof(heading[1]));
    snprintf(title, sizeof(title),
             "%s on %d ranks, %d micro-batches: bubble %.1f %% predicted, %.1f %% measured",
             what->schedule, what->ranks, what->micro_batches, 100 * what->planned_bubble,
             100 * what->measured_bubble);
    timeline_open(&picture, longest);
    timeline_sim(&picture, what->sim, heading[0], false);
    draw_measured(&picture, of_rank, what->ranks, heading[1]);
    return timeline_write(&picture, command, what->path, title);
}

int pipeline_draw(const struct tool_command *command, struct rf_comm *comm,
                  const struct pipeline_picture *what, const struct pipeline_marks *marks,
                  int *status)
{
    const bool root = rf_comm_rank(comm) == 0;
    struct pipeline_marks *of_rank = root ? calloc((size_t)what->ranks, sizeof(*of_rank)) : NULL;
    *status = TOOL_OK;
    if (root && !of_rank) {
        *status = tool_error(command, "out of memory while drawing %s", what->path);
        return 0;
    }
    int rc = rf_gather(comm, marks, of_rank, (size_t)TIMED_CALLS * FIELDS, RF_F64, 0, NULL);
    if (rc == 0 && root)
        *status = draw(command, what, of_rank);
    free(of_rank);
    return rc;
}
