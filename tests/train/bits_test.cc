// SPDX-License-Identifier: MIT
//
// Recorded bits of training: SHA-256 of the parameters after a few steps, as of the last intended
// change. Drivers round differently, so each has its own rows in bits.txt; RF_KEEP_BITS=FILE
// appends those of this driver.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "world.h"

namespace
{

struct Case {
    const char *name;
    int ranks;
    std::function<void(Training &)> change;
};

void llama(Training &t)
{
    t.llama.layers = 2;
    t.llama.channels = 32;
    t.llama.heads = 4;
    t.llama.kv_heads = 2;
    t.llama.vocab = t.model.vocab;
}

const Case cases[] = {
    {"gpt2-tree-1", 1, [](Training &) {}},
    {"gpt2-tree-3-clip", 3,
     [](Training &t) {
         t.policy.clip = 0.25f;
         t.policy.first_bucket_bytes = 4096;
         t.policy.bucket_bytes = 16384;
     }},
    {"gpt2-ring-1", 1, [](Training &t) { t.policy.order = RF_ORDER_RING; }},
    {"gpt2-ring-2", 2, [](Training &t) { t.policy.order = RF_ORDER_RING; }},
    {"gpt2-ring-3-ignored", 3,
     [](Training &t) {
         t.policy.order = RF_ORDER_RING;
         t.ignored = 0.5;
     }},
    {"gpt2-rank0-2", 2,
     [](Training &t) {
         t.policy.order = RF_ORDER_RING;
         t.policy.update_on_rank_0 = true;
     }},
    {"gpt2-bf16-2", 2, [](Training &t) { t.model.dtype = t.model.residual = RF_BF16; }},
    {"gpt2-f16-scaled-2", 2,
     [](Training &t) {
         t.model.dtype = t.model.residual = RF_F16;
         t.policy.loss_scale = 64;
     }},
    {"gpt2-bf16-residual-f32-2", 2, [](Training &t) { t.model.dtype = RF_BF16; }},
    {"gpt2-f16-residual-f32-2", 2,
     [](Training &t) {
         t.model.dtype = RF_F16;
         t.policy.loss_scale = 64;
     }},
    {"gpt2-head-rows-1", 1, [](Training &t) { t.model.head_rows = 7; }},
    {"gpt2-lion-1", 1, [](Training &t) { t.policy.optimizer.kind = RF_LION; }},
    {"llama-tree-1", 1, llama},
    {"llama-bf16-residual-f32-1", 1,
     [](Training &t) {
         llama(t);
         t.llama.dtype = RF_BF16;
     }},
    {"llama-ring-2-clip", 2,
     [](Training &t) {
         llama(t);
         t.policy.order = RF_ORDER_RING;
         t.policy.clip = 0.25f;
     }},
};

std::string driver()
{
    const rf_device_info *info = rf_device_get_info(rank_device(0));
    std::string text = std::string(info->driver) + " / " + info->name;
    for (char &c : text)
        c = c == '\t' ? ' ' : c;
    return text;
}

// For one driver: SHA-256 by name of the case.
std::map<std::string, std::string> kept_of(const std::string &driver)
{
    std::map<std::string, std::string> kept;
    std::ifstream file(RF_REFERENCE_FOLDER "/bits.txt");
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string of, name, sha;
        if (std::getline(fields, of, '\t') && std::getline(fields, name, '\t') && fields >> sha &&
            of == driver)
            kept[name] = sha;
    }
    return kept;
}

} // namespace

TEST(Bits, OfTrainingAreThoseThatWereKept)
{
    const char *keep = getenv("RF_KEEP_BITS");
    auto kept = kept_of(driver());
    if (kept.empty() && !keep)
        GTEST_SKIP() << "no bits are kept for " << driver() << " (RF_KEEP_BITS=FILE writes them)";
    for (const Case &c : cases) {
        Training t;
        c.change(t);
        std::vector<Seen> seen = train(t, c.ranks);
        ASSERT_FALSE(seen[0].sha.empty()) << c.name;
        if (keep)
            std::ofstream(keep, std::ios::app)
                << driver() << "\t" << c.name << "\t" << seen[0].sha << "\n";
        else
            EXPECT_EQ(seen[0].sha, kept[c.name]) << c.name;
    }
}
