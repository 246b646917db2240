/* SPDX-License-Identifier: MIT
 *
 * Rounds of a call: by the figures of its algorithm, or counted, as the longest chain of messages
 * through the lists of all its ranks. Called by count.c and src/parallel.
 */
#include "../base/base.h"
#include "table.h"

void rf_rounds_text(const struct rf_rounds *rounds, char *text, size_t bytes)
{
    const struct {
        int times;
        const char *of;
    } terms[] = {{rounds->fixed, ""},
                 {rounds->log + rounds->tree, "log2 N"},
                 {rounds->around, rounds->around == 1 ? "N-1" : "(N-1)"}};
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]) && at < bytes; i++) {
        const char *plus = at ? " + " : "";
        if (terms[i].times == 1 && *terms[i].of)
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", plus, terms[i].of);
        else if (terms[i].times > 0)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d%s%s", plus, terms[i].times,
                                   *terms[i].of ? " " : "", terms[i].of);
    }
}

/* ---- the lists of all ranks --------------------------------------------------------------------
 */

struct sent {
    int from, to;
    uint32_t tag;
    size_t step; /* in `depths` */
};

struct lists {
    struct rf_sched **scheds; /* [rank] */
    size_t step_count;
    uint32_t *depths; /* of all steps, by rank: messages one after the other until each has ended */
    struct sent *sent; /* sorted */
    size_t sent_count;
};

static int by_message(const void *a, const void *b)
{
    const struct sent *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->tag < y->tag ? -1 : x->tag > y->tag;
}

static int build(struct lists *lists, const struct rf_coll_desc *desc, const char *name)
{
    struct rf_coll_desc own = *desc;
    size_t messages = 0, step = 0;
    own.segment_bytes = own.window_bytes = 0;
    lists->scheds = rf_alloc((size_t)desc->ranks * sizeof(*lists->scheds));
    for (own.rank = 0; lists->scheds && own.rank < own.ranks; own.rank++) {
        RETURN_IF_ERROR(rf_sched_build_as(&own, name, &lists->scheds[own.rank]));
        lists->step_count += lists->scheds[own.rank]->count;
        messages += lists->scheds[own.rank]->message_count;
    }
    lists->depths = rf_alloc((lists->step_count + 1) * sizeof(*lists->depths));
    lists->sent = rf_alloc((messages + 1) * sizeof(*lists->sent));
    if (!lists->scheds || !lists->depths || !lists->sent)
        return rf_fail(RF_ENOMEM, "%s: no memory for the lists of %d ranks",
                       rf_coll_op_name(desc->op), desc->ranks);
    for (int rank = 0; rank < desc->ranks; rank++)
        for (uint32_t k = 0; k < lists->scheds[rank]->count; k++, step++) {
            const struct rf_step *s = &lists->scheds[rank]->steps[k];
            if (s->verb == RF_STEP_SEND)
                lists->sent[lists->sent_count++] =
                    (struct sent){.from = rank, .to = s->peer, .tag = s->tag, .step = step};
        }
    qsort(lists->sent, lists->sent_count, sizeof(*lists->sent), by_message);
    return 0;
}

/* Moves the depths of one rank's steps, which begin at `first`, on; whether any has changed. */
static bool advance(struct lists *lists, int rank, size_t first)
{
    const struct rf_sched *sched = lists->scheds[rank];
    bool changed = false;
    for (uint32_t k = 0; k < sched->count; k++) {
        const struct rf_step *step = &sched->steps[k];
        uint32_t *depth = &lists->depths[first + k];
        if (step->verb == RF_STEP_RECV) {
            const struct sent key = {.from = step->peer, .to = rank, .tag = step->tag};
            const struct sent *sent =
                bsearch(&key, lists->sent, lists->sent_count, sizeof(key), by_message);
            const uint32_t arrived = 1 + (sent ? lists->depths[sent->step] : 0);
            changed = changed || *depth < arrived;
            *depth = *depth < arrived ? arrived : *depth;
        }
        for (uint32_t n = 0; n < step->next_count; n++) {
            uint32_t *next = &lists->depths[first + sched->successors[step->next + n]];
            changed = changed || *next < *depth;
            *next = *next < *depth ? *depth : *next;
        }
    }
    return changed;
}

int rf_coll_count_listed_rounds(const struct rf_coll_desc *desc, const char *name, uint64_t *out)
{
    struct lists lists = {0};
    int rc = build(&lists, desc, name);
    for (bool changed = rc == 0; changed;) {
        size_t first = 0;
        changed = false;
        for (int rank = 0; rank < desc->ranks; first += lists.scheds[rank++]->count)
            changed = advance(&lists, rank, first) || changed;
    }
    *out = rc < 0 ? *out : 0;
    for (size_t i = 0; rc == 0 && i < lists.step_count; i++)
        *out = lists.depths[i] > *out ? lists.depths[i] : *out;
    for (int rank = 0; lists.scheds && rank < desc->ranks; rank++)
        rf_sched_destroy(lists.scheds[rank]);
    rf_free(lists.scheds);
    rf_free(lists.depths);
    rf_free(lists.sent);
    return rc;
}

int rf_coll_count_rounds(const struct rf_coll_desc *desc, const char *name, uint64_t *out)
{
    const struct rf_algorithm *algorithm;
    RETURN_IF_ERROR(rf_coll_find(desc, name, &algorithm));
    const struct rf_rounds *rounds = &algorithm->rounds;
    if (rounds->fixed + rounds->log + rounds->tree + rounds->around == 0)
        return rf_coll_count_listed_rounds(desc, algorithm->name, out);
    int down = 0; /* log2 of the ranks, rounded down */
    while ((int64_t)2 << down <= desc->ranks)
        down++;
    const int up = down + (desc->ranks > (int64_t)1 << down);
    *out = (uint64_t)(rounds->fixed + rounds->log * up + rounds->tree * down) +
           (uint64_t)rounds->around * (uint64_t)(desc->ranks - 1);
    return 0;
}
