/* SPDX-License-Identifier: MIT
 *
 * Pass: the waits of each instruction. Instructions of different lanes that access the same bytes,
 * with at least one write, keep their list order. The waits are the minimum for that: none is
 * implied by another, and none is within a lane.
 */
#include "../plan/clocks.h"

#include "../../base/base.h"
#include "../plan/list.h"
#include "passes.h"

static int add_wait(struct rf_plan *plan, struct rf_instruction *i, struct rf_wait wait)
{
    if (!rf_array_reserve((void **)&plan->waits, plan->wait_count, &plan->wait_capacity,
                          sizeof(*plan->waits)))
        return rf_fail(RF_ENOMEM, "plan: out of memory for the waits");
    plan->waits[plan->wait_count++] = wait;
    i->waits++;
    return 0;
}

/* Whether one of the other needs implies this one. */
static bool implied(const struct rf_clocks *c, const int need[RF_LANE_COUNT], int lane)
{
    for (int other = 0; other < RF_LANE_COUNT; other++)
        if (other != lane && need[other] >= 0 &&
            rf_clocks_at(c, other, need[other])[lane] >= need[lane])
            return true;
    return false;
}

static int derive(struct rf_plan *plan, struct rf_clocks *c, struct rf_instruction *i)
{
    int need[RF_LANE_COUNT];
    RETURN_IF_ERROR(rf_clocks_needs(c, i, need));
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (lane == (int)i->lane || need[lane] <= rf_clocks_now(c, i->lane)[lane])
            need[lane] = -1;
    i->first_wait = plan->wait_count;
    i->waits = 0;
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (need[lane] >= 0 && !implied(c, need, lane))
            RETURN_IF_ERROR(add_wait(plan, i, (struct rf_wait){lane, need[lane]}));
    return rf_clocks_pass(c, i);
}

struct marking {
    const struct rf_plan *plan;
    struct rf_list *list;
    int *of_lane;             /* list index by lane and position */
    int first[RF_LANE_COUNT]; /* index in of_lane at which a lane begins */
    int next[RF_LANE_COUNT];
    int segment; /* list index of its first instruction; -1: none is open */
};

static struct rf_instruction *at_place(const struct marking *m, int lane, int position, int *index)
{
    *index = m->of_lane[m->first[lane] + position];
    return &m->list->instructions[*index];
}

/* Whether all waits of `i` are for work that had ended when the open segment began, because the
 * host blocked in it. */
static bool settled(const struct marking *m, const struct rf_instruction *i)
{
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = m->plan->waits[i->first_wait + k];
        int index = 0;
        const struct rf_instruction *other = at_place(m, wait.lane, wait.position, &index);
        if (!rf_verb_blocks(other->verb) || index > m->segment)
            return false;
    }
    return true;
}

static void mark_waits(const struct marking *m, const struct rf_instruction *i)
{
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = m->plan->waits[i->first_wait + k];
        int index = 0;
        at_place(m, wait.lane, wait.position, &index)->posts = true;
    }
}

/* Work is submitted at instructions that another lane waits for, before an instruction that waits,
 * and at the end. It is also submitted after each forward pass, so that the device starts while the
 * backward pass is being recorded. */
static void mark_posts(struct marking *m)
{
    struct rf_list *list = m->list;
    for (int lane = 1; lane < RF_LANE_COUNT; lane++)
        m->first[lane] = m->first[lane - 1] + list->positions[lane - 1];
    for (int at = 0; at < list->count; at++) {
        struct rf_instruction *i = &list->instructions[at];
        const int position = m->next[i->lane]++;
        m->of_lane[m->first[i->lane] + position] = at;
        i->posts = position + 1 == list->positions[i->lane] ||
                   (i->verb == RF_VERB_FORWARD && i->block + 1 == m->plan->block_count);
        mark_waits(m, i);
    }
    m->next[RF_LANE_COMPUTE] = 0;
    for (int at = 0; at < list->count; at++) {
        struct rf_instruction *i = &list->instructions[at];
        int before = 0;
        if (i->lane != RF_LANE_COMPUTE)
            continue;
        const int position = m->next[i->lane]++;
        if (m->segment >= 0 && !settled(m, i)) {
            at_place(m, RF_LANE_COMPUTE, position - 1, &before)->posts = true;
            m->segment = -1;
        }
        if (m->segment < 0)
            m->segment = at;
        if (i->posts)
            m->segment = -1;
    }
}

static int derive_list(struct rf_plan *plan, struct rf_list *list)
{
    struct rf_clocks *c = NULL;
    int *of_lane = rf_alloc(((size_t)list->count + 1) * sizeof(*of_lane));
    int rc = of_lane ? rf_clocks_open(plan, list, &c)
                     : rf_fail(RF_ENOMEM, "plan: out of memory for the waits");
    for (int i = 0; rc == 0 && i < list->count; i++)
        rc = derive(plan, c, &list->instructions[i]);
    if (rc == 0)
        mark_posts(
            &(struct marking){.plan = plan, .list = list, .of_lane = of_lane, .segment = -1});
    rf_clocks_close(c);
    rf_free(of_lane);
    return rc;
}

int rf_pass_edges(struct rf_plan *plan)
{
    plan->wait_count = 0;
    for (int id = 0; id < RF_LIST_COUNT; id++)
        RETURN_IF_ERROR(derive_list(plan, &plan->lists[id]));
    return 0;
}
