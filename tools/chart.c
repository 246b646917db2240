/* SPDX-License-Identifier: MIT
 *
 * Lines or bars over two axes, as SVG: the loss of a training, figures by size, a histogram.
 */
#include <math.h>
#include <string.h>

#include "svg.h"

enum { WIDTH = 900, HEIGHT = 520, LEFT = 80, RIGHT = 880, TOP = 48, BOTTOM = 460, COLOURS = 6 };
enum { MOST_POINTS = 64 }; /* of a line whose points are marked */

struct axis {
    bool log;
    double least, most, begin, end; /* values, and where they are in the picture */
};

static bool is_drawn(const struct tool_plot *plot, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!plot->log_x || x > 0) && (!plot->log_y || y > 0);
}

static void include(struct axis *a, double value)
{
    a->least = fmin(a->least, value);
    a->most = fmax(a->most, value);
}

/* Axes that hold every point. */
static void find_axes(const struct tool_plot *plot, struct axis *x, struct axis *y)
{
    *x = (struct axis){plot->log_x, INFINITY, -INFINITY, LEFT, RIGHT};
    *y = (struct axis){plot->log_y, INFINITY, -INFINITY, BOTTOM, TOP};
    for (int s = 0; s < plot->series_count; s++)
        for (int i = 0; i < plot->series[s].count; i++)
            if (is_drawn(plot, plot->series[s].x[i], plot->series[s].y[i])) {
                include(x, plot->series[s].x[i] - (plot->bars ? 0.5 : 0));
                include(x, plot->series[s].x[i] + (plot->bars ? 0.5 : 0));
                include(y, plot->bars ? 0 : plot->series[s].y[i]);
                include(y, plot->series[s].y[i]);
            }
    for (int k = 0; k < 2; k++) {
        struct axis *a = k == 0 ? x : y;
        if (a->least > a->most)
            a->least = a->most = 1;
        if (a->least == a->most && a->log)
            a->most = a->least * 2;
        else if (a->least == a->most)
            a->most = a->least + 1;
    }
}

static double place(const struct axis *a, double value)
{
    const double share = a->log ? log(value / a->least) / log(a->most / a->least)
                                : (value - a->least) / (a->most - a->least);
    return a->begin + share * (a->end - a->begin);
}

/* The mark after this one: 1, 2 or 5 times a power of ten apart, or on a logarithmic axis of many
 * decades powers of ten. */
static double step_of(const struct axis *a)
{
    const double rough = (a->most - a->least) / 6, power = pow(10, floor(log10(rough)));
    return power * (rough < 2 * power ? 2 : rough < 5 * power ? 5 : 10);
}

static double next_mark(const struct axis *a, double mark)
{
    const double power = pow(10, floor(log10(mark) + 1e-9)), first = mark / power;
    if (!a->log)
        return mark + step_of(a);
    if (a->most / a->least > 1e4)
        return mark * 10;
    return power * (first < 1.5 ? 2 : first < 3 ? 5 : 10);
}

static double first_mark(const struct axis *a)
{
    if (!a->log)
        return ceil(a->least / step_of(a) - 1e-9) * step_of(a);
    double mark = pow(10, floor(log10(a->least)));
    while (mark < a->least * (1 - 1e-9))
        mark = next_mark(a, mark);
    return mark;
}

static void draw_axis(FILE *file, const struct axis *a, bool across)
{
    char text[32];
    for (double mark = first_mark(a); mark <= a->most * (1 + 1e-9); mark = next_mark(a, mark)) {
        const double at = place(a, mark);
        if (across)
            fprintf(file, "<path class=\"g\" d=\"M%.1f %dV%d\"/>\n", at, TOP, BOTTOM);
        else
            fprintf(file, "<path class=\"g\" d=\"M%d %.1fH%d\"/>\n", LEFT, at, RIGHT);
        snprintf(text, sizeof(text), "%.4g", fabs(mark) < 1e-12 ? 0 : mark);
        svg_words(file, across ? at : LEFT - 8, across ? BOTTOM + 18 : at + 4, across ? "t" : "l",
                  text);
    }
}

static void draw_bars(FILE *file, const struct tool_plot *plot, int s, const struct axis *x,
                      const struct axis *y)
{
    const struct tool_series *series = &plot->series[s];
    const double width = 0.8 / plot->series_count;
    for (int i = 0; i < series->count; i++) {
        const double from = place(x, series->x[i] - 0.4 + s * width);
        const double to = place(x, series->x[i] - 0.4 + (s + 1) * width);
        if (series->y[i] > 0)
            fprintf(file,
                    "<rect class=\"s%d f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\"/>\n",
                    s % COLOURS, s % COLOURS, from, place(y, series->y[i]), to - from,
                    BOTTOM - place(y, series->y[i]));
    }
}

static void draw_lines(FILE *file, const struct tool_plot *plot, int s, const struct axis *x,
                       const struct axis *y)
{
    const struct tool_series *series = &plot->series[s];
    const int colour = s % COLOURS;
    bool begun = false;
    for (int i = 0; i < series->count; i++) {
        if (!is_drawn(plot, series->x[i], series->y[i]))
            continue;
        if (!begun)
            fprintf(file, "<path class=\"s%d\" d=\"M", colour);
        fprintf(file, "%s%.1f %.1f", begun ? " L" : "", place(x, series->x[i]),
                place(y, series->y[i]));
        begun = true;
    }
    if (begun)
        fprintf(file, "\"/>\n");
    for (int i = 0; series->count <= MOST_POINTS && i < series->count; i++)
        if (is_drawn(plot, series->x[i], series->y[i]))
            fprintf(file, "<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n", colour,
                    place(x, series->x[i]), place(y, series->y[i]));
}

static void draw_series(FILE *file, const struct tool_plot *plot, int s, const struct axis *x,
                        const struct axis *y)
{
    (plot->bars ? draw_bars : draw_lines)(file, plot, s, x, y);
    fprintf(file, "<path class=\"s%d\" d=\"M%d %dh24\"/>\n", s % COLOURS, RIGHT - 24,
            TOP + 12 + 16 * s);
    svg_words(file, RIGHT - 30, TOP + 16 + 16 * s, "l", plot->series[s].title);
}

int tool_plot_write(const struct tool_command *command, const char *path,
                    const struct tool_plot *plot)
{
    struct axis x, y;
    struct svg svg;
    find_axes(plot, &x, &y);
    svg_open(&svg);
    if (svg.body) {
        draw_axis(svg.body, &x, true);
        draw_axis(svg.body, &y, false);
        for (int s = 0; s < plot->series_count; s++)
            draw_series(svg.body, plot, s, &x, &y);
        svg_words(svg.body, (LEFT + RIGHT) / 2.0, HEIGHT - 16, "t", plot->x_label);
        svg_words(svg.body, LEFT, TOP - 8, "h", plot->y_label);
    }
    const struct svg_page page = {
        .width = WIDTH,
        .height = HEIGHT,
        .left = LEFT,
        .title_size = 15,
        .text_size = 11,
        .title = plot->title,
        .style = ".g{stroke:#8884;fill:none}path{fill:none;stroke-width:2}.g{stroke-width:1}"
                 ".s0{stroke:#2a7de1}.s1{stroke:#d9822b}.s2{stroke:#2f9e5b}.s3{stroke:#c23b6e}"
                 ".s4{stroke:#7b4fc9}.s5{stroke:#888}circle{fill:none}"
                 ".f0{fill:#2a7de1}.f1{fill:#d9822b}.f2{fill:#2f9e5b}.f3{fill:#c23b6e}"
                 ".f4{fill:#7b4fc9}.f5{fill:#888}"};
    return svg_write(&svg, command, path, &page);
}
