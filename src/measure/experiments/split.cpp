// SPDX-License-Identifier: Apache-2.0
// Reads split over two memories by ratio: the result of weighted interleaving of their pages.
//
// All CPUs of a node read, each its own part of a buffer in either memory. A turn reads some pages
// of the one, then some of the other, as a program does that walks over memory interleaved with
// these weights. A turn ends when the slower memory has delivered its share. The maximum is reached
// where both are always busy, near the ratio of their separate rates (1:0 and 0:1). `share` is the
// share of bytes from the other memory.
//
// The loop is the fastest reader of the first memory (traffic_race.h), the same for all ratios; the
// row's `kernel` names it. With several streams, each stream reads its pages of the one and then of
// the other at its own place in both, so a turn is as many turns as there are streams.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/lockstep.h"
#include "measure/instruments/traffic/traffic_race.h"
#include "measure/instruments/worker_pool.h"
#include "memory/memory.h"
#include "place/place.h"

namespace headrace::experiment_split {

using namespace session;

namespace {

constexpr std::string_view kName = "split";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node},          {"memory_node", ParameterKind::node},
    {"other_memory_node", ParameterKind::node}, {"ratio", ParameterKind::word},
    {"threads", ParameterKind::count},
};
constexpr std::string_view kDetails[] = {"share"};

// Pages of each memory per turn.
struct Ratio {
  std::size_t one = 0;
  std::size_t other = 0;

  std::string name() const { return fmt::format("{}:{}", one, other); }
};
constexpr Ratio kRatios[] = {{1, 0}, {8, 1}, {4, 1}, {3, 1}, {2, 1}, {1, 1},
                             {1, 2}, {1, 3}, {1, 4}, {1, 8}, {0, 1}};

constexpr Bytes kLeastPerReader = 16_MiB;
// Has pages for eight streams of a reader.
constexpr std::uint64_t kLeastPagesOfReader = 16;
constexpr Nanoseconds kReadTime = std::chrono::milliseconds{20};
// Per reading of the clock: about 10 us.
constexpr std::size_t kPagesPerReading = 64;

// One thread's part of one memory, read page by page, one per stream, in a cycle.
class Pages {
 public:
  Pages(const TrafficKernel& kernel, const TrafficArea& area)
      : kernel_(kernel),
        area_(area),
        page_(base_page().value / kLine * kernel.shape().streams / kernel.lines_per_round()),
        rounds_(kernel.rounds(area)) {}

  // Returns the lines read.
  std::size_t read(std::size_t pages) {
    std::size_t lines = 0;
    for (; pages > 0; --pages) {
      if (at_ + page_ > rounds_) at_ = 0;
      lines += kernel_.run(area_, at_, page_);
      at_ += page_;
    }
    return lines;
  }

 private:
  const TrafficKernel& kernel_;
  const TrafficArea area_;
  const std::size_t page_;  // in rounds
  const std::size_t rounds_;
  std::size_t at_ = 0;
};

class Split final : public Probe {
 public:
  Split(CpuSet cpus, Ratio ratio, const TrafficKernel& kernel, const std::vector<TrafficArea>& one,
        const std::vector<TrafficArea>& other)
      : kernel_(kernel), cpus_(std::move(cpus)), ratio_(ratio) {
    for (std::size_t i = 0; i < cpus_.size(); ++i) {
      parts_.push_back({Pages(kernel_, one[i]), Pages(kernel_, other[i])});
    }
  }

  Result<Sample> sample() override {
    std::vector<PagesRead> read(cpus_.size());
    CommonEnd end(cpus_.size());
    HEADRACE_TRY(const double cpu_share,
                 run_together(cpus_, [&](std::size_t i) { read[i] = walk(parts_[i], end); }));
    double rate = 0;
    std::array<double, 2> lines{};
    for (const PagesRead& each : read) {
      rate += each.timed.done / each.timed.seconds;
      for (std::size_t i = 0; i < lines.size(); ++i) lines[i] += static_cast<double>(each.lines[i]);
    }
    return Sample{.value = rate * kLine,
                  .details = {{"share", lines[1] / (lines[0] + lines[1])}},
                  .words = {{"kernel", kernel_.name()}},
                  .cpu_share = cpu_share};
  }

 private:
  struct PagesRead {
    std::array<std::size_t, 2> lines{};  // per memory, until the end of all
    CommonEnd::Timed timed;              // in lines
  };

  PagesRead walk(std::array<Pages, 2>& own, CommonEnd& end) const {
    const std::size_t pages = (ratio_.one + ratio_.other) * kernel_.shape().streams;
    const std::size_t turns = std::max<std::size_t>(1, kPagesPerReading / pages);
    PagesRead read;
    read.timed = end.work(kReadTime, [&] {
      const std::size_t before = read.lines[0] + read.lines[1];
      for (std::size_t turn = 0; turn < turns; ++turn) {
        read.lines[0] += own[0].read(ratio_.one);
        read.lines[1] += own[1].read(ratio_.other);
      }
      return static_cast<double>(read.lines[0] + read.lines[1] - before);
    });
    return read;
  }

  const TrafficKernel kernel_;
  const CpuSet cpus_;
  const Ratio ratio_;
  std::vector<std::array<Pages, 2>> parts_;
};

struct SplitSetting {
  const Node* cpu_node = nullptr;
  const Node* one = nullptr;
  const Node* other = nullptr;
  CpuSet cpus = {};
  Ratio ratio = {};
};

// First memories of two kinds, and the ratios of most interest.
unsigned rank_of(const SplitSetting& setting) {
  const std::size_t most = std::max(setting.ratio.one, setting.ratio.other);
  const bool usual = most == 1 || most == 3;
  return (usual ? 2 : 3) + (setting.one->kind == setting.other->kind ? 1 : 0);
}

Point split_point(const Scope& scope, const SplitSetting& setting) {
  const Machine& machine = scope.machine;
  Point point;
  point.row = make_row(kName, kParameters,
                       {id_of(setting.cpu_node), id_of(setting.one), id_of(setting.other),
                        setting.ratio.name(), std::uint64_t{setting.cpus.size()}},
                       "B/s");
  point.row.cpus = to_string(setting.cpus);
  point.rank = rank_of(setting);
  point.memory = {setting.one->id, PageSize::transparent};
  const Bytes wanted = past_caches(point.row, machine, setting.cpus, kCachesPassed,
                                   kLeastPerReader * setting.cpus.size());
  const Bytes one = fit(point.row, *setting.one, wanted);
  const Bytes other = fit(point.row, *setting.other, wanted);
  point.cost = 4 * kReadTime;
  point.setup = {.name = fmt::format("split {}", raw(setting.other->id)),
                 .cost = touching(one + other, setting.cpus.size())};
  const Mix& mix = *find_mix("read");
  const std::string ground = ground_of(machine, *setting.cpu_node, *setting.one);
  point.races = {race_of(mix, setting.cpus.size(), ground)};
  point.prepare = [key = point.memory, setting, one, other, &mix, ground, races = scope.races](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    const std::size_t readers = setting.cpus.size();
    HEADRACE_TRY(const auto first, buffers.get(key, 0, one));
    HEADRACE_TRY(const auto second,
                 buffers.get({setting.other->id, PageSize::transparent}, 0, other));
    const std::uint64_t least = kLeastPagesOfReader * base_page().value;
    if (std::min(first.size(), second.size()) / readers < least) {
      return fail(ErrorCode::exhausted, "a node is too small for {} threads", readers);
    }
    const auto parts = divide(mix, equal_parts(first, readers));
    HEADRACE_TRY(const Shape shape, races->fastest(mix, setting.cpus, ground, parts));
    return std::make_unique<Split>(setting.cpus, setting.ratio, TrafficKernel(mix, shape), parts,
                                   divide(mix, equal_parts(second, readers)));
  };
  return point;
}

// Whether rows with this node may be requested: sixteen nodes have many pairs.
bool may_be_asked(const Scope& scope, const std::string& parameter, const Node& node) {
  const std::vector<std::uint64_t> numbers = scope.numbers(parameter);
  return numbers.empty() || !scope.words(parameter).empty() ||
         std::ranges::find(numbers, raw(node.id)) != numbers.end();
}

// Pairs of memories for the CPUs of `cpu_node`: the nearest memory with the nearest of each other
// kind and with the nearest other of its own kind; all pairs if a memory is requested.
std::vector<std::pair<const Node*, const Node*>> pairs_of(const Scope& scope,
                                                          const Node& cpu_node) {
  std::vector<std::pair<const Node*, const Node*>> pairs;
  const std::vector<const Node*> all = memory_nodes(scope.machine);
  if (scope.asks("memory_node") || scope.asks("other_memory_node")) {
    for (const Node* one : all) {
      if (!may_be_asked(scope, "memory_node", *one)) continue;
      for (const Node* other : all) {
        if (one == other || !may_be_asked(scope, "other_memory_node", *other)) continue;
        pairs.emplace_back(one, other);
      }
    }
    return pairs;
  }
  const std::vector<const Node*> near = one_of_each_kind(scope.machine, cpu_node);
  if (near.empty()) return pairs;
  for (const Node* other : near) {
    if (other != near.front()) pairs.emplace_back(near.front(), other);
  }
  std::vector<const Node*> alike = all;
  std::erase_if(alike, [&](const Node* other) {
    return other == near.front() || other->kind != near.front()->kind;
  });
  const auto in_order = memory_of(scope.machine, {.cpus = {}, .homes = {cpu_node.id}},
                                  near.front()->kind, TeamMemory::interleave);
  if (alike.empty() || !in_order) return pairs;
  const auto nearest = std::ranges::min_element(alike, {}, [&](const Node* other) {
    return std::ranges::find(*in_order, other->id) - in_order->begin();
  });
  pairs.emplace_back(near.front(), *nearest);
  return pairs;
}

std::vector<Point> list_points(const Scope& scope) {
  std::vector<Point> points;
  if (memory_nodes(scope.machine).size() < 2) {
    points.push_back(without({.experiment = std::string(kName)},
                             "one memory node has no other to split reads with"));
    return points;
  }
  for (const Node* cpu_node : nodes_with_cpus(scope.machine)) {
    if (!may_be_asked(scope, "cpu_node", *cpu_node)) continue;
    for (const auto& [one, other] : pairs_of(scope, *cpu_node)) {
      for (const Ratio& ratio : kRatios) {
        points.push_back(split_point(scope, {cpu_node, one, other, usable_cpus(cpu_node), ratio}));
      }
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{
    kName,       "reads split over two memories by ratio, as interleaving does",
    kParameters, kDetails,
    list_points, 1,
    true};

}  // namespace headrace::experiment_split
