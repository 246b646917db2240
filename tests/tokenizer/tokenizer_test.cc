// SPDX-License-Identifier: MIT
//
// Ids and texts equal those of the reference library (cases.txt, by make_cases.py).
#include <gtest/gtest.h>
#include <ringforge/data.h>
#include <ringforge/tokenizer.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "train/folder.h"

namespace
{

const std::string folder = RF_TOKENIZER_FOLDER;

struct Tokenizer {
    rf_tokenizer *t = nullptr;
    explicit Tokenizer(const std::string &name) : Tokenizer(folder + "/", name + ".json")
    {
    }
    Tokenizer(const std::string &path, const std::string &name)
    {
        EXPECT_EQ(rf_tokenizer_open((path + name).c_str(), &t), 0) << rf_last_error()->message;
    }
    ~Tokenizer()
    {
        rf_tokenizer_close(t);
    }
    std::vector<int32_t> encode(const std::string &text, bool special = false, bool plain = false)
    {
        rf_token_list list = {};
        const rf_encode_opts opts = {special, plain};
        EXPECT_EQ(rf_tokenizer_encode(t, text.data(), text.size(), &opts, &list), 0);
        std::vector<int32_t> ids(list.ids, list.ids + list.count);
        rf_token_list_free(&list);
        return ids;
    }
    std::string decode(const std::vector<int32_t> &ids, bool skip = true)
    {
        rf_text text = {};
        EXPECT_EQ(rf_tokenizer_decode(t, ids.data(), ids.size(), skip, &text), 0);
        std::string out(text.bytes, text.count);
        rf_text_free(&text);
        return out;
    }
    std::string stream(const std::vector<int32_t> &ids, std::vector<std::string> *parts = nullptr)
    {
        rf_decoder *d = nullptr;
        const char *text;
        size_t bytes;
        std::string all;
        EXPECT_EQ(rf_decoder_open(t, true, &d), 0);
        for (int32_t id : ids) {
            EXPECT_EQ(rf_decoder_next(d, id, &text, &bytes), 0);
            all.append(text, bytes);
            if (parts)
                parts->emplace_back(text, bytes);
        }
        EXPECT_EQ(rf_decoder_end(d, &text, &bytes), 0);
        all.append(text, bytes);
        rf_decoder_close(d);
        return all;
    }
};

struct Case {
    std::string name, text, decoded;
    bool special;
    std::vector<int32_t> ids;
};

std::string from_hex(const std::string &hex)
{
    std::string out;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        out.push_back((char)std::stoi(hex.substr(i, 2), nullptr, 16));
    return out;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    std::ifstream file(folder + "/cases.txt");
    std::string name, special, text, ids, decoded, id;
    while (file >> name >> special >> text >> ids >> decoded) {
        Case c = {name, from_hex(text), from_hex(decoded), special == "1", {}};
        std::stringstream list(ids == "-" ? "" : ids);
        while (std::getline(list, id, ','))
            c.ids.push_back(std::stoi(id));
        all.push_back(c);
    }
    return all;
}

} // namespace

TEST(Tokenizer, IdsAndTextsAreThoseOfTheReference)
{
    Tokenizer bytes("bytes"), fallback("fallback");
    const std::vector<Case> all = cases();
    ASSERT_EQ(all.size(), 64u);
    for (const Case &c : all) {
        Tokenizer &t = c.name == "bytes" ? bytes : fallback;
        EXPECT_EQ(t.encode(c.text, c.special), c.ids) << c.name << ": " << c.text;
        EXPECT_EQ(t.decode(c.ids), c.decoded) << c.name << ": " << c.text;
        EXPECT_EQ(t.stream(c.ids), c.decoded) << c.name << ": " << c.text;
    }
}

// Short words and long ones (more than 24 symbols) are merged by different code.
TEST(Tokenizer, OfPairsThatOverlapTheLeftmostIsMergedFirst)
{
    Folder files;
    files.write("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},"
                                  "\"merges\":[\"a a\"]}}");
    Tokenizer t(files.path(), "/tokenizer.json");
    for (size_t letters : {3, 5, 23, 25, 27}) {
        std::vector<int32_t> want(letters / 2, 1);
        want.push_back(0);
        EXPECT_EQ(t.encode(std::string(letters, 'a')), want) << letters;
    }
}

// The Unicode Standard, table 3-7. Each byte that is not part of a character is replaced by U+FFFD.
TEST(Tokenizer, TheFirstAndLastCharactersOfEachLengthAreKeptAndTheirNeighboursReplaced)
{
    Tokenizer t("bytes");
    for (const char *text : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                             "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
        EXPECT_EQ(t.decode(t.encode(text)), text);
    for (const std::string text : {"\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                   "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
        std::string want;
        for (size_t i = 0; i < text.size(); i++)
            want += "\xef\xbf\xbd";
        EXPECT_EQ(t.decode(t.encode(text)), want);
    }
}

TEST(Tokenizer, AStreamNeverGivesAPartOfACharacter)
{
    Tokenizer t("bytes");
    const std::string text = "\xf0\x9f\x98\x80\xe4\xbd\xa0 x";
    std::vector<std::string> parts;
    EXPECT_EQ(t.stream(t.encode(text), &parts), text);
    for (const std::string &part : parts)
        EXPECT_TRUE(part.empty() || (uint8_t)part[0] < 0x80 || part == text.substr(0, 4) ||
                    part == text.substr(4, 3))
            << part;
    // Bytes that never become a character are replaced at the end.
    std::vector<int32_t> ids = t.encode("\xe4\xbd\xa0");
    ids.pop_back();
    EXPECT_EQ(t.stream(ids), "\xef\xbf\xbd");
}

TEST(Tokenizer, TokensHaveNamesAndRoles)
{
    Tokenizer t("bytes");
    EXPECT_EQ(rf_tokenizer_id(t.t, "<|im_start|>"), 1);
    EXPECT_STREQ(rf_tokenizer_token(t.t, 1), "<|im_start|>");
    EXPECT_TRUE(rf_tokenizer_is_special(t.t, 1));
    EXPECT_EQ(rf_tokenizer_id(t.t, "no such token"), -1);
    EXPECT_EQ(rf_tokenizer_token(t.t, -1), nullptr);
    EXPECT_EQ(rf_tokenizer_token(t.t, 1 << 30), nullptr);
    EXPECT_EQ(rf_tokenizer_vocabulary(t.t), 422);
    EXPECT_EQ(rf_tokenizer_role(t.t, RF_TOKEN_END), 0);
    EXPECT_EQ(rf_tokenizer_role(t.t, RF_TOKEN_BEGIN), -1);
    EXPECT_EQ(t.encode("<|im_start|>").size(), 1u);
    EXPECT_GT(t.encode("<|im_start|>", false, true).size(), 1u);
}

TEST(Tokenizer, LongTextsWithoutASpaceTakeNoQuadraticTime)
{
    for (const char *name : {"bytes", "fallback"}) {
        Tokenizer t(name);
        for (char c : {'a', ' ', '!', '\n'}) {
            const std::string text(1 << 20, c);
            EXPECT_EQ(t.decode(t.encode(text)), text) << name;
        }
    }
}

TEST(Tokenizer, ThreadsMayShareOne)
{
    Tokenizer t("bytes");
    const std::vector<Case> all = cases();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < 20; k++)
                for (const Case &c : all)
                    if (c.name == "bytes") {
                        EXPECT_EQ(t.encode(c.text, c.special), c.ids);
                    }
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(Tokenizer, ADataSetHasATokenForTheEndOfEachText)
{
    Tokenizer t("bytes");
    Folder files;
    files.write("a.txt", "The schedule");
    files.write("b.jsonl",
                "{\"text\": \"is data.\"}\n\n{\"text\": \"And\\nmore \\u00e9\", \"id\": 1}\n");
    rf_data_opts opts = {};
    opts.tokenizer = t.t;
    rf_dataset *data = nullptr;
    ASSERT_EQ(rf_dataset_open_as(files.path().c_str(), &opts, &data), 0)
        << rf_last_error()->message;
    std::vector<int32_t> expected;
    for (const char *text : {"The schedule", "is data.", "And\nmore \u00e9"}) {
        const std::vector<int32_t> ids = t.encode(text);
        expected.insert(expected.end(), ids.begin(), ids.end());
        expected.push_back(0);
    }
    EXPECT_EQ(rf_dataset_files(data), 2);
    EXPECT_EQ(rf_dataset_train_tokens(data) + rf_dataset_held_out_tokens(data),
              (int64_t)expected.size());
    const int64_t seq = rf_dataset_train_tokens(data) - 1;
    std::vector<int32_t> tokens((size_t)seq), targets((size_t)seq);
    ASSERT_EQ(rf_dataset_samples(data, 1, {0, 1, seq}, tokens.data(), targets.data()), 0);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
    rf_dataset_close(data);
    for (const char *line : {"[]", "{\"text\": 1}", "{\"text\": \"\\xff\"}", "{\"text\": "}) {
        files.write("b.jsonl", line);
        EXPECT_EQ(rf_dataset_open_as(files.path().c_str(), &opts, &data), RF_ECORRUPT) << line;
    }
}

TEST(Tokenizer, TheLastTokenOfEachVocabularyIsKeptInADataSet)
{
    for (int32_t last : {65535, 65536}) { // 16 bits each, and more
        Folder files;
        files.write("tokenizer.json",
                    R"({"added_tokens":[{"id":1,"content":"<|endoftext|>","special":true}],)"
                    R"("model":{"type":"BPE","vocab":{"a":0,"<|endoftext|>":1,"b":)" +
                        std::to_string(last) + R"(},"merges":[]}})");
        files.write("b.txt", "ba");
        Tokenizer t(files.path(), "/tokenizer.json");
        rf_data_opts opts = {};
        opts.tokenizer = t.t;
        rf_dataset *data = nullptr;
        ASSERT_EQ(rf_dataset_open_as(files.path("b.txt").c_str(), &opts, &data), 0);
        int32_t tokens[2], targets[2];
        ASSERT_EQ(rf_dataset_samples(data, 1, {0, 1, 2}, tokens, targets), 0);
        EXPECT_EQ(tokens[0], last);
        EXPECT_EQ(rf_dataset_vocabulary(data), last + 1);
        rf_dataset_close(data);
    }
}
