// SPDX-License-Identifier: Apache-2.0
// The loads that experiments run side by side. Each walks over its own memory, which exceeds the
// caches. Units: lines and copies in bytes as in traffic.h and copy.h, a chase in loads.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "headrace/file.h"
#include "headrace/histogram.h"
#include "headrace/random.h"
#include "measure/instruments/delay_loop.h"
#include "measure/instruments/side_by_side/side_by_side.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::instruments {

// A pointer chase over a cycle (make_cycle), with the times of its loads since the window began.
class ChaseLoad final : public Load {
 public:
  explicit ChaseLoad(void* start) : at_(start) {}

  Result<double> step() override;
  void window_begins() override;

  double mean_ns() const;
  void* at() const { return at_; }  // next position
  // "p50", "p90", "p99", "p999" over groups of 16 loads, in ns per load: one load is shorter than
  // reading the clock.
  std::map<std::string, double> percentiles() const;

 private:
  void* at_;
  Histogram groups_;  // in picoseconds per load, since it counts whole numbers
  std::uint64_t ticks_ = 0;
  std::uint64_t loads_ = 0;
};

// A mix of reads and writes, in bytes. `pause` follows each KiB (with many streams: each round, 2
// KiB), by a loop that lets loads stay in flight (delay_loop.h).
class TrafficLoad final : public Load {
 public:
  TrafficLoad(const TrafficKernel& kernel, const TrafficArea& area, Pause pause = {});
  Result<double> step() override;

 private:
  const TrafficKernel kernel_;
  const TrafficArea area_;
  const Pause pause_;
  const std::size_t at_once_;   // rounds between two pauses
  const std::size_t per_step_;  // pauses
  std::size_t at_ = 0;
};

// copy_bytes in blocks of 256 KiB, in bytes copied. Requires: equal sizes, at least one block.
class CopyLoad final : public Load {
 public:
  CopyLoad(std::span<std::byte> to, std::span<const std::byte> from) : to_(to), from_(from) {}
  Result<double> step() override;

 private:
  const std::span<std::byte> to_;
  const std::span<const std::byte> from_;
  std::size_t at_ = 0;
};

// Reads random blocks of 256 KiB of a file past the page cache, in bytes. Requires: the file is
// direct(); file and `to` hold at least one block; `to` is aligned to 4 KiB.
class FileLoad final : public Load {
 public:
  FileLoad(const File& file, std::span<std::byte> to, std::uint64_t seed)
      : file_(file), to_(to), random_(seed) {}
  Result<double> step() override;

 private:
  const File& file_;
  const std::span<std::byte> to_;
  Random random_;
};

}  // namespace headrace::instruments
