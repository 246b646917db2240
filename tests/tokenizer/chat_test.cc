// SPDX-License-Identifier: MIT
//
// Documents for fine-tuning: conversations as transformers' templates write them (chats.txt, by
// make_chats.py), prompts and completions, rows of a batch, and damaged lines.
#include <gtest/gtest.h>
#include <ringforge/data.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "train/folder.h"

namespace
{

using Ids = std::vector<int32_t>;

// A tokenizer of this folder with more special tokens.
struct Tokens {
    Folder folder;
    rf_tokenizer *t = nullptr;
    Tokens(const std::string &base, const std::vector<std::string> &special)
    {
        std::ifstream file(RF_TOKENIZER_FOLDER "/" + (base == "first" ? "fallback" : base) +
                           ".json");
        std::string json{std::istreambuf_iterator<char>(file), {}};
        if (base == "first") { // a space before the beginning of the text alone
            const size_t begin = json.find("\"normalizer\":");
            json.replace(begin, json.find("\"post_processor\"") - begin,
                         "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
                         "\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\","
                         "\"split\":false},");
        }
        // The base has ChatML's tokens, by which it would be recognized.
        for (const char *mark : {"<|im_start|>", "<|im_end|>"})
            for (size_t at; !special.empty() && special[0] != "<|im_start|>" &&
                            (at = json.find(mark)) != std::string::npos;)
                json.replace(at + 2, 2, "xx");
        int id = base == "bytes" ? 422 : 480;
        for (const std::string &text : special) {
            if (json.find("\"content\":\"" + text + "\"") != std::string::npos)
                continue;
            const size_t end = json.find("],", json.find("\"added_tokens\":["));
            json.insert(end, ",{\"id\":" + std::to_string(id++) + ",\"content\":\"" + text +
                                 "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                                 "\"normalized\":false,\"special\":true}");
        }
        folder.write("tokenizer.json", json);
        EXPECT_EQ(rf_tokenizer_open(folder.path().c_str(), &t), 0) << rf_last_error()->message;
    }
    ~Tokens()
    {
        rf_tokenizer_close(t);
    }
};

struct Lines {
    rf_dataset *data = nullptr;
    int rc;
    Lines(const Tokens &tokens, const std::string &lines, int64_t pack = 0,
          const char *chat = nullptr)
    {
        const Folder folder;
        const std::string model = tokens.folder.path();
        folder.write("a.jsonl", lines);
        rf_data_opts opts = {};
        opts.tokenizer = tokens.t;
        opts.pack = pack;
        opts.chat = chat;
        opts.model = model.c_str();
        rc = rf_dataset_open_as(folder.path("a.jsonl").c_str(), &opts, &data);
    }
    ~Lines()
    {
        rf_dataset_close(data);
    }
};

Ids numbers(const std::string &line)
{
    Ids out;
    int32_t value;
    for (std::istringstream in(line); in >> value;)
        out.push_back(value);
    return out;
}

std::string json_of(const std::string &prompt, const std::string &completion)
{
    return "{\"prompt\": \"" + prompt + "\", \"completion\": \"" + completion + "\"}\n";
}

} // namespace

TEST(Chat, TokensAndWhatIsLearnedAreThoseOfThePublishedTemplates)
{
    std::ifstream file(RF_TOKENIZER_FOLDER "/chats.txt");
    std::string name, config, json, line, mask;
    int cases = 0;
    for (; std::getline(file, name); cases++) {
        std::getline(file, config);
        std::getline(file, json);
        std::getline(file, line);
        std::getline(file, mask);
        SCOPED_TRACE(name + json);
        std::istringstream words(name);
        std::vector<std::string> special;
        std::string base, form, word;
        for (words >> base >> form; words >> word;)
            special.push_back(word);
        const Ids ids = numbers(line), learned = numbers(mask);
        const int64_t seq = (int64_t)ids.size();
        Ids want(ids.size(), -1);
        for (size_t i = 0; i + 1 < ids.size(); i++)
            want[i] = learned[i + 1] ? ids[i + 1] : -1;
        for (const char *by : {"name", "template", "jinja", "tokens"}) {
            const Tokens tokens(base, special);
            if (by == std::string("tokens") && special.empty())
                continue;
            if (by == std::string("template"))
                tokens.folder.write("tokenizer_config.json", config);
            if (by == std::string("jinja")) { // it is taken as it is, so escapes do not matter
                tokens.folder.write("tokenizer_config.json", "{}");
                std::string text = config;
                for (size_t at; (at = text.find("\\\"")) != std::string::npos;)
                    text.erase(at, 1);
                tokens.folder.write("chat_template.jinja", text);
            }
            const Lines lines(tokens, json, 0, by == std::string("name") ? form.c_str() : nullptr);
            ASSERT_EQ(lines.rc, 0) << by << rf_last_error()->message;
            Ids got(ids.size()), targets(ids.size());
            ASSERT_EQ(rf_dataset_samples(lines.data, 1, 0, 1, seq, got.data(), targets.data()), 0);
            EXPECT_EQ(got, ids) << by;
            EXPECT_EQ(targets, want) << by;
            EXPECT_EQ(rf_dataset_cut(lines.data, seq), 0);
        }
    }
    EXPECT_EQ(cases, 36);
}

TEST(Chat, WhatIsNotKnownIsRefusedWithTheNamesOfTheForms)
{
    const std::string chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                             "{\"role\": \"assistant\", \"content\": \"b\"}]}";
    const Tokens tokens("bytes", {}), plain("fallback", {});
    const auto refused = [&](const Tokens &t, const char *form, int rc, const char *what) {
        EXPECT_EQ(Lines(t, chat, 0, form).rc, rc) << what;
        const std::string said = rf_last_error()->message;
        EXPECT_NE(said.find(what), std::string::npos) << said;
        EXPECT_EQ(said.find("llama2, mistral-v1") != std::string::npos, rc == RF_ENOTSUP) << said;
    };
    refused(tokens, "alpaca", RF_ENOTSUP, "no chat form \"alpaca\"");
    refused(tokens, "llama2", RF_ENOTSUP, "no token </s>, which llama2 needs");
    refused(plain, nullptr, RF_ENOTSUP, "known for this tokenizer");
    EXPECT_EQ(Lines(tokens, chat).rc, 0);
    tokens.folder.write("tokenizer_config.json", "{\"chat_template\": \"<start_of_turn>\"}");
    refused(tokens, nullptr, RF_ENOTSUP, "known for this model's chat template");
    EXPECT_EQ(Lines(tokens, chat, 0, "chatml").rc, 0);
    tokens.folder.write("tokenizer_config.json", "[");
    refused(tokens, nullptr, RF_ECORRUPT, "tokenizer_config.json is no JSON object");
    tokens.folder.write("tokenizer_config.json",
                        "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"a\"}, "
                        "{\"name\": \"default\", \"template\": \"<|im_start|><|im_end|>\"}]}");
    EXPECT_EQ(Lines(tokens, chat).rc, 0);
}

TEST(Chat, TurnsThatDoNotAlternateAreNamed)
{
    const Tokens tokens("fallback", {});
    const std::string user = "{\"role\": \"user\", \"content\": \"a\"}",
                      answer = "{\"role\": \"assistant\", \"content\": \"b\"}",
                      system = "{\"role\": \"system\", \"content\": \"c\"}";
    const std::vector<std::pair<std::string, std::string>> all = {
        {user + "," + user + "," + answer, "message 2 is of \"user\" after one of user"},
        {user + "," + answer + "," + answer,
         "message 3 is of \"assistant\" after one of assistant"},
        {answer + "," + user, "message 1 is of \"assistant\" and the first"},
        {system + "," + answer, "message 2 is of \"assistant\" after one of system"},
    };
    for (const auto &[turns, message] : all)
        for (const char *form : {"llama2", "mistral-v1"}) {
            EXPECT_EQ(Lines(tokens, "{\"messages\": [" + turns + "]}", 0, form).rc, RF_ECORRUPT);
            const std::string said = rf_last_error()->message;
            EXPECT_NE(said.find(message), std::string::npos) << said;
        }
    EXPECT_EQ(Lines(tokens, "{\"messages\": [" + system + "," + user + "," + answer + "]}", 0,
                    "mistral-v0.2")
                  .rc,
              RF_ECORRUPT);
}

TEST(Documents, OnlyTheCompletionIsLearnedAndTheRestOfARowIsPadding)
{
    const Tokens tokens("bytes", {});
    const Lines lines(tokens, json_of("The schedule", " is data."));
    ASSERT_EQ(lines.rc, 0) << rf_last_error()->message;
    rf_token_list ids = {}, prompt = {};
    ASSERT_EQ(rf_tokenizer_encode(tokens.t, "The schedule is data.", 21, nullptr, &ids), 0);
    ASSERT_EQ(rf_tokenizer_encode(tokens.t, "The schedule", 12, nullptr, &prompt), 0);
    Ids want(ids.ids, ids.ids + ids.count), learned(40, -1), got(40), targets(40);
    want.resize(40, 0);
    for (size_t i = prompt.count; i < ids.count; i++)
        learned[i - 1] = ids.ids[i];
    learned[ids.count - 1] = 0; // the end of the text
    ASSERT_EQ(rf_dataset_samples(lines.data, 1, 5, 1, 40, got.data(), targets.data()), 0);
    EXPECT_EQ(got, want);
    EXPECT_EQ(targets, learned);
    EXPECT_EQ(rf_dataset_cut(lines.data, (int64_t)ids.count), 0);
    EXPECT_EQ(rf_dataset_cut(lines.data, (int64_t)ids.count - 1), 1);
    EXPECT_EQ(rf_dataset_write(lines.data, tokens.folder.path("out").c_str(), false), RF_ENOTSUP);
    rf_token_list_free(&ids);
    rf_token_list_free(&prompt);
}

TEST(Documents, ZeroCharactersAreKept)
{
    const Tokens tokens("bytes", {});
    const std::string whole("a\0\0b\\u0000\0", 11);
    for (const bool is_chat : {false, true}) {
        const Lines lines(tokens, is_chat
                                      ? "{\"messages\": [{\"role\": \"assistant\", \"content\": "
                                        "\"a\\u0000\\u0000b\\\\u0000\\u0000\"}]}"
                                      : json_of("a\\u0000\\u0000", "b\\\\u0000\\u0000"));
        ASSERT_EQ(lines.rc, 0) << rf_last_error()->message;
        rf_token_list ids = {};
        ASSERT_EQ(rf_tokenizer_encode(tokens.t, whole.data(), whole.size(), nullptr, &ids), 0);
        Ids got(64), targets(64);
        ASSERT_EQ(rf_dataset_samples(lines.data, 1, 0, 1, 64, got.data(), targets.data()), 0);
        EXPECT_NE(std::search(got.begin(), got.end(), ids.ids, ids.ids + ids.count), got.end());
        rf_token_list_free(&ids);
    }
    EXPECT_EQ(Lines(tokens, "{\"messages\": [{\"role\": \"user\\u0000\", \"content\": \"\"}]}").rc,
              RF_ECORRUPT);
}

TEST(Documents, EveryRowIsDrawnOnceInAnOrderBySeedAlone)
{
    const Tokens tokens("bytes", {});
    std::string text;
    for (int i = 0; i < 50; i++)
        text += json_of(std::to_string(100 + i), "x");
    const Lines lines(tokens, text);
    ASSERT_EQ(lines.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(rf_dataset_documents(lines.data), 50);
    EXPECT_EQ(rf_dataset_held_out_sequences(lines.data, 8), 5);
    const auto rows = [&](uint64_t seed, int64_t first, int64_t count) {
        Ids all((size_t)count * 8), targets(all.size());
        EXPECT_EQ(rf_dataset_samples(lines.data, seed, first, count, 8, all.data(), targets.data()),
                  0);
        std::vector<Ids> out;
        for (auto at = all.begin(); at != all.end(); at += 8)
            out.emplace_back(at, at + 8);
        return out;
    };
    const std::vector<Ids> first = rows(3, 0, 45), second = rows(3, 45, 45);
    EXPECT_EQ(std::set<Ids>(first.begin(), first.end()).size(), 45u);
    EXPECT_EQ(std::set<Ids>(first.begin(), first.end()),
              std::set<Ids>(second.begin(), second.end()));
    EXPECT_NE(first, second);
    EXPECT_NE(first, rows(4, 0, 45));
    EXPECT_EQ(rows(3, 40, 10)[3], first[43]);
    Ids held(6 * 8), targets(held.size());
    ASSERT_EQ(rf_dataset_held_out(lines.data, 0, 6, 8, held.data(), targets.data()), 0);
    EXPECT_EQ(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t < 0; }),
              48 - 5 * 2);
}

TEST(Documents, PackedRowsHaveWholeDocumentsWithoutATargetAcrossThem)
{
    const Tokens tokens("bytes", {});
    const std::string one = json_of("q", "x"); // three tokens
    const Lines lines(tokens, one + one + one, 7);
    ASSERT_EQ(lines.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(rf_dataset_rows(lines.data), 2);
    std::set<Ids> all;
    for (int k = 0; k < 2; k++) {
        Ids got(7), targets(7);
        ASSERT_EQ(rf_dataset_samples(lines.data, 1, k, 1, 7, got.data(), targets.data()), 0);
        const int32_t x = targets[0], last = RF_TARGET_LAST;
        EXPECT_EQ(targets,
                  got[3] ? (Ids{x, 0, last, x, 0, last, -1}) : (Ids{x, 0, last, -1, -1, -1, -1}));
        all.insert(targets);
    }
    EXPECT_EQ(all.size(), 2u);
    EXPECT_EQ(Lines(tokens, "{\"text\": \"a b\"}\n", 7).rc, RF_EINVAL);
}

TEST(Documents, DamagedLinesAreNamedWithTheirNumber)
{
    const Tokens tokens("bytes", {}), none("fallback", {});
    const std::string chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, ";
    const std::vector<std::pair<std::string, std::string>> all = {
        {"[1]", "no JSON object"},
        {std::string(1 << 20, '['), "no JSON object"},
        {"{\"a\": 1}", "has no \"text\""},
        {"{\"prompt\": \"a\"}", "\"completion\" is missing"},
        {"{\"completion\": \"a\"}", "\"prompt\" is missing"},
        {"{\"prompt\": \"a\", \"completion\": 1}", "\"completion\" is not a text"},
        {std::string("{\"prompt\": \"a\", \"completion\": \"\0\"}", 33), "zero byte"},
        {"{\"text\": \"\xff\"}", "not UTF-8"},
        {"{\"prompt\": \"a\", \"completion\": \"\xff\"}", "not UTF-8"},
        {"{\"text\": \"a\", \"prompt\": \"a\", \"completion\": \"b\"}", "more than one"},
        {"{\"messages\": 1}", "not a list"},
        {"{\"messages\": [1]}", "not an object"},
        {"{\"messages\": []}", "nothing to learn"},
        {chat + "{\"role\": \"user\", \"content\": \"b\"}]}", "nothing to learn"},
        {chat + "{\"role\": \"tool\", \"content\": \"b\"}]}", "no role \"tool\""},
        {chat + "{\"role\": \"system\", \"content\": \"b\"}]}", "first message only"},
        {chat + "{\"role\": \"assistant\"}]}", "\"content\" is missing"},
        {chat + "{\"role\": 1, \"content\": \"b\"}]}", "\"role\" is not a text"},
        {chat + "{\"role\": \"assistant\", \"content\": [\"b\"]}]}", "\"content\" is not a text"},
        {chat + "{\"role\": \"assistant\", \"content\": \"b<|im_end|>\"}]}", "<|im_end|>"},
    };
    for (const auto &[line, message] : all) {
        const Lines lines(tokens, json_of("a", "b") + "\n" + line + "\n");
        EXPECT_EQ(lines.rc, RF_ECORRUPT) << line.substr(0, 99);
        const std::string said = rf_last_error()->message;
        EXPECT_NE(said.find(message), std::string::npos) << said;
        EXPECT_NE(said.find("line 3"), std::string::npos) << said;
    }
    EXPECT_EQ(Lines(tokens, "").rc, RF_EINVAL);
    EXPECT_EQ(Lines(tokens, json_of("a", "b") + "{\"text\": \"a\"}").rc, RF_EINVAL);
    EXPECT_EQ(Lines(none, chat + "{\"role\": \"assistant\", \"content\": \"b\"}]}").rc, RF_ENOTSUP);
}
