/* SPDX-License-Identifier: MIT
 *
 * Timelines as SVG: see timeline.h. The colours are those of Okabe and Ito, which people with any
 * colour vision tell apart; boxes have an outline, so that they are seen on light and on dark.
 */
#include "timeline.h"

#include <math.h>
#include <string.h>

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

/* Ink on boxes is dark in both; text beside them is as the background needs it. */
static const char style[] =
    ".b{fill:#fff}text{fill:#1b1b1b;text-anchor:middle}rect,circle{stroke:#1b1b1b;"
    "stroke-width:.4}line{stroke:#ddd}.l{text-anchor:end}.h{text-anchor:start}.s{font-size:8px}"
    ".n{fill:#000}@media(prefers-color-scheme:dark){.b{fill:#0d1117}text{fill:#e6e6e6}"
    "rect,circle{stroke:#e6e6e6}line{stroke:#3a3f47}}";

/* ---- text ------------------------------------------------------------------------------------ */

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

static void put_words(FILE *file, int x, int y, const char *class, const char *words)
{
    fprintf(file, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    put_text(file, words);
    fprintf(file, "</text>\n");
}

int timeline_check(const struct tool_command *command, const char *path)
{
    const char *dot = strrchr(path, '.');
    if (strcmp(path, "-") == 0 || (dot && strcmp(dot, ".svg") == 0))
        return TOOL_OK;
    return tool_usage_error(command,
                            "--plot draws a timeline as SVG; use a file name that ends in .svg, "
                            "not \"%s\"",
                            path);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void timeline_open(struct timeline *t, double span_s)
{
    *t = (struct timeline){.span_s = span_s, .y = TOP};
    t->body = open_memstream(&t->text, &t->bytes);
}

static double x_of(const struct timeline *t, double seconds)
{
    return LEFT + (t->span_s > 0 ? PLOT * seconds / t->span_s : 0);
}

void timeline_panel(struct timeline *t, const char *heading)
{
    t->y += HEADING;
    t->panel = t->y;
    if (t->body)
        put_words(t->body, LEFT, t->y - 8, "h", heading);
}

void timeline_row(struct timeline *t, const char *label, bool high)
{
    t->y += high ? 4 : 0;
    t->row = t->y;
    t->height = high ? HIGH : LOW;
    t->y += t->height + 1;
    if (t->body)
        put_words(t->body, LEFT - 6, t->row + (high ? 13 : LOW), high ? "l" : "l s", label);
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
    if (!t->body)
        return;
    fprintf(t->body, "<rect class=\"k%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"",
            (int)box->kind, x, t->row, fmax(width, 0.2), t->height);
    if (box->what) {
        char length[24];
        fprintf(t->body, "><title>");
        put_text(t->body, box->what);
        fprintf(t->body, ": %s</title></rect>\n",
                plan_time_text(box->end_s - box->begin_s, length, sizeof(length)));
    } else {
        fprintf(t->body, "/>\n");
    }
    if (box->number >= 0 && t->height == HIGH && width >= DIGIT * digits(box->number) + 1)
        fprintf(t->body, "<text class=\"n\" x=\"%.1f\" y=\"%d\">%d</text>\n", x + width / 2,
                t->row + 13, box->number);
}

/* 1, 2 or 5 of a power of ten, so that there are about eight. */
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
    if (!t->body || !(t->span_s > 0) || !isfinite(t->span_s))
        return;
    const double tick = tick_s(t->span_s);
    for (int k = 0; k * tick <= t->span_s * (1 + 1e-9); k++) {
        const double x = x_of(t, k * tick);
        fprintf(t->body,
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
        fprintf(t->body, "<circle class=\"k%d\" cx=\"%d\" cy=\"%d\" r=\"5\"/>", kind, x + 5, y);
        put_words(t->body, x + 14, y + 4, "h", kinds[kind].name);
        k++;
    }
    t->y += 12 + (k + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS * LEGEND_ROW;
}

static void put_picture(FILE *file, const struct timeline *t, const char *title)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %d %d\" "
            "width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n<title>",
            WIDTH, t->y, WIDTH, t->y);
    put_text(file, title);
    fprintf(file, "</title>\n<style>%s", style);
    for (int kind = 0; kind < TIMELINE_KINDS; kind++)
        if (t->used[kind])
            fprintf(file, ".k%d{fill:%s}", kind, kinds[kind].colour);
    fprintf(file, "</style>\n<path class=\"b\" d=\"M0 0H%dV%dH0z\"/>\n<g font-size=\"14\">", WIDTH,
            t->y);
    put_words(file, LEFT, 22, "h", title);
    fprintf(file, "</g>\n%s</svg>\n", t->text);
}

int timeline_write(struct timeline *t, const struct tool_command *command, const char *path,
                   const char *title)
{
    char *text = NULL;
    size_t bytes = 0;
    bool good = t->body != NULL;
    if (good) {
        put_legend(t);
        good = !ferror(t->body);
        good = fclose(t->body) == 0 && good;
    }
    FILE *file = good ? open_memstream(&text, &bytes) : NULL;
    if (file) {
        put_picture(file, t, title);
        good = !ferror(file);
        good = fclose(file) == 0 && good;
    }
    int status = file && good ? tool_file_write(command, path, text, bytes)
                              : tool_error(command, "out of memory while drawing %s", path);
    free(text);
    free(t->text);
    *t = (struct timeline){0};
    return status;
}
