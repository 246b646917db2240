/* SPDX-License-Identifier: MIT
 *
 * The launches: a function for each family, over its types and shapes. A new option that chooses
 * another build of a shader needs a line here; otherwise report.c compiles the build with default
 * constants only.
 */
#include "launches_run.h"

/* ---- matmul ---------------------------------------------------------------------------------- */

struct product {
    const char *path; /* NULL: the library chooses */
    int form, epilogue;
    uint32_t split;
    enum rf_dtype split_type;
};

static void name_product(struct launch *launch, const struct product *p, const int64_t size[3])
{
    static const char *const forms[] = {"nn", "nt", "tn", "tt"};
    static const char *const epilogues[] = {"", " +=", " bias gelu"};
    char parts[24] = "";
    if (p->split)
        snprintf(parts, sizeof(parts), " %u parts %s", p->split, rf_dtype_name(p->split_type));
    snprintf(launch->name, sizeof(launch->name), "matmul%s%s%s %s %lldx%lldx%lld%s",
             p->path ? " " : "", p->path ? p->path : "", parts, forms[p->form], (long long)size[0],
             (long long)size[1], (long long)size[2], epilogues[p->epilogue]);
}

static void matmul(const struct run *run, enum rf_dtype dtype, const struct product *product,
                   const int64_t size[3])
{
    const int64_t m = size[0], k = size[1], n = size[2];
    const bool ta = product->form & 2, tb = product->form & 1;
    afresh(run);
    struct rf_tensor a = take(run, dtype, ta ? k : m, ta ? m : k);
    struct rf_tensor b = take(run, dtype, tb ? n : k, tb ? k : n);
    struct rf_tensor out = take(run, dtype, m, n), pre = take(run, dtype, m, n);
    struct rf_tensor bias = reshape(take(run, dtype, 1, n), rf_shape1(n));
    struct rf_matmul_opts opts = {.transpose_a = ta,
                                  .transpose_b = tb,
                                  .accumulate = product->epilogue == 1,
                                  .split = product->split,
                                  .split_type = product->split_type,
                                  .path = product->path};
    if (product->epilogue == 2) {
        opts.bias = &bias;
        opts.pre = &pre;
        opts.act = RF_ACT_GELU;
    }
    const bool units = product->path && strcmp(product->path, "cooperative") == 0;
    struct launch launch = {.chosen = !product->path,
                            .may_not_spill = !product->path,
                            .refusals = units ? without_units : NULL};
    name_product(&launch, product, size);
    add_type(&launch, dtype);
    if (is_wanted(run, &launch))
        run->done(run->user, &launch, rf_matmul(run->operands->stream, out, a, b, &opts));
}

static void quantized_matmul(const struct run *run, enum rf_dtype dtype, enum rf_quantization kind,
                             bool transpose_b, const int64_t size[3])
{
    const int64_t m = size[0], k = size[1], n = size[2];
    afresh(run);
    struct rf_tensor a = take(run, dtype, m, k), out = take(run, dtype, m, n);
    struct rf_tensor b = take(run, RF_U8, 1, (int64_t)rf_quantized_bytes(kind, n * k));
    const struct rf_matmul_opts opts = {.transpose_b = transpose_b, .b_quantized = kind};
    struct launch launch = {.chosen = true, .may_not_spill = true};
    snprintf(launch.name, sizeof(launch.name), "matmul %s %s %lldx%lldx%lld",
             rf_quantization_name(kind), transpose_b ? "nt" : "nn", (long long)m, (long long)k,
             (long long)n);
    end(run, launch, dtype, rf_matmul(run->operands->stream, out, a, b, &opts));
}

static const int64_t product_sizes[][3] = {
    {1024, 64, 4096}, {64, 64, 64}, {65, 13, 67}, {1, 768, 1}};
#define PRODUCT_SIZES (sizeof(product_sizes) / sizeof(product_sizes[0]))

static void matmuls_of(const struct run *run, const char *path, enum rf_dtype dtype)
{
    const bool few = path && run->operands->brief;
    for (size_t size = 0; size < PRODUCT_SIZES; size++)
        for (int form = 0; form < 4; form += few ? 3 : 1)
            for (int epilogue = 0; epilogue < (few ? 1 : 3); epilogue++)
                matmul(run, dtype,
                       &(struct product){.path = path, .form = form, .epilogue = epilogue},
                       product_sizes[size]);
}

/* Products of f32 by parts: only the staging differs, the epilogue is that of the others. The path
 * is forced, since devices without matrix units choose one that ignores the option. */
static void split_matmuls(const struct run *run)
{
    for (uint32_t split = 1; split <= 3; split++)
        for (size_t type = 1; type < TYPES; type++)
            for (size_t size = run->operands->brief ? 2 : 0; size < PRODUCT_SIZES; size += 2)
                for (int form = 0; form < 4; form += 3)
                    matmul(run, RF_F32,
                           &(struct product){.path = "cooperative",
                                             .form = form,
                                             .split = split,
                                             .split_type = types[type]},
                           product_sizes[size]);
}

static void matmuls(const struct run *run)
{
    for (size_t type = 0; type < TYPES; type++)
        matmuls_of(run, NULL, types[type]);
    for (size_t type = 0; type < TYPES; type++) {
        if (on_cpu(run))
            matmuls_of(run, "subgroup", types[type]);
        matmuls_of(run, "tiled", types[type]);
        if (types[type] != RF_F32)
            matmuls_of(run, "cooperative", types[type]);
    }
    split_matmuls(run);
    for (size_t type = 0; type < TYPES; type++)
        for (enum rf_quantization kind = RF_NF4; kind < RF_QUANTIZATION_COUNT; kind++)
            for (size_t size = 0; size < PRODUCT_SIZES; size++) {
                if (run->operands->brief && types[type] == RF_BF16)
                    continue; /* differs from f16 only in the conversion */
                quantized_matmul(run, types[type], kind, false, product_sizes[size]);
                quantized_matmul(run, types[type], kind, true, product_sizes[size]);
            }
}

static void bias_grad(const struct run *run, enum rf_dtype dtype, int64_t rows, int64_t columns)
{
    struct rf_tensor scratch = take(run, RF_F32, 1, rf_bias_grad_scratch(rows, columns));
    plain(run, columns % 4 ? "bias_grad odd" : "bias_grad", dtype,
          rf_bias_grad(run->operands->stream,
                       reshape(take(run, dtype, 1, columns), rf_shape1(columns)),
                       take(run, dtype, rows, columns), scratch));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* x and its gradient in f32, operands and results of products in 16 bits. */
static struct rf_norm_args back_of(const struct rf_norm_args *norm, struct rf_tensor dout,
                                   struct rf_tensor dx)
{
    return (struct rf_norm_args){.rms = norm->rms,
                                 .x = norm->x,
                                 .gamma = norm->gamma,
                                 .mean = norm->mean,
                                 .rstd = norm->rstd,
                                 .dout = dout,
                                 .dx = dx};
}

static void norms_of_f32(const struct run *run, enum rf_dtype dtype, int64_t n, int64_t C)
{
    struct rf_stream *s = run->operands->stream;
    const bool odd = C % 4;
    if (dtype == RF_F32)
        return;
    struct rf_tensor x = take(run, RF_F32, n, C), dx = take(run, RF_F32, n, C);
    struct rf_tensor out = take(run, dtype, n, C), rstd = take(run, RF_F32, 1, n);
    struct rf_tensor gamma = reshape(take(run, RF_F32, 1, C), rf_shape1(C));
    struct rf_tensor dgamma = reshape(take(run, RF_F32, 1, C), rf_shape1(C));
    struct rf_tensor scratch = take(run, RF_F32, 1, rf_norm_scratch(n, C));
    const struct rf_norm_args norm = {
        .rms = true, .eps = 1e-5f, .x = x, .gamma = gamma, .out = out, .rstd = rstd};
    struct rf_norm_args back = back_of(&norm, out, dx);
    back.accumulate_dx = true;
    plain(run, odd ? "rmsnorm of f32 odd" : "rmsnorm of f32", dtype, rf_norm(s, &norm));
    plain(run, odd ? "rmsnorm_backward of f32 odd" : "rmsnorm_backward of f32", dtype,
          rf_norm_backward_input(s, &back));
    plain(run, odd ? "rmsnorm_backward_weight of f32 odd" : "rmsnorm_backward_weight of f32", dtype,
          rf_norm_backward_weight(s, &(struct rf_norm_args){.rms = true,
                                                            .x = x,
                                                            .rstd = rstd,
                                                            .dout = out,
                                                            .dgamma = dgamma,
                                                            .scratch = scratch}));
}

/* Columns and rows of tables that ranks share. */
static void vocabulary_parts(const struct run *run, enum rf_dtype dtype, int64_t n, int64_t C)
{
    struct rf_stream *s = run->operands->stream;
    const bool odd = C % 4;
    afresh(run);
    const struct rf_shape rows = rf_shape1(n);
    struct rf_tensor x = take(run, dtype, n, C), sums = take(run, RF_F32, 2, n);
    struct rf_tensor losses = reshape(take(run, RF_F32, 1, n), rows);
    struct rf_tensor lse = reshape(take(run, RF_F32, 1, n), rows);
    struct rf_tensor tokens = reshape(take(run, RF_I32, 1, n), rows);
    const struct rf_cross_entropy_args part_rows = {.logits = x,
                                                    .targets = tokens,
                                                    .vocabulary = 2 * C,
                                                    .most = reshape(take(run, RF_F32, 1, n), rows),
                                                    .total = reshape(take(run, RF_F32, 1, n), rows),
                                                    .wanted =
                                                        reshape(take(run, RF_F32, 1, n), rows)};
    plain(run, odd ? "cross_entropy_part_rows odd" : "cross_entropy_part_rows", dtype,
          rf_cross_entropy_part_rows(s, &part_rows));
    plain(
        run, odd ? "cross_entropy_part_gradient odd" : "cross_entropy_part_gradient", dtype,
        rf_cross_entropy_part_gradient(
            s, &(struct rf_cross_entropy_args){
                   .logits = x, .targets = tokens, .lse = lse, .dlogits = x, .vocabulary = 2 * C}));
    if (dtype == RF_F32 && !odd) {
        plain(run, "cross_entropy_part_sums", dtype,
              rf_cross_entropy_part_sums(s,
                                         &(struct rf_cross_entropy_args){.most = part_rows.most,
                                                                         .total = part_rows.total,
                                                                         .wanted = part_rows.wanted,
                                                                         .greatest = lse,
                                                                         .sums = sums}));
        plain(run, "cross_entropy_part_losses", dtype,
              rf_cross_entropy_part_losses(
                  s, &(struct rf_cross_entropy_args){.targets = tokens,
                                                     .losses = losses,
                                                     .lse = lse,
                                                     .vocabulary = 2 * C,
                                                     .greatest = part_rows.most,
                                                     .sums = sums}));
    }

    const int64_t words = rf_embedding_scratch(n, 1001);
    struct rf_tensor sort = reshape(take(run, RF_I32, 1, words), rf_shape1(words));
    struct rf_tensor wte = take(run, dtype, 1000, C), wpe = take(run, dtype, 64, C);
    struct rf_embedding_args look = {
        .T = 64, .tokens = tokens, .wte = wte, .wpe = wpe, .out = x, .vocabulary = 2000};
    plain(run, odd ? "embedding_of_part odd" : "embedding_of_part", dtype, rf_embedding(s, &look));
    look.positions = tokens;
    plain(run, odd ? "embedding at positions odd" : "embedding at positions", dtype,
          rf_embedding(s, &look));
    plain(run, odd ? "embedding_of_part_backward odd" : "embedding_of_part_backward", dtype,
          rf_embedding_backward(s, &(struct rf_embedding_args){.T = 64,
                                                               .tokens = tokens,
                                                               .dout = x,
                                                               .dwte = wte,
                                                               .dwpe = wpe,
                                                               .scratch = sort,
                                                               .vocabulary = 2000}));
}

/* Rows longer than a lane of a team keeps. */
static void wide_rows_of(const struct run *run, enum rf_dtype dtype, int64_t n, int64_t C)
{
    struct rf_stream *s = run->operands->stream;
    const bool odd = C % 4;
    afresh(run);
    struct rf_tensor x = take(run, dtype, n, C), out = take(run, dtype, n, C);
    struct rf_tensor gamma = reshape(take(run, dtype, 1, C), rf_shape1(C));
    struct rf_tensor mean = reshape(take(run, RF_F32, 1, n), rf_shape1(n));
    struct rf_tensor rstd = reshape(take(run, RF_F32, 1, n), rf_shape1(n));
    const struct rf_norm_args norm = {.eps = 1e-5f,
                                      .x = x,
                                      .gamma = gamma,
                                      .beta = gamma,
                                      .out = out,
                                      .mean = mean,
                                      .rstd = rstd},
                              back = back_of(&norm, out, out);
    plain(run, odd ? "layernorm wide odd" : "layernorm wide", dtype, rf_norm(s, &norm));
    plain(run, odd ? "layernorm_backward wide odd" : "layernorm_backward wide", dtype,
          rf_norm_backward_input(s, &back));
    plain(run, odd ? "softmax wide odd" : "softmax wide", dtype, rf_softmax(s, out, x));
    plain(run, odd ? "softmax_backward wide odd" : "softmax_backward wide", dtype,
          rf_softmax_backward(s, out, out, x));
}

static void operands_of(const struct run *run, enum rf_dtype dtype, int64_t n, int64_t C)
{
    static const struct rf_operand_opts all[] = {
        {RF_RECIPE_FP8}, {RF_RECIPE_MXFP8, .columns = true}, {RF_RECIPE_NVFP4, .columns = true}};
    struct rf_tensor x = take(run, dtype, n, C), most = take(run, RF_F32, 1, 1);
    for (int k = 0; k < 3; k++) {
        char name[48];
        snprintf(name, sizeof(name), "round_operand %s%s%s", rf_recipe_name(all[k].recipe),
                 all[k].columns ? " columns" : "", C % 4 ? " odd" : "");
        plain(run, name, dtype, rf_round_operand(run->operands->stream, x, x, &all[k], &most));
    }
}

static void rows_of(const struct run *run, enum rf_dtype dtype, int64_t n, int64_t C)
{
    struct rf_stream *s = run->operands->stream;
    const bool odd = C % 4;
    afresh(run);
    struct rf_tensor x = take(run, dtype, n, C), out = take(run, dtype, n, C);
    struct rf_tensor gamma = reshape(take(run, dtype, 1, C), rf_shape1(C)), beta = gamma;
    struct rf_tensor mean = reshape(take(run, RF_F32, 1, n), rf_shape1(n));
    struct rf_tensor rstd = reshape(take(run, RF_F32, 1, n), rf_shape1(n));
    struct rf_tensor scratch = take(run, RF_F32, 1, rf_norm_scratch(n, C));
    struct rf_tensor dbeta = reshape(take(run, dtype, 1, C), rf_shape1(C));
    struct rf_norm_args norm = {.eps = 1e-5f,
                                .x = x,
                                .gamma = gamma,
                                .beta = beta,
                                .out = out,
                                .mean = mean,
                                .rstd = rstd},
                        back = back_of(&norm, out, out);
    plain(run, odd ? "layernorm odd" : "layernorm", dtype, rf_norm(s, &norm));
    plain(run, odd ? "layernorm_backward odd" : "layernorm_backward", dtype,
          rf_norm_backward_input(s, &back));
    back.dout = take(run, dtype, n, C);
    back.accumulate_dx = true;
    plain(run, odd ? "layernorm_backward += odd" : "layernorm_backward +=", dtype,
          rf_norm_backward_input(s, &back));
    plain(run, odd ? "layernorm_backward_weight odd" : "layernorm_backward_weight", dtype,
          rf_norm_backward_weight(s, &(struct rf_norm_args){.x = x,
                                                            .mean = mean,
                                                            .rstd = rstd,
                                                            .dout = out,
                                                            .dgamma = gamma,
                                                            .dbeta = dbeta,
                                                            .scratch = scratch}));

    norm.rms = true;
    norm.beta = norm.mean = (struct rf_tensor){0};
    back = back_of(&norm, out, out);
    plain(run, odd ? "rmsnorm odd" : "rmsnorm", dtype, rf_norm(s, &norm));
    norm.residual = take(run, dtype, n, C);
    norm.sum = x;
    plain(run, odd ? "residual_rmsnorm odd" : "residual_rmsnorm", dtype, rf_norm(s, &norm));
    plain(run, odd ? "rmsnorm_backward odd" : "rmsnorm_backward", dtype,
          rf_norm_backward_input(s, &back));
    norms_of_f32(run, dtype, n, C);
    plain(run, odd ? "softmax odd" : "softmax", dtype, rf_softmax(s, out, x));
    plain(run, odd ? "softmax_backward odd" : "softmax_backward", dtype,
          rf_softmax_backward(s, out, out, x));

    struct rf_tensor tokens = reshape(take(run, RF_I32, 1, n), rf_shape1(n));
    const int64_t words = rf_embedding_scratch(n, 1000);
    struct rf_tensor sort = reshape(take(run, RF_I32, 1, words), rf_shape1(words));
    struct rf_tensor wte = take(run, dtype, 1000, C), wpe = take(run, dtype, 64, C);
    x = take(run, dtype, n, C);
    plain(run, odd ? "embedding odd" : "embedding", dtype,
          rf_embedding(s, &(struct rf_embedding_args){
                              .T = 64, .tokens = tokens, .wte = wte, .wpe = wpe, .out = x}));
    plain(
        run, odd ? "embedding_backward odd" : "embedding_backward", dtype,
        rf_embedding_backward(
            s,
            &(struct rf_embedding_args){
                .T = 64, .tokens = tokens, .dout = x, .dwte = wte, .dwpe = wpe, .scratch = sort}));
    x = take(run, dtype, n, C);
    plain(run, odd ? "cross_entropy odd" : "cross_entropy", dtype,
          rf_cross_entropy(
              s, &(struct rf_cross_entropy_args){
                     .logits = x, .targets = tokens, .losses = mean, .lse = rstd, .dlogits = x}));
    bias_grad(run, dtype, n, C);
    vocabulary_parts(run, dtype, n, C);
}

/* ---- generation ------------------------------------------------------------------------------ */

static void gemvs(const struct run *run, enum rf_dtype dtype, int64_t k)
{
    afresh(run);
    struct rf_tensor x = take(run, dtype, 8, k), w = take(run, dtype, 512, k);
    struct rf_tensor out = take(run, dtype, 8, 512), f32 = take(run, RF_F32, 8, 512);
    for (int64_t rows = 1; rows <= 8; rows *= 2) {
        char name[48];
        x.shape = rf_shape2(rows, k);
        out.shape = f32.shape = rf_shape2(rows, 512);
        snprintf(name, sizeof(name), "gemv %lld rows%s", (long long)rows, k % 4 ? " odd" : "");
        plain(run, name, dtype, rf_gemv(run->operands->stream, out, x, w, NULL));
        snprintf(name, sizeof(name), "gemv to f32 %lld rows%s", (long long)rows,
                 k % 4 ? " odd" : "");
        plain(run, name, dtype,
              rf_gemv(run->operands->stream, f32, x, w, &(struct rf_gemv_opts){.residual = &f32}));
    }
}

static void quantized_gemvs(const struct run *run, enum rf_dtype dtype, enum rf_quantization kind,
                            int64_t k)
{
    const struct rf_gemv_opts opts = {.w_quantized = kind};
    afresh(run);
    struct rf_tensor x = take(run, dtype, 8, k), out = take(run, dtype, 8, 512);
    struct rf_tensor w = take(run, RF_U8, 1, (int64_t)rf_quantized_bytes(kind, 512 * k));
    struct rf_tensor f32 = take(run, RF_F32, 8, 512);
    for (int64_t rows = 1; rows <= 8; rows *= 8) {
        char name[48];
        x.shape = rf_shape2(rows, k);
        out.shape = f32.shape = rf_shape2(rows, 512);
        snprintf(name, sizeof(name), "gemv %s %lld rows%s", rf_quantization_name(kind),
                 (long long)rows, k % 4 ? " odd" : "");
        plain(run, name, dtype, rf_gemv(run->operands->stream, out, x, w, &opts));
        snprintf(name, sizeof(name), "gemv %s to f32 %lld rows%s", rf_quantization_name(kind),
                 (long long)rows, k % 4 ? " odd" : "");
        plain(run, name, dtype, rf_gemv(run->operands->stream, f32, x, w, &opts));
    }
}

static void decode(const struct run *run, enum rf_dtype dtype, int64_t D)
{
    const int64_t n = 4, H = 8, K = 2, L = 256, C = (H + 2 * K) * D;
    const struct rf_tensor none = {0};
    struct rf_stream *s = run->operands->stream;
    const bool odd = D % 4;
    afresh(run);
    const struct rf_shape cached = rf_shape4(2, L, K, D), rows = rf_shape1(n);
    const struct rf_cache cache = {reshape(take(run, dtype, 2 * L, K * D), cached),
                                   reshape(take(run, dtype, 2 * L, K * D), cached),
                                   reshape(take(run, RF_I32, 1, n), rows),
                                   reshape(take(run, RF_I32, 1, n), rows)};
    struct rf_tensor qkv = take(run, dtype, n, C), out = take(run, dtype, n, H * D);
    struct rf_tensor angles = take(run, RF_F32, L, D);
    struct rf_tensor scratch = take(run, RF_F32, 1, rf_attend_cache_scratch(n, H, D, L));
    plain(run, odd ? "cache_append odd" : "cache_append", dtype,
          rf_cache_append(s, &cache, qkv, H, none));
    plain(run, odd ? "cache_append rotated odd" : "cache_append rotated", dtype,
          rf_cache_append(s, &cache, qkv, H, angles));
    plain(run, odd ? "attend_cache odd" : "attend_cache", dtype,
          rf_attend_cache(s, &cache,
                          &(struct rf_attend_cache_args){
                              .q = qkv, .out = out, .scratch = scratch, .heads = H, .most = L}));
}

/* ---- flat ------------------------------------------------------------------------------------ */

static void elementwise(const struct run *run, enum rf_dtype dtype, int64_t n)
{
    struct rf_stream *s = run->operands->stream;
    const bool odd = n % 4;
    afresh(run);
    struct rf_tensor a = take(run, dtype, 1, n), b = take(run, dtype, 1, n);
    struct rf_tensor out = take(run, dtype, 1, n);
    const struct rf_random random = {.seed = 1};
    for (int k = 0; k < RF_ACTIVATION_COUNT; k++) {
        const enum rf_activation kind = (enum rf_activation)k;
        char name[64];
        snprintf(name, sizeof(name), "%s%s", rf_activation_name(kind), odd ? " odd" : "");
        plain(run, name, dtype, rf_activate(s, kind, out, a));
        snprintf(name, sizeof(name), "%s_backward%s", rf_activation_name(kind), odd ? " odd" : "");
        plain(run, name, dtype, rf_activate_backward(s, kind, out, a, b));
    }
    plain(run, odd ? "swiglu odd" : "swiglu", dtype, rf_glu(s, RF_ACT_SILU, out, a, b));
    plain(run, odd ? "swiglu_backward odd" : "swiglu_backward", dtype,
          rf_glu_backward(s, RF_ACT_SILU, a, b,
                          &(struct rf_glu_grads){.dout = out, .dgate = a, .dup = b}));
    plain(run, odd ? "dropout odd" : "dropout", dtype, rf_dropout(s, out, a, 0.1f, &random));
    plain(run, odd ? "mul odd" : "mul", dtype, rf_mul(s, out, a, b));
    plain(run, odd ? "add odd" : "add", dtype, rf_add(s, out, a, b));
    plain(run, odd ? "maximum odd" : "maximum", dtype, rf_maximum(s, out, a, b));
    if (dtype == RF_F32) {
        const struct rf_tensor fixed = take(run, RF_I32, 1, n);
        plain(run, odd ? "fixed_add odd" : "fixed_add", dtype,
              rf_fixed_add(s, fixed, fixed, b, true));
    }
    plain(run, odd ? "add_bias odd" : "add_bias", dtype,
          rf_add_bias(s, out, a, take(run, dtype, 1, n), b));
    struct rf_tensor rows = take(run, RF_F32, 1, n);
    plain(run, odd ? "add_bias to f32 odd" : "add_bias to f32", dtype,
          rf_add_bias(s, rows, rows, a, take(run, RF_F32, 1, n)));
    plain(run, odd ? "scale odd" : "scale", dtype, rf_scale(s, out, a, 2));
    plain(run, odd ? "fill odd" : "fill", dtype, rf_fill(s, out, 1));
    plain(run, odd ? "copy odd" : "copy", dtype, rf_copy(s, out, a));
    for (size_t i = 0; i < TYPES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "cast to %s%s from", rf_dtype_name(types[i]),
                 odd ? " odd" : "");
        plain(run, name, dtype, rf_cast(s, take(run, types[i], 1, n), a));
    }
}

static void reductions(const struct run *run)
{
    struct rf_stream *s = run->operands->stream;
    const int64_t n = 100000, chunks = 98;
    afresh(run);
    struct rf_tensor x = reshape(take(run, RF_F32, 1, n), rf_shape1(n));
    struct rf_tensor out = reshape(take(run, RF_F32, 1, 1), rf_shape1(1));
    struct rf_tensor scratch = take(run, RF_F32, 1, rf_sum_scratch(n));
    plain(run, "sum", RF_F32, rf_sum(s, out, x, scratch));
    plain(run, "max", RF_F32, rf_max(s, out, x, scratch));
    plain(run, "any_nonfinite", RF_F32, rf_any_nonfinite(s, out, x, scratch));
    scratch = take(run, RF_F32, 1, rf_sum_squares_scratch(chunks));
    plain(run, "sum_squares", RF_F32,
          rf_sum_squares(s, out, x, take(run, RF_I32, chunks, 2), scratch));
    plain(
        run, "square_chunks", RF_F32,
        rf_square_chunks(s, reshape(scratch, rf_shape1(chunks)), x, take(run, RF_I32, chunks, 2)));
    struct rf_tensor exact = take(run, RF_I32, 1, RF_EXACT_WORDS);
    struct rf_tensor rows = take(run, RF_I32, 1, rf_add_squares_scratch(n));
    plain(run, "add_squares", RF_F32, rf_add_squares(s, exact, x, rows));
    plain(run, "round_squares", RF_F32, rf_round_squares(s, out, exact));
}

static void optimizer(const struct run *run, int64_t n, const struct rf_optimizer_opts *opts,
                      enum rf_dtype param, enum rf_dtype grad, enum rf_dtype copy,
                      enum rf_dtype state)
{
    const int64_t words = (n + 63) / 64;
    const int64_t stored =
        state == RF_U8 ? (n + RF_STATE_BLOCK - 1) / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES : n;
    struct rf_optimizer_part part = {0};
    struct launch launch = {.chosen = true};
    afresh(run);
    part.param = reshape(take(run, param, 1, n), rf_shape1(n));
    part.grad = reshape(take(run, grad, 1, n), rf_shape1(n));
    for (int i = 0; i < RF_STATE_COUNT; i++)
        if (rf_optimizer_has(opts, i))
            part.state[i] = reshape(take(run, state, 1, stored), rf_shape1(stored));
    if (copy != RF_F32)
        part.copy = reshape(take(run, copy, 1, n), rf_shape1(n));
    part.decay = reshape(take(run, RF_I32, 1, words), rf_shape1(words));
    struct rf_tensor scalars = reshape(take(run, RF_F32, 1, 16), rf_shape1(RF_SCALAR_WORDS));
    snprintf(launch.name, sizeof(launch.name), "%s%s grad %s%s%s%s%s%s",
             rf_optimizer_get_info(opts->kind)->name, n % 4 ? " odd" : "", rf_dtype_name(grad),
             copy == RF_F32 ? "" : " copy ", copy == RF_F32 ? "" : rf_dtype_name(copy),
             opts->stochastic_rounding ? " stochastic" : "", state == RF_F32 ? "" : " states ",
             state == RF_F32 ? "" : rf_dtype_name(state));
    end(run, launch, param, rf_optimizer_step(run->operands->stream, opts, &part, scalars));
    /* The same for all rules. */
    if (!opts->stochastic_rounding || (copy == RF_F32 && param == RF_F32) ||
        opts->kind != RF_ADAMW || grad != RF_F32 || state != RF_F32)
        return;
    snprintf(launch.name + strlen(launch.name), sizeof(launch.name) - strlen(launch.name),
             " placed");
    part.places = reshape(take(run, RF_I32, 1, 2 * words + 4), rf_shape1(2 * words + 4));
    end(run, launch, param, rf_optimizer_step(run->operands->stream, opts, &part, scalars));
    if (copy != RF_F32)
        plain(run, "optimizer_copy", copy,
              rf_optimizer_copy(run->operands->stream, opts, &part, scalars, false));
}

/* Every rule with every combination of types; copies are of f32 parameters only. States of fewer
 * bits do not depend on the other types. */
static void optimizers(const struct run *run, int64_t n)
{
    struct rf_tensor scalars = reshape(take(run, RF_F32, 1, 16), rf_shape1(RF_SCALAR_WORDS));
    struct rf_tensor one = reshape(take(run, RF_F32, 1, 1), rf_shape1(1));
    struct rf_stream *s = run->operands->stream;
    for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++) {
        const struct rf_optimizer_info *info = rf_optimizer_get_info(kind);
        struct rf_optimizer_opts opts = {.kind = kind,
                                         .beta1 = info->beta1,
                                         .beta2 = info->beta2,
                                         .eps = info->eps,
                                         .momentum = info->momentum,
                                         .weight_decay = 0.1f};
        plain(run, "step_begin", RF_F32, rf_step_begin(s, &opts, scalars, one));
        for (size_t param = 0; param < TYPES; param++)
            for (size_t grad = 0; grad < TYPES; grad++)
                for (size_t copy = 0; copy < TYPES; copy++)
                    for (int stochastic = 0; stochastic < 2; stochastic++) {
                        opts.stochastic_rounding = stochastic;
                        if (types[param] != RF_F32 && types[copy] != RF_F32)
                            continue;
                        optimizer(run, n, &opts, types[param], types[grad], types[copy], RF_F32);
                    }
        for (enum rf_dtype state = RF_F32; state < RF_DTYPE_COUNT; state++)
            if (state != RF_F32 && rf_optimizer_can_store(&opts, state))
                optimizer(run, n, &opts, RF_F32, RF_F32, RF_BF16, state);
    }
    plain(run, "loss_scale_update", RF_F32, rf_loss_scale_update(s, NULL, scalars));
}

void launch_all(struct operands *operands,
                void (*done)(void *user, const struct launch *launch, int status), void *user)
{
    const struct run run = {operands, done, user};
    matmuls(&run);
    for (size_t type = 0; type < TYPES; type++) {
        launch_attentions(&run, types[type]);
        launch_heads(&run, types[type]);
        gemvs(&run, types[type], 512);
        gemvs(&run, types[type], 511);
        for (enum rf_quantization kind = RF_NF4; kind < RF_QUANTIZATION_COUNT; kind++) {
            quantized_gemvs(&run, types[type], kind, 512);
            quantized_gemvs(&run, types[type], kind, 511);
        }
        decode(&run, types[type], 64);
        decode(&run, types[type], 66);
        for (int odd = 0; odd < 2; odd++) {
            rows_of(&run, types[type], 256, 768 + odd);
            wide_rows_of(&run, types[type], 16, 5000 + odd);
            operands_of(&run, types[type], 256, 768 + odd);
            elementwise(&run, types[type], 100000 + odd);
        }
    }
    reductions(&run);
    optimizers(&run, 100000);
    optimizers(&run, 100001);
}

void launch_chosen(struct operands *operands,
                   void (*done)(void *user, const struct launch *launch, int status), void *user)
{
    static const int64_t large[] = {4096, 64, 4096};
    const struct run run = {operands, done, user};
    for (size_t type = 0; type < TYPES; type++) {
        for (int form = 0; form < 4; form++)
            matmul(&run, types[type], &(struct product){.form = form}, large);
        matmuls_of(&run, NULL, types[type]);
        launch_attentions_chosen(&run, types[type]);
    }
}
