// What differs between two profiles. Works on logarithms of ratios, so that twice as fast and half
// as fast are equally far; why the test is as it is: docs/design/compare.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "headrace/profile.h"

namespace headrace {
namespace {

// MAD to standard deviation, and standard error of a median to that of a mean, of a normal
// distribution.
constexpr double kSigmaOfMad = 1.4826;
constexpr double kMedianCost = 1.2533;
// A shift of a whole experiment is judged by its rows; fewer say too little.
constexpr std::size_t kLeastRows = 5;
// The chance that one of all judgements of a comparison is a false alarm, if the noise
// were normal.
constexpr double kFalseAlarm = 0.01;

// z with P(|N(0,1)| > z) = p: rational approximation 26.2.23 of Abramowitz and Stegun, error below
// 4.5e-4.
double two_sided_z(double p) {
  const double t = std::sqrt(-2 * std::log(p / 2));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) {
    if (value > 0) logs.push_back(std::log(value));
  }
  return logs;
}

// What the MAD of n samples is to be multiplied by, as it comes out too small for few (Croux and
// Rousseeuw 1992, their b_n; for n = 1 nothing is known, and the experiment's usual sigma counts).
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

bool has_value(const Row* row) { return row != nullptr && row->value && row->value->median > 0; }

struct Pair {
  const Row* before = nullptr;
  const Row* after = nullptr;
  bool judged() const {
    return has_value(before) && has_value(after) && !before->has_flag("noisy") &&
           !after->has_flag("noisy");
  }
  double log_ratio() const { return std::log(after->value->median / before->value->median); }
  double sigma_of_both() const { return std::max(sigma(*before), sigma(*after)); }
  // Standard error of log_ratio() if single samples vary by `s`.
  double error(double s) const {
    const auto n = [](const Row& row) { return std::max<double>(1, double(row.samples.size())); };
    return kMedianCost * s * std::sqrt(1 / n(*before) + 1 / n(*after));
  }
};

std::vector<Pair> pair_up(const Profile& before, const Profile& after) {
  std::vector<Pair> pairs;
  std::unordered_map<std::string, std::size_t> known;
  for (const Row& row : before.rows) {
    if (known.emplace(row.key(), pairs.size()).second) pairs.push_back({&row, nullptr});
  }
  for (const Row& row : after.rows) {
    const auto [at, is_new] = known.emplace(row.key(), pairs.size());
    if (is_new) {
      pairs.push_back({nullptr, &row});
    } else {
      pairs[at->second].after = &row;
    }
  }
  return pairs;
}

// The usual sigma of an experiment's rows: a row whose three samples happen to agree is not more
// certain than its neighbours.
std::map<std::string, double> usual_sigmas(const std::vector<Pair>& pairs) {
  std::map<std::string, std::vector<double>> all;
  for (const Pair& pair : pairs) {
    if (pair.judged()) all[pair.before->experiment].push_back(pair.sigma_of_both());
  }
  std::map<std::string, double> usual;
  for (const auto& [experiment, sigmas] : all) usual[experiment] = median(sigmas).value_or(0);
  return usual;
}

Difference judge(const Pair& pair, double usual, double z, double least) {
  const Row& row = pair.before != nullptr ? *pair.before : *pair.after;
  Difference found{.key = row.key(), .unit = row.unit};
  if (has_value(pair.before)) found.old_value = pair.before->value->median;
  if (has_value(pair.after)) found.new_value = pair.after->value->median;
  if (!found.old_value || !found.new_value) {
    if (found.old_value) found.outcome = Difference::Outcome::only_old;
    if (found.new_value) found.outcome = Difference::Outcome::only_new;
    return found;
  }
  found.ratio = *found.new_value / *found.old_value;
  found.threshold = std::max(least, z * pair.error(std::max(usual, pair.sigma_of_both())));
  const bool beyond = std::abs(pair.log_ratio()) > found.threshold;
  found.outcome = !pair.judged() ? Difference::Outcome::noisy
                  : beyond       ? Difference::Outcome::changed
                                 : Difference::Outcome::same;
  return found;
}

std::vector<Shift> shifts_of(const std::vector<Pair>& pairs, double z, double least) {
  std::map<std::string, std::vector<double>> ratios;
  for (const Pair& pair : pairs) {
    if (pair.judged()) ratios[pair.before->experiment].push_back(pair.log_ratio());
  }
  std::vector<Shift> shifts;
  for (const auto& [experiment, logs] : ratios) {
    const double spread = kSigmaOfMad * *median_absolute_deviation(logs);
    const double error = kMedianCost * spread / std::sqrt(double(logs.size()));
    const double middle = *median(logs);
    Shift shift{.experiment = experiment,
                .rows = logs.size(),
                .ratio = std::exp(middle),
                .threshold = std::max(least, z * error)};
    shift.changed = logs.size() >= kLeastRows && std::abs(middle) > shift.threshold;
    shifts.push_back(shift);
  }
  return shifts;
}

}  // namespace

std::string_view to_string(Difference::Outcome outcome) {
  switch (outcome) {
    case Difference::Outcome::same: return "same";
    case Difference::Outcome::changed: return "changed";
    case Difference::Outcome::noisy: return "noisy";
    case Difference::Outcome::only_old: return "only_old";
    case Difference::Outcome::only_new: return "only_new";
    case Difference::Outcome::unmeasured: return "unmeasured";
  }
  return "?";
}

bool Comparison::changed() const {
  return std::ranges::any_of(shifts, &Shift::changed) ||
         std::ranges::any_of(rows, [](const Difference& row) {
           return row.outcome == Difference::Outcome::changed;
         });
}

Comparison compare(const Profile& before, const Profile& after, const CompareOptions& options) {
  const std::vector<Pair> pairs = pair_up(before, after);
  const auto usual = usual_sigmas(pairs);
  const auto judged = static_cast<std::size_t>(std::ranges::count_if(pairs, &Pair::judged));
  // Bonferroni: the more rows are judged, the further out one has to be.
  const double z = two_sided_z(kFalseAlarm / static_cast<double>(judged + usual.size() + 1));
  const double least = std::log1p(options.least);
  Comparison comparison;
  for (const Pair& pair : pairs) {
    const Row& row = pair.before != nullptr ? *pair.before : *pair.after;
    const auto sigma = usual.find(row.experiment);
    comparison.rows.push_back(judge(pair, sigma == usual.end() ? 0 : sigma->second, z, least));
  }
  comparison.shifts = shifts_of(pairs, z, std::log1p(std::max(options.least, options.least_shift)));
  return comparison;
}

}  // namespace headrace
