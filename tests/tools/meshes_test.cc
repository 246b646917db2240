/* SPDX-License-Identifier: MIT
 *
 * `ringforge train` on meshes of processes: each rank is a process of the program, over shared
 * memory or TCP. Losses and norms equal those of one process; in tree order the bits depend only on
 * the number of tensor ranks and on whether they are sequence-parallel. tests/train/meshes_test.cc
 * has more meshes, as threads.
 */
#include "program.h"

#include <cjson/cJSON.h>
#include <cmath>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <sstream>
#include <unistd.h>

namespace
{

struct Trained {                    // one job
    std::vector<double> loss, norm; // of each step
    std::string sha;
};

// By gradient descent: the gradient of a key's bias is 0 up to roundings, which adaptive rules
// would scale up to whole steps.
const char options[] = "--layers 2 --heads 4 --channels 32 --seq 16 --batch 4 --micro-batches 4 "
                       "--optimizer sgd --lr 0.1 --clip 0.25 --seed 3 ";

std::vector<std::string> words_of(const std::string &text)
{
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

Trained read_log(const std::string &path, const ProgramResult &r)
{
    Trained out;
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
    const std::string text = read_text(path);
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        cJSON *line = cJSON_Parse(text.substr(at, end - at).c_str());
        const auto number = [&](const char *name) {
            return cJSON_GetNumberValue(cJSON_GetObjectItem(line, name));
        };
        if (cJSON_IsNumber(cJSON_GetObjectItem(line, "step"))) {
            out.loss.push_back(number("loss"));
            out.norm.push_back(number("grad_norm"));
        }
        const char *sha = cJSON_GetStringValue(cJSON_GetObjectItem(line, "params_sha256"));
        out.sha = sha ? sha : out.sha;
        cJSON_Delete(line);
    }
    return out;
}

// The largest difference of two rows of numbers, relative to the second.
double difference(const std::vector<double> &a, const std::vector<double> &b)
{
    double worst = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
    for (size_t k = 0; k < b.size() && worst < INFINITY; k++)
        worst = std::fmax(worst, std::fabs(a[k] - b[k]) / std::fabs(b[k]));
    return worst;
}

struct Mesh {
    std::string axes; // of --mesh
    int ranks, tp;
    std::string more, order = "tree";
};

const char gpt2[] = "--model gpt2", llama[] = "--model llama --kv-heads 2";

// Jobs of one model, compared with its job of one process.
class Jobs
{
  public:
    Jobs(const std::string &model, int steps) : model_(model), steps_(steps)
    {
        data_ = folder_.file("t.txt", some_text());
        one_ = train({"dp=1", 1, 1}, "loopback");
        shas_[{1, false}] = one_.sha;
        EXPECT_EQ(one_.loss.size(), (size_t)steps);
        EXPECT_EQ(one_.sha.size(), 64u);
    }
    void expect_as_one_process(const Mesh &mesh, const std::string &provider)
    {
        const Trained t = train(mesh, provider);
        const double loss = difference(t.loss, one_.loss), norm = difference(t.norm, one_.norm);
        const std::string where =
            model_ + " --mesh " + mesh.axes + " --provider " + provider + " " + mesh.more;
        EXPECT_LE(loss, 1e-6) << where;
        EXPECT_LE(norm, 1e-6) << where;
        if (mesh.order == "tree") {
            const std::pair<int, bool> cut = {mesh.tp, mesh.more.find("--seq") == 0};
            EXPECT_EQ(t.sha, shas_.emplace(cut, t.sha).first->second) << where;
            EXPECT_TRUE(mesh.tp > 1 || (t.loss == one_.loss && t.norm == one_.norm)) << where;
        }
        worst_loss = std::fmax(worst_loss, loss);
        worst_norm = std::fmax(worst_norm, norm);
        printf("%s, %d processes: loss differs by %.1e of one process's, gradient norm by %.1e; "
               "parameters %.8s\n",
               where.c_str(), mesh.ranks, loss, norm, t.sha.c_str());
        fflush(stdout);
    }
    double worst_loss = 0, worst_norm = 0; // relative

  private:
    Trained train(const Mesh &mesh, const std::string &provider)
    {
        const std::string log = folder_.path + "/log";
        std::ostringstream line;
        line << program_path() << " train --data " << data_ << " --log " << log << " --steps "
             << steps_ << " --ranks " << mesh.ranks << " --mesh " << mesh.axes << " --provider "
             << provider << " --order " << mesh.order << " " << options << model_ << " "
             << mesh.more;
        unlink(log.c_str());
        return read_log(log, run_command(words_of(line.str())));
    }
    TempFolder folder_;
    std::string model_;
    int steps_;
    std::string data_;
    Trained one_;
    std::map<std::pair<int, bool>, std::string> shas_; // by number of tensor ranks and kind of cut
};

const Mesh meshes[] = {
    {"dp=4", 4, 1},
    {"dp=4", 4, 1, "--zero 1"},
    {"dp=4", 4, 1, "--zero 2"},
    {"dp=4", 4, 1, "--zero 3"},
    {"dp=4,shard=2", 4, 1, "--zero 1", "ring"},
    {"dp=4,shard=2", 4, 1, "--zero 3", "ring"},
    {"tp=4", 4, 4},
    {"tp=4", 4, 4, "--sequence-parallel"},
    {"pp=4", 4, 1},
    {"pp=4", 4, 1, "--schedule zbh1"},
    {"dp=2,tp=2", 4, 2},
    {"dp=2,tp=2", 4, 2, "--sequence-parallel --zero 3"},
    {"dp=2,pp=2", 4, 1},
    {"dp=2,pp=2", 4, 1, "--zero 2"},
    {"tp=2,pp=2", 4, 2},
    {"tp=2,pp=2", 4, 2, "--sequence-parallel --schedule zbv"},
    {"dp=2,tp=2,pp=2", 8, 2},
    {"dp=2,tp=2,pp=2", 8, 2, "--sequence-parallel --zero 1"},
    {"dp=2,tp=2,pp=2", 8, 2, "--zero 2"},
    {"dp=2,tp=2,pp=2", 8, 2, "--sequence-parallel --zero 3"},
};

// Over both providers; records the largest relative differences.
void expect_all_as_one_process(const char *model)
{
    if (!getenv("RF_TEST_ALL"))
        GTEST_SKIP() << "takes minutes: set RF_TEST_ALL=1";
    Jobs jobs(model, 4);
    for (const Mesh &mesh : meshes)
        for (const char *provider : {"shm", "tcp"})
            jobs.expect_as_one_process(mesh, provider);
    printf("%s: worst relative difference from one process: loss %.1e, gradient norm %.1e\n", model,
           jobs.worst_loss, jobs.worst_norm);
}

} // namespace

TEST(Meshes, OfEightProcessesTrainAsOneProcessDoes)
{
    Jobs(gpt2, 2).expect_as_one_process({"dp=2,tp=2,pp=2", 8, 2}, "tcp");
    Jobs(llama, 2).expect_as_one_process({"dp=2,tp=2,pp=2", 8, 2, "--sequence-parallel --zero 1"},
                                         "shm");
}

TEST(Meshes, OfFourAndEightProcessesTrainAGptAsOneProcessDoesOverSharedMemoryAndTcp)
{
    expect_all_as_one_process(gpt2);
}

TEST(Meshes, OfFourAndEightProcessesTrainALlamaAsOneProcessDoesOverSharedMemoryAndTcp)
{
    expect_all_as_one_process(llama);
}
