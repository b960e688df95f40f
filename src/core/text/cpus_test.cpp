// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "headrace/cpus.h"

namespace headrace {
namespace {

TEST(CpuListTest, ReadsTheKernelsFormat) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (CpuSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("8,0-3,2\n"), (CpuSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list(""), CpuSet{});
  EXPECT_EQ(parse_cpu_list("\n"), CpuSet{});
  EXPECT_EQ(to_string(CpuSet{0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(to_string(CpuSet{4, 5}), "4-5");
  EXPECT_EQ(to_string(CpuSet{}), "");
}

TEST(CpuListTest, InvalidLists_AreRefused) {
  for (const char* text : {"a", "1-", "-1", "3-1", "1,", ",1", "1,,2", "1 2", "0-4294967295",
                           "1-2-3", "0x1", "70000"}) {
    const auto cpus = parse_cpu_list(text);
    ASSERT_FALSE(cpus) << text;
    EXPECT_EQ(cpus.error().code, ErrorCode::invalid);
  }
}

TEST(CpuListTest, ErrorDoesNothingToATerminal) {
  EXPECT_EQ(parse_cpu_list("1\x1b\u202e2\u20663").error().message,
            "'1??2?3' is not a list of numbers like 0-3,8");
}

TEST(CpuListTest, EverySetComesBack) {
  EXPECT_TRUE(rc::check([] {
    const auto members = *rc::gen::container<std::set<unsigned>>(rc::gen::inRange(0u, 300u));
    const CpuSet cpus(members.begin(), members.end());
    const auto back = parse_cpu_list(to_string(cpus));
    RC_ASSERT(back.has_value());
    RC_ASSERT(*back == cpus);
  }));
}

TEST(CpuListTest, AnyTextIsAListOrAnError) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& picks) {
    constexpr std::string_view kAlphabet = "0123456789,,--\n x";
    std::string text;
    for (const auto pick : picks) text += kAlphabet[pick % kAlphabet.size()];
    const auto cpus = parse_cpu_list(text);
    if (cpus) RC_ASSERT(std::ranges::is_sorted(*cpus));
  }));
}

}  // namespace
}  // namespace headrace
