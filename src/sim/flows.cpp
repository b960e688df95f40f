// SPDX-License-Identifier: Apache-2.0
#include "sim/flows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::sim {
namespace {

// Solutions that are remembered: about 100 MB for 30 classes.
constexpr std::size_t kMostRemembered = 100'000;
// The share of its bandwidth from which on a ceiling is full.
constexpr double kFull = 0.95;
// A member whose rest takes less than this has ended, in ns: times are whole ns.
constexpr double kRest = 1e-3;

class Wake final : public Job {
 public:
  explicit Wake(Scheduler& turns) : turns_(turns), thread_(turns.self()) {}
  void done() override {
    over = true;
    turns_.ready(thread_);
  }
  bool over = false;

 private:
  Scheduler& turns_;
  Thread& thread_;
};

}  // namespace

Flows::Flows(Scheduler& turns, const Solver& solver) : turns_(turns), solver_(solver) {
  for (const Ceiling& ceiling : solver.model().ceilings) {
    ceilings_.push_back({.ceiling = ceiling.name});
  }
  time_ = turns.now();
  turns.add(*this);
}

Flows::~Flows() { turns_.remove(*this); }

std::size_t Flows::Hash::operator()(const std::vector<std::uint32_t>& key) const {
  std::uint64_t hash = key.size();
  for (const std::uint32_t one : key) hash = (hash ^ one) * 0x9e3779b97f4a7c15 + (hash >> 29);
  return hash;
}

Result<std::size_t> Flows::add_class(Flow flow, bool shared) {
  flow.threads = 1;
  HEADRACE_TRY_STATUS(solver_.solve({&flow, 1}));
  Class added{.flow = std::move(flow), .shared = shared};
  added.limited.resize(ceilings_.size() + 2);
  classes_.push_back(std::move(added));
  rates_ = nullptr;
  return classes_.size() - 1;
}

void Flows::run(std::size_t number, Bytes bytes) {
  Wake job(turns_);
  begin(number, bytes, job);
  while (!job.over) turns_.park("bytes");
}

void Flows::begin(std::size_t number, Bytes bytes, Job& job) {
  Class& its = classes_[number];
  its.members.push(
      {.progress = its.progress + static_cast<double>(bytes.value), .order = order_++, .job = &job});
  its.bytes += static_cast<double>(bytes.value);
  rates_ = nullptr;
}

Nanoseconds Flows::next() {
  resolve();
  double first = std::numeric_limits<double>::infinity();
  for (const Rates::OfClass& of : rates_->classes) {
    const Class& its = classes_[of.number];
    first = std::min(first, std::max(its.members.top().progress - its.progress, 0.0) / of.rate);
  }
  if (std::isinf(first)) return Nanoseconds::max();
  constexpr double kLongest = 1e18;  // longer than any run
  return time_ + Nanoseconds{static_cast<std::int64_t>(std::ceil(std::min(first, kLongest)))};
}

void Flows::advance(Nanoseconds now) {
  resolve();
  const Rates& rates = *rates_;
  const auto passed = static_cast<double>((now - time_).count());
  time_ = now;
  for (const Rates::OfCeiling& of : rates.ceilings) {
    CeilingUse& use = ceilings_[of.number];
    use.bytes += of.load * passed;
    use.seconds += passed * 1e-9;
    if (of.full) use.full += passed * 1e-9;
  }
  bool ended = false;
  std::vector<Job*> done;
  for (const Rates::OfClass& of : rates.classes) {
    Class& its = classes_[of.number];
    its.progress += of.rate * passed;
    its.limited[of.limit] += static_cast<double>(its.members.size()) * passed * 1e-9;
    while (!its.members.empty() &&
           its.members.top().progress - its.progress <= of.rate * kRest) {
      done.push_back(its.members.top().job);
      its.members.pop();
      ended = true;
    }
    // Keeps the sums exact: a long run would lose the bits of small ones.
    if (its.members.empty()) its.progress = 0;
  }
  if (ended) rates_ = nullptr;
  for (Job* job : done) job->done();
}

void Flows::resolve() {
  if (rates_ != nullptr) return;
  ++asked_;
  key_.clear();
  for (const Class& its : classes_) {
    const std::size_t members = its.members.size();
    key_.push_back(static_cast<std::uint32_t>(members));
  }
  // Classes are added at the end: no members are as good as no class.
  while (!key_.empty() && key_.back() == 0) key_.pop_back();
  const auto found = memo_.find(key_);
  if (found != memo_.end()) {
    rates_ = &found->second;
    return;
  }
  ++solved_;
  if (memo_.size() >= kMostRemembered) {
    overflow_ = solve();
    rates_ = &overflow_;
  } else {
    rates_ = &memo_.emplace(key_, solve()).first->second;
  }
}

Flows::Rates Flows::solve() const {
  Rates rates;
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const Class& its = classes_[i];
    if (its.members.empty()) continue;
    rates.classes.push_back({.number = static_cast<std::uint32_t>(i)});
    flows.push_back(its.flow);
    flows.back().threads = its.shared ? 1 : static_cast<double>(its.members.size());
  }
  if (flows.empty()) return rates;
  const auto solution = solver_.solve(flows);
  // Each flow was solved alone by add_class(), so its numbers are valid.
  CHECK(solution.has_value() && "the solver converges for valid flows");
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const FlowResult& result = solution->flows[i];
    Rates::OfClass& of = rates.classes[i];
    of.rate = result.rate * 1e-9 / static_cast<double>(classes_[of.number].members.size());
    CHECK(of.rate > 0);
    const std::size_t limits = ceilings_.size();
    switch (result.limit.kind) {
      case Limit::Kind::ceiling: of.limit = static_cast<std::uint32_t>(result.limit.ceiling); break;
      case Limit::Kind::lines_in_flight: of.limit = static_cast<std::uint32_t>(limits); break;
      case Limit::Kind::cap: of.limit = static_cast<std::uint32_t>(limits + 1); break;
    }
  }
  for (std::size_t i = 0; i < solution->ceilings.size(); ++i) {
    const CeilingLoad& load = solution->ceilings[i];
    if (load.load <= 0) continue;
    rates.ceilings.push_back({.number = static_cast<std::uint32_t>(i),
                              .load = load.load * 1e-9,
                              .full = load.load >= kFull * load.bandwidth});
  }
  return rates;
}

std::vector<FlowUse> Flows::flow_use() const {
  std::vector<FlowUse> all;
  for (const Class& its : classes_) {
    FlowUse use{.flow = its.flow.name, .engine = its.flow.engine, .bytes = its.bytes};
    for (std::size_t i = 0; i < its.limited.size(); ++i) {
      if (its.limited[i] <= 0) continue;
      Limit limit{.kind = Limit::Kind::ceiling, .ceiling = i};
      if (i == ceilings_.size()) limit.kind = Limit::Kind::lines_in_flight;
      if (i == ceilings_.size() + 1) limit.kind = Limit::Kind::cap;
      use.limited.push_back({.by = solver_.text_of(limit, its.flow), .seconds = its.limited[i]});
    }
    std::ranges::stable_sort(use.limited, std::greater<>{}, &FlowUse::Limited::seconds);
    all.push_back(std::move(use));
  }
  return all;
}

std::vector<CeilingUse> Flows::ceiling_use() const { return ceilings_; }

}  // namespace headrace::sim
