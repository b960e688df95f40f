// SPDX-License-Identifier: Apache-2.0
// Small objects of a Heap compared with malloc, alternating within one measurement, so that both
// see the same noise. Results are nanoseconds per allocation with its free: `heap_ns` freed by
// address, `pmr_ns` as a memory resource, whose callers pass the size, `malloc_ns` by the C
// library. Ratios are to malloc.
//
// - Recent: few objects live; the last freed is allocated next.
// - Mixed: 4096 objects live, freed in random order.
// - Handed: each thread frees what the other allocated, 512 at a time.
// - Large: objects with buffers of their own, and smaller ones for comparison.
//
// Every object is written to.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <thread>
#include <vector>

#include "headrace/heap.h"
#include "headrace/machine.h"
#include "headrace/random.h"

namespace headrace {
namespace {

constexpr std::size_t kLive = 4096;
constexpr std::size_t kTurn = 8192;

Heap& bench_heap() {
  static const std::unique_ptr<Heap> heap = [] {
    const Machine machine = Machine::discover({.storage = {}}).value();
    return Heap::open(machine, Placement::on(NodeKind::dram)).value();
  }();
  return *heap;
}

struct OfHeap {
  static void* allocate(std::size_t size) { return bench_heap_->allocate_bytes(size); }
  static void free(void* object, std::size_t) { bench_heap_->free(object); }
  static inline Heap* bench_heap_ = &bench_heap();
};
// As standard containers do: they pass the size of the object that they free.
struct OfResource {
  static void* allocate(std::size_t size) { return resource_->allocate(size); }
  static void free(void* object, std::size_t size) {
    if (object != nullptr) resource_->deallocate(object, size);
  }
  static inline std::pmr::memory_resource* resource_ = &bench_heap();
};
struct OfMalloc {
  static void* allocate(std::size_t size) { return std::malloc(size); }
  static void free(void* object, std::size_t) { std::free(object); }
};

// The operations of one thread in a turn, generated beforehand; the same for both allocators.
struct Script {
  explicit Script(std::uint64_t seed, std::size_t fixed_size) {
    Random random(seed);
    for (std::size_t i = 0; i < kTurn; ++i) {
      sizes.push_back(fixed_size != 0 ? fixed_size : 16 + random.below(1009));
      slots.push_back(static_cast<std::size_t>(random.below(kLive)));
    }
  }
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> slots;
};

struct Made {
  void* object = nullptr;
  std::size_t size = 0;
};

template <class Of>
Made make(std::size_t size) {
  void* const object = Of::allocate(size);
  std::memset(object, 1, 16);
  return {object, size};
}

template <class Of>
void unmake(const Made& made) {
  if (made.object != nullptr) Of::free(made.object, made.size);
}

// One thread's objects and its turns.
template <class Of>
class Live {
 public:
  ~Live() { std::ranges::for_each(objects_, unmake<Of>); }

  void recent(const Script& script) {
    std::array<Made, 8> few;
    for (std::size_t i = 0; i < kTurn; i += few.size()) {
      for (std::size_t j = 0; j < few.size(); ++j) few[j] = make<Of>(script.sizes[i + j]);
      std::ranges::for_each(few, unmake<Of>);
    }
  }
  void mixed(const Script& script) {
    for (std::size_t i = 0; i < kTurn; ++i) {
      Made& made = objects_[script.slots[i]];
      unmake<Of>(made);
      made = make<Of>(script.sizes[i]);
    }
  }

 private:
  std::vector<Made> objects_ = std::vector<Made>(kLive);
};

double now_in(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Nanoseconds per object in each turn, in the threads' own CPU time: it excludes other programs on
// the same cores, and the median excludes the few turns that they disturb.
class Turns {
 public:
  template <class Body>
  void add(Body body, clockid_t clock = CLOCK_THREAD_CPUTIME_ID, std::size_t objects = kTurn) {
    const double begin = now_in(clock);
    body();
    each_.push_back((now_in(clock) - begin) / static_cast<double>(objects));
  }
  double median() {
    std::ranges::nth_element(each_, each_.begin() + std::ssize(each_) / 2);
    return each_[each_.size() / 2];
  }

 private:
  std::vector<double> each_;
};

void report(benchmark::State& state, Turns& heap, Turns& resource, Turns& malloc) {
  const auto set = [&](const char* name, double value) {
    state.counters[name] = benchmark::Counter(value, benchmark::Counter::kAvgThreads);
  };
  set("heap_ns", heap.median());
  set("pmr_ns", resource.median());
  set("malloc_ns", malloc.median());
  set("heap_ratio", heap.median() / malloc.median());
  set("pmr_ratio", resource.median() / malloc.median());
}

// range(0): object size in bytes; 0: random, 16 to 1024.
template <class Turn>
void alternate(benchmark::State& state, Turn turn) {
  const Script script(static_cast<std::uint64_t>(state.thread_index()) + 1,
                      static_cast<std::size_t>(state.range(0)));
  Live<OfHeap> on_heap;
  Live<OfResource> on_resource;
  Live<OfMalloc> on_malloc;
  Turns heap;
  Turns resource;
  Turns malloc;
  for (auto _ : state) {
    heap.add([&] { turn(on_heap, script); });
    malloc.add([&] { turn(on_malloc, script); });
    resource.add([&] { turn(on_resource, script); });
  }
  report(state, heap, resource, malloc);
}

void Recent(benchmark::State& state) {
  alternate(state, [](auto& live, const Script& script) { live.recent(script); });
}
void Mixed(benchmark::State& state) {
  alternate(state, [](auto& live, const Script& script) { live.mixed(script); });
}

constexpr unsigned kRounds = 64;
constexpr std::size_t kBasket = 512;

// Two threads each fill a basket, meet, and empty the other's basket.
template <class Of>
void hand_over(const std::array<Script, 2>& scripts) {
  std::array<std::vector<Made>, 2> baskets;
  std::barrier meet(2);
  const auto work = [&](std::size_t self) {
    for (unsigned round = 0; round < kRounds; ++round) {
      baskets[self].clear();
      for (std::size_t i = 0; i < kBasket; ++i) {
        baskets[self].push_back(make<Of>(scripts[self].sizes[i]));
      }
      meet.arrive_and_wait();
      std::ranges::for_each(baskets[1 - self], unmake<Of>);
      meet.arrive_and_wait();
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
}

void Handed(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::array<Script, 2> scripts{Script(1, size), Script(2, size)};
  Turns heap;
  Turns resource;
  Turns malloc;
  const auto add = [&](Turns& turns, auto body) {
    turns.add(body, CLOCK_PROCESS_CPUTIME_ID, 2 * kRounds * kBasket);
  };
  for (auto _ : state) {
    add(heap, [&] { hand_over<OfHeap>(scripts); });
    add(malloc, [&] { hand_over<OfMalloc>(scripts); });
    add(resource, [&] { hand_over<OfResource>(scripts); });
  }
  report(state, heap, resource, malloc);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("size")->Arg(16)->Arg(64)->Arg(256)->Arg(1024)->Arg(0)->UseRealTime();
}
BENCHMARK(Recent)->Apply(sizes)->ThreadRange(1, 2);
BENCHMARK(Mixed)->Apply(sizes)->ThreadRange(1, 2);
BENCHMARK(Handed)->Apply(sizes);

// One object of range(0) bytes: allocated, written, freed. Large ones have buffers of their own.
void Large(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* const object = OfHeap::allocate(size);
    std::memset(object, 1, size);
    OfHeap::free(object, size);
  }
}
BENCHMARK(Large)->ArgName("size")->RangeMultiplier(8)->Range(64 << 10, 32 << 20);

}  // namespace
}  // namespace headrace
