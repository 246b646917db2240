/* SPDX-License-Identifier: MIT
 *
 * Launches of attention, and of other operations on heads.
 */
#include "launches_run.h"

enum mask { CAUSAL, FULL, PACKED };

static void attention(const struct run *run, const char *path, enum rf_dtype dtype, int64_t head,
                      int64_t groups, enum mask mask)
{
    static const char *const masks[] = {"", " full", " packed"};
    const int64_t B = 2, T = 256, H = 4, K = H / groups, C = H * head, row = C + 2 * K * head;
    struct rf_stream *s = run->operands->stream;
    afresh(run);
    struct rf_tensor qkv = reshape(take(run, dtype, B * T, row), rf_shape3(B, T, row));
    struct rf_tensor dqkv = reshape(take(run, dtype, B * T, row), rf_shape3(B, T, row));
    struct rf_tensor out = reshape(take(run, dtype, B * T, C), rf_shape3(B, T, C));
    struct rf_tensor dout = reshape(take(run, dtype, B * T, C), rf_shape3(B, T, C));
    struct rf_attention_args args = {.q = rf_heads_in(qkv, head, 0, H),
                                     .k = rf_heads_in(qkv, head, H, K),
                                     .v = rf_heads_in(qkv, head, H + K, K),
                                     .out = rf_heads_in(out, head, 0, H),
                                     .lse =
                                         reshape(take(run, RF_F32, B * H, T), rf_shape3(B, H, T)),
                                     .full = mask == FULL,
                                     .path = path};
    struct rf_attention_grads grads = {
        .dout = rf_heads_in(dout, head, 0, H),
        .dq = rf_heads_in(dqkv, head, 0, H),
        .dk = rf_heads_in(dqkv, head, H, K),
        .dv = rf_heads_in(dqkv, head, H + K, K),
        .delta = reshape(take(run, RF_F32, B * H, T), rf_shape3(B, H, T))};
    if (mask == PACKED)
        args.starts = take(run, RF_I32, B, T);
    const bool units = path && strcmp(path, "units") == 0;
    for (int backward = 0; backward < 2; backward++) {
        struct launch launch = {
            .chosen = !path, .may_not_spill = !path, .refusals = units ? without_units : NULL};
        snprintf(launch.name, sizeof(launch.name), "attention%s%s%s head %lld%s%s",
                 backward ? "_backward" : "", path ? " " : "", path ? path : "", (long long)head,
                 groups > 1 ? " grouped" : "", masks[mask]);
        add_type(&launch, dtype);
        if (is_wanted(run, &launch))
            run->done(run->user, &launch,
                      backward ? rf_attend_backward(s, &args, &grads) : rf_attend(s, &args));
    }
}

static void attentions_of(const struct run *run, const char *path, enum rf_dtype dtype, int sizes)
{
    static const int64_t heads[] = {64, 33, 128, 32, 80, 8};
    const bool brief = run->operands->brief;
    if (path && !brief && strcmp(path, "tiled") == 0)
        attention(run, path, dtype, 256, 1, CAUSAL);
    for (int head = 0; head < sizes; head++) {
        attention(run, path, dtype, heads[head], 1, CAUSAL);
        if (brief && (path || head > 0))
            continue;
        attention(run, path, dtype, heads[head], 1, FULL);
        attention(run, path, dtype, heads[head], 2, CAUSAL);
        attention(run, path, dtype, heads[head], 2, PACKED);
    }
}

void launch_attentions(const struct run *run, enum rf_dtype dtype)
{
    /* bf16 needs as many registers as f16. */
    const int sizes = run->operands->brief && dtype == RF_BF16 ? 1 : 6;
    attentions_of(run, NULL, dtype, sizes);
    if (on_cpu(run)) /* GPUs' compilers take minutes for kernels with that many registers */
        attentions_of(run, "rows", dtype, sizes);
    attentions_of(run, "tiled", dtype, sizes);
    if (dtype != RF_F32) /* compilers take seconds for each */
        attentions_of(run, "units", dtype, 1);
}

void launch_attentions_chosen(const struct run *run, enum rf_dtype dtype)
{
    attentions_of(run, NULL, dtype, 6);
}

void launch_heads(const struct run *run, enum rf_dtype dtype)
{
    const int64_t B = 2, T = 64, H = 4, D = 64, C = H * D;
    afresh(run);
    struct rf_heads x =
        rf_heads_in(reshape(take(run, dtype, B * T, C), rf_shape3(B, T, C)), D, 0, H);
    struct rf_heads out =
        rf_heads_in(reshape(take(run, dtype, B * T, C), rf_shape3(B, T, C)), D, 0, H);
    for (int halves = 0; halves < 2; halves++) {
        struct rf_rotary_opts opts = {.halves = halves};
        plain(run, halves ? "rotary halves" : "rotary", dtype,
              rf_rotary(run->operands->stream, out, x, &opts));
        plain(run, halves ? "rotary_backward halves" : "rotary_backward", dtype,
              rf_rotary_backward(run->operands->stream, out, x, &opts));
        opts.scaling = (struct rf_rotary_scaling){8, 1, 4, 8192};
        plain(run, halves ? "rotary scaled halves" : "rotary scaled", dtype,
              rf_rotary(run->operands->stream, out, x, &opts));
    }
    for (int odd = 0; odd < 2; odd++) {
        out.size = x.size = D - odd;
        plain(run, odd ? "copy_heads odd" : "copy_heads", dtype,
              rf_copy_heads(run->operands->stream, out, x, false));
        plain(run, odd ? "copy_heads += odd" : "copy_heads +=", dtype,
              rf_copy_heads(run->operands->stream, out, x, true));
    }
}
