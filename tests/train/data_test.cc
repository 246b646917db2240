// SPDX-License-Identifier: MIT
//
// Text as tokens, and learning-rate rules.
#include <gtest/gtest.h>
#include <ringforge/data.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "folder.h"

namespace
{

struct Data {
    rf_dataset *data = nullptr;
    int rc;
    explicit Data(const std::string &path)
    {
        rc = rf_dataset_open(path.c_str(), &data);
    }
    ~Data()
    {
        rf_dataset_close(data);
    }
};

} // namespace

TEST(Data, AFolderIsReadInTheOrderOfPathsWithEndOfTextBetween)
{
    Folder folder;
    folder.write("b.txt", "cd");
    folder.write("a.txt", "ab");
    mkdir(folder.path("z").c_str(), 0755);
    folder.write("z/deep.txt", std::string(15, 'x'));
    folder.write("picture", std::string("\0\1\2", 3));
    folder.write(".hidden", "hidden");
    folder.write("empty", "");
    Data d(folder.path());
    ASSERT_EQ(d.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(rf_dataset_files(d.data), 3);
    EXPECT_EQ(rf_dataset_train_tokens(d.data) + rf_dataset_held_out_tokens(d.data), 22);
    EXPECT_EQ(rf_dataset_held_out_tokens(d.data), 2);
    // Sequences as long as the training part allows begin at its first token.
    std::vector<int32_t> tokens(19), targets(19);
    ASSERT_EQ(rf_dataset_samples(d.data, 1, {0, 1, 19}, tokens.data(), targets.data()), 0);
    EXPECT_EQ(std::vector<int32_t>(tokens.begin(), tokens.begin() + 7),
              (std::vector<int32_t>{'a', 'b', RF_END_OF_TEXT, 'c', 'd', RF_END_OF_TEXT, 'x'}));
    EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
}

TEST(Data, SamplesDependOnSeedAndNumberAloneSoThatAnyCutOfABatchIsTheSame)
{
    Folder folder;
    std::string text;
    for (int i = 0; i < 5000; i++)
        text += (char)('a' + i * i % 26);
    folder.write("text", text);
    Data d(folder.path("text"));
    ASSERT_EQ(d.rc, 0);
    std::vector<int32_t> whole(8 * 16), targets(8 * 16), part(4 * 16), ignored(4 * 16);
    ASSERT_EQ(rf_dataset_samples(d.data, 7, {24, 8, 16}, whole.data(), targets.data()), 0);
    for (int at = 0; at <= 4; at++) {
        ASSERT_EQ(rf_dataset_samples(d.data, 7, {24 + at, 4, 16}, part.data(), ignored.data()), 0);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + at * 16));
    }
    ASSERT_EQ(rf_dataset_samples(d.data, 8, {24, 4, 16}, part.data(), ignored.data()), 0);
    EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin()));
}

TEST(Data, TheHeldOutTenthIsCutIntoSequencesAndItsEndIsIgnored)
{
    Folder folder;
    folder.write("text", std::string(899, 'a') + std::string(100, 'b'));
    Data d(folder.path("text"));
    ASSERT_EQ(d.rc, 0);
    EXPECT_EQ(rf_dataset_train_tokens(d.data), 900);
    EXPECT_EQ(rf_dataset_held_out_sequences(d.data, 30), 4);
    std::vector<int32_t> tokens(120), targets(120);
    ASSERT_EQ(rf_dataset_held_out(d.data, {0, 4, 30}, tokens.data(), targets.data()), 0);
    EXPECT_EQ(targets[98], RF_END_OF_TEXT);
    EXPECT_EQ(targets[97], 'b');
    for (int i = 99; i < 120; i++)
        EXPECT_EQ(targets[(size_t)i], -1);
}

TEST(Data, MissingEmptyAndShortTextAreNamed)
{
    Folder folder;
    folder.write("empty", "");
    folder.write("short", "abc");
    rf_dataset *data = nullptr;
    EXPECT_EQ(rf_dataset_open(folder.path("none").c_str(), &data), RF_EIO);
    EXPECT_NE(std::string(rf_last_error()->message).find("none"), std::string::npos);
    EXPECT_EQ(rf_dataset_open(folder.path("empty").c_str(), &data), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("empty"), std::string::npos);
    Data d(folder.path("short"));
    ASSERT_EQ(d.rc, 0);
    int32_t tokens[8], targets[8];
    EXPECT_EQ(rf_dataset_samples(d.data, 0, {0, 1, 8}, tokens, targets), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("shorter sequences"), std::string::npos);
}

TEST(Data, APipeIsRefusedByNameAndPassedOverInAFolder)
{
    Folder folder;
    mkdir(folder.path("texts").c_str(), 0755);
    folder.write("texts/a.txt", "ab");
    ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
    ASSERT_EQ(mkfifo(folder.path("texts/pipe").c_str(), 0600), 0);
    ASSERT_EQ(symlink("pipe", folder.path("texts/link").c_str()), 0);
    rf_dataset *data = nullptr;
    EXPECT_EQ(rf_dataset_open(folder.path("pipe").c_str(), &data), RF_EIO);
    EXPECT_NE(std::string(rf_last_error()->message).find("pipe: it is a pipe, not a file"),
              std::string::npos)
        << rf_last_error()->message;
    Data d(folder.path("texts"));
    ASSERT_EQ(d.rc, 0);
    EXPECT_EQ(rf_dataset_files(d.data), 1);
}

TEST(LearningRate, RisesLinearlyThenFallsAlongAHalfCosine)
{
    EXPECT_FLOAT_EQ(rf_lr_cosine(0, 10, 110, 1, 0.1f), 0.1f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(9, 10, 110, 1, 0.1f), 1.0f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(10, 10, 110, 1, 0.1f), 1.0f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(60, 10, 110, 1, 0.1f), 0.55f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(110, 10, 110, 1, 0.1f), 0.1f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(1000, 10, 110, 1, 0.1f), 0.1f);
    EXPECT_FLOAT_EQ(rf_lr_cosine(3, 0, 10, 0.5f, 0.5f), 0.5f);
}

TEST(LearningRate, FollowsTheBatchLinearlyOrByItsRoot)
{
    EXPECT_FLOAT_EQ(rf_lr_scale_linear(0.1f, 256, 1024), 0.4f);
    EXPECT_FLOAT_EQ(rf_lr_scale_sqrt(0.1f, 256, 1024), 0.2f);
    EXPECT_FLOAT_EQ(rf_lr_scale_linear(0.1f, 8, 8), 0.1f);
}

TEST(Data, TheHashSeesEveryTokenAndItsPlace)
{
    Folder folder;
    std::string text(100, 'a');
    std::set<uint64_t> hashes;
    auto add = [&](const std::string &of) {
        folder.write("a.txt", of);
        hashes.insert(rf_dataset_hash(Data(folder.path("a.txt")).data));
    };
    add(text);
    add(text + "a");
    for (size_t at : {0, 1, 2, 7, 8, 9, 50, 98, 99}) {
        std::string other = text;
        other[at] = 'b';
        add(other);
    }
    EXPECT_EQ(hashes.size(), 11u);
}

TEST(Data, AFileOfTokensGivesTheSamplesOfItsTexts)
{
    Folder folder;
    std::string text;
    for (int i = 0; i < 500; i++)
        text += "line " + std::to_string(i * i) + "\n";
    folder.write("a.txt", text);
    Data texts(folder.path("a.txt"));
    for (bool raw : {false, true}) {
        const std::string path = folder.path(raw ? "raw" : "tokens.bin");
        ASSERT_EQ(rf_dataset_write(texts.data, path.c_str(), raw), 0);
        rf_data_opts opts = {};
        opts.raw_bytes = raw ? 2 : 0;
        rf_dataset *data = nullptr;
        ASSERT_EQ(rf_dataset_open_as(path.c_str(), &opts, &data), 0) << rf_last_error()->message;
        EXPECT_EQ(rf_dataset_hash(data), rf_dataset_hash(texts.data));
        EXPECT_EQ(rf_dataset_vocabulary(data), 257);
        std::vector<int32_t> a(64), b(64), c(64), d(64);
        ASSERT_EQ(rf_dataset_samples(data, 5, {3, 4, 16}, a.data(), b.data()), 0);
        ASSERT_EQ(rf_dataset_samples(texts.data, 5, {3, 4, 16}, c.data(), d.data()), 0);
        EXPECT_EQ(a, c);
        EXPECT_EQ(b, d);
        rf_dataset_close(data);
    }
}

TEST(Data, AFileOfTokensHas16BitsForEachUnlessOneNeedsMore)
{
    for (int32_t highest : {65535, 65536}) {
        Folder folder;
        const int32_t tokens[] = {1, highest, 2, 0};
        const size_t width = highest == 65535 ? 2 : 4;
        folder.write("from", std::string((const char *)tokens, sizeof(tokens)));
        rf_data_opts opts = {};
        opts.raw_bytes = 4;
        rf_dataset *from = nullptr;
        ASSERT_EQ(rf_dataset_open_as(folder.path("from").c_str(), &opts, &from), 0);
        EXPECT_EQ(rf_dataset_vocabulary(from), highest + 1);
        for (bool raw : {false, true}) {
            ASSERT_EQ(rf_dataset_write(from, folder.path("to").c_str(), raw), 0);
            EXPECT_EQ(std::filesystem::file_size(folder.path("to")), (raw ? 0 : 1024) + 4 * width);
            rf_dataset *to = nullptr;
            opts.raw_bytes = raw ? (int)width : 0;
            ASSERT_EQ(rf_dataset_open_as(folder.path("to").c_str(), &opts, &to), 0);
            EXPECT_EQ(rf_dataset_hash(to), rf_dataset_hash(from)) << highest;
            rf_dataset_close(to);
        }
        rf_dataset_close(from);
    }
}

TEST(Data, AFileOfTokensThatIsCutOrOfAnotherVersionIsRefused)
{
    Folder folder;
    std::vector<int32_t> header(256);
    auto open = [&](int magic, int version, int count, size_t bytes) {
        header[0] = magic, header[1] = version, header[2] = count;
        folder.write("t", std::string((const char *)header.data(), 1024) + std::string(bytes, 1));
        Data d(folder.path("t"));
        return d.rc;
    };
    EXPECT_EQ(open(20240520, 1, 10, 20), 0);
    EXPECT_EQ(open(20240801, 7, 10, 40), 0);
    EXPECT_EQ(open(20240520, 1, 10, 18), RF_ECORRUPT);
    EXPECT_EQ(open(20240520, 1, -10, 20), RF_ECORRUPT);
    EXPECT_EQ(open(20240801, 7, 0x7fffffff, 20), RF_ECORRUPT);
    EXPECT_EQ(open(20240520, 2, 10, 20), RF_ENOTSUP);
    EXPECT_EQ(open(20240520, 1, 1, 2), RF_EINVAL);
}
