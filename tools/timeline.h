/* SPDX-License-Identifier: MIT
 *
 * Timelines as pictures (SVG) that need nothing else: rows of boxes over a common time. For
 * `ringforge plan --plot` and `ringforge bench pipeline --plot`.
 */
#ifndef RF_TOOLS_TIMELINE_H
#define RF_TOOLS_TIMELINE_H

#include "svg.h"

/* What a box is, and its colour. */
enum timeline_kind {
    TIMELINE_OTHER = 0,
    TIMELINE_FORWARD,
    TIMELINE_AGAIN,    /* forward once more */
    TIMELINE_BACKWARD, /* for inputs */
    TIMELINE_WEIGHT,   /* backward for weights */
    TIMELINE_EXCHANGE, /* between phases of a call */
    TIMELINE_SEND,     /* and receive */
    TIMELINE_COLLECT,  /* of all other ranks */
    TIMELINE_OPTIMIZER,
    TIMELINE_KINDS
};

struct timeline_box {
    enum timeline_kind kind;
    double begin_s, end_s;
    int number;       /* in the box, where it is wide enough; negative: none */
    const char *what; /* shown where the mouse rests; NULL: nothing */
};

/* A picture that is drawn from top to bottom. Zeros at first. */
struct timeline {
    struct svg svg;
    double span_s; /* the whole width */
    int y;         /* where the next row begins */
    int panel;     /* where rows of this panel began */
    int row;       /* where the row of the next box begins, and its height */
    int height;
    bool used[TIMELINE_KINDS];
};

/* span_s: of all panels; boxes lie between 0 and that. */
void timeline_open(struct timeline *timeline, double span_s);
/* Rows under a heading. Before a row, and once more for each other part of the picture. */
void timeline_panel(struct timeline *timeline, const char *heading);
/* A row of a rank is high, and what else that rank does is low and stands below it. */
void timeline_row(struct timeline *timeline, const char *label, bool high);
void timeline_box(struct timeline *timeline, const struct timeline_box *box);
/* Draws the axis of the panel. */
void timeline_panel_end(struct timeline *timeline);
/* Writes the picture to the file, and frees what belongs to it. An exit status. */
int timeline_write(struct timeline *timeline, const struct tool_command *command, const char *path,
                   const char *title);

/* ---- timeline_sim.c: predicted steps --------------------------------------------------------- */

/* A panel of a simulated job: of each of its plans a row for what is computed and, with `lanes`,
 * one for each other lane that does something. */
void timeline_sim(struct timeline *timeline, const struct rf_sim *sim, const char *heading,
                  bool lanes);
/* The end of what ends last: beyond the step where steps overlap. */
double timeline_sim_end_s(const struct rf_sim *sim);
/* The share of the step in which a rank computes nothing: the mean over the plans. */
double timeline_sim_bubble(const struct rf_sim *sim);

#endif
