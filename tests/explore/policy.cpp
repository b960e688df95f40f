// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/policy.h"

#include <algorithm>
#include <functional>

namespace headrace::explore {

Policy::Policy(PolicyKind kind, std::uint64_t length, Random& random)
    : kind_(kind), random_(random) {
  if (kind == PolicyKind::random_walk) {
    stay_ = std::uint64_t{1} << random.below(6);  // 1 to 32
    return;
  }
  for (std::int64_t& priority : priorities_) {
    priority = 1 + static_cast<std::int64_t>(random.below(std::uint64_t{1} << 60));
  }
  const std::uint64_t depth = 1 + random.below(5);
  for (std::uint64_t i = 1; i < depth; ++i) changes_.push_back(random.below(length + 1));
  std::ranges::sort(changes_, std::greater{});
}

bool Policy::yields(const sim::Thread& running, std::span<sim::Thread* const> ready) {
  if (kind_ == PolicyKind::random_walk) return stay_ == 1 || random_.below(stay_) == 0;
  for (; !changes_.empty() && changes_.back() <= step_; changes_.pop_back()) lower(running.number);
  if (++run_ > kLongRun) lower(running.number);
  return std::ranges::any_of(ready, [&](const sim::Thread* other) {
    return priority(other->number) > priority(running.number);
  });
}

std::size_t Policy::next(std::span<sim::Thread* const> ready) {
  run_ = 0;
  auto chosen = ready.begin();
  if (kind_ == PolicyKind::random_walk) {
    chosen += static_cast<std::ptrdiff_t>(random_.below(ready.size()));
  } else {
    chosen = std::ranges::max_element(
        ready, {}, [&](const sim::Thread* thread) { return priority(thread->number); });
  }
  hash_ = (hash_ ^ (operations_ << 8 | (*chosen)->number)) * 0x9e3779b97f4a7c15;
  return static_cast<std::size_t>(chosen - ready.begin());
}

// POSIX lets a signal wake any waiter.
std::size_t Policy::notified(std::span<sim::Thread* const> waiting) {
  return random_.below(waiting.size());
}

void Policy::lower(unsigned thread) {
  priority(thread) = --lowest_;
  run_ = 0;
}

}  // namespace headrace::explore
