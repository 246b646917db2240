// SPDX-License-Identifier: MIT
//
// All fields of config.json, generation_config.json and adapter_config.json that transformers and
// PEFT write, each with other values (hub_fields.txt, by hub_fields.py): every one is in a table,
// and a value that changes transformers' computation is read or refused by name. Absent fields have
// the defaults of transformers.
#include <cstring>
#include <fstream>
#include <sstream>

#include <cjson/cJSON.h>
#include <gtest/gtest.h>

#include "adapter_file.h"
#include "hub_model.h"

namespace
{
struct Change {
    std::string effect, path, value;
};
struct File {
    std::string name, text;
    std::vector<Change> changes;
};

std::vector<File> files()
{
    std::ifstream in(RF_REFERENCE_FOLDER "/hub_fields.txt");
    std::vector<File> all;
    std::string line;
    while (std::getline(in, line)) {
        std::istringstream words(line);
        Change c;
        if (line.rfind("file ", 0) == 0) {
            all.push_back({line.substr(5), "", {}});
            std::getline(in, all.back().text);
        } else if (line[0] != '#' && std::getline(words, c.effect, '\t') &&
                   std::getline(words, c.path, '\t') && std::getline(words, c.value)) {
            all.back().changes.push_back(c);
        }
    }
    return all;
}

// The text with one field replaced or added; path: "rope_parameters.factor".
std::string changed(const std::string &text, const std::string &path, const std::string &value)
{
    cJSON *root = cJSON_Parse(text.c_str()), *at = root;
    const size_t dot = path.find('.');
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    if (dot != std::string::npos)
        at = cJSON_GetObjectItemCaseSensitive(root, path.substr(0, dot).c_str());
    cJSON_DeleteItemFromObjectCaseSensitive(at, name.c_str());
    cJSON_AddRawToObject(at, name.c_str(), value.c_str());
    char *printed = cJSON_PrintUnformatted(root);
    const std::string out = printed;
    cJSON_free(printed);
    cJSON_Delete(root);
    return out;
}

// What an absent field means is what it means in transformers.
void expect_default(const rf_field &row, const std::string &value)
{
    cJSON *item = cJSON_Parse(value.c_str());
    const double number = cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsTrue(item);
    if (row.kind == RF_FIELD_ONLY) {
        EXPECT_NE(rf_field_is(item, row.text), row.absent == RF_FIELD_NEEDED) << row.text;
    } else if (row.kind <= RF_FIELD_FLAG && row.absent != RF_FIELD_KEEP) {
        EXPECT_EQ(row.absent, cJSON_IsNull(item) ? row.null : number);
    }
    cJSON_Delete(item);
}

// The result for a file: everything that was read, or the message of the refusal.
struct Read {
    std::string fault, state;
};

std::string ends_of(const hub_ends &ends)
{
    return std::string((const char *)ends.ids, sizeof(int32_t) * (size_t)ends.count);
}

Read read_config(const std::string &text)
{
    const Folder folder;
    hub *h = nullptr;
    hub_ends ends = {};
    Read r;
    folder.write("config.json", text);
    const int rc = hub_open(folder.path().c_str(), &h);
    if (rc == 0) {
        r.state = std::string((const char *)hub_values(h), sizeof(struct hub_values)) +
                  std::to_string(hub_dtype(h));
        if (hub_read_ends(folder.path().c_str(), false, &ends) < 0)
            r.fault = rf_last_error()->message;
        r.state += ends_of(ends);
    } else {
        r.fault = rf_last_error()->message;
    }
    hub_destroy(h);
    return r;
}

Read read_generation(const std::string &text)
{
    const Folder folder;
    hub_ends ends = {};
    folder.write("config.json", "{}");
    folder.write("generation_config.json", text);
    const int rc = hub_read_ends(folder.path().c_str(), true, &ends);
    return {rc < 0 ? rf_last_error()->message : "", ends_of(ends)};
}

Read read_adapter(const std::string &text)
{
    static adapter_config c;
    std::ostringstream state;
    if (adapter_config_parse(text.c_str(), &c) < 0)
        return {rf_last_error()->message, ""};
    state << c.adapter.rank << " " << c.adapter.alpha << " " << c.adapter.dropout << " "
          << c.adapter.rslora << " " << c.targets;
    return {"", state.str()};
}

Read read(const File &file, const std::string &text)
{
    return file.name == "adapter_config.json"      ? read_adapter(text)
           : file.name == "generation_config.json" ? read_generation(text)
                                                   : read_config(text);
}

// The row of a field in the tables of its file.
const rf_field *row_of(const File &file, const std::string &path)
{
    const bool scaled = file.text.find("\"llama3\"") != std::string::npos;
    const rf_field *const rope[] = {
        hub_rope_fields, scaled ? hub_llama3_rope_fields : hub_plain_rope_fields, nullptr};
    const size_t dot = path.find('.');
    rf_fields fields = file.name == "adapter_config.json" ? adapter_fields : hub_generation;
    cJSON *root = cJSON_Parse(file.text.c_str());
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(root, "model_type");
    for (int i = 0; type && hub_archs[i]; i++)
        if (strcmp(hub_archs[i]->type, type->valuestring) == 0)
            fields.tables = hub_archs[i]->fields;
    cJSON_Delete(root);
    if (dot != std::string::npos)
        fields.tables = rope;
    return rf_fields_find(&fields, path.substr(dot == std::string::npos ? 0 : dot + 1).c_str());
}

TEST(HubFields, EachIsReadOrRefusedOrKnownNotToMatter)
{
    std::vector<std::string> texts;
    for (const File &file : files()) {
        texts.push_back(file.text);
        const Read before = read(file, file.text);
        EXPECT_EQ(before.fault, "") << file.name;
        EXPECT_GE(file.changes.size(), 60u) << file.name;
        for (const Change &c : file.changes) {
            SCOPED_TRACE(file.name + ": " + c.path + " " + c.value + ", " + c.effect);
            const rf_field *row = row_of(file, c.path);
            if (c.effect == "default") {
                ASSERT_NE(row, nullptr);
                expect_default(*row, c.value);
                continue;
            }
            const Read after = read(file, changed(file.text, c.path, c.value));
            const std::string name = c.path.substr(c.path.find('.') + 1);
            if (!row) { // a field that transformers does not write for this model
                EXPECT_EQ(file.text.find("\"" + name + "\":"), std::string::npos);
                EXPECT_NE(after.fault.find(name + " is"), std::string::npos) << after.fault;
                continue;
            }
            if (after.fault != "") {
                EXPECT_NE(after.fault.find(name), std::string::npos) << after.fault;
            }
            if (c.effect == "other") {
                EXPECT_TRUE(after.fault != "" || after.state != before.state ||
                            strstr(row->text ? row->text : "", "the options of `generate`"));
            }
            if (row->kind == RF_FIELD_IGNORED) {
                EXPECT_EQ(after.fault, "");
                EXPECT_EQ(after.state, before.state);
                EXPECT_GT(strlen(row->text), 10u);
            }
        }
    }
    hub_models::expect_each_architecture(texts);
}

// Reasons are complete, and no row hides another of the same table list.
TEST(HubFields, TablesHaveReasonsAndEachNameCounts)
{
    const rf_field *const rope[] = {hub_rope_fields, hub_llama3_rope_fields, nullptr};
    std::vector<const rf_field *const *> lists = {adapter_fields.tables, hub_generation.tables,
                                                  rope};
    for (int i = 0; hub_archs[i]; i++)
        lists.push_back(hub_archs[i]->fields);
    for (const rf_field *const *tables : lists)
        for (const rf_field *const *table = tables; *table; table++)
            for (const rf_field *row = *table; row->name; row++) {
                const rf_field *const one[] = {*table, nullptr};
                rf_fields fields = {};
                fields.tables = one;
                EXPECT_EQ(rf_fields_find(&fields, row->name), row) << row->name;
                EXPECT_EQ(row->text != nullptr,
                          row->kind == RF_FIELD_ONLY || row->kind == RF_FIELD_IGNORED)
                    << row->name;
            }
}
} // namespace
