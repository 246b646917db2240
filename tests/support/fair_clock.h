/* SPDX-License-Identifier: MIT
 *
 * Time that this process has been given a core for, for tests of what is promised in seconds: on a
 * busy machine more time passes, and nobody has broken a promise.
 */
#ifndef RF_TESTS_FAIR_CLOCK_H
#define RF_TESTS_FAIR_CLOCK_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

/* A thread that sleeps for a millisecond at a time; where it is woken more than 5 ms later, 5 ms
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
