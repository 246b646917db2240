// SPDX-License-Identifier: MIT
//
// Documents for fine-tuning: prompts and completions, rows of a batch, valid keys of a line, JSON
// files, and damaged lines.
#include <algorithm>
#include <set>

#include "lines.h"

namespace
{

std::string json_of(const std::string &prompt, const std::string &completion)
{
    return "{\"prompt\": \"" + prompt + "\", \"completion\": \"" + completion + "\"}\n";
}

const std::string chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                         "{\"role\": \"assistant\", \"content\": \"b\"}]";

} // namespace

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
    ASSERT_EQ(rf_dataset_samples(lines.data, 1, {5, 1, 40}, got.data(), targets.data()), 0);
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
        ASSERT_EQ(rf_dataset_samples(lines.data, 1, {0, 1, 64}, got.data(), targets.data()), 0);
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
        EXPECT_EQ(
            rf_dataset_samples(lines.data, seed, {first, count, 8}, all.data(), targets.data()), 0);
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
    ASSERT_EQ(rf_dataset_held_out(lines.data, {0, 6, 8}, held.data(), targets.data()), 0);
    EXPECT_EQ(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t < 0; }),
              48 - 5 * 2);
}

TEST(Documents, PackedRowsHaveWholeDocumentsWithoutATargetAcrossThem)
{
    const Tokens tokens("bytes", {});
    const std::string one = json_of("q", "x"); // three tokens
    const Lines lines(tokens, one + one + one, with_rows(7));
    ASSERT_EQ(lines.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(rf_dataset_rows(lines.data), 2);
    std::set<Ids> all;
    for (int k = 0; k < 2; k++) {
        Ids got(7), targets(7);
        ASSERT_EQ(rf_dataset_samples(lines.data, 1, {k, 1, 7}, got.data(), targets.data()), 0);
        const int32_t x = targets[0], last = RF_TARGET_LAST;
        EXPECT_EQ(targets,
                  got[3] ? (Ids{x, 0, last, x, 0, last, -1}) : (Ids{x, 0, last, -1, -1, -1, -1}));
        all.insert(targets);
    }
    EXPECT_EQ(all.size(), 2u);
    EXPECT_EQ(Lines(tokens, "{\"text\": \"a b\"}\n", with_rows(7)).rc, RF_EINVAL);
}

TEST(Documents, DamagedLinesAreNamedWithTheirNumber)
{
    const Tokens tokens("bytes", {}), none("fallback", {});
    const std::string begin = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, ";
    const std::vector<std::pair<std::string, std::string>> all = {
        {"[1]", "no JSON object"},
        {std::string(1 << 20, '['), "nested"},
        {"{\"id\": 1}", "has no \"text\""},
        {"{\"text\": null}", "has no \"text\""},
        {"{\"prompt\": \"a\"}", "\"completion\" is missing"},
        {"{\"completion\": \"a\"}", "\"prompt\" is missing"},
        {"{\"prompt\": \"a\", \"completion\": 1}", "\"completion\" is not a text"},
        {std::string("{\"prompt\": \"a\", \"completion\": \"\0\"}", 33), "zero byte"},
        {"{\"text\": \"\xff\"}", "not UTF-8"},
        {"{\"prompt\": \"a\", \"completion\": \"\xff\"}", "not UTF-8"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "key"},
        {"{\"text\": \"a\", \"prompt\": \"a\", \"completion\": \"b\"}", "more than one"},
        {"{\"messages\": 1}", "not a list"},
        {"{\"messages\": [1]}", "not an object"},
        {"{\"messages\": []}", "nothing to learn"},
        {begin + "{\"role\": \"user\", \"content\": \"b\"}]}", "nothing to learn"},
        {begin + "{\"role\": \"tool\", \"content\": \"b\"}]}", "message 2 is of \"tool\""},
        {begin + "{\"role\": \"human\", \"content\": \"b\"}]}", "no role \"human\""},
        {begin + "{\"role\": \"system\", \"content\": \"b\"}]}", "and first a system"},
        {begin + "{\"role\": \"assistant\"}]}", "content"},
        {begin + "{\"role\": 1, \"content\": \"b\"}]}", "\"role\" that is no text"},
        {begin + "{\"content\": \"b\"}]}", "has no \"role\""},
        {begin + "{\"role\": \"assistant\", \"content\": [\"b\"]}]}", "line 1"},
        {begin + "{\"role\": \"assistant\", \"content\": \"b<|im_end|>\"}]}", "<|im_end|>"},
        // Text after the object of a line was once ignored.
        {"{\"prompt\": \"a\", \"completion\": \"b\"} {\"prompt\": \"c\", \"completion\": \"d\"}",
         "another object behind"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}, ", "text behind"},
    };
    for (const auto &[line, message] : all) {
        const Lines lines(tokens, json_of("a", "b") + "\n" + line + "\n");
        EXPECT_EQ(lines.rc, line[1] == '[' ? RF_ENOTSUP : RF_ECORRUPT) << line.substr(0, 99);
        EXPECT_TRUE(has(lines.message, message)) << lines.message;
        EXPECT_TRUE(has(lines.message, "line 3")) << lines.message;
    }
    EXPECT_EQ(Lines(tokens, "").rc, RF_EINVAL);
    EXPECT_EQ(Lines(tokens, json_of("a", "b") + "{\"text\": \"a\"}").rc, RF_EINVAL);
    EXPECT_EQ(Lines(none, chat + "}").rc, RF_ENOTSUP);
}

TEST(Documents, EachKeyIsUsedOrKnownNotToMatterOrRefused)
{
    const Tokens tokens("bytes", {});
    const std::string pair = "{\"prompt\": \"a\", \"completion\": \"b\"",
                      text = "{\"text\": \"a b c d e f\"";
    for (const std::string &line : {pair, chat, text}) {
        const Lines plain(tokens, line + "}");
        ASSERT_EQ(plain.rc, 0) << plain.message;
        // Columns of a table without a value on this line, and keys that identify its source.
        const Lines more(tokens, line + ", \"label\": null, \"tools\": null, \"rejected\": null, "
                                        "\"id\": 7, \"source\": {\"a\": [1]}, \"meta\": \"x\"}");
        ASSERT_EQ(more.rc, 0) << more.message;
        EXPECT_EQ(more.row(3), plain.row(3));
        for (const char *key : {"label", "rejected", "chosen", "Text", "system", "weight"}) {
            const Lines lines(tokens, line + ", \"" + key + "\": 0}");
            EXPECT_EQ(lines.rc, RF_ECORRUPT);
            EXPECT_TRUE(has(lines.message, "line 1: has the key \"" + std::string(key) + "\""))
                << lines.message;
        }
    }
    const Lines tools(tokens, pair + ", \"tools\": []}");
    EXPECT_TRUE(has(tools.message, "has the key \"tools\", which is not used beside \"prompt\""))
        << tools.message;
    const Lines both(tokens, pair + ", \"text\": null, \"messages\": null}");
    EXPECT_EQ(both.rc, 0) << both.message;
}

TEST(Documents, FilesOfJsonAreObjectsOrAListOfThem)
{
    const Tokens tokens("bytes", {});
    const std::string one = "{\"prompt\": \"a\", \"completion\": \"b\"}",
                      two = "{\"prompt\": \"c\",\n\"completion\": \"d\"}";
    const auto rows = [&](const std::string &text, const char *file) {
        const Lines lines(tokens, text, {}, file);
        EXPECT_EQ(lines.rc, 0) << lines.message;
        return lines.rc == 0 ? rf_dataset_rows(lines.data) : -1;
    };
    for (const char *file : {"a.json", "a.JSON"}) {
        EXPECT_EQ(rows("[" + one + ",\n" + two + "]\n", file), 2);
        EXPECT_EQ(rows(one + "\n" + two + "\n\n" + one, file), 3);
        EXPECT_EQ(rows(two, file), 1);
    }
    EXPECT_EQ(rows(one + "\n" + one, "a.ndjson"), 2);
    for (const auto &[text, words] : std::vector<std::pair<std::string, std::string>>{
             {"[" + one + " " + one + "]", "text behind its object"},
             {one + one, "text behind its object"},
             {"[" + one + "," + one, "no end"},
             {"[" + one + ",]", "line 1"},
             {"[" + one + "] x", "behind"},
             {"[" + one + ",\n" + two + ",\n\n{\"a\": 1}]", "line 5"},
             {"words", "line 1"}}) {
        const Lines lines(tokens, text, {}, "a.json");
        EXPECT_EQ(lines.rc, RF_ECORRUPT) << text;
        EXPECT_TRUE(has(lines.message, words)) << text << ": " << lines.message;
    }
    // In a folder, other JSON files, such as settings, are texts.
    const Folder folder;
    const auto in_folder = [&](const std::string &text) {
        rf_data_opts opts = {};
        rf_dataset *data = nullptr;
        opts.tokenizer = tokens.t;
        folder.write("a.json", text);
        EXPECT_EQ(rf_dataset_open_as(folder.path().c_str(), &opts, &data), 0)
            << rf_last_error()->message;
        const int64_t documents = rf_dataset_documents(data);
        rf_dataset_close(data);
        return documents;
    };
    EXPECT_EQ(in_folder("[" + one + "," + one + "]"), 2);
    EXPECT_EQ(in_folder("{\"version\": 1}"), 0);
}

TEST(Documents, WithoutATokenizerALineOfTextIsBytes)
{
    const Folder folder;
    rf_dataset *data = nullptr;
    folder.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"c\\u0000\"}\n");
    ASSERT_EQ(rf_dataset_open(folder.path("a.jsonl").c_str(), &data), 0)
        << rf_last_error()->message;
    EXPECT_EQ(rf_dataset_train_tokens(data) + rf_dataset_held_out_tokens(data), 6);
    rf_dataset_close(data);
    folder.write("a.jsonl", json_of("a", "b"));
    EXPECT_EQ(rf_dataset_open(folder.path("a.jsonl").c_str(), &data), RF_EINVAL);
    EXPECT_TRUE(has(rf_last_error()->message, "needs a tokenizer")) << rf_last_error()->message;
}

// A row without a target would be read as a loss of zero.
TEST(Documents, WhatARowWouldNotLearnFromIsLeftOutAndCounted)
{
    const Tokens tokens("bytes", {});
    const std::string small = json_of("q", "x"), large = json_of("1 2 3 4 5 6 7 8 9", "x");
    for (const auto &[pack, seq] : std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {8, 8}}) {
        const Lines mixed(tokens, large + small + large + small, with_rows(pack, seq));
        ASSERT_EQ(mixed.rc, 0) << mixed.message;
        EXPECT_EQ(rf_dataset_documents(mixed.data), 2);
        EXPECT_EQ(rf_dataset_left_out(mixed.data), 2);
        const Ids targets = mixed.row(8).second;
        EXPECT_GT(std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }),
                  0);
        const Lines all(tokens, large + large, with_rows(pack, seq));
        EXPECT_EQ(all.rc, RF_EINVAL);
        EXPECT_TRUE(has(all.message, "all 2 documents lies behind the end of a row of 8 tokens"))
            << all.message;
    }
    // The last target is the last one of a row.
    const Lines fits(tokens, json_of("1 2 3 4", "x"));
    const Ids targets = fits.row(16).second;
    const int64_t first =
        std::find_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }) -
        targets.begin();
    EXPECT_EQ(Lines(tokens, json_of("1 2 3 4", "x"), with_rows(0, first + 1)).rc, 0);
    EXPECT_EQ(Lines(tokens, json_of("1 2 3 4", "x"), with_rows(0, first)).rc, RF_EINVAL);
    EXPECT_EQ(rf_dataset_left_out(fits.data), 0);
    EXPECT_EQ(Lines(tokens, small, with_rows(0, -1)).rc, RF_EINVAL);
}
