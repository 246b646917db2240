/* SPDX-License-Identifier: MIT
 *
 * Runs a part of a test as several ranks: threads of this process over loopback, or forked
 * processes over a real provider. A watchdog ends ranks that hang. In a forked process a failed
 * expectation is printed, and fails the parent.
 */
#ifndef RF_TESTS_SUPPORT_RANKS_H
#define RF_TESTS_SUPPORT_RANKS_H

#include <ringforge/comm.h>

#include <functional>
#include <string>
#include <vector>

namespace ranks
{

struct World {
    std::string provider = "loopback"; /* or one that needs processes */
    std::string hosts;                 /* value of RF_HOSTS; processes only */
    std::string reads;                 /* value of RF_PEER_READS; processes only */
    std::string writes;                /* value of RF_SLOT_WRITES; processes only */
    int size = 2;
    double timeout_s = 20;
    rf_loopback_opts faults = {};
    bool checksum = false;
    bool cold = false;        /* processes: each loads libfabric itself, as a user's process does */
    int expect_killed = -1;   /* processes: a signal may kill this rank */
    int by_signal = 0;        /* if not 0: this signal must kill it */
    std::vector<int> may_die; /* and may also kill these ranks */
    int watchdog_s = 60;
    std::function<void(int rank)> before; /* processes: called on each rank before it joins */
};

using Body = std::function<void(rf_comm *comm, int rank)>;
/* The status of rf_comm_close; rf_last_error() is its error. */
using Closed = std::function<void(int rank, int status)>;

/* The factor by which ranks may take longer than usual, from RF_TEST_PATIENCE: some drivers compile
 * slowly. */
int patience();

/* Opens a communicator on every rank, runs body, closes. */
void run(const World &world, const Body &body, const Closed &closed = nullptr);

/* "net x3": for the names of parameterized tests. */
std::string name(const World &world);

/* Loopback with each of thread_sizes; processes with each of process_sizes, for every provider; and
 * processes on several hosts, in each of these layouts. The last of process_sizes also with ranks
 * that read each other's memory. */
std::vector<World> worlds(const std::vector<int> &thread_sizes,
                          const std::vector<int> &process_sizes,
                          const std::vector<const char *> &layouts = {});

/* Zeroed memory that forked ranks share with the parent. */
class Shared
{
  public:
    explicit Shared(size_t bytes);
    ~Shared();
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
    template <typename T> T *as() const
    {
        return static_cast<T *>(memory_);
    }

  private:
    void *memory_;
    size_t bytes_;
};

} // namespace ranks

#endif
