// SPDX-License-Identifier: Apache-2.0
#include "tier/referenced.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "core/sanitizers.h"
#include "support/child.h"
#include "tests/support/expect.h"
#include "tier/planted_testing.h"
#include "tier/source.h"

namespace headrace {
namespace {

using test::expect_refused;

using std::chrono::milliseconds;
using test::kPage;
using test::Trackable;

constexpr Bytes kTestChunk = 64_KiB;

TEST(Chunks, OfAnEvenNumberHaveTheLastOneCutInTwo) {
  EXPECT_EQ(chunks_of(0x10000, 0x30000, 64_KiB, 0, 100).bounds,
            (std::vector<std::uintptr_t>{0x10000, 0x20000, 0x28000, 0x30000}));
  EXPECT_EQ(chunks_of(0x10000, 0x21000, 64_KiB, 0, 100).bounds,
            (std::vector<std::uintptr_t>{0x10000, 0x21000}))
      << "a page cannot be cut: it goes with the one before";
  EXPECT_EQ(chunks_of(0x10000, 0x11000, 64_KiB, 0, 100).bounds,
            (std::vector<std::uintptr_t>{0x10000, 0x11000}));
}

TEST(Chunks, KeepHugePagesWholeAndWithinTheMappingsThatAreLeft) {
  const auto huge = chunks_of(0, 64 << 20, 64_KiB, 2 << 20, 100);
  EXPECT_EQ(huge.size, 2_MiB);
  EXPECT_NE(huge.note.find("huge pages"), std::string::npos);
  const auto few = chunks_of(0, 64 << 20, 64_KiB, 0, 100);
  EXPECT_EQ(few.size, 1_MiB);
  EXPECT_LE(few.bounds.size() - 1, 100u);
  EXPECT_NE(few.note.find("100 mappings"), std::string::npos) << few.note;
  EXPECT_EQ(chunks_of(0x1000, 64 << 20, 64_KiB, 0, 0).bounds.size(), 2u);
}

TEST(Chunks, CoverTheRangeWhateverItIs) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uintptr_t begin = random() % 1000 * kPage;
    const std::uintptr_t end = begin + (1 + random() % 1000) * kPage;
    const Bytes wanted{kPage << random() % 8};
    const std::uint64_t most = random() % 200;
    const auto [size, bounds, note] = chunks_of(begin, end, wanted, 0, most);
    ASSERT_EQ(note.empty(), size == wanted);
    ASSERT_EQ(bounds.front(), begin);
    ASSERT_EQ(bounds.back(), end);
    ASSERT_EQ(bounds.size() % 2, 0u);
    ASSERT_TRUE(bounds.size() - 1 <= most || bounds.size() == 2);
    for (std::size_t k = 1; k < bounds.size(); ++k) {
      ASSERT_LT(bounds[k - 1], bounds[k]);
      ASSERT_EQ(bounds[k] % (k + 2 < bounds.size() ? size.value : kPage), 0u);
    }
  }
}

class Referenced : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto there = open_hotness(HotnessKind::referenced); !there) {
      GTEST_SKIP() << there.error().message;
    }
  }
  std::unique_ptr<HotnessSource> open(Kernel& kernel = system_kernel()) {
    return open_hotness(HotnessKind::referenced,
                        {.chunk = kTestChunk, .least_interval = {}, .clock = &clock_}, kernel)
        .value();
  }
  ManualClock clock_;
};

std::vector<Vma> mappings_in(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::vector<Vma> vmas;
  EXPECT_TRUE(for_each_vma_in_detail(system_kernel(), [&](const Vma& vma) {
    if (vma.end > begin && vma.begin < begin + memory.size()) vmas.push_back(vma);
  }));
  return vmas;
}

TEST_F(Referenced, CountsThePagesOfEachChunkExactly) {
  const Trackable memory(HotnessKind::referenced, 16_MiB);
  const auto source = open();
  ASSERT_EQ(source->track(memory.bytes())->granularity, kTestChunk);
  std::mt19937_64 random(2);
  for (int look = 0; look < 20; ++look) {
    std::map<std::size_t, std::uint64_t> expected;
    for (std::size_t page = 0; page < memory.count(); ++page) {
      if (random() % 8 != 0) continue;
      test::access_page(memory.bytes(), page, test::Access::mixed);
      expected[page * kPage / kTestChunk.value] += kPage;
    }
    std::map<std::size_t, std::uint64_t> seen;
    const auto sample = source->look();
    ASSERT_TRUE(sample);
    for (const Touch& touch : sample->touches) {
      const auto at = static_cast<std::size_t>(touch.range.data() - memory.bytes().data());
      EXPECT_LE(touch.range.size(), kTestChunk.value);
      seen[at / kTestChunk.value] += touch.touched.value;
    }
    EXPECT_EQ(seen, expected);
  }
  EXPECT_TRUE(source->look()->touches.empty());
}

TEST_F(Referenced, LeavesTheMappingsAsTheyWere) {
  const Trackable memory(HotnessKind::referenced, 4_MiB);
  const auto before = mappings_in(memory.bytes());
  {
    const auto source = open();
    ASSERT_TRUE(source->track(memory.bytes()));
    EXPECT_GE(mappings_in(memory.bytes()).size(), 4_MiB / kTestChunk);
    ASSERT_TRUE(source->untrack(memory.bytes()));
    EXPECT_EQ(mappings_in(memory.bytes()).size(), before.size());
    ASSERT_TRUE(source->track(memory.bytes()));
  }
  const auto after = mappings_in(memory.bytes());
  ASSERT_EQ(after.size(), before.size());
  EXPECT_FALSE(after.front().undumped);
}

TEST_F(Referenced, RefusesWhatShallNotBeInCoreDumps) {
  const Trackable memory(HotnessKind::referenced, 1_MiB);
  ASSERT_EQ(madvise(memory.bytes().data(), 2 * kPage, MADV_DONTDUMP), 0);
  const auto source = open();
  const auto tracking = source->track(memory.bytes());
  ASSERT_FALSE(tracking);
  EXPECT_EQ(tracking.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(mappings_in(memory.bytes()).front().undumped);
}

// Allows this many mappings more than the process has when the kernel is made.
struct FewMappings final : Kernel {
  explicit FewMappings(std::uint64_t more) : mappings(more) {
    EXPECT_TRUE(for_each_vma(system_kernel(), [&](const Vma&) { ++mappings; }));
  }
  std::uint64_t mappings;
  std::uint64_t max_mappings() override { return mappings; }
};

TEST_F(Referenced, TakesLargerChunksWhereTheKernelAllowsFewMappings) {
  const Trackable memory(HotnessKind::referenced, 16_MiB);
  FewMappings kernel(100);
  const auto source =
      open_hotness(HotnessKind::referenced, {.chunk = kTestChunk, .least_interval = {}}, kernel);
  ASSERT_TRUE(source) << source.error().message;
  const auto tracking = (*source)->track(memory.bytes());
  ASSERT_TRUE(tracking);
  EXPECT_GT(tracking->granularity, 256_KiB);
  EXPECT_NE(tracking->note.find("max_map_count"), std::string::npos) << tracking->note;
  EXPECT_LE(mappings_in(memory.bytes()).size(), 51u);
  test::access_page(memory.bytes(), 5, test::Access::read);
  EXPECT_EQ((*source)->look()->touches.size(), 1u);
}

TEST_F(Referenced, UndoesWhatItBeganWhenTheKernelRefusesTheRest) {
  struct Full final : Kernel {
    int left = 1 << 20;
    int madvise(std::uintptr_t begin, std::size_t bytes, int advice) override {
      if (advice == MADV_DONTDUMP && left-- <= 0) return -ENOMEM;
      return Kernel::madvise(begin, bytes, advice);
    }
  } kernel;
  const Trackable memory(HotnessKind::referenced, 4_MiB);
  const auto before = mappings_in(memory.bytes()).size();
  const auto source = open(kernel);
  kernel.left = 10;
  const auto tracking = source->track(memory.bytes());
  ASSERT_FALSE(tracking);
  EXPECT_EQ(tracking.error().code, ErrorCode::exhausted);
  EXPECT_EQ(mappings_in(memory.bytes()).size(), before);
  kernel.left = 1 << 20;
  EXPECT_TRUE(source->track(memory.bytes())) << "it was not tracked before";
}

// Counts the reads of all mappings and the clearings of all accessed bits.
struct CountedCalls final : Kernel {
  int reads = 0;
  int clearings = 0;
  std::function<void()> as_it_reads;
  std::function<void()> as_it_cuts;
  int open(const char* path, int flags) override {
    if (std::string_view(path) == "/proc/self/smaps") {
      ++reads;
      if (const auto work = std::exchange(as_it_reads, nullptr)) work();
    }
    return Kernel::open(path, flags);
  }
  std::int64_t write(int descriptor, const void* bytes, std::size_t count) override {
    ++clearings;
    return Kernel::write(descriptor, bytes, count);
  }
  int madvise(std::uintptr_t begin, std::size_t bytes, int advice) override {
    const int result = Kernel::madvise(begin, bytes, advice);
    if (const auto work = std::exchange(as_it_cuts, nullptr)) work();
    return result;
  }
};

TEST_F(Referenced, TracksManyRangesAtThePriceOfOne) {
  CountedCalls kernel;
  const Trackable memory(HotnessKind::referenced, 64_MiB);
  std::vector<std::span<const std::byte>> ranges;
  for (std::size_t at = 0; at < memory.bytes().size(); at += (1_MiB).value) {
    ranges.push_back(memory.bytes().subspan(at, (1_MiB).value));
  }
  ranges[5] = ranges[5].first(17);
  auto opened = open(kernel);
  auto& source = static_cast<SourceBase&>(*opened);
  kernel.reads = kernel.clearings = 0;
  source.expect(ranges.size());
  const auto answers = source.track_all(ranges);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ(kernel.reads, 1);
  EXPECT_EQ(kernel.clearings, 1);
  for (std::size_t i = 0; i < ranges.size(); ++i) EXPECT_EQ((*answers)[i].has_value(), i != 5);
  test::access_page(memory.bytes(), 3 * 256 + 100, test::Access::write);
  test::access_page(memory.bytes(), 5 * 256 + 100, test::Access::write);
  EXPECT_EQ(source.look()->touches.size(), 1u);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(source.untrack(ranges[i]).has_value(), i != 5);
  }
}

TEST_F(Referenced, DoesNothingMoreToWhatItForgot) {
  CountedCalls kernel;
  const Trackable memory(HotnessKind::referenced, 4_MiB);
  auto opened = open(kernel);
  auto& source = static_cast<SourceBase&>(*opened);
  const std::span<const std::byte> ranges[] = {memory.bytes().first((1_MiB).value),
                                               memory.bytes().subspan((2_MiB).value)};
  source.expect(2);
  // Forgets the second range while the first is cut, as another thread would.
  kernel.as_it_cuts = [&] { source.forget(ranges[1]); };
  const auto answers = source.track_all(ranges);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_TRUE((*answers)[0]);
  EXPECT_FALSE((*answers)[1]);
  source.forget(ranges[0]);
  // New memory there may be left out of dumps, and stays so.
  ASSERT_EQ(madvise(memory.bytes().data(), (4_MiB).value, MADV_DONTDUMP), 0);
  ASSERT_TRUE(source.look());
  opened.reset();
  for (const Vma& vma : mappings_in(memory.bytes())) EXPECT_TRUE(vma.undumped);
}

TEST_F(Referenced, TracksNothingThatWentBeforeItBegan) {
  const Trackable memory(HotnessKind::referenced, 4_MiB);
  auto opened = open();
  auto& source = static_cast<SourceBase&>(*opened);
  const std::span<const std::byte> ranges[] = {memory.bytes().first((1_MiB).value),
                                               memory.bytes().subspan((2_MiB).value)};
  source.expect(2);
  source.forget(ranges[1]);
  const auto answers = source.track_all(ranges);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_TRUE((*answers)[0]);
  EXPECT_FALSE((*answers)[1]);
  for (const Vma& vma : mappings_in(ranges[1])) EXPECT_FALSE(vma.undumped);
  EXPECT_FALSE(source.untrack(ranges[1]));
  EXPECT_TRUE(source.track(ranges[1])) << "what comes to lie there is tracked";
}

TEST_F(Referenced, ForgetsWithoutAWaitForALook) {
  EXPECT_EQ(test::status_of_child([&] {
              CountedCalls kernel;
              const Trackable memory(HotnessKind::referenced, 1_MiB);
              const auto opened = open(kernel);
              auto& source = static_cast<SourceBase&>(*opened);
              if (!source.track(memory.bytes())) return false;
              // As another thread would; this thread would wait for it for ever.
              kernel.as_it_reads = [&] { source.forget(memory.bytes()); };
              return source.look() && source.look()->touches.empty() && kernel.reads > 2;
            }),
            0);
}

TEST_F(Referenced, LeavesTheProgramSomeOfItsMappings) {
  FewMappings kernel(1 << 20);
  const Trackable memory(HotnessKind::referenced, 1_MiB);
  const auto source = open(kernel);
  kernel.mappings = FewMappings(1).mappings;
  expect_refused(source->track(memory.bytes()), ErrorCode::exhausted, "max_map_count");
}

TEST_F(Referenced, LooksUnderALimitOfPrivateMemory) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "the allocator of a sanitizer ends the program at such a limit";
#endif
  EXPECT_EQ(test::status_of_child([&] {
              const Trackable memory(HotnessKind::referenced, 1_MiB);
              const auto source = open();
              if (!source->track(memory.bytes())) return false;
              rlimit limit{};
              getrlimit(RLIMIT_DATA, &limit);
              limit.rlim_cur = 4096;
              setrlimit(RLIMIT_DATA, &limit);
              for (int look = 0; look < 3; ++look) {
                test::access_page(memory.bytes(), 3, test::Access::write);
                const auto sample = source->look();
                // Reading the mappings may be refused; then nothing is forgotten.
                if (!sample && sample.error().code != ErrorCode::exhausted) return false;
                if (sample && sample->touches.size() != 1) return false;
              }
              limit.rlim_cur = limit.rlim_max;
              setrlimit(RLIMIT_DATA, &limit);
              test::access_page(memory.bytes(), 3, test::Access::write);
              const auto sample = source->look();
              return sample && sample->touches.size() == 1;
            }),
            0);
}

TEST_F(Referenced, KeepsMemoryFromGrowingWhileItTracks) {
  const Trackable memory(HotnessKind::referenced, 1_MiB);
  const auto source = open();
  ASSERT_TRUE(source->track(memory.bytes()));
  EXPECT_EQ(mremap(memory.bytes().data(), 1_MiB .value, 2_MiB .value, MREMAP_MAYMOVE), MAP_FAILED);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_TRUE(source->look());
}

TEST_F(Referenced, ForgetsNoTouchWhenTheKernelRefusesToClear) {
  struct NoClearing final : Kernel {
    bool refuses = false;
    std::int64_t write(int descriptor, const void* bytes, std::size_t count) override {
      return refuses ? -EINTR : Kernel::write(descriptor, bytes, count);
    }
  } kernel;
  const Trackable memory(HotnessKind::referenced, 1_MiB);
  const auto source = open(kernel);
  ASSERT_TRUE(source->track(memory.bytes()));
  test::access_page(memory.bytes(), 3, test::Access::write);
  kernel.refuses = true;
  EXPECT_FALSE(source->look());
  kernel.refuses = false;
  EXPECT_EQ(source->look()->touches.size(), 1u);
}

TEST_F(Referenced, IsTheOnlyOneOfAProcess) {
  auto first = open();
  const auto second = open_hotness(HotnessKind::referenced);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::exhausted);
  first.reset();
  EXPECT_TRUE(open_hotness(HotnessKind::referenced));
}

TEST_F(Referenced, KeepsHugePagesWholeWhateverTheirSizeIs) {
  struct HugePages final : Kernel {
    Bytes size;
    Bytes huge_page() override { return size; }
  } kernel;
  for (const Bytes size : {2_MiB, 4_MiB}) {
    kernel.size = size;
    auto memory = MappedMemory::make(size * 4, size, 4_KiB, PROT_READ | PROT_WRITE).value();
    const std::span<std::byte> bytes(memory.memory(), (size * 4).value);
    ASSERT_EQ(madvise(bytes.data(), bytes.size(), MADV_HUGEPAGE), 0);
    for (std::size_t at = 0; at < bytes.size(); at += kPage) bytes[at] = std::byte{1};
    const auto source = open(kernel);
    const auto tracking = source->track(bytes);
    ASSERT_TRUE(tracking);
    EXPECT_EQ(tracking->granularity, size);
    EXPECT_NE(tracking->note.find("huge"), std::string::npos);
    test::access_page(bytes, size.value / kPage + 90, test::Access::read);
    const auto sample = source->look();
    ASSERT_EQ(sample->touches.size(), 1u);
    EXPECT_EQ(sample->touches.front().range.data(), bytes.data() + size.value);
  }
}

}  // namespace
}  // namespace headrace
