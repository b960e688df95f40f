// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/tier/process_tier.h"
#include "tests/support/expect.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using test::expect_refused;

constexpr std::size_t kMapped = 32 << 20;

// A program with memory of known bytes. It reads the first eighth again and again, and checks all
// bytes at the end.
class Program {
 public:
  Program() {
    memory_ = static_cast<unsigned char*>(
        ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    flags_ = static_cast<volatile int*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    child_ = ::fork();
    if (child_ == 0) run();
    for (int i = 0; i < 2000 && flags_[0] == 0; ++i) ::usleep(5000);
  }
  ~Program() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::munmap(memory_, kMapped);
    ::munmap(const_cast<int*>(flags_), 4096);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  int pid() const { return child_; }
  // Whether its bytes are unchanged.
  bool intact() {
    flags_[1] = 1;
    int status = -1;
    ::waitpid(child_, &status, 0);
    return status == 0;
  }

 private:
  static unsigned char byte(std::size_t i) { return static_cast<unsigned char>(i * 37 >> 5); }
  [[noreturn]] void run() {
    ::alarm(60);
    for (std::size_t i = 0; i < kMapped; ++i) memory_[i] = byte(i);
    flags_[0] = 1;
    while (flags_[1] == 0) {
      for (std::size_t i = 0; i < kMapped / 8; i += 512) {
        auto& written = static_cast<volatile unsigned char&>(memory_[i]);
        written = written;
      }
      ::usleep(1000);
    }
    for (std::size_t i = 0; i < kMapped; ++i) {
      if (memory_[i] != byte(i)) ::_exit(1);
    }
    ::_exit(0);
  }
  unsigned char* memory_;
  volatile int* flags_;
  pid_t child_ = -1;
};

// The default chunk is smaller than a page of 16 or 64 KiB.
TEST(ProcessTierChunk, BelowAPage_IsAPage) {
  ProcessTierOptions options{.policy = {.budget = 8_MiB}};
  options.chunk = 1_KiB;
  const auto tier = ProcessTier::open(::getpid(), options);
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().message.find("chunk"), std::string::npos) << tier.error().message;
}

class ProcessTierOpened : public testing::Test {
 protected:
  const test::TestFolder folder_;
  ProcessTierOptions options_{.policy = {.budget = 8_MiB, .per_second = 1_GiB},
                              .directory = folder_.root()};
};

TEST_F(ProcessTierOpened, RefusesWhatMakesNoSense) {
  using Options = ProcessTierOptions;
  const std::vector<NodeId> here{NodeId{0}}, nowhere{NodeId{1023}};
  struct Wrong {
    std::string_view word;
    std::function<void(Options&)> make;
  };
  for (const auto& [word, make] :
       {Wrong{"budget", [](Options& with) { with.policy.budget = {}; }},
        {"no share", [](Options& with) { with.guard = 1.5; }},
        {"rate", [](Options& with) { with.policy.per_second = {}; }},
        {"power of two", [](Options& with) { with.chunk = 5000_B; }},
        {"slow ones", [&](Options& with) { with.fast = here; }},
        {"twice", [&](Options& with) { with.fast = with.slow = here; }},
        {"between nodes only", [](Options& with) { with.source = ProcessHotness::referenced; }},
        {"beside swap only", [&](Options& with) {
           with.fast = here;
           with.slow = nowhere;
           with.source = ProcessHotness::refaults;
         }}}) {
    Options wrong = options_;
    make(wrong);
    expect_refused(ProcessTier::open(::getppid(), wrong), ErrorCode::invalid, word);
  }
  expect_refused(ProcessTier::open(::getpid(), options_), ErrorCode::invalid, "PageTier");
  expect_refused(ProcessTier::open(999'999'999, options_), ErrorCode::absent, "no process");
  options_.fast = here;
  options_.slow = nowhere;
  const auto none = ProcessTier::open(::getppid(), options_);
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().message.contains("node 1023 has no memory")) << none.error().message;
}

std::string word_behind(const char* file, std::string_view name) {
  std::ifstream words(file);
  for (std::string word; words >> word;) {
    if (word == name && words >> word) return word;
  }
  return {};
}

// Why no process can be tiered to swap on this host, found without the tier; "": it can. A test
// that skipped by the tier's own answer would pass even if the tier always refused.
std::string lacking() {
  constexpr std::uint64_t kNeeded = std::uint64_t{1} << 19 | std::uint64_t{1} << 23;
  const std::string held = word_behind("/proc/self/status", "CapEff:");
  if (held.empty() || (std::stoull(held, nullptr, 16) & kNeeded) != kNeeded) {
    return "CAP_SYS_PTRACE and CAP_SYS_NICE";
  }
  constexpr std::size_t kPages = 64;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped =
      ::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return "memory";
  std::memset(mapped, 'x', kPages * page);
  (void)::madvise(mapped, kPages * page, MADV_PAGEOUT);
  std::array<std::uint64_t, kPages> entries{};
  std::ifstream pagemap("/proc/self/pagemap", std::ios::binary);
  pagemap.seekg(static_cast<std::streamoff>(reinterpret_cast<std::uintptr_t>(mapped) / page * 8));
  pagemap.read(reinterpret_cast<char*>(entries.data()), sizeof entries);
  ::munmap(mapped, kPages * page);
  const bool goes_out =
      std::ranges::any_of(entries, [](std::uint64_t entry) { return entry >> 62 & 1; });
  return goes_out ? "" : "swap";
}

// Uses the machine's swap; the test does not make any.
TEST_F(ProcessTierOpened, TiersAProgramOrSaysWhyNot) {
  Program program;
  auto tier = ProcessTier::open(program.pid(), options_);
  if (!tier) {
    EXPECT_EQ(tier.error().message.find('\n'), std::string::npos);
    EXPECT_NE(lacking(), "") << "this machine can: " << tier.error().message;
    EXPECT_TRUE(program.intact());
    GTEST_SKIP() << tier.error().message;
  }
  EXPECT_FALSE((*tier)->why().empty());
  expect_refused(ProcessTier::open(program.pid(), options_), ErrorCode::exhausted, "already");
  ProcessTierStep last;
  for (int i = 0; i < 60 && (i < 20 || last.resident > 8_MiB); ++i) {
    ::usleep(100'000);
    const auto step = (*tier)->step();
    ASSERT_TRUE(step) << step.error().message;
    last = *step;
  }
  EXPECT_LE(last.resident, 9_MiB) << last.note << last.undone;
  EXPECT_GE(last.out, 16_MiB);
  EXPECT_TRUE(program.intact());
  expect_refused((*tier)->step(), ErrorCode::absent, "ended");
}

// A memory cgroup below or beside this process's own, where permitted.
class OwnGroup {
 public:
  OwnGroup() {
    std::ifstream lines("/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
      const std::string name = line.substr(line.rfind(':') + 1);
      if (line.find(":memory:") != line.npos) path_ = "/sys/fs/cgroup/memory" + name;
      if (line.starts_with("0::") && path_.empty()) path_ = "/sys/fs/cgroup" + name;
    }
    path_ /= "headrace-tier-test-" + std::to_string(::getpid());
    made_ = ::mkdir(path_.c_str(), 0755) == 0;
  }
  ~OwnGroup() {
    if (made_) ::rmdir(path_.c_str());
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;
  bool enter() const {
    return made_ && bool(std::ofstream(path_ / "cgroup.procs") << 0 << std::flush);
  }
  std::string limit() const {
    std::string limit;
    for (const char* const file : {"memory.limit_in_bytes", "memory.high"}) {
      std::ifstream(path_ / file) >> limit;
    }
    return limit;
  }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

Bytes anonymous(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::uint64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> kib;
  }
  return {kib << 10};
}

// Uses the machine's swap and cgroups. No step runs while the program allocates.
TEST_F(ProcessTierOpened, ACgroupHoldsWhatIsTakenBetweenTwoSteps) {
  const OwnGroup group;
  std::array<int, 2> go{}, told{};
  ASSERT_TRUE(::pipe(go.data()) == 0 && ::pipe(told.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    char byte = group.enter() ? 'y' : 'n';
    (void)!::write(told[1], &byte, 1);
    (void)!::read(go[0], &byte, 1);
    std::vector<char> memory(kMapped);
    for (std::size_t i = 0; i < kMapped; i += 8) memory[i] = static_cast<char>(i >> 12);
    (void)!::write(told[1], &byte, 1);
    (void)!::read(go[0], &byte, 1);
    for (std::size_t i = 0; i < kMapped; i += 8) {
      if (memory[i] != static_cast<char>(i >> 12)) ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(told[1]);  // the child's end then shows; go[0] stays open: no SIGPIPE
  char byte = 0;
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  const std::string before = group.limit();
  // If the child has more than the budget, as after fork() in a sanitizer build, it keeps that, and
  // may take as much again: memory that it shares with this process counts for this one's cgroup.
  const Bytes had = anonymous(child);
  options_.hold = true;
  options_.policy.per_second = 64_MiB;
  options_.guard = 0;
  auto tier = byte == 'y' ? ProcessTier::open(child, options_)
                          : Unexpected(Error{ErrorCode::denied, "no cgroup may be made here"});
  if (!tier && byte == 'y') {
    EXPECT_NE(lacking(), "") << "this machine can: " << tier.error().message;
  }
  if (tier) {
    EXPECT_NE((*tier)->why().find("held by memory."), std::string::npos) << (*tier)->why();
    const auto step = (*tier)->step();
    ASSERT_TRUE(step) << step.error().message;
    const bool scarce = step->note.find("of swap") != std::string::npos;
    EXPECT_EQ(group.limit() == before, scarce);
    if (scarce) tier = Unexpected(Error{ErrorCode::exhausted, step->note});
  }
  EXPECT_EQ(::write(go[1], "t", 1), 1);
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  if (tier) {
    const Bytes most = had > options_.policy.budget ? had * 2 : options_.policy.budget;
    EXPECT_LE(anonymous(child), most + 2_MiB);
    tier->reset();
    EXPECT_EQ(group.limit(), before);
  }
  EXPECT_EQ(::write(go[1], "e", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "a byte changed";
  for (const int each : {go[0], go[1], told[0]}) ::close(each);
  if (!tier) GTEST_SKIP() << tier.error().message;
}

}  // namespace
}  // namespace headrace
