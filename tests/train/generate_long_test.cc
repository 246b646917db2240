// SPDX-License-Identifier: MIT
//
// A long text: generating it does not use more and more memory.
#include "generate_model.h"

extern "C" {
#include "base/base.h"
}

namespace
{
using namespace generation;

const int64_t NEW = 1000, LENGTH = 1100, PROMPT = 5;

/* Allocations up to a token of a text. */
struct Counts {
    int tokens = 0;
    std::vector<uint64_t> host;          /* calls of the library for host memory since the last */
    std::vector<rf_memory_stats> device; /* so far */
};

bool see(void *user, int64_t, int32_t, float)
{
    Counts *seen = static_cast<Counts *>(user);
    rf_memory_stats now = {};
    rf_device_memory(rank_device(0), &now);
    seen->host[seen->tokens] = rf_alloc_fail_at(0);
    seen->device[seen->tokens++] = now;
    return false;
}
} // namespace

/* The first call of one row compiles its kernels, and the second one's commands are recorded. Every
 * 512 positions the commands change, and a recording of the same size replaces the previous one. No
 * other token allocates. */
TEST(GenerateLong, NothingIsAllocatedForAThousandTokensButTheCommandsThatAreReplayed)
{
    for (bool sampled : {false, true}) {
        const Model m(!sampled, RF_F16, 1, LENGTH, RF_F16);
        const Generator g(m, 1, LENGTH);
        Counts seen;
        seen.host.resize(NEW);
        seen.device.resize(NEW);
        rf_sampling s = {};
        s.max_new = NEW;
        s.temperature = sampled ? 0.9f : 0;
        s.top_k = 20;
        s.top_p = 0.9f;
        s.repetition_penalty = 1.1f;
        s.token = see;
        s.user = &seen;
        const Text text = generate(g.g, {tokens(PROMPT, 1)}, s)[0];
        ASSERT_EQ(text.ids.size(), (size_t)NEW);
        ASSERT_EQ(seen.tokens, NEW);
        for (int64_t i = 1; i < NEW; i++) {
            const bool again = i == 512 + 2 - PROMPT;
            if (i > 2) {
                EXPECT_EQ(seen.host[i], again ? seen.host[2] : 0) << "token " << i;
            }
            ASSERT_EQ(seen.device[i].allocations, seen.device[0].allocations) << "token " << i;
        }
    }
}
