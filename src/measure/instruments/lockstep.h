// Threads that wait for each other again and again within microseconds: they spin, each on a CPU of
// its own, and give it up where somebody else needs it. Thread-safe.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headrace::instruments {

class Lockstep {
 public:
  explicit Lockstep(std::size_t threads) : threads_(threads) {}

  // Waits until all threads are here, and what they did before is seen by all. It has no bound of
  // its own: requires that all threads run to it (run_together), and as often.
  void meet() {
    const std::uint64_t round = round_.load();
    if (here_.fetch_add(1) + 1 == threads_) {
      here_.store(0);
      round_.store(round + 1);
      return;
    }
    for (unsigned spins = 0; round_.load() == round; ++spins) {
      if (spins >= kSpins) sched_yield();
    }
  }

  // Called by one thread before a meeting, seen by all after it.
  void stop() { stopped_.store(true); }
  bool stopped() const { return stopped_.load(); }

 private:
  static constexpr unsigned kSpins = 10'000;  // some ten microseconds

  const std::size_t threads_;
  std::atomic<std::size_t> here_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace headrace::instruments
