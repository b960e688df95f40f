#include "measure/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/statistics.h"

namespace headrace {
namespace {

constexpr unsigned kRepetitions = 3;  // on one mapping
constexpr std::size_t kLeastMappings = 3;
constexpr std::size_t kMostMappings = 9;
constexpr unsigned kMostBusy = 3;
// Sentinels and bookkeeping, as a part of the budget that points cannot have.
constexpr double kForPoints = 0.85;
constexpr Nanoseconds kBetweenLooks = std::chrono::seconds{1};

class Session {
 public:
  Session(const Machine& machine, std::vector<Point> points, const MeasureOptions& options,
          const ExperimentContext& context, Noise noise, Random random)
      : options_(options),
        context_(context),
        arenas_(machine),
        noise_(std::move(noise)),
        random_(random) {
    for (Point& point : points) trials_.push_back({.point = std::move(point)});
  }

  SessionResult run() {
    begin_ = system_clock().now();
    look();
    while (!over() && round()) ++rounds_;
    noise_.look();
    return result();
  }

 private:
  bool over() { return stopped_ = stopped_ || context_.stop(); }
  Nanoseconds spent() const { return system_clock().now() - begin_; }
  bool late() const { return options_.budget && spent() >= *options_.budget; }

  bool needs_more(const Trial& trial) const {
    if (!trial.point.row.reason.empty() || trial.error) return false;
    const std::size_t count = trial.mappings.size();
    if (count < kLeastMappings) return true;
    if (count >= kMostMappings) return false;
    std::vector<double> values;
    for (const Mapping& mapping : trial.mappings) values.push_back(mapping.value);
    const auto summary = summarize(values);
    return summary->interval95.high - summary->interval95.low > options_.width * summary->median;
  }

  // Points of a round by memory, both orders drawn anew.
  std::vector<Trial*> order() {
    std::map<MemoryKey, std::vector<Trial*>> groups;
    for (Trial& trial : trials_) {
      if (needs_more(trial)) groups[trial.point.memory].push_back(&trial);
    }
    std::vector<std::vector<Trial*>> shuffled;
    for (auto& [key, group] : groups) shuffled.push_back(std::move(group));
    shuffle(shuffled);
    std::vector<Trial*> all;
    for (auto& group : shuffled) {
      shuffle(group);
      all.insert(all.end(), group.begin(), group.end());
    }
    // The budget may cut the first round: what is wanted most comes first there.
    if (rounds_ > 0) return all;
    std::map<unsigned, std::vector<Trial*>> by_rank;
    for (Trial* trial : all) by_rank[trial->point.rank].push_back(trial);
    all.clear();
    for (const auto& [rank, group] : by_rank) all.insert(all.end(), group.begin(), group.end());
    return all;
  }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random_.below(i)]);
  }

  // False: nothing was left to do, or the time was over.
  bool round() {
    const std::vector<Trial*> trials = order();
    if (trials.empty()) return false;
    const MemoryKey* memory = nullptr;
    for (Trial* trial : trials) {
      if (over() || late()) return false;
      if (memory == nullptr || *memory != trial->point.memory) arenas_.clear();
      memory = &trial->point.memory;
      if (system_clock().now() - looked_ > kBetweenLooks) look();
      measure(*trial);
      context_.progress(done_steps(), trials_.size() * kLeastMappings);
    }
    arenas_.clear();
    return true;
  }

  std::size_t done_steps() const {
    std::size_t done = 0;
    for (const Trial& trial : trials_) {
      const bool over = trial.error || !trial.point.row.reason.empty();
      done += over ? kLeastMappings : std::min(trial.mappings.size(), kLeastMappings);
    }
    return done;
  }

  void look() {
    look_ = noise_.look();
    looked_ = system_clock().now();
  }

  void measure(Trial& trial) {
    auto mapping = measure_once(trial.point);
    if (!mapping) {
      // A busy moment is no property of the point: the next round tries again.
      const bool busy = mapping.error().code == ErrorCode::timed_out;
      if (!busy || ++trial.busy >= kMostBusy) trial.error = std::move(mapping).error();
      return;
    }
    mapping->look = look_;
    trial.mappings.push_back(*std::move(mapping));
  }

  Result<Mapping> measure_once(const Point& point) {
    HEADRACE_TRY(const auto probe, point.prepare(arenas_, random_));
    HEADRACE_TRY_STATUS(arenas_.check_residency());
    std::vector<Sample> samples;
    for (unsigned i = 0; i < kRepetitions; ++i) {
      HEADRACE_TRY(Sample sample, probe->sample());
      samples.push_back(std::move(sample));
    }
    HEADRACE_TRY_STATUS(arenas_.check_residency());
    // The middle one as it is, so that its details belong to its value.
    const auto finite = [](double number) { return std::isfinite(number); };
    for (const Sample& sample : samples) {
      if (finite(sample.value) && std::ranges::all_of(std::views::values(sample.details), finite)) {
        continue;
      }
      return fail(ErrorCode::timed_out, "a sample took no time; is the machine busy?");
    }
    std::ranges::sort(samples, {}, &Sample::value);
    Sample& middle = samples[samples.size() / 2];
    return Mapping{
        .value = middle.value, .details = std::move(middle.details), .cpu_share = middle.cpu_share};
  }

  SessionResult result() {
    const std::vector<bool> disturbed = noise_.disturbed();
    SessionResult result;
    for (Trial& trial : trials_) {
      if (trial.mappings.empty() && !trial.error && trial.point.row.reason.empty()) {
        trial.point.row.reason = stopped_ ? "stopped before it was measured"
                                          : "the budget was over before it was measured";
      }
      result.rows.push_back(row_of(std::move(trial), disturbed));
    }
    result.looks.assign(noise_.looks().begin(), noise_.looks().end());
    result.disturbed = static_cast<std::size_t>(std::ranges::count(disturbed, true));
    result.rounds = rounds_;
    result.stopped = stopped_;
    return result;
  }

  const MeasureOptions& options_;
  const ExperimentContext& context_;
  std::vector<Trial> trials_;
  Arenas arenas_;
  Noise noise_;
  Random random_;
  Nanoseconds begin_{0};
  Nanoseconds looked_{0};
  std::size_t look_ = 0;
  unsigned rounds_ = 0;
  bool stopped_ = false;
};

// The median mapping by name; a name that only some have is taken from those.
std::map<std::string, double> middle_details(const std::vector<Mapping>& mappings) {
  std::map<std::string, std::vector<double>> all;
  for (const Mapping& mapping : mappings) {
    for (const auto& [name, value] : mapping.details) all[name].push_back(value);
  }
  std::map<std::string, double> middle;
  for (const auto& [name, values] : all) middle[name] = *median(values);
  return middle;
}

}  // namespace

void leave_out(std::vector<Point>& points, std::optional<Nanoseconds> budget) {
  if (!budget) return;
  std::vector<Point*> by_rank;
  for (Point& point : points) {
    if (point.row.reason.empty()) by_rank.push_back(&point);
  }
  // Of equal rank in the order of the experiment: they lie in one array.
  std::ranges::sort(by_rank, {}, [](Point* point) { return std::pair(point->rank, point); });
  const double allowed = seconds(*budget) * kForPoints;
  double used = 0;
  for (Point* point : by_rank) {
    used += seconds(point->cost) * kLeastMappings;
    if (used > allowed) {
      point->row.reason = fmt::format(
          "left out: a budget of {:.0f} s is taken by what is wanted more; --full measures all",
          seconds(*budget));
    }
  }
}

Row row_of(Trial trial, const std::vector<bool>& disturbed) {
  Row row = std::move(trial.point.row);
  // A point that was too busy at last keeps what it measured before.
  if (trial.error && (trial.mappings.empty() || trial.error->code != ErrorCode::timed_out)) {
    row.reason = trial.error->message;
    return row;
  }
  if (trial.mappings.empty()) return row;
  const auto is_noisy = [&](const Mapping& mapping) {
    const auto off = [&](std::size_t look) { return look < disturbed.size() && disturbed[look]; };
    return mapping.cpu_share < Noise::kLeastShare || off(mapping.look) || off(mapping.look + 1);
  };
  const auto noisy = static_cast<std::size_t>(std::ranges::count_if(trial.mappings, is_noisy));
  if (trial.mappings.size() - noisy >= kLeastMappings) {
    std::erase_if(trial.mappings, is_noisy);
  } else if (2 * noisy >= trial.mappings.size()) {
    row.flags.push_back("noisy");
  }
  if (trial.mappings.size() < kLeastMappings) row.flags.push_back("few");
  for (const Mapping& mapping : trial.mappings) row.samples.push_back(mapping.value);
  row.value = summarize(row.samples);
  row.details = middle_details(trial.mappings);
  return row;
}

SessionResult run_session(const Machine& machine, std::vector<Point> points,
                          const MeasureOptions& options, const ExperimentContext& context) {
  Random random(options.seed);
  Noise noise = Noise::start(machine, random);
  return Session(machine, std::move(points), options, context, std::move(noise), random).run();
}

}  // namespace headrace
