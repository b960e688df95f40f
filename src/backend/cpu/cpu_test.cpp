// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "core/mutex.h"
#include "headrace/random.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;
using test::kSsd;

// A file or GPU memory: an object that no core can address.
class Elsewhere final : public Object {
 public:
  explicit Elsewhere(Bytes size) : Object(size, test::kDisk, nullptr) {}
};

// Memory of a test, as an object.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::uint64_t seed = 0)
      : bytes_(bytes), range_(bytes_, test::kDram) {
    Random random(seed);
    // Eight bytes at a time: with single bytes the thread sanitizer takes seconds for some
    // megabytes.
    for (std::size_t i = 0; seed != 0 && i < bytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(bytes_.data() + i, &word, std::min<std::size_t>(8, bytes - i));
    }
  }
  const MemoryRange& range() const { return range_; }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  MemoryRange range_;
};

// Counts outcomes by tag, waits for them, and can hold up the thread that reports.
class Listener final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    MutexLock lock(mutex_);
    ++count_[tag];
    if (!outcome) ++failures_;
    ++entered_;
    changed_.notify_all();
    while (!open_) changed_.wait_for(mutex_, std::chrono::seconds{1});
  }
  void hold() { set_open(false); }
  void release() { set_open(true); }
  // False after half a minute.
  bool wait_for(std::size_t pieces) {
    MutexLock lock(mutex_);
    for (int i = 0; i < 300 && entered_ < pieces; ++i) {
      changed_.wait_for(mutex_, std::chrono::milliseconds{100});
    }
    return entered_ >= pieces;
  }
  std::size_t times(std::uint64_t tag) {
    MutexLock lock(mutex_);
    return count_.contains(tag) ? count_[tag] : 0;
  }
  std::size_t failures() {
    MutexLock lock(mutex_);
    return failures_;
  }

 private:
  void set_open(bool open) {
    MutexLock lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, std::size_t> count_ GUARDED_BY(mutex_);
  std::size_t entered_ GUARDED_BY(mutex_) = 0;
  std::size_t failures_ GUARDED_BY(mutex_) = 0;
  bool open_ GUARDED_BY(mutex_) = true;
};

std::unique_ptr<Backend> open(const CpuOptions& options = {}) {
  auto backend = open_cpu(test::small_machine(), {kCpuA, kCpuB}, options);
  EXPECT_TRUE(backend) << backend.error().message;
  return std::move(*backend);
}

Piece piece(const Memory& from, const Memory& to, std::uint64_t offset, Bytes length,
            std::uint64_t tag, EngineId engine = kCpuA) {
  return {.from = {&from.range(), offset, length},
          .to = {&to.range(), offset, length},
          .engine = engine,
          .tag = tag};
}

TEST(OpenCpu, RefusesWhatIsNotCores) {
  const Machine machine = test::small_machine();
  for (const EngineId id : {kSsd, EngineId{99}}) {
    const auto refused = open_cpu(machine, {kCpuA, id});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
  const auto none = open_cpu(machine, {kCpuA}, {.max_in_flight = 0});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::invalid);
}

TEST(OpenCpu, TellsItsFacts) {
  const auto backend = open({.workers = 3, .max_in_flight = 5, .inline_below = 1_KiB});
  const Capabilities& facts = backend->capabilities();
  EXPECT_EQ(facts.name, "cpu");
  EXPECT_EQ(facts.engines, (std::vector{kCpuA, kCpuB}));
  EXPECT_EQ(facts.max_in_flight, 5U);
  EXPECT_EQ(facts.inline_below, 1_KiB);
  EXPECT_TRUE(facts.completes_itself);
  EXPECT_NE(facts.note.find("workers per engine: 3, 3"), std::string::npos) << facts.note;
}

TEST(OpenCpu, RunsUnpinnedAndSaysSoWhereTheCpusAreNotHere) {
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {100000, 100001};
  const auto backend = open_cpu(machine, {kCpuA});
  ASSERT_TRUE(backend);
  const std::string note = (*backend)->capabilities().note;
  EXPECT_NE(note.find("not pinned: engine 0"), std::string::npos) << note;
  Memory from(64 << 10, 1);
  Memory to(64 << 10);
  Listener listener;
  EXPECT_EQ((*backend)->submit({{piece(from, to, 0, 64_KiB, 0)}}, listener), 1U);
  EXPECT_TRUE(listener.wait_for(1));
  EXPECT_TRUE(std::ranges::equal(from.bytes(), to.bytes()));
}

// Records the CPUs that the reporting thread of a piece of engine A may use.
class AffinityProbe final : public Completion {
 public:
  void complete(std::uint64_t, Status) noexcept override {
    MutexLock lock(mutex_);
    sched_getaffinity(0, sizeof(allowed_), &allowed_);
    done_ = true;
    changed_.notify_all();
  }
  int cpus() {
    MutexLock lock(mutex_);
    for (int i = 0; i < 300 && !done_; ++i) {
      changed_.wait_for(mutex_, std::chrono::milliseconds{100});
    }
    return done_ ? CPU_COUNT(&allowed_) : -1;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  cpu_set_t allowed_ GUARDED_BY(mutex_){};
  bool done_ GUARDED_BY(mutex_) = false;
};

TEST(OpenCpu, PinsItsWorkersToTheirNode) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  unsigned first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {first};
  const auto backend = open_cpu(machine, {kCpuA}, {.inline_below = 0_B});
  ASSERT_TRUE(backend);
  Memory from(100, 1);
  Memory to(100);
  AffinityProbe probe;
  ASSERT_EQ((*backend)->submit({{piece(from, to, 0, 100_B, 0)}}, probe), 1U);
  EXPECT_EQ(probe.cpus(), 1);
}

TEST(CpuBackend, CopiesSmallPiecesInsideSubmit) {
  const auto backend = open({.inline_below = 16_KiB});
  Memory from(16 << 10, 1);
  Memory to(16 << 10);
  Listener listener;
  const Piece small = piece(from, to, 10, 1000_B, 3);
  ASSERT_EQ(backend->submit({{small}}, listener), 1U);
  EXPECT_EQ(listener.times(3), 1U) << "reported before submit returned";
  EXPECT_EQ(std::memcmp(to.bytes().data() + 10, from.bytes().data() + 10, 1000), 0);
  EXPECT_EQ(to.bytes()[9], std::byte{0});
  EXPECT_EQ(to.bytes()[1010], std::byte{0});
}

TEST(CpuBackend, RefusesWhatNoCoreCanReach) {
  const auto backend = open();
  Memory memory(1000, 1);
  const Elsewhere file(1000_B);
  Listener listener;
  Piece reading = piece(memory, memory, 0, 100_B, 0);
  reading.from = {&file, 0, 100_B};
  const auto refused = backend->submit({{reading}}, listener);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(CpuBackend, AcceptsNothingOfABatchWithABadPiece) {
  const auto backend = open();
  Memory from(1000, 1);
  Memory to(1000);
  Listener listener;
  const Piece pieces[] = {piece(from, to, 0, 100_B, 0), piece(from, to, 950, 100_B, 1)};
  const auto refused = backend->submit(pieces, listener);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_EQ(listener.times(0), 0U);
  EXPECT_EQ(to.bytes()[0], std::byte{0});
}

TEST(CpuBackend, AcceptsFewerWhenFullAndMoreLater) {
  const auto backend = open({.workers = 1, .max_in_flight = 2, .inline_below = 0_B});
  Memory from(400, 1);
  Memory to(400);
  Listener listener;
  listener.hold();
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < 4; ++i) pieces.push_back(piece(from, to, i * 100, 100_B, i));
  ASSERT_EQ(backend->submit(std::span(pieces).first(1), listener), 1U);
  ASSERT_TRUE(listener.wait_for(1)) << "the only worker is now held in its report";
  ASSERT_EQ(backend->submit(std::span(pieces).subspan(1), listener), 2U);
  EXPECT_EQ(backend->submit(std::span(pieces).subspan(3), listener), 0U);
  Piece other = pieces[3];
  other.engine = kCpuB;
  listener.release();
  ASSERT_TRUE(listener.wait_for(3));
  ASSERT_EQ(backend->submit({{other}}, listener), 1U);
  EXPECT_TRUE(listener.wait_for(4));
  EXPECT_TRUE(std::ranges::equal(from.bytes(), to.bytes()));
}

TEST(CpuBackend, EndsWhatItAcceptedBeforeItGoes) {
  Memory from(2 << 20, 1);
  Memory to(2 << 20);
  Listener listener;
  std::size_t accepted = 0;
  {
    const auto backend = open({.workers = 2});
    for (std::uint64_t i = 0; i < 8; ++i) {
      accepted += *backend->submit({{piece(from, to, i << 18, 256_KiB, i)}}, listener);
    }
  }
  EXPECT_EQ(accepted, 8U);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(listener.times(i), 1U);
  EXPECT_TRUE(std::ranges::equal(from.bytes(), to.bytes()));
}

// Random pieces from two threads over both engines: each is copied once and reported once, and
// nothing beside them changes.
RC_GTEST_PROP(CpuBackend, CopiesEveryPieceOnce, ()) {
  const auto workers = *rc::gen::inRange(1U, 4U);
  const auto in_flight = *rc::gen::inRange<std::size_t>(1, 9);
  const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1 << 30);
  constexpr std::size_t kSlot = 40 << 10;
  constexpr std::size_t kSlots = 12;
  Memory from(kSlot * kSlots, seed);
  Memory to(kSlot * kSlots);
  std::vector<std::byte> expected(kSlot * kSlots);
  Random random(seed);
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    const std::uint64_t begin = random.below(100);
    const Bytes length{random.below(kSlot - begin + 1)};
    pieces.push_back(piece(from, to, i * kSlot + begin, length, i, i % 3 == 0 ? kCpuB : kCpuA));
    std::copy_n(from.bytes().data() + i * kSlot + begin, length.value,
                expected.data() + i * kSlot + begin);
  }
  Listener listener;
  {
    const auto backend = open({.workers = workers, .max_in_flight = in_flight});
    const auto submit_all = [&](std::span<const Piece> rest) {
      while (!rest.empty()) {
        rest = rest.subspan(*backend->submit(rest, listener));
        if (!rest.empty()) std::this_thread::yield();
      }
    };
    std::thread other(submit_all, std::span(pieces).first(kSlots / 2));
    submit_all(std::span(pieces).subspan(kSlots / 2));
    other.join();
  }
  for (std::uint64_t i = 0; i < kSlots; ++i) RC_ASSERT(listener.times(i) == 1U);
  RC_ASSERT(listener.failures() == 0U);
  RC_ASSERT(std::ranges::equal(to.bytes(), expected));
}

}  // namespace
}  // namespace headrace
