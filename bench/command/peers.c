/* SPDX-License-Identifier: MIT
 *
 * ringforge bench all --peers: the collectives of this library beside those of other programs, in
 * turns. The programs are those of bench/peers, found beside this one; each prints a line of
 * bytes, microseconds and wrong elements for each size. What is printed: peers_print.c.
 */
#include "peers.h"

#include <ringforge/ringforge.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const packages[PEERS_SIDES] = {NULL, NULL, "libopenmpi-dev", "libmpich-dev",
                                                  "libgloo-dev"};
static const char *const providers[PEERS_NETWORKS] = {"tcp", "shm"};
enum { GLOO = 4, RUN_SECONDS = 120, COMMAND_BYTES = 3 * TOOL_PATH_BYTES };
enum { QUICK_FACTOR = 64, FULL_FACTOR = 4, QUICK_SAMPLES = 3, FULL_SAMPLES = 7, FULL_TURNS = 3 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool has_ranks(const struct peers *p, int ranks)
{
    return p->options->ranks.ranks == 0 || p->options->ranks.ranks == ranks;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Gloo is over TCP, and has no reduce-scatter of this kind. */
static bool can_run(const struct peers *p, int op, int network, int side)
{
    const char *provider = p->options->ranks.provider;
    if (!p->present[side] || (provider && strcmp(provider, providers[network]) != 0))
        return false;
    return side != GLOO || (network == 0 && strcmp(peers_ops[op], "reduce_scatter") != 0);
}

static void own_command(const struct peers *p, const char *op, int network, int ranks, int side,
                        char *text)
{
    snprintf(
        text, COMMAND_BYTES,
        "timeout -k 2 %d '%s' bench %s --ranks %d --provider %s %s -b %llu -e %llu -f %d -n %d "
        "--in-place 0 --one-clock %s --json 2>&1",
        RUN_SECONDS, p->self, op, ranks, providers[network],
        side == PEERS_OWN ? "--private-buffers" : "", (unsigned long long)p->bytes[0],
        (unsigned long long)p->bytes[p->sizes - 1], p->factor, p->samples,
        p->options->rewrite ? "--rewrite" : "");
}

static void peer_command(const struct peers *p, const char *op, int network, int ranks, int side,
                         char *text)
{
    char args[128];
    snprintf(args, sizeof(args), "%s %llu %llu %d %d%s", op, (unsigned long long)p->bytes[0],
             (unsigned long long)p->bytes[p->sizes - 1], p->factor, p->samples,
             p->options->rewrite ? " rewrite" : "");
    const char *tcp = network != 0 ? "" : side == 2 ? "--mca btl tcp,self" : "UCX_TLS=tcp,self";
    if (side == GLOO)
        snprintf(text, COMMAND_BYTES,
                 "store=$(mktemp -d); PEER_STORE=$store timeout -k 2 %d '%s' run -n %d -- "
                 "'%s/gloo' %s 2>&1 | sed 's/^\\[[0-9]*\\] //'; rm -rf \"$store\"",
                 RUN_SECONDS, p->self, ranks, p->folder, args);
    else if (side == 2)
        snprintf(text, COMMAND_BYTES,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 2 %d "
                 "mpirun.openmpi --oversubscribe %s -n %d '%s/openmpi' %s 2>&1",
                 RUN_SECONDS, tcp, ranks, p->folder, args);
    else
        snprintf(text, COMMAND_BYTES,
                 "env %s timeout -k 2 %d mpirun.mpich -n %d '%s/mpich' %s 2>&1", tcp, RUN_SECONDS,
                 ranks, p->folder, args);
}

static void note(struct peers *p, struct peers_cell *cell, int size, struct peers_turn turn,
                 double wrong)
{
    if (size < p->sizes && turn.us > 0 && cell->turn_count[size] < PEERS_TURNS)
        cell->turns[size][cell->turn_count[size]++] = turn;
    p->wrong += wrong;
}

static double number(const cJSON *row, const char *name)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(row, name));
}

static int read_own(struct peers *p, FILE *from, struct peers_cell *cell)
{
    static char text[1 << 16];
    const size_t bytes = fread(text, 1, sizeof(text) - 1, from);
    text[bytes] = 0;
    cJSON *json = cJSON_Parse(strchr(text, '{') ? strchr(text, '{') : "");
    const cJSON *row = NULL;
    int size = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "rows"))
    {
        const struct peers_turn turn = {number(row, "time_us"), number(row, "began_s"),
                                        number(row, "ended_s")};
        note(p, cell, size++, turn, number(row, "wrong"));
    }
    cJSON_Delete(json);
    return size;
}

static int read_peer(struct peers *p, FILE *from, struct peers_cell *cell)
{
    char line[512];
    int size = 0;
    double bytes, wrong;
    while (fgets(line, sizeof(line), from)) {
        struct peers_turn turn = {0};
        if (sscanf(line, "%lf %lf %lf %lf %lf", &bytes, &turn.us, &wrong, &turn.began,
                   &turn.ended) >= 3)
            note(p, cell, size++, turn, wrong);
    }
    return size;
}

/* Where time decides how many runs there are, how much of it has passed. */
static void print_progress(const struct peers *p, int op, int network, int ranks, int side)
{
    const double minutes = p->options->minutes;
    fprintf(stderr, "\r");
    if (minutes > 0)
        fprintf(stderr, "run %d, %.1f of %.4g minutes", p->runs, (now_s() - p->start_s) / 60,
                minutes);
    else
        fprintf(stderr, "run %d of %d", p->runs, p->planned);
    fprintf(stderr, ": %s, %s, %d ranks, %s            ", peers_ops[op], peers_networks[network],
            ranks, peers_sides[side]);
}

static void run_one(struct peers *p, int op, int network, int ranks, int side)
{
    char text[COMMAND_BYTES];
    const bool own = side < PEERS_FIRST;
    (own ? own_command : peer_command)(p, peers_ops[op], network, ranks, side, text);
    p->runs++;
    print_progress(p, op, network, ranks, side);
    FILE *from = popen(text, "r");
    if (!from) {
        p->failed++;
        return;
    }
    struct peers_cell *cell = &p->cells[op][network][ranks][side];
    const int sizes = own ? read_own(p, from, cell) : read_peer(p, from, cell);
    if (pclose(from) != 0 || sizes < p->sizes) {
        fprintf(stderr, "\n%s ended early, after %d of %d sizes; to see why: %s\n",
                peers_sides[side], sizes, p->sizes, text);
        p->failed++;
    }
}

/* The state of the machine: whether two ranks have cores that are near each other. */
static double near_us(struct peers *p)
{
    char text[COMMAND_BYTES];
    static struct peers_cell cell;
    memset(&cell, 0, sizeof(cell));
    snprintf(text, sizeof(text),
             "timeout 20 '%s' bench all_reduce --ranks 2 --provider shm -b 4 -e 4 -n 11 "
             "--in-place 0 --json 2>/dev/null",
             p->self);
    FILE *from = popen(text, "r");
    if (from) {
        read_own(p, from, &cell);
        pclose(from);
    }
    return cell.turn_count[0] > 0 ? cell.turns[0][0].us : 0;
}

static bool in_time(const struct peers *p)
{
    return p->options->minutes == 0 || now_s() - p->start_s < 60 * p->options->minutes;
}

static void run_sides(struct peers *p, int op, int network, int ranks)
{
    for (int side = 0; side < PEERS_SIDES; side++)
        if (can_run(p, op, network, side))
            run_one(p, op, network, ranks, side);
}

/* Every side in turn, of one operation after the other; the whole several times. */
static void run_all(struct peers *p)
{
    p->start_s = now_s();
    for (int turn = 0; turn < p->turns; turn++)
        for (int op = 0; op < PEERS_OPS; op++)
            for (int network = 0; network < PEERS_NETWORKS; network++)
                for (int ranks = 2; ranks <= PEERS_MOST_RANKS; ranks++)
                    if (has_ranks(p, ranks) && (p->runs == 0 || in_time(p)))
                        run_sides(p, op, network, ranks);
    fprintf(stderr, "\r%70s\r", "");
}

static void count_runs(struct peers *p)
{
    for (int op = 0; op < PEERS_OPS; op++)
        for (int network = 0; network < PEERS_NETWORKS; network++)
            for (int side = 0; side < PEERS_SIDES; side++)
                for (int ranks = 2; ranks <= PEERS_MOST_RANKS; ranks++)
                    if (can_run(p, op, network, side) && has_ranks(p, ranks))
                        p->planned += p->turns;
}

static void take_median(const struct peers *p, struct peers_cell *cell, int state, int size)
{
    double us[PEERS_TURNS];
    int count = 0;
    for (int i = 0; i < cell->turn_count[size]; i++) {
        const struct peers_turn *turn = &cell->turns[size][i];
        if (state == PEERS_ALL ||
            bench_state_between(p->state, turn->began, turn->ended) == state - PEERS_NEAR)
            us[count++] = turn->us;
    }
    qsort(us, (size_t)count, sizeof(*us), compare);
    cell->count[state][size] = count;
    cell->median[state][size] = count > 0 ? us[(count - 1) / 2] : 0;
}

static void take_medians(struct peers *p)
{
    struct peers_cell *cell = &p->cells[0][0][0][0];
    const struct peers_cell *end = cell + sizeof(p->cells) / sizeof(*cell);
    for (; cell < end; cell++)
        for (int state = PEERS_ALL; state <= peers_last_state(p); state++)
            for (int size = 0; size < p->sizes; size++)
                take_median(p, cell, state, size);
}

/* ---- finding --------------------------------------------------------------------------------- */

static int find(struct peers *p)
{
    const ssize_t length = readlink("/proc/self/exe", p->self, sizeof(p->self) - 1);
    if (length < 0)
        return tool_error(p->command, "the path of this program is not known");
    p->self[length] = 0;
    char path[TOOL_PATH_BYTES + 32];
    if (p->options->peer_folder)
        snprintf(p->folder, sizeof(p->folder), "%s", p->options->peer_folder);
    else
        snprintf(p->folder, sizeof(p->folder), "%.*s/peers", (int)(strrchr(p->self, '/') - p->self),
                 p->self);
    if (strchr(p->self, '\'') || strchr(p->folder, '\''))
        return tool_error(p->command, "paths with a quotation mark are not possible here: %s",
                          p->folder);
    p->present[PEERS_LIBRARY] = p->present[PEERS_OWN] = true;
    for (int side = PEERS_FIRST; side < PEERS_SIDES; side++) {
        snprintf(path, sizeof(path), "%s/%s", p->folder, peers_sides[side]);
        p->present[side] = access(path, X_OK) == 0;
        if (!p->present[side])
            fprintf(stderr, "%s is left out: there is no %s; install %s, then run %s\n",
                    peers_sides[side], path, packages[side], "bench/peers/build.sh");
    }
    return TOOL_OK;
}

static void choose_sizes(struct peers *p)
{
    const bool quick = p->options->quick;
    p->factor = quick ? QUICK_FACTOR : FULL_FACTOR;
    p->samples = quick ? QUICK_SAMPLES : FULL_SAMPLES;
    p->turns = quick ? 1 : p->options->minutes > 0 ? PEERS_TURNS : FULL_TURNS;
    for (uint64_t bytes = 4; bytes <= (uint64_t)p->options->max_bytes && p->sizes < PEERS_SIZES;
         bytes *= (uint64_t)p->factor)
        p->bytes[p->sizes++] = bytes;
}

static int check_part(const struct tool_command *command, const struct tool_ranks *part)
{
    if (part->ranks != 0 && (part->ranks < 2 || part->ranks > PEERS_MOST_RANKS))
        return tool_usage_error(command, "all is measured on 2 to %d ranks, not on %lld",
                                PEERS_MOST_RANKS, (long long)part->ranks);
    for (int network = 0; part->provider && network < PEERS_NETWORKS; network++)
        if (strcmp(part->provider, providers[network]) == 0)
            return TOOL_OK;
    return part->provider
               ? tool_usage_error(command, "all is measured over tcp and shm, not over %s",
                                  part->provider)
               : TOOL_OK;
}

int bench_peers(const struct tool_command *command, const struct bench_options *options)
{
    const int usage = check_part(command, &options->ranks);
    if (usage != TOOL_OK)
        return usage;
    struct peers *p = calloc(1, sizeof(*p));
    if (!p)
        return tool_error(command, "out of memory");
    p->command = command;
    p->options = options;
    choose_sizes(p);
    int status = find(p);
    if (status == TOOL_OK) {
        count_runs(p);
        p->near_us[0] = near_us(p);
        p->state = bench_state_begin();
        run_all(p);
        bench_state_end(p->state);
        p->near_us[1] = near_us(p);
        take_medians(p);
        peers_print(p);
    }
    if (status == TOOL_OK && options->json_path)
        status = peers_json(p);
    if (status == TOOL_OK && options->plot_path)
        status = peers_draw(p);
    if (status == TOOL_OK && p->wrong > 0)
        status = tool_error(command, "%.0f elements were wrong", p->wrong);
    bench_state_free(p->state);
    free(p);
    return status;
}
