// SPDX-License-Identifier: MIT
//
// Conversations as transformers writes them (chats.txt, by make_chats.py): tokens, learned tokens,
// the file with the template, and prompts.
#include <ringforge/chat.h>

#include <sstream>

extern "C" {
#include "tokenizer/offsets.h"
}
#include "lines.h"

namespace
{

// A case is five lines of chats.txt.
struct Case {
    std::string base, form, config, line, ids, mask;
    std::vector<std::string> special;
};

std::vector<Case> cases()
{
    std::ifstream file(RF_TOKENIZER_FOLDER "/chats.txt");
    std::vector<Case> all;
    for (std::string name; std::getline(file, name);) {
        Case c;
        std::istringstream words(name);
        words >> c.base >> c.form;
        for (std::string word; words >> word;)
            c.special.push_back(word);
        std::getline(file, c.config);
        std::getline(file, c.line);
        std::getline(file, c.ids);
        std::getline(file, c.mask);
        all.push_back(c);
    }
    return all;
}

Ids numbers(const std::string &line)
{
    Ids out;
    int32_t value;
    for (std::istringstream in(line); in >> value;)
        out.push_back(value);
    return out;
}

void equals(const Case &c, const Lines &lines)
{
    const Ids ids = numbers(c.ids), learned = numbers(c.mask);
    ASSERT_EQ(lines.rc, 0) << lines.message;
    Ids want(ids.size(), -1);
    for (size_t i = 0; i + 1 < ids.size(); i++)
        want[i] = learned[i + 1] ? ids[i + 1] : -1;
    const auto [got, targets] = lines.row((int64_t)ids.size());
    EXPECT_EQ(got, ids);
    EXPECT_EQ(targets, want);
    EXPECT_EQ(rf_dataset_cut(lines.data, (int64_t)ids.size()), 0);
}

const std::string chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                         "{\"role\": \"assistant\", \"content\": \"b\"}]}";

std::string config_of(const std::string &name, const std::string &word)
{
    return "{\"name\": \"" + name + "\", \"template\": \"" + word +
           "{% for m in messages %}{{ m.content }}{% endfor %}\"}";
}

} // namespace

TEST(Chat, ATokenIsOfThePartOfTheTextThatTheReferenceGives)
{
    std::ifstream file(RF_TOKENIZER_FOLDER "/places.txt");
    std::string line, hex, ids, places;
    int cases = 0;
    for (; std::getline(file, line); cases++) {
        std::getline(file, hex);
        std::getline(file, ids);
        std::getline(file, places);
        const size_t space = line.find(' ');
        const Tokens tokens(line.substr(0, space), {"+<|tag|>", "<|end|>"});
        std::string json = tokens.folder.read("tokenizer.json"), text;
        rf_tokenizer *t = nullptr;
        replace_all(json, "{\"type\":\"NFC\"}", "{\"type\":\"" + line.substr(space + 1) + "\"}");
        tokens.folder.write("tokenizer.json", json);
        ASSERT_EQ(rf_tokenizer_open(tokens.folder.path().c_str(), &t), 0);
        for (size_t i = 0; i + 1 < hex.size(); i += 2)
            text.push_back((char)std::stoi(hex.substr(i, 2), nullptr, 16));
        rf_token_list list = {};
        rf_offsets offsets = {};
        ASSERT_EQ(
            rf_tokenizer_encode_offsets(t, text.data(), text.size(), nullptr, &list, &offsets), 0);
        Ids at;
        for (size_t i = 0; i < offsets.count; i++)
            at.insert(at.end(), {(int32_t)offsets.list[i].begin, (int32_t)offsets.list[i].end});
        EXPECT_EQ(Ids(list.ids, list.ids + list.count), numbers(ids)) << line << " " << text;
        EXPECT_EQ(at, numbers(places)) << line << " " << text;
        rf_token_list_free(&list);
        rf_offsets_free(&offsets);
        rf_tokenizer_close(t);
    }
    EXPECT_EQ(cases, 60);
}

TEST(Chat, TokensAndWhatIsLearnedAreThoseOfTransformers)
{
    const std::vector<Case> all = cases();
    ASSERT_EQ(all.size(), 118u);
    for (const Case &c : all) {
        SCOPED_TRACE(c.base + " " + c.form + " " + c.line);
        const Tokens tokens(c.base, c.special);
        const bool named = c.form != "-";
        if (!named)
            tokens.folder.write("tokenizer_config.json", c.config);
        const Lines lines(tokens, c.line, with_chat(named ? c.form.c_str() : nullptr));
        if (c.ids == "refused:") {
            EXPECT_LT(lines.rc, 0);
            EXPECT_TRUE(has(lines.message, c.mask)) << c.mask << ": " << lines.message;
            continue;
        }
        equals(c, lines);
        // A tokenizer with the tokens of a current form implies that form.
        if (named && !c.special.empty())
            equals(c, Lines(tokens, c.line));
    }
}

TEST(Chat, AFileOfATemplateIsBeforeTokenizerConfig)
{
    const Tokens tokens("bytes", {"<|end|>"});
    const std::filesystem::path more = tokens.folder.path("additional_chat_templates");
    const auto written = [&](const std::string &line, const char *form = nullptr) {
        const Lines lines(tokens, line, with_chat(form));
        EXPECT_EQ(lines.rc, 0) << lines.message;
        rf_text text = {};
        const auto [ids, targets] = lines.row(8);
        EXPECT_EQ(rf_tokenizer_decode(tokens.t, ids.data(), 8, true, &text), 0);
        const std::string out(text.bytes, text.count);
        rf_text_free(&text);
        return out + " by " +
               std::filesystem::path(rf_dataset_chat(lines.data)).filename().string();
    };
    const std::string tools = "{\"tools\": [], " + chat.substr(1);
    tokens.folder.write("tokenizer_config.json", "{\"chat_template\": [" +
                                                     config_of("default", "1") + ", " +
                                                     config_of("tool_use", "2") + "]}");
    EXPECT_EQ(written(chat), "1ab by tokenizer_config.json");
    EXPECT_EQ(written(tools), "2ab by tokenizer_config.json");
    std::filesystem::create_directory(more);
    tokens.folder.write("additional_chat_templates/tool_use.jinja",
                        "3{% for m in messages %}{{ m.content }}{% endfor %}");
    EXPECT_EQ(written(tools), "3ab by tool_use.jinja");
    tokens.folder.write("chat_template.jinja",
                        "4{% for m in messages %}{{ m.content }}{% endfor %}");
    EXPECT_EQ(written(chat), "4ab by chat_template.jinja");
    EXPECT_EQ(written(tools), "3ab by chat_template.jinja");
    tokens.folder.write("own.txt", "5{% for m in messages %}{{ m.content }}{% endfor %}");
    EXPECT_EQ(written(tools, tokens.folder.path("own.txt").c_str()), "5ab by own.txt");
}

TEST(Chat, AClassThatTransformersDoesNotTakeSaysNothingOfSpecialTokens)
{
    const Tokens tokens("bytes", {});
    tokens.folder.write("tokenizer_config.json", "{\"tokenizer_class\": \"TokenizersBackend\"}");
    tokens.folder.write("chat_template.jinja",
                        "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
    EXPECT_EQ(Lines(tokens, chat).rc, 0);
    tokens.folder.write("config.json", "{\"model_type\": \"qwen2\"}");
    const Lines lines(tokens, chat);
    EXPECT_EQ(lines.rc, RF_ENOTSUP);
    EXPECT_TRUE(has(lines.message, "does not say which it is")) << lines.message;
}

TEST(Chat, WhatIsNotKnownIsRefusedWithTheNamesOfTheForms)
{
    const Tokens tokens("bytes", {}), plain("fallback", {});
    const auto refused = [&](const Tokens &t, const char *form, int rc, const char *what) {
        const Lines lines(t, chat, with_chat(form));
        EXPECT_EQ(lines.rc, rc) << what;
        EXPECT_TRUE(has(lines.message, what)) << lines.message;
        EXPECT_EQ(has(lines.message, "llama2, mistral-v1"), rc == RF_ENOTSUP) << lines.message;
    };
    refused(tokens, "alpaca", RF_ENOTSUP, "no chat form \"alpaca\"");
    refused(tokens, "llama2", RF_ENOTSUP, "no token </s>, which the chat form llama2 needs");
    refused(tokens, "./none.jinja", RF_EIO, "none.jinja");
    refused(plain, nullptr, RF_ENOTSUP, "known for this tokenizer");
    plain.folder.write("chat_template.json", "{}");
    refused(plain, nullptr, RF_ENOTSUP, "chat_template.json");
    EXPECT_EQ(Lines(tokens, chat).rc, 0);
    tokens.folder.write("tokenizer_config.json", "{\"chat_template\": \"{% nosuch %}\"}");
    refused(tokens, nullptr, RF_ECORRUPT, "line 1");
    EXPECT_EQ(Lines(tokens, chat, with_chat("chatml")).rc, 0);
    tokens.folder.write("tokenizer_config.json", "[");
    refused(tokens, nullptr, RF_ECORRUPT, "tokenizer_config.json is no JSON object");
    tokens.folder.write("tokenizer_config.json", "{\"chat_template\": 1}");
    refused(tokens, nullptr, RF_ECORRUPT, "chat_template is neither");
    tokens.folder.write("tokenizer_config.json", "{\"eos_token\": 1}");
    refused(tokens, nullptr, RF_ECORRUPT, "eos_token is no token");
}

// A form is an option, and an option that cannot be followed is an error whatever the data are.
TEST(Chat, AFormWithoutConversationsIsRefused)
{
    const Tokens tokens("bytes", {});
    const std::string words = "{\"prompt\": \"a\", \"completion\": \"b\"}";
    for (const auto &[file, text] :
         std::vector<std::pair<std::string, std::string>>{{"a.txt", "words"}, {"a.jsonl", words}}) {
        const Lines unknown(tokens, text, with_chat("nosuch"), file);
        EXPECT_EQ(unknown.rc, RF_ENOTSUP);
        EXPECT_TRUE(has(unknown.message, "no chat form \"nosuch\"")) << unknown.message;
        const Lines known(tokens, text, with_chat("chatml"), file);
        EXPECT_EQ(known.rc, RF_EINVAL);
        EXPECT_TRUE(has(known.message, "has no \"messages\"")) << known.message;
    }
    const Lines words_only(tokens, "words", {}, "a.txt");
    ASSERT_EQ(words_only.rc, 0);
    ASSERT_EQ(rf_dataset_write(words_only.data, tokens.folder.path("a.bin").c_str(), false), 0);
    const Lines numbers_only(tokens, tokens.folder.read("a.bin"), with_chat("chatml"), "a.bin");
    EXPECT_EQ(numbers_only.rc, RF_EINVAL);
    EXPECT_TRUE(has(numbers_only.message, "is a file of tokens")) << numbers_only.message;
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
            const Lines lines(tokens, "{\"messages\": [" + turns + "]}", with_chat(form));
            EXPECT_EQ(lines.rc, RF_ECORRUPT);
            EXPECT_TRUE(has(lines.message, message)) << lines.message;
        }
    EXPECT_EQ(Lines(tokens, "{\"messages\": [" + system + "," + user + "," + answer + "]}",
                    with_chat("mistral-v0.2"))
                  .rc,
              RF_ECORRUPT);
}

TEST(Chat, APromptEndsWhereTheAssistantIsToAnswer)
{
    const Tokens tokens("bytes", {"<|tag|>", "<|end|>"});
    rf_chat_opts opts = {tokens.t, nullptr, nullptr, 1721995200};
    const std::string model = tokens.folder.path();
    opts.model = model.c_str();
    rf_chat *chat = nullptr;
    tokens.folder.write("chat_template.jinja",
                        "{% if tools %}{{ tools | length }}{{ tools[0].name }}{% endif %}{% for m "
                        "in messages %}<|tag|>{{ m.role ~ m.content }}<|end|>{% endfor %}{% if "
                        "add_generation_prompt %}<|tag|>{{ strftime_now('%Y') }}{% endif %}");
    ASSERT_EQ(rf_chat_open(&opts, &chat), 0) << rf_last_error()->message;
    EXPECT_TRUE(has(rf_chat_name(chat), "chat_template.jinja"));
    const auto prompt = [&](const std::string &json, const char *tools, std::string *out) {
        rf_token_list ids = {};
        rf_text text = {};
        const rf_chat_request request = {"W", json.data(), json.size(), tools};
        const int rc = rf_chat_prompt(chat, &request, &ids);
        EXPECT_EQ(rf_tokenizer_decode(tokens.t, ids.ids, ids.count, false, &text), 0);
        out->assign(rc == 0 ? text.bytes : rf_last_error()->message);
        rf_token_list_free(&ids);
        rf_text_free(&text);
        return rc;
    };
    std::string got;
    const std::string user = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    EXPECT_EQ(prompt(user, nullptr, &got), 0);
    EXPECT_EQ(got, "<|tag|>usera<|end|><|tag|>2024");
    EXPECT_EQ(prompt(user, "[{\"name\": \"t\"}]", &got), 0);
    EXPECT_EQ(got, "1t<|tag|>usera<|end|><|tag|>2024");
    const std::vector<std::pair<std::string, std::string>> all = {
        {::chat, "no message that the assistant could answer"},
        {"{\"messages\": []}", "no message that the assistant could answer"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"<|end|>\"}]}", "a text has <|end|>"},
        {"{\"prompt\": \"a\", " + user.substr(1), "has the key \"prompt\""},
        {user + user, "behind its JSON value"},
        {"[1]", "is no JSON object"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"n\"}]}", "\"name\""},
        {"\xff", "not UTF-8"},
    };
    for (const auto &[json, words] : all) {
        EXPECT_EQ(prompt(json, nullptr, &got), RF_ECORRUPT) << json;
        EXPECT_TRUE(has(got, words)) << got;
    }
    EXPECT_EQ(prompt(user, "{}", &got), RF_ECORRUPT);
    EXPECT_TRUE(has(got, "\"tools\" is not a list of objects")) << got;
    rf_chat_close(chat);
}
