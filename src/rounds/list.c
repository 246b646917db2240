/* SPDX-License-Identifier: MIT
 *
 * The list of an exchange: pure, of the rule and the rank's place alone.
 */
#include <ringforge/rounds.h>

#include "base/base.h"
#include "form.h"

struct builder {
    const struct rf_rounds_rule *rule;
    const struct rf_round_place *place;
    struct rf_round_list *list;
    int64_t capacity;
    int status;
};

static void add(struct builder *b, struct rf_round_op op)
{
    struct rf_round_list *list = b->list;
    if (list->count == b->capacity) {
        const int64_t capacity = 2 * b->capacity + 16;
        void *ops = rf_realloc(list->ops, (size_t)capacity * sizeof op);
        if (!ops)
            b->status = rf_fail(RF_ENOMEM, "out of memory for the list of an exchange");
        if (b->status < 0)
            return;
        list->ops = ops;
        b->capacity = capacity;
    }
    if (op.verb == RF_ROUND_SEND)
        list->sent_bytes += op.bytes;
    list->ops[list->count++] = op;
}

static uint64_t form_bytes(const struct builder *b, int64_t count)
{
    return rf_form_bytes(b->rule->form, rf_option(b->rule->fraction, 1.0f / 64), count);
}

/* The weight of a rank's values. */
static double share_of(const struct builder *b)
{
    return b->rule->gradients ? 1 : b->rule->weighted ? -1 : 1.0 / b->place->ranks;
}

/* Room for one more message, aligned for any vector. */
static uint64_t room(struct builder *b, uint64_t bytes)
{
    const uint64_t at = b->list->message_bytes;
    b->list->message_bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* A piece of the values is added by one rank. Pieces begin at multiples of 64. */
static int64_t piece_first(const struct builder *b, int piece)
{
    const int64_t count = b->place->count, ranks = b->place->ranks;
    const int64_t each = ((count + ranks - 1) / ranks + 63) / 64 * 64;
    return piece * each < count ? piece * each : count;
}

/* An op on a piece, with the message in a slot; nothing is sent of an empty piece, or to itself. */
static void on_piece(struct builder *b, struct rf_round_op op, int piece, int slot)
{
    op.first = piece_first(b, piece);
    op.count = piece_first(b, piece + 1) - op.first;
    op.bytes = form_bytes(b, op.count);
    op.at = (uint64_t)slot * ((form_bytes(b, piece_first(b, 1)) + 63) / 64 * 64);
    const bool travels = op.verb == RF_ROUND_SEND || op.verb == RF_ROUND_RECV;
    if (op.count > 0 && !(travels && op.peer == b->place->rank))
        add(b, op);
}

/* Each rank adds one piece of all ranks' values, and sends the sum to all. Slot p has what is sent
 * to rank p, and later what comes from it of the sums; slot ranks + p has the values of rank p. */
static void in_pieces(struct builder *b)
{
    const int rank = b->place->rank, ranks = b->place->ranks;
    room(b, 2 * (uint64_t)ranks * ((form_bytes(b, piece_first(b, 1)) + 63) / 64 * 64));
    for (int peer = 0; peer < ranks; peer++)
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_ENCODE}, peer, peer);
    for (int peer = 0; peer < ranks; peer++) {
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_SEND, .peer = peer}, peer, peer);
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_RECV, .peer = peer}, rank, ranks + peer);
    }
    on_piece(b, (struct rf_round_op){.verb = RF_ROUND_CLEAR}, rank, 0);
    for (int peer = 0; peer < ranks; peer++) {
        const struct rf_round_op op = {.verb = RF_ROUND_ADD, .peer = peer, .weight = share_of(b)};
        on_piece(b, op, rank, peer == rank ? rank : ranks + peer);
    }
    on_piece(b, (struct rf_round_op){.verb = RF_ROUND_ENCODE, .of_out = true}, rank, rank);
    for (int peer = 0; peer < ranks; peer++) {
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_SEND, .peer = peer}, rank, rank);
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_RECV, .peer = peer}, peer, peer);
    }
    for (int peer = 0; peer < ranks; peer++)
        on_piece(b, (struct rf_round_op){.verb = RF_ROUND_TAKE}, peer, peer);
}

/* out = sum over the rank and its neighbours of weight * values. */
static void with_neighbours(struct builder *b, const double *row, const double *column)
{
    const int rank = b->place->rank, ranks = b->place->ranks;
    const int64_t count = b->place->count;
    const struct rf_round_op all = {.count = count, .bytes = form_bytes(b, count)};
    struct rf_round_op mine = all;
    mine.verb = RF_ROUND_ENCODE;
    mine.at = room(b, all.bytes);
    add(b, mine);
    const uint64_t received = b->list->message_bytes;
    for (int peer = 0; peer < ranks; peer++) {
        struct rf_round_op op = mine;
        op.verb = RF_ROUND_SEND, op.peer = peer;
        if (peer != rank && column[peer] > 0 && op.bytes)
            add(b, op);
        if (peer == rank || row[peer] == 0)
            continue;
        op.verb = RF_ROUND_RECV, op.at = room(b, all.bytes);
        if (op.bytes)
            add(b, op);
    }
    mine.verb = RF_ROUND_CLEAR;
    add(b, mine);
    uint64_t at = received;
    for (int peer = 0; peer < ranks; peer++) {
        struct rf_round_op op = all;
        op.verb = RF_ROUND_ADD, op.peer = peer, op.weight = row[peer];
        op.at = peer == rank ? mine.at : at;
        if (row[peer] == 0 && peer != rank)
            continue;
        at += peer == rank ? 0 : (all.bytes + 63) / 64 * 64;
        add(b, op);
    }
}

static int neighbours(struct builder *b)
{
    struct rf_mixing mixing = b->rule->mixing;
    const int rank = b->place->rank, ranks = b->place->ranks;
    mixing.ranks = ranks;
    double *row = rf_alloc((size_t)ranks * 3 * sizeof *row);
    if (!row)
        return rf_fail(RF_ENOMEM, "out of memory for the weights of %d ranks", ranks);
    double *column = row + ranks, *other = column + ranks;
    int status = rf_mixing_row(&mixing, b->place->round, rank, row);
    for (int peer = 0; peer < ranks && status == RF_OK; peer++) {
        status = rf_mixing_row(&mixing, b->place->round, peer, other);
        column[peer] = other[rank];
    }
    if (status == RF_OK)
        with_neighbours(b, row, column);
    rf_free(row);
    return status;
}

/* Factors of all ranks become those of their mean; what the last phase makes of them arrives. */
static void in_factors(struct builder *b)
{
    const struct rf_form_factors factors = {.shapes = b->place->shapes,
                                            .shape_count = b->place->shape_count,
                                            .rank = b->rule->form_rank ? b->rule->form_rank : 1};
    for (int phase = 0; phase <= RF_FORM_SUMS; phase++) {
        struct rf_round_op op = {.verb = RF_ROUND_FACTOR, .count = b->place->count, .phase = phase};
        if (phase < RF_FORM_SUMS) {
            op.bytes = 4 * (uint64_t)rf_form_factor_values(b->rule->form, &factors, phase);
            op.at = room(b, op.bytes);
        }
        add(b, op);
        op.verb = RF_ROUND_AVERAGE;
        op.weight = share_of(b);
        if (op.bytes > 0)
            add(b, op);
    }
}

static int check_shapes(const struct rf_rounds_rule *rule, const struct rf_round_place *place)
{
    int64_t count = 0;
    for (int k = 0; k < place->shape_count; k++) {
        const struct rf_round_shape *shape = place->shapes + k;
        if (shape->rows < 1 || shape->columns < 1 ||
            shape->rows > (place->count - count) / shape->columns)
            return rf_fail(RF_EINVAL,
                           "shape %d of an exchange has %lld rows and %lld columns, of "
                           "%lld values that are left",
                           k, (long long)shape->rows, (long long)shape->columns,
                           (long long)(place->count - count));
        count += shape->rows * shape->columns;
    }
    if (rf_form_has_factors(rule->form) ? count == place->count : count == 0)
        return RF_OK;
    return rf_fail(RF_EINVAL, "the form \"%s\" of %lld values has shapes of %lld: %s",
                   rf_form_name(rule->form), (long long)place->count, (long long)count,
                   rf_form_has_factors(rule->form) ? "it needs those of all of them"
                                                   : "it has none");
}

int rf_round_list_make(const struct rf_rounds_rule *rule, const struct rf_round_place *place,
                       struct rf_round_list *out)
{
    if (!place || place->rank < 0 || place->rank >= place->ranks || place->count < 0 ||
        place->round < 0)
        return rf_fail(RF_EINVAL, "the place of an exchange has no such rank, round or count");
    RETURN_IF_ERROR(rf_rounds_check(rule, place->ranks));
    RETURN_IF_ERROR(check_shapes(rule, place));
    struct rf_round_list list = {0};
    struct builder b = {.rule = rule, .place = place, .list = &list};
    if (rule->weighted)
        add(&b, (struct rf_round_op){.verb = RF_ROUND_SHARE});
    if (rule->mixing.graph != RF_GRAPH_ALL)
        b.status = neighbours(&b);
    else if (rf_form_has_factors(rule->form))
        in_factors(&b);
    else if (rf_form_is_exact(rule->form))
        add(&b, (struct rf_round_op){
                    .verb = RF_ROUND_SUM, .count = place->count, .weight = share_of(&b)});
    else
        in_pieces(&b);
    if (!rule->gradients) /* which no rank exchanges again */
        add(&b, (struct rf_round_op){.verb = RF_ROUND_COMMIT});
    if (b.status < 0)
        rf_round_list_free(&list);
    else
        *out = list;
    return b.status;
}

void rf_round_list_free(struct rf_round_list *list)
{
    rf_free(list->ops);
    *list = (struct rf_round_list){0};
}
