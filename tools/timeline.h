/* SPDX-License-Identifier: MIT
 *
 * Timelines as pictures (SVG) without external resources: rows of boxes over a common time. For
 * `ringforge plan --plot` and `ringforge bench pipeline --plot`.
 */
#ifndef RF_TOOLS_TIMELINE_H
#define RF_TOOLS_TIMELINE_H

#include "svg.h"

/* The kind of a box, which sets its colour. */
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
    int number;       /* in the box, if it is wide enough; negative: none */
    const char *what; /* tooltip; NULL: none */
};

/* A picture that is drawn from top to bottom. Zero-initialised. */
struct timeline {
    struct svg svg;
    double span_s; /* the whole width */
    int y;         /* start of the next row */
    int panel;     /* start of this panel's rows */
    int row;       /* start of the row of the next box, and its height */
    int height;
    bool used[TIMELINE_KINDS];
};

/* span_s: of all panels; boxes lie between 0 and that. */
void timeline_open(struct timeline *timeline, double span_s);
/* Rows under a heading. Called before a row, and once more for each further part of the picture. */
void timeline_panel(struct timeline *timeline, const char *heading);
/* A high row for a rank; low ones below it for its other lanes. */
void timeline_row(struct timeline *timeline, const char *label, bool high);
void timeline_box(struct timeline *timeline, const struct timeline_box *box);
/* Draws the axis of the panel. */
void timeline_panel_end(struct timeline *timeline);
/* Writes the picture to the file, and frees its memory. An exit status. */
int timeline_write(struct timeline *timeline, const struct tool_command *command, const char *path,
                   const char *title);

/* ---- timeline_sim.c: predicted steps --------------------------------------------------------- */

/* A panel of a simulated job: for each of its plans a row for computation and, with `lanes`, one
 * for each other lane in use. */
void timeline_sim(struct timeline *timeline, const struct rf_sim *sim, const char *heading,
                  bool lanes);
/* The end of the last box: beyond the step if steps overlap. */
double timeline_sim_end_s(const struct rf_sim *sim);
/* The share of the step in which a rank computes nothing: the mean over the plans. */
double timeline_sim_bubble(const struct rf_sim *sim);

#endif
