// SPDX-License-Identifier: MIT
//
// Chat templates: texts equal those of Jinja2 (templates.txt, by make_templates.py), unsupported
// constructs are refused by name, and hostile templates terminate.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "base/base.h"
#include "template/json.h"
#include "template/template.h"
}

namespace
{

// A JSON value and its memory.
struct Json {
    std::string text;
    rf_room room = {};
    rf_value value = {};
    int rc;
    explicit Json(const std::string &from) : text(from)
    {
        size_t at = 0;
        rf_room_init(&room, "x", nullptr);
        rc = rf_json_read(&room, text.data(), text.size(), &at, &value);
        rc = rc == 0 && at < text.size() ? 1 : rc;
    }
    ~Json()
    {
        rf_room_free(&room);
    }
    std::string of(const char *key)
    {
        const rf_string *found = rf_dict_get(value.dict, key)->value.string;
        return {found->bytes, found->count};
    }
};

// A template, opened and rendered.
struct Rendered {
    rf_template *t = nullptr;
    rf_rendered out = {};
    int opened, rc;
    std::string text, spans, message;
    Rendered(const std::string &from, rf_dict *variables, rf_template_limits limits = {},
             int64_t now = 0)
    {
        opened = rc = rf_template_open("T", from.data(), from.size(), &limits, &t);
        if (opened == 0)
            rc = rf_template_render(t, variables, now, &out);
        if (rc < 0) {
            message = rf_last_error()->message;
            return;
        }
        text.assign(out.text.bytes, out.text.count);
        for (size_t i = 0; i < out.marked_count; i++)
            spans += (i ? " " : "") + std::to_string(out.marked[i].begin) + " " +
                     std::to_string(out.marked[i].end);
    }
    ~Rendered()
    {
        rf_template_close(t);
        rf_rendered_free(&out);
    }
};

} // namespace

TEST(Template, TextsAndSpansAreThoseOfJinja2)
{
    std::ifstream file(RF_TOKENIZER_FOLDER "/templates.txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);)
        lines.push_back(line);
    ASSERT_EQ(lines.size(), 508u);
    Json data(lines.back());
    ASSERT_EQ(data.rc, 0);
    for (size_t i = 0; i + 3 < lines.size(); i += 3) {
        Json given(lines[i]);
        const std::string text = given.of("template");
        const Rendered got(text, data.value.dict);
        if (lines[i + 1] == "error") {
            EXPECT_LT(got.rc, 0) << text << " gives " << got.text;
            EXPECT_EQ(got.message.rfind("T: line ", 0), 0u) << got.message;
            continue;
        }
        Json want("{\"a\": " + lines[i + 1] + "}");
        ASSERT_EQ(want.rc, 0);
        EXPECT_EQ(got.rc, 0) << text << ": " << got.message;
        EXPECT_EQ(got.text, want.of("a")) << text;
        EXPECT_EQ(got.spans, lines[i + 2]) << text;
    }
}

TEST(Template, WhatIsNotImplementedIsRefusedByNameWhenItIsOpened)
{
    const std::vector<std::pair<std::string, std::string>> all = {
        {"{% include 'a' %}", "the statement \"include\""},
        {"{% extends 'a' %}", "the statement \"extends\""},
        {"{% import 'a' as b %}", "the statement \"import\""},
        {"{% from 'a' import b %}", "the statement \"from\""},
        {"{% block a %}{% endblock %}", "the statement \"block\""},
        {"{% autoescape true %}{% endautoescape %}", "the statement \"autoescape\""},
        {"{% with %}{% endwith %}", "the statement \"with\""},
        {"{% for x in y recursive %}{% endfor %}", "recursive loops"},
        {"{% for x in y %}{% else %}{% endfor %}", "\"else\" of a loop"},
        {"a\n\n{{ x | urlize }}", "line 3: the filter \"urlize\""},
        {"{{ x | random }}", "the filter \"random\""},
        {"{{ x | map('pprint') }}", "the filter \"pprint\""},
        {"{{ x is callable }}", "the test \"callable\""},
        {"{{ x | select('filter') }}", "the test \"filter\""},
        {"{{ lipsum() }}", "the function \"lipsum\""},
        {"{{ cycler(1) }}", "the function \"cycler\""},
        {"{{ x.encode() }}", "the method \"encode\""},
        {"{{ x.zfill(3) }}", "the method \"zfill\""},
        {"{% for x in y %}{{ loop.cycle(1) }}{% endfor %}", "loop.cycle"},
        {"{{ 2 ** 3 }}", "the operator **"},
        {"{{ 2 / 3 }}", "the operator /"},
        {"{{ 1.5 }}", "numbers with a fraction"},
        {"{{ 0x10 }}", "a base other than ten"},
        {"{{ 9223372036854775808 }}", "more than 64 bits"},
        {"{{ 1 < x < 3 }}", "comparisons in a row"},
        {"{{ \xc3\xa9 }}", "names beyond ASCII"},
        {"{{ '\\N{DASH}' }}", "is not implemented"},
    };
    Json none("{}");
    for (const auto &[text, words] : all) {
        const Rendered got(text, none.value.dict);
        EXPECT_EQ(got.opened, RF_ENOTSUP) << text << ": " << got.message;
        EXPECT_NE(got.message.find(words), std::string::npos) << got.message;
    }
    // Invalid templates.
    for (const char *text :
         {"{{", "{% if x %}", "{% endif %}", "{{ x | nosuch }}", "{{ x is nosuch }}", "{{ (1 }}",
          "{{ 'a }}", "{# a", "{{ a b }}", "{% for x %}{% endfor %}", "{% set 1 = 2 %}",
          "{{ \xff }}", "{% macro m(a, a) %}{% endmacro %}", "{% break %}", "{{ x. }}"}) {
        const Rendered got(text, none.value.dict);
        EXPECT_EQ(got.opened, RF_ECORRUPT) << text << ": " << got.message;
    }
}

TEST(Template, WhatValuesShowToBeMissingIsRefusedWhenItIsReached)
{
    Json data("{\"s\": \"\\u0130\", \"list\": [1], \"n\": 9223372036854775807, \"t\": \"a\"}");
    ASSERT_EQ(data.rc, 0);
    const std::vector<std::pair<std::string, std::string>> all = {
        {"{{ s | lower }}", "U+0130"},
        {"{{ n + 1 }}", "more than 64 bits"},
        {"{{ '%s' % t }}", "% of a text"},
        {"{{ strftime_now('%c') }}", "strftime_now: %c"},
        {"{{ t | int(0, 16) }}", "bases"},
        // Jinja2 would write the word "missing", its mark for a variable without a value.
        {"{% set ns = namespace() %}{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}"
         "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
         "\"i\" has lost its loop"},
        {"{{ t.__class__ }}x{{ t.__class__.__mro__ }}", "is not for templates"},
    };
    for (const auto &[text, words] : all) {
        const Rendered quiet("{% if false %}" + text + "{% endif %}", data.value.dict);
        EXPECT_EQ(quiet.rc, 0) << quiet.message;
        const Rendered got(text, data.value.dict);
        EXPECT_LT(got.rc, 0) << text;
        EXPECT_EQ(got.opened, 0) << got.message;
        EXPECT_NE(got.message.find(words), std::string::npos) << got.message;
    }
}

TEST(Template, HostileOnesReachALimitOfStepsDepthOrMemory)
{
    Json data("{\"deep\": " + std::string(90, '[') + std::string(90, ']') + "}");
    ASSERT_EQ(data.rc, 0);
    const std::string loop = "{% for a in range(99999) %}";
    std::string minus(60000, '-'), chain, nest, ends;
    for (int i = 0; i < 5000; i++) {
        chain += ".a";
        nest += "{% if 1 %}";
        ends += "{% endif %}";
    }
    const std::vector<std::pair<std::string, std::string>> all = {
        {loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}", "too many steps"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
        {"{{ 'abcd' * 999999999999 }}", "steps"},
        {"{{ [1] * 999999999999 }}", "memory"},
        {"{% set ns = namespace(s='ab') %}" + loop + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "memory"},
        {"{% set ns = namespace(s=[1]) %}" + loop +
             "{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
             "{{ ns.s }}",
         "deep"},
        {"{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "deep"},
        {"{{ " + minus + "1 }}", "deep"},
        {"{{ x is defined and x" + chain + " }}", "deep"},
        {nest + ends, "deep"},
        {"{{ 'x'.ljust(999999999999) if 0 else 'x' | center(999999999999) }}", "not implemented"},
        {"{{ 'x' | indent(999999999999) }}\n{{ 'a\nb' | indent(999999999999) }}", "steps"},
        {"{{ ['x'] | tojson(indent=999999999999) }}", "steps"},
    };
    for (const auto &[text, words] : all) {
        const Rendered got(text, data.value.dict, {64 << 20, 3000000});
        EXPECT_EQ(got.rc, RF_ENOTSUP) << text.substr(0, 80) << ": " << got.message;
        EXPECT_NE(got.message.find(words), std::string::npos)
            << text.substr(0, 80) << ": " << got.message;
    }
    EXPECT_EQ(Rendered("{{ deep | tojson }}", data.value.dict).text.size(), 180u);
    EXPECT_EQ(Json(std::string(100000, '[')).rc, RF_ENOTSUP);
}

TEST(Template, EachAllocationMayFail)
{
    Json data("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"t\": {\"k\": 1.5}}");
    const std::string text =
        "{% macro m(x, y='b') %}{{ x ~ y }}{% endmacro %}{% for i in messages %}"
        "{% generation %}{{ m(i.content) | upper }}{% endgeneration %}{{ t | tojson(indent=2) }}"
        "{% endfor %}" +
        std::string(70000, 'x');
    const Rendered want(text, data.value.dict);
    ASSERT_EQ(want.rc, 0) << want.message;
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        rf_alloc_fail_at(nth);
        const Rendered got(text, data.value.dict);
        rf_alloc_fail_at(0);
        failed = got.rc < 0;
        EXPECT_EQ(got.rc, failed ? RF_ENOMEM : 0) << got.message;
        ASSERT_LT(nth, 1000u);
    }
}

TEST(Template, TheTimeIsTheOneThatIsGiven)
{
    Json none("{}");
    const std::string text = "{{ strftime_now('%d %b %Y, %A %B %m %y %j') }}";
    EXPECT_EQ(Rendered(text, none.value.dict, {}, 1721995200).text, // noon in Greenwich
              "26 Jul 2024, Friday July 07 24 208");
}

TEST(Template, JsonIsReadAsPythonReadsIt)
{
    Json numbers("{\"a\": [1, 1.0, -0, -0.0, 1e2, 12345678901234567, 0.1, true, null]}");
    ASSERT_EQ(numbers.rc, 0);
    EXPECT_EQ(Rendered("{{ a }}", numbers.value.dict).text,
              "[1, 1.0, 0, -0.0, 100.0, 12345678901234567, 0.1, True, None]");
    Json zeros(std::string("{\"a\": \"\\u0000\\ud83d\\ude00\\/\"}"));
    EXPECT_EQ(Rendered("{{ a }}", zeros.value.dict).text, std::string("\0\xf0\x9f\x98\x80/", 6));
    for (const char *text :
         {"", "{", "[1,]", "{\"a\" 1}", "{\"a\": 1, \"a\": 2}", "\"\\ud83d\"", "\"\\x\"", "\"\n\"",
          "01", "1.", "nul", "{1: 2}", "99999999999999999999", "'a'", "\"a"})
        EXPECT_NE(Json(text).rc, 0) << text;
}
