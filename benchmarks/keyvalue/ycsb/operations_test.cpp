// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/ycsb/operations.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::kv_bench {
namespace {

TEST(Operations, KindsAreThoseOfTheWorkload) {
  struct Case {
    const char* name;
    std::array<double, 3> parts;  // reads, updates, inserts
  };
  for (const auto& [name, parts] : {Case{"A", {0.5, 0.5, 0}}, Case{"B", {0.95, 0.05, 0}},
                                    Case{"C", {1, 0, 0}}, Case{"D", {0.95, 0, 0.05}}}) {
    Operations operations(*find_workload(name), 1000, 1);
    std::array<double, 3> found{};
    std::uint64_t stored = 1000;
    for (int i = 0; i < 100'000; ++i) {
      const Operation operation = operations.next();
      found[static_cast<std::size_t>(operation.kind)] += 1e-5;
      if (operation.kind == Kind::insert) {
        ASSERT_EQ(operation.record, stored++);  // in order
      }
      ASSERT_LT(operation.record, stored);
    }
    for (std::size_t kind = 0; kind < 3; ++kind) {
      if (parts[kind] == 0 || parts[kind] == 1) {
        EXPECT_NEAR(found[kind], parts[kind], 1e-9) << name;
      } else {
        EXPECT_NEAR(found[kind], parts[kind], 0.01) << name;
      }
    }
  }
  EXPECT_EQ(find_workload("E"), nullptr);
  EXPECT_EQ(find_workload("AB"), nullptr);
}

TEST(Operations, TheSameSeedAsksTheSame) {
  Operations first(*find_workload("A"), 1000, 7), second(*find_workload("A"), 1000, 7);
  Operations other(*find_workload("A"), 1000, 8);
  int same = 0;
  for (int i = 0; i < 1000; ++i) {
    const Operation operation = first.next();
    EXPECT_EQ(operation.record, second.next().record);
    same += operation.record == other.next().record ? 1 : 0;
  }
  EXPECT_LT(same, 100);
}

TEST(Operations, ABillionRecordsCostNothing) {
  Operations operations(*find_workload("D"), 1'000'000'000, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(operations.next().record, 1'000'001'000U);
}

TEST(Operations, NamesAreThoseOfYcsb) {
  EXPECT_EQ(key_of(0), "user6284781860667377211");
  EXPECT_EQ(key_of(1), "user8517097267634966620");
}

}  // namespace
}  // namespace headrace::kv_bench
