// SPDX-License-Identifier: Apache-2.0
// Fallbacks for features that an older kernel lacks, or a container forbids
// (docs/design/kernels.md). The system calls fail as they do there.

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "headrace/buffer.h"
#include "host/mempolicy.h"
#include "memory/mapped_memory.h"
#include "memory/memory_testing.h"
#include "tests/support/container.h"

namespace headrace {
namespace {

constexpr unsigned kPreferredMany = 5;   // MPOL_PREFERRED_MANY, Linux 5.15
constexpr unsigned kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
constexpr unsigned kHugePage = 14;       // MADV_HUGEPAGE, without CONFIG_TRANSPARENT_HUGEPAGE

void insist(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

bool all_there(const Buffer& buffer) { return where(buffer.bytes()).value().absent == 0; }

[[noreturn]] void touch_by_hand() {
  const Machine machine = this_host();
  test::forget_value(SYS_madvise, kPopulateWrite);
  for (const PageSize pages : {PageSize::base, PageSize::transparent}) {
    const auto buffer = allocate(machine, 4_MiB, on_first(machine, pages));
    insist(buffer && all_there(**buffer), "pages are touched one by one");
    insist(std::ranges::all_of((*buffer)->bytes(), [](std::byte b) { return b == std::byte{0}; }),
           "and zero");
  }
  std::_Exit(0);
}

[[noreturn]] void prefer_one() {
  const Machine machine = this_host();
  const NodeId node = machine.nodes.front().id;
  test::forget_value(SYS_mbind, kPreferredMany);
  auto memory = MappedMemory::make(64_KiB, 64_KiB, 4_KiB, PROT_READ | PROT_WRITE).value();
  insist(set_policy(memory.memory(), 1 << 16, MemoryPolicy::preferred_many, {&node, 1}) == EINVAL,
         "the kernel does not know it");
  Placement placement = on_first(machine);
  placement.distribution = Distribution::first_touch;
  placement.strict = false;
  auto buffer = allocate(machine, 64_KiB, placement);
  insist(buffer.has_value(), "one node is preferred instead");
  std::ranges::fill((*buffer)->bytes(), std::byte{1});
  insist(all_there(**buffer), "and has the pages");
  std::_Exit(0);
}

[[noreturn]] void no_huge_pages() {
  const Machine machine = this_host();
  test::forget_value(SYS_madvise, kHugePage);
  const auto buffer = allocate(machine, 4_MiB, on_first(machine, PageSize::transparent));
  insist(buffer && all_there(**buffer), "the pages are small ones");
  std::_Exit(0);
}

// A container whose seccomp profile forbids the system calls of memory policy.
[[noreturn]] void allocate_denied() {
  const Machine machine = this_host();
  test::forbid_policies();
  Placement placement = on_first(machine);
  const auto buffer = allocate(machine, 64_KiB, placement);
  if (machine.nodes.size() > 1) {
    insist(!buffer && buffer.error().code == ErrorCode::denied, "several nodes: denied");
    std::_Exit(0);
  }
  insist(buffer.has_value(), "on the only node memory is bound anyway");
  const auto touched = where((*buffer)->bytes());
  insist(touched.has_value(), "where() has another way to know");
  insist(touched->pages.at(machine.nodes.front().id) == pages_in(64_KiB), "all pages are there");
  placement.touch = false;
  const auto untouched = allocate(machine, 64_KiB, placement);
  insist(untouched && where((*untouched)->bytes()).value().absent == pages_in(64_KiB),
         "an untouched buffer has no pages");
  std::_Exit(0);
}

class OldKernel : public testing::Test {
 protected:
  OldKernel() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(OldKernel, Before514PagesAreTouchedByStores) {
  EXPECT_EXIT(touch_by_hand(), testing::ExitedWithCode(0), "");
}
TEST_F(OldKernel, Before515OneNodeIsPreferred) {
  EXPECT_EXIT(prefer_one(), testing::ExitedWithCode(0), "");
}
TEST_F(OldKernel, WithoutTransparentHugePagesPagesAreSmall) {
  EXPECT_EXIT(no_huge_pages(), testing::ExitedWithCode(0), "");
}

TEST_F(OldKernel, DeniedPolicies_OneNodeStillWorksAndSeveralSayWhatToGrant) {
  EXPECT_EXIT(allocate_denied(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace
