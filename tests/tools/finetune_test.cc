/* SPDX-License-Identifier: MIT
 *
 * Fine-tuning from outside: quantised weights with adapters, documents, files of tokens, and
 * adapters merged into the weights.
 */
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ringforge/weights.h>

#include "../train/packed_weights.h"
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

/* Two exports are equal byte by byte. */
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
        /* The adapter does not determine the layout of the base's weights. */
        std::string config = read_text(adapter + "/adapter_config.json");
        const size_t at = config.find("fan_in_fan_out");
        ASSERT_NE(at, std::string::npos);
        config.replace(at, 14, "a_new_field\": null, \"revision");
        std::ofstream(adapter + "/adapter_config.json") << config;
        run({"merge", "--from", base.dir, "--adapter", adapter, "--export", merged});
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
    refused(base.train(data, {"--lora", "r=2,r=4"}), "each key once");
    refused(base.train(data, {"--lora", "r=2,alpha=4x"}), "alpha=4x");
    for (const char *name : {"lm_head", "embed_tokens", "norm", "q_prok"})
        refused(base.train(data, {"--lora", std::string("r=2,targets=q_proj,") + name}),
                std::string("\"") + name + "\" of the targets");
    run(other.train(data, {"--lora", "r=2", "--export-adapter", adapter}));
    refused({"merge", "--from", base.dir, "--adapter", adapter, "--export", out},
            "belongs to no weight of --from " + base.dir);
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

/* The folder with its layers' matrices as bitsandbytes writes them in nf4. */
std::string packed_copy(const Base &base)
{
    const std::string dir = base.path("packed");
    packed_weights::RawTensors tensors;
    rf_weights *w = nullptr;
    EXPECT_EQ(rf_weights_open(base.dir.c_str(), nullptr, &w), 0);
    for (int i = 0; i < rf_weights_count(w); i++) {
        const rf_weight *weight = rf_weights_get(w, i);
        const int64_t count = rf_shape_count(weight->shape);
        std::string bytes((size_t)count * 4, 0);
        float *values = reinterpret_cast<float *>(bytes.data());
        EXPECT_EQ(rf_weights_read(w, i, 0, (uint64_t)count, values), 0);
        const std::string name = weight->name;
        const auto *dim = weight->shape.dim;
        if (name.find("_proj.weight") == std::string::npos) {
            tensors[name] = {"F32",
                             packed_weights::shape_of(dim[0], weight->shape.ndim > 1 ? dim[1] : 0),
                             bytes};
            continue;
        }
        std::string packed(rf_quantized_bytes(RF_NF4, count), 0);
        EXPECT_EQ(rf_quantize(RF_NF4, values, count, packed.data()), 0);
        packed_weights::add_nf4(tensors, name, dim[0], dim[1], packed);
    }
    rf_weights_close(w);
    std::filesystem::create_directory(dir);
    for (const char *name : {"tokenizer.json", "tokenizer_config.json"})
        std::filesystem::copy_file(base.dir + "/" + name, dir + "/" + name);
    std::string config = read_text(base.dir + "/config.json");
    config.insert(config.find('{') + 1, std::string(packed_weights::nf4_config) + ",");
    std::ofstream(dir + "/config.json") << config;
    std::ofstream(dir + "/model.safetensors") << packed_weights::file_of(tensors);
    return dir;
}

/* A folder in nf4 trains and generates as its origin quantised to the same bytes; or as the values
 * of these bytes, which an export of it has. */
TEST(FineTuning, FilesInNf4AreTakenAsTheyAre)
{
    Base base("llama");
    const std::string data = base.path("t.txt"), plain = base.path("plain"), origin = base.dir;
    const std::vector<std::string> lora = {"--lora", "r=4,targets=all-linear"};
    const auto adapter_of = [&](const std::vector<std::string> &more) {
        static int count;
        const std::string out = base.path("adapter" + std::to_string(count++));
        run(base.train(data, with(with(lora, {"--export-adapter", out}), more)));
        return read_text(out + "/adapter_model.safetensors");
    };
    const auto text_of = [&](const std::vector<std::string> &more) {
        return run(with({"generate", "--from", base.dir, "--prompt", "ab", "--max-new", "6",
                         "--json", "-"},
                        more))
            .out;
    };
    const auto logprobs = [](const std::string &text) {
        return text.substr(text.find("logprobs"), text.find("seconds") - text.find("logprobs"));
    };
    const std::string adapter = adapter_of({"--quantize", "nf4"});
    const std::string text = text_of({"--quantize", "nf4"});
    base.dir = packed_copy(base);
    EXPECT_TRUE(adapter_of({}) == adapter);
    EXPECT_EQ(logprobs(text_of({})), logprobs(text));
    const std::string unpacked = adapter_of({"--quantize", "none"});
    EXPECT_FALSE(unpacked == adapter);
    run({"merge", "--from", base.dir, "--adapter", base.path("adapter0"), "--export",
         base.path("merged")});
    run(base.train(data, {"--lr", "0", "--weight-decay", "0", "--steps", "1", "--export", plain}));
    base.dir = plain;
    EXPECT_EQ(read_text(plain + "/config.json").find("quantization_config"), std::string::npos);
    EXPECT_TRUE(adapter_of({"--quantize", "none"}) == unpacked);
    run({"merge", "--from", plain, "--adapter", base.path("adapter0"), "--export",
         base.path("merged2")});
    EXPECT_TRUE(read_text(base.path("merged") + "/model.safetensors") ==
                read_text(base.path("merged2") + "/model.safetensors"));
    EXPECT_EQ(read_text(base.path("merged") + "/config.json").find("quantization_config"),
              std::string::npos);
    /* config.json promises nf4, and the files have something else. */
    std::string config = read_text(origin + "/config.json");
    config.insert(config.find('{') + 1, std::string(packed_weights::nf4_config) + ",");
    std::ofstream(origin + "/config.json") << config;
    base.dir = origin;
    const ProgramResult r = run_program(base.train(data, lora));
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.err.find("do not have all of it in nf4"), std::string::npos) << r.err;
}

TEST(FineTuning, WithoutATokenToLearnHasFailed)
{
    const Base base("gpt2");
    std::string lines;
    for (int i = 10; i < 50; i++)
        lines += "{\"prompt\": \"" + std::to_string(i) + std::string(20, 'a') +
                 "\", \"completion\": \"b\"}\n";
    const std::string data = base.folder.file("p.jsonl", lines), save = base.path("save");
    for (const char *ranks : {"1", "2"}) {
        const ProgramResult r =
            run_program(base.train(data, {"--ranks", ranks, "--steps", "2", "--save", save}));
        EXPECT_EQ(r.status, 1) << r.out;
        EXPECT_NE(r.err.find("what is to be learned of all 40 documents lies behind the end"),
                  std::string::npos)
            << r.err;
        EXPECT_EQ(r.out.find("loss"), std::string::npos) << r.out;
        EXPECT_FALSE(std::ifstream(save + "/latest").good());
    }
}

TEST(FineTuning, DocumentsInRowsOfTheirOwnOrPacked)
{
    const Base base("gpt2");
    /* The last one is cut before its completion, so it has nothing to learn. */
    const std::string late = "{\"prompt\": \"a prompt of a row\", \"completion\": \"x\"}\n";
    const std::string data = base.folder.file("d.jsonl", documents() + late);
    const ProgramResult alone = run(base.train(data)),
                        packed = run(base.train(data, {"--packing"}));
    EXPECT_NE(alone.out.find("40 documents in 40 rows of 16 tokens, 0 of them cut"),
              std::string::npos)
        << alone.out;
    EXPECT_NE(alone.out.find("1 more documents were left out"), std::string::npos) << alone.out;
    EXPECT_NE(packed.out.find("40 documents in 20 rows of 16 tokens, 0 of them cut"),
              std::string::npos)
        << packed.out;
    EXPECT_NE(sha_of(alone), sha_of(packed));
    const std::string chat =
        base.folder.file("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    const auto refused = [](const std::vector<std::string> &words, const std::string &part) {
        const ProgramResult r = run_program(words);
        EXPECT_NE(r.status, 0);
        EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
        EXPECT_EQ(r.out.find("step"), std::string::npos) << r.out;
    };
    refused(base.train(chat), "line 1: the model has no chat template");
    for (const std::string &any : {chat, base.path("t.txt")})
        refused(
            base.train(any, {"--chat", "alpaca"}),
            "there is no chat form \"alpaca\"; name one of the chat forms chatml, llama3, llama2");
    refused(base.train(chat, {"--date", "2026-02-29"}), "--date wants a day");
    refused(base.train(base.folder.file("late.jsonl", late)), "use longer rows (--seq)");
}

/* A template may print the date: a run resumed on the next day reads the same conversations. */
TEST(FineTuning, ACheckpointKeepsTheDayThatItsConversationsWereWrittenOn)
{
    const Base base("gpt2");
    const std::string form = base.folder.file(
        "day.jinja", "{{ strftime_now('%d') }}{% for m in messages %}{% if m.role == 'assistant' %}"
                     "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}"
                     "{% endif %}{% endfor %}");
    const std::string chat = base.folder.file(
        "c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                   "\"assistant\", \"content\": \"b\"}]}\n");
    const auto day = [&](const char *date, const std::vector<std::string> &more) {
        std::vector<std::string> words = {"--chat", form, "--date", date};
        words.insert(words.end(), more.begin(), more.end());
        return base.train(chat, words);
    };
    const std::string save = base.path("save");
    run(day("2024-01-11", {"--save", save}));
    const ProgramResult kept =
        run(base.train(chat, {"--chat", form, "--resume", save, "--steps", "9"}));
    EXPECT_NE(kept.out.find("--date 2024-01-11: going on with that"), std::string::npos)
        << kept.out;
    const ProgramResult other = run_program(day("2024-01-12", {"--resume", save, "--steps", "9"}));
    EXPECT_EQ(other.status, 2);
    EXPECT_NE(other.err.find("was trained with --date 2024-01-11"), std::string::npos) << other.err;
    /* The date is kept even if it was not given. */
    run(base.train(chat, {"--chat", form, "--save", save + "2"}));
    const ProgramResult today =
        run_program(day("2024-01-12", {"--resume", save + "2", "--steps", "9"}));
    EXPECT_NE(today.err.find("was trained with --date 20"), std::string::npos) << today.err;
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
