/* SPDX-License-Identifier: MIT
 *
 * Messages of a store that make no sense: the server says what was wrong with them and continues
 * with the other workers, and a worker names the server that has sent one.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <cmath>
#include <cstring>

#include "support/ranks.h"

extern "C" {
#include "store/links.h"
}

namespace
{

using Vector = std::vector<float>;

enum { COUNT = 100 };

rf_store_head head_of(int kind)
{
    rf_store_head head = {};
    head.magic = RF_STORE_MAGIC;
    head.kind = static_cast<uint16_t>(kind);
    head.number = 1;
    return head;
}

struct Case {
    const char *says;
    rf_store_head head;
    std::vector<uint64_t> pieces;
    Vector values;
};

std::vector<Case> cases()
{
    std::vector<Case> all;
    const auto add = [&](const char *says, const std::function<void(rf_store_head *)> &spoil,
                         std::vector<uint64_t> pieces = {}, Vector values = {}) {
        Case c = {says, head_of(RF_STORE_PUSH), std::move(pieces), std::move(values)};
        c.head.lr = 1;
        c.head.share = 1;
        c.head.pieces = c.pieces.size();
        c.head.values = c.values.size();
        spoil(&c.head);
        all.push_back(c);
    };
    const auto sound = [](rf_store_head *) {};
    add("it is none", [](rf_store_head *h) { h->magic++; });
    add("it is none", [](rf_store_head *h) { h->reserved = 1; });
    add("it is none", [](rf_store_head *h) { h->unused = 1; });
    add("it is none", [](rf_store_head *h) { h->kind = 0; });
    add("it is none", [](rf_store_head *h) { h->kind = RF_STORE_VALUES; });
    add("it is none", [](rf_store_head *h) { h->kind = UINT16_MAX; });
    add("has number 2, and 1 was due", [](rf_store_head *h) { h->number = 2; });
    add("fields of another kind", [](rf_store_head *h) { h->version = 1; });
    add("fields of another kind", [](rf_store_head *h) { h->kind = RF_STORE_PULL; });
    add("fields of another kind",
        [](rf_store_head *h) { *h = head_of(RF_STORE_SAVE), h->values = 1; });
    add("has version -1", [](rf_store_head *h) { *h = head_of(RF_STORE_PULL), h->version = -1; });
    add("has status -1", [](rf_store_head *h) { *h = head_of(RF_STORE_REST), h->status = -1; });
    add("of a shard of 100", [](rf_store_head *h) { h->values = 101, h->pieces = 1; });
    add("of a shard of 100", [](rf_store_head *h) { h->values = 1, h->pieces = 2; });
    add("of a shard of 100", [](rf_store_head *h) { h->values = 1; });
    add("of a shard of 100", [](rf_store_head *h) { h->values = UINT64_MAX, h->pieces = 1; });
    add("a rate of nan", [](rf_store_head *h) { h->lr = NAN; });
    add("a share of 0", [](rf_store_head *h) { h->share = 0; });
    add("a share of inf", [](rf_store_head *h) { h->share = INFINITY; });
    add("piece 0", sound, {rf_store_pack(99, 2)}, {1, 1});
    add("piece 0", sound, {rf_store_pack(100, 1)}, {1});
    add("piece 0", sound, {rf_store_pack(0, 0)}, {1});
    add("piece 0", sound, {UINT64_MAX}, {1});
    add("piece 1", sound, {rf_store_pack(5, 2), rf_store_pack(6, 2)}, {1, 1, 1, 1});
    add("have 2 values, and it says 3", sound, {rf_store_pack(5, 2)}, {1, 1, 1});
    add("value 1 is nan", sound, {rf_store_pack(5, 2)}, {1, NAN});
    return all;
}

TEST(StoreMessages, AServerNamesWhatIsWrongAndContinuesWithTheOthers)
{
    for (const Case &c : cases()) {
        ranks::World world;
        world.size = 3;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            rf_store_opts opts = {};
            opts.count = COUNT;
            rf_store *store = nullptr;
            ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
            rf_store_server_stats stats = {};
            const rf_store_keys all = rf_store_range(0, COUNT);
            Vector values(COUNT, 1);
            if (rank == 0) {
                /* The other worker's update is complete without this one. */
                (void)!rf_store_send(store, 0, &c.head, sizeof c.head);
                (void)!rf_store_send(store, 0, c.pieces.data(), 8 * c.pieces.size());
                (void)!rf_store_send(store, 0, c.values.data(), 4 * c.values.size());
                EXPECT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_EABORT);
                EXPECT_NE(strstr(rf_last_error()->message, c.says), nullptr)
                    << c.says << ": " << rf_last_error()->message;
                EXPECT_NE(strstr(rf_last_error()->message, "server 0 of the store, rank 2"),
                          nullptr);
            } else if (rank == 1) {
                ASSERT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_OK);
                ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(values, Vector(COUNT, -1));
            } else {
                EXPECT_EQ(rf_store_serve(store, &stats), RF_OK);
                EXPECT_EQ(stats.lost, 1) << c.says;
                EXPECT_EQ(stats.version, 1) << c.says;
            }
            rf_store_close(store);
        });
    }
}

TEST(StoreMessages, AWorkerNamesTheServerWhoseAnswerMakesNoSense)
{
    std::vector<rf_store_head> answers;
    answers.push_back(head_of(RF_STORE_VALUES)); /* of no values */
    answers.push_back(head_of(RF_STORE_DONE));
    answers.push_back(head_of(RF_STORE_PULL));
    answers.push_back(head_of(RF_STORE_VALUES));
    answers.back().values = COUNT;
    answers.back().number = 7;
    answers.push_back(head_of(RF_STORE_REFUSED)); /* with success */
    for (const rf_store_head &answer : answers) {
        ranks::World world;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            rf_store_opts opts = {};
            opts.count = COUNT;
            rf_store *store = nullptr;
            ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
            const rf_store_keys all = rf_store_range(0, COUNT);
            Vector values(COUNT, 1);
            rf_store_head head;
            uint64_t piece;
            if (rank == 0) {
                EXPECT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_ECORRUPT);
                EXPECT_NE(strstr(rf_last_error()->message, "server 0 of the store, rank 1"),
                          nullptr)
                    << rf_last_error()->message;
                EXPECT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_EABORT);
            } else {
                ASSERT_EQ(rf_store_receive(store, 0, &head, sizeof head), RF_OK);
                ASSERT_EQ(rf_store_receive(store, 0, &piece, sizeof piece), RF_OK);
                (void)!rf_store_send(store, 0, &answer, sizeof answer);
            }
            rf_store_close(store);
        });
    }
}

} // namespace
