/* SPDX-License-Identifier: MIT
 *
 * Timelines as SVG: see timeline.h. The colours are those of Okabe and Ito, which people with any
 * colour vision tell apart; boxes have an outline, so that they are visible on light and on dark.
 */
#include "timeline.h"

#include <math.h>

#include "plan.h"

enum {
    WIDTH = 1160, /* of the picture, in its own units */
    LEFT = 120,   /* where time begins */
    PLOT = WIDTH - LEFT - 20,
    HIGH = 18,
    LOW = 7,
    TOP = 30, /* below the title */
    HEADING = 22,
    AXIS = 24,
    LEGEND_COLUMNS = 5,
    LEGEND_ROW = 18,
    DIGIT = 6 /* of a number in a box */
};

static const struct {
    const char *name, *colour;
} kinds[TIMELINE_KINDS] = {
    [TIMELINE_FORWARD] = {"forward", "#56b4e9"},
    [TIMELINE_AGAIN] = {"forward again (recomputation)", "#b3def5"},
    [TIMELINE_BACKWARD] = {"backward for inputs", "#e69f00"},
    [TIMELINE_WEIGHT] = {"backward for weights", "#1fb58f"},
    [TIMELINE_EXCHANGE] = {"exchange within a call", "#cc79a7"},
    [TIMELINE_SEND] = {"send and receive", "#f0e442"},
    [TIMELINE_COLLECT] = {"other collective", "#4c8fd0"},
    [TIMELINE_OPTIMIZER] = {"optimizer", "#e8743b"},
    [TIMELINE_OTHER] = {"other", "#b0b0b0"},
};

/* Text on boxes is dark in both; text beside them follows the background. */
static const char style[] =
    "rect,circle{stroke:#1b1b1b;stroke-width:.4}line{stroke:#ddd}.s{font-size:8px}.n{fill:#000}"
    "@media(prefers-color-scheme:dark){rect,circle{stroke:#e6e6e6}line{stroke:#3a3f47}}";

/* ---- rows ------------------------------------------------------------------------------------ */

void timeline_open(struct timeline *t, double span_s)
{
    *t = (struct timeline){.span_s = span_s, .y = TOP};
    svg_open(&t->svg);
}

static double x_of(const struct timeline *t, double seconds)
{
    return LEFT + (t->span_s > 0 ? PLOT * seconds / t->span_s : 0);
}

void timeline_panel(struct timeline *t, const char *heading)
{
    t->y += HEADING;
    t->panel = t->y;
    if (t->svg.body)
        svg_words(t->svg.body, LEFT, t->y - 8, "h", heading);
}

void timeline_row(struct timeline *t, const char *label, bool high)
{
    t->y += high ? 4 : 0;
    t->row = t->y;
    t->height = high ? HIGH : LOW;
    t->y += t->height + 1;
    if (t->svg.body)
        svg_words(t->svg.body, LEFT - 6, t->row + (high ? 13 : LOW), high ? "l" : "l s", label);
}

static int digits(int number)
{
    int count = 1;
    for (; number >= 10; number /= 10)
        count++;
    return count;
}

void timeline_box(struct timeline *t, const struct timeline_box *box)
{
    const double x = x_of(t, box->begin_s), width = x_of(t, box->end_s) - x;
    t->used[box->kind] = true;
    if (!t->svg.body)
        return;
    fprintf(t->svg.body, "<rect class=\"k%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"",
            (int)box->kind, x, t->row, fmax(width, 0.2), t->height);
    if (box->what) {
        char length[24];
        fprintf(t->svg.body, "><title>");
        svg_put(t->svg.body, box->what);
        fprintf(t->svg.body, ": %s</title></rect>\n",
                plan_time_text(box->end_s - box->begin_s, length, sizeof(length)));
    } else {
        fprintf(t->svg.body, "/>\n");
    }
    if (box->number >= 0 && t->height == HIGH && width >= DIGIT * digits(box->number) + 1)
        fprintf(t->svg.body, "<text class=\"n\" x=\"%.1f\" y=\"%d\">%d</text>\n", x + width / 2,
                t->row + 13, box->number);
}

/* 1, 2 or 5 times a power of ten, so that there are about eight. */
static double tick_s(double span_s)
{
    const double rough = span_s / 8, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

void timeline_panel_end(struct timeline *t)
{
    char text[24];
    const int bottom = t->y;
    t->y += AXIS;
    if (!t->svg.body || !(t->span_s > 0) || !isfinite(t->span_s))
        return;
    const double tick = tick_s(t->span_s);
    for (int k = 0; k * tick <= t->span_s * (1 + 1e-9); k++) {
        const double x = x_of(t, k * tick);
        fprintf(t->svg.body,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\">%s"
                "</text>\n",
                x, bottom, x, bottom + 6, x, bottom + 17,
                k ? plan_time_text(k * tick, text, sizeof(text)) : "0");
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_legend(struct timeline *t)
{
    int k = 0;
    for (int last = 1; last <= TIMELINE_KINDS; last++) {
        const int kind = last % TIMELINE_KINDS; /* the others last */
        if (!t->used[kind])
            continue;
        const int x = LEFT + k % LEGEND_COLUMNS * (PLOT / LEGEND_COLUMNS);
        const int y = t->y + 12 + k / LEGEND_COLUMNS * LEGEND_ROW;
        fprintf(t->svg.body, "<circle class=\"k%d\" cx=\"%d\" cy=\"%d\" r=\"5\"/>", kind, x + 5, y);
        svg_words(t->svg.body, x + 14, y + 4, "h", kinds[kind].name);
        k++;
    }
    t->y += 12 + (k + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS * LEGEND_ROW;
}

int timeline_write(struct timeline *t, const struct tool_command *command, const char *path,
                   const char *title)
{
    char all[sizeof(style) + TIMELINE_KINDS * 24];
    int used = snprintf(all, sizeof(all), "%s", style);
    if (t->svg.body)
        put_legend(t);
    for (int kind = 0; kind < TIMELINE_KINDS; kind++)
        if (t->used[kind])
            used += snprintf(all + used, sizeof(all) - (size_t)used, ".k%d{fill:%s}", kind,
                             kinds[kind].colour);
    const struct svg_page page = {.width = WIDTH,
                                  .height = t->y,
                                  .left = LEFT,
                                  .title_size = 14,
                                  .text_size = 11,
                                  .title = title,
                                  .style = all};
    int status = svg_write(&t->svg, command, path, &page);
    *t = (struct timeline){0};
    return status;
}
