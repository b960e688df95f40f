// SPDX-License-Identifier: Apache-2.0
// Reads the object "model" of a machine. Unknown fields are ignored, as everywhere in a machine.
#include "model/ceilings.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <ranges>

#include "core/check.h"
#include "core/text/json.h"
#include "core/text/printable.h"
#include "model/bounds.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxId = std::numeric_limits<std::uint32_t>::max();
constexpr double kMostUncertainty = 0.9;

class ModelReader {
 public:
  explicit ModelReader(const Machine& machine) : machine_(machine) {}

  MachineModel read(const JsonReader& at) const {
    MachineModel model;
    at.elements("ceilings", [&](const JsonReader& each) { read_ceilings(each, model.ceilings); });
    at.elements("latencies", [&](const JsonReader& each) {
      model.latencies.push_back(read_latency(each));
    });
    at.elements("cores",
                [&](const JsonReader& each) { model.cores.push_back(read_cores(each)); });
    return model;
  }

 private:
  // A list of numbers, or the text of one: [0, 1, 2, 8] or "0-2,8".
  static std::vector<unsigned> numbers(const JsonReader& value) {
    std::vector<unsigned> found;
    if (value.is_text()) {
      auto list = parse_cpu_list(value.as_text());
      if (!list) value.wrong("", list.error().message);
      if (list) found = *std::move(list);
    } else {
      value.items([&](const JsonReader& each) {
        found.push_back(static_cast<unsigned>(each.as_integer(kMaxId)));
      });
      std::ranges::sort(found);
      found.erase(std::ranges::unique(found).begin(), found.end());
    }
    if (found.empty()) value.wrong("", "names none; leave it out for all");
    return found;
  }

  std::vector<NodeId> nodes(const std::optional<JsonReader>& value) const {
    std::vector<NodeId> found;
    if (!value) return found;
    for (const unsigned id : numbers(*value)) {
      found.push_back(NodeId{id});
      if (machine_.find(found.back()) == nullptr) value->wrong("", fmt::format("no node {}", id));
    }
    return found;
  }

  CpuSet cpus(const std::optional<JsonReader>& value) const {
    if (!value) return {};
    CpuSet found = numbers(*value);
    for (const unsigned cpu : found) {
      if (machine_.node_of_cpu(cpu) == nullptr) value->wrong("", fmt::format("no CPU {}", cpu));
    }
    return found;
  }

  std::vector<EngineId> engines(const JsonReader& at) const {
    std::vector<EngineId> found;
    at.elements("engines", [&](const JsonReader& each) {
      const std::string name = each.as_text();
      const auto engine = std::ranges::find(machine_.engines, name, &Engine::name);
      if (engine == machine_.engines.end()) {
        each.wrong("", fmt::format("no engine '{}'", printable(name)));
      } else {
        found.push_back(engine->id);
      }
    });
    return found;
  }

  template <auto kLast>
  static auto word(const JsonReader& at, std::string_view name, const EnumWords<kLast>& words) {
    const auto found = words.parse(at.required_text(name));
    if (!found) at.wrong(name, found.error().message);
    return found ? *found : decltype(kLast){};
  }

  CrossingPath read_path(const JsonReader& at) const {
    CrossingPath path{.from = nodes(at.child("from")),
                      .cpus = cpus(at.child("cpus")),
                      .engines = engines(at),
                      .to = nodes(at.child("to"))};
    if (at.field("counts") != nullptr) path.counts = word(at, "counts", kCounts);
    if (!path.cpus.empty() && !path.engines.empty()) {
      at.wrong("engines", "cannot be beside cpus: no access is by both");
    }
    return path;
  }

  static Evidence read_evidence(const JsonReader& at) {
    Evidence evidence{.basis = word(at, "basis", kConstantBases),
                      .source = at.required_text("source")};
    at.elements("fitted_to", [&](const JsonReader& each) {
      evidence.fitted_to.push_back(each.as_text());
    });
    if (evidence.basis == ConstantBasis::fitted && evidence.fitted_to.empty()) {
      at.wrong("fitted_to", "must name the figures that a fitted constant was fitted to");
    }
    return evidence;
  }

  static double read_uncertainty(const JsonReader& at) {
    const double found = at.optional_number("uncertainty").value_or(0);
    if (found > kMostUncertainty) {
      at.wrong("uncertainty", fmt::format("must be a share from 0 to {}", kMostUncertainty));
    }
    return found;
  }

  // A number, or points with ascending x from 0 to 1.
  static Curve read_curve(const JsonReader& at, std::string_view name) {
    Curve curve;
    const auto value = at.child(name);
    if (!value) return curve;
    if (value->is_number()) {
      curve.points.emplace_back(0, value->as_number());
      return curve;
    }
    value->items([&](const JsonReader& each) {
      std::vector<double> pair;
      each.items([&](const JsonReader& number) { pair.push_back(number.as_number()); });
      if (pair.size() != 2) return each.wrong("", "must be a pair of numbers");
      if (pair[0] > 1) each.wrong("", "must begin with a number from 0 to 1");
      if (!curve.points.empty() && pair[0] <= curve.points.back().first) {
        each.wrong("", "must begin with a larger number than the pair before");
      }
      curve.points.emplace_back(pair[0], pair[1]);
    });
    if (curve.points.empty()) at.wrong(name, "must have at least one pair");
    return curve;
  }

  void read_ceilings(const JsonReader& at, std::vector<Ceiling>& ceilings) const {
    Ceiling ceiling{.name = at.required_text("name"), .kind = word(at, "kind", kCeilingKinds)};
    if (at.field("paths") != nullptr) {
      at.elements("paths", [&](const JsonReader& each) {
        ceiling.paths.push_back(read_path(each));
      });
      if (ceiling.paths.empty()) at.wrong("paths", "must have at least one path");
    } else {
      ceiling.paths.push_back(read_path(at));
    }
    if (const auto flag = at.child("side_cache")) ceiling.side_cache = flag->as_flag();
    ceiling.bandwidth = read_curve(at, "bandwidth");
    if (ceiling.bandwidth.points.empty()) at.wrong("bandwidth", "is missing");
    if (std::ranges::any_of(ceiling.bandwidth.points | std::views::values,
                            [](double x) { return x <= 0; })) {
      at.wrong("bandwidth", "must be above 0 bytes per second");
    }
    ceiling.queue = read_curve(at, "queue");
    check_queue(at, ceiling.queue);
    ceiling.request_bytes = at.optional_number("request_bytes").value_or(0);
    ceiling.uncertainty = read_uncertainty(at);
    ceiling.evidence = read_evidence(at);
    if (at.field("each") == nullptr) {
      ceilings.push_back(std::move(ceiling));
    } else {
      repeat(at, ceiling, ceilings);
    }
  }

  static void check_queue(const JsonReader& at, const Curve& queue) {
    double last = 0;
    for (const auto& [u, delay] : queue.points) {
      if (u <= 0 || delay <= last) {
        at.wrong("queue", "must have utilisations and delays above 0 that ascend");
      }
      last = delay;
    }
  }

  // One ceiling per element of `each`: a list of CPUs as text, or of nodes.
  void repeat(const JsonReader& at, const Ceiling& ceiling, std::vector<Ceiling>& ceilings) const {
    if (at.field("paths") != nullptr) return at.wrong("each", "cannot be beside paths");
    const bool by_initiator = at.text("each_as") == "from";
    std::size_t position = 0;
    at.elements("each", [&](const JsonReader& each) {
      Ceiling one = ceiling;
      if (const std::size_t hole = one.name.find("{}"); hole != std::string::npos) {
        one.name.replace(hole, 2, std::to_string(position));
      } else {
        at.wrong("name", "must contain {} beside each");
      }
      ++position;
      CrossingPath& path = one.paths.front();
      if (each.is_text()) {
        path.cpus = cpus(each);
      } else {
        (by_initiator ? path.from : path.to) = nodes(each);
      }
      ceilings.push_back(std::move(one));
    });
  }

  IdleLatency read_latency(const JsonReader& at) const {
    IdleLatency latency{.from = nodes(at.child("from")), .to = nodes(at.child("to"))};
    if (const auto flag = at.child("side_cache")) latency.side_cache = flag->as_flag();
    latency.read_ns = at.number("read_ns");
    latency.write_ns = at.optional_number("write_ns");
    if (latency.read_ns <= 0) at.wrong("read_ns", "must be above 0");
    latency.uncertainty = read_uncertainty(at);
    latency.evidence = read_evidence(at);
    return latency;
  }

  static std::map<std::string, double> read_words(const JsonReader& at, std::string_view name) {
    std::map<std::string, double> found;
    at.members(name, [&](const std::string& key, const JsonReader& value) {
      found[key] = value.as_number();
      if (found[key] <= 0) value.wrong("", "must be above 0");
    });
    return found;
  }

  CoreModel read_cores(const JsonReader& at) const {
    CoreModel cores{.nodes = nodes(at.child("nodes")),
                    .frequency_hz = at.optional_number("frequency_hz"),
                    .vector_bytes = at.optional_number("vector_bytes"),
                    .lines_in_flight = read_words(at, "lines_in_flight"),
                    .bytes_per_cycle = read_words(at, "bytes_per_cycle")};
    if (cores.frequency_hz && *cores.frequency_hz <= 0) {
      at.wrong("frequency_hz", "must be above 0");
    }
    cores.uncertainty = read_uncertainty(at);
    cores.evidence = read_evidence(at);
    return cores;
  }

  const Machine& machine_;
};

}  // namespace

double Curve::at(double x) const {
  CHECK(!points.empty());
  if (x <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto& [x0, y0] = points[i - 1];
    const auto& [x1, y1] = points[i];
    if (x < x1) return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  }
  return points.back().second;
}

Result<MachineModel> model_of(const Machine& machine) {
  if (machine.model.empty()) return bounds_of(machine);
  HEADRACE_TRY(const Json document, parse_document(machine.model));
  std::optional<Error> error;
  MachineModel model = ModelReader(machine).read(JsonReader(document, "model", error));
  if (error) return Unexpected(*std::move(error));
  return model;
}

const CoreModel* cores_of(const MachineModel& model, NodeId node) {
  const auto found = std::ranges::find_if(model.cores, [&](const CoreModel& cores) {
    return cores.nodes.empty() || std::ranges::find(cores.nodes, node) != cores.nodes.end();
  });
  return found == model.cores.end() ? nullptr : &*found;
}

}  // namespace headrace
