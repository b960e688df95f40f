// SPDX-License-Identifier: Apache-2.0
// Tests lack of memory in a lane's threads: pieces are still read, and a failed piece loses at most
// the words of its error.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <atomic>
#include <new>
#include <optional>

#include "backend/storage/storage_testing.h"
#include "tests/support/failing_new_testing.h"

#if !defined(HEADRACE_TSAN)

namespace {

constinit std::atomic<bool> lanes_have_none = false;  // all allocations fail in threads of lanes
constinit std::atomic<std::size_t> failures = 0;

}  // namespace

bool headrace::test::allocation_fails() noexcept {
  if (!lanes_have_none || !this_thread_is("headrace-ssd")) return false;
  ++failures;
  return true;
}

namespace headrace {
namespace {

using namespace test;

class StorageMemory : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    StorageOptions options;
    options.queue = queue_of(GetParam());
    options.queue_depth = 4;
    backend_ = open_or_die(options);
  }
  void TearDown() override { lanes_have_none = false; }
  // The codes of all pieces; nullopt: it was read.
  std::vector<std::optional<ErrorCode>> read(const File& file) {
    Outcomes outcomes(kPieces);
    failures = 0;
    lanes_have_none = true;
    EXPECT_EQ(backend_->submit(reads(file, memory_, kPieces, kEach), outcomes), kPieces);
    EXPECT_TRUE(outcomes.wait(kPieces));
    lanes_have_none = false;
    std::vector<std::optional<ErrorCode>> codes(kPieces);
    for (std::size_t i = 0; i < kPieces; ++i) {
      if (const Status outcome = outcomes.of(i); !outcome) codes[i] = outcome.error().code;
    }
    return codes;
  }

  static constexpr std::size_t kPieces = 64;
  static constexpr std::uint64_t kEach = 64 << 10;
  const TempDir dir_;
  const Data data_ = random_bytes(kPieces * kEach, 1);
  const std::filesystem::path path_ = dir_.file("a", data_);
  Data back_ = Data(data_.size());
  MemoryRange memory_{back_, kDram};
  std::unique_ptr<Backend> backend_;
};

INSTANTIATE_TEST_SUITE_P(Queues, StorageMemory, testing::Bool(),
                         [](const auto& way) { return way.param ? "threads" : "uring"; });

TEST_P(StorageMemory, WithoutIt_PiecesAreReadOrHaveTheirErrors) {
  using Codes = std::vector<std::optional<ErrorCode>>;
  EXPECT_EQ(read(*open_file(path_, {})), Codes(kPieces));
  EXPECT_TRUE(same(back_, data_));
  const auto file = open_file(path_, {.direct = false});
  std::filesystem::resize_file(path_, data_.size() / 2);
  Codes codes(kPieces);
  std::fill(codes.begin() + kPieces / 2, codes.end(), ErrorCode::io);
  EXPECT_EQ(read(*file), codes);
  EXPECT_GT(failures, 0U);
  const int unreadable = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(unreadable, file->buffered_fd()), file->buffered_fd());
  close(unreadable);
  EXPECT_EQ(read(*file), Codes(kPieces, ErrorCode::io)) << "the kernel refuses";
  EXPECT_GT(failures, 0U);
}

}  // namespace
}  // namespace headrace

#endif
