// SPDX-License-Identifier: Apache-2.0
// Tests lack of memory in a lane's threads: pieces are still read, and a failed piece loses at most
// the words of its error.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <array>
#include <atomic>
#include <new>

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

constexpr std::size_t kPieces = 64;

// Allocates nothing.
class Codes final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    codes.at(tag) = outcome ? -1 : static_cast<int>(outcome.error().code);
    ++count;
  }
  bool wait(std::size_t n) {
    return eventually([&] { return count == n; });
  }
  std::array<std::atomic<int>, kPieces> codes{};
  std::atomic<std::size_t> count = 0;
};

class StorageMemory : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    StorageOptions options;
    options.queue = queue_of(GetParam());
    options.queue_depth = 4;
    backend_ = open_or_die(options);
  }
  void TearDown() override { lanes_have_none = false; }
  void read(const File& file, Codes& codes) {
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      pieces.push_back({.from = {&file, i * kEach, Bytes{kEach}},
                        .to = {&memory_, i * kEach, Bytes{kEach}},
                        .engine = kSsd,
                        .tag = i});
    }
    lanes_have_none = true;
    EXPECT_EQ(backend_->submit(pieces, codes), kPieces);
    EXPECT_TRUE(codes.wait(kPieces));
    lanes_have_none = false;
  }

  static constexpr std::uint64_t kEach = 64 << 10;
  const TempDir dir_;
  const Data data_ = random_bytes(kPieces * kEach, 1);
  const std::filesystem::path path_ = dir_.file("a", data_);
  Data back_ = Data(data_.size());
  MemoryRange memory_{back_, kDram};
  std::unique_ptr<Backend> backend_;
};

INSTANTIATE_TEST_SUITE_P(Queues, StorageMemory, testing::Bool(),
                         [](const auto& info) { return info.param ? "threads" : "uring"; });

TEST_P(StorageMemory, WithoutIt_PiecesAreReadAsEver) {
  const auto file = open_file(path_, {});
  Codes codes;
  read(*file, codes);
  for (const auto& code : codes.codes) EXPECT_EQ(code, -1);
  EXPECT_TRUE(same(back_, data_));
}

TEST_P(StorageMemory, WithoutIt_AFileThatHasShrunkIsAnErrorOfItsPieces) {
  const auto file = open_file(path_, {});
  std::filesystem::resize_file(path_, data_.size() / 2);
  failures = 0;
  Codes codes;
  read(*file, codes);
  EXPECT_GT(failures, 0U);
  for (std::size_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(codes.codes[i], i < kPieces / 2 ? -1 : static_cast<int>(ErrorCode::io)) << i;
  }
}

TEST_P(StorageMemory, WithoutIt_WhatTheKernelRefusesIsAnErrorOfItsPieces) {
  const auto file = open_file(path_, {.direct = false});
  const int unreadable = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(unreadable, 0);
  ASSERT_EQ(dup2(unreadable, file->buffered_fd()), file->buffered_fd());
  close(unreadable);
  failures = 0;
  Codes codes;
  read(*file, codes);
  EXPECT_GT(failures, 0U);
  for (const auto& code : codes.codes) EXPECT_EQ(code, static_cast<int>(ErrorCode::io));
}

}  // namespace
}  // namespace headrace

#endif
