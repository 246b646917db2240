/* SPDX-License-Identifier: MIT
 *
 * Options of a small training, and readers of its log: for the tests of `ringforge train`.
 */
#ifndef RF_TESTS_TRAIN_PROGRAM_H
#define RF_TESTS_TRAIN_PROGRAM_H

#include <cmath>

#include "program.h"

inline std::vector<std::string> tiny(const std::string &data)
{
    return {"train", "--data",          data, "--layers", "1",   "--channels",
            "32",    "--heads",         "2",  "--seq",    "16",  "--batch",
            "4",     "--micro-batches", "4",  "--order",  "tree"};
}

inline std::vector<std::string> with(std::vector<std::string> words,
                                     const std::vector<std::string> &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/* The value of a text member in the last line that has it. */
inline std::string last_text(const std::string &log, const std::string &key)
{
    size_t at = log.rfind("\"" + key + "\":\"");
    if (at == std::string::npos)
        return "";
    at += key.size() + 4;
    return log.substr(at, log.find('"', at) - at);
}

/* The value of a number in the last line that has it. */
inline double last_number(const std::string &log, const std::string &key)
{
    const size_t at = log.rfind("\"" + key + "\":");
    return at == std::string::npos ? NAN : std::stod(log.substr(at + key.size() + 3));
}

#endif
