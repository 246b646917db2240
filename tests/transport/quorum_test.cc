// SPDX-License-Identifier: MIT
//
// Of ranks that have lost contact with each other, at most one part may continue, whatever the
// parts know about who has ended.
#include <gtest/gtest.h>

extern "C" {
#include "transport/control/quorum.h"
}

namespace
{

bool has(int here, int gone, int size)
{
    bool h[8], g[8];
    for (int r = 0; r < size; r++) {
        h[r] = here >> r & 1;
        g[r] = gone >> r & 1;
    }
    return rf_quorum_has(h, g, size);
}

} // namespace

TEST(Quorum, NoTwoPartsHaveItWhateverTheyKnowOfTheDead)
{
    for (int size = 1; size <= 6; size++)
        for (int alive = 1; alive < 1 << size; alive++) {
            const int dead = ((1 << size) - 1) & ~alive;
            for (int part = alive; part > 0; part = (part - 1) & alive) {
                const int other = alive & ~part;
                bool some = false, others = false;
                /* All subsets of the dead. */
                for (int known = dead;; known = (known - 1) & dead) {
                    some = some || has(part, known, size);
                    others = others || (other && has(other, known, size));
                    if (known == 0)
                        break;
                }
                EXPECT_FALSE(some && others) << size << ": " << part << " and " << other;
                /* A part that knows of all deaths continues, unless the others could. */
                EXPECT_TRUE(has(part, dead, size) || (other && has(other, dead, size)));
            }
        }
}

TEST(Quorum, IsMoreThanHalfOrHalfWithTheLowest)
{
    EXPECT_TRUE(has(0b011, 0, 3));
    EXPECT_FALSE(has(0b001, 0, 3));
    EXPECT_TRUE(has(0b0011, 0, 4));
    EXPECT_FALSE(has(0b1100, 0, 4));
    EXPECT_TRUE(has(0b1100, 0b0001, 4)); /* three may run, two of them are here */
    EXPECT_TRUE(has(0b1000, 0b0111, 4));
    EXPECT_FALSE(has(0b1000, 0b0101, 4));
}
