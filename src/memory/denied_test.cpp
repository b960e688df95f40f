// SPDX-License-Identifier: Apache-2.0
// Allocation in a container whose seccomp profile forbids the system calls of memory policy.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "headrace/buffer.h"
#include "memory/memory_testing.h"
#include "tests/support/container.h"

namespace headrace {
namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

[[noreturn]] void allocate_denied() {
  const Machine machine = this_host();
  test::forbid_policies();
  Placement placement = on_first(machine);
  const auto buffer = allocate(machine, 64_KiB, placement);
  if (machine.nodes.size() > 1) {
    expect(!buffer && buffer.error().code == ErrorCode::denied, "several nodes: denied");
    std::_Exit(0);
  }
  expect(buffer.has_value(), "on the only node memory is bound anyway");
  const auto touched = where((*buffer)->bytes());
  expect(touched.has_value(), "where() has another way to know");
  expect(touched->pages.at(machine.nodes.front().id) == pages_in(64_KiB), "all pages are there");
  placement.touch = false;
  const auto untouched = allocate(machine, 64_KiB, placement);
  expect(untouched && where((*untouched)->bytes()).value().absent == pages_in(64_KiB),
         "an untouched buffer has no pages");
  std::_Exit(0);
}

TEST(Denied, OneNodeStillWorksAndSeveralSayWhatToGrant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(allocate_denied(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace
