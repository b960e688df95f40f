#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstring>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "headrace/measure.h"
#include "measure/copy_loop.h"
#include "measure/samples.h"
#include "measure/team.h"

namespace headrace {
namespace {

// Large sizes take longer per copy than per_sample. A point that has taken so many times the time
// meant for it ends early, but not before kFewestRounds.
constexpr int kPatience = 3;
constexpr unsigned kFewestRounds = 3;

struct CopyPoint {
  Bytes bytes;
  unsigned threads = 1;
  bool cold = true;
};

// One engine of the experiment: how to run it, or why not.
struct Contender {
  std::string name;
  std::optional<CopyLoop> loop;
  std::string reason;
  bool wanted = true;  // memcpy runs along for the ratio even when nobody asked for its row
};

std::vector<Contender> contenders(const CopyBenchOptions& options) {
  std::vector<std::string> names = options.engines.empty() ? CopyLoop::all() : options.engines;
  const bool memcpy_wanted = std::ranges::find(names, "memcpy") != names.end();
  if (!memcpy_wanted) names.insert(names.begin(), "memcpy");
  std::vector<Contender> all;
  for (const std::string& name : names) {
    Contender contender{.name = name, .wanted = memcpy_wanted || name != "memcpy"};
    if (auto loop = CopyLoop::find(name)) {
      contender.loop = *loop;
    } else {
      contender.reason = loop.error().message;
    }
    all.push_back(std::move(contender));
  }
  return all;
}

struct ThreadMemory {
  std::unique_ptr<Buffer> to;
  std::unique_ptr<Buffer> from;
};

Result<std::unique_ptr<Buffer>> memory_near(const Machine& machine, unsigned cpu, Bytes bytes) {
  const Node* node = machine.node_of_cpu(cpu);
  if (node == nullptr) {
    const auto found = std::ranges::find_if(machine.nodes, &Node::byte_addressable);
    if (found == machine.nodes.end()) {
      return fail(ErrorCode::absent, "machine {} has no memory node; measure a discovered machine",
                  machine.name);
    }
    node = &*found;
  }
  return allocate(machine, bytes, Placement::on(node->id));
}

// What each of the threads needs on each side.
Bytes area_of(const Machine& machine, const CopyPoint& point, unsigned cpu) {
  return point.cold ? cold_area(cache_to_pass(machine, {cpu}), point.bytes) : point.bytes;
}

// So many copies that a sample takes about `time`.
std::size_t copies_in(Nanoseconds time, const CopyLoop& loop, CopyArea& area, std::size_t bytes) {
  std::size_t times = 1;
  Nanoseconds took = loop.run(area, bytes, times);
  // A quarter of the wanted time is long enough to extrapolate from.
  while (took < time / 4) {
    times *= 2;
    took = loop.run(area, bytes, times);
  }
  const double more = seconds(time) / std::max(seconds(took), 1e-9);
  return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(times) * more));
}

// The samples of one point: all threads copy at once, each its own memory, and the rate of a round
// is the sum of their rates. A thread that is done early copies on, untimed, until all are, so that
// every timed copy had the company of all others.
class Samples {
 public:
  Samples(const CopyPoint& point, const CopyBenchOptions& options,
          const std::vector<Contender>& all, std::vector<ThreadMemory>& memory)
      : point_(point),
        options_(options),
        contenders_(all),
        memory_(memory),
        rates_(memory.size(), std::vector<std::vector<double>>(all.size())),
        line_(static_cast<std::ptrdiff_t>(memory.size())) {}

  // One thread's part.
  void run(std::size_t thread);
  // The summed rate of each round.
  std::vector<double> rates_of(std::size_t contender) const;

 private:
  void sample(std::size_t thread, std::size_t contender, std::size_t times, CopyArea& area);

  // Immutable.
  const CopyPoint point_;
  const CopyBenchOptions& options_;
  const std::vector<Contender>& contenders_;
  std::vector<ThreadMemory>& memory_;

  std::vector<std::vector<std::vector<double>>> rates_;  // [thread]: written only by it
  std::barrier<> line_;
  std::atomic<std::size_t> finished_{0};  // samples ended, by all threads together
  std::atomic<bool> enough_{false};       // written only by thread 0, between rounds
};

void Samples::run(std::size_t thread) {
  const auto to = memory_[thread].to->bytes();
  const auto from = memory_[thread].from->bytes();
  // Real pages on both sides, whatever allocation left for later.
  std::memset(to.data(), 1, to.size());
  std::memset(from.data(), 2, from.size());
  CopyArea area{to, from, ScatteredWalk(to.size() / point_.bytes.value), point_.cold};
  std::vector<std::size_t> times(contenders_.size());
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (!contenders_[i].loop) continue;
    times[i] = copies_in(options_.per_sample, *contenders_[i].loop, area, point_.bytes.value);
  }
  const Nanoseconds start = system_clock().now();
  const Nanoseconds meant =
      options_.per_sample * static_cast<std::int64_t>(contenders_.size() * options_.rounds);
  for (unsigned round = 0; round < options_.rounds && !enough_.load(); ++round) {
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (contenders_[i].loop) sample(thread, i, times[i], area);
    }
    const bool late = system_clock().now() - start > meant * kPatience;
    if (thread == 0 && late && round + 1 >= kFewestRounds) enough_.store(true);
    line_.arrive_and_wait();
  }
}

void Samples::sample(std::size_t thread, std::size_t contender, std::size_t times, CopyArea& area) {
  const CopyLoop& loop = *contenders_[contender].loop;
  // Hot: the last engine may have left the destination elsewhere (streamed it to memory).
  if (!area.cold) loop.run(area, point_.bytes.value, 1);
  line_.arrive_and_wait();
  const std::size_t all_finished = (finished_.load() / memory_.size() + 1) * memory_.size();
  line_.arrive_and_wait();
  const Nanoseconds took = loop.run(area, point_.bytes.value, times);
  rates_[thread][contender].push_back(
      (point_.bytes * times / std::max(took, Nanoseconds{1})).value);
  finished_.fetch_add(1);
  while (finished_.load() < all_finished) {
    loop.run(area, point_.bytes.value, std::max<std::size_t>(1, times / 16));
  }
}

std::vector<double> Samples::rates_of(std::size_t contender) const {
  std::vector<double> sum(rates_[0][contender].size(), 0.0);
  for (const auto& thread : rates_) {
    for (std::size_t round = 0; round < sum.size(); ++round) sum[round] += thread[contender][round];
  }
  return sum;
}

Status measure_point(const Machine& machine, const CopyPoint& point,
                     const CopyBenchOptions& options, const std::vector<Contender>& all,
                     std::vector<std::vector<double>>& rates) {
  CpuSet cpus = usable_cpus();
  if (point.threads > cpus.size()) {
    return fail(ErrorCode::absent, "{} threads asked for, but this process may use {} CPUs",
                point.threads, cpus.size());
  }
  cpus.resize(point.threads);
  std::vector<ThreadMemory> memory(point.threads);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const Bytes area = area_of(machine, point, cpus[i]);
    HEADRACE_TRY(memory[i].to, memory_near(machine, cpus[i], area));
    HEADRACE_TRY(memory[i].from, memory_near(machine, cpus[i], area));
  }
  Samples samples(point, options, all, memory);
  HEADRACE_TRY_STATUS(run_pinned(cpus, [&](std::size_t thread) { samples.run(thread); }));
  for (std::size_t i = 0; i < all.size(); ++i) rates.push_back(samples.rates_of(i));
  return {};
}

void add_rows(const Machine& machine, const CopyPoint& point, const CopyBenchOptions& options,
              const std::vector<Contender>& all, std::vector<CopyRow>& rows) {
  std::vector<std::vector<double>> rates;
  const Status status = measure_point(machine, point, options, all, rates);
  const auto reference = std::ranges::find(all, "memcpy", &Contender::name) - all.begin();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].wanted) continue;
    CopyRow row{.engine = all[i].name,
                .bytes = point.bytes,
                .threads = point.threads,
                .state = point.cold ? "cold" : "hot",
                .reason = status ? all[i].reason : status.error().message};
    if (status && all[i].loop) {
      if (const auto summary = summarize_rates(rates[i])) {
        row.bytes_per_second = summary->rate;
        row.spread = summary->spread;
        row.ratio_to_memcpy = paired_ratio(rates[i], rates[static_cast<std::size_t>(reference)]);
      }
    }
    rows.push_back(std::move(row));
  }
}

Result<std::vector<CopyPoint>> points_of(const CopyBenchOptions& options) {
  std::vector<Bytes> sizes = options.sizes;
  if (sizes.empty()) {
    for (Bytes size = 64_B; size <= 1_GiB; size = size * 4) sizes.push_back(size);
  }
  std::vector<CopyPoint> points;
  for (const bool cold : {true, false}) {
    if (!(cold ? options.cold : options.hot)) continue;
    for (const unsigned threads : options.threads) {
      for (const Bytes size : sizes) {
        if (size.value == 0 || threads == 0) {
          return fail(ErrorCode::invalid,
                      "a copy of {} by {} threads; ask for at least one byte {}", to_string(size),
                      threads, "and one thread");
        }
        points.push_back({size, threads, cold});
      }
    }
  }
  return points;
}

}  // namespace

Result<std::vector<CopyRow>> bench_copy(const Machine& machine, const CopyBenchOptions& options,
                                        const ExperimentContext& context) {
  if (options.rounds == 0 || options.per_sample <= Nanoseconds{0}) {
    return fail(ErrorCode::invalid,
                "no rounds or no time per sample; ask for at least one of each");
  }
  HEADRACE_TRY_STATUS(check_is_here(machine));
  HEADRACE_TRY(const auto points, points_of(options));
  // Chosen before anything is timed: the race takes longer than a sample.
  (void)chosen_copy_kernel();
  const auto all = contenders(options);
  std::vector<CopyRow> rows;
  for (std::size_t done = 0; done < points.size() && !context.stop(); ++done) {
    add_rows(machine, points[done], options, all, rows);
    context.progress(done + 1, points.size());
  }
  return rows;
}

}  // namespace headrace
