/* SPDX-License-Identifier: MIT
 *
 * Lifetimes of temporary values: see intervals.h. Called by lifetimes.c, which assigns memory.
 *
 * Memory that another lane reads becomes free when that lane has read it, not at its position in
 * the list; the disk's lane waits for its buffers, of which there are few. If compute reused such
 * memory at once, it would wait, so the memory is kept for SETTLE more calls of blocks. A value
 * that is copied to the host while the next block computes is kept for that call. The memory of a
 * message is kept until its receiver reaches it: at most as many passes through a stage later as a
 * pipeline has ranks. Then no rank has to wait for it.
 *
 * If messages travel in a cycle (several stages on a rank), the memory of a sent value is kept
 * until a message from the same peer shows that it has arrived. Otherwise each of several ranks
 * could wait, before it receives, for memory that it is still sending to the next one.
 */
#include "intervals.h"

#include "../../base/base.h"
#include "../plan/list.h"
#include "passes.h"
#include "stages.h"

enum { SETTLE = 2, SETTLE_EVICTED = 1 };

struct uses {
    const struct rf_plan *plan;
    struct rf_interval *intervals;
    int count, capacity;
    bool *placed;                 /* by value: it needs memory */
    bool *carried;                /* by value: a training list leaves it to the next one (2bw) */
    int *open;                    /* by value: its interval that may be extended; -1: none */
    struct rf_arrivals *arrivals; /* NULL: messages do not travel in a cycle */
    int *received;                /* then by value: the last position that receives it */
    int send_calls;               /* delay_calls of a lane that sends */
    /* For the current list: the positions of calls of blocks; the number of these calls so far. */
    int *calls, call_count, called;
};

bool rf_value_is_placed(const struct rf_plan *plan, const struct rf_value *value)
{
    return rf_value_is_temporary(plan, value->kind) && value->bytes > 0;
}

/* The number of blocks in the largest stage. */
static int most_blocks(const struct rf_plan *plan)
{
    int most = 0, here = 0;
    for (int b = 0; b < plan->block_count; b++) {
        here = b > 0 && plan->stage_of[b] == plan->stage_of[b - 1] ? here + 1 : 1;
        most = here > most ? here : most;
    }
    return most;
}

/* The number of further calls of blocks during which memory that a lane reads is kept. */
static int delay_calls(const struct uses *p, int lane)
{
    if (!rf_lane_sends(lane))
        return lane == RF_LANE_EVICT ? SETTLE_EVICTED : SETTLE;
    return p->send_calls;
}

/* The list position up to which memory that the instruction at `at` reads is kept. */
static int free_after(const struct uses *p, const struct rf_list *list, int at)
{
    const int lane = (int)list->instructions[at].lane;
    if (lane == RF_LANE_COMPUTE || lane == RF_LANE_HOST || lane == RF_LANE_DISK)
        return at;
    const int last = p->called + delay_calls(p, lane) - 1;
    return last < p->call_count ? p->calls[last] : list->count - 1;
}

/* Calls of blocks write parts of gradients, so the lifetime of a gradient begins with its clearing.
 */
static bool begins(const struct rf_plan *plan, const struct rf_instruction *i, int value)
{
    const int *ins = plan->operands + i->first_operand;
    for (int k = 0; k < i->ins; k++)
        if (rf_value_storage(plan, ins[k]) == value)
            return false;
    return plan->values[value].kind != RF_VALUE_GRAD || i->verb == RF_VERB_ZERO ||
           i->verb == RF_VERB_ZERO_WHOLE;
}

static int use(struct uses *p, int value, int begin, int end, bool anew)
{
    if (!p->placed[value])
        return 0;
    if (anew || p->open[value] < 0) {
        if (!rf_array_reserve((void **)&p->intervals, p->count, &p->capacity,
                              sizeof(*p->intervals)))
            return rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
        p->open[value] = p->count;
        p->intervals[p->count++] = (struct rf_interval){.value = value, .begin = begin};
    }
    struct rf_interval *interval = &p->intervals[p->open[value]];
    interval->end = end > interval->end ? end : interval->end;
    return 0;
}

/* The list position at which the instruction's message is known to have arrived; the end of the
 * list if nothing shows it. */
static int arrived(const struct uses *p, const struct rf_list *list, int at, int *out)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_value *v = &plan->values[plan->operands[list->instructions[at].first_operand]];
    struct rf_message seen;
    const int found = rf_plan_message_seen(p->arrivals, v, &seen);
    *out = list->count - 1;
    if (found <= 0)
        return found;
    const struct rf_value message = {
        .kind = seen.kind, .block = seen.block, .slot = -1, .piece = -1};
    const int value = rf_value_find(plan, &message, seen.micro_batch);
    if (value >= 0 && p->received[value] >= at)
        *out = p->received[value];
    return 0;
}

/* Finds the positions at which a list calls blocks and receives their values. */
static void find_calls(struct uses *p, const struct rf_list *list)
{
    p->call_count = p->called = 0;
    for (int v = 0; p->arrivals && v < p->plan->value_count; v++)
        p->received[v] = -1;
    for (int at = 0; at < list->count; at++) {
        const struct rf_instruction *i = &list->instructions[at];
        if (rf_verb_calls_block(i->verb))
            p->calls[p->call_count++] = at;
        if (p->arrivals && i->verb == RF_VERB_RECV && i->block >= 0)
            p->received[p->plan->operands[i->first_operand]] = at;
    }
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

/* Finds the values that a list reads before it writes them. */
static void find_carried(struct uses *p)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_list *list = &plan->lists[RF_LIST_STEP];
    for (int v = 0; v < plan->value_count; v++)
        p->open[v] = -1;
    for (int at = 0; rf_plan_lags(plan) && at < list->count; at++) {
        const struct rf_instruction *i = &list->instructions[at];
        const int *operands = plan->operands + i->first_operand;
        for (int k = 0; k < i->ins + i->outs; k++) {
            p->carried[operands[k]] |= k < i->ins && p->open[operands[k]] < 0 &&
                                       rf_value_is_temporary(plan, plan->values[operands[k]].kind);
            p->open[operands[k]] = at;
        }
    }
}

/* Extends the lifetimes of carried values to before the list (begins) or after it. */
static int carry(struct uses *p, const struct rf_list *list, int base, bool begins)
{
    const struct rf_list *lists = p->plan->lists;
    if (list == &lists[begins ? RF_LIST_FILL : RF_LIST_DRAIN] || list > &lists[RF_LIST_DRAIN])
        return 0;
    const int at = begins ? base : base + list->count - 1;
    for (int v = 0; v < p->plan->value_count; v++)
        if (p->carried[v])
            RETURN_IF_ERROR(use(p, v, at, at, begins));
    return 0;
}

static int follow(struct uses *p, const struct rf_list *list, int base)
{
    const struct rf_plan *plan = p->plan;
    for (int v = 0; v < plan->value_count; v++)
        p->open[v] = -1;
    find_calls(p, list);
    RETURN_IF_ERROR(carry(p, list, base, true));
    for (int at = 0; at < list->count; at++) {
        const struct rf_instruction *i = &list->instructions[at];
        const int *operands = plan->operands + i->first_operand;
        const bool sent = i->verb == RF_VERB_SEND && i->block >= 0 && p->arrivals;
        const bool kept = sent && list == &plan->lists[RF_LIST_STEP];
        int seen = 0;
        p->called += rf_verb_calls_block(i->verb);
        if (kept)
            RETURN_IF_ERROR(arrived(p, list, at, &seen));
        const int end = base + later(free_after(p, list, at), seen);
        for (int k = 0; k < i->ins + i->outs; k++) {
            const int value = rf_value_storage(plan, operands[k]);
            RETURN_IF_ERROR(use(p, value, base + at, k < i->ins ? end : base + at,
                                k >= i->ins && begins(plan, i, value)));
        }
    }
    return carry(p, list, base, false);
}

static int follow_all(struct uses *p)
{
    int base = 0;
    find_carried(p);
    for (int id = 0; id < RF_LIST_COUNT; id++) {
        RETURN_IF_ERROR(follow(p, &p->plan->lists[id], base));
        base += p->plan->lists[id].count;
    }
    return 0;
}

static int open_uses(struct uses *p)
{
    const struct rf_plan *plan = p->plan;
    const size_t values = (size_t)plan->value_count + 1;
    size_t longest = 0;
    for (int id = 0; id < RF_LIST_COUNT; id++)
        if ((size_t)plan->lists[id].count > longest)
            longest = (size_t)plan->lists[id].count;
    p->send_calls = plan->mesh.pp * most_blocks(plan);
    p->placed = rf_alloc(values * sizeof(*p->placed));
    p->carried = rf_alloc(values * sizeof(*p->carried));
    p->open = rf_alloc(values * sizeof(*p->open));
    p->received = rf_alloc(values * sizeof(*p->received));
    p->calls = rf_alloc((longest + 1) * sizeof(*p->calls));
    if (!p->placed || !p->carried || !p->open || !p->received || !p->calls)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    for (int v = 0; v < plan->value_count; v++)
        p->placed[v] = rf_value_is_placed(plan, &plan->values[v]);
    return rf_plan_arrivals_open(plan, &p->arrivals);
}

int rf_plan_intervals(const struct rf_plan *plan, struct rf_interval **out, int *count)
{
    struct uses p = {.plan = plan};
    int rc = open_uses(&p);
    if (rc == 0)
        rc = follow_all(&p);
    rf_plan_arrivals_close(p.arrivals);
    rf_free(p.placed);
    rf_free(p.carried);
    rf_free(p.open);
    rf_free(p.received);
    rf_free(p.calls);
    if (rc < 0) {
        rf_free(p.intervals);
        return rc;
    }
    *out = p.intervals;
    *count = p.count;
    return 0;
}
