#include "measure/team.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <latch>
#include <set>
#include <system_error>
#include <thread>

#include "core/affinity.h"
#include "core/fail.h"
#include "measure/cpu_share.h"

namespace headrace {

CpuSet usable_cpus(const Node* node) {
  CpuSet allowed = allowed_cpus();
  if (node == nullptr) return allowed;
  CpuSet cpus;
  std::ranges::set_intersection(node->cpus, allowed, std::back_inserter(cpus));
  return cpus;
}

std::vector<unsigned> others_than(const Machine& machine, unsigned cpu, const CpuSet& cpus) {
  std::vector<unsigned> others;
  for (const bool together : {false, true}) {
    std::ranges::copy_if(cpus, std::back_inserter(others), [&](unsigned other) {
      return other != cpu && share_core(machine, cpu, other) == together;
    });
  }
  return others;
}

bool share_core(const Machine& machine, unsigned a, unsigned b) {
  return std::ranges::any_of(machine.caches, [&](const CacheLevel& cache) {
    const auto has = [&](unsigned cpu) { return std::ranges::binary_search(cache.cpus, cpu); };
    return cache.level == 1 && has(a) && has(b);
  });
}

Status check_is_here(const Machine& machine) {
  char name[HOST_NAME_MAX + 1] = {};
  // Discovery names a machine so; "unnamed" where /proc is hidden.
  if (gethostname(name, HOST_NAME_MAX) != 0 || machine.name == name || machine.name == "unnamed") {
    return {};
  }
  return fail(ErrorCode::unsupported,
              "machine '{}' is not this host, '{}'; measure a discovered machine", machine.name,
              name);
}

Bytes cache_to_pass(const Machine& machine, const CpuSet& cpus) {
  std::set<const CacheLevel*> caches;
  for (const unsigned cpu : cpus) caches.insert(last_level_cache(machine, cpu));
  Bytes sum;
  for (const CacheLevel* cache : caches) sum += cache == nullptr ? 32_MiB : cache->size;
  return sum;
}

std::set<std::size_t> team_sizes(std::size_t all) {
  std::set<std::size_t> sizes;
  if (all > 0) sizes.insert(all);
  for (std::size_t n = 1; n < all; n *= 2) sizes.insert(n);
  return sizes;
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
      pin(threads.back().native_handle(), {&cpus[i], 1});
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

Result<double> run_together(const CpuSet& cpus, const std::function<void(std::size_t)>& part) {
  std::atomic<std::size_t> missing = cpus.size();
  std::vector<double> shares(cpus.size());
  HEADRACE_TRY_STATUS(run_pinned(cpus, [&](std::size_t i) {
    missing.fetch_sub(1);
    // Where the system refuses to pin, two may share a CPU.
    while (missing.load() != 0) std::this_thread::yield();
    const CpuShare share;
    part(i);
    shares[i] = share.now();
  }));
  return std::ranges::min(shares);
}

}  // namespace headrace
