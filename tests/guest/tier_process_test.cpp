// SPDX-License-Identifier: Apache-2.0
// ProcessTier between real nodes: another process plants a hot set on the slow one. Run by
// run_tests.sh like tier_test.cpp.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "guest/guest_testing.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::size_t kWordsOfPage = kPage.value / sizeof(std::uint64_t);

// A process that runs until the end of the scope, and memory that the two share.
class Program {
 public:
  Program() = default;
  ~Program() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::munmap(told_, kPage.value);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  int pid() const { return child_; }

 protected:
  struct Told {
    std::atomic<std::uintptr_t> hot, cold;
    std::atomic<bool> begun, stop;
  };
  // Waits until the process has begun.
  void start(const std::function<bool()>& run) {
    ::malloc_trim(0);  // what tests before have freed would be shared with the child
    child_ = ::fork();
    if (child_ == 0) ::_exit(run() ? 0 : 1);
    for (int i = 0; i < 6000 && !told_->begun; ++i) ::usleep(10'000);
  }
  Told* const told_ = static_cast<Told*>(
      ::mmap(nullptr, kPage.value, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t child_ = -1;
};

// A process with a hot set on one node and as much cold memory on another, each a mapping of its
// own. It counts in the first word of each hot page, or reads it, and checks each byte at the end.
class Planted : public Program {
 public:
  Planted(NodeId hot, NodeId cold, Bytes size, bool writes)
      : size_(size), hot_(hot), cold_(cold), writes_(writes) {
    start([this] { return run(); });
  }
  Bytes hot_on(NodeId node) const { return on(told_->hot, node); }
  Bytes cold_on(NodeId node) const { return on(told_->cold, node); }
  // Whether each byte is what was written last.
  bool stop_and_check() {
    told_->stop = true;
    int status = -1;
    ::waitpid(child_, &status, 0);
    return status == 0;
  }

 private:
  // Bytes on the node, by numa_maps, of the mapping that begins at `address`.
  Bytes on(std::uintptr_t address, NodeId node) const {
    std::ifstream maps(fmt::format("/proc/{}/numa_maps", child_));
    const std::string word = fmt::format(" N{}=", raw(node));
    for (std::string line; std::getline(maps, line);) {
      if (std::stoull(line, nullptr, 16) != address) continue;
      const std::size_t at = line.find(word);
      return at == line.npos ? 0_B : kPage * std::stoull(line.substr(at + word.size()));
    }
    return {};
  }

  // Left out of core dumps or of forks, no two of them merge.
  std::span<std::uint64_t> planted(NodeId node, int advice) const {
    void* const memory =
        ::mmap(nullptr, size_.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)::madvise(memory, size_.value, advice);
    (void)::madvise(memory, size_.value, MADV_NOHUGEPAGE);
    if (!set_process_policy(MemoryPolicy::bind, {node})) ::_exit(2);
    const std::span words(static_cast<std::uint64_t*>(memory), size_.value / 8);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = i % kWordsOfPage == 0 ? 0 : i * 31;
    if (!set_process_policy(MemoryPolicy::none, {})) ::_exit(2);
    return words;
  }
  static bool intact(std::span<const std::uint64_t> words, std::uint64_t count) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != (i % kWordsOfPage == 0 ? count : i * 31)) return false;
    }
    return true;
  }
  bool run() const {
    ::alarm(280);
    const auto hot = planted(hot_, MADV_DONTDUMP), cold = planted(cold_, MADV_DONTFORK);
    told_->hot = reinterpret_cast<std::uintptr_t>(hot.data());
    told_->cold = reinterpret_cast<std::uintptr_t>(cold.data());
    told_->begun = true;
    std::uint64_t rounds = 0, lost = 0;
    for (; !told_->stop; rounds += writes_ ? 1 : 0) {
      for (std::size_t i = 0; i < hot.size(); i += kWordsOfPage) {
        volatile std::uint64_t& count = hot[i];
        if (count != rounds) ++lost;
        if (writes_) count = rounds + 1;
      }
      ::usleep(2000);
    }
    return lost == 0 && intact(hot, rounds) && intact(cold, 0);
  }

  const Bytes size_;
  const NodeId hot_, cold_;
  const bool writes_;
};

std::string balancing() {
  std::string mode;
  std::ifstream("/proc/sys/kernel/numa_balancing") >> mode;
  return mode;
}

Bytes anonymous(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  std::uint64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> kib;
  }
  return {kib << 10};
}

// Anonymous memory of a process on a node, by numa_maps.
Bytes anonymous_on(pid_t pid, NodeId node) {
  std::ifstream maps(fmt::format("/proc/{}/numa_maps", pid));
  const std::string word = fmt::format(" N{}=", raw(node));
  Bytes sum;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find(word);
    if (line.find(" anon=") == line.npos || at == line.npos) continue;
    sum += kPage * std::stoull(line.substr(at + word.size()));
  }
  return sum;
}

// The two change places, and the hot stays.
void changes_places_from_outside(NodeId fast, NodeId slow, Bytes size, bool writes) {
  const std::string before = balancing();
  Planted planted(slow, fast, size, writes);
  ASSERT_EQ(planted.hot_on(slow), size);
  ASSERT_EQ(planted.cold_on(fast), size);
  // The child shares its other pages on the fast node with this process (fork), so they stay. The
  // hot pages fit only where cold ones leave.
  const Bytes others = std::max(512_KiB, anonymous_on(planted.pid(), fast) - size);
  const Bytes budget = size + others;
  ProcessTierOptions options{.policy = {.budget = budget, .per_second = 1_GiB},
                             .fast = {fast},
                             .slow = {slow},
                             .half_life = std::chrono::seconds{5},
                             .guard = 0};
  auto tier = ProcessTier::open(planted.pid(), options);
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_EQ((*tier)->why().find("numa_balancing") != std::string::npos, before == "1");
  const auto again = ProcessTier::open(planted.pid(), options);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::exhausted) << again.error().message;
  const auto settled = [&] {
    return planted.hot_on(fast) == size && planted.cold_on(slow) + others >= size;
  };
  // One more look could see what the kernel's own balancing has just pulled back (numa_balancing).
  int rest = 0;
  for (int steps = 0; rest < 12 && steps < 400; ++steps) {
    if (settled()) ++rest;
    const auto step = (*tier)->step();
    ASSERT_TRUE(step) << step.error().message;
    ::usleep(250'000);
  }
  EXPECT_EQ(rest, 12) << to_string(planted.hot_on(fast)) << " hot on the fast node, "
                      << to_string(planted.cold_on(slow)) << " cold on the slow one";
  EXPECT_TRUE(planted.stop_and_check());
  const auto ended = (*tier)->step();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::absent) << ended.error().message;
  const ProcessTierTotals totals = (*tier)->totals();
  EXPECT_GE(totals.came_in, size);
  EXPECT_GE(totals.went_out + 512_KiB, size) << "there was no room for both";
  std::cout << fmt::format("  {:.1f} s; CPU time: program {:.1f}, tracker {:.2f}, mover {:.2f} s\n",
                           seconds(totals.elapsed), seconds(totals.program_cpu),
                           seconds(totals.tracker_cpu), seconds(totals.mover_cpu));
  tier->reset();
  EXPECT_EQ(balancing(), before);
}

TEST(SlowTier, PromotesWhatAnotherProcessWrites) {
  changes_places_from_outside(NodeId{0}, NodeId{1}, 4_MiB, true);
}

TEST(SlowTier, PromotesWhatAnotherProcessReads) {
  changes_places_from_outside(NodeId{0}, NodeId{1}, 4_MiB, false);
}

// A quarter of one mapping is hot, in the middle of it and only read, which `referenced` cannot
// tell from the rest.
class OneMapping : public Program {
 public:
  static constexpr std::size_t kPages = 4096;
  static constexpr std::size_t kBegin = 1200, kEnd = kBegin + kPages / 4;

  explicit OneMapping(NodeId node) {
    start([this, node]() -> bool { run(node); });
  }
  // Pages on a node, hot and cold, as the kernel says when it is asked to move none.
  std::pair<std::size_t, std::size_t> on(NodeId node) const {
    std::vector<void*> pages;
    for (std::size_t i = 0; i < kPages; ++i) {
      pages.push_back(reinterpret_cast<void*>(told_->hot + i * kPage.value));
    }
    std::vector<int> nodes(kPages, -1);
    ::syscall(SYS_move_pages, child_, kPages, pages.data(), nullptr, nodes.data(), 0);
    std::pair<std::size_t, std::size_t> counts;
    for (std::size_t i = 0; i < kPages; ++i) {
      if (nodes[i] != static_cast<int>(raw(node))) continue;
      ++(i >= kBegin && i < kEnd ? counts.first : counts.second);
    }
    return counts;
  }

 private:
  [[noreturn]] void run(NodeId node) const {
    ::alarm(480);
    void* const mapped = ::mmap(nullptr, kPages * kPage.value, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)::madvise(mapped, kPages * kPage.value, MADV_NOHUGEPAGE);
    if (!set_process_policy(MemoryPolicy::bind, {node})) ::_exit(2);
    auto* const bytes = static_cast<volatile unsigned char*>(mapped);
    for (std::size_t i = 0; i < kPages; ++i) bytes[i * kPage.value] = 1;
    if (!set_process_policy(MemoryPolicy::none, {})) ::_exit(2);
    told_->hot = reinterpret_cast<std::uintptr_t>(mapped);
    told_->begun = true;
    // QEMU's TLB holds all of it, for minutes where nothing else runs, and DAMON does not flush it:
    // a page is then touched without a trace. Beyond 33 pages the kernel flushes the whole TLB.
    constexpr std::size_t kFlush = 64 * kPage.value;
    void* const dropped =
        ::mmap(nullptr, kFlush, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (true) {
      for (std::size_t i = kBegin; i < kEnd; ++i) (void)bytes[i * kPage.value];
      *static_cast<volatile unsigned char*>(dropped) = 1;
      (void)::mprotect(dropped, kFlush, PROT_READ);
      (void)::mprotect(dropped, kFlush, PROT_READ | PROT_WRITE);
      ::usleep(500);
    }
  }
};

int kdamonds() {
  int count = -1;
  std::ifstream("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds") >> count;
  return count;
}

TEST(SlowTier, DamonTellsThePagesThatAnotherProcessReads) {
  // The kernel would bring them itself.
  const std::string before = balancing();
  std::ofstream("/proc/sys/kernel/numa_balancing") << 0;
  const OneMapping program(NodeId{1});
  const Bytes others = std::max(512_KiB, anonymous(program.pid()) - kPage * OneMapping::kPages);
  ProcessTierOptions options{.policy = {.budget = kPage * (OneMapping::kPages / 4) + others,
                                        .least_heat = 0.2,
                                        .per_second = 1_GiB},
                             .fast = {NodeId{0}},
                             .slow = {NodeId{1}},
                             .source = ProcessHotness::damon,
                             .half_life = std::chrono::seconds{2},
                             .guard = 0};
  // A killed one leaves its kdamond, which the next takes away.
  const pid_t killed = ::fork();
  if (killed == 0) {
    const auto tier = ProcessTier::open(program.pid(), options);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(killed, nullptr, 0);
  EXPECT_EQ(kdamonds(), 1);
  EXPECT_TRUE(restore_after_kill());
  EXPECT_EQ(kdamonds(), 0);

  auto tier = ProcessTier::open(program.pid(), options);
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_EQ((*tier)->source(), ProcessHotness::damon);
  std::pair<std::size_t, std::size_t> fast;
  // DAMON's regions find the hot part by luck of its samples. In `make test` it is enough that some
  // of it has come.
  const std::size_t enough = OneMapping::kPages / 4 * 9 / (everything() ? 10 : 30);
  for (int steps = 0; steps < 800 && fast.first < enough; ++steps) {
    const auto step = (*tier)->step();
    ASSERT_TRUE(step) << step.error().message;
    ::usleep(250'000);
    fast = program.on(NodeId{0});
  }
  const ProcessTierTotals totals = (*tier)->totals();
  const auto hot = static_cast<double>(fast.first), all = hot + static_cast<double>(fast.second);
  const double recall = hot / (OneMapping::kPages / 4), precision = hot / std::max(all, 1.0);
  std::cout << fmt::format(
      "  recall {:.2f}, precision {:.2f} in {:.1f} s; CPU time: program {:.1f}, tracker {:.2f}, "
      "mover {:.2f} s\n",
      recall, precision, seconds(totals.elapsed), seconds(totals.program_cpu),
      seconds(totals.tracker_cpu), seconds(totals.mover_cpu));
  EXPECT_GE(recall, everything() ? 0.8 : 0.25);
  EXPECT_GE(precision, 0.8);
  EXPECT_GE(totals.came_in, kPage * fast.first);
  tier->reset();
  EXPECT_EQ(kdamonds(), 0);

  const char* const theirs = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
  std::ofstream(theirs) << 1;
  const auto refused = ProcessTier::open(program.pid(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::denied) << refused.error().message;
  EXPECT_EQ(kdamonds(), 1);
  std::ofstream(theirs) << 0;
  std::ofstream("/proc/sys/kernel/numa_balancing") << before;
}

TEST(CxlTier, PromotesWhatAnotherProcessWrites) {
  if (!everything()) GTEST_SKIP() << "only with --all";
  changes_places_from_outside(NodeId{0}, NodeId{1}, 1_MiB, true);
}

// Hint faults, on here, pull what is hot to the node of the CPU.
TEST(XeonMaxTier, HbmIsTheFastSideOfAnotherProcess) {
  changes_places_from_outside(NodeId{8}, NodeId{0}, 2_MiB, true);
}

}  // namespace
}  // namespace headrace
