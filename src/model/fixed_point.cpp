// SPDX-License-Identifier: Apache-2.0
#include "model/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/queue.h"

namespace headrace {
namespace {

constexpr unsigned kMostIterations = 400;
constexpr double kTolerance = 1e-10;  // of a ceiling's bandwidth
// Enough for rates, where a bandwidth that depends much on the mix makes the last steps swing.
constexpr double kRoughTolerance = 5e-3;
constexpr double kNear = 0.1;
constexpr double kLeastStep = 1.0 / 64;
constexpr double kLeastQueue = 1e-6;  // ns

// One class at one ceiling.
struct Share {
  std::size_t of_class;
  double weight;
};

// The system of equations over those ceilings that some class crosses.
class System {
 public:
  System(std::span<const ThreadClass> classes, std::span<const ScaledCeiling> ceilings)
      : classes_(classes), ceilings_(ceilings), row_(ceilings.size(), kNone) {
    for (std::size_t i = 0; i < classes.size(); ++i) {
      for (const ClassCrossing& crossing : classes[i].crossings) {
        if (crossing.weight <= 0) continue;
        std::size_t& row = row_[crossing.ceiling];
        if (row == kNone) {
          row = active_.size();
          active_.push_back(crossing.ceiling);
          shares_.emplace_back();
        }
        shares_[row].push_back({i, crossing.weight});
      }
    }
    bandwidth_.resize(size());
    reads_.resize(size());
    writes_.resize(size());
    delay_.resize(classes.size());
    rate_.resize(classes.size());
    residual_.resize(size());
  }

  std::size_t size() const { return active_.size(); }

  // True if a bandwidth depends on the mix.
  bool mixing() const {
    return std::ranges::any_of(active_, [&](std::size_t ceiling) {
      return ceilings_[ceiling].ceiling->bandwidth.points.size() > 1;
    });
  }

  // Delays and rates at these queues, and with the bandwidths of now, the residuals F.
  void evaluate(const std::vector<double>& queue) {
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      double delay = classes_[i].idle;
      for (const ClassCrossing& crossing : classes_[i].crossings) {
        if (crossing.weight > 0) delay += crossing.weight * queue[row_[crossing.ceiling]];
      }
      delay_[i] = delay;
      rate_[i] = rate(i, delay);
    }
    for (std::size_t c = 0; c < size(); ++c) {
      residual_[c] = load(c) - bandwidth_[c] * used(c, queue[c]).value;
    }
  }

  double load(std::size_t c) const {
    double sum = 0;
    for (const auto& [i, weight] : shares_[c]) sum += classes_[i].threads * weight * rate_[i];
    return sum;
  }

  Utilisation used(std::size_t c, double queue) const {
    const ScaledCeiling& scaled = ceilings_[active_[c]];
    const double scale = scaled.ceiling->queue.points.empty() ? scaled.queue : 1;
    Utilisation found = utilisation(scaled.ceiling->queue, queue / scale);
    found.slope /= scale;
    return found;
  }

  // Bandwidths at the mix of the rates of now: moves by `step` (0 to 1) of the difference. Returns
  // the largest relative difference.
  double mix(double step) {
    reads_.assign(size(), 0);
    writes_.assign(size(), 0);
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const double bytes = classes_[i].threads * rate_[i];
      for (const ClassCrossing& crossing : classes_[i].crossings) {
        if (crossing.weight <= 0) continue;
        reads_[row_[crossing.ceiling]] += bytes * crossing.reads;
        writes_[row_[crossing.ceiling]] += bytes * crossing.writes;
      }
    }
    double most = 0;
    for (std::size_t c = 0; c < size(); ++c) {
      const double wanted = bandwidth_at(c, write_share(c));
      if (bandwidth_[c] == 0) bandwidth_[c] = wanted;
      most = std::max(most, std::abs(wanted / bandwidth_[c] - 1));
      bandwidth_[c] += step * (wanted - bandwidth_[c]);
    }
    return most;
  }

  // The largest residual, relative to its ceiling.
  double error() const {
    double most = 0;
    for (std::size_t c = 0; c < size(); ++c) {
      const double each = std::abs(residual_[c]) / bandwidth_[c];
      if (!(each <= most)) most = each;
    }
    return most;
  }

  // Solves F_c = 0 for one queue after the other, roughly, to begin near the solution.
  void sweep(std::vector<double>& queue) {
    for (std::size_t c = 0; c < size(); ++c) {
      const double found = alone(c, queue[c]);
      for (const auto& [i, weight] : shares_[c]) {
        delay_[i] += weight * (found - queue[c]);
        rate_[i] = rate(i, delay_[i]);
      }
      queue[c] = found;
    }
  }

  // How many times a step may be taken until a class that waits would have no delay left.
  double farthest(const std::vector<double>& queue, const std::vector<double>& step) const {
    double most = 1e6;
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      double delay = classes_[i].idle;
      double change = 0;
      for (const ClassCrossing& crossing : classes_[i].crossings) {
        if (crossing.weight <= 0) continue;
        delay += crossing.weight * queue[row_[crossing.ceiling]];
        change += crossing.weight * step[row_[crossing.ceiling]];
      }
      if (std::isinf(classes_[i].cap) && change < 0) most = std::min(most, 0.95 * delay / -change);
    }
    return most;
  }

  // The matrix of -dF/dq, row by row. With fixed bandwidths it is positive definite; `mixing`: with
  // bandwidths that follow the mix of the rates.
  void jacobian(const std::vector<double>& queue, bool mixing, std::vector<double>& matrix) const {
    const std::size_t n = size();
    matrix.assign(n * n, 0);
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const ThreadClass& each = classes_[i];
      if (capped(i, delay_[i])) continue;
      const double slope = each.threads * rate_[i] / delay_[i];
      for (const ClassCrossing& a : each.crossings) {
        if (a.weight <= 0) continue;
        const std::size_t c = row_[a.ceiling];
        double weight = a.weight;
        if (mixing) {
          const double sum = reads_[c] + writes_[c];
          const double share = (a.writes * reads_[c] - a.reads * writes_[c]) / (sum * sum);
          weight -= share * mix_slope(c) * used(c, queue[c]).value;
        }
        double* row = &matrix[c * n];
        for (const ClassCrossing& b : each.crossings) {
          if (b.weight > 0) row[row_[b.ceiling]] += slope * weight * b.weight;
        }
      }
    }
    for (std::size_t c = 0; c < n; ++c) {
      matrix[c * n + c] += bandwidth_[c] * used(c, queue[c]).slope;
    }
  }

  FixedPoint result(const std::vector<double>& queue) const {
    FixedPoint point;
    point.delay = delay_;
    point.rate = rate_;
    point.load.assign(ceilings_.size(), 0);
    point.write_share.assign(ceilings_.size(), 0);
    point.queue.assign(ceilings_.size(), 0);
    for (std::size_t c = 0; c < ceilings_.size(); ++c) {
      point.bandwidth.push_back(ceilings_[c].ceiling->bandwidth.at(0) * ceilings_[c].bandwidth *
                                1e-9);
    }
    for (std::size_t c = 0; c < size(); ++c) {
      point.load[active_[c]] = load(c);
      point.bandwidth[active_[c]] = bandwidth_[c];
      point.write_share[active_[c]] = write_share(c);
      point.queue[active_[c]] = std::max(queue[c], 0.0);
    }
    return point;
  }

  // Sets the bandwidths to those of a solution.
  void resume(const FixedPoint& point) {
    for (std::size_t c = 0; c < size(); ++c) bandwidth_[c] = point.bandwidth[active_[c]];
  }

  const std::vector<double>& residual() const { return residual_; }
  const std::vector<std::size_t>& active() const { return active_; }
  std::size_t row(std::size_t ceiling) const { return row_[ceiling]; }
  double bandwidth(std::size_t c) const { return bandwidth_[c]; }
  const std::vector<double>& bandwidths() const { return bandwidth_; }
  void set_bandwidths(const std::vector<double>& values) { bandwidth_ = values; }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  // True if the cap holds the class back, so that its rate does not depend on delays.
  bool capped(std::size_t i, double delay) const {
    return classes_[i].in_flight > classes_[i].cap * delay;
  }

  double rate(std::size_t i, double delay) const {
    return capped(i, delay) ? classes_[i].cap : classes_[i].in_flight / delay;
  }

  double write_share(std::size_t c) const {
    const double sum = reads_[c] + writes_[c];
    return sum > 0 ? writes_[c] / sum : 0;
  }

  // Bytes per ns.
  double bandwidth_at(std::size_t c, double share) const {
    const ScaledCeiling& scaled = ceilings_[active_[c]];
    return scaled.ceiling->bandwidth.at(share) * scaled.bandwidth * 1e-9;
  }

  // The slope of the bandwidth over the share of writes.
  double mix_slope(std::size_t c) const {
    if (ceilings_[active_[c]].ceiling->bandwidth.points.size() == 1) return 0;
    constexpr double kStep = 1e-7;
    const double share = std::clamp(write_share(c), kStep, 1 - kStep);
    return (bandwidth_at(c, share + kStep) - bandwidth_at(c, share - kStep)) / (2 * kStep);
  }

  // The queue of ceiling c at which F_c = 0 while all other queues stay, within a thousandth.
  double alone(std::size_t c, double from) const {
    const auto excess = [&](double queue) {
      double sum = 0;
      for (const auto& [i, weight] : shares_[c]) {
        const double delay = delay_[i] + weight * (queue - from);
        sum +=
            classes_[i].threads * weight * std::min(classes_[i].cap, classes_[i].in_flight / delay);
      }
      return sum - bandwidth_[c] * used(c, queue).value;
    };
    double low = from;
    double high = from;
    // Utilisations reach more than 1, and loads fall to 0: there is an end.
    while (excess(high) > 0) {
      low = high;
      high *= 4;
    }
    while (low > kLeastQueue && low == high) {
      if (excess(low / 4) > 0) {
        low /= 4;
        break;
      }
      low = high = high / 4;
    }
    while (high > low * 1.01) {
      const double middle = std::sqrt(low * high);
      (excess(middle) > 0 ? low : high) = middle;
    }
    return std::sqrt(low * high);
  }

  const std::span<const ThreadClass> classes_;
  const std::span<const ScaledCeiling> ceilings_;
  std::vector<std::size_t> row_;     // by ceiling: its equation, or kNone
  std::vector<std::size_t> active_;  // by equation: its ceiling
  std::vector<std::vector<Share>> shares_;
  std::vector<double> bandwidth_;
  std::vector<double> reads_;
  std::vector<double> writes_;
  std::vector<double> delay_;
  std::vector<double> rate_;
  std::vector<double> residual_;
};

// Cholesky's factor of a positive definite matrix, in its lower half.
void factorise(std::vector<double>& matrix, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    double* row_j = &matrix[j * n];
    double pivot = row_j[j];
    for (std::size_t k = 0; k < j; ++k) pivot -= row_j[k] * row_j[k];
    // Rounding may leave nothing of a pivot whose ceiling adds little.
    pivot = std::sqrt(std::max(pivot, row_j[j] * 1e-15));
    row_j[j] = pivot;
    for (std::size_t i = j + 1; i < n; ++i) {
      double* row_i = &matrix[i * n];
      double sum = row_i[j];
      for (std::size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / pivot;
    }
  }
}

// Solves A x = b for the factor of A.
std::vector<double> solve_factored(const std::vector<double>& matrix, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= matrix[i * n + k] * b[k];
    b[i] /= matrix[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= matrix[k * n + i] * b[k];
    b[i] /= matrix[i * n + i];
  }
  return b;
}

// Solves A x = b by elimination with row pivots; A and b are changed.
std::vector<double> eliminate(std::vector<double>& matrix, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(matrix[i * n + k]) > std::abs(matrix[pivot * n + k])) pivot = i;
    }
    if (pivot != k) {
      std::swap_ranges(&matrix[k * n], &matrix[k * n] + n, &matrix[pivot * n]);
      std::swap(b[k], b[pivot]);
    }
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = matrix[i * n + k] / matrix[k * n + k];
      if (factor == 0) continue;
      for (std::size_t j = k + 1; j < n; ++j) matrix[i * n + j] -= factor * matrix[k * n + j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) b[i] -= matrix[i * n + j] * b[j];
    b[i] /= matrix[i * n + i];
  }
  return b;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Moves `queue` along `step` to where the function that F is the gradient of is about largest: its
// slope along the step, F * step, falls from `slope` through 0. On the way a queue may be below 0.
void search(System& system, std::vector<double>& queue, const std::vector<double>& step) {
  const double slope = product(system.residual(), step);
  const double most = system.farthest(queue, step);
  double low = 0;
  double high = most;
  double at = std::min(1.0, most);
  std::vector<double> moved(queue.size());
  for (int tries = 0; tries < 60; ++tries) {
    for (std::size_t c = 0; c < queue.size(); ++c) moved[c] = queue[c] + at * step[c];
    system.evaluate(moved);
    const double now = product(system.residual(), step);
    if (now > 0.9 * slope && at < most) {
      low = at;
      at = high < most ? (at + high) / 2 : std::min(most, at * 4);
    } else if (now < -0.1 * slope) {
      high = at;
      at = low > 0 ? (low + at) / 2 : at / 4;
    } else {
      break;
    }
  }
  queue = std::move(moved);
}

// The error at these queues with the bandwidths of their mix.
double mixed_error(System& system, const std::vector<double>& queue) {
  system.evaluate(queue);
  system.mix(1);
  system.evaluate(queue);
  return system.error();
}

// A step of Newton's method for queues and bandwidths together: far faster than `search` near the
// solution, and not sure to get nearer from afar. Sets `error`. True if the error halved (by
// a smaller step: fell by less), or was small; otherwise queues and bandwidths stay.
bool leap(System& system, std::vector<double>& queue, std::vector<double>& matrix, double& error) {
  const std::vector<double> bandwidths = system.bandwidths();
  const double before = mixed_error(system, queue);
  error = before;
  if (before < kTolerance) return true;
  std::vector<double> step;
  if (system.mixing()) {
    system.jacobian(queue, true, matrix);
    step = eliminate(matrix, system.residual());
  } else {
    system.jacobian(queue, false, matrix);
    factorise(matrix, system.size());
    step = solve_factored(matrix, system.residual());
  }
  std::vector<double> moved(queue.size());
  for (const double part : {1.0, 0.5, 0.2, 0.05}) {
    for (std::size_t c = 0; c < queue.size(); ++c) moved[c] = queue[c] + part * step[c];
    const double after = mixed_error(system, moved);
    if (after < (1 - part / 2) * before || after < kTolerance) {
      queue = std::move(moved);
      error = after;
      return true;
    }
    if (before > kNear) break;
  }
  system.set_bandwidths(bandwidths);
  system.evaluate(queue);
  return false;
}

}  // namespace

FixedPoint solve_fixed_point(std::span<const ThreadClass> classes,
                             std::span<const ScaledCeiling> ceilings) {
  System system(classes, ceilings);
  std::vector<double> queue(system.size(), 1.0);
  system.evaluate(queue);  // rates, for a first mix
  system.mix(1);
  system.sweep(queue);
  std::vector<double> matrix;
  double error = mixed_error(system, queue);
  double step = 1;
  double moved = 1;
  unsigned next_leap = 0;
  unsigned wait = 1;
  unsigned iterations = 0;
  for (; iterations < kMostIterations && !(error < kTolerance); ++iterations) {
    // After a leap that failed, twice as many steps of the surer kind as the last time.
    if (iterations >= next_leap) {
      if (leap(system, queue, matrix, error)) continue;
      next_leap = iterations + wait;
      wait *= 2;
    }
    if (system.error() < std::max(0.1 * moved, kTolerance)) {
      // Solved for these bandwidths, well enough to move them on: by smaller steps if they swing,
      // so that the rest falls more slowly than a step should make it.
      const double now = system.mix(step);
      step = std::clamp(now > (1 - step / 2) * moved ? step / 2 : step * 1.5, kLeastStep, 1.0);
      moved = now;
      system.evaluate(queue);
    }
    const double before = system.error();
    system.jacobian(queue, false, matrix);
    factorise(matrix, system.size());
    search(system, queue, solve_factored(matrix, system.residual()));
    if (system.error() > 0.9 * before) {
      for (double& each : queue) each = std::max(each, kLeastQueue);
      system.evaluate(queue);
      system.sweep(queue);
    }
  }
  FixedPoint point = system.result(queue);
  point.iterations = iterations;
  point.converged = error < kRoughTolerance;
  return point;
}

std::vector<std::vector<double>> elasticities(std::span<const ThreadClass> classes,
                                              std::span<const ScaledCeiling> ceilings,
                                              const FixedPoint& point) {
  System system(classes, ceilings);
  system.resume(point);
  std::vector<double> queue;
  for (const std::size_t ceiling : system.active()) queue.push_back(point.queue[ceiling]);
  system.evaluate(queue);
  std::vector<double> matrix;
  system.jacobian(queue, false, matrix);
  factorise(matrix, system.size());
  std::vector<std::vector<double>> found;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    std::vector<double>& of_class = found.emplace_back(ceilings.size() + 1, 0.0);
    const ThreadClass& each = classes[i];
    if (each.in_flight / point.delay[i] > each.cap) continue;
    std::vector<double> weights(system.size(), 0);
    for (const ClassCrossing& crossing : each.crossings) {
      if (crossing.weight > 0) weights[system.row(crossing.ceiling)] = crossing.weight;
    }
    // Change of all queues per change of the demand in proportion to these weights.
    const std::vector<double> effect = solve_factored(matrix, weights);
    for (std::size_t c = 0; c < system.size(); ++c) {
      const double served = system.bandwidth(c) * system.used(c, queue[c]).value;
      of_class[system.active()[c]] = effect[c] * served / point.delay[i];
    }
    of_class.back() = 1 - product(weights, effect) * each.threads * point.rate[i] / point.delay[i];
  }
  return found;
}

}  // namespace headrace
