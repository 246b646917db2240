// SPDX-License-Identifier: MIT
//
// What `ringforge plan` says about device memory at its peak.
#include "program.h"

#include <algorithm>
#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

// The kinds of values at the peak are all device memory, and each option that is said to make one
// smaller does.
TEST(PlanPeak, NamesWhatIsLargestAtThePeakAndWhatMakesItSmaller)
{
    using Words = std::vector<std::string>;
    const auto number = [](const cJSON *object, const char *name) {
        return cJSON_GetNumberValue(cJSON_GetObjectItem(object, name));
    };
    const auto plan = [](const Words &words) {
        Words all = {"plan", "--layers", "3", "--channels", "64", "--seq", "64", "--json"};
        all.insert(all.end(), words.begin(), words.end());
        const ProgramResult r = run_program(all);
        EXPECT_EQ(r.status, 0) << r.err << r.out;
        return std::shared_ptr<cJSON>(cJSON_Parse(r.out.c_str()), cJSON_Delete);
    };
    const auto bytes_of = [&](const cJSON *json, const std::string &name) {
        const cJSON *row = nullptr;
        cJSON_ArrayForEach(
            row, cJSON_GetObjectItem(
                     json, "peak")) if (cJSON_GetStringValue(cJSON_GetObjectItem(row, "name")) ==
                                        name) return number(row, "bytes");
        return 0.0;
    };
    const Words setups[] = {
        {"--batch", "4"},
        {"--batch", "4", "--micro-batches", "2", "--dtype", "bf16", "--workspace", "1M"},
        {"--batch", "8", "--ranks", "2", "--zero", "3", "--keep-gathered"},
        {"--batch", "4", "--layers", "1", "--recompute", "block"}, // it is in the head
        {"--batch", "2", "--head-rows", "32", "--update-in-backward", "--clip", "0",
         "--optimizer-state", "8bit"},
        {"--batch", "4", "--mesh", "tp=2", "--reduce-dtype", "bf16"},
    };
    std::set<std::string> seen;
    for (const Words &setup : setups) {
        const auto json = plan(setup);
        const cJSON *bytes = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
        double sum = number(json.get(), "peak_rest") + number(bytes, "host");
        for (const char *name : {"params", "grads", "optimizer", "activations", "comm", "scratch"})
            sum -= number(bytes, name);
        const cJSON *row = nullptr;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.get(), "peak"))
        {
            const std::string name = cJSON_GetStringValue(cJSON_GetObjectItem(row, "name"));
            const cJSON *change = cJSON_GetObjectItem(row, "change");
            sum += number(row, "bytes");
            EXPECT_GT(number(row, "values"), 0);
            if (cJSON_IsNull(change))
                continue;
            std::istringstream options(cJSON_GetStringValue(change));
            Words with = setup, more(std::istream_iterator<std::string>(options), {});
            if (more[0] == "no")
                with.erase(std::find(with.begin(), with.end(), more[1]));
            else
                with.insert(with.end(), more.begin(), more.end());
            if (more.back() == "--micro-batches")
                with.push_back(setup[1]);
            EXPECT_LT(bytes_of(plan(with).get(), name), number(row, "bytes"))
                << name << ": " << cJSON_GetStringValue(change);
            seen.insert(name);
        }
        EXPECT_EQ(sum, 0);
    }
    EXPECT_GE(seen.size(), 9u);
    const ProgramResult r = run_program({"plan", "--layers", "2", "--channels", "64"});
    EXPECT_NE(r.out.find("optimizer states: --optimizer-state 8bit"), std::string::npos) << r.out;
}

// A Llama of 1.1 billion parameters, trained in full with a sequence of 512 tokens, without host
// memory: in 8 bits with updates in the backward pass it needs less than 0.45 of what the cheapest
// plan with f32 states and all gradients needs.
TEST(PlanPeak, StatesIn8BitsAndUpdatesInTheBackwardPassTakeAThirdOfTheMemory)
{
    TempFolder folder;
    folder.file("config.json",
                R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                    "hidden_act": "silu", "num_hidden_layers": 22, "hidden_size": 2048,
                    "intermediate_size": 5632, "num_attention_heads": 32,
                    "num_key_value_heads": 4, "vocab_size": 32000, "head_dim": 64,
                    "tie_word_embeddings": false, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
                    "max_position_embeddings": 2048})");
    const auto needs = [&](const std::vector<std::string> &more) {
        std::vector<std::string> words = {"plan",
                                          "--from",
                                          folder.path,
                                          "--seq",
                                          "512",
                                          "--batch",
                                          "1",
                                          "--dtype",
                                          "bf16",
                                          "--residual",
                                          "same",
                                          "--no-masters",
                                          "--stochastic-rounding",
                                          "--recompute",
                                          "block",
                                          "--head-rows",
                                          "128",
                                          "--clip",
                                          "0",
                                          "--json"};
        words.insert(words.end(), more.begin(), more.end());
        const ProgramResult r = run_program(words);
        EXPECT_EQ(r.status, 0) << r.err;
        std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
        double sum = -cJSON_GetNumberValue(cJSON_GetObjectItem(row, "host"));
        for (const char *name : {"params", "grads", "optimizer", "activations", "comm", "scratch"})
            sum += cJSON_GetNumberValue(cJSON_GetObjectItem(row, name));
        return sum;
    };
    const double before = needs({});
    const double now = needs({"--optimizer-state", "8bit", "--update-in-backward"});
    EXPECT_LE(now, 0.35 * before);
    EXPECT_LE(now, 0.6 * needs({"--optimizer-state", "8bit"}));
}
