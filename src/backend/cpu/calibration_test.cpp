// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/scoped_variable.h"

namespace headrace {
namespace {

// The kernels that can race on this CPU. Some CPUs have no kernels, so memcpy is included.
std::vector<CopyKernel> racers() {
  auto kernels = copy_kernels();
  kernels.push_back(choose_kernel("memcpy"));
  return kernels;
}

TEST(Race, RanksEveryKernelOnceFastestFirst) {
  const auto kernels = racers();
  const auto results = race(kernels, Nanoseconds{0});
  ASSERT_EQ(results.size(), kernels.size()) << "one round is run however small the budget";
  EXPECT_TRUE(std::ranges::is_sorted(results, {}, &RaceResult::time));
  for (const CopyKernel& kernel : kernels) {
    const auto same = [&](const RaceResult& r) { return r.kernel.name == kernel.name; };
    EXPECT_EQ(std::ranges::count_if(results, same), 1) << kernel.name;
  }
  EXPECT_GT(results.front().time, Nanoseconds{0});
}

// Advances ten milliseconds at each call.
class TickingClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::milliseconds{10} * ++asked; }
  mutable int asked = 0;
};

TEST(Race, EndsAfterTheRoundInWhichItsBudgetIsSpent) {
  const TickingClock clock;
  EXPECT_FALSE(race(racers(), std::chrono::milliseconds{25}, clock).empty());
  EXPECT_EQ(clock.asked, 4) << "at its beginning and after each of three rounds";
}

TEST(ChooseKernel, TakesTheOneNamed_ElseTheWinnerOfARace) {
  for (const CopyKernel& kernel : racers()) {
    EXPECT_EQ(choose_kernel(kernel.name).copy, kernel.copy) << kernel.name;
  }
  for (const char* name : {"", "mmx"}) EXPECT_NE(choose_kernel(name).copy, nullptr) << name;
}

TEST(OverrideNote, SaysWhatCameOfTheVariable) {
  constexpr const char* kName = "HEADRACE_COPY_KERNEL";
  {
    const ScopedVariable none(kName, "");
    EXPECT_EQ(override_note(), "");
  }
  {
    const ScopedVariable good(kName, "memcpy");
    EXPECT_EQ(override_note(), "kernel memcpy by HEADRACE_COPY_KERNEL");
  }
  const ScopedVariable bad(kName, "mmx");
  EXPECT_TRUE(override_note().starts_with("HEADRACE_COPY_KERNEL=mmx ignored: this CPU has memcpy"))
      << override_note();
}

}  // namespace
}  // namespace headrace
