#include "headrace/result.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(ErrorCode::invalid, "{} is odd; give an even number", n);
  return n / 2;
}

Result<int> quarter(int n) {
  HEADRACE_TRY(const int once, half(n));
  HEADRACE_TRY(const int twice, half(once));
  return twice;
}

Status only_even(int n) {
  HEADRACE_TRY_STATUS(half(n));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half(4), 2);
  const auto odd = half(3);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error(), (Error{ErrorCode::invalid, "3 is odd; give an even number"}));
}

TEST(Result, TryReturnsTheFirstError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd; give an even number");
  EXPECT_TRUE(only_even(2));
  EXPECT_FALSE(only_even(1));
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Error, ErrnoGetsTheCodeThatFits) {
  EXPECT_EQ(code_of_errno(ENOENT), ErrorCode::absent);
  EXPECT_EQ(code_of_errno(EPERM), ErrorCode::denied);
  EXPECT_EQ(code_of_errno(ENOSPC), ErrorCode::exhausted);
  EXPECT_EQ(code_of_errno(ENOSYS), ErrorCode::unsupported);
  EXPECT_EQ(code_of_errno(EINVAL), ErrorCode::invalid);
  EXPECT_EQ(code_of_errno(ECANCELED), ErrorCode::cancelled);
  EXPECT_EQ(code_of_errno(ETIMEDOUT), ErrorCode::timed_out);
  EXPECT_EQ(code_of_errno(EIO), ErrorCode::io);
  EXPECT_EQ(fail_errno(ENOENT, "open /x").error().message, "open /x: No such file or directory");
}

TEST(Error, EveryCodeHasItsWord) {
  EXPECT_EQ(to_string(ErrorCode::absent), "absent");
  EXPECT_EQ(to_string(ErrorCode::timed_out), "timed_out");
}

TEST(CheckDeathTest, EndsTheProgramAndSaysWhere) {
  CHECK(1 + 1 == 2);
  EXPECT_DEATH(CHECK(1 + 1 == 3), "result_test.cpp:[0-9]+: CHECK failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace headrace
