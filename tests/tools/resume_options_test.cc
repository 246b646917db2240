/* SPDX-License-Identifier: MIT
 *
 * The options of a resumed run: the rate, its schedule, the optimizer's numbers, types and text are
 * the checkpoint's, unless they are given. A given option that differs is refused by name, unless
 * the change is requested.
 */
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "option_table.h"
#include "train_program.h"

namespace
{

/* The learning rates of the steps in a log. */
std::vector<float> rates(const std::string &log)
{
    std::vector<float> list;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);)
        if (line.find("\"grad_norm\"") != std::string::npos)
            list.push_back((float)last_number(line, "lr"));
    return list;
}

/* Four steps with everything but the sizes given, and a checkpoint after the second. */
struct Trained {
    TempFolder folder;
    std::string data, other, save, log, sha;
    Trained()
    {
        std::string text = some_text();
        data = folder.file("a.txt", text);
        text.back() = '!';
        other = folder.file("b.txt", text);
        save = folder.path + "/c";
        log = folder.path + "/log";
        const ProgramResult r = run_program(
            with(tiny(data), {"--steps",    "4",      "--lr",    "1e-2", "--warmup",       "1",
                              "--lr-decay", "cosine", "--beta1", "0.8",  "--weight-decay", "0.2",
                              "--clip",     "0.5",    "--save",  save,   "--save-every",   "2",
                              "--log",      log}));
        EXPECT_EQ(r.status, 0) << r.err;
        sha = last_text(read_text(log), "params_sha256");
    }
    Words resume(const std::string &from, const Words &more) const
    {
        return with(tiny(data), with({"--resume", from, "--log", log}, more));
    }
};

const Trained &trained()
{
    static const Trained *const only = new Trained;
    return *only;
}

} // namespace

TEST(ResumeOptions, WhatIsNotGivenIsTheCheckpointsAndIsSaid)
{
    const Trained &t = trained();
    const ProgramResult r = run_program(t.resume(t.save + "/step-2", {"--steps", "4"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(last_text(read_text(t.log), "params_sha256"), t.sha);
    EXPECT_NE(r.out.find("/step-2 was trained with --beta1 0.8, --clip 0.5, --weight-decay 0.2, "
                         "--lr 0.01, --warmup 1, --lr-decay cosine: going on with that\n"),
              std::string::npos)
        << r.out;
}

/* A resumed run usually has more steps; they do not lift a cosine that has come down. */
TEST(ResumeOptions, ACosineEndsWhereItDidUnlessItIsAskedForAndThatIsKept)
{
    const Trained &t = trained();
    ProgramResult r = run_program(t.resume(t.save, {"--steps", "6"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(rates(t.log), (std::vector<float>{0.001f, 0.001f}));
    EXPECT_NE(r.out.find("the cosine of the learning rate ends at step 4, as it did before; "
                         "--change steps ends it at step 6\n"),
              std::string::npos)
        << r.out;
    const std::string next = t.folder.path + "/next";
    r = run_program(
        t.resume(t.save, {"--steps", "7", "--change", "steps,lr", "--lr", "2e-2", "--save", next}));
    ASSERT_EQ(r.status, 0) << r.err;
    const std::vector<float> asked = rates(t.log);
    ASSERT_EQ(asked.size(), 3u);
    for (int i = 0; i < 3; i++)
        EXPECT_NEAR(asked[(size_t)i], 0.002 + 0.009 * (1 + cos(M_PI * (4 + i - 1) / 6)), 1e-6);
    r = run_program(t.resume(next, {"--steps", "8"}));
    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_EQ(rates(t.log).size(), 1u);
    EXPECT_NEAR(rates(t.log)[0], 0.002, 1e-9);
}

/* In either direction: every kept option of the table. */
TEST(ResumeOptions, EveryKeptOptionThatDiffersIsRefusedByNameAndNothingIsTouched)
{
    const Trained &t = trained();
    const struct {
        Words given;
        const char *kept;
    } rows[] = {
        {{"--dtype", "bf16"}, "--dtype f32"},
        {{"--residual", "same"}, "--residual f32"},
        {{"--matmul-precision", "mxfp8"}, "--matmul-precision none"},
        {{"--no-masters"}, "without --no-masters"},
        {{"--stochastic-rounding"}, "without --stochastic-rounding"},
        {{"--reduce-dtype", "bf16"}, "--reduce-dtype f32"},
        {{"--compress", "nf4"}, "--compress none"},
        {{"--loss-scale", "2"}, "--loss-scale 0"},
        {{"--optimizer", "lion"}, "--optimizer adamw"},
        {{"--optimizer-state", "8bit"}, "--optimizer-state f32"},
        {{"--beta1", "0.9"}, "--beta1 0.8"},
        {{"--beta2", "0.9"}, "--beta2 0.95"},
        {{"--eps", "1e-7"}, "--eps 1e-08"},
        {{"--eps-inside"}, "without --eps-inside"},
        {{"--no-bias-correction"}, "without --no-bias-correction"},
        {{"--centered"}, "without --centered"},
        {{"--clip", "1"}, "--clip 0.5"},
        {{"--weight-decay", "0.1"}, "--weight-decay 0.2"},
        {{"--packing"}, "without --packing"},
        {{"--sync", "local:2"}, "--sync none"},
        {{"--lr", "3e-3"}, "--lr 0.01"},
        {{"--warmup", "0"}, "--warmup 1"},
        {{"--lr-decay", "none"}, "--lr-decay cosine"},
    };
    /* Options of another rule, of another kind of data, and the text, below. */
    std::map<std::string, bool> known = {
        {"momentum", true}, {"dampening", true}, {"chat", true}, {"date", true}, {"data", true}};
    const std::string before = read_text(t.save + "/step-4/state.json");
    for (const auto &row : rows) {
        const ProgramResult r = run_program(t.resume(t.save, with({"--steps", "5"}, row.given)));
        EXPECT_EQ(r.status, 2) << row.given[0];
        EXPECT_NE(r.err.find(" was trained with " + std::string(row.kept) + "; give the same"),
                  std::string::npos)
            << r.err;
        known[row.given[0].substr(2)] = true;
    }
    for (const OptionRow &row : options_of("train"))
        if (row.kept) {
            EXPECT_TRUE(known[row.name]) << "--" << row.name << " has no row here";
        }
    ProgramResult r =
        run_program(t.resume(t.save, {"--steps", "5", "--lr", "1", "--beta1", "0.9"}));
    EXPECT_NE(r.err.find("--beta1 0.8, --lr 0.01; give the same"), std::string::npos) << r.err;
    r = run_program(t.resume(t.save, {"--steps", "5", "--data", t.other}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("was trained on another text than " + t.other), std::string::npos)
        << r.err;
    EXPECT_EQ(read_text(t.save + "/step-4/state.json"), before);
    /* The same values, written differently. */
    r = run_program(t.resume(t.save, {"--steps", "4", "--lr", "10e-3", "--beta2", "0.950",
                                      "--matmul-precision", "NONE"}));
    EXPECT_NE(r.err.find("at step 4 already"), std::string::npos) << r.err;
}

TEST(ResumeOptions, AnotherTextIsTakenWhereThatIsAskedFor)
{
    const Trained &t = trained();
    const ProgramResult r =
        run_program(t.resume(t.save, {"--steps", "5", "--change", "data", "--data", t.other}));
    EXPECT_EQ(r.status, 0) << r.err;
    const struct {
        Words given;
        const char *sentence;
    } wrong[] = {{{"--change", "nonsense"}, "there is no --change \"nonsense\""},
                 {{"--change", "layers"}, "there is no --change \"layers\""},
                 {{"--change", "lr"}, "--change lr needs the new --lr"}};
    for (const auto &w : wrong) {
        const ProgramResult refused =
            run_program(t.resume(t.save, with({"--steps", "5"}, w.given)));
        EXPECT_EQ(refused.status, 2);
        EXPECT_NE(refused.err.find(w.sentence), std::string::npos) << refused.err;
    }
}

/* It sends a request for the state, and for the options. */
TEST(ResumeOptions, ARankThatDoesNotSeeTheCheckpointGoesOnAsTheOthersDo)
{
    const Trained &t = trained();
    const Words train = t.resume("$DIR", {"--steps", "4"});
    std::string line = "if [ $RANK = 0 ]; then DIR=" + t.save +
                       "/step-2; else DIR=/nothing; fi; "
                       "exec " +
                       program_path();
    for (const std::string &word : train)
        line += " " + word;
    const ProgramResult r = run_program({"run", "--ranks", "2", "--", "sh", "-c", line});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(last_text(read_text(t.log), "params_sha256"), t.sha); /* in tree order */
}

TEST(ResumeOptions, ACheckpointOfAnEarlierVersionSaysThatItDoesNotKnow)
{
    const Trained &t = trained();
    const std::string old = t.folder.path + "/old", path = old + "/step-4/state.json";
    ASSERT_EQ(run_command({"cp", "-r", t.save, old}).status, 0);
    std::string state = read_text(path), text;
    std::map<std::string, std::string> values;
    for (const char *name : {"step", "samples", "updates", "batch", "seq", "seed",
                             "model_hashes_sha256", "optimizer_hashes_sha256", "config"}) {
        size_t at = state.find("\"" + std::string(name) + "\":\t\"");
        ASSERT_NE(at, std::string::npos);
        at += strlen(name) + 5;
        text += state.substr(at, state.find('"', at) - at);
        text += name == std::string("optimizer_hashes_sha256") || name == std::string("config")
                    ? ""
                    : " ";
    }
    const ProgramResult hash =
        run_command({"sh", "-c", "printf %s \"$1\" | sha256sum", "sh", text});
    const size_t line = state.find("\t\"settings\""),
                 own = state.find("\"state_sha256\":\t\"") + 17;
    state.replace(own, 64, hash.out.substr(0, 64));
    state.erase(line, state.find('\n', line) + 1 - line);
    state.replace(state.find("checkpoint 5"), 12, "checkpoint 4");
    std::ofstream(path) << state;
    const ProgramResult r = run_program(t.resume(old, {"--steps", "5", "--lr", "3e-3"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("does not say with which rate, rule and text"), std::string::npos)
        << r.out;
    EXPECT_EQ(rates(t.log), std::vector<float>{0.003f});
}
