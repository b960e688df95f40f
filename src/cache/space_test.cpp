// SPDX-License-Identifier: Apache-2.0
// Slabs are allocated within the budget, and released.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/sanitizers.h"
#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

// Found by the model: a planned block must not be dropped for the budget and fetched again for ever
// while a pin keeps the slab anyway.
TEST(CacheSpaceTest, NodeOverItsBudgetByAPin_StopsFetching) {
  Source source(100000);
  CacheRig rig({.budget = 65536_B});
  const Block held = rig.cache->access(source.at(0, 4096));
  rig.settle();
  const Prefetch plan = rig.cache->prefetch(std::vector{source.at(8192, 4096)});
  ASSERT_TRUE(rig.cache->resize(kDram, 16384_B).has_value());
  rig.settle();
  EXPECT_EQ(rig.cache->access(source.at(8192, 4096)).state(), BlockState::ready);
  EXPECT_LE(rig.cache->stats().prefetched, 2u);
  EXPECT_LE(rig.cache->stats().bytes_used, 16384_B);
}

#if !defined(HEADRACE_ASAN) && !defined(HEADRACE_TSAN)  // these need all addresses

constexpr std::uint64_t kHeldSlab = 32 << 20;
// While it is set, slabs of that size are not unmapped. `unmapping`: a thread tried to unmap one.
std::atomic<bool> held_back{false};
std::atomic<bool> unmapping{false};

// Exits with 0 if the access was not refused.
[[noreturn]] void access_beside_a_flush() {
  Source source(kHeldSlab);
  FakeOptions fake;
  fake.inside_chance = 1;
  const Bytes budget{kHeldSlab};
  CacheRig rig({.fake = fake,
                .cache = {.slab = budget},
                .budget = budget,
                .poller = true,
                .observe = false});
  const auto refused = [&] {
    const Block block = rig.cache->access(source.at(0, kHeldSlab));
    // A copy in flight whose Block is destroyed would hold the slab's only frame.
    if (!block.wait()) std::_Exit(4);
    return block.state() == BlockState::absent;
  };
  std::atomic<bool> go{false};
  // The threads exist before the limit, so that it does not include their stacks.
  std::jthread flusher([&] {
    while (!go) std::this_thread::yield();
    rig.cache->flush();
  });
  std::jthread releaser([&] {
    while (!unmapping) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});  // so that the access begins
    held_back = false;
  });
  if (refused()) std::_Exit(2);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  // Not enough for two slabs.
  const rlim_t most = pages * 4096 + kHeldSlab / 2;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
  held_back = true;
  go = true;
  while (!unmapping) std::this_thread::yield();
  std::_Exit(refused() ? 1 : 0);
}

}  // namespace
}  // namespace headrace

// Replaces munmap() of the C library in this program.
extern "C" int munmap(void* memory, std::size_t length) noexcept {
  if (length >= headrace::kHeldSlab && headrace::held_back) {
    headrace::unmapping = true;
    while (headrace::held_back) std::this_thread::yield();
  }
  return static_cast<int>(syscall(SYS_munmap, memory, length));
}

namespace headrace {
namespace {

// The kernel counts a slab until it is unmapped, which takes longer than to release it.
TEST(CacheSpaceTest, WhileASlabIsUnmapped_NoAccessIsRefused) {
  EXPECT_EXIT(access_beside_a_flush(), testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace headrace
