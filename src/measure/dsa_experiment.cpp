#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/fail.h"
#include "headrace/measure.h"
#include "measure/dsa_beside.h"
#include "measure/dsa_host.h"
#include "measure/dsa_model.h"
#include "measure/dsa_points.h"
#include "measure/samples.h"

namespace headrace {
namespace {

// Of one descriptor of a Sapphire Rapids device (its GENCAP); larger ones would be cut.
constexpr Bytes kMostBytes = 2_GiB;

// What the points run on: a model, or this host with its devices.
struct DsaGround {
  std::unique_ptr<DsaStand> stand;
  const DsaHost* host = nullptr;  // the stand, if it is one
  std::optional<Machine> cores;   // this host, asked for when needed
};

Result<DsaGround> ground_for(const Machine& machine, bool emulated) {
  DsaGround ground;
  if (emulated) {
    ground.stand = std::make_unique<DsaModel>(machine);
    return ground;
  }
  HEADRACE_TRY(DsaHostOptions options, find_dsa_host(machine));
  auto host = std::make_unique<DsaHost>(machine, std::move(options));
  ground.host = host.get();
  ground.stand = std::move(host);
  ground.cores = machine;
  return ground;
}

Result<DsaScope> scope_of(const Machine& machine, const DsaBenchOptions& options) {
  DsaScope scope{.machine = machine, .emulated = options.emulated, .sizes = options.sizes};
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::dsa) scope.engines.push_back(engine.id);
  }
  for (const Bytes size : options.sizes) {
    if (size.value > 0 && size <= kMostBytes) continue;
    return fail(ErrorCode::invalid, "a copy of {}; ask for 1 byte to {}", to_string(size),
                to_string(kMostBytes));
  }
  if (!scope.engines.empty()) return scope;
  return fail(ErrorCode::unsupported, "machine {} has no dsa engine; --emulated models those of {}",
              machine.name, "xeon-max");
}

Result<std::vector<DsaPoint>> dsa_points_of(const DsaScope& scope,
                                            const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const DsaExperiment& each : all_dsa_experiments()) known.push_back(each.name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return fail(ErrorCode::invalid, "no experiment '{}'; there are {}", name,
                fmt::join(known, ", "));
  }
  std::vector<DsaPoint> points;
  for (const DsaExperiment& each : all_dsa_experiments()) {
    const bool wanted = names.empty() || std::ranges::find(names, each.name) != names.end();
    if (!wanted) continue;
    for (DsaPoint& point : each.points(scope)) points.push_back(std::move(point));
  }
  return points;
}

void fill_in(DsaRow& row, const std::vector<double>& rates) {
  const auto summary = summarize_rates(rates);
  if (!summary) return;
  row.bytes_per_second = summary->rate;
  if (rates.size() > 1) row.spread = summary->spread;
}

Status run_devices(DsaPoint& point, DsaGround& ground, unsigned rounds) {
  HEADRACE_TRY(const auto times, ground.stand->run(point.threads, point.shape, rounds));
  point.row.portal = times.front().portal;
  std::vector<double> rates;
  for (const DsaTimes& of_round : times) rates.push_back(rate_of(point, of_round).value);
  fill_in(point.row, rates);
  return {};
}

// Out of the caches, since a device does not have its data there either.
Status run_core(DsaPoint& point, DsaGround& ground, unsigned rounds) {
  if (!ground.cores) {
    HEADRACE_TRY(ground.cores, Machine::discover());
  }
  point.row.machine = ground.cores->name;
  const CopyBenchOptions options{
      .sizes = {point.row.bytes}, .engines = {"cpu"}, .hot = false, .rounds = rounds};
  HEADRACE_TRY(const auto rows, bench_copy(*ground.cores, options));
  point.row.bytes_per_second = rows.front().bytes_per_second;
  point.row.spread = rows.front().spread;
  point.row.reason = rows.front().reason;
  return {};
}

Status run_point(DsaPoint& point, DsaGround& ground, unsigned rounds) {
  switch (point.kind) {
    case DsaPoint::Kind::devices: return run_devices(point, ground, rounds);
    case DsaPoint::Kind::core: return run_core(point, ground, rounds);
    case DsaPoint::Kind::nodes: {
      HEADRACE_TRY(const auto rates, copy_by_cores(*ground.cores, point.row, rounds));
      fill_in(point.row, rates);
      return {};
    }
    case DsaPoint::Kind::stream: {
      HEADRACE_TRY(const auto rates, run_beside_stream(*ground.host, point, rounds));
      fill_in(point.row, rates);
      return {};
    }
    case DsaPoint::Kind::nothing: return {};
  }
  return {};
}

}  // namespace

std::vector<ExperimentInfo> dsa_experiments() {
  std::vector<ExperimentInfo> infos;
  for (const DsaExperiment& each : all_dsa_experiments()) {
    infos.push_back({std::string(each.name), std::string(each.description)});
  }
  return infos;
}

Result<std::vector<DsaRow>> bench_dsa(const Machine& machine, const DsaBenchOptions& options,
                                      const ExperimentContext& context) {
  HEADRACE_TRY(DsaGround ground, ground_for(machine, options.emulated));
  HEADRACE_TRY(DsaScope scope, scope_of(machine, options));
  if (ground.host != nullptr) scope.engines = ground.host->engines();
  HEADRACE_TRY(std::vector<DsaPoint> points, dsa_points_of(scope, options.experiments));
  const unsigned rounds = std::max(options.rounds, 1U);
  std::vector<DsaRow> rows;
  for (DsaPoint& point : points) {
    if (context.stop()) break;
    const bool of_cores = point.kind == DsaPoint::Kind::core;
    point.row.basis = of_cores ? "hardware" : std::string(ground.stand->basis());
    point.row.machine = machine.name;
    if (Status status = run_point(point, ground, rounds); !status) {
      point.row.reason = status.error().message;
    }
    rows.push_back(std::move(point.row));
    context.progress(rows.size(), points.size());
  }
  return rows;
}

}  // namespace headrace
