// SPDX-License-Identifier: Apache-2.0
#include "memory/touch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>

#include "core/affinity.h"
#include "host/mempolicy.h"

namespace headrace {
namespace {

// The steps of one group; its threads take them in turn.
struct TouchSteps {
  std::vector<PageRun> steps;
  std::atomic<std::size_t> next{0};
};

void cut(const TouchGroup& group, Bytes step, TouchSteps& todo) {
  for (const PageRun& run : group.runs) {
    for (std::uint64_t done = 0; done < run.length; done += step.value) {
      todo.steps.push_back({run.offset + done, std::min(step.value, run.length - done), run.node});
    }
  }
}

void touch_steps(std::byte* memory, TouchSteps& todo, std::atomic<int>& error) {
  for (std::size_t i = todo.next++; i < todo.steps.size() && error == 0; i = todo.next++) {
    const int failed = populate(memory + todo.steps[i].offset, todo.steps[i].length);
    if (failed != 0) error = failed;
  }
}

std::uint64_t length_of(const TouchGroup& group) {
  std::uint64_t sum = 0;
  for (const PageRun& run : group.runs) sum += run.length;
  return sum;
}

}  // namespace

std::vector<unsigned> touch_threads(std::span<const TouchGroup> groups, unsigned cpus) {
  std::vector<unsigned> threads;
  std::uint64_t wanted = 0;
  for (const TouchGroup& group : groups) {
    const std::uint64_t grains = (length_of(group) + kTouchGrain.value - 1) / kTouchGrain.value;
    const std::uint64_t most = group.cpus.empty() ? 1 : group.cpus.size();
    threads.push_back(static_cast<unsigned>(std::min(grains, most)));
    wanted += threads.back();
  }
  // Too many threads: shrink all groups equally, at least one thread for each group with work.
  if (wanted > cpus) {
    for (unsigned& each : threads) {
      if (each > 0) each = std::max(1U, static_cast<unsigned>(each * std::uint64_t{cpus} / wanted));
    }
  }
  return threads;
}

int touch(std::byte* memory, std::span<const TouchGroup> groups, Bytes step) {
  const CpuSet allowed = allowed_cpus();
  std::vector<TouchGroup> usable(groups.begin(), groups.end());
  std::uint64_t total = 0;
  for (TouchGroup& group : usable) {
    std::erase_if(group.cpus,
                  [&](unsigned cpu) { return !std::ranges::binary_search(allowed, cpu); });
    total += length_of(group);
  }
  std::vector<TouchSteps> todo(usable.size());
  for (std::size_t i = 0; i < usable.size(); ++i) {
    cut(usable[i], std::max(step, kTouchGrain), todo[i]);
  }
  std::atomic<int> error{0};
  std::vector<std::jthread> threads;
  if (total > kTouchGrain.value) {
    const auto counts = touch_threads(usable, std::max(1U, std::thread::hardware_concurrency()));
    try {
      for (std::size_t i = 0; i < usable.size(); ++i) {
        for (unsigned n = 0; n < counts[i]; ++n) {
          threads.emplace_back([&, i] {
            pin(pthread_self(), usable[i].cpus);  // on failure only slower
            touch_steps(memory, todo[i], error);
          });
        }
      }
    } catch (const std::system_error&) {
      // The threads that did start, and this one, do the work.
    }
  }
  threads.clear();
  // Touches the steps that no thread took: a small buffer, or all when no thread could start.
  for (TouchSteps& each : todo) touch_steps(memory, each, error);
  return error;
}

}  // namespace headrace
