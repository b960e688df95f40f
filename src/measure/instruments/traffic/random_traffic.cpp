// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/random_traffic.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic/kernels_random.h"
#include "measure/instruments/traffic/kernels_traffic.h"
#include "memory/memory.h"

namespace headrace::instruments {

Bytes random_area(const Mix& mix, Bytes walked) {
  const auto up = [](std::uint64_t n, std::uint64_t by) { return (n + by - 1) / by; };
  const std::uint64_t page = base_page().value;
  const std::uint64_t share = up(up(walked.value, page), mix.lines());  // pages per line of the mix
  std::uint64_t most = 0;
  for (const std::uint64_t lines : {mix.reads, mix.writes}) {
    if (lines > 0) most = std::max(most, up(std::bit_ceil(share * lines), lines));
  }
  return Bytes{most * mix.lines() * page};
}

RandomTraffic::RandomTraffic(const Mix& mix, std::size_t block)
    : mix_(&mix), block_(block), loop_(random_loop(mix.non_temporal, vector_widths().front())) {
  CHECK(!mix.copies && block > 0 && block % kLine == 0);
}

std::string RandomTraffic::name() const {
  // The first word of the ordered loop's name: "avx512 x 1 stream".
  const std::string walking = TrafficKernel(*mix_).name();
  return fmt::format("{}, blocks of {} B in random order", walking.substr(0, walking.find(' ')),
                     block_);
}

std::size_t RandomTraffic::rounds(const TrafficArea& area) const {
  std::size_t rounds = SIZE_MAX;
  if (mix_->reads > 0) rounds = std::bit_floor(area.from.size() / block_) / mix_->reads;
  if (mix_->writes > 0) {
    rounds = std::min(rounds, std::bit_floor(area.to.size() / block_) / mix_->writes);
  }
  return rounds;
}

std::size_t RandomTraffic::lines_per_round() const { return mix_->lines() * (block_ / kLine); }

std::size_t RandomTraffic::run(const TrafficArea& area, std::size_t first,
                               std::size_t count) const {
  DCHECK(first + count <= rounds(area));
  const auto mask = [&](std::size_t bytes) {
    return std::max<std::size_t>(std::bit_floor(bytes / block_), 1) - 1;
  };
  loop_({.from = area.from.data(),
         .to = area.to.data(),
         .from_mask = mask(area.from.size()),
         .to_mask = mask(area.to.size()),
         .block = block_,
         .reads = mix_->reads,
         .writes = mix_->writes,
         .first = first,
         .count = count});
  return count * lines_per_round();
}

void RandomTraffic::finish() const { TrafficKernel(*mix_).finish(); }

}  // namespace headrace::instruments
