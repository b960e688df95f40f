// SPDX-License-Identifier: Apache-2.0
#include "model/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/queue.h"

namespace headrace {
namespace {

constexpr unsigned kMostIterations = 200;
constexpr double kTolerance = 1e-10;  // of a ceiling's bandwidth

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
    write_share_.resize(size());
    delay_.resize(classes.size());
    rate_.resize(classes.size());
    residual_.resize(size());
  }

  std::size_t size() const { return active_.size(); }

  // Delays and rates at these queues, and with the bandwidths of now, the residuals F.
  void evaluate(const std::vector<double>& queue) {
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      double delay = classes_[i].idle;
      for (const ClassCrossing& crossing : classes_[i].crossings) {
        if (crossing.weight > 0) delay += crossing.weight * queue[row_[crossing.ceiling]];
      }
      delay_[i] = delay;
      rate_[i] = std::min(classes_[i].cap, classes_[i].in_flight / delay);
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
    std::vector<double> reads(size());
    std::vector<double> writes(size());
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const double bytes = classes_[i].threads * rate_[i];
      for (const ClassCrossing& crossing : classes_[i].crossings) {
        if (crossing.weight <= 0) continue;
        reads[row_[crossing.ceiling]] += bytes * crossing.reads;
        writes[row_[crossing.ceiling]] += bytes * crossing.writes;
      }
    }
    double most = 0;
    for (std::size_t c = 0; c < size(); ++c) {
      const double sum = reads[c] + writes[c];
      write_share_[c] = sum > 0 ? writes[c] / sum : 0;
      const ScaledCeiling& scaled = ceilings_[active_[c]];
      const double wanted =
          scaled.ceiling->bandwidth.at(write_share_[c]) * scaled.bandwidth * 1e-9;
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
      most = std::max(most, std::abs(residual_[c]) / bandwidth_[c]);
    }
    return most;
  }

  // Solves F_c = 0 for one queue after the other, roughly, to begin near the solution.
  void sweep(std::vector<double>& queue) {
    for (std::size_t c = 0; c < size(); ++c) {
      const double found = alone(c, queue[c]);
      for (const auto& [i, weight] : shares_[c]) {
        delay_[i] += weight * (found - queue[c]);
        rate_[i] = std::min(classes_[i].cap, classes_[i].in_flight / delay_[i]);
      }
      queue[c] = found;
    }
  }

  // The matrix of -dF/dq: positive definite, row by row.
  void jacobian(const std::vector<double>& queue, std::vector<double>& matrix) const {
    const std::size_t n = size();
    matrix.assign(n * n, 0);
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const ThreadClass& each = classes_[i];
      if (each.in_flight / delay_[i] > each.cap) continue;  // the rate does not depend on delays
      const double slope = each.threads * rate_[i] / delay_[i];
      for (const ClassCrossing& a : each.crossings) {
        if (a.weight <= 0) continue;
        double* row = &matrix[row_[a.ceiling] * n];
        for (const ClassCrossing& b : each.crossings) {
          if (b.weight > 0) row[row_[b.ceiling]] += slope * a.weight * b.weight;
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
      point.write_share[active_[c]] = write_share_[c];
      point.queue[active_[c]] = queue[c];
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

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  // The queue of ceiling c at which F_c = 0 while all other queues stay, within a thousandth.
  double alone(std::size_t c, double from) const {
    const auto excess = [&](double queue) {
      double sum = 0;
      for (const auto& [i, weight] : shares_[c]) {
        const double delay = delay_[i] + weight * (queue - from);
        sum += classes_[i].threads * weight *
               std::min(classes_[i].cap, classes_[i].in_flight / delay);
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
    while (low > 1e-6 && low == high) {
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
  std::vector<double> write_share_;
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

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Moves `queue` along `step` to where the function that F is the gradient of is about largest: its
// slope along the step, F * step, falls from `slope` through 0.
void search(System& system, std::vector<double>& queue, const std::vector<double>& step) {
  const double slope = product(system.residual(), step);
  double most = 1e6;
  for (std::size_t c = 0; c < queue.size(); ++c) {
    if (step[c] < 0) most = std::min(most, -0.95 * queue[c] / step[c]);
  }
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

}  // namespace

FixedPoint solve_fixed_point(std::span<const ThreadClass> classes,
                             std::span<const ScaledCeiling> ceilings) {
  System system(classes, ceilings);
  std::vector<double> queue(system.size(), 1.0);
  system.evaluate(queue);  // rates, for a first mix
  system.mix(1);
  system.sweep(queue);
  std::vector<double> matrix;
  bool converged = false;
  unsigned iterations = 0;
  while (iterations < kMostIterations) {
    ++iterations;
    // Damped after a while: a bandwidth that depends much on the mix could make it swing.
    const double moved = system.mix(iterations < 20 ? 1 : 0.5);
    system.evaluate(queue);
    converged = moved < kTolerance && system.error() < kTolerance;
    if (converged) break;
    system.jacobian(queue, matrix);
    factorise(matrix, system.size());
    search(system, queue, solve_factored(matrix, system.residual()));
  }
  FixedPoint point = system.result(queue);
  point.iterations = iterations;
  point.converged = converged;
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
  system.jacobian(queue, matrix);
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
    of_class.back() =
        1 - product(weights, effect) * each.threads * point.rate[i] / point.delay[i];
  }
  return found;
}

}  // namespace headrace
