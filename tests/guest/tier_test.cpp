// SPDX-License-Identifier: Apache-2.0
// PageTier between real nodes, in guests with several kinds of memory: run by run_tests.sh like
// guest_test.cpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "guest/guest_testing.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::size_t kWords = kPage.value / sizeof(std::uint64_t);

// Counts in the first word of each page, so that a write that was lost shows; the others stay.
class CountingWriter {
 public:
  explicit CountingWriter(std::span<std::byte> memory)
      : words_(reinterpret_cast<std::uint64_t*>(memory.data()), memory.size() / 8) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] = i % kWords == 0 ? 0 : i * 31;
    thread_ = std::jthread([this](const std::stop_token& stop) { write(stop); });
  }
  // Waits until each page was written once more; bounded by the writer's own speed.
  void round() {
    for (const auto from = rounds_.load(); rounds_ < from + 2;) std::this_thread::yield();
  }
  // Whether each byte is what was written last.
  bool stop_and_check() {
    thread_.request_stop();
    thread_.join();
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != (i % kWords == 0 ? rounds_.load() : i * 31)) return false;
    }
    return lost_ == 0;
  }

 private:
  void write(const std::stop_token& stop) {
    for (std::uint64_t round = 0; !stop.stop_requested(); rounds_ = ++round) {
      for (std::size_t i = 0; i < words_.size(); i += kWords) {
        volatile std::uint64_t& count = words_[i];
        if (count != round) ++lost_;
        count = round + 1;
      }
    }
  }

  std::span<std::uint64_t> words_;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::atomic<std::uint64_t> lost_ = 0;
  std::jthread thread_;
};

// The pages of huge ones in the mappings that begin in `range`.
std::uint64_t huge_pages(std::span<const std::byte> range) {
  std::ifstream file("/proc/self/smaps");
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  bool inside = false;
  std::uint64_t pages = 0;
  for (std::string line; std::getline(file, line);) {
    const auto dash = line.find('-');
    if (dash != std::string::npos && dash < line.find(' ')) {
      const auto address = std::stoull(line, nullptr, 16);
      inside = address >= begin && address < begin + range.size();
    } else if (inside && line.starts_with("AnonHugePages:")) {
      pages += std::stoull(line.substr(14)) / 4;
    }
  }
  return pages;
}

// A hot set on a slow node and a cold one, as large as the budget, on a fast node change places,
// and the hot set stays where it came.
void changes_places(const std::vector<NodeId>& fast, const std::vector<NodeId>& slow, Bytes size,
                    PageSize page_size = PageSize::base) {
  Placement on_slow = Placement::on(slow.front()), on_fast = Placement::on(fast.front());
  on_slow.pages = on_fast.pages = page_size;
  const auto hot = allocate(machine(), size, on_slow).value();
  const auto cold = allocate(machine(), size, on_fast).value();
  std::memset(cold->bytes().data(), 0x5a, size.value);
  const auto pages_on = [](const Buffer& buffer, const std::vector<NodeId>& nodes) {
    std::uint64_t sum = 0;
    const auto maps = numa_maps(buffer.bytes()).value();
    for (const auto& [node, pages] : maps) {
      if (std::ranges::find(nodes, node) != nodes.end()) sum += pages;
    }
    return Bytes{sum * kPage.value};
  };
  ASSERT_EQ(pages_on(*hot, slow), size);
  ASSERT_EQ(pages_on(*cold, fast), size);
  const std::uint64_t huge = huge_pages(hot->bytes());
  ASSERT_EQ(huge, page_size == PageSize::transparent ? size.value / kPage.value : 0);

  // Heat is that of aligned chunks: these hold pages of one of the two, and no others.
  const auto begins = reinterpret_cast<std::uintptr_t>(hot->bytes().data()) |
                      reinterpret_cast<std::uintptr_t>(cold->bytes().data());
  const Bytes moved{std::min<std::uint64_t>((128_KiB).value, begins & (~begins + 1))};
  ManualClock clock;
  auto tier = PageTier::open({.policy = {.budget = size, .per_second = 1_GiB},
                              .fast = fast,
                              .slow = slow,
                              .chunk = moved,
                              .half_life = std::chrono::seconds{2},
                              .clock = &clock});
  ASSERT_TRUE(tier) << tier.error().message;
  ASSERT_TRUE((*tier)->add(hot->bytes()));
  ASSERT_TRUE((*tier)->add(cold->bytes()));
  CountingWriter writer(hot->bytes());
  // A page that cannot move once, as on a busy machine, is left alone for some steps.
  const auto settled = [&] {
    return pages_on(*hot, fast) == size && pages_on(*cold, slow) == size;
  };
  for (int steps = 0, rest = 0; rest < 3 && steps < 200; ++steps) {
    if (settled()) ++rest;
    writer.round();
    clock.advance(std::chrono::seconds{1});
    const auto step = (*tier)->step();
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_LE(step->resident, size);
    EXPECT_TRUE(rest == 0 || step->decisions.empty()) << step->decisions.front().reason;
  }
  EXPECT_EQ(pages_on(*hot, fast), size);
  EXPECT_EQ(pages_on(*cold, slow), size);
  EXPECT_EQ(huge_pages(hot->bytes()), huge) << "huge pages stay whole";
  for (const TierDecision& each : (*tier)->decisions()) {
    const auto* chunk = reinterpret_cast<const std::byte*>(each.begin);
    const bool is_hot = chunk >= hot->bytes().data() && chunk < hot->bytes().data() + size.value;
    EXPECT_EQ(each.in, is_hot) << each.reason;
  }
  EXPECT_TRUE(writer.stop_and_check());
  EXPECT_TRUE(std::ranges::all_of(cold->bytes(), [](std::byte b) { return b == std::byte{0x5a}; }));
}

TEST(SlowTier, PromotesTheHotAndDemotesTheCold) { changes_places({NodeId{0}}, {NodeId{1}}, 4_MiB); }

// An odd number of them: of an even one the source of hotness cuts the mapping of the last.
TEST(SlowTier, KeepsHugePagesTogether) {
  changes_places({NodeId{0}}, {NodeId{1}}, 6_MiB, PageSize::transparent);
}

TEST(CxlTier, PromotesTheHotAndDemotesTheCold) {
  changes_places({NodeId{0}}, {NodeId{1}}, 512_KiB);
}

// The CPUs are near DRAM, which is where the kernel's own balancing pulls hot pages.
TEST(XeonMaxTier, HbmIsTheFastSide) {
  std::string balancing;
  std::ifstream("/proc/sys/kernel/numa_balancing") >> balancing;
  EXPECT_EQ(balancing, "1");
  changes_places({NodeId{8}}, {NodeId{0}}, 4_MiB);
}

TEST(XeonMaxTier, SpreadsOverTheNodesOfEachSide) {
  changes_places({NodeId{8}, NodeId{9}}, {NodeId{0}, NodeId{1}}, 2_MiB);
}

Result<std::unique_ptr<PageTier>> over_hbm() {
  return PageTier::open({.policy = {.budget = 1_MiB}, .fast = {NodeId{8}}, .slow = {NodeId{0}}});
}

TEST(XeonMaxTier, APolicyThatBindsElsewhereIsRefused) {
  std::jthread([] {
    ASSERT_TRUE(set_process_policy(MemoryPolicy::bind, {NodeId{0}, NodeId{1}}));
    expect_refused(over_hbm(), ErrorCode::denied, "node 8 is not among");
  }).join();
}

// In a group that has nodes 0 to 7.
TEST(CpusetTier, ANodeThatIsForbiddenIsRefused) {
  expect_refused(over_hbm(), ErrorCode::absent, "it may use 0-7");
}

}  // namespace
}  // namespace headrace
