// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/storage.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>

#include "backend/storage/storage_testing.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kMargin = 8192;  // guard bytes on both sides of the memory of a copy

// Memory at a chosen distance from a page, with guard bytes around it.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t skew)
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
  StorageOptions options() const { return {.queue = queue_of(GetParam().threads)}; }
  std::unique_ptr<File> open(const std::filesystem::path& path, bool writable = false) const {
    return open_file(path, {.writable = writable, .direct = GetParam().direct});
  }
  TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Ways, StorageBackendTest,
                         testing::Values(Way{false, true}, Way{false, false}, Way{true, true},
                                         Way{true, false}),
                         [](const auto& way) {
                           return std::string(way.param.threads ? "threads" : "uring") +
                                  (way.param.direct ? "_direct" : "_buffered");
                         });

TEST_P(StorageBackendTest, ReadsAWholeFileOfOddSize) {
  const Data data = random_bytes((3 << 20) + 777, 1);
  const auto file = open(dir_.file("a", data));
  const auto backend = open_or_die(options());
  const Guarded memory(data.size(), 0);
  ASSERT_TRUE(copy_now(*backend, whole(memory.range()), whole(*file)));
  EXPECT_TRUE(same(memory.bytes(), data));
  EXPECT_TRUE(memory.guards_intact());
}

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
  const auto backend = open_or_die(options());
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
    RC_ASSERT(backend->submit(pieces, outcomes).value_or(0) == count);
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
  const auto backend = open_or_die(options());
  EXPECT_TRUE(rc::check([&] {
    // Neighbours in flight together that share blocks and pages: one range is cut at odd places.
    const Cut range = any_cut(model.size());
    const auto count = *rc::gen::inRange<std::uint64_t>(1, 5);
    const Data data = random_bytes(range.bytes, range.offset + range.bytes);
    Guarded memory(range.bytes, range.skew);
    std::ranges::copy(data, memory.bytes().begin());
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
    RC_ASSERT(backend->submit(pieces, outcomes).value_or(0) == count);
    RC_ASSERT(outcomes.wait(count));
    for (std::uint64_t i = 0; i < count; ++i) RC_ASSERT(outcomes.of(i).has_value());
    std::ranges::copy(data, model.begin() + static_cast<std::ptrdiff_t>(range.offset));
    // Both the page cache and the device have the bytes, so they are read back in both ways.
    RC_ASSERT(same(contents(path), model));
    const Guarded back(model.size(), 0);
    RC_ASSERT(copy_now(*backend, whole(back.range()), whole(*file)).has_value());
    RC_ASSERT(same(back.bytes(), model));
  }));
}

TEST_P(StorageBackendTest, AFileThatShrankGivesAnErrorThatNamesIt) {
  const Data data = random_bytes(2 << 20, 4);
  const auto path = dir_.file("a", data);
  const auto file = open(path);
  const auto backend = open_or_die(options());
  std::filesystem::resize_file(path, 700'001);
  const Guarded memory(data.size(), 0);
  const Status late = copy_now(*backend, whole(memory.range()), whole(*file));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::io);
  EXPECT_NE(late.error().message.find("shorter than when it was opened"), std::string::npos);
  EXPECT_NE(late.error().message.find(path.string()), std::string::npos) << late.error().message;
  // The remaining bytes can still be read, up to the last one.
  const Guarded rest(700'001, 0);
  ASSERT_TRUE(copy_now(*backend, whole(rest.range()), {file.get(), 0, 700'001_B}));
  EXPECT_TRUE(same(rest.bytes(), std::span(data).first(700'001)));
  EXPECT_FALSE(copy_now(*backend, {&rest.range(), 0, 2_B}, {file.get(), 700'000, 2_B}));
}

TEST_P(StorageBackendTest, TruncationInTheMiddleOfAStreamGivesErrorsAndNoWrongBytes) {
  constexpr std::uint64_t kPieces = 64;
  constexpr std::uint64_t kEach = 100'000;
  const Data data = random_bytes(kPieces * kEach, 5);
  const auto path = dir_.file("a", data);
  const auto file = open(path);
  const auto backend = open_or_die(options());
  const Guarded memory(data.size(), 0);
  Outcomes outcomes;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    const Piece piece{.from = {file.get(), i * kEach, Bytes{kEach}},
                      .to = {&memory.range(), i * kEach, Bytes{kEach}},
                      .engine = kSsd,
                      .tag = i};
    ASSERT_EQ(backend->submit({&piece, 1}, outcomes), 1U);
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

TEST_P(StorageBackendTest, WritesBehindTheEndOfAShrunkenFileAreRefused) {
  const auto path = dir_.file("a", random_bytes(100'000, 6));
  const auto file = open(path, true);
  const auto backend = open_or_die(options());
  std::filesystem::resize_file(path, 5000);
  const Guarded memory(100'000, 0);
  const Status outcome = copy_now(*backend, whole(*file), whole(memory.range()));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::io);
  EXPECT_EQ(std::filesystem::file_size(path), 5000U);
}

TEST_P(StorageBackendTest, ReadsHolesAsZeros) {
  const auto path = dir_.file("sparse", {});
  std::filesystem::resize_file(path, 1'000'003);
  const auto file = open(path);
  const auto backend = open_or_die(options());
  const Guarded memory(1'000'003, 0);
  ASSERT_TRUE(copy_now(*backend, whole(memory.range()), whole(*file)));
  EXPECT_TRUE(std::ranges::all_of(memory.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(StorageBackendTest, AcceptsPiecesOfLengthZero) {
  const auto file = open(dir_.file("empty", {}));
  const auto backend = open_or_die(options());
  const Guarded memory(0, 0);
  EXPECT_TRUE(copy_now(*backend, whole(memory.range()), whole(*file)));
}

TEST_P(StorageBackendTest, RefusesWhatItCannotCopy) {
  const auto file = open(dir_.file("a", random_bytes(100, 7)));
  const auto other = open(dir_.file("b", random_bytes(100, 8)), true);
  const auto backend = open_or_die(options());
  const Guarded memory(100, 0);
  const Guarded more(100, 0);
  const auto code = [&](const Extent& to, const Extent& from) {
    const Status refused = copy_now(*backend, to, from);
    return refused ? ErrorCode::absent : refused.error().code;
  };
  EXPECT_EQ(code(whole(*other), whole(*file)), ErrorCode::unsupported);
  EXPECT_EQ(code(whole(more.range()), whole(memory.range())), ErrorCode::unsupported);
  EXPECT_EQ(code(whole(*file), whole(memory.range())), ErrorCode::denied);  // not writable
  EXPECT_EQ(code(whole(memory.range()), {file.get(), 50, 100_B}), ErrorCode::invalid);
}

TEST_P(StorageBackendTest, AcceptsNothingOfABatchWithABadPiece) {
  const auto file = open(dir_.file("a", random_bytes(100, 7)));
  const auto backend = open_or_die(options());
  const Guarded memory(100, 0);
  const Piece good{.from = whole(*file), .to = whole(memory.range()), .engine = kSsd, .tag = 0};
  Piece bad = good;
  bad.from.offset = 1;
  const std::vector<Piece> pieces = {good, bad, good};
  Outcomes outcomes;
  const auto refused = backend->submit(pieces, outcomes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_EQ(outcomes.count(), 0U);
}

TEST_P(StorageBackendTest, AcceptsFewerWhenFullAndFinishesAllBeforeItGoes) {
  constexpr std::size_t kRoom = 4;
  constexpr std::uint64_t kPieces = 64;
  constexpr Bytes kEach = 300'000_B;
  const auto file = open(dir_.file("a", random_bytes(kEach.value, 9)));
  StorageOptions small = options();
  small.max_pieces = kRoom;
  small.queue_depth = 2;
  small.bounce_buffers = 1;
  Outcomes outcomes;
  const Guarded memory(kPieces * kEach.value, 1);  // all pieces go through the one bounce buffer
  std::vector<Piece> batch;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    batch.push_back({.from = whole(*file),
                     .to = {&memory.range(), i * kEach.value, kEach},
                     .engine = kSsd,
                     .tag = i});
  }
  std::size_t accepted = 0;
  {
    const auto backend = open_or_die(small);
    accepted = backend->submit(batch, outcomes).value_or(0);
    EXPECT_GE(accepted, kRoom);
    EXPECT_LT(accepted, batch.size());
  }
  EXPECT_EQ(outcomes.count(), accepted);  // the destructor waited
}

// Submits the next piece from inside complete(), like the Mover.
class Chain final : public Completion {
 public:
  Chain(Backend& backend, Piece piece, std::uint64_t length)
      : backend_(backend), piece_(piece), length_(length) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    EXPECT_TRUE(outcome);
    if (tag < length_) {
      piece_.tag = tag + 1;
      EXPECT_EQ(backend_.submit({&piece_, 1}, *this), 1U);
    } else {
      done_.complete(0, {});
    }
  }
  bool wait() { return done_.wait(1); }

 private:
  Backend& backend_;
  Piece piece_;
  const std::uint64_t length_;
  Outcomes done_;
};

TEST_P(StorageBackendTest, ACompletionMaySubmitEvenWhenTheQueueHoldsOne) {
  const auto file = open(dir_.file("a", random_bytes(5000, 9)));
  StorageOptions one = options();
  one.max_pieces = 1;
  one.queue_depth = 1;
  const auto backend = open_or_die(one);
  const Guarded memory(5000, 0);
  const Piece piece{.from = whole(*file), .to = whole(memory.range()), .engine = kSsd};
  Chain chain(*backend, piece, 200);
  ASSERT_EQ(backend->submit({&piece, 1}, chain), 1U);
  EXPECT_TRUE(chain.wait());
}

TEST_P(StorageBackendTest, ManyThreadsSubmitAtOnce) {
  const Data data = random_bytes(1 << 20, 10);
  const auto file = open(dir_.file("a", data));
  StorageOptions narrow = options();
  narrow.max_pieces = 8;
  const auto backend = open_or_die(narrow);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (std::uint64_t i = 0; i < 50; ++i) {
        const std::uint64_t bytes = random.below(100'000) + 1;
        const std::uint64_t offset = random.below(data.size() - bytes);
        const Guarded memory(bytes, random.below(4096));
        const Piece piece{.from = {file.get(), offset, Bytes{bytes}},
                          .to = whole(memory.range()),
                          .engine = kSsd};
        Outcomes outcomes;
        while (backend->submit({&piece, 1}, outcomes).value_or(1) == 0) std::this_thread::yield();
        ASSERT_TRUE(outcomes.wait(1));
        ASSERT_TRUE(outcomes.of(0));
        ASSERT_TRUE(same(memory.bytes(), std::span(data).subspan(offset, bytes)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StorageOpen, RefusesEnginesThatAreNotStorage) {
  const auto none = open_storage(small_machine(), {kCpuA});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(open_storage(small_machine(), {}));
  EXPECT_FALSE(open_storage(small_machine(), {EngineId{99}}));
}

TEST(StorageOpen, RefusesOptionsOutOfRange) {
  const auto refused = [](auto change) {
    StorageOptions options{.queue = StorageQueue::threads};
    change(options);
    const auto backend = open_storage(small_machine(), {kSsd}, options);
    return !backend && backend.error().code == ErrorCode::invalid;
  };
  for (const std::size_t huge : {std::size_t{100'000}, ~std::size_t{0}, ~std::size_t{0} / 8}) {
    EXPECT_TRUE(refused([&](auto& o) { o.queue_depth = huge; })) << huge;
    EXPECT_TRUE(refused([&](auto& o) { o.max_pieces = huge; })) << huge;
    EXPECT_TRUE(refused([&](auto& o) { o.bounce_buffers = huge; })) << huge;
    EXPECT_TRUE(refused([&](auto& o) { o.threads = huge; })) << huge;
  }
  EXPECT_TRUE(refused([](auto& o) { o.request = 128_MiB; }));
  EXPECT_TRUE(refused([](auto& o) { o.request = Bytes{std::uint64_t{1} << 63}; }));
  EXPECT_TRUE(refused([](auto& o) { o.limit = Nanoseconds{-1}; }));
  EXPECT_TRUE(refused([](auto& o) { o.limit = Nanoseconds::max(); }));
  EXPECT_TRUE(refused([](auto& o) { o.clock = nullptr; }));
  EXPECT_TRUE(refused([](auto& o) { o.request = 0_B; }));
  EXPECT_TRUE(refused([](auto& o) { o.request = 2_KiB; }));
  EXPECT_TRUE(refused([](auto& o) { o.request = 12_KiB; }));
  EXPECT_TRUE(refused([](auto& o) { o.queue_depth = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_pieces = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.bounce_buffers = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.threads = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.limit = Nanoseconds{0}; }));
}

TEST(StorageOpen, ARefusalNamesTheOptionItsValueAndItsRange) {
  const auto backend = open_storage(small_machine(), {kSsd}, {.threads = 5000});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().message, "StorageOptions::threads is 5000; give 1 to 4096");
}

TEST(StorageOpen, TakesTheLargestOptions) {
  const StorageOptions most{.max_pieces = 65536,
                            .queue_depth = 16384,
                            .request = 64_MiB,
                            .bounce_buffers = 4096,
                            .threads = 4096,
                            .limit = std::chrono::hours{24}};
  for (const bool threads : {false, true}) {
    StorageOptions options = most;
    options.queue = queue_of(threads);
    if (!threads) options.bounce_buffers = 1;  // io_uring pins them
    const auto backend = open_or_die(options);
    const TempDir dir;
    const Data data = random_bytes(300'001, 11);
    const auto file = open_file(dir.file("a", data), {});
    const Guarded memory(data.size(), 1);
    ASSERT_TRUE(copy_now(*backend, whole(memory.range()), whole(*file)));
    EXPECT_TRUE(same(memory.bytes(), data));
  }
}

TEST(StorageOpen, SharedMemoryFilesWork) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const TempDir dir("/dev/shm");
  const Data data = random_bytes(300'001, 11);
  const auto file = open_file(dir.file("a", data), {});
  for (const bool threads : {false, true}) {
    const auto backend = open_or_die({.queue = queue_of(threads)});
    const Guarded memory(data.size(), 1);
    ASSERT_TRUE(copy_now(*backend, whole(memory.range()), whole(*file)));
    EXPECT_TRUE(same(memory.bytes(), data));
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
  const Guarded memory(100, 0);
  EXPECT_TRUE(copy_now(**backend, whole(memory.range()), whole(*file)));
  // The queue of the other device does not serve this one's files.
  const Piece piece{
      .from = whole(*file), .to = whole(memory.range()), .engine = EngineId{3}, .tag = 0};
  Outcomes outcomes;
  const auto wrong = (*backend)->submit({&piece, 1}, outcomes);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
