// SPDX-License-Identifier: Apache-2.0
// The scenarios on files. Many threads look up small extents of a file, most of them repeatedly, in
// a cache much smaller than the file. In one scenario a scan of another file runs at the same time.
//
// All reads bypass the page cache if the file system allows it. Headrace scans in extents of 1 MiB
// by a plan, through the same cache. The peers scan by pread into one buffer, past their caches,
// and pread the extent when a lookup misses.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "headrace/histogram.h"
#include "headrace/random.h"

namespace headrace::cache_bench {

inline constexpr std::uint32_t kFilePage = 4096;

struct FileScenario {
  std::string_view name;
  std::string_view about;
  // Pages of an extent: least and most, all equally likely.
  std::uint32_t least;
  std::uint32_t most;
  std::uint64_t extents;  // this and the next two: unless Options give them
  Bytes budget;
  Bytes scan;  // 0: no scan
};

inline constexpr auto kFileScenarios = std::to_array<FileScenario>({
    {"small-miss",
     "zipf-0.99 over 4 to 16 KiB of a file on disk, with room for an eighth; a scan beside it", 1,
     4, 200'000, 256_MiB, 1_GiB},
    {"buffer-pool", "zipf-0.99 over pages of 8 KiB of a file on disk, with room for a tenth", 2, 2,
     81'920, 64_MiB, 0_B},
});

const FileScenario* find_file_scenario(std::string_view name);

// The two files, and the extents that the threads look up.
struct FileData {
  Bytes budget;
  Source lookups;
  std::optional<Source> scan;
  std::vector<Draws> numbers;  // of each thread

  static Result<FileData> make(const FileScenario& scenario, const Options& options);
};

// Nanoseconds per lookup, from access to release.
struct Latencies {
  Histogram hits;
  Histogram misses;
  std::uint64_t longest_hit = 0;
};

// The results of one part of the run.
struct Part {
  Timing timing;         // of all its threads
  Tally lookups;         // of the lookup threads
  double scan_rate = 0;  // bytes per second
  Latencies latencies;
};

// The bytes of a block that the cache refused, by pread into a buffer of this thread. Null: they
// could not be read. Valid until the next call.
inline const std::byte* read_refused(const Source& source, std::uint64_t block, Tally& tally) {
  thread_local Held buffer;
  ++tally.refused;
  buffer = read_copy(source, block);
  return buffer.get();
}

template <Store S>
Tally look_up(S& store, const Source& source, const Draws& numbers, std::uint64_t seed,
              const Until& until, Latencies& latencies) {
  using Clock = std::chrono::steady_clock;
  Random random(seed);
  Tally tally;
  std::size_t next = random.below(numbers.size());
  do {
    const std::uint32_t block = numbers[next];
    if (++next == numbers.size()) next = 0;
    const std::uint64_t within = random.below(source.place(block).length / 8) * 8;
    const Clock::time_point begin = Clock::now();
    bool ready = false;
    {
      const typename S::Pin pin = store.access(block);
      ready = pin.ready();
      const std::byte* bytes = pin.bytes();
      if (bytes == nullptr) bytes = read_refused(source, block, tally);
      tally.wrong += bytes == nullptr || !source.holds(block, within, bytes);
    }
    const auto taken = std::chrono::nanoseconds(Clock::now() - begin).count();
    (ready ? latencies.hits : latencies.misses).record(static_cast<std::uint64_t>(taken));
    if (ready)
      latencies.longest_hit = std::max(latencies.longest_hit, static_cast<std::uint64_t>(taken));
    ++tally.operations;
  } while (!until.enough(tally.operations));
  return tally;
}

// Whether a word of each page of the block is right.
inline bool right(const Source& source, std::uint64_t block, const std::byte* bytes) {
  if (bytes == nullptr) return false;
  for (std::uint64_t at = 0; at < source.place(block).length; at += kFilePage) {
    if (!source.holds(block, at + (at >> 9 & 4088), bytes)) return false;
  }
  return true;
}

// One operation per block, over the whole file, repeatedly.
template <Store S>
Tally scan(S& store, const Source& source, const Until& until) {
  Tally tally;
  if constexpr (requires { store.plan(source, 0, 0); }) {
    while (true) {
      const Prefetch plan = store.plan(source, 0, source.blocks());
      for (std::uint64_t block = 0; block < source.blocks(); ++block) {
        const Block pin = store.cache().access(source.extent(block), {.plan = &plan});
        const std::byte* bytes = HeadraceStore::bytes_of(pin);
        if (bytes == nullptr) bytes = read_refused(source, block, tally);
        tally.wrong += !right(source, block, bytes);
        if (until.enough(++tally.operations)) return tally;
      }
    }
  } else {
    const Held buffer(new_bytes(source, 0), Free{});
    while (true) {
      for (std::uint64_t block = 0; block < source.blocks(); ++block) {
        const bool read = source.read(block, buffer.get());
        tally.wrong += !read || !right(source, block, buffer.get());
        if (until.enough(++tally.operations)) return tally;
      }
    }
  }
}

// Runs `lookups` threads and perhaps a scan for that time. `seed` differs in each part, since the
// same lookups would find the blocks that the last part left.
template <Store S>
Part run_part(S& store, const FileData& data, unsigned lookups, bool scanning,
              const Options& options, std::uint64_t seed) {
  Part part;
  std::vector<Latencies> latencies(lookups);
  std::vector<Tally> tallies(lookups);
  double scan_seconds = 0;
  std::uint64_t scanned = 0;
  part.timing = run_threads(
      lookups + (scanning ? 1 : 0), {.seconds = options.seconds},
      [&](unsigned thread, const Until& until) {
        if (thread < lookups) {
          return tallies[thread] = look_up(store, data.lookups, data.numbers[thread],
                                           seed * 4096 + thread, until, latencies[thread]);
        }
        const auto begin = std::chrono::steady_clock::now();
        const Tally tally = scan(store, *data.scan, until);
        scan_seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        scanned = tally.operations * data.scan->place(0).length;
        return tally;
      });
  for (unsigned thread = 0; thread < lookups; ++thread) {
    part.lookups.operations += tallies[thread].operations;
    part.latencies.hits.add(latencies[thread].hits);
    part.latencies.misses.add(latencies[thread].misses);
    part.latencies.longest_hit =
        std::max(part.latencies.longest_hit, latencies[thread].longest_hit);
  }
  if (scanning) part.scan_rate = static_cast<double>(scanned) / scan_seconds;
  return part;
}

// Resident bytes of the process beyond `before` and the budget.
std::int64_t over_budget(std::uint64_t before, Bytes budget);

// The lookups alone, as JSON.
nlohmann::ordered_json told(const FileData& data, const Part& alone, std::uint64_t misses,
                            std::int64_t over);
// Adds the scan alone and both together. Requires: there is a scan.
void add_scan(nlohmann::ordered_json& row, const FileData& data, const Part& scan,
              const Part& beside);

template <Store S>
Result<nlohmann::ordered_json> run_file_scenario(const FileScenario& scenario,
                                                 const Options& options) {
  HEADRACE_TRY(const FileData data, FileData::make(scenario, options));
  const std::uint64_t before = resident_bytes();
  HEADRACE_TRY(const std::unique_ptr<S> store, S::make(data.lookups, data.budget));
  // Until the whole budget has been filled once, at most this number of parts.
  constexpr int kMostWarmings = 20;
  const std::uint64_t mean = kFilePage * (scenario.least + scenario.most) / 2;
  const std::uint64_t enough = data.budget.value / mean * 5 / 4;
  std::uint64_t seed = options.seed * 100;
  for (int i = 0; i < kMostWarmings && store->misses() < enough; ++i) {
    (void)run_part(*store, data, options.threads, false, options, ++seed);
  }
  const std::uint64_t misses = store->misses();
  const Part alone = run_part(*store, data, options.threads, false, options, ++seed);
  const std::uint64_t missed = store->misses() - misses;
  nlohmann::ordered_json row = told(data, alone, missed, over_budget(before, data.budget));
  if (data.scan) {
    const Part scan = run_part(*store, data, 0, true, options, ++seed);
    add_scan(row, data, scan, run_part(*store, data, options.threads, true, options, ++seed));
  }
  return row;
}

}  // namespace headrace::cache_bench
