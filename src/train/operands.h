/* SPDX-License-Identifier: MIT
 *
 * Views an instruction's operands as tensors, for the files verbs*.c.
 */
#ifndef RF_TRAIN_OPERANDS_H
#define RF_TRAIN_OPERANDS_H

#include "run.h"

static inline const int *ins(const struct rf_pass *p, const struct rf_instruction *i)
{
    return rf_plan_operands(p->run->plan, i);
}

static inline const int *outs(const struct rf_pass *p, const struct rf_instruction *i)
{
    return ins(p, i) + i->ins;
}

/* The operands with this role that are read, or written, as one tensor of bytes. */
static inline struct rf_tensor in_span(const struct rf_pass *p, const struct rf_instruction *i,
                                       enum rf_role role)
{
    return rf_run_span(p->run, rf_plan_ins(p->run->plan, i, role));
}

static inline struct rf_tensor out_span(const struct rf_pass *p, const struct rf_instruction *i,
                                        enum rf_role role)
{
    return rf_run_span(p->run, rf_plan_outs(p->run->plan, i, role));
}

/* The scalars of the update, as f32. */
static inline struct rf_tensor scalars(const struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_tensor t = in_span(p, i, RF_ROLE_SCALARS);
    t.shape = rf_shape1(RF_SCALAR_WORDS);
    t.dtype = RF_F32;
    return t;
}

static inline struct rf_tensor as_f32(struct rf_tensor t)
{
    return t.buffer ? rf_as(t, RF_F32) : t;
}

/* The type of a value's elements. */
static inline enum rf_dtype type_of(const struct rf_pass *p, int value)
{
    return rf_plan_type(p->run->plan, p->run->plan->values[value].kind);
}

/* Adjacent operands of one type, as one tensor. */
static inline struct rf_tensor typed(const struct rf_pass *p, struct rf_operands operands)
{
    const struct rf_tensor t = rf_run_span(p->run, operands);
    return t.buffer ? rf_as(t, type_of(p, operands.values[0])) : t;
}

/* The elements of a shard's value, without the padding after them. A NULL buffer if there are none.
 */
static inline struct rf_tensor shard(const struct rf_pass *p, int value)
{
    const struct rf_plan *plan = p->run->plan;
    const size_t count = plan->pieces[plan->values[value].piece].counts[plan->shard];
    struct rf_tensor t = rf_run_value(p->run, value);
    t.dtype = type_of(p, value);
    t.shape = rf_shape1((int64_t)count);
    return count ? t : (struct rf_tensor){0};
}

#endif
