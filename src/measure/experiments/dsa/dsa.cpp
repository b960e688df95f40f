// SPDX-License-Identifier: Apache-2.0
// Copies by DSA devices: a row says how they are submitted, by how many threads, through which
// queue, by which devices, and what else runs at the same time.
//
// `headrace bench dsa` is a session of these points, on devices; a profile
// has those of devices. The part `cpu`, where cores copy the same, is listed where it is asked for:
// `copy` says more of cores. The value is payload per second, in the part `interference` that of
// the first thread, in its rows with method=stream that of STREAM. The detail `copies` counts those
// of all threads; `mapped` says whether they went through the mapped portal (1) or by write() (0).
// The threads that submit and wait spend `cpu_s_per_gb` on 10^9 bytes. Where there is no device,
// one row says why: a missing device is one fact.
#include "measure/experiments/dsa/dsa.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/fail.h"
#include "measure/experiments/dsa/host.h"
#include "measure/experiments/dsa/points.h"

namespace headrace::experiment_dsa {

using namespace session;

namespace {

// Approximate rates of one device (docs/design/dsa-rates.md) and of touching memory, in bytes per
// nanosecond, and the longest time of one submission.
constexpr double kDevicePerNs = 30;
constexpr double kTouchedPerNs = 3;
constexpr double kSubmissionNs = 1000;
// A sample taken while STREAM runs: its window, the settling before it, and mapping STREAM's
// arrays.
constexpr Nanoseconds kSampleWithStream = std::chrono::milliseconds{400};

// Lanes and memory are kept for all samples.
class DsaCopies final : public Probe {
 public:
  DsaCopies(const DsaPoint& point, std::unique_ptr<DsaRun> run)
      : point_(point), run_(std::move(run)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY(const DsaTimes times, run_->round());
    Sample sample{.value = rate_of(point_, times).value,
                  .details = {{"mapped", times.mapped ? 1.0 : 0.0}},
                  .cpu_share = times.cpu_share};
    if (!times.cpu_seconds) return sample;
    double bytes = 0;
    for (const DsaThread& thread : point_.threads) {
      bytes += static_cast<double>(thread.bytes.value) * static_cast<double>(thread.copies);
    }
    sample.details["cpu_s_per_gb"] = *times.cpu_seconds / bytes * 1e9;
    return sample;
  }

 private:
  const DsaPoint& point_;
  const std::unique_ptr<DsaRun> run_;
};

class DsaWithStream final : public Probe {
 public:
  DsaWithStream(WithStream rate, const DsaPoint& point) : rate_(std::move(rate)), point_(point) {}

  Result<Sample> sample() override {
    const DsaThread& thread = point_.threads.front();
    HEADRACE_TRY(const double rate, rate_(thread, point_.shape, point_.of_stream));
    return Sample{.value = rate};
  }

 private:
  const WithStream rate_;
  const DsaPoint& point_;
};

// The rank of a point: the ways of submission come first. Points with other queues come late, since
// such queues rarely exist, and so do large copies, which show no more than 1 MiB.
unsigned rank_of(const DsaPoint& point) {
  const std::string_view part = point.row.word("part");
  const Bytes bytes{*point.row.number("bytes")};
  if (point.kind == DsaPoint::Kind::stream || part == "route") return 3;
  if (part == "queue" || bytes > 1_MiB) return 4;
  if (part != "submission") return 2;
  return bytes == 4_KiB || bytes == 1_MiB ? 1 : 3;
}

Nanoseconds cost_of(const DsaPoint& point) {
  if (point.kind == DsaPoint::Kind::stream) return 3 * kSampleWithStream;
  double moved = 0, touched = 0, submitted = 0;
  for (const DsaThread& thread : point.threads) {
    const double bytes = static_cast<double>(thread.bytes.value);
    const double copies = static_cast<double>(thread.copies);
    moved += bytes * copies;
    touched += 2 * bytes * static_cast<double>(copies_of_area(thread));
    submitted = std::max(submitted, copies);
  }
  std::set<EngineId> used;
  for (const DsaThread& thread : point.threads) used.insert(thread.engine);
  const double devices = static_cast<double>(used.size());
  const double sample = moved / (kDevicePerNs * devices) + submitted * kSubmissionNs;
  return Nanoseconds{static_cast<std::int64_t>(touched / kTouchedPerNs + 3 * sample)};
}

// Buffers are kept from point to point, and others need space too.
bool has_space(const Machine& machine, const DsaPoint& point) {
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

Point point_of(const std::shared_ptr<const DsaTarget>& target, const DsaScope& scope, DsaPoint of) {
  if (of.kind == DsaPoint::Kind::nothing) return without(of.row, of.row.reason);
  if (of.kind == DsaPoint::Kind::cores) {
    return experiment_copy::copy_point(scope.host, of.cores, of.row, rank_of(of));
  }
  Point point{.row = of.row};
  if (!has_space(scope.machine(), of)) {
    return without(std::move(point.row), "a node is too small for copies of this size");
  }
  point.rank = rank_of(of);
  point.cost = cost_of(of);
  point.memory = {of.threads.front().from};
  // The point outlives the probe.
  point.prepare = [target, of = std::make_shared<const DsaPoint>(std::move(of))](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    if (of->kind == DsaPoint::Kind::stream) {
      return std::make_unique<DsaWithStream>(target->with_stream(), *of);
    }
    HEADRACE_TRY(auto run, target->prepare(of->threads, of->shape, buffers));
    return std::make_unique<DsaCopies>(*of, std::move(run));
  };
  return point;
}

std::vector<Point> list_points(const Scope& scope) {
  auto found = find_dsa_host(scope.machine);
  if (!found) return {without({.experiment = "dsa", .unit = "B/s"}, found.error().message)};
  return points_on(std::make_shared<DsaHost>(scope.machine, *std::move(found)), scope);
}

}  // namespace

std::vector<Point> points_on(std::shared_ptr<const DsaTarget> target, const Scope& scope) {
  DsaScope of{.target = *target, .host = scope.machine, .with_cpu = scope.asks("part")};
  for (const std::uint64_t bytes : scope.numbers("bytes")) of.sizes.push_back(Bytes{bytes});
  std::vector<Point> points;
  for (DsaPoint& point : dsa_points(of)) points.push_back(point_of(target, of, std::move(point)));
  return points;
}

const Experiment kExperiment{
    "dsa",
    "copies by DSA devices: submission, threads, routes, queues, interference",
    dsa_parameters(),
    {},
    list_points};

}  // namespace headrace::experiment_dsa
