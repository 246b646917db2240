// SPDX-License-Identifier: MIT
//
// Timelines that the program draws: predicted steps (`plan --plot`), and predicted above measured
// ones (`bench pipeline --plot`).
#include "program.h"
#include "svg.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gpt2.h>
#include <gtest/gtest.h>
#include <iterator>
#include <ringforge/parallel.h>
#include <set>
#include <sstream>

namespace
{

size_t count_of(const std::string &text, const std::string &word)
{
    size_t count = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++)
        count++;
    return count;
}

// A model of 4 blocks, or more, on a device and links for which a step can be predicted.
ProgramResult draw(const std::string &options, int layers = 2)
{
    std::istringstream words("plan --channels 64 --seq 32 --batch 8 --peak 1 --memory 10 "
                             "--link-gbps 1 --layers " +
                             std::to_string(layers) + " " + options);
    return run_program({std::istream_iterator<std::string>(words), {}});
}

struct Job {
    gpt2 *model = nullptr;
    std::vector<rf_plan *> plans; // of all ranks
    Job(rf_mesh mesh, rf_policy policy, int layers = 2)
    {
        gpt2_config config = {};
        config.layers = layers;
        config.channels = 64;
        config.heads = 4;
        config.seq = 32;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        policy.batch = 8;
        policy.seq = 32;
        policy.clip = 1;
        policy.optimizer.kind = RF_ADAMW;
        int count = 0;
        const rf_block *blocks = gpt2_blocks(model, &count);
        for (int rank = 0; rank < mesh.dp * mesh.pp; rank++) {
            plans.push_back(nullptr);
            EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, rank, &plans.back()), 0)
                << rf_last_error()->message;
        }
    }
    ~Job()
    {
        for (rf_plan *plan : plans)
            rf_plan_destroy(plan);
        gpt2_destroy(model);
    }
};

// Each instruction by its text; returns their number.
int expect_instructions(const std::string &svg, const rf_plan *plan)
{
    int count = 0;
    const rf_instruction *list = rf_plan_instructions(plan, &count);
    for (int i = 0; i < count; i++) {
        char text[96];
        rf_instruction_text(plan, &list[i], text, sizeof(text));
        EXPECT_NE(svg.find("<title>" + std::string(text) + ": "), std::string::npos) << text;
    }
    return count;
}

TEST(PlanPicture, IsWellFormedAndHasABoxForEachInstructionOfEachRankOfAPipeline)
{
    for (const auto &[name, kind, chunks] :
         {std::tuple<const char *, rf_pipeline_kind, int>{"gpipe", RF_PIPELINE_GPIPE, 0},
          {"1f1b", RF_PIPELINE_1F1B, 0},
          {"interleaved:2", RF_PIPELINE_INTERLEAVED, 2},
          {"zbh1", RF_PIPELINE_ZBH1, 0},
          {"zbv", RF_PIPELINE_ZBV, 0}}) {
        rf_policy policy = {};
        policy.micro_batches = 8;
        policy.pipeline = kind;
        policy.chunks = chunks;
        Job job({1, 1, 4, 0}, policy, 6);
        const ProgramResult r =
            draw(std::string("--mesh pp=4 --micro-batches 8 --plot - --schedule ") + name, 6);
        ASSERT_EQ(r.status, 0) << r.err;
        const std::vector<std::string> tags = tags_of(r.out);
        ASSERT_GT(tags.size(), 0u);
        EXPECT_EQ(tags[0], "svg");
        int boxes = 0;
        for (const rf_plan *plan : job.plans)
            boxes += expect_instructions(r.out, plan);
        EXPECT_EQ(std::count(tags.begin(), tags.end(), "rect"), boxes) << name;
        EXPECT_EQ(r.out.find("href"), std::string::npos); // nothing from elsewhere
        EXPECT_LT(r.out.size(), 100000u) << name;
        const std::string title = std::string("pp=4, ") + name + ", zero 0, ring order";
        for (const std::string word :
             {title.c_str(), ": bubble ", " %</text>", ">rank 0<", ">rank 3<", ">send outputs<",
              ">receive gradients<", ">forward<", ">backward for inputs<", ">backward for weights<",
              ">send and receive<", ">optimizer<", ">7</text>", " ms</text>"})
            EXPECT_NE(r.out.find(word), std::string::npos) << name << ": " << word;
    }
}

TEST(PlanPicture, HasOneRowForRanksThatAreAlike)
{
    TempFolder folder;
    const std::string path = folder.path + "/step.svg";
    rf_policy policy = {};
    policy.micro_batches = 2;
    Job job({2, 1, 1, 0}, policy);
    const ProgramResult r = draw("--ranks 2 --plot " + path);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("Predicted step: "), std::string::npos) << r.out;
    const std::string svg = read_text(path);
    const std::vector<std::string> tags = tags_of(svg);
    EXPECT_EQ(std::count(tags.begin(), tags.end(), "rect"), expect_instructions(svg, job.plans[0]));
    for (const char *word : {"dp=2, zero 0, ring order", "ranks that are alike are drawn once",
                             ">rank 0<", ">data<", ">other collective<"})
        EXPECT_NE(svg.find(word), std::string::npos) << word;
    EXPECT_EQ(svg.find(">rank 1<"), std::string::npos);
}

TEST(PlanPicture, ShowsTheExchangesOfTensorRanksOnTheirLane)
{
    const ProgramResult r = draw("--mesh tp=2 --sequence-parallel --plot -");
    ASSERT_EQ(r.status, 0) << r.err;
    for (const char *word :
         {">tensor<", ">exchange within a call<", "tp=2, sequence parallel, zero 0, ring order",
          "<title>exchange of forward block 1 micro-batch 0 phase 0: ",
          "<title>exchange of backward input block 1 micro-batch 0 phase 0: "})
        EXPECT_NE(r.out.find(word), std::string::npos) << word << "\n" << r.out;
}

// Steps of 2bw overlap: instructions begun by a list end after the next one has begun.
TEST(PlanPicture, ShowsAllOfAStepThatOverlapsWithTheNextOne)
{
    const ProgramResult r = draw("--mesh pp=4 --schedule 2bw --micro-batches 8 --plot -", 6);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("; steps overlap"), std::string::npos);
    int boxes = 0;
    for (size_t at = 0; (at = r.out.find("<rect ", at)) != std::string::npos; at++, boxes++) {
        double x = 0, width = 0;
        ASSERT_EQ(sscanf(r.out.c_str() + at, "<rect class=\"k%*d\" x=\"%lf\" y=\"%*d\" width=\"%lf",
                         &x, &width),
                  2);
        EXPECT_LE(x + width, 1140.5);
    }
    EXPECT_GT(boxes, 100);
}

TEST(PlanPicture, SaysWhatIsComputedAgain)
{
    for (const char *what : {"none", "gelu", "norms,every=2"}) {
        const ProgramResult r = draw(std::string("--plot - --recompute ") + what);
        ASSERT_EQ(r.status, 0) << what << r.err;
        const bool said = r.out.find(std::string(", recompute ") + what + ":") != std::string::npos;
        EXPECT_EQ(said, strcmp(what, "none") != 0) << what;
    }
    EXPECT_NE(draw("--plot - --recompute block").out.find(">forward again (recomputation)<"),
              std::string::npos);
}

TEST(PlanPicture, ThatCannotBeWrittenIsAnErrorBeforeAnyWork)
{
    const ProgramResult r = draw("--plot /nonexistent/x.svg");
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err.find("cannot write --plot /nonexistent/x.svg"), std::string::npos) << r.err;
}

double luminance(long rgb)
{
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    for (int k = 0; k < 3; k++) {
        const double c = (double)(rgb >> (16 - 8 * k) & 255) / 255;
        sum += weights[k] * (c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

// WCAG 2 requires a contrast of 4.5 to 1 for text. Boxes differ in more than hue.
TEST(PlanPicture, HasBlackNumbersOnColoursThatDifferAndAreLightEnough)
{
    const ProgramResult r =
        draw("--mesh dp=2,tp=2,pp=2 --recompute block --zero 1 --plot - --micro-batches 4");
    ASSERT_EQ(r.status, 0) << r.err;
    std::set<long> colours;
    int kinds = 0;
    for (size_t at = 0; (at = r.out.find("{fill:#", at)) != std::string::npos; at++) {
        const size_t dot = r.out.rfind('.', at);
        if (dot == std::string::npos || r.out[dot + 1] != 'k')
            continue;
        const long rgb = strtol(r.out.c_str() + at + 7, nullptr, 16);
        EXPECT_GE((luminance(rgb) + 0.05) / 0.05, 4.5) << r.out.substr(at, 14);
        colours.insert(rgb);
        kinds++;
    }
    EXPECT_EQ(kinds, 9);
    EXPECT_EQ(colours.size(), 9u);
    EXPECT_NE(r.out.find("prefers-color-scheme:dark"), std::string::npos);
}

// Times are not asserted. A rank has two blocks, each called three times for each of 4
// micro-batches.
TEST(BenchPicture, HasTheMeasuredCallsOfEachRankBelowThePredictedOnes)
{
    TempFolder folder;
    const std::string path = folder.path + "/zbv.svg";
    const ProgramResult r =
        run_program({"bench", "pipeline", "--schedule", "zbv", "--ranks", "2", "--scale", "0.01",
                     "-n", "1", "--provider", "shm", "--plot", path});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("zbv "), std::string::npos);
    EXPECT_EQ(r.out.find("1f1b"), std::string::npos);
    const std::string svg = read_text(path);
    tags_of(svg);
    const size_t below = svg.find(">measured: step ");
    ASSERT_NE(below, std::string::npos) << svg;
    for (const std::string &half : {svg.substr(0, below), svg.substr(below)}) {
        EXPECT_EQ(count_of(half, ">rank 0<") + count_of(half, ">rank 1<"), 2u);
        for (const char *kind : {"k1", "k3", "k4"})
            EXPECT_EQ(count_of(half, std::string("<rect class=\"") + kind), 16u) << kind;
    }
    for (const char *word : {"zbv on 2 ranks, 4 micro-batches: bubble ", " % predicted, ",
                             ">predicted: step ", ">backward for weights<"})
        EXPECT_NE(svg.find(word), std::string::npos) << word;
}

// 4, 64 and 1024 bytes: a line of three points, over axes with marks.
TEST(BenchPicture, OfBandwidthHasAPointForEachSize)
{
    TempFolder folder;
    const std::string path = folder.path + "/x.svg";
    const ProgramResult r =
        run_program({"bench", "all_reduce", "--ranks", "2", "--provider", "loopback", "-e", "1K",
                     "-f", "16", "-n", "1", "--plot", path});
    ASSERT_EQ(r.status, 0) << r.err;
    const std::string svg = read_text(path);
    tags_of(svg);
    EXPECT_EQ(count_of(svg, "<circle class=\"s0\""), 3u) << svg;
    EXPECT_EQ(count_of(svg, "cx=\"80.0\"") + count_of(svg, "cx=\"880.0\""), 2u) << svg;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    for (const char *word : {">bytes<", ">bus bandwidth, GB/s<", ">100<", ">busbw<"})
        EXPECT_NE(svg.find(word), std::string::npos) << word;
}

TEST(BenchPicture, ThatCannotBeWrittenIsAnErrorBeforeAnyWork)
{
    const ProgramResult r = run_program({"bench", "pipeline", "--ranks", "2", "--schedule", "1f1b",
                                         "--plot", "/nonexistent/x.svg"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err.find("cannot write --plot /nonexistent/x.svg"), std::string::npos) << r.err;
}

} // namespace
