/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule --plot: a row for each rank, a column for each round, and an arrow for each
 * message. The colours are those of Okabe and Ito, darkened for white paper where necessary.
 */
#include <math.h>
#include <string.h>

#include "schedule.h"
#include "svg.h"

enum {
    WIDTH = 800,    /* or more, with many rounds */
    NARROWEST = 72, /* a round */
    LEFT = 92,      /* where the first round begins */
    RIGHT = 84,
    TOP = 100,  /* the first rank's row */
    HOST = 24,  /* above the ranks of a host */
    GAP = 9,    /* between an arrow and the edge of its round */
    MARK = 7,   /* radius */
    LETTER = 7, /* of a label */
    LABEL_HEIGHT = 14,
    COLOURS = 8,
    LONGEST_SIDE = 7, /* letters beside a row */
    LONG_TITLE = 98,  /* letters that fit at the usual size */
    MOST_LABELS = 2   /* of a rank and round, on average; with more none are drawn */
};

static const char style[] =
    ".r{stroke:#b9b9b9;stroke-width:1}.g{stroke:#8a8a8a;stroke-dasharray:2 4}"
    ".a{fill:none;stroke-width:1.8}.t{fill:#fff;fill-opacity:.88}.q{fill:#f0f0f0}"
    ".i{font-size:11px;fill:#555}.il{font-size:11px;fill:#555;text-anchor:end}"
    ".ih{font-size:11px;fill:#555;text-anchor:start}.w{font-weight:bold}"
    ".m{fill:#1b1b1b}.p{fill:#fff;font-size:14px;font-weight:bold}"
    ".o{fill:#fff;stroke:#1b1b1b;stroke-width:1.5}"
    ".c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#b85c93}"
    ".c4{stroke:#b07c00}.c5{stroke:#3a9bd9}.c6{stroke:#6b4fbb}.c7{stroke:#7a7a7a}"
    ".f0{fill:#0072b2}.f1{fill:#d55e00}.f2{fill:#009e73}.f3{fill:#b85c93}"
    ".f4{fill:#b07c00}.f5{fill:#3a9bd9}.f6{fill:#6b4fbb}.f7{fill:#7a7a7a}"
    "@media(prefers-color-scheme:dark){.r{stroke:#4a4f57}.t{fill:#0d1117}.q{fill:#1a2029}"
    ".i,.il,.ih{fill:#a9b1bb}.m{fill:#e6e6e6}.p{fill:#0d1117}.o{fill:#0d1117;stroke:#e6e6e6}}";

/* A message between two ranks in one round. */
struct arrow {
    int from, to;
    uint32_t round, arrival; /* arrival: the round after which it has arrived */
    uint64_t bytes;
    int messages, colour;
    char label[64];
};

struct box {
    double x, y, width, height;
};

struct picture {
    const struct schedule_job *job;
    FILE *file;
    struct arrow *arrows;
    int count;
    int width;
    double column, row; /* width of a round, height of a rank */
    bool labels, merged, by_host;
    bool alike;                 /* all messages have the same elements */
    const char *piece[COLOURS]; /* elements of a message, by colour */
    int pieces;                 /* 0: too many for colours */
    struct box *taken;          /* occupied by marks and labels */
    int taken_count;
};

static double x_of(const struct picture *p, uint32_t round)
{
    return LEFT + p->column * round;
}

static double y_of(const struct picture *p, int rank)
{
    const int host = p->by_host ? p->job->call->hosts[rank] : 0;
    return TOP + p->row * rank + (p->by_host ? HOST * (host + 0.5) : 0);
}

/* ---- arrows ---------------------------------------------------------------------------------- */

static int by_round_and_ranks(const void *a, const void *b)
{
    const struct arrow *x = a, *y = b;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    if (x->from != y->from)
        return x->from - y->from;
    return x->to - y->to;
}

static uint32_t arrival_of(const struct schedule_job *job, const struct schedule_step *send,
                           int from)
{
    const struct schedule_rank *to = &job->of[send->peer];
    for (uint32_t i = 0; i < to->received; i++)
        if (to->receives[i].peer == from && to->receives[i].tag == send->tag)
            return to->list[to->receives[i].number].round;
    return send->round;
}

/* Messages of a round between the same ranks become one arrow. */
static void merge(struct picture *p)
{
    int kept = 0;
    for (int i = 0; i < p->count; i++) {
        struct arrow *last = kept ? &p->arrows[kept - 1] : NULL;
        if (last && by_round_and_ranks(last, &p->arrows[i]) == 0) {
            last->messages++;
            last->bytes += p->arrows[i].bytes;
            if (p->arrows[i].arrival > last->arrival)
                last->arrival = p->arrows[i].arrival;
            last->label[0] = 0;
        } else {
            p->arrows[kept++] = p->arrows[i];
        }
    }
    p->merged = kept < p->count;
    p->count = kept;
}

static void collect(struct picture *p)
{
    const struct schedule_job *job = p->job;
    for (int r = 0; r < job->ranks; r++) {
        for (uint32_t k = 0; k < job->of[r].steps; k++) {
            const struct schedule_step *step = &job->of[r].list[k];
            if (step->verb != RF_SCHEDULE_SEND)
                continue;
            struct arrow *arrow = &p->arrows[p->count++];
            *arrow = (struct arrow){.from = r,
                                    .to = step->peer,
                                    .round = step->round,
                                    .arrival = arrival_of(job, step, r),
                                    .bytes = step->bytes,
                                    .messages = 1};
            if (step->range_count)
                schedule_ranges_text(job->ranges + step->range, step->range_count, 2, arrow->label,
                                     sizeof(arrow->label));
        }
    }
    qsort(p->arrows, (size_t)p->count, sizeof(*p->arrows), by_round_and_ranks);
    merge(p);
    p->alike = p->count > 1 && !p->merged;
    for (int i = 1; i < p->count; i++)
        p->alike = p->alike && strcmp(p->arrows[0].label, p->arrows[i].label) == 0;
    p->labels = !p->alike && !p->merged && p->count <= MOST_LABELS * (int)job->rounds * job->ranks;
}

/* By host; otherwise by piece, if there are few; otherwise all alike. */
static void colour(struct picture *p)
{
    const int *hosts = p->job->call->hosts;
    for (int i = 0; i < p->count; i++) {
        struct arrow *arrow = &p->arrows[i];
        int c = 0;
        if (p->by_host) {
            arrow->colour = hosts[arrow->from] != hosts[arrow->to];
            continue;
        }
        while (c < p->pieces && strcmp(p->piece[c], arrow->label) != 0)
            c++;
        if (c == COLOURS || p->merged) {
            p->pieces = 0;
            break;
        }
        if (c == p->pieces)
            p->piece[p->pieces++] = arrow->label;
        arrow->colour = c;
    }
    for (int i = 0; i < p->count && !p->by_host && p->pieces == 0; i++)
        p->arrows[i].colour = 0;
}

static void draw_arrow(const struct picture *p, const struct arrow *a)
{
    const double x0 = x_of(p, a->round - 1) + GAP, x1 = x_of(p, a->arrival) - GAP;
    const double y0 = y_of(p, a->from), y1 = y_of(p, a->to);
    const double length = hypot(x1 - x0, y1 - y0), ux = (x1 - x0) / length, uy = (y1 - y0) / length;
    const double tip_x = x1 - ux * MARK, tip_y = y1 - uy * MARK; /* beside a mark */
    const double back_x = tip_x - 9 * ux, back_y = tip_y - 9 * uy;
    fprintf(p->file, "<g><title>round %u: rank %d to rank %d, ", a->round, a->from, a->to);
    if (a->messages == 1 && a->label[0])
        fprintf(p->file, "elements %s, ", a->label);
    fprintf(p->file, "%llu B", (unsigned long long)a->bytes);
    if (a->messages > 1)
        fprintf(p->file, " in %d messages", a->messages);
    fprintf(p->file,
            "</title><path class=\"a c%d\" d=\"M%.1f %.1fL%.1f %.1f\"/><path class=\"f%d\" "
            "d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fz\"/></g>\n",
            a->colour, x0, y0, back_x, back_y, a->colour, tip_x, tip_y, back_x - 4 * uy,
            back_y + 4 * ux, back_x + 4 * uy, back_y - 4 * ux);
}

/* ---- labels ---------------------------------------------------------------------------------- */

static double overlap(const struct box *a, const struct box *b)
{
    const double width = fmin(a->x + a->width, b->x + b->width) - fmax(a->x, b->x);
    const double height = fmin(a->y + a->height, b->y + b->height) - fmax(a->y, b->y);
    return width > 0 && height > 0 ? width * height : 0;
}

/* On its arrow, at the place that covers the least of other labels and marks. */
static void draw_label(struct picture *p, const struct arrow *a)
{
    static const double places[] = {0.4,  0.5,  0.3, 0.6,  0.25, 0.7,
                                    0.35, 0.45, 0.2, 0.55, 0.75, 0.8};
    const double x0 = x_of(p, a->round - 1) + GAP, x1 = x_of(p, a->arrival) - GAP;
    const double y0 = y_of(p, a->from), y1 = y_of(p, a->to);
    struct box best = {0, 0, LETTER * (double)strlen(a->label) + 5, LABEL_HEIGHT};
    double least = INFINITY;
    if (!a->label[0])
        return;
    for (size_t k = 0; k < sizeof(places) / sizeof(places[0]) && least > 0; k++) {
        struct box box = best;
        double covered = 0;
        box.x = x0 + places[k] * (x1 - x0) - box.width / 2;
        box.y = y0 + places[k] * (y1 - y0) - box.height / 2;
        for (int i = 0; i < p->taken_count; i++)
            covered += overlap(&box, &p->taken[i]);
        if (covered < least) {
            least = covered;
            best = box;
        }
    }
    p->taken[p->taken_count++] = best;
    fprintf(p->file,
            "<rect class=\"t c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"/>",
            a->colour, best.x, best.y, best.width, best.height);
    svg_words(p->file, round(best.x + best.width / 2), round(best.y + 11), "e", a->label);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* A rank's local work after a round. */
static void draw_marks(struct picture *p, int rank)
{
    const struct schedule_rank *own = &p->job->of[rank];
    for (uint32_t round = 0; round <= p->job->rounds; round++) {
        int sums = 0, copies = 0;
        for (uint32_t k = 0; k < own->steps; k++) {
            const struct schedule_step *step = &own->list[k];
            if (step->round != round)
                continue;
            sums += step->verb == RF_SCHEDULE_REDUCE || step->verb == RF_SCHEDULE_REDUCE_ALL;
            copies += step->verb == RF_SCHEDULE_COPY;
        }
        if (!sums && !copies)
            continue;
        const double x = x_of(p, round), y = y_of(p, rank);
        fprintf(p->file,
                "<g><title>rank %d after round %u: %d reduction%s, %d cop%s</title><circle "
                "class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>",
                rank, round, sums, sums == 1 ? "" : "s", copies, copies == 1 ? "y" : "ies",
                sums ? "m" : "o", x, y, sums ? MARK : MARK - 2);
        if (sums)
            svg_words(p->file, x, y + 5, "p", "+");
        fprintf(p->file, "</g>\n");
        p->taken[p->taken_count++] = (struct box){x - MARK, y - MARK, 2 * MARK, 2 * MARK};
    }
}

/* ---- around ---------------------------------------------------------------------------------- */

static void side_text(const struct picture *p, int rank, bool out, char text[64])
{
    const struct rf_schedule_range range =
        schedule_side(p->job->call, rank, out ? RF_SCHEDULE_OUT : RF_SCHEDULE_IN);
    const uint64_t whole = schedule_elements(p->job->call) *
                           (schedule_is_of_each(p->job->call) ? (uint64_t)p->job->ranks : 1);
    const char *name = out ? "out" : "in";
    char elements[48];
    text[0] = 0;
    if (range.count == 0)
        return;
    schedule_ranges_text(&range, 1, 1, elements, sizeof(elements));
    if (strlen(elements) <= LONGEST_SIDE)
        snprintf(text, 64, "%s %s", name, elements);
    else
        snprintf(text, 64, "%s: %s", name, range.count == whole ? "all" : "a part");
}

static void draw_rows(const struct picture *p)
{
    const int *hosts = p->job->call->hosts;
    char text[64];
    for (int r = 0; r < p->job->ranks && p->by_host; r++) {
        int last = r;
        while (last + 1 < p->job->ranks && hosts[last + 1] == hosts[r])
            last++;
        fprintf(p->file,
                "<rect class=\"q\" x=\"6\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"6\"/>\n",
                y_of(p, r) - 0.5 * p->row - HOST / 2, p->width - 12,
                p->row * (last - r + 1) + HOST - 6);
        snprintf(text, sizeof(text), "host %d", hosts[r]);
        svg_words(p->file, 14, y_of(p, r) - 0.5 * p->row + 3, "ih", text);
        r = last;
    }
    for (int r = 0; r < p->job->ranks; r++) {
        const double y = y_of(p, r);
        fprintf(p->file, "<path class=\"r\" d=\"M%d %.1fH%.1f\"/>", LEFT, y,
                x_of(p, p->job->rounds));
        snprintf(text, sizeof(text), "rank %d", r);
        svg_words(p->file, LEFT - 12, y - 1, "l w", text);
        side_text(p, r, false, text);
        svg_words(p->file, LEFT - 12, y + 13, "il", text);
        side_text(p, r, true, text);
        svg_words(p->file, x_of(p, p->job->rounds) + 12, y + 4, "ih", text);
    }
}

/* Above each round, its number and its messages. */
static void draw_rounds(const struct picture *p, double bottom)
{
    const double top = TOP - 0.5 * p->row - 4;
    for (uint32_t round = 1; round <= p->job->rounds; round++) {
        const double middle = x_of(p, round) - 0.5 * p->column;
        uint64_t bytes = 0;
        int messages = 0;
        char text[64], amount[24];
        for (int i = 0; i < p->count; i++) {
            if (p->arrows[i].round != round)
                continue;
            messages += p->arrows[i].messages;
            bytes += p->arrows[i].bytes;
        }
        snprintf(text, sizeof(text), "round %u", round);
        svg_words(p->file, middle, top - 18, "w", text);
        snprintf(text, sizeof(text), "%s", tool_bytes_text(bytes, amount, sizeof(amount)));
        if (p->column >= 120)
            snprintf(text, sizeof(text), "%d message%s, %s", messages, messages == 1 ? "" : "s",
                     amount);
        svg_words(p->file, middle, top - 4, "i", text);
    }
    for (uint32_t round = 0; round <= p->job->rounds; round++)
        fprintf(p->file, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>\n", x_of(p, round), top,
                bottom);
}

/* An arrow of this colour with its meaning. */
static double draw_sample(const struct picture *p, double x, double y, int c, const char *words)
{
    fprintf(p->file,
            "<path class=\"a c%d\" d=\"M%.1f %.1fH%.1f\"/><path class=\"f%d\" d=\"M%.1f %.1fl-9 "
            "-4v8z\"/>",
            c, x, y, x + 20, c, x + 28, y);
    svg_words(p->file, x + 34, y + 4, "h", words);
    return x + 34 + 6.8 * (double)strlen(words) + 18;
}

static double draw_message_sample(const struct picture *p, double x, double y)
{
    char words[96] = "a message";
    if (!p->labels && !p->merged && p->pieces > 1) {
        for (int c = 0; c < p->pieces; c++)
            x = draw_sample(p, x, y, c, p->piece[c]);
        return x;
    }
    if (p->alike && p->arrows[0].label[0])
        snprintf(words, sizeof(words), "a message: elements %s", p->arrows[0].label);
    else if (p->labels && p->arrows[0].label[0])
        snprintf(words, sizeof(words), "a message, and its elements");
    else if (p->merged)
        snprintf(words, sizeof(words), "one or more messages");
    return draw_sample(p, x, y, p->arrows[0].colour, words);
}

static void draw_legend(const struct picture *p, double y)
{
    double x = 20;
    bool sums = false, copies = false;
    for (int r = 0; r < p->job->ranks; r++)
        for (uint32_t k = 0; k < p->job->of[r].steps; k++) {
            const int verb = p->job->of[r].list[k].verb;
            sums = sums || verb == RF_SCHEDULE_REDUCE || verb == RF_SCHEDULE_REDUCE_ALL;
            copies = copies || verb == RF_SCHEDULE_COPY;
        }
    if (p->by_host) {
        x = draw_sample(p, x, y, 0,
                        p->merged ? "one or more messages within a host" : "within a host");
        x = draw_sample(p, x, y, 1, "between hosts");
    } else if (p->count) {
        x = draw_message_sample(p, x, y);
    }
    if (sums) {
        fprintf(p->file, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>", x + 7, y, MARK);
        svg_words(p->file, x + 7, y + 5, "p", "+");
        svg_words(p->file, x + 20, y + 4, "h", "what has come is added up");
        x += 200;
    }
    if (copies) {
        fprintf(p->file, "<circle class=\"o\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>", x + 7, y,
                MARK - 2);
        svg_words(p->file, x + 18, y + 4, "h", "copied within the rank");
    }
}

/* ---- the picture ----------------------------------------------------------------------------- */

static void say_title(const struct schedule_job *job, char *title, size_t size)
{
    const struct rf_schedule_desc *desc = &job->call->desc;
    char bytes[24];
    const uint64_t elements = schedule_elements(job->call);
    int used = snprintf(title, size, "%s by %s on %d rank%s", rf_coll_op_name(desc->op),
                        job->algorithm, job->ranks, job->ranks == 1 ? "" : "s");
    if (desc->op != RF_COLL_BARRIER)
        used +=
            snprintf(title + used, size - (size_t)used, ", %llu %s (%s)%s",
                     (unsigned long long)elements, rf_dtype_name(desc->dtype),
                     tool_bytes_text(elements * rf_dtype_bytes(desc->dtype), bytes, sizeof(bytes)),
                     schedule_is_of_each(job->call) ? " for each rank" : "");
    snprintf(title + used, size - (size_t)used, ": %u round%s, %s sent by a rank at most",
             job->rounds, job->rounds == 1 ? "" : "s",
             tool_bytes_text(job->most_sent_bytes, bytes, sizeof(bytes)));
}

static void draw(struct picture *p, double bottom)
{
    draw_rows(p);
    draw_rounds(p, bottom);
    for (int i = 0; i < p->count; i++)
        draw_arrow(p, &p->arrows[i]);
    for (int r = 0; r < p->job->ranks; r++)
        draw_marks(p, r);
    for (int i = 0; i < p->count && p->labels; i++)
        draw_label(p, &p->arrows[i]);
    draw_legend(p, bottom + 22);
}

int schedule_plot(const struct tool_command *command, const struct schedule_job *job,
                  const char *path)
{
    char title[256];
    struct svg svg;
    struct picture p = {.job = job, .by_host = job->call->host_count > 1};
    if (!job->detailed || job->messages > SCHEDULE_MOST_DRAWN)
        return tool_usage_error(command,
                                "a picture of %llu messages cannot be read; --plot draws up to %d",
                                (unsigned long long)job->messages, SCHEDULE_MOST_DRAWN);
    p.arrows = calloc(job->messages + 1, sizeof(*p.arrows));
    p.taken = calloc(job->messages + (size_t)job->ranks * (job->rounds + 1) + 1, sizeof(*p.taken));
    if (!p.arrows || !p.taken) {
        free(p.arrows);
        free(p.taken);
        return tool_error(command, "out of memory");
    }
    collect(&p);
    colour(&p);
    p.width = LEFT + RIGHT + NARROWEST * (int)job->rounds;
    p.width = p.width < WIDTH ? WIDTH : p.width;
    p.column = (double)(p.width - LEFT - RIGHT) / (job->rounds ? job->rounds : 1);
    p.row = job->ranks <= 4 ? 64 : job->ranks <= 8 ? 48 : 36;
    const double bottom = y_of(&p, job->ranks - 1) + 0.5 * p.row + 6;
    svg_open(&svg);
    p.file = svg.body;
    if (p.file)
        draw(&p, bottom);
    say_title(job, title, sizeof(title));
    const struct svg_page page = {.width = p.width,
                                  .height = (int)bottom + 42,
                                  .left = 20,
                                  .title_size = strlen(title) > LONG_TITLE ? 12 : 15,
                                  .text_size = 12,
                                  .title = title,
                                  .style = style};
    free(p.arrows);
    free(p.taken);
    return svg_write(&svg, command, path, &page);
}
