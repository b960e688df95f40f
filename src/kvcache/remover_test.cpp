// SPDX-License-Identifier: Apache-2.0
#include "kvcache/remover.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "kvcache/kvcache_testing.h"

namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file, and its contents at the last fdatasync(): the least that a power failure leaves.
struct OnDisk {
  std::filesystem::path path;
  std::string synced;
  bool fails = false;  // fdatasync() does
  unsigned syncs = 0;
};
std::vector<OnDisk> watched;  // NOLINT(cert-err58-cpp)

}  // namespace

// In place of the C library's.
extern "C" int fdatasync(int file) {
  struct stat one{};
  struct stat other{};
  for (OnDisk& each : watched) {
    if (fstat(file, &one) != 0 || stat(each.path.c_str(), &other) != 0) continue;
    if (one.st_ino != other.st_ino) continue;
    ++each.syncs;
    if (each.fails) {
      errno = EIO;
      return -1;
    }
    each.synced = contents(each.path);
  }
  return static_cast<int>(syscall(SYS_fdatasync, file));
}

namespace headrace {
namespace {

using namespace test;

struct KvRemoving : testing::Test {
  void SetUp() override {
    rig.open({4}, 16);
    keys = kvcache::keys(rig.geometry, tokens(4 * 8));
    for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
    rig.settle();
  }
  // Which keys are there, as digits 0 and 1.
  std::string there() const {
    std::string result;
    for (const bool one : rig.store->contains(keys)) result += one ? '1' : '0';
    return result;
  }
  // From now on, the files on disk are those of the last fdatasync().
  void watch() const {
    for (const char* const name : {"blocks", "index"}) {
      OnDisk& file = watched.emplace_back();
      file.path = rig.folder.path / name;
      file.synced = contents(file.path);
    }
  }
  void lose_power() {
    rig.store.reset();
    for (const OnDisk& file : watched) std::ofstream(file.path, std::ios::binary) << file.synced;
    watched = {};
    rig.open({4}, 16);
  }

  KvRig rig;
  std::vector<kvcache::Key> keys;
};

TEST_F(KvRemoving, WhatIsRemovedIsNotFoundInAnyTierNorByTheNextProcess) {
  ASSERT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(there(), "11111111");
  const std::vector<kvcache::Key> some = {keys[1], keys[6], kvcache::Key{1, 2}, keys[6]};
  EXPECT_EQ(rig.store->remove(some).value(), 2u);
  EXPECT_EQ(there(), "10111101");
  EXPECT_EQ(rig.store->match(keys).size(), 1u);
  EXPECT_EQ(rig.get({&keys[6], 1}).error().code, ErrorCode::absent);
  ASSERT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 6u);
  rig.open({4}, 16);
  EXPECT_EQ(rig.store->stats().reopened, 6u);
  EXPECT_EQ(there(), "10111101");
  ASSERT_EQ(rig.put({&keys[1], 1})->stored, 1u);  // the key may be stored again
  EXPECT_TRUE(rig.get({&keys[1], 1}).has_value());
}

TEST_F(KvRemoving, ClearsAll) {
  ASSERT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->clear().value(), 8u);
  EXPECT_EQ(there(), "00000000");
  ASSERT_TRUE(rig.store->flush().has_value());
  for (const kvcache::TierStats& tier : rig.store->stats().tiers) EXPECT_EQ(tier.blocks, 0u);
  rig.open({4}, 16);
  EXPECT_EQ(rig.store->stats().reopened, 0u);
}

// A flush waits for no headers that were removed after it began.
TEST(KvRemovals, InOrder_SoThatNoneWaitsForLaterOnes) {
  KvRig rig;
  rig.open({}, 200);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 192));
  ASSERT_EQ(rig.put(keys)->stored, keys.size());
  rig.files->held = true;
  for (std::size_t first = 0; first < keys.size(); first += 64) {  // batches
    ASSERT_EQ(rig.store->remove(std::span(keys).subspan(first, 64)).value(), 64u);
    rig.poll();
  }
  for (int batch = 0; batch < 2; ++batch) {
    rig.files->release();
    rig.files->held = true;
    rig.poll();
  }
  KvRig next;
  std::filesystem::copy(rig.folder.path, next.folder.path,
                        std::filesystem::copy_options::recursive);
  next.open({}, 200);
  const auto found = next.store->contains(keys);
  EXPECT_EQ(std::count(found.begin(), found.begin() + 128, true), 0);
  EXPECT_EQ(std::count(found.begin() + 128, found.end(), true), 64);
  rig.files->release();
}

// A block that left a slot which was not reused would be found after reopening.
TEST(KvRemovals, TakeWhatHasLeftButIsStillListed) {
  KvRig rig;
  rig.open({2}, 2);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
  for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.settle();
  rig.open({2}, 2);
  ASSERT_EQ(rig.store->stats().reopened, 2u);
  // An error of the disk frees its slot, and keeps its header.
  rig.files->fail_chance = 1;
  for (const kvcache::Key& key : keys) (void)rig.get({&key, 1}, {.promote = false});
  rig.files->fail_chance = 0;
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 0u);
  EXPECT_EQ(rig.store->remove(keys).value(), 0u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open({2}, 2);
  EXPECT_EQ(rig.store->stats().reopened, 0u);
}

TEST_F(KvRemoving, WhatIsHeldIsGoneFromTheTablesAndLetGoLater) {
  std::vector<std::byte> bytes(keys.size() * rig.geometry.block().value);
  const MemoryRange memory(bytes, kDram);
  kvcache::Match held = rig.store->match(keys);
  ASSERT_EQ(held.size(), 8u);
  rig.fake->hold(true);
  const auto load = rig.store->load(keys, whole(memory));
  ASSERT_TRUE(load.has_value());
  const std::uint64_t before = rig.store->stats().tiers[1].blocks;
  EXPECT_EQ(rig.store->remove(keys).value(), 8u);
  EXPECT_EQ(rig.store->remove(keys).value(), 0u);
  EXPECT_EQ(there(), "00000000");
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
  EXPECT_GE(rig.store->stats().tiers[1].blocks, before);
  EXPECT_EQ(rig.put({&keys[0], 1})->refused, 1u);
  rig.fake->hold(false);
  EXPECT_TRUE(load->wait().has_value());  // ends as if nothing was removed
  EXPECT_EQ(bytes, rig.blocks_of(keys));
  held = {};
  ASSERT_TRUE(rig.store->flush().has_value());
  for (const kvcache::TierStats& tier : rig.store->stats().tiers) EXPECT_EQ(tier.blocks, 0u);
  EXPECT_EQ(rig.put({&keys[0], 1})->stored, 1u);
}

TEST_F(KvRemoving, WhatIsOnItsWayDoesNotArrive) {
  const auto others = kvcache::keys(rig.geometry, tokens(4 * 4, 1000));
  std::vector<std::byte> right = rig.blocks_of(others);
  const MemoryRange from(right, kDram);
  rig.files->held = true;
  rig.fake->hold(true);
  const auto stored = rig.store->store(others, whole(from));
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(rig.store->remove(others).value(), 4u);
  EXPECT_EQ(rig.store->remove(keys).value(), 8u);  // some are being written to the folder
  rig.files->release();
  rig.fake->hold(false);
  ASSERT_TRUE(stored->wait().has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  for (const bool one : rig.store->contains(others)) EXPECT_FALSE(one);
  for (const kvcache::TierStats& tier : rig.store->stats().tiers) EXPECT_EQ(tier.blocks, 0u);
  rig.open({4}, 16);
  EXPECT_EQ(rig.store->stats().reopened, 0u);
}

// A slot set aside on a full disk has the header of the block that did not arrive.
TEST(KvRemovals, TakeWhatAFullDiskDidNotTake) {
  KvRig rig;
  rig.open({6}, 8);
  rig.files->room = 2 * 4096;
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 6));
  ASSERT_EQ(rig.put(keys)->stored, 6u);
  ASSERT_EQ(rig.store->flush().error().code, ErrorCode::io);
  EXPECT_EQ(rig.store->remove(keys).value(), 6u);
  rig.settle();
  for (const kvcache::TierStats& tier : rig.store->stats().tiers) EXPECT_EQ(tier.blocks, 0u);
  // The disk still has no space for them: three blocks leave memory for slots that have space.
  rig.files->writes = 0;
  const auto others = kvcache::keys(rig.geometry, tokens(4 * 9, 1000));
  for (const kvcache::Key& key : others) {
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  EXPECT_EQ(rig.files->writes, 6u);
  EXPECT_EQ(rig.store->clear().value(), 8u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open({6}, 8);
  EXPECT_EQ(rig.store->stats().reopened, 0u);
}

// Without remove(), blocks that the disk did not accept stay in memory.
TEST_F(KvRemoving, WhatAFullDiskDoesNotTakeIsGoneToo) {
  rig.files->room = 4 * 4096;
  rig.files->held = true;
  const auto others = kvcache::keys(rig.geometry, tokens(4 * 2, 1000));
  std::vector<std::byte> right = rig.blocks_of(others);
  const MemoryRange from(right, kDram);
  const auto stored = rig.store->store(others, whole(from));  // two are evicted
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(rig.store->remove(keys).value(), 8u);
  rig.files->release();
  EXPECT_EQ(stored->wait()->stored, 2u);
  rig.settle();
  EXPECT_NE(rig.store->stats().last_error.find("no space left"), std::string::npos);
  EXPECT_EQ(rig.store->stats().failed, 0u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 2u);
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 0u);
  EXPECT_EQ(rig.store->match(others).size(), 2u);
  EXPECT_EQ(there(), "00000000");
}

TEST_F(KvRemoving, AListThatCannotBeWrittenIsCounted) {
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.files->fail_chance = 1;
  EXPECT_EQ(rig.store->remove({&keys[0], 1}).value(), 1u);
  rig.settle();
  EXPECT_EQ(rig.store->stats().failed, 1u);
  EXPECT_EQ(there()[0], '0');
}

TEST_F(KvRemoving, AListThatCannotBeWritten_FailsFlushUntilItIs) {
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.files->fail_chance = 1;
  EXPECT_EQ(rig.store->remove({&keys[0], 1}).value(), 1u);
  rig.settle();
  EXPECT_EQ(rig.store->flush().error().code, ErrorCode::io);
  rig.files->fail_chance = 0;
  EXPECT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->stats().failed, 1u);
  rig.open({4}, 16);
  EXPECT_EQ(there(), "01111111");
}

TEST_F(KvRemoving, AClosedStoreHoldsNothingAndItsFolderOpensAtOnce) {
  ASSERT_TRUE(rig.store->flush().has_value());
  std::vector<std::byte> bytes(keys.size() * rig.geometry.block().value);
  const MemoryRange memory(bytes, kDram);
  {
    const kvcache::Match held = rig.store->match(keys);
    ASSERT_EQ(rig.store->remove({&keys[0], 1}).value(), 1u);  // pinned, and removed all the same
    rig.fake->hold(true);
    const auto load = rig.store->load(std::span(keys).subspan(1),
                                      whole(memory).part(0, rig.geometry.block() * 7));
    ASSERT_TRUE(load.has_value());
    rig.fake->hold(false);
    EXPECT_FALSE(rig.store->closed());
    EXPECT_TRUE(rig.store->close().has_value());
    EXPECT_TRUE(rig.store->close().has_value());
    EXPECT_TRUE(rig.store->closed());
    EXPECT_TRUE(load->done());
    load->cancel();
    load->urgent(0);
    auto other = kvcache::Store::open(*rig.mover, rig.options({4}, 16));
    ASSERT_TRUE(other.has_value()) << other.error().message;
    EXPECT_EQ((*other)->stats().reopened, 7u);
  }  // the match is destroyed after the tables
  EXPECT_EQ(there(), "00000000");
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 0u);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  EXPECT_EQ(rig.store->flush().error().code, ErrorCode::cancelled);
  EXPECT_EQ(rig.store->remove(keys).error().code, ErrorCode::cancelled);
  EXPECT_EQ(rig.store->clear().error().code, ErrorCode::cancelled);
  EXPECT_EQ(rig.store->store(keys, whole(memory)).error().code, ErrorCode::cancelled);
  EXPECT_EQ(rig.store->load(keys, whole(memory)).error().code, ErrorCode::cancelled);
  rig.store->poll();
}

// Copies that do not end keep the tiers, but do not block close().
TEST(KvClosing, WaitsNoLongerThanItIsTold) {
  KvRig rig({}, true);
  rig.worker = true;
  rig.open({2}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 3));
  ASSERT_EQ(rig.put(std::span(keys).first(2))->stored, 2u);
  rig.files->held = true;
  std::vector<std::byte> bytes = rig.blocks_of(keys);
  const MemoryRange memory(bytes, kDram);
  const auto stored = rig.store->store({&keys[2], 1}, whole(memory).part(0, rig.geometry.block()));
  ASSERT_TRUE(stored.has_value());  // another block leaves for the folder, and does not get there

  constexpr Nanoseconds kSoon = std::chrono::milliseconds{10};
  const Error late = rig.store->close(kSoon).error();
  EXPECT_EQ(late.code, ErrorCode::timed_out);
  EXPECT_NE(late.message.find("still in flight"), std::string::npos) << late.message;
  EXPECT_TRUE(rig.store->closed());
  EXPECT_EQ(rig.store->store(keys, whole(memory)).error().code, ErrorCode::cancelled);
  EXPECT_EQ(kvcache::Store::open(*rig.mover, rig.options({2}, 8)).error().code, ErrorCode::denied);

  // A thread that waits for another thread's close() has its own timeout.
  std::atomic<bool> asked{false};
  std::atomic<bool> enough{false};
  std::thread other([&] {
    const Status closed = rig.store->close(kShutdownBound, [&] {
      asked = true;
      return enough.load();
    });
    EXPECT_EQ(closed.error().code, ErrorCode::cancelled);
  });
  while (!asked) std::this_thread::yield();
  const Error busy = rig.store->close(kSoon).error();
  EXPECT_EQ(busy.code, ErrorCode::timed_out);
  EXPECT_NE(busy.message.find("another thread"), std::string::npos) << busy.message;
  enough = true;
  other.join();

  rig.files->release();
  EXPECT_TRUE(rig.store->close().has_value());
  EXPECT_TRUE(stored->wait().has_value());
  rig.open({2}, 8);
  EXPECT_EQ(rig.store->stats().reopened, 1u);
}

// A close() whose `stop` threw does not block the next or a waiting close().
TEST(KvClosing, IsTakenOverFromOneThatThrew) {
  KvRig rig({}, true);
  rig.worker = true;
  rig.open({2}, 8);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 2));
  ASSERT_EQ(rig.put(keys)->stored, 2u);
  rig.files->held = true;
  std::atomic<bool> flushing{false};
  std::thread flush([&] {
    (void)rig.store->flush(kShutdownBound, [&] {
      flushing = true;
      return false;
    });
  });
  while (!flushing) std::this_thread::yield();
  std::atomic<bool> waiting{false};
  std::thread other;
  const auto closing = [&] {
    (void)rig.store->close(kShutdownBound, [&]() -> bool {
      if (!other.joinable()) {
        other = std::thread([&] {
          EXPECT_TRUE(rig.store
                          ->close(kShutdownBound,
                                  [&] {
                                    waiting = true;
                                    return false;
                                  })
                          .has_value());
        });
      }
      if (waiting) throw std::runtime_error("of the user");
      return false;
    });
  };
  EXPECT_THROW(closing(), std::runtime_error);
  rig.files->release();
  other.join();
  flush.join();
  EXPECT_TRUE(rig.store->close().has_value());
}

TEST_F(KvRemoving, PowerFailureAfterFlush_LosesNoBlock) {
  watch();
  ASSERT_TRUE(rig.store->flush().has_value());
  for (const OnDisk& file : watched) EXPECT_EQ(file.syncs, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());  // nothing has changed
  for (const OnDisk& file : watched) EXPECT_EQ(file.syncs, 1u);
  lose_power();
  EXPECT_EQ(there(), "11111111");
  EXPECT_TRUE(rig.get(keys).has_value());
  EXPECT_EQ(rig.store->stats().damaged, 0u);
}

// A process that was killed has not synced its writes. The flush of the next one does.
TEST_F(KvRemoving, PowerFailureAfterFlushOfTheNextProcess_LosesNoBlock) {
  watch();
  rig.settle();
  ASSERT_TRUE(rig.store->close().has_value());
  rig.open({4}, 16);
  ASSERT_TRUE(rig.store->flush().has_value());
  const std::string found = there();
  lose_power();
  EXPECT_EQ(there(), found);
  EXPECT_NE(found, "00000000");
}

TEST_F(KvRemoving, PowerFailureAfterFlush_LeavesBlocksRemoved) {
  ASSERT_TRUE(rig.store->flush().has_value());
  watch();
  EXPECT_EQ(rig.store->remove({&keys[1], 1}).value(), 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  EXPECT_EQ(rig.store->clear().value(), 7u);  // not flushed: may come back
  lose_power();
  EXPECT_EQ(there(), "10111111");
}

TEST_F(KvRemoving, PowerFailureAfterFlush_LeavesBlocksRemovedThatWereHeld) {
  ASSERT_TRUE(rig.store->flush().has_value());
  watch();
  kvcache::Match held = rig.store->match({&keys[0], 1});
  EXPECT_EQ(rig.store->remove({&keys[0], 1}).value(), 1u);
  ASSERT_TRUE(rig.store->flush().has_value());  // covers no block that is held
  held = {};
  ASSERT_TRUE(rig.store->flush().has_value());
  lose_power();
  EXPECT_EQ(there(), "01111111");
}

TEST_F(KvRemoving, PowerFailureAfterFlushThatCouldNotWriteABlock_LeavesBlocksRemoved) {
  ASSERT_TRUE(rig.store->flush().has_value());
  watch();
  EXPECT_EQ(rig.store->remove({&keys[1], 1}).value(), 1u);
  rig.settle();
  rig.files->room = 4096;
  ASSERT_EQ(rig.put(kvcache::keys(rig.geometry, tokens(4 * 3, 1000)))->stored, 3u);
  EXPECT_EQ(rig.store->flush().error().code, ErrorCode::io);
  lose_power();
  EXPECT_EQ(there(), "10111111");
}

// After a failed fdatasync(), Linux counts the pages as written: the next one succeeds.
TEST_F(KvRemoving, IndexThatDidNotReachTheDisk_FailsEachFlushUntilReopened) {
  ASSERT_TRUE(rig.store->flush().has_value());
  watch();
  watched[1].fails = true;
  EXPECT_EQ(rig.store->remove({&keys[1], 1}).value(), 1u);
  EXPECT_EQ(rig.store->flush().error().code, ErrorCode::io);
  watched[1].fails = false;
  const Status again = rig.store->flush();
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::io);
  EXPECT_NE(again.error().message.find("open it again"), std::string::npos)
      << again.error().message;
  watched = {};
  rig.open({4}, 16);
  EXPECT_EQ(rig.store->remove({&keys[2], 1}).value(), 1u);
  EXPECT_TRUE(rig.store->flush().has_value());
}

// Threads store, load, match, flush and remove while another thread closes.
TEST(KvClosing, MayComeAtAnyTime) {
  for (int round = 0; round < 5; ++round) {
    KvRig rig({}, true);
    rig.worker = true;
    rig.open({4}, 16);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 8));
    std::atomic<int> going{0};
    const auto use = [&](int what) {
      std::vector<std::byte> bytes = rig.blocks_of(keys);
      const MemoryRange memory(bytes, kDram);
      for (;;) {
        ++going;
        const kvcache::Match held = rig.store->match(keys);
        if (what == 0) {
          const auto stored = rig.store->store(keys, whole(memory));
          if (!stored) return;
          EXPECT_TRUE(stored->wait().has_value());
        } else if (what == 1) {
          const auto load = rig.store->load(held.keys(), whole(memory));
          if (!load && load.error().code == ErrorCode::cancelled) return;
          if (load) (void)load->wait();
        } else if (what == 2) {
          const Status flushed = rig.store->flush();
          if (!flushed && flushed.error().code == ErrorCode::cancelled) return;
        } else {
          (void)rig.store->stats();
          if (!rig.store->remove({&keys[7], 1})) return;
        }
      }
    };
    std::vector<std::thread> threads;
    for (int what = 0; what < 4; ++what) threads.emplace_back(use, what);
    while (going < 20 + 10 * round) std::this_thread::yield();
    EXPECT_TRUE(rig.store->close().has_value());
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace headrace
