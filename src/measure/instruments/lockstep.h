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

  // Waits until all threads are here; what they did before is then seen by all. Returns whether
  // this is the last meeting, the same to all. It has no bound of its own: requires that all
  // threads run to it (run_together), until it has returned true.
  bool meet() {
    const std::uint64_t round = round_.load();
    if (here_.fetch_add(1) + 1 == threads_) {
      here_.store(0);
      // Not stop_ itself: a thread may ask for an end in the next round before all have left this.
      last_.store(stop_.load());
      round_.store(round + 1);
      return last_.load();
    }
    for (unsigned spins = 0; round_.load() == round; ++spins) {
      if (spins >= kSpins) sched_yield();
    }
    return last_.load();
  }

  // The meeting that the caller comes to next is the last.
  void stop() { stop_.store(true); }

 private:
  static constexpr unsigned kSpins = 10'000;  // some ten microseconds

  const std::size_t threads_;
  std::atomic<std::size_t> here_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> last_{false};
};

}  // namespace headrace::instruments
