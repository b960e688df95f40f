// SPDX-License-Identifier: Apache-2.0
#include "headrace/findings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace headrace {
namespace {

// A row's parameter; 0 if it is not a number.
std::uint64_t number_of(const Row& row, std::string_view name) {
  const auto* number = row.number(name);
  return number == nullptr ? 0 : *number;
}

std::string word_of(const Row& row, std::string_view name) { return std::string(row.word(name)); }

CopySeries series_of(const Row& row) {
  return {.cpu_node = number_of(row, "cpu_node"),
          .from = number_of(row, "from"),
          .to = number_of(row, "to"),
          .threads = std::max<std::uint64_t>(number_of(row, "threads"), 1),
          .state = word_of(row, "state")};
}

// True if all threads divide one copy: `bytes` is then not the size of each thread's copy.
bool is_divided(const Row& row) { return row.parameter("work") != nullptr; }

// The rows of one experiment with a positive value, grouped by key, without divided copies. Groups
// are in the order of their first rows.
template <class KeyOf>
auto grouped(const Profile& profile, std::string_view experiment, KeyOf key_of) {
  using Key = decltype(key_of(Row{}));
  std::vector<std::pair<Key, std::vector<const Row*>>> groups;
  std::map<Key, std::size_t> indices;
  for (const Row& row : profile.rows) {
    if (row.experiment != experiment || !row.value || row.value->median <= 0) continue;
    if (is_divided(row)) continue;
    const auto [group, fresh] = indices.emplace(key_of(row), groups.size());
    if (fresh) groups.emplace_back(group->first, std::vector<const Row*>{});
    groups[group->second].second.push_back(&row);
  }
  return groups;
}

// One copy per thread at the same time: the total bytes, and the time.
struct TimedCopy {
  double bytes;
  double ns;
};

// Fits the latency l and the time per byte p of T = l + p V with the least sum of squared relative
// errors ((l + p V) / T - 1)^2: linear least squares of l / T + p V / T against 1, solved by its
// normal equations.
CopyFit fit_line(const std::vector<TimedCopy>& copies) {
  double ones = 0, both = 0, volumes = 0, by_one = 0, by_volume = 0;
  for (const TimedCopy& copy : copies) {
    const double one = 1 / copy.ns;
    const double volume = copy.bytes / copy.ns;
    ones += one * one;
    both += one * volume;
    volumes += volume * volume;
    by_one += one;
    by_volume += volume;
  }
  const double determinant = ones * volumes - both * both;
  double latency = determinant > 0 ? (by_one * volumes - by_volume * both) / determinant : 0;
  double per_byte = determinant > 0 ? (by_volume * ones - by_one * both) / determinant : 0;
  if (latency < 0 || per_byte <= 0) {
    latency = 0;
    per_byte = by_volume / volumes;
  }
  CopyFit fit{.latency_ns = latency, .bandwidth = 1e9 / per_byte, .points = copies.size()};
  std::vector<double> errors;
  for (const TimedCopy& copy : copies) {
    errors.push_back(std::abs((latency + copy.bytes * per_byte) / copy.ns - 1));
  }
  fit.median_error = median(errors).value_or(0);
  fit.largest_error = std::ranges::max(errors);
  return fit;
}

// The fastest of `rows`, which have one size. The engine `before`, if given, stays fastest until
// another engine's interval is wholly above its own.
const Row* fastest(const std::vector<const Row*>& rows, const std::string& before) {
  const auto rate = [](const Row* row) { return row->value->median; };
  const Row* best = *std::ranges::max_element(rows, {}, rate);
  const auto held =
      std::ranges::find_if(rows, [&](const Row* row) { return word_of(*row, "engine") == before; });
  if (held == rows.end()) return best;
  const bool clear = best->value->interval.low > (*held)->value->interval.high;
  return clear ? best : *held;
}

// The smallest cache of the node's first CPU that holds `bytes` ("L2"), or "memory"; "" for sizes
// between a cache and its double.
std::string cache_that_holds(const Machine& machine, std::uint64_t cpu_node, Bytes bytes) {
  const Node* node = machine.find(NodeId{static_cast<std::uint32_t>(cpu_node)});
  std::map<unsigned, Bytes> levels;
  for (const CacheLevel& cache : machine.caches) {
    const bool own = node != nullptr && !node->cpus.empty() &&
                     std::ranges::find(cache.cpus, node->cpus.front()) != cache.cpus.end();
    if (own) levels[cache.level] = cache.size;
  }
  for (const auto& [level, size] : levels) {
    if (bytes <= size) return "L" + std::to_string(level);
    if (bytes < size * 2) return "";  // half in this cache, half in the next
  }
  return "memory";
}

double bandwidth_of(const Row* row) {
  const auto known = row->details.find("bandwidth");
  return known == row->details.end() ? 0.0 : known->second;
}

// The median latency without traffic of a curve's rows; if no row has it, the latency at the least
// traffic.
double idle_of(const std::vector<const Row*>& rows) {
  std::vector<double> idle;
  for (const Row* row : rows) {
    const auto known = row->details.find("idle");
    if (known != row->details.end()) idle.push_back(known->second);
  }
  if (!idle.empty()) return *median(idle);
  return (*std::ranges::min_element(rows, {}, bandwidth_of))->value->median;
}

// The traffic's pause between two accesses, in the unit of the row's source; 0: unknown.
double pause_of(const Row* row) {
  if (const auto* asked = row->number("delay_ns")) return static_cast<double>(*asked);
  const auto found = row->details.find("delay_ns");
  return found == row->details.end() ? 0.0 : found->second;
}

// The quiet rows of a curve with enough mappings for a spread, from the least traffic to the most.
std::vector<const Row*> by_traffic(std::vector<const Row*> rows) {
  std::erase_if(rows,
                [](const Row* row) { return row->has_flag("noisy") || row->has_flag("few"); });
  std::ranges::sort(rows, {},
                    [](const Row* row) { return std::pair(-pause_of(row), bandwidth_of(row)); });
  return rows;
}

// True if no latency is measurably below that at less traffic, which means that its interval is
// below theirs.
bool rises(const std::vector<const Row*>& rows) {
  double reached = 0;
  for (const Row* row : rows) {
    if (row->value->interval.high < reached) return false;
    reached = std::max(reached, row->value->interval.low);
  }
  return true;
}

// The most bandwidth that the traffic reached before the latency first reaches this one.
std::optional<double> bandwidth_at(const std::vector<const Row*>& rows, double latency_ns) {
  double most = bandwidth_of(rows.front());
  if (rows.front()->value->median >= latency_ns) return std::nullopt;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double before = most;
    most = std::max(most, bandwidth_of(rows[i]));
    const double from = rows[i - 1]->value->median, to = rows[i]->value->median;
    if (to >= latency_ns) return std::lerp(before, most, (latency_ns - from) / (to - from));
  }
  return std::nullopt;
}

}  // namespace

std::vector<CopyFit> copy_fits(const Profile& profile) {
  const auto key = [](const Row& row) { return std::pair(series_of(row), word_of(row, "engine")); };
  std::vector<CopyFit> fits;
  for (const auto& [group, rows] : grouped(profile, "copy", key)) {
    std::vector<TimedCopy> copies;
    for (const Row* row : rows) {
      const double bytes = static_cast<double>(number_of(*row, "bytes") * group.first.threads);
      if (bytes > 0) copies.push_back({bytes, bytes / row->value->median * 1e9});
    }
    if (copies.size() < 3) continue;
    CopyFit fit = fit_line(copies);
    fit.series = group.first;
    fit.engine = group.second;
    fits.push_back(std::move(fit));
  }
  return fits;
}

std::vector<Crossover> crossovers(const Profile& profile) {
  std::vector<Crossover> found;
  for (const auto& [series, rows] : grouped(profile, "copy", series_of)) {
    std::map<std::uint64_t, std::vector<const Row*>> sizes;
    for (const Row* row : rows) {
      const std::string engine = word_of(*row, "engine");
      if (engine == "cpu" || engine == "memcpy") sizes[number_of(*row, "bytes")].push_back(row);
    }
    std::string engine;
    for (const auto& [bytes, candidates] : sizes) {
      if (candidates.size() < 2) continue;
      const std::string now = word_of(*fastest(candidates, engine), "engine");
      if (now != engine) found.push_back({series, Bytes{bytes}, now});
      engine = now;
    }
  }
  return found;
}

std::vector<Knee> knees(const Profile& profile) {
  const auto key = [](const Row& row) {
    return std::tuple(number_of(row, "cpu_node"), number_of(row, "memory_node"),
                      number_of(row, "traffic_cpu_node"), number_of(row, "traffic_memory_node"),
                      word_of(row, "mix"), number_of(row, "threads"));
  };
  std::vector<Knee> found;
  for (const auto& [group, all] : grouped(profile, "loaded", key)) {
    const std::vector<const Row*> rows = by_traffic(all);
    if (rows.size() < 4 || !rises(rows)) continue;
    const Row* bend = *std::ranges::max_element(
        rows, {}, [&](const Row* row) { return bandwidth_of(row) / row->value->median; });
    const double idle_ns = idle_of(rows);
    const auto& [cpu, memory, traffic_cpu, traffic_memory, mix, threads] = group;
    found.push_back({.cpu_node = cpu,
                     .memory_node = memory,
                     .traffic_cpu_node = traffic_cpu,
                     .traffic_memory_node = traffic_memory,
                     .mix = mix,
                     .threads = threads,
                     .bandwidth = bandwidth_of(bend),
                     .latency_ns = bend->value->median,
                     .idle_ns = idle_ns,
                     .bandwidth_at_1_5 = bandwidth_at(rows, 1.5 * idle_ns),
                     .bandwidth_at_2 = bandwidth_at(rows, 2 * idle_ns)});
  }
  return found;
}

std::vector<CacheStep> cache_steps(const Profile& profile) {
  const auto key = [](const Row& row) {
    return std::pair(number_of(row, "cpu_node"), number_of(row, "memory_node"));
  };
  std::vector<CacheStep> steps;
  for (const auto& [pair, rows] : grouped(profile, "latency", key)) {
    std::map<std::uint64_t, double> sizes;
    for (const Row* row : rows) {
      if (word_of(*row, "window") != "all" || word_of(*row, "pages") != "huge") continue;
      sizes[number_of(*row, "bytes")] = row->value->median;
    }
    if (sizes.size() < 3) continue;  // this pair was measured in memory only
    std::vector<std::string> order;
    std::map<std::string, std::vector<std::pair<Bytes, double>>> found;
    for (const auto& [bytes, ns] : sizes) {
      const std::string name = cache_that_holds(profile.machine, pair.first, Bytes{bytes});
      if (name.empty()) continue;
      if (!found.contains(name)) order.push_back(name);
      found[name].emplace_back(Bytes{bytes}, ns);
    }
    for (const std::string& name : order) {
      std::vector<double> latencies;
      for (const auto& [bytes, ns] : found[name]) latencies.push_back(ns);
      steps.push_back({.cpu_node = pair.first,
                       .memory_node = pair.second,
                       .name = name,
                       .from = found[name].front().first,
                       .to = found[name].back().first,
                       .latency_ns = *median(latencies)});
    }
  }
  return steps;
}

}  // namespace headrace
