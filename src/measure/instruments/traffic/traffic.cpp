// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/traffic.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "core/check.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic/kernels_traffic.h"
#include "memory/memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::instruments {
namespace {

// Unit of a mix's read and write parts: the smallest page.
constexpr std::size_t kUnit = 4096;

unsigned no_wider(unsigned bits) {
  const auto widths = vector_widths();
  const auto found = std::ranges::find_if(widths, [&](unsigned each) { return each <= bits; });
  return bits == 0 || found == widths.end() ? widths.front() : *found;
}

std::string_view width_name([[maybe_unused]] unsigned bits) {
#if defined(__x86_64__)
  return bits == 512 ? "avx512" : bits == 256 ? "avx2" : "sse";
#else
  return "neon";
#endif
}

using Ratios = std::map<std::string, Mix, std::less<>>;

// All mixes without loops of their own, by name.
const Ratios& ratios() {
  static const Ratios all = [] {
    Ratios made;
    for (unsigned reads = 1; reads < kMostLines; ++reads) {
      for (unsigned writes = 1; reads + writes <= kMostLines; ++writes) {
        if (std::gcd(reads, writes) > 1) continue;
        for (const bool around : {false, true}) {
          const std::string name = fmt::format("{}{}:{}", around ? "nt_" : "", reads, writes);
          if (std::ranges::find(kMixes, name, &Mix::name) != std::end(kMixes)) continue;
          const auto at = made.emplace(name, Mix{}).first;
          at->second = {
              .name = at->first, .reads = reads, .writes = writes, .non_temporal = around};
        }
      }
    }
    return made;
  }();
  return all;
}

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

const Mix* find_mix(std::string_view name) {
  const auto found = std::ranges::find(kMixes, name, &Mix::name);
  if (found != std::end(kMixes)) return &*found;
  const Ratios& all = ratios();
  const auto ratio = all.find(name);
  return ratio == all.end() ? nullptr : &ratio->second;
}

std::vector<const Mix*> mixes_by_share() {
  constexpr std::array<const char*, 9> kTenths = {"9:1", "4:1", "7:3", "3:2", "1:1",
                                                  "2:3", "3:7", "1:4", "1:9"};
  std::vector<const Mix*> found{find_mix("read")};
  for (const char* const stores : {"", "nt_"}) {
    for (const char* const tenths : kTenths) {
      found.push_back(find_mix(std::string(stores) + tenths));
    }
    found.push_back(find_mix(std::string(stores) + "write"));
  }
  return found;
}

TrafficArea divide(const Mix& mix, std::span<std::byte> memory) {
  const std::size_t pages = memory.size() / kUnit;
  const std::size_t read_bytes = pages * mix.reads / mix.lines() * kUnit;
  const std::size_t write_bytes = pages * mix.writes / mix.lines() * kUnit;
  return {.from = memory.first(read_bytes), .to = memory.subspan(read_bytes, write_bytes)};
}

std::vector<TrafficArea> divide(const Mix& mix, const std::vector<std::span<std::byte>>& parts) {
  std::vector<TrafficArea> areas;
  for (const auto& part : parts) areas.push_back(divide(mix, part));
  return areas;
}

std::vector<std::span<std::byte>> equal_parts(std::span<std::byte> memory, std::size_t count) {
  const std::size_t each = memory.size() / count / base_page().value * base_page().value;
  std::vector<std::span<std::byte>> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back(memory.subspan(i * each, each));
  return parts;
}

std::string Shape::name() const {
  return fmt::format("{} x {} stream{}{}", width_name(no_wider(bits)), streams,
                     streams == 1 ? "" : "s",
                     ahead == 0 ? "" : fmt::format(", prefetch {}", ahead));
}

TrafficKernel::TrafficKernel(const Mix& mix, Shape shape) : mix_(&mix), shape_(shape) {
  CHECK(shape.streams > 0);
  const auto at = std::ranges::find(kMixes, mix.name, &Mix::name) - std::begin(kMixes);
  shape_.bits = no_wider(shape.bits);
  loop_ = static_cast<std::size_t>(at) < std::size(kMixes)
              ? traffic_loop(static_cast<std::size_t>(at), shape_.bits, shape_.ahead > 0)
              : block_loop(mix.non_temporal, shape_.bits, shape_.ahead > 0);
}

std::string TrafficKernel::name() const {
#if defined(__aarch64__)
  if (mix_->non_temporal) return shape_.name() + ", stnp";
#endif
  return shape_.name();
}

std::size_t TrafficKernel::rounds(const TrafficArea& area) const {
  const std::size_t n = mixes_per_group(*mix_);
  std::size_t groups = SIZE_MAX;
  if (mix_->reads > 0) groups = area.from.size() / (kLine * n * mix_->reads);
  if (mix_->writes > 0) groups = std::min(groups, area.to.size() / (kLine * n * mix_->writes));
  const std::size_t each = groups / shape_.streams;
  // Streams at a power-of-two distance would meet in the same sets of the caches.
  return shape_.streams > 1 && each > 1 && each % 2 == 0 ? each - 1 : each;
}

std::size_t TrafficKernel::lines_per_round() const {
  return mix_->lines() * std::size_t{mixes_per_group(*mix_)} * shape_.streams;
}

std::size_t TrafficKernel::run(const TrafficArea& area, std::size_t first,
                               std::size_t count) const {
  const std::size_t apart = rounds(area);
  DCHECK(first + count <= apart);
  const std::size_t read = kLine * mixes_per_group(*mix_) * mix_->reads;
  const std::size_t written = kLine * mixes_per_group(*mix_) * mix_->writes;
  loop_({.from = area.from.data() + first * read,
         .to = area.to.data() + first * written,
         .from_apart = apart * read,
         .to_apart = apart * written,
         .streams = shape_.streams,
         .rounds = count,
         .ahead = shape_.ahead,
         .read = read,
         .written = written});
  return count * lines_per_round();
}

void TrafficKernel::finish() const {
#if defined(__x86_64__)
  if (mix_->non_temporal) _mm_sfence();
#elif defined(__aarch64__)
  if (mix_->non_temporal) asm volatile("dsb ishst" ::: "memory");
#endif
}

}  // namespace headrace::instruments
