/* SPDX-License-Identifier: MIT
 *
 * The phases of a call of a block that ranks share, and the values of the exchanges between them:
 * the tensors of a rank's parts, their places in the value, and the type and order in which they
 * are added. Used by the files that write, check and run exchanges.
 */
#ifndef RF_PARALLEL_EXCHANGE_H
#define RF_PARALLEL_EXCHANGE_H

#include "plan.h"

/* Calls that may have exchanges. */
enum rf_call {
    RF_CALL_FORWARD,
    RF_CALL_BACKWARD_INPUT,
    RF_CALL_BACKWARD_WEIGHT,
    RF_CALL_INVERT,
    RF_CALL_COUNT
};
static inline enum rf_call rf_call_of(enum rf_verb verb)
{
    return verb == RF_VERB_BACKWARD_INPUT    ? RF_CALL_BACKWARD_INPUT
           : verb == RF_VERB_BACKWARD_WEIGHT ? RF_CALL_BACKWARD_WEIGHT
           : verb == RF_VERB_INVERT          ? RF_CALL_INVERT
                                             : RF_CALL_FORWARD;
}

/* The exchange between phases `number` and `number` + 1 of a call; NULL: `number` is the last
 * phase. */
static inline const struct rf_exchange *rf_plan_exchange(const struct rf_plan *plan, int block,
                                                         enum rf_call call, int number)
{
    const struct rf_block_sizes *sizes = &plan->sizes[block];
    const struct rf_exchange *all = call == RF_CALL_FORWARD           ? sizes->forward
                                    : call == RF_CALL_BACKWARD_INPUT  ? sizes->backward_input
                                    : call == RF_CALL_BACKWARD_WEIGHT ? sizes->backward_weight
                                                                      : sizes->invert;
    const bool there = number >= 0 && number < RF_MAX_EXCHANGES && all[number].kind;
    return there ? &all[number] : NULL;
}

/* The slot of RF_VALUE_EXCHANGE, and its inverse. */
static inline int rf_exchange_slot(enum rf_call call, int number)
{
    return (int)call * RF_MAX_EXCHANGES + number;
}

static inline const struct rf_exchange *rf_plan_exchange_of(const struct rf_plan *plan,
                                                            const struct rf_value *value)
{
    return rf_plan_exchange(plan, value->block, (enum rf_call)(value->slot / RF_MAX_EXCHANGES),
                            value->slot % RF_MAX_EXCHANGES);
}

/* Whether this is the last phase of a block's call. A phantom has only one phase. */
static inline bool rf_plan_ends_call(const struct rf_plan *plan, const struct rf_instruction *i)
{
    return i->micro_batch == RF_PHANTOM ||
           !rf_plan_exchange(plan, i->block, rf_call_of(i->verb), i->phase);
}

/* Whether each part of a rank writes its own tensor for an exchange, and these are added before it.
 * In a gather all parts write into one tensor. */
static inline bool rf_exchange_adds(const struct rf_exchange *exchange)
{
    return exchange->kind != RF_EXCHANGE_GATHER;
}

/* Bytes of one of these tensors. */
static inline uint64_t rf_exchange_bytes(const struct rf_exchange *exchange)
{
    return (uint64_t)rf_shape_count(exchange->shape) * rf_dtype_bytes(exchange->dtype);
}

/* Sums over a fixed number of parts are computed in f32, also for 16-bit types, and rounded once.
 * So the result does not depend on the rank that computes a part. */
static inline enum rf_dtype rf_exchange_type(const struct rf_plan *plan,
                                             const struct rf_exchange *exchange)
{
    return plan->policy.tensor_parts && rf_exchange_adds(exchange) ? RF_F32 : exchange->dtype;
}

static inline bool rf_exchange_widens(const struct rf_plan *plan,
                                      const struct rf_exchange *exchange)
{
    return rf_exchange_type(plan, exchange) != exchange->dtype;
}

/* Offsets in the value of an exchange: the begin of the tensor of part `part`, as the block writes
 * it or as it is added; and the size of the value. */
static inline uint64_t rf_exchange_part_first(const struct rf_plan *plan,
                                              const struct rf_exchange *exchange, int part,
                                              bool sum)
{
    const uint64_t given = rf_plan_aligned(rf_exchange_bytes(exchange));
    const uint64_t wide =
        rf_plan_aligned((uint64_t)rf_shape_count(exchange->shape) * sizeof(float));
    if (!rf_exchange_adds(exchange))
        return 0;
    if (sum && rf_exchange_widens(plan, exchange))
        return given * (uint64_t)rf_plan_parts(plan) + wide * (uint64_t)part;
    return given * (uint64_t)part;
}

static inline uint64_t rf_exchange_value_bytes(const struct rf_plan *plan,
                                               const struct rf_exchange *exchange)
{
    const bool widens = rf_exchange_widens(plan, exchange);
    const uint64_t element = rf_dtype_bytes(rf_exchange_type(plan, exchange));
    return rf_exchange_part_first(plan, exchange, rf_plan_parts(plan) - 1, widens) +
           (uint64_t)rf_shape_count(exchange->shape) * element;
}

/* The order in which ranks add an exchange: a tree if the number of parts is fixed. */
static inline enum rf_order rf_exchange_order(const struct rf_plan *plan)
{
    return plan->policy.tensor_parts ? RF_ORDER_TREE : RF_ORDER_RING;
}

#endif
