// SPDX-License-Identifier: Apache-2.0
#include "tier/process/process_nodes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "core/fail.h"
#include "tests/support/child.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

using std::chrono::seconds;

const std::uint64_t kBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uintptr_t kHere = 0x7e0000000000;
constexpr NodeId kNear{0}, kFar{1};

// A process's memory in two mappings of equal size, and the node of each page.
struct Pages {
  explicit Pages(std::size_t count) : of_mapping(count) {}
  std::size_t of_mapping;
  std::set<std::size_t> far;
  std::set<std::size_t> pinned;
  std::set<std::size_t> read, written;
  ProcessState now{.started = 1, .start_code = 2, .threads = 1};
  bool ended = false;
  bool leaves = false;  // unmaps its memory at the next call
  int forgotten = 0;
  Bytes room = 1_GiB;  // on each node
  Bytes rewritten;     // another mapping, fully rewritten
  bool unmapped = false;
  bool tells_written = true;
  Bytes huge_page;  // of the mappings; 0: no huge pages
};

class PagesOfProcess final : public OtherProcess {
 public:
  explicit PagesOfProcess(Pages& pages) : pages_(pages) {}
  Result<ProcessState> state() override {
    if (pages_.ended) return fail(ErrorCode::absent, "process 7 has ended");
    return pages_.now;
  }
  Result<std::vector<MappingUse>> use() override {
    std::vector<MappingUse> mappings;
    if (pages_.unmapped) return mappings;
    for (const std::size_t first : {std::size_t{0}, pages_.of_mapping}) {
      const std::uintptr_t begin = kHere + first * kBytes;
      MappingUse each{{begin, begin + pages_.of_mapping * kBytes}};
      each.present = each.bytes();
      each.huge = pages_.huge_page > Bytes{};
      std::set<std::size_t> touched = pages_.read;
      touched.insert(pages_.written.begin(), pages_.written.end());
      const auto mine = [&](std::size_t i) { return i >= first && i < first + pages_.of_mapping; };
      each.touched =
          Bytes{static_cast<std::uint64_t>(std::ranges::count_if(touched, mine)) * kBytes};
      for (const std::size_t i : pages_.written) {
        if (mine(i)) each.written.push_back({kHere + i * kBytes, kHere + (i + 1) * kBytes});
      }
      mappings.push_back(each);
    }
    if (pages_.rewritten.value > 0) {
      const TrackedRange all{2 * kHere, 2 * kHere + pages_.rewritten.value};
      mappings.push_back({all, false, all.bytes(), all.bytes(), {all}});
    }
    return mappings;
  }
  Bytes huge() override { return {}; }
  bool tells_written() const override { return pages_.tells_written; }
  std::string unheard() const override { return {}; }
  Status forget_use() override {
    pages_.read.clear();
    pages_.written.clear();
    ++pages_.forgotten;
    return {};
  }
  Result<std::vector<TrackedRange>> memory() override { return std::vector<TrackedRange>{}; }
  Status entries(std::uintptr_t, std::span<std::uint64_t>) override { return {}; }
  Status page_out(std::span<const TrackedRange>) override { return {}; }
  Status bring_in(std::span<const std::uintptr_t>) override { return {}; }
  Bytes swap_free() override { return {}; }
  std::optional<std::uint64_t> hint_rounds() override { return {}; }
  Status listen() override { return {}; }
  std::uint64_t take_faults(std::vector<PageFault>&) override { return 0; }

 private:
  Pages& pages_;
};

class TwoNodes final : public Kernel {
 public:
  explicit TwoNodes(Pages& pages) : pages_(pages) {}
  std::int64_t move_pages(std::span<void* const> addresses, const int* nodes,
                          int* status) override {
    if (pages_.ended) return -ESRCH;
    if (pages_.leaves) {
      pages_.now.start_code = 0;
      return -EINVAL;
    }
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      const std::size_t page = (reinterpret_cast<std::uintptr_t>(addresses[i]) - kHere) / kBytes;
      if (nodes != nullptr && !pages_.pinned.contains(page)) {
        if (nodes[i] == 1) pages_.far.insert(page);
        if (nodes[i] == 0) pages_.far.erase(page);
      }
      status[i] = pages_.far.contains(page) ? 1 : 0;
    }
    return 0;
  }
  std::map<NodeId, Bytes> free_memory() override {
    return {{kNear, pages_.room}, {kFar, pages_.room}};
  }
  std::map<std::pair<NodeId, NodeId>, unsigned> distances() override { return {}; }
  Bytes huge_page() override { return pages_.huge_page; }

 private:
  Pages& pages_;
};

// Sees each accessed page of the process, and clears nothing.
class PageSampler final : public RegionSampler {
 public:
  explicit PageSampler(Pages& pages) : pages_(pages) {}
  Result<std::vector<SampledRegion>> look() override {
    std::vector<SampledRegion> regions;
    for (const std::size_t i : std::exchange(pages_.read, {})) {
      regions.push_back({kHere + i * kBytes, kHere + (i + 1) * kBytes, 0.5});
    }
    return regions;
  }
  Nanoseconds sample() const override { return seconds{1}; }
  Nanoseconds span() const override { return seconds{1}; }
  Nanoseconds cpu() override { return cpu_ += seconds{1}; }

 private:
  Pages& pages_;
  Nanoseconds cpu_{};
};

class BetweenNodes : public testing::Test {
 protected:
  void open(std::size_t budget, double guard = 0, ProcessTierStart start = {}) {
    auto tier = ProcessNodes::open(
        std::make_unique<PagesOfProcess>(pages_), std::make_unique<TwoNodes>(pages_),
        {.policy = {.budget = Bytes{budget * kBytes}, .per_second = 1_GiB},
         .fast = {kNear},
         .slow = {kFar},
         .half_life = seconds{10},
         .guard = guard,
         .clock = &clock_},
        std::move(start));
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = *std::move(tier);
  }
  Result<ProcessTierStep> step(const std::set<std::size_t>& read,
                               const std::set<std::size_t>& written) {
    pages_.read.insert(read.begin(), read.end());
    pages_.written.insert(written.begin(), written.end());
    clock_.advance(seconds{1});
    return tier_->step();
  }
  static std::set<std::size_t> numbers(std::size_t begin, std::size_t end, std::size_t stride = 1) {
    std::set<std::size_t> all;
    for (std::size_t i = begin; i < end; i += stride) all.insert(i);
    return all;
  }
  ManualClock clock_;
  Pages pages_{64};
  std::unique_ptr<ProcessNodes> tier_;
};

TEST_F(BetweenNodes, WrittenPagesComeInAndOthersMakeRoom) {
  pages_.far = numbers(64, 128);
  open(64);
  const auto hot = numbers(64, 128, 3);
  for (int i = 0; i < 30; ++i) {
    const auto done = step({}, hot);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_LE(Bytes{(128 - pages_.far.size()) * kBytes}, Bytes{64 * kBytes});
  }
  for (const std::size_t page : hot) EXPECT_FALSE(pages_.far.contains(page)) << page;
  const auto before = tier_->totals();
  EXPECT_EQ(before.came_in, Bytes{hot.size() * kBytes});
  EXPECT_EQ(before.went_out, before.came_in);
  for (int i = 0; i < 10; ++i) {
    const auto done = step({}, hot);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->came_in, 0_B) << "at rest";
    EXPECT_EQ(done->resident, Bytes{64 * kBytes});
    EXPECT_EQ(done->out, Bytes{64 * kBytes});
  }
  EXPECT_EQ(tier_->decisions().size(), 2 * hot.size());
}

TEST_F(BetweenNodes, AMappingThatIsReadTakesThePlaceOfOneThatIsNot) {
  pages_.far = numbers(64, 128);
  open(64);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(step(numbers(64, 128), {}));
  EXPECT_EQ(pages_.far, numbers(0, 64));
}

TEST_F(BetweenNodes, PagesThatAreOnlyReadAreToldApartBySamplesAndNothingIsCleared) {
  pages_.far = numbers(64, 128);
  ProcessTierStart start;
  start.sampler = std::make_unique<PageSampler>(pages_);
  open(64, 0, std::move(start));
  EXPECT_EQ(tier_->source(), ProcessHotness::damon);
  const auto hot = numbers(32, 96);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(step(hot, {}));
  for (const std::size_t page : hot) EXPECT_FALSE(pages_.far.contains(page)) << page;
  EXPECT_EQ(pages_.forgotten, 0) << "its soft-dirty bits are its own";
  EXPECT_GE(tier_->totals().tracker_cpu, seconds{30}) << "the sampler's is ours";
}

TEST_F(BetweenNodes, MemoryInHugePages_MovesByHugePagesOfThisKernel) {
  pages_.huge_page = Bytes{16 * kBytes};
  open(64);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(step({}, numbers(0, 8)));
  ASSERT_FALSE(tier_->decisions().empty());
  for (const TierDecision& each : tier_->decisions()) EXPECT_EQ(each.bytes, pages_.huge_page);
}

TEST_F(BetweenNodes, NothingMovesBeforeAnythingIsKnown) {
  open(16);
  ASSERT_TRUE(step({}, numbers(0, 8)));
  EXPECT_TRUE(pages_.far.empty());
  EXPECT_EQ(pages_.forgotten, 1);
  ASSERT_TRUE(step({}, numbers(0, 8)));
  EXPECT_EQ(pages_.far, numbers(8, 120)) << "the coldest, the first of them by address";
}

TEST_F(BetweenNodes, RefusedChunks_AreReportedAndOthersMove) {
  pages_.pinned = numbers(8, 16);
  open(64);
  Bytes refused;
  for (int i = 0; i < 10; ++i) {
    const auto done = step({}, numbers(0, 8));
    ASSERT_TRUE(done);
    refused += done->refused;
  }
  EXPECT_GE(refused, Bytes{8 * kBytes});
  EXPECT_EQ(pages_.far.size(), 64u);
}

TEST_F(BetweenNodes, NewMemoryAtUnmappedAddresses_HasNoBackoff) {
  pages_.pinned = numbers(0, 128);
  open(64);
  // The last chunk refused in the 13th step, and would back off for 8.
  for (int i = 0; i < 14; ++i) ASSERT_TRUE(step({}, {}));
  EXPECT_TRUE(pages_.far.empty());
  pages_.unmapped = true;
  ASSERT_TRUE(step({}, {}));
  pages_.unmapped = false;
  pages_.pinned.clear();
  ASSERT_TRUE(step({}, {}));
  EXPECT_EQ(pages_.far.size(), 64u);
}

TEST_F(BetweenNodes, LooksAreRareWhereTheyTakeLong) {
  open(128);
  for (int i = 0; i < 8; ++i) {
    clock_.advance(std::chrono::milliseconds{250});
    ASSERT_TRUE(tier_->step());
  }
  EXPECT_EQ(pages_.forgotten, 2) << "one a second at most";
}

TEST_F(BetweenNodes, LooksTakeNoMoreThanTheirShareHoweverLargeTheProcess) {
  pages_.rewritten = Bytes{kBytes << 25};  // 34 s of faults
  open(128, 0.05);
  ASSERT_TRUE(tier_->step());
  pages_.rewritten = {};
  clock_.advance(std::chrono::minutes{10});
  ASSERT_TRUE(tier_->step());
  EXPECT_EQ(pages_.forgotten, 1);
  clock_.advance(std::chrono::minutes{2});
  ASSERT_TRUE(tier_->step());
  EXPECT_EQ(pages_.forgotten, 2);
}

TEST_F(BetweenNodes, KernelWithoutSoftDirtyBits_IsNotSaidToTellWrittenPages) {
  open(64);
  EXPECT_NE(tier_->why().find("and its written pages"), std::string::npos) << tier_->why();
  pages_.tells_written = false;
  open(64);
  EXPECT_NE(tier_->why().find("does not tell"), std::string::npos) << tier_->why();
}

TEST_F(BetweenNodes, EndsWithTheProcess) {
  for (const bool between : {false, true}) {
    pages_ = Pages(64);
    pages_.far = numbers(64, 128);
    open(64);
    ASSERT_TRUE(step({}, {}));
    if (between) {
      pages_.ended = true;
    } else {
      pages_.now.start_code = 3;
    }
    for (int i = 0; i < 2; ++i) {
      const auto done = step({}, {});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, ErrorCode::absent);
    }
  }
}

TEST_F(BetweenNodes, EndsWhereTheProcessLosesItsMemoryInTheMiddleOfAStep) {
  open(64);
  ASSERT_TRUE(step({}, {}));
  pages_.leaves = true;
  const auto done = step({}, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::absent) << done.error().message;
}

TEST(BetweenNodesTried, AProcessThatHasEndedIsAbsent) {
  test::SleepingChild child;
  Pages pages(1);
  PagesOfProcess process(pages);
  child.end();
  const Status tried =
      try_nodes(child.pid(), {.fast = {NodeId{0}}, .slow = {NodeId{1023}}}, process);
  expect_refused(tried, ErrorCode::absent, "ended");
}

TEST(TouchesOfMappings, WrittenPagesCountFully_ReadsAreSpread) {
  const std::vector<MappingUse> mappings{
      {{0x1000, 0x9000}, false, 0x6000_B, 0x3000_B, {{0x2000, 0x3000}, {0x8000, 0x9000}}},
      {{0x9000, 0xb000}, false, 0x2000_B, 0_B, {}},
      {{0xb000, 0xc000}, false, 0_B, 0x1000_B, {}}};
  const HotnessSample sample = sample_of(mappings, seconds{2});
  std::vector<std::pair<std::uintptr_t, std::uint64_t>> found;
  for (const Touch& each : sample.touches) {
    found.emplace_back(reinterpret_cast<std::uintptr_t>(each.range.data()), each.touched.value);
  }
  // One of the four pages that are present and not written was read.
  EXPECT_EQ(found, (std::vector<std::pair<std::uintptr_t, std::uint64_t>>{{0x1000, 0x400},
                                                                          {0x2000, 0x1000},
                                                                          {0x3000, 0x1400},
                                                                          {0x8000, 0x1000},
                                                                          {0xb000, 0x1000}}));
  EXPECT_EQ(sample.covered, seconds{2});
}

}  // namespace
}  // namespace headrace
