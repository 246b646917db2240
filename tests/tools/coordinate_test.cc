/* SPDX-License-Identifier: MIT
 *
 * `ringforge coordinate`, and `ringforge train --coordinator`: clients are processes with data and
 * keys of their own.
 */
#include "train_program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

struct Files {
    Files()
    {
        north = folder.file("north.txt", some_text());
        south = folder.file("south.txt", "so it goes. " + some_text());
        clients = folder.file("clients", "# names and keys\n\nnorth  a key\nsouth\tanother one \n");
        chmod(clients.c_str(), 0600);
    }
    TempFolder folder;
    std::string north, south, clients;
};

Words client(const std::string &data, const std::string &name, const std::string &address)
{
    return {
        "train",    "--data",        data,    "--layers", "1",  "--channels",       "32", "--heads",
        "2",        "--seq",         "16",    "--batch",  "4",  "--steps",          "6",  "--sync",
        "fedavg:2", "--coordinator", address, "--client", name, "--eval-sequences", "4"};
}

ProgramOptions key(const std::string &text)
{
    ProgramOptions options;
    options.environment = {"RF_CLIENT_KEY=" + text};
    return options;
}

/* A coordinator that listens, and its address. */
struct Listening {
    explicit Listening(const Words &words) : program(start_command(Words{program_path()} + words))
    {
        std::string said;
        char some[1024];
        while (said.find("rounds of") == std::string::npos) {
            const ssize_t n = read(program.out, some, sizeof some);
            if (n <= 0) {
                ADD_FAILURE() << said;
                return;
            }
            said.append(some, static_cast<size_t>(n));
        }
        address = "127.0.0.1:" + std::to_string(atoi(said.c_str() + said.find("port ") + 5));
    }
    Background program;
    std::string address;
};

std::string sha256_of(const std::string &out)
{
    const size_t at = out.find("sha256 ");
    return at == std::string::npos ? out : out.substr(at + 7, 64);
}

} // namespace

TEST(Coordinate, TwoClientsTrainOneModelAndOthersAreRefused)
{
    const Files files;
    const std::string state = files.folder.path + "/state";
    Listening coordinator({"coordinate", "--sync", "fedavg:2", "--clients", files.clients,
                           "--rounds", "2", "--port", "0", "--save", state});
    const std::string &address = coordinator.address;
    ProgramResult stranger = run_program(client(files.north, "mallory", address), key("a key"));
    EXPECT_EQ(stranger.status, 1) << stranger.err;
    EXPECT_NE(stranger.err.find("no client \"mallory\""), std::string::npos) << stranger.err;
    Background north =
        start_command(Words{program_path()} + client(files.north, "north", address), key("a key"));
    Background south = start_command(Words{program_path()} + client(files.south, "south", address) +
                                         Words{"--update-clip", "0.5", "--update-noise", "5"},
                                     key("another one"));
    const ProgramResult a = finish_command(north, 100), b = finish_command(south, 100),
                        c = finish_command(coordinator.program, 100);
    EXPECT_EQ(a.status, 0) << a.err;
    EXPECT_EQ(b.status, 0) << b.err;
    EXPECT_EQ(c.status, 0) << c.err;
    EXPECT_EQ(sha256_of(a.out).size(), 64u) << a.out;
    EXPECT_EQ(sha256_of(a.out), sha256_of(b.out));
    EXPECT_NE(a.out.find("done: 4 steps"), std::string::npos) << a.out; /* of 6 */
    EXPECT_EQ(a.out.find("privacy"), std::string::npos) << a.out;
    EXPECT_NE(b.out.find("privacy: epsilon 1.158 for delta 1e-5, after 2 rounds"),
              std::string::npos)
        << b.out;
    EXPECT_NE(c.out.find("round 1: 2 of 2 clients"), std::string::npos) << c.out;
    EXPECT_NE(c.out.find("north 128, south 128"), std::string::npos) << c.out;
    EXPECT_NE(c.err.find("refused: mallory"), std::string::npos) << c.err;
    const ProgramResult again =
        run_program({"coordinate", "--sync", "fedavg:2", "--clients", files.clients, "--rounds",
                     "2", "--port", "0", "--resume", state});
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_NE(again.out.find("continues after 2 rounds"), std::string::npos) << again.out;
}

/* A client of two tensor ranks, or of two ranks with shards, is to the coordinator what a client of
 * one rank is that adds in the same order: to the bit, and with the same messages. */
TEST(Coordinate, AClientOfSeveralRanksIsOneClient)
{
    const Files files;
    std::string hash[2], bytes[2];
    for (const bool meshes : {false, true}) {
        Listening coordinator({"coordinate", "--sync", "fedprox:2", "--clients", files.clients,
                               "--rounds", "2", "--port", "0"});
        std::vector<Background> clients;
        for (const auto &[name, data, text] :
             {std::tuple{"north", files.north, "a key"}, {"south", files.south, "another one"}}) {
            const Words one = client(data, name, coordinator.address) +
                              Words{"--sync",  "fedprox:2", "--micro-batches", "4",
                                    "--order", "tree",      "--tensor-parts",  "2"};
            const Words tp = {"--ranks", "2", "--mesh", "tp=2", "--provider", "loopback"};
            const Words dp = {"--ranks",    "2",        "--mesh", "dp=2",
                              "--provider", "loopback", "--zero", "2"};
            clients.push_back(start_command(Words{program_path()} + one +
                                                (!meshes        ? Words{}
                                                 : *name == 'n' ? tp
                                                                : dp),
                                            key(text)));
        }
        const ProgramResult a = finish_command(clients[0], 100),
                            b = finish_command(clients[1], 100),
                            c = finish_command(coordinator.program, 100);
        EXPECT_EQ(a.status, 0) << a.err;
        EXPECT_EQ(b.status, 0) << b.err;
        EXPECT_EQ(c.status, 0) << c.err;
        EXPECT_EQ(sha256_of(a.out), sha256_of(b.out));
        hash[meshes] = sha256_of(a.out);
        bytes[meshes] = c.out.substr(c.out.find("; "), c.out.find("so far") - c.out.find("; "));
    }
    EXPECT_EQ(hash[0], hash[1]);
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_NE(bytes[0].find("bytes sent"), std::string::npos);
}

TEST(Coordinate, ClientsThatKnowEachOthersIdentitiesAggregateSecurely)
{
    const Files files;
    std::string list;
    for (const char *name : {"north", "south"}) {
        ProgramOptions options;
        options.environment = {std::string("RF_IDENTITY_KEY=secret of ") + name};
        const ProgramResult r = run_program({"coordinate", "--identity"}, options);
        EXPECT_EQ(r.status, 0) << r.err;
        list += std::string(name) + " " + r.out;
    }
    const std::string peers = files.folder.file("peers", list);
    chmod(peers.c_str(), 0644);
    Listening coordinator({"coordinate", "--sync", "fedavg:2", "--clients", files.clients,
                           "--rounds", "2", "--port", "0", "--secure-aggregation", "2"});
    std::vector<Background> clients;
    for (const auto &[name, data, text] :
         {std::tuple{"north", files.north, "a key"}, {"south", files.south, "another one"}}) {
        ProgramOptions options = key(text);
        options.environment.push_back(std::string("RF_IDENTITY_KEY=secret of ") + name);
        clients.push_back(start_command(
            Words{program_path()} + client(data, name, coordinator.address) +
                Words{"--secure-aggregation", "2", "--peers", peers} +
                (*name == 'n' ? Words{}
                              : Words{"--ranks", "2", "--mesh", "tp=2", "--provider", "loopback"}),
            options));
    }
    const ProgramResult a = finish_command(clients[0], 100), b = finish_command(clients[1], 100),
                        c = finish_command(coordinator.program, 100);
    EXPECT_EQ(a.status, 0) << a.err;
    EXPECT_EQ(b.status, 0) << b.err;
    EXPECT_EQ(c.status, 0) << c.err;
    EXPECT_EQ(sha256_of(a.out), sha256_of(b.out));
    EXPECT_NE(c.out.find(", north, south, together 256;"), std::string::npos) << c.out;
}

TEST(Coordinate, WhatCannotBeIsRefusedBeforeAnythingStarts)
{
    const Files files;
    const auto refused = [](const Words &words, int status, const std::string &sentence,
                            const ProgramOptions &options = {}) {
        const ProgramResult r = run_program(words, options);
        EXPECT_EQ(r.status, status) << joined(words) << r.err;
        EXPECT_NE(r.err.find(sentence), std::string::npos) << joined(words) << r.err;
    };
    const Words sound = {"coordinate", "--sync", "fedavg:2", "--rounds", "2", "--port", "0"};
    const Words whole = sound + Words{"--clients", files.clients};
    refused(sound, 2, "--clients is needed");
    refused({"coordinate", "--clients", files.clients, "--rounds", "1"}, 2, "--sync is needed");
    refused({"coordinate", "--clients", files.clients, "--sync", "local:1"}, 2,
            "--rounds is needed");
    refused(whole + Words{"--min-clients", "3"}, 1, "at least 3 of 2 clients");
    refused(whole + Words{"--save-every", "3"}, 2, "--save");
    refused(whole + Words{"--secure-aggregation", "1"}, 2, "2 to 255");
    refused(whole + Words{"--secure-aggregation", "3"}, 1, "threshold 3 of 2 clients");
    refused(whole + Words{"--identity"}, 2, "omit --");
    refused({"coordinate", "--identity"}, 1, "RF_IDENTITY_KEY");
    refused({"coordinate", "--sync", "gossip:2", "--rounds", "2", "--clients", files.clients}, 1,
            "ring");
    refused(sound + Words{"--clients", files.folder.path + "/none"}, 1, "No such file");
    refused(sound + Words{"--clients", files.folder.path}, 1, "is not a file");
    const auto list = [&](const std::string &text, int mode = 0600) {
        const std::string path = files.folder.file("list", text);
        chmod(path.c_str(), static_cast<mode_t>(mode));
        return sound + Words{"--clients", path};
    };
    refused(list("north key\n", 0644), 1, "chmod 600");
    refused(list("north\n"), 1, "line 1");
    refused(list("north key\nsouth " + std::string(5000, 'k')), 1, "line 2");
    refused(list("north key\nsouth key\n"), 1, "have one key");
    refused(list("north key\nnorth key2\n"), 1, "twice");
    refused(list(std::string("north ke\0y\n", 11)), 1, "line 1 has a zero byte");
    refused(list(""), 1, "nothing listens without a key");
    Words train = client(files.north, "north", "127.0.0.1:1");
    refused(train + Words{"--ranks", "2"}, 2, "a client is one --mesh");
    refused(train + Words{"--elastic"}, 2, "is not for --elastic");
    refused(train + Words{"--steps", "7"}, 2, "multiple");
    refused(train + Words{"--coordinator", "nowhere"}, 2, "HOST:PORT");
    refused({"train", "--data", files.north, "--sync", "fedprox:2"}, 2, "proximal term");
    refused(train + Words{"--update-noise", "1"}, 2, "--update-clip");
    refused(train + Words{"--peers", files.clients}, 2, "--secure-aggregation");
    const Words secure = train + Words{"--secure-aggregation", "2", "--peers"};
    chmod(files.clients.c_str(), 0666);
    refused(secure + Words{files.clients}, 1, "chmod go-w");
    refused({"train", "--data", files.north, "--coordinator", "h:1", "--client", "x"}, 2, "--sync");
    refused({"train", "--data", files.north, "--sync", "fedavg:2", "--coordinator", "h:1"}, 2,
            "--client");
}
