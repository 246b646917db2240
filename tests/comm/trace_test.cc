/* SPDX-License-Identifier: MIT
 *
 * The trace of all ranks, as JSON for trace viewers: over threads, which share a store, and over
 * processes, which do not.
 */
#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "support/ranks.h"

namespace
{

/* Events called `name`, by rank. */
std::map<int, int> count_events(const std::string &path, const char *name, const char *track)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    std::map<int, int> counts;
    cJSON *root = cJSON_Parse(text.str().c_str());
    EXPECT_NE(root, nullptr) << "not JSON: " << text.str().substr(0, 300);
    const cJSON *event = nullptr;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents"))
    {
        const char *phase = cJSON_GetStringValue(cJSON_GetObjectItem(event, "ph"));
        const char *is = cJSON_GetStringValue(cJSON_GetObjectItem(event, "name"));
        if (!phase || strcmp(phase, "X") != 0 || strcmp(is, name) != 0)
            continue;
        EXPECT_STREQ(cJSON_GetStringValue(cJSON_GetObjectItem(event, "cat")), track);
        EXPECT_GE(cJSON_GetNumberValue(cJSON_GetObjectItem(event, "dur")), 0);
        counts[static_cast<int>(cJSON_GetNumberValue(cJSON_GetObjectItem(event, "pid")))]++;
    }
    cJSON_Delete(root);
    return counts;
}

class Trace : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Trace, HoldsTheEventsOfEveryRankOnce)
{
    std::string path = testing::TempDir() + "/ringforge-trace-" + ranks::name(GetParam()) + ".json";
    ranks::run(GetParam(), [&](rf_comm *comm, int rank) {
        rf_trace_start();
        std::vector<float> data(1024, 1);
        for (int i = 0; i < 4; i++)
            ASSERT_EQ(rf_all_reduce(comm, data.data(), data.data(), 1024, RF_F32, RF_MAX, nullptr),
                      RF_OK);
        std::string own = "a \"quoted\\\" name\n";
        for (int i = 0; i <= rank; i++)
            rf_trace_event("mine", own.c_str(), rf_now_ns(), rf_now_ns());
        ASSERT_EQ(rf_trace_write(path.c_str(), comm), RF_OK) << rf_last_error()->message;
    });
    std::map<int, int> reduces = count_events(path, "all_reduce 4.0 KiB", "comm");
    std::map<int, int> mine = count_events(path, "a \"quoted\\\" name\n", "mine");
    for (int rank = 0; rank < GetParam().size; rank++) {
        EXPECT_EQ(reduces[rank], 4) << rank;
        EXPECT_EQ(mine[rank], rank + 1) << rank;
    }
    remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Processes, Trace, testing::ValuesIn(ranks::worlds({}, {3})),
                         [](const auto &info) { return ranks::name(info.param); });
/* Last: threads leave their events in this process, from which the other worlds are forked. */
INSTANTIATE_TEST_SUITE_P(Threads, Trace, testing::ValuesIn(ranks::worlds({3}, {})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(TraceFile, SaysWhereItCannotBeWritten)
{
    EXPECT_EQ(rf_trace_write("/nowhere/trace.json", nullptr), RF_EIO);
    EXPECT_NE(strstr(rf_last_error()->message, "/nowhere/trace.json"), nullptr);
    EXPECT_EQ(rf_trace_write(nullptr, nullptr), RF_EINVAL);
}

} // namespace
