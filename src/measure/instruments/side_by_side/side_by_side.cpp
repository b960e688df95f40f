// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>

#include "core/check.h"
#include "core/fail.h"
#include "core/mutex.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

// The bandwidth of traffic is unsteady at its start.
constexpr Nanoseconds kSettleTime = std::chrono::milliseconds{5};
constexpr Nanoseconds kLongestStart = std::chrono::seconds{2};

// Written by the working thread, read by the timekeeper. On a separate line, since a shared line
// would itself be traffic.
struct alignas(64) Done {
  std::atomic<double> units{0};
};

class Run {
 public:
  Run(const std::vector<Load*>& loads, Nanoseconds time, const std::vector<Counted>& elsewhere)
      : loads_(loads), time_(time), elsewhere_(elsewhere), done_(loads.size()) {}

  void work(std::size_t i) {
    const Status ended = end_of(i);
    over_ = true;
    if (ended) return;
    const MutexLock lock(mutex_);
    if (!error_) error_ = ended.error();
  }

  Result<std::vector<double>> rates() {
    const MutexLock lock(mutex_);
    if (error_) return Unexpected(*error_);
    std::vector<double> rates;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (after_[i] == before_[i]) {
        return fail(ErrorCode::timed_out,
                    "a thread had no CPU all the while; is the machine busy?");
      }
      rates.push_back((after_[i] - before_[i]) / seconds(window_));
    }
    return rates;
  }

  // Call it once all threads have ended.
  std::vector<double> done() const {
    std::vector<double> all;
    for (const Done& each : done_) all.push_back(each.units.load());
    return all;
  }

 private:
  Status end_of(std::size_t i) try {
    return i == 0 ? keep_time() : go_on(i);
  } catch (const std::bad_alloc&) {  // otherwise the others would never end
    return out_of_memory();
  }

  Status step(std::size_t i) {
    HEADRACE_TRY(const double units, loads_[i]->step());
    std::atomic<double>& all = done_[i].units;
    // Only this thread writes it; pairs with count().
    all.store(all.load(std::memory_order_relaxed) + units, std::memory_order_relaxed);
    return {};
  }

  Status go_on(std::size_t i) {
    while (!over_) HEADRACE_TRY_STATUS(step(i));
    return {};
  }

  Status keep_time() {
    const Ticks& ticks = Ticks::instance();
    const std::uint64_t settled = ticks.now() + ticks.ticks(kSettleTime);
    const std::uint64_t latest = settled + ticks.ticks(kLongestStart);
    do {
      HEADRACE_TRY_STATUS(step(0));
      if (over_) return {};  // another thread has failed
      if (ticks.now() > latest) {
        return fail(ErrorCode::timed_out,
                    "not all threads were at work within {} s; is the machine busy?",
                    kLongestStart.count() / 1'000'000'000);
      }
    } while (ticks.now() < settled || std::ranges::min(count()) == 0);
    loads_[0]->window_begins();
    before_ = count();
    const std::uint64_t begin = ticks.now();
    const std::uint64_t end = begin + ticks.ticks(time_);
    // A window in which a thread never had its CPU proves nothing: it continues until all threads
    // have done some work.
    const std::uint64_t last = end + ticks.ticks(kLongestStart);
    do {
      HEADRACE_TRY_STATUS(step(0));
      if (over_) return {};  // another thread has failed
    } while (ticks.now() < end || (!have_all_worked() && ticks.now() < last));
    window_ = ticks.span(begin, ticks.now());
    return {};
  }

  // For the window, if it ended here.
  bool have_all_worked() {
    after_ = count();
    return std::ranges::equal(before_, after_, std::ranges::not_equal_to{});
  }

  std::vector<double> count() const {
    std::vector<double> counts;
    for (const Done& done : done_) {
      counts.push_back(done.units.load(std::memory_order_relaxed));  // pairs with step()
    }
    for (const Counted other : elsewhere_) counts.push_back(other->load());
    return counts;
  }

  const std::vector<Load*>& loads_;
  const Nanoseconds time_;
  const std::vector<Counted>& elsewhere_;
  std::vector<Done> done_;
  std::atomic<bool> over_{false};
  // Written by the timekeeper; read when all threads have ended.
  std::vector<double> before_;
  std::vector<double> after_;
  Nanoseconds window_{1};
  Mutex mutex_;
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace

Result<SideBySide> side_by_side(const CpuSet& cpus, const std::vector<Load*>& loads,
                                Nanoseconds time, const std::vector<Counted>& elsewhere) {
  CHECK(!cpus.empty() && cpus.size() == loads.size());
  Run run(loads, time, elsewhere);
  HEADRACE_TRY(const double share, run_together(cpus, [&](std::size_t i) { run.work(i); }));
  HEADRACE_TRY(std::vector<double> rates, run.rates());
  return SideBySide{.rates = std::move(rates), .done = run.done(), .cpu_share = share};
}

}  // namespace headrace::instruments
