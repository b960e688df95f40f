// SPDX-License-Identifier: Apache-2.0
// Compares two profiles, or two groups of profiles. Uses logarithms of ratios, so twice as fast and
// half as fast are equally far. Reasons for the test: docs/design/compare.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "core/check.h"
#include "core/text/enum_words.h"
#include "headrace/profile.h"
#include "profile/between_runs.h"

namespace headrace {
namespace {

constexpr EnumWords<Difference::Outcome::unmeasured> kOutcomes(
    "outcome", {"same", "changed", "inconclusive", "noisy", "too_few", "other_pages", "only_old",
                "only_new", "unmeasured"});

using between_runs::two_sided_t;
using between_runs::two_sided_z;
using between_runs::Variance;

// Ratios for a normal distribution: standard deviation / MAD, and standard error of a median / that
// of a mean.
constexpr double kSigmaOfMad = 1.4826;
constexpr double kMedianCost = 1.2533;
// A shift of a whole experiment between two runs is judged from this number of rows on.
constexpr std::size_t kLeastRows = 5;
// The chance that any judgement of a comparison is a false alarm under normal noise: between two
// runs; between groups of runs by single rows; and by whole experiments.
constexpr double kFalseAlarm = 0.01;
constexpr double kFalseRow = 0.01;
constexpr double kFalseShift = 0.02;
// A row's noisy runs are left out if this many quiet ones remain on their side.
constexpr std::size_t kEnoughQuiet = 3;

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) {
    if (value > 0) logs.push_back(std::log(value));
  }
  return logs;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The factor that corrects the MAD of n samples, which is too small for few (Croux and Rousseeuw
// 1992, their b_n). For n = 1 nothing is known, and the experiment's usual sigma is used.
double small_sample_factor(std::size_t n) {
  constexpr std::array kFactors = {1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107};
  const auto count = static_cast<double>(n);
  return n < kFactors.size() ? kFactors[n] : count / (count - 0.8);
}

double sigma(const Row& row) {
  const std::vector<double> logs = logarithms(row.samples);
  return kSigmaOfMad * small_sample_factor(logs.size()) *
         median_absolute_deviation(logs).value_or(0);
}

// One row in the runs of one side that have a value for it.
struct Side {
  struct Value {
    const Row* row;
    std::size_t run;
  };
  std::vector<Value> values;

  std::size_t runs() const { return values.size(); }
  // One per run.
  std::vector<double> logs() const {
    std::vector<double> found;
    for (const Value& each : values) found.push_back(std::log(each.row->value->median));
    return found;
  }
  bool once_and_noisy() const { return runs() == 1 && values[0].row->has_flag("noisy"); }

  bool all_huge() const {
    return std::ranges::none_of(values,
                                [](const Value& value) { return value.row->has_flag("not_huge"); });
  }

  void leave_noisy_out() {
    const auto noisy = [](const Value& value) { return value.row->has_flag("noisy"); };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(values, noisy));
    if (runs() - count >= kEnoughQuiet) std::erase_if(values, noisy);
  }
};

struct Pair {
  const Row* any = nullptr;
  bool in_caches = false;
  Side before;
  Side after;

  const std::string& experiment() const { return any->experiment; }
  bool comparable() const { return before.runs() > 0 && after.runs() > 0; }
  // True if the memory of both sides was in the same kind of pages, as far as known.
  bool alike_pages() const { return before.all_huge() == after.all_huge(); }
  bool judged() const {
    return comparable() && alike_pages() && !before.once_and_noisy() && !after.once_and_noisy();
  }
  double log_ratio() const { return mean(after.logs()) - mean(before.logs()); }
  // The standard error of log_ratio() if one run varies by `s`.
  double error_of_runs(double s) const {
    return s * std::sqrt(1 / double(before.runs()) + 1 / double(after.runs()));
  }

  // For two runs: from their samples.
  double sigma_of_both() const {
    return std::max(sigma(*before.values[0].row), sigma(*after.values[0].row));
  }
  double error_of_samples(double s) const {
    const auto n = [](const Side& side) {
      return std::max<double>(1, double(side.values[0].row->samples.size()));
    };
    return kMedianCost * s * std::sqrt(1 / n(before) + 1 / n(after));
  }
};

// Size of the machine's largest cache; 0: unknown.
Bytes largest_cache(const Machine& machine) {
  Bytes most;
  for (const CacheLevel& cache : machine.caches) most = std::max(most, cache.size);
  return most;
}

// Slower memory does not change these rows, and a slower cache does not change the other rows.
bool is_in_caches(const Row& row, Bytes cache) {
  const std::uint64_t* const bytes = row.number("bytes");
  return row.word("state") == "hot" ||
         (row.experiment == "latency" && bytes != nullptr && *bytes <= cache.value);
}

std::vector<Pair> pair_up(std::span<const Profile> before, std::span<const Profile> after) {
  std::vector<Pair> pairs;
  std::unordered_map<std::string, std::size_t> known;
  const Bytes cache = largest_cache(before[0].machine);
  const auto add = [&](std::span<const Profile> runs, Side Pair::* side) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      for (const Row& row : runs[run].rows) {
        const auto [at, is_new] = known.emplace(row.key(), pairs.size());
        if (is_new) pairs.push_back({.any = &row, .in_caches = is_in_caches(row, cache)});
        Side& found = pairs[at->second].*side;
        const bool twice = !found.values.empty() && found.values.back().run == run;
        if (!twice && row.value && row.value->median > 0) found.values.push_back({&row, run});
      }
    }
  };
  add(before, &Pair::before);
  add(after, &Pair::after);
  for (Pair& pair : pairs) {
    pair.before.leave_noisy_out();
    pair.after.leave_noisy_out();
  }
  return pairs;
}

using Group = std::pair<std::string, bool>;  // the experiment, and whether in caches
using ByExperiment = std::map<Group, std::vector<const Pair*>>;

ByExperiment judged_by_experiment(const std::vector<Pair>& pairs) {
  ByExperiment all;
  for (const Pair& pair : pairs) {
    if (pair.judged()) all[{pair.experiment(), pair.in_caches}].push_back(&pair);
  }
  return all;
}

struct Threshold {
  double counts = 0;  // the threshold of a change
  double own = 0;     // the same, from the row's own samples only
};
using Thresholds = std::unordered_map<const Pair*, Threshold>;

// Two runs: a difference is compared with the spread of their samples.
class TwoRuns {
 public:
  TwoRuns(const ByExperiment& rows, const CompareOptions& options) : rows_(rows) {
    std::size_t judgements = rows.size() + 1;
    for (const auto& [experiment, pairs] : rows) judgements += pairs.size();
    // Bonferroni: the threshold grows with the number of judged rows.
    z_ = two_sided_z(kFalseAlarm / static_cast<double>(judgements));
    least_ = std::log1p(options.least);
    least_shift_ = std::log1p(std::max(options.least, options.least_shift));
  }

  Thresholds thresholds() const {
    Thresholds all;
    std::vector<const Pair*> every;
    for (const auto& [experiment, pairs] : rows_) {
      every.insert(every.end(), pairs.begin(), pairs.end());
    }
    for (const auto& [experiment, pairs] : rows_) {
      // A row with three samples that agree by chance is not more certain than its neighbours.
      std::vector<double> sigmas;
      for (const Pair* pair : pairs) sigmas.push_back(pair->sigma_of_both());
      const double usual = *median(sigmas);
      const auto& alike = pairs.size() < kLeastRows ? every : pairs;
      const double runs = alike.size() < kLeastRows ? 0 : spread_of_ratios(alike);
      for (const Pair* pair : pairs) {
        const double error = pair->error_of_samples(std::max(usual, pair->sigma_of_both()));
        const double own = std::max(least_, z_ * error);
        all[pair] = {.counts = std::max(own, z_ * runs), .own = own};
      }
    }
    return all;
  }

  std::vector<Shift> shifts() const {
    std::vector<Shift> all;
    for (const auto& [group, pairs] : rows_) {
      const std::vector<double> logs = ratios(pairs);
      const double error = kMedianCost * spread_of_ratios(pairs) / std::sqrt(double(logs.size()));
      const double middle = *median(logs);
      Shift shift{.experiment = group.first,
                  .in_caches = group.second,
                  .rows = logs.size(),
                  .ratio = std::exp(middle),
                  .threshold = std::max(least_shift_, z_ * error)};
      shift.changed = logs.size() >= kLeastRows && std::abs(middle) > shift.threshold;
      all.push_back(shift);
    }
    return all;
  }

 private:
  static std::vector<double> ratios(const std::vector<const Pair*>& pairs) {
    std::vector<double> logs;
    for (const Pair* pair : pairs) logs.push_back(pair->log_ratio());
    return logs;
  }

  // The usual difference between two runs, over the rows of an experiment. It is more than the
  // samples of each row show.
  static double spread_of_ratios(const std::vector<const Pair*>& pairs) {
    return kSigmaOfMad * *median_absolute_deviation(ratios(pairs));
  }

  const ByExperiment& rows_;
  double z_ = 0;
  double least_ = 0;
  double least_shift_ = 0;
};

// Groups of runs: a difference is compared with the differences between runs of one side.
class Groups {
 public:
  Groups(const ByExperiment& rows, std::size_t before, std::size_t after,
         const CompareOptions& options)
      : rows_(rows), before_(before), after_(after), least_(std::log1p(options.least)) {
    for (const auto& [experiment, pairs] : rows) judged_ += pairs.size();
  }

  Thresholds thresholds() const {
    Thresholds all;
    for (const auto& [experiment, pairs] : rows_) {
      std::vector<Variance> own;
      for (const Pair* pair : pairs) {
        own.push_back(between_runs::pooled(std::array{pair->before.logs(), pair->after.logs()}));
      }
      const std::vector<Variance> found = between_runs::moderated(own);
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (found[i].freedom == 0) continue;
        const double error = pairs[i]->error_of_runs(std::sqrt(found[i].value));
        const double counts = threshold(kFalseRow / double(judged_), error, found[i].freedom);
        all[pairs[i]] = {.counts = counts, .own = counts};
      }
    }
    return all;
  }

  // The level of an experiment in each run is a value like that of a row.
  std::vector<Shift> shifts() const {
    std::vector<Shift> all;
    std::vector<Variance> own;
    std::vector<double> differences;
    std::vector<double> errors;  // for a standard deviation of 1
    for (const auto& [group, pairs] : rows_) {
      const auto sides =
          std::array{levels(pairs, &Pair::before, before_), levels(pairs, &Pair::after, after_)};
      own.push_back(between_runs::pooled(sides));
      differences.push_back(mean(sides[1]) - mean(sides[0]));
      errors.push_back(std::sqrt(1 / double(sides[0].size()) + 1 / double(sides[1].size())));
      all.push_back({.experiment = group.first,
                     .in_caches = group.second,
                     .rows = pairs.size(),
                     .ratio = std::exp(differences.back())});
    }
    const std::vector<Variance> found = between_runs::moderated(own);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double error = errors[i] * std::sqrt(found[i].value);
      all[i].threshold = threshold(kFalseShift / double(all.size()), error, found[i].freedom);
      const bool known = all[i].rows > 1 && found[i].freedom > 0;
      all[i].changed = known && std::abs(differences[i]) > all[i].threshold;
    }
    return all;
  }

 private:
  double threshold(double false_alarm, double error, double freedom) const {
    return std::max(least_, two_sided_t(false_alarm, freedom) * error);
  }

  // Per run of a side: the median over rows of the distance from the row's own middle.
  std::vector<double> levels(const std::vector<const Pair*>& pairs, Side Pair::* side,
                             std::size_t runs) const {
    std::vector<std::vector<double>> by_run(runs);
    for (const Pair* pair : pairs) {
      const double middle = (mean(pair->before.logs()) + mean(pair->after.logs())) / 2;
      for (const Side::Value& value : (pair->*side).values) {
        by_run[value.run].push_back(std::log(value.row->value->median) - middle);
      }
    }
    std::vector<double> found;
    for (const std::vector<double>& logs : by_run) {
      if (!logs.empty()) found.push_back(*median(logs));
    }
    return found;
  }

  const ByExperiment& rows_;
  const std::size_t before_;
  const std::size_t after_;
  const double least_;
  std::size_t judged_ = 0;
};

Difference difference_of(const Pair& pair, const Thresholds& thresholds) {
  using enum Difference::Outcome;
  Difference found{.key = pair.any->key(),
                   .unit = pair.any->unit,
                   .in_caches = pair.in_caches,
                   .old_runs = pair.before.runs(),
                   .new_runs = pair.after.runs()};
  const auto value = [](const Side& side) {
    return side.runs() == 1 ? side.values[0].row->value->median : std::exp(mean(side.logs()));
  };
  if (found.old_runs > 0) found.old_value = value(pair.before);
  if (found.new_runs > 0) found.new_value = value(pair.after);
  if (!pair.comparable()) {
    found.outcome = found.old_value ? only_old : found.new_value ? only_new : unmeasured;
    return found;
  }
  found.ratio = *found.new_value / *found.old_value;
  found.outcome = pair.judged() ? too_few : pair.alike_pages() ? noisy : other_pages;
  if (const auto at = thresholds.find(&pair); at != thresholds.end()) {
    const double by = std::abs(pair.log_ratio());
    found.threshold = at->second.counts;
    found.outcome = by > found.threshold ? changed : by > at->second.own ? inconclusive : same;
  }
  return found;
}

template <class Judge>
Comparison judged_by(const Judge& judge, const std::vector<Pair>& pairs) {
  const Thresholds thresholds = judge.thresholds();
  Comparison comparison;
  for (const Pair& pair : pairs) comparison.rows.push_back(difference_of(pair, thresholds));
  comparison.shifts = judge.shifts();
  return comparison;
}

}  // namespace

std::string_view to_string(Difference::Outcome outcome) { return kOutcomes.of(outcome); }

bool Comparison::changed() const {
  return std::ranges::any_of(shifts, &Shift::changed) ||
         std::ranges::any_of(rows, [](const Difference& row) {
           return row.outcome == Difference::Outcome::changed;
         });
}

bool Comparison::inconclusive() const {
  const auto unclear = static_cast<std::size_t>(
      std::ranges::count(rows, Difference::Outcome::inconclusive, &Difference::outcome));
  return !changed() && 10 * unclear > judged() + unclear;
}

std::size_t Comparison::judged() const {
  return static_cast<std::size_t>(std::ranges::count_if(rows, [](const Difference& row) {
    return row.outcome == Difference::Outcome::same || row.outcome == Difference::Outcome::changed;
  }));
}

std::size_t Comparison::expected() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const Difference& row) { return row.old_value.has_value(); }));
}

Comparison compare(std::span<const Profile> before, std::span<const Profile> after,
                   const CompareOptions& options) {
  CHECK(!before.empty() && !after.empty());
  const std::vector<Pair> pairs = pair_up(before, after);
  const ByExperiment rows = judged_by_experiment(pairs);
  if (before.size() + after.size() == 2) return judged_by(TwoRuns(rows, options), pairs);
  return judged_by(Groups(rows, before.size(), after.size(), options), pairs);
}

Comparison compare(const Profile& before, const Profile& after, const CompareOptions& options) {
  return compare(std::span(&before, 1), std::span(&after, 1), options);
}

}  // namespace headrace
