/* SPDX-License-Identifier: MIT
 *
 * The contract of a call: one rank's view of it. Filled in, hashed for messages, compared, and
 * printed.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"

void rf_contract_fill(struct rf_contract *contract, const struct rf_call *call)
{
    memset(contract, 0, sizeof(*contract));
    contract->count = call->desc.count;
    contract->op = (uint8_t)call->desc.op;
    contract->dtype = (uint8_t)call->desc.dtype;
    contract->redop = rf_coll_reduces(call->desc.op) ? (uint8_t)call->desc.redop : 0;
    contract->order = (uint8_t)call->desc.order;
    /* These have no root; ranks could disagree about the number of leaves, or the round. */
    contract->root = call->desc.forest ? call->desc.forest->leaves : call->desc.root;
    if (call->desc.op == RF_COLL_PREFIX_REDUCE_SCATTER)
        contract->root = call->desc.round;
    if (call->algorithm)
        contract->algorithm = rf_coll_number(call->desc.op, call->algorithm);
    /* In an all-to-all the send counts may differ between ranks; the pieces have been agreed on
     * before. */
    if (call->desc.recv_counts)
        contract->count = 0;
}

void rf_contract_label(struct rf_contract *contract, const char *label)
{
    size_t i = 0;
    if (label)
        for (; i < sizeof(contract->label) - 1 && label[i]; i++)
            contract->label[i] = label[i];
    contract->label[i] = 0;
}

/* The low 24 bits of a message's word; extra covers arguments without a field in the contract. */
static uint32_t contract_hash(const struct rf_contract *contract, uint32_t extra)
{
    const uint64_t fields[] = {
        contract->count,
        (uint64_t)contract->op << 24 | (uint64_t)contract->dtype << 16 |
            (uint64_t)contract->redop << 8 | contract->order,
        (uint64_t)(uint32_t)contract->root,
    };
    return rf_hash32(fields, sizeof(fields), extra) & 0xffffffu;
}

uint32_t rf_label_hash(const char *label)
{
    if (!label || !label[0])
        return 0;
    /* Limited to the label bytes that a contract keeps, so that hash and contract consider the same
     * labels equal. */
    size_t bytes = strnlen(label, sizeof(((struct rf_contract *)0)->label) - 1);
    uint32_t hash = rf_hash32(label, bytes, 0) >> 24;
    return (hash ? hash : 1) << 24;
}

uint32_t rf_call_hash(const struct rf_call *call)
{
    const struct rf_coll_desc *desc = &call->desc;
    const size_t ranks = (size_t)desc->ranks;
    struct rf_contract contract;
    uint32_t hash = 0;
    rf_contract_fill(&contract, call);
    /* Those of an all-to-all may differ between ranks. */
    if (desc->counts && !desc->recv_counts)
        hash = rf_hash32(desc->counts, ranks * sizeof(*desc->counts), 2);
    if (call->algorithm)
        hash = rf_hash32(call->algorithm, strlen(call->algorithm) + 1, hash + 3);
    if (desc->forest)
        hash = rf_hash32(desc->forest->first, (ranks + 1) * sizeof(*desc->forest->first), hash + 1);
    if (desc->leaves > 0)
        hash = rf_hash32(&desc->leaves, sizeof(desc->leaves), hash + 5);
    return contract_hash(&contract, hash ^ call->reduction_hash);
}

bool rf_contract_is_p2p(const struct rf_contract *contract)
{
    return rf_coll_is_point(contract->op);
}

bool rf_contract_equal(const struct rf_contract *a, const struct rf_contract *b)
{
    bool labels =
        !a->label[0] || !b->label[0] || strncmp(a->label, b->label, sizeof(a->label)) == 0;
    /* A send and a receive correspond to each other; matching has already established the peers. */
    if (rf_contract_is_p2p(a) && rf_contract_is_p2p(b))
        return labels && a->count == b->count && a->dtype == b->dtype;
    return labels && a->op == b->op && a->dtype == b->dtype && a->redop == b->redop &&
           a->order == b->order && a->root == b->root && a->count == b->count &&
           a->algorithm == b->algorithm;
}

static const char *const root_text[] = {[RF_ROOT_FROM] = "from root",
                                        [RF_ROOT_TO] = "to root",
                                        [RF_PEER_TO] = "to rank",
                                        [RF_PEER_FROM] = "from rank"};

const char *rf_contract_text(const struct rf_contract *contract, char *text, size_t bytes)
{
    enum rf_coll_op op = contract->op;
    int n;
    if (op == RF_COLL_NONE) {
        snprintf(text, bytes, "%s",
                 contract->root == RF_ROOT_LEFT ? "nothing more" : "something else");
        return text;
    }
    if (op == RF_COLL_BARRIER)
        n = snprintf(text, bytes, "barrier(");
    else
        n = snprintf(text, bytes, "%s(%llu %s", rf_coll_op_name(op),
                     (unsigned long long)contract->count, rf_dtype_name(contract->dtype));
    if (rf_coll_reduces(op) && !rf_coll_adds_leaves(op))
        n += snprintf(text + n, bytes - (size_t)n, " %s", rf_redop_name(contract->redop));
    if (rf_coll_has_root(op))
        n += snprintf(text + n, bytes - (size_t)n, " %s %d", root_text[rf_operation(op)->root],
                      contract->root);
    if (op == RF_COLL_PREFIX_REDUCE_SCATTER)
        n += snprintf(text + n, bytes - (size_t)n, " round %d", contract->root);
    else if (rf_coll_adds_leaves(op))
        n += snprintf(text + n, bytes - (size_t)n, " %d leaves", contract->root);
    else if (contract->order != RF_ORDER_ANY)
        n += snprintf(text + n, bytes - (size_t)n, " in %s order", rf_order_name(contract->order));
    if (contract->algorithm)
        n += snprintf(text + n, bytes - (size_t)n, "%sby %s", op == RF_COLL_BARRIER ? "" : " ",
                      rf_coll_numbered(contract->algorithm));
    n += snprintf(text + n, bytes - (size_t)n, ")");
    if (contract->label[0])
        snprintf(text + n, bytes - (size_t)n, " at \"%.38s\"", contract->label);
    return text;
}
