// SPDX-License-Identifier: MIT
//
// Training with operands of products in 8 and 4 bits: the three products of a linear map beside
// fp64, the same bits on every mesh, losses beside those of bf16, and what is refused.
#include <cmath>
#include <random>

#include <ringforge/layer.h>

#include "mesh_case.h"
#include "small_trainings.h"

extern "C" {
#include "linear.h"
}

namespace
{

const rf_recipe recipes[] = {RF_RECIPE_FP8,        RF_RECIPE_FP8_E4M3, RF_RECIPE_FP8_ROWS,
                             RF_RECIPE_FP8_BLOCKS, RF_RECIPE_MXFP8,    RF_RECIPE_MXFP4,
                             RF_RECIPE_NVFP4};

// ---- one linear map ----------------------------------------------------------------------------

// No multiples of a block.
const int64_t n = 37, K = 70, N = 133;

class Map
{
  public:
    Map(rf_recipe recipe, rf_dtype type) : type_(type)
    {
        EXPECT_RF(rf_stream_create(rank_device(0), "recipe", &stream_));
        EXPECT_RF(rf_buffer_create(rank_device(0), 1 << 20, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                   &buffer_));
        linear_.recipe = recipe;
        linear_.in = K;
        linear_.out = N;
        layer_.rows = n;
        layer_.dtype = type;
        layer_.part.ranks = 1;
        layer_.ctx = &ctx_;
        x = take(n, K);
        w = take(N, K);
        dy = take(n, N);
        y = take(n, N);
        dx = take(n, K);
        dw = take(N, K, RF_F32);
        const uint64_t bytes = model_operand_bytes(&layer_, recipe, K, N);
        scratch = take(1, (int64_t)bytes, RF_U8);
        scratch.shape = rf_shape1((int64_t)bytes);
        copy = take(N, N);
        most = take(N, N, RF_F32);
        std::mt19937 random(3);
        for (rf_tensor t : {x, w, dy})
            write(t, random);
        ctx_.stream = stream_;
        ctx_.rows = n;
        ctx_.params = &w;
        ctx_.grads = &dw;
        ctx_.overwrite_grad = &overwrite_;
        ctx_.scratch = scratch;
        scalars_ = take(1, RF_SCALAR_WORDS, RF_F32);
        scalars_.shape = rf_shape1(RF_SCALAR_WORDS);
        EXPECT_RF(rf_fill(stream_, scalars_, 1));
        ctx_.scalars = scalars_;
    }
    ~Map()
    {
        EXPECT_RF(rf_stream_wait(stream_));
        rf_stream_destroy(stream_);
        rf_buffer_destroy(buffer_);
    }
    void run()
    {
        EXPECT_RF(model_linear_forward(&layer_, &linear_, y, x, nullptr));
        EXPECT_RF(model_linear_back(&layer_, &linear_, dx, dy, nullptr));
        EXPECT_RF(model_linear_grads(&layer_, &linear_, dy, x, {}));
        EXPECT_RF(rf_stream_wait(stream_));
    }
    std::vector<double> read(rf_tensor t)
    {
        std::vector<float> values(rf_tensor_count(t));
        rf_tensor wide = t;
        if (t.dtype != RF_F32) {
            wide = most;
            wide.shape = t.shape;
            EXPECT_RF(rf_cast(stream_, wide, t));
            EXPECT_RF(rf_stream_wait(stream_));
        }
        EXPECT_RF(rf_tensor_read(wide, values.data(), 4 * values.size()));
        return {values.begin(), values.end()};
    }
    // As the recipe rounds it: round_operand_test.cc compares that with the definition.
    std::vector<double> rounded(rf_tensor t, rf_operand_role role, bool columns)
    {
        const rf_operand_opts opts = {linear_.recipe, role, columns, &scalars_};
        rf_tensor out = copy;
        out.shape = t.shape;
        EXPECT_RF(rf_round_operand(stream_, out, t, &opts, &most));
        EXPECT_RF(rf_stream_wait(stream_));
        return read(out);
    }

    rf_tensor x, w, dy, y, dx, dw, scratch, copy, most;

  private:
    rf_tensor take(int64_t rows, int64_t columns, rf_dtype type = RF_DTYPE_COUNT)
    {
        rf_tensor t = {};
        type = type == RF_DTYPE_COUNT ? type_ : type;
        EXPECT_RF(rf_tensor_view(buffer_, at_, rf_shape2(rows, columns), type, &t));
        at_ += (rf_tensor_count(t) * rf_dtype_bytes(type) + 255) / 256 * 256;
        return t;
    }
    void write(rf_tensor t, std::mt19937 &random)
    {
        std::normal_distribution<float> normal;
        std::vector<float> values(rf_tensor_count(t));
        for (size_t i = 0; i < values.size(); i++)
            values[i] = normal(random) * std::ldexp(1.0f, (int)(i % 7) - 3);
        rf_tensor wide = most;
        wide.shape = t.shape;
        EXPECT_RF(rf_tensor_write(wide, values.data(), 4 * values.size()));
        EXPECT_RF(t.dtype == RF_F32 ? rf_copy(stream_, t, wide) : rf_cast(stream_, t, wide));
        EXPECT_RF(rf_stream_wait(stream_));
    }

    rf_dtype type_;
    rf_stream *stream_ = nullptr;
    rf_buffer *buffer_ = nullptr;
    uint64_t at_ = 0;
    rf_tensor scalars_ = {};
    bool overwrite_ = true;
    rf_ctx ctx_ = {};
    model_layer layer_ = {};
    model_linear linear_ = {};
};

using Values = std::vector<double>;

// out (rows, columns) = sum over `inner` of a and b, by strides; within the errors of f32 sums and
// of rounding the result.
void expect_product(const Values &out, const Values &a, const Values &b, const int64_t size[3],
                    const int64_t strides[4], double rounding, const std::string &what)
{
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++) {
            double sum = 0, all = 0;
            for (int64_t k = 0; k < size[2]; k++) {
                const double part =
                    a[i * strides[0] + k * strides[1]] * b[j * strides[2] + k * strides[3]];
                sum += part;
                all += std::fabs(part);
            }
            ASSERT_NEAR(out[i * size[1] + j], sum, 1e-6 * all + rounding * std::fabs(sum))
                << what << " at " << i << ", " << j;
        }
}

// |a - b| / |b|
double distance(const Values &a, const Values &b)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return std::sqrt(difference / norm);
}

} // namespace

TEST(Recipe, ProductsAreThoseOfRoundedOperandsForwardAndBackward)
{
    for (rf_dtype type : {RF_F32, RF_BF16})
        for (rf_recipe recipe : recipes) {
            Map m(recipe, type);
            m.run();
            const std::string what = std::string(rf_recipe_name(recipe)) + rf_dtype_name(type);
            const double rounding = type == RF_F32 ? 0 : 0x1p-8;
            const int64_t forward[] = {n, N, K}, back[] = {n, K, N}, weight[] = {N, K, n};
            const int64_t by_rows[] = {K, 1, K, 1}, by_outputs[] = {N, 1, 1, K},
                          by_tokens[] = {1, N, 1, K};
            expect_product(m.read(m.y), m.rounded(m.x, RF_OPERAND_INPUT, false),
                           m.rounded(m.w, RF_OPERAND_WEIGHT, false), forward, by_rows, rounding,
                           what + " y");
            expect_product(m.read(m.dx), m.rounded(m.dy, RF_OPERAND_GRADIENT, false),
                           m.rounded(m.w, RF_OPERAND_WEIGHT, true), back, by_outputs, rounding,
                           what + " dx");
            expect_product(m.read(m.dw), m.rounded(m.dy, RF_OPERAND_GRADIENT, true),
                           m.rounded(m.x, RF_OPERAND_INPUT, true), weight, by_tokens, 0,
                           what + " dw");
            // Transforms of both operands leave their product as it is: the difference is that of
            // rounding, which in 8 bits is 2^-3 of a number at most, and in 4 bits 1/3.
            Map exact(RF_RECIPE_NONE, type);
            exact.run();
            const double most = rf_recipe_is_random(recipe) ? 0.3 : 0.08;
            EXPECT_LT(distance(m.read(m.y), exact.read(exact.y)), most) << what;
            EXPECT_LT(distance(m.read(m.dx), exact.read(exact.dx)), most) << what;
            EXPECT_LT(distance(m.read(m.dw), exact.read(exact.dw)), most) << what;
        }
}

// ---- models ------------------------------------------------------------------------------------

TEST(Recipe, EveryMeshGivesTheBitsOfOneRankAndThePlannedBytes)
{
    const std::vector<MeshCase> meshes = {{2},
                                          {3, 1, 1, 1, false, 1},
                                          {4, 1, 1, 1, false, 2},
                                          {2, 1, 1, 1, false, 3},
                                          {2, 1, 1, 2, false, 1}};
    for (rf_recipe recipe :
         {RF_RECIPE_FP8, RF_RECIPE_FP8_BLOCKS, RF_RECIPE_MXFP8, RF_RECIPE_NVFP4}) {
        Training t;
        t.model.recipe = recipe;
        if (recipe == RF_RECIPE_FP8_BLOCKS)
            t.llama = {.layers = 2,
                       .channels = 32,
                       .heads = 4,
                       .kv_heads = 2,
                       .vocab = 61,
                       .recipe = recipe};
        if (recipe == RF_RECIPE_MXFP8) {
            t.model.dtype = RF_BF16;
            t.policy.recompute = 1;
        }
        if (recipe == RF_RECIPE_NVFP4)
            t.model.layers = 3; // the last one is not rounded
        const Seen one = train(t, 1)[0];
        expect_planned(one, rf_recipe_name(recipe));
        for (const MeshCase &m : meshes)
            for (const Seen &s : train_on(t, m)) {
                EXPECT_EQ(s.sha, one.sha) << rf_recipe_name(recipe) << " " << m.text();
                EXPECT_EQ(s.loss, one.loss) << m.text();
                expect_planned(s, m.text());
            }
    }
}

// In fixed point the inverse has the bits of stored activations, and so have its roundings.
TEST(Recipe, TheInverseOfReversibleLayersRoundsTheSameOperands)
{
    Training t;
    t.model.layers = 3;
    t.model.reversible = RF_REVERSIBLE_FIXED;
    t.model.recipe = RF_RECIPE_NVFP4;
    const Seen stored = train(t, 1)[0];
    t.policy.invert = true;
    for (const Seen &s : train(t, 2)) {
        EXPECT_EQ(s.sha, stored.sha);
        expect_planned(s, "inverted");
    }
}

TEST(Recipe, FinalLossesAreWithinTwoPercentOfBf16AndFiveInFourBits)
{
    Training t;
    t.model.layers = 3;
    t.model.vocab = 257;
    t.model.dtype = t.model.residual = RF_BF16;
    t.policy.micro_batches = 2;
    learn(&t);
    const double bf16 = train(t, 1)[0].loss.back();
    EXPECT_LT(bf16, 5) << "it learns: it began at log 257 = 5.5";
    for (rf_recipe recipe : recipes) {
        t.model.recipe = recipe;
        const double loss = train(t, 1)[0].loss.back();
        EXPECT_NEAR(loss, bf16, (rf_recipe_is_random(recipe) ? 0.05 : 0.02) * bf16)
            << rf_recipe_name(recipe);
        EXPECT_NE(loss, bf16) << rf_recipe_name(recipe);
    }
}

// A llama of two heads of 32.
Training divisible(rf_recipe recipe)
{
    Training t;
    t.llama = {.layers = 2, .channels = 64, .heads = 2, .hidden = 128, .vocab = 61};
    t.llama.recipe = recipe;
    return t;
}

// Sums over tensor ranks have another order, so few numbers are rounded to their other neighbour.
TEST(Recipe, TensorRanksWithWholeBlocksHaveTheScalesOfOneRank)
{
    const Training t = divisible(RF_RECIPE_MXFP8);
    const Seen one = train(t, 1)[0];
    Training exact = t;
    exact.llama.recipe = RF_RECIPE_NONE;
    const double effect = std::fabs(train(exact, 1)[0].loss[0] - one.loss[0]);
    for (const MeshCase &m : std::vector<MeshCase>{{1, 2}, {1, 2, 1, 1, true}})
        for (const Seen &s : train_on(t, m)) {
            EXPECT_LT(std::fabs(s.loss[0] - one.loss[0]), 0.1 * effect) << m.text();
            for (size_t i = 0; i < one.loss.size(); i++)
                EXPECT_NEAR(s.loss[i], one.loss[i], 1e-3) << m.text();
            expect_planned(s, m.text());
        }
    Training parts = t;
    parts.policy.tensor_parts = 2;
    const Seen divided = train(parts, 1)[0];
    for (const Seen &s : train_on(parts, {1, 2}))
        EXPECT_EQ(s.sha, divided.sha);
}

TEST(Recipe, RanksThatShareALayerAdaptersAndUnknownRecipesAreRefused)
{
    const struct {
        rf_recipe recipe;
        const char *text;
    } rows[] = {{RF_RECIPE_FP8, "tp=1"},
                {RF_RECIPE_MXFP8, "cp=1"},
                {RF_RECIPE_MXFP8, "32 columns of attention.qkv"}};
    for (int k = 0; k < 3; k++) {
        gpt2_config config = {2, 32, 4, 16, 61};
        gpt2 *model = nullptr;
        rf_plan *plan = nullptr;
        int count = 0;
        config.recipe = rows[k].recipe;
        ASSERT_RF(gpt2_create(&config, &model));
        rf_mesh mesh = {};
        mesh.tp = k == 1 ? 1 : 2;
        mesh.cp = k == 1 ? 2 : 1;
        const rf_policy policy = Training().policy;
        const rf_block *blocks = gpt2_blocks(model, &count);
        EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), RF_EINVAL);
        const char *said = rf_last_error()->message;
        EXPECT_NE(strstr(said, rf_recipe_name(rows[k].recipe)), nullptr) << said;
        EXPECT_NE(strstr(said, rows[k].text), nullptr) << said;
        gpt2_destroy(model);
    }
    llama_config few = divisible(RF_RECIPE_MXFP8).llama;
    few.kv_heads = 1;
    few.head_size = 64;
    llama *other = nullptr;
    rf_plan *plan = nullptr;
    int count = 0;
    ASSERT_RF(llama_create(&few, &other));
    rf_mesh mesh = {};
    mesh.tp = 2;
    const rf_policy policy = Training().policy;
    const rf_block *blocks = llama_blocks(other, &count);
    EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "heads of keys"), nullptr)
        << rf_last_error()->message;
    llama_destroy(other);
    gpt2_config config = {2, 32, 4, 16, 61};
    gpt2 *model = nullptr;
    model_adapter adapter = {};
    adapter.rank = 2;
    adapter.targets = "c_attn";
    config.recipe = RF_RECIPE_FP8;
    config.adapter = &adapter;
    EXPECT_EQ(gpt2_create(&config, &model), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "adapters"), nullptr) << rf_last_error()->message;
    config.adapter = nullptr;
    config.quantize = RF_NF4;
    EXPECT_EQ(gpt2_create(&config, &model), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "quantised"), nullptr) << rf_last_error()->message;
    rf_layer_op rows_of_block[] = {
        {.kind = RF_LAYER_LINEAR, .in = "in", .out = "a", .param = "up", .columns = 8},
        {.kind = RF_LAYER_ACT, .in = "a", .out = "b", .act = RF_ACT_GELU},
        {.kind = RF_LAYER_LINEAR, .in = "b", .out = "c", .param = "down", .columns = 4},
        {.kind = RF_LAYER_ADD, .in = "in", .out = "d", .with = "c"}};
    rf_layer_opts opts = {};
    opts.name = "block";
    opts.channels = 4;
    opts.recipe = RF_RECIPE_MXFP8;
    rf_block block = {};
    ASSERT_RF(rf_layer_block(rows_of_block, 4, &opts, &block));
    EXPECT_STREQ(block.rounding, "mxfp8");
    rf_layer_block_free(&block);
    opts.recipe = RF_RECIPE_COUNT;
    EXPECT_EQ(rf_layer_block(rows_of_block, 4, &opts, &block), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "enum rf_recipe"), nullptr);
    config.quantize = RF_QUANTIZE_NONE;
    config.recipe = RF_RECIPE_COUNT;
    EXPECT_EQ(gpt2_create(&config, &model), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "enum rf_recipe"), nullptr);
}
