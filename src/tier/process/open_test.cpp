#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "headrace/tier/process_tier.h"

namespace headrace {
namespace {

constexpr std::size_t kMapped = 32 << 20;

// A program with memory of known bytes, of which it reads the first eighth again and again, and
// which checks all of it at the end.
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
  // Whether its bytes are as they were.
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

class ProcessTierOpened : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headrace_open_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    options_.directory = name;
    options_.policy.budget = 8_MiB;
    options_.policy.per_second = 1_GiB;
  }
  void TearDown() override { std::filesystem::remove_all(options_.directory); }
  ProcessTierOptions options_;
};

void expect_refused(const auto& result, ErrorCode code, const char* word) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

TEST_F(ProcessTierOpened, RefusesWhatMakesNoSense) {
  ProcessTierOptions wrong = options_;
  wrong.policy.budget = {};
  expect_refused(ProcessTier::open(::getppid(), wrong), ErrorCode::invalid, "budget");
  wrong = options_;
  wrong.guard = 1.5;
  expect_refused(ProcessTier::open(::getppid(), wrong), ErrorCode::invalid, "shares");
  wrong = options_;
  wrong.policy.per_second = {};
  expect_refused(ProcessTier::open(::getppid(), wrong), ErrorCode::invalid, "rate");
  wrong = options_;
  wrong.chunk = 5000_B;
  expect_refused(ProcessTier::open(::getppid(), wrong), ErrorCode::invalid, "power of two");
  expect_refused(ProcessTier::open(::getpid(), options_), ErrorCode::invalid, "PageTier");
  expect_refused(ProcessTier::open(999'999'999, options_), ErrorCode::absent, "no process");
}

// With the swap that the machine has; none is made for it.
TEST_F(ProcessTierOpened, TiersAProgramOrSaysWhyNot) {
  Program program;
  auto tier = ProcessTier::open(program.pid(), options_);
  if (!tier) {
    EXPECT_EQ(tier.error().message.find('\n'), std::string::npos);
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

}  // namespace
}  // namespace headrace
