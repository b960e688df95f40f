// Copies by the DSA devices of this host, of which a row says how they are handed over, by how many
// threads, through which queue, by which devices and beside what.
//
// The points are those of `headrace bench dsa`; what it measures of cores alone is not among them:
// `copy` has it. The value is payload per second, in the part `interference` that of the first
// thread, in its rows with method=stream that of STREAM. The detail `mapped` says whether copies
// went through the mapped portal (1) or by write() (0). Nothing here is modelled: where there is no
// device, a row says why.
#include "measure/dsa_profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/fail.h"
#include "measure/dsa_beside.h"
#include "measure/dsa_points.h"

namespace headrace {
namespace {

// What one device moves, about (docs/design/dsa-rates.md), what touching memory does, and how long
// one hand-over takes at most, in bytes and nanoseconds.
constexpr double kDevicePerNs = 30;
constexpr double kTouchedPerNs = 3;
constexpr double kHandOverNs = 1000;
// Of a sample beside STREAM: its window, the settling before it, and mapping STREAM's arrays.
constexpr Nanoseconds kSampleBesideStream = std::chrono::milliseconds{400};

// Lanes and memory are kept for all samples.
class DsaCopies final : public Probe {
 public:
  DsaCopies(const DsaPoint& point, DsaTeam team) : point_(point), team_(std::move(team)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY(const DsaTimes times, team_.round());
    return Sample{.value = rate_of(point_, times).value,
                  .details = {{"mapped", times.portal == "write()" ? 0.0 : 1.0}},
                  .cpu_share = times.cpu_share};
  }

 private:
  const DsaPoint& point_;
  DsaTeam team_;
};

class DsaBesideStream final : public Probe {
 public:
  DsaBesideStream(const DsaHost& host, const DsaPoint& point) : host_(host), point_(point) {}

  Result<Sample> sample() override {
    HEADRACE_TRY(const auto rates, run_beside_stream(host_, point_, 1));
    return Sample{.value = rates.front()};
  }

 private:
  const DsaHost& host_;
  const DsaPoint& point_;
};

Row profile_row(const DsaRow& row) {
  Row made{.experiment = "dsa",
           .parameters = {{"part", row.experiment},
                          {"method", row.method},
                          {"bytes", row.bytes.value},
                          {"threads", std::uint64_t{row.threads}},
                          {"at_once", std::uint64_t{row.at_once}},
                          {"window", std::uint64_t{row.window}}},
           .unit = "B/s",
           .reason = row.reason};
  const auto add = [&](const char* name, ParameterValue value) {
    made.parameters.emplace_back(name, std::move(value));
  };
  add("from", std::uint64_t{raw(*row.from)});
  add("to", std::uint64_t{raw(*row.to)});
  add("route", row.route);
  add("engines", fmt::format("{}", fmt::join(row.engines, " ")));
  add("queue", row.queue);
  if (row.group_engines) {
    add("group_engines", std::uint64_t{*row.group_engines});
  } else {
    add("group_engines", "any");
  }
  add("beside", row.beside.empty() ? "nothing" : row.beside);
  return made;
}

// How copies are best handed over is wanted first; queues configured otherwise are most likely not
// there, and large copies say no more than those of 1 MiB.
unsigned rank_of(const DsaPoint& point) {
  const DsaRow& row = point.row;
  if (point.kind == DsaPoint::Kind::stream || row.experiment == "route") return 3;
  if (row.experiment == "queue" || row.bytes > 1_MiB) return 4;
  if (row.experiment != "submission") return 2;
  return row.bytes == 4_KiB || row.bytes == 1_MiB ? 1 : 3;
}

Nanoseconds cost_of(const DsaPoint& point) {
  if (point.kind == DsaPoint::Kind::stream) return 3 * kSampleBesideStream;
  double moved = 0, touched = 0, handed_over = 0;
  for (const DsaThread& thread : point.threads) {
    const double bytes = static_cast<double>(thread.bytes.value);
    const double copies = static_cast<double>(thread.copies);
    moved += bytes * copies;
    touched += 2 * bytes * static_cast<double>(copies_of_area(thread));
    handed_over = std::max(handed_over, copies);
  }
  const double devices = static_cast<double>(point.row.engines.size());
  const double sample = moved / (kDevicePerNs * devices) + handed_over * kHandOverNs;
  return Nanoseconds{static_cast<std::int64_t>(touched / kTouchedPerNs + 3 * sample)};
}

// Buffers are kept from point to point, and others need room beside them.
bool has_room(const Machine& machine, const DsaPoint& point) {
  std::map<NodeId, Bytes> wanted;
  for (const DsaThread& thread : point.threads) {
    const Bytes bytes = thread.bytes * copies_of_area(thread);
    wanted[thread.from] += bytes;
    wanted[thread.to] += bytes;
  }
  return std::ranges::all_of(wanted, [&](const auto& each) {
    const Node* node = machine.find(each.first);
    return node == nullptr || fitting(*node, each.second) == each.second;
  });
}

Point profile_point(const std::shared_ptr<const DsaHost>& host, DsaPoint of) {
  Point point{.row = profile_row(of.row)};
  if (of.kind == DsaPoint::Kind::nothing) return point;
  if (!has_room(host->machine(), of)) {
    return without(std::move(point.row), "a node is too small for copies of this size");
  }
  point.rank = rank_of(of);
  point.cost = cost_of(of);
  point.memory = {of.threads.front().from};
  // The probe lives shorter than the point.
  point.prepare = [host, of = std::make_shared<const DsaPoint>(std::move(of))](
                      Arenas& arenas, Random&) -> Result<std::unique_ptr<Probe>> {
    if (of->kind == DsaPoint::Kind::stream) return std::make_unique<DsaBesideStream>(*host, *of);
    HEADRACE_TRY(DsaTeam team, host->prepare(of->threads, of->shape, arenas));
    return std::make_unique<DsaCopies>(*of, std::move(team));
  };
  return point;
}

}  // namespace

std::vector<Point> dsa_points_on(std::shared_ptr<const DsaHost> host) {
  const DsaScope scope{.machine = host->machine(), .engines = host->engines()};
  std::vector<Point> points;
  for (const DsaExperiment& each : all_dsa_experiments()) {
    if (each.name == "cpu") continue;
    for (DsaPoint& point : each.points(scope)) {
      points.push_back(profile_point(host, std::move(point)));
    }
  }
  return points;
}

std::vector<Point> dsa_points(const Scope& scope) {
  auto found = find_dsa_host(scope.machine);
  if (!found) return {without({.experiment = "dsa", .unit = "B/s"}, found.error().message)};
  return dsa_points_on(std::make_shared<DsaHost>(scope.machine, *std::move(found)));
}

}  // namespace headrace
