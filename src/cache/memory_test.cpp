// What a block costs besides its bytes: everything the process allocates for it, counted.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/sanitizers.h"
#include "tests/support/cache_rig.h"

// ThreadSanitizer of clang has the operators new and delete itself.
#if !defined(HEADRACE_TSAN)

namespace {
std::atomic<std::int64_t> live_bytes{0};

void* counted(std::size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  // The allocator's own header of 8 bytes counts too.
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory) + 8);
  return memory;
}

void discount(void* memory) {
  if (memory == nullptr) return;
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory) + 8);
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { discount(memory); }
void operator delete[](void* memory) noexcept { discount(memory); }
void operator delete(void* memory, std::size_t) noexcept { discount(memory); }
void operator delete[](void* memory, std::size_t) noexcept { discount(memory); }

namespace headrace {
namespace {

using namespace test;

TEST(CacheMemoryTest, ABlockCostsAtMost128BytesBesideItsOwn) {
  FakeOptions fake;
  fake.log = false;
  fake.inside_chance = 1;
  constexpr std::uint64_t kBlock = 192;
  Source source(42000 * kBlock);
  CacheRig rig({.fake = fake, .cache = {.reserve = true}, .budget = 16_MiB});
  rig.record = false;
  const auto load = [&](std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i < last; ++i) {
      (void)rig.cache->access(source.at(i * kBlock, kBlock));
    }
    rig.settle();
  };
  load(0, 100);  // what is allocated once
  // Just after the index grew is its worst moment; 41000 is just beyond 5/4 * 2^15.
  for (const std::uint64_t blocks : {20000U, 41000U}) {
    rig.cache->flush();
    EXPECT_EQ(rig.cache->stats().blocks, 0u);
    const std::int64_t before = live_bytes;
    load(0, blocks);
    const CacheStats stats = rig.cache->stats();
    ASSERT_EQ(stats.blocks, blocks);
    const double each = static_cast<double>(live_bytes - before) / static_cast<double>(blocks);
    EXPECT_LE(each, 128.0);
    EXPECT_GE(each, 64.0) << "is anything counted?";
    // Holes between blocks are described in the holes themselves.
    for (std::uint64_t i = 0; i < blocks; i += 2) rig.cache->invalidate(source.at(i * kBlock, 1));
    // Entries stay for other blocks (readers.h).
    const double halved = static_cast<double>(live_bytes - before) / static_cast<double>(blocks);
    EXPECT_LE(halved, 128.0);
  }
}

}  // namespace
}  // namespace headrace

#endif  // !HEADRACE_TSAN
