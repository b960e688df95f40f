#include "measure/team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>

#include "core/fail.h"

namespace headrace {

CpuSet usable_cpus(const Node* node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  CpuSet cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (node == nullptr || std::ranges::binary_search(node->cpus, cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

Bytes cache_to_pass(const Machine& machine, unsigned cpu) {
  return last_level_cache(machine, cpu).value_or(32_MiB);
}

Status run_pinned(const CpuSet& cpus, const std::function<void(std::size_t)>& part) {
  std::latch decided(1);
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  bool complete = true;
  try {
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      threads.emplace_back([&, i] {
        decided.wait();
        if (go.load()) part(i);
      });
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpus[i], &set);
      pthread_setaffinity_np(threads.back().native_handle(), sizeof(set), &set);
    }
  } catch (const std::system_error&) {
    complete = false;
  }
  go.store(complete);
  decided.count_down();
  for (auto& thread : threads) thread.join();
  if (!complete) {
    return fail(ErrorCode::exhausted,
                "cannot start {} threads; measure with fewer or raise the limit on processes "
                "(ulimit -u)",
                cpus.size());
  }
  return {};
}

}  // namespace headrace
