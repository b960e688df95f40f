// SPDX-License-Identifier: Apache-2.0
// allocate() and where() on the nodes this host has; the guest tests (tests/guest) have sixteen.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/sanitizers.h"
#include "headrace/buffer.h"
#include "host/host_memory.h"
#include "memory/memory_testing.h"
#include "tests/support/numa_maps.h"

namespace headrace {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

ErrorCode code_of(const Result<std::unique_ptr<Buffer>>& result) {
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().code;
}

TEST(Allocate, GivesTheSizeAskedForZeroedOnItsNode) {
  const Machine machine = this_host();
  for (const Bytes bytes : {1_B, 4095_B, 4096_B, 4097_B, 1_MiB + 1_B, 5_MiB}) {
    const auto buffer = allocate(machine, bytes, on_first(machine));
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ((*buffer)->size(), bytes);
    EXPECT_EQ((*buffer)->bytes().size(), bytes.value);
    EXPECT_EQ((*buffer)->node(), machine.nodes.front().id);
    EXPECT_EQ((*buffer)->page_size(), PageSize::base);
    EXPECT_EQ((*buffer)->fallback(), "");
    EXPECT_TRUE(all_zero((*buffer)->bytes()));
    const auto residency = where((*buffer)->bytes());
    ASSERT_TRUE(residency) << residency.error().message;
    EXPECT_EQ(residency->absent, 0U);
    EXPECT_EQ(residency->pages.at(machine.nodes.front().id), pages_in(bytes));
    EXPECT_EQ(residency->total(), pages_in(bytes));
    std::ranges::fill((*buffer)->bytes(), std::byte{0xff});
  }
}

TEST(Allocate, TouchesOnlyWhenAsked) {
  const Machine machine = this_host();
  Placement placement = on_first(machine);
  placement.touch = false;
  const auto buffer = allocate(machine, 1_MiB, placement);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(where((*buffer)->bytes()).value().absent, pages_in(1_MiB));
  (*buffer)->bytes()[5 * page_size()] = std::byte{1};
  const auto residency = where((*buffer)->bytes()).value();
  EXPECT_EQ(residency.absent, pages_in(1_MiB) - 1);
  EXPECT_EQ(residency.pages.at(machine.nodes.front().id), 1U);
}

TEST(Allocate, ReleasesItsMemory) {
  const Machine machine = this_host();
  std::byte* memory = nullptr;
  {
    const auto buffer = allocate(machine, 64_KiB, on_first(machine));
    ASSERT_TRUE(buffer);
    memory = (*buffer)->memory();
  }
  std::vector<unsigned char> in_core(pages_in(64_KiB));
  EXPECT_EQ(::mincore(memory, 64 << 10, in_core.data()), -1) << "still mapped";
}

TEST(Allocate, AgreesWithNumaMapsForEveryPlacement) {
  const Machine machine = this_host();
  EXPECT_TRUE(rc::check("where() and numa_maps tell the same, on the nodes asked for", [&] {
    Placement placement;
    for (const NodeId id : ids_of(machine)) {
      if (placement.nodes.empty() || *rc::gen::arbitrary<bool>()) {
        placement.nodes.push_back({id, *rc::gen::inRange(1U, 4U)});
      }
    }
    placement.strict = *rc::gen::arbitrary<bool>();
    placement.touch = *rc::gen::arbitrary<bool>();
    placement.pages =
        *rc::gen::elementOf(std::vector{PageSize::base, PageSize::transparent, PageSize::huge_2m});
    const Bytes bytes{*rc::gen::inRange<std::uint64_t>(1, 9 << 20)};
    const auto buffer = allocate(machine, bytes, placement);
    RC_ASSERT(buffer.has_value());
    RC_ASSERT((*buffer)->placement().nodes == placement.nodes);
    RC_ASSERT(((*buffer)->page_size() == placement.pages) == (*buffer)->fallback().empty());
    const auto residency = where((*buffer)->bytes()).value();
    RC_ASSERT(residency.total() == pages_in(bytes));
    if (placement.touch) RC_ASSERT(residency.absent == 0U);
    for (const auto& [id, pages] : residency.pages) {
      if (placement.strict) {
        RC_ASSERT(std::ranges::count(placement.nodes, id, &NodeWeight::node) == 1);
      }
    }
    const auto maps = test::numa_maps((*buffer)->bytes());
    // A huge page may reach beyond the requested bytes; otherwise both count the same pages.
    if (maps && (*buffer)->page_size() != PageSize::huge_2m) RC_ASSERT(*maps == residency.pages);
  }));
}

TEST(Allocate, ResolvesAKind) {
  const Machine machine = this_host();
  const auto buffer = allocate(machine, 64_KiB, Placement::on(NodeKind::dram));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ((*buffer)->placement().kind, std::nullopt);
  EXPECT_EQ((*buffer)->placement().nodes.size(), machine.nodes.size());
  EXPECT_EQ(code_of(allocate(machine, 64_KiB, Placement::on(NodeKind::hbm))), ErrorCode::absent);
}

// A node that resolve() added by itself never causes a refusal, however often it is resolved.
TEST(Allocate, OfflineNodeThatWasNotRequested_IsLeftOut) {
  const Machine machine = with_a_node_gone();
  Placement preferred = Placement::on(NodeKind::dram);
  preferred.strict = false;
  preferred.near = {0};
  Placement other = Placement::on(NodeKind::cxl);
  other.strict = false;
  other.near = {0};
  for (const Placement& wish : {preferred, other}) {
    const auto once = resolve(machine, wish);
    ASSERT_TRUE(once) << once.error().message;
    for (const Placement& placement : {wish, *once, *resolve(machine, *once)}) {
      const auto buffer = allocate(machine, 64_KiB, placement);
      ASSERT_TRUE(buffer) << buffer.error().message;
      EXPECT_EQ((*buffer)->node(), machine.nodes.front().id);
      const Status moved = relocate(machine, **buffer, placement);
      EXPECT_TRUE(moved) << moved.error().message;
    }
  }
  EXPECT_EQ(code_of(allocate(machine, 64_KiB, Placement::on(NodeKind::cxl))), ErrorCode::absent);
  preferred.spill = {NodeId{999}};
  EXPECT_EQ(code_of(allocate(machine, 64_KiB, preferred)), ErrorCode::absent) << "it was named";
}

// With no spill nodes named, memory that is touched later is neither counted nor split.
TEST(Allocate, UntouchedMemoryThatMaySpillAnywhere_MayExceedFreeMemory) {
  const Machine machine = with_a_node_gone();
  Placement sparse = Placement::on(NodeKind::dram);
  sparse.strict = sparse.touch = false;
  sparse.near = {0};
  const Bytes all{static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size()};
  const Bytes free = read_host_memory().free();
  const Bytes more = free + (all - free) / 2;
  for (const Placement& placement : {sparse, *resolve(machine, sparse)}) {
    const auto buffer = allocate(machine, more, placement);
    if (!buffer && buffer.error().message.starts_with("cannot map")) GTEST_SKIP() << "overcommit";
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ((*buffer)->node(), machine.nodes.front().id);
  }
}

TEST(Allocate, InvalidRequests_AreRefused) {
  const Machine machine = this_host();
  const NodeId id = machine.nodes.front().id;
  EXPECT_EQ(code_of(allocate(machine, 0_B, Placement::on(id))), ErrorCode::invalid);
  EXPECT_EQ(code_of(allocate(machine, 1_B, Placement{})), ErrorCode::invalid);
  EXPECT_EQ(code_of(allocate(machine, 1_B, Placement::weighted({{id, 0}}))), ErrorCode::invalid);
  EXPECT_EQ(code_of(allocate(machine, 1_B, Placement::weighted({{id, 2}, {id, 1}}))),
            ErrorCode::invalid);
  EXPECT_EQ(code_of(allocate(machine, Bytes{~std::uint64_t{0}}, Placement::on(id))),
            ErrorCode::exhausted);
}

TEST(Allocate, SaysWhichNodesThereAre) {
  const Machine machine = this_host();
  EXPECT_EQ(code_of(allocate(machine, 1_B, Placement::on(NodeId{777}))), ErrorCode::absent);
  // In the description, but not on this host.
  Machine other = machine;
  other.nodes.push_back({.id = NodeId{900}, .kind = NodeKind::hbm, .reason = "test"});
  other.source = "preset other";
  const auto buffer = allocate(other, 1_B, Placement::on(NodeId{900}));
  EXPECT_EQ(code_of(buffer), ErrorCode::absent);
  EXPECT_NE(buffer.error().message.find("preset other"), std::string::npos);
  // Storage is a node, but not memory.
  other.nodes.push_back({.id = NodeId{1000}, .kind = NodeKind::storage, .reason = "test"});
  EXPECT_FALSE(allocate(other, 1_B, Placement::on(NodeId{1000})));
}

TEST(Allocate, RefusesMoreThanIsFreeBeforeTouchingIt) {
  const Machine machine = this_host();
  const Bytes free = read_host_memory().find(machine.nodes.front().id)->free;
  for (const bool strict : {true, false}) {
    Placement placement = on_first(machine);
    placement.strict = strict;
    const auto buffer = allocate(machine, free * 64, placement);
    EXPECT_EQ(code_of(buffer), ErrorCode::exhausted);
    EXPECT_NE(buffer.error().message.find("free now: node "), std::string::npos)
        << buffer.error().message;
  }
}

TEST(Allocate, FallsBackInHugePagesAndSaysWhy) {
  const Machine machine = this_host();
  const HostMemory host = read_host_memory();
  const auto& pools = host.nodes.front().free_huge;
  if (std::ranges::any_of(pools, [](const auto& pool) { return pool.second > 0; })) {
    GTEST_SKIP() << "this host has huge pages reserved";
  }
  const auto buffer = allocate(machine, 4_MiB, on_first(machine, PageSize::huge_1g));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ((*buffer)->page_size(), host.transparent ? PageSize::transparent : PageSize::base);
  EXPECT_TRUE((*buffer)->fallback().starts_with("huge_1g: 0 free pages of 1 GiB on node "))
      << (*buffer)->fallback();
  EXPECT_NE((*buffer)->fallback().find("; huge_2m: 0 free pages of 2 MiB"), std::string::npos);
}

TEST(Allocate, AlignsForTransparentHugePages) {
  const Machine machine = this_host();
  if (!read_host_memory().transparent) GTEST_SKIP() << "transparent huge pages are off";
  const auto large = allocate(machine, 5_MiB, on_first(machine, PageSize::transparent));
  ASSERT_TRUE(large);
  EXPECT_EQ((*large)->page_size(), PageSize::transparent);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*large)->memory()) % (2 << 20), 0U);
  const auto small = allocate(machine, 1_MiB, on_first(machine, PageSize::transparent));
  ASSERT_TRUE(small);
  EXPECT_EQ((*small)->page_size(), PageSize::base);
  EXPECT_EQ((*small)->fallback(), "transparent: 1 MiB are less than a page of 2 MiB");
}

// Total bytes of addresses that this process has mapped.
std::uint64_t mapped_pages() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(Allocate, AlignsAsAskedAndMapsNoMore) {
  const Machine machine = this_host();
  for (const PageSize pages : {PageSize::base, PageSize::transparent}) {
    for (const Bytes align : {8_B, 4_KiB, 64_KiB, 4_MiB, 1_GiB}) {
      const std::uint64_t before = mapped_pages();
      const auto buffer = allocate(machine, 3_MiB, on_first(machine, pages), align);
      ASSERT_TRUE(buffer) << buffer.error().message;
      EXPECT_LT(mapped_pages(), before + pages_in(4_MiB)) << to_string(align);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*buffer)->memory()) % align.value, 0U);
      EXPECT_EQ(where((*buffer)->bytes())->total(), pages_in(3_MiB));
    }
  }
  EXPECT_EQ(allocate(machine, 1_MiB, on_first(machine), 0_B).error().code, ErrorCode::invalid);
  EXPECT_EQ(allocate(machine, 1_MiB, on_first(machine), 24_B).error().code, ErrorCode::invalid);
  EXPECT_EQ(allocate(machine, 1_MiB, on_first(machine), Bytes{std::uint64_t{1} << 62}).error().code,
            ErrorCode::exhausted);
}

TEST(Allocate, LocksWhenAsked) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers leave out mlock";
#endif
  const Machine machine = this_host();
  Placement placement = on_first(machine);
  placement.lock = true;
  placement.touch = false;
  const auto locked_now = [] {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("VmLck:")) return std::stoull(line.substr(6));
    }
    return 0ULL;
  };
  const auto before = locked_now();
  const auto buffer = allocate(machine, 1_MiB, placement);
  if (!buffer) {
    EXPECT_EQ(buffer.error().code, ErrorCode::denied) << buffer.error().message;
    GTEST_SKIP() << buffer.error().message;
  }
  EXPECT_EQ(locked_now() - before, 1024U);
  EXPECT_EQ(where((*buffer)->bytes())->total(), pages_in(1_MiB)) << "faulted in at once";
}

TEST(Allocate, SaysWhichLimitForbidsLocking) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers leave out mlock";
#endif
  const auto denied = [] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_MEMLOCK, &none);
    if (geteuid() == 0 && seteuid(65534) != 0) std::_Exit(2);
    const Machine machine = this_host();
    Placement placement = on_first(machine);
    placement.lock = true;
    const auto buffer = allocate(machine, 1_MiB, placement);
    if (buffer) std::_Exit(1);
    std::fputs(buffer.error().message.c_str(), stderr);
    std::_Exit(buffer.error().code == ErrorCode::denied ? 0 : 3);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(denied(), testing::ExitedWithCode(0), "cannot lock 1 MiB.*raise ulimit -l");
}

TEST(Allocate, ManyThreadsAtOnce) {
  const Machine machine = this_host();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&machine] {
      for (int i = 0; i < 20; ++i) {
        const auto buffer = allocate(machine, 3_MiB, Placement::interleave(ids_of(machine)));
        ASSERT_TRUE(buffer) << buffer.error().message;
        EXPECT_EQ(where((*buffer)->bytes()).value().absent, 0U);
      }
    });
  }
}

}  // namespace
}  // namespace headrace
