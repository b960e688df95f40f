// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/frames.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <list>
#include <map>
#include <optional>
#include <set>

namespace headrace {
namespace {

// A slab of memory that begins at a page, like memory from allocate(). If CPUs do not reach it, it
// is an address that faults.
class Memory {
 public:
  explicit Memory(std::uint64_t size, bool reached = true, std::uintptr_t at = 0)
      : bytes_(reached ? size + 4096 : 0), apart_(at), size_(size) {}
  std::span<std::byte> span() {
    if (bytes_.empty()) return {reinterpret_cast<std::byte*>(apart_), size_};  // NOLINT
    const auto at = reinterpret_cast<std::uint64_t>(bytes_.data());
    return std::span{bytes_}.subspan((4096 - at % 4096) % 4096, bytes_.size() - 4096);
  }

 private:
  std::vector<std::byte> bytes_;
  std::uintptr_t apart_;
  std::uint64_t size_;
};

std::uint64_t address(const Frame& frame) {
  return reinterpret_cast<std::uint64_t>(frame.data.load());
}

// Frames share no granule, and the slabs know their bytes.
void check(const Frames& frames, const std::list<Frame>& taken) {
  std::map<std::uint64_t, std::uint64_t> granules;  // first and last of each frame
  for (const Frame& frame : taken) {
    granules[address(frame) / 64] = (address(frame) + frame.length - 1) / 64;
  }
  RC_ASSERT(granules.size() == taken.size());
  std::uint64_t expected = 0;
  std::uint64_t free_from = 0;
  for (const auto& [first, last] : granules) {
    RC_ASSERT(first >= free_from);
    free_from = last + 1;
    expected += (last + 1 - first) * 64;
  }
  std::uint64_t used = 0;
  for (const auto& slab : frames.slabs()) used += slab.used;
  RC_ASSERT(used == expected);
}

RC_GTEST_PROP(FramesTest, Frames_AreDisjointAlignedAndCompletelyReleased, ()) {
  const bool reached = *rc::gen::arbitrary<bool>();
  Memory one(64 << 10, reached, 0x3000);
  Memory two(24 << 10, reached, 0x3000 + (64 << 10));  // directly behind: gaps stay in their slabs
  Frames frames(reached);
  const auto fill = [&](const Frame& frame) {
    // Descriptions of gaps do not lie in that memory.
    if (reached) std::fill_n(frame.data.load(), frame.length.load(), std::byte{0xff});
  };
  frames.add(one.span(), nullptr);
  frames.add(two.span(), nullptr);
  std::list<Frame> taken;
  for (int step = *rc::gen::inRange(1, 200); step > 0; --step) {
    if (taken.empty() || *rc::gen::inRange(0, 5) > 1) {
      const auto length = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(1, 300),
                                          rc::gen::inRange<std::uint64_t>(1, 30000));
      const auto offset = *rc::gen::inRange<std::uint64_t>(0, 10000);
      taken.emplace_back();
      if (!frames.take(taken.back(), length, offset)) {
        taken.pop_back();
        continue;
      }
      const std::uint64_t modulus = !reached ? 256 : length >= 4096 ? 4096 : 64;
      RC_ASSERT(address(taken.back()) % modulus == offset % modulus);
      RC_ASSERT(taken.back().length == length);
      fill(taken.back());
    } else {
      auto gone =
          std::next(taken.begin(), *rc::gen::inRange<int>(0, static_cast<int>(taken.size())));
      if (*rc::gen::arbitrary<bool>()) {
        // Another frame takes its place, if it has nearly the size.
        const std::uint64_t before = gone->length;
        const std::uint64_t length = before + *rc::gen::inRange<std::uint64_t>(0, 3);
        const auto offset = address(*gone) + *rc::gen::inRange<std::uint64_t>(0, 2) * 64;
        Frame& next = taken.emplace_back();
        const bool may = frames.replaceable(*gone, length, offset);
        RC_ASSERT(frames.replace(*gone, next, length, offset) == may);
        RC_ASSERT(may || length != before || offset != address(*gone));
        if (may) {
          RC_ASSERT(next.length == length);
          fill(next);
        } else {
          taken.pop_back();
          frames.give(*gone);
        }
      } else {
        frames.give(*gone);
      }
      RC_ASSERT(gone->data == nullptr);
      taken.erase(gone);
    }
    check(frames, taken);
  }
  {
    std::optional<Frames::GivingMany> many;
    if (*rc::gen::arbitrary<bool>()) many.emplace(frames);
    for (Frame& frame : taken) frames.give(frame);
  }
  Frame all;
  RC_ASSERT(frames.take(all, 64 << 10, 0));  // joined to one gap again
  RC_ASSERT(all.data == one.span().data());
}

RC_GTEST_PROP(FramesTest, Walk_VisitsTheFramesThatStayInOrder, ()) {
  Memory one(64 << 10);
  Memory two(64 << 10);
  Frames frames;
  frames.add(one.span(), nullptr);
  frames.add(two.span(), nullptr);
  std::list<Frame> all;
  std::set<const Frame*> there;
  const auto take = [&] {
    Frame& frame = all.emplace_back();
    if (frames.take(frame, *rc::gen::inRange<std::uint64_t>(1, 9000), 0)) there.insert(&frame);
  };
  for (int i = 0; i < 30; ++i) take();
  std::set<const Frame*> always = there;
  std::uint64_t last = 0;
  Frames::Walk walk, other;
  bool other_goes_on = true;
  while (Frame* const frame = frames.next(walk)) {
    RC_ASSERT(there.contains(frame));
    RC_ASSERT(address(*frame) > last);
    last = address(*frame);
    always.erase(frame);
    const Frames::GivingMany many(frames);
    for (Frame& gone : all) {
      if (gone.data == nullptr || *rc::gen::inRange(0, 8) > 0) continue;
      frames.give(gone);
      there.erase(&gone);
      always.erase(&gone);
    }
    other_goes_on = other_goes_on && frames.next(other) != nullptr;
  }
  while (other_goes_on && frames.next(other) != nullptr) {
  }
  RC_ASSERT(always.empty());
  for (Frame& frame : all) {
    if (frame.data != nullptr) frames.give(frame);
  }
  for (int i = 0; i < 2; ++i) {
    RC_ASSERT(frames.take(all.emplace_back(), 64 << 10, 0));  // joined to one gap again
  }
}

TEST(FramesTest, NumberOfSlabs_IsTheSameUpToOneTiB) {
  constexpr std::uint64_t kGiB = 1 << 30;
  EXPECT_EQ(Frames::slab_share(kGiB), 0u) << "CacheOptions::slab is more";
  EXPECT_EQ(Frames::slab_share(64 * kGiB), std::uint64_t{64} << 20);
  EXPECT_EQ(Frames::slab_share(1024 * kGiB), kGiB);
  EXPECT_EQ(Frames::slab_share(2048 * kGiB), kGiB);
}

TEST(FramesTest, FreedFrame_IsTakenAgainAndTheSmallestGapFirst) {
  Memory memory(64 << 10);
  Frames frames;
  frames.add(memory.span(), nullptr);
  Frame a, b, c, d;
  ASSERT_TRUE(frames.take(a, 8192, 0));
  ASSERT_TRUE(frames.take(b, 4096, 0));
  ASSERT_TRUE(frames.take(c, 4096, 0));
  std::byte* const of_b = b.data;
  frames.give(b);
  ASSERT_TRUE(frames.take(d, 4096, 8192));
  EXPECT_EQ(d.data, of_b);  // not the large gap above c
}

TEST(FramesTest, Row_HasTheNeighboursThatMakeSpaceTogether) {
  Memory memory(16 << 10);
  Frames frames;
  frames.add(memory.span(), nullptr);
  Frame frame[4];
  for (Frame& each : frame) ASSERT_TRUE(frames.take(each, 4096, 0));
  const auto all = [](Frame&) { return true; };
  using Row = std::vector<Frame*>;
  Frames::Row row;
  const auto row_of = [&](Frame& seed, std::uint64_t length, const auto& droppable) {
    const bool found = frames.find_row(seed, length, 0, droppable, row);
    EXPECT_EQ(found, !row.frames.empty());
    return row.frames;
  };
  EXPECT_EQ(row_of(frame[1], 4096, all), (Row{&frame[1]}));
  EXPECT_EQ(row_of(frame[1], 8192, all), (Row{&frame[1], &frame[2]}));
  const auto not_two = [&](Frame& other) { return &other != &frame[2]; };
  EXPECT_EQ(row_of(frame[1], 8192, not_two), (Row{&frame[1], &frame[0]}));
  EXPECT_EQ(row_of(frame[3], 8192, not_two), Row{});
  EXPECT_EQ(row_of(frame[0], 16385, all), Row{});
  EXPECT_EQ(row_of(frame[3], 8192, all), (Row{&frame[3], &frame[2]}));
  std::byte* const low = frame[2].data;
  for (Frame* each : row.frames) frames.give(*each);
  Frame taken;
  frames.take_row(taken, row, 8192, 0);
  EXPECT_EQ(taken.data, low);
}

}  // namespace
}  // namespace headrace
