// SPDX-License-Identifier: Apache-2.0
#include "tier/process/process_tier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "core/fail.h"
#include "core/text/files.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::uint64_t kPageBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uintptr_t kFake = 0x7f0000000000;

// A process made of pages: present, in swap, or present with its entry removed.
struct FakeMemory {
  explicit FakeMemory(std::size_t count) : out(count), armed(count) {}
  std::vector<bool> out;
  std::vector<bool> armed;
  std::set<std::size_t> locked;  // never move
  std::set<std::size_t> forked;  // shared with a child
  std::vector<PageFault> faults;
  ProcessState now{.started = 1, .start_code = 2, .threads = 4};
  bool ended = false;
  bool hears = true;
  std::string unheard;
  Bytes huge;
  Bytes swap = 1_GiB;
  std::uint64_t rounds = 0;
  std::uint64_t read = 0;  // pages that bring_in() was asked for
  std::function<void()> on_survey = [] {};
  std::function<void()> on_move = [] {};

  void access(std::size_t i) {
    if (!out[i] && !armed[i]) return;
    faults.push_back({.address = kFake + i * kPageBytes + 8, .major = out[i]});
    now.major_faults += out[i] ? 1 : 0;
    out[i] = armed[i] = false;
  }
  // The kernel removes the entries.
  void arm() {
    armed.assign(armed.size(), true);
    ++rounds;
  }
  std::size_t resident() const {
    return out.size() - static_cast<std::size_t>(std::count(out.begin(), out.end(), true));
  }
};

class FakeProcess final : public OtherProcess {
 public:
  explicit FakeProcess(FakeMemory& memory) : memory_(memory) {}
  Result<ProcessState> state() override {
    if (memory_.ended) return fail(ErrorCode::absent, "process 7 has ended");
    return memory_.now;
  }
  Bytes huge() override { return memory_.huge; }
  Result<std::vector<TrackedRange>> memory() override {
    return std::vector<TrackedRange>{{kFake, kFake + memory_.out.size() * kPageBytes}};
  }
  Status entries(std::uintptr_t begin, std::span<std::uint64_t> entries) override {
    memory_.on_survey();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::size_t page = (begin - kFake) / kPageBytes + i;
      entries[i] = memory_.out[page]               ? kPageSwapped
                   : memory_.forked.contains(page) ? kPagePresent
                                                   : kPagePresent | kPageExclusive;
    }
    return {};
  }
  Status page_out(std::span<const TrackedRange> ranges) override {
    memory_.on_move();
    for (const TrackedRange& range : ranges) {
      for (std::uintptr_t at = range.begin; at < range.end; at += kPageBytes) {
        const std::size_t i = (at - kFake) / kPageBytes;
        if (!memory_.locked.contains(i)) memory_.out[i] = true;
      }
    }
    return {};
  }
  Status bring_in(std::span<const std::uintptr_t> pages) override {
    memory_.read += pages.size();
    for (const std::uintptr_t at : pages) memory_.out[(at - kFake) / kPageBytes] = false;
    return {};
  }
  Bytes swap_free() override { return memory_.swap; }
  Result<std::vector<MappingUse>> use() override { return std::vector<MappingUse>{}; }
  bool tells_written() const override { return true; }
  Status forget_use() override { return {}; }
  std::optional<std::uint64_t> hint_rounds() override { return memory_.rounds; }
  Status listen() override {
    if (memory_.hears) return {};
    return fail(ErrorCode::denied, "no perf here");
  }
  std::string unheard() const override { return memory_.unheard; }
  std::uint64_t take_faults(std::vector<PageFault>& faults) override {
    faults = std::exchange(memory_.faults, {});
    return 0;
  }

 private:
  FakeMemory& memory_;
};

// Sees the first pages as accessed in each sample, until the process ends.
class FirstPages final : public RegionSampler {
 public:
  FirstPages(const FakeMemory& memory, std::size_t pages) : memory_(memory), pages_(pages) {}
  Result<std::vector<SampledRegion>> look() override {
    if (memory_.now.start_code == 0) return fail(ErrorCode::denied, "DAMON has ended");
    return std::vector<SampledRegion>{{kFake, kFake + pages_ * kPageBytes, 1}};
  }
  Nanoseconds sample() const override { return milliseconds{20}; }
  Nanoseconds span() const override { return milliseconds{400}; }
  Nanoseconds cpu() override { return seconds{3}; }

 private:
  const FakeMemory& memory_;
  const std::size_t pages_;
};

class ProcessTiered : public testing::Test {
 protected:
  ProcessTierOptions options(std::size_t pages) {
    return {.policy = {.budget = Bytes{pages * kPageBytes}, .per_second = 1_GiB},
            .half_life = seconds{60},
            .guard = 0,
            .clock = &clock_};
  }
  void open(const ProcessTierOptions& with, ProcessTierStart start = {}) {
    start.of_fault = std::chrono::microseconds{10};
    auto tier = ProcessSwap::open(std::make_unique<FakeProcess>(memory_), with, std::move(start));
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = *std::move(tier);
  }
  // A quarter of a second of the program.
  Result<ProcessTierStep> step(const std::function<void()>& program) {
    if (hints_ && steps_ % 8 == 0) memory_.arm();
    ++steps_;
    program();
    clock_.advance(milliseconds{250});
    memory_.now.cpu += milliseconds{125};
    return tier_->step();
  }
  void touch(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) memory_.access(i);
  }
  std::size_t out_of(std::size_t begin, std::size_t end) const {
    return static_cast<std::size_t>(
        std::count(memory_.out.begin() + static_cast<std::ptrdiff_t>(begin),
                   memory_.out.begin() + static_cast<std::ptrdiff_t>(end), true));
  }
  ManualClock clock_;
  FakeMemory memory_{1000};
  bool hints_ = true;
  int steps_ = 0;
  std::unique_ptr<ProcessSwap> tier_;
};

TEST_F(ProcessTiered, KeepsTheHotWithinTheBudgetAndFollowsIt) {
  open(options(400));
  for (const std::size_t hot : {0, 600}) {
    for (int i = 0; i < 200; ++i) {
      const auto done = step([&] { touch(hot, hot + 300); });
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_LE(memory_.resident(), 400u);
      EXPECT_EQ(done->resident, Bytes{memory_.resident() * kPageBytes});
      EXPECT_EQ(done->resident + done->out, Bytes{1000 * kPageBytes});
    }
    const std::uint64_t before = memory_.now.major_faults;
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(step([&] { touch(hot, hot + 300); }));
    EXPECT_EQ(out_of(hot, hot + 300), 0u);
    EXPECT_EQ(memory_.now.major_faults, before) << "at rest";
  }
  for (const TierDecision& each : tier_->decisions()) EXPECT_FALSE(each.reason.empty());
  EXPECT_FALSE(tier_->decisions().empty());
}

TEST_F(ProcessTiered, SamplesTellWhatIsHotBeforeItEverWentOut) {
  hints_ = false;
  ProcessTierStart start;
  start.sampler = std::make_unique<FirstPages>(memory_, 300);
  open(options(400), std::move(start));
  EXPECT_EQ(tier_->source(), ProcessHotness::damon);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(step([&] { touch(0, 300); }));
  EXPECT_EQ(memory_.resident(), 400u);
  EXPECT_EQ(memory_.now.major_faults, 0u) << "none of the hot went out";
  EXPECT_GE(tier_->totals().tracker_cpu, seconds{3});
  EXPECT_LT(tier_->totals().tracker_cpu, seconds{5}) << "counted once";
}

TEST_F(ProcessTiered, ReturnsAloneTellWhatIsHot) {
  hints_ = false;
  for (const bool hears : {true, false}) {
    memory_ = FakeMemory(1000);
    memory_.hears = hears;
    open(options(400));
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(step([&] { touch(100, 400); }));
    const std::uint64_t before = memory_.now.major_faults;
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(step([&] { touch(100, 400); }));
    EXPECT_LE(memory_.now.major_faults - before, 60u) << "of 12000 touches";
    EXPECT_LE(memory_.resident(), 400u) << "unheard returns are found by surveys";
    EXPECT_EQ(out_of(100, 400), 0u);
  }
}

TEST_F(ProcessTiered, KeepsThePagesThatAreTouchedMostOften) {
  open(options(500));
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> chance;
  // From ten times a second to once a minute.
  const auto rate = [](std::size_t i) {
    return 10 * std::exp2(-static_cast<double>(i % 100) / 10);
  };
  std::uint64_t touches = 0;
  std::uint64_t before = 0;
  for (int i = 0; i < 1200; ++i) {
    if (i == 800) {
      touches = 0;
      before = memory_.now.major_faults;
    }
    ASSERT_TRUE(step([&] {
      for (std::size_t page = 0; page < 1000; ++page) {
        if (chance(random) >= 1 - std::exp(-rate(page) / 4)) continue;
        memory_.access(page);
        ++touches;
      }
    }));
  }
  // Knowing all rates, one would demote the half with the lowest; a random choice demotes half of
  // the touches.
  double cold = 0;
  double all = 0;
  for (std::size_t page = 0; page < 1000; ++page) {
    const double seen = 1 - std::exp(-rate(page) / 4);
    all += seen;
    cold += page % 100 >= 50 ? seen : 0;
  }
  EXPECT_LT(static_cast<double>(memory_.now.major_faults - before) / static_cast<double>(touches),
            cold / all * 1.25);
}

// When the hot set wanders from page to page, evidence is soon worthless.
TEST_F(ProcessTiered, ForgetsAsFastAsMemoryComesBack) {
  std::array<std::uint64_t, 2> faults{};
  for (const bool fixed : {false, true}) {
    memory_ = FakeMemory(1000);
    steps_ = 0;
    ProcessTierOptions with = options(400);
    with.half_life = seconds{fixed ? 120 : 0};
    open(with);
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> chance;
    std::vector<double> rates(1000);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      rates[i] = 2 * std::exp2(-static_cast<double>(i % 100) / 10);
    }
    for (int i = 0; i < 1000; ++i) {
      for (int swaps = 0; swaps < 5; ++swaps) {
        std::swap(rates[random() % 1000], rates[random() % 1000]);
      }
      ASSERT_TRUE(step([&] {
        for (std::size_t page = 0; page < rates.size(); ++page) {
          if (chance(random) < 1 - std::exp(-rates[page] / 4)) memory_.access(page);
        }
      }));
    }
    faults[fixed ? 1 : 0] = memory_.now.major_faults;
  }
  EXPECT_LT(faults[0], faults[1] * 4 / 5) << faults[0] << " and " << faults[1];
}

TEST_F(ProcessTiered, BringsInWhatIsHotAndWasTakenByTheKernel) {
  open(options(900));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(step([&] { touch(0, 300); }));
  for (std::size_t i = 0; i < 300; ++i) memory_.out[i] = true;
  const std::uint64_t before = memory_.now.major_faults;
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(step([] {}));
  EXPECT_EQ(out_of(0, 300), 0u);
  EXPECT_EQ(memory_.now.major_faults, before) << "without a fault of the program";
  EXPECT_GT(tier_->totals().came_in, 0_B);
}

TEST_F(ProcessTiered, MovesAtItsRateAndNoFaster) {
  ProcessTierOptions with = options(100);
  with.policy.per_second = Bytes{40 * kPageBytes};
  open(with);
  for (int i = 1; i <= 12; ++i) {
    ASSERT_TRUE(step([] {}));
    EXPECT_EQ(1000 - memory_.resident(), static_cast<std::size_t>(10 * i));
  }
  clock_.advance(seconds{100});
  ASSERT_TRUE(step([] {}));
  EXPECT_LE(1000 - memory_.resident(), 120u + 40u) << "no more after a pause";
}

TEST_F(ProcessTiered, ChunkThatStayed_IsReportedAndBacksOff) {
  for (std::size_t i = 0; i < 200; ++i) memory_.locked.insert(i);
  open(options(500));
  Bytes refused;
  for (int i = 0; i < 100; ++i) {
    const auto done = step([] {});
    ASSERT_TRUE(done);
    if (done->surveyed) refused = std::max(refused, done->refused);
  }
  EXPECT_GT(refused, 0_B);
  EXPECT_LE(memory_.resident(), 500u) << "others go in their place";
}

// An idle program has no faults that would show it.
TEST_F(ProcessTiered, PagesReclaimedByTheKernel_AreFoundSoon) {
  memory_ = FakeMemory(20'000);
  memory_.now.resident = Bytes{20'000 * kPageBytes};
  open(options(20'000));
  ASSERT_TRUE(step([] {}));
  for (std::size_t i = 0; i < 8000; ++i) memory_.out[i] = true;
  memory_.now.resident = Bytes{12'000 * kPageBytes};
  clock_.advance(seconds{2});
  const auto done = tier_->step();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->out, Bytes{8000 * kPageBytes});
  clock_.advance(seconds{2});
  const auto after = tier_->step();
  ASSERT_TRUE(after);
  EXPECT_FALSE(after->surveyed) << "nothing is new";
}

// Pages shared with a child of fork() stay, and are not managed.
TEST_F(ProcessTiered, PagesSharedWithAChild_AreNotReportedAsDemoted) {
  for (std::size_t i = 0; i < 700; ++i) {
    memory_.locked.insert(i);
    memory_.forked.insert(i);
  }
  open(options(200));
  for (int i = 0; i < 20; ++i) {
    const auto done = step([] {});
    ASSERT_TRUE(done);
    EXPECT_LE(done->out, Bytes{300 * kPageBytes});
  }
  EXPECT_EQ(out_of(700, 1000), 100u);
}

TEST_F(ProcessTiered, NothingGoesOutWhereSwapIsFull) {
  memory_.swap = 1_MiB;
  open(options(500));
  const auto done = step([] {});
  ASSERT_TRUE(done);
  EXPECT_NE(done->note.find("full"), std::string::npos);
  EXPECT_EQ(memory_.resident(), 1000u);
}

TEST_F(ProcessTiered, TheGuardUndoesWhatMakesTheProgramWorse) {
  ProcessTierOptions with = options(500);
  with.guard = 0.002;
  open(with);
  std::string undone;
  std::size_t resident = 0;
  for (int i = 0; i < 40 && undone.empty(); ++i) {
    // Touches all of it in turn: more than the budget.
    const auto done = step([&] { touch(i % 4 * 250, i % 4 * 250 + 250); });
    ASSERT_TRUE(done);
    if (i < 3) {
      EXPECT_EQ(memory_.resident(), 1000u) << "first it is seen how the program runs";
    }
    undone = done->undone;
    resident = memory_.resident();
  }
  EXPECT_NE(undone.find("before"), std::string::npos);
  EXPECT_EQ(resident, 1000u);
  EXPECT_EQ(tier_->totals().undone, 1u);
  EXPECT_EQ(tier_->decisions().back().reason, "undone by the guard");
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(step([&] { touch(i % 4 * 250, i % 4 * 250 + 250); }));
    EXPECT_EQ(memory_.resident(), 1000u) << "for a minute";
  }
  for (int i = 0; i < 100 && tier_->totals().undone < 2; ++i) {
    ASSERT_TRUE(step([&] { touch(i % 4 * 250, i % 4 * 250 + 250); }));
  }
  EXPECT_EQ(tier_->totals().undone, 2u) << "then it is tried again";
}

TEST_F(ProcessTiered, EndsWithItsProcess) {
  for (int how = 0; how < 3; ++how) {
    memory_ = FakeMemory(100);
    open(options(50));
    ASSERT_TRUE(step([] {}));
    if (how == 0) memory_.ended = true;
    if (how == 1) memory_.now.started = 9;
    if (how == 2) memory_.now.start_code = 9;
    for (int i = 0; i < 2; ++i) {
      const auto done = step([] {});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, ErrorCode::absent);
      const char* const words[] = {"ended", "another", "exec"};
      EXPECT_NE(done.error().message.find(words[how]), std::string::npos) << done.error().message;
      memory_.ended = false;
    }
  }
}

TEST_F(ProcessTiered, AProcessGetsHintsWhenItHasASecondThread) {
  const test::TestFolder folder;
  folder.write(kNumaBalancing, "0");
  memory_.now.threads = 1;
  auto tier =
      ProcessSwap::open(std::make_unique<FakeProcess>(memory_), options(500), {.hints_later = [&] {
                          return HintFaults::take(folder.root(), HintFaults::Set::if_need_be,
                                                  HostFiles(folder.root()));
                        }});
  ASSERT_TRUE(tier);
  tier_ = *std::move(tier);
  ASSERT_TRUE(step([] {}));
  EXPECT_EQ(tier_->source(), ProcessHotness::refaults);
  memory_.now.threads = 2;
  ASSERT_TRUE(step([] {}));
  EXPECT_EQ(tier_->source(), ProcessHotness::hint_faults);
  EXPECT_EQ(first_line(folder.at(kNumaBalancing)), "1");
  tier_.reset();
  EXPECT_EQ(first_line(folder.at(kNumaBalancing)), "0");
}

// A cgroup made of files; process 7 is in it and has 4 MiB.
class GroupOfFiles {
 public:
  GroupOfFiles() {
    folder_.write("proc/7/cgroup", "0::/a");
    folder_.write("proc/7/status", "RssAnon: 4096 kB");
    folder_.write("sys/fs/cgroup/a/memory.current", "4194304");
    folder_.write("sys/fs/cgroup/a/memory.high", "max");
  }
  ProcessTierStart held() const {
    ProcessTierStart start;
    auto hold = GroupHold::take(7, folder_.root(), folder_.root());
    EXPECT_TRUE(hold) << hold.error().message;
    if (hold) start.hold.emplace(*std::move(hold));
    return start;
  }
  std::string limit() const { return first_line(folder_.at("sys/fs/cgroup/a/memory.high")); }

 private:
  const test::TestFolder folder_;
};

TEST_F(ProcessTiered, SurveyThatTakesLong_TheLimitIsLookedAtMeanwhile) {
  const GroupOfFiles group;
  memory_ = FakeMemory(40'000);
  std::vector<std::string> limits;
  memory_.on_survey = [&] {
    limits.push_back(group.limit());
    clock_.advance(milliseconds{300});
    if (limits.size() == 3) memory_.swap = 200_MiB;
  };
  open(options(20'000), group.held());
  ASSERT_TRUE(step([] {}));
  // The third part of the survey finds swap scarce.
  EXPECT_EQ(limits, (std::vector<std::string>{"max", "82837504", "82837504", "max", "max"}));
  tier_.reset();
}

TEST_F(ProcessTiered, MovesThatTakeLong_TheLimitIsLookedAtMeanwhile) {
  const GroupOfFiles group;
  memory_ = FakeMemory(10'000);
  std::vector<std::string> limits;
  memory_.on_move = [&] {
    limits.push_back(group.limit());
    clock_.advance(milliseconds{300});
    if (limits.size() == 2) memory_.swap = 200_MiB;
  };
  ProcessTierOptions with = options(5'000);
  open(with, group.held());
  ASSERT_TRUE(step([] {}));
  // 5000 pages are five parts.
  EXPECT_EQ(limits, (std::vector<std::string>{"20971520", "20971520", "max", "max", "max"}));
  tier_.reset();
}

TEST_F(ProcessTiered, ThreadsThatAreNotHeard_AreSaidOnceAndTheirReturnsAreNoRefusals) {
  memory_.unheard = "page faults of 1 of 2 threads are listened to";
  open(options(400));
  std::string note;
  Bytes refused;
  for (int i = 0; i < 80; ++i) {
    const auto done = step([&] {
      touch(0, 1000);
      memory_.faults.clear();
    });
    ASSERT_TRUE(done);
    note += done->note;
    refused += done->refused;
  }
  EXPECT_EQ(note, memory_.unheard);
  EXPECT_EQ(refused, 0_B);
}

TEST_F(ProcessTiered, TheCgroupIsLetGoWhereSwapIsScarceAndByAFailedStep) {
  const GroupOfFiles group;
  ProcessTierStart start = group.held();
  ProcessTierOptions with = options(400);
  with.policy.per_second = 64_MiB;
  start.sampler = std::make_unique<FirstPages>(memory_, 1);
  open(with, std::move(start));
  ASSERT_TRUE(step([] {}));
  EXPECT_EQ(group.limit(), "4194304");
  memory_.swap = 200_MiB;
  const auto scarce = step([] {});
  ASSERT_TRUE(scarce);
  EXPECT_NE(scarce->note.find("256 MiB of swap"), std::string::npos) << scarce->note;
  EXPECT_EQ(group.limit(), "max");
  memory_.swap = 300_MiB;
  ASSERT_TRUE(step([] {}));
  EXPECT_EQ(group.limit(), "4194304");
  memory_.now.start_code = 0;
  ASSERT_FALSE(step([] {}));
  EXPECT_EQ(group.limit(), "max");
  tier_.reset();
}

TEST_F(ProcessTiered, MemoryInHugePages_MovesByHugePages) {
  memory_ = FakeMemory(4096);
  memory_.now.resident = Bytes{4096 * kPageBytes};
  for (const Bytes huge : {Bytes{}, 2_MiB, 4_MiB}) {
    memory_.huge = Bytes{(huge > Bytes{} ? 2048 : 1024) * kPageBytes};
    ProcessTierStart start;
    start.huge_page = huge;
    open(options(2048), std::move(start));
    ASSERT_TRUE(step([] {}));
    const std::vector<TierDecision> decisions = tier_->decisions();
    ASSERT_FALSE(decisions.empty());
    const Bytes chunk = std::max(huge, Bytes{kPageBytes});
    for (const TierDecision& each : decisions) {
      EXPECT_EQ(each.bytes, chunk);
      EXPECT_EQ(each.begin % chunk.value, 0u) << "none of them is split";
    }
    memory_.out.assign(4096, false);
  }
}

TEST_F(ProcessTiered, LargeProcessesAreTrackedByLargerChunks) {
  EXPECT_EQ(chunk_for(1_GiB, 4_KiB), 4_KiB);
  EXPECT_EQ(chunk_for(16_GiB, 4_KiB), 4_KiB);
  EXPECT_EQ(chunk_for(1024_GiB, 4_KiB), 256_KiB);
  ProcessTierOptions with = options(400);
  with.chunk = Bytes{16 * kPageBytes};
  open(with);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(step([&] { touch(160, 320); }));
  EXPECT_LE(memory_.resident(), 400u);
  EXPECT_EQ(out_of(160, 320), 0u);
}

}  // namespace
}  // namespace headrace
