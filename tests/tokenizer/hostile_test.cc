// SPDX-License-Identifier: MIT
//
// Files that are damaged, hostile, or of an unsupported kind give an error that names the field.
#include <gtest/gtest.h>
#include <ringforge/tokenizer.h>

#include <fstream>
#include <sstream>
#include <string>

extern "C" {
#include "base/base.h"
}
#include "train/folder.h"

namespace
{

const std::string model = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

struct Opened {
    Folder folder;
    rf_tokenizer *t = nullptr;
    int rc;
    std::string message;
    // more: the text of a second file.
    explicit Opened(const std::string &text, const std::string &name = "",
                    const std::string &more = "")
    {
        folder.write("tokenizer.json", text);
        if (!name.empty())
            folder.write(name, more);
        rc = rf_tokenizer_open(folder.path().c_str(), &t);
        message = rc < 0 ? rf_last_error()->message : "";
    }
    ~Opened()
    {
        rf_tokenizer_close(t);
    }
};

void refused(int status, const std::string &text, const std::string &field)
{
    Opened o(text);
    EXPECT_EQ(o.rc, status) << text.substr(0, 200) << ": " << o.message;
    EXPECT_NE(o.message.find(field), std::string::npos) << o.message;
}

} // namespace

TEST(TokenizerFile, TheSmallestIsAccepted)
{
    Opened o("{" + model + "}");
    ASSERT_EQ(o.rc, 0) << o.message;
    rf_token_list list = {};
    ASSERT_EQ(rf_tokenizer_encode(o.t, "abxb", 4, nullptr, &list), 0);
    ASSERT_EQ(list.count, 2u); // "x" has no token and is omitted
    EXPECT_EQ(list.ids[0], 2);
    EXPECT_EQ(list.ids[1], 1);
    rf_token_list_free(&list);
}

// The second text is found in the cache of words while the list has no memory yet (found by
// fuzzing).
TEST(TokenizerFile, ATextWithoutATokenGivesAnEmptyListTheSecondTimeToo)
{
    Opened o("{" + model + "}");
    ASSERT_EQ(o.rc, 0) << o.message;
    rf_token_list list = {};
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(rf_tokenizer_encode(o.t, "x", 1, nullptr, &list), 0);
        EXPECT_EQ(list.count, 0u);
    }
    rf_token_list_free(&list);
}

TEST(TokenizerFile, DamageIsNamed)
{
    refused(RF_ECORRUPT, "", "is not JSON");
    refused(RF_ECORRUPT, "{" + model, "is not JSON");
    refused(RF_ECORRUPT, std::string(100000, '['), "nested");
    refused(RF_ECORRUPT, "{\"a\":\"\xff\"}", "UTF-8");
    refused(RF_ECORRUPT, "[]", "object");
    refused(RF_ECORRUPT, "{}", "model");
    const std::string head = R"({"model":{"type":"BPE",)";
    refused(RF_ECORRUPT, head + R"("merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":-1},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":1000000000},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0.5},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0,"b":0},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0,"a":1},"merges":[]}})", "model.vocab");
    refused(RF_ECORRUPT, head + R"("vocab":{"\u0000":0},"merges":[]}})", "u0000");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0}}})", "model.merges");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0},"merges":["a a"]}})", "model.merges[0]");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0},"merges":[["a"]]}})", "model.merges[0]");
    refused(RF_ECORRUPT, head + R"("vocab":{"a":0},"unk_token":"u","merges":[]}})", "unk_token");
    refused(RF_ECORRUPT, "{" + model + R"(,"added_tokens":[{"id":0,"content":"x"}]})",
            "added_tokens[0]");
    refused(RF_ECORRUPT,
            "{" + model + R"(,"added_tokens":[{"id":3,"content":"x"},{"id":4,"content":"x"}]})",
            "added_tokens");
    refused(RF_ECORRUPT, "{" + model + R"(,"post_processor":{"type":"TemplateProcessing","single":[
        {"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[9]}}}})",
            "post_processor.special_tokens");
    refused(RF_ECORRUPT, "{" + model + R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},
        "behavior":"Isolated","invert":false}})",
            "pre_tokenizer");
}

TEST(TokenizerFile, WhatIsNotImplementedIsNamed)
{
    refused(RF_ENOTSUP, R"({"model":{"type":"Unigram"}})", "Unigram");
    refused(RF_ENOTSUP, R"({"model":{"dropout":0.1,"vocab":{"a":0},"merges":[]}})",
            "model.dropout");
    refused(RF_ENOTSUP, "{" + model + R"(,"normalizer":{"type":"Sequence","normalizers":[
        {"type":"NFC"},{"type":"BertNormalizer"}]}})",
            "normalizer[1]");
    refused(RF_ENOTSUP, "{" + model + R"(,"normalizer":{"type":"Replace","pattern":{"Regex":"\\w"},
        "content":""}})",
            "normalizer.pattern");
    refused(RF_ENOTSUP, "{" + model + R"(,"pre_tokenizer":{"type":"Whitespace"}})", "Whitespace");
    refused(RF_ENOTSUP, "{" + model + R"(,"post_processor":{"type":"BertProcessing"}})",
            "post_processor");
    refused(RF_ENOTSUP, "{" + model + R"(,"decoder":{"type":"CTC"}})", "decoder");
}

// The files beside tokenizer.json.
TEST(TokenizerFile, WhatContradictsItIsNamed)
{
    const std::string file =
        "{" + model +
        R"(,"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"<e>"}],
            "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}})";
    const char config[] = "tokenizer_config.json", map[] = "special_tokens_map.json",
               added[] = "added_tokens.json";
    const struct {
        const char *name, *text, *part;
    } cases[] = {
        {config, "[1]", "tokenizer_config.json"},
        {config, "{", "tokenizer_config.json"},
        {config, R"({"a_new_field": 1})", "a_new_field is 1"},
        {config, R"({"split_special_tokens": true})", "split_special_tokens is true"},
        {config, R"({"eos_token": 7})", "eos_token"},
        {config, R"({"image_token": 7})", "image_token"},
        {config, R"({"eos_token": ""})", "eos_token"},
        {config, R"({"extra_special_tokens": [7]})", "extra_special_tokens"},
        {config, R"({"extra_special_tokens": "x"})", "extra_special_tokens"},
        {config, R"({"additional_special_tokens": [{"lstrip": true}]})",
         "additional_special_tokens"},
        {config, R"({"pad_token": {"content": "<p>", "lstrip": 1}})", "pad_token.lstrip"},
        {config, R"({"added_tokens_decoder": [1]})", "added_tokens_decoder"},
        {config, R"({"added_tokens_decoder": {"x": {"content": "<p>"}}})", "added_tokens_decoder"},
        {config, R"({"added_tokens_decoder": {"5": {"content": "<p>", "a_new_field": 1}}})",
         "a_new_field"},
        {config, R"({"added_tokens_decoder": {"5": "<p>"}})", "added_tokens_decoder[5]"},
        {config, R"({"added_tokens_decoder": {"6": {"content": "<p>"}}})", "would get 5"},
        {config, R"({"added_tokens_decoder": {"4": {"content": "<s>"}}})", "tokenizer.json 3"},
        {config, R"({"added_tokens_decoder": {"1": {"content": "a"}}})", "would get 0"},
        {config, R"({"add_prefix_space": true})", "add_prefix_space is true"},
        {map, R"({"a_new_field": 1})", "a_new_field is 1"},
        {map, R"({"eos_token": [1]})", "eos_token"},
        {map, "7", "special_tokens_map.json"},
        {added, R"({"<s>": 4})", "tokenizer.json 3"},
        {added, R"({"<p>": 9})", "would get 5"},
        {added, R"({"<p>": -1})", "<p>"},
        {added, R"({"<p>": "5"})", "<p>"},
        {added, "[]", "added_tokens.json"},
    };
    for (const auto &c : cases) {
        Opened o(file, c.name, c.text);
        EXPECT_LT(o.rc, 0) << c.name << ": " << c.text;
        EXPECT_NE(o.message.find(c.part), std::string::npos) << c.text << ": " << o.message;
    }
    Opened o(file, config, R"({"added_tokens_decoder": {"3": {"content": "<s>", "special": true},
        "5": {"content": "<p>"}}, "sep_token": "<q>", "eos_token": "<e>", "pad_token": null,
        "add_prefix_space": false, "x_new_field": null})");
    ASSERT_EQ(o.rc, 0) << o.message;
    EXPECT_EQ(rf_tokenizer_id(o.t, "<p>"), 5);
    EXPECT_EQ(rf_tokenizer_id(o.t, "<q>"), 6);
    EXPECT_TRUE(rf_tokenizer_is_special(o.t, 6));
    EXPECT_EQ(rf_tokenizer_role(o.t, RF_TOKEN_END), 4);
    EXPECT_EQ(rf_tokenizer_vocabulary(o.t), 7);
}

TEST(TokenizerFile, AnExpressionThatNeverEndsIsStopped)
{
    Opened o("{" + model + R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+b|(a|a)*c"},
        "behavior":"Isolated","invert":false}})");
    ASSERT_EQ(o.rc, 0) << o.message;
    const std::string text(5000, 'a');
    rf_token_list list = {};
    EXPECT_EQ(rf_tokenizer_encode(o.t, text.data(), text.size(), nullptr, &list), RF_ENOTSUP);
    EXPECT_NE(std::string(rf_last_error()->message).find("pre_tokenizer.pattern"),
              std::string::npos);
    rf_token_list_free(&list);
}

TEST(TokenizerFile, EveryAllocationMayFail)
{
    std::ifstream file(std::string(RF_TOKENIZER_FOLDER) + "/bytes.json");
    std::stringstream text;
    text << file.rdbuf();
    Folder folder;
    folder.write("tokenizer.json", text.str());
    folder.write("tokenizer_config.json",
                 R"({"sep_token": "<q>", "extra_special_tokens": ["<r>"]})");
    folder.write("added_tokens.json", R"({"<new>": 422})");
    int failures = 0;
    for (int n = 1; n < 500; n++) {
        rf_tokenizer *t = nullptr;
        rf_token_list list = {};
        rf_alloc_fail_at(n);
        int rc = rf_tokenizer_open(folder.path().c_str(), &t);
        if (rc == 0)
            rc = rf_tokenizer_encode(t, "some text\xff", 10, nullptr, &list);
        rf_alloc_fail_at(0);
        rf_token_list_free(&list);
        rf_tokenizer_close(t);
        if (rc == 0)
            break;
        EXPECT_EQ(rc, RF_ENOMEM) << n;
        failures++;
    }
    EXPECT_GT(failures, 20);
}
