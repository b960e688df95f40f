// SPDX-License-Identifier: Apache-2.0
// Blocks that are written: who may write, which bytes accesses see, and how changes go back.
#include "cache/writes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "tests/support/chain_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kPage = 4096;
constexpr Nanoseconds kNow{0};

CacheRig::Options writable(std::uint64_t pages) {
  FakeOptions fake;
  fake.inside_chance = 1;
  return {.fake = fake,
          .cache = {.slab = Bytes{pages * kPage}, .shards = 1, .writable = true},
          .budget = Bytes{pages * kPage},
          .observe = false};
}

class Pages {
 public:
  explicit Pages(std::size_t count) : source_(count * kPage) {
    std::ranges::fill(source_.bytes(), std::byte{0});
  }
  Extent page(std::size_t index) const { return source_.at(index * kPage, kPage); }
  Extent range(std::uint64_t offset, std::uint64_t length) const {
    return source_.at(offset, length);
  }
  int in_source(std::size_t index) const { return version_of({page(index).memory(), kPage}); }
  const Object& object() const { return source_.object(); }
  Source& source() { return source_; }

  // All bytes of a page are its version; -1: of several.
  static int version_of(std::span<const std::byte> bytes) {
    const std::byte first = bytes[0];
    const bool one = std::ranges::all_of(bytes, [first](std::byte b) { return b == first; });
    return one ? std::to_integer<int>(first) : -1;
  }

 private:
  Source source_;
};

Status set(Cache& cache, const Extent& extent, int version, AccessOptions options = {}) {
  options.write = true;
  Block block = cache.access(extent, options);
  HEADRACE_TRY(const auto bytes, block.wait_to_write());
  std::memset(bytes.data(), version, bytes.size());
  return {};
}

int seen(Cache& cache, const Extent& extent) {
  const Block block = cache.access(extent);
  const auto bytes = block.wait();
  EXPECT_TRUE(bytes.has_value()) << (bytes ? "" : bytes.error().message);
  return bytes ? Pages::version_of(*bytes) : -2;
}

ErrorCode code_of(const Status& status) {
  EXPECT_FALSE(status.has_value());
  return status ? ErrorCode::absent : status.error().code;
}

TEST(CacheWriteTest, WrittenBlock_IsReadFromTheCache_AndReachesItsSourceOnce) {
  Pages pages(4);
  CacheRig rig(writable(4));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 7));
  EXPECT_EQ(seen(*rig.cache, pages.page(1)), 7);
  EXPECT_EQ(seen(*rig.cache, pages.range(kPage + 100, 200)), 7) << "a part of it";
  EXPECT_EQ(pages.in_source(1), 0);
  EXPECT_EQ(rig.cache->stats().bytes_dirty, Bytes{kPage});
  ASSERT_TRUE(rig.cache->write_back());
  EXPECT_EQ(pages.in_source(1), 7);
  ASSERT_TRUE(rig.cache->write_back());
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.written_back, 1u);
  EXPECT_EQ(stats.bytes_dirty, 0_B);
  EXPECT_EQ(seen(*rig.cache, pages.page(1)), 7);
}

TEST(CacheWriteTest, BlockThatWasNotTouched_IsNotDirty) {
  Pages pages(2);
  CacheRig rig(writable(4));
  {
    const Block block = rig.cache->access(pages.page(0), {.write = true});
  }
  rig.load(pages.page(1));
  {
    const Block block = rig.cache->access(pages.page(1), {.write = true});
  }
  EXPECT_EQ(rig.cache->stats().bytes_dirty, 0_B);
  EXPECT_EQ(seen(*rig.cache, pages.page(0)), 0);
}

TEST(CacheWriteTest, BlockForReading_CannotBeWritten) {
  Pages pages(2);
  CacheRig rig(writable(4));
  Block block = rig.cache->access(pages.page(0));
  EXPECT_EQ(block.wait_to_write().error().code, ErrorCode::invalid);
  Block writing = rig.cache->access(pages.page(1), {.write = true});
  EXPECT_TRUE(writing.wait_to_write().has_value());
  EXPECT_EQ(writing.clone().wait().error().code, ErrorCode::invalid);
}

TEST(CacheWriteTest, ReadOnlyCache_RefusesToWrite) {
  Pages pages(1);
  CacheRig rig;
  const Status written = set(*rig.cache, pages.page(0), 1);
  EXPECT_EQ(code_of(written), ErrorCode::invalid);
  EXPECT_NE(written.error().message.find("`writable`"), std::string::npos);
}

TEST(CacheWriteTest, HeldBlock_KeepsOthersOut_UntilTheirTimeIsOver) {
  Pages pages(2);
  CacheRig rig(writable(4));
  Block writing = rig.cache->access(pages.page(0), {.write = true});
  std::memset(writing.wait_to_write()->data(), 9, kPage);
  for (const bool write : {false, true}) {
    const Block block = rig.cache->access(pages.page(0), {.write = write, .lock_timeout = kNow});
    EXPECT_FALSE(block.now().has_value()) << "the source is older";
    EXPECT_EQ(block.wait().error().code, ErrorCode::timed_out);
  }
  const Block part = rig.cache->access(pages.range(10, 10), {.lock_timeout = kNow});
  EXPECT_EQ(part.wait().error().code, ErrorCode::timed_out);
  bool asked = false;
  const std::function<bool()> stop = [&] { return asked = true; };
  const Block stopped = rig.cache->access(pages.page(0), {.stop = &stop});
  EXPECT_TRUE(asked);
  EXPECT_EQ(stopped.wait().error().code, ErrorCode::timed_out);
  writing = {};
  EXPECT_EQ(seen(*rig.cache, pages.page(0)), 9);
}

TEST(CacheWriteTest, Readers_KeepAWriterOut) {
  Pages pages(1);
  CacheRig rig(writable(4));
  rig.load(pages.page(0));
  Block hit = rig.cache->access(pages.page(0));  // pinned without the lock
  EXPECT_TRUE(hit.hit());
  EXPECT_EQ(code_of(set(*rig.cache, pages.page(0), 1, {.lock_timeout = kNow})),
            ErrorCode::timed_out);
  hit = {};
  EXPECT_TRUE(set(*rig.cache, pages.page(0), 1, {.lock_timeout = kNow}));
  EXPECT_EQ(seen(*rig.cache, pages.page(0)), 1);
}

TEST(CacheWriteTest, WriterInAnotherThread_IsWaitedFor) {
  Pages pages(1);
  auto options = writable(4);
  options.poller = true;
  CacheRig rig(options);
  Block writing = rig.cache->access(pages.page(0), {.write = true});
  std::memset(writing.wait_to_write()->data(), 3, kPage);
  int found = 0;
  std::thread reader([&] { found = seen(*rig.cache, pages.page(0)); });
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  writing = {};
  reader.join();
  EXPECT_EQ(found, 3);
}

TEST(CacheWriteTest, OverlappingWritableRange_IsRefusedWhileTheOtherIsDirty) {
  Pages pages(4);
  CacheRig rig(writable(8));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 1));
  const Status across = set(*rig.cache, pages.range(kPage / 2, kPage), 2);
  EXPECT_EQ(code_of(across), ErrorCode::invalid);
  EXPECT_NE(across.error().message.find("write_back()"), std::string::npos);
  EXPECT_EQ(code_of(set(*rig.cache, pages.range(kPage, 10), 2)), ErrorCode::invalid);
  ASSERT_TRUE(rig.cache->write_back());
  ASSERT_TRUE(set(*rig.cache, pages.range(kPage / 2, kPage), 2));
  EXPECT_EQ(seen(*rig.cache, pages.range(kPage, kPage / 2)), 2);
}

// It needs bytes that only the cache has.
TEST(CacheWriteTest, ReadBesideADirtyBlock_WaitsUntilItIsInTheSource) {
  Pages pages(4);
  CacheRig rig(writable(8));
  rig.load(pages.range(0, 3 * kPage));  // a larger block, which the write drops
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 5));
  const Block block = rig.cache->access(pages.range(0, 2 * kPage));
  const auto bytes = block.wait();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(Pages::version_of(bytes->first(kPage)), 0);
  EXPECT_EQ(Pages::version_of(bytes->subspan(kPage)), 5);
  EXPECT_EQ(rig.cache->stats().bytes_dirty, 0_B);
  std::vector<std::byte> all(3 * kPage);
  ASSERT_TRUE(set(*rig.cache, pages.page(2), 6));
  ASSERT_TRUE(rig.cache->read(pages.range(0, 3 * kPage), all, {.block = Bytes{kPage}}));
  EXPECT_EQ(Pages::version_of(std::span(all).subspan(2 * kPage)), 6);
}

TEST(CacheWriteTest, HolderOfALargerBlock_KeepsItsBytes) {
  Pages pages(4);
  CacheRig rig(writable(8));
  rig.load(pages.range(0, 2 * kPage));
  const Block held = rig.cache->access(pages.range(0, 2 * kPage));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 5));
  EXPECT_EQ(Pages::version_of(*held.now()), 0);
  EXPECT_EQ(held.state(), BlockState::evicting);
}

TEST(CacheWriteTest, DirtyBlocks_GoBackForSpace_AndNothingIsLost) {
  constexpr std::size_t kCount = 64;
  Pages pages(kCount);
  CacheRig rig(writable(8));
  for (int round = 1; round < 4; ++round) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(set(*rig.cache, pages.page(i), round));
      EXPECT_LE(rig.cache->stats().bytes_used, Bytes{8 * kPage});
    }
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(seen(*rig.cache, pages.page(i)), round);
  }
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

TEST(CacheWriteTest, AQuarterOfTheBudget_IsKeptClean) {
  Pages pages(200);
  auto options = writable(200);
  CacheRig rig(options);
  for (std::size_t i = 0; i < 200; ++i) ASSERT_TRUE(set(*rig.cache, pages.page(i), 1));
  rig.settle();
  EXPECT_LE(rig.cache->stats().bytes_dirty, Bytes{150 * kPage});
  EXPECT_GT(rig.cache->stats().bytes_dirty, Bytes{100 * kPage});
  EXPECT_EQ(pages.in_source(0), 1) << "the oldest first";
  EXPECT_EQ(pages.in_source(199), 0);
}

TEST(CacheWriteTest, WriteBacks_AreInTheOrderOfTheChanges_AfterTheirObserver) {
  Pages pages(8);
  auto options = writable(16);
  std::vector<std::uint64_t> asked;
  bool log_fails = false;
  options.cache.before_write_back = [&](const Extent& extent,
                                        std::span<const std::byte> bytes) -> Status {
    EXPECT_EQ(Pages::version_of(bytes), static_cast<int>(extent.offset / kPage) + 1);
    EXPECT_EQ(pages.in_source(extent.offset / kPage), 0) << "before the write-back";
    asked.push_back(extent.offset / kPage);
    return log_fails ? fail(ErrorCode::io, "the log is full") : Status{};
  };
  CacheRig rig(options);
  const std::vector<std::uint64_t> order = {5, 2, 7, 0};
  for (const std::uint64_t i : order) {
    ASSERT_TRUE(set(*rig.cache, pages.page(i), static_cast<int>(i) + 1));
  }
  log_fails = true;
  const Status failed = rig.cache->write_back();
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("the log is full"), std::string::npos);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(pages.in_source(i), 0);
  log_fails = false;
  asked.clear();
  const std::size_t before = rig.fake->accepted().size();
  ASSERT_TRUE(rig.cache->write_back());
  EXPECT_EQ(asked, order);
  const auto pieces = rig.fake->accepted();
  ASSERT_EQ(pieces.size(), before + order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(pieces[before + i].to.offset, order[i] * kPage);
  }
}

TEST(CacheWriteTest, FailedWriteBack_KeepsTheBlock_AndIsReportedOnceByEachCall) {
  Pages pages(4);
  CacheRig rig(writable(8));
  ASSERT_TRUE(set(*rig.cache, pages.page(0), 1));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 2));
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "no space left on the device"});
  }
  for (int i = 0; i < 2; ++i) {
    const Status failed = rig.cache->write_back();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::io);
    EXPECT_EQ(failed.error().message.find("2 changed blocks"), 0u) << failed.error().message;
    EXPECT_NE(failed.error().message.find("no space left"), std::string::npos);
  }
  rig.cache->flush();
  rig.cache->clear();
  EXPECT_FALSE(rig.cache->forget(pages.object()).has_value());
  EXPECT_EQ(rig.cache->stats().bytes_dirty, Bytes{2 * kPage});
  EXPECT_EQ(seen(*rig.cache, pages.page(0)), 1);
  ASSERT_TRUE(set(*rig.cache, pages.page(0), 3));
  for (const EngineId engine : {kCpuA, kCpuB}) rig.fake->break_engine(engine, std::nullopt);
  EXPECT_EQ(rig.cache->reading(), std::vector{pages.object().id()});
  ASSERT_TRUE(rig.cache->forget(pages.object()));
  EXPECT_TRUE(rig.cache->reading().empty());
  EXPECT_EQ(pages.in_source(0), 3);
  EXPECT_EQ(pages.in_source(1), 2);
}

TEST(CacheWriteTest, AccessWithoutSpace_SaysWhyNothingGoesBack) {
  Pages pages(16);
  CacheRig rig(writable(4));
  for (std::size_t i = 0; i < 4; ++i) rig.load(pages.page(i));
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(set(*rig.cache, pages.page(i), 1));
  ASSERT_TRUE(set(*rig.cache, pages.page(3), 1));
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "the disk is gone"});
  }
  std::size_t refused = 0;
  for (std::size_t i = 4; i < 16; ++i) {
    const Block block = rig.cache->access(pages.page(i));
    EXPECT_FALSE(block.wait().has_value());
    refused += block.wait().error().message.find("the disk is gone") != std::string::npos;
  }
  EXPECT_GT(refused, 0u);
  for (const EngineId engine : {kCpuA, kCpuB}) rig.fake->break_engine(engine, std::nullopt);
  ASSERT_TRUE(rig.cache->write_back());
  EXPECT_EQ(seen(*rig.cache, pages.page(9)), 0);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(pages.in_source(i), 1);
}

TEST(CacheWriteTest, ReadBesideABlockThatCannotGoBack_SaysWhy) {
  Pages pages(2);
  CacheRig rig(writable(8));
  ASSERT_TRUE(set(*rig.cache, pages.page(0), 1));
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "the disk is gone"});
  }
  const Block wide = rig.cache->access(pages.range(0, 2 * kPage));
  EXPECT_FALSE(wide.now().has_value());
  EXPECT_EQ(wide.wait().error().code, ErrorCode::io);
}

// Else it would wait for itself.
TEST(CacheWriteTest, Flush_DoesNotWaitForHeldBlocks) {
  Pages pages(2);
  CacheRig rig(writable(8));
  ASSERT_TRUE(set(*rig.cache, pages.page(0), 1));
  Block held = rig.cache->access(pages.page(0), {.write = true});
  rig.cache->flush();
  rig.cache->clear();
  EXPECT_EQ(code_of(rig.cache->write_back({.timeout = kNow})), ErrorCode::timed_out);
  held = {};
  EXPECT_EQ(seen(*rig.cache, pages.page(0)), 1);
}

TEST(CacheWriteTest, Invalidate_KeepsDirtyBlocks_DiscardDropsThem) {
  Pages pages(4);
  CacheRig rig(writable(8));
  rig.load(pages.page(0));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 1));
  EXPECT_TRUE(rig.cache->invalidate(pages.page(0)));
  EXPECT_FALSE(rig.cache->invalidate(whole(pages.object())));
  EXPECT_EQ(seen(*rig.cache, pages.page(1)), 1);
  ASSERT_TRUE(rig.cache->discard(pages.page(1)));
  EXPECT_EQ(seen(*rig.cache, pages.page(1)), 0);
  Block writing = rig.cache->access(pages.page(2), {.write = true});
  EXPECT_FALSE(rig.cache->invalidate(pages.page(2)));
  EXPECT_EQ(code_of(rig.cache->discard(pages.page(2), kNow)), ErrorCode::timed_out);
  EXPECT_EQ(code_of(rig.cache->forget(pages.object(), kNow)), ErrorCode::invalid);
  writing = {};
  EXPECT_TRUE(rig.cache->discard(whole(pages.object())));
  EXPECT_TRUE(rig.cache->forget(pages.object()));
  EXPECT_EQ(rig.cache->stats().written_back, 0u);
}

TEST(CacheWriteTest, BudgetOfZero_SendsDirtyBlocksBack) {
  Pages pages(8);
  CacheRig rig(writable(16));
  for (std::size_t i = 0; i < 8; ++i) ASSERT_TRUE(set(*rig.cache, pages.page(i), 4));
  ASSERT_TRUE(rig.cache->resize(kDram, 0_B));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().bytes_used, 0_B);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(pages.in_source(i), 4);
  EXPECT_EQ(rig.cache->access(pages.page(0)).wait().error().code, ErrorCode::exhausted);
}

TEST(CacheWriteTest, Destructor_WritesDirtyBlocksBack) {
  Pages pages(2);
  {
    CacheRig rig(writable(4));
    ASSERT_TRUE(set(*rig.cache, pages.page(1), 6));
  }
  EXPECT_EQ(pages.in_source(1), 6);
}

TEST(CacheWriteTest, Destructor_SaysWhatIsLost) {
  Pages pages(2);
  CacheRig rig(writable(4));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 6));
  for (const EngineId engine : {kCpuA, kCpuB}) {
    rig.fake->break_engine(engine, Error{ErrorCode::io, "the disk is gone"});
  }
  testing::internal::CaptureStderr();
  rig.cache.reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "headrace: a cache ended, and 4 KiB of changes are lost, the oldest of memory of "
            "node 8: the disk is gone\n");
}

TEST(CacheWriteTest, WriteOfAHalfOfAnotherShard_IsRefused) {
  Pages pages(64);
  auto options = writable(64);
  options.cache.shards = 2;
  options.cache.slab = Bytes{32 * kPage};
  CacheRig rig(options);
  EXPECT_EQ(code_of(set(*rig.cache, pages.range(kPage / 2, kPage), 1)), ErrorCode::invalid);
  EXPECT_EQ(rig.cache->access(pages.range(kPage / 2, kPage)).wait().error().code,
            ErrorCode::invalid);
  std::vector<Extent> plan = {pages.page(0), pages.range(kPage / 2, kPage), pages.page(1)};
  const Prefetch ahead = rig.cache->prefetch(plan);
  EXPECT_EQ(ahead.progress().invalid, 1u);
  for (std::size_t i = 0; i < 64; ++i) ASSERT_TRUE(set(*rig.cache, pages.page(i), 2));
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(seen(*rig.cache, pages.page(i)), 2);
  ASSERT_TRUE(rig.cache->sync());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(pages.in_source(i), 2);
}

TEST(CacheWriteTest, Plan_PassesOverItemsBesideDirtyBlocks) {
  Pages pages(8);
  CacheRig rig(writable(16));
  ASSERT_TRUE(set(*rig.cache, pages.page(1), 3));
  const std::vector<Extent> extents = {pages.range(0, 2 * kPage), pages.page(1), pages.page(4)};
  const Prefetch ahead = rig.cache->prefetch(extents);
  rig.settle();
  EXPECT_EQ(seen(*rig.cache, pages.page(1)), 3);
  const Block block = rig.cache->access(extents[0], {.plan = &ahead});
  EXPECT_EQ(Pages::version_of(block.wait()->subspan(kPage)), 3);
}

// Random operations against a map of what every page should hold, over engines that are late, take
// parts, reorder and fail. Whatever happens: an access sees the last write, at most one Block holds
// a page for writing, write_back() that succeeds leaves all of it in the source, and the pages of
// the source never go back to older bytes.
class WriteModel {
 public:
  static constexpr std::size_t kPages = 12;

  WriteModel() : pages_(kPages), rig_(any_options()) {}

  void step() {
    switch (*rc::gen::weightedElement<int>({{8, 0},
                                            {6, 1},
                                            {4, 2},
                                            {2, 3},
                                            {1, 4},
                                            {1, 5},
                                            {1, 6},
                                            {1, 7},
                                            {1, 8},
                                            {2, 9},
                                            {1, 10}})) {
      case 0: write(any_page()); break;
      case 1: read(any_page()); break;
      case 2: writing_.reset(); break;
      case 3: write_back(); break;
      case 4: rig_.cache->flush(); break;
      case 5: rig_.cache->clear(); break;
      case 6: invalidate(); break;
      case 7: discard(); break;
      case 8: resize(); break;
      case 9: prefetch(); break;
      default: read_wide();
    }
    rig_.mover->poll();
    check();
  }

  void finish() {
    writing_.reset();
    plans_.clear();
    RC_ASSERT(rig_.cache->resize(kDram, Bytes{kPages * kPage}).has_value());
    for (int i = 0; i < 1000 && !rig_.cache->write_back(); ++i) {
    }
    for (std::size_t i = 0; i < kPages; ++i) RC_ASSERT(pages_.in_source(i) == wanted_[i]);
    RC_ASSERT(rig_.cache->stats().bytes_dirty == 0_B);
    RC_ASSERT(rig_.cache->stats().bytes_pinned == 0_B);
    RC_ASSERT(rig_.fake->violations().empty());
  }

 private:
  static CacheRig::Options any_options() {
    CacheRig::Options options = writable(*rc::gen::inRange<std::uint64_t>(3, 16));
    options.fake.seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
    options.fake.max_in_flight = *rc::gen::inRange<std::size_t>(1, 5);
    options.fake.polls = *rc::gen::inRange(0U, 4U);
    options.fake.reorder = *rc::gen::arbitrary<bool>();
    options.fake.inside_chance = *rc::gen::element(0.0, 0.2, 1.0);
    options.fake.partial_chance = *rc::gen::element(0.0, 0.3);
    options.fake.fail_chance = *rc::gen::element(0.0, 0.2);
    options.cache.slab = *rc::gen::element(4096_B, 16384_B, 65536_B);
    add_chain(options.cache, std::vector(*rc::gen::element<std::size_t>(0, 0, 1, 2), 5 * kPage));
    options.observe = *rc::gen::arbitrary<bool>();
    return options;
  }
  static std::size_t any_page() { return *rc::gen::inRange<std::size_t>(0, kPages); }
  // Failed copies and lack of space are allowed, old bytes are not.
  static bool may_fail(const Error& error) {
    return error.code == ErrorCode::io || error.code == ErrorCode::exhausted ||
           error.code == ErrorCode::timed_out;
  }
  bool held(std::size_t page) const { return writing_ && writing_page_ == page; }

  void write(std::size_t page) {
    Block block = rig_.cache->access(pages_.page(page), {.write = true, .lock_timeout = kNow});
    const auto bytes = block.wait_to_write();
    if (held(page)) RC_ASSERT(!bytes.has_value());
    if (!bytes) return RC_ASSERT(may_fail(bytes.error()));
    RC_ASSERT(Pages::version_of(*bytes) == wanted_[page]);
    wanted_[page] = (wanted_[page] + 1) % 100;
    dirty_[page] = true;
    std::memset(bytes->data(), wanted_[page], bytes->size());
    if (*rc::gen::arbitrary<bool>()) {
      writing_ = std::move(block);
      writing_page_ = page;
    }
  }
  void read(std::size_t page) {
    const Block block = rig_.cache->access(pages_.page(page), {.lock_timeout = kNow});
    const auto bytes = block.wait();
    if (held(page)) RC_ASSERT(!bytes.has_value());
    if (!bytes) return RC_ASSERT(may_fail(bytes.error()));
    RC_ASSERT(Pages::version_of(*bytes) == wanted_[page]);
  }
  // Across pages whose changes only the cache has.
  void read_wide() {
    const std::size_t page = *rc::gen::inRange<std::size_t>(0, kPages - 1);
    if (held(page) || held(page + 1)) return;
    const Block block = rig_.cache->access(pages_.range(page * kPage, 2 * kPage));
    const auto bytes = block.wait();
    if (!bytes) return RC_ASSERT(may_fail(bytes.error()));
    RC_ASSERT(Pages::version_of(bytes->first(kPage)) == wanted_[page]);
    RC_ASSERT(Pages::version_of(bytes->subspan(kPage)) == wanted_[page + 1]);
  }
  void write_back() {
    const Status done = rig_.cache->write_back({.timeout = std::chrono::microseconds{100}});
    if (!done) return RC_ASSERT(may_fail(done.error()));
    for (std::size_t i = 0; i < kPages; ++i) {
      if (!held(i)) RC_ASSERT(pages_.in_source(i) == wanted_[i]);
    }
  }
  void invalidate() {
    // A page that no change of the cache hides.
    const std::size_t page = any_page();
    if (!rig_.cache->invalidate(pages_.page(page)) || held(page)) return;
    const int version = (wanted_[page] + 1) % 100;
    RC_ASSERT(pages_.in_source(page) == wanted_[page]);
    std::memset(pages_.page(page).memory(), version, kPage);
    (void)rig_.cache->invalidate(pages_.page(page));
    wanted_[page] = version;
  }
  void discard() {
    const std::size_t page = any_page();
    const Status done = rig_.cache->discard(pages_.page(page), std::chrono::microseconds{100});
    if (held(page)) RC_ASSERT(!done.has_value());
    if (done) wanted_[page] = pages_.in_source(page);
  }
  void resize() {
    const auto budget = *rc::gen::inRange<std::uint64_t>(0, 16);
    RC_ASSERT(rig_.cache->resize(kDram, Bytes{budget * kPage}).has_value());
  }
  void prefetch() {
    std::vector<Extent> extents;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) extents.push_back(pages_.page(any_page()));
    plans_.push_back(rig_.cache->prefetch(extents));
    if (plans_.size() > 2) plans_.erase(plans_.begin());
  }
  void check() {
    for (std::size_t i = 0; i < kPages; ++i) {
      const int version = pages_.in_source(i);
      RC_ASSERT(version >= 0);  // never half a page
      if (!dirty_[i]) RC_ASSERT(version == wanted_[i]);
    }
  }

  Pages pages_;
  CacheRig rig_;
  std::optional<Block> writing_;
  std::size_t writing_page_ = 0;
  std::vector<Prefetch> plans_;
  std::array<int, kPages> wanted_{};
  std::array<bool, kPages> dirty_{};  // ever written through the cache
};

RC_GTEST_PROP(CacheWriteModelTest, RandomOperationsLoseNothingAndReadNothingOld, ()) {
  WriteModel model;
  for (int step = *rc::gen::inRange(1, 80); step > 0; --step) model.step();
  model.finish();
}

}  // namespace
}  // namespace headrace
