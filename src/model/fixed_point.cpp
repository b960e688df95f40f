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

// One ceiling of a class: its equation, and bytes per byte of progress.
struct Crossed {
  std::size_t row;
  double reads;
  double writes;
  double weight;
};

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

// The system of equations over those ceilings that some class crosses.
class RateSystem::System {
 public:
  System(std::span<const ThreadClass> classes, std::span<const ScaledCeiling> ceilings);

  std::size_t size() const { return active_.size(); }

  void set_threads(std::span<const double> threads);

  // Delays and rates at these queues, and with the bandwidths of now, the residuals F.
  void evaluate(const std::vector<double>& queue) {
    for (const std::size_t i : present_) {
      double delay = classes_[i].idle;
      for (const Crossed& at : crossed(i)) delay += at.weight * queue[at.row];
      delay_[i] = delay;
      rate_[i] = rate(i, delay);
    }
    for (std::size_t c = 0; c < size(); ++c) {
      used_[c] = used(c, queue[c]);
      residual_[c] = load(c) - bandwidth_[c] * used_[c].value;
    }
  }

  double load(std::size_t c) const {
    double sum = 0;
    for (const auto& [i, weight] : shares_[c]) sum += classes_[i].threads * weight * rate_[i];
    return sum;
  }

  // Bandwidths at the mix of the rates of now: moves by `step` (0 to 1) of the difference. Returns
  // the largest relative difference.
  double mix(double step) {
    std::ranges::fill(reads_, 0);
    std::ranges::fill(writes_, 0);
    for (const std::size_t i : present_) {
      const double bytes = classes_[i].threads * rate_[i];
      for (const Crossed& at : crossed(i)) {
        reads_[at.row] += bytes * at.reads;
        writes_[at.row] += bytes * at.writes;
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
        if (classes_[i].threads <= 0) continue;
        delay_[i] += weight * (found - queue[c]);
        rate_[i] = rate(i, delay_[i]);
      }
      queue[c] = found;
    }
  }

  // How many times a step may be taken until a class that waits would have no delay left.
  double farthest(const std::vector<double>& queue, const std::vector<double>& step) const {
    double most = 1e6;
    for (const std::size_t i : present_) {
      double delay = classes_[i].idle;
      double change = 0;
      for (const Crossed& at : crossed(i)) {
        delay += at.weight * queue[at.row];
        change += at.weight * step[at.row];
      }
      if (std::isinf(classes_[i].cap) && change < 0) most = std::min(most, 0.95 * delay / -change);
    }
    return most;
  }

  // The matrix of -dF/dq where evaluate() was last, row by row. With fixed bandwidths it is
  // positive definite; `mixing`: with bandwidths that follow the mix of the rates.
  void jacobian(bool mixing) {
    const std::size_t n = size();
    matrix_.assign(n * n, 0);
    for (const std::size_t i : present_) {
      const ThreadClass& each = classes_[i];
      if (capped(i, delay_[i])) continue;
      const double slope = each.threads * rate_[i] / delay_[i];
      for (const Crossed& a : crossed(i)) {
        double weight = a.weight;
        if (mixing && mixes(a.row)) {
          const double sum = reads_[a.row] + writes_[a.row];
          const double share = (a.writes * reads_[a.row] - a.reads * writes_[a.row]) / (sum * sum);
          weight -= share * mix_slope(a.row) * used_[a.row].value;
        }
        double* row = &matrix_[a.row * n];
        for (const Crossed& b : crossed(i)) row[b.row] += slope * weight * b.weight;
      }
    }
    for (std::size_t c = 0; c < n; ++c) matrix_[c * n + c] += bandwidth_[c] * used_[c].slope;
  }

  // Begins at the last solution or, if that leads nowhere, from the beginning.
  void solve(FixedPoint& point);
  std::vector<double> elasticities(std::size_t i);

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::span<const Crossed> crossed(std::size_t i) const {
    return std::span(crossed_).subspan(first_[i], first_[i + 1] - first_[i]);
  }

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

  Utilisation used(std::size_t c, double at) const {
    const ScaledCeiling& scaled = ceilings_[active_[c]];
    const double scale = scaled.ceiling->queue.points.empty() ? scaled.queue : 1;
    Utilisation found = utilisation(scaled.ceiling->queue, at / scale);
    found.slope /= scale;
    return found;
  }

  // Bytes per ns.
  double bandwidth_at(std::size_t c, double share) const {
    const ScaledCeiling& scaled = ceilings_[active_[c]];
    return scaled.ceiling->bandwidth.at(share) * scaled.bandwidth * 1e-9;
  }

  bool mixes(std::size_t c) const {
    return ceilings_[active_[c]].ceiling->bandwidth.points.size() > 1;
  }

  // The slope of the bandwidth over the share of writes.
  double mix_slope(std::size_t c) const {
    constexpr double kStep = 1e-7;
    const double share = std::clamp(write_share(c), kStep, 1 - kStep);
    return (bandwidth_at(c, share + kStep) - bandwidth_at(c, share - kStep)) / (2 * kStep);
  }

  double alone(std::size_t c, double from) const;
  void search();
  double mixed_error(const std::vector<double>& queue);
  bool leap(double& error);
  void begin();
  void iterate(FixedPoint& point);
  void write(FixedPoint& point) const;

  std::vector<ThreadClass> classes_;
  std::vector<std::size_t> present_;  // classes with threads
  const std::vector<ScaledCeiling> ceilings_;
  std::vector<Crossed> crossed_;  // of all classes, one after another
  std::vector<std::size_t> first_;
  std::vector<std::size_t> active_;  // by equation: its ceiling
  std::vector<std::vector<Share>> shares_;
  bool mixing_ = false;    // a bandwidth depends on the mix
  bool warm_ = false;      // there is a last solution
  bool factored_ = false;  // `matrix` is that of the elasticities
  std::vector<double> bandwidth_;
  std::vector<double> reads_;
  std::vector<double> writes_;
  std::vector<double> delay_;
  std::vector<double> rate_;
  std::vector<double> residual_;
  std::vector<Utilisation> used_;
  // Kept from one solution to the next: the queues of the last one, and memory for steps.
  std::vector<double> queue_;
  std::vector<double> matrix_;
  std::vector<double> diagonal_;
  std::vector<double> step_;
  std::vector<double> moved_;
};

RateSystem::System::System(std::span<const ThreadClass> classes,
                           std::span<const ScaledCeiling> ceilings)
    : classes_(classes.begin(), classes.end()), ceilings_(ceilings.begin(), ceilings.end()) {
  std::vector<std::size_t> rows(ceilings.size(), kNone);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    first_.push_back(crossed_.size());
    for (const ClassCrossing& crossing : classes[i].crossings) {
      if (crossing.weight <= 0) continue;
      std::size_t& row = rows[crossing.ceiling];
      if (row == kNone) {
        row = active_.size();
        active_.push_back(crossing.ceiling);
        shares_.emplace_back();
        mixing_ = mixing_ || mixes(row);
      }
      shares_[row].push_back({i, crossing.weight});
      crossed_.push_back({row, crossing.reads, crossing.writes, crossing.weight});
    }
  }
  first_.push_back(crossed_.size());
  for (auto* each : {&bandwidth_, &reads_, &writes_, &residual_, &diagonal_, &moved_}) {
    each->resize(size());
  }
  used_.resize(size());
  delay_.resize(classes.size());
  rate_.resize(classes.size());
  queue_.assign(size(), 1.0);
}

void RateSystem::System::set_threads(std::span<const double> threads) {
  factored_ = false;
  present_.clear();
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    if (!threads.empty()) classes_[i].threads = threads[i];
    if (classes_[i].threads > 0) {
      present_.push_back(i);
    } else {
      delay_[i] = classes_[i].idle;
      rate_[i] = 0;
    }
  }
}

// The queue of ceiling c at which F_c = 0 while all other queues stay, within a hundredth.
double RateSystem::System::alone(std::size_t c, double from) const {
  const auto excess = [&](double at) {
    double sum = 0;
    for (const auto& [i, weight] : shares_[c]) {
      if (classes_[i].threads <= 0) continue;
      const double delay = delay_[i] + weight * (at - from);
      sum +=
          classes_[i].threads * weight * std::min(classes_[i].cap, classes_[i].in_flight / delay);
    }
    return sum - bandwidth_[c] * used(c, at).value;
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

void RateSystem::System::write(FixedPoint& point) const {
  point.delay = delay_;
  point.rate = rate_;
  for (auto* each : {&point.load, &point.write_share, &point.queue, &point.bandwidth}) {
    each->assign(ceilings_.size(), 0);
  }
  for (std::size_t c = 0; c < ceilings_.size(); ++c) {
    point.bandwidth[c] = ceilings_[c].ceiling->bandwidth.at(0) * ceilings_[c].bandwidth * 1e-9;
  }
  for (std::size_t c = 0; c < size(); ++c) {
    point.load[active_[c]] = load(c);
    point.bandwidth[active_[c]] = bandwidth_[c];
    point.write_share[active_[c]] = write_share(c);
    point.queue[active_[c]] = std::max(queue_[c], 0.0);
  }
}

namespace {

// Cholesky's factor of a positive definite matrix: L in its lower half, the same turned in its
// upper half, so that all loops below run along rows; on the diagonal the inverses.
void factorise(std::vector<double>& matrix, std::vector<double>& diagonal) {
  const std::size_t n = diagonal.size();
  for (std::size_t j = 0; j < n; ++j) diagonal[j] = matrix[j * n + j];
  for (std::size_t j = 0; j < n; ++j) {
    double* row_j = &matrix[j * n];
    // Rounding may leave nothing of a pivot whose ceiling adds little.
    row_j[j] = 1 / std::sqrt(std::max(row_j[j], diagonal[j] * 1e-15));
    for (std::size_t k = j + 1; k < n; ++k) row_j[k] *= row_j[j];
    for (std::size_t i = j + 1; i < n; ++i) {
      const double factor = row_j[i];
      if (factor == 0) continue;
      double* row_i = &matrix[i * n];
      for (std::size_t k = i; k < n; ++k) row_i[k] -= factor * row_j[k];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) matrix[i * n + k] = matrix[k * n + i];
  }
}

// Solves A x = b for the factor of A. b becomes x.
void solve_factored(const std::vector<double>& matrix, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (b[i] == 0) continue;
    const double* row = &matrix[i * n];
    b[i] *= row[i];
    for (std::size_t k = i + 1; k < n; ++k) b[k] -= row[k] * b[i];
  }
  for (std::size_t i = n; i-- > 0;) {
    const double* row = &matrix[i * n];
    b[i] *= row[i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= row[k] * b[i];
  }
}

// Solves A x = b by elimination with row pivots; A is changed, and b becomes x.
void eliminate(std::vector<double>& matrix, std::vector<double>& b) {
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
}

}  // namespace

// Moves the queues along `step_` to where the function that F is the gradient of is about largest:
// its slope along the step, F * step, falls from `slope` through 0. On the way a queue may be
// below 0.
void RateSystem::System::search() {
  const double slope = product(residual_, step_);
  const double most = farthest(queue_, step_);
  double low = 0;
  double high = most;
  double at = std::min(1.0, most);
  for (int tries = 0; tries < 60; ++tries) {
    for (std::size_t c = 0; c < size(); ++c) moved_[c] = queue_[c] + at * step_[c];
    evaluate(moved_);
    const double now = product(residual_, step_);
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
  queue_.swap(moved_);
}

// The error at these queues with the bandwidths of their mix.
double RateSystem::System::mixed_error(const std::vector<double>& queue) {
  evaluate(queue);
  if (!mixing_) return error();
  mix(1);
  evaluate(queue);
  return error();
}

// A step of Newton's method for queues and bandwidths together: far faster than search() near the
// solution, and not sure to get nearer from afar. Sets `error`. True if the error halved (by
// a smaller step: fell by less), or was small; otherwise queues and bandwidths stay.
bool RateSystem::System::leap(double& error) {
  const std::vector<double> bandwidths = bandwidth_;
  const double before = mixed_error(queue_);
  error = before;
  if (before < kTolerance) return true;
  step_ = residual_;
  jacobian(mixing_);
  if (mixing_) {
    eliminate(matrix_, step_);
  } else {
    factorise(matrix_, diagonal_);
    solve_factored(matrix_, step_);
  }
  for (const double part : {1.0, 0.5, 0.2, 0.05}) {
    for (std::size_t c = 0; c < size(); ++c) moved_[c] = queue_[c] + part * step_[c];
    const double after = mixed_error(moved_);
    if (after < (1 - part / 2) * before || after < kTolerance) {
      queue_.swap(moved_);
      error = after;
      return true;
    }
    if (before > kNear) break;
  }
  bandwidth_ = bandwidths;
  evaluate(queue_);
  return false;
}

// Begins near the solution: from the last one, or from the same small queue everywhere.
void RateSystem::System::begin() {
  for (double& each : queue_) each = std::max(each, kLeastQueue);
  evaluate(queue_);  // rates, for a first mix
  mix(1);
  sweep(queue_);
}

void RateSystem::System::solve(FixedPoint& point) {
  iterate(point);
  if (point.converged || !warm_) return;
  warm_ = false;
  std::ranges::fill(queue_, 1.0);
  std::ranges::fill(bandwidth_, 0);
  iterate(point);
}

void RateSystem::System::iterate(FixedPoint& point) {
  begin();
  double error = mixed_error(queue_);
  double step = 1;
  double moved = 1;
  unsigned next_leap = 0;
  unsigned wait = 1;
  unsigned iterations = 0;
  for (; iterations < kMostIterations && !(error < kTolerance); ++iterations) {
    // After a leap that failed, twice as many steps of the surer kind as the last time.
    if (iterations >= next_leap) {
      if (leap(error)) continue;
      next_leap = iterations + wait;
      wait *= 2;
    }
    if (this->error() < std::max(0.1 * moved, kTolerance)) {
      // Solved for these bandwidths, well enough to move them on: by smaller steps if they swing,
      // so that the rest falls more slowly than a step should make it.
      const double now = mix(step);
      step = std::clamp(now > (1 - step / 2) * moved ? step / 2 : step * 1.5, kLeastStep, 1.0);
      moved = now;
      evaluate(queue_);
    }
    const double before = this->error();
    step_ = residual_;
    jacobian(false);
    factorise(matrix_, diagonal_);
    solve_factored(matrix_, step_);
    search();
    if (this->error() > 0.9 * before) {
      for (double& each : queue_) each = std::max(each, kLeastQueue);
      evaluate(queue_);
      sweep(queue_);
      evaluate(queue_);
    }
  }
  write(point);
  point.iterations = iterations;
  point.converged = error < kRoughTolerance;
  warm_ = true;
}

std::vector<double> RateSystem::System::elasticities(std::size_t i) {
  std::vector<double> found(ceilings_.size() + 1, 0.0);
  const ThreadClass& each = classes_[i];
  if (each.threads <= 0 || capped(i, delay_[i])) return found;
  if (!factored_) {
    jacobian(false);
    factorise(matrix_, diagonal_);
    factored_ = true;
  }
  // Change of all queues per change of the demand in proportion to the class's weights.
  std::ranges::fill(step_, 0);
  step_.resize(size());
  for (const Crossed& at : crossed(i)) step_[at.row] = at.weight;
  solve_factored(matrix_, step_);
  double waits = 0;
  for (const Crossed& at : crossed(i)) waits += at.weight * step_[at.row];
  for (std::size_t c = 0; c < size(); ++c) {
    found[active_[c]] = step_[c] * bandwidth_[c] * used_[c].value / delay_[i];
  }
  found.back() = 1 - waits * each.threads * rate_[i] / delay_[i];
  return found;
}

RateSystem::RateSystem(std::span<const ThreadClass> classes,
                       std::span<const ScaledCeiling> ceilings)
    : system_(std::make_unique<System>(classes, ceilings)) {}
RateSystem::~RateSystem() = default;
RateSystem::RateSystem(RateSystem&&) noexcept = default;
RateSystem& RateSystem::operator=(RateSystem&&) noexcept = default;

const FixedPoint& RateSystem::solve(std::span<const double> threads) {
  system_->set_threads(threads);
  system_->solve(point_);
  return point_;
}

const FixedPoint& RateSystem::solve() { return solve({}); }

std::vector<double> RateSystem::elasticities(std::size_t of_class) {
  return system_->elasticities(of_class);
}

}  // namespace headrace
