// SPDX-License-Identifier: MIT
//
// Every technique together with every other: enough of the combinations that a plan allows are
// trained that each pair of choices is in one of them; the measured bytes equal the plan. A
// combination that is not allowed is refused by name.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "folder.h"
#include "world.h"

namespace
{

// The choices, one of each.
enum { RANKS, STAGE, ORDER, AGAIN, PRECISION, OFFLOAD, GATHER, STATES, AXES };
const int choices[AXES] = {4, 5, 2, 4, 4, 7, 3, 4};
using Row = std::vector<int>;

// The last of STATES: in 8 bits, updated in the backward pass.
bool in_backward(const Row &row)
{
    return row[STATES] == 3;
}

Training training_of(const Row &row)
{
    static const int again[] = {0, 1, 2, RF_RECOMPUTE_SQRT};
    static const int offload[] = {0,
                                  RF_OFFLOAD_OPTIMIZER,
                                  RF_OFFLOAD_PARAMS,
                                  RF_OFFLOAD_GRADS,
                                  RF_OFFLOAD_ACTIVATIONS,
                                  RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS |
                                      RF_OFFLOAD_ACTIVATIONS,
                                  RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_ACTIVATIONS};
    enum { ON_DISK = 6 };
    static const Folder folder;
    Training t;
    t.model = {3, 32, 4, 16, 61};
    t.steps = 1;
    t.policy.micro_batches = 4;
    t.policy.batch = 4;
    t.policy.clip = 1;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.policy.zero = row[STAGE] == 4 ? 3 : row[STAGE];
    t.shard = row[STAGE] == 4 ? 2 : 0;
    t.policy.order = row[ORDER] ? RF_ORDER_TREE : RF_ORDER_RING;
    t.policy.recompute = again[row[AGAIN]];
    t.policy.offload = offload[row[OFFLOAD]];
    t.policy.disk = row[OFFLOAD] == ON_DISK ? RF_OFFLOAD_OPTIMIZER : 0;
    t.policy.disk_block_bytes = 20000;
    t.disk = folder.path();
    t.model.dtype = row[PRECISION] == 1 || row[PRECISION] == 2 ? RF_BF16 : RF_F32;
    t.model.residual = row[PRECISION] == 2 ? RF_BF16 : RF_F32;
    t.policy.no_masters = row[PRECISION] == 2;
    t.policy.reduce_dtype = row[PRECISION] == 3 ? RF_BF16 : RF_F32;
    t.policy.state_dtype = row[STATES] >= 2 ? RF_U8 : row[STATES] ? RF_BF16 : RF_F32;
    if (in_backward(row)) {
        t.policy.update_in_backward = true;
        t.policy.micro_batches = row[RANKS] + 1;
        t.policy.clip = 0;
    }
    t.policy.keep_gathered = row[GATHER] == 1;
    t.policy.no_prefetch = row[GATHER] == 2;
    return t;
}

std::string text_of(const Row &row)
{
    std::string text;
    for (int choice : row)
        text += std::to_string(choice) + " ";
    return text;
}

// Whether such a plan exists. A refusal names the alternative.
bool is_allowed(const Row &row)
{
    const Training t = training_of(row);
    gpt2 *model = nullptr;
    int count = 0;
    EXPECT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    const rf_mesh mesh = {row[RANKS] + 1, 1, 1, t.shard};
    rf_plan *plan = nullptr;
    const int rc = rf_plan_build({blocks, count}, &mesh, &t.policy, 0, &plan);
    if (rc < 0) {
        const std::string says = rf_last_error()->message;
        EXPECT_TRUE(rc == RF_EINVAL || rc == RF_ENOTSUP) << says;
        EXPECT_TRUE(says.find("use") != std::string::npos ||
                    says.find("leave it out") != std::string::npos)
            << text_of(row) << says;
    }
    rf_plan_destroy(plan);
    gpt2_destroy(model);
    return rc == 0;
}

using Pair = std::pair<std::pair<int, int>, std::pair<int, int>>;

std::vector<Pair> pairs_of(const Row &row)
{
    std::vector<Pair> pairs;
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            pairs.push_back({{a, row[(size_t)a]}, {b, row[(size_t)b]}});
    return pairs;
}

// Rows that cover every allowed pair: each is the one with the most new pairs out of some
// candidates.
std::vector<Row> covering()
{
    std::vector<Row> allowed(1, Row(AXES));
    for (int axis = 0; axis < AXES; axis++) {
        std::vector<Row> more;
        for (const Row &row : allowed)
            for (int choice = 0; choice < choices[axis]; choice++) {
                more.push_back(row);
                more.back()[(size_t)axis] = choice;
            }
        allowed = more;
    }
    allowed.erase(std::remove_if(allowed.begin(), allowed.end(),
                                 [](const Row &row) { return !is_allowed(row); }),
                  allowed.end());
    std::mt19937 random(1);
    std::shuffle(allowed.begin(), allowed.end(), random);
    std::set<Pair> missing;
    for (const Row &row : allowed)
        for (const Pair &pair : pairs_of(row))
            missing.insert(pair);
    std::vector<Row> rows;
    while (!missing.empty()) {
        size_t best = 0, most = 0;
        for (size_t k = 0; k < allowed.size(); k++) {
            size_t added = 0;
            for (const Pair &pair : pairs_of(allowed[k]))
                added += missing.count(pair);
            if (added > most) {
                best = k;
                most = added;
            }
        }
        for (const Pair &pair : pairs_of(allowed[best]))
            missing.erase(pair);
        rows.push_back(allowed[best]);
    }
    return rows;
}

} // namespace

TEST(Pairs, OfAllTechniquesMeasureAsPlannedAndAgreeOnTheLoss)
{
    std::map<int, double> losses; // for equal arithmetic
    const std::vector<Row> rows = covering();
    for (const Row &row : rows) {
        const std::vector<Seen> all = train(training_of(row), row[RANKS] + 1);
        for (const Seen &s : all) {
            ASSERT_EQ(s.loss.size(), 1u) << text_of(row);
            EXPECT_EQ(s.sha, all[0].sha) << text_of(row);
            expect_planned(s, text_of(row));
            // The first loss is computed before any update, and all sum it in the same order.
            const int divided = in_backward(row) ? 3 * (row[RANKS] + 1) : 0;
            const double same =
                losses.emplace(row[PRECISION] % 3 + divided, s.loss[0]).first->second;
            EXPECT_EQ(s.loss[0], same) << text_of(row);
        }
    }
    RecordProperty("combinations", std::to_string(rows.size()));
    if (getenv("RF_TEST_ALL"))
        printf("%zu combinations\n", rows.size());
}
