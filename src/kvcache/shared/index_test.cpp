// SPDX-License-Identifier: Apache-2.0
#include "kvcache/shared/index.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>

#include "headrace/random.h"

namespace headrace::kvcache {
namespace {

constexpr std::uint64_t kSlots = 8;

std::unique_ptr<SharedIndex> index_of(std::uint64_t blocks) {
  return SharedIndex::make(
             {.blocks = blocks, .slots = kSlots, .slot_bytes = 4096, .block_bytes = 4096})
      .value();
}

TEST(SharedIndex, RandomOperations_AgreeWithAMap) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::uint64_t blocks = 1 + random.below(12);
    const auto index = index_of(blocks);
    const SharedIndexView view = SharedIndexView::map(index->descriptor()).value();
    std::map<Key, std::optional<std::uint64_t>> model;
    for (unsigned step = 0; step < 200; ++step) {
      // Few buckets, so that blocks collide, and wrap around the end of the table.
      const Key key{random.below(4) * UINT64_MAX, random.below(6)};
      if (random.chance(0.6) && (model.contains(key) || model.size() < blocks)) {
        std::optional<std::uint32_t> slot;
        if (random.chance(0.7)) slot = static_cast<std::uint32_t>(random.below(kSlots));
        index->set(key, slot);
        model[key] = slot;
      } else {
        index->erase(key);
        model.erase(key);
      }
      for (std::uint64_t low = 0; low < 4; ++low) {
        for (std::uint64_t high = 0; high < 6; ++high) {
          const Key each{low * UINT64_MAX, high};
          const auto found = view.find(each);
          const auto expected = model.find(each);
          ASSERT_EQ(found.has_value(), expected != model.end());
          if (!found) continue;
          ASSERT_EQ(found->slot, expected->second);
          ASSERT_TRUE(view.unchanged(*found));
        }
      }
    }
  }
}

TEST(SharedIndex, BlockThatMoved_IsNoLongerUnchanged) {
  const auto index = index_of(4);
  const SharedIndexView view = SharedIndexView::map(index->descriptor()).value();
  index->set({1, 1}, 0);
  index->set({1, 2}, 1);
  const auto found = view.find({1, 1});
  index->erase({1, 1});
  EXPECT_FALSE(view.unchanged(*found));
  index->set({1, 1}, 0);
  EXPECT_FALSE(view.unchanged(*found));
}

TEST(SharedIndex, OtherProcess_CanNeitherWriteNorCutIt) {
  const auto index = index_of(4);
  const int file = index->descriptor();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(file, 0), 0);
  EXPECT_NE(::pwrite(file, "x", 1, 0), 1);
  void* const read = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(read, MAP_FAILED);
  EXPECT_NE(::mprotect(read, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(read, 4096);
}

TEST(SharedIndex, FileOfAnotherKind_IsRefused) {
  const int plain = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(plain, 8192), 0);
  EXPECT_EQ(SharedIndexView::map(plain).error().code, ErrorCode::invalid);  // not sealed
  ASSERT_EQ(::fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(SharedIndexView::map(plain).error().code, ErrorCode::invalid);  // no format
  ::close(plain);
  EXPECT_EQ(SharedIndexView::map(-1).error().code, ErrorCode::invalid);
}

TEST(SharedIndex, Closed_SaysSo) {
  const auto index = index_of(4);
  const SharedIndexView view = SharedIndexView::map(index->descriptor()).value();
  EXPECT_FALSE(view.closed());
  index->close();
  EXPECT_TRUE(view.closed());
}

// Bytes that only this block has.
void fill(std::span<std::byte> slot, const Key& key) {
  std::memset(slot.data(), static_cast<int>(1 + key.high), slot.size());
}

// Reads blocks until the index is closed. Returns an exit code.
int read_all(int index_file, int memory_file) {
  const SharedIndexView view = SharedIndexView::map(index_file).value();
  const MappedMemory memory = map_shared(memory_file).value();
  std::array<std::byte, 4096> block{};
  std::array<std::byte, 4096> expected{};
  std::uint64_t hits = 0;
  Random random(7);
  for (bool closed = false; !closed || hits == 0;) {
    closed = view.closed();
    const Key key{random.below(3), random.below(16)};
    const auto found = view.find(key);
    if (!found || !found->slot) continue;
    std::memcpy(block.data(), memory.memory() + *found->slot * 4096, block.size());
    if (!view.unchanged(*found)) continue;
    ++hits;
    fill(expected, key);
    if (block != expected) return 3;
  }
  return 0;
}

TEST(SharedIndex, ReadersBesideAWriter_NeverSeeATornOrAnotherBlock) {
  const auto index = index_of(kSlots);
  SealedMemory memory = SealedMemory::make(Bytes{kSlots * 4096}, Bytes{1}).value();
  const int index_file = ::dup(index->descriptor());  // a child has no descriptors of its parent's
  const int memory_file = ::dup(memory.file.get());
  std::array<pid_t, 2> readers{};
  for (pid_t& reader : readers) {
    reader = ::fork();
    if (reader == 0) ::_exit(read_all(index_file, memory_file));
  }
  std::array<std::optional<Key>, kSlots> held;
  Random random(1);
  for (unsigned n = 0; n < 200'000; ++n) {
    const std::uint64_t slot = random.below(kSlots);
    const Key key{random.below(3), random.below(16)};
    if (held[slot]) index->erase(*held[slot]);
    held[slot].reset();
    if (std::ranges::find(held, std::optional(key)) != held.end()) continue;
    fill({memory.mapping.memory() + slot * 4096, 4096}, key);
    index->set(key, static_cast<std::uint32_t>(slot));
    held[slot] = key;
  }
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {  // the last that readers find
    if (!held[slot]) continue;
    EXPECT_TRUE(SharedIndexView::map(index_file)->find(*held[slot]).has_value());
  }
  index->close();
  for (const pid_t reader : readers) {
    int status = 0;
    ASSERT_EQ(::waitpid(reader, &status, 0), reader);
    EXPECT_EQ(status, 0);
  }
  ::close(index_file);
  ::close(memory_file);
}

// Makes an index and memory, prints their descriptors to `ready`, and changes them until killed.
[[noreturn]] void write_until_killed(int ready) {
  const auto index = index_of(kSlots);
  SealedMemory memory = SealedMemory::make(Bytes{kSlots * 4096}, Bytes{1}).value();
  const std::array<int, 2> files{index->descriptor(), memory.file.get()};
  std::array<std::optional<Key>, kSlots> held;
  Random random(static_cast<std::uint64_t>(::getpid()));
  for (std::uint64_t n = 0;; ++n) {
    const std::uint64_t slot = random.below(kSlots);
    const Key key{random.below(3), random.below(16)};
    if (held[slot]) index->erase(*held[slot]);
    held[slot].reset();
    if (std::ranges::find(held, std::optional(key)) == held.end()) {
      fill({memory.mapping.memory() + slot * 4096, 4096}, key);
      index->set(key, static_cast<std::uint32_t>(slot));
      held[slot] = key;
    }
    if (n == 16) static_cast<void>(!::write(ready, files.data(), sizeof(files)));
  }
}

// Opens a descriptor of another process.
int open_of(pid_t process, int descriptor) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

TEST(SharedIndex, WriterThatIsKilled_LeavesOnlyWholeBlocks) {
  // HEADRACE_KILLS=10000 takes minutes.
  const char* const wanted = std::getenv("HEADRACE_KILLS");
  const unsigned kills = wanted == nullptr ? 200 : static_cast<unsigned>(std::atoi(wanted));
  Random random(3);
  std::array<std::byte, 4096> expected{};
  std::uint64_t found = 0;
  for (unsigned n = 0; n < kills; ++n) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const pid_t writer = ::fork();
    if (writer == 0) write_until_killed(pipe[1]);
    std::array<int, 2> files{};
    ASSERT_EQ(::read(pipe[0], files.data(), sizeof(files)), static_cast<ssize_t>(sizeof(files)));
    for (int& file : files) file = open_of(writer, file);
    for (std::uint64_t spin = random.below(100'000); spin > 0; --spin) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    ::kill(writer, SIGKILL);
    ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
    const SharedIndexView view = SharedIndexView::map(files[0]).value();
    const MappedMemory memory = map_shared(files[1]).value();
    for (std::uint64_t i = 0; i < 3 * 16UL; ++i) {
      const Key key{i / 16, i % 16};
      const auto block = view.find(key);
      if (!block || !view.unchanged(*block)) continue;
      fill(expected, key);
      ASSERT_TRUE(std::ranges::equal(
          expected, std::span(memory.memory() + *block->slot * 4096, expected.size())));
      ++found;
    }
    for (const int file : {pipe[0], pipe[1], files[0], files[1]}) ::close(file);
  }
  std::printf("index: %u kills, %llu blocks compared\n", kills,
              static_cast<unsigned long long>(found));
  EXPECT_GT(found, kills);
}

}  // namespace
}  // namespace headrace::kvcache
