// SPDX-License-Identifier: MIT
//
// Transfers between the memory of tensor ranks and the outside use whole tensors: initial values,
// parameters and gradients by name, logits; checkpoints: tensor_checkpoint_test.cc. On every mesh
// they have the bits of one rank. The blocks compute nothing; states are written by hand.
#include "tensor_state.h"

// In 16 bits the frozen parameter is rounded, as it has no master.
static void expect_parameters_of_one_rank(rf_dtype dtype)
{
    std::vector<Floats> want;
    std::string sha;
    on({1, 1, 1, 0, 0, dtype}, 7, [&](rf_run *run, int) {
        for (const Row &row : model)
            want.push_back(read(run, row));
        sha = sha_of(run);
    });
    for (const Mesh &mesh : all_meshes()) {
        if (mesh.dtype != dtype)
            continue;
        on(mesh, 7, [&](rf_run *run, int) {
            EXPECT_EQ(sha_of(run), sha) << mesh.text();
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
}

TEST(TensorState, InitialValuesAndNamedParametersAreWholeAndThoseOfOneRank)
{
    expect_parameters_of_one_rank(RF_F32);
    expect_parameters_of_one_rank(RF_BF16);
}

TEST(TensorState, TheNormsChunksHaveEveryTrainedElementOfAllRanksOnce)
{
    for (const Mesh &mesh : all_meshes()) {
        std::mutex mutex;
        std::vector<std::vector<int>> counted(std::size(model));
        for (size_t i = 0; i < std::size(model); i++)
            counted[i].resize((size_t)rf_shape_count(model[i].shape));
        if (mesh.zero >= 2)
            continue; // gradients lie elsewhere
        on(mesh, 7, [&](rf_run *run, int) {
            const rf_plan *plan = run->plan;
            std::vector<rf_norm_chunk> chunks(plan->chunk_count);
            const rf_tensor region = run->regions[RF_REGION_CHUNKS];
            if (plan->chunk_count) {
                ASSERT_RF(rf_buffer_read(region.buffer, region.offset, chunks.data(),
                                         chunks.size() * sizeof(chunks[0])));
            }
            if (plan->shards == 1 && plan->dp_rank > 0)
                return; // the same as those of another rank
            std::lock_guard<std::mutex> lock(mutex);
            for (size_t k = 0; k < chunks.size(); k++) {
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
        for (size_t i = 0; i < std::size(model); i++)
            for (int n : counted[i])
                ASSERT_EQ(n, !(model[i].flags & RF_PARAM_FROZEN) && !model[i].tied_to)
                    << mesh.text() << " " << model[i].name;
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
                if (!cut) { // the whole table to which it is tied is everywhere, too
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
