/* SPDX-License-Identifier: MIT
 *
 * What values mean. Every write says what a value holds from then on, and makes invalid what shares
 * its memory; every read demands what it has to find. Of gradients is followed which micro-batches
 * of which block, in both halves, are in a sum, each exactly once, and in tree order its shape.
 */
#include "../base/base.h"
#include "check.h"

/* What a value holds. */
enum state {
    NOTHING = 0,
    HELD,    /* what its kind says */
    CARRIED, /* of the last output: its own gradient */
    KNOWN,   /* of scalars: with the token count */
    BEGUN,   /* of scalars: with norm and clipping */
    MOVED,   /* of scalars: the loss scale as well */
    UPDATED, /* of parameters, copies and states: after the step */
    CLEARED, /* of gradients: no micro-batch yet */
    SUM,     /* of gradients: of some micro-batches */
    TOTAL    /* of gradients: of all micro-batches of all ranks */
};

struct token {
    enum state state;
    bool read;       /* since it was written */
    int low, high;   /* SUM: micro-batches, by global index */
    int ties;        /* TOTAL: tied uses that were added */
    bool normed;     /* it is in the norm */
    uint8_t *counts; /* SUM: per block, micro-batch and half: how often it is in */
};

struct rf_meaning {
    const struct rf_plan *const *plans;
    int ranks;
    struct token **tokens; /* per rank, by value */
    bool *used;            /* of the operands of one instruction: it had to be there */
    int used_room;
    int unread; /* a value that was overwritten before anyone had read it; -1: none */
};

struct at { /* one instruction on one rank */
    struct rf_meaning *m;
    const struct rf_plan *plan;
    const struct rf_instruction *i;
    struct token *tokens;
};

static size_t count_bytes(const struct rf_plan *plan)
{
    return (size_t)plan->block_count * (size_t)plan->policy.micro_batches * 2;
}

int rf_meaning_open(const struct rf_plan *const *plans, int ranks, struct rf_meaning **out)
{
    struct rf_meaning *m = *out = rf_alloc(sizeof(*m));
    if (!m)
        return rf_fail(RF_ENOMEM, "check: out of memory");
    m->plans = plans;
    m->tokens = rf_alloc((size_t)ranks * sizeof(*m->tokens));
    if (!m->tokens)
        return rf_fail(RF_ENOMEM, "check: out of memory");
    for (m->ranks = 0; m->ranks < ranks; m->ranks++) {
        const struct rf_plan *plan = plans[m->ranks];
        struct token *tokens = m->tokens[m->ranks] =
            rf_alloc(((size_t)plan->value_count + 1) * sizeof(*tokens));
        if (!tokens)
            return rf_fail(RF_ENOMEM, "check: out of memory");
        for (int v = 0; v < plan->value_count; v++) {
            const enum rf_value_kind kind = plan->values[v].kind;
            if (kind == RF_VALUE_PARAM || kind == RF_VALUE_COPY || kind == RF_VALUE_STATE ||
                kind == RF_VALUE_CHUNKS || kind == RF_VALUE_DECAY)
                tokens[v].state = HELD;
            if (kind == RF_VALUE_GRAD)
                tokens[v].counts = rf_alloc(count_bytes(plan));
            if (kind == RF_VALUE_GRAD && !tokens[v].counts)
                return rf_fail(RF_ENOMEM, "check: out of memory");
        }
    }
    return 0;
}

void rf_meaning_close(struct rf_meaning *m)
{
    if (!m)
        return;
    for (int rank = 0; m->tokens && rank < m->ranks; rank++) {
        for (int v = 0; m->tokens[rank] && v < m->plans[rank]->value_count; v++)
            rf_free(m->tokens[rank][v].counts);
        rf_free(m->tokens[rank]);
    }
    rf_free(m->tokens);
    rf_free(m->used);
    rf_free(m);
}

/* ---- operands -------------------------------------------------------------------------------- */

static bool overlap(const struct rf_value *a, const struct rf_value *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Not of what is written on the way or for the host, nor of parameters: blocks read one of their
 * two forms, and all pieces have both. */
static bool must_be_read(const struct rf_plan *plan, enum rf_value_kind kind)
{
    return !plan->policy.forward_only && kind != RF_VALUE_SCRATCH && kind != RF_VALUE_WORKSPACE &&
           kind != RF_VALUE_PARTIALS && kind != RF_VALUE_LOSSES && kind != RF_VALUE_SCALARS &&
           kind != RF_VALUE_COPY && kind != RF_VALUE_PARAM;
}

static void lose(const struct at *a, int value)
{
    struct token *t = &a->tokens[value];
    if (t->state != NOTHING && !t->read && must_be_read(a->plan, a->plan->values[value].kind))
        a->m->unread = value;
    t->state = NOTHING;
}

static void put(const struct at *a, int value, enum state state)
{
    const struct rf_value *v = &a->plan->values[value];
    for (int other = 0; other < a->plan->value_count; other++)
        if (other == value || overlap(v, &a->plan->values[other]))
            lose(a, other);
    a->tokens[value].state = state;
    a->tokens[value].read = false;
}

/* An instruction has the operands that it needs, each once, and no others. */
static int begin_operands(const struct at *a)
{
    struct rf_meaning *m = a->m;
    const int count = a->i->ins + a->i->outs;
    if (count > m->used_room) {
        bool *grown = rf_realloc(m->used, (size_t)count * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "check: out of memory");
        m->used = grown;
        m->used_room = count;
    }
    for (int k = 0; k < count; k++)
        m->used[k] = false;
    m->unread = -1;
    return 0;
}

static int end_operands(const struct at *a)
{
    char text[96];
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        if (!a->m->used[k])
            return rf_check_fail(a->plan, a->i, "has no use for its operand %d", k);
    if (a->m->unread >= 0)
        return rf_check_fail(a->plan, a->i, "overwrites %s, which nobody has read",
                             rf_value_text(&a->plan->values[a->m->unread], text, sizeof(text)));
    return 0;
}

static void use_all(const struct at *a)
{
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        a->m->used[k] = true;
}

/* The operand of this kind and these places (-1: any) that was not used yet; -1: there is none. */
static int operand(const struct at *a, bool out, enum rf_value_kind kind, int block,
                   int micro_batch, int piece)
{
    const int begin = out ? a->i->ins : 0, end = out ? a->i->ins + a->i->outs : a->i->ins;
    for (int k = begin; k < end; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct rf_value *v = &a->plan->values[value];
        if (!a->m->used[k] && v->kind == kind && (block < 0 || v->block == block) &&
            (micro_batch < 0 || v->micro_batch == micro_batch) &&
            (piece < 0 || v->piece == piece)) {
            a->m->used[k] = true;
            return value;
        }
    }
    return -1;
}

static int demand(const struct at *a, int value, enum state state)
{
    char text[96];
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks an operand");
    if (a->tokens[value].state != state)
        return rf_check_fail(a->plan, a->i, "finds in %s not what it needs (%d, not %d)",
                             rf_value_text(&a->plan->values[value], text, sizeof(text)),
                             (int)a->tokens[value].state, (int)state);
    a->tokens[value].read = true;
    return 0;
}

static int read(const struct at *a, enum rf_value_kind kind, int block, int micro_batch,
                enum state state)
{
    return demand(a, operand(a, false, kind, block, micro_batch, -1), state);
}

static int write(const struct at *a, enum rf_value_kind kind, int block, int micro_batch,
                 enum state state)
{
    int value = operand(a, true, kind, block, micro_batch, -1);
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    put(a, value, state);
    return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int read_params(const struct at *a)
{
    const struct rf_plan *plan = a->plan;
    for (int k = 0; k < plan->blocks[a->i->block].param_count; k++) {
        const struct rf_plan_param *p = &plan->params[plan->first_param[a->i->block] + k];
        const enum rf_value_kind kind = p->desc->dtype == RF_F32 ? RF_VALUE_PARAM : RF_VALUE_COPY;
        bool before = false;
        for (int other = 0; other < k && !before; other++)
            before = p[other - k].piece == p->piece &&
                     (p[other - k].desc->dtype == RF_F32) == (p->desc->dtype == RF_F32);
        if (!before)
            RETURN_IF_ERROR(demand(a, operand(a, false, kind, -1, -1, p->piece), HELD));
    }
    return 0;
}

static int begin_block(const struct at *a)
{
    const struct rf_instruction *i = a->i;
    const int *first = a->plan->first_micro_batch + a->plan->rank;
    if (i->block < 0 || i->micro_batch < first[0] || i->micro_batch >= first[1])
        return rf_check_fail(a->plan, i, "is not of this rank");
    RETURN_IF_ERROR(i->block == 0 ? read(a, RF_VALUE_TOKENS, -1, i->micro_batch, HELD)
                                  : read(a, RF_VALUE_OUT, i->block - 1, i->micro_batch, HELD));
    RETURN_IF_ERROR(read(a, RF_VALUE_TARGETS, -1, i->micro_batch, HELD));
    if (!a->plan->policy.forward_only)
        RETURN_IF_ERROR(read(a, RF_VALUE_SCALARS, -1, -1, HELD));
    return read_params(a);
}

static bool is_last(const struct at *a)
{
    return a->i->block + 1 == a->plan->block_count;
}

static int end_block(const struct at *a)
{
    RETURN_IF_ERROR(write(a, RF_VALUE_SCRATCH, -1, -1, HELD));
    return write(a, RF_VALUE_WORKSPACE, -1, -1, HELD);
}

static int forward(const struct at *a)
{
    const struct rf_instruction *i = a->i;
    RETURN_IF_ERROR(begin_block(a));
    RETURN_IF_ERROR(write(a, RF_VALUE_OUT, i->block, i->micro_batch, HELD));
    RETURN_IF_ERROR(write(a, RF_VALUE_SAVED, i->block, i->micro_batch, HELD));
    if (is_last(a))
        RETURN_IF_ERROR(write(a, RF_VALUE_LOSSES, -1, i->micro_batch, HELD));
    return end_block(a);
}

static uint8_t *count_of(const struct at *a, struct token *t, int block, int micro_batch, int half)
{
    return &t->counts[((size_t)block * (size_t)a->plan->policy.micro_batches +
                       (size_t)micro_batch) *
                          2 +
                      (size_t)half];
}

/* Whether a sum has something of this block from another micro-batch. */
static bool has_others(const struct at *a, struct token *t)
{
    for (int m = 0; m < a->plan->policy.micro_batches; m++)
        for (int half = 0; half < 2; half++)
            if (m != a->i->micro_batch && *count_of(a, t, a->i->block, m, half))
                return true;
    return false;
}

static int add_leaf(const struct at *a, int value, int half)
{
    struct token *t = &a->tokens[value];
    const int m = a->i->micro_batch;
    const bool tree = a->plan->policy.order == RF_ORDER_TREE;
    if (t->state != CLEARED && t->state != SUM)
        return rf_check_fail(a->plan, a->i, "adds to gradients that hold no sum");
    if (t->state == CLEARED) {
        t->state = SUM;
        t->read = true;
        t->low = m;
        t->high = m + 1;
    }
    if (m >= t->high)
        t->high = m + 1;
    if (m < t->low || (tree && t->high - t->low > 1))
        return rf_check_fail(a->plan, a->i, "adds to the sum of micro-batches %d to %d", t->low,
                             t->high - 1);
    if ((*count_of(a, t, a->i->block, m, half))++)
        return rf_check_fail(a->plan, a->i, "adds the same gradient twice");
    return 0;
}

/* What is not read is written, where the block writes; so nothing may be there, and the other way
 * round. */
static int add_gradients(const struct at *a, int half)
{
    const struct rf_plan *plan = a->plan;
    const int first = plan->first_param[a->i->block];
    for (int k = 0; k < plan->blocks[a->i->block].param_count; k++) {
        const int piece = plan->params[first + k].grad_piece;
        bool before = piece < 0;
        for (int other = 0; other < k && !before; other++)
            before = plan->params[first + other].grad_piece == piece;
        if (before)
            continue;
        const int out = operand(a, true, RF_VALUE_GRAD, -1, -1, piece);
        const int in = operand(a, false, RF_VALUE_GRAD, -1, -1, piece);
        if (out < 0 || (in >= 0 && in != out))
            return rf_check_fail(plan, a->i, "lacks gradients of piece %d", piece);
        if (has_others(a, &a->tokens[out]) != (in >= 0))
            return rf_check_fail(plan, a->i,
                                 in < 0 ? "writes over earlier gradients"
                                        : "adds to what was not cleared");
        RETURN_IF_ERROR(add_leaf(a, out, half));
    }
    return 0;
}

static int backward(const struct at *a)
{
    const struct rf_instruction *i = a->i;
    const int b = i->block, m = i->micro_batch, half = i->verb == RF_VERB_BACKWARD_WEIGHT;
    const enum rf_value_kind dout = is_last(a) ? RF_VALUE_OUT : RF_VALUE_DOUT;
    RETURN_IF_ERROR(begin_block(a));
    RETURN_IF_ERROR(read(a, RF_VALUE_SAVED, b, m, HELD));
    if (half) {
        RETURN_IF_ERROR(read(a, dout, b, m, CARRIED));
        RETURN_IF_ERROR(read(a, RF_VALUE_HANDOFF, b, m, HELD));
    } else {
        RETURN_IF_ERROR(read(a, dout, b, m, HELD));
        RETURN_IF_ERROR(write(a, dout, b, m, CARRIED));
        if (b > 0)
            RETURN_IF_ERROR(write(a, RF_VALUE_DOUT, b - 1, m, HELD));
        RETURN_IF_ERROR(write(a, RF_VALUE_HANDOFF, b, m, HELD));
        if (is_last(a))
            RETURN_IF_ERROR(write(a, RF_VALUE_LOSSES, -1, m, HELD));
    }
    RETURN_IF_ERROR(add_gradients(a, half));
    return end_block(a);
}

/* That all operands are gradients. */
static int check_gradients(const struct at *a)
{
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        if (a->plan->values[a->plan->operands[a->i->first_operand + k]].kind != RF_VALUE_GRAD)
            return rf_check_fail(a->plan, a->i, "operand %d is no gradient", k);
    return 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static int zero(const struct at *a)
{
    RETURN_IF_ERROR(check_gradients(a));
    use_all(a);
    for (int k = 0; k < a->i->outs; k++) {
        const int value = a->plan->operands[a->i->first_operand + a->i->ins + k];
        put(a, value, CLEARED);
        memset(a->tokens[value].counts, 0, count_bytes(a->plan));
    }
    return 0;
}

/* Both halves of all of its micro-batches are in a piece's sum, for every block that has a part. */
static int check_whole(const struct at *a, int value)
{
    const struct rf_plan *plan = a->plan;
    struct token *t = &a->tokens[value];
    RETURN_IF_ERROR(demand(a, value, SUM));
    for (int k = 0; k < plan->param_count; k++)
        for (int m = t->low; m < t->high; m++)
            for (int half = 0; half < 2; half++)
                if (plan->params[k].grad_piece == plan->values[value].piece &&
                    *count_of(a, t, plan->params[k].block, m, half) != 1)
                    return rf_check_fail(plan, a->i, "the sum lacks micro-batch %d of block %d", m,
                                         plan->params[k].block);
    return 0;
}

/* Siblings of the tree over all micro-batches, whose right edge may be cut off. */
static bool siblings(const struct rf_plan *plan, const struct token *left,
                     const struct token *right)
{
    const int64_t width = left->high - left->low, count = right->high - right->low;
    return left->high == right->low && (width & (width - 1)) == 0 && left->low % (2 * width) == 0 &&
           count <= width && (count == width || right->high == plan->policy.micro_batches);
}

static int merge_one(const struct at *a, int left, int right)
{
    struct token *l = &a->tokens[left], *r = &a->tokens[right];
    RETURN_IF_ERROR(check_whole(a, left));
    RETURN_IF_ERROR(check_whole(a, right));
    if (a->plan->values[left].piece != a->plan->values[right].piece || !siblings(a->plan, l, r))
        return rf_check_fail(a->plan, a->i, "adds micro-batches %d to %d and %d to %d", l->low,
                             l->high - 1, r->low, r->high - 1);
    for (size_t k = 0; k < count_bytes(a->plan); k++)
        l->counts[k] = (uint8_t)(l->counts[k] + r->counts[k]);
    l->high = r->high;
    r->state = NOTHING; /* a sum is used once */
    return 0;
}

static int merge(const struct at *a)
{
    const int *operands = a->plan->operands + a->i->first_operand;
    const int n = a->i->outs;
    if (n < 1 || a->i->ins != 2 * n)
        return rf_check_fail(a->plan, a->i, "has %d operands", a->i->ins);
    RETURN_IF_ERROR(check_gradients(a));
    use_all(a);
    for (int k = 0; k < n; k++) {
        if (operands[k] != operands[2 * n + k])
            return rf_check_fail(a->plan, a->i, "does not add in place");
        RETURN_IF_ERROR(merge_one(a, operands[k], operands[n + k]));
    }
    return 0;
}

/* ---- update ---------------------------------------------------------------------------------- */

static int uses_of(const struct rf_plan *plan, int piece)
{
    int uses = 0;
    for (int k = 0; k < plan->piece_count; k++)
        if (plan->pieces[k].use >= 0 &&
            plan->params[plan->params[plan->pieces[k].use].owner].grad_piece == piece)
            uses++;
    return uses;
}

/* With one rank no reduction makes a sum the total. */
static int make_total(const struct at *a, int value)
{
    struct token *t = &a->tokens[value];
    if (t->state == TOTAL || a->plan->mesh.dp > 1)
        return demand(a, value, TOTAL);
    RETURN_IF_ERROR(check_whole(a, value));
    if (t->low != 0 || t->high != a->plan->policy.micro_batches)
        return rf_check_fail(a->plan, a->i, "takes micro-batches %d to %d for all", t->low,
                             t->high - 1);
    t->state = TOTAL;
    t->ties = 0;
    t->normed = false;
    return 0;
}

static int tie(const struct at *a)
{
    const struct rf_plan *plan = a->plan;
    const int *operands = plan->operands + a->i->first_operand;
    if (a->i->ins != 2 || a->i->outs != 1 || operands[0] != operands[2])
        return rf_check_fail(plan, a->i, "does not add in place");
    RETURN_IF_ERROR(check_gradients(a));
    use_all(a);
    const int use = plan->pieces[plan->values[operands[1]].piece].use;
    if (use < 0 ||
        plan->params[plan->params[use].owner].grad_piece != plan->values[operands[0]].piece)
        return rf_check_fail(plan, a->i, "adds what is not tied");
    RETURN_IF_ERROR(make_total(a, operands[0]));
    RETURN_IF_ERROR(make_total(a, operands[1]));
    a->tokens[operands[0]].ties++;
    a->tokens[operands[1]].state = NOTHING;
    return 0;
}

/* For every piece with parameters: the gradients of all micro-batches and uses. */
static int read_totals(const struct at *a, bool norm)
{
    for (int piece = 0; piece < a->plan->trained_pieces; piece++) {
        if (a->plan->pieces[piece].use >= 0)
            continue;
        const int value = operand(a, false, RF_VALUE_GRAD, -1, -1, piece);
        if (value < 0)
            return rf_check_fail(a->plan, a->i, "lacks the gradients of piece %d", piece);
        if (norm)
            RETURN_IF_ERROR(make_total(a, value));
        RETURN_IF_ERROR(demand(a, value, TOTAL));
        if (a->tokens[value].ties != uses_of(a->plan, piece) || a->tokens[value].normed == norm)
            return rf_check_fail(a->plan, a->i, "piece %d lacks a tied use or the norm", piece);
        a->tokens[value].normed = true;
    }
    return 0;
}

static int norm(const struct at *a)
{
    RETURN_IF_ERROR(read_totals(a, true));
    RETURN_IF_ERROR(read(a, RF_VALUE_CHUNKS, -1, -1, HELD));
    RETURN_IF_ERROR(write(a, RF_VALUE_PARTIALS, -1, -1, HELD));
    return write(a, RF_VALUE_NORM, -1, -1, HELD);
}

static int begin_step(const struct at *a)
{
    RETURN_IF_ERROR(read(a, RF_VALUE_NORM, -1, -1, HELD));
    RETURN_IF_ERROR(read(a, RF_VALUE_SCALARS, -1, -1, KNOWN));
    return write(a, RF_VALUE_SCALARS, -1, -1, BEGUN);
}

/* The operand of this kind, slot and piece. */
static int operand_of_slot(const struct at *a, bool out, enum rf_value_kind kind, int slot,
                           int piece)
{
    const int begin = out ? a->i->ins : 0, end = out ? a->i->ins + a->i->outs : a->i->ins;
    for (int k = begin; k < end; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct rf_value *v = &a->plan->values[value];
        if (!a->m->used[k] && v->kind == kind && v->slot == slot && v->piece == piece) {
            a->m->used[k] = true;
            return value;
        }
    }
    return -1;
}

static int update(const struct at *a, enum rf_value_kind kind, int slot, bool reads)
{
    for (int piece = 0; piece < a->plan->trained_pieces; piece++) {
        if (a->plan->pieces[piece].use >= 0)
            continue;
        const int value = operand_of_slot(a, true, kind, slot, piece);
        if (value < 0)
            return rf_check_fail(a->plan, a->i, "lacks results of piece %d", piece);
        if (reads)
            RETURN_IF_ERROR(demand(a, operand_of_slot(a, false, kind, slot, piece), HELD));
        put(a, value, UPDATED);
    }
    return 0;
}

static int step(const struct at *a)
{
    const struct rf_plan *plan = a->plan;
    RETURN_IF_ERROR(read_totals(a, false));
    RETURN_IF_ERROR(read(a, RF_VALUE_DECAY, -1, -1, HELD));
    RETURN_IF_ERROR(read(a, RF_VALUE_SCALARS, -1, -1, BEGUN));
    RETURN_IF_ERROR(update(a, RF_VALUE_PARAM, -1, true));
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)k))
            RETURN_IF_ERROR(update(a, RF_VALUE_STATE, k, true));
    return plan->copy_type != RF_F32 ? update(a, RF_VALUE_COPY, -1, false) : 0;
}

static int end_step(const struct at *a)
{
    RETURN_IF_ERROR(read(a, RF_VALUE_SCALARS, -1, -1, BEGUN));
    return write(a, RF_VALUE_SCALARS, -1, -1, MOVED);
}

static int cast(const struct at *a)
{
    for (int piece = 0; piece < a->plan->trained_pieces; piece++) {
        if (a->plan->pieces[piece].use >= 0)
            continue;
        RETURN_IF_ERROR(demand(a, operand(a, false, RF_VALUE_PARAM, -1, -1, piece), UPDATED));
        const int copy = operand(a, true, RF_VALUE_COPY, -1, -1, piece);
        if (copy < 0)
            return rf_check_fail(a->plan, a->i, "lacks a result");
        put(a, copy, UPDATED);
    }
    return 0;
}

static int load(const struct at *a)
{
    const int *first = a->plan->first_micro_batch + a->plan->rank;
    for (int m = first[0]; m < first[1]; m++) {
        RETURN_IF_ERROR(write(a, RF_VALUE_TOKENS, -1, m, HELD));
        RETURN_IF_ERROR(write(a, RF_VALUE_TARGETS, -1, m, HELD));
    }
    return a->plan->policy.forward_only ? 0 : write(a, RF_VALUE_SCALARS, -1, -1, HELD);
}

int rf_meaning_run(struct rf_meaning *m, int rank, const struct rf_instruction *i)
{
    static int (*const verbs[RF_VERB_COUNT])(const struct at *) = {
        [RF_VERB_LOAD] = load,
        [RF_VERB_ZERO] = zero,
        [RF_VERB_FORWARD] = forward,
        [RF_VERB_BACKWARD_INPUT] = backward,
        [RF_VERB_BACKWARD_WEIGHT] = backward,
        [RF_VERB_MERGE] = merge,
        [RF_VERB_TIE] = tie,
        [RF_VERB_NORM] = norm,
        [RF_VERB_BEGIN_STEP] = begin_step,
        [RF_VERB_STEP] = step,
        [RF_VERB_END_STEP] = end_step,
        [RF_VERB_CAST] = cast,
    };
    const struct at a = {m, m->plans[rank], i, m->tokens[rank]};
    RETURN_IF_ERROR(begin_operands(&a));
    RETURN_IF_ERROR(verbs[i->verb](&a));
    return end_operands(&a);
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* The parts of this rank in the forest, each complete. */
static int check_parts(const struct at *a)
{
    struct rf_forest_node nodes[62];
    const int parts = rf_forest_nodes(&a->plan->forest, a->plan->rank, nodes);
    if (parts != a->i->ins)
        return rf_check_fail(a->plan, a->i, "brings %d subtrees, not %d", a->i->ins, parts);
    for (int k = 0; k < parts; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct token *t = &a->tokens[value];
        RETURN_IF_ERROR(check_whole(a, value));
        if (a->plan->values[value].slot != k || t->low != nodes[k].index << nodes[k].level ||
            t->high != (nodes[k].index + 1) << nodes[k].level)
            return rf_check_fail(a->plan, a->i, "subtree %d is of micro-batches %d to %d", k,
                                 t->low, t->high - 1);
    }
    return 0;
}

static int check_local_sum(const struct at *a)
{
    const int value = a->plan->operands[a->i->first_operand];
    const int *first = a->plan->first_micro_batch + a->plan->rank;
    const struct token *t = &a->tokens[value];
    if (a->i->ins != 1)
        return rf_check_fail(a->plan, a->i, "has %d operands", a->i->ins);
    RETURN_IF_ERROR(check_whole(a, value));
    if (t->low != first[0] || t->high != first[1])
        return rf_check_fail(a->plan, a->i, "has micro-batches %d to %d", t->low, t->high - 1);
    return 0;
}

static int reduce(const struct at *a, int piece)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    const bool root = t->op != RF_COLL_REDUCE || plan->rank == t->root;
    if (a->i->ins < 1)
        return rf_check_fail(plan, a->i, "lacks an operand");
    const int value = plan->operands[a->i->first_operand];
    for (int k = 0; k < a->i->ins + a->i->outs; k++) {
        const struct rf_value *v = &plan->values[plan->operands[a->i->first_operand + k]];
        if (v->kind != RF_VALUE_GRAD || v->piece != piece)
            return rf_check_fail(plan, a->i, "is of another piece than on rank 0");
    }
    if (t->count != plan->pieces[piece].count || t->dtype != RF_F32)
        return rf_check_fail(plan, a->i, "transfers %zu elements", t->count);
    if (t->order != plan->policy.order ||
        (t->op == RF_COLL_FOREST_ALL_REDUCE) != (t->order == RF_ORDER_TREE))
        return rf_check_fail(plan, a->i, "adds in another order");
    if (t->op != RF_COLL_FOREST_ALL_REDUCE && t->op != RF_COLL_ALL_REDUCE &&
        t->op != RF_COLL_REDUCE)
        return rf_check_fail(plan, a->i, "is no sum");
    RETURN_IF_ERROR(t->op == RF_COLL_FOREST_ALL_REDUCE ? check_parts(a) : check_local_sum(a));
    use_all(a);
    if (a->i->outs != (root ? 1 : 0) ||
        (root && plan->operands[a->i->first_operand + a->i->ins] != value))
        return rf_check_fail(plan, a->i, "does not leave the sum where it has to be");
    for (int k = 0; k < a->i->ins; k++)
        a->tokens[plan->operands[a->i->first_operand + k]].state = NOTHING;
    if (!root)
        return 0;
    put(a, value, TOTAL);
    a->tokens[value].ties = 0;
    a->tokens[value].normed = false;
    return 0;
}

static int loss(const struct at *a)
{
    const struct rf_plan *plan = a->plan;
    const int *first = plan->first_micro_batch + plan->rank;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    if (t->op != RF_COLL_ALL_REDUCE || t->dtype != RF_F64 || t->order != RF_ORDER_RING ||
        t->count != rf_plan_loss_elements(plan->policy.micro_batches))
        return rf_check_fail(plan, a->i, "transfers %zu elements", t->count);
    for (int m = first[0]; m < first[1]; m++) {
        RETURN_IF_ERROR(read(a, RF_VALUE_TARGETS, -1, m, HELD));
        const int losses = operand(a, false, RF_VALUE_LOSSES, -1, m, -1);
        RETURN_IF_ERROR(demand(a, losses, HELD));
        a->tokens[losses].state = NOTHING; /* read once */
    }
    return plan->policy.forward_only ? 0 : write(a, RF_VALUE_SCALARS, -1, -1, KNOWN);
}

/* The root's state of each value goes to the others. */
static int broadcast(const struct at *a, const struct at *root)
{
    const bool sends = a->plan->rank == root->plan->rank;
    const int count = sends ? a->i->ins : a->i->outs;
    const int *mine = a->plan->operands + a->i->first_operand + (sends ? 0 : a->i->ins);
    const int *theirs = root->plan->operands + root->i->first_operand;
    const struct rf_transfer *t = rf_plan_transfer(a->plan, a->i);
    uint64_t bytes = 0;
    if (t->op != RF_COLL_BROADCAST || t->order != RF_ORDER_RING || t->root != 0)
        return rf_check_fail(a->plan, a->i, "is no broadcast of rank 0");
    if (count != root->i->ins || (sends ? a->i->outs : a->i->ins) != 0)
        return rf_check_fail(a->plan, a->i, "has other operands than the root");
    use_all(a);
    for (int k = 0; k < count; k++) {
        const struct rf_value *v = &a->plan->values[mine[k]], *o = &root->plan->values[theirs[k]];
        const enum state state = root->tokens[theirs[k]].state;
        if (v->kind != o->kind || v->piece != o->piece ||
            t->dtype != (v->kind == RF_VALUE_PARAM ? RF_F32 : RF_U8))
            return rf_check_fail(a->plan, a->i, "has other operands than the root");
        if (state != UPDATED && state != BEGUN && state != MOVED)
            return rf_check_fail(a->plan, a->i, "sends what was not updated");
        bytes += v->bytes;
        if (!sends)
            put(a, mine[k], state);
    }
    if (t->count !=
            (t->dtype == RF_F32 ? a->plan->train_elements : sizeof(struct rf_step_scalars)) ||
        t->count * rf_dtype_bytes(t->dtype) > bytes)
        return rf_check_fail(a->plan, a->i, "transfers %zu elements", t->count);
    return 0;
}

int rf_meaning_transfer(struct rf_meaning *m, const struct rf_instruction *const *of_ranks)
{
    const struct rf_instruction *first = of_ranks[0];
    const struct rf_transfer *t = rf_plan_transfer(m->plans[0], first);
    const int piece = first->ins > 0
                          ? m->plans[0]->values[m->plans[0]->operands[first->first_operand]].piece
                          : -1;
    if (t->root < 0 || t->root >= m->ranks)
        return rf_check_fail(m->plans[0], first, "has root %d of %d ranks", t->root, m->ranks);
    const struct at root = {m, m->plans[t->root], of_ranks[t->root], m->tokens[t->root]};
    for (int rank = 0; rank < m->ranks; rank++) {
        const struct at a = {m, m->plans[rank], of_ranks[rank], m->tokens[rank]};
        if (first->verb == RF_VERB_REDUCE && piece < 0)
            return rf_check_fail(a.plan, a.i, "lacks an operand");
        RETURN_IF_ERROR(begin_operands(&a));
        RETURN_IF_ERROR(first->verb == RF_VERB_REDUCE ? reduce(&a, piece)
                        : first->verb == RF_VERB_LOSS ? loss(&a)
                                                      : broadcast(&a, &root));
        RETURN_IF_ERROR(end_operands(&a));
    }
    return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

int rf_meaning_end(struct rf_meaning *m)
{
    char text[96];
    for (int rank = 0; rank < m->ranks; rank++) {
        const struct rf_plan *plan = m->plans[rank];
        for (int k = 0; k < plan->value_count; k++) {
            const struct rf_value *v = &plan->values[k];
            const enum state state = m->tokens[rank][k].state;
            const bool trained = v->piece >= 0 && plan->pieces[v->piece].trained;
            const bool kept =
                v->kind == RF_VALUE_PARAM || v->kind == RF_VALUE_COPY || v->kind == RF_VALUE_STATE;
            const enum state scalars = plan->policy.loss_scale != 0 ? MOVED : BEGUN;
            if (plan->policy.forward_only)
                continue;
            if ((kept && state != (trained ? UPDATED : HELD)) ||
                (v->kind == RF_VALUE_SCALARS && plan->train_elements > 0 && state != scalars))
                return rf_fail(RF_EINVAL, "plan of rank %d: at the end %s was not updated (%d)",
                               rank, rf_value_text(v, text, sizeof(text)), (int)state);
        }
        for (int k = 0; k < plan->value_count; k++)
            if (plan->values[k].kind == RF_VALUE_LOSSES && m->tokens[rank][k].state == HELD &&
                plan->policy.micro_batches > 0)
                return rf_fail(RF_EINVAL, "plan of rank %d: %s were not counted", rank,
                               rf_value_text(&plan->values[k], text, sizeof(text)));
    }
    return 0;
}
