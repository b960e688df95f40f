// SPDX-License-Identifier: Apache-2.0
#include "headrace/result.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/fail.h"
#include "headrace/random.h"

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

// The same layout for programs of any standard and compiler that link the library.
static_assert(sizeof(Error) == 8 + sizeof(std::string));
static_assert(sizeof(Status) == sizeof(Error) + 8 && sizeof(Result<int>) == sizeof(Error) + 8);
static_assert(sizeof(Result<std::array<char, 64>>) == 64 + 8);
// Errors and values do not convert to each other implicitly.
static_assert(!std::is_convertible_v<Error, Result<int>>);
static_assert(!std::is_convertible_v<Result<int>, bool>);
static_assert(!std::is_constructible_v<Status, int>);
static_assert(!std::is_constructible_v<Result<bool>, Result<int>>);
static_assert(!std::is_convertible_v<Result<const char*>, Result<int>>);
static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
static_assert(!std::is_copy_assignable_v<Result<std::unique_ptr<int>>>);
static_assert(std::is_nothrow_move_assignable_v<Result<std::unique_ptr<int>>>);
static_assert(std::is_nothrow_move_constructible_v<Status>);
static_assert(!std::is_default_constructible_v<Result<std::reference_wrapper<int>>>);

const Error kOld{ErrorCode::absent, "the first message, too long for the string itself"};
const Error kNew{ErrorCode::io, "the second message, too long for the string itself"};

// Counts live objects, to detect an object destroyed twice or never.
struct Counted {
  explicit Counted(int n) : number(n) { ++alive; }
  Counted(const Counted& other) : number(other.number) { ++alive; }
  Counted(Counted&& other) noexcept : number(other.number) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
  friend bool operator==(const Counted&, const Counted&) = default;
  int number;
  static inline int alive = 0;
};
using Model = std::variant<int, std::string>;

void step(std::uint64_t what, Result<Counted>& to, Result<Counted>& from, int n) {
  const Error error{ErrorCode::io, std::string(20, 'a') + std::to_string(n)};
  switch (what) {
    case 0: to = Counted(n); break;
    case 1: to = Unexpected(error); break;
    case 2: to = from; break;
    case 3: to = Result<Counted>(std::move(from)), from = Counted(n); break;
    case 4: std::swap(to, from); break;
    default: to = to.value_or(Counted(n)); break;
  }
}

void step(std::uint64_t what, Model& to, Model& from, int n) {
  const std::string error = std::string(20, 'a') + std::to_string(n);
  switch (what) {
    case 0: to = n; break;
    case 1: to = error; break;
    case 2: to = from; break;
    case 3: to = Model(from), from = n; break;
    case 4: std::swap(to, from); break;
    default: to = to.index() == 0 ? to : Model(n); break;
  }
}

TEST(Result, RandomOperations_MatchAVariant) {
  Random random(1);
  {
    std::vector<Result<Counted>> ours(3, Counted(0));
    std::vector<Model> model(3);
    for (int i = 0; i < 20'000; ++i) {
      const auto what = random.below(6), to = random.below(3), from = random.below(3);
      const int n = static_cast<int>(random.below(1000));
      step(what, ours[to], ours[from], n);
      step(what, model[to], model[from], n);
      for (std::size_t k = 0; k < ours.size(); ++k) {
        ASSERT_EQ(ours[k].has_value(), model[k].index() == 0) << "step " << i << ", " << what;
        ASSERT_EQ(ours[k] == ours[0], model[k] == model[0]);
        if (ours[k]) {
          ASSERT_EQ(ours[k]->number, std::get<int>(model[k])) << "step " << i << ", " << what;
        } else {
          ASSERT_EQ(ours[k].error().message, std::get<std::string>(model[k]));
        }
      }
    }
  }
  EXPECT_EQ(Counted::alive, 0);
}

struct Throws {
  Throws() = default;
  Throws(const Throws&) { throw std::bad_alloc(); }
  Throws& operator=(const Throws&) = default;
};

TEST(Result, KeepsItsErrorIfTheValueCannotBeCopied) {
  const Result<Throws> value;
  Result<Throws> result = Unexpected(kOld);
  EXPECT_THROW(result = value, std::bad_alloc);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), kOld);
}

struct Base {
  virtual ~Base() = default;
};
struct Derived final : Base {};

TEST(Result, ConvertsAsItsValueDoes) {
  Result<std::unique_ptr<Derived>> derived = std::make_unique<Derived>();
  const Derived* const made = derived->get();
  const Result<std::unique_ptr<Base>> base = std::move(derived);
  EXPECT_EQ(base->get(), made);
  const Result<const char*> none = Unexpected(kOld);
  const Result<std::string> words = none;
  EXPECT_EQ(words.error(), kOld);
  EXPECT_EQ(*Result<std::string>(Result<const char*>("yes")), "yes");
}

TEST(Result, ValuesAndErrors_AreCompared) {
  EXPECT_EQ(half(4), 2);
  EXPECT_FALSE(half(3) == 2);
  EXPECT_EQ(half(3).value_or(9), 9);
  EXPECT_EQ(Result<int>(Unexpected(kOld)), Unexpected(kOld));
  EXPECT_FALSE(Result<int>(Unexpected(kOld)) == Unexpected(kNew));
}

TEST(Result, ResultOfVoid_IsAssignedAndCompared) {
  Status status;
  EXPECT_TRUE(status);
  *status;
  status.value();
  status = Unexpected(kOld);
  EXPECT_FALSE(status == Status());
  const Status copy = status;
  status = {};
  EXPECT_EQ(status, Status());
  EXPECT_EQ(copy.error(), kOld);
}

TEST(ResultDeathTest, ValueOfAnErrorEndsTheProgramAndPrintsTheError) {
  EXPECT_DEATH(static_cast<void>(half(3).value()), "invalid: 3 is odd; give an even number");
}

TEST(Error, ErrnoGetsTheCodeThatFits) {
  const std::pair<int, ErrorCode> table[] = {
      {ENOENT, ErrorCode::absent},       {EPERM, ErrorCode::denied},
      {ENOSPC, ErrorCode::exhausted},    {ENOSYS, ErrorCode::unsupported},
      {EINVAL, ErrorCode::invalid},      {ECANCELED, ErrorCode::cancelled},
      {ETIMEDOUT, ErrorCode::timed_out}, {EIO, ErrorCode::io}};
  for (const auto& [number, code] : table) EXPECT_EQ(code_of_errno(number), code) << number;
  EXPECT_EQ(fail_errno(ENOENT, "open /x").error().message, "open /x: No such file or directory");
}

TEST(CheckDeathTest, EndsTheProgramAndSaysWhere) {
  CHECK(1 + 1 == 2);
  EXPECT_DEATH(CHECK(1 + 1 == 3), "result_test.cpp:[0-9]+: CHECK failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace headrace
