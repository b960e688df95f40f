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

// How long a solution may be used when members have changed, times the share that has (flows.h).
constexpr Nanoseconds kOld = std::chrono::nanoseconds{500};
// How long a class without members may use its last rate when it has some again.
constexpr Nanoseconds kOldRate = std::chrono::microseconds{100};
// The share of its bandwidth from which on a ceiling is full.
constexpr double kFull = 0.95;
// A member whose rest takes less than this has ended, in ns: times are whole ns.
constexpr double kRest = 1e-3;

Nanoseconds usable(std::uint64_t members, std::uint64_t changes) {
  if (changes == 0) return Nanoseconds::max();
  return kOld * static_cast<std::int64_t>(members) / static_cast<std::int64_t>(changes);
}

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
  part_of_ceiling_.resize(ceilings_.size());
  turns.add(*this);
}

Flows::~Flows() { turns_.remove(*this); }

Result<std::size_t> Flows::add_class(Flow flow, bool shared) {
  flow.threads = 1;
  HEADRACE_TRY(const Solution alone, solver_.solve({&flow, 1}));
  Class added{.flow = std::move(flow), .shared = shared};
  added.limited.resize(ceilings_.size() + 2);
  classes_.push_back(std::move(added));
  part_.push_back(0);
  join_parts(static_cast<std::uint32_t>(classes_.size() - 1), alone);
  return classes_.size() - 1;
}

// Makes one part of a new class and all parts with whose classes it shares a ceiling.
void Flows::join_parts(std::uint32_t number, const Solution& alone) {
  const auto mine = static_cast<std::uint32_t>(parts_.size());
  auto whole = std::make_unique<Part>();
  whole->time = turns_.now();
  for (std::size_t c = 0; c < ceilings_.size(); ++c) {
    if (alone.ceilings[c].load <= 0) continue;
    const auto other = part_of_ceiling_[c];
    if (other && *other != mine) {
      Part& joined = *parts_[*other];
      pass(joined, turns_.now());
      whole->classes.insert(whole->classes.end(), joined.classes.begin(), joined.classes.end());
      joined = Part{};
      std::ranges::replace(part_of_ceiling_, other, std::optional(mine));
    }
    part_of_ceiling_[c] = mine;
  }
  whole->classes.push_back(number);
  std::ranges::sort(whole->classes);
  for (const std::uint32_t one : whole->classes) part_[one] = mine;
  parts_.push_back(std::move(whole));
}

void Flows::run(std::size_t number, Bytes bytes) {
  Wake job(turns_);
  begin(number, bytes, job);
  while (!job.over) turns_.park("bytes");
}

void Flows::begin(std::size_t number, Bytes bytes, Job& job) {
  Part& part = part_of(number);
  pass(part, turns_.now());
  Class& its = classes_[number];
  its.members.push({.progress = its.progress + static_cast<double>(bytes.value),
                    .order = order_++,
                    .job = &job});
  its.bytes += static_cast<double>(bytes.value);
  part.changed = true;
}

Nanoseconds Flows::next() {
  auto first = Nanoseconds::max();
  for (const auto& part : parts_) {
    if (part->changed) renew(*part);
    first = std::min(first, part->next);
  }
  return first;
}

void Flows::advance(Nanoseconds now) {
  std::vector<Job*> done;
  for (const auto& part : parts_) {
    if (part->next > now) continue;
    pass(*part, now);
    end_members(*part, done);
    part->changed = true;
  }
  for (Job* job : done) job->done();
}

// Counts the progress until now.
void Flows::pass(Part& part, Nanoseconds now) {
  const auto passed = static_cast<double>((now - part.time).count());
  part.time = now;
  if (passed <= 0) return;
  for (const Rates::OfCeiling& of : part.rates.ceilings) {
    CeilingUse& use = ceilings_[of.number];
    use.bytes += of.load * passed;
    use.seconds += passed * 1e-9;
    if (of.full) use.full += passed * 1e-9;
  }
  for (const std::uint32_t number : part.classes) {
    Class& its = classes_[number];
    if (its.members.empty()) continue;
    its.progress += its.rate * passed;
    its.limited[its.limit] += static_cast<double>(its.members.size()) * passed * 1e-9;
  }
}

void Flows::end_members(Part& part, std::vector<Job*>& done) {
  for (const std::uint32_t number : part.classes) {
    Class& its = classes_[number];
    while (!its.members.empty() && its.members.top().progress - its.progress <= its.rate * kRest) {
      done.push_back(its.members.top().job);
      its.members.pop();
    }
    // Keeps the sums exact: a long run would lose the bits of small ones.
    if (its.members.empty()) its.progress = 0;
  }
}

Flows::Changes Flows::compare(const Part& part, const Key& key) {
  Changes all;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const std::uint32_t before = part.solved[i];
    all.members += before;
    all.changes += key[i] > before ? key[i] - before : before - key[i];
  }
  return all;
}

// Whether the rates in use may be used for these numbers of members.
bool Flows::good_enough(const Part& part, const Key& key) const {
  if (key.size() != part.solved.size()) return false;
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] > 0 && part.solved[i] == 0 && part.time - part.last[i] > kOldRate) return false;
  }
  const auto [members, changes] = compare(part, key);
  return part.time - part.since <= usable(members, changes);
}

// Finds the rates for the present members, and when the next of them ends.
void Flows::renew(Part& part) {
  part.changed = false;
  key_.clear();
  for (const std::uint32_t number : part.classes) {
    const Class& its = classes_[number];
    const std::size_t members = its.shared ? !its.members.empty() : its.members.size();
    key_.push_back(static_cast<std::uint32_t>(members));
  }
  if (!good_enough(part, key_)) find_rates(part, key_);
  double first = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < part.classes.size(); ++i) {
    Class& its = classes_[part.classes[i]];
    if (its.members.empty()) continue;
    const double sharing = its.shared ? static_cast<double>(its.members.size()) : 1;
    its.rate = part.rates.classes[i].rate / sharing;
    its.limit = part.rates.classes[i].limit;
    first = std::min(first, std::max(its.members.top().progress - its.progress, 0.0) / its.rate);
  }
  part.next = Nanoseconds::max();
  constexpr double kLongest = 1e18;  // longer than any run
  if (first < kLongest) {
    part.next = part.time + Nanoseconds{static_cast<std::int64_t>(std::ceil(first))};
  }
  if (const auto [members, changes] = compare(part, key_); changes > 0) {
    part.next = std::min(part.next, part.since + usable(members, changes) + Nanoseconds{1});
  }
}

// Solves a part for these numbers of members. An empty class keeps the rate that it had.
void Flows::find_rates(Part& part, const Key& key) {
  ++solved_;
  if (!part.flows) {
    std::vector<Flow> flows;
    for (const std::uint32_t number : part.classes) flows.push_back(classes_[number].flow);
    // Each flow was solved alone by add_class(), so its numbers are valid.
    part.flows = *solver_.prepare(flows);
    part.rates.classes.resize(key.size());
    part.last.resize(key.size(), -kOldRate);
  }
  threads_.assign(key.begin(), key.end());
  const Status solved = part.flows->solve(threads_);
  CHECK(solved.has_value() && "the solver converges for valid flows");
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] == 0) continue;
    const double rate = part.flows->rate(i);
    CHECK(rate > 0);
    part.rates.classes[i] = {.rate = rate * 1e-9 / key[i], .limit = limit_of(part, i)};
    part.last[i] = part.time;
  }
  part.rates.ceilings.clear();
  for (std::size_t c = 0; c < ceilings_.size(); ++c) {
    const CeilingLoad load = part.flows->ceiling(c);
    if (load.load <= 0) continue;
    part.rates.ceilings.push_back({.number = static_cast<std::uint32_t>(c),
                                   .load = load.load * 1e-9,
                                   .full = load.load >= kFull * load.bandwidth});
  }
  part.solved = key;
  part.since = part.time;
}

// The place of a class's limit in Class::limited.
std::uint32_t Flows::limit_of(Part& part, std::size_t index) const {
  const Limit limit = part.flows->limit(index);
  switch (limit.kind) {
    case Limit::Kind::ceiling: return static_cast<std::uint32_t>(limit.ceiling);
    case Limit::Kind::lines_in_flight: break;
    case Limit::Kind::cap: return static_cast<std::uint32_t>(ceilings_.size() + 1);
  }
  return static_cast<std::uint32_t>(ceilings_.size());
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
