// SPDX-License-Identifier: Apache-2.0
#include "place/advice/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/fail.h"

namespace headrace {
namespace {

// Rows of the experiment `loaded`, and those of presets from many third-party runs
// (docs/design/published.md), which have priority.
constexpr std::string_view kLoaded = "loaded";
constexpr std::string_view kLeast = "loaded_least";

// The load is on the observed memory, by CPUs of the observer's node.
struct Place {
  NodeId cpu_node;
  NodeId memory_node;
  friend auto operator<=>(const Place&, const Place&) = default;
};

std::optional<Place> place_of(const Row& row) {
  const bool least = row.experiment == kLeast;
  if ((!least && row.experiment != kLoaded) || !row.value) return {};
  const auto* cpu = row.number("cpu_node");
  const auto* memory = row.number("memory_node");
  if (cpu == nullptr || memory == nullptr || row.word("mix").empty()) return {};
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (*cpu > kMost || *memory > kMost) return {};
  if (!least) {
    const auto* traffic_cpu = row.number("traffic_cpu_node");
    const auto* traffic_memory = row.number("traffic_memory_node");
    if (traffic_cpu == nullptr || traffic_memory == nullptr) return {};
    if (*traffic_cpu != *cpu || *traffic_memory != *memory) return {};
  }
  return Place{static_cast<NodeId>(*cpu), static_cast<NodeId>(*memory)};
}

struct MeasuredMix {
  MixTraffic traffic;
  std::string name;
  std::vector<LoadedPoint> points;
  MemoryCurve curve;
  bool least = false;
};

void add(MeasuredMix& mix, const Row& row) {
  const bool least = row.experiment == kLeast;
  if (mix.least && !least) return;
  if (least && !mix.least) mix = MeasuredMix{.traffic = mix.traffic, .name = mix.name};
  mix.least = least;
  const auto bus = row.details.find("bus"), program = row.details.find("bandwidth");
  double bandwidth = 0;
  if (bus != row.details.end()) {
    bandwidth = bus->second;
  } else if (program != row.details.end()) {
    bandwidth = program->second * mix.traffic.bus;
  }
  if (bus == row.details.end() && program == row.details.end()) return;
  mix.points.push_back({bandwidth, row.value->median});
  mix.curve.basis = row.basis;
  mix.curve.source = row.source;
  mix.curve.fitted |= row.has_flag("fitted");
  mix.curve.noisy |= row.has_flag("noisy");
  mix.curve.few |= row.has_flag("few");
}

using ByMemory = std::map<NodeId, std::vector<MeasuredMix>>;

Result<ByMemory> mixes_of(const Profile& profile, NodeId cpu_node) {
  ByMemory found;
  for (const Row& row : profile.rows) {
    const auto place = place_of(row);
    if (!place || place->cpu_node != cpu_node) continue;
    const auto traffic = mix_traffic(row.word("mix"));
    if (!traffic) continue;
    auto& mixes = found[place->memory_node];
    auto mix = std::ranges::find(mixes, row.word("mix"), &MeasuredMix::name);
    if (mix == mixes.end()) {
      mixes.push_back({.traffic = *traffic, .name = std::string(row.word("mix"))});
      mix = std::prev(mixes.end());
    }
    add(*mix, row);
  }
  for (auto& [node, mixes] : found) {
    std::erase_if(mixes, [](const MeasuredMix& mix) { return mix.points.empty(); });
    for (MeasuredMix& mix : mixes) {
      mix.curve.node = node;
      auto curve = LoadedCurve::of(mix.points);
      if (!curve) {
        return fail(curve.error().code, "node {}, mix {}: {}", raw(node), mix.name,
                    curve.error().message);
      }
      mix.curve.curve = *std::move(curve);
    }
    std::ranges::stable_sort(mixes, {}, [](const auto& mix) { return mix.traffic.write_share; });
  }
  std::erase_if(found, [](const auto& each) { return each.second.empty(); });
  return found;
}

// Interpolates between two curves, `part` of the way, at equal shares of their best.
LoadedCurve between(const LoadedCurve& from, const LoadedCurve& to, double part) {
  std::set<double> used;
  for (const LoadedPoint& point : from.points()) used.insert(point.bandwidth / from.best());
  for (const LoadedPoint& point : to.points()) used.insert(point.bandwidth / to.best());
  const double best = std::lerp(from.best(), to.best(), part);
  std::vector<LoadedPoint> points;
  for (const double share : used) {
    const double latency_ns =
        std::lerp(from.latency(share * from.best()), to.latency(share * to.best()), part);
    points.push_back({share * best, latency_ns});
  }
  return *LoadedCurve::of(std::move(points));
}

std::optional<MemoryCurve> curve_at(std::span<const MeasuredMix> mixes, std::string_view name,
                                    double write_share) {
  const auto equal = std::ranges::find(mixes, name, &MeasuredMix::name);
  if (equal != mixes.end()) return equal->curve;
  const MeasuredMix *below = nullptr, *above = nullptr;
  for (const MeasuredMix& mix : mixes) {
    if (mix.name == "nt_write" || name == "nt_write") continue;  // other stores have another curve
    if (mix.traffic.write_share <= write_share + 1e-9) below = &mix;
    if (mix.traffic.write_share >= write_share - 1e-9 && above == nullptr) above = &mix;
  }
  if (below == nullptr || above == nullptr) return std::nullopt;
  if (below == above) return below->curve;
  const double from = below->traffic.write_share, to = above->traffic.write_share;
  MemoryCurve curve = below->curve;
  curve.curve = between(below->curve.curve, above->curve.curve, (write_share - from) / (to - from));
  curve.fitted |= above->curve.fitted;
  curve.noisy |= above->curve.noisy;
  curve.few |= above->curve.few;
  curve.between = fmt::format("{} and {}", below->name, above->name);
  return curve;
}

}  // namespace

Result<MixTraffic> mix_traffic(std::string_view mix) {
  if (mix == "read") return MixTraffic{0, 1};
  if (mix == "write") return MixTraffic{0.5, 2};
  if (mix == "nt_write") return MixTraffic{1, 1};
  unsigned reads = 0, writes = 0;
  const char *begin = mix.data(), *end = begin + mix.size();
  const auto [colon, error] = std::from_chars(begin, end, reads);
  if (error == std::errc{} && colon != end && *colon == ':') {
    const auto [rest, second] = std::from_chars(colon + 1, end, writes);
    const bool sane = reads <= 1000 && writes <= 1000 && reads + writes > 0;
    if (second == std::errc{} && rest == end && sane) {
      const double r = reads, w = writes;
      return MixTraffic{w / (r + 2 * w), (r + 2 * w) / (r + w)};
    }
  }
  return fail(ErrorCode::invalid,
              "'{}' is no mix; write read, write, nt_write, or loads to stores as 2:1",
              mix.substr(0, 40));
}

std::vector<std::pair<NodeId, std::size_t>> observers(const Profile& profile) {
  std::map<NodeId, std::set<NodeId>> memories;
  for (const Row& row : profile.rows) {
    const auto place = place_of(row);
    if (place) memories[place->cpu_node].insert(place->memory_node);
  }
  std::vector<std::pair<NodeId, std::size_t>> found;
  for (const auto& [node, seen] : memories) found.emplace_back(node, seen.size());
  return found;
}

Result<MemoryCurves> memory_curves(const Profile& profile, NodeId cpu_node, std::string_view mix) {
  HEADRACE_TRY(const MixTraffic traffic, mix_traffic(mix));
  MemoryCurves curves;
  HEADRACE_TRY(const ByMemory by_memory, mixes_of(profile, cpu_node));
  for (const auto& [node, mixes] : by_memory) {
    auto curve = curve_at(mixes, mix, traffic.write_share);
    if (curve) {
      curves.found.push_back(*std::move(curve));
      continue;
    }
    std::string names;
    for (const MeasuredMix& each : mixes) names += (names.empty() ? "" : ", ") + each.name;
    curves.left_out.push_back({node, std::move(names)});
  }
  return curves;
}

}  // namespace headrace
