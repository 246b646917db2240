// SPDX-License-Identifier: MIT
//
// Transports between processes: requirements on every provider (AnyTransport, a row for each), and
// on those of libfabric.
#include "job_helpers.h"

#include <glob.h>

#include <fstream>
#include <memory>

extern "C" {
#include "transport/ofi/fabric.h"
}

using namespace job;
using namespace transport;

// Within a rank's process, where gtest's assertions would be lost.
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d line %d: %s (%s)\n", rank, __LINE__, #condition,              \
                    rf_last_error()->message);                                                     \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

namespace
{

struct Rank {
    int rank, size;
    rf_control *c;
    rf_transport *t;
    char why[256];
    std::vector<rf_completion> stash;

    int open(const std::string &url, const char *provider, int me, int ranks)
    {
        rank = me;
        size = ranks;
        Member m = join(url, me, ranks);
        if (m.status < 0) {
            fprintf(stderr, "rank %d: %s\n", me, m.message.c_str());
            return m.status;
        }
        c = m.c;
        int rc = rf_transport_create(c, provider, &t, why, sizeof why);
        if (rc < 0)
            fprintf(stderr, "rank %d: %s\n", me, rf_last_error()->message);
        return rc;
    }
    void barrier() // a barrier outside the data path
    {
        char mine = 0;
        std::vector<char> all((size_t)size);
        c->ops->all_gather(c, &mine, 1, all.data(), 20);
    }
    void close()
    {
        barrier();
        t->ops->destroy(t);
        c->ops->leave(c, 5);
    }
    int send(int peer, uint64_t tag, const void *data, size_t bytes, Context *context,
             uint32_t contract)
    {
        return post_all(t, stash, [&] {
            return t->ops->post_send(t, peer, tag, contract, data, bytes, context);
        });
    }
    int recv(int peer, uint64_t tag, void *data, size_t bytes, Context *context)
    {
        return post_all(t, stash,
                        [&] { return t->ops->post_recv(t, peer, tag, data, bytes, context); });
    }
    int next(rf_completion *done, double seconds = 20)
    {
        if (stash.empty())
            return poll_one(t, done, seconds);
        *done = stash.front();
        stash.erase(stash.begin());
        return 1;
    }
};

using Body = std::function<int(Rank &)>;

void on_processes(int size, const char *provider, const Body &body)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(size, [&](int me) {
        Rank r;
        if (r.open(url, provider, me, size) < 0)
            return 2;
        return body(r);
    });
    for (int r = 0; r < size; r++)
        EXPECT_EQ(processes.wait(r), 0) << provider << " rank " << r;
}

class AnyTransport : public testing::TestWithParam<const char *>
{
};
// Tests for libfabric only.
class Fabric : public testing::TestWithParam<const char *>
{
};

// Every pair, itself included, every size; sends in the reverse order of the receives.
int exchange_everything(Rank &r)
{
    const size_t sizes[] = {0, 1, 7919, 65536, 8 << 20};
    const int count = 5, rank = r.rank;
    std::vector<std::vector<uint8_t>> in, out;
    std::vector<std::unique_ptr<Context>> contexts;
    int expected = 0;
    for (int peer = 0; peer < r.size; peer++)
        for (int k = 0; k < count; k++, expected++) {
            in.emplace_back(sizes[k], 0xee);
            contexts.push_back(std::make_unique<Context>());
            contexts.back()->id = (int)in.size() - 1;
            MUST(r.recv(peer, RF_TAG(0xfff, 0xfffffff, k), in.back().data(), sizes[k],
                        contexts.back().get()) == 0);
        }
    r.barrier(); // long messages wait for their receive on some providers
    for (int peer = r.size - 1; peer >= 0; peer--)
        for (int k = count - 1; k >= 0; k--, expected++) {
            out.push_back(payload((uint64_t)(rank * 100 + peer * 10 + k), sizes[k]));
            contexts.push_back(std::make_unique<Context>());
            MUST(r.send(peer, RF_TAG(0xfff, 0xfffffff, k), out.back().data(), sizes[k],
                        contexts.back().get(), 0xfffffff0u + (uint32_t)rank) == 0);
        }
    while (expected-- > 0) {
        rf_completion done;
        MUST(r.next(&done) == 1);
        MUST(done.status == 0);
        if (!done.is_recv)
            continue;
        int id = ((Context *)done.context)->id, peer = id / count, k = id % count;
        MUST(done.contract == 0xfffffff0u + (uint32_t)peer);
        MUST(done.bytes == sizes[k]);
        MUST(done.peer == peer || done.peer == -1);
        MUST(in[(size_t)id] == payload((uint64_t)(peer * 100 + rank * 10 + k), sizes[k]));
    }
    size_t bytes = 0;
    for (size_t k : sizes)
        bytes += k;
    MUST(r.t->sent_bytes == bytes * (size_t)(r.size - 1));
    MUST(r.t->sent_messages == (uint64_t)count * (uint64_t)(r.size - 1));
    r.close();
    return 0;
}

} // namespace

TEST_P(AnyTransport, EveryPairExchangesExactDataAndContractsInAnyOrderOfTags)
{
    on_processes(3, GetParam(), exchange_everything);
}

TEST_P(Fabric, TheSameWithMemoryRegisteredForEveryMessage)
{
    on_processes(2, GetParam(), [](Rank &r) {
        rf_fabric_register_always(r.t);
        return exchange_everything(r);
    });
}

TEST_P(Fabric, RegisteredMemoryIsUsedAndCanBeReleased)
{
    on_processes(2, GetParam(), [](Rank &r) {
        const int rank = r.rank;
        rf_fabric_register_always(r.t);
        std::vector<uint8_t> memory(1 << 20, 0);
        void *handle = nullptr;
        MUST(r.t->ops->register_memory(r.t, memory.data(), memory.size(), &handle) == 0);
        MUST(handle != nullptr);
        for (size_t i = 0; i < 1000; i++)
            memory[i] = pattern((uint64_t)rank, i);
        Context a, b;
        MUST(r.recv(1 - rank, 1, &memory[5000], 1000, &a) == 0);
        MUST(r.send(1 - rank, 1, &memory[0], 1000, &b, 0) == 0);
        rf_completion done;
        MUST(r.next(&done) == 1 && done.status == 0);
        MUST(r.next(&done) == 1 && done.status == 0);
        for (size_t i = 0; i < 1000; i++)
            MUST(memory[5000 + i] == pattern((uint64_t)(1 - rank), i));
        r.t->ops->deregister_memory(r.t, handle);
        r.close();
        return 0;
    });
}

TEST_P(AnyTransport, ALongerMessageThanExpectedIsAnErrorAndWritesNothingBeyond)
{
    on_processes(2, GetParam(), [](Rank &r) {
        const int rank = r.rank;
        Context context;
        rf_completion done;
        auto out = payload(1, 2000);
        std::vector<uint8_t> in(2000, 0xee);
        Context to_self[2];
        MUST(r.recv(rank, 4, in.data(), 100, &to_self[0]) == 0);
        MUST(r.send(rank, 4, out.data(), 101, &to_self[1], 9) == 0);
        for (int i = 0; i < 2; i++) {
            MUST(r.next(&done) == 1 && done.peer == rank);
            MUST(done.status == (done.is_recv ? RF_EMISMATCH : 0));
            MUST(!done.is_recv || rf_last_error()->rank == rank);
        }
        if (rank == 1)
            MUST(r.recv(0, 5, in.data(), 100, &context) == 0);
        r.barrier();
        if (rank == 0) {
            MUST(r.send(1, 5, out.data(), 2000, &context, 9) == 0);
            MUST(r.next(&done) == 1);
        } else {
            MUST(r.next(&done) == 1);
            MUST(done.is_recv && done.context == &context);
            MUST(done.status == RF_EMISMATCH);
            for (size_t i = 100; i < 2000; i++)
                MUST(in[i] == 0xee);
        }
        r.close();
        return 0;
    });
}

TEST_P(AnyTransport, ManyPostsAreAskedToTryAgainAtMostAndNoneIsLost)
{
    on_processes(2, GetParam(), [](Rank &r) {
        const int rank = r.rank, total = 6000;
        std::vector<Context> contexts(2 * total);
        std::vector<int> in(total, -1), out(total);
        for (int i = 0; i < total; i++) {
            out[(size_t)i] = rank * total + i;
            MUST(r.send(1 - rank, (uint64_t)i, &out[(size_t)i], 4, &contexts[(size_t)i], 1) == 0);
            int k = i / 100 * 100 + i * 7 % 100; // out of order, but within the depth of queues
            MUST(r.recv(1 - rank, (uint64_t)k, &in[(size_t)k], 4, &contexts[(size_t)(total + i)]) ==
                 0);
        }
        for (int left = 2 * total; left > 0; left--) {
            rf_completion done;
            MUST(r.next(&done) == 1 && done.status == 0);
        }
        for (int i = 0; i < total; i++)
            MUST(in[(size_t)i] == (1 - rank) * total + i);
        r.close();
        return 0;
    });
}

TEST_P(AnyTransport, NothingIsTouchedAfterCancel)
{
    on_processes(2, GetParam(), [](Rank &r) {
        const int rank = r.rank;
        auto context = std::make_unique<Context>(), self = std::make_unique<Context>();
        std::vector<uint8_t> in(1 << 20, 0xee), own(16, 0xee);
        auto out = payload(3, 1 << 20);
        rf_completion done;
        if (rank == 0) {
            MUST(r.recv(1, 1, in.data(), in.size(), context.get()) == 0);
            MUST(r.recv(0, 2, own.data(), own.size(), self.get()) == 0);
            r.t->ops->cancel_all(r.t);
            memset(context->provider, 0xaa, sizeof context->provider);
            MUST(r.t->ops->poll(r.t, &done, 1) == RF_EABORT);
            MUST(r.t->ops->post_send(r.t, 1, 1, 0, out.data(), 1, self.get()) == RF_EABORT);
        }
        r.barrier();
        if (rank == 1) { // the other end is closed; with any result, it ends
            uint64_t end = rf_now_ns() + 100000000;
            while (rf_now_ns() < end &&
                   r.t->ops->post_send(r.t, 0, 1, 0, out.data(), out.size(), context.get()) != 0)
                r.t->ops->poll(r.t, &done, 1);
            while (rf_now_ns() < end)
                r.t->ops->poll(r.t, &done, 1);
            r.t->ops->cancel_all(r.t);
        }
        r.barrier();
        for (uint8_t byte : in)
            MUST(byte == 0xee);
        for (char byte : context->provider)
            MUST(rank == 1 || (uint8_t)byte == 0xaa);
        r.close();
        return 0;
    });
}

// The data port belongs to the provider and asks for no key; a trusted network is assumed. The only
// promise is that noise does not end the job.
TEST_P(Fabric, NoiseAtTheDataPortDoesNotEndTheJob)
{
    if (!strcmp(GetParam(), "ofi-shm"))
        GTEST_SKIP() << "shared memory has no port";
    on_processes(2, GetParam(), [](Rank &r) {
        const int rank = r.rank;
        sockaddr_in own{};
        size_t length = sizeof own;
        MUST(fi_getname(&((rf_fabric *)r.t)->ep->fid, &own, &length) == 0);
        int ports[2], mine = ntohs(own.sin_port);
        MUST(r.c->ops->all_gather(r.c, &mine, sizeof mine, ports, 60) == 0);
        rf_completion done;
        for (int i = 0; i < 40; i++) {
            int fd = connect_to(ports[1 - rank]);
            auto noise = payload((uint64_t)(rank * 1000 + i), (size_t)(i * 37 % 400));
            if (fd >= 0) {
                (void)!::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
                ::close(fd);
            }
            int found = r.t->ops->poll(r.t, &done, 1);
            MUST(found == 0);
        }
        r.barrier();
        for (int i = 0; i < 1000; i++)
            MUST(r.t->ops->poll(r.t, &done, 1) == 0);
        Context a, b;
        int in = -1;
        MUST(r.recv(1 - rank, 1, &in, 4, &a) == 0);
        MUST(r.send(1 - rank, 1, &rank, 4, &b, 0) == 0);
        MUST(r.next(&done) == 1 && done.status == 0);
        MUST(r.next(&done) == 1 && done.status == 0);
        MUST(in == 1 - rank);
        r.close();
        return 0;
    });
}

TEST_P(AnyTransport, AfterAPeersDeathEverythingPendingCanBeCancelledAtOnce)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    int posted[2];
    ASSERT_EQ(pipe(posted), 0);
    processes.start(2, [&](int rank) {
        Rank r;
        MUST(r.open(url, GetParam(), rank, 2) == 0);
        Context contexts[4];
        rf_completion done;
        std::vector<uint8_t> in(1 << 20), out(8 << 20);
        int word = 0;
        // One exchange, so that they are connected.
        MUST(r.recv(1 - rank, 1, &word, 4, &contexts[0]) == 0);
        MUST(r.send(1 - rank, 1, &rank, 4, &contexts[1], 0) == 0);
        MUST(r.next(&done) == 1 && r.next(&done) == 1);
        if (rank == 1) {
            for (;;)
                pause();
        }
        MUST(r.recv(1, 2, in.data(), in.size(), &contexts[2]) == 0);
        MUST(r.send(1, 2, out.data(), out.size(), &contexts[3], 0) == 0);
        MUST(write(posted[1], "x", 1) == 1);
        rf_event event;
        MUST(wait_event(r.c, RF_EVENT_DEAD, &event) && event.rank == 1);
        for (int i = 0; i < 1000; i++)
            if (r.t->ops->poll(r.t, &done, 1) == 1)
                MUST(done.status == RF_EPEER || done.status == RF_ENET || !done.is_recv);
        uint64_t start = rf_now_ns();
        r.t->ops->cancel_all(r.t);
        r.t->ops->destroy(r.t);
        r.c->ops->leave(r.c, 5);
        MUST(rf_now_ns() - start < 1000000000u);
        return 0;
    });
    char byte;
    ASSERT_EQ(read(posted[0], &byte, 1), 1);
    close(posted[0]);
    close(posted[1]);
    kill(processes.pids[1], SIGKILL);
    EXPECT_EQ(processes.wait(1), -SIGKILL);
    EXPECT_EQ(processes.wait(0), 0);
    // libfabric's shm leaves the segment of a killed process behind.
    unlink(("/dev/shm/" + std::to_string(processes.pids[1]) + ":0:0").c_str());
}

static std::string provider_name(const testing::TestParamInfo<const char *> &info)
{
    std::string name = info.param;
    for (char &c : name)
        c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return name;
}
INSTANTIATE_TEST_SUITE_P(Providers, AnyTransport,
                         testing::Values("shm", "tcp", "ofi-tcp", "tcp;ofi_rxm", "ofi-shm"),
                         provider_name);
INSTANTIATE_TEST_SUITE_P(Providers, Fabric, testing::Values("ofi-tcp", "tcp;ofi_rxm", "ofi-shm"),
                         provider_name);

namespace
{

// The files of a process in libfabric's shm.
std::vector<std::string> files_of(pid_t pid)
{
    glob_t found;
    std::vector<std::string> paths;
    if (glob(("/dev/shm/" + std::to_string(pid) + ":*").c_str(), 0, nullptr, &found) == 0) {
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
        globfree(&found);
    }
    return paths;
}

// The id of a process that has ended.
pid_t ended_process()
{
    Processes processes;
    processes.start(1, [](int) { return 0; });
    processes.wait(0);
    return processes.pids[0];
}

} // namespace

TEST(ShmLeftovers, OfAKilledProcessAreRemovedByTheNextAndThoseOfOthersStay)
{
    // Two ranks that stay until they are killed.
    std::string url = tcp_url(free_port());
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    Processes job;
    job.start(2, [&](int me) {
        Rank r;
        if (r.open(url, "ofi-shm", me, 2) < 0 || write(ready[1], "x", 1) != 1)
            return 2;
        for (;;)
            pause();
    });
    char byte;
    for (int i = 0; i < 2; i++)
        ASSERT_EQ(read(ready[0], &byte, 1), 1);
    // Files of another program: not marked, and of no process.
    std::string foreign =
        "/dev/shm/" + std::to_string(ended_process()) + ":" + std::to_string(geteuid()) + ":0";
    std::ofstream(foreign) << std::string(8192, 'x');
    ASSERT_EQ(files_of(job.pids[0]).size(), 1u);
    ASSERT_EQ(files_of(job.pids[1]).size(), 1u);
    kill(job.pids[0], SIGKILL);
    EXPECT_EQ(job.wait(0), -SIGKILL);
    EXPECT_EQ(files_of(job.pids[0]).size(), 1u) << "nobody is left to remove it";

    on_processes(2, "ofi-shm", [](Rank &r) {
        r.close();
        return 0;
    });
    EXPECT_EQ(files_of(job.pids[0]).size(), 0u) << "of a killed process";
    EXPECT_EQ(files_of(job.pids[1]).size(), 1u) << "of a process that runs";
    EXPECT_EQ(access(foreign.c_str(), F_OK), 0) << "of another program";
    unlink(foreign.c_str());

    // A process id is meaningless in another container; its lock is not.
    std::string moved = "/dev/shm/" + std::to_string(ended_process()) + ":0:0";
    ASSERT_EQ(rename(files_of(job.pids[1])[0].c_str(), moved.c_str()), 0);
    rf_leftovers_clear();
    EXPECT_EQ(access(moved.c_str(), F_OK), 0) << "whose lock is held";
    kill(job.pids[1], SIGKILL);
    EXPECT_EQ(job.wait(1), -SIGKILL);
    rf_leftovers_clear();
    EXPECT_NE(access(moved.c_str(), F_OK), 0) << "whose lock is not held any more";
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(FabricChoice, BothNamesOfItsTcpMeanTheNativeProviderOfThisVersionAndSayWhy)
{
    for (const char *wanted : {"ofi-tcp", "net"}) {
        fi_info *info = nullptr;
        char why[256] = "";
        rf_choice choice;
        rf_provider_resolve(wanted, &choice);
        rf_provider_need_network(&choice);
        rf_opening opening = {};
        opening.provider = choice.network;
        opening.name = choice.network->name;
        opening.fabric = choice.fabric;
        opening.why = why;
        opening.why_bytes = sizeof why;
        ASSERT_EQ(rf_fabric_select(&opening, "127.0.0.1", &info), 0) << rf_last_error()->message;
        EXPECT_STREQ(opening.name, "ofi-tcp");
        EXPECT_STREQ(opening.fabric, info->fabric_attr->prov_name);
        std::string name = info->fabric_attr->prov_name;
        EXPECT_TRUE(name == "net" || name == "tcp") << name;
        EXPECT_NE(strstr(why, "native TCP"), nullptr) << why;
        rf_ofi()->freeinfo(info);
    }
}

TEST(FabricChoice, TheDefaultNetworkIsTcpAndNoneOfLibfabrics)
{
    for (const char *wanted : {(const char *)nullptr, "", "auto", "tcp", "shm+tcp"}) {
        rf_choice choice;
        rf_provider_resolve(wanted, &choice);
        rf_provider_need_network(&choice);
        EXPECT_STREQ(choice.network->name, "tcp");
        EXPECT_STREQ(choice.fabric, "");
    }
}

TEST(FabricChoice, AnUnknownProviderIsAnErrorThatListsTheOthers)
{
    rf_provider_info infos[16];
    uint32_t count = 0;
    rf_control *alone = nullptr;
    rf_transport *t = nullptr;
    char why[256];
    ASSERT_EQ(rf_self_control(&alone), 0);
    for (const char *wanted : {"carrier-pigeon", "host", "host+net", "shm+carrier-pigeon",
                               "shm+shm", "shm+ofi-shm", "net+shm", "shm+", "+net", "tcp;"}) {
        for (int rc :
             {rf_provider_find(wanted, nullptr), rf_provider_list(wanted, infos, 16, &count),
              rf_transport_create(alone, wanted, &t, why, sizeof why)}) {
            const std::string message = rf_last_error()->message;
            EXPECT_EQ(rc, RF_EINVAL) << wanted;
            EXPECT_NE(message.find(wanted), message.npos) << message;
            for (const char *there_is : {"auto, shm, shm+", "ofi-shm", "loopback"})
                EXPECT_NE(message.find(there_is), message.npos) << message;
        }
    }
    alone->ops->leave(alone, 1);
}

TEST(FabricChoice, ListsProvidersBestFirstAndMarksTheChosen)
{
    rf_provider_info infos[16];
    uint32_t count = 0;
    ASSERT_EQ(rf_provider_list("ofi-shm", infos, 16, &count), 0);
    ASSERT_GE(count, 3u);
    EXPECT_STREQ(infos[0].name, "shm");
    EXPECT_STREQ(infos[1].name, "shm+tcp");
    EXPECT_STREQ(infos[2].name, "tcp");
    int chosen = 0;
    for (uint32_t i = 0; i < count; i++) {
        EXPECT_EQ(infos[i].chosen, !strcmp(infos[i].name, "ofi-shm"));
        EXPECT_EQ(infos[i].shares_memory, i == 0);
        EXPECT_EQ(infos[i].threads, !strcmp(infos[i].name, "loopback"));
        EXPECT_NE(infos[i].note[0], 0);
        chosen += infos[i].chosen;
    }
    EXPECT_EQ(chosen, 1);
    uint32_t few = 0;
    ASSERT_EQ(rf_provider_list(nullptr, infos, 1, &few), 0);
    EXPECT_EQ(few, 1u);
    EXPECT_TRUE(infos[0].chosen);
    ASSERT_EQ(rf_provider_list("shm+tcp", infos, 16, &count), 0);
    EXPECT_TRUE(infos[1].chosen);
    ASSERT_EQ(rf_provider_list("shm+tcp;ofi_rxm", infos, 16, &count), 0);
    EXPECT_STREQ(infos[count - 1].name, "shm+tcp;ofi_rxm");
    EXPECT_TRUE(infos[count - 1].chosen);
    for (const char *wanted : {"shm", "ofi-shm", "loopback", "tcp;ofi_rxm", "shm+tcp;ofi_rxm"}) {
        ASSERT_EQ(rf_provider_find(wanted, &infos[0]), 0) << rf_last_error()->message;
        EXPECT_STREQ(infos[0].name, wanted);
    }
}

TEST(FabricChoice, RanksWithDifferentProvidersAreBothNamed)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(2, [&](int me) {
        Member m = join(url, me, 2);
        rf_transport *t;
        char why[256];
        int rc = rf_transport_create(m.c, me ? "ofi-shm" : "tcp", &t, why, sizeof why);
        std::string text = rf_last_error()->message;
        m.c->ops->leave(m.c, 5);
        bool named = text.find("ofi-shm") != text.npos && text.find("rank 0") != text.npos &&
                     text.find("rank 1") != text.npos;
        if (rc != RF_EINVAL || !named)
            fprintf(stderr, "rank %d: %d %s\n", me, rc, text.c_str());
        return rc == RF_EINVAL && named ? 0 : 1;
    });
    EXPECT_EQ(processes.wait(0), 0);
    EXPECT_EQ(processes.wait(1), 0);
}

TEST(FabricChoice, ARankThatCannotOpenTellsTheOthersWhy)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(2, [&](int me) {
        Member m = join(url, me, 2);
        rf_transport *t;
        char why[256];
        int rc = rf_transport_create(m.c, me ? "nonesuch" : nullptr, &t, why, sizeof why);
        std::string text = rf_last_error()->message;
        m.c->ops->leave(m.c, 5);
        return rc == RF_EINVAL && text.find("no provider nonesuch") != text.npos ? 0 : 1;
    });
    EXPECT_EQ(processes.wait(0), 0);
    EXPECT_EQ(processes.wait(1), 0);
}
