/* SPDX-License-Identifier: MIT
 *
 * Whether a picture drawn by the program is well-formed XML. Used by the tests of pictures.
 */
#ifndef RF_TESTS_TOOLS_SVG_H
#define RF_TESTS_TOOLS_SVG_H

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

// Whether tags are balanced, attributes quoted and entities known; returns the tags in their order.
inline bool well_formed(const std::string &text, std::vector<std::string> &tags)
{
    std::vector<std::string> open;
    for (size_t at = 0; at < text.size();) {
        if (text[at] == '&') {
            const size_t end = text.find(';', at);
            const std::string name = text.substr(at, end - at + 1);
            if (name != "&lt;" && name != "&gt;" && name != "&amp;")
                return false;
            at = end + 1;
        } else if (text[at] != '<') {
            if (text[at++] == '>')
                return false;
        } else {
            const size_t end = text.find('>', at);
            if (end == std::string::npos)
                return false;
            const std::string tag = text.substr(at + 1, end - at - 1);
            const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
            if (std::count(tag.begin(), tag.end(), '"') % 2 || tag.find('<') != std::string::npos)
                return false;
            at = end + 1;
            if (tag[0] == '/') {
                if (open.empty() || "/" + open.back() != tag)
                    return false;
                open.pop_back();
                continue;
            }
            tags.push_back(name);
            if (tag.back() != '/')
                open.push_back(name);
        }
    }
    return open.empty() && !tags.empty();
}

inline std::vector<std::string> tags_of(const std::string &svg)
{
    std::vector<std::string> tags;
    EXPECT_TRUE(well_formed(svg, tags)) << svg;
    return tags;
}

#endif
