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

static inline struct rf_tensor in_span(const struct rf_pass *p, const struct rf_instruction *i,
                                       enum rf_value_kind kind)
{
    return rf_run_span(p->run, ins(p, i), i->ins, kind, -1);
}

static inline struct rf_tensor out_span(const struct rf_pass *p, const struct rf_instruction *i,
                                        enum rf_value_kind kind)
{
    return rf_run_span(p->run, outs(p, i), i->outs, kind, -1);
}

static inline struct rf_tensor as_f32(struct rf_tensor t)
{
    return t.buffer ? rf_as(t, RF_F32) : t;
}

/* A tensor of all values of a kind, with that kind's type. */
static inline struct rf_tensor typed(const struct rf_pass *p, struct rf_tensor t,
                                     enum rf_value_kind kind)
{
    return t.buffer ? rf_as(t, rf_plan_type(p->run->plan, kind)) : t;
}

/* The elements of a shard's value, without the padding after them. A NULL buffer if there are none.
 */
static inline struct rf_tensor shard(const struct rf_pass *p, int value)
{
    const struct rf_plan *plan = p->run->plan;
    const size_t count = plan->pieces[plan->values[value].piece].counts[plan->shard];
    struct rf_tensor t = rf_run_value(p->run, value);
    t.dtype = rf_plan_type(plan, plan->values[value].kind);
    t.shape = rf_shape1((int64_t)count);
    return count ? t : (struct rf_tensor){0};
}

#endif
