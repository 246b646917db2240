/* SPDX-License-Identifier: MIT
 *
 * The table of a command's options, as COMMAND --options prints it.
 */
#ifndef RF_TESTS_OPTION_TABLE_H
#define RF_TESTS_OPTION_TABLE_H

#include <cjson/cJSON.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"

struct OptionRow {
    std::string name, letter, group, help, kind, needs, path, ranks, why;
    double least = 0, most = INFINITY;
    bool kept = false;
};

inline std::string text_of(const cJSON *row, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(row, name));
    return text ? text : "";
}

inline std::vector<OptionRow> options_of(const std::string &command)
{
    std::vector<OptionRow> rows;
    const ProgramResult r = run_program({command, "--options"});
    EXPECT_EQ(r.status, 0) << r.err;
    cJSON *json = cJSON_Parse(r.out.c_str());
    const cJSON *each;
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(json, "options"))
    {
        OptionRow row;
        row.name = text_of(each, "name");
        row.letter = text_of(each, "letter");
        row.group = text_of(each, "group");
        row.help = text_of(each, "help");
        row.kind = text_of(each, "kind");
        row.needs = text_of(each, "needs");
        row.path = text_of(each, "path");
        row.ranks = text_of(each, "ranks");
        row.why = text_of(each, "why");
        row.kept = cJSON_IsTrue(cJSON_GetObjectItem(each, "kept"));
        if (const cJSON *least = cJSON_GetObjectItem(each, "least"))
            row.least = least->valuedouble;
        if (const cJSON *most = cJSON_GetObjectItem(each, "most"))
            row.most = most->valuedouble;
        rows.push_back(row);
    }
    cJSON_Delete(json);
    EXPECT_FALSE(rows.empty()) << command;
    return rows;
}

inline const std::vector<std::string> &all_commands()
{
    static const std::vector<std::string> names = {"info",     "run",   "bench",    "plan",
                                                   "train",    "tune",  "schedule", "flight",
                                                   "tokenize", "merge", "generate", "coordinate"};
    return names;
}

#endif
