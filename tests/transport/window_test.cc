// SPDX-License-Identifier: MIT
//
// Windows over libfabric's providers: exact sums, what is refused, and what becomes of the others
// when a rank dies.
#include "job_helpers.h"

#include <cstring>

extern "C" {
#include "transport/ofi/window.h"
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

using Body = std::function<int(rf_window *w, int rank)>;

// Each rank has 64 KiB, and 8 bytes more for each rank before it.
uint64_t bytes_of(int rank)
{
    return 65536 + 8 * (uint64_t)rank;
}

void on_windows(int size, const char *provider, const Body &body, int dies = -1)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(size, [&](int rank) {
        Member m = join(url, rank, size);
        rf_window *w = nullptr;
        MUST(m.status == 0);
        MUST(rf_window_open(m.c, provider, 20, &w) == 0);
        MUST(rf_window_expose(w, bytes_of(rank)) == 0);
        const int code = body(w, rank);
        rf_window_close(w);
        m.c->ops->leave(m.c, 5);
        return code;
    });
    for (int r = 0; r < size; r++)
        EXPECT_EQ(processes.wait(r), r == dies ? -SIGKILL : 0) << provider << " rank " << r;
}

class Window : public testing::TestWithParam<const char *>
{
};

// 5,000 values are more than one operation of any of these providers has.
int add_exactly(rf_window *w, int rank)
{
    const int size = 3, rounds = 40, count = 5000;
    std::vector<float> ones(count), sums(count);
    for (int i = 0; i < count; i++)
        ones[i] = (float)(i % 7 - 3);
    for (int k = 0; k < rounds; k++)
        for (int r = 0; r < size; r++)
            MUST(rf_window_start(w, RF_WINDOW_ADD_F32, r, 64, ones.data(), count) == 0);
    MUST(rf_window_flush(w) == 0);
    MUST(rf_window_barrier(w) == 0);
    for (int r = 0; r < size; r++) {
        MUST(rf_window_start(w, RF_WINDOW_LOAD_F32, r, 64, sums.data(), count) == 0);
        MUST(rf_window_flush(w) == 0);
        for (int i = 0; i < count; i++)
            MUST(sums[i] == (float)(size * rounds) * ones[i]);
    }
    rf_window_read(w, 64, sums.data(), 4 * count);
    MUST(sums[0] == (float)(size * rounds) * ones[0]);
    return 0;
}

// Every rank writes the last byte, or word, of every other one, and a place of its own.
int put_and_get(rf_window *w, int rank)
{
    const int size = 3;
    const size_t some = 20001;
    auto mine = payload((uint64_t)rank, some);
    std::vector<uint8_t> back(some);
    uint64_t word = 0, words[3];
    for (int r = 0; r < size; r++)
        MUST(rf_window_start(w, RF_WINDOW_PUT, r, some * (size_t)rank, mine.data(), some) == 0);
    MUST(rf_window_flush(w) == 0);
    MUST(rf_window_barrier(w) == 0);
    for (int r = 0; r < size; r++)
        for (int from = 0; from < size; from++) {
            MUST(rf_window_start(w, RF_WINDOW_GET, r, some * (size_t)from, back.data(), some) == 0);
            MUST(rf_window_flush(w) == 0);
            MUST(back == payload((uint64_t)from, some));
        }
    for (int r = 0; r < size && rf_window_has(w, RF_WINDOW_STORE_U64); r++) {
        words[r] = 0x0123456789abcdefu + (uint64_t)r;
        MUST(rf_window_start(w, RF_WINDOW_STORE_U64, r, bytes_of(r) - 8, &words[r], 1) == 0);
        MUST(rf_window_flush(w) == 0);
        MUST(rf_window_start(w, RF_WINDOW_LOAD_U64, r, bytes_of(r) - 8, &word, 1) == 0);
        MUST(rf_window_flush(w) == 0);
        MUST(word == words[r]);
    }
    MUST(rf_window_barrier(w) == 0);
    return 0;
}

int refuse(rf_window *w, int rank)
{
    float values[4] = {1, 2, 3, 4};
    const rf_window_op add =
        rf_window_has(w, RF_WINDOW_ADD_F32) ? RF_WINDOW_ADD_F32 : RF_WINDOW_PUT;
    const size_t each = add == RF_WINDOW_PUT ? 1 : 4;
    MUST(rf_window_start(w, add, 1, bytes_of(1) - 3 * each, values, 4) == RF_EINVAL);
    MUST(contains(rf_last_error()->message, "not in the memory of rank 1"));
    MUST(rf_window_start(w, add, 1, bytes_of(1) + each, values, 0) == RF_EINVAL);
    MUST(rf_window_start(w, add, 1, UINT64_MAX - 3, values, 1) == RF_EINVAL);
    MUST(rf_window_start(w, add, 0, 0, values, SIZE_MAX / 2) == RF_EINVAL);
    MUST(rf_window_start(w, add, 3, 0, values, 1) == RF_EINVAL);
    MUST(rf_window_start(w, add, -1, 0, values, 1) == RF_EINVAL);
    if (add != RF_WINDOW_PUT)
        MUST(rf_window_start(w, add, 1, 2, values, 1) == RF_EINVAL);
    else
        MUST(rf_window_start(w, RF_WINDOW_ADD_F32, 1, 0, values, 1) == RF_ENOTSUP);
    MUST(rf_window_start(w, add, 1, 0, values, 0) == 0);
    MUST(rf_window_flush(w) == 0);
    return 0;
}

// The others are told who has died, in the middle of whatever they do, and all later calls fail.
int lose(rf_window *w, int rank)
{
    std::vector<float> values(4000, 1);
    const bool adds = rf_window_has(w, RF_WINDOW_ADD_F32);
    int status = 0;
    for (int k = 0; status == 0; k++) {
        if (rank == 2 && k == 20)
            raise(SIGKILL);
        for (int r = 0; r < 3 && status == 0; r++)
            status = rf_window_start(w, adds ? RF_WINDOW_ADD_F32 : RF_WINDOW_PUT, r, 0,
                                     values.data(), adds ? 4000 : 16000);
        if (status == 0)
            status = rf_window_flush(w);
    }
    /* Or the other one has noticed it first, and says so. */
    MUST(status == RF_EPEER || status == RF_EABORT);
    MUST(status == RF_EABORT || rf_last_error()->rank == 2);
    MUST(contains(rf_last_error()->message, "rank 2"));
    MUST(rf_window_flush(w) == RF_EABORT);
    MUST(contains(rf_last_error()->message, "rank 2"));
    return 0;
}

} // namespace

// The native TCP has no atomic operations.
TEST_P(Window, NothingIsLostAndWhatIsOutsideIsRefused)
{
    on_windows(3, GetParam(), [](rf_window *w, int rank) {
        MUST(rf_window_has(w, RF_WINDOW_ADD_F32) == (strcmp(GetParam(), "ofi-tcp") != 0));
        MUST(!rf_window_has(w, RF_WINDOW_ADD_F32) || add_exactly(w, rank) == 0);
        MUST(rf_window_barrier(w) == 0);
        rf_fabric_register_always(&w->fabric->transport); // as InfiniBand requires
        MUST(put_and_get(w, rank) == 0);
        return refuse(w, rank);
    });
}

TEST_P(Window, ARankThatDiesIsNamed)
{
    on_windows(3, GetParam(), lose, 2);
}

INSTANTIATE_TEST_SUITE_P(Providers, Window, testing::Values("ofi-tcp", "tcp;ofi_rxm", "sockets"),
                         [](const testing::TestParamInfo<const char *> &info) {
                             std::string name = info.param;
                             for (char &c : name)
                                 c = isalnum((unsigned char)c) ? c : '_';
                             return name;
                         });

TEST(Windows, AWrongKeyIsRefusedByTheProvider)
{
    for (const char *provider : {"ofi-tcp", "tcp;ofi_rxm", "sockets"})
        on_windows(2, provider, [](rf_window *w, int rank) {
            float value = 1;
            if (rank == 0) {
                w->peers[1].key ^= 1;
                int status = rf_window_start(w, RF_WINDOW_PUT, 1, 0, &value, 4);
                if (status == 0)
                    status = rf_window_flush(w);
                MUST(status < 0);
                MUST(rf_last_error()->rank == 1);
            }
            return 0;
        });
}

TEST(Windows, ProvidersWithoutOneSidedOperationsAreRefusedByName)
{
    rf_control *alone = nullptr;
    rf_window *w = nullptr;
    ASSERT_EQ(rf_self_control(&alone), 0);
    for (const char *provider : {"tcp", "shm", "shm+tcp", "ofi-shm", "udp;ofi_rxd", "loopback"}) {
        EXPECT_EQ(rf_window_open(alone, provider, 1, &w), RF_ENOTSUP);
        EXPECT_NE(strstr(rf_last_error()->message, provider), nullptr) << rf_last_error()->message;
    }
    alone->ops->leave(alone, 1);
}
