// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/policy.h"

#include <algorithm>

namespace headrace::explore {

Policy::Policy(PolicyKind kind, std::uint64_t length, Random& random)
    : kind_(kind), random_(random) {
  if (kind == PolicyKind::random_walk) {
    stay_ = std::uint64_t{1} << random.below(6);  // 1 to 32
    return;
  }
  for (std::size_t i = 0; i < priorities_.size(); ++i) {
    priorities_[i] =
        static_cast<std::int64_t>(random.below(1 << 30)) * 32 + static_cast<std::int64_t>(i);
  }
  const std::uint64_t depth = 1 + random.below(5);
  for (std::uint64_t i = 1; i < depth; ++i) changes_.push_back(random.below(length + 1));
  std::ranges::sort(changes_, std::greater{});
}

unsigned Policy::any(std::uint32_t runnable) {
  auto skip = random_.below(static_cast<std::uint64_t>(std::popcount(runnable)));
  for (; skip > 0; --skip) runnable &= runnable - 1;
  return static_cast<unsigned>(std::countr_zero(runnable));
}

unsigned Policy::highest(std::uint32_t runnable) const {
  auto best = static_cast<unsigned>(std::countr_zero(runnable));
  for (std::uint32_t left = runnable & (runnable - 1); left != 0; left &= left - 1) {
    const auto one = static_cast<unsigned>(std::countr_zero(left));
    if (priorities_[one] > priorities_[best]) best = one;
  }
  return best;
}

unsigned Policy::next(std::uint32_t runnable, unsigned now, std::uint64_t step) {
  const bool can_stay = (runnable >> now & 1) != 0;
  if (kind_ == PolicyKind::random_walk) {
    if (can_stay && stay_ > 1 && random_.below(stay_) != 0) return now;
    return any(runnable);
  }
  for (; !changes_.empty() && changes_.back() <= step; changes_.pop_back()) lower(now);
  if (++run_ > kLongRun) lower(now);
  const unsigned next = highest(runnable);
  if (next != now) run_ = 0;
  return next;
}

void Policy::lower(unsigned thread) {
  priorities_[thread] = --lowest_;
  run_ = 0;
}

}  // namespace headrace::explore
