// SPDX-License-Identifier: MIT
//
// Tokenizers of this folder with additional special tokens, and small data sets of lines.
#ifndef RF_TESTS_TOKENIZER_LINES_H
#define RF_TESTS_TOKENIZER_LINES_H

#include <gtest/gtest.h>
#include <ringforge/data.h>

#include <fstream>
#include <string>
#include <vector>

#include "train/folder.h"

using Ids = std::vector<int32_t>;

inline void replace_all(std::string &text, const std::string &from, const std::string &to)
{
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
}

// The bases "bytes" and "fallback" are the files of that name; "first": a space only before the
// beginning of the text; "trim": places of tokens exclude the spaces at their ends. Special tokens
// with a leading "+" absorb the white space after them.
struct Tokens {
    Folder folder;
    rf_tokenizer *t = nullptr;
    Tokens(const std::string &base, const std::vector<std::string> &special)
    {
        const bool bytes = base == "bytes" || base == "trim";
        std::ifstream file(std::string(RF_TOKENIZER_FOLDER "/") + (bytes ? "bytes" : "fallback") +
                           ".json");
        std::string json{std::istreambuf_iterator<char>(file), {}};
        if (base == "first") {
            const size_t begin = json.find("\"normalizer\":");
            json.replace(begin, json.find("\"post_processor\"") - begin,
                         "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
                         "\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\","
                         "\"split\":false},");
        }
        if (base == "trim")
            replace_all(json, "\"trim_offsets\":false", "\"trim_offsets\":true");
        // The base has ChatML's tokens, which would imply that form.
        if (!special.empty() && special[0] != "<|im_start|>")
            replace_all(json, "<|im_", "<|xx_");
        int id = bytes ? 422 : 480;
        for (const std::string &word : special) {
            const bool rstrip = word[0] == '+';
            const std::string text = word.substr(rstrip);
            if (json.find("\"content\":\"" + text + "\"") != std::string::npos)
                continue;
            const size_t end = json.find("],", json.find("\"added_tokens\":["));
            json.insert(end, ",{\"id\":" + std::to_string(id++) + ",\"content\":\"" + text +
                                 "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":" +
                                 (rstrip ? "true" : "false") +
                                 ",\"normalized\":false,\"special\":true}");
        }
        folder.write("tokenizer.json", json);
        EXPECT_EQ(rf_tokenizer_open(folder.path().c_str(), &t), 0) << rf_last_error()->message;
    }
    ~Tokens()
    {
        rf_tokenizer_close(t);
    }
};

// A data set of one file. The options' tokenizer and model are those of `tokens`.
struct Lines {
    Folder folder;
    rf_dataset *data = nullptr;
    int rc;
    std::string message;
    Lines(const Tokens &tokens, const std::string &text, rf_data_opts opts = {},
          const std::string &file = "a.jsonl")
    {
        const std::string model = tokens.folder.path();
        folder.write(file, text);
        opts.tokenizer = tokens.t;
        opts.model = model.c_str();
        rc = rf_dataset_open_as(folder.path(file).c_str(), &opts, &data);
        message = rc < 0 ? rf_last_error()->message : "";
    }
    ~Lines()
    {
        rf_dataset_close(data);
    }
    // One row of the data.
    std::pair<Ids, Ids> row(int64_t seq, int64_t sample = 0) const
    {
        Ids ids((size_t)seq), targets((size_t)seq);
        EXPECT_EQ(rf_dataset_samples(data, 1, {sample, 1, seq}, ids.data(), targets.data()), 0);
        return {ids, targets};
    }
};

inline rf_data_opts with_chat(const char *chat)
{
    rf_data_opts opts = {};
    opts.chat = chat;
    return opts;
}

inline rf_data_opts with_rows(int64_t pack, int64_t seq = 0)
{
    rf_data_opts opts = {};
    opts.pack = pack;
    opts.seq = seq;
    return opts;
}

inline bool has(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

#endif
