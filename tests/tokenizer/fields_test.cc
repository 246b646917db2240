// SPDX-License-Identifier: MIT
//
// All fields of tokenizer.json and of the files beside it, each with other values (fields.txt, by
// make_fields.py): accepted values give the ids of tokenizers and transformers, and refused ones
// are named.
#include <fstream>
#include <sstream>

#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <ringforge/tokenizer.h>

#include "tests/train/folder.h"

namespace
{
struct Change {
    std::string effect, path, value, ids;
};
struct File {
    std::string name, tokenizer, text, ids;
    std::vector<Change> changes;
};

std::string whole(const std::string &name)
{
    std::ifstream file(std::string(RF_TOKENIZER_FOLDER "/") + name);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<File> files(std::vector<std::string> *texts)
{
    std::ifstream in(RF_TOKENIZER_FOLDER "/fields.txt");
    std::vector<File> all;
    std::string line, word;
    while (std::getline(in, line) && line[0] == '#')
        ;
    cJSON *list = cJSON_Parse(line.c_str());
    for (const cJSON *text = list ? list->child : nullptr; text; text = text->next)
        texts->push_back(text->valuestring);
    cJSON_Delete(list);
    while (std::getline(in, line)) {
        std::istringstream words(line);
        if (line.rfind("file ", 0) == 0) {
            File f;
            words >> word >> f.name >> f.tokenizer;
            std::getline(in, f.text);
            std::getline(in, f.ids);
            all.push_back(f);
            continue;
        }
        Change c;
        std::getline(words, c.effect, '\t');
        std::getline(words, c.path, '\t');
        std::getline(words, c.value, '\t');
        std::getline(words, c.ids, '\t');
        all.back().changes.push_back(c);
    }
    return all;
}

std::string printed(cJSON *root)
{
    char *text = cJSON_PrintUnformatted(root);
    const std::string out = text;
    cJSON_free(text);
    cJSON_Delete(root);
    return out;
}

// The text with the value at a path such as "normalizer.normalizers.0.prepend".
std::string changed(const std::string &text, const std::string &path, const std::string &value)
{
    cJSON *root = cJSON_Parse(text.c_str()), *at = root;
    std::string name;
    std::istringstream steps(path);
    std::vector<std::string> way;
    while (std::getline(steps, name, '.'))
        way.push_back(name);
    for (size_t i = 0; i + 1 < way.size(); i++)
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, std::stoi(way[i]))
                               : cJSON_GetObjectItemCaseSensitive(at, way[i].c_str());
    if (cJSON_IsArray(at)) {
        cJSON_ReplaceItemInArray(at, std::stoi(way.back()), cJSON_CreateRaw(value.c_str()));
    } else {
        cJSON_DeleteItemFromObjectCaseSensitive(at, way.back().c_str());
        cJSON_AddRawToObject(at, way.back().c_str(), value.c_str());
    }
    return printed(root);
}

// Opens a folder; returns the ids of the texts as JSON, or "" and the message of the refusal.
std::string ids_of(const Folder &folder, const std::vector<std::string> &texts, std::string *fault)
{
    const rf_encode_opts opts = {true, false};
    rf_tokenizer *t = nullptr;
    fault->clear();
    if (rf_tokenizer_open(folder.path().c_str(), &t) < 0) {
        *fault = rf_last_error()->message;
        return "";
    }
    std::string all = "[";
    for (const std::string &text : texts) {
        rf_token_list list = {};
        EXPECT_EQ(rf_tokenizer_encode(t, text.data(), text.size(), &opts, &list), 0);
        all += all.size() > 1 ? ", [" : "[";
        for (size_t i = 0; i < list.count; i++)
            all += (i ? ", " : "") + std::to_string(list.ids[i]);
        all += "]";
        rf_token_list_free(&list);
    }
    rf_tokenizer_close(t);
    return all + "]";
}

// Whether a message names the field, or one that contains it.
bool names_one_of(const std::string &fault, const std::string &path)
{
    std::istringstream steps(path);
    for (std::string name; std::getline(steps, name, '.');)
        if (name.size() > 2 && fault.find(name) != std::string::npos)
            return true;
    return false;
}

TEST(TokenizerFields, AreReadAsByTransformersOrRefusedByName)
{
    std::vector<std::string> texts;
    const std::vector<File> all = files(&texts);
    ASSERT_EQ(all.size(), 7u);
    size_t taken = 0, count = 0;
    for (const File &f : all) {
        const Folder folder;
        std::string fault, base = whole(f.tokenizer);
        const bool is_file = f.name == "tokenizer.json";
        // A few added tokens, as in the script.
        cJSON *root = cJSON_Parse(base.c_str());
        while (cJSON_GetArraySize(cJSON_GetObjectItem(root, "added_tokens")) > 3)
            cJSON_DeleteItemFromArray(cJSON_GetObjectItem(root, "added_tokens"), 3);
        base = printed(root);
        folder.write("tokenizer.json", base);
        const std::string text = is_file ? base : f.text;
        folder.write(f.name, text);
        EXPECT_EQ(ids_of(folder, texts, &fault), f.ids) << f.name << fault;
        for (const Change &c : f.changes) {
            SCOPED_TRACE(f.name + " of " + f.tokenizer + ": " + c.path + " " + c.value + ", " +
                         c.effect);
            folder.write(f.name, changed(text, c.path, c.value));
            const std::string ids = ids_of(folder, texts, &fault);
            const size_t dot = c.path.rfind('.');
            const std::string name = c.path.substr(dot == std::string::npos ? 0 : dot + 1);
            count++;
            taken += fault.empty();
            if (!fault.empty()) {
                EXPECT_TRUE(names_one_of(fault, c.path)) << fault;
            } else if (c.effect != "error") {
                EXPECT_EQ(ids, c.effect == "same" ? f.ids : c.ids);
            }
            EXPECT_FALSE(name == "a_new_field" && fault.empty());
        }
    }
    EXPECT_GT(taken, count / 2); // most changes are of ignored fields
}
} // namespace
