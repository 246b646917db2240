/* SPDX-License-Identifier: MIT
 *
 * Rules as text and as structs: what is read, what is refused, and what workers must have alike.
 */
#include "training.h"

namespace
{

struct Refused {
    const char *message;
    std::function<void(rf_rounds_rule &)> change;
};

TEST(Rounds, RulesThatContradictThemselvesAreRefusedByName)
{
    static rf_optimizer_opts sgd = {};
    const Refused all[] = {
        {"a delay of 2 steps", [](rf_rounds_rule &r) { r.every = 2, r.delay = 2; }},
        {"in 3 parts", [](rf_rounds_rule &r) { r.every = 2, r.parts = 3; }},
        {"-1 local steps", [](rf_rounds_rule &r) { r.every = -1; }},
        {"no common start",
         [](rf_rounds_rule &r) { r.difference = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"need \"difference\"", [](rf_rounds_rule &r) { r.outer = &sgd; }},
        {"need \"difference\"", [](rf_rounds_rule &r) { r.outer_lr = 0.5f; }},
        {"in the form \"nf4\"", [](rf_rounds_rule &r) { r.form = RF_FORM_NF4; }},
        {"in the form \"bf16\"", [](rf_rounds_rule &r) { r.form = RF_FORM_BF16; }},
        {"in the form \"int8\"",
         [](rf_rounds_rule &r) { r.form = RF_FORM_INT8, r.mixing.graph = RF_GRAPH_RING; }},
        {"loses nothing", [](rf_rounds_rule &r) { r.no_feedback = true; }},
        {"mix_first", [](rf_rounds_rule &r) { r.mix_first = true; }},
        {"shares of the mean",
         [](rf_rounds_rule &r) { r.weighted = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"a seed has no effect", [](rf_rounds_rule &r) { r.mixing.seed = 1; }},
        {"stochastic rounding has no effect",
         [](rf_rounds_rule &r) {
             static rf_optimizer_opts rounds_at_random = {};
             rounds_at_random.stochastic_rounding = true;
             r.difference = true, r.outer = &rounds_at_random;
         }},
        {"the form \"powersgd\" only",
         [](rf_rounds_rule &r) { r.form_rank = 2, r.form = RF_FORM_INT8, r.difference = true; }},
        {"an approximation of rank 65",
         [](rf_rounds_rule &r) { r.form_rank = 65, r.form = RF_FORM_POWERSGD; }},
        {"cut the matrices",
         [](rf_rounds_rule &r) {
             r.every = r.parts = 2, r.form = RF_FORM_POWERSGD, r.difference = true;
         }},
        {"gradients are added", [](rf_rounds_rule &r) { r.gradients = r.difference = true; }},
        {"gradients are added", [](rf_rounds_rule &r) { r.gradients = true, r.every = 2; }},
        {"gradients are added",
         [](rf_rounds_rule &r) { r.gradients = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"a fraction of the values", [](rf_rounds_rule &r) { r.fraction = 0.5f; }},
        {"at most 1",
         [](rf_rounds_rule &r) { r.form = RF_FORM_TOP, r.fraction = 1.5f, r.difference = true; }},
    };
    for (const Refused &row : all) {
        rf_rounds_rule rule = {};
        row.change(rule);
        EXPECT_EQ(rf_rounds_check(&rule, 4), RF_EINVAL) << row.message;
        EXPECT_NE(std::string(rf_last_error()->message).find(row.message), std::string::npos)
            << rf_last_error()->message;
        const rf_round_place place = {0, 4, 0, 100};
        struct rf_rounds_usage usage = {};
        EXPECT_EQ(rf_rounds_usage(&rule, &place, &usage), RF_EINVAL);
    }
}

TEST(Rounds, RulesAreReadFromText)
{
    rf_rounds_text text = {};
    ASSERT_EQ(
        rf_rounds_text_read("diloco:50,form=nf4,lr=0.5,momentum=0.8,delay=2,parts=5", 4, &text),
        RF_OK)
        << rf_last_error()->message;
    EXPECT_EQ(text.rule.every, 50);
    EXPECT_TRUE(text.rule.difference);
    EXPECT_EQ(text.rule.form, RF_FORM_NF4);
    EXPECT_EQ(text.rule.outer_lr, 0.5f);
    EXPECT_EQ(text.rule.outer->kind, RF_NESTEROV);
    EXPECT_EQ(text.rule.outer->momentum, 0.8f);
    EXPECT_EQ(text.rule.delay, 2);
    EXPECT_EQ(text.rule.parts, 5);
    rf_rounds_text_free(&text);
    ASSERT_EQ(rf_rounds_text_read("gossip:1,graph=one-peer,order=mix-first", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.mixing.graph, RF_GRAPH_ONE_PEER);
    EXPECT_TRUE(text.rule.mix_first);
    ASSERT_EQ(rf_rounds_text_read("diloco:5,form=powersgd:3", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.form, RF_FORM_POWERSGD);
    EXPECT_EQ(text.rule.form_rank, 3);
    ASSERT_EQ(rf_rounds_text_read("diloco:5,form=top:0.5", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.fraction, 0.5f);
    ASSERT_EQ(rf_rounds_text_read("fedopt:5,outer=sgd", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.outer->kind, RF_SGD);
    const struct {
        const char *text, *message;
    } bad[] = {
        {"", "there is no rule \"\""},
        {"ddp:1", "there is no rule \"ddp:1\""},
        {"diloco", "write diloco:H"},
        {"diloco:0", "write diloco:H"},
        {"diloco:1.5", "write diloco:H"},
        {"local:4,form=fp4", "form=fp4: it takes f32"},
        {"diloco:4,form=powersgd:65", "form=powersgd:65: it takes f32"},
        {"diloco:4,form=powersgd:1.5", "form=powersgd:1.5: it takes f32"},
        {"diloco:4,form=int8:2", "form=int8:2: it takes f32"},
        {"diloco:4,form=top:0.5,fraction=0.1", "fraction is given twice"},
        {"diloco:4,fraction=0.1,form=top:0.5", "fraction is given twice"},
        {"local:4,form=nf4", "in the form \"nf4\""},
        {"local:4,shape=ring", "no key \"shape\""},
        {"local:4,graph", "no key \"graph\""},
        {"local:4,delay=1,delay=2", "delay is given twice"},
        {"local:4,delay=nan", "delay=nan"},
        {"local:4,delay=0x1", "delay=0x1"},
        {"local:4,lr=0.5", "need \"difference\""},
        {"diloco:4,beta1=0.5", "beta1 has no effect: the outer optimizer nesterov has none"},
        {"diloco:4,momentum=0.5,outer=sgd", "outer=sgd comes behind momentum"},
        {"local:4,seed=3", "a seed has no effect on the graph \"all\""},
        {"gossip:1,graph=torus,weights=/nowhere", "graph=torus and weights= name two graphs"},
        {"gossip:1,graph=star", "graph=star: it takes all"},
        {"gossip:1,weights=/nowhere/at/all", "weights=/nowhere/at/all"},
    };
    for (const auto &row : bad) {
        EXPECT_EQ(rf_rounds_text_read(row.text, 4, &text), RF_EINVAL) << row.text;
        EXPECT_NE(std::string(rf_last_error()->message).find(row.message), std::string::npos)
            << rf_last_error()->message;
    }
}

TEST(Rounds, WeightsAreReadFromAFile)
{
    const std::string path = testing::TempDir() + "rounds_weights.txt";
    const auto read = [&](const char *content) {
        FILE *file = fopen(path.c_str(), "w");
        fputs(content, file);
        fclose(file);
        rf_rounds_text text = {};
        const int rc = rf_rounds_text_read(("gossip:2,weights=" + path).c_str(), 3, &text);
        if (rc == RF_OK) {
            EXPECT_EQ(text.rule.mixing.weights[3], 0.25);
        }
        rf_rounds_text_free(&text);
        return rc == RF_OK ? std::string() : std::string(rf_last_error()->message);
    };
    EXPECT_EQ(read("0.5 0.25 0.25\n0.25 0.5 0.25\n0.25 0.25 0.5\n"), "");
    EXPECT_NE(read("0.5 0.25 0.25\n0.25 0.5\n").find("number 6"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 0.5 0 0 0 1 0").find("number 10"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 x 0 0 0 1").find("number 5"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 0.5 0 0 0 1").find("no path leads from rank 0 to rank 2"),
              std::string::npos);
    remove(path.c_str());
}

TEST(Rounds, WorkersWithDifferentRulesAreToldWhich)
{
    ranks::World world;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Vector params(10);
        rf_rounds_rule rule = {};
        rule.every = rank + 1;
        const rf_rounds_params in_host = rf_rounds_in_host(params.data(), 10);
        rf_rounds *rounds = nullptr;
        EXPECT_EQ(rf_rounds_open(comm, &in_host, &rule, &rounds), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("local steps"), std::string::npos)
            << rf_last_error()->message;
    });
}

} // namespace
