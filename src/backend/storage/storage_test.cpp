// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/storage.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "backend/storage/storage_testing.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kMargin = 8192;  // guard bytes on both sides of the memory of a copy

// Memory at a chosen distance from a page, with guard bytes around it.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes, std::size_t skew = 0)
      : all_(bytes + 3 * kMargin, kGuard), bytes_(bytes), range_(memory(skew), kDram) {}

  const MemoryRange& range() const { return range_; }
  std::span<std::byte> bytes() const { return {range_.memory(), bytes_}; }
  bool guards_intact() const {
    const std::byte* begin = range_.memory();
    return std::all_of(all_.data(), static_cast<const std::byte*>(begin), is_guard) &&
           std::all_of(begin + bytes_, all_.data() + all_.size(), is_guard);
  }

 private:
  static bool is_guard(std::byte b) { return b == kGuard; }
  std::span<std::byte> memory(std::size_t skew) {
    const auto address = reinterpret_cast<std::uintptr_t>(all_.data() + kMargin);
    const std::size_t up = (4096 - address % 4096) % 4096;
    return {all_.data() + kMargin + up + skew % 4096, bytes_};
  }

  Data all_;
  std::size_t bytes_;
  MemoryRange range_;
};

struct Way {
  bool threads;
  bool direct;
};

class StorageBackendTest : public testing::TestWithParam<Way> {
 protected:
  std::unique_ptr<File> open(const std::filesystem::path& path, bool writable = false) const {
    return open_file(path, {.writable = writable, .direct = GetParam().direct});
  }
  TempDir dir_;
  const std::unique_ptr<Backend> backend_ = open_or_die({.queue = queue_of(GetParam().threads)});
};

INSTANTIATE_TEST_SUITE_P(Ways, StorageBackendTest,
                         testing::Values(Way{false, true}, Way{false, false}, Way{true, true},
                                         Way{true, false}),
                         [](const auto& way) {
                           return std::string(way.param.threads ? "threads" : "uring") +
                                  (way.param.direct ? "_direct" : "_buffered");
                         });

// The length and offsets of one random copy inside a file of `size` bytes.
struct Cut {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::size_t skew;
};

Cut any_cut(std::uint64_t size) {
  Cut cut{};
  cut.offset = *rc::gen::inRange<std::uint64_t>(0, size);
  const std::uint64_t most = *rc::gen::element<std::uint64_t>(600, 70'000, size);
  cut.bytes = *rc::gen::inRange<std::uint64_t>(0, std::min(most, size - cut.offset) + 1);
  // A third each: any offsets, aligned to the file, aligned on both sides.
  switch (*rc::gen::inRange(0, 3)) {
    case 0: cut.skew = *rc::gen::inRange<std::size_t>(0, 4096); break;
    case 1: cut.skew = cut.offset % 4096; break;
    default: cut.offset -= cut.offset % 4096;
  }
  return cut;
}

TEST_P(StorageBackendTest, RandomReadsEqualTheFile) {
  const Data data = random_bytes(900'001, 2);
  const auto file = open(dir_.file("a", data));
  EXPECT_TRUE(rc::check([&] {
    const auto count = *rc::gen::inRange<std::size_t>(1, 6);
    std::vector<Cut> cuts;
    std::vector<std::unique_ptr<Guarded>> memories;
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i) {
      const Cut cut = cuts.emplace_back(any_cut(data.size()));
      const auto& memory = memories.emplace_back(std::make_unique<Guarded>(cut.bytes, cut.skew));
      pieces.push_back({.from = {file.get(), cut.offset, Bytes{cut.bytes}},
                        .to = whole(memory->range()),
                        .engine = kSsd,
                        .tag = i});
    }
    Outcomes outcomes;
    RC_ASSERT(backend_->submit(pieces, outcomes).value_or(0) == count);
    RC_ASSERT(outcomes.wait(count));
    for (std::size_t i = 0; i < count; ++i) {
      RC_ASSERT(outcomes.of(i).has_value());
      RC_ASSERT(same(memories[i]->bytes(), std::span(data).subspan(cuts[i].offset, cuts[i].bytes)));
      RC_ASSERT(memories[i]->guards_intact());
    }
  }));
}

TEST_P(StorageBackendTest, RandomWritesEqualAModelAndDisturbNoNeighbour) {
  Data model = random_bytes(700'001, 3);
  const auto path = dir_.file("a", model);
  const auto file = open(path, true);
  EXPECT_TRUE(rc::check([&] {
    // Neighbours in flight together that share blocks and pages: one range is cut at odd places.
    const Cut range = any_cut(model.size());
    const auto count = *rc::gen::inRange<std::uint64_t>(1, 5);
    const Data data = random_bytes(range.bytes, range.offset + range.bytes);
    Guarded memory(range.bytes, range.skew);
    std::copy(data.begin(), data.end(), memory.bytes().begin());
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t from = range.bytes * i / count;
      const Bytes bytes{range.bytes * (i + 1) / count - from};
      pieces.push_back({.from = {&memory.range(), from, bytes},
                        .to = {file.get(), range.offset + from, bytes},
                        .engine = kSsd,
                        .tag = i});
    }
    Outcomes outcomes;
    RC_ASSERT(backend_->submit(pieces, outcomes).value_or(0) == count);
    RC_ASSERT(outcomes.wait(count));
    for (std::uint64_t i = 0; i < count; ++i) RC_ASSERT(outcomes.of(i).has_value());
    std::copy(data.begin(), data.end(), model.begin() + static_cast<std::ptrdiff_t>(range.offset));
    // Both the page cache and the device have the bytes, so they are read back in both ways.
    RC_ASSERT(same(contents(path), model));
    const Guarded back(model.size());
    RC_ASSERT(copy_now(*backend_, whole(back.range()), whole(*file)).has_value());
    RC_ASSERT(same(back.bytes(), model));
  }));
}

TEST_P(StorageBackendTest, AFileThatShrankGivesAnErrorThatNamesIt) {
  const Data data = random_bytes(2 << 20, 4);
  const auto path = dir_.file("a", data);
  const auto file = open(path, true);
  std::filesystem::resize_file(path, 700'001);
  const Guarded memory(data.size());
  const Status late = copy_now(*backend_, whole(memory.range()), whole(*file));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::io);
  EXPECT_NE(late.error().message.find("shorter than when it was opened"), std::string::npos);
  EXPECT_NE(late.error().message.find(path.string()), std::string::npos) << late.error().message;
  // The remaining bytes can still be read, up to the last one.
  const Guarded rest(700'001);
  ASSERT_TRUE(copy_now(*backend_, whole(rest.range()), {file.get(), 0, 700'001_B}));
  EXPECT_TRUE(same(rest.bytes(), std::span(data).first(700'001)));
  EXPECT_FALSE(copy_now(*backend_, {&rest.range(), 0, 2_B}, {file.get(), 700'000, 2_B}));
  // A write behind the end would lengthen it again, with a hole.
  const Status written = copy_now(*backend_, whole(*file), whole(memory.range()));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::io);
  EXPECT_EQ(std::filesystem::file_size(path), 700'001U);
}

TEST_P(StorageBackendTest, TruncationInTheMiddleOfAStreamGivesErrorsAndNoWrongBytes) {
  constexpr std::uint64_t kPieces = 64;
  constexpr std::uint64_t kEach = 100'000;
  const Data data = random_bytes(kPieces * kEach, 5);
  const auto path = dir_.file("a", data);
  const auto file = open(path);
  const Guarded memory(data.size());
  const auto pieces = reads(*file, memory.range(), kPieces, kEach);
  Outcomes outcomes;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    ASSERT_EQ(backend_->submit({&pieces[i], 1}, outcomes), 1U);
    if (i == kPieces / 2) std::filesystem::resize_file(path, data.size() / 4);
  }
  ASSERT_TRUE(outcomes.wait(kPieces));
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    const auto at = i * kEach;
    const Status outcome = outcomes.of(i);
    if (outcome) {
      EXPECT_TRUE(same(memory.bytes().subspan(at, kEach), std::span(data).subspan(at, kEach)));
    } else {
      EXPECT_EQ(outcome.error().code, ErrorCode::io);
      EXPECT_GT(at + kEach, data.size() / 4);
    }
    EXPECT_TRUE(i <= kPieces / 2 || !outcome) << "was sent after the file had shrunk";
  }
}

TEST_P(StorageBackendTest, RefusesWhatItCannotCopy) {
  const auto file = open(dir_.file("a", random_bytes(100, 7)));
  const auto other = open(dir_.file("b", random_bytes(100, 8)), true);
  const Guarded memory(100);
  const Guarded more(100);
  const auto code = [&](const Extent& to, const Extent& from) {
    const Status refused = copy_now(*backend_, to, from);
    return refused ? ErrorCode::absent : refused.error().code;
  };
  EXPECT_EQ(code(whole(*other), whole(*file)), ErrorCode::unsupported);
  EXPECT_EQ(code(whole(more.range()), whole(memory.range())), ErrorCode::unsupported);
  EXPECT_EQ(code(whole(*file), whole(memory.range())), ErrorCode::denied);  // not writable
}

TEST(StorageOpen, RefusesEnginesThatAreNotStorage) {
  for (const auto& engines : {std::vector{kCpuA}, {}, {EngineId{99}}}) {
    EXPECT_FALSE(open_storage(small_machine(), engines));
  }
}

TEST(StorageOpen, DrivesSeveralDevices) {
  Machine machine = small_machine();
  machine.nodes.push_back(
      {.id = NodeId{1001}, .kind = NodeKind::storage, .reason = "test", .name = "b", .path = "/x"});
  machine.engines.push_back({.id = EngineId{3},
                             .kind = EngineKind::ssd,
                             .name = "b",
                             .home = NodeId{1001},
                             .reason = "test"});
  const auto backend = open_storage(machine, {kSsd, EngineId{3}});
  ASSERT_TRUE(backend);
  const TempDir dir;
  const auto file = open_file(dir.file("a", random_bytes(100, 1)), {});
  const Guarded memory(100);
  EXPECT_TRUE(copy_now(**backend, whole(memory.range()), whole(*file)));
  // The queue of the other device does not serve this one's files.
  auto piece = reads(*file, memory.range(), 1, 100);
  piece[0].engine = EngineId{3};
  Outcomes outcomes;
  const auto wrong = (*backend)->submit(piece, outcomes);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
