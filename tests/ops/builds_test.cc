/* SPDX-License-Identifier: MIT
 *
 * Properties of all training kernels: builds that read through texel views give the same bits as
 * those that do not, and the driver cuts no loop short.
 */
#include "op_fixture.h"

extern "C" {
#include "device/device.h"
}

namespace
{
class Builds : public OpTest
{
};

/* Runs every kernel that has a build with views once, on a device with views or without. */
class Model
{
  public:
    /* limit: of texels in views; 0: no views, -1: the device's. */
    explicit Model(int64_t limit)
    {
        EXPECT_OK(rf_device_open(nullptr, nullptr, &device));
        if (limit >= 0)
            rf_device_limit_views(device, (uint32_t)limit);
        EXPECT_OK(rf_stream_create(device, "builds", &stream));
    }
    ~Model()
    {
        rf_stream_destroy(stream);
        for (rf_tensor &tensor : all)
            rf_buffer_destroy(tensor.buffer);
        rf_device_close(device);
    }

    void run(int64_t V)
    {
        const int64_t B = 3, T = 24, H = 2, C = 16, n = B * T, parameters = 64 * 5 + 20;
        rf_tensor x = f32(rf_shape2(n, C)), y = f32(rf_shape2(n, C)), z = f32(rf_shape2(n, C));
        rf_tensor gamma = f32(rf_shape1(C)), beta = f32(rf_shape1(C)), scratch = f32(rf_shape1(n));
        rf_tensor mean = f32(rf_shape1(n)), rstd = f32(rf_shape1(n));
        rf_tensor partial = f32(rf_shape1(rf_norm_scratch(n, C)));
        const rf_norm_args norm = {.eps = 1e-5f,
                                   .x = x,
                                   .gamma = gamma,
                                   .beta = beta,
                                   .out = z,
                                   .mean = mean,
                                   .rstd = rstd};
        EXPECT_OK(rf_norm(stream, norm));
        EXPECT_OK(norm_input(stream, norm, z, y, true));
        EXPECT_OK(norm_weight(stream, norm, gamma, beta, y, partial));
        EXPECT_OK(rf_activate(stream, RF_ACT_GELU, y, x));
        EXPECT_OK(rf_activate_backward(stream, RF_ACT_GELU, y, y, x));
        EXPECT_OK(rf_add(stream, x, x, y));
        EXPECT_OK(rf_scale(stream, x, x, 0.3f));

        rf_tensor qkv = f32(rf_shape3(B, T, 3 * C)), dqkv = f32(rf_shape3(B, T, 3 * C));
        rf_tensor mixed = f32(rf_shape3(B, T, C)), dmixed = f32(rf_shape3(B, T, C));
        rf_tensor lse = f32(rf_shape3(B, H, T)), delta = f32(rf_shape3(B, H, T));
        const rf_attention_args args = packed(mixed, lse, qkv, H);
        const rf_attention_grads grads = packed_grads(dqkv, dmixed, delta, H);
        EXPECT_OK(rf_attend(stream, &args));
        EXPECT_OK(rf_attend_backward(stream, &args, &grads));

        rf_tensor tokens = i32(n, (int32_t)V), wte = f32(rf_shape2(V, C)),
                  wpe = f32(rf_shape2(T, C)), logits = f32(rf_shape2(n, V));
        EXPECT_OK(
            rf_embedding(stream, {.T = T, .tokens = tokens, .wte = wte, .wpe = wpe, .out = z}));
        EXPECT_OK(rf_embedding_backward(stream, {.T = T,
                                                 .tokens = tokens,
                                                 .dout = x,
                                                 .dwte = wte,
                                                 .dwpe = wpe,
                                                 .scratch = i32(rf_embedding_scratch(n, V), 2)}));
        EXPECT_OK(rf_cross_entropy(stream, {.logits = logits,
                                            .targets = tokens,
                                            .losses = f32(rf_shape1(n)),
                                            .lse = scratch,
                                            .dlogits = logits}));

        run_optimizers(parameters);
    }

    /* Kernels that write by whole subgroups if that is faster: many of their spans, and a
     * remainder. */
    void run_long(int64_t V)
    {
        const int64_t n = 30, elements = 2 * 16384 + 4 * 2048 + 20;
        rf_tensor x = f32(rf_shape1(elements)), y = f32(rf_shape1(elements)),
                  z = f32(rf_shape1(elements));
        EXPECT_OK(rf_add(stream, z, x, y));
        EXPECT_OK(rf_mul(stream, x, x, y));
        EXPECT_OK(rf_scale(stream, y, y, 0.3f));
        EXPECT_OK(rf_activate(stream, RF_ACT_GELU, z, z));
        EXPECT_OK(rf_activate_backward(stream, RF_ACT_SILU, x, x, y));
        /* Neither at a buffer's first element nor aligned to 16 bytes. */
        EXPECT_OK(rf_scale(stream, from(z, 64, 4096), from(y, 128, 4096), 2));
        EXPECT_OK(rf_scale(stream, from(z, 8193, 4096), from(y, 5, 4096), 3));
        for (rf_dtype dtype : {RF_BF16, RF_F16}) {
            rf_tensor half = f32(rf_shape1(elements)); /* twice as long as it needs */
            half.dtype = dtype;
            EXPECT_OK(rf_cast(stream, half, x));
            EXPECT_OK(rf_cast(stream, z, half));
            EXPECT_OK(rf_cast(stream, from(half, 64, 4096), from(y, 128, 4096)));
            EXPECT_OK(rf_cast(stream, from(z, 8193, 4096), from(half, 5, 4096)));
        }
        rf_tensor tokens = i32(n, (int32_t)V), logits = f32(rf_shape2(n, V)),
                  dlogits = f32(rf_shape2(n, V)), scratch = f32(rf_shape1(n));
        EXPECT_OK(rf_cross_entropy(stream, {.logits = logits,
                                            .targets = tokens,
                                            .losses = f32(rf_shape1(n)),
                                            .lse = scratch,
                                            .dlogits = dlogits,
                                            .opts = {.smoothing = 0.1f}}));
        EXPECT_OK(rf_cross_entropy(stream, {.logits = logits,
                                            .targets = tokens,
                                            .losses = f32(rf_shape1(n)),
                                            .lse = scratch,
                                            .dlogits = logits}));
        run_optimizers(2 * 16384 + 256 + 20);
    }

    void run_optimizers(int64_t parameters)
    {
        rf_tensor p = f32(rf_shape1(parameters)), g = f32(rf_shape1(parameters)),
                  m = f32(rf_shape1(parameters)), v = f32(rf_shape1(parameters)),
                  a = f32(rf_shape1(parameters)), scalars = f32(rf_shape1(RF_SCALAR_WORDS)),
                  sum = f32(rf_shape1(1));
        EXPECT_OK(rf_activate(stream, RF_ACT_GELU, v,
                              p)); /* some are positive; roots of the others are NaN */
        EXPECT_OK(rf_sum(stream, sum, g, f32(rf_shape1(rf_sum_scratch(parameters)))));
        rf_tensor decay = i32((parameters + 63) / 64, 2);
        rf_optimizer_opts opts = {RF_ADAMW, 0.9f, 0.95f, 1e-8f, 0.1f};
        EXPECT_OK(rf_fill(stream, sum, 3)); /* finite */
        EXPECT_OK(rf_step_begin(stream, &opts, scalars, sum));
        rf_optimizer_part part = {};
        part.param = p;
        part.grad = g;
        part.decay = decay;
        part.state[RF_STATE_M] = m;
        part.state[RF_STATE_V] = v;
        part.state[RF_STATE_A] = a;
        part.state[RF_STATE_U] = f32(rf_shape1(parameters));
        for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++) {
            opts.kind = (rf_optimizer)kind;
            opts.momentum = 0.9f;
            opts.centered = kind == RF_RMSPROP;
            EXPECT_OK(rf_optimizer_step(stream, &opts, &part, scalars));
        }
    }
    /* All tensors, in order of creation. */
    Ints state()
    {
        Ints words;
        EXPECT_OK(rf_stream_wait(stream));
        for (rf_tensor &tensor : all) {
            size_t at = words.size();
            words.resize(at + rf_tensor_count(tensor));
            EXPECT_OK(rf_tensor_read(tensor, &words[at], rf_tensor_bytes(tensor)));
        }
        return words;
    }

  private:
    static rf_tensor from(rf_tensor tensor, int64_t first, int64_t count)
    {
        tensor.offset += (uint64_t)first * rf_dtype_bytes(tensor.dtype);
        tensor.shape = rf_shape1(count);
        return tensor;
    }
    rf_tensor make(rf_shape shape, rf_dtype dtype, const void *data)
    {
        rf_tensor tensor = {};
        EXPECT_OK(rf_tensor_create(device, shape, dtype, &tensor));
        EXPECT_OK(rf_tensor_write(tensor, data, rf_tensor_bytes(tensor)));
        all.push_back(tensor);
        return tensor;
    }
    rf_tensor f32(rf_shape shape)
    {
        std::normal_distribution<float> distribution;
        Floats data(rf_shape_count(shape));
        for (float &x : data)
            x = distribution(engine);
        return make(shape, RF_F32, data.data());
    }
    rf_tensor i32(int64_t count, int32_t bound)
    {
        std::uniform_int_distribution<int32_t> distribution(0, bound - 1);
        Ints data(count);
        for (int32_t &x : data)
            x = distribution(engine);
        return make(rf_shape1(count), RF_I32, data.data());
    }

    rf_device *device = nullptr;
    rf_stream *stream = nullptr;
    std::vector<rf_tensor> all;
    std::mt19937 engine{7};
};

TEST_F(Builds, GiveTheSameBitsWithAndWithoutViews)
{
    for (int64_t V : {48, 53}) { /* aligned rows of logits, and any */
        Model with(-1), without(0);
        with.run(V);
        without.run(V);
        EXPECT_EQ(with.state(), without.state()) << "vocabulary " << V;
    }
}

TEST_F(Builds, GiveTheSameBitsWritingByWholeSubgroups)
{
    for (int64_t V : {1032, 1030, 2, 514}) { /* aligned rows of logits, any, and short ones */
        Model whole(-1), pieces(65536), without(0);
        whole.run_long(V);
        pieces.run_long(V);
        without.run_long(V);
        EXPECT_EQ(whole.state(), without.state()) << "vocabulary " << V;
        EXPECT_EQ(pieces.state(), without.state()) << "vocabulary " << V << ", in pieces";
    }
}

/* The driver that counts rounds stops at 65535 without an error. */
class LongLoops : public OpTest
{
  protected:
    static bool counts_rounds()
    {
        return rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    }
};

TEST_F(LongLoops, CrossEntropyOfAMillionColumns)
{
    const int64_t V = 1 << 20, most = 16 * 64999;
    for (int64_t columns : {most, V}) {
        rf_tensor losses = blank(rf_shape1(1)),
                  logits = f32(rf_shape2(1, columns), Floats(columns)),
                  target = i32(rf_shape1(1), {(int32_t)columns - 1}), scratch = blank(rf_shape1(1));
        const rf_cross_entropy_args args = {
            .logits = logits, .targets = target, .losses = losses, .lse = scratch};
        if (columns > most && counts_rounds()) {
            EXPECT_FAILS(RF_ENOTSUP, "65000", rf_cross_entropy(stream, args));
            continue;
        }
        ASSERT_OK(rf_cross_entropy(stream, args));
        /* A sum of equal terms: each of the 65 thousand additions rounds by at most 6e-8. */
        EXPECT_NEAR(read(losses)[0], std::log((double)columns), 4e-3);
    }
}

TEST_F(LongLoops, LayerNormOfWideRows)
{
    for (int64_t C : {16 * 21660, 16 * 30000}) {
        /* Half ones, half minus ones: every sum is exact, and only whole rows have mean 0. */
        Floats data(C, 1);
        std::fill(data.begin() + C / 2, data.end(), -1.0f);
        rf_tensor x = f32(rf_shape2(1, C), data), out = blank(rf_shape2(1, C)),
                  gamma = f32(rf_shape1(C), Floats(C, 2)), beta = f32(rf_shape1(C), Floats(C, 5)),
                  mean = blank(rf_shape1(1)), rstd = blank(rf_shape1(1));
        const rf_norm_args args = {
            .x = x, .gamma = gamma, .beta = beta, .out = out, .mean = mean, .rstd = rstd};
        if (C > 16 * 21660 && counts_rounds()) {
            EXPECT_FAILS(RF_ENOTSUP, "65000", rf_norm(stream, args));
            continue;
        }
        ASSERT_OK(rf_norm(stream, args));
        Floats got = read(out);
        EXPECT_EQ(read(mean)[0], 0);
        EXPECT_EQ(got[0], 7);
        EXPECT_EQ(got[C - 1], 3);
    }
}

TEST_F(LongLoops, EmbeddingGradientOfOneTokenInEveryRow)
{
    for (int64_t n : {65000, 70000}) {
        rf_tensor dwte = f32(rf_shape2(2, 4), Floats(8)), tokens = i32(rf_shape1(n), Ints(n, 1)),
                  dout = f32(rf_shape2(n, 4), Floats(4 * n, 1)),
                  scratch = blank_i32(rf_embedding_scratch(n, 2));
        const rf_embedding_args args = {
            .T = n, .tokens = tokens, .dout = dout, .dwte = dwte, .scratch = scratch};
        if (n > 65000 && counts_rounds()) {
            EXPECT_FAILS(RF_ENOTSUP, "65000", rf_embedding_backward(stream, args));
            continue;
        }
        ASSERT_OK(rf_embedding_backward(stream, args));
        float sum = (float)n;
        EXPECT_EQ(read(dwte), Floats({0, 0, 0, 0, sum, sum, sum, sum}));
    }
}
} // namespace
