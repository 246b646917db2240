/* SPDX-License-Identifier: MIT
 *
 * Fine-tuning from outside: quantised weights with adapters, documents, files of tokens, and
 * adapters merged into the weights.
 */
#include <gtest/gtest.h>

#include <fstream>

#include "train_program.h"

namespace
{
ProgramResult run(const std::vector<std::string> &words)
{
    ProgramResult r = run_program(words);
    EXPECT_EQ(r.status, 0) << words[0] << " " << words[1] << ": " << r.err;
    return r;
}

/* A model of bytes, with a tokenizer.json. */
struct Base {
    TempFolder folder;
    std::string dir;
    explicit Base(const std::string &kind) : dir(folder.path + "/base")
    {
        run(with(tiny(folder.file("t.txt", some_text())),
                 {"--model", kind, "--steps", "1", "--export", dir}));
    }
    std::vector<std::string> train(const std::string &data,
                                   const std::vector<std::string> &more = {}) const
    {
        return with({"train", "--from", dir, "--data", data, "--seq", "16", "--batch", "4",
                     "--steps", "6", "--lr", "0.02", "--seed", "3"},
                    more);
    }
    std::string path(const std::string &name) const
    {
        return folder.path + "/" + name;
    }
};

std::string sha_of(const ProgramResult &r)
{
    const size_t at = r.out.find("parameters: sha256");
    EXPECT_NE(at, std::string::npos) << r.out << r.err;
    return at == std::string::npos ? "" : r.out.substr(at, 83);
}

/* Two exports are the same bytes. */
void expect_same(const std::string &a, const std::string &b)
{
    for (const char *name : {"/config.json", "/model.safetensors", "/tokenizer.json"}) {
        const std::string one = read_text(a + name);
        EXPECT_FALSE(one.empty()) << a << name;
        EXPECT_TRUE(one == read_text(b + name)) << name;
    }
}

std::string documents()
{
    std::string lines;
    for (int i = 10; i < 50; i++)
        lines += "{\"prompt\": \"" + std::to_string(i) + "=\", \"completion\": \"" +
                 std::to_string(i + 1) + "\\u0000\"}\n";
    return lines;
}
} // namespace

TEST(FineTuning, AnExportWithAdaptersIsTheMergeOfThem)
{
    for (const char *kind : {"gpt2", "llama"}) {
        const Base base(kind);
        const std::string adapter = base.path("a"), merged = base.path("merged"),
                          whole = base.path("whole");
        const std::vector<std::string> quantize = {"--quantize", "nf4"};
        run(with(base.train(base.path("t.txt"), {"--lora", "r=2,alpha=16,targets=all-linear",
                                                 "--export-adapter", adapter, "--export", whole}),
                 kind == std::string("llama") ? quantize : std::vector<std::string>()));
        const std::string said =
            run({"merge", "--from", base.dir, "--adapter", adapter, "--export", merged}).out;
        EXPECT_NE(said.find("modules into " + merged), std::string::npos) << said;
        expect_same(whole, merged);
        EXPECT_FALSE(read_text(base.dir + "/model.safetensors") ==
                     read_text(merged + "/model.safetensors"));
    }
}

TEST(FineTuning, WhatCannotBeMergedIsRefusedBeforeAnyStep)
{
    const Base base("llama"), other("gpt2");
    const std::string data = base.path("t.txt"), out = base.path("out"), adapter = other.path("a");
    const auto refused = [](const std::vector<std::string> &words, const std::string &part) {
        const ProgramResult r = run_program(words);
        EXPECT_NE(r.status, 0);
        EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
        EXPECT_EQ(r.out.find("step"), std::string::npos) << r.out;
    };
    refused(with(tiny(data), {"--lora", "r=2", "--export", out}), "weights of --from DIR");
    refused(base.train(data, {"--lora", "r=2", "--freeze", "!*norm*", "--export", out}),
            "is trained, too");
    refused(base.train(data, {"--lora", "r=2", "--freeze", "!*norm*", "--export-adapter", out}),
            "is trained, too");
    for (const char *bias : {"all", "lora_only"})
        refused(other.train(data, {"--lora", std::string("r=2,targets=c_attn,bias=") + bias,
                                   "--export-adapter", out}),
                ".bias is trained, too");
    refused(base.train(data, {"--lora", "r=2,bias=some"}), "bias");
    run(other.train(data, {"--lora", "r=2", "--export-adapter", adapter}));
    refused({"merge", "--from", base.dir, "--adapter", adapter, "--export", out},
            "belongs to another model");
    EXPECT_FALSE(std::ifstream(out + "/config.json").good());
}

TEST(FineTuning, QuantisedWeightsLearnThroughAdapters)
{
    const Base base("llama");
    const auto loss = [&](const char *steps) {
        const std::string out =
            run(base.train(base.path("t.txt"), {"--quantize", "nf4", "--lora",
                                                "r=4,targets=all-linear", "--steps", steps}))
                .out;
        return std::stod(out.substr(out.rfind(" loss ") + 6));
    };
    EXPECT_LT(loss("20"), loss("1") - 0.1);
}

TEST(FineTuning, WithoutATokenToLearnHasFailed)
{
    const Base base("gpt2");
    std::string lines;
    for (int i = 10; i < 50; i++)
        lines += "{\"prompt\": \"" + std::to_string(i) + std::string(20, 'a') +
                 "\", \"completion\": \"b\"}\n";
    const std::string data = base.folder.file("p.jsonl", lines), log = base.path("log"),
                      save = base.path("save");
    for (const char *ranks : {"1", "2"}) {
        const ProgramResult r = run_program(
            base.train(data, {"--ranks", ranks, "--steps", "2", "--log", log, "--save", save}));
        EXPECT_EQ(r.status, 1) << r.out;
        EXPECT_NE(r.err.find("none of the 2 steps had a token to learn"), std::string::npos)
            << r.err;
        EXPECT_EQ(r.out.find("loss 0.0000"), std::string::npos) << r.out;
        EXPECT_NE(read_text(log).find("\"loss\":null"), std::string::npos) << read_text(log);
        EXPECT_FALSE(std::ifstream(save + "/latest").good());
    }
}

TEST(FineTuning, DocumentsInRowsOfTheirOwnOrPacked)
{
    const Base base("gpt2");
    const std::string data = base.folder.file("d.jsonl", documents());
    const ProgramResult alone = run(base.train(data)),
                        packed = run(base.train(data, {"--packing"}));
    EXPECT_NE(alone.out.find("40 documents in 40 rows of 16 tokens, 0 of them cut"),
              std::string::npos)
        << alone.out;
    EXPECT_NE(packed.out.find("40 documents in 20 rows of 16 tokens, 0 of them cut"),
              std::string::npos)
        << packed.out;
    EXPECT_NE(sha_of(alone), sha_of(packed));
    const std::string chat =
        base.folder.file("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    for (const std::string form : {"", "alpaca"}) {
        const ProgramResult r =
            run_program(base.train(chat, form.empty() ? std::vector<std::string>()
                                                      : std::vector<std::string>{"--chat", form}));
        EXPECT_NE(r.status, 0);
        EXPECT_NE(r.err.find("chatml, llama3, llama2"), std::string::npos) << r.err;
        EXPECT_NE(r.err.find("line 1"), std::string::npos) << r.err;
    }
}

TEST(FineTuning, AFileOfTokensTrainsAsTheTexts)
{
    const Base base("llama");
    std::string lines;
    for (int i = 0; i < 40; i++)
        lines += "{\"text\": \"line " + std::to_string(i) + " \\u00e9\\u0000.\"}\n";
    for (const std::string &data : {base.path("t.txt"), base.folder.file("l.jsonl", lines)}) {
        const std::string tokens = base.path("tokens");
        const std::string said =
            run({"tokenize", "--from", base.dir, "--data", data, "--out", tokens}).out;
        EXPECT_NE(said.find("tokens of 1 files in 16 bits"), std::string::npos) << said;
        EXPECT_EQ(sha_of(run(base.train(tokens))), sha_of(run(base.train(data)))) << data;
    }
    const ProgramResult r =
        run_program({"tokenize", "--from", base.dir, "--data",
                     base.folder.file("d.jsonl", documents()), "--out", base.path("more")});
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.err.find("documents"), std::string::npos) << r.err;
}
