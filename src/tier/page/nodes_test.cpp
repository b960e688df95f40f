// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "tests/support/expect.h"
#include "tier/page/page_tier.h"
#include "tier/page/slow_memory.h"
#include "tier/planted_testing.h"

namespace headrace {
namespace {

using test::kPage;
using test::Trackable;

constexpr NodeId kFast{0}, kOtherFast{1}, kSlow{2}, kOtherSlow{3};
constexpr Bytes kLump = 64_KiB;  // a chunk

// Nodes on which pages claim to be; their bytes stay in place.
class FakeNodes final : public Kernel {
 public:
  FakeNodes() {
    for (const NodeId node : {kFast, kOtherFast, kSlow, kOtherSlow}) room[node] = 1_GiB;
  }
  std::int64_t move_pages(std::span<void* const> addresses, const int* nodes,
                          int* status) override {
    const auto page = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(addresses[i]); };
    if (nodes != nullptr) return error != 0 ? error : move(addresses.size(), page, nodes, status);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      status[i] = absent.contains(page(i)) ? -ENOENT : static_cast<int>(raw(node_of(addresses[i])));
    }
    return error;
  }
  std::map<NodeId, Bytes> free_memory() override {
    std::map<NodeId, Bytes> free = room;
    for (auto& [node, bytes] : free) bytes += held;
    return free;
  }
  std::optional<std::vector<NodeId>> bound_nodes() override { return bound; }
  std::map<std::pair<NodeId, NodeId>, unsigned> distances() override {
    return {{{kFast, kSlow}, 14},      {{kFast, kOtherSlow}, 24},
            {{kOtherFast, kSlow}, 24}, {{kOtherFast, kOtherSlow}, 14},
            {{kSlow, kFast}, 14},      {{kSlow, kOtherFast}, 24},
            {{kOtherSlow, kFast}, 24}, {{kOtherSlow, kOtherFast}, 14}};
  }
  NodeId node_of(const void* address) {
    const auto at = pages.find(reinterpret_cast<std::uintptr_t>(address) / kPage * kPage);
    return at == pages.end() ? home : at->second;
  }

  std::map<NodeId, Bytes> room;  // free bytes of allowed nodes
  Bytes held;                    // reported as free on each node, but not available
  std::optional<std::vector<NodeId>> bound;
  NodeId home = kSlow;  // node of pages that never moved
  std::map<std::uintptr_t, NodeId> pages;
  std::set<std::uintptr_t> pinned;  // refused when they are to move
  std::set<std::uintptr_t> shared;  // refused when they are gathered
  std::set<std::uintptr_t> absent;
  int moves = 0;           // calls
  bool refused = false;    // refuses each page
  std::int64_t error = 0;  // fails each call

 private:
  // As do_pages_move() of Linux 6.12. Pages are gathered, and move together at the end or at a page
  // that does not move. If any of them fails, the call ends, at once if the node is full. Only
  // pages before the last gathered ones have a status, and the page that stopped the gathering.
  std::int64_t move(std::size_t count, const auto& page, const int* nodes, int* status) {
    ++moves;
    std::vector<std::size_t> gathered;
    for (std::size_t i = 0; i < count; ++i) {
      const NodeId to{static_cast<std::uint32_t>(nodes[i])};
      const bool there = node_of(reinterpret_cast<void*>(page(i))) == to;
      if (!there && !shared.contains(page(i))) {
        gathered.push_back(i);
        if (i + 1 < count) continue;
      } else {
        status[i] = there ? nodes[i] : -EACCES;
      }
      std::int64_t failed = 0;
      for (const std::size_t each : gathered) {
        if (refused || pinned.contains(page(each))) {
          ++failed;
        } else if (!go(page(each), to)) {
          return -ENOMEM;
        }
      }
      if (failed > 0) return failed + static_cast<std::int64_t>(count - 1 - i);
      for (const std::size_t each : gathered) status[each] = nodes[each];
      gathered.clear();
    }
    return 0;
  }
  bool go(std::uintptr_t page, NodeId to) {
    if (room.at(to).value < kPage) return false;
    room[to] -= Bytes{kPage};
    room[node_of(reinterpret_cast<void*>(page))] += Bytes{kPage};
    pages[page] = to;
    return true;
  }
};

std::unique_ptr<SlowMemory> opened(FakeNodes& kernel) {
  auto nodes = open_nodes(kernel, {kFast, kOtherFast}, {kSlow, kOtherSlow});
  EXPECT_TRUE(nodes) << nodes.error().message;
  return *std::move(nodes);
}

// Pages by number; their addresses need no mapping.
constexpr TrackedRange pages_from(std::uintptr_t page, std::uintptr_t count) {
  return {(page + 1000) * kPage, (page + 1000 + count) * kPage};
}

TEST(TierNodes, TakesTheNearestNodeThatHasRoom) {
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  const auto node_of_page = [&](std::uintptr_t page) {
    return kernel.node_of(reinterpret_cast<void*>(pages_from(page, 1).begin));
  };
  for (std::uintptr_t page = 0; page < 32; ++page) {
    kernel.pages[pages_from(page, 1).begin] = page < 16 ? kSlow : kOtherSlow;
  }
  const std::vector both{pages_from(0, 16), pages_from(16, 16)};
  ASSERT_TRUE(nodes->move(both, true));
  EXPECT_EQ(node_of_page(15), kFast);
  EXPECT_EQ(node_of_page(16), kOtherFast);
  kernel.room[kSlow] = Bytes{15 * kPage};
  ASSERT_TRUE(nodes->move(both, false));
  EXPECT_EQ(node_of_page(15), kOtherSlow) << "a chunk stays in one piece";
  kernel.room[kFast] = kernel.room[kOtherFast] = {};
  ASSERT_TRUE(nodes->move(both, true));
  EXPECT_EQ(nodes->place_of(both[0])->resident, 0_B) << "there is no room";
  kernel.room[kFast] = kernel.room[kOtherFast] = Bytes{24 * kPage};
  ASSERT_TRUE(nodes->move(std::vector{pages_from(100, 16), pages_from(200, 16)}, true));
  EXPECT_EQ(kernel.room[kFast], Bytes{8 * kPage}) << "each node has room for one";
  EXPECT_EQ(kernel.room[kOtherFast], Bytes{8 * kPage});
}

TEST(TierNodes, MovesManyChunksInOneCall) {
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  kernel.moves = 0;
  std::vector<TrackedRange> chunks;
  for (std::uintptr_t i = 0; i < 100; ++i) chunks.push_back(pages_from(20 * i, 16));
  ASSERT_TRUE(nodes->move(chunks, true));
  EXPECT_EQ(kernel.moves, 1);
  ASSERT_TRUE(nodes->move(chunks, true));
  EXPECT_EQ(kernel.moves, 1) << "what is there is left alone";
}

TEST(TierNodes, APageThatRefusesHoldsUpNothingElse) {
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  std::vector<TrackedRange> chunks;
  for (std::uintptr_t i = 0; i < 32; ++i) chunks.push_back(pages_from(64 * i, 64));
  kernel.pinned = {pages_from(70, 1).begin};
  kernel.shared = {pages_from(90, 1).begin, pages_from(1000, 1).begin};
  kernel.moves = 0;
  ASSERT_TRUE(nodes->move(chunks, true));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Bytes stayed{kPage * (i == 1000 / 64 ? 1 : 0)};
    if (i == 1) continue;  // the rest of the chunk waits until the page is unpinned
    EXPECT_EQ(nodes->place_of(chunks[i])->out, stayed) << i;
  }
  EXPECT_EQ(kernel.moves, 2) << "it ended once";
}

TEST(TierNodes, ManyPagesThatRefuseCostFewCalls) {
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  const std::vector chunks{pages_from(0, 2048), pages_from(2048, 2048)};
  for (std::uintptr_t page = 0; page < 4000; ++page) {
    kernel.pinned.insert(pages_from(page, 1).begin);
  }
  kernel.moves = 0;
  ASSERT_TRUE(nodes->move(chunks, true));
  EXPECT_EQ(kernel.moves, 1);
  EXPECT_EQ(nodes->place_of(chunks[1])->resident, Bytes{96 * kPage});
  // The shared pages of the first chunk end the call again and again.
  for (std::uintptr_t page = 0; page < 2048; page += 2) {
    kernel.shared.insert(pages_from(page, 1).begin);
  }
  kernel.moves = 0;
  ASSERT_TRUE(nodes->move(chunks, true));
  EXPECT_EQ(kernel.moves, 2);
}

TEST(TierNodes, ANodeThatIsFullAfterAllLeavesTheRestToOthers) {
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  kernel.held = 1_GiB;
  kernel.room[kFast] = Bytes{24 * kPage};
  const std::vector chunks{pages_from(0, 16), pages_from(16, 16), pages_from(32, 16)};
  ASSERT_TRUE(nodes->move(chunks, true));
  for (const TrackedRange& chunk : chunks) EXPECT_EQ(nodes->place_of(chunk)->out, 0_B);
  EXPECT_EQ(kernel.room[kFast], 0_B);
  kernel.room[kSlow] = kernel.room[kOtherSlow] = {};
  kernel.moves = 0;
  ASSERT_TRUE(nodes->move(chunks, false));
  EXPECT_EQ(nodes->place_of(chunks[0])->out, 0_B);
  EXPECT_LE(kernel.moves, 4) << "each of two nodes is asked once for each batch";
}

TEST(TierNodes, RefusesNodesItMayNotUse) {
  struct Refusal {
    ErrorCode code;
    const char* text;
    std::function<void(FakeNodes&)> make;
  };
  using enum ErrorCode;
  for (const auto& [code, text, make] :
       {Refusal{absent, "node 2 has no memory that this process may use (it may use 0-1,3)",
                [](FakeNodes& kernel) { kernel.room.erase(kSlow); }},
        {denied, "node 2 is not among those that this thread's memory is bound to (0-1)",
         [](FakeNodes& kernel) { kernel.bound = {{kFast, kOtherFast}}; }},
        {exhausted, "", [](FakeNodes& kernel) { kernel.refused = true; }},
        {exhausted, "is the node full?", [](FakeNodes& kernel) { kernel.room[kFast] = {}; }},
        {denied, "", [](FakeNodes& kernel) { kernel.error = -EPERM; }},
        {unsupported, "", [](FakeNodes& kernel) { kernel.error = -ENOSYS; }}}) {
    FakeNodes kernel;
    make(kernel);
    test::expect_refused(open_nodes(kernel, {kFast}, {kSlow}), code, text);
  }
}

RC_GTEST_PROP(TierNodesModel, EachPageIsWhereTheModelHasIt, ()) {
  constexpr std::uintptr_t kPages = 64;
  FakeNodes kernel;
  const auto nodes = opened(kernel);
  for (std::uintptr_t page = 0; page < kPages; ++page) {
    const std::uintptr_t at = pages_from(page, 1).begin;
    const auto fate = *rc::gen::inRange(0, 8);
    kernel.pages[at] = NodeId{*rc::gen::inRange(0U, 4U)};
    if (fate == 0) kernel.pinned.insert(at);
    if (fate == 1) kernel.absent.insert(at);
  }
  for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
    std::vector<TrackedRange> ranges;
    std::set<std::uintptr_t> asked;
    for (std::uintptr_t page = *rc::gen::inRange(0, 8); page < kPages;) {
      const auto count = std::min<std::uintptr_t>(*rc::gen::inRange(1, 9), kPages - page);
      ranges.push_back(pages_from(page, count));
      for (std::uintptr_t k = 0; k < count; ++k) asked.insert(pages_from(page + k, 1).begin);
      page += count + static_cast<std::uintptr_t>(*rc::gen::inRange(0, 8));
    }
    const bool in = *rc::gen::arbitrary<bool>();
    const auto before = kernel.pages;
    RC_ASSERT(nodes->move(ranges, in).has_value());
    for (const auto& [page, node] : kernel.pages) {
      if (page / kPage < 1000) continue;  // the page of the trial at the start
      const NodeId was = before.at(page);
      const bool goes = asked.contains(page) && !kernel.pinned.contains(page) &&
                        !kernel.absent.contains(page) && (raw(was) < 2) != in;
      RC_ASSERT((goes ? (raw(node) < 2) == in : node == was));
    }
    for (const TrackedRange& range : ranges) {
      ChunkPlace expected;
      for (std::uintptr_t page = range.begin; page < range.end; page += kPage) {
        if (kernel.absent.contains(page)) continue;
        (raw(kernel.pages.at(page)) < 2 ? expected.resident : expected.out) += Bytes{kPage};
      }
      const auto place = nodes->place_of(range);
      RC_ASSERT(place->resident == expected.resident);
      RC_ASSERT(place->out == expected.out);
    }
  }
}

class TieredNodes : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto there = open_hotness(HotnessKind::referenced); !there) {
      GTEST_SKIP() << there.error().message;
    }
  }
  std::unique_ptr<PageTier::Inside> open(Bytes budget) {
    auto tier = PageTier::Inside::open({.policy = {.budget = budget, .per_second = 1_GiB},
                                        .fast = {kFast},
                                        .slow = {kSlow},
                                        .chunk = kLump,
                                        .half_life = std::chrono::seconds{2},
                                        .clock = &clock_},
                                       kernel_);
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }
  TierStep step(PageTier::Inside& tier, std::span<std::byte> hot) {
    for (std::size_t page = 0; page < hot.size() / kPage; ++page) {
      test::access_page(hot, page, test::Access::mixed);
    }
    clock_.advance(std::chrono::seconds{1});
    const auto step = tier.step();
    EXPECT_TRUE(step) << step.error().message;
    return step.value_or(TierStep{});
  }
  ManualClock clock_;
  FakeNodes kernel_;
};

// Also where the fast node holds less than the budget.
TEST_F(TieredNodes, PromotesTheHotAndDemotesTheColdForIt) {
  for (const bool small : {false, true}) {
    const Trackable memory(HotnessKind::referenced, kLump * 16);
    kernel_.pages.clear();
    const auto tier = open(kLump * (small ? 8 : 4));
    ASSERT_TRUE(tier->add(memory.bytes()));
    kernel_.room[kFast] = small ? kLump * 4 : 1_GiB;
    for (const std::size_t first : {2U, 9U}) {
      const auto hot = memory.bytes().subspan(first * kLump.value, 4 * kLump.value);
      for (int i = 0; i < 12; ++i) {
        const TierStep now = step(*tier, hot);
        EXPECT_LE(now.resident, kLump * 4);
        EXPECT_EQ(now.refused, 0_B);
      }
      EXPECT_TRUE(step(*tier, hot).decisions.empty());
      for (std::size_t at = 0; at < memory.bytes().size(); at += kPage) {
        const std::byte* page = memory.bytes().data() + at;
        const bool is_hot = page >= hot.data() && page < hot.data() + hot.size();
        EXPECT_EQ(kernel_.node_of(page), is_hot ? kFast : kSlow) << at;
      }
    }
    EXPECT_EQ(tier->decisions().size(), 12u) << "4 in, 4 out for 4 in";
    if (!small) continue;
    kernel_.room[kFast] = kLump * 2;  // another program frees memory
    EXPECT_EQ(step(*tier, memory.bytes()).resident, kLump * 6);
  }
}

TEST_F(TieredNodes, ThePartOfAChunkThatIsManagedIsAsHotAsItIsUsed) {
  const Trackable memory(HotnessKind::referenced, kLump * 4);
  const auto tail = memory.pages(0, kLump.value / kPage + 2);  // two pages of the second chunk
  const auto tier = open(Bytes{2 * kPage});
  ASSERT_TRUE(tier->add(tail));
  const auto hot = tail.subspan(kLump.value);
  for (int i = 0; i < 12; ++i) step(*tier, hot);
  EXPECT_EQ(kernel_.node_of(hot.data()), kFast);
  ASSERT_EQ(tier->decisions().size(), 1u);
  EXPECT_GT(tier->decisions().front().heat, 0.2) << "after one look, of two seconds half a life";
}

TEST_F(TieredNodes, BringsInNoMoreThanWentOut) {
  const Trackable memory(HotnessKind::referenced, kLump * 16);
  const auto tier = open(kLump * 4);
  ASSERT_TRUE(tier->add(memory.bytes()));
  const auto part = [&](std::size_t first, std::size_t count) {
    return memory.bytes().subspan(first * kLump.value, count * kLump.value);
  };
  for (int i = 0; i < 3; ++i) EXPECT_LE(step(*tier, part(0, 4)).resident, kLump * 4);
  for (std::size_t at = 0; at < part(0, 2).size(); at += kPage) {
    kernel_.pinned.insert(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) + at);
  }
  Bytes refused;
  for (int i = 0; i < 12; ++i) {
    const TierStep now = step(*tier, part(8, 4));
    EXPECT_LE(now.resident, kLump * 4);
    refused += now.refused;
  }
  EXPECT_GE(refused, kLump * 2);
  EXPECT_EQ(step(*tier, part(8, 4)).resident, kLump * 4);
}

TEST_F(TieredNodes, TakesLockedMemory) {
  const Trackable memory(HotnessKind::referenced, kLump);
  if (::mlock(memory.bytes().data(), kLump.value) != 0) GTEST_SKIP() << "may lock nothing";
  EXPECT_TRUE(open(kLump)->add(memory.bytes()));
}

}  // namespace
}  // namespace headrace
