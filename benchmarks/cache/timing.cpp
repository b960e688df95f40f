// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/timing.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/text/files.h"

namespace headrace::cache_bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Worked {
  Tally tally;
  Clock::time_point begin;
  Clock::time_point end;
  double cpu_seconds = 0;
};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double thread_cpu_seconds() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Timing sum(const std::vector<Worked>& all) {
  Timing timing;
  Clock::time_point begin = all.front().begin;
  Clock::time_point end = all.front().end;
  for (const Worked& each : all) {
    timing.tally.operations += each.tally.operations;
    timing.tally.wrong += each.tally.wrong;
    timing.tally.refused += each.tally.refused;
    timing.thread_seconds += seconds(each.end - each.begin);
    timing.cpu_seconds += each.cpu_seconds;
    begin = std::min(begin, each.begin);
    end = std::max(end, each.end);
  }
  timing.seconds = seconds(end - begin);
  return timing;
}

}  // namespace

Timing run_threads(unsigned threads, const Duration& duration,
                   const std::function<Tally(unsigned, const Until&)>& work) {
  std::atomic<bool> over = false;
  std::barrier<> start(threads + 1);
  std::vector<Worked> all(threads);
  std::vector<std::thread> running;
  running.reserve(threads);
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      Worked& mine = all[thread];
      start.arrive_and_wait();
      const double cpu = thread_cpu_seconds();
      mine.begin = Clock::now();
      mine.tally = work(thread, Until(over, duration.operations));
      mine.end = Clock::now();
      mine.cpu_seconds = thread_cpu_seconds() - cpu;
    });
  }
  start.arrive_and_wait();
  const double cpu = process_cpu_seconds();
  if (duration.operations == 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(duration.seconds));
  }
  over = true;
  for (std::thread& each : running) each.join();
  Timing timing = sum(all);
  timing.process_seconds = process_cpu_seconds() - cpu;
  return timing;
}

double process_cpu_seconds() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

std::uint64_t resident_bytes() {
  unsigned long long total = 0;
  unsigned long long resident = 0;
  if (std::sscanf(first_line("/proc/self/statm").c_str(), "%llu %llu", &total, &resident) != 2) {
    return 0;
  }
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace headrace::cache_bench
