/* SPDX-License-Identifier: MIT
 *
 * The choice among forms of a kernel, with a compiler controlled by the test: the first form
 * without spills is taken, the answer is kept for this process and for later ones, and the register
 * budget decides if there are no answers. Every case is a process of its own, as answers are kept
 * for a process.
 */
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "ops/budget.h"
#include "ops/forms.h"
}

namespace
{

enum { FORMS = 4, UNKNOWN = -1 };

/* A GPU about which only its compiler's answers for each form are known. */
struct gpu {
    rf_device *device = nullptr;
    std::vector<int64_t> spills = std::vector<int64_t>(FORMS, 0);
    std::vector<int64_t> instructions = std::vector<int64_t>(FORMS, UNKNOWN);
    std::vector<uint32_t> registers = std::vector<uint32_t>(FORMS, 1);
    std::vector<bool> fits = std::vector<bool>(FORMS, true);
    int other = UNKNOWN; /* form whose kernel is the other build of each */
    uint32_t shader = 7; /* a different one is a different kernel */
    size_t variants = 0; /* of each form */
    int asked = 0;       /* the compiler */

    void open(rf_device_kind kind = RF_DEVICE_OTHER, bool says = true)
    {
        ASSERT_EQ(rf_device_open(nullptr, nullptr, &device), RF_OK) << rf_last_error()->message;
        info()->kind = kind;
        snprintf(info()->name, sizeof(info()->name), "nobody has named it");
        info()->vendor_id = info()->device_id = info()->driver_id = 0xdead;
        memset(info()->device_uuid, 0x5a, sizeof(info()->device_uuid));
        if (says)
            rf_device_fake_figures(device, say, this);
    }
    rf_device_info *info() const
    {
        return const_cast<rf_device_info *>(rf_device_get_info(device));
    }
    static bool say(void *user, const rf_kernel_desc *desc, rf_kernel_figures *figures)
    {
        gpu *g = (gpu *)user;
        const uint32_t form = desc->specs[0].value;
        *figures = {100, g->spills[form], -1, -1, -1, g->instructions[form], -1};
        g->asked++;
        return figures->spills != UNKNOWN;
    }
    static bool can(void *user, size_t i)
    {
        return ((gpu *)user)->fits[i];
    }
    static void describe(void *user, size_t i, rf_form *form)
    {
        const gpu *g = (gpu *)user;
        form->job.shader = RF_BUILD(matmul_tiled_nn);
        form->job.specs[0] = {0, (uint32_t)i};
        form->job.specs[1] = {1, g->shader};
        form->job.spec_count = 2;
        form->registers = g->registers[i];
        if (g->other != UNKNOWN) {
            form->other[form->other_count] = form->job;
            form->other[form->other_count++].specs[0].value = (uint32_t)g->other;
        }
        snprintf(form->text, sizeof(form->text), "form %zu", i);
    }
    int pick(const char *family = "test/f32")
    {
        rf_forms forms = {"", FORMS, variants, can, describe};
        snprintf(forms.family, sizeof(forms.family), "%s", family);
        return (int)rf_pick_form(device, &forms, this);
    }
    std::string shown() const
    {
        std::string text;
        rf_kernel_form list[16];
        uint32_t count = 0;
        EXPECT_EQ(rf_kernel_forms(device, list, 16, &count), RF_OK);
        for (uint32_t i = 0; i < count; i++)
            text += std::string(list[i].family) + ": " + list[i].form + ", " +
                    std::to_string(list[i].spills) + " spills, " +
                    std::to_string(list[i].spilling) + " spill, " +
                    std::to_string(list[i].over_budget) + " over; ";
        return text;
    }
};

class Forms : public testing::Test
{
  protected:
    void SetUp() override
    {
        folder = testing::TempDir() + "forms-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        setenv("RF_CACHE_DIR", folder.c_str(), 1);
    }
    void TearDown() override
    {
        unsetenv("RF_CACHE_DIR");
        unsetenv("RF_KERNEL_FORMS");
        const std::string command = "rm -rf '" + folder + "'";
        EXPECT_EQ(system(command.c_str()), 0);
    }
    /* A process. */
    static void run(const std::function<void(gpu &)> &body)
    {
        const pid_t child = fork();
        if (child == 0) {
            gpu g;
            body(g);
            rf_device_close(g.device);
            fflush(nullptr);
            _exit(testing::Test::HasFailure());
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    std::string file() const
    {
        std::string name;
        DIR *dir = opendir(folder.c_str());
        for (dirent *item = readdir(dir); item; item = readdir(dir))
            if (strstr(item->d_name, ".forms"))
                name = folder + "/" + item->d_name;
        closedir(dir);
        return name;
    }
    std::string text() const
    {
        std::string all;
        FILE *f = fopen(file().c_str(), "r");
        for (int c; f && (c = fgetc(f)) != EOF;)
            all += (char)c;
        if (f)
            fclose(f);
        return all;
    }
    void write(const std::string &name, const std::string &all) const
    {
        FILE *f = fopen(name.c_str(), "w");
        ASSERT_NE(f, nullptr);
        fputs(all.c_str(), f);
        fclose(f);
    }

    std::string folder;
};

TEST_F(Forms, TheFirstThatDoesNotSpillIsTakenAndAskedAboutOnce)
{
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.asked, 3);
        g.spills = {0, 0, 9, 0}; /* it does not change its mind */
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.asked, 3);
        EXPECT_EQ(g.shown(), "test/f32: form 2, 0 spills, 2 spill, 0 over; ");
    });
}

TEST_F(Forms, WhereAllSpillTheOneThatSpillsLeastIsTaken)
{
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 12, 3};
        EXPECT_EQ(g.pick(), 1);
        EXPECT_EQ(g.shown(), "test/f32: form 1, 3 spills, 1 spill, 0 over; ");
    });
}

TEST_F(Forms, OfVariantsWithoutSpillsTheOneWithFewestInstructionsIsTaken)
{
    const auto pick = [](gpu &g, const char *family, std::vector<int64_t> spills,
                         std::vector<int64_t> instructions) {
        g.spills = std::move(spills);
        g.instructions = std::move(instructions);
        return g.pick(family);
    };
    run([&](gpu &g) {
        g.open();
        g.variants = 2;
        EXPECT_EQ(pick(g, "test/second", {0, 0, 0, 0}, {500, 400, 30, 20}), 1);
        EXPECT_EQ(g.asked, 2); /* smaller forms do not count */
        EXPECT_EQ(pick(g, "test/first", {0, 0, 0, 0}, {400, 500, 30, 20}), 0);
        EXPECT_EQ(pick(g, "test/equal", {0, 0, 0, 0}, {400, 400, 30, 20}), 0);
        EXPECT_EQ(pick(g, "test/spills", {0, 1, 0, 0}, {500, 400, 30, 20}), 0);
        EXPECT_EQ(pick(g, "test/other_spills", {1, 0, 0, 0}, {400, 500, 30, 20}), 1);
        EXPECT_EQ(pick(g, "test/both_spill", {1, 1, 0, 0}, {500, 400, 30, 20}), 3);
        EXPECT_EQ(pick(g, "test/not_counted", {0, 0, 0, 0}, {UNKNOWN, 400, 30, 20}), 0);
        g.fits = {false, true, true, true};
        EXPECT_EQ(pick(g, "test/fits", {0, 0, 0, 0}, {400, 500, 30, 20}), 1);
        EXPECT_EQ(g.shown(), "test/second: form 1, 0 spills, 0 spill, 0 over; "
                             "test/first: form 0, 0 spills, 0 spill, 0 over; "
                             "test/equal: form 0, 0 spills, 0 spill, 0 over; "
                             "test/spills: form 0, 0 spills, 0 spill, 0 over; "
                             "test/other_spills: form 1, 0 spills, 0 spill, 0 over; "
                             "test/both_spill: form 3, 0 spills, 2 spill, 0 over; "
                             "test/not_counted: form 0, 0 spills, 0 spill, 0 over; "
                             "test/fits: form 1, 0 spills, 0 spill, 0 over; ");
    });
    run([&](gpu &g) { /* a later process knows the counts */
                      g.open();
                      g.variants = 2;
                      EXPECT_EQ(g.pick("test/second"), 1);
                      EXPECT_EQ(g.pick("test/first"), 0);
                      EXPECT_EQ(g.asked, 0);
    });
    run([&](gpu &g) { /* without figures */
                      g.open(RF_DEVICE_OTHER, false);
                      g.variants = 2;
                      EXPECT_EQ(g.pick(), 0);
    });
}

TEST_F(Forms, WhatDoesNotFitIsPassedOverUntilItFits)
{
    run([](gpu &g) {
        g.open();
        g.fits = {false, false, true, true};
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.asked, 1);
        g.fits = {false, true, true, true};
        EXPECT_EQ(g.pick(), 1);
        g.fits = {false, false, false, true};
        EXPECT_EQ(g.pick(), 3);
        EXPECT_EQ(g.asked, 3);
        g.fits = {false, false, false, false};
        EXPECT_EQ(g.pick(), FORMS);
    });
}

TEST_F(Forms, AFormSpillsIfOneOfItsBuildsDoes)
{
    run([](gpu &g) {
        g.open();
        g.spills = {2, 0, 0, 5};
        g.other = 3;
        EXPECT_EQ(g.pick(), 0);
        EXPECT_EQ(g.shown(), "test/f32: form 0, 5 spills, 0 spill, 0 over; ");
        g.other = 2;
        EXPECT_EQ(g.pick("test/f16"), 1);
        EXPECT_EQ(g.asked, 12);
    });
}

TEST_F(Forms, FamiliesAreChosenApart)
{
    run([](gpu &g) {
        g.open();
        g.spills = {1, 0, 0, 0};
        EXPECT_EQ(g.pick("test/f16"), 1);
        g.spills = {1, 1, 0, 0};
        EXPECT_EQ(g.pick("test/bf16"), 2);
        EXPECT_EQ(g.pick("test/f16"), 1);
        EXPECT_EQ(g.shown(), "test/f16: form 1, 0 spills, 1 spill, 0 over; "
                             "test/bf16: form 2, 0 spills, 2 spill, 0 over; ");
    });
}

TEST_F(Forms, ALaterProcessDoesNotAskAgain)
{
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        EXPECT_EQ(g.pick(), 2);
    });
    run([](gpu &g) {
        g.open();
        EXPECT_EQ(g.pick("test/other"), 0); /* it keeps the rows of the first */
    });
    run([](gpu &g) {
        g.open();
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.pick("test/other"), 0);
        EXPECT_EQ(g.asked, 0);
        EXPECT_EQ(g.shown(), "test/f32: form 2, 0 spills, 2 spill, 0 over; "
                             "test/other: form 0, 0 spills, 0 spill, 0 over; ");
    });
}

TEST_F(Forms, AnotherKernelOrDriverOrAWishIsAReasonToAskAgain)
{
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        EXPECT_EQ(g.pick(), 2);
    });
    run([](gpu &g) { /* the shader of a new library does not spill any more */
                     g.open();
                     g.shader = 8;
                     EXPECT_EQ(g.pick(), 0);
                     EXPECT_EQ(g.asked, 1);
    });
    run([](gpu &g) {
        g.open();
        g.info()->driver_version++;
        EXPECT_EQ(g.pick(), 0);
        EXPECT_EQ(g.asked, 1);
    });
    setenv("RF_KERNEL_FORMS", "fresh", 1);
    run([](gpu &g) {
        g.open();
        g.spills = {2, 0, 0, 0};
        EXPECT_EQ(g.pick(), 1);
        EXPECT_EQ(g.asked, 2);
    });
    unsetenv("RF_KERNEL_FORMS");
    run([](gpu &g) {
        g.open();
        EXPECT_EQ(g.pick(), 1);
        EXPECT_EQ(g.asked, 0);
    });
}

TEST_F(Forms, WithoutAnswersTheRegisterBudgetDecides)
{
    const auto by_budget = [](gpu &g) {
        const uint32_t budget = rf_register_budget(g.info());
        g.registers = {3 * budget, budget + 1, budget, 1};
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.shown(), "test/f32: form 2, -1 spills, 0 spill, 2 over; ");
    };
    for (rf_device_kind kind : {RF_DEVICE_OTHER, RF_DEVICE_INTEGRATED, RF_DEVICE_DISCRETE})
        run([&](gpu &g) {
            g.open(kind, false);
            by_budget(g);
            g.registers.assign(FORMS, UINT32_MAX); /* all too many */
            g.registers[1] = UINT32_MAX - 1;
            EXPECT_EQ(g.pick("test/wide"), 1);
        });
    run([&](gpu &g) { /* a compiler whose statistics we cannot interpret */
                      g.open();
                      g.spills.assign(FORMS, UNKNOWN);
                      by_budget(g);
    });
    setenv("RF_KERNEL_FORMS", "budget", 1);
    run([&](gpu &g) {
        g.open();
        by_budget(g);
        EXPECT_EQ(g.asked, 0);
    });
    EXPECT_EQ(file(), "");
}

TEST_F(Forms, WhatIsFarOverTheBudgetIsNotCompiled)
{
    run([](gpu &g) {
        g.open();
        const uint32_t budget = rf_register_budget(g.info());
        g.registers = {2 * budget + 1, 2 * budget, budget, 1};
        EXPECT_EQ(g.pick(), 1); /* the compiler reports no spills */
        EXPECT_EQ(g.asked, 1);
        EXPECT_EQ(g.shown(), "test/f32: form 1, 0 spills, 0 spill, 1 over; ");
    });
}

TEST_F(Forms, AttentionIsChosenWithoutALaunch)
{
    run([](gpu &g) {
        g.open(RF_DEVICE_OTHER, false);
        EXPECT_EQ(rf_attention_choose(g.device, RF_F32, 64), RF_OK) << rf_last_error()->message;
        const std::string shown = g.shown();
        for (const char *pass : {"", "_query", "_key"})
            EXPECT_NE(shown.find(std::string("attention_tiled") + pass + "/f32/64/causal: "),
                      std::string::npos)
                << shown;
        EXPECT_EQ(rf_attention_choose(g.device, RF_F32, 0), RF_EINVAL);
        EXPECT_EQ(rf_attention_choose(g.device, RF_I32, 64), RF_EINVAL);
        EXPECT_EQ(rf_attention_choose(nullptr, RF_F32, 64), RF_EINVAL);
    });
    run([](gpu &g) {
        g.open(RF_DEVICE_CPU);
        EXPECT_EQ(rf_attention_choose(g.device, RF_F32, 64), RF_OK);
        EXPECT_EQ(g.shown(), "");
    });
}

TEST_F(Forms, OnCpuDevicesTheFirstThatFitsIsTaken)
{
    run([](gpu &g) {
        g.open(RF_DEVICE_CPU);
        g.spills = {40, 3, 0, 0};
        g.registers.assign(FORMS, UINT32_MAX);
        EXPECT_EQ(g.pick(), 0);
        g.fits[0] = false;
        EXPECT_EQ(g.pick(), 1);
        EXPECT_EQ(g.asked, 0);
        EXPECT_EQ(g.shown(), "");
    });
    EXPECT_EQ(file(), "");
}

TEST_F(Forms, ThreadsThatAskAtOnceGetOneAnswer)
{
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        std::vector<int> picked(8, -1);
        std::vector<std::thread> threads;
        for (int &p : picked)
            threads.emplace_back([&g, &p] { p = g.pick(); });
        for (std::thread &t : threads)
            t.join();
        EXPECT_EQ(picked, std::vector<int>(8, 2));
        EXPECT_EQ(g.asked, 3);
    });
}

TEST_F(Forms, AFileThatIsDamagedOrMakesNoSenseIsIgnored)
{
    const auto learn = [](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        EXPECT_EQ(g.pick(), 2);
    };
    run(learn);
    const std::string whole = text(), name = file();
    const size_t first = whole.find('\n') + 1;
    const std::string head = whole.substr(0, first);
    const std::string row = whole.substr(first, whole.find('\n', first) + 1 - first);
    const std::string rest = whole.substr(first + row.size());
    ASSERT_EQ(row.find("test/f32 0 "), 0u) << row;
    ASSERT_EQ(rest.substr(rest.rfind("end")), "end 3\n");
    for (const std::string &damaged :
         {std::string(), head, head + row, head + row + "end 2\n", row + "end 1\n",
          head + "test/f32 0 1\nend 1\n", head + "../x 0 00 0\nend 1\n",
          head + "test/f32 -1 00 0\nend 1\n", head + "test/f32 1000 00 0\nend 1\n",
          head + "test/f32 0 00 -1\nend 1\n", head + "test/f32 0 00 9000000000000\nend 1\n",
          head + "test/f32 0 xx 0\nend 1\n", head + std::string(100000, 'x') + "\nend 1\n"}) {
        write(name, damaged);
        run([&](gpu &g) {
            learn(g);
            EXPECT_EQ(g.asked, 3) << damaged.substr(0, 200);
        });
        EXPECT_EQ(text(), whole) << damaged.substr(0, 200); /* and is rewritten */
    }
    std::string many = head;
    for (int i = 0; i < 5000; i++)
        many += "test/x" + std::to_string(i) + " 0 00 0\n";
    write(name, many + "end 5000\n");
    run([&](gpu &g) {
        learn(g);
        EXPECT_EQ(g.asked, 3);
    });
    ASSERT_EQ(unlink(name.c_str()), 0);
    ASSERT_EQ(mkfifo(name.c_str(), 0600), 0); /* reading it would block forever */
    run(learn);
}

TEST_F(Forms, AFolderThatCannotBeWrittenIsNoError)
{
    setenv("RF_CACHE_DIR", "/proc/none", 1);
    run([](gpu &g) {
        g.open();
        g.spills = {40, 3, 0, 0};
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.pick(), 2);
        EXPECT_EQ(g.asked, 3);
    });
}

} // namespace
