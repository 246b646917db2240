/* SPDX-License-Identifier: MIT
 *
 * Checks that ranks with copies of the same data still have equal copies. Every rank hashes its
 * part of each tensor as it would load it (spans.h). So the plan determines which ranks have
 * copies: those with equal parts of a tensor. One rank compares row k of all ranks, so a rank sends
 * each of its hashes once. Called between steps.
 */
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "../base/base.h"
#include "spans.h"

enum { HASH_BYTES = 16, NAME_BYTES = 256, RANKS_BYTES = 160 };

/* Numbers that must be equal on all ranks. */
enum number {
    NUMBER_STEP,
    NUMBER_UPDATES,
    NUMBER_SEED,
    NUMBER_SCALE,
    NUMBER_GOOD_STEPS,
    NUMBER_CURSOR_STEP,
    NUMBER_CURSOR_SAMPLES,
    NUMBER_CURSOR_SEED,
    NUMBER_COUNT
};
static const char *const number_names[NUMBER_COUNT] = {
    "the number of steps",
    "the number of updates",
    "the seed",
    "the loss scale",
    "the number of steps since the loss scale moved",
    "the data cursor's step",
    "the data cursor's number of samples",
    "the data cursor's seed"};

/* The rows after the numbers: one for each tensor of a listing. */
enum group { GROUP_PARAMS, GROUP_COPIES, GROUP_STATES, GROUP_COUNT };

/* A rank's part of one tensor: which part, and a hash of its content. Zero: no part. */
struct row {
    uint8_t part[HASH_BYTES], content[HASH_BYTES];
};

struct audit {
    struct rf_run *run;
    int ranks;
    struct rf_listing listings[RF_PART_COUNT];
    int first[GROUP_COUNT + 1]; /* row of each group's first tensor */
    int each;                   /* number of rows that a rank compares */
    struct row *mine, *theirs;  /* ranks * each */
    struct row *rows;           /* one row of each rank */
    int32_t *bad;               /* one of each rank */
    uint8_t *buffer;
};

/* ---- hashes ---------------------------------------------------------------------------------- */

static void put_number(struct row *row, const void *value, size_t bytes)
{
    memset(row->part, 0xff, sizeof(row->part));
    memcpy(row->content, value, bytes);
}

static void put_numbers(struct audit *a, const struct rf_progress *progress)
{
    const struct rf_run *run = a->run;
    const struct rf_step_scalars *scalars =
        run->plan->policy.forward_only ? NULL : rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    struct row *rows = a->mine;
    put_number(&rows[NUMBER_STEP], &run->step, sizeof(run->step));
    put_number(&rows[NUMBER_UPDATES], &run->updates, sizeof(run->updates));
    put_number(&rows[NUMBER_SEED], &run->seed, sizeof(run->seed));
    if (scalars) {
        put_number(&rows[NUMBER_SCALE], &scalars->loss_scale, sizeof(scalars->loss_scale));
        put_number(&rows[NUMBER_GOOD_STEPS], &scalars->good_steps, sizeof(scalars->good_steps));
    }
    if (progress) {
        put_number(&rows[NUMBER_CURSOR_STEP], &progress->step, sizeof(progress->step));
        put_number(&rows[NUMBER_CURSOR_SAMPLES], &progress->samples, sizeof(progress->samples));
        put_number(&rows[NUMBER_CURSOR_SEED], &progress->seed, sizeof(progress->seed));
    }
}

static int hash_span(struct audit *a, const struct rf_span *span, crypto_generichash_state *content)
{
    const uint64_t bytes = span->count * sizeof(float), most = a->run->files.piece_bytes;
    for (uint64_t from = 0; from < bytes; from += most) {
        const uint64_t n = bytes - from < most ? bytes - from : most;
        RETURN_IF_ERROR(rf_span_read(span, from, n, a->buffer));
        crypto_generichash_update(content, a->buffer, n);
    }
    return 0;
}

/* The 16-bit copy of a span, which has the layout of the parameters; false if there is none. */
static bool copy_of(const struct audit *a, struct rf_span *span)
{
    const struct rf_plan *plan = a->run->plan;
    const struct rf_tensor copy = a->run->regions[RF_REGION_COPY];
    const struct rf_tensor params = a->run->regions[RF_REGION_PARAMS];
    const uint64_t element = (span->stored.offset - params.offset) / sizeof(float);
    if (!rf_plan_step_copies(plan) || span->stored.dtype != RF_F32 ||
        element >= rf_plan_master_elements(plan, plan->shard)) /* single */
        return false;
    span->stored.buffer = copy.buffer;
    span->stored.dtype = plan->copy_type;
    span->stored.offset = copy.offset + element * rf_dtype_bytes(plan->copy_type);
    return true;
}

/* Spans of one tensor are adjacent in the list. */
static int hash_spans(struct audit *a, const struct rf_spans *spans, enum group group)
{
    for (size_t i = 0; i < spans->count;) {
        const int tensor = spans->list[i].tensor;
        struct row *row = &a->mine[a->first[group] + tensor];
        crypto_generichash_state part, content;
        bool any = false;
        crypto_generichash_init(&part, NULL, 0, HASH_BYTES);
        crypto_generichash_init(&content, NULL, 0, HASH_BYTES);
        for (; i < spans->count && spans->list[i].tensor == tensor; i++) {
            struct rf_span span = spans->list[i];
            struct rf_span_run place;
            if (group == GROUP_COPIES && !copy_of(a, &span))
                continue;
            any = true;
            for (uint64_t from = 0; from < span.count * sizeof(float); from += place.bytes) {
                place = rf_span_run_at(&span, from, UINT64_MAX);
                crypto_generichash_update(&part, (const unsigned char *)&place, sizeof(place));
            }
            RETURN_IF_ERROR(hash_span(a, &span, &content));
        }
        if (!any)
            continue;
        crypto_generichash_final(&part, row->part, HASH_BYTES);
        crypto_generichash_final(&content, row->content, HASH_BYTES);
    }
    return 0;
}

static int hash_group(struct audit *a, enum group group)
{
    const enum rf_checkpoint_part part = group == GROUP_STATES ? RF_PART_OPTIMIZER : RF_PART_MODEL;
    struct rf_spans spans;
    RETURN_IF_ERROR(rf_spans_to_load(a->run, part, &a->listings[part], &spans));
    const int rc = hash_spans(a, &spans, group);
    rf_spans_free(&spans);
    return rc;
}

static int fill(struct audit *a, const struct rf_progress *progress)
{
    for (int p = 0; p < RF_PART_COUNT; p++)
        RETURN_IF_ERROR(rf_listing_open(a->run, (enum rf_checkpoint_part)p, &a->listings[p]));
    const int params = a->listings[RF_PART_MODEL].count;
    a->first[GROUP_PARAMS] = NUMBER_COUNT;
    a->first[GROUP_COPIES] = a->first[GROUP_PARAMS] + params;
    a->first[GROUP_STATES] = a->first[GROUP_COPIES] + params;
    a->first[GROUP_COUNT] = a->first[GROUP_STATES] + a->listings[RF_PART_OPTIMIZER].count;
    a->each = (a->first[GROUP_COUNT] - 1) / a->ranks + 1;
    a->mine = rf_alloc((size_t)a->ranks * (size_t)a->each * sizeof(*a->mine));
    a->theirs = rf_alloc((size_t)a->ranks * (size_t)a->each * sizeof(*a->theirs));
    a->rows = rf_alloc((size_t)a->ranks * sizeof(*a->rows));
    a->bad = rf_alloc((size_t)a->ranks * sizeof(*a->bad));
    a->buffer = rf_alloc(a->run->files.piece_bytes);
    if (!a->mine || !a->theirs || !a->rows || !a->bad || !a->buffer)
        return rf_fail(RF_ENOMEM, "audit: out of host memory");
    put_numbers(a, progress);
    for (int g = 0; g < GROUP_COUNT; g++)
        RETURN_IF_ERROR(hash_group(a, (enum group)g));
    return 0;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool has(const struct row *row)
{
    static const uint8_t nothing[HASH_BYTES];
    return memcmp(row->part, nothing, HASH_BYTES) != 0;
}

static bool same_part(const struct row *a, const struct row *b)
{
    return memcmp(a->part, b->part, HASH_BYTES) == 0;
}

static bool same(const struct row *a, const struct row *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* Returns a rank that has the same part as a lower rank, with other content; -1: none. rows: of all
 * ranks, `step` apart. */
static int find_other(const struct row *rows, int ranks, int step)
{
    for (int r = 1; r < ranks; r++) {
        int q = 0;
        while (q < r && !(has(&rows[r * step]) && same_part(&rows[q * step], &rows[r * step])))
            q++;
        if (q < r && !same(&rows[q * step], &rows[r * step]))
            return r;
    }
    return -1;
}

/* Finds the first row that differs between ranks; INT32_MAX if all are equal. */
static int compare(const struct audit *a, int32_t *bad)
{
    int32_t mine = INT32_MAX;
    for (int k = a->each - 1; k >= 0; k--)
        if (find_other(&a->theirs[k], a->ranks, a->each) >= 0)
            mine = (int32_t)(a->run->plan->rank * a->each + k);
    RETURN_IF_ERROR(rf_run_all_gather(a->run, &mine, a->bad, sizeof(mine), "audit"));
    *bad = INT32_MAX;
    for (int r = 0; r < a->ranks; r++)
        *bad = a->bad[r] < *bad ? a->bad[r] : *bad;
    return 0;
}

/* ---- the error message ----------------------------------------------------------------------- */

static const char *name_of(const struct audit *a, int row, char text[NAME_BYTES])
{
    static const char *const kinds[GROUP_COUNT] = {"parameter", "the 16-bit copy of parameter",
                                                   "the optimizer's state"};
    if (row < NUMBER_COUNT)
        return number_names[row];
    const int group = row < a->first[GROUP_COPIES]   ? GROUP_PARAMS
                      : row < a->first[GROUP_STATES] ? GROUP_COPIES
                                                     : GROUP_STATES;
    const struct rf_listing *listing =
        &a->listings[group == GROUP_STATES ? RF_PART_OPTIMIZER : RF_PART_MODEL];
    snprintf(text, NAME_BYTES, "%s %s", kinds[group], listing->listed[row - a->first[group]].name);
    return text;
}

/* Whether a rank has this part, with this content or (others) with other content. */
static bool is_of(const struct row *theirs, const struct row *row, bool others)
{
    return same_part(theirs, row) && same(theirs, row) != others;
}

/* Writes "rank 3" or "ranks 0-2, 5". */
static void ranks_text(const struct row *rows, int ranks, const struct row *row, bool others,
                       char text[RANKS_BYTES])
{
    size_t used = 0;
    int count = 0;
    for (int r = 0; r < ranks; r++)
        count += is_of(&rows[r], row, others);
    used = (size_t)snprintf(text, RANKS_BYTES, count == 1 ? "rank" : "ranks");
    for (int r = 0, last; r < ranks; r = last + 1) {
        for (last = r; last < ranks && is_of(&rows[last], row, others); last++)
            ;
        const char *before = strchr(text, ' ') ? ", " : " ";
        if (last > r && used > RANKS_BYTES - 32) {
            snprintf(text + used, RANKS_BYTES - used, ", ...");
            break;
        }
        if (last > r + 1)
            used +=
                (size_t)snprintf(text + used, RANKS_BYTES - used, "%s%d-%d", before, r, last - 1);
        else if (last > r)
            used += (size_t)snprintf(text + used, RANKS_BYTES - used, "%s%d", before, r);
    }
}

/* The most frequent content of the part of rows[other]; if several are equally frequent, that of
 * the lowest rank. */
static const struct row *most_common(const struct row *rows, int ranks, int other)
{
    const struct row *best = NULL;
    int most = 0;
    for (int r = 0; r < ranks; r++) {
        int count = 0;
        for (int q = 0; same_part(&rows[r], &rows[other]) && q < ranks; q++)
            count += same(&rows[q], &rows[r]);
        if (count > most) {
            most = count;
            best = &rows[r];
        }
    }
    return best;
}

/* All ranks see the same rows, so they give the same message. */
static int report_difference(const struct audit *a, int bad)
{
    char name[NAME_BYTES], different[RANKS_BYTES], most[RANKS_BYTES];
    const struct row *rows = a->rows;
    RETURN_IF_ERROR(rf_run_all_gather(a->run, &a->mine[bad], a->rows, sizeof(*rows), "audit row"));
    const struct row *row = most_common(rows, a->ranks, find_other(rows, a->ranks, 1));
    int first = 0;
    while (!is_of(&rows[first], row, true))
        first++;
    ranks_text(rows, a->ranks, row, true, different);
    ranks_text(rows, a->ranks, row, false, most);
    return rf_fail_rank(
        RF_ECORRUPT, first,
        "audit after step %lld: %s is not the same on all ranks that have it: %s differ%s from %s; "
        "continue from a checkpoint, and look for the cause there (a block, a driver, memory)",
        (long long)a->run->step, name_of(a, bad, name), different,
        strncmp(different, "ranks", 5) ? "s" : "", most);
}

/* ---- the call -------------------------------------------------------------------------------- */

static int exchange(struct audit *a)
{
    int32_t bad = INT32_MAX;
    RETURN_IF_ERROR(
        rf_run_all_to_all(a->run, a->mine, a->theirs, (size_t)a->each * sizeof(*a->mine), "audit"));
    RETURN_IF_ERROR(compare(a, &bad));
    return bad == INT32_MAX ? 0 : report_difference(a, bad);
}

static void close_audit(struct audit *a)
{
    for (int p = 0; p < RF_PART_COUNT; p++)
        rf_listing_close(&a->listings[p]);
    rf_free(a->mine);
    rf_free(a->theirs);
    rf_free(a->rows);
    rf_free(a->bad);
    rf_free(a->buffer);
}

int rf_run_audit(struct rf_run *run, const struct rf_progress *progress)
{
    if (!run)
        return rf_fail(RF_EINVAL, "audit: a run is needed");
    struct audit a = {.run = run, .ranks = rf_run_ranks(run)};
    RETURN_IF_ERROR(rf_run_check_whole(run, "audit"));
    if (a.ranks == 1)
        return 0;
    RETURN_IF_ERROR(rf_run_begin_call(run, "audit"));
    int rc = rf_run_agree_status(run, fill(&a, progress), "audit");
    if (rc == 0)
        rc = exchange(&a);
    const struct rf_error error = *rf_last_error();
    close_audit(&a);
    return rc < 0 ? rf_fail_error(&error) : 0;
}
