// SPDX-License-Identifier: MIT
//
// Folders of a hub: weights that are written and read back, hostile indices, filling of a run on
// any mesh, and losses beside those of transformers (hub_torch.txt, by hub_torch.py, with weights
// from the same formula). hub_config_test.cc has the fields of config.json.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <malloc.h>
#include <sstream>
#include <sys/resource.h>

#include "hub_model.h"

#include <ringforge/quantize.h>

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
// model's store, and since version 2.0 from there on to that of the cache.
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

// ---- models -------------------------------------------------------------------------------------

struct Case {
    std::string name, config;
    std::vector<double> losses;
};

// Of each case of hub_torch.txt: a name, config.json on one line, and the losses.
std::vector<Case> cases()
{
    std::ifstream file(RF_REFERENCE_FOLDER "/hub_torch.txt");
    std::vector<Case> all;
    std::string line;
    while (std::getline(file, line)) {
        if (line.empty() || line[0] == '#')
            continue;
        Case c;
        double loss;
        c.name = line;
        std::getline(file, c.config);
        std::getline(file, line);
        for (std::istringstream in(line); in >> loss;)
            c.losses.push_back(loss);
        all.push_back(c);
    }
    return all;
}

enum { SEQ = 16, BATCH = 8 };

Training training_of(const Made &made)
{
    Training t;
    t.model = made.g;
    if (made.llama)
        t.llama = made.l;
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.05f;
    t.edit_batch = [](int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        for (size_t i = 0; i < tokens.size(); i++) {
            const auto at = [&](size_t k) { return (int32_t)((k * k * 7 + k * 3) % 61); };
            const size_t row = i / SEQ + (size_t)step * BATCH, column = i % SEQ;
            tokens[i] = at(row * 5 + column);
            targets[i] = at(row * 5 + column + 1);
        }
    };
    t.before = [&made](rf_run *run, rf_comm *, int) {
        made.with_source([&](const rf_param_source &from) { ASSERT_RF(rf_run_fill(run, &from)); });
    };
    return t;
}

TEST(Hub, LossesAreThoseOfTransformers)
{
    ASSERT_FALSE(cases().empty());
    for (const Case &c : cases()) {
        SCOPED_TRACE(c.name);
        Made made;
        ASSERT_EQ(made.make(c.config), "");
        Training t = training_of(made);
        t.steps = (int)c.losses.size();
        const Seen seen = train(t, 1)[0];
        // Rounding of f32 in another order; the losses are near 4.
        for (size_t i = 0; i < c.losses.size(); i++)
            EXPECT_NEAR(seen.loss[i], c.losses[i], 2e-5) << i;
    }
}

TEST(Hub, EveryMeshIsFilledWithTheSame)
{
    const std::vector<Case> all = cases();
    for (size_t k : {(size_t)0, (size_t)2}) {
        Made made;
        ASSERT_EQ(made.make(all.at(k).config), "");
        const Training one = training_of(made);
        const auto filled = [&](Training t, int ranks) {
            t.steps = 0;
            return train(t, ranks)[0].sha;
        };
        const std::string sha = filled(one, 1);
        Training tp = one, pp = one, zero = one;
        tp.tp = 2;
        tp.policy.order = RF_ORDER_RING;
        pp.pp = 2;
        zero.policy.zero = 3;
        EXPECT_EQ(filled(tp, 2), sha);
        EXPECT_EQ(filled(pp, 2), sha);
        EXPECT_EQ(filled(zero, 2), sha);
    }
}

TEST(Hub, AWrongTensorIsNamed)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(0).config), "");
    hub_tensors list = {};
    char fault[HUB_FAULT_BYTES] = "";
    ASSERT_EQ(hub_list(made.h, made.blocks, made.count, false, &list, fault), 0);
    const auto fault_of = [&](const std::vector<Tensor> &tensors) {
        rf_weights *w = nullptr;
        hub_source *source = nullptr;
        fault[0] = 0;
        write_weights(made.weights(), tensors, RF_F32, 0);
        EXPECT_EQ(rf_weights_open(made.weights().c_str(), nullptr, &w), 0);
        (void)!hub_source_create(made.h, w, made.blocks, made.count, &source, fault);
        hub_source_destroy(source);
        rf_weights_close(w);
        return std::string(fault);
    };
    std::vector<Tensor> good;
    for (int i = 0; i < list.count; i++)
        good.push_back({list.list[i].name, hub_tensor_shape(&list.list[i])});
    hub_tensors_free(&list);
    EXPECT_EQ(fault_of(good), ""); // without the prefix
    std::vector<Tensor> more = good;
    more.push_back({"h.0.attn.bias", rf_shape4(1, 1, 4, 4)});
    EXPECT_EQ(fault_of(more), "");
    more.push_back({"h.99.attn.bias", rf_shape1(1)});
    EXPECT_HAS(fault_of(more), "h.99.attn.bias belongs to no parameter");
    more.back() = {"lm_head.weight", good[0].shape};
    EXPECT_HAS(fault_of(more), "lm_head.weight differs from wte.weight");
    std::vector<Tensor> fewer = good;
    const std::string last = fewer.back().name;
    fewer.pop_back();
    EXPECT_HAS(fault_of(fewer), "tensor " + last + " is missing");
    fewer.push_back({last, rf_shape1(3)});
    EXPECT_HAS(fault_of(fewer), last + " is f32 (3)");
}

uint64_t host_bytes_in_use()
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Nothing is mapped, so memory is what is allocated. Under a sanitizer it counts as none.
TEST(Hub, AFillHoldsLessThanTheLargestTensorInHostMemory)
{
    Made made;
    const std::string error = made.make(R"({"architectures":["GPT2LMHeadModel"],
        "model_type":"gpt2","vocab_size":4096,"n_positions":16,"n_embd":128,"n_layer":8,
        "n_head":4,"activation_function":"gelu_new","layer_norm_epsilon":1e-5})");
    ASSERT_EQ(error, "");
    const uint64_t largest = 4096 * 128 * sizeof(float);
    Training t = training_of(made);
    t.steps = 0;
    t.before = [&made](rf_run *run, rf_comm *, int) {
        made.with_source([&](const rf_param_source &from) {
            struct Self {
                const rf_param_source *from;
                uint64_t read, most;
            } self = {&from, 0, 0};
            rf_param_source source = {};
            source.self = &self;
            source.read = [](void *user, const char *name, uint64_t first, uint64_t count,
                             void *values) {
                Self *s = static_cast<Self *>(user);
                const int rc = s->from->read(s->from->self, name, first, count, values);
                s->read += count * sizeof(float);
                s->most = std::max(s->most, host_bytes_in_use());
                return rc;
            };
            run->piece_bytes = 1 << 18;
            const uint64_t before = host_bytes_in_use();
            ASSERT_RF(rf_run_fill(run, &source));
            EXPECT_GE(self.read, 4 * largest);
            EXPECT_LE(self.most, before + largest) << self.most - before;
        });
    };
    train(t, 1);
}

TEST(Hub, AFillNeedsMemoryForPiecesAloneAndAnErrorOfOneRankIsThatOfAll)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.policy.zero = 3;
    t.before = [](rf_run *run, rf_comm *, int rank) {
        struct Self {
            int rank;
            uint64_t most;
        } self = {rank, 0};
        rf_param_source source = {};
        source.self = &self;
        source.read = [](void *user, const char *, uint64_t, uint64_t count, void *values) {
            Self *s = static_cast<Self *>(user);
            s->most = std::max(s->most, count);
            memset(values, 0, count * sizeof(float));
            return s->rank == 1 ? rf_fail(RF_EIO, "the disk is gone") : 0;
        };
        run->piece_bytes = 1024;
        EXPECT_EQ(rf_run_fill(run, &source), RF_EIO);
        EXPECT_HAS(std::string(rf_last_error()->message), "the disk is gone");
        self.rank = 0;
        EXPECT_RF(rf_run_fill(run, &source));
        EXPECT_LE(self.most, 256u);
    };
    train(t, 2);
}

// What ranks ask for adds up to the parameters: each is read once, by the rank that stores it.
TEST(Hub, EachRankReadsOnlyWhatItStores)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    uint64_t all = 0;
    for (int b = 0; b < made.count; b++)
        for (int k = 0; k < made.blocks[b].param_count; k++)
            if (!made.blocks[b].params[k].tied_to)
                all += (uint64_t)rf_shape_count(made.blocks[b].params[k].shape);
    for (int ranks : {1, 2, 4}) {
        Training t = training_of(made);
        std::atomic<uint64_t> total(0), most(0);
        t.steps = 0;
        t.policy.zero = 3;
        t.before = [&](rf_run *run, rf_comm *, int) {
            uint64_t own = 0;
            rf_param_source source = {};
            source.self = &own;
            source.read = [](void *user, const char *, uint64_t, uint64_t count, void *values) {
                *static_cast<uint64_t *>(user) += count;
                memset(values, 0, count * sizeof(float));
                return 0;
            };
            ASSERT_RF(rf_run_fill(run, &source));
            total += own;
            for (uint64_t seen = most; own > seen && !most.compare_exchange_weak(seen, own);)
                ;
        };
        train(t, ranks);
        EXPECT_EQ(total, all) << ranks;
        EXPECT_LE(most, all / (uint64_t)ranks + all / 8) << ranks;
    }
}

TEST(Hub, AParameterOfTensorRanksIsReadWholeInPiecesOfAnySize)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(2).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.tp = 2;
    t.policy.order = RF_ORDER_RING;
    for (size_t piece : {(size_t)0, (size_t)256}) {
        t.before = [&](rf_run *run, rf_comm *, int rank) {
            made.with_source(
                [&](const rf_param_source &from) { ASSERT_RF(rf_run_fill(run, &from)); });
            run->piece_bytes = piece;
            for (int b = 0; b < made.count; b++)
                for (int k = 0; k < made.blocks[b].param_count; k++) {
                    const rf_param_desc &param = made.blocks[b].params[k];
                    Floats got((size_t)rf_shape_count(param.shape)), wanted(got.size());
                    ASSERT_RF(rf_run_read_param(run, param.name, got.data(), got.size() * 4));
                    made.with_source([&](const rf_param_source &from) {
                        const char *name = param.tied_to ? param.tied_to : param.name;
                        ASSERT_RF(from.read(from.self, name, 0, wanted.size(), wanted.data()));
                    });
                    EXPECT_EQ(got, wanted) << param.name << " of rank " << rank;
                }
        };
        train(t, 2);
    }
}

TEST(Hub, AWeightThatIsNotFiniteIsNamedWhenItIsFilled)
{
    Made made;
    ASSERT_EQ(made.make(cases().at(1).config), "");
    Training t = training_of(made);
    t.steps = 0;
    t.before = [](rf_run *run, rf_comm *, int) {
        rf_param_source source = {};
        source.read = [](void *, const char *, uint64_t, uint64_t count, void *values) {
            memset(values, 0, count * sizeof(float));
            static_cast<float *>(values)[0] = NAN;
            alignas(4) char bytes[4096];
            return rf_quantize(RF_INT8, static_cast<float *>(values), 64, bytes);
        };
        EXPECT_EQ(rf_run_fill(run, &source), RF_EINVAL);
        const std::string said = rf_last_error()->message;
        EXPECT_HAS(said, "parameter ");
        EXPECT_HAS(said, "element 0 is nan");
        source.read = [](void *, const char *, uint64_t, uint64_t count, void *values) {
            memset(values, 0, count * sizeof(float));
            return 0;
        };
        EXPECT_RF(rf_run_fill(run, &source));
    };
    train(t, 1);
}

} // namespace
