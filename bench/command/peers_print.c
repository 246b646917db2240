/* SPDX-License-Identifier: MIT
 *
 * What `ringforge bench all --peers` prints, writes as JSON and draws.
 */
#include <math.h>
#include <string.h>

#include "peers.h"
#include "tools/svg.h"

/* ---- table ----------------------------------------------------------------------------------- */

static double ratio(const struct peers_cell *sides, int side, int state, int size)
{
    const int best = peers_best(sides, state, size);
    const double ours = sides[side].median[state][size];
    return best < 0 || ours <= 0 ? 0 : sides[best].median[state][size] / ours;
}

/* Of the side that was measured least often, of those that a ratio is of. */
static int turns(const struct peers_cell *sides, int state, int size)
{
    const int best = peers_best(sides, state, size);
    int least = sides[PEERS_LIBRARY].count[state][size];
    const int own = sides[PEERS_OWN].count[state][size];
    least = own < least ? own : least;
    return best >= 0 && sides[best].count[state][size] < least ? sides[best].count[state][size]
                                                               : least;
}

static void print_number(double value, const char *format)
{
    char text[32];
    snprintf(text, sizeof(text), format, value);
    printf(" %11s", value > 0 ? text : "-");
}

static void print_cells(const struct peers *p, const struct peers_cell *sides, int state)
{
    printf("%10s", "bytes");
    for (int side = 0; side < PEERS_SIDES; side++)
        if (p->present[side])
            printf(" %11s", peers_sides[side]);
    printf(" %11s %11s %5s  best peer\n", "ratio", "ratio, own", "turns");
    for (int size = 0; size < p->sizes; size++) {
        printf("%10llu", (unsigned long long)p->bytes[size]);
        for (int side = 0; side < PEERS_SIDES; side++)
            if (p->present[side])
                print_number(sides[side].median[state][size], "%.2f");
        print_number(ratio(sides, PEERS_LIBRARY, state, size), "%.2f");
        print_number(ratio(sides, PEERS_OWN, state, size), "%.2f");
        const int best = peers_best(sides, state, size);
        printf(" %5d  %s\n", turns(sides, state, size), best < 0 ? "-" : peers_sides[best]);
    }
}

static bool is_measured(const struct peers_cell *sides, int state)
{
    for (int side = 0; side < PEERS_SIDES; side++)
        for (int size = 0; size < PEERS_SIZES; size++)
            if (sides[side].count[state][size] > 0)
                return true;
    return false;
}

static void print_state(const struct peers *p, int state)
{
    const double ns = bench_state_ns(p->state, state == PEERS_DISTANT);
    if (state == PEERS_ALL)
        printf("\n==== all turns\n");
    else
        printf("\n==== turns with cores %s: a cache line there and back took %.0f ns\n",
               state == PEERS_NEAR ? "near each other" : "far apart", ns);
    for (int op = 0; op < PEERS_OPS; op++)
        for (int network = 0; network < PEERS_NETWORKS; network++)
            for (int ranks = 2; ranks <= PEERS_MOST_RANKS; ranks++) {
                if (!is_measured(p->cells[op][network][ranks], state))
                    continue;
                printf("\n%s, %s, %d ranks\n", peers_ops[op], peers_networks[network], ranks);
                print_cells(p, p->cells[op][network][ranks], state);
            }
}

/* How many of all sizes and operations the library is at least so quick in. */
static void print_summary(const struct peers *p, int side)
{
    static const double least[] = {0.9, 1, 1.5};
    int measured = 0, reached[3] = {0};
    const struct peers_cell(*cells)[PEERS_SIDES] = &p->cells[0][0][0];
    const int count = PEERS_OPS * PEERS_NETWORKS * (PEERS_MOST_RANKS + 1);
    for (int i = 0; i < count; i++)
        for (int size = 0; size < p->sizes; size++) {
            const double value = ratio(cells[i], side, PEERS_ALL, size);
            measured += value > 0;
            for (int k = 0; k < 3; k++)
                reached[k] += value >= least[k];
        }
    if (measured > 0)
        printf("%s: of %d ratios %d are 0.9 or more, %d are 1.0 or more, %d are 1.5 or more\n",
               peers_sides[side], measured, reached[0], reached[1], reached[2]);
}

void peers_print(const struct peers *p)
{
    printf("f32, microseconds, medians of up to %d turns; ratio: the best peer's time over that of "
           "this library\non its buffers, and on memory of the caller's own; above 1 the library "
           "is quicker\n",
           p->turns);
    printf("machine: 4 bytes between two ranks of the host take %.2f us before, %.2f us after\n",
           p->near_us[0], p->near_us[1]);
    if (peers_last_state(p) == PEERS_ALL && bench_state_ns(p->state, false) > 0)
        printf("a cache line there and back between two cores took %.0f ns\n",
               bench_state_ns(p->state, false));
    printf("%d of %d runs, %d of them failed\n", p->runs, p->planned, p->failed);
    if (p->options->rewrite)
        printf("what a call reads is written anew before it\n");
    print_summary(p, PEERS_LIBRARY);
    print_summary(p, PEERS_OWN);
    for (int state = PEERS_ALL; state <= peers_last_state(p); state++)
        print_state(p, state);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_number(cJSON *to, const char *name, double value)
{
    if (value > 0)
        cJSON_AddNumberToObject(to, name, value);
    else
        cJSON_AddNullToObject(to, name);
}

static void add_rows(const struct peers *p, cJSON *list, int state, int op, int network, int ranks)
{
    static const char *const states[PEERS_STATES] = {"all", "near", "distant"};
    const struct peers_cell *sides = p->cells[op][network][ranks];
    for (int size = 0; size < p->sizes; size++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "cores", states[state]);
        cJSON_AddStringToObject(row, "op", peers_ops[op]);
        cJSON_AddStringToObject(row, "network", peers_networks[network]);
        cJSON_AddNumberToObject(row, "ranks", ranks);
        cJSON_AddNumberToObject(row, "bytes", (double)p->bytes[size]);
        cJSON *times = cJSON_AddObjectToObject(row, "time_us");
        for (int side = 0; side < PEERS_SIDES; side++)
            add_number(times, peers_sides[side], sides[side].median[state][size]);
        const int best = peers_best(sides, state, size);
        if (best < 0)
            cJSON_AddNullToObject(row, "best_peer");
        else
            cJSON_AddStringToObject(row, "best_peer", peers_sides[best]);
        add_number(row, "ratio", ratio(sides, PEERS_LIBRARY, state, size));
        add_number(row, "ratio_own", ratio(sides, PEERS_OWN, state, size));
        cJSON_AddNumberToObject(row, "turns", turns(sides, state, size));
        cJSON_AddItemToArray(list, row);
    }
}

int peers_json(const struct peers *p)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "dtype", "f32");
    cJSON_AddBoolToObject(json, "rewritten", p->options->rewrite);
    cJSON_AddNumberToObject(json, "turns", p->turns);
    cJSON_AddNumberToObject(json, "samples", p->samples);
    cJSON_AddNumberToObject(json, "runs", p->runs);
    cJSON_AddNumberToObject(json, "runs_planned", p->planned);
    cJSON_AddNumberToObject(json, "runs_failed", p->failed);
    cJSON_AddNumberToObject(json, "wrong", p->wrong);
    add_number(json, "near_us_before", p->near_us[0]);
    add_number(json, "near_us_after", p->near_us[1]);
    add_number(json, "line_ns_near", bench_state_ns(p->state, false));
    add_number(json, "line_ns_distant", bench_state_ns(p->state, true));
    cJSON *list = cJSON_AddArrayToObject(json, "rows");
    for (int state = PEERS_ALL; state <= peers_last_state(p); state++)
        for (int op = 0; op < PEERS_OPS; op++)
            for (int network = 0; network < PEERS_NETWORKS; network++)
                for (int ranks = 2; ranks <= PEERS_MOST_RANKS; ranks++)
                    if (is_measured(p->cells[op][network][ranks], PEERS_ALL))
                        add_rows(p, list, state, op, network, ranks);
    return tool_json_write(p->command, p->options->json_path, json);
}

/* ---- picture --------------------------------------------------------------------------------- */

enum { PANEL_W = 270, PANEL_H = 230, PLOT_W = 200, PLOT_H = 160, LEFT = 54, TOP = 80 };
enum { DECADES = 8 }; /* of time, from 0.1 us */

static void draw_line(struct svg *svg, const struct peers *p, const struct peers_cell *cell,
                      int side, double x, double y)
{
    bool begun = false;
    const double most = log2((double)p->bytes[p->sizes - 1]);
    for (int size = 0; size < p->sizes; size++) {
        if (cell->median[PEERS_ALL][size] <= 0)
            continue;
        const double at = (log2((double)p->bytes[size]) - 2) / (most > 2 ? most - 2 : 1) * PLOT_W;
        const double up = (log10(cell->median[PEERS_ALL][size]) + 1) / DECADES * PLOT_H;
        if (!begun)
            fprintf(svg->body, "<path class=\"s%d\" d=\"M", side);
        fprintf(svg->body, "%s%.1f %.1f", begun ? " L" : "", x + at, y + PLOT_H - up);
        begun = true;
    }
    if (begun)
        fprintf(svg->body, "\"/>\n");
}

static void draw_panel(struct svg *svg, const struct peers *p, int op, int network, double x,
                       double y)
{
    static const char *const times[] = {"0.1 us", "10 us", "1 ms", "0.1 s", "10 s"};
    char title[64];
    snprintf(title, sizeof(title), "%s, %s", peers_ops[op], peers_networks[network]);
    svg_words(svg->body, x + PLOT_W / 2.0, y - 6, "t", title);
    for (int i = 0; i <= DECADES / 2; i++) {
        const double at = y + PLOT_H - PLOT_H * 2.0 * i / DECADES;
        fprintf(svg->body, "<path class=\"g\" d=\"M%.1f %.1fh%d\"/>\n", x, at, PLOT_W);
        svg_words(svg->body, x - 4, at + 4, "l", times[i]);
    }
    svg_words(svg->body, x, y + PLOT_H + 14, "t", "4 B");
    char most[32];
    svg_words(svg->body, x + PLOT_W, y + PLOT_H + 14, "t",
              tool_bytes_text(p->bytes[p->sizes - 1], most, sizeof(most)));
    for (int side = 0; side < PEERS_SIDES; side++)
        draw_line(svg, p, &p->cells[op][network][PEERS_MOST_RANKS][side], side, x, y);
}

int peers_draw(const struct peers *p)
{
    struct svg svg;
    svg_open(&svg);
    for (int side = 0; svg.body && side < PEERS_SIDES; side++) {
        const double x = LEFT + 130.0 * side;
        if (!p->present[side])
            continue;
        fprintf(svg.body, "<path class=\"s%d\" d=\"M%.1f 40h20\"/>\n", side, x);
        svg_words(svg.body, x + 26, 44, "h", peers_sides[side]);
    }
    for (int i = 0; svg.body && i < PEERS_OPS * PEERS_NETWORKS; i++)
        draw_panel(&svg, p, i % PEERS_OPS, i / PEERS_OPS, LEFT + PANEL_W * (i % 4),
                   TOP + PANEL_H * (i / 4));
    const struct svg_page page = {
        .width = LEFT + 4 * PANEL_W,
        .height = TOP + 4 * PANEL_H,
        .left = LEFT,
        .title_size = 15,
        .text_size = 11,
        .title = "Time of collectives by size, 4 ranks, f32",
        .style = ".g{stroke:#8886;fill:none}.s0,.s1,.s2,.s3,.s4{fill:none;stroke-width:2}"
                 ".s0{stroke:#2a7de1}.s1{stroke:#2a7de1;stroke-dasharray:5 3}.s2{stroke:#d9822b}"
                 ".s3{stroke:#2f9e5b}.s4{stroke:#c23b6e}"};
    return svg_write(&svg, p->command, p->options->plot_path, &page);
}
