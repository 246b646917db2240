// SPDX-License-Identifier: MIT
//
// The config that blocks declare: given once, compared by name.
#include <gtest/gtest.h>
#include <string>
#include <vector>

extern "C" {
#include "base/base.h"
#include "train/run.h"
}

namespace
{

int merge(const std::vector<const char *> &configs, std::string *out)
{
    std::vector<rf_block> blocks;
    for (const char *config : configs) {
        rf_block block = {};
        block.name = "some block";
        block.config = config;
        blocks.push_back(block);
    }
    char *text = nullptr;
    const int rc = rf_config_merge(blocks.data(), (int)blocks.size(), &text);
    *out = text ? text : "";
    rf_free(text);
    return rc;
}

} // namespace

TEST(Config, WhatBlocksSayAlikeIsSaidOnceAndOtherValuesAreJoined)
{
    const struct {
        std::vector<const char *> configs;
        std::string want;
    } cases[] = {
        {{nullptr, nullptr}, ""},
        {{"heads=4 eps=1e-05", "heads=4 eps=1e-05"}, "heads=4 eps=1e-05"},
        {{"a=1", nullptr, " b=x=y  a=1 "}, "a=1 b=x=y"},
        {{"a=1 b=2", "a=3", "a=3", "a=1"}, "a=1,3,1 b=2"},
        {{"a=1", "aa=2", "a=1"}, "a=1 aa=2"},
    };
    for (const auto &c : cases) {
        std::string text;
        EXPECT_EQ(merge(c.configs, &text), 0);
        EXPECT_EQ(text, c.want);
    }
}

TEST(Config, WhatIsNoListOfSettingsIsRefusedByTheBlocksName)
{
    const std::string longest(20000, 'x'), long_value = "a=" + longest;
    for (const char *bad : {"heads", "=4", "heads=", "a=1 b", "a=\t1", "a=\"1\"", "a=\\",
                            "a=\xc3\xa4", long_value.c_str()}) {
        std::string text;
        EXPECT_EQ(merge({"a=1", bad}, &text), RF_EINVAL) << bad;
        EXPECT_NE(std::string(rf_last_error()->message).find("some block"), std::string::npos)
            << rf_last_error()->message;
    }
}

TEST(Config, DifferencesAreNamedInBothDirectionsAndOrderIsNone)
{
    const struct {
        const char *theirs, *ours, *want;
    } cases[] = {
        {"", "", ""},
        {"a=1 b=2", "b=2 a=1", ""},
        {"heads=4 eps=1", "heads=8 eps=1", "heads: 4 in the checkpoint, 8 here"},
        {"a=1 b=2", "a=12 c=3",
         "a: 1 in the checkpoint, 12 here; b: 2 in the checkpoint, none here; c: none in the "
         "checkpoint, 3 here"},
        {"", "a=1", "a: none in the checkpoint, 1 here"},
    };
    for (const auto &c : cases) {
        char text[256];
        EXPECT_EQ(rf_config_differs(c.theirs, c.ours, text, sizeof(text)), *c.want != 0);
        EXPECT_STREQ(text, c.want);
    }
    char small[20];
    EXPECT_TRUE(rf_config_differs("a=1 b=2 c=3", "", small, sizeof(small)));
    EXPECT_EQ(strlen(small), sizeof(small) - 1);
}
