// SPDX-License-Identifier: Apache-2.0
// Tests the slots that small pieces share, some of which belong to files.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>

#include "backend/cuda/engines/lane_testing.h"
#include "core/fail.h"
#include "tests/support/bytes.h"

namespace headrace::cuda {
namespace {

class Filed final : public Object {
 public:
  explicit Filed(std::vector<std::byte> content)
      : Object(Bytes{content.size()}, test::kDisk, nullptr), bytes(std::move(content)) {}
  mutable std::vector<std::byte> bytes;
};

// Copies at once, and notes the places in the slots. Refuses a request with the byte at `broken`.
class Files final : public Backend {
 public:
  struct Seen {
    const Object* slot;
    std::uint64_t in_slot;
    std::uint64_t in_file;
  };
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      const bool reads = piece.from.object->node() == test::kDisk;
      const Extent& file = reads ? piece.from : piece.to;
      const Extent& slot = reads ? piece.to : piece.from;
      auto* const bytes = static_cast<const Filed&>(*file.object).bytes.data() + file.offset;
      seen.push_back({slot.object, slot.offset, file.offset});
      if (broken >= file.offset && broken - file.offset < file.length.value) {
        completion.complete(piece.tag, fail(ErrorCode::io, "broken"));
        continue;
      }
      std::memcpy(reads ? slot.memory() : bytes, reads ? bytes : slot.memory(), file.length.value);
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }

  std::vector<Seen> seen;  // used by the lane's thread, and by the test after the end
  std::atomic<std::uint64_t> broken{UINT64_MAX};

 private:
  const Capabilities capabilities_{.name = "files",
                                   .engines = {test::kSsd},
                                   .max_piece = 64_MiB,
                                   .max_in_flight = 64,
                                   .note = "for tests"};
};

// Pieces of a file and of plain memory alternate in one slot of 64 KiB. Then comes a larger piece,
// whose tail is followed by small ones.
struct SharedSlots : LaneFixture {
  struct Range {
    bool filed;
    std::uint64_t offset;  // on all sides
    std::uint64_t bytes;
  };
  static constexpr std::array<Range, 7> kRanges{{{true, 100, 3000},
                                                 {true, 9000, 5000},
                                                 {false, 20001, 701},
                                                 {true, 24576, 4096},
                                                 {true, 40007, 150000},
                                                 {true, 200001, 3333},
                                                 {false, 210000, 999}}};
  static constexpr std::uint64_t kBytes = 300'000;

  void SetUp() override { open("", {.storage = &files, .slots = 4, .slot = 64_KiB}); }
  void TearDown() override { lane_.reset(); }  // before `files`
  std::vector<Piece> pieces(bool to_gpu) const {
    std::vector<Piece> made;
    for (const Range& range : kRanges) {
      const Object& other = range.filed ? static_cast<const Object&>(file) : plain;
      const Extent here = whole(other).part(range.offset, Bytes{range.bytes});
      const Extent there = whole(*memory_).part(range.offset, Bytes{range.bytes});
      made.push_back({.from = to_gpu ? here : there,
                      .to = to_gpu ? there : here,
                      .engine = test::kGpuEngine,
                      .tag = made.size()});
    }
    return made;
  }
  static bool same(std::span<const std::byte> a, std::span<const std::byte> b, const Range& range) {
    return test::same(a.subspan(range.offset, range.bytes), b.subspan(range.offset, range.bytes));
  }

  // Copies all pieces one way; the pieces whose numbers are in `failing` fail.
  void copy(bool to_gpu, std::uint64_t seed, const std::vector<std::uint64_t>& failing) {
    file.bytes = test::random_bytes(kBytes, seed);
    test::fill_random(plain_bytes, seed + 1);  // `plain` uses these
    const auto on_gpu = test::random_bytes(kBytes, seed + 2);
    test::write_gpu(*memory_, 0, on_gpu);
    const auto filed_before = file.bytes;
    files.seen.clear();
    Outcomes outcomes;
    ASSERT_EQ(lane_->accept(pieces(to_gpu), outcomes).value_or(0), kRanges.size());
    ASSERT_TRUE(outcomes.wait(kRanges.size()));
    EXPECT_EQ(outcomes.failed(), failing);
    const auto there = test::read_gpu(*memory_, 0, kBytes);
    for (std::size_t i = 0; i < kRanges.size(); ++i) {
      if (std::ranges::count(failing, i) > 0) continue;
      const auto& here = kRanges[i].filed ? file.bytes : plain_bytes;
      EXPECT_TRUE(same(here, there, kRanges[i])) << to_gpu << " " << i;
      EXPECT_TRUE(same(to_gpu ? there : here,
                       to_gpu ? (kRanges[i].filed ? filed_before : plain_bytes) : on_gpu,
                       kRanges[i]))
          << to_gpu << " " << i;
    }
  }

  Files files;
  Filed file{std::vector<std::byte>(kBytes)};
  std::vector<std::byte> plain_bytes = std::vector<std::byte>(kBytes);
  const MemoryRange plain{plain_bytes, test::kDram};
};

TEST_F(SharedSlots, TakeFilesAtTheirOffsetInAPage) {
  for (const bool to_gpu : {true, false}) {
    copy(to_gpu, 1, {});
    std::map<std::uint64_t, const Object*> slots;  // by offset in the file
    for (const Files::Seen& seen : files.seen) {
      EXPECT_EQ(seen.in_slot % 4096, seen.in_file % 4096) << seen.in_file;
      slots[seen.in_file] = seen.slot;
    }
    ASSERT_GE(slots.size(), 7U) << "the large one has three parts";
    EXPECT_EQ(slots.at(100), slots.at(9000));
    EXPECT_EQ(slots.at(100), slots.at(24576));
    const auto small = slots.find(200001);
    EXPECT_EQ(std::prev(small)->second, small->second) << "the tail and what is behind it";
    EXPECT_NE(std::prev(small)->second, slots.at(100));
  }
}

// In the middle of a slot, and in the tail of the large piece; more rounds than there are slots.
TEST_F(SharedSlots, OneThatFailsFailsAlone) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (const bool to_gpu : {true, false}) {
      files.broken = 9500;
      copy(to_gpu, round, {1});
      files.broken = 40007 + 150000 - 1;
      copy(to_gpu, round + 100, {4});
      files.broken = UINT64_MAX;
      copy(to_gpu, round + 200, {});
    }
  }
}

}  // namespace
}  // namespace headrace::cuda
