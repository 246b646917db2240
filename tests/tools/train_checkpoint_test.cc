/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of `ringforge train` from outside: a resumed run, with another batch or other ranks,
 * saves in the background, and refused options.
 */
#include "train_program.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <set>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(TrainCheckpoint, AResumedRunEndsWithTheSameBitsAlsoOnOtherRanks)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    std::string save = folder.path + "/ckpt";
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "4", "--log", log})).status, 0);
    std::string want = last_text(read_text(log), "params_sha256");
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "2", "--save", save})).status, 0);
    ProgramResult r = run_program(with(tiny(data), {"--steps", "4", "--resume", save, "--ranks",
                                                    "3", "--provider", "loopback", "--log", log}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(last_text(read_text(log), "params_sha256"), want);

    r = run_program(with(tiny(data), {"--steps", "2", "--resume", save}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("at step 2 already"), std::string::npos) << r.err;
    r = run_program(with(tiny(data), {"--steps", "4", "--batch", "8", "--resume", save}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("batch of 4 sequences of 16 tokens, this run has 8 of 16"),
              std::string::npos)
        << r.err;
    EXPECT_NE(r.err.find("--scale-lr"), std::string::npos) << r.err;
}

TEST(TrainCheckpoint, AnotherBatchGoesOnAtTheNextSampleWithAScaledRateOnlyWhereThatIsAsked)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::string save = folder.path + "/c";
    const std::vector<std::string> eight =
        with(tiny(data), {"--batch", "8", "--micro-batches", "8", "--log", log});
    /* With a rate of 0 the parameters do not change, so a loss shows which samples were used: here
     * 8 to 15. */
    ProgramResult r = run_program(with(eight, {"--steps", "2", "--lr", "0"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("effective batch: 128 tokens a step = 8 sequences of 16 tokens, from 1 "
                         "ranks x 8 micro-batches x 1 sequences\n"),
              std::string::npos)
        << r.out;
    std::string text = read_text(log);
    const double second =
        std::stod(text.substr(text.find("\"loss\":", text.find("\"step\":2")) + 7));
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "2", "--lr", "0", "--save", save})).status,
              0);
    const std::vector<std::string> resume = with(eight, {"--resume", save, "--save", save});
    const std::vector<std::string> three = {"--steps", "3", "--lr", "0.125", "--scale-lr", "sqrt"};
    r = run_program(with(resume, three));
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("was trained with --lr 0;"), std::string::npos) << r.err;
    r = run_program(with(resume, with(three, {"--change", "lr"})));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("0.125 for the checkpoint's batch of 4 sequences of 16 tokens, "
                         "0.17677669 for this one (sqrt)"),
              std::string::npos)
        << r.out;
    text = read_text(log);
    EXPECT_EQ(std::stod(text.substr(text.find("\"loss\":") + 7)), second);
    EXPECT_FLOAT_EQ((float)last_number(text, "lr"), 0.176776695f);
    EXPECT_EQ(last_number(text, "samples"), 16);
    EXPECT_EQ(last_number(text, "batch"), 8);
    r = run_program(with(resume, {"--steps", "4", "--scale-lr", "sqrt"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(
        r.err.find("has this batch already (128 tokens a step), and its rate: omit --scale-lr"),
        std::string::npos)
        << r.err;
    for (const std::vector<std::string> &rate :
         {std::vector<std::string>{}, {"--lr", "0.17677669"}}) { /* as it was printed */
        r = run_program(with(eight, with({"--resume", save, "--steps", "4"}, rate)));
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_FLOAT_EQ((float)last_number(read_text(log), "lr"), 0.176776695f);
    }
    EXPECT_EQ(run_program(with(eight, {"--scale-lr", "linear"})).status, 2);
    EXPECT_EQ(run_program(with(resume, {"--scale-lr", "cubic"})).status, 2);
}

TEST(TrainCheckpoint, SavesInTheBackgroundChangeNoBitAndTheLastOnesAreKept)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    const std::vector<std::string> six = with(tiny(data), {"--steps", "6"});
    ProgramResult plain = run_program(six);
    ASSERT_EQ(plain.status, 0) << plain.err;
    ProgramResult r = run_program(with(six, {"--save", save, "--save-every", "1", "--keep", "2",
                                             "--ranks", "2", "--provider", "loopback"}));
    ASSERT_EQ(r.status, 0) << r.err;
    const auto end = [](const ProgramResult &p) {
        return p.out.substr(p.out.find("parameters: sha256"));
    };
    EXPECT_EQ(end(r), end(plain)); /* with "measured as planned" */
    EXPECT_EQ(read_text(save + "/latest"), "step-6\n");
    EXPECT_EQ(access((save + "/step-5/state.json").c_str(), F_OK), 0);
    EXPECT_NE(access((save + "/step-4").c_str(), F_OK), 0);
    r = run_program(with(tiny(data), {"--steps", "1", "--keep", "2"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("--keep has no effect without --save"), std::string::npos) << r.err;
}

TEST(TrainCheckpoint, OtherHeadsThanTheCheckpointsAreRefused)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "1", "--save", save})).status, 0);
    ProgramResult r =
        run_program(with(tiny(data), {"--steps", "2", "--heads", "4", "--resume", save}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("(heads: 2 in the checkpoint, 4 here)"), std::string::npos) << r.err;
}

TEST(TrainCheckpoint, AFolderIntoWhichAnotherTrainingSavesIsRefusedOnEveryRank)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const std::string lock = folder.file("lock", "4711 on node3\n");
    const int fd = open(lock.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX), 0);
    ProgramResult r =
        run_program(with(tiny(data), {"--steps", "1", "--save", folder.path, "--ranks", "2"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("another training saves into " + folder.path + " (process 4711 on node3)"),
              std::string::npos)
        << r.err;
    close(fd); /* as if it had been killed */
    r = run_program(with(tiny(data), {"--steps", "1", "--save", folder.path}));
    EXPECT_EQ(r.status, 0) << r.err;
}

TEST(TrainCheckpoint, ADamagedCheckpointIsNamed)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), save = folder.path + "/ckpt";
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "1", "--save", save})).status, 0);
    std::string model = save + "/step-1/model.safetensors";
    ASSERT_EQ(truncate(model.c_str(), 1000), 0);
    ProgramResult r = run_program(with(tiny(data), {"--steps", "2", "--resume", save}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("model.safetensors"), std::string::npos) << r.err;
    r = run_program(with(tiny(data), {"--steps", "2", "--resume", folder.path + "/none"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("none"), std::string::npos) << r.err;
}

TEST(TrainCheckpoint, AFullDiskWhileSavingIsAnErrorAndTheLastCheckpointStays)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), save = folder.path + "/ckpt";
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "1", "--save", save})).status, 0);
    std::string before = read_text(save + "/latest");
    ProgramOptions full;
    full.file_bytes_limit = 20000; /* less than the model */
    ProgramResult r =
        run_program(with(tiny(data), {"--steps", "2", "--resume", save, "--save", save}), full);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find(save), std::string::npos) << r.err;
    EXPECT_EQ(read_text(save + "/latest"), before);
    EXPECT_EQ(run_program(with(tiny(data), {"--steps", "2", "--resume", save})).status, 0);
}
