/* SPDX-License-Identifier: MIT
 *
 * The time during which this process had a core, for tests of guarantees in seconds: on a busy
 * machine more time passes without a fault of the library.
 */
#ifndef RF_TESTS_FAIR_CLOCK_H
#define RF_TESTS_FAIR_CLOCK_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

/* A thread that sleeps one millisecond at a time. If it is woken more than 5 ms late, only 5 ms
 * count. A process that forks must not have one. */
class FairClock
{
  public:
    FairClock()
        : thread_([this] {
              using namespace std::chrono;
              for (auto last = steady_clock::now(); !over_;) {
                  std::this_thread::sleep_for(milliseconds(1));
                  const auto now = steady_clock::now();
                  ns_ += std::min<int64_t>(nanoseconds(now - last).count(), 5000000);
                  last = now;
              }
          })
    {
    }
    ~FairClock()
    {
        over_ = true;
        thread_.join();
    }
    FairClock(const FairClock &) = delete;
    FairClock &operator=(const FairClock &) = delete;
    double seconds() const
    {
        return (double)ns_ * 1e-9;
    }

  private:
    std::atomic<int64_t> ns_{0};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

#endif
