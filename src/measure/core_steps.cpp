#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/statistics.h"
#include "measure/carry.h"
#include "measure/fit.h"
#include "measure/samples.h"
#include "measure/steps.h"
#include "measure/team.h"

namespace headrace {
namespace {

// The two sizes the line T(V) = latency + V / bandwidth goes through: one small piece, which shows
// the latency, and many at once, which show what the engine can do: at least so many, and with both
// sides twice what the caches hold.
constexpr Bytes kSmall = 64_KiB;
constexpr Bytes kLeastLarge = 64_MiB;
constexpr Bytes kPiece = 1_MiB;
constexpr unsigned kSmallSamples = 25;
constexpr unsigned kLargeSamples = 3;

struct Times {
  std::vector<double> small;  // nanoseconds
  std::vector<double> large;
};

Result<Times> sample_times(Backend& backend, const RateExperiment& experiment) {
  const std::size_t depth = backend.capabilities().max_in_flight;
  Times times;
  for (unsigned i = 0; i < kSmallSamples; ++i) {
    // Each at another place, so that no sample finds what the last one left in a cache.
    const std::uint64_t at = kSmall.value * 2 * i;
    const auto piece = cut(experiment.to.part(at, kSmall), experiment.from.part(at, kSmall),
                           experiment.engine, kSmall);
    HEADRACE_TRY(const Nanoseconds took, carry(backend, piece, 1));
    times.small.push_back(static_cast<double>(took.count()));
  }
  const auto pieces = cut(experiment.to, experiment.from, experiment.engine, kPiece);
  for (unsigned i = 0; i < kLargeSamples; ++i) {
    HEADRACE_TRY(const Nanoseconds took, carry(backend, pieces, depth));
    times.large.push_back(static_cast<double>(took.count()));
  }
  return times;
}

void add_rate(Machine& machine, const CopyRate& rate) {
  std::erase_if(machine.copy_rates, [&](const CopyRate& old) {
    return old.engine == rate.engine && old.from == rate.from && old.to == rate.to;
  });
  machine.copy_rates.push_back(rate);
}

void measure_pair(Brief& brief, const Engine& engine, NodeId from, NodeId to) {
  RateExperiment experiment{
      .engine = engine.id,
      .what = "copy",
      .where = fmt::format("{}, node {} to node {}", engine.name, raw(from), raw(to))};
  const Node* home = brief.machine.find(engine.home);
  const Bytes large = std::max(cache_to_pass(brief.machine, usable_cpus(home)), kLeastLarge);
  const auto source = allocate(brief.machine, large, Placement::on(from));
  const auto target = allocate(brief.machine, large, Placement::on(to));
  if (!source || !target) {
    const RateRow row{.what = experiment.what,
                      .where = experiment.where,
                      .from = from,
                      .to = to,
                      .engine = engine.id};
    brief.rows.push_back(row_without(row, (source ? target : source).error().message));
    return;
  }
  experiment.to = whole(**target);
  experiment.from = whole(**source);
  measure_rate(brief, experiment);
}

}  // namespace

void measure_rate(Brief& brief, const RateExperiment& experiment) {
  const NodeId from = experiment.from.object->node();
  const NodeId to = experiment.to.object->node();
  const RateRow row{.what = experiment.what,
                    .where = experiment.where,
                    .from = from,
                    .to = to,
                    .engine = experiment.engine};
  Backend* backend = brief.backends.find(experiment.engine);
  if (backend == nullptr) {
    brief.rows.push_back(row_without(row, "no backend drives this engine here"));
    return;
  }
  const auto times = sample_times(*backend, experiment);
  if (!times) {
    brief.rows.push_back(row_without(row, times.error().message));
    return;
  }
  const auto nanoseconds = [](double t) {
    return Nanoseconds{std::max<std::int64_t>(1, static_cast<std::int64_t>(t))};
  };
  const Bytes large = experiment.to.length;
  const CopyCost cost = fit_cost(kSmall, nanoseconds(*median(times->small)), large,
                                 nanoseconds(*median(times->large)));
  add_rate(brief.machine,
           {.engine = experiment.engine,
            .from = from,
            .to = to,
            .latency = cost.latency,
            .bandwidth = cost.bandwidth,
            .source = fmt::format("measure_briefly: {} and {} in pieces of {}", to_string(kSmall),
                                  to_string(large), to_string(kPiece))});
  std::vector<double> rates;
  for (const double time : times->large) rates.push_back((large / nanoseconds(time)).value);
  brief.rows.push_back(row_with(row, rates));
}

std::vector<Step> core_steps(const Machine& machine, const Backends& backends) {
  std::vector<Step> steps;
  for (const Engine& engine : machine.engines) {
    if (engine.kind != EngineKind::cpu || backends.find(engine.id) == nullptr) continue;
    for (const Node& from : machine.nodes) {
      for (const Node& to : machine.nodes) {
        // The engines that routes choose sit at one of the ends.
        const bool at_an_end = from.id == engine.home || to.id == engine.home;
        if (!at_an_end || !can_copy(engine, from, to)) continue;
        const auto run = [engine, from = from.id, to = to.id](Brief& brief) {
          measure_pair(brief, engine, from, to);
        };
        const auto left_out = [engine, from = from.id, to = to.id] {
          return RateRow{
              .what = "copy",
              .where = fmt::format("{}, node {} to node {}", engine.name, raw(from), raw(to)),
              .from = from,
              .to = to,
              .engine = engine.id};
        };
        steps.push_back({run, left_out});
      }
    }
  }
  return steps;
}

RateRow row_without(RateRow row, const std::string& reason) {
  row.reason = reason;
  return row;
}

RateRow row_with(RateRow row, std::span<const double> bytes_per_second) {
  const auto summary = summarize_rates(bytes_per_second);
  if (!summary) return row_without(std::move(row), "no sample was taken");
  row.bytes_per_second = summary->rate;
  row.spread = summary->spread;
  return row;
}

}  // namespace headrace
