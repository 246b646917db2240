/* SPDX-License-Identifier: MIT
 *
 * `ringforge generate` from outside: from a text to a trained model, adapters, merged weights and
 * new text; stop strings; refused input.
 */
#include "train_program.h"

#include <algorithm>
#include <cjson/cJSON.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
ProgramResult run(const std::vector<std::string> &words)
{
    ProgramResult r = run_program(words);
    EXPECT_EQ(r.status, 0) << words[0] << " " << words[1] << ": " << r.err;
    return r;
}

/* The members of --json - for the only text. */
struct Text {
    std::vector<int> prompt, ids;
    std::string text, finish;
};

Text generate(const std::vector<std::string> &words)
{
    Text t;
    const ProgramResult r = run(with(with({"generate"}, words), {"--json", "-"}));
    cJSON *json = cJSON_Parse(r.out.c_str()), *id;
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "texts"), 0);
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(row, "prompt_ids"))
        t.prompt.push_back((int)cJSON_GetNumberValue(id));
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(row, "ids"))
        t.ids.push_back((int)cJSON_GetNumberValue(id));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(row, "text"));
    const char *finish = cJSON_GetStringValue(cJSON_GetObjectItem(row, "finish"));
    t.text = text ? text : "(none)";
    t.finish = finish ? finish : "(none)";
    cJSON_Delete(json);
    return t;
}

/* A text whose bytes are easy to learn. */
std::string alphabet()
{
    std::string text;
    while (text.size() < 20000)
        text += "abcdefghijklmnopqrstuvwxyz ";
    return text;
}

std::vector<std::string> train(const std::string &data, const std::string &steps)
{
    return {"train",   "--data", data,   "--seq", "32",     "--batch", "4",
            "--steps", steps,    "--lr", "0.02",  "--seed", "3"};
}

/* A model of bytes, trained from random weights. */
void make(const std::string &kind, const std::string &data, const std::string &dir,
          const std::string &steps)
{
    run(with(train(data, steps), {"--model", kind, "--layers", "1", "--channels", "32", "--heads",
                                  "2", "--export", dir}));
}

/* The text as the program writes it: one packet for each write. */
std::vector<std::string> packets(const std::vector<std::string> &words)
{
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    std::vector<std::string> all = with({program_path(), "generate"}, words);
    std::vector<char *> argv;
    for (std::string &word : all)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execv(argv[0], argv.data());
        _exit(127);
    }
    close(ends[1]);
    std::vector<std::string> out;
    char bytes[4096];
    for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
        out.emplace_back(bytes, (size_t)n);
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return out;
}

/* Whole characters: the bytes that each lead byte announces. */
bool is_whole(const std::string &text)
{
    size_t at = 0;
    while (at < text.size()) {
        const unsigned char lead = (unsigned char)text[at];
        at += lead < 0x80 ? 1 : lead < 0xc0 ? 100 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    }
    return at == text.size();
}
} // namespace

TEST(GenerateProgram, TheWholeWayFromATextToAMergedModel)
{
    for (const char *kind : {"gpt2", "llama"}) {
        TempFolder folder;
        const std::string data = folder.file("t.txt", alphabet()), base = folder.path + "/base",
                          adapter = folder.path + "/adapter", merged = folder.path + "/merged";
        const std::vector<std::string> ids = {"--prompt-ids", "97,98,99", "--max-new", "8"};
        make(kind, data, base, "2");
        const Text before = generate(with({"--from", base}, ids));
        EXPECT_EQ(before.prompt, (std::vector<int>{97, 98, 99}));
        EXPECT_EQ(before.ids.size(), 8u);
        EXPECT_EQ(generate({"--from", base, "--prompt", "abc", "--max-new", "8"}).ids, before.ids);
        /* The adapters learn another text, so they change the output. */
        std::string other = alphabet();
        std::reverse(other.begin(), other.end());
        run(with(train(folder.file("u.txt", other), "60"),
                 {"--from", base, "--lora", "r=4,alpha=16,targets=all-linear", "--export-adapter",
                  adapter}));
        const Text adapted = generate(with({"--from", base, "--adapter", adapter}, ids));
        EXPECT_NE(adapted.ids, before.ids) << kind;
        run({"merge", "--from", base, "--adapter", adapter, "--export", merged});
        EXPECT_EQ(generate(with({"--from", merged}, ids)).ids, adapted.ids) << kind;
    }
}

TEST(GenerateProgram, AStopStringEndsATextAndIsNotShown)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", alphabet()), dir = folder.path + "/m";
    make("llama", data, dir, "60");
    const std::vector<std::string> from = {"--from", dir, "--prompt", "abc", "--max-new", "12"};
    const std::string learnt = "defghijklmno";
    ASSERT_EQ(generate(from).text, learnt) << "the model has not learnt the alphabet";
    /* The string consists of several tokens, and "hix" begins like the text. */
    const std::vector<std::string> stop = with(from, {"--stop", "hix", "--stop", "ijk"});
    const Text stopped = generate(stop);
    EXPECT_EQ(stopped.text, "defgh");
    EXPECT_EQ(stopped.ids.size(), 8u);
    EXPECT_EQ(stopped.finish, "stop");
    EXPECT_EQ(run(with({"generate"}, stop)).out, "defgh\n");
    /* A possible beginning of a stop string is held back, and printed if it does not become one. */
    EXPECT_EQ(run(with({"generate"}, with(from, {"--stop", "mnop"}))).out, learnt + "\n");
    EXPECT_EQ(run(with({"generate"}, from)).out, learnt + "\n");
    EXPECT_EQ(generate(with(from, {"--stop-id", "104"})).text, "defgh");
    /* A special token, here one that only tokenizer_config.json names, has no text. */
    std::ofstream(dir + "/tokenizer_config.json") << R"({"sep_token": "h"})";
    EXPECT_EQ(generate(from).text, "defgijklmno");
    const Text special = generate(with(from, {"--stop", "h"}));
    EXPECT_EQ(special.text, "defg");
    EXPECT_EQ(special.ids, (std::vector<int>{100, 101, 102, 103, 104}));
    EXPECT_EQ(special.finish, "stop");
    const ProgramResult r = run_program(with({"generate"}, with(from, {"--stop", "gh"})));
    EXPECT_NE(r.err.find("--stop gh holds a special token"), std::string::npos) << r.err;
}

/* Adapters trained with quantised weights. */
TEST(GenerateProgram, AdaptersGenerateAboveTheQuantisedWeightsThatTheyWereTrainedWith)
{
    TempFolder folder;
    const std::string base = folder.path + "/base", adapter = folder.path + "/adapter";
    make("llama", folder.file("t.txt", alphabet()), base, "2");
    std::string other = alphabet();
    std::reverse(other.begin(), other.end());
    const std::vector<std::string> quantize = {"--from", base, "--quantize", "nf4"};
    run(with(train(folder.file("u.txt", other), "80"),
             with(quantize,
                  {"--lora", "r=8,alpha=32,targets=all-linear", "--export-adapter", adapter})));
    const std::vector<std::string> ids = {"--prompt-ids", "109,108,107", "--max-new", "8"};
    const Text plain = generate(with(quantize, ids));
    EXPECT_EQ(plain.ids.size(), 8u);
    const std::vector<std::string> adapted = with(with(quantize, {"--adapter", adapter}), ids);
    const Text text = generate(adapted);
    EXPECT_NE(text.ids, plain.ids);
    EXPECT_EQ(generate(with(adapted, {"--ranks", "2"})).ids, text.ids);
}

/* Every byte is a token, so characters and stop strings are divided. */
TEST(GenerateProgram, WritesWholeCharactersAndNoPartOfAStopStringWhileItGenerates)
{
    TempFolder folder;
    std::string data;
    while (data.size() < 20000)
        data += "\xc3\xa9\xc5\xa1\xd0\xb6\xd7\x90\xe2\x82\xac ";
    const std::string dir = folder.path + "/m";
    make("llama", folder.file("t.txt", data), dir, "60");
    const std::vector<std::string> from = {"--from",   dir,         "--prompt",
                                           "\xc3\xa9", "--max-new", "21"};
    const std::string learnt = "\xc5\xa1\xd0\xb6\xd7\x90\xe2\x82\xac \xc3\xa9";
    std::string text;
    std::vector<std::string> written = packets(from);
    EXPECT_GE(written.size(), 8u); /* one for each character, and the end of the line */
    for (const std::string &packet : written) {
        EXPECT_TRUE(is_whole(packet)) << packet;
        text += packet;
    }
    ASSERT_EQ(text.substr(0, learnt.size()), learnt) << "the model has not learnt the text";
    /* Held back until it cannot be a stop string, and never written if it is one. */
    written =
        packets(with(from, {"--stop", "\xd7\x90\xe2\x82\xac!", "--stop", " \xc3\xa9\xc5\xa1"}));
    text.clear();
    for (const std::string &packet : written) {
        EXPECT_TRUE(is_whole(packet)) << packet;
        EXPECT_NE(packet, "\xd7\x90");
        text += packet;
    }
    EXPECT_EQ(text, "\xc5\xa1\xd0\xb6\xd7\x90\xe2\x82\xac\n");
}

TEST(GenerateProgram, PromptsAreLinesOrConversationsThatTheTemplateOfTheModelWrites)
{
    TempFolder folder;
    const std::string dir = folder.path + "/m";
    make("gpt2", folder.file("t.txt", alphabet()), dir, "1");
    const std::vector<std::string> from = {"--from", dir, "--max-new", "1"};
    const auto prompt = [&](const std::vector<std::string> &words) {
        const std::vector<int> ids = generate(with(from, words)).prompt;
        return std::string(ids.begin(), ids.end());
    };
    /* The line ending of other systems is not part of the text. */
    EXPECT_EQ(prompt({"--prompts", folder.file("p.txt", "ab\r\nc\r\n")}), "ab");
    folder.file("m/chat_template.jinja",
                "{% for m in messages %}{{ m.role[0] ~ m.content }};{% endfor %}"
                "{% if tools %}{{ tools[0].name }}{% endif %}"
                "{% if add_generation_prompt %}a{{ strftime_now('%Y') }}{% endif %}");
    EXPECT_EQ(prompt({"--message", "h\"i", "--date", "2024-07-26"}), "uh\"i;a2024");
    const std::string tools = folder.file("tools.json", "[{\"name\": \"t\"}]"),
                      lines = folder.file("c.jsonl",
                                          "\r\n{\"messages\": [{\"role\": \"system\", \"content\": "
                                          "\"s\"}, {\"role\": \"user\", \"content\": \"q\"}]}\r\n");
    EXPECT_EQ(prompt({"--messages", lines, "--tools", tools, "--date", "2023-01-01"}),
              "ss;uq;ta2023");
    const std::string other = folder.file("other.jinja", "{{ messages[0].content }}{{ 1 / 0 }}");
    for (const auto &[words, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--message", "a", "--chat", other}, "line 1: the operator / is not implemented"},
             {{"--messages", folder.file("d.jsonl", "\n{\"messages\": []}")}, "line 2"},
             {{"--messages", folder.file("e.jsonl", "\n")}, "no prompt"},
             {{"--messages", folder.path + "/none"}, "No such file"}}) {
        const ProgramResult r = run_program(with(with({"generate"}, from), words));
        EXPECT_NE(r.status, 0) << part;
        EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
    }
}

TEST(GenerateProgram, WhatIsWrongIsNamed)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", alphabet()), dir = folder.path + "/m",
                      none = folder.path + "/none";
    make("gpt2", data, dir, "1");
    const struct {
        std::vector<std::string> words;
        std::string part;
    } cases[] = {
        {{"--prompt", "a"}, "--from DIR is missing"},
        {{"--from", none, "--prompt", "a"}, "--from " + none + ": No such file"},
        {{"--from", data, "--prompt", "a"}, "--from " + data + ": it is no folder"},
        {{"--from", dir, "--prompt-ids", ""},
         "an id of --prompt-ids wants a whole number, not \"\""},
        {{"--from", dir, "--prompt", "a", "--max-new", "4", "--quantize", "nf5"},
         "none, nf4, int8, fp8, mxfp4 or nvfp4"},
        {{"--from", dir, "--prompt", "a", "--stop", "\xa9"}, "--stop needs a text in UTF-8"},
        {{"--from", dir}, "no prompt; pass --prompt TEXT"},
        {{"--from", dir, "--prompt", "a", "--prompt-ids", "1"}, "pass prompts in one way"},
        {{"--from", dir, "--prompt-ids", "1,x"},
         "an id of --prompt-ids wants a whole number, not \"x\""},
        {{"--from", dir, "--prompt-ids", "257", "--max-new", "4"}, "the vocabulary has 257"},
        {{"--from", dir, "--prompt", "a", "--max-new", "99"}, "32 positions"},
        {{"--from", dir, "--prompt", "a", "--max-new", "4", "--adapter", none}, none},
        {{"--from", dir, "--prompt", "a", "--stop", ""}, "--stop"},
        {{"--from", dir, "--message", "a"}, "the model has no chat template"},
        {{"--from", dir, "--message", "a", "--prompt", "a"}, "pass prompts in one way"},
        {{"--from", dir, "--message", "a", "--chat", "nosuch"}, "no chat form \"nosuch\""},
        {{"--from", dir, "--prompt", "a", "--chat", "chatml"},
         "--chat has no effect without --message"},
        {{"--from", dir, "--prompt", "a", "--tools", none},
         "--tools has no effect without --message"},
        {{"--from", dir, "--message", "a", "--date", "today"}, "--date wants a day"},
    };
    /* An empty prompt is the token that begins a text. */
    EXPECT_EQ(generate({"--from", dir, "--prompt", "", "--max-new", "4"}).prompt,
              std::vector<int>{256});
    for (const auto &c : cases) {
        const ProgramResult r = run_program(with({"generate"}, c.words));
        EXPECT_NE(r.status, 0) << c.part;
        EXPECT_NE(r.err.find(c.part), std::string::npos) << r.err;
    }
    ProgramResult r = run_program(with(train(data, "1"), {"--from", dir, "--quantize", "nf4"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("quantised weights are not trained; use adapters"), std::string::npos);
    r = run_program(with(train(data, "1"), {"--from", dir, "--lora", "r=4,targets=q_proj"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("no module matches the targets of adapters, q_proj"), std::string::npos)
        << r.err;
    for (const char *field : {"num_beams", "suppress_tokens", "a_new_field"}) {
        std::ofstream(dir + "/generation_config.json") << "{\"" << field << "\": [2]}";
        r = run_program({"generate", "--from", dir, "--prompt", "a", "--max-new", "4"});
        EXPECT_NE(r.status, 0) << field;
        EXPECT_NE(r.err.find(std::string("generation_config.json: ") + field + " is [2]"),
                  std::string::npos)
            << r.err;
    }
}
