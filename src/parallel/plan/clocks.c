/* SPDX-License-Identifier: MIT
 *
 * Last accesses and vector clocks: see clocks.h. A region is divided into spans of bytes with the
 * same history: the last read and the last write of each lane. A write to a span comes after all
 * earlier accesses to it, so these are dropped.
 */
#include "clocks.h"

#include "../../base/base.h"
#include "list.h"

struct span {
    uint64_t first; /* byte; it ends where the next span begins */
    int read[RF_LANE_COUNT], written[RF_LANE_COUNT];
};

struct history {
    struct span *spans;
    int count, capacity;
};

struct rf_clocks {
    const struct rf_plan *plan;
    struct history *regions; /* and one more for values without bytes, by their number */
    int *begins;             /* by value: the index of its first span at the last access */
    int (*rows)[RF_LANE_COUNT];
    int first[RF_LANE_COUNT]; /* row of each lane's first instruction */
    int passed[RF_LANE_COUNT];
    /* The positions before the last exchange of norms. */
    int summed[RF_LANE_COUNT];
    int now[RF_LANE_COUNT][RF_LANE_COUNT];
};

/* All bits set is -1: no access yet. */
static void forget(struct span *span, uint64_t first)
{
    memset(span, 0xff, sizeof(*span));
    span->first = first;
}

int rf_clocks_open(const struct rf_plan *plan, const struct rf_list *list, struct rf_clocks **out)
{
    struct rf_clocks *c = *out = rf_alloc(sizeof(*c));
    if (!c)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the waits");
    c->plan = plan;
    c->regions = rf_alloc(((size_t)plan->region_count + 1) * sizeof(*c->regions));
    c->begins = rf_alloc(((size_t)plan->value_count + 1) * sizeof(*c->begins));
    c->rows = rf_alloc(((size_t)list->count + 1) * sizeof(*c->rows));
    if (!c->regions || !c->begins || !c->rows)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the waits");
    for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
        if (lane > 0)
            c->first[lane] = c->first[lane - 1] + list->positions[lane - 1];
        for (int other = 0; other < RF_LANE_COUNT; other++)
            c->now[lane][other] = -1;
    }
    return 0;
}

void rf_clocks_close(struct rf_clocks *c)
{
    if (!c)
        return;
    for (int i = 0; c->regions && i <= c->plan->region_count; i++)
        rf_free(c->regions[i].spans);
    rf_free(c->regions);
    rf_free(c->begins);
    rf_free(c->rows);
    rf_free(c);
}

/* The last span that begins at or before `byte`. */
static int span_at(const struct history *h, uint64_t byte)
{
    int low = 0, high = h->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (h->spans[middle].first <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Splits a span at `byte`. likely: the probable index. Returns the index of the span, or -1 if out
 * of memory. */
static int cut(struct history *h, uint64_t byte, int likely)
{
    if (likely < h->count && h->spans[likely].first == byte)
        return likely;
    if (!rf_array_reserve((void **)&h->spans, h->count + 1, &h->capacity, sizeof(*h->spans)))
        return -1;
    if (h->count == 0)
        forget(&h->spans[h->count++], 0);
    int at = span_at(h, byte);
    if (h->spans[at].first == byte)
        return at;
    memmove(&h->spans[at + 1], &h->spans[at], (size_t)(h->count - at) * sizeof(*h->spans));
    h->spans[at + 1].first = byte;
    h->count++;
    return at + 1;
}

static void most(int into[RF_LANE_COUNT], const int from[RF_LANE_COUNT])
{
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        into[lane] = from[lane] > into[lane] ? from[lane] : into[lane];
}

static int touch(struct rf_clocks *c, int value, bool write, int lane, int need[RF_LANE_COUNT])
{
    const struct rf_value *v = &c->plan->values[value];
    struct history *h = &c->regions[v->bytes ? v->region : c->plan->region_count];
    const uint64_t first = v->bytes ? v->offset : (uint64_t)value;
    const uint64_t end = first + (v->bytes ? v->bytes : 1);
    const int begin = cut(h, first, c->begins[value]);
    const int stop = begin < 0 ? -1 : cut(h, end, begin + 1);
    if (stop < 0)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the waits");
    c->begins[value] = begin;
    for (int k = begin; k < stop; k++) {
        most(need, h->spans[k].written);
        if (write)
            most(need, h->spans[k].read);
        else
            h->spans[k].read[lane] = c->passed[lane];
    }
    if (!write)
        return 0;
    forget(&h->spans[begin], first);
    h->spans[begin].written[lane] = c->passed[lane];
    if (stop > begin + 1)
        memmove(&h->spans[begin + 1], &h->spans[stop],
                (size_t)(h->count - stop) * sizeof(*h->spans));
    h->count -= stop - begin - 1;
    return 0;
}

int rf_clocks_needs(struct rf_clocks *c, const struct rf_instruction *i, int need[RF_LANE_COUNT])
{
    const int *operands = c->plan->operands + i->first_operand;
    const int self = c->passed[i->lane];
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        need[lane] = -1;
    for (int k = 0; k < i->ins + i->outs; k++)
        RETURN_IF_ERROR(touch(c, operands[k], k >= i->ins, (int)i->lane, need));
    /* The host blocks in this verb and learns the status of all earlier transfers, but not of those
     * of a newer step, for which no rank may wait. */
    for (int lane = 0; i->verb == RF_VERB_LOSS && lane < RF_LANE_COUNT; lane++)
        if (rf_lane_transfers(lane) && lane != (int)i->lane)
            need[lane] = (i->behind ? c->summed[lane] : c->passed[lane]) - 1;
    if (i->verb == RF_VERB_NORM_SHARE)
        for (int lane = 0; lane < RF_LANE_COUNT; lane++)
            c->summed[lane] = c->passed[lane] + (lane == (int)i->lane);
    if (need[i->lane] == self) /* the instruction reads and writes the same bytes */
        need[i->lane] = self - 1;
    return 0;
}

const int *rf_clocks_now(const struct rf_clocks *c, int lane)
{
    return c->now[lane];
}

const int *rf_clocks_at(const struct rf_clocks *c, int lane, int position)
{
    return c->rows[c->first[lane] + position];
}

int rf_clocks_pass(struct rf_clocks *c, const struct rf_instruction *i)
{
    int *now = c->now[i->lane];
    const int position = c->passed[i->lane];
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = c->plan->waits[i->first_wait + k];
        if (wait.lane < 0 || wait.lane >= RF_LANE_COUNT || wait.position < 0 ||
            wait.position >= c->passed[wait.lane])
            return rf_fail(RF_EINVAL, "plan: an instruction waits for a later one");
        most(now, rf_clocks_at(c, wait.lane, wait.position));
    }
    now[i->lane] = position;
    memcpy(c->rows[c->first[i->lane] + position], now, sizeof(*c->rows));
    c->passed[i->lane]++;
    return 0;
}
