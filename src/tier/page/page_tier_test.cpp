// SPDX-License-Identifier: Apache-2.0
#include "tier/page/page_tier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "support/child.h"
#include "tests/support/bytes.h"
#include "tests/support/expect.h"
#include "tier/planted_testing.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using test::expect_refused;
using test::kPage;
using test::Trackable;

constexpr Bytes kPart = 64_KiB;  // a chunk
constexpr std::size_t kPagesOfPart = kPart.value / kPage;

// Swap in which pages claim to be; their bytes stay in place.
class FakeSwap final : public Kernel {
 public:
  int madvise(std::uintptr_t begin, std::size_t bytes, int advice) override {
    const std::lock_guard lock(mutex_);
    if (advice == MADV_PAGEOUT) {
      if (is_locked(begin)) return ++tries_at_locked, -EINVAL;
      for (std::size_t at = 0; at < bytes && !full; at += kPage) {
        if (is_there(begin + at)) out_.insert(begin + at);
      }
      return 0;
    }
    if (advice == 22) {  // MADV_POPULATE_READ
      for (std::size_t at = 0; at < bytes; at += kPage) {
        out_.erase(begin + at);
        // The kernel sets the accessed bit too.
        test::access_page({reinterpret_cast<std::byte*>(begin), bytes}, at / kPage,
                          test::Access::read);
      }
      return 0;
    }
    if (advice == MADV_WILLNEED) return 0;
    return Kernel::madvise(begin, bytes, advice);
  }
  std::int64_t pread(int descriptor, void* bytes, std::size_t count, std::int64_t at) override {
    const std::int64_t got = Kernel::pread(descriptor, bytes, count, at);
    const std::lock_guard lock(mutex_);
    if (calls_left >= 0 && calls_left-- == 0) throw std::bad_alloc();
    auto* const entries = static_cast<std::uint64_t*>(bytes);
    for (std::size_t i = 0; i < count / 8; ++i) {
      if (out_.contains((static_cast<std::size_t>(at) / 8 + i) * kPage)) {
        entries[i] = std::uint64_t{1} << 62;
      }
    }
    return got;
  }
  // An access of the program, which the real kernel would serve by a fault.
  void access(std::span<std::byte> memory, std::size_t page) {
    {
      const std::lock_guard lock(mutex_);
      out_.erase(reinterpret_cast<std::uintptr_t>(memory.data()) + page * kPage);
    }
    test::access_page(memory, page, test::Access::mixed);
  }
  // Whether the page is present and not in swap.
  static bool is_there(std::uintptr_t address) {
    unsigned char there = 0;
    return mincore(reinterpret_cast<void*>(address), kPage, &there) == 0 && there % 2 == 1;
  }

  Bytes huge_page() override { return huge; }

  std::atomic<bool> full = false;
  Bytes huge = 2_MiB;
  std::span<const std::byte> locked{};  // stays
  int tries_at_locked = 0;
  int calls_left = -1;  // until memory runs out; -1: never

 private:
  bool is_locked(std::uintptr_t begin) const {
    const auto first = reinterpret_cast<std::uintptr_t>(locked.data());
    return begin >= first && begin - first < locked.size();
  }

  std::mutex mutex_;
  std::set<std::uintptr_t> out_;
};

class Tiered : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto there = open_hotness(HotnessKind::referenced); !there) {
      GTEST_SKIP() << there.error().message;
    }
  }
  PageTierOptions options(Bytes budget, Bytes per_second = 1_GiB) {
    return {.policy = {.budget = budget, .per_second = per_second},
            .chunk = kPart,
            .half_life = std::chrono::seconds{2},
            .least_interval = milliseconds{100},
            .clock = &clock_};
  }
  std::unique_ptr<PageTier::Inside> open(const PageTierOptions& with) {
    auto tier = PageTier::Inside::open(with, kernel_);
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }
  void access_parts(std::span<std::byte> memory, std::initializer_list<std::size_t> parts) {
    for (const std::size_t part : parts) {
      for (std::size_t page = 0; page < kPagesOfPart; ++page) {
        kernel_.access(memory, part * kPagesOfPart + page);
      }
    }
  }
  ManualClock clock_;
  FakeSwap kernel_;
};

TEST_F(Tiered, MemoryThatIsToHaveHugePages_MovesByHugePagesOfThisKernel) {
  const Trackable memory(HotnessKind::referenced, kPart * 16);
  ASSERT_EQ(::madvise(memory.bytes().data(), memory.bytes().size(), MADV_HUGEPAGE), 0);
  kernel_.huge = kPart * 4;
  const auto tier = open(options(kPart * 8));
  ASSERT_TRUE(tier->add(memory.bytes()));
  for (int i = 0; i < 6; ++i) {
    access_parts(memory.bytes(), {1});
    clock_.advance(std::chrono::seconds{1});
    ASSERT_TRUE(tier->step());
  }
  ASSERT_FALSE(tier->decisions().empty());
  for (const TierDecision& each : tier->decisions()) EXPECT_EQ(each.bytes, kernel_.huge);
}

TEST_F(Tiered, KeepsTheHotWithinTheBudgetAndFollowsIt) {
  const Trackable memory(HotnessKind::referenced, kPart * 16);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  for (const auto& hot : {std::initializer_list<std::size_t>{1, 5, 9}, {2, 5, 12}}) {
    for (int i = 0; i < 12; ++i) {
      access_parts(memory.bytes(), hot);
      clock_.advance(std::chrono::seconds{1});
      const auto step = tier->step();
      ASSERT_TRUE(step) << step.error().message;
      EXPECT_LE(step->resident, kPart * 4);
      EXPECT_EQ((step->resident + step->out), kPart * 16);
      EXPECT_EQ(step->refused, 0_B);
    }
    const auto step = [&] {
      access_parts(memory.bytes(), hot);
      clock_.advance(std::chrono::seconds{1});
      return tier->step();
    }();
    EXPECT_TRUE(step->decisions.empty()) << step->decisions.front().reason;
  }
  EXPECT_GE(tier->decisions().size(), 12u);
}

// The hot set is twice the budget and alternates, and the program runs at half speed while pages
// move.
TEST_F(Tiered, UndoesMovesThatHarmAndKeepsTheBudget) {
  const Trackable memory(HotnessKind::referenced, kPart * 16);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  std::uint64_t work = 0;
  std::string undone;
  unsigned steps = 0;
  std::ptrdiff_t in_last = 0;
  const auto step = [&] {
    // Touches half of each chunk, so that only a move can promote the other half.
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t page = 0; page < kPagesOfPart / 2; ++page) {
        kernel_.access(memory.bytes(), (steps * 3 + i) % 8 * kPagesOfPart + page);
      }
    }
    ++steps;
    clock_.advance(std::chrono::seconds{1});
    TierStep did = tier->step(work).value();
    in_last = std::ranges::count(did.decisions, true, &TierDecision::in);
    work += in_last > 0 ? 500 : 1000;
    EXPECT_LE(did.resident, kPart * 4);
    undone = did.undone;
    return did;
  };
  for (unsigned i = 0; i < WorkGuard::kSpan; ++i) {
    const TierStep did = step();
    for (const TierDecision& each : did.decisions) EXPECT_FALSE(each.in) << "at rest at first";
  }
  unsigned moved = 0;
  while (undone.empty() && steps < 100) {
    step();
    moved += in_last > 0 ? 1 : 0;
  }
  EXPECT_GE(moved, 1u);
  ASSERT_NE(undone.find("1000 while pages rested"), std::string::npos) << undone;
  unsigned undone_moves = 0;
  for (const TierDecision& each : tier->decisions()) {
    undone_moves += each.reason == "undone by the guard" ? 1 : 0;
  }
  EXPECT_GE(undone_moves, 1u);
  for (unsigned i = 0; i < 5 * WorkGuard::kSpan; ++i) {
    const TierStep did = step();
    for (const TierDecision& each : did.decisions) {
      EXPECT_TRUE(!each.in || each.reason == "undone by the guard") << each.reason;
    }
  }
}

TEST_F(Tiered, BringsInWhatIsHotAgain) {
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  clock_.advance(std::chrono::seconds{1});
  EXPECT_EQ(tier->step()->resident, kPart * 4);
  const auto first = tier->decisions();
  ASSERT_EQ(first.size(), 4u);
  const auto part =
      (first.front().begin - reinterpret_cast<std::uintptr_t>(memory.bytes().data())) / kPart.value;
  const auto decision_of_it = [&](bool in) -> std::optional<TierDecision> {
    clock_.advance(std::chrono::seconds{1});
    const auto step = tier->step();
    if (!step) return std::nullopt;
    for (const TierDecision& each : step->decisions) {
      if (each.in == in && each.begin == first.front().begin) return each;
    }
    return std::nullopt;
  };
  // Touches half of its pages, so that the other half stays in swap.
  std::optional<TierDecision> in;
  for (int i = 0; i < 6 && !in; ++i) {
    for (std::size_t page = 0; page < kPagesOfPart / 2; ++page) {
      kernel_.access(memory.bytes(), part * kPagesOfPart + page);
    }
    in = decision_of_it(true);
  }
  ASSERT_TRUE(in);
  // Uses four other chunks; the chunk is demoted, as cold as if the promotion had not touched it.
  std::optional<TierDecision> out;
  int steps = 0;
  for (; steps < 20 && !out; ++steps) {
    access_parts(memory.bytes(), {1, 2, 3, 4});
    out = decision_of_it(false);
  }
  ASSERT_TRUE(out);
  EXPECT_NEAR(out->heat, in->heat * std::exp2(-steps / 2.0), 1e-9);
}

TEST_F(Tiered, MovesAtItsRateAndNoFaster) {
  const Trackable memory(HotnessKind::referenced, kPart * 32);
  const auto tier = open(options(kPart * 4, kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  for (int i = 1; i <= 7; ++i) {
    clock_.advance(std::chrono::seconds{i == 3 ? 100 : 1});
    EXPECT_EQ(tier->step()->out, kPart * 4 * static_cast<std::uint64_t>(i))
        << "no more after a pause";
  }
}

TEST_F(Tiered, RefusingChunk_BacksOffAndOthersMove) {
  const Trackable memory(HotnessKind::referenced, kPart * 16);
  const auto tier = open(options(kPart * 4, kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  kernel_.locked = memory.pages(0, 4 * kPagesOfPart);  // all of the cold part, tried first
  clock_.advance(std::chrono::seconds{1});
  EXPECT_EQ(tier->step()->refused, kPart * 4);
  clock_.advance(milliseconds{100});
  const auto second = tier->step();
  EXPECT_EQ(second->out, kPart * 4) << "what was refused does not count as moved";
  EXPECT_EQ(second->refused, 0_B);
  EXPECT_EQ(second->backed_off, kPart * 4);
  for (int i = 0; i < 100; ++i) {
    clock_.advance(std::chrono::seconds{1});
    tier->step().value();
  }
  clock_.advance(std::chrono::seconds{1});
  EXPECT_EQ(tier->step()->out, kPart * 12);
  EXPECT_LE(kernel_.tries_at_locked, 4 * 8) << "4 chunks, tried again after 1, 2, 4, ... steps";
}

TEST_F(Tiered, RefusingChunk_IsRetried) {
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  kernel_.full = true;
  for (int i = 0; i < 4; ++i) {
    clock_.advance(std::chrono::seconds{1});
    const TierStep step = tier->step().value();
    EXPECT_EQ(step.resident, kPart * 8);
    EXPECT_EQ(step.refused, i == 0 ? kPart * 4 : step.refused);
  }
  kernel_.full = false;
  Bytes out;
  for (int i = 0; i < 8 && out < kPart * 4; ++i) {
    clock_.advance(std::chrono::seconds{1});
    out = tier->step()->out;
  }
  EXPECT_EQ(out, kPart * 4);
}

TEST_F(Tiered, LargestRate_DoesNotOverflow) {
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 4, Bytes{UINT64_MAX}));
  ASSERT_TRUE(tier->add(memory.bytes()));
  ASSERT_TRUE(tier->step());
  for (int i = 0; i < 3; ++i) {
    clock_.advance(std::chrono::seconds{1});
    access_parts(memory.bytes(), {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(tier->step()->resident, kPart * 4);
  }
}

TEST_F(Tiered, GoesOnWhenTheClockIsSetBack) {
  clock_.advance(std::chrono::hours{2});
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  ASSERT_TRUE(tier->step());
  clock_.advance(-std::chrono::hours{1});
  ASSERT_TRUE(tier->step());
  clock_.advance(milliseconds{99});
  expect_refused(tier->step(), ErrorCode::exhausted, "99.0 ms");
  clock_.advance(milliseconds{1});
  EXPECT_EQ(tier->step()->resident, kPart * 4);
}

TEST_F(Tiered, BringsInNoPageThatWasNeverThere) {
  auto mapped = MappedMemory::make(kPart, 2_MiB, 4_KiB, PROT_READ | PROT_WRITE).value();
  const std::span<std::byte> memory(mapped.memory(), kPart.value);
  (void)::madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);
  const auto pages_there = [&] {
    std::vector<std::size_t> pages;
    for (std::size_t page = 0; page < kPagesOfPart; ++page) {
      const auto at = reinterpret_cast<std::uintptr_t>(memory.data()) + page * kPage;
      if (FakeSwap::is_there(at)) pages.push_back(page);
    }
    return pages;
  };
  for (std::size_t page = 0; page < kPagesOfPart; page += 2) {
    test::access_page(memory, page, test::Access::write);
  }
  const auto before = pages_there();
  ASSERT_EQ(before.size(), kPagesOfPart / 2);
  const Trackable other(HotnessKind::referenced, kPart);
  const auto tier = open(options(kPart));
  ASSERT_TRUE(tier->add(other.bytes()));
  ASSERT_TRUE(tier->add(memory));
  Bytes in;
  for (int i = 0; i < 20; ++i) {
    // First uses the one range, then a part of the other.
    if (i < 4) {
      access_parts(other.bytes(), {0});
    } else {
      for (std::size_t page = 0; page < 8; page += 2) kernel_.access(memory, page);
    }
    clock_.advance(std::chrono::seconds{1});
    const auto step = tier->step();
    ASSERT_TRUE(step) << step.error().message;
    for (const TierDecision& each : step->decisions) {
      if (each.in) in += each.bytes;
    }
  }
  EXPECT_EQ(in.value, 4 * kPage);
  EXPECT_EQ(pages_there(), before);
}

TEST_F(Tiered, TellsThatMemoryRanOutAndGoesOn) {
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 4));
  ASSERT_TRUE(tier->add(memory.bytes()));
  for (int calls = 0; calls < 12; ++calls) {
    kernel_.calls_left = calls;
    clock_.advance(std::chrono::seconds{1});
    expect_refused(no_throw([&] { return tier->step(); }), ErrorCode::exhausted, "memory");
  }
  clock_.advance(std::chrono::seconds{1});
  EXPECT_EQ(tier->step()->resident, kPart * 4);
  kernel_.calls_left = 0;
  expect_refused(PageTier::Inside::open(options(1_MiB), kernel_), ErrorCode::exhausted, "already");
}

TEST_F(Tiered, RefusesWithoutSwapInOneLine) {
  kernel_.full = true;
  expect_refused(PageTier::Inside::open(options(1_MiB), kernel_), ErrorCode::unsupported, "swap");
  EXPECT_TRUE(open_hotness(HotnessKind::referenced)) << "nothing is left of it";
}

TEST_F(Tiered, RefusesMemoryThatDoesNotMoveInWords) {
  const auto tier = open(options(1_MiB));
  const Trackable none(HotnessKind::referenced, 1_MiB);
  ASSERT_EQ(mprotect(none.pages(7, 1).data(), kPage, PROT_NONE), 0);
  expect_refused(tier->add(none.bytes()), ErrorCode::unsupported, "PROT_NONE");
  const Trackable mapped(HotnessKind::referenced, 1_MiB);
  const int file = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, kPage), 0);
  ASSERT_NE(mmap(mapped.pages(7, 1).data(), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                 file, 0),
            MAP_FAILED);
  ::close(file);
  expect_refused(tier->add(mapped.bytes()), ErrorCode::unsupported, "file");
  const Trackable locked(HotnessKind::referenced, 1_MiB);
  // ASan's mlock() does nothing.
  if (syscall(SYS_mlock, locked.pages(7, 1).data(), kPage) == 0) {
    expect_refused(tier->add(locked.bytes()), ErrorCode::unsupported, "mlock");
    ASSERT_EQ(syscall(SYS_munlock, locked.bytes().data(), locked.bytes().size()), 0);
  }
  EXPECT_TRUE(tier->add(locked.bytes())) << "nothing is left of the refusals";
}

TEST_F(Tiered, RefusesWhatMakesNoSense) {
  PageTierOptions share = options(1_MiB), interval = share, chunk = share;
  share.policy.hysteresis = 1.5;
  interval.least_interval = milliseconds{-1};
  chunk.chunk = 5000_B;
  for (const auto& [wrong, word] : {std::pair{options(0_B), "budget"},
                                    {options(1_MiB, 0_B), "rate"},
                                    {share, "hysteresis"},
                                    {interval, "interval"},
                                    {chunk, "power of two"}}) {
    expect_refused(PageTier::Inside::open(wrong, kernel_), ErrorCode::invalid, word);
  }
  const auto tier = open(options(1_MiB));
  const Trackable shared(HotnessKind::memfd, 1_MiB);
  expect_refused(tier->add(shared.bytes()), ErrorCode::unsupported, "private");
  expect_refused(tier->remove(shared.bytes()), ErrorCode::invalid, "does not track");
  const Trackable memory(HotnessKind::referenced, 1_MiB);
  ASSERT_TRUE(tier->add(memory.bytes()));
  expect_refused(tier->add(memory.bytes()), ErrorCode::invalid, "already");
  ASSERT_TRUE(tier->remove(memory.bytes()));
  EXPECT_TRUE(tier->add(memory.bytes()));
}

TEST_F(Tiered, GoesOnWhenMemoryIsUnmapped) {
  Trackable memory(HotnessKind::referenced, kPart * 8);
  const auto tier = open(options(kPart * 2));
  ASSERT_TRUE(tier->add(memory.bytes()));
  memory.unmap(0, 4 * kPagesOfPart);
  clock_.advance(std::chrono::seconds{1});
  const auto step = tier->step();
  ASSERT_TRUE(step) << step.error().message;
  // The budget keeps two of the four remaining parts. The heap may have mapped new memory in the
  // hole meanwhile; that memory then takes part of the budget.
  const auto hole = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
  const auto left = hole + 4 * kPart.value;
  bool refilled = false;
  for (std::uintptr_t page = hole; page < left; page += 4096) {
    unsigned char resident = 0;
    refilled = refilled || ::mincore(reinterpret_cast<void*>(page), 4096, &resident) == 0;
  }
  const auto demoted = std::ranges::count_if(
      step->decisions, [&](const TierDecision& each) { return each.begin >= left; });
  if (refilled) {
    EXPECT_GE(demoted, 2);
  } else {
    EXPECT_EQ(demoted, 2);
  }
}

TEST_F(Tiered, BelongsToTheProcessThatMadeIt) {
  const Trackable memory(HotnessKind::referenced, kPart * 8);
  auto tier = open(options(kPart * 2));
  ASSERT_TRUE(tier->add(memory.bytes()));
  EXPECT_EQ(test::status_of_child([&] {
              return !tier->here() && !tier->step() && !tier->add(memory.bytes()) &&
                     tier->decisions().empty();
            }),
            0);
  EXPECT_TRUE(tier->step());
}

// Uses the machine's swap; the test does not make any. Another thread writes meanwhile.
TEST(PageTierHere, KeepsTheHotWithinTheBudgetAndFollowsItOrSaysWhyNot) {
  constexpr Bytes kHot = 2_MiB;
  const Trackable memory(HotnessKind::referenced, 16_MiB);
  const std::vector<std::byte> wanted = test::random_bytes(memory.bytes().size(), 1);
  std::ranges::copy(wanted, memory.bytes().begin());
  ManualClock clock;
  const auto tier = PageTier::open({.policy = {.budget = 4_MiB, .per_second = 1_GiB},
                                    .chunk = kPart,
                                    .half_life = std::chrono::seconds{2},
                                    .clock = &clock});
  if (!tier) {
    EXPECT_FALSE(tier.error().message.contains('\n'));
    GTEST_SKIP() << tier.error().message;
  }
  ASSERT_TRUE((*tier)->add(memory.bytes()));
  for (const Bytes first : {0_MiB, 9_MiB}) {
    const auto hot = memory.bytes().subspan(first.value, kHot.value);
    const std::jthread writer([&](const std::stop_token& stop) {
      for (std::size_t i = 0; !stop.stop_requested(); ++i) {
        volatile std::byte& byte = hot[i * 64 % hot.size()];
        byte = byte;
      }
    });
    Result<TierStep> step;
    for (int i = 0; i < 12; ++i) {
      for (std::size_t page = 0; page < hot.size() / kPage; ++page) {
        test::access_page(hot, page, test::Access::read);
      }
      clock.advance(std::chrono::seconds{1});
      step = (*tier)->step();
      ASSERT_TRUE(step) << step.error().message;
      EXPECT_LE(step->resident, 4_MiB + step->refused + step->backed_off);
    }
    EXPECT_GT(step->out, 0_B);
    for (const TierDecision& each : step->decisions) {
      const auto* const chunk = reinterpret_cast<const std::byte*>(each.begin);
      EXPECT_TRUE(each.in || chunk < hot.data() || chunk >= hot.data() + hot.size());
    }
  }
  EXPECT_TRUE(test::same(memory.bytes(), wanted));
}

}  // namespace
}  // namespace headrace
