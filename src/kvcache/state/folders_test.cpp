// SPDX-License-Identifier: Apache-2.0
// Several folders in one tier.
#include "kvcache/state/folders.h"

#include <algorithm>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

struct KvFolders : testing::Test {
  // Memory of `memory` blocks, and folders of 8, 16 and 8 blocks.
  kvcache::StoreOptions options(std::size_t memory, std::vector<unsigned> disks = {0, 1, 2}) const {
    auto made = rig.options(memory == 0 ? std::vector<std::size_t>{} : std::vector{memory}, 1);
    kvcache::TierOptions& tier = made.tiers.back();
    for (std::size_t i = 0; i < disks.size(); ++i) {
      const Bytes budget = rig.slot * (disks[i] == 1 ? 16 : 8);
      if (i == 0) {
        tier.folder = path(disks[i]);
        tier.budget = budget;
      } else {
        tier.more_folders.push_back({path(disks[i]), budget});
      }
    }
    return made;
  }
  std::filesystem::path path(unsigned disk) const {
    return rig.folder.path / ("disk" + std::to_string(disk));
  }
  ino_t inode(unsigned disk) const {
    struct stat status{};
    EXPECT_EQ(stat((path(disk) / "blocks").c_str(), &status), 0);
    return status.st_ino;
  }
  // How many slots of the disk have blocks, when it is opened alone.
  std::uint64_t blocks_on(unsigned disk) {
    rig.open(options(0, {disk}));
    const std::uint64_t found = rig.store->stats().reopened;
    EXPECT_TRUE(rig.get(rig.store->pin(keys).keys()).has_value());
    return found;
  }
  // Writes take 11 s, and fail.
  void fail_slowly() {
    rig.files->held = true;
    rig.store->poll();
    clock.advance(std::chrono::seconds{11});
    rig.files->release();
    rig.files->held = true;
    rig.store->poll();
  }
  std::size_t there() const {
    return static_cast<std::size_t>(std::ranges::count(rig.store->contains(keys), true));
  }

  ManualClock clock;
  KvRig rig{{.clock = &clock}};
  const std::vector<kvcache::Key> keys = kvcache::keys(rig.geometry, tokens(4 * 64));
};

TEST_F(KvFolders, ShareBlocksByBudget_AndOpenWithoutTheOthers) {
  rig.open(options(0));
  ASSERT_EQ(rig.store->stats().tiers[0].budget, rig.slot * 32);
  ASSERT_EQ(rig.put(std::span(keys).first(16))->stored, 16u);
  EXPECT_TRUE(rig.get(std::span(keys).first(16)).has_value());
  EXPECT_EQ(blocks_on(0), 4u);
  EXPECT_EQ(blocks_on(1), 8u);
  EXPECT_EQ(blocks_on(2), 4u);
  rig.open(options(0, {2, 0, 1}));  // in another order
  EXPECT_EQ(rig.store->stats().reopened, 16u);
  EXPECT_TRUE(rig.get(std::span(keys).first(16)).has_value());
  ASSERT_EQ(rig.put(std::span(keys).subspan(16))->stored, 48u);
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 32u);
  EXPECT_EQ(rig.store->pin(std::span(keys).last(32)).size(), 32u);
}

// A block that two folders list, since it was written while one of them was away.
TEST_F(KvFolders, OfTwoHeadersOfABlock_TheYoungerCounts) {
  rig.open(options(0, {0}));
  std::vector<std::byte> old(rig.bytes_of(4).value);  // not the right bytes
  const MemoryRange memory(old, kDram);
  for (std::size_t i = 4; i-- > 0;) {  // the first key has the largest number
    const Extent from = whole(memory).part(0, rig.geometry.block());
    ASSERT_EQ(rig.store->store({&keys[i], 1}, from)->wait()->stored, 1u);
  }
  rig.open(options(0, {1, 2}));
  ASSERT_EQ(rig.put(std::span(keys).first(4))->stored, 4u);
  rig.open(options(0));
  EXPECT_EQ(rig.store->stats().reopened, 4u);
  EXPECT_TRUE(rig.get(std::span(keys).first(4)).has_value());
  ASSERT_EQ(*rig.store->remove(keys), 4u);  // in both
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open(options(0));
  EXPECT_EQ(rig.store->stats().reopened, 0u);
}

// A process was killed after it had stored a removed block anew, in a folder with fewer writes.
TEST_F(KvFolders, OfTwoHeadersOfOneProcess_TheYoungerCounts) {
  const kvcache::TierOptions tier = options(0).tiers[0];
  const std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).first(1));
  {
    auto folders = kvcache::Folders::open(*rig.mover, tier, rig.geometry, kDram).value();
    const auto describe = [&](std::uint32_t slot) {
      const auto size = static_cast<std::uint32_t>(bytes.size());
      folders->describe(slot, keys[0], {0, size, folders->next_sequence()}, bytes);
    };
    for (int i = 0; i < 5; ++i) describe(0);
    describe(8);  // the first slot of the second folder
    for (const std::uint32_t slot : {0U, 8U}) {
      const MovePair header = folders->header(slot);
      ASSERT_TRUE(rig.mover->copy(header.to, header.from).wait().has_value());
    }
  }
  auto folders = kvcache::Folders::open(*rig.mover, tier, rig.geometry, kDram).value();
  const auto found = folders->take_found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].slot, 8u);
}

TEST_F(KvFolders, LostDisk_CostsItsBlocksOnly) {
  for (const std::size_t memory : {std::size_t{0}, std::size_t{2}}) {
    std::filesystem::remove_all(rig.folder.path);
    std::filesystem::create_directory(rig.folder.path);
    rig.open(options(memory));
    const auto first = std::span(keys).first(16);
    ASSERT_EQ(rig.put(first)->stored, 16u);
    rig.settle();
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open(options(memory));
    rig.files->lost = inode(1);  // has half of them
    std::size_t right = 0;
    for (const kvcache::Key& key : first) right += rig.get({&key, 1}) ? 1 : 0;
    EXPECT_EQ(right, 8u);
    EXPECT_EQ(rig.store->stats().damaged, 8u);
    // No store fails: a block that its disk did not take goes to another.
    for (const kvcache::Key& key : std::span(keys).subspan(16, 30)) {
      EXPECT_EQ(rig.put({&key, 1})->stored, 1u);
      rig.settle();
    }
    EXPECT_EQ(there(), 16u + memory);  // the other disks are full
    EXPECT_FALSE(rig.store->stats().last_error.empty());
    rig.files->lost = 0;
    clock.advance(std::chrono::seconds{10});  // it is tried again
    for (const kvcache::Key& key : std::span(keys).subspan(32)) {
      EXPECT_EQ(rig.put({&key, 1})->failed, 0u);
      rig.settle();
    }
    EXPECT_TRUE(rig.store->flush().has_value());
    EXPECT_GE(there(), 31u);
    rig.open(options(memory, {1}));  // the disk that was lost
    EXPECT_GT(rig.store->stats().reopened, 8u);
    EXPECT_TRUE(rig.get(rig.store->pin(keys).keys()).has_value());
  }
}

// It is tried again every 10 s.
TEST_F(KvFolders, LostDisk_CostsNoBlockInMemory) {
  rig.open(options(4));
  rig.files->lost = inode(1);
  for (const kvcache::Key& key : std::span(keys).first(16)) {
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
    clock.advance(std::chrono::seconds{4});
  }
  EXPECT_EQ(there(), 16u);
  EXPECT_EQ(rig.store->stats().failed, 0u);
  EXPECT_TRUE(rig.store->flush().has_value());
  rig.open(options(4, {0, 2}));
  EXPECT_EQ(rig.store->stats().reopened, 16u);
}

TEST_F(KvFolders, LostDisk_IsNotWrittenToWhileItIsClosed) {
  rig.open(options(0));
  rig.files->lost = inode(1);  // the emptiest
  for (const kvcache::Key& key : std::span(keys).first(8)) {
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  EXPECT_LE(rig.files->lost_writes.load(), 3u);  // a block, its header, and that once more
}

// Every 10 s one slot of it is tried, and none of its blocks leaves for more.
TEST_F(KvFolders, LostDisk_IsTriedWithOneBlock) {
  rig.open(options(0));
  ASSERT_EQ(rig.put(std::span(keys).first(32))->stored, 32u);
  rig.files->lost = inode(1);  // all its slots have blocks
  std::size_t next = 32;
  for (int round = 0; round < 3; ++round) {
    clock.advance(std::chrono::seconds{10});
    const auto errors = rig.files->lost_writes.load();
    ASSERT_EQ(rig.put(std::span(keys).subspan(next, 8))->stored, 8u);
    next += 8;
    rig.settle();
    // Several of the first blocks are under way before the first error.
    const std::uint64_t most = round == 0 ? 16 : 2;  // a block and its header
    EXPECT_LE(rig.files->lost_writes.load() - errors, most);
  }
  EXPECT_GE(rig.store->stats().tiers[0].blocks, 20u);  // its own stay for the most part
  rig.files->lost = 0;
  clock.advance(std::chrono::seconds{10});
  ASSERT_EQ(rig.put(std::span(keys).subspan(next, 8))->stored, 8u);
  EXPECT_EQ(rig.store->stats().stores.failed, 0u);
}

// Each disk takes long to fail: a store that went from disk to disk would never end.
TEST_F(KvFolders, DisksThatFailSlowly_EndAStoreWithinAMinuteOfTrying) {
  rig.open(options(0));
  rig.files->unwritable = true;
  const std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).first(2));
  std::vector<std::byte> copy = bytes;
  const MemoryRange memory(copy, kDram);
  const auto store = [&](std::size_t i) {
    return *rig.store->store({&keys[i], 1},
                             whole(memory).part(rig.bytes_of(i).value, rig.geometry.block()));
  };
  rig.files->held = true;
  const kvcache::Stored first = store(0);
  for (int i = 0; i < 6; ++i) fail_slowly();
  EXPECT_FALSE(first.done());  // it is tried on other disks, and again
  for (int i = 0; i < 2; ++i) fail_slowly();
  EXPECT_EQ(first.poll(), (kvcache::StoredCounts{.failed = 1}));
  rig.files->release();
  rig.files->unwritable = false;
  rig.settle();
  clock.advance(std::chrono::seconds{11});
  rig.store->poll();  // headers are overwritten, so no disk is left with a block that is not there
  EXPECT_EQ(store(1).wait()->stored, 1u);
  EXPECT_EQ(rig.store->contains(std::span(keys).first(2)), (std::vector{false, true}));
}

// A block that leaves memory is tried on each disk too, and a store waits for its slot.
TEST_F(KvFolders, DisksThatFailSlowly_EndAStoreThatWaitsForMemory) {
  rig.open(options(1));
  ASSERT_EQ(rig.put(std::span(keys).first(1))->stored, 1u);
  rig.files->unwritable = true;
  rig.files->held = true;
  std::vector<std::byte> bytes = rig.blocks_of(std::span(keys).subspan(1, 1));
  const MemoryRange memory(bytes, kDram);
  const auto second = rig.store->store(std::span(keys).subspan(1, 1), whole(memory));
  for (int i = 0; i < 5; ++i) fail_slowly();
  EXPECT_FALSE(second->done());
  for (int i = 0; i < 3; ++i) fail_slowly();
  EXPECT_EQ(second->poll(), (kvcache::StoredCounts{.stored = 1}));
  EXPECT_EQ(rig.store->stats().failed, 1u);
  rig.files->unwritable = false;
  rig.files->release();
}

// Such an error says nothing of the disk.
TEST_F(KvFolders, TimeOut_ClosesNoDisk) {
  rig.open(options(0));
  rig.files->lost = inode(1);
  rig.files->lost_by = ErrorCode::timed_out;
  const auto first = rig.put(std::span(keys).first(16));
  EXPECT_EQ(first->stored, 8u);
  EXPECT_EQ(first->failed, 8u);
  rig.files->lost = 0;
  rig.settle();
  EXPECT_EQ(rig.put(std::span(keys).first(16))->stored, 8u);
  EXPECT_EQ(blocks_on(1), 8u);
}

// flush() sends blocks that the disk did not take to the others.
TEST_F(KvFolders, FlushWithALostDisk_WritesToTheOthers) {
  rig.open(options(16));
  ASSERT_EQ(rig.put(std::span(keys).first(12))->stored, 12u);
  rig.files->lost = inode(1);
  const Status outcome = rig.store->flush();
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  rig.open(options(4, {0, 2}));
  EXPECT_EQ(rig.store->stats().reopened, 12u);
}

TEST_F(KvFolders, FullDisk_LeavesTheOthers) {
  rig.open(options(2));
  rig.files->lost = inode(1);
  rig.files->lost_by = ErrorCode::exhausted;
  for (const kvcache::Key& key : keys) {
    ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
    rig.settle();
  }
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 16u);
  EXPECT_EQ(rig.store->stats().tiers[0].dropped, 0u);
  EXPECT_EQ(rig.store->stats().failed, 0u);
  EXPECT_EQ(there(), 18u);
  rig.files->lost = 0;
  clock.advance(std::chrono::seconds{10});
  for (const kvcache::Key& key : keys) {
    (void)rig.put({&key, 1});
    rig.settle();
  }
  EXPECT_EQ(rig.store->stats().tiers[1].blocks, 32u);
}

TEST_F(KvFolders, OneThatIsOpenElsewhere_LeavesTheOthersUnchanged) {
  rig.open(options(0, {0}));
  ASSERT_EQ(rig.put(std::span(keys).first(8))->stored, 8u);
  rig.open(options(0, {1}));
  auto smaller = options(0, {0, 1});
  smaller.tiers[0].budget = rig.slot;
  EXPECT_EQ(kvcache::Store::open(*rig.mover, smaller).error().code, ErrorCode::denied);
  EXPECT_EQ(blocks_on(0), 8u);
}

TEST_F(KvFolders, OneFolderGivenTwice_IsRefused) {
  EXPECT_EQ(kvcache::Store::open(*rig.mover, options(0, {1, 1})).error().code, ErrorCode::denied);
  auto wrong = options(2);
  wrong.tiers[0].more_folders.push_back({path(3), rig.slot});
  EXPECT_EQ(kvcache::Store::open(*rig.mover, wrong).error().code, ErrorCode::invalid);
  wrong = options(2);
  wrong.tiers[1].more_folders[0].budget = 1_B;
  EXPECT_EQ(kvcache::Store::open(*rig.mover, wrong).error().code, ErrorCode::invalid);
  wrong.tiers[1].more_folders[0] = {"", rig.slot};
  EXPECT_EQ(kvcache::Store::open(*rig.mover, wrong).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
