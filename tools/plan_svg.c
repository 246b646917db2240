/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --schedule-svg: a predicted step as a picture that needs nothing else: a row for
 * each lane of rank 0, a rectangle for each instruction, its whole text where the mouse rests.
 */
#include <math.h>
#include <string.h>

#include "plan.h"

enum {
    WIDTH = 1200, /* of the picture, in its own units */
    LEFT = 80,    /* where time begins */
    PLOT = WIDTH - LEFT - 20,
    TOP = 56,
    ROW = 46,
    BAR = 30,
    LEGEND_COLUMNS = 5,
    LEGEND_ROW = 18,
    LABEL = 16 /* the narrowest rectangle that is given a number */
};

struct picture {
    FILE *file;
    const struct rf_plan *plan;
    const struct rf_instruction *list;
    const struct rf_sim_time *times;
    int count;
    double step_s;
    int row[RF_LANE_COUNT]; /* of each lane; -1: it has nothing */
    int rows;
    bool used[RF_VERB_COUNT];
};

/* Hues that are far apart for neighbours, whichever verbs there are. */
static void colour_text(int verb, bool light, char text[32])
{
    snprintf(text, 32, "hsl(%d,60%%,%d%%)", (int)((unsigned)verb * 137u % 360u), light ? 85 : 62);
}

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

static double x_of(const struct picture *p, double seconds)
{
    return LEFT + (p->step_s > 0 ? PLOT * seconds / p->step_s : 0);
}

static void find_rows(struct picture *p)
{
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        p->row[lane] = -1;
    for (int k = 0; k < p->count; k++) {
        p->row[p->list[k].lane] = 0;
        p->used[p->list[k].verb] = true;
    }
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (p->row[lane] == 0)
            p->row[lane] = p->rows++;
}

/* 1, 2 or 5 of a power of ten, so that there are about eight. */
static double tick_s(double step_s)
{
    const double rough = step_s / 8, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static void draw_axis(const struct picture *p)
{
    const int bottom = TOP + p->rows * ROW;
    char text[24];
    if (!(p->step_s > 0) || !isfinite(p->step_s))
        return;
    const double tick = tick_s(p->step_s);
    for (int k = 0; k * tick <= p->step_s * (1 + 1e-9); k++) {
        const double x = x_of(p, k * tick);
        fprintf(p->file,
                "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#ddd\"/>"
                "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x, TOP - 6, x, bottom, x, bottom + 14,
                k ? plan_time_text(k * tick, text, sizeof(text)) : "0");
    }
}

static void draw_lanes(const struct picture *p)
{
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (p->row[lane] >= 0)
            fprintf(p->file, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                    TOP + p->row[lane] * ROW + BAR / 2 + 4, rf_lane_name((enum rf_lane)lane));
}

static void draw_instruction(const struct picture *p, int k)
{
    const struct rf_instruction *i = &p->list[k];
    const struct rf_sim_time *t = &p->times[k];
    const int y = TOP + p->row[i->lane] * ROW;
    const double x = x_of(p, t->begin_s), width = x_of(p, t->end_s) - x;
    char colour[32], text[96], length[24];
    colour_text((int)i->verb, true, colour);
    if (t->begin_s > t->ready_s)
        fprintf(p->file, "<path d=\"M%.2f %dH%.2f\" stroke=\"%s\" stroke-width=\"4\"/>\n",
                x_of(p, t->ready_s), y + BAR / 2, x, colour);
    colour_text((int)i->verb, false, colour);
    fprintf(p->file,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" "
            "stroke-width=\"%s\"><title>",
            x, y, fmax(width, 0.3), BAR, colour, width > 3 ? "0.6" : "0");
    put_text(p->file, rf_instruction_text(p->plan, i, text, sizeof(text)));
    fprintf(p->file, ": %s", plan_time_text(t->end_s - t->begin_s, length, sizeof(length)));
    fprintf(p->file, " from %s</title></rect>\n",
            plan_time_text(t->begin_s, length, sizeof(length)));
    if (i->block >= 0 && width >= LABEL)
        fprintf(p->file, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                x + width / 2, y + BAR / 2 + 4, i->block);
}

static int legend_entries(const struct picture *p)
{
    int count = 0;
    for (int verb = 0; verb < RF_VERB_COUNT; verb++)
        count += p->used[verb];
    return count;
}

static void draw_legend(const struct picture *p, int top)
{
    char colour[32];
    for (int verb = 0, k = 0; verb < RF_VERB_COUNT; verb++) {
        if (!p->used[verb])
            continue;
        const int x = LEFT + k % LEGEND_COLUMNS * (PLOT / LEGEND_COLUMNS);
        const int y = top + k / LEGEND_COLUMNS * LEGEND_ROW;
        colour_text(verb, false, colour);
        fprintf(p->file,
                "<circle cx=\"%d\" cy=\"%d\" r=\"5\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">", x + 5,
                y, colour, x + 14, y + 4);
        put_text(p->file, rf_verb_name((enum rf_verb)verb));
        fprintf(p->file, "</text>\n");
        k++;
    }
}

static void draw_title(const struct picture *p, const struct setup *setup,
                       const struct prediction *prediction)
{
    const struct rf_policy *policy = &setup->policy;
    char text[24], mesh[64];
    fprintf(p->file, "<text x=\"%d\" y=\"20\" font-size=\"15\">", LEFT);
    fprintf(p->file, "rank 0 of %s", setup_mesh_text(setup, mesh));
    fprintf(p->file, ", zero %d, %s order, %s in %d micro-batches", policy->zero,
            rf_order_name(policy->order), setup->dtype, (int)policy->micro_batches);
    if (strcmp(setup->again, "none") != 0)
        fprintf(p->file, ", recompute %s", setup->again);
    fprintf(p->file, "</text>\n<text x=\"%d\" y=\"38\">", LEFT);
    fprintf(p->file, "predicted step %s, bound by %s; numbers: blocks</text>\n",
            plan_time_text(p->step_s, text, sizeof(text)), rf_bound_name(prediction->result.bound));
}

static void draw(struct picture *p, const struct setup *setup, const struct prediction *prediction)
{
    const int legend = TOP + p->rows * ROW + 40;
    const int lines = (legend_entries(p) + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    const int height = legend + lines * LEGEND_ROW;
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"11\" "
            "style=\"background:#fff\">\n",
            WIDTH, height, WIDTH, height);
    draw_title(p, setup, prediction);
    draw_axis(p);
    draw_lanes(p);
    for (int k = 0; k < p->count; k++)
        draw_instruction(p, k);
    draw_legend(p, legend);
    fprintf(p->file, "</svg>\n");
}

int plan_svg_write(const struct tool_command *command, const char *path, const struct rf_plan *plan,
                   const struct setup *setup, const struct prediction *prediction)
{
    char *text = NULL;
    size_t bytes = 0;
    struct picture p = {.plan = plan, .step_s = prediction->result.step_s};
    p.list = rf_plan_instructions(plan, &p.count);
    p.times = rf_sim_times(prediction->sim, 0, &p.count);
    p.file = open_memstream(&text, &bytes);
    if (!p.file)
        return tool_error(command, "out of memory while drawing %s", path);
    find_rows(&p);
    draw(&p, setup, prediction);
    const bool good = !ferror(p.file);
    int status = fclose(p.file) == 0 && good
                     ? tool_file_write(command, path, text, bytes)
                     : tool_error(command, "out of memory while drawing %s", path);
    free(text);
    return status;
}
