// Copying by cores as an experiment of a session: by engine, size, threads, pair of nodes, and
// whether the bytes are cached.
//
// The copies run on the node with CPUs nearest to the destination, as a route would have them.
// cold: each thread walks over pieces scattered in an area that passes the caches four times, so
// that neither side is cached; hot: the same two pieces again and again. The value is payload, each
// byte copied counted once. `headrace bench copy` measures the same loops interleaved engine by
// engine, for ratios; here they are points among others.
#include <algorithm>
#include <array>

#include "core/fail.h"
#include "headrace/placement.h"
#include "measure/copy_loop.h"
#include "measure/experiment.h"
#include "measure/team.h"

namespace headrace {
namespace {

constexpr Nanoseconds kCopyingTime = std::chrono::milliseconds{20};
// Copied between two looks at the clock.
constexpr Bytes kCopiedPerLook = 256_KiB;
constexpr std::array kCopySizes = {64_B,  1_KiB, 4_KiB,  16_KiB, 64_KiB,  256_KiB,
                                   1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB, 1_GiB};

struct CopySetting {
  std::string engine;
  const Node* cpu_node = nullptr;
  const Node* from = nullptr;
  const Node* to = nullptr;
  Bytes bytes;
  CpuSet cpus;
  bool cold = true;
};

class Copying final : public Probe {
 public:
  Copying(const CopyLoop& loop, const CopySetting& setting, std::span<std::byte> to,
          std::span<const std::byte> from)
      : loop_(loop), cpus_(setting.cpus), bytes_(setting.bytes.value) {
    const std::size_t each = to.size() / cpus_.size() / bytes_ * bytes_;
    for (std::size_t i = 0; i < cpus_.size(); ++i) {
      areas_.push_back({.to = to.subspan(i * each, each),
                        .from = from.subspan(i * each, each),
                        .walk = ScatteredWalk(each / bytes_),
                        .cold = setting.cold});
    }
  }

  Result<Sample> sample() override {
    std::vector<double> rates(cpus_.size());
    HEADRACE_TRY(const double share,
                 run_together(cpus_, [&](std::size_t i) { rates[i] = copy(areas_[i]); }));
    double rate = 0;
    for (const double each : rates) rate += each;
    return Sample{.value = rate, .details = {{"read_write", 2 * rate}}, .cpu_share = share};
  }

 private:
  double copy(CopyArea& area) const {
    const std::size_t times = std::max<std::size_t>(1, kCopiedPerLook.value / bytes_);
    Nanoseconds time{0};
    double copied = 0;
    while (time < kCopyingTime) {
      time += loop_.run(area, bytes_, times);
      copied += static_cast<double>(times * bytes_);
    }
    return copied / seconds(time);
  }

  const CopyLoop loop_;
  const CpuSet cpus_;
  const std::size_t bytes_;
  std::vector<CopyArea> areas_;
};

// Of all threads together, on each side; nothing where a node is too small for it.
std::optional<Bytes> area_for(const Machine& machine, const CopySetting& setting, Row& row) {
  const std::uint64_t threads = setting.cpus.size();
  const Bytes cache = cache_to_pass(machine, setting.cpus) / threads;
  const Bytes each = setting.cold ? cold_area(cache, setting.bytes) : setting.bytes;
  Bytes area = each * threads;
  for (const Node* node : {setting.from, setting.to}) area = fitting(*node, area);
  if (area / threads < setting.bytes) return std::nullopt;
  if (area < each * threads) row.flags.emplace_back("shrunk");
  return area;
}

Point copy_point(const Machine& machine, const CopySetting& setting, unsigned rank) {
  const auto id = [](const Node* node) { return std::uint64_t{raw(node->id)}; };
  Row row{.experiment = "copy",
          .parameters = {{"engine", setting.engine},
                         {"cpu_node", id(setting.cpu_node)},
                         {"from", id(setting.from)},
                         {"to", id(setting.to)},
                         {"bytes", setting.bytes.value},
                         {"threads", std::uint64_t{setting.cpus.size()}},
                         {"state", setting.cold ? "cold" : "hot"}},
          .unit = "B/s"};
  const auto area = area_for(machine, setting, row);
  if (!area) return without(std::move(row), "a node is too small for copies of this size");
  Point point;
  point.row = std::move(row);
  point.rank = rank;
  point.memory = {setting.to->id, PageSize::transparent};
  // Mapping both sides, some 3 GB/s, and three samples, of which each copies once at least.
  const auto ns = [](Bytes bytes, double per_ns) {
    return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(bytes.value) / per_ns)};
  };
  point.cost = kCopyingTime + ns(*area, 1.5) + 3 * std::max(kCopyingTime, ns(setting.bytes, 4));
  point.prepare = [setting, area = *area](Arenas& arenas,
                                          Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const CopyLoop loop, CopyLoop::find(setting.engine));
    HEADRACE_TRY(const auto to, arenas.get({setting.to->id, PageSize::transparent}, 0, area));
    HEADRACE_TRY(const auto from, arenas.get({setting.from->id, PageSize::transparent}, 1, area));
    return std::make_unique<Copying>(loop, setting, to, from);
  };
  return point;
}

// Between nodes that nobody asked for only the engines that programs get, one thread and all.
void add_pair(std::vector<Point>& points, const Scope& scope, CopySetting setting, bool all) {
  const CpuSet cpus = usable_cpus(setting.cpu_node);
  const bool local = setting.from == setting.to;
  for (const std::string& engine : CopyLoop::all()) {
    const bool usual = engine == "memcpy" || engine == "cpu";
    if (!usual && !all) continue;
    setting.engine = engine;
    for (const Bytes bytes : kCopySizes) {
      setting.bytes = bytes;
      for (const bool cold : {true, false}) {
        setting.cold = cold;
        if (!cold && !all) continue;
        const bool wanted = usual && cold && bytes >= 64_KiB && bytes <= 64_MiB;
        const unsigned rank = wanted ? (local ? 2 : 3) : 4;
        for (const std::size_t threads : team_sizes(cpus.size())) {
          if (!all && threads > 1 && threads < cpus.size()) continue;
          const CpuSet team(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(threads));
          // What does not fit into the caches of the team, both sides of all, is never hot.
          if (!cold && bytes * 4 * team.size() > cache_to_pass(scope.machine, team)) continue;
          setting.cpus = team;
          points.push_back(copy_point(scope.machine, setting, rank));
        }
      }
    }
  }
}

}  // namespace

std::vector<Point> copy_points(const Scope& scope) {
  const bool asked = scope.asks("from") || scope.asks("to");
  std::vector<Point> points;
  for (const Node* from : memory_nodes(scope.machine)) {
    for (const Node* to : memory_nodes(scope.machine)) {
      const Node* const cpu_node = host_of(scope.machine, *to);
      if (cpu_node == nullptr || usable_cpus(cpu_node).empty()) continue;
      add_pair(points, scope, {.cpu_node = cpu_node, .from = from, .to = to}, asked || from == to);
    }
  }
  return points;
}

}  // namespace headrace
