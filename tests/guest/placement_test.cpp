// SPDX-License-Identifier: Apache-2.0
// Where memory comes to lie, in guests with several kinds of it: run by run_tests.sh like
// guest_test.cpp.

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "guest/guest_testing.h"
#include "headrace/malloc.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using namespace test;

Placement parsed(std::string_view text) {
  auto placement = Placement::parse(machine(), text);
  EXPECT_TRUE(placement) << placement.error().message;
  return base_pages(placement.value_or(Placement{}));
}

TEST(XeonMaxPlacement, PropertiesChooseTheNodeOfTheCpusThatWillUseIt) {
  for (const auto& [property, node] : std::vector<std::pair<const char*, std::uint32_t>>{
           {"highest_bandwidth", 11}, {"largest", 3}}) {
    Placement placement = parsed(property);
    placement.near = {3};
    EXPECT_EQ(pages_of(1_MiB, placement), (PagesOn{{NodeId{node}, 256}})) << property;
  }
}

TEST(XeonMaxPlacement, KindsAsPeopleWriteThem) {
  EXPECT_EQ(pages_of(1_MiB, parsed("hbm-interleave")).size(), 8U);
  EXPECT_EQ(pages_of(kPage * 24 * 10, parsed("0=5,8=2,9=1")),
            (PagesOn{{NodeId{0}, 150}, {NodeId{8}, 60}, {NodeId{9}, 30}}));
  const PagesOn shared = pages_of(kPage * 32 * 8, parsed("dram=3,hbm=1"));
  ASSERT_EQ(shared.size(), 16U);
  for (const auto& [node, pages] : shared) EXPECT_EQ(pages, raw(node) < 8 ? 24U : 8U) << raw(node);
}

void on_cpu(unsigned cpu, const std::function<void()>& work) {
  std::jthread([&] {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    ASSERT_EQ(::sched_setaffinity(0, sizeof cpus, &cpus), 0);
    work();
  }).join();
}

// A buffer of which each thread touches its part.
TEST(XeonMaxPlacement, ByFirstTouchEachPartIsNearItsThread) {
  constexpr std::size_t kPart = 64;  // pages
  const auto buffer = allocate(machine(), kPage * kPart * 8, parsed("hbm-first-touch"));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(where((*buffer)->bytes())->absent, kPart * 8);
  for (unsigned cpu = 0; cpu < 8; ++cpu) {
    const auto part = (*buffer)->bytes().subspan(cpu * kPart * kPage.value, kPart * kPage.value);
    on_cpu(cpu, [&] { std::ranges::fill(part, std::byte{1}); });
    EXPECT_EQ(where(part)->pages, (PagesOn{{NodeId{cpu + 8}, kPart}})) << cpu;
  }
}

// When the near one is full the next of the kind follows, and no other kind.
TEST(XeonMaxPlacement, AStrictKindGoesOnToTheNextOfItAndNoFurther) {
  on_cpu(3, [] {
    const Bytes more = *machine().find(NodeId{11})->capacity + 8_MiB;
    const PagesOn pages = pages_of(more, parsed("hbm"));
    EXPECT_GT(pages.at(NodeId{11}), more / kPage / 2);
    for (const auto& [node, count] : pages) EXPECT_GE(raw(node), 8U) << count;
    const auto none = allocate(machine(), *machine().find(NodeId{11})->capacity * 9, parsed("hbm"));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::exhausted);
  });
}

// The nearest HBM, the next nearest until the last, then DRAM; one page in 64 is touched.
TEST(XeonMaxPlacement, AKindGoesOnToTheNextOfItAndThenAsSaid) {
  on_cpu(3, [] {
    Placement placement = parsed("hbm:dram");
    placement.touch = false;
    Bytes more = 8_MiB;
    for (const Node* node : machine().of_kind(NodeKind::hbm)) more += *node->capacity;
    const auto buffer = allocate(machine(), more, placement);
    ASSERT_TRUE(buffer) << buffer.error().message;
    std::vector<std::uint32_t> order;
    for (std::uint64_t at = 0; at < more.value; at += 64 * kPage.value) {
      const auto page = (*buffer)->bytes().subspan(at, 1);
      page[0] = std::byte{1};
      const std::uint32_t node = raw(where(page)->pages.begin()->first);
      if (order.empty() || order.back() != node) order.push_back(node);
    }
    EXPECT_EQ(order, (std::vector<std::uint32_t>{11, 8, 9, 10, 12, 13, 14, 15, 3}));
  });
}

// Neither counted nor cut where nobody said where to spill: its last page is near too.
TEST(XeonMaxPlacement, SparseMemoryThatMaySpillAnywhereIsTheKernels) {
  on_cpu(3, [] {
    Placement placement = base_pages(Placement::on(NodeKind::hbm));
    placement.strict = placement.touch = false;
    Bytes all;
    for (const Node& node : machine().nodes) all += *node.capacity;
    for (const Placement& wish : {placement, *resolve(machine(), placement, NodeId{3})}) {
      const auto buffer = allocate(machine(), all - 1_MiB, wish);
      ASSERT_TRUE(buffer) << buffer.error().message;
      const auto last = (*buffer)->bytes().last(1);
      last[0] = std::byte{1};
      EXPECT_EQ(where(last)->pages, (PagesOn{{NodeId{11}, 1}}));
    }
  });
}

// Reads files of the host on a CPU until its node has these bytes of them more in its page cache.
void cache_files_near(unsigned cpu, Bytes bytes) {
  on_cpu(cpu, [&] {
    std::vector<char> piece(1 << 20);
    Bytes read;
    for (const auto& entry : std::filesystem::recursive_directory_iterator("/usr/lib")) {
      if (!entry.is_regular_file() || entry.is_symlink() || entry.file_size() < 1 << 20) continue;
      std::ifstream file(entry.path());
      while (read < bytes && file.read(piece.data(), std::ssize(piece))) read += 1_MiB;
      if (read >= bytes) return;
    }
  });
}

// Memory comes from node 15 until it is full, then from node 2, then from node 9 only. Cached files
// on node 2 are dropped for it, although the kernel would rather keep them.
TEST(XeonMaxPlacement, SpillsInTheStatedOrder) {
  std::ofstream("/proc/sys/vm/drop_caches") << 3 << std::flush;
  constexpr Bytes kCached = 80_MiB;
  cache_files_near(2, kCached);
  const std::uint64_t free_15 = free_pages_on(NodeId{15});
  const std::uint64_t free_2 = free_pages_on(NodeId{2});
  // More than the two have with the cached files given up, and not more than all three have free.
  const Bytes more = kPage * (free_15 + free_2) + kCached + 8_MiB;
  ASSERT_LT(more, kPage * (free_15 + free_2 + free_pages_on(NodeId{9})));
  const auto buffer = allocate(machine(), more, parsed("15:2,9"));
  ASSERT_TRUE(buffer) << buffer.error().message;
  std::vector<std::uint32_t> order;
  for (const NodeId node : node_of_each_page(**buffer, everything() ? 1 : 32)) {
    if (order.empty() || order.back() != raw(node)) order.push_back(raw(node));
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{15, 2, 9}));
  PagesOn pages = where((*buffer)->bytes()).value().pages;
  EXPECT_EQ(pages.size(), 3U);
  EXPECT_GT(pages[NodeId{15}], free_15 / 2);
  EXPECT_GT(pages[NodeId{2}], free_2 / 2);
}

// A node that is full is left out; the others of its kind are not.
TEST(XeonMaxPlacement, SpillsOnlyWhenNoNodeOfTheKindHasRoom) {
  Placement placement = parsed("8:9");
  const auto full = allocate(machine(), *machine().find(NodeId{8})->capacity, placement);
  ASSERT_TRUE(full) << full.error().message;
  const PagesOn pages = pages_of(kPage * 7 * 1024, parsed("hbm-interleave:dram"));
  for (const auto& [node, count] : pages) {
    EXPECT_TRUE(raw(node) >= 8) << raw(node);
    EXPECT_LE(count, 7U * 1024 / 6) << raw(node);
  }
  EXPECT_GE(pages.size(), 7U);
}

TEST(XeonMaxPlacement, WhenAllThatSpillIsFullItSaysWhatIsFree) {
  Placement placement = parsed("15:14");
  const auto buffer = allocate(machine(), 500_MiB, placement);
  expect_refused(buffer, ErrorCode::exhausted, "do not fit on nodes 15:14; free now: node 0 ");
}

TEST(XeonMaxPlacement, TheKernelDealsWhereItsTableHasTheseWeights) {
  const std::string folder = "/sys/kernel/mm/mempolicy/weighted_interleave/";
  if (!std::ifstream(folder + "node0")) GTEST_SKIP() << "this kernel has no weighted interleaving";
  const auto set = [&](int node, unsigned weight) {
    std::ofstream(folder + "node" + std::to_string(node)) << weight << std::flush;
  };
  set(0, 3);
  set(8, 1);
  const auto buffer = allocate(machine(), kPage * 4000, parsed("0=3,8=1"));
  set(0, 0);  // as it was
  set(8, 0);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(where((*buffer)->bytes())->pages, (PagesOn{{NodeId{0}, 3000}, {NodeId{8}, 1000}}));
  std::size_t mappings = 0;
  std::ifstream file("/proc/self/numa_maps");
  for (std::string line; std::getline(file, line);) {
    mappings += line.find("weighted interleave") == std::string::npos ? 0 : 1;
  }
  EXPECT_EQ(mappings, 1U) << "one policy, not a run for each turn";
}

// Every byte is read all the time, by two threads, while the pages go from DRAM to HBM and on.
TEST(XeonMaxPlacement, MovesUnderReadersWithEveryByteAndTheAddress) {
  // Each turn of nodes is a call that waits for all CPUs, two of which the readers have.
  const Bytes size = everything() ? 64_MiB : 256_KiB;
  const auto buffer = allocate(machine(), size, parsed("1")).value();
  auto* const words = reinterpret_cast<std::uint64_t*>(buffer->memory());
  const std::size_t count = buffer->size() / 8_B;
  for (std::size_t i = 0; i < count; ++i) words[i] = i * 0x9e3779b97f4a7c15;
  std::byte* const memory = buffer->memory();
  std::atomic<bool> over = false;
  std::atomic<std::uint64_t> wrong = 0;
  {
    std::vector<std::jthread> readers;
    for (std::size_t offset : {std::size_t{0}, std::size_t{257}}) {
      readers.emplace_back([&, offset] {
        for (std::size_t i = offset; !over; i = (i + 511) % count) {
          if (std::atomic_ref(words[i]).load() != i * 0x9e3779b97f4a7c15) ++wrong;
        }
      });
    }
    const struct Stop {
      std::atomic<bool>& over;
      ~Stop() { over = true; }
    } stop{over};
    for (const char* to : {"9", "0=3,8=1", "2-3", "10"}) {
      const Status moved = relocate(machine(), *buffer, parsed(to));
      ASSERT_TRUE(moved) << to << ": " << moved.error().message;
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(buffer->memory(), memory);
  EXPECT_EQ(buffer->node(), NodeId{10});
  EXPECT_EQ(where(buffer->bytes())->pages, (PagesOn{{NodeId{10}, size / kPage}}));
  std::size_t changed = 0;
  for (std::size_t i = 0; i < count; ++i) changed += words[i] != i * 0x9e3779b97f4a7c15 ? 1 : 0;
  EXPECT_EQ(changed, 0U);
}

TEST(XeonMaxPlacement, MovesToWeightsExactly) {
  const auto buffer = allocate(machine(), kPage * 800, parsed("4")).value();
  ASSERT_TRUE(relocate(machine(), *buffer, parsed("0=5,8=2,9=1")));
  EXPECT_EQ(where(buffer->bytes())->pages,
            (PagesOn{{NodeId{0}, 500}, {NodeId{8}, 200}, {NodeId{9}, 100}}));
}

// One huge page is not shared; nothing is said to have moved that has not.
TEST(XeonMaxPlacement, HugePagesTooFewForTheWeightsDoNotMove) {
  Placement placement = Placement::on(NodeId{4});
  const auto buffer = allocate(machine(), 4_MiB, placement).value();
  if (buffer->page_size() != PageSize::transparent) GTEST_SKIP() << buffer->fallback();
  const Status moved = relocate(machine(), *buffer, parsed("0=3,8=1"));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, ErrorCode::unsupported);
  EXPECT_EQ(where(buffer->bytes())->pages, (PagesOn{{NodeId{4}, 1024}}));
}

TEST(XeonMaxPlacement, BasePagesAreNeverTooFewForTheWeights) {
  const auto buffer = allocate(machine(), kPage, parsed("4")).value();
  const Status moved = relocate(machine(), *buffer, parsed("0=3,8=1"));
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(where(buffer->bytes())->pages, (PagesOn{{NodeId{0}, 1}}));
}

TEST(XeonMaxPlacement, AStrictMoveThatHasNoRoomLeavesAllWhereItWas) {
  const auto buffer = allocate(machine(), 140_MiB, parsed("1")).value();
  const Status moved = relocate(machine(), *buffer, parsed("9"));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, ErrorCode::exhausted);
  EXPECT_EQ(where(buffer->bytes())->pages, (PagesOn{{NodeId{1}, 35840}}));
  EXPECT_EQ(buffer->placement().nodes.front().node, NodeId{1});
}

// Each thread by itself, in C++ and in C, on both sockets (--all: on all eight tiles). The last
// one, since the heaps of C stay.
TEST(XeonMaxPlacement, AKindIsNearTheThreadThatAsks) {
  for (unsigned cpu = 0; cpu < 8; cpu += everything() ? 1 : 5) {
    on_cpu(cpu, [&] {
      EXPECT_EQ(pages_of(1_MiB, parsed("hbm")), (PagesOn{{NodeId{cpu + 8}, 256}})) << cpu;
      EXPECT_EQ(pages_of(1_MiB, parsed("dram")), (PagesOn{{NodeId{cpu}, 256}})) << cpu;
      for (const auto& [kind, node] : {std::pair(HEADRACE_HBM, cpu + 8),
                                       {HEADRACE_DRAM, cpu},
                                       {HEADRACE_HBM_PREFERRED, cpu + 8}}) {
        for (const std::size_t size : {std::size_t{1000}, std::size_t{2} << 20}) {
          auto* const object = static_cast<std::byte*>(headrace_malloc(kind, size));
          ASSERT_NE(object, nullptr) << headrace_last_error();
          std::fill_n(object, size, std::byte{1});
          const auto residency = where({object, size}).value();
          ASSERT_EQ(residency.pages.size(), 1U);
          EXPECT_EQ(residency.pages.begin()->first, NodeId{node}) << cpu << " " << size;
          headrace_free(object);
        }
      }
    });
  }
}

// A little more than DRAM has: the emulated device is slow. How much that is (it drops file pages)
// only trying tells.
TEST(CxlPlacement, IsSpilledToWhenDramIsFull) {
  const std::uint64_t free = free_pages_on(NodeId{0});
  PagesOn pages;
  for (Bytes more = 0_B; !pages.contains(NodeId{1}) && more < 128_MiB; more += 4_MiB) {
    Placement placement = parsed("dram:cxl");
    placement.touch = false;
    const auto buffer = allocate(machine(), kPage * free + more, placement);
    ASSERT_TRUE(buffer) << buffer.error().message;
    const std::span<std::byte> last = (*buffer)->bytes().last(1);
    last[0] = std::byte{1};
    pages = where(last)->pages;
    if (!pages.contains(NodeId{1})) continue;
    const std::span<std::byte> first = (*buffer)->bytes().first(1);
    first[0] = std::byte{1};
    EXPECT_EQ(where(first)->pages, (PagesOn{{NodeId{0}, 1}}));
  }
  EXPECT_TRUE(pages.contains(NodeId{1})) << "128 MiB more than DRAM had";
}

TEST(CxlPlacement, TheLargestByCapacity) {
  const Node& dram = *machine().find(NodeId{0});
  const Node& cxl = *machine().find(NodeId{1});
  const NodeId largest = *dram.capacity > *cxl.capacity ? dram.id : cxl.id;
  EXPECT_EQ(resolve(machine(), Placement::on(Property::largest))->nodes.front().node, largest);
  EXPECT_EQ(resolve(machine(), Placement::on(Property::highest_bandwidth))->nodes.front().node,
            NodeId{0});
}

}  // namespace
}  // namespace headrace
