// SPDX-License-Identifier: MIT
//
// What goes between the memory of tensor ranks and the outside is of whole tensors: initial values,
// parameters and gradients by name, checkpoints, snapshots, logits. On every mesh it is what one
// rank has, to the bit. The blocks compute nothing; states are written by hand.
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

namespace
{

constexpr int64_t vocabulary = 37;

// The last block's logits are the number of the tensor rank, in its columns.
int fill(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
{
    const int rc = rf_fill(ctx->stream, ctx->losses, 0);
    return rc < 0 ? rc : rf_fill(ctx->stream, out, (float)ctx->tensor.rank);
}
int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
{
    return rf_fill(ctx->stream, out, 1);
}
int backward_input(rf_ctx *ctx, void *, rf_tensor, rf_tensor, rf_tensor din)
{
    return din.buffer ? rf_fill(ctx->stream, din, 0) : 0;
}
int backward_weight(rf_ctx *, void *, rf_tensor, rf_tensor)
{
    return 0;
}
int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 10);
    return 0;
}
int tensor_sizes(const void *self, const rf_tensor_part *, int64_t rows, int64_t seq,
                 rf_block_sizes *out)
{
    return sizes(self, rows, seq, out);
}
int last_sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, vocabulary);
    return 0;
}
int64_t column(int rank, int ranks)
{
    return rank * vocabulary / ranks;
}
int last_tensor_sizes(const void *, const rf_tensor_part *part, int64_t rows, int64_t,
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

std::vector<Mesh> all_meshes()
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
            rf_plan_build(blocks.data(), (int)blocks.size(), &mesh, &policy, rank, &plan);
        return rc < 0 ? rc : rf_run_open(rank_device(rank), comm, plan, &opts, &run);
    }
};

void on_ranks(int count, const std::function<void(rf_comm *, int rank)> &body)
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

// A run on every rank of a mesh; what it sends is what it says.
void on(const Mesh &mesh, uint64_t seed, const std::function<void(rf_run *, int rank)> &body)
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

Floats read(rf_run *run, const Row &row)
{
    Floats values((size_t)rf_shape_count(row.shape), NAN); // what was there does not matter
    EXPECT_RF(rf_run_read_param(run, row.name, values.data(), values.size() * sizeof(float)));
    return values;
}

// Another number for each element of each region.
float number(int param, int region, uint64_t element)
{
    return (float)(1 + param + 16 * (region == RF_REGION_PARAMS ? 0 : region) + 1000 * element);
}

// Of what lies in a region of a rank that has all of its part: each element, and which one of the
// whole it is.
void for_parts(rf_run *run, int region,
               const std::function<void(int param, float *values, uint64_t count)> &fn, bool writes)
{
    const rf_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const rf_plan_param &param = plan->params[i];
        if (param.owner != i || (region != RF_REGION_PARAMS && param.grad_first == RF_NO_GRAD))
            continue;
        rf_tensor t = run->regions[region];
        Floats values((size_t)param.count);
        t.offset += param.first * sizeof(float);
        t.shape = rf_shape1(param.count);
        t.dtype = RF_F32;
        ASSERT_RF(rf_tensor_read(t, values.data(), values.size() * sizeof(float)));
        fn(i, values.data(), (uint64_t)param.count);
        if (writes) {
            ASSERT_RF(rf_tensor_write(t, values.data(), values.size() * sizeof(float)));
        }
    }
}

Floats wanted(const rf_plan *plan, int param, int region)
{
    const rf_plan_param &p = plan->params[param];
    Floats whole((size_t)rf_shape_count(p.desc->shape)), part((size_t)p.count);
    for (size_t i = 0; i < whole.size(); i++)
        whole[i] = number(p.logical, region, i);
    rf_cut_take(&p.cut, 0, part.size(), whole.data(), part.data());
    return part;
}

const int state_regions[] = {RF_REGION_PARAMS, RF_REGION_STATE, RF_REGION_STATE + 1};

void write_numbers(rf_run *run)
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

// Where this rank's memory has all of its part.
void expect_numbers(rf_run *run, const std::string &where)
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

std::string files_of(const Folder &folder)
{
    return folder.read("step-3/model.safetensors") + folder.read("step-3/optimizer.safetensors");
}

void save(rf_run *run, const Folder &folder)
{
    const rf_progress progress = {3, 1, 24, 0, 0};
    ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
}

} // namespace

TEST(TensorState, InitialValuesAndNamedParametersAreWholeAndThoseOfOneRank)
{
    std::vector<Floats> want;
    std::string sha;
    on({1, 1, 1}, 7, [&](rf_run *run, int) {
        char hex[65];
        for (const Row &row : model)
            want.push_back(read(run, row));
        ASSERT_RF(rf_run_params_sha256(run, hex));
        sha = hex;
    });
    for (const Mesh &mesh : all_meshes())
        on(mesh, 7, [&](rf_run *run, int) {
            char hex[65];
            ASSERT_RF(rf_run_params_sha256(run, hex));
            EXPECT_EQ(sha, hex) << mesh.text();
            for (const Row &row : model)
                EXPECT_TRUE(read(run, row) == want[(size_t)(&row - model)])
                    << mesh.text() << row.name;
            for (const char *name : {"b.qkv", "b.out", "d.head"})
                for (const Row &row : model) {
                    if (strcmp(row.name, name) != 0)
                        continue;
                    Floats values = want[(size_t)(&row - model)];
                    for (float &v : values)
                        v += 1;
                    ASSERT_RF(rf_run_write_param(run, name, values.data(), values.size() * 4));
                    EXPECT_TRUE(read(run, row) == values) << name;
                }
            float few[4];
            EXPECT_EQ(rf_run_read_param(run, "b.out", few, sizeof(few)), RF_EINVAL);
        });
}

TEST(TensorState, TheNormsChunksHaveEveryTrainedElementOfAllRanksOnce)
{
    for (const Mesh &mesh : all_meshes()) {
        std::mutex mutex;
        std::vector<std::vector<int>> counted(std::size(model));
        for (size_t i = 0; i < std::size(model); i++)
            counted[i].resize((size_t)rf_shape_count(model[i].shape));
        std::vector<int> filled;
        if (mesh.zero >= 2)
            continue; // gradients lie elsewhere
        on(mesh, 7, [&](rf_run *run, int) {
            const rf_plan *plan = run->plan;
            std::vector<rf_norm_chunk> chunks(plan->chunk_count);
            const rf_tensor region = run->regions[RF_REGION_CHUNKS];
            ASSERT_RF(rf_buffer_read(region.buffer, region.offset, chunks.data(),
                                     chunks.size() * sizeof(chunks[0])));
            if (plan->shards == 1 && plan->dp_rank > 0)
                return; // the same as those of another rank
            std::lock_guard<std::mutex> lock(mutex);
            filled.resize(chunks.size());
            for (size_t k = 0; k < chunks.size(); k++) {
                filled[k] += chunks[k].count > 0;
                for (int i = 0; i < plan->param_count; i++) {
                    const rf_plan_param &p = plan->params[i];
                    if (p.owner != i || p.first > chunks[k].first ||
                        p.first + (uint64_t)p.count <= chunks[k].first)
                        continue;
                    for (uint32_t e = 0; e < chunks[k].count; e++)
                        counted[(size_t)p.logical]
                               [rf_cut_run_at(&p.cut, chunks[k].first + e - p.first).first]++;
                }
            }
        });
        for (int n : filled)
            EXPECT_EQ(n, 1) << mesh.text();
        for (size_t i = 0; i < std::size(model); i++)
            for (int n : counted[i])
                ASSERT_EQ(n, !(model[i].flags & RF_PARAM_FROZEN) && !model[i].tied_to)
                    << mesh.text() << " " << model[i].name;
    }
}

// As what is loaded and saved again is the same bytes on each, every pair of them follows.
TEST(TensorState, ACheckpointOfAnyMeshIsTheSameBytesAndStatesOnEveryOther)
{
    std::deque<Folder> folders(1);
    on({1, 1, 1}, 7, [&](rf_run *run, int) {
        write_numbers(run);
        save(run, folders[0]);
    });
    const std::string want = files_of(folders[0]);
    EXPECT_GT(want.size(), 3u * 4 * 137 * 24);
    for (const Mesh &mesh : all_meshes()) {
        const Folder &before = folders.back();
        folders.emplace_back();
        on(mesh, 9, [&](rf_run *run, int rank) {
            run->piece_bytes = 3000;
            ASSERT_RF(rf_run_load(run, before.path().c_str(), nullptr));
            expect_numbers(run, mesh.text());
            ASSERT_RF(rf_run_audit(run, nullptr));
            save(run, folders.back());
            run->hide_folders = rank % 2 == 1;
        });
        EXPECT_TRUE(files_of(folders.back()) == want) << mesh.text();
    }
}

// 5 parameters with cut columns have 30 to 96 rows each; 40 bytes a piece, or more.
TEST(TensorState, PiecesOfACheckpointAreAsFewAsItsTensorsAndRanksNotItsRows)
{
    for (const Mesh &mesh : {Mesh{1, 2, 1}, Mesh{1, 3, 1}, Mesh{2, 2, 1, 1}}) {
        Folder folder;
        on(mesh, 7, [&](rf_run *run, int) { save(run, folder); });
        const uint64_t most = 3 * std::size(model) * (uint64_t)mesh.ranks() * 3 + 1;
        const uint64_t bytes = folder.read("step-3/model.hashes").size() +
                               folder.read("step-3/optimizer.hashes").size();
        EXPECT_LE(bytes, 64 * most) << mesh.text();
    }
}

// Of the two tensors that are not cut each is larger than a rank's share, and both together.
TEST(TensorState, WhatAllTensorRanksHaveIsWrittenByThemInEqualShares)
{
    for (const Mesh &mesh : {Mesh{1, 2, 1}, Mesh{1, 3, 1}, Mesh{2, 2, 1}, Mesh{2, 2, 1, 1}}) {
        std::mutex mutex;
        std::vector<uint64_t> written((size_t)mesh.tp);
        uint64_t all = 0;
        on_ranks(mesh.ranks(), [&](rf_comm *comm, int rank) {
            Job job(mesh);
            job.params[0][1].shape = {2, {1000, 40}};
            job.params[2][0].shape = {2, {90, 240}};
            ASSERT_RF(job.open(comm, rank, 7));
            for (rf_checkpoint_part part : {RF_PART_MODEL, RF_PART_OPTIMIZER}) {
                rf_listing listing = {};
                rf_spans spans = {};
                ASSERT_RF(rf_listing_open(job.run, part, &listing));
                ASSERT_RF(rf_spans_to_save(job.run, part, &listing, &spans));
                std::lock_guard<std::mutex> lock(mutex);
                for (size_t i = 0; i < spans.count; i++) {
                    const bool whole = spans.list[i].cut.split.kind == RF_SPLIT_NONE;
                    written[(size_t)(rank % mesh.tp)] += whole ? spans.list[i].count : 0;
                    all += whole ? spans.list[i].count : 0;
                }
                rf_spans_free(&spans);
                rf_listing_close(&listing);
            }
        });
        EXPECT_EQ(all, 3u * (1000 * 40 + 90 * 240 + 24)) << mesh.text();
        for (uint64_t count : written)
            EXPECT_NEAR((double)count, (double)all / mesh.tp, 0.1 * (double)all / mesh.tp)
                << mesh.text();
    }
}

// Two ranks have the first half of the states, and two the second.
TEST(TensorState, CopiesOfShardsAreWrittenByAllRanksInEqualShares)
{
    const Mesh mesh = {4, 1, 1, 1, 2};
    std::mutex mutex;
    std::vector<uint64_t> written(4);
    uint64_t all = 0;
    on_ranks(4, [&](rf_comm *comm, int rank) {
        Job job(mesh);
        job.params[0][1].shape = {2, {1000, 40}};
        ASSERT_RF(job.open(comm, rank, 7));
        rf_listing listing = {};
        rf_spans spans = {};
        ASSERT_RF(rf_listing_open(job.run, RF_PART_OPTIMIZER, &listing));
        ASSERT_RF(rf_spans_to_save(job.run, RF_PART_OPTIMIZER, &listing, &spans));
        std::lock_guard<std::mutex> lock(mutex);
        all += written[(size_t)rank] = rf_spans_bytes(&spans);
        rf_spans_free(&spans);
        rf_listing_close(&listing);
    });
    EXPECT_GT(all, 2u * 4 * 1000 * 40);
    for (uint64_t bytes : written)
        EXPECT_NEAR((double)bytes, (double)all / 4, 0.1 * (double)all / 4);
}

TEST(TensorState, RanksThatDoNotSeeTheFolderSendAndGetTheirPartsByRank0)
{
    Folder first, second;
    on({1, 1, 1}, 7, [&](rf_run *run, int) {
        write_numbers(run);
        save(run, first);
    });
    for (const Mesh &mesh : {Mesh{1, 3, 1}, Mesh{2, 2, 1, 1}})
        on(mesh, 9, [&](rf_run *run, int rank) {
            run->piece_bytes = 1000;
            run->hide_folders = rank % 2 == 1;
            ASSERT_RF(rf_run_load(run, first.path().c_str(), nullptr));
            expect_numbers(run, mesh.text());
            save(run, second);
            ASSERT_RF(rf_run_load(run, second.path().c_str(), nullptr));
        });
    EXPECT_TRUE(files_of(second) == files_of(first));
}

TEST(TensorState, SnapshotsOfRanksThatAreLeftGoOnOnOtherMeshes)
{
    struct Case {
        Mesh from, to;
        std::vector<int> left; // whose snapshot each rank has; -1: none
    };
    const Case cases[] = {{{1, 4, 1}, {2, 2, 1, 1}, {0, 1, 2, 3}},
                          {{2, 2, 1, 1}, {1, 2, 2}, {0, 1, 2, 3}},
                          {{2, 2, 1}, {1, 2, 1}, {3, 0}},
                          {{2, 2, 1}, {1, 3, 1}, {1, -1, 2}}};
    for (const Case &c : cases) {
        std::vector<rf_snapshot *> kept((size_t)c.from.ranks());
        on(c.from, 7, [&](rf_run *run, int rank) {
            const rf_progress progress = {0, 7, 8, 0, 0};
            for (int p = 0; p < (int)std::size(model); p++) {
                Floats values = read(run, model[p]);
                for (size_t i = 0; i < values.size() && !model[p].tied_to; i++)
                    values[i] = number(p, 0, i);
                ASSERT_RF(rf_run_write_param(run, model[p].name, values.data(), values.size() * 4));
            }
            ASSERT_RF(rf_run_snapshot(run, &progress, &kept[(size_t)rank]));
        });
        on(c.to, 9, [&](rf_run *run, int rank) {
            const int left = c.left[(size_t)rank];
            ASSERT_RF(rf_run_restore(run, left < 0 ? nullptr : kept[(size_t)left], nullptr));
            for (int p = 0; p < (int)std::size(model); p++) {
                const Floats values = read(run, model[p]);
                for (size_t i = 0; i < values.size() && !model[p].tied_to; i++)
                    ASSERT_EQ(values[i], number(p, 0, i)) << c.to.text() << model[p].name;
            }
            ASSERT_RF(rf_run_audit(run, nullptr));
        });
        for (rf_snapshot *snapshot : kept)
            rf_snapshot_destroy(snapshot);
    }
}

TEST(TensorState, AnAuditNamesAParameterThatTensorRanksHaveAlikeAndDiffersOnOne)
{
    on({1, 3, 1}, 7, [&](rf_run *run, int rank) {
        for_parts(
            run, RF_REGION_PARAMS,
            [&](int param, float *values, uint64_t) {
                if (rank == 1 && strcmp(run->plan->params[param].desc->name, "a.places") == 0)
                    values[5] += 1;
            },
            true);
        EXPECT_EQ(rf_run_audit(run, nullptr), RF_ECORRUPT);
        EXPECT_NE(strstr(rf_last_error()->message, "parameter a.places"), nullptr);
        EXPECT_NE(strstr(rf_last_error()->message, "rank 1 differs"), nullptr)
            << rf_last_error()->message;
    });
}

TEST(TensorState, GradientsByNameAreWholeOnAllTensorRanks)
{
    for (const Mesh &mesh : {Mesh{1, 1, 1}, Mesh{1, 4, 1}, Mesh{2, 2, 1}})
        on(mesh, 7, [&](rf_run *run, int) {
            const rf_plan *plan = run->plan;
            for (int i = 0; i < plan->param_count; i++) {
                const rf_plan_param &param = plan->params[i];
                if (param.owner != i || param.grad_first == RF_NO_GRAD)
                    continue;
                Floats values = wanted(plan, i, 0);
                rf_tensor t = run->regions[RF_REGION_GRADS];
                t.offset += param.grad_first * sizeof(float);
                t.shape = rf_shape1(param.count);
                t.dtype = RF_F32;
                ASSERT_RF(rf_tensor_write(t, values.data(), values.size() * sizeof(float)));
            }
            for (const Row &row : model) {
                Floats values((size_t)rf_shape_count(row.shape), NAN);
                const int rc = rf_run_read_grad(run, row.name, values.data(), values.size() * 4);
                if (row.flags & RF_PARAM_FROZEN) {
                    EXPECT_EQ(rc, RF_EINVAL);
                    continue;
                }
                ASSERT_RF(rc);
                const int logical = row.tied_to ? 0 : (int)(&row - model);
                for (size_t i = 0; i < values.size(); i++)
                    ASSERT_EQ(values[i], number(logical, 0, i)) << mesh.text() << " " << row.name;
            }
        });
}

TEST(TensorState, LogitsAreWholeOnAllRanksHoweverTheLastBlockIsCut)
{
    for (bool cut : {true, false})
        for (const Mesh &mesh : {Mesh{1, 3, 1}, Mesh{2, 2, 1, 3}, Mesh{1, 2, 2}})
            on_ranks(mesh.ranks(), [&](rf_comm *comm, int rank) {
                Job job(mesh);
                rf_bytes planned = {}, measured = {};
                if (!cut) { // all of the table that it is tied to is everywhere, too
                    job.blocks[3].ops = &last_alone;
                    job.blocks[0].ops = &alone;
                }
                ASSERT_RF(job.open(comm, rank, 7));
                const size_t rows = (size_t)job.plan->rows;
                std::vector<int32_t> tokens(rows, 1);
                Floats logits(rows * vocabulary, -1);
                EXPECT_EQ(rf_run_forward(job.run, tokens.data(), logits.data(), 4), RF_EINVAL);
                ASSERT_RF(rf_run_forward(job.run, tokens.data(), logits.data(), logits.size() * 4));
                for (size_t i = 0; i < logits.size(); i++) {
                    const int64_t at = (int64_t)i % vocabulary;
                    int owner = 0;
                    while (at >= column(owner + 1, mesh.tp))
                        owner++;
                    const int home = rank % mesh.tp;
                    ASSERT_EQ(logits[i], (float)(cut ? owner : home)) << mesh.text() << " " << i;
                }
                rf_run_planned(job.run, &planned);
                rf_run_measured(job.run, &measured);
                EXPECT_EQ(measured.sent, planned.sent);
            });
}

TEST(TensorState, RanksThatCutParametersOtherwiseAreNamed)
{
    const std::pair<const char *, std::function<void(Job &)>> cases[] = {
        {"tensor ranks (tp) is",
         [](Job &job) {
             job.mesh.tp = 1;
             job.mesh.dp = 2;
         }},
        {"parameters' splits is", [](Job &job) { job.params[1][2].split.segments = 1; }},
        {"parameters' splits is", [](Job &job) { job.params[3][1].split = {}; }},
        {"sequence parallelism is", [](Job &job) { job.policy.sequence_parallel = true; }},
    };
    for (const auto &c : cases)
        on_ranks(2, [&](rf_comm *comm, int rank) {
            Job job({1, 2, 1});
            job.blocks[2].ops = &shared;
            if (rank == 1)
                c.second(job);
            EXPECT_EQ(job.open(comm, rank, 7), RF_EMISMATCH) << rf_last_error()->message;
            EXPECT_NE(strstr(rf_last_error()->message, c.first), nullptr)
                << rf_last_error()->message;
        });
}
