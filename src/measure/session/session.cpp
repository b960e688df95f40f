// SPDX-License-Identifier: Apache-2.0
#include "measure/session/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/statistics.h"
#include "measure/session/costs.h"
#include "measure/session/plan.h"
#include "measure/session/stopping.h"

namespace headrace::session {
namespace {

constexpr unsigned kMostBusy = 3;
// Maximum tries of a repetition until no control group stops it. Only one try if every try of the
// last kMostThrottled mappings was stopped, as for threads that never have their CPUs long enough.
constexpr unsigned kTries = 4;
constexpr unsigned kMostThrottled = 3;
constexpr Nanoseconds kBetweenChecks = std::chrono::seconds{1};
// The part of the budget that making one file may take: a quarter.
constexpr int kFilesOfBudget = 4;

bool is_modelled(const Point& point) { return point.row.basis == Basis::modelled; }

class Session {
 public:
  Session(const Machine& machine, std::vector<Point> points, const MeasureOptions& options,
          const ExperimentContext& context, const std::function<std::uint64_t()>& throttled,
          Nanoseconds begin, Noise noise, Random random)
      : clock_(system_clock()),
        options_(options),
        context_(context),
        throttled_(throttled),
        buffers_(machine),
        noise_(std::move(noise)),
        random_(random),
        begin_(begin) {
    for (Point& point : points) trials_.push_back({.point = std::move(point)});
    for (const Trial& trial : trials_) {
      costs_.add(trial.point, options_.repetitions);
      done_ += done(trial);
      total_ += least_mappings(trial.point, options_);
    }
  }

  SessionResult run() {
    make_files();
    check_noise();
    while (!over() && round()) ++rounds_;
    noise_.check();
    return result();
  }

 private:
  bool over() { return stopped_ = stopped_ || context_.stop(); }

  // Before any point is measured: no point knows how long its file takes, and one that was made
  // late would end after the budget.
  void make_files() {
    for (const Trial& trial : trials_) {
      if (over()) return;
      if (!can_more(trial) || trial.point.file == nullptr) continue;
      // An error is the same again for each point of the file, and stands in its row.
      static_cast<void>(trial.point.file->get(
          options_.budget ? std::optional(*options_.budget / kFilesOfBudget) : std::nullopt));
    }
  }
  Nanoseconds spent() const { return clock_.now() - begin_; }
  bool late() const { return options_.budget && spent() >= *options_.budget; }

  static bool can_more(const Trial& trial) {
    return trial.point.row.reason.empty() && !trial.error;
  }

  bool needs_more(const Trial& trial) const {
    if (!can_more(trial)) return false;
    const std::size_t count = trial.mappings.size();
    if (count < least_mappings(trial.point, options_)) return true;
    if (is_counted(trial.point, options_)) return false;
    std::vector<double> values;
    for (const Mapping& mapping : trial.mappings) values.push_back(mapping.value);
    return !is_certain(values, options_.width);
  }

  using Trials = std::vector<Trial*>;

  // Indices of the trials that need more, and of their references, which need a value in each round
  // of a ratio.
  std::set<std::size_t> wanted() const {
    std::set<std::size_t> numbers;
    std::set<std::string_view> groups;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      if (!needs_more(trials_[i])) continue;
      numbers.insert(i);
      groups.insert(trials_[i].point.comparable.group);
    }
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      const Comparable& compared = trials_[i].point.comparable;
      if (compared.reference && can_more(trials_[i]) && groups.contains(compared.group)) {
        numbers.insert(i);
      }
    }
    return numbers;
  }

  // The trials of a round by memory, and within it compared ones together; all orders are random.
  Trials order() {
    std::map<MemoryKey, std::map<std::string, Trials>> by_memory;
    for (const std::size_t i : wanted()) {
      const Point& point = trials_[i].point;
      const std::string& group = point.comparable.group;
      by_memory[point.memory][group.empty() ? std::to_string(i) : group].push_back(&trials_[i]);
    }
    std::vector<std::vector<Trials>> memories;
    for (auto& [key, groups] : by_memory) {
      std::vector<Trials>& of_memory = memories.emplace_back();
      for (auto& [name, group] : groups) of_memory.push_back(std::move(shuffle(group)));
      shuffle(of_memory);
    }
    shuffle(memories);
    // The budget may cut the first round, so the most wanted come first there.
    if (rounds_ == 0 && options_.budget) {
      for (std::vector<Trials>& memory : memories) std::ranges::stable_sort(memory, {}, least_rank);
      std::ranges::stable_sort(memories, {}, [](const std::vector<Trials>& memory) {
        return least_rank(memory.front());
      });
    }
    return joined(joined(memories));
  }

  static unsigned least_rank(const Trials& group) {
    unsigned least = group.front()->point.rank;
    for (const Trial* trial : group) least = std::min(least, trial->point.rank);
    return least;
  }

  template <class T>
  static std::vector<T> joined(const std::vector<std::vector<T>>& parts) {
    std::vector<T> all;
    for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  template <class T>
  std::vector<T>& shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_.below(i)]);
    return items;
  }

  // False: nothing was left to do, or the time was over.
  bool round() {
    const Trials trials = order();
    if (trials.empty()) return false;
    const MemoryKey* memory = nullptr;
    bool any = false;
    for (Trial* trial : trials) {
      // However small the budget and busy the machine, one point is measured if possible.
      if (over() || (late() && (measured_any_ || tried_ >= kMostBusy))) return false;
      if (!fits(*trial)) continue;
      any = true;
      if (memory == nullptr || *memory != trial->point.memory) buffers_.clear();
      memory = &trial->point.memory;
      if (clock_.now() - checked_ > kBetweenChecks) check_noise();
      const std::size_t before = done(*trial);
      measure(*trial);
      done_ += done(*trial) - before;
      context_.progress(done_, total_);
    }
    buffers_.clear();
    return any;
  }

  std::size_t index_of(const Trial& trial) const {
    return static_cast<std::size_t>(&trial - trials_.data());
  }

  // Whether there is time for the point, by present knowledge. A point that was not begun must
  // leave time for the minimum of mappings of points that were begun or rank before it. If mappings
  // take longer than estimated, fewer points are measured, instead of all of them once.
  bool fits(const Trial& trial) const {
    if (!options_.budget || !measured_any_) return true;
    const Nanoseconds left = *options_.budget - spent();
    if (!trial.mappings.empty()) return costs_.of(index_of(trial)) <= left;
    std::vector<Costs::Mappings> needed;
    for (const Trial& other : trials_) {
      const std::size_t least = least_mappings(other.point, options_);
      if (!can_more(other) || other.mappings.size() >= least) continue;
      const bool before =
          std::pair(other.point.rank, &other) <= std::pair(trial.point.rank, &trial);
      if (other.mappings.empty() && !before) continue;
      needed.push_back({index_of(other), least - other.mappings.size()});
    }
    return costs_.of(needed) <= left;
  }

  // Its mappings, up to the minimum that it needs; progress counts these.
  std::size_t done(const Trial& trial) const {
    const std::size_t least = least_mappings(trial.point, options_);
    return can_more(trial) ? std::min(trial.mappings.size(), least) : least;
  }

  void check_noise() {
    check_ = noise_.check();
    checked_ = clock_.now();
  }

  void measure(Trial& trial) {
    ++tried_;
    const Nanoseconds begin = clock_.now();
    auto mapping = measure_once(trial.point);
    costs_.learn(index_of(trial), clock_.now() - begin);
    if (!mapping) {
      // A busy moment is no property of the point: the next round tries again.
      const bool busy = mapping.error().code == ErrorCode::timed_out;
      if (!busy || ++trial.busy >= kMostBusy) trial.error = std::move(mapping).error();
      return;
    }
    mapping->check = check_;
    mapping->round = rounds_;
    trial.mappings.push_back(*std::move(mapping));
    measured_any_ = true;
  }

  Result<Mapping> measure_once(const Point& point) {
    buffers_.forget_uses();
    HEADRACE_TRY(const auto probe, point.prepare(buffers_, random_));
    HEADRACE_TRY_STATUS(buffers_.check_residency());
    std::vector<Sample> samples;
    bool throttled = false;
    const unsigned repetitions = is_modelled(point) ? 1 : options_.repetitions;
    for (unsigned i = 0; i < repetitions; ++i) {
      HEADRACE_TRY(Sample sample, not_throttled(*probe, throttled));
      samples.push_back(std::move(sample));
    }
    throttled_in_a_row_ = throttled ? throttled_in_a_row_ + 1 : 0;
    HEADRACE_TRY_STATUS(buffers_.check_residency());
    const std::optional<double> huge_part = least_huge_part(point, samples);
    // The middle sample unchanged, so that its details belong to its value.
    const auto finite = [](double number) { return std::isfinite(number); };
    for (const Sample& sample : samples) {
      if (finite(sample.value) && std::ranges::all_of(std::views::values(sample.details), finite)) {
        continue;
      }
      return fail(ErrorCode::timed_out, "a sample took no time; is the machine busy?");
    }
    std::ranges::sort(samples, {}, &Sample::value);
    Sample& middle = samples[samples.size() / 2];
    return Mapping{.value = middle.value,
                   .details = std::move(middle.details),
                   .words = std::move(middle.words),
                   .cpu_share = middle.cpu_share,
                   .huge_part = huge_part,
                   .throttled = throttled};
  }

  // A repetition that no control group stopped; sets `throttled` if each try was stopped.
  Result<Sample> not_throttled(Probe& probe, bool& throttled) const {
    const unsigned most = throttled_in_a_row_ < kMostThrottled ? kTries : 1;
    for (unsigned tries = 1;; ++tries) {
      const std::uint64_t before = throttled_ ? throttled_() : 0;
      HEADRACE_TRY(Sample sample, probe.sample());
      if (!throttled_ || throttled_() == before) return sample;
      if (tries < most && !late() && !context_.stop()) continue;
      throttled = true;
      return sample;
    }
  }

  // nullopt: the point requests no huge pages.
  std::optional<double> least_huge_part(const Point& point,
                                        const std::vector<Sample>& samples) const {
    std::optional<double> least;
    if (point.memory.pages != PageSize::base) least = buffers_.huge_part_in_use();
    for (const Sample& sample : samples) {
      if (sample.huge_part) least = std::min(least.value_or(1), *sample.huge_part);
    }
    return least;
  }

  SessionResult result() {
    const std::vector<bool> disturbed = noise_.disturbed();
    SessionResult result;
    for (Trial& trial : trials_) {
      if (trial.mappings.empty() && !trial.error && trial.point.row.reason.empty()) {
        trial.point.row.reason =
            stopped_ ? "stopped before it was measured"
                     : "skipped (the budget is used up); a larger budget measures it";
        trial.point.row.add_flag(stopped_ ? "stopped" : "left_out");
      }
    }
    const std::vector<std::optional<double>> ratios = ratios_to_references();
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      const std::string detail = trials_[i].point.comparable.detail;
      result.rows.push_back(row_of(std::move(trials_[i]), disturbed));
      if (ratios[i] && result.rows.back().value) result.rows.back().details[detail] = *ratios[i];
    }
    result.checks.assign(noise_.checks().begin(), noise_.checks().end());
    result.disturbed = static_cast<std::size_t>(std::ranges::count(disturbed, true));
    result.rounds = rounds_;
    result.stopped = stopped_;
    return result;
  }

  // Per trial; nullopt: it is not compared.
  std::vector<std::optional<double>> ratios_to_references() const {
    std::map<std::string_view, const Trial*> references;
    for (const Trial& trial : trials_) {
      if (trial.point.comparable.reference) references[trial.point.comparable.group] = &trial;
    }
    std::vector<std::optional<double>> ratios;
    for (const Trial& trial : trials_) {
      const auto found = references.find(trial.point.comparable.group);
      ratios.push_back(found == references.end()
                           ? std::nullopt
                           : paired_ratio(trial.mappings, found->second->mappings));
    }
    return ratios;
  }

  const Clock& clock_;
  const MeasureOptions& options_;
  const ExperimentContext& context_;
  const std::function<std::uint64_t()>& throttled_;
  unsigned throttled_in_a_row_ = 0;  // consecutive mappings, up to the last
  std::vector<Trial> trials_;
  BufferPool buffers_;
  Costs costs_;
  Noise noise_;
  Random random_;
  const Nanoseconds begin_;
  Nanoseconds checked_{0};
  std::size_t check_ = 0;
  unsigned rounds_ = 0;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  bool stopped_ = false;
  bool measured_any_ = false;
  std::size_t tried_ = 0;
};

// The median of each detail over the mappings that have it.
std::map<std::string, double> middle_details(const std::vector<Mapping>& mappings) {
  std::map<std::string, std::vector<double>> all;
  for (const Mapping& mapping : mappings) {
    for (const auto& [name, value] : mapping.details) all[name].push_back(value);
  }
  std::map<std::string, double> middle;
  for (const auto& [name, values] : all) middle[name] = *median(values);
  return middle;
}

Row with_summary(Row row, const std::vector<Mapping>& mappings) {
  for (const Mapping& mapping : mappings) row.samples.push_back(mapping.value);
  row.value = summarize(row.samples);
  // Details that the point set itself stay.
  for (const auto& [name, value] : middle_details(mappings)) row.details[name] = value;
  std::vector<double> huge;
  for (const Mapping& mapping : mappings) {
    for (const auto& [name, word] : mapping.words) row.words[name] = word;
    if (mapping.huge_part) huge.push_back(*mapping.huge_part);
  }
  if (!huge.empty()) row.details["huge_part"] = *median(huge);
  const auto all_huge = [](double part) { return is_all_huge(part); };
  if (!std::ranges::all_of(huge, all_huge)) row.add_flag("not_huge");
  if (std::ranges::any_of(mappings, &Mapping::throttled)) row.add_flag("throttled");
  const auto drift = row.details.find("drift");
  if (drift != row.details.end() && drift->second > kSteady) row.add_flag("unsteady");
  return row;
}

}  // namespace

std::optional<double> paired_ratio(std::span<const Mapping> own,
                                   std::span<const Mapping> reference) {
  std::vector<double> ratios;
  for (const Mapping& mapping : own) {
    const auto other = std::ranges::find(reference, mapping.round, &Mapping::round);
    if (other != reference.end() && other->value > 0)
      ratios.push_back(mapping.value / other->value);
  }
  return median(ratios);
}

Row row_of(Trial trial, const std::vector<bool>& disturbed) {
  Row row = std::move(trial.point.row);
  // A point that was finally too busy keeps its earlier measurements.
  if (trial.error && (trial.mappings.empty() || trial.error->code != ErrorCode::timed_out)) {
    row.reason = trial.error->message;
    return row;
  }
  if (trial.mappings.empty()) return row;
  const auto is_noisy = [&](const Mapping& mapping) {
    const auto off = [&](std::size_t i) { return i < disturbed.size() && disturbed[i]; };
    return mapping.throttled || mapping.cpu_share < Noise::kLeastShare || off(mapping.check) ||
           off(mapping.check + 1);
  };
  if (row.basis == Basis::modelled) return with_summary(std::move(row), trial.mappings);
  const auto noisy = static_cast<std::size_t>(std::ranges::count_if(trial.mappings, is_noisy));
  if (trial.mappings.size() - noisy >= kFewest) {
    std::erase_if(trial.mappings, is_noisy);
  } else if (2 * noisy >= trial.mappings.size()) {
    row.add_flag("noisy");
  }
  if (trial.mappings.size() < kFewest) row.add_flag("few");
  return with_summary(std::move(row), trial.mappings);
}

SessionResult run_session(const Machine& machine, std::vector<Point> points,
                          const Sentinels& sentinels, const MeasureOptions& options,
                          const ExperimentContext& context,
                          const std::function<std::uint64_t()>& throttled,
                          std::optional<Nanoseconds> begin) {
  const Nanoseconds start = begin.value_or(system_clock().now());
  Random random(options.seed);
  Noise noise = Noise::start(machine, sentinels, random);
  return Session(machine, std::move(points), options, context, throttled, start, std::move(noise),
                 random)
      .run();
}

}  // namespace headrace::session
