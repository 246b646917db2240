/* SPDX-License-Identifier: MIT
 *
 * Pipeline schedules as words: see pipeline.h. In every schedule the micro-batches pass each chunk
 * in ascending order, forward and backward. So the letters alone define an order: F, I and W are
 * the three calls, and each letter takes its own next micro-batch. The words are written as if
 * there were always enough micro-batches. Calls of micro-batches that do not exist are dropped, and
 * the others keep their order.
 */
#include "pipeline.h"

#include <limits.h>

#include "../../base/base.h"

enum { LETTERS = 3 };

struct writer {
    const struct rf_pipeline *p;
    int rank;
    struct rf_pipeline_call *next;
    int written[LETTERS][2]; /* by letter: in capitals, in small letters */
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* In a word without small letters the chunks alternate: as many micro-batches as there are ranks
 * pass the first chunk, then the second, and so on; backward passes begin with the last chunk. In
 * zbv capitals are the first chunk and small letters the second. */
static struct rf_pipeline_call call_of(const struct writer *w, int letter, int is_small, int k)
{
    static const enum rf_verb verbs[LETTERS] = {RF_VERB_FORWARD, RF_VERB_BACKWARD_INPUT,
                                                RF_VERB_BACKWARD_WEIGHT};
    const int ranks = w->p->ranks, chunks = w->p->chunks;
    struct rf_pipeline_call call = {.verb = verbs[letter]};
    if (w->p->kind == RF_PIPELINE_ZBV) {
        call.chunk = is_small;
        call.micro_batch = k;
    } else {
        const int turn = k / ranks;
        call.chunk = letter == 0 ? turn % chunks : chunks - 1 - turn % chunks;
        call.micro_batch = turn / chunks * ranks + k % ranks;
    }
    call.version = larger(call.micro_batch / w->p->micro_batches - 1, 0);
    return call;
}

/* Writes the word `times` times; nothing if times is 0 or less. */
static void put(struct writer *w, int times, const char *word)
{
    static const char letters[] = "FIWfiw";
    for (int k = 0; k < times; k++)
        for (const char *c = word; *c; c++) {
            const int at = (int)(strchr(letters, *c) - letters);
            const int letter = at % LETTERS, is_small = at / LETTERS;
            const struct rf_pipeline_call call =
                call_of(w, letter, is_small, w->written[letter][is_small]++);
            if (call.micro_batch < w->p->micro_batches * w->p->steps)
                *w->next++ = call;
        }
}

static void naive(struct writer *w)
{
    put(w, w->p->micro_batches, "FIW");
}

static void gpipe(struct writer *w)
{
    put(w, w->p->micro_batches, "F");
    put(w, w->p->micro_batches, "IW");
}

/* A rank is one forward pass ahead for each rank after it. If the order has several steps, the rank
 * also waits for the version that a micro-batch must see: step t begins after the update of step t
 * - 2. */
static void alternate(struct writer *w)
{
    const int m = w->p->micro_batches;
    for (int back = 0; back < m * w->p->steps; back++) {
        const int forward = smaller(back + w->p->ranks - w->rank, (back / m + 2) * m);
        put(w, forward - w->written[0][0], "F");
        put(w, 1, "IW");
    }
}

static void interleaved(struct writer *w)
{
    const int p = w->p->ranks, m = w->p->micro_batches, chunks = w->p->chunks;
    const int behind = p - w->rank - 1;
    put(w, chunks > 1 ? 2 * behind + (chunks - 1) * p : behind, "F");
    put(w, (m + p - 1) / p * p * chunks, "FIW");
}

/* Weight halves are delayed until as many micro-batches are kept as there are ranks. They fill the
 * idle time at the end. */
static void zbh1(struct writer *w)
{
    const int p = w->p->ranks, r = w->rank;
    put(w, p - r - 1, "F");
    put(w, r, "FI");
    put(w, w->p->micro_batches - r, "FIW");
    put(w, r, "W");
}

/* Forward passes of the first chunk fill the time until the first output reaches the second chunk.
 * Then the six calls of both chunks take turns. At the end input halves go first, because other
 * ranks wait for them. */
static void zbv(struct writer *w)
{
    const int p = w->p->ranks, r = w->rank;
    put(w, 2 * (p - r) - 1, "F");
    put(w, r, "fF");
    put(w, p - r, "fiw");
    put(w, w->p->micro_batches - p, "FIWfiw");
    put(w, r, "Ii");
    put(w, p - r, "IW");
    put(w, r, "w");
    put(w, r, "W");
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static const struct row {
    const char *name;
    int chunks; /* 0: any number */
    void (*write)(struct writer *w);
} rows[RF_PIPELINE_COUNT] = {
    [RF_PIPELINE_NAIVE] = {"naive", 1, naive},
    [RF_PIPELINE_GPIPE] = {"gpipe", 1, gpipe},
    [RF_PIPELINE_1F1B] = {"1f1b", 1, alternate},
    [RF_PIPELINE_INTERLEAVED] = {"interleaved", 0, interleaved},
    [RF_PIPELINE_ZBH1] = {"zbh1", 1, zbh1},
    [RF_PIPELINE_ZBV] = {"zbv", 2, zbv},
    [RF_PIPELINE_2BW] = {"2bw", 1, alternate},
};

const char *rf_pipeline_name(enum rf_pipeline_kind kind)
{
    return (unsigned)kind < RF_PIPELINE_COUNT ? rows[kind].name : "?";
}

int rf_pipeline_find(const char *name, enum rf_pipeline_kind *out)
{
    for (int k = 0; k < RF_PIPELINE_COUNT; k++)
        if (strcmp(name, rows[k].name) == 0) {
            *out = (enum rf_pipeline_kind)k;
            return 0;
        }
    return rf_fail(RF_EINVAL,
                   "pipeline '%s': unknown; use naive, gpipe, 1f1b, interleaved, zbh1, zbv or 2bw",
                   name);
}

static int check_size(const struct rf_pipeline *p)
{
    /* A word exceeds the remaining calls by fewer than 2 * ranks micro-batches. */
    const double padded = (double)p->micro_batches * p->steps + 2.0 * p->ranks;
    if (padded * LETTERS * p->chunks <= INT_MAX && 2.0 * p->ranks * p->chunks * padded <= INT_MAX)
        return 0;
    return rf_fail(RF_EINVAL,
                   "pipeline %s: %d ranks of %d chunks, %d micro-batches and %d steps make more "
                   "calls than can be numbered; use fewer micro-batches",
                   rows[p->kind].name, p->ranks, p->chunks, p->micro_batches, p->steps);
}

int rf_pipeline_check(struct rf_pipeline *p)
{
    if ((unsigned)p->kind >= RF_PIPELINE_COUNT)
        return rf_fail(RF_EINVAL, "pipeline %d: unknown; use one of enum rf_pipeline_kind",
                       (int)p->kind);
    const struct row *row = &rows[p->kind];
    if (p->ranks < 1 || p->micro_batches < 1)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: %d ranks and %d micro-batches; both must be at least 1",
                       row->name, p->ranks, p->micro_batches);
    if (p->chunks < 0 || p->steps < 0)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: %d chunks and %d steps; neither may be negative, and 0 means "
                       "the default",
                       row->name, p->chunks, p->steps);
    if (row->chunks && p->chunks && p->chunks != row->chunks)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: a rank has %d chunk%s, not %d; use %d, or interleaved, which "
                       "takes any number",
                       row->name, row->chunks, row->chunks > 1 ? "s" : "", p->chunks, row->chunks);
    if (p->steps > 1 && p->kind != RF_PIPELINE_2BW)
        return rf_fail(RF_EINVAL,
                       "pipeline %s: %d steps in one order, but it ends with each step; use 1 "
                       "step, or 2bw",
                       row->name, p->steps);
    struct rf_pipeline full = *p;
    full.chunks = row->chunks ? row->chunks : p->chunks ? p->chunks : 2;
    full.steps = p->steps ? p->steps : 1;
    RETURN_IF_ERROR(check_size(&full));
    *p = full;
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

int rf_pipeline_stages(const struct rf_pipeline *p)
{
    return p->ranks * p->chunks;
}

int rf_pipeline_stage(const struct rf_pipeline *p, int rank, int chunk)
{
    const bool turned = p->kind == RF_PIPELINE_ZBV && chunk == 1;
    return chunk * p->ranks + (turned ? p->ranks - 1 - rank : rank);
}

int rf_pipeline_chunk_of(const struct rf_pipeline *p, int stage)
{
    return stage / p->ranks;
}

int rf_pipeline_rank_of(const struct rf_pipeline *p, int stage)
{
    const bool turned = p->kind == RF_PIPELINE_ZBV && stage >= p->ranks;
    return turned ? 2 * p->ranks - 1 - stage : stage % p->ranks;
}

/* ---- orders ---------------------------------------------------------------------------------- */

int rf_pipeline_call_count(const struct rf_pipeline *p)
{
    return LETTERS * p->chunks * p->micro_batches * p->steps;
}

void rf_pipeline_order(const struct rf_pipeline *p, int rank, struct rf_pipeline_call *calls)
{
    struct writer w = {.p = p, .rank = rank, .next = calls};
    rows[p->kind].write(&w);
}

int rf_pipeline_in_flight(const struct rf_pipeline *p, const struct rf_pipeline_call *calls)
{
    int now = 0, most = 0;
    for (int k = 0; k < rf_pipeline_call_count(p); k++) {
        now += calls[k].verb == RF_VERB_FORWARD;
        most = larger(now, most);
        now -= calls[k].verb == RF_VERB_BACKWARD_WEIGHT;
    }
    return most;
}
