// SPDX-License-Identifier: Apache-2.0
// The scenarios on sources in memory, timed for every implementation. Scenarios on files are in
// file_scenarios.h.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/cache/draws.h"
#include "benchmarks/cache/options.h"
#include "benchmarks/cache/stores/headrace_store.h"
#include "benchmarks/cache/stores/source.h"
#include "benchmarks/cache/stores/store.h"
#include "benchmarks/cache/timing.h"
#include "core/fail.h"
#include "headrace/random.h"

namespace headrace::cache_bench {

// How a thread accesses its numbers.
enum class Manner : std::uint8_t {
  single,      // one access after the other
  batch,       // kBatch in one call, if the store has one
  one_by_one,  // like batch, by single accesses
  planned,     // all in order, planned ahead if the store has plans
};

enum class Order : std::uint8_t { uniform, one, zipf, in_order, mixed };

struct Scenario {
  std::string_view name;
  std::string_view about;
  std::uint64_t block;   // bytes of each
  std::uint64_t blocks;  // of the source
  std::uint64_t budget;  // in blocks
  std::uint64_t warm;    // the first blocks, read once before
  Order order;
  Manner manner = Manner::single;
  bool pinned = false;  // warm blocks stay pinned
};

inline constexpr std::uint64_t kHot = 10'000;

inline constexpr auto kScenarios = std::to_array<Scenario>({
    {"hit-spread", "10 000 blocks of 4 KiB, all cached, any of them next", 4096, kHot, 16'384, kHot,
     Order::uniform},
    {"hit-one-hot", "one of those, again and again, by all threads", 4096, kHot, 16'384, kHot,
     Order::one},
    {"zipf-0.99", "those, by Zipf's law with exponent 0.99", 4096, kHot, 16'384, kHot, Order::zipf},
    {"miss-fill", "32 768 blocks in turn with room for 2048: each is copied, another goes", 4096,
     32'768, 2048, 2048, Order::in_order},
    {"miss-large", "as miss-fill, 131 072 blocks in turn with room for 16 384", 4096, 131'072,
     16'384, 16'384, Order::in_order},
    {"mixed-5%-insert", "as hit-spread, but one access in twenty is to a block that is not cached",
     4096, 40'000, 16'384, kHot, Order::mixed},
    {"all-pinned", "as miss-fill, but all the room is held: the source is read", 4096, 32'768, 2048,
     4096, Order::in_order, Manner::single, true},
    {"batch-16", "524 288 blocks of 256 bytes, all cached, 16 in one call (per block)", 256,
     524'288, 655'360, 524'288, Order::uniform, Manner::batch},
    {"single-16", "the same, 16 one after the other", 256, 524'288, 655'360, 524'288,
     Order::uniform, Manner::one_by_one},
    {"scan-with-plan",
     "each thread reads its part of 32 768 blocks in order, with a plan if it can", 4096, 32'768,
     8192, 0, Order::in_order, Manner::planned},
});

const Scenario* find_scenario(std::string_view name);

// Accesses between two reads of the clock.
inline constexpr std::uint64_t kStride = 256;
static_assert(kStride % kBatch == 0);

// The numbers that a thread goes through repeatedly. Its length is a multiple of kStride.
Draws numbers_for(const Scenario& scenario, unsigned thread, unsigned threads, std::uint64_t seed);

// The word of a block that a thread reads. Spread over cache lines, since the first lines of all
// pages compete for the same few places in the CPU's caches.
inline std::uint64_t within(std::uint64_t block, std::uint64_t length) {
  return block * 72 & (length - 1) & ~std::uint64_t{7};
}

template <Store S>
Tally single(S& store, const Source& source, std::span<const std::uint32_t> numbers,
             std::uint64_t length, const Until& until) {
  Tally tally;
  std::size_t next = 0;
  do {
    for (std::uint64_t i = 0; i < kStride; ++i) {
      const std::uint32_t block = numbers[next + i];
      const typename S::Pin pin = store.access(block);
      const std::byte* bytes = pin.bytes();
      tally.wrong += bytes == nullptr || !source.holds(block, within(block, length), bytes);
    }
    tally.operations += kStride;
    next += kStride;
    if (next >= numbers.size()) next = 0;
  } while (!until.enough(tally.operations));
  return tally;
}

template <Store S, class Batch>
Tally batched(S& store, const Source& source, std::span<const std::uint32_t> numbers,
              std::uint64_t length, const Until& until) {
  Tally tally;
  Batch batch;
  std::size_t next = 0;
  do {
    for (std::uint64_t k = 0; k < kStride; k += kBatch) {
      const std::span<const std::uint32_t, kBatch> blocks(&numbers[next + k], kBatch);
      batch.access(store, blocks);
      for (std::size_t i = 0; i < kBatch; ++i) {
        const std::byte* bytes = batch.bytes(i);
        tally.wrong +=
            bytes == nullptr || !source.holds(blocks[i], within(blocks[i], length), bytes);
      }
      batch.release();
    }
    tally.operations += kStride;
    next += kStride;
    if (next >= numbers.size()) next = 0;
  } while (!until.enough(tally.operations));
  return tally;
}

// All blocks in order, repeated until the time is over; one plan per round.
template <Store S>
Tally planned(S& store, const Source& source, std::span<const std::uint32_t> numbers,
              std::uint64_t length, const Until& until) {
  if constexpr (requires { store.plan(source, 0, 0); }) {
    Tally tally;
    do {
      const Prefetch plan = store.plan(source, numbers.front(), numbers.size());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto pin = store.access(numbers[i], plan);
        const std::byte* bytes = pin.bytes();
        tally.wrong +=
            bytes == nullptr || !source.holds(numbers[i], within(numbers[i], length), bytes);
      }
      tally.operations += numbers.size();
    } while (!until.enough(tally.operations));
    return tally;
  } else {
    return single(store, source, numbers, length, until);
  }
}

template <Store S>
Tally work(S& store, const Source& source, const Scenario& scenario,
           std::span<const std::uint32_t> numbers, const Until& until) {
  switch (scenario.manner) {
    case Manner::single: break;
    case Manner::batch:
      return batched<S, BatchOf<S>>(store, source, numbers, scenario.block, until);
    case Manner::one_by_one:
      return batched<S, OneByOne<S>>(store, source, numbers, scenario.block, until);
    case Manner::planned: return planned(store, source, numbers, scenario.block, until);
  }
  return single(store, source, numbers, scenario.block, until);
}

// The results of one run as JSON: counts and times, nothing divided.
nlohmann::ordered_json told(const Timing& timing, std::uint64_t misses);

template <Store S>
Result<std::unique_ptr<S>> make_store(const Source& source, Bytes budget, const Options& options) {
  if constexpr (requires { S::make(source, budget, CacheOptions{}); }) {
    CacheOptions own{.curve = options.curve};
    if (options.tenants) own.tenants = {{.name = "one"}};
    return S::make(source, budget, std::move(own));
  } else {
    return S::make(source, budget);
  }
}

// One scenario with one implementation, on a source of its own.
template <Store S>
Result<nlohmann::ordered_json> run_scenario(const Scenario& scenario, const Options& options) {
  const Source source = Source::in_memory(scenario.blocks, scenario.block);
  HEADRACE_TRY(const std::unique_ptr<S> store,
               make_store<S>(source, Bytes{scenario.budget * scenario.block}, options));
  std::vector<typename S::Pin> pins;
  for (std::uint64_t block = 0; block < scenario.warm; ++block) {
    typename S::Pin pin = store->access(block);
    if (pin.bytes() == nullptr) return fail(ErrorCode::io, "block {} cannot be read", block);
    if (scenario.pinned) pins.push_back(std::move(pin));
  }
  std::vector<Draws> numbers;
  for (unsigned thread = 0; thread < options.threads; ++thread) {
    numbers.push_back(numbers_for(scenario, thread, options.threads, options.seed));
  }
  const std::uint64_t before = store->misses();
  const Timing timing =
      run_threads(options.threads, {options.seconds, options.operations},
                  [&](unsigned thread, const Until& until) {
                    return work(*store, source, scenario,
                                std::span<const std::uint32_t>(numbers[thread]), until);
                  });
  return told(timing, store->misses() - before);
}

}  // namespace headrace::cache_bench
