/* SPDX-License-Identifier: MIT
 *
 * The ranges that launchers declare equal those that their kernels touch: every launcher with every
 * build of its shaders that a CPU device can run, under RF_CHECK_RANGES. The checker notices each
 * of these ranges if it is halved, shifted or omitted.
 */
#include "op_fixture.h"
#include "shader_families.h"

#include <cstdlib>
#include <map>
#include <regex>
#include <set>

extern "C" {
#include "device/device.h"
#include "ops/shader_table.h"
}

namespace
{
bool starts(const std::string &text, const std::string &with)
{
    return text.compare(0, with.size(), with) == 0;
}
bool contains(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

class Ranges : public OpTest, public ::testing::WithParamInterface<Family>
{
  protected:
    static void SetUpTestSuite()
    {
    }
    static void TearDownTestSuite()
    {
    }
    void SetUp() override
    {
    }
    void TearDown() override
    {
    }

    /* Every kernel of the family, on a device with views or without, or by teams of lanes. */
    void check(bool views, bool teams = false)
    {
        setenv("RF_CHECK_RANGES", "1", 1);
        OpTest::SetUpTestSuite();
        unsetenv("RF_CHECK_RANGES");
        ASSERT_NE(device, nullptr);
        if (!views)
            rf_device_limit_views(device, 0);
        rf_device_try_ranges(device);
        const std::string family = GetParam().name;
        for (rf_dtype type : float_types)
            for (bool odd : {false, true}) {
                if (!views && !teams && type != RF_F32)
                    continue; /* those have no views anyway */
                rf_device_force_teams(device, teams);
                SCOPED_TRACE(std::string(rf_dtype_name(type)) + (odd ? " odd" : ""));
                if (family == "Flat")
                    flat(type, odd ? 299 : 300);
                else if (family == "Rows")
                    rows(type, 5, odd ? 21 : 24);
                else if (family == "Vocabulary")
                    vocabulary(type, odd);
                else if (family == "Attention")
                    attention(type, odd ? 6 : 8);
                else if (family == "Decode")
                    decode(type, odd);
                else if (family == "Matmul")
                    matmul(type, odd);
                else if (family == "Reductions")
                    reductions(type, odd ? 3001 : 3000);
                else
                    optimizers(type, odd ? 321 : 384);
                OpTest::TearDown();
            }
        if (family == "Flat") {
            for (rf_dtype type : float_types)
                casts(type, 20004); /* enough for builds that write by whole subgroups */
            flat(RF_F32, 20004);
            OpTest::TearDown();
        }
        note_wide();
        note_trials();
        OpTest::TearDownTestSuite();
    }

    void flat(rf_dtype type, int64_t n)
    {
        const rf_shape shape = rf_shape1(n);
        rf_tensor a = some(shape, type), b = some(shape, type), out = typed_blank(shape, type);
        rf_tensor seed = i32(rf_shape1(2), {0x12345678, 0x2bcdef01});
        rf_random random = {};
        random.device_seed = &seed;
        EXPECT_OK(rf_add(stream, out, a, b));
        EXPECT_OK(rf_mul(stream, out, a, b));
        EXPECT_OK(rf_maximum(stream, out, a, b));
        EXPECT_OK(rf_add_bias(stream, out, a, some(shape, type), b));
        EXPECT_OK(rf_add_bias(stream, typed_blank(shape, RF_F32), some(shape, RF_F32),
                              some(shape, type), some(shape, RF_F32)));
        EXPECT_OK(rf_scale(stream, out, a, 3));
        EXPECT_OK(rf_activate(stream, RF_ACT_GELU, out, a));
        EXPECT_OK(rf_activate_backward(stream, RF_ACT_GELU, out, a, b));
        EXPECT_OK(rf_dropout(stream, out, a, 0.5f, &random));
        EXPECT_OK(rf_fill(stream, out, 7));
        if (type == RF_F32) {
            rf_tensor fixed = out, sum = typed_blank(shape, type);
            fixed.dtype = sum.dtype = RF_I32;
            EXPECT_OK(rf_fixed_write(stream, fixed, a));
            EXPECT_OK(rf_fixed_add(stream, sum, fixed, b, true));
            EXPECT_OK(rf_fixed_read(stream, b, sum));
        }
        if (n > 1000)
            return;
        EXPECT_OK(rf_glu(stream, RF_ACT_SILU, out, a, b));
        rf_tensor dgate = typed_blank(shape, type), dup = typed_blank(shape, type);
        EXPECT_OK(rf_glu_backward(stream, RF_ACT_SILU, a, b, {out, dgate, dup}));
        casts(type, n);
    }
    void casts(rf_dtype type, int64_t n)
    {
        rf_tensor from = some(rf_shape1(n), type);
        for (rf_dtype to : float_types)
            if (to != type) {
                EXPECT_OK(rf_cast(stream, typed_blank(rf_shape1(n), to), from));
            }
    }

    void rows(rf_dtype type, int64_t n, int64_t C)
    {
        const rf_shape all = rf_shape2(n, C);
        rf_tensor x = some(all, type), out = typed_blank(all, type);
        norms(type, type, n, C);
        norms(type, type, 40, C); /* two blocks of rows, whose sums are added up */
        if (type != RF_F32)
            norms(type, RF_F32, n, C);
        EXPECT_OK(rf_softmax(stream, out, x));
        EXPECT_OK(rf_softmax_backward(stream, x, out, some(all, type)));
        operands(type, 4, 25 * C); /* rows of several strips */
    }
    void operands(rf_dtype type, int64_t n, int64_t C)
    {
        rf_tensor x = some(rf_shape2(n, C), type), out = typed_blank(rf_shape2(n, C), type),
                  scalars = blank(rf_shape1(RF_SCALAR_WORDS)), most = blank(rf_shape1(100 * C));
        for (bool columns : {false, true}) {
            const rf_recipe recipe = columns ? RF_RECIPE_MXFP4 : RF_RECIPE_FP8_ROWS;
            const rf_operand_opts opts = {recipe, RF_OPERAND_GRADIENT, columns, &scalars};
            EXPECT_OK(rf_round_operand(stream, out, x, &opts, &most));
        }
    }
    /* out and its gradient have one type, everything else the other. */
    void norms(rf_dtype type, rf_dtype in, int64_t n, int64_t C)
    {
        const rf_shape all = rf_shape2(n, C);
        rf_tensor x = some(all, in), y = some(all, in), sum = typed_blank(all, in),
                  gamma = some(rf_shape1(C), in), beta = some(rf_shape1(C), in), dx = some(all, in),
                  dgamma = some(rf_shape1(C), in), dbeta = some(rf_shape1(C), in),
                  mean = blank(rf_shape1(n)), rstd = blank(rf_shape1(n)),
                  scratch = blank(rf_shape1(rf_norm_scratch(n, C))), out = typed_blank(all, type),
                  dout = some(all, type);
        for (bool rms : {false, true}) {
            rf_norm_args args = {.rms = rms,
                                 .eps = 1e-5f,
                                 .x = x,
                                 .gamma = gamma,
                                 .beta = rms ? rf_tensor{} : beta,
                                 .out = out,
                                 .mean = rms ? rf_tensor{} : mean,
                                 .rstd = rstd};
            EXPECT_OK(rf_norm(stream, args));
            EXPECT_OK(norm_input(stream, args, sum, dout));
            EXPECT_OK(norm_weight(stream, args, dgamma, rms ? rf_tensor{} : dbeta, dout, scratch));
            if (!rms) {
                EXPECT_OK(norm_input(stream, args, dx, dout, true));
                EXPECT_OK(norm_weight(stream, args, {}, dbeta, dout, scratch));
            }
            args.residual = y;
            args.sum = sum;
            EXPECT_OK(rf_norm(stream, args));
        }
    }

    void vocabulary(rf_dtype type, bool odd)
    {
        const int64_t n = 12, T = 4, C = odd ? 3 : 4, words = 16000; /* two digits, each used in
                                                                      * full */
        rf_tensor tokens = i32(rf_shape1(n), below(n, words)), dout = some(rf_shape2(n, C), type),
                  wte = some(rf_shape2(words, C), type), wpe = some(rf_shape2(T, C), type),
                  out = typed_blank(rf_shape2(n, C), type),
                  sort = blank_i32(rf_embedding_scratch(n, words));
        rf_embedding_args look = {.T = T, .tokens = tokens, .wte = wte, .wpe = wpe, .out = out};
        rf_embedding_args grads = {
            .T = T, .tokens = tokens, .dout = dout, .dwte = wte, .dwpe = wpe, .scratch = sort};
        EXPECT_OK(rf_embedding(stream, look));
        EXPECT_OK(rf_embedding_backward(stream, grads));
        EXPECT_OK(
            rf_embedding_backward(stream, {.T = T, .tokens = tokens, .dout = dout, .dwpe = wpe}));
        if (type != RF_F32) {
            rf_embedding_args wide =
                with(grads, &rf_embedding_args::dwpe, some(rf_shape2(T, C), RF_F32));
            wide.dwte = some(rf_shape2(words, C), RF_F32);
            EXPECT_OK(rf_embedding_backward(stream, wide));
        }
        look.first = grads.first = 3;
        look.vocabulary = grads.vocabulary = words + 3;
        EXPECT_OK(rf_embedding(stream, look));
        Ints places(n); /* every one */
        for (int64_t i = 0; i < n; i++)
            places[i] = (int32_t)(T - 1 - i % T);
        look.positions = i32(rf_shape1(n), places);
        EXPECT_OK(rf_embedding(stream, look));
        grads.first_row = 2;
        grads.rows = 7;
        grads.scratch = blank_i32(rf_embedding_scratch(n, words + 1));
        EXPECT_OK(rf_embedding_backward(stream, grads));
        for (int64_t V : {odd ? 51 : 52, odd ? 1030 : 1032}) {
            const int64_t m = 5;
            rf_tensor logits = some(rf_shape2(m, V), type), losses = blank(rf_shape1(m)),
                      dlogits = typed_blank(rf_shape2(m, V), type), lse = blank(rf_shape1(m)),
                      scale = f32(rf_shape1(1), {3}),
                      targets = i32(rf_shape1(m), {1, 50, (int32_t)V - 1, -1, 7});
            rf_cross_entropy_args args = {.logits = logits,
                                          .targets = targets,
                                          .losses = losses,
                                          .lse = lse,
                                          .dlogits = dlogits};
            EXPECT_OK(rf_cross_entropy(stream, args));
            args.opts.device_scale = &scale;
            EXPECT_OK(rf_cross_entropy(stream, args));
            const rf_tensor most = blank(rf_shape1(m)), total = blank(rf_shape1(m)),
                            wanted = blank(rf_shape1(m)), sums = blank(rf_shape2(2, m)),
                            greatest = f32(rf_shape1(m), Floats(m, 1));
            EXPECT_OK(rf_cross_entropy_part_rows(stream, {.logits = logits,
                                                          .targets = targets,
                                                          .first = 2,
                                                          .vocabulary = V + 3,
                                                          .most = most,
                                                          .total = total,
                                                          .wanted = wanted}));
            EXPECT_OK(rf_cross_entropy_part_sums(stream, {.most = most,
                                                          .total = total,
                                                          .wanted = wanted,
                                                          .greatest = greatest,
                                                          .sums = sums}));
            EXPECT_OK(rf_cross_entropy_part_losses(stream, {.targets = targets,
                                                            .losses = losses,
                                                            .lse = lse,
                                                            .vocabulary = V + 3,
                                                            .greatest = greatest,
                                                            .sums = sums}));
            args.losses = {};
            args.first = 2;
            args.vocabulary = V + 3;
            EXPECT_OK(rf_cross_entropy_part_gradient(stream, args));
        }
    }

    void attention(rf_dtype type, int64_t D)
    {
        const int64_t B = 2, T = 20, H = 2, K = 1;
        auto heads = [&](int64_t count, bool zero) {
            rf_shape shape = rf_shape3(B, T, count * D);
            return rf_heads_in(zero ? typed_blank(shape, type) : some(shape, type), D, 0, count);
        };
        for (const char *path : {"rows", "tiled"}) {
            rf_attention_args args = {};
            args.q = heads(H, false);
            args.k = heads(K, false);
            args.v = heads(K, false);
            args.out = heads(H, true);
            args.lse = blank(rf_shape3(B, H, T));
            args.path = path;
            rf_attention_grads grads = {};
            grads.dout = heads(H, false);
            grads.dq = heads(H, true);
            grads.dk = heads(K, true);
            grads.dv = heads(K, true);
            grads.delta = blank(rf_shape3(B, H, T));
            for (bool packed : {false, true}) {
                if (packed)
                    args.starts = i32(rf_shape2(B, T), Ints(B * T, 0));
                EXPECT_OK(rf_attend(stream, &args));
                EXPECT_OK(rf_attend_backward(stream, &args, &grads));
            }
        }
        for (bool halves : {false, true}) {
            rf_rotary_opts opts = {};
            opts.halves = halves;
            EXPECT_OK(rf_rotary(stream, heads(H, true), heads(H, false), &opts));
            opts.scaling = {8, 1, 4, 8192};
            EXPECT_OK(rf_rotary(stream, heads(H, true), heads(H, false), &opts));
        }
        for (bool adds : {false, true})
            EXPECT_OK(rf_copy_heads(stream, heads(H, true), heads(H, false), adds));
    }

    void decode(rf_dtype type, bool odd)
    {
        const int64_t n = 3, H = 4, K = 2, D = odd ? 10 : 16, L = 140, C = (H + 2 * K) * D;
        rf_cache cache = {};
        cache.keys = some(rf_shape4(2, L, K, D), type);
        cache.values = some(rf_shape4(2, L, K, D), type);
        cache.sequence = i32(rf_shape1(n), {0, 1, 1});
        cache.position = i32(rf_shape1(n), {0, 3, (int32_t)L - 1});
        rf_tensor qkv = some(rf_shape2(n, C), type), out = some(rf_shape2(n, H * D), type),
                  angles = some(rf_shape2(L, D), RF_F32), none = {};
        for (bool rotate : {false, true})
            EXPECT_OK(rf_cache_append(stream, &cache, qkv, H, rotate ? angles : none));
        EXPECT_OK(rf_attend_cache(
            stream, &cache,
            {.q = qkv,
             .out = out,
             .scratch = some(rf_shape1(rf_attend_cache_scratch(n, H, D, L)), RF_F32),
             .heads = H,
             .most = L}));
        const int64_t k = odd ? C - 1 : C;
        for (rf_dtype to : {type, RF_F32}) {
            rf_tensor bias = some(rf_shape1(12), type), residual = some(rf_shape2(n, 12), to);
            rf_gemv_opts opts = {};
            opts.bias = &bias;
            opts.residual = &residual;
            EXPECT_OK(rf_gemv(stream, some(rf_shape2(n, 12), to), qkv, some(rf_shape2(12, C), type),
                              &opts));
            EXPECT_OK(rf_gemv(stream, some(rf_shape2(n, 12), to), some(rf_shape2(n, k), type),
                              some(rf_shape2(12, k), type), nullptr));
            for (rf_quantization kind : {RF_NF4, RF_INT8, RF_FP8, RF_NVFP4}) {
                opts.w_quantized = kind;
                EXPECT_OK(rf_gemv(stream, some(rf_shape2(n, 12), to), some(rf_shape2(n, k), type),
                                  packed(kind, 12 * k), &opts));
            }
        }
    }

    void product(rf_dtype type, const char *path, int form, const int64_t size[3], int epilogue)
    {
        const int64_t m = size[0], k = size[1], n = size[2];
        const bool ta = form & 2, tb = form & 1;
        rf_tensor a = some(ta ? rf_shape2(k, m) : rf_shape2(m, k), type),
                  b = some(tb ? rf_shape2(n, k) : rf_shape2(k, n), type),
                  out = some(rf_shape2(m, n), type), pre = some(rf_shape2(m, n), type),
                  residual = some(rf_shape2(m, n), type), bias = some(rf_shape1(n), type);
        rf_matmul_opts opts = {};
        opts.path = path;
        opts.transpose_a = ta;
        opts.transpose_b = tb;
        opts.accumulate = epilogue == 0;
        if (epilogue == 1) {
            opts.bias = &bias;
            opts.pre = &pre;
            opts.residual = &residual;
            opts.act = RF_ACT_GELU;
        }
        if (epilogue == 2) {
            opts.act = RF_ACT_GELU;
            opts.act_backward = true;
            opts.pre = &pre;
        }
        rf_tensor scratch = {};
        const int64_t elements = matmul_scratch(device, type, m, n, k, opts);
        if (elements > 0 && epilogue == 1) {
            scratch = blank(rf_shape1(elements));
            opts.scratch = &scratch;
        }
        EXPECT_OK(rf_matmul(stream, out, a, b, &opts));
    }
    rf_tensor packed(rf_quantization kind, int64_t count)
    {
        const Floats weights = normal((size_t)count);
        Floats bytes(rf_quantized_bytes(kind, count) / 4);
        EXPECT_OK(rf_quantize(kind, weights.data(), count, bytes.data()));
        return words(rf_shape1((int64_t)bytes.size() * 4), RF_U8, bytes.data(), 0);
    }
    void quantized(rf_dtype type, rf_quantization kind, bool transpose_b, const int64_t size[3],
                   const char *path)
    {
        const int64_t m = size[0], k = size[1], n = size[2];
        rf_matmul_opts opts = {};
        opts.transpose_b = transpose_b;
        opts.b_quantized = kind;
        opts.path = path;
        EXPECT_OK(rf_matmul(stream, some(rf_shape2(m, n), type), some(rf_shape2(m, k), type),
                            packed(kind, n * k), &opts));
    }
    void matmul(rf_dtype type, bool odd)
    {
        const int64_t even_size[3] = {12, 16, 20}, odd_size[3] = {11, 13, 19};
        const int64_t deep[3] = {odd ? 3 : 4, 2200, odd ? 5 : 8};
        const int64_t *size = odd ? odd_size : even_size;
        for (const std::string path : {"subgroup:1", "subgroup:2", "tiled"})
            for (int form = 0; form < 4; form++) {
                if (form == 3 && path != "tiled")
                    continue;
                product(type, path.c_str(), form, size, 1);
                if (type != RF_F32)
                    break; /* types are constants of the same shaders */
                if (form == 0) {
                    product(type, path.c_str(), form, size, 0);
                    product(type, path.c_str(), form, size, 2);
                }
            }
        product(type, nullptr, 0, deep, 1);
        const int64_t blocks[3] = {odd ? 3 : 12, 64, 64}; /* 16 bits: not through views */
        for (rf_quantization kind : {RF_NF4, RF_INT8, RF_FP8, RF_NVFP4})
            for (bool transposed : {false, true}) {
                if (type == RF_F32)
                    quantized(type, kind, transposed, size, nullptr);
                for (const char *path : {"subgroup:1", "subgroup:2"})
                    if (type != RF_F16)
                        quantized(type, kind, transposed, blocks, path);
            }
        rf_tensor dout = some(rf_shape2(40, odd ? 21 : 24), type),
                  dbias = some(rf_shape1(odd ? 21 : 24), type),
                  scratch = blank(rf_shape1(rf_bias_grad_scratch(40, odd ? 21 : 24)));
        EXPECT_OK(rf_bias_grad(stream, dbias, dout, scratch));
    }

    void reductions(rf_dtype type, int64_t n)
    {
        rf_tensor x = some(rf_shape1(n), type), out = blank(rf_shape1(1)),
                  scratch = blank(rf_shape1(rf_sum_scratch(n))),
                  chunks = i32(rf_shape2(3, 2), {0, 1000, 1000, 1024, 2100, 800}),
                  squares = blank(rf_shape1(3)),
                  square_scratch = blank(rf_shape1(rf_sum_squares_scratch(3))),
                  exact = blank_i32(RF_EXACT_WORDS), many = some(rf_shape1(4097), RF_F32),
                  rows = blank_i32(rf_add_squares_scratch(4097));
        EXPECT_OK(rf_sum(stream, out, x, scratch));
        EXPECT_OK(rf_max(stream, out, x, scratch));
        EXPECT_OK(rf_any_nonfinite(stream, out, x, scratch));
        EXPECT_OK(rf_sum_squares(stream, out, x, chunks, square_scratch));
        EXPECT_OK(rf_square_chunks(stream, squares, x, chunks));
        EXPECT_OK(rf_add_squares(stream, exact, many, rows));
        EXPECT_OK(rf_round_squares(stream, out, exact));
    }

    void states_of_fewer_bits(const rf_optimizer_opts &opts, rf_optimizer_part part,
                              rf_tensor scalars, int64_t n)
    {
        const int64_t bytes = (n + 255) / 256 * RF_STATE_BLOCK_BYTES;
        for (rf_dtype state : {RF_BF16, RF_U8}) {
            if (!rf_optimizer_can_store(&opts, state))
                continue;
            const std::vector<unsigned char> zeros((size_t)std::max(bytes, 2 * n));
            for (rf_tensor &t : part.state)
                if (t.buffer)
                    t = this->words(rf_shape1(state == RF_U8 ? bytes : n), state, zeros.data(), 0);
            EXPECT_OK(rf_optimizer_step(stream, &opts, &part, scalars));
        }
    }

    void optimizers(rf_dtype type, int64_t n)
    {
        rf_tensor scalars = f32(rf_shape1(RF_SCALAR_WORDS), Floats(RF_SCALAR_WORDS)),
                  sum = f32(rf_shape1(1), {3});
        rf_step_scalars words = {};
        words.lr = 0.25f;
        words.clip = 1e9f;
        words.inv_tokens = 0.5f;
        words.loss_scale = 1;
        words.seed[0] = 5;
        ASSERT_EQ(sizeof(words), sizeof(float) * RF_SCALAR_WORDS);
        EXPECT_OK(rf_tensor_write(scalars, &words, sizeof(words)));
        Ints masks((n + 63) / 64);
        for (size_t i = 0; i < masks.size(); i++)
            masks[i] = (int32_t)(i % 2);
        rf_tensor decay = i32(rf_shape1((int64_t)masks.size()), masks);
        for (rf_optimizer kind : {RF_ADAMW, RF_RMSPROP}) {
            rf_optimizer_opts opts = {kind, 0.9f, 0.95f, 1e-8f, 0.1f};
            opts.momentum = 0.9f;
            opts.centered = kind == RF_RMSPROP;
            EXPECT_OK(rf_step_begin(stream, &opts, scalars, sum));
            rf_optimizer_part part = {};
            part.param = some(rf_shape1(n), RF_F32);
            part.grad = some(rf_shape1(n), type);
            part.decay = decay;
            for (int i = 0; i < RF_STATE_COUNT; i++)
                if (rf_optimizer_has(&opts, (rf_optimizer_state)i))
                    part.state[i] = f32(rf_shape1(n), positive(n));
            if (type != RF_F32)
                part.copy = typed_blank(rf_shape1(n), type);
            EXPECT_OK(rf_optimizer_step(stream, &opts, &part, scalars));
            if (type == RF_F32) {
                states_of_fewer_bits(opts, part, scalars, n);
                continue;
            }
            opts.stochastic_rounding = true;
            const Ints table = place_table({{5, 64}, {(uint64_t)n, 1000}}, 0, n);
            part.places = i32(rf_shape1((int64_t)table.size()), table);
            EXPECT_OK(rf_optimizer_step(stream, &opts, &part, scalars));
            EXPECT_OK(rf_optimizer_copy(stream, &opts, &part, scalars, false));
        }
        if (type == RF_F32 && n % 4 == 0 && n < 10000)
            optimizers(type, 20096);
        EXPECT_OK(rf_loss_scale_update(stream, nullptr, scalars));
    }

    rf_tensor some(rf_shape shape, rf_dtype type)
    {
        return typed(shape, type, rounded_to(type, normal((size_t)rf_shape_count(shape))));
    }
    Floats positive(int64_t n)
    {
        Floats data = normal((size_t)n);
        for (float &x : data)
            x = 10 + std::fabs(x);
        return data;
    }

    void note_wide()
    {
        rf_tensor tensor = f32(rf_shape1(64), Floats(64));
        const rf_view view = {tensor.buffer, 256, 256, 0};
        wide |= rf_device_has_views(device) && rf_view_writable(&view) > 0;
        views_exist |= rf_device_has_views(device);
        int64 = rf_device_get_info(device)->int64;
        OpTest::TearDown();
    }
    void note_trials()
    {
        static const char *const mistakes[] = {"halved", "shifted", "left out"};
        size_t count = 0;
        const rf_range_trial *trials = rf_device_range_trials(device, &count);
        for (size_t i = 0; i < count; i++) {
            const rf_range_trial &t = trials[i];
            const std::string what = std::string(t.kernel) + ": range " + std::to_string(t.range) +
                                     " of " + std::to_string(t.range_count) +
                                     (t.write ? ", written, " : ", read, ") + mistakes[t.mistake];
            seen.insert(t.kernel);
            noticed[what] |= t.noticed;
        }
    }
    /* Why this device never runs a shader; empty if it should have. */
    std::string why_not(const std::string &shader) const
    {
        if (contains(shader, "cooperative") || contains(shader, "_units") ||
            contains(shader, "workgroup"))
            return "for matrix units; declared by the same functions as the tiled ones";
        if (!int64 ? contains(shader, "_longs_")
                   : starts(shader, "matmul_subgroup_") &&
                         !std::regex_search(shader, std::regex("_(longs|views|nf4|int8|fp8|fp4)_")))
            return "for devices without, or with, 64-bit integers";
        if (contains(shader, "views") && !views_exist)
            return "for devices with texel views";
        if (!starts(shader, "embedding") && contains(shader, "wide") && !wide)
            return "for drivers that are quick at storage buffers";
        return "";
    }

    std::set<std::string> seen;
    std::map<std::string, bool> noticed;
    bool wide = false, views_exist = false, int64 = false;
};

TEST_P(Ranges, AreThoseThatKernelsTouchAndAWrongOneIsNoticed)
{
    OpTest::SetUpTestSuite();
    const bool cpu = rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    OpTest::TearDownTestSuite();
    if (!cpu)
        GTEST_SKIP() << "it needs a CPU device, and so do some of the paths";
    check(true);
    check(false);
    bool teams = false;
    for (size_t i = 0; i < rf_shader_count; i++)
        for (const std::string &prefix : GetParam().shaders)
            teams |= starts(rf_shader_table[i].name, prefix) &&
                     contains(rf_shader_table[i].name, "_team");
    if (teams)
        check(false, true);
    if (HasFatalFailure())
        return;
    for (size_t i = 0; i < rf_shader_count; i++) {
        const std::string shader = rf_shader_table[i].name;
        for (const std::string &prefix : GetParam().shaders)
            if (starts(shader, prefix) && seen.count(shader) == 0) {
                EXPECT_NE(why_not(shader), "") << shader << " was never launched";
            }
    }
    for (const auto &[what, found] : noticed)
        EXPECT_TRUE(found) << what << " is not noticed";
}

TEST(RangesOfShaders, AreTestedInExactlyOneFamily)
{
    for (size_t i = 0; i < rf_shader_count; i++) {
        int count = 0;
        for (const Family &family : families)
            for (const std::string &prefix : family.shaders)
                count += starts(rf_shader_table[i].name, prefix);
        EXPECT_EQ(count, 1) << rf_shader_table[i].name;
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Ranges, ::testing::ValuesIn(families),
                         [](const auto &info) { return std::string(info.param.name); });
} // namespace
