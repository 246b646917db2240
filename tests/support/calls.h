/* SPDX-License-Identifier: MIT
 *
 * Calls whose arguments are a struct, by reference: rf_norm(stream, {.x = x, ...}).
 */
#pragma once

#include <type_traits>

#include <ringforge/ops.h>

#define BY_REFERENCE(function, type)                                                               \
    inline int function(rf_stream *stream, const type &args)                                       \
    {                                                                                              \
        return function(stream, &args);                                                            \
    }
BY_REFERENCE(rf_norm, rf_norm_args)
BY_REFERENCE(rf_norm_backward_input, rf_norm_args)
BY_REFERENCE(rf_norm_backward_weight, rf_norm_args)
BY_REFERENCE(rf_embedding, rf_embedding_args)
BY_REFERENCE(rf_embedding_backward, rf_embedding_args)
BY_REFERENCE(rf_cross_entropy, rf_cross_entropy_args)
BY_REFERENCE(rf_cross_entropy_part_rows, rf_cross_entropy_args)
BY_REFERENCE(rf_cross_entropy_part_sums, rf_cross_entropy_args)
BY_REFERENCE(rf_cross_entropy_part_losses, rf_cross_entropy_args)
BY_REFERENCE(rf_cross_entropy_part_gradient, rf_cross_entropy_args)
BY_REFERENCE(rf_lm_head, rf_lm_head_args)
#undef BY_REFERENCE
inline int rf_attend_cache(rf_stream *stream, const rf_cache *cache,
                           const rf_attend_cache_args &args)
{
    return rf_attend_cache(stream, cache, &args);
}
inline int rf_glu_backward(rf_stream *stream, rf_activation kind, rf_tensor gate, rf_tensor up,
                           const rf_glu_grads &grads)
{
    return rf_glu_backward(stream, kind, gate, up, &grads);
}

/* The arguments with one field changed. */
template <class Args, class Field>
Args with(Args args, Field Args::*field, const std::common_type_t<Field> &value)
{
    args.*field = value;
    return args;
}

/* The options for a product of these sizes. */
inline rf_matmul_opts sized(rf_matmul_opts opts, int64_t m, int64_t n, int64_t k)
{
    opts.m = m;
    opts.n = n;
    opts.k = k;
    return opts;
}

inline const char *matmul_path(rf_device *device, rf_dtype type, int64_t m, int64_t n, int64_t k,
                               const rf_matmul_opts &opts = {})
{
    const rf_matmul_opts all = sized(opts, m, n, k);
    return rf_matmul_path(device, type, &all);
}
inline int64_t matmul_scratch(rf_device *device, rf_dtype type, int64_t m, int64_t n, int64_t k,
                              const rf_matmul_opts &opts = {})
{
    const rf_matmul_opts all = sized(opts, m, n, k);
    return rf_matmul_scratch(device, type, &all);
}

/* Causal attention of packed rows: qkv (B,T,3C) has q, k and v, each (H,D); out is (B,T,C). */
inline rf_attention_args packed(rf_tensor out, rf_tensor lse, rf_tensor qkv, int64_t heads)
{
    const int64_t size = qkv.shape.dim[2] / 3 / heads;
    rf_attention_args args = {};
    args.q = rf_heads_in(qkv, size, 0, heads);
    args.k = rf_heads_in(qkv, size, heads, heads);
    args.v = rf_heads_in(qkv, size, 2 * heads, heads);
    args.out = rf_heads_in(out, size, 0, heads);
    args.lse = lse;
    return args;
}
inline rf_attention_grads packed_grads(rf_tensor dqkv, rf_tensor dout, rf_tensor delta,
                                       int64_t heads)
{
    const rf_attention_args args = packed(dout, delta, dqkv, heads);
    return {args.out, args.q, args.k, args.v, delta};
}

/* The arguments of the backward pass for a forward pass. */
inline rf_norm_args norm_back(const rf_norm_args &forward, rf_tensor dout)
{
    rf_norm_args args = {};
    args.rms = forward.rms;
    args.x = forward.sum.buffer ? forward.sum : forward.x;
    args.mean = forward.mean;
    args.rstd = forward.rstd;
    args.dout = dout;
    return args;
}
inline int norm_input(rf_stream *stream, const rf_norm_args &forward, rf_tensor dx, rf_tensor dout,
                      bool accumulate = false)
{
    rf_norm_args args = norm_back(forward, dout);
    args.gamma = forward.gamma;
    args.dx = dx;
    args.accumulate_dx = accumulate;
    return rf_norm_backward_input(stream, &args);
}
inline int norm_weight(rf_stream *stream, const rf_norm_args &forward, rf_tensor dgamma,
                       rf_tensor dbeta, rf_tensor dout, rf_tensor scratch)
{
    rf_norm_args args = norm_back(forward, dout);
    args.dgamma = dgamma;
    args.dbeta = dbeta;
    args.scratch = scratch;
    return rf_norm_backward_weight(stream, &args);
}
