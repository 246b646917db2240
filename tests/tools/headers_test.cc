/* SPDX-License-Identifier: MIT
 *
 * The public headers compile as C++, and the library defines everything they declare.
 */
#include <gtest/gtest.h>
#include <ringforge/data.h>
#include <ringforge/ringforge.h>

TEST(PublicHeaders, AreCxxAndAgreeWithTheLibraryAboutTheVersion)
{
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", RF_VERSION_MAJOR, RF_VERSION_MINOR, RF_VERSION_PATCH);
    EXPECT_STREQ(text, rf_version());
}
