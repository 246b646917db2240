/* SPDX-License-Identifier: MIT
 *
 * Pass: optimizer states on a disk (Rajbhandari et al. 2021, ZeRO-Infinity). A piece's update by
 * the host becomes one for each block of its states, which is read before it and written after it.
 * Host memory has DISK_BUFFERS blocks: while the host updates one, the disk writes the block before
 * and reads the one after. The first blocks are read when the step begins.
 */
#include "../plan/list.h"
#include "passes.h"

enum { DISK_BUFFERS = 2 };
_Static_assert((int)RF_PLAN_STATES <= RF_STATE_STRIDE, "a number for each state of a block");

/* A position among all blocks of an update. */
struct place {
    int piece, block;
};

/* Moves to the block at this position or the next one that there is; false: there is none. */
static bool find_block(const struct rf_plan *plan, struct place *at)
{
    for (; at->piece < plan->trained_pieces; at->piece++, at->block = 0)
        if (plan->pieces[at->piece].use < 0 && at->block < rf_plan_disk_blocks(plan, at->piece))
            return true;
    return false;
}

static int state_of(struct rf_writer *w, enum rf_value_kind kind, struct place at, int k)
{
    return rf_value_of(w->plan, kind, -1, -1, at.block * RF_STATE_STRIDE + k, at.piece);
}

/* Copies the states of a block from the disk, or to it. */
static void copy(struct rf_writer *w, enum rf_verb verb, struct place at)
{
    const bool reads = verb == RF_VERB_READ;
    rf_write(w, verb, RF_LANE_DISK, -1, -1);
    for (int k = 0; k < RF_PLAN_STATES; k++)
        if (rf_plan_has_state(w->plan, k))
            rf_write_in(w, RF_ROLE_FROM,
                        state_of(w, reads ? RF_VALUE_STATE : RF_VALUE_HOST_STATE, at, k));
    for (int k = 0; k < RF_PLAN_STATES; k++)
        if (rf_plan_has_state(w->plan, k))
            rf_write_out(w, RF_ROLE_TO,
                         state_of(w, reads ? RF_VALUE_HOST_STATE : RF_VALUE_STATE, at, k));
}

/* Reads the next block that was not read yet, if there is one. */
static void read_ahead(struct rf_writer *w, struct place *next)
{
    if (!find_block(w->plan, next))
        return;
    copy(w, RF_VERB_READ, *next);
    next->block++;
}

/* The update of a piece, for one block of its states. */
static void update_block(struct rf_writer *w, const struct rf_instruction *i, struct place at)
{
    struct rf_plan *plan = w->plan;
    rf_write(w, i->verb, i->lane, i->block, i->micro_batch);
    for (int k = 0; k < i->ins + i->outs; k++) {
        const enum rf_role role = (enum rf_role)plan->roles[i->first_operand + k];
        int value = plan->operands[i->first_operand + k];
        if (role >= RF_ROLE_STATE && role <= RF_ROLE_STATE_END)
            value = state_of(w, RF_VALUE_HOST_STATE, at, (int)role - (int)RF_ROLE_STATE);
        if (k < i->ins)
            rf_write_in(w, role, value);
        else
            rf_write_out(w, role, value);
    }
}

static void update_piece(struct rf_writer *w, const struct rf_instruction *i, struct place *next)
{
    const int piece = w->plan->values[w->plan->operands[i->first_operand]].piece;
    const int blocks = rf_plan_disk_blocks(w->plan, piece);
    for (int block = 0; block < blocks; block++) {
        const struct place at = {piece, block};
        update_block(w, i, at);
        copy(w, RF_VERB_WRITE, at);
        read_ahead(w, next);
    }
}

int rf_pass_disk(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct rf_writer w = {.plan = plan, .list = &written};
    struct place next = {0, 0};
    bool any = false;
    for (int k = 0; k < RF_PLAN_STATES; k++)
        any |= rf_plan_has_state(plan, k);
    if (!any || !plan->trains || !rf_plan_states_on_disk(plan))
        return 0;
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        if (i->verb == RF_VERB_HOST_STEP)
            update_piece(&w, i, &next);
        else
            rf_write_copy(&w, i);
        for (int buffer = 0; k == 0 && buffer < DISK_BUFFERS; buffer++)
            read_ahead(&w, &next);
    }
    return rf_write_end(&w, list);
}
