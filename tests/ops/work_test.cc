/* SPDX-License-Identifier: MIT
 *
 * The declared work of operations, on a device that counts: bytes are exact, also for operands that
 * are parts of others, and products are counted in full.
 */
#include <gtest/gtest.h>
#include <ringforge/ops.h>

#include "support/calls.h"

namespace
{

#define ASSERT_OK(call) ASSERT_EQ(call, RF_OK) << rf_last_error()->message

class Work : public ::testing::Test
{
  protected:
    rf_device *device = nullptr;
    rf_stream *stream = nullptr;
    rf_buffer *memory = nullptr;
    uint64_t used = 0;

    void SetUp() override
    {
        ASSERT_OK(rf_device_open_counting(&device));
        ASSERT_OK(rf_stream_create(device, "work", &stream));
        ASSERT_OK(rf_buffer_create(device, UINT64_C(1) << 50, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                   &memory));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        rf_buffer_destroy(memory);
        rf_device_close(device);
    }
    rf_tensor tensor(rf_shape shape, rf_dtype dtype = RF_F32)
    {
        rf_tensor out = {memory, used, shape, dtype};
        used = (used + rf_tensor_bytes(out) + 255) / 256 * 256;
        return out;
    }
    // Since the last call.
    rf_work taken()
    {
        rf_work now, out;
        rf_device_work(device, &now);
        out = {now.launches - before.launches, now.unranged - before.unranged,
               now.flops - before.flops,       now.repeated - before.repeated,
               now.read - before.read,         now.written - before.written};
        before = now;
        return out;
    }
    rf_work before = {};
};

#define EXPECT_WORK(launches_, flops_, read_, written_)                                            \
    do {                                                                                           \
        const rf_work w = taken();                                                                 \
        EXPECT_EQ(w.launches, (uint64_t)(launches_));                                              \
        EXPECT_EQ(w.flops, (uint64_t)(flops_));                                                    \
        EXPECT_EQ(w.read, (uint64_t)(read_));                                                      \
        EXPECT_EQ(w.written, (uint64_t)(written_));                                                \
        EXPECT_EQ(w.unranged, 0u);                                                                 \
    } while (0)

TEST_F(Work, FlatOperationsMoveEachOperandOnce)
{
    const rf_tensor a = tensor(rf_shape1(1000)), b = tensor(rf_shape1(1000)),
                    out = tensor(rf_shape1(1000)), half = tensor(rf_shape1(1000), RF_BF16);
    ASSERT_OK(rf_add(stream, out, a, b));
    EXPECT_WORK(1, 1000, 8000, 4000);
    ASSERT_OK(rf_add(stream, a, a, b)); // in place
    EXPECT_WORK(1, 1000, 8000, 4000);
    ASSERT_OK(rf_add_bias(stream, out, a, tensor(rf_shape1(1000)), b));
    EXPECT_WORK(1, 1000, 12000, 4000);
    ASSERT_OK(rf_cast(stream, half, a));
    EXPECT_WORK(1, 1000, 4000, 2000);
    ASSERT_OK(rf_copy(stream, out, a));
    EXPECT_WORK(1, 0, 4000, 4000);
    ASSERT_OK(rf_fill(stream, out, 1));
    EXPECT_WORK(1, 0, 0, 4000);
    ASSERT_OK(rf_fill(stream, half, 1));
    EXPECT_WORK(1, 1000, 0, 2000);
}

TEST_F(Work, AnEmptyOperationIsNone)
{
    const rf_tensor none = tensor(rf_shape1(0));
    ASSERT_OK(rf_copy(stream, none, none));
    EXPECT_WORK(0, 0, 0, 0);
}

TEST_F(Work, AProductIsTwoFlopsForEachTermAndItsEpilogue)
{
    const int64_t m = 96, n = 40, k = 56;
    const rf_tensor a = tensor(rf_shape2(m, k)), b = tensor(rf_shape2(n, k)),
                    out = tensor(rf_shape2(m, n)), pre = tensor(rf_shape2(m, n)),
                    residual = tensor(rf_shape2(m, n)), bias = tensor(rf_shape1(n));
    rf_matmul_opts opts = {};
    opts.transpose_b = true;
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(1, 2 * m * n * k, 4 * (m * k + n * k), 4 * m * n);
    opts.accumulate = true;
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(1, 2 * m * n * k + m * n, 4 * (m * k + n * k + m * n), 4 * m * n);
    opts.accumulate = false;
    opts.bias = &bias;
    opts.act = RF_ACT_GELU;
    opts.pre = &pre;
    opts.residual = &residual;
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(1, 2 * m * n * k + 3 * m * n, 4 * (m * k + n * k + n + m * n), 8 * m * n);
    opts = {};
    opts.transpose_b = opts.act_backward = true;
    opts.act = RF_ACT_GELU;
    opts.pre = &pre;
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(1, 2 * m * n * k + m * n, 4 * (m * k + n * k + m * n), 4 * m * n);
}

TEST_F(Work, MatricesThatAreSharedOrLieAmongOthersCountOnce)
{
    const int64_t m = 32, n = 16, k = 24, batch = 5;
    const rf_tensor a = tensor(rf_shape3(batch, m, 3 * k)), b = tensor(rf_shape2(k, n)),
                    out = tensor(rf_shape3(batch, m, n));
    rf_matmul_opts opts = {};
    opts.batch = batch;
    opts.m = m;
    opts.n = n;
    opts.k = k;
    opts.a_layout = {3 * k, 3 * k * m};
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(1, 2 * batch * m * n * k, 4 * (batch * m * k + k * n), 4 * batch * m * n);
}

TEST_F(Work, ASplitProductMovesItsPartialSums)
{
    const int64_t m = 64, n = 64, k = 4096;
    const rf_tensor a = tensor(rf_shape2(m, k)), b = tensor(rf_shape2(k, n)),
                    out = tensor(rf_shape2(m, n));
    const int64_t scratch_elements = matmul_scratch(device, RF_F32, m, n, k);
    ASSERT_GT(scratch_elements, 0);
    const rf_tensor scratch = tensor(rf_shape1(scratch_elements));
    rf_matmul_opts opts = {};
    opts.scratch = &scratch;
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_WORK(2, 2 * m * n * k + scratch_elements, 4 * (m * k + k * n + scratch_elements),
                4 * (scratch_elements + m * n));
}

// (B,T,3C) packed: the extents of q, k and v are all of it, three times.
TEST_F(Work, CausalAttentionCountsPairsThatAreSeenAndRowsThatAreRead)
{
    const int64_t batch = 3, rows = 50, heads = 4, size = 16, c = heads * size;
    const int64_t n = batch * rows, pairs = batch * heads * rows * (rows + 1) / 2;
    const rf_tensor qkv = tensor(rf_shape3(batch, rows, 3 * c)),
                    out = tensor(rf_shape3(batch, rows, c)),
                    lse = tensor(rf_shape3(batch, heads, rows)),
                    dqkv = tensor(rf_shape3(batch, rows, 3 * c)),
                    dout = tensor(rf_shape3(batch, rows, c)),
                    delta = tensor(rf_shape3(batch, heads, rows));
    const rf_attention_args args = packed(out, lse, qkv, heads);
    const rf_attention_grads grads = packed_grads(dqkv, dout, delta, heads);
    ASSERT_OK(rf_attend(stream, &args));
    EXPECT_WORK(1, pairs * (2 * 2 * size + 4), 4 * 3 * n * c, 4 * (n * c + n * heads));
    ASSERT_OK(rf_attend_backward(stream, &args, &grads));
    const rf_work w = taken();
    EXPECT_EQ(w.launches, 2u);
    EXPECT_EQ(w.flops, (uint64_t)(pairs * (7 * 2 * size + 8)));
    EXPECT_EQ(w.repeated, (uint64_t)(pairs * 3 * 2 * size));
    // q, k, v, dout and lse twice; out by the queries' pass, which writes delta for the other.
    EXPECT_EQ(w.read, (uint64_t)(4 * (2 * (4 * n * c + n * heads) + n * c + n * heads)));
    EXPECT_EQ(w.written, (uint64_t)(4 * (3 * n * c + n * heads)));
}

TEST_F(Work, OfAStreamThatRepeatsIsRepeatedUntilItNoLongerDoes)
{
    const int64_t heads = 2, rows = 8, c = 16, pairs = heads * rows * (rows + 1) / 2;
    const rf_tensor qkv = tensor(rf_shape3(1, rows, 3 * c)), out = tensor(rf_shape3(1, rows, c)),
                    lse = tensor(rf_shape3(1, heads, rows)), delta = tensor(lse.shape),
                    dout = tensor(out.shape), dqkv = tensor(qkv.shape);
    const rf_attention_args args = packed(out, lse, qkv, heads);
    const rf_attention_grads grads = packed_grads(dqkv, dout, delta, heads);
    rf_stream_repeats(stream, true);
    ASSERT_OK(rf_attend(stream, &args));
    rf_work w = taken();
    EXPECT_EQ(w.flops, (uint64_t)(pairs * (2 * 2 * (c / heads) + 4)));
    EXPECT_EQ(w.repeated, w.flops);
    ASSERT_OK(rf_attend_backward(stream, &args, &grads));
    w = taken();
    EXPECT_EQ(w.repeated, w.flops); // even of one that declares itself a partial repetition
    rf_stream_repeats(stream, false);
    ASSERT_OK(rf_attend(stream, &args));
    w = taken();
    EXPECT_GT(w.flops, 0u);
    EXPECT_EQ(w.repeated, 0u);
}

TEST_F(Work, FullAttentionOverGroupedKeysSeesAllPairs)
{
    const int64_t heads = 6, kv = 2, size = 8, queries = 10, keys = 30;
    const rf_tensor q = tensor(rf_shape2(queries, heads * size)),
                    k = tensor(rf_shape2(keys, kv * size)), v = tensor(rf_shape2(keys, kv * size)),
                    out = tensor(rf_shape2(queries, heads * size));
    rf_attention_args args = {};
    args.q = rf_heads_in(q, size, 0, heads);
    args.k = rf_heads_in(k, size, 0, kv);
    args.v = rf_heads_in(v, size, 0, kv);
    args.out = rf_heads_in(out, size, 0, heads);
    args.lse = tensor(rf_shape3(1, heads, queries));
    args.full = true;
    ASSERT_OK(rf_attend(stream, &args));
    EXPECT_WORK(1, heads * queries * keys * (4 * size + 4),
                4 * (queries * heads * size + 2 * keys * kv * size),
                4 * (queries * heads * size + heads * queries));
    args.full = false; // ends with the keys: query i sees 20 + i + 1
    ASSERT_OK(rf_attend(stream, &args));
    EXPECT_EQ(taken().flops, (uint64_t)(heads * (queries * 20 + 55) * (4 * size + 4)));
}

TEST_F(Work, AnEmbeddingMovesTheRowsThatAreLookedUp)
{
    const int64_t rows = 20, vocabulary = 1000, c = 32, T = 10;
    const rf_tensor tokens = tensor(rf_shape1(rows), RF_I32),
                    wte = tensor(rf_shape2(vocabulary, c)), wpe = tensor(rf_shape2(64, c)),
                    out = tensor(rf_shape2(rows, c)),
                    scratch = tensor(rf_shape1(rf_embedding_scratch(rows, vocabulary)), RF_I32);
    ASSERT_OK(rf_embedding(stream, {.T = T, .tokens = tokens, .wte = wte, .wpe = wpe, .out = out}));
    EXPECT_WORK(1, rows * c, 4 * (rows + rows * c + T * c), 4 * rows * c);
    ASSERT_OK(rf_embedding_backward(
        stream,
        {.T = T, .tokens = tokens, .dout = out, .dwte = wte, .dwpe = wpe, .scratch = scratch}));
    const rf_work w = taken();
    EXPECT_LT(w.read, (uint64_t)(4 * vocabulary * c)); // only the rows of the table that are added
                                                       // to
    EXPECT_GE(w.read, (uint64_t)(4 * (2 * rows * c + T * c)));
    // A table that is smaller than the rows is read once.
    const rf_tensor small = tensor(rf_shape2(5, c));
    ASSERT_OK(rf_embedding(stream, {.T = T, .tokens = tokens, .wte = small, .out = out}));
    EXPECT_WORK(1, rows * c, 4 * (rows + 5 * c), 4 * rows * c);
}

TEST_F(Work, HalvesOfPackedRowsCountAsHalves)
{
    const int64_t rows = 12, f = 40;
    const rf_tensor gates = tensor(rf_shape2(rows, 2 * f)), out = tensor(rf_shape2(rows, f)),
                    dgates = tensor(rf_shape2(rows, 2 * f)), none = {};
    ASSERT_OK(rf_glu(stream, RF_ACT_SILU, out, gates, none));
    EXPECT_WORK(1, rows * f, 4 * 2 * rows * f, 4 * rows * f);
    ASSERT_OK(rf_glu_backward(stream, RF_ACT_SILU, gates, none, {out, dgates, none}));
    EXPECT_WORK(1, rows * f, 4 * 3 * rows * f, 4 * 2 * rows * f);
    const rf_tensor qkv = tensor(rf_shape3(1, rows, 10 * 16));
    const rf_heads turned = rf_heads_in(qkv, 16, 0, 7);
    ASSERT_OK(rf_rotary(stream, turned, turned, nullptr));
    EXPECT_WORK(1, 3 * rows * 7 * 16, 4 * rows * 7 * 16, 4 * rows * 7 * 16);
    const rf_heads others = rf_heads_in(qkv, 16, 7, 3), few = rf_heads_in(qkv, 16, 0, 3);
    ASSERT_OK(rf_copy_heads(stream, few, others, false));
    EXPECT_WORK(1, rows * 3 * 16, 4 * rows * 3 * 16, 4 * rows * 3 * 16);
    ASSERT_OK(rf_copy_heads(stream, few, others, true));
    EXPECT_WORK(1, rows * 3 * 16, 2 * 4 * rows * 3 * 16, 4 * rows * 3 * 16);
}

TEST_F(Work, GradientsThatAreAddedToAreReadToo)
{
    const int64_t rows = 100, c = 64;
    const rf_tensor x = tensor(rf_shape2(rows, c)), dx = tensor(rf_shape2(rows, c)),
                    dout = tensor(rf_shape2(rows, c)), mean = tensor(rf_shape1(rows)),
                    rstd = tensor(rf_shape1(rows)), gamma = tensor(rf_shape1(c)),
                    bias = tensor(rf_shape1(c)), scratch = tensor(rf_shape1(2 * c));
    const rf_norm_args norm = {.x = x, .gamma = gamma, .mean = mean, .rstd = rstd};
    for (bool adds : {false, true}) {
        ASSERT_OK(norm_input(stream, norm, dx, dout, adds));
        EXPECT_WORK(1, rows * c * (12 + adds), 4 * ((2 + adds) * rows * c + 2 * rows + c),
                    4 * rows * c);
    }
    ASSERT_EQ(rf_bias_grad_scratch(rows, c), 2 * c);
    ASSERT_OK(rf_bias_grad(stream, bias, dout, scratch));
    EXPECT_WORK(2, rows * c + 2 * c, 4 * (rows * c + 2 * c + c), 4 * (2 * c + c));
}

TEST_F(Work, EveryOptimizerCountsAsItsRuleSays)
{
    for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++)
        for (int64_t count : {64, 1000, 1 << 20})
            for (const auto &[type, copy] : {std::pair(RF_F32, RF_F32), std::pair(RF_F32, RF_BF16),
                                             std::pair(RF_BF16, RF_F32)}) {
                rf_optimizer_opts opts = {};
                opts.kind = (rf_optimizer)kind;
                opts.centered = true;
                opts.momentum = 0.9f;
                rf_optimizer_part part = {};
                part.param = tensor(rf_shape1(count), type);
                part.grad = tensor(rf_shape1(count));
                for (rf_tensor &state : part.state)
                    state = tensor(rf_shape1(count));
                if (copy != RF_F32)
                    part.copy = tensor(rf_shape1(count), copy);
                part.decay = tensor(rf_shape1((count + 63) / 64), RF_I32);
                rf_work rule;
                rf_optimizer_work(&opts, (uint64_t)count, {type, copy, RF_F32}, &rule);
                ASSERT_OK(
                    rf_optimizer_step(stream, &opts, &part, tensor(rf_shape1(RF_SCALAR_WORDS))));
                EXPECT_WORK(rule.launches, rule.flops, rule.read, rule.written);
            }
    rf_optimizer_opts adamw = {};
    rf_work rule;
    rf_optimizer_work(&adamw, 64, {RF_F32, RF_BF16, RF_F32}, &rule);
    EXPECT_EQ(rule.read, 64u * 16 + 4 + 64);
    EXPECT_EQ(rule.written, 64u * (12 + 2));
    rf_optimizer_work(&adamw, 4096, {RF_F32, RF_F32, RF_U8}, &rule);
    EXPECT_EQ(rule.read, 4096u * 8 + 16 * 2 * 260 + 64 * 4 + 64);
    EXPECT_EQ(rule.written, 4096u * 4 + 16 * 2 * 260);
}

TEST_F(Work, ArgumentsAreCheckedAsOnAnyDevice)
{
    const rf_tensor a = tensor(rf_shape2(4, 5)), b = tensor(rf_shape2(6, 7));
    EXPECT_EQ(rf_matmul(stream, a, a, b, nullptr), RF_EINVAL);
    const rf_tensor large = tensor(rf_shape1(INT64_C(3) << 30));
    EXPECT_EQ(rf_scale(stream, large, large, 2), RF_ENOTSUP);
    EXPECT_WORK(0, 0, 0, 0);
}

} // namespace
