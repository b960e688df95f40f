// SPDX-License-Identifier: Apache-2.0
// Histories of real threads under faults: no read is stale, and no write is lost. `make soak` runs
// HEADRACE_HISTORY operations of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "headrace/storage/user_source.h"
#include "tests/support/cache_rig.h"
#include "tests/support/folder.h"
#include "tests/support/versioned.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kCell = 512;
constexpr std::uint64_t kCells = 32;
constexpr std::size_t kWorkers = 4;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

void fill(std::span<std::byte> page, unsigned version) {
  for (std::size_t at = 0; at < page.size(); at += 4) std::memcpy(&page[at], &version, 4);
}

// Pages of versions, which threads read and write, and the counts of that.
class History {
 public:
  explicit History(const char* name) : name_(name), pages_(kCells) {}

  Versioned<std::atomic<unsigned>>& page(std::uint64_t index) { return pages_[index]; }
  // Checks pages that were read from page `first` on. `least`: begin_read() of each.
  void read(std::uint64_t first, std::span<const unsigned> least,
            std::span<const std::byte> bytes) {
    for (std::uint64_t i = 0; i < least.size(); ++i) {
      const unsigned version = version_of(bytes.subspan(i * kCell, kCell));
      if (const char* const wrong = page(first + i).end_read(least[i], version)) {
        ++wrong_;
        ADD_FAILURE() << name_ << ", page " << first + i << ", version " << version << ": "
                      << wrong;
      }
    }
  }
  // The version of all bytes of a page.
  unsigned version_of(std::span<const std::byte> page) {
    unsigned version = 0;
    std::memcpy(&version, page.data(), 4);
    for (std::size_t at = 0; at < page.size(); at += 4) {
      if (std::memcmp(&page[at], &version, 4) == 0) continue;
      ++wrong_;
      ADD_FAILURE() << name_ << ": a page has bytes of two versions";
      break;
    }
    return version;
  }
  void fault() { ++faults_; }

  // Runs threads that each call step(random, thread) until they have done `operations` together.
  void run(std::uint64_t operations, const std::function<void(Random&, std::size_t)>& step) {
    const std::uint64_t seed = from_environment("HEADRACE_SEED", 1);
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < kWorkers; ++thread) {
      threads.emplace_back([&, thread] {
        Random random(seed * kWorkers + thread);
        for (std::uint64_t i = 0; i < operations / kWorkers && wrong_ == 0; ++i) {
          step(random, thread);
        }
      });
    }
    threads.clear();
    std::printf("%s: %llu operations, %llu faults, %llu stale or torn, seed %llu\n", name_,
                static_cast<unsigned long long>(operations),
                static_cast<unsigned long long>(faults_.load()),
                static_cast<unsigned long long>(wrong_.load()),
                static_cast<unsigned long long>(seed));
    EXPECT_GT(faults_, 0u);
  }

 private:
  const char* const name_;
  std::vector<Versioned<std::atomic<unsigned>>> pages_;
  std::atomic<std::uint64_t> faults_{0};
  std::atomic<std::uint64_t> wrong_{0};
};

std::uint64_t operations() { return from_environment("HEADRACE_HISTORY", 4000); }

// begin_read() of `count` pages.
std::vector<unsigned> begin_read(History& history, std::uint64_t first, std::uint64_t count) {
  std::vector<unsigned> least;
  for (std::uint64_t i = 0; i < count; ++i) least.push_back(history.page(first + i).begin_read());
  return least;
}

CacheRig::Options failing(std::size_t shards) {
  CacheRig::Options options;
  options.fake.own_thread = true;
  options.fake.log = false;
  options.fake.fail_chance = 0.05;
  options.fake.partial_chance = 0.1;
  options.fake.inside_chance = 0.2;
  options.fake.reorder = true;
  options.cache.slab = 4096_B;
  options.cache.shards = shards;
  options.cache.writable = true;
  options.budget = Bytes{kCells / 2 * kCell * shards};
  options.observe = false;
  return options;
}

// Pages in memory, which are changed through the cache.
class Written {
 public:
  explicit Written(std::size_t shards)
      : source_(kCells * kCell), rig_(failing(shards)), budget_(kCells / 2 * kCell * shards) {
    std::ranges::fill(source_.bytes(), std::byte{0});
  }

  void run() {
    history_.run(operations(), [this](Random& random, std::size_t) { step(random); });
    // Copies go on to fail now and then.
    for (int i = 0; i < 1000 && !cache().write_back(); ++i) {
    }
    for (std::uint64_t i = 0; i < kCells; ++i) {
      const unsigned left = history_.version_of({source_.at(i * kCell, kCell).memory(), kCell});
      EXPECT_EQ(left, history_.page(i).begun()) << "page " << i << " lost a write";
    }
    EXPECT_EQ(cache().stats().bytes_dirty, 0_B);
    EXPECT_EQ(cache().stats().bytes_pinned, 0_B);
  }

 private:
  Cache& cache() { return *rig_.cache; }
  Extent pages(std::uint64_t first, std::uint64_t count) {
    return source_.at(first * kCell, count * kCell);
  }
  void step(Random& random) {
    const std::uint64_t index = random.below(kCells);
    switch (random.below(40)) {
      case 0: return check(cache().write_back());
      case 1: return check(cache().write_back({.extent = pages(index, 1)}));
      case 2: return check(cache().sync());
      case 3: return (void)cache().invalidate(pages(index, 1));
      case 4: return cache().flush();
      case 5: return (void)cache().resize(kDram, Bytes{budget_ * random.below(9) / 8});  // also 0
      case 6: return plan(index);
      case 7: return copy_out(index, 1 + random.below(kCells - index));
      default: break;
    }
    if (random.chance(0.4)) return write(index);
    read(index, random.chance(0.1) ? 1 + random.below(std::min(kCells - index, 3UL)) : 1);
  }
  void check(const Status& status) {
    if (!status) history_.fault();
  }
  void write(std::uint64_t index) {
    Block block = cache().access(pages(index, 1), {.write = true});
    const auto bytes = block.wait_to_write();
    if (!bytes) return history_.fault();
    const unsigned last = history_.page(index).begun();
    EXPECT_EQ(history_.version_of(*bytes), last) << "a writer of page " << index;
    const unsigned version = history_.page(index).begin_write();
    fill(*bytes, version);
    block = {};
    history_.page(index).end_write(version);
  }
  void read(std::uint64_t index, std::uint64_t count) {
    const auto least = begin_read(history_, index, count);
    const Block block = cache().access(pages(index, count));
    const auto bytes = block.wait();
    if (!bytes) return history_.fault();
    history_.read(index, least, *bytes);
  }
  void copy_out(std::uint64_t index, std::uint64_t count) {
    const auto least = begin_read(history_, index, count);
    std::vector<std::byte> bytes(count * kCell);
    if (!cache().read(pages(index, count), bytes, {.block = Bytes{kCell}})) return history_.fault();
    history_.read(index, least, bytes);
  }
  void plan(std::uint64_t index) {
    std::vector<Extent> extents;
    for (std::uint64_t i = index; i < kCells; i += 3) extents.push_back(pages(i, 1));
    const Prefetch ahead = cache().prefetch(extents, {.window = Bytes{4 * kCell}});
    read(index, 1);
  }

  History history_{"writes"};
  Source source_;
  CacheRig rig_;
  const std::uint64_t budget_;
};

TEST(CacheHistoryTest, WritesReadsAndWriteBacksUnderFaults_AreLinearizable) { Written(1).run(); }

TEST(CacheHistoryTest, WritesReadsAndWriteBacksInShards_AreLinearizable) { Written(4).run(); }

// Pages that are changed behind the cache, whose reads fail or are short now and then.
class Changed final : public UserSource {
 public:
  Changed(NodeId node, Bytes chunk) : UserSource(Bytes{kCells * kCell}, node, "", chunk) {}

  void change(std::uint64_t page, unsigned version) {
    const std::lock_guard lock(mutex_);
    versions_[page] = version;
  }
  Result<Bytes> read(std::uint64_t offset, std::span<std::byte> to) override {
    const std::lock_guard lock(mutex_);
    for (std::uint64_t at = 0; at < to.size(); at += kCell) {
      fill(to.subspan(at, kCell), versions_[(offset + at) / kCell]);
    }
    const std::uint64_t kind = random_.below(20);
    if (kind == 0) return fail(ErrorCode::io, "a fault");
    return Bytes{kind == 1 ? to.size() - 1 : to.size()};
  }

 private:
  std::mutex mutex_;
  std::array<unsigned, kCells> versions_{};
  Random random_{1};
};

struct Accesses {
  std::uint64_t most;       // pages of an extent
  bool overlap = false;     // else each page is read by one extent
  std::uint64_t chunk = 1;  // bytes
};

// Until invalidate() returns, copies of overlapping extents may have a page before and after its
// change. So their reads are compared with the changes that ended, not with each other.
void change_and_invalidate(std::size_t shards, const Accesses& accesses) {
  const TestFolder folder;
  const Machine machine =
      *Machine::discover({.gpu_driver = false, .storage = {folder.root().string()}});
  const Backends backends = *Backends::open(machine);
  Mover mover(machine, backends);
  const NodeId dram = machine.of_kind(NodeKind::dram).front()->id;
  Changed source(machine.of_kind(NodeKind::storage).front()->id, Bytes{accesses.chunk});
  const auto cache = *Cache::create(mover, {.budgets = {{dram, Bytes{8192 * shards}}},
                                            .placement = place::always(dram),
                                            .slab = 4096_B,
                                            .shards = shards});
  History history(accesses.overlap ? "changes of overlapping extents" : "changes");
  std::array<std::mutex, kCells> writers;
  const std::uint64_t most = accesses.most;
  history.run(operations(), [&](Random& random, std::size_t) {
    const std::uint64_t first =
        accesses.overlap ? random.below(kCells) : random.below(kCells / most) * most;
    const std::uint64_t count =
        accesses.overlap ? 1 + random.below(std::min(kCells - first, most)) : most;
    if (random.chance(0.2)) {
      const std::uint64_t index = first + random.below(count);
      const std::lock_guard lock(writers[index]);
      const unsigned version = history.page(index).begin_write();
      source.change(index, version);
      cache->invalidate({&source, index * kCell, Bytes{kCell}});
      history.page(index).end_write(version);
      return;
    }
    if (random.chance(0.01)) cache->flush();
    auto least = begin_read(history, first, count);
    for (std::uint64_t i = 0; accesses.overlap && i < count; ++i) {
      least[i] = history.page(first + i).written();
    }
    const Block block = cache->access({&source, first * kCell, Bytes{count * kCell}});
    const auto bytes = block.wait();
    if (bytes) {
      history.read(first, least, *bytes);
    } else {
      history.fault();
    }
  });
  EXPECT_TRUE(cache->forget(source));
}

TEST(CacheHistoryTest, ChangesBehindTheCacheAndInvalidations_AreLinearizablePerExtent) {
  for (const std::size_t shards : {1, 4}) {
    for (const std::uint64_t most : {1, 3}) change_and_invalidate(shards, {.most = most});
  }
}

// Chunks of three pages, which stretches of the shards cut.
TEST(CacheHistoryTest, OverlappingExtents_AreNotOlderThanTheLastInvalidation) {
  for (const std::size_t shards : {1, 4}) {
    for (const std::uint64_t chunk : {std::uint64_t{1}, 3 * kCell}) {
      change_and_invalidate(shards, {.most = 3, .overlap = true, .chunk = chunk});
    }
  }
}

}  // namespace
}  // namespace headrace
