/* SPDX-License-Identifier: MIT
 *
 * Writing a schedule step by step. Called by the builders and windows.c; compile.c makes it
 * runnable.
 */
#include "sched.h"

#include "../base/base.h"

/* Reserves `more` items in a growing array; false (and a status) on failure. */
static bool reserve(struct rf_sched *sched, void **items, uint32_t count, uint32_t more,
                    uint32_t *capacity, size_t item_bytes)
{
    if (sched->status < 0)
        return false;
    if (more <= *capacity - count)
        return true;
    uint64_t wanted = *capacity < 64 ? 64 : 2 * (uint64_t)*capacity;
    if (wanted < (uint64_t)count + more)
        wanted = (uint64_t)count + more;
    void *grown = wanted < RF_NO_STEP ? rf_realloc(*items, wanted * item_bytes) : NULL;
    if (!grown) {
        sched->status = rf_fail(RF_ENOMEM, "%s: out of memory for a schedule of %llu steps",
                                rf_coll_op_name(sched->op), (unsigned long long)wanted);
        return false;
    }
    *items = grown;
    *capacity = (uint32_t)wanted;
    return true;
}

static uint32_t append(struct rf_sched *sched, struct rf_step step)
{
    if (!reserve(sched, (void **)&sched->steps, sched->count, 1, &sched->capacity,
                 sizeof(*sched->steps)))
        return RF_NO_STEP;
    sched->steps[sched->count] = step;
    return sched->count++;
}

uint32_t rf_sched_send(struct rf_sched *sched, int peer, uint32_t tag, struct rf_operand from,
                       size_t bytes)
{
    assert(peer >= 0 && peer < sched->ranks && peer != sched->rank && tag <= RF_MAX_TAG);
    sched->message_count++;
    sched->sent_bytes += bytes;
    return append(sched,
                  (struct rf_step){
                      .verb = RF_STEP_SEND, .peer = peer, .tag = tag, .a = from, .bytes = bytes});
}

uint32_t rf_sched_recv(struct rf_sched *sched, int peer, uint32_t tag, struct rf_operand into,
                       size_t bytes)
{
    assert(peer >= 0 && peer < sched->ranks && peer != sched->rank && tag <= RF_MAX_TAG);
    sched->message_count++;
    return append(sched,
                  (struct rf_step){
                      .verb = RF_STEP_RECV, .peer = peer, .tag = tag, .dst = into, .bytes = bytes});
}

void rf_sched_allow_zero_copy(struct rf_sched *sched, uint32_t recv)
{
    if (recv == RF_NO_STEP)
        return;
    struct rf_step *step = &sched->steps[recv];
    assert(step->verb == RF_STEP_RECV && step->dst.space == RF_SPACE_TMP &&
           step->dst.offset % RF_TEMP_ALIGNMENT == 0);
    step->zero_copy = 1;
}

void rf_sched_exchange(struct rf_sched *sched, uint32_t recv, size_t sent_bytes)
{
    if (recv == RF_NO_STEP)
        return;
    struct rf_step *step = &sched->steps[recv];
    assert(step->verb == RF_STEP_RECV);
    step->exchange = 2 * sent_bytes >= step->bytes;
}

uint32_t rf_sched_reduce(struct rf_sched *sched, struct rf_operand dst, struct rf_operand a,
                         struct rf_operand b, size_t bytes)
{
    return append(sched, (struct rf_step){
                             .verb = RF_STEP_REDUCE, .dst = dst, .a = a, .b = b, .bytes = bytes});
}

static uint32_t fold_list(struct rf_sched *sched, struct rf_operand dst,
                          const struct rf_operand *operands, uint32_t count, size_t bytes,
                          bool tree, bool divide)
{
    if (!reserve(sched, (void **)&sched->operands, sched->operand_count, count,
                 &sched->operand_capacity, sizeof(*operands)))
        return RF_NO_STEP;
    uint32_t list = sched->operand_count;
    memcpy(&sched->operands[list], operands, count * sizeof(*operands));
    sched->operand_count += count;
    if (count > sched->longest_list)
        sched->longest_list = count;
    return append(sched, (struct rf_step){.verb = RF_STEP_REDUCE,
                                          .tree = tree,
                                          .divide = divide,
                                          .dst = dst,
                                          .bytes = bytes,
                                          .list = list,
                                          .list_count = count});
}

uint32_t rf_sched_fold(struct rf_sched *sched, struct rf_operand dst,
                       const struct rf_operand *operands, uint32_t count, size_t bytes, bool tree,
                       bool divide)
{
    assert(count >= 1);
    if (count == 2 && !divide)
        return rf_sched_reduce(sched, dst, operands[0], operands[1], bytes);
    return fold_list(sched, dst, operands, count, bytes, tree, divide);
}

uint32_t rf_sched_fold_published(struct rf_sched *sched, struct rf_operand dst,
                                 struct rf_operand copy, const struct rf_operand *operands,
                                 uint32_t count, size_t bytes, bool tree, bool divide)
{
    uint32_t fold = fold_list(sched, dst, operands, count, bytes, tree, divide);
    if (fold == RF_NO_STEP)
        return fold;
    sched->steps[fold].published = 1;
    sched->steps[fold].a = copy;
    return fold;
}

uint32_t rf_sched_publish(struct rf_sched *sched, struct rf_operand copy, struct rf_operand from,
                          size_t bytes)
{
    return append(
        sched, (struct rf_step){
                   .verb = RF_STEP_COPY, .published = 1, .dst = copy, .a = from, .bytes = bytes});
}

uint32_t rf_sched_send_published(struct rf_sched *sched, int peer, uint32_t tag,
                                 struct rf_operand from, struct rf_operand copy, size_t bytes)
{
    uint32_t send = rf_sched_send(sched, peer, tag, from, bytes);
    if (send == RF_NO_STEP)
        return send;
    sched->steps[send].published = 1;
    sched->steps[send].b = copy;
    return send;
}
uint32_t rf_sched_copy(struct rf_sched *sched, struct rf_operand dst, struct rf_operand from,
                       size_t bytes)
{
    return append(sched,
                  (struct rf_step){.verb = RF_STEP_COPY, .dst = dst, .a = from, .bytes = bytes});
}

uint32_t rf_sched_join(struct rf_sched *sched)
{
    return append(sched, (struct rf_step){.verb = RF_STEP_JOIN});
}

void rf_sched_move(struct rf_sched *sched, struct rf_move move)
{
    if (reserve(sched, (void **)&sched->moves, sched->move_count, 1, &sched->move_capacity,
                sizeof(*sched->moves)))
        sched->moves[sched->move_count++] = move;
}

uint32_t rf_sched_move_step(struct rf_sched *sched, enum rf_step_verb verb, bool out,
                            uint32_t first, uint64_t bytes)
{
    return append(sched, (struct rf_step){.verb = (uint8_t)verb,
                                          .dst = out ? rf_out(0) : rf_in(0),
                                          .bytes = bytes,
                                          .list = first,
                                          .list_count = sched->move_count - first});
}

uint32_t rf_sched_exchange_addresses(struct rf_sched *sched, struct rf_operand dst)
{
    return append(sched, (struct rf_step){.verb = RF_STEP_ADDRESSES,
                                          .dst = dst,
                                          .bytes = sizeof(struct rf_addresses)});
}

uint32_t rf_sched_agree(struct rf_sched *sched, struct rf_operand addresses)
{
    return append(sched, (struct rf_step){.verb = RF_STEP_AGREE, .a = addresses});
}

uint32_t rf_sched_reduce_all(struct rf_sched *sched, size_t offset, size_t bytes, int first,
                             bool tree, bool divide)
{
    if ((uint32_t)sched->ranks > sched->longest_list)
        sched->longest_list = (uint32_t)sched->ranks;
    return append(sched, (struct rf_step){.verb = RF_STEP_REDUCE_ALL,
                                          .tree = tree,
                                          .divide = divide,
                                          .peer = first,
                                          .dst = rf_out(offset),
                                          .a = rf_in(offset),
                                          .bytes = bytes});
}

void rf_sched_dep(struct rf_sched *sched, uint32_t step, uint32_t after)
{
    if (step == RF_NO_STEP || after == RF_NO_STEP)
        return;
    assert(step < sched->count && after < sched->count && step != after);
    if (!reserve(sched, (void **)&sched->edges, sched->edge_count, 1, &sched->edge_capacity,
                 sizeof(*sched->edges)))
        return;
    sched->edges[sched->edge_count++] = (struct rf_edge){step, after};
}

size_t rf_sched_temp(struct rf_sched *sched, size_t bytes)
{
    size_t offset = sched->temp_bytes;
    sched->temp_bytes += (bytes + RF_TEMP_ALIGNMENT - 1) / RF_TEMP_ALIGNMENT * RF_TEMP_ALIGNMENT;
    return offset;
}

void *rf_sched_scratch(struct rf_sched *sched, size_t count, size_t item_bytes)
{
    if (sched->status < 0)
        return NULL;
    void *scratch = rf_alloc(count * item_bytes);
    if (!scratch)
        sched->status = rf_fail(RF_ENOMEM, "%s: out of memory while building a schedule",
                                rf_coll_op_name(sched->op));
    return scratch;
}

struct rf_cut rf_cut(size_t longest_piece, size_t wanted_segment, size_t element_bytes, size_t tags)
{
    size_t segment = wanted_segment ? wanted_segment : longest_piece;
    size_t most = RF_MAX_TAG / tags; /* maximum number of segments that a tag can count */
    assert(most > 0);
    if (segment < longest_piece / most + 1 && longest_piece / most > 0)
        segment = longest_piece / most + 1;
    segment = (segment + element_bytes - 1) / element_bytes * element_bytes;
    if (segment == 0)
        segment = element_bytes;
    size_t count = (longest_piece + segment - 1) / segment;
    return (struct rf_cut){.segment = segment, .count = count ? (uint32_t)count : 1};
}

void rf_sched_destroy(struct rf_sched *sched)
{
    if (!sched)
        return;
    rf_sched_destroy(sched->fallback);
    rf_free(sched->steps);
    rf_free(sched->operands);
    rf_free(sched->moves);
    rf_free(sched->edges);
    rf_free(sched->successors);
    rf_free(sched->roots);
    rf_free(sched);
}

bool rf_sched_can_prepost(const struct rf_sched *sched)
{
    return sched->recv_roots == sched->recv_count && !sched->fallback && sched->move_count == 0;
}

bool rf_sched_shares_memory(const struct rf_sched *sched)
{
    return sched->fallback || sched->move_count > 0;
}

void rf_sched_receivers(const struct rf_sched *sched, bool *to)
{
    for (uint32_t i = 0; i < sched->count; i++)
        if (sched->steps[i].verb == RF_STEP_SEND)
            to[sched->steps[i].peer] = true;
}

size_t rf_sched_temp_bytes(const struct rf_sched *sched)
{
    return sched->temp_bytes;
}

uint64_t rf_sched_sent_bytes(const struct rf_sched *sched)
{
    return sched->sent_bytes;
}

const char *rf_sched_algorithm(const struct rf_sched *sched)
{
    return sched->algorithm;
}
