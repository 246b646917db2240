// SPDX-License-Identifier: MIT
//
// Checkpoints and snapshots of tensor ranks contain whole tensors: the same bytes on every mesh;
// written in equal shares, also if ranks do not see the folder.
#include "tensor_state.h"

// As a loaded checkpoint is saved with the same bytes on each mesh, every pair of them follows.
TEST(TensorCheckpoint, ACheckpointOfAnyMeshIsTheSameBytesAndStatesOnEveryOther)
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
            run->files.piece_bytes = 3000;
            ASSERT_RF(rf_run_load(run, before.path().c_str(), nullptr));
            expect_numbers(run, mesh.text());
            ASSERT_RF(rf_run_audit(run, nullptr));
            save(run, folders.back());
            if (rank % 2 == 1)
                hide_folders(run);
        });
        EXPECT_TRUE(files_of(folders.back()) == want) << mesh.text();
    }
}

// 5 parameters with cut columns have 30 to 96 rows each; 40 bytes a piece, or more.
TEST(TensorCheckpoint, PiecesOfACheckpointAreAsFewAsItsTensorsAndRanksNotItsRows)
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

// Each of the two uncut tensors is larger than a rank's share.
TEST(TensorCheckpoint, WhatAllTensorRanksHaveIsWrittenByThemInEqualShares)
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
TEST(TensorCheckpoint, CopiesOfShardsAreWrittenByAllRanksInEqualShares)
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

TEST(TensorCheckpoint, RanksThatDoNotSeeTheFolderSendAndGetTheirPartsByRank0)
{
    Folder first, second;
    on({1, 1, 1}, 7, [&](rf_run *run, int) {
        write_numbers(run);
        save(run, first);
    });
    for (const Mesh &mesh : {Mesh{1, 3, 1}, Mesh{2, 2, 1, 1}})
        on(mesh, 9, [&](rf_run *run, int rank) {
            run->files.piece_bytes = 1000;
            if (rank % 2 == 1)
                hide_folders(run);
            ASSERT_RF(rf_run_load(run, first.path().c_str(), nullptr));
            expect_numbers(run, mesh.text());
            save(run, second);
            ASSERT_RF(rf_run_load(run, second.path().c_str(), nullptr));
        });
    EXPECT_TRUE(files_of(second) == files_of(first));
}

TEST(TensorCheckpoint, SnapshotsOfRanksThatAreLeftGoOnOnOtherMeshes)
{
    struct Case {
        Mesh from, to;
        std::vector<int> left; // the rank whose snapshot each rank has; -1: none
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
