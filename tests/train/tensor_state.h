// SPDX-License-Identifier: MIT
//
// A model whose blocks compute nothing, cut over tensor ranks in every way; its states are written
// by hand. For the tests of transfers between the memory of ranks and the outside.
#ifndef RF_TESTS_TENSOR_STATE_H
#define RF_TESTS_TENSOR_STATE_H

#include "folder.h"
#include "support/ranks.h"
#include "world.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>

extern "C" {
#include "train/spans.h"
}

constexpr int64_t vocabulary = 37;

// The last block's logits are the number of the tensor rank, in its columns.
inline int fill(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
{
    const int rc = rf_fill(ctx->stream, ctx->losses, 0);
    return rc < 0 ? rc : rf_fill(ctx->stream, out, (float)ctx->tensor.rank);
}
inline int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
{
    return rf_fill(ctx->stream, out, 1);
}
inline int backward_input(rf_ctx *ctx, void *, rf_tensor, rf_tensor, rf_tensor din)
{
    return din.buffer ? rf_fill(ctx->stream, din, 0) : 0;
}
inline int backward_weight(rf_ctx *, void *, rf_tensor, rf_tensor)
{
    return 0;
}
inline int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 10);
    return 0;
}
inline int tensor_sizes(const void *self, const rf_tensor_part *, int64_t rows, int64_t seq,
                        rf_block_sizes *out)
{
    return sizes(self, rows, seq, out);
}
inline int last_sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, vocabulary);
    return 0;
}
inline int64_t column(int rank, int ranks)
{
    return rank * vocabulary / ranks;
}
inline int last_tensor_sizes(const void *, const rf_tensor_part *part, int64_t rows, int64_t,
                             rf_block_sizes *out)
{
    *out = {};
    out->out =
        rf_shape2(rows, column(part->rank + 1, part->ranks) - column(part->rank, part->ranks));
    out->classes = vocabulary;
    return 0;
}
const rf_block_ops shared = {forward, backward_input, backward_weight, sizes, tensor_sizes};
const rf_block_ops alone = {forward, backward_input, backward_weight, sizes, nullptr};
const rf_block_ops last = {fill, backward_input, backward_weight, last_sizes, last_tensor_sizes};
const rf_block_ops last_alone = {fill, backward_input, backward_weight, last_sizes, nullptr};

// A row is a parameter; the letter of its name is that of its block.
struct Row {
    const char *name;
    rf_shape shape;
    rf_split split;
    uint32_t flags;
    const char *tied_to;
};
const rf_split rows = {RF_SPLIT_ROWS, 0, 0, {}}, columns = {RF_SPLIT_COLUMNS, 0, 0, {}};
const Row model[] = {
    {"a.table", {2, {137, 24}}, rows, RF_PARAM_DECAY, nullptr}, // ragged
    {"a.places", {2, {50, 24}}, {}, 0, nullptr},
    {"b.qkv", {2, {52, 50}}, {RF_SPLIT_ROWS, 3, 2, {48, 2, 2}}, RF_PARAM_DECAY, nullptr}, // copies
    {"b.out", {2, {40, 130}}, columns, RF_PARAM_DECAY, nullptr},                          // ragged
    {"b.gates", {2, {96, 31}}, {RF_SPLIT_ROWS, 2, 0, {}}, 0, nullptr},
    {"b.frozen", {2, {30, 48}}, {RF_SPLIT_COLUMNS, 2, 0, {}}, RF_PARAM_FROZEN, nullptr},
    {"c.weight", {2, {60, 24}}, rows, RF_PARAM_DECAY, nullptr}, // not cut: no tensor_sizes
    {"c.scale", {1, {24}}, {}, 0, nullptr},
    {"d.head", {2, {137, 24}}, rows, RF_PARAM_DECAY, "a.table"},
    {"d.cube", {3, {5, 3, 72}}, {RF_SPLIT_COLUMNS, 3, 1, {24, 24, 24}}, 0, nullptr},
};

struct Mesh {
    int dp, tp, pp;
    int zero = 0, shard = 0;
    rf_dtype dtype = RF_F32;
    int ranks() const
    {
        return dp * tp * pp;
    }
    std::string text() const
    {
        return "dp=" + std::to_string(dp) + ",tp=" + std::to_string(tp) +
               ",pp=" + std::to_string(pp) + ",shard=" + std::to_string(shard) +
               " zero=" + std::to_string(zero) + " " + rf_dtype_name(dtype);
    }
};
const Mesh meshes[] = {
    {1, 2, 1},    {1, 4, 1},    {1, 3, 1, 0, 0, RF_BF16},
    {2, 2, 1, 1}, {2, 2, 1, 3}, {1, 2, 2},
    {2, 1, 2, 1}, {2, 2, 1, 2}, {2, 2, 1, 1, 0, RF_BF16},
    {2, 2, 1, 0}, {3, 1, 1, 3}, {4, 1, 1, 2, 2},
};
// With RF_TEST_ALL=1, as each rank has a device of its own.
const Mesh large_meshes[] = {
    {2, 2, 2, 1}, {4, 2, 1, 2, 2}, {2, 4, 1, 3}, {2, 3, 1, 1}, {4, 2, 1, 3, 2, RF_BF16}, {1, 8, 1},
};

inline std::vector<Mesh> all_meshes()
{
    std::vector<Mesh> all(std::begin(meshes), std::end(meshes));
    if (getenv("RF_TEST_ALL"))
        all.insert(all.end(), std::begin(large_meshes), std::end(large_meshes));
    return all;
}

struct Job {
    rf_mesh mesh = {};
    rf_policy policy = {};
    std::vector<rf_block> blocks;
    std::deque<std::vector<rf_param_desc>> params;
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;

    explicit Job(const Mesh &m) : mesh{m.dp, m.tp, m.pp, m.shard}
    {
        policy.batch = policy.micro_batches = 12;
        policy.seq = 8;
        policy.zero = m.zero;
        policy.bucket_bytes = policy.first_bucket_bytes = 9000;
        for (char name = 'a'; name <= 'd'; name++) {
            params.emplace_back();
            for (const Row &row : model) {
                if (row.name[0] != name)
                    continue;
                rf_param_desc desc = {};
                desc.name = row.name;
                desc.shape = row.shape;
                desc.split = row.split;
                desc.dtype = row.shape.ndim > 1 ? m.dtype : RF_F32;
                desc.flags = row.flags;
                desc.tied_to = row.tied_to;
                desc.init_std = 0.5f;
                params.back().push_back(desc);
            }
            rf_block block = {};
            block.name = params.back()[0].name;
            block.ops = name == 'c' ? &alone : name == 'd' ? &last : &shared;
            block.params = params.back().data();
            block.param_count = (int)params.back().size();
            blocks.push_back(block);
        }
    }
    ~Job()
    {
        rf_run_close(run);
        rf_plan_destroy(plan);
    }
    int open(rf_comm *comm, int rank, uint64_t seed)
    {
        rf_run_opts opts = {};
        opts.seed = seed;
        const int rc =
            rf_plan_build({blocks.data(), (int)blocks.size()}, &mesh, &policy, rank, &plan);
        return rc < 0 ? rc : rf_run_open(rank_device(rank), comm, plan, &opts, &run);
    }
};

inline void on_ranks(int count, const std::function<void(rf_comm *, int rank)> &body)
{
    if (count == 1) {
        body(nullptr, 0);
        return;
    }
    for (int r = 0; r < count; r++)
        rank_device(r);
    ranks::World world;
    world.size = count;
    ranks::run(world, body);
}

// A run on every rank of a mesh; its bytes equal the declared ones.
inline void on(const Mesh &mesh, uint64_t seed, const std::function<void(rf_run *, int rank)> &body)
{
    SCOPED_TRACE(mesh.text());
    on_ranks(mesh.ranks(), [&](rf_comm *comm, int rank) {
        Job job(mesh);
        rf_bytes planned = {}, measured = {};
        ASSERT_RF(job.open(comm, rank, seed));
        body(job.run, rank);
        rf_run_planned(job.run, &planned);
        rf_run_measured(job.run, &measured);
        EXPECT_EQ(measured.sent, planned.sent) << mesh.text() << " rank " << rank;
    });
}

using Floats = std::vector<float>;

inline Floats read(rf_run *run, const Row &row)
{
    Floats values((size_t)rf_shape_count(row.shape), NAN); // the old contents do not matter
    EXPECT_RF(rf_run_read_param(run, row.name, values.data(), values.size() * sizeof(float)));
    return values;
}

// Another number for each element of each region.
inline float number(int param, int region, uint64_t element)
{
    return (float)(1 + param + 16 * (region == RF_REGION_PARAMS ? 0 : region) + 1000 * element);
}

// Visits each element in a region of a rank that has all of its part, with its index in the whole.
inline void for_parts(rf_run *run, int region,
                      const std::function<void(int param, float *values, uint64_t count)> &fn,
                      bool writes)
{
    const rf_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const rf_plan_param &param = plan->params[i];
        if (param.owner != i || (region != RF_REGION_PARAMS && param.grad_first == RF_NO_GRAD))
            continue;
        // A bare parameter is stored in bf16 only: the upper halves of floats.
        const bool bare = region == RF_REGION_PARAMS && param.bare;
        const size_t each = bare ? 2 : 4;
        rf_tensor t = run->regions[bare ? (int)RF_REGION_COPY : region];
        Floats values((size_t)param.count);
        std::vector<uint8_t> stored(values.size() * each);
        t.offset += param.first * each;
        t.shape = rf_shape1(param.count);
        t.dtype = bare ? RF_BF16 : RF_F32;
        ASSERT_RF(rf_tensor_read(t, stored.data(), stored.size()));
        for (size_t k = 0; k < values.size(); k++)
            memcpy((uint8_t *)&values[k] + 4 - each, &stored[k * each], each);
        fn(i, values.data(), (uint64_t)param.count);
        for (size_t k = 0; k < values.size(); k++)
            memcpy(&stored[k * each], (uint8_t *)&values[k] + 4 - each, each);
        if (writes) {
            ASSERT_RF(rf_tensor_write(t, stored.data(), stored.size()));
        }
    }
}

// A frozen parameter has no master, so 16-bit types keep only bf16 values.
inline float of_type(bool frozen, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits &= frozen ? 0xffff0000u : UINT32_MAX;
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

inline Floats wanted(const rf_plan *plan, int param, int region)
{
    const rf_plan_param &p = plan->params[param];
    Floats whole((size_t)rf_shape_count(p.desc->shape)), part((size_t)p.count);
    for (size_t i = 0; i < whole.size(); i++)
        whole[i] = of_type(p.desc->flags & RF_PARAM_FROZEN, number(p.logical, region, i));
    rf_cut_take(&p.cut, 0, part.size(), whole.data(), part.data());
    return part;
}

const int state_regions[] = {RF_REGION_PARAMS, RF_REGION_STATE, RF_REGION_STATE + 1};

inline void write_numbers(rf_run *run)
{
    for (int region : state_regions)
        for_parts(
            run, region,
            [&](int param, float *values, uint64_t) {
                const Floats want = wanted(run->plan, param, region);
                std::copy(want.begin(), want.end(), values);
            },
            true);
}

// For ranks whose memory has all of their part.
inline void expect_numbers(rf_run *run, const std::string &where)
{
    const rf_plan *plan = run->plan;
    for (int region : state_regions) {
        if (region == RF_REGION_PARAMS ? rf_plan_shards_params(plan) : plan->shards > 1)
            continue;
        for_parts(
            run, region,
            [&](int param, float *values, uint64_t count) {
                EXPECT_TRUE(Floats(values, values + count) == wanted(plan, param, region))
                    << where << " " << plan->params[param].desc->name << " region " << region;
            },
            false);
    }
}

inline std::string files_of(const Folder &folder)
{
    return folder.read("step-3/model.safetensors") + folder.read("step-3/optimizer.safetensors");
}

inline void save(rf_run *run, const Folder &folder)
{
    const rf_progress progress = {3, 1, 24, 0, 0};
    ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
}

#endif
