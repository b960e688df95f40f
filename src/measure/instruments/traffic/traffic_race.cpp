// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/traffic_race.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>

#include "core/check.h"
#include "core/fail.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/traffic/kernels_traffic.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

// A later heat reveals a stray interrupt; a shape at half the speed is out after the first.
constexpr Nanoseconds kFirstHeat = std::chrono::microseconds{500};
// Each heat keeps a third of its shapes, for twice the time.
constexpr std::size_t kLeft = 3;
// Per reading of the clock: about 10 us.
constexpr std::size_t kLinesPerReading = 4096;

// CPU time of this thread, so that a busy machine does not decide the race.
Nanoseconds cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds{t.tv_sec} + Nanoseconds{t.tv_nsec};
}

// One thread's position in its area. Each shape continues where the last one stopped, so that none
// finds another's lines in the caches.
class Racer {
 public:
  explicit Racer(const TrafficArea& area) : area_(area) {}

  // Lines per second of CPU time.
  double run(const TrafficKernel& kernel, Nanoseconds time) {
    const std::size_t rounds = kernel.rounds(area_);
    const std::size_t at_once =
        std::clamp<std::size_t>(kLinesPerReading / kernel.lines_per_round(), 1, rounds);
    auto at = static_cast<std::size_t>(at_ * static_cast<double>(rounds));
    const Nanoseconds begin = cpu_time();
    Nanoseconds now = begin;
    std::size_t lines = 0;
    while (now - begin < time) {
      if (at + at_once > rounds) at = 0;
      lines += kernel.run(area_, at, at_once);
      at += at_once;
      now = cpu_time();
    }
    kernel.finish();
    at_ = static_cast<double>(at) / static_cast<double>(rounds);
    return static_cast<double>(lines) / seconds(cpu_time() - begin);
  }

 private:
  const TrafficArea area_;
  double at_ = 0;  // position within the area, 0 to 1
};

}  // namespace

std::vector<Shape> shapes_of(const Mix& mix) {
  std::vector<Shape> shapes;
  for (const unsigned bits : vector_widths()) {
    for (const unsigned streams : {1U, 2U, 4U, 8U}) {
      for (const unsigned ahead : {0U, 512U, 2048U}) {
        if (ahead > 0 && mix.reads == 0) continue;
        shapes.push_back({.bits = bits, .streams = streams, .ahead = ahead});
      }
    }
  }
  return shapes;
}

std::string race_of(const Mix& mix, std::size_t threads, const std::string& ground) {
  return fmt::format("{} by {}, {}", mix.name, threads, ground);
}

Result<Shape> winner(std::vector<Shape> shapes, const Heat& rates) {
  CHECK(!shapes.empty());
  for (Nanoseconds each = kFirstHeat; shapes.size() > 1; each *= 2) {
    HEADRACE_TRY(const std::vector<double> found, rates(shapes, each));
    CHECK(found.size() == shapes.size());
    std::vector<std::size_t> order(shapes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order,
                             [&](std::size_t a, std::size_t b) { return found[a] > found[b]; });
    order.resize((shapes.size() + kLeft - 1) / kLeft);
    std::vector<Shape> left;
    for (const std::size_t i : order) left.push_back(shapes[i]);
    shapes = std::move(left);
  }
  return shapes.front();
}

Result<Shape> Races::fastest(const Mix& mix, const CpuSet& cpus, const std::string& ground,
                             const std::vector<TrafficArea>& areas) {
  CHECK(!cpus.empty() && cpus.size() == areas.size());
  const std::string key = race_of(mix, cpus.size(), ground);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::vector<Racer> racers(areas.begin(), areas.end());
  // Shapes with many streams have no whole group in a small area.
  std::vector<Shape> shapes = shapes_of(mix);
  std::erase_if(shapes, [&](const Shape& shape) {
    const TrafficKernel kernel(mix, shape);
    return std::ranges::any_of(areas, [&](const auto& area) { return kernel.rounds(area) < 2; });
  });
  if (shapes.empty()) return Shape{};
  const Heat heat = [&](const std::vector<Shape>& raced,
                        Nanoseconds each) -> Result<std::vector<double>> {
    std::vector<std::vector<double>> rates(cpus.size());
    HEADRACE_TRY_STATUS(run_together(cpus, [&](std::size_t i) {
      for (const Shape& shape : raced) {
        rates[i].push_back(racers[i].run(TrafficKernel(mix, shape), each));
      }
    }));
    std::vector<double> sums(raced.size());
    for (const auto& own : rates) std::ranges::transform(sums, own, sums.begin(), std::plus{});
    return sums;
  };
  HEADRACE_TRY(const Shape found, winner(std::move(shapes), heat));
  return known_[key] = found;
}

}  // namespace headrace::instruments
