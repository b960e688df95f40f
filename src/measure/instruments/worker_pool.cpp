// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/worker_pool.h"
#include "headrace/waiting.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "core/affinity.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/lockstep.h"

namespace headrace::instruments {
namespace {

// Started threads begin within milliseconds.
constexpr Nanoseconds kMostWait = std::chrono::seconds{30};

// Whether the parts run: decided once all threads were started, or one could not start.
class Decision {
 public:
  void make(bool go) {
    word_.store(go ? kGo : kGiveUp);
    system_waiting().wake_all(word_);
  }
  // False: give up, or no decision in time.
  bool wait() {
    Patience patience(system_clock(), system_waiting(), kMostWait);
    while (word_.load() == kNone && !patience.over()) patience.sleep(word_, kNone);
    return word_.load() == kGo;
  }

 private:
  static constexpr std::uint32_t kNone = 0, kGo = 1, kGiveUp = 2;
  std::atomic<std::uint32_t> word_{kNone};
};

thread_local const CpuSet* as_if_usable = nullptr;

Status not_all_began() {
  return fail(ErrorCode::timed_out, "not all threads began; is the machine busy?");
}

}  // namespace

AsIfUsable::AsIfUsable(CpuSet cpus) : cpus_(std::move(cpus)), before_(as_if_usable) {
  as_if_usable = &cpus_;
}
AsIfUsable::~AsIfUsable() { as_if_usable = before_; }

CpuSet usable_cpus(const Node* node) {
  if (node == nullptr) return as_if_usable != nullptr ? *as_if_usable : allowed_cpus();
  const CpuSet own = as_if_usable != nullptr ? CpuSet{} : allowed_cpus();
  const CpuSet& allowed = as_if_usable != nullptr ? *as_if_usable : own;
  // Planning calls this often, and a node has a small part of the CPUs.
  CpuSet cpus;
  std::ranges::copy_if(node->cpus, std::back_inserter(cpus),
                       [&](unsigned cpu) { return std::ranges::binary_search(allowed, cpu); });
  return cpus;
}

BoundToNode::BoundToNode(const Node* node)
    : before_(allowed_cpus()), bound_(node != nullptr && pin(pthread_self(), usable_cpus(node))) {}

BoundToNode::~BoundToNode() {
  if (bound_) pin(pthread_self(), before_);
}

unsigned observer_of(const Machine& machine, const CpuSet& cpus) {
  const auto quiet = std::ranges::find_if(
      cpus, [&](unsigned cpu) { return cpu != 0 && !share_core(machine, 0, cpu); });
  return quiet == cpus.end() ? cpus.front() : *quiet;
}

bool share_core(const Machine& machine, unsigned a, unsigned b) {
  return std::ranges::any_of(first_level_caches(machine, a), [&](const CacheLevel* cache) {
    return std::ranges::binary_search(cache->cpus, b);
  });
}

Status check_is_here(const Machine& machine) {
  char name[HOST_NAME_MAX + 1] = {};
  // The name that discovery gives; "unnamed" where /proc is hidden.
  if (gethostname(name, HOST_NAME_MAX) != 0 || machine.name == name || machine.name == "unnamed") {
    return {};
  }
  return fail(ErrorCode::unsupported,
              "machine '{}' is not this host, '{}'; measure a discovered machine", machine.name,
              name);
}

std::set<std::size_t> thread_counts(std::size_t all) {
  std::set<std::size_t> sizes;
  if (all > 0) sizes.insert(all);
  for (std::size_t n = 1; n < all; n *= 2) sizes.insert(n);
  return sizes;
}

Status run_pinned(const CpuSet& cpus, const std::function<void(std::size_t)>& part) {
  Decision decision;
  std::atomic<std::size_t> run{0};
  std::atomic<bool> out_of_space{false};
  std::vector<std::thread> threads;
  const char* limit = nullptr;  // the limit that kept a thread from starting
  std::optional<unsigned> refused;
  try {
    for (std::size_t i = 0; i < cpus.size() && !refused; ++i) {
      threads.emplace_back([&, i] {
        if (!decision.wait()) return;
        try {
          part(i);
        } catch (const std::bad_alloc&) {
          out_of_space = true;
        }
        run.fetch_add(1);
      });
      if (!pin(threads.back().native_handle(), {&cpus[i], 1})) refused = cpus[i];
    }
  } catch (const std::system_error&) {
    limit = limit_of_threads();
  }
  decision.make(limit == nullptr && !refused);
  for (auto& thread : threads) thread.join();
  if (refused) {
    return fail(ErrorCode::denied,
                "cannot run a thread on CPU {}; is it offline, outside the cpuset, or does the "
                "container forbid sched_setaffinity?",
                *refused);
  }
  if (limit != nullptr) {
    return fail(ErrorCode::exhausted,
                "cannot start {} threads; measure with fewer or raise the limit ({})", cpus.size(),
                limit);
  }
  if (out_of_space) return out_of_memory();
  return run.load() == cpus.size() ? Status{} : not_all_began();
}

Result<double> run_together(const CpuSet& cpus, const std::function<void(std::size_t)>& part) {
  CommonStart start(cpus.size(), kMostWait);
  std::vector<double> shares(cpus.size(), -1);
  HEADRACE_TRY_STATUS(run_pinned(cpus, [&](std::size_t i) {
    if (!start.begin()) return;
    const CpuShare share;
    part(i);
    shares[i] = share.now();
  }));
  const double least = std::ranges::min(shares);
  if (least < 0) return Unexpected(not_all_began().error());
  return least;
}

}  // namespace headrace::instruments
