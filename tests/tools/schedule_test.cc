// SPDX-License-Identifier: MIT
//
// `ringforge schedule`: the steps of collectives as text, JSON and pictures, compared with the
// counts of the library.
#include "program.h"
#include "svg.h"

#include <algorithm>
#include <cJSON.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <memory>
#include <ringforge/ringforge.h>
#include <sstream>

namespace
{

ProgramResult schedule(const std::string &options)
{
    std::istringstream words("schedule " + options);
    return run_program({std::istream_iterator<std::string>(words), {}});
}

using Json = std::unique_ptr<cJSON, void (*)(cJSON *)>;

Json parse(const std::string &text)
{
    return Json(cJSON_Parse(text.c_str()), cJSON_Delete);
}

double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    EXPECT_TRUE(cJSON_IsNumber(item)) << name;
    return item ? item->valuedouble : -1;
}

std::string text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

std::string ranges(const cJSON *step)
{
    char *written = cJSON_PrintUnformatted(cJSON_GetObjectItem(step, "elements"));
    std::string result = written ? written : "";
    cJSON_free(written);
    return result;
}

// ---- text
// -----------------------------------------------------------------------------------------

TEST(Schedule, OfARingOfTwoRanksIsThisText)
{
    const ProgramResult r = schedule("all_reduce --ranks 2 --count 5 --algorithm ring");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, R"TEXT(all_reduce of 5 f32, 20 B, on 2 ranks, sum, any order
  algorithm        ring (long); the library takes flat (short)
  also supported   recursive_doubling, flat, rabenseifner, direct, naive
  not supported    fused: it needs two ranks or more that share memory, and elements
                   shared: it needs 2 to 32 ranks that share memory
                   hierarchical: it needs several hosts, and several ranks on some of them
  rounds           2
  steps            5 of a rank at most, 10 in all
  messages         2 from a rank at most, 4 in all
  sent             20 B by a rank at most, 40 B in all; the least for any algorithm is 2 (N-1)/N K = 20 B
  temporary memory 64 B of a rank at most

Rank 0: 5 steps, sends 20 B in 2 messages
  round  step what        peer      bytes  elements    where (bytes)
      1     0 send           1         12  0-2         in[0]
      1     2 recv           1          8  3-4         temp[0]
      1     3 reduce         -          8  3-4         out[12] = sum(temp[0], in[12]) after 2
      2     1 recv           1         12  0-2         out[0] after 0
      2     4 send           1          8  3-4         out[12] after 3

Rank 1: 5 steps, sends 20 B in 2 messages
  round  step what        peer      bytes  elements    where (bytes)
      1     0 send           0          8  3-4         in[12]
      1     2 recv           0         12  0-2         temp[0]
      1     3 reduce         -         12  0-2         out[0] = sum(temp[0], in[0]) after 2
      2     1 recv           0          8  3-4         out[12] after 0
      2     4 send           0         12  0-2         out[0] after 3
)TEXT");
}

TEST(Schedule, OfOneRankShowsNoOther)
{
    const ProgramResult r = schedule("broadcast --ranks 100 -c 3K --rank 40 --root 7");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out.find("broadcast of 3072 f32, 12288 B (12.0 KiB), on 100 ranks, from rank 7\n"),
              0u)
        << r.out;
    EXPECT_NE(r.out.find("\nRank 40: "), std::string::npos);
    EXPECT_EQ(r.out.find("\nRank 0: "), std::string::npos);
    const ProgramResult many = schedule("all_gather --ranks 17 -c 1");
    EXPECT_NE(many.out.find("--rank R prints one"), std::string::npos) << many.out;
    EXPECT_EQ(many.out.find("\nRank 1: "), std::string::npos);
}

TEST(Schedule, ListsTheAlgorithmsOfAnOperationAndWhyOthersCannotServe)
{
    const ProgramResult all = schedule("--list");
    EXPECT_EQ(all.status, 0);
    for (const char *word :
         {"all_reduce      ring", "broadcast       chain", "barrier   ", "recv   "})
        EXPECT_NE(all.out.find(word), std::string::npos) << word;
    const ProgramResult one = schedule("all_reduce --ranks 6 --count 1000 --list");
    EXPECT_NE(one.out.find("all_reduce      * direct"), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("does not support this call: the number of ranks is no power of two"),
              std::string::npos);
}

// ---- its output against the counts of the library
// -------------------------------------------------

// Both ends report the same for every message, and its elements match its bytes.
void expect_messages_match(const cJSON *json, const std::string &call)
{
    std::map<std::string, std::string> sent, received;
    const cJSON *rank, *step;
    cJSON_ArrayForEach(rank, cJSON_GetObjectItem(json, "per_rank"))
    {
        const int own = (int)number(rank, "rank");
        cJSON_ArrayForEach(step, cJSON_GetObjectItem(rank, "steps"))
        {
            const std::string verb = text(step, "verb");
            double elements = 0;
            const cJSON *range;
            cJSON_ArrayForEach(range, cJSON_GetObjectItem(step, "elements")) elements +=
                cJSON_GetArrayItem(range, 1)->valuedouble;
            if (verb != "join" && verb != "addresses" && verb != "agree") {
                EXPECT_EQ(elements * 4, number(step, "bytes")) << call << " " << verb;
            }
            if (verb != "send" && verb != "recv")
                continue;
            const int peer = (int)number(step, "peer");
            const std::string key = std::to_string(verb == "send" ? own : peer) + ">" +
                                    std::to_string(verb == "send" ? peer : own) + ":" +
                                    std::to_string((int)number(step, "tag"));
            auto &side = verb == "send" ? sent : received;
            EXPECT_EQ(side.count(key), 0u) << call;
            side[key] = ranges(step) + " " + std::to_string(number(step, "bytes"));
            EXPECT_GE(number(step, "round"), 1);
            EXPECT_LE(number(step, "round"), number(json, "rounds"));
        }
    }
    EXPECT_EQ(sent, received) << call;
}

void expect_counted_bytes(const cJSON *json, rf_coll_op op, const char *algorithm, int ranks,
                          const std::string &call)
{
    double most = 0, all = 0;
    for (int rank = 0; rank < ranks; rank++) {
        uint64_t bytes = 0;
        ASSERT_EQ(rf_coll_sent_bytes_as(op, algorithm, rank, ranks, op == RF_COLL_BARRIER ? 0 : 37,
                                        RF_F32, RF_ORDER_ANY, 0, &bytes),
                  0)
            << rf_last_error()->message;
        const cJSON *own = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "per_rank"), rank);
        EXPECT_EQ(number(own, "sent_bytes"), (double)bytes) << call << " rank " << rank;
        most = std::max(most, (double)bytes);
        all += (double)bytes;
    }
    EXPECT_EQ(number(json, "most_sent_bytes"), most) << call;
    EXPECT_EQ(number(json, "sent_bytes"), all) << call;
    EXPECT_LE(number(json, "least_sent_bytes"), most) << call;
}

TEST(Schedule, OfEveryAlgorithmIsPrintedAndItsBytesAreThoseThatTheLibraryCounts)
{
    TempFolder folder;
    const std::string path = folder.path + "/schedule.json";
    int printed = 0;
    for (int op = RF_COLL_ALL_REDUCE; op < RF_COLL_SEND; op++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            rf_schedule_desc desc = {};
            desc.op = (rf_coll_op)op;
            desc.ranks = ranks;
            desc.count = 37;
            rf_schedule_algorithm_info infos[16];
            uint32_t count = 0;
            ASSERT_EQ(rf_schedule_algorithms(&desc, infos, 16, &count), 0);
            for (uint32_t i = 0; i < count; i++) {
                if (infos[i].why_not)
                    continue;
                const std::string call = std::string(rf_coll_op_name(desc.op)) + " --ranks " +
                                         std::to_string(ranks) + " --algorithm " + infos[i].name +
                                         (op == RF_COLL_BARRIER ? "" : " --count 37");
                const ProgramResult r = schedule(call + " --json " + path);
                ASSERT_EQ(r.status, 0) << call << r.err;
                EXPECT_NE(r.out.find("\nRank " + std::to_string(ranks - 1) + ": "),
                          std::string::npos)
                    << call << r.out;
                const Json json = parse(read_text(path));
                ASSERT_TRUE(json) << call;
                EXPECT_EQ(text(json.get(), "algorithm"), infos[i].name);
                expect_counted_bytes(json.get(), desc.op, infos[i].name, ranks, call);
                expect_messages_match(json.get(), call);
                printed++;
            }
        }
    EXPECT_GT(printed, 150);
}

TEST(Schedule, OfCallsWithHostsCountsAndSharedMemoryIsPrinted)
{
    for (const char *call :
         {"all_reduce --hosts 2x4 --count 37 --algorithm hierarchical",
          "all_reduce --hosts 5,5,9,5,7 --count 1000 --algorithm hierarchical",
          "all_gather --hosts 3x2 --count 5 --algorithm hierarchical",
          "reduce_scatter --hosts 0,1,1 --count 5 --algorithm hierarchical",
          "broadcast --hosts 2x3 --count 5 --algorithm hierarchical --root 4",
          "all_gather --counts 3,0,5", "all_gather --counts 3,0,5,1 --algorithm bruck",
          "all_gather --counts 3,0,5,1 --algorithm ring", "reduce_scatter --counts 0,0,7",
          "gather --counts 1,2,3,4,5,6,7,8,9 --root 3", "scatter --counts 4,4,1 --root 2",
          "gather --ranks 9 --count 4 --root 4", "scatter --ranks 12 --count 4 --root 7",
          "all_to_all --counts 1,0,3", "send --ranks 4 --count 9 --root 3",
          "recv --ranks 2 --count 9", "send --ranks 1 --count 9",
          "all_reduce --ranks 4 --count 9000 --shared --algorithm shared",
          "all_reduce --ranks 3 --count 500K --algorithm ring --segment 64K"}) {
        const ProgramResult r = schedule(std::string(call) + " --json");
        ASSERT_EQ(r.status, 0) << call << r.err;
        const Json json = parse(r.out);
        ASSERT_TRUE(json) << call;
        expect_messages_match(json.get(), call);
        EXPECT_LE(number(json.get(), "least_sent_bytes"), number(json.get(), "most_sent_bytes"))
            << call;
    }
}

TEST(Schedule, OfHostsCountsWhatGoesBetweenThem)
{
    const Json json = parse(schedule("all_reduce --hosts 2x4 -c 32 -a hierarchical --json").out);
    EXPECT_EQ(number(json.get(), "between_hosts_bytes"), 2 * 128); // 2 (H-1)/H K from each of two
    const Json ring = parse(schedule("all_reduce --hosts 4,5,4,5 -c 32 -a ring --json").out);
    EXPECT_EQ(number(ring.get(), "between_hosts_bytes"), number(ring.get(), "sent_bytes"));
}

// Too many steps to be simulated, or to be shown in detail.
TEST(Schedule, OfManyRanksAndLongCallsIsSummedUp)
{
    const ProgramResult r = schedule("all_reduce --ranks 1024 -c 100M --rank 1000 -a ring");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("rounds           2046\n"), std::string::npos) << r.out.substr(0, 2000);
    EXPECT_NE(r.out.find("the call in one piece"), std::string::npos);
    const Json json = parse(schedule("all_gather --ranks 700 -c 1M --json").out);
    ASSERT_TRUE(json);
    EXPECT_EQ(number(json.get(), "most_sent_bytes"), 699.0 * (4 << 20));
}

// ---- pictures
// -------------------------------------------------------------------------------------

TEST(SchedulePicture, IsWellFormedAndHasAnArrowForEachPairOfRanksInEachRound)
{
    for (const auto &[call, arrows] :
         {std::pair<const char *, int>{"all_reduce --ranks 4 -c 16 -a ring", 24},
          {"all_reduce --ranks 8 -c 16 -a recursive_doubling", 24},
          {"broadcast --ranks 8 -c 16 -a tree", 7},
          {"all_gather --ranks 6 -c 4 -a bruck", 6 * 3},
          {"all_reduce --hosts 2x4 -c 32 -a hierarchical", 24 + 32 + 56 + 24},
          {"gather --ranks 16 -c 2 --root 3", 15},
          {"barrier --ranks 5", 15},
          {"all_to_all --ranks 3 -c 1", 6},
          {"all_reduce --ranks 1 -c 4", 0}}) {
        const ProgramResult r = schedule(std::string(call) + " --plot -");
        ASSERT_EQ(r.status, 0) << call << r.err;
        const std::vector<std::string> tags = tags_of(r.out);
        ASSERT_GT(tags.size(), 0u);
        EXPECT_EQ(tags[0], "svg");
        size_t found = 0;
        for (size_t at = 0; (at = r.out.find(" to rank ", at)) != std::string::npos; at++)
            found++;
        EXPECT_EQ(found, (size_t)arrows) << call;
        EXPECT_NE(r.out.find(">rank 0<"), std::string::npos);
        EXPECT_NE(r.out.find("prefers-color-scheme:dark"), std::string::npos);
        EXPECT_EQ(r.out.find("href"), std::string::npos);
        EXPECT_EQ(r.out.find("nan"), std::string::npos) << call;
    }
}

TEST(SchedulePicture, LabelsMessagesWithTheirElementsAndMarksReductions)
{
    const std::string ring = schedule("all_reduce --ranks 4 -c 16 -a ring --plot -").out;
    for (const char *word :
         {">0-3<", ">12-15<", ">round 6<", ">in 0-15<", ">out 0-15<", "elements 4-7, 16 B<",
          "1 reduction, 0 copies<", ">what has come is added up<", "a message, and its elements"})
        EXPECT_NE(ring.find(word), std::string::npos) << word;
    const std::string doubling =
        schedule("all_reduce --ranks 8 -c 16 -a recursive_doubling --plot -").out;
    EXPECT_NE(doubling.find(">a message: elements 0-15<"), std::string::npos) << doubling;
    const std::string hosts = schedule("all_reduce --hosts 2x4 -c 32 -a hierarchical --plot -").out;
    for (const char *word : {">host 1<", "within a host<", ">between hosts<"})
        EXPECT_NE(hosts.find(word), std::string::npos) << word;
}

TEST(SchedulePicture, OfTheDocumentationIsWhatItsCommandDraws)
{
    const std::string docs = read_text(RF_SOURCE "/docs/collectives.md");
    const std::string name = "\nringforge schedule ", plot = "--plot ";
    int drawn = 0;
    for (size_t at = 0; (at = docs.find(name, at)) != std::string::npos; drawn++) {
        at += name.size();
        std::string words = docs.substr(at, docs.find("\n```", at) - at);
        std::replace(words.begin(), words.end(), '\\', ' ');
        const size_t path = words.find(plot);
        ASSERT_NE(path, std::string::npos) << words;
        const std::string file = RF_SOURCE "/" + words.substr(path + plot.size());
        EXPECT_EQ(schedule(words.substr(0, path) + "--plot -").out, read_text(file)) << file;
    }
    EXPECT_EQ(drawn, 4);
}

TEST(AlgorithmTable, OfTheDocumentationIsWhatTheProgramPrints)
{
    const std::string table = run_program({"info", "--algorithms", "--markdown"}).out;
    EXPECT_GT(std::count(table.begin(), table.end(), '\n'), 30);
    EXPECT_NE(read_text(RF_SOURCE "/docs/collectives.md").find("\n\n" + table + "\n"),
              std::string::npos)
        << "docs/collectives.md has another table than this:\n"
        << table;
}

TEST(SchedulePicture, ThatCannotBeReadOrWrittenIsRefused)
{
    EXPECT_NE(schedule("all_reduce --ranks 64 -c 64 -a ring --plot -").err.find("cannot be read"),
              std::string::npos);
    const ProgramResult r = schedule("all_reduce --ranks 2 -c 64 --plot /nonexistent/x.svg");
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    EXPECT_NE(r.err.find("cannot write --plot /nonexistent/x.svg"), std::string::npos) << r.err;
}

// ---- errors
// ---------------------------------------------------------------------------------------

TEST(Schedule, RefusesWhatIsNoCallInOneSentence)
{
    for (const auto &[call, sentence] : std::vector<std::pair<const char *, const char *>>{
             {"", "say which operation; there are all_reduce, "},
             {"all_reducee --ranks 2 -c 1", "there is no operation \"all_reducee\""},
             {"prefix_reduce_scatter --ranks 2", "there is no operation"},
             {"all_reduce -c 4", "say with --ranks"},
             {"all_reduce --ranks 4", "say with --count"},
             {"all_reduce --ranks 1025 -c 4", "--ranks has to be 1 to 1024, not 1025"},
             {"all_reduce --ranks 4 -c 4 -a rinng", "no algorithm \"rinng\"; there are fused, "},
             {"all_to_all --ranks 4 -c 4 -a ring", "no algorithm \"ring\"; there is pairs"},
             {"all_reduce --ranks 6 -c 4 -a recursive_doubling", "is no power of two"},
             {"all_reduce --ranks 6 -c 4 -a hierarchical", "it needs several hosts"},
             {"all_reduce --ranks 6 -c 4 -a ring --order tree", "does not add in tree order"},
             {"all_reduce --ranks 6 -c 4 --order by", "there is no order \"by\""},
             {"all_reduce --ranks 6 -c 4 -o mean", "there is no reduction \"mean\""},
             {"all_reduce --ranks 6 -c 4 -d f8", "there is no type \"f8\""},
             {"all_reduce --ranks 6 -c 4 --root 1", "--root is not used by all_reduce"},
             {"broadcast --ranks 6 -c 4 --op max", "--op is not used by broadcast"},
             {"gather --ranks 6 -c 4 --order tree", "--order is not used by gather"},
             {"barrier --ranks 6 -c 4", "--count is not used by barrier"},
             {"broadcast --ranks 6 -c 4 --root 6", "--root 6 is not one of 6 ranks"},
             {"broadcast --ranks 6 -c 4 --rank 6", "--rank 6 is not one of 6 ranks"},
             {"broadcast --ranks 6 -c 4 --segment 0", "--segment has to be at least 1, not 0"},
             {"broadcast --ranks 6 -c 8000T", "too many"},
             {"broadcast --counts 1,2", "does not take one count for each rank"},
             {"all_gather --counts 1,2 --ranks 3", "2 numbers for 3 ranks"},
             {"all_gather --counts 1,2 -c 3", "leave --count away"},
             {"all_gather --counts 1,-2", "not \"1,-2\""},
             {"all_gather --counts 1,2,", "not \"1,2,\""},
             {"all_reduce -c 4 --hosts 2x", "not \"2x\""},
             {"all_reduce -c 4 --hosts 0x4", "each number of --hosts has to be 1 to 1024, not 0x4"},
             {"all_reduce -c 4 --hosts 2x4 --ranks 7", "--hosts has 8 ranks; --ranks has 7"},
             {"all_reduce -c 4 --ranks 2 --plot x.png", "ends in .svg, not \"x.png\""},
             {"all_reduce -c 4 --ranks 2 more", "\"more\" is not expected here"}}) {
        const ProgramResult r = schedule(call);
        EXPECT_EQ(r.status, 2) << call << r.out;
        EXPECT_NE(r.err.find(sentence), std::string::npos) << call << ": " << r.err;
        EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << call;
        EXPECT_EQ(r.out, "") << call;
    }
}

} // namespace
