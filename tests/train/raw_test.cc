// SPDX-License-Identifier: MIT
//
// Frozen parameters of u8: their bytes are stored, gathered, moved and saved unchanged, for any bit
// patterns, and take their size in memory.
#include <algorithm>
#include <array>
#include <cstring>

#include "folder.h"
#include "world.h"

namespace
{

using Words = std::vector<uint32_t>;

const char *const names[] = {"blocks.0.packed", "blocks.1.packed"};
const int64_t word_count = 1237; // odd, so that shards differ in length

// Includes NaNs, infinities, subnormals and a negative zero.
Words bits(uint32_t seed)
{
    static const uint32_t special[] = {0x7f800001, 0xffc12345, 0x80000000, 1, 0x7f800000};
    Words all(word_count);
    for (uint32_t i = 0; i < all.size(); i++)
        all[i] = i % 3 ? (i + seed) * 2654435769u : special[i / 3 % 5];
    return all;
}

// Layers with such a parameter after their own ones, which they do not read.
struct Packed {
    Training t;
    std::array<std::vector<rf_param_desc>, 2 * 8> lists; // for each of up to eight ranks
    Packed(rf_dtype dtype, const Sharding &s)
    {
        t.model.dtype = dtype;
        t.freeze = {"blocks.0.*"};
        t.policy.batch = 4;
        t.policy.micro_batches = 4;
        t.policy.zero = s.zero;
        t.policy.order = s.order;
        t.policy.offload = s.offload;
        t.shard = s.shard;
        t.steps = 2;
        t.edit_blocks = [this](std::vector<rf_block> &blocks, int rank) {
            for (size_t layer = 0; layer < 2; layer++) {
                rf_block &block = blocks[1 + layer];
                auto &list = lists[2 * (size_t)rank + layer];
                list.assign(block.params, block.params + block.param_count);
                rf_param_desc desc = {};
                desc.name = names[layer];
                desc.shape = rf_shape1(4 * word_count);
                desc.dtype = RF_U8;
                desc.flags = RF_PARAM_FROZEN;
                list.push_back(desc);
                block.params = list.data();
                block.param_count = (int)list.size();
            }
        };
    }
    // A collective: every rank must call it.
    static void write(rf_run *run)
    {
        for (uint32_t k = 0; k < 2; k++) {
            Words all = bits(k);
            ASSERT_RF(rf_run_write_param(run, names[k], all.data(), 4 * all.size()));
        }
    }
    static void expect(rf_run *run, const std::string &where)
    {
        for (uint32_t k = 0; k < 2; k++) {
            Words all(word_count);
            ASSERT_RF(rf_run_read_param(run, names[k], all.data(), 4 * all.size()));
            EXPECT_EQ(all, bits(k)) << where;
        }
    }
};

TEST(Raw, BytesStayTheSameOnAnyMeshAndInMemoryOfTheHost)
{
    std::string one;
    for (const Sharding &s : all_shardings()) {
        const std::string where = s.text();
        Packed p(RF_BF16, s);
        p.t.before = [](rf_run *run, rf_comm *, int) { Packed::write(run); };
        p.t.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {};
            Packed::expect(run, where);
            EXPECT_RF(rf_run_audit(run, &progress)) << where;
        };
        for (const Seen &seen : train(p.t, 2)) {
            expect_planned(seen, where);
            if (s.order == RF_ORDER_TREE) {
                one = one.empty() ? seen.sha : one;
                EXPECT_EQ(seen.sha, one) << where;
            }
        }
    }
}

TEST(Raw, BytesAreCountedOnce)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        Packed p(dtype, {0, RF_ORDER_TREE});
        p.t.before = [](rf_run *run, rf_comm *, int) { Packed::write(run); };
        p.t.after = [&](rf_run *run, rf_comm *, int) { Packed::expect(run, "one rank"); };
        Training plain = p.t;
        plain.edit_blocks = nullptr;
        plain.before = plain.after = nullptr;
        const Seen with = train(p.t, 1)[0], without = train(plain, 1)[0];
        expect_planned(with, "one rank");
        /* Each is padded to 256 bytes. */
        EXPECT_EQ(with.planned.params, without.planned.params + 2 * 20 * 256);
    }
}

TEST(Raw, PipelinesHaveTheBytes)
{
    Packed p(RF_BF16, {0, RF_ORDER_TREE});
    p.t.pp = 2;
    p.t.before = [](rf_run *run, rf_comm *, int) { Packed::write(run); };
    p.t.after = [](rf_run *run, rf_comm *, int) { Packed::expect(run, "pp=2"); };
    for (const Seen &seen : train(p.t, 2))
        expect_planned(seen, "pp=2");
}

TEST(Raw, CheckpointsHaveThemAsU8)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        Folder folder;
        Packed p(dtype, {3, RF_ORDER_TREE});
        p.t.before = [](rf_run *run, rf_comm *, int) { Packed::write(run); };
        p.t.after = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {};
            EXPECT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        const std::string sha = train(p.t, 2)[0].sha;
        Packed q(dtype, {0, RF_ORDER_TREE});
        q.t.steps = 0;
        q.t.before = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {};
            EXPECT_RF(rf_run_load(run, folder.path().c_str(), &progress));
            Packed::expect(run, "loaded");
        };
        EXPECT_EQ(train(q.t, 1)[0].sha, sha);
        bool found = false;
        for (const auto &entry : std::filesystem::recursive_directory_iterator(folder.path()))
            if (entry.path().extension() == ".safetensors") {
                std::ifstream file(entry.path(), std::ios::binary);
                const std::string all((std::istreambuf_iterator<char>(file)), {});
                const size_t at = all.find("\"blocks.1.packed\"");
                found = found || (at != std::string::npos &&
                                  all.substr(at, 80).find("\"U8\"") != std::string::npos);
            }
        EXPECT_TRUE(found);
    }
}

TEST(Raw, ASourceGivesBytes)
{
    Packed p(RF_BF16, {3, RF_ORDER_TREE});
    p.t.steps = 1;
    p.t.before = [](rf_run *run, rf_comm *, int) {
        rf_param_source source = {};
        source.read = [](void *, const char *name, uint64_t first, uint64_t count, void *out) {
            const bool raw = std::string(name).find("packed") != std::string::npos;
            const Words all = bits(std::string(name) == names[1]);
            if (raw)
                memcpy(out, (const char *)all.data() + first, count);
            else
                std::fill_n((float *)out, count, 0.5f);
            return 0;
        };
        EXPECT_RF(rf_run_fill(run, &source));
    };
    p.t.after = [](rf_run *run, rf_comm *, int) { Packed::expect(run, "filled"); };
    train(p.t, 2);
}

} // namespace
