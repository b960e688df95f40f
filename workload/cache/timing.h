// SPDX-License-Identifier: Apache-2.0
// Runs threads that do the same work for some time, and measures their times.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace headrace::cache_bench {

// How long threads work: seconds, or a number of operations each, to count instructions.
struct Duration {
  double seconds = 0.1;
  std::uint64_t operations = 0;  // per thread; 0: as many as `seconds` allow
};

// Shows one thread whether it has done enough. Ask every few hundred operations.
class Until {
 public:
  Until(const std::atomic<bool>& over, std::uint64_t operations)
      : over_(over), operations_(operations) {}
  bool enough(std::uint64_t done) const {
    if (operations_ != 0) return done >= operations_;
    // pairs with nothing: the thread is joined before its results are read.
    return over_.load(std::memory_order_relaxed);
  }

 private:
  const std::atomic<bool>& over_;
  const std::uint64_t operations_;
};

// The work of one thread.
struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t wrong = 0;    // operations that read a wrong word, or could not read
  std::uint64_t refused = 0;  // operations that had to read past the cache
};

struct Timing {
  Tally tally;                 // of all threads
  double seconds = 0;          // from the first thread's begin to the last one's end
  double thread_seconds = 0;   // sum of all threads' times
  double cpu_seconds = 0;      // sum of all threads' CPU times
  double process_seconds = 0;  // CPU time, including the store's own threads
};

// Runs `work(thread, until)` in `threads` threads at once.
Timing run_threads(unsigned threads, const Duration& duration,
                   const std::function<Tally(unsigned, const Until&)>& work);

// CPU time of the whole process so far.
double process_cpu_seconds();
// Bytes of the process in memory now.
std::uint64_t resident_bytes();

}  // namespace headrace::cache_bench
