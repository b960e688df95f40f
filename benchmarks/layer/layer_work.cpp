// SPDX-License-Identifier: Apache-2.0
// The load of one layer of a network on the machine: it reads its weights, and multiplies.
#include <algorithm>

#include "benchmarks/layer/kernels_multiply.h"
#include "benchmarks/layer/layer.h"
#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/random.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic/traffic.h"
#include "measure/instruments/worker_pool.h"

namespace headrace {

using namespace instruments;

namespace {

// Bytes that a thread reads between two parts of the multiplications: a tile of a matrix.
constexpr std::uint64_t kTile = 256 << 10;

// One thread's share.
class LayerPart {
 public:
  LayerPart(const TrafficKernel& kernel, std::span<const std::byte> memory, std::uint64_t first,
            std::uint64_t groups)
      : kernel_(kernel), area_{memory, {}}, at_(first), left_(groups) {}

  // Reads all tiles in order, with an equal part of the operations after each.
  void run(std::uint64_t operations) {
    const std::uint64_t tile = kTile / (kernel_.lines_per_round() * kLine);
    const std::uint64_t tiles = std::max<std::uint64_t>(1, (left_ + tile - 1) / tile);
    for (std::uint64_t i = 0; i < tiles; ++i) {
      read(std::min(tile, left_));
      multiplied += multiply(operations / tiles);
    }
  }

  std::uint64_t lines = 0;
  std::uint64_t multiplied = 0;

 private:
  void read(std::uint64_t groups) {
    left_ -= groups;
    while (groups > 0) {
      const std::uint64_t all = kernel_.rounds(area_);
      const std::uint64_t now = std::min(groups, all - at_);
      lines += kernel_.run(area_, at_, now);
      at_ = (at_ + now) % all;
      groups -= now;
    }
  }

  const TrafficKernel& kernel_;
  const TrafficArea area_;
  std::uint64_t at_;  // in groups
  std::uint64_t left_;
};

Status check_layer(std::span<const std::byte> memory, const LayerWork& work, const CpuSet& cpus) {
  if (cpus.empty()) return fail(ErrorCode::invalid, "no CPU to run on; give one for each thread");
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (work.bytes > 0_B && (memory.size() < 4096 || address % kLine != 0)) {
    return fail(ErrorCode::invalid,
                "{} bytes of memory at an address that is {} beyond a line; give 4096 or more, "
                "from the beginning of a line",
                memory.size(), address % kLine);
  }
  return {};
}

}  // namespace

Status fill_random(std::span<std::byte> memory, std::uint64_t seed, const CpuSet& cpus) {
  if (cpus.empty()) return fail(ErrorCode::invalid, "no CPU to run on; give one for each thread");
  // Each word depends only on its position, so the bytes do not depend on the number of threads.
  constexpr std::uint64_t kRun = 4096;
  const std::uint64_t runs = (memory.size() + kRun - 1) / kRun;
  return run_pinned(cpus, [&](std::size_t i) {
    const std::uint64_t end = runs * (i + 1) / cpus.size();
    for (std::uint64_t run = runs * i / cpus.size(); run < end; ++run) {
      Random random(seed * 0x9e3779b97f4a7c15 + run);
      auto part = memory.subspan(run * kRun);
      part = part.first(std::min<std::size_t>(part.size(), kRun));
      for (std::size_t at = 0; at < part.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        const std::size_t size = std::min(part.size() - at, sizeof word);
        std::ranges::copy(std::as_bytes(std::span(&word, 1)).first(size), part.data() + at);
      }
    }
  });
}

Result<LayerRun> run_layer(std::span<const std::byte> memory, const LayerWork& work,
                           const CpuSet& cpus) {
  HEADRACE_TRY_STATUS(check_layer(memory, work, cpus));
  static const TrafficKernel kernel(*find_mix("read"));
  const std::uint64_t group = kernel.lines_per_round() * kLine;
  const std::uint64_t groups = work.bytes.value / group / cpus.size();
  const std::uint64_t all = std::max<std::uint64_t>(1, memory.size() / group);
  std::vector<LayerPart> parts;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    parts.emplace_back(kernel, memory, (work.from / group + groups * i) % all, groups);
  }
  std::vector<Nanoseconds> begin(cpus.size());
  std::vector<Nanoseconds> end(cpus.size());
  HEADRACE_TRY(const double share, run_together(cpus, [&](std::size_t i) {
                 LayerPart mine = parts[i];
                 begin[i] = system_clock().now();
                 mine.run(work.operations / cpus.size());
                 end[i] = system_clock().now();
                 parts[i].lines = mine.lines;
                 parts[i].multiplied = mine.multiplied;
               }));
  LayerRun run{.time = std::ranges::max(end) - std::ranges::min(begin), .cpu_share = share};
  for (const LayerPart& part : parts) {
    run.bytes += Bytes{part.lines * kLine};
    run.operations += part.multiplied;
  }
  return run;
}

}  // namespace headrace
