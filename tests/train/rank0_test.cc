// SPDX-License-Identifier: MIT
//
// Updating on rank 0 alone, a baseline for comparison: the same bits as when all ranks update, and
// the count of bytes that shows rank 0 as the bottleneck.
#include "folder.h"
#include "world.h"

namespace
{

Training small(rf_dtype dtype = RF_F32)
{
    Training t;
    t.policy.order = RF_ORDER_RING;
    t.policy.clip = 0.25f; // below every norm seen, so it acts
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 16384;
    t.ignored = 0.5;
    t.model.dtype = dtype;
    t.policy.loss_scale = dtype == RF_F16 ? 1024 : 0;
    return t;
}

} // namespace

TEST(UpdateOnRank0, GivesTheSameBitsAsUpdatingOnAllRanks)
{
    for (rf_dtype dtype : {RF_F32, RF_F16})
        for (int ranks : {1, 2, 3}) {
            if (dtype == RF_F16 && ranks != 3)
                continue;
            Training t = small(dtype);
            const std::vector<Seen> all = train(t, ranks);
            t.policy.update_on_rank_0 = true;
            const std::vector<Seen> one = train(t, ranks);
            for (size_t rank = 0; rank < one.size(); rank++) {
                const std::string where = std::string(rf_dtype_name(dtype)) + " rank " +
                                          std::to_string(rank) + " of " + std::to_string(ranks);
                EXPECT_EQ(one[rank].sha, all[0].sha) << where;
                EXPECT_EQ(one[rank].loss, all[0].loss) << where;
                EXPECT_EQ(one[rank].norm, all[0].norm) << where;
                EXPECT_EQ(one[rank].stats.back().loss_scale, all[0].stats.back().loss_scale)
                    << where;
            }
        }
}

TEST(UpdateOnRank0, EveryByteGoesThroughRank0AsPlanned)
{
    for (int ranks : {2, 4}) {
        Training t = small();
        t.steps = 1;
        t.policy.first_bucket_bytes = t.policy.bucket_bytes = 0;
        uint64_t weights = 0, gradients = 0;
        t.after = [&](rf_run *run, rf_comm *, int rank) {
            if (rank != 0)
                return;
            weights = run->plan->train_elements * sizeof(float);
            gradients = run->plan->pieces[0].count * sizeof(float);
            EXPECT_EQ(run->plan->trained_pieces, 1);
        };
        const std::vector<Seen> all = train(t, ranks);
        t.policy.update_on_rank_0 = true;
        const std::vector<Seen> one = train(t, ranks);
        const uint64_t peers = (uint64_t)ranks - 1;
        for (size_t rank = 0; rank < one.size(); rank++) {
            const Seen &s = one[rank];
            const std::string where = std::to_string(rank) + " of " + std::to_string(ranks);
            EXPECT_EQ(s.measured.sent, s.planned.sent) << where;
            EXPECT_EQ(s.measured.comm, s.planned.comm) << where;
            EXPECT_EQ(s.measured.grads, s.planned.grads) << where;
            EXPECT_EQ(s.measured.optimizer, s.planned.optimizer) << where;
            EXPECT_EQ(s.planned.optimizer, rank == 0 ? all[0].planned.optimizer : 0) << where;
            // Once to rank 0, or to every rank; and scalars and losses.
            const uint64_t data = rank == 0 ? peers * weights : gradients;
            EXPECT_GE(s.stats[0].sent_bytes, data) << where;
            EXPECT_LT(s.stats[0].sent_bytes, data + 1000) << where;
            // A ring's share is even: 2 (N-1)/N of it.
            EXPECT_LT(all[rank].stats[0].sent_bytes, 2 * weights * peers / (peers + 1) + 1000)
                << where;
        }
    }
}

TEST(UpdateOnRank0, ACheckpointGoesOnInEitherWay)
{
    Training t = small();
    t.steps = 4;
    const std::string straight = train(t, 3)[0].sha;
    for (bool saver : {true, false}) {
        Folder folder;
        Training first = t, rest = t;
        std::string ends[3];
        first.policy.update_on_rank_0 = saver;
        first.steps = 2;
        first.after = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {2, 5, 16};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(first, 3);
        rest.policy.update_on_rank_0 = !saver;
        rest.steps = 0;
        rest.after = [&](rf_run *run, rf_comm *, int rank) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
            take_steps(t, run, 2, 4);
            ends[rank] = sha_of(run);
        };
        train(rest, 3);
        for (const std::string &end : ends)
            EXPECT_EQ(end, straight) << (saver ? "saved" : "loaded") << " by rank 0 alone";
    }
}

TEST(UpdateOnRank0, IsRefusedInTreeOrder)
{
    gpt2 *model = nullptr;
    rf_plan *plan = nullptr;
    int blocks = 0;
    Training t = small();
    t.policy.order = RF_ORDER_TREE;
    t.policy.update_on_rank_0 = true;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *list = gpt2_blocks(model, &blocks);
    const rf_mesh mesh = {2, 1, 1};
    EXPECT_EQ(rf_plan_build({list, blocks}, &mesh, &t.policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(std::string(rf_last_error()->message).find("ring order"), std::string::npos);
    gpt2_destroy(model);
}
