// SPDX-License-Identifier: MIT
//
// Files of weights of a hub: written and read back, hostile indices, links, and full disks.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <sys/resource.h>

#include "hub_model.h"

namespace
{

using namespace hub_models;

const std::vector<Tensor> three = {
    {"a", rf_shape2(40, 30)}, {"b", rf_shape1(7)}, {"c", rf_shape2(5, 6)}};

std::string why_not(const std::string &dir)
{
    rf_weights *w = nullptr;
    EXPECT_LT(rf_weights_open(dir.c_str(), nullptr, &w), 0);
    return rf_last_error()->message;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(HubWeights, AreReadAsTheyWereWrittenInOneFileOrMany)
{
    for (rf_dtype dtype : {RF_F32, RF_F16, RF_BF16})
        for (uint64_t shard : {0, 100}) {
            const Folder folder;
            const std::string dir = folder.path("model");
            write_weights(dir, three, dtype, shard);
            EXPECT_EQ(std::filesystem::exists(dir + "/model.safetensors.index.json"), shard == 100);
            rf_weights *w = nullptr;
            ASSERT_RF(rf_weights_open(dir.c_str(), nullptr, &w));
            ASSERT_EQ(rf_weights_count(w), 3);
            EXPECT_EQ(rf_weights_find(w, "d"), -1);
            Floats whole(1200), part(100);
            ASSERT_RF(rf_weights_read(w, rf_weights_find(w, "a"), 0, 1200, whole.data()));
            ASSERT_RF(rf_weights_read(w, rf_weights_find(w, "a"), 1100, 100, part.data()));
            const float error = dtype == RF_F32 ? 0 : dtype == RF_F16 ? 0x1p-14f : 0x1p-11f;
            for (size_t i = 0; i < whole.size(); i++)
                ASSERT_NEAR(whole[i], formula("a", i), error);
            EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1100));
            EXPECT_EQ(rf_weights_read(w, 0, 1101, 100, part.data()), RF_EINVAL);
            rf_weights_close(w);
        }
}

TEST(HubWeights, ThatAreNotFiniteAreRefusedByNameUnlessAllowed)
{
    const Folder folder;
    write_weights(folder.path("m"), three, RF_BF16, 0, NAN);
    Floats values(7);
    for (bool allow : {false, true}) {
        const rf_weights_opts opts = {nullptr, allow};
        rf_weights *w = nullptr;
        ASSERT_RF(rf_weights_open(folder.path("m").c_str(), &opts, &w));
        EXPECT_EQ(rf_weights_read(w, 1, 0, 7, values.data()), allow ? 0 : RF_ECORRUPT);
        if (!allow) {
            EXPECT_HAS(std::string(rf_last_error()->message), "element 1 of tensor b is nan");
        }
        rf_weights_close(w);
    }
}

TEST(HubWeights, HostileIndicesAreRefused)
{
    const Folder folder;
    const std::string dir = folder.path("model"), index = "model/model.safetensors.index.json";
    write_weights(dir, three, RF_F32, 100);
    const std::string good = folder.read(index);
    const std::string one = "model-00001-of-00003.safetensors",
                      two = "model-00002-of-00003.safetensors";
    const auto with = [&](const std::string &from, const std::string &to) {
        std::string text = good;
        const size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        folder.write(index, text.replace(at, from.size(), to));
        return why_not(dir);
    };
    for (const char *path : {"/etc/passwd", "../x.safetensors", "a/b.safetensors", "x.bin", "",
                             ".safetensors", "..", "a\\u0001.safetensors"})
        EXPECT_HAS(with(one, path), "not the name of a .safetensors file") << path;
    EXPECT_HAS(with(one, "none.safetensors"), "none.safetensors");
    EXPECT_HAS(with("\"b\"", "\"z\""), "no tensor z");
    EXPECT_HAS(with("\"b\"", "\"c\""), "no tensor c");
    EXPECT_HAS(with("\"b\"", "\"a\""), "no tensor a");
    EXPECT_HAS(with("\"b\"", "\"\\u001b[2J\""), "control characters");
    EXPECT_HAS(with("weight_map", "weight_mop"), "weight_map");
    EXPECT_HAS(with(two, one), "no tensor b");
    folder.write(index, good.substr(0, good.size() / 2));
    EXPECT_HAS(why_not(dir), "weight_map");
    folder.write(index, std::string(100000, '['));
    EXPECT_HAS(why_not(dir), "weight_map");
    folder.write(index, good);
    folder.write("outside.safetensors", folder.read("model/" + one));
    std::filesystem::remove(dir + "/" + one);
    std::filesystem::create_symlink("../outside.safetensors", dir + "/" + one);
    EXPECT_HAS(why_not(dir), "link out of its folder");
    EXPECT_HAS(why_not(dir), one);
    std::filesystem::remove(dir + "/" + one);
    folder.write("model/" + one, folder.read("outside.safetensors").substr(0, 5000));
    EXPECT_HAS(why_not(dir), one);
}

// Caches of huggingface_hub: CACHE/models--ME--NAME/snapshots/COMMIT. Its files are links to the
// model's store; since version 2.0 those link to the store of the cache.
TEST(HubWeights, LinksLeadToTheStoreOfACacheAndNowhereElse)
{
    const Folder folder;
    const std::string hash(64, 'a'), model = "c/models--me--tiny",
                                     snapshot = model + "/snapshots/1";
    for (const char *dir : {"/blobs", "/snapshots/1/sub", "/snapshots/blobs"})
        std::filesystem::create_directories(folder.path(model + dir));
    for (const char *dir : {"c/blobs/aa", "c/blobs/bb", "c/models--me--other/blobs"})
        std::filesystem::create_directories(folder.path(dir));
    write_weights(folder.path("m"), three, RF_F32, 0);
    const std::string bytes = folder.read("m/model.safetensors");
    const auto link = [&](const std::string &from, const std::string &to) {
        std::filesystem::remove(folder.path(from));
        std::filesystem::create_symlink(to, folder.path(from));
    };
    const auto opens = [&](const std::string &dir) {
        rf_weights *w = nullptr;
        const int rc = rf_weights_open(folder.path(dir).c_str(), nullptr, &w);
        rf_weights_close(w);
        return rc == 0 ? "" : std::string(rf_last_error()->message);
    };
    const std::string file = snapshot + "/model.safetensors", blob = model + "/blobs/e";
    folder.write(blob, bytes);
    link(file, "../../blobs/e");
    EXPECT_EQ(opens(snapshot), ""); // of huggingface_hub 1
    link(snapshot + "/sub/model.safetensors", "../../../blobs/e");
    EXPECT_EQ(opens(snapshot + "/sub"), "");
    folder.write("c/blobs/aa/" + hash, bytes);
    link(blob, "../../blobs/aa/" + hash);
    EXPECT_EQ(opens(snapshot), ""); // of huggingface_hub 2
    EXPECT_EQ(opens(snapshot + "/sub"), "");
    std::filesystem::create_directory_symlink(folder.path(snapshot), folder.path("here"));
    EXPECT_EQ(opens("here"), "");
    const std::pair<std::string, std::string> elsewhere[] = {
        {"c/blobs/bb/" + hash, "../../blobs/bb/" + hash}, // not the digits of the hash
        {"c/blobs/aa/short", "../../blobs/aa/short"},
        {"c/blobs/" + hash, "../../blobs/" + hash},
        {"c/secret", "../../secret"},
        {"outside", "../../../outside"},
        {"c/models--me--other/blobs/e", "../../models--me--other/blobs/e"},
        {model + "/snapshots/blobs/e", "../snapshots/blobs/e"},
    };
    for (const auto &[name, target] : elsewhere) {
        folder.write(name, bytes);
        link(blob, target);
        EXPECT_HAS(opens(snapshot), "link out of its folder") << name;
    }
    // The same links are refused if they do not begin in a cache.
    std::filesystem::rename(folder.path(model + "/snapshots"), folder.path(model + "/other"));
    link(blob, "../../blobs/aa/" + hash);
    EXPECT_HAS(opens(model + "/other/1"), "link out of its folder");
}

TEST(HubWeights, AFileBesideAnIndexOfOthersIsAnErrorThatNamesBoth)
{
    const Folder folder;
    const std::string dir = folder.path("model"), one = "model-00001-of-00003.safetensors";
    write_weights(dir, three, RF_F32, 100);
    folder.write("model/model.safetensors", folder.read("model/" + one));
    EXPECT_HAS(why_not(dir), "both model.safetensors and model.safetensors.index.json");
    // Some writers make an index of a single file.
    write_weights(dir, three, RF_F32, 0);
    std::string index = R"({"weight_map": {"a": "FILE", "b": "FILE", "c": "FILE"}})";
    for (size_t at; (at = index.find("FILE")) != std::string::npos;)
        index.replace(at, 4, "model.safetensors");
    folder.write("model/model.safetensors.index.json", index);
    rf_weights *w = nullptr;
    ASSERT_RF(rf_weights_open(dir.c_str(), nullptr, &w));
    EXPECT_EQ(rf_weights_count(w), 3);
    rf_weights_close(w);
}

// A file of one tensor of f32 and one of a type that the library lacks.
std::string with_type(const std::string &type)
{
    const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"mask":)"
                               R"({"dtype":")" +
                               type + R"(","shape":[1,3],"data_offsets":[8,11]}})";
    std::string file(8, 0);
    file[0] = (char)header.size();
    return file + header + std::string(11, 1);
}

TEST(HubWeights, ATypeThatTheLibraryLacksIsNamedWhereItIsRead)
{
    const Folder folder;
    Floats values(3);
    for (const char *type : {"BOOL", "F8_E4M3", "a new one"}) {
        folder.write("model.safetensors", with_type(type));
        rf_weights *w = nullptr;
        ASSERT_RF(rf_weights_open(folder.path().c_str(), nullptr, &w));
        EXPECT_EQ(rf_weights_get(w, 1)->dtype, RF_DTYPE_COUNT);
        EXPECT_RF(rf_weights_read(w, 0, 0, 2, values.data()));
        EXPECT_EQ(rf_weights_read(w, 1, 0, 3, values.data()), RF_ENOTSUP);
        EXPECT_HAS(std::string(rf_last_error()->message),
                   "tensor mask is of type " + std::string(type));
        rf_weights_close(w);
    }
}

TEST(HubExport, ReplacesAModelInOneStepAndNothingElse)
{
    const Folder folder;
    const std::string dir = folder.path("model");
    write_weights(dir, three, RF_F32, 100);
    const rf_weight weight = {"a", RF_F32, rf_shape1(2)};
    rf_export_opts opts = {};
    opts.weights = &weight;
    opts.count = 1;
    rf_export *file = nullptr;
    ASSERT_RF(rf_export_open(dir.c_str(), &opts, &file));
    ASSERT_RF(rf_export_close(file, false)); // given up
    EXPECT_TRUE(std::filesystem::exists(dir + "/model-00001-of-00003.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(dir + ".tmp"));
    ASSERT_RF(rf_export_open(dir.c_str(), &opts, &file));
    EXPECT_EQ(rf_export_close(file, true), RF_EINVAL); // not written
    write_weights(dir, {three[1]}, RF_F32, 0);
    EXPECT_TRUE(std::filesystem::exists(dir + "/model.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(dir + "/model-00001-of-00003.safetensors"));
    folder.write("model/diary.odt", "x");
    EXPECT_EQ(rf_export_check(dir.c_str()), RF_EINVAL);
    EXPECT_HAS(std::string(rf_last_error()->message), "diary.odt");
}

TEST(HubExport, CopiesNoFileFromOutsideOfAFolder)
{
    const Folder folder;
    std::filesystem::create_directories(folder.path("from"));
    folder.write("secret", "x");
    folder.write("from/vocab.json", "{}");
    std::filesystem::create_symlink("../secret", folder.path("from/merges.txt"));
    const std::string from = folder.path("from");
    EXPECT_RF(rf_export_copy(nullptr, from.c_str(), "vocab.json"));
    EXPECT_RF(rf_export_copy(nullptr, from.c_str(), "none.json"));
    EXPECT_EQ(rf_export_copy(nullptr, from.c_str(), "merges.txt"), RF_ECORRUPT);
    EXPECT_HAS(std::string(rf_last_error()->message), "merges.txt is a link out of its folder");
}

TEST(HubExport, ToAFullDiskIsAnErrorThatNamesTheFileAndLeavesNothing)
{
    const Folder folder;
    const std::string dir = folder.path("model"), first = "/model-00001-of-00002.safetensors";
    const rf_weight weights[] = {{"a", RF_F32, rf_shape1(2000)}, {"b", RF_F32, rf_shape1(2)}};
    rf_export_opts opts = {};
    opts.weights = weights;
    opts.count = 2;
    opts.shard_bytes = 8000;
    write_weights(dir, three, RF_F32, 0);
    const std::string before = folder.read("model/model.safetensors");
    signal(SIGXFSZ, SIG_IGN); // a write past the limit is then EFBIG, as ENOSPC is on a full disk
    rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    // Within the first file, and in the index, which is written last.
    for (rlim_t bytes : {(rlim_t)4096, (rlim_t)64}) {
        rf_export *file = nullptr;
        Floats values(2000);
        rlimit small = old;
        small.rlim_cur = bytes;
        ASSERT_RF(rf_export_open(dir.c_str(), &opts, &file));
        const bool late = bytes < 4096;
        if (!late)
            setrlimit(RLIMIT_FSIZE, &small);
        const int wrote = rf_export_write(file, values.data(), 2000);
        EXPECT_EQ(wrote, late ? 0 : RF_EIO);
        if (late) {
            ASSERT_RF(rf_export_write(file, values.data(), 2));
            setrlimit(RLIMIT_FSIZE, &small);
            EXPECT_EQ(rf_export_close(file, true), RF_EIO);
        }
        const std::string said = rf_last_error()->message;
        setrlimit(RLIMIT_FSIZE, &old);
        EXPECT_HAS(said, late ? "model.safetensors.index.json" : first);
        if (!late) {
            EXPECT_RF(rf_export_close(file, false));
        }
        EXPECT_FALSE(std::filesystem::exists(dir + ".tmp"));
        EXPECT_TRUE(folder.read("model/model.safetensors") == before);
    }
}

TEST(HubWeights, AFileThatBecomesShorterWhileItIsOpenIsAnError)
{
    const Folder folder;
    const std::string dir = folder.path("model");
    write_weights(dir, three, RF_F32, 0);
    rf_weights *w = nullptr;
    Floats values(1200);
    ASSERT_RF(rf_weights_open(dir.c_str(), nullptr, &w));
    ASSERT_RF(rf_weights_read(w, 0, 0, 1200, values.data()));
    std::filesystem::resize_file(dir + "/model.safetensors", 600);
    EXPECT_EQ(rf_weights_read(w, 0, 0, 1200, values.data()), RF_EIO);
    EXPECT_HAS(std::string(rf_last_error()->message), "became shorter");
    rf_weights_close(w);
}
} // namespace
