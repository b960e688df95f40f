// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/loads.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/fail.h"
#include "headrace/copy.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/ticks.h"

namespace headrace::instruments {
namespace {

constexpr std::size_t kBlock = 256 << 10;
// Lines between two delays: 1 KiB, as in Intel's checker.
constexpr std::size_t kLinesPerDelay = 16;
// Approximate time of a step of traffic: 1 KiB is moved in about 50 ns.
constexpr std::int64_t kStepNs = 10'000;
constexpr std::int64_t kKibNs = 50;

}  // namespace

Result<double> ChaseLoad::step() {
  const Ticks& ticks = Ticks::instance();
  const std::uint64_t begin = ticks.now();
  at_ = chase(at_, kChaseUnroll);
  const std::uint64_t whole = ticks.now() - begin;
  const std::uint64_t span = whole - std::min(whole, ticks.overhead());
  ticks_ += span;
  loads_ += kChaseUnroll;
  groups_.record(static_cast<std::uint64_t>(ticks.nanoseconds(span) * 1000 / kChaseUnroll));
  return static_cast<double>(kChaseUnroll);
}

void ChaseLoad::window_begins() {
  groups_.clear();
  ticks_ = 0;
  loads_ = 0;
}

double ChaseLoad::mean_ns() const {
  return Ticks::instance().nanoseconds(ticks_) / static_cast<double>(loads_);
}

std::map<std::string, double> ChaseLoad::percentiles() const {
  std::map<std::string, double> all;
  for (const auto& [name, q] :
       {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}}) {
    if (const auto value = groups_.quantile(q)) all[name] = static_cast<double>(*value) / 1000;
  }
  return all;
}

TrafficLoad::TrafficLoad(const TrafficKernel& kernel, const TrafficArea& area, Pause pause)
    : kernel_(kernel),
      area_(area),
      pause_(pause),
      at_once_(std::max<std::size_t>(1, kLinesPerDelay / kernel_.lines_per_round())),
      per_step_(static_cast<std::size_t>(
          std::max<std::int64_t>(1, kStepNs / (kKibNs + pause.time.count())))) {}

Result<double> TrafficLoad::step() {
  const std::size_t rounds = kernel_.rounds(area_) / at_once_ * at_once_;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < per_step_; ++i) {
    lines += kernel_.run(area_, at_, at_once_);
    at_ = at_ + at_once_ >= rounds ? 0 : at_ + at_once_;
    DelayLoop::run(pause_.turns);
  }
  return static_cast<double>(lines * kLine);
}

Result<double> CopyLoad::step() {
  if (at_ + kBlock > to_.size()) at_ = 0;
  copy_bytes(to_.data() + at_, from_.data() + at_, kBlock);
  at_ += kBlock;
  return kBlock;
}

Result<double> FileLoad::step() {
  const std::uint64_t block = random_.below(file_.size().value / kBlock);
  const auto at = static_cast<off_t>(block * kBlock);
  const ssize_t count = pread(file_.direct_fd(), to_.data(), kBlock, at);
  if (count == static_cast<ssize_t>(kBlock)) return kBlock;
  return fail_errno(count < 0 ? errno : EIO, "cannot read the measuring file");
}

}  // namespace headrace::instruments
