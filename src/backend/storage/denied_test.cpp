// SPDX-License-Identifier: Apache-2.0
// Tests the backend when the system denies resources. Each case runs in its own process, because
// limits and filters cannot be removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "backend/storage/storage_testing.h"
#include "tests/support/child.h"
#include "tests/support/container.h"

namespace headrace {
namespace {

using namespace test;

// Reads the file with the remaining means. The note contains `word`.
bool reads_all(const std::filesystem::path& path, const Data& data, const std::string& word) {
  const auto backend = open_storage(small_machine(), {kSsd});
  if (!backend || !(*backend)->capabilities().note.contains(word)) return false;
  const auto file = File::open(small_machine(), path);
  Data back(data.size() + 1);
  const MemoryRange memory(std::span<std::byte>(back).subspan(1), kDram);
  return file && copy_now(**backend, whole(memory), whole(**file)) &&
         same(std::span(back).subspan(1), data);
}

class Denied : public testing::Test {
 protected:
  TempDir dir_;
  Data data_ = random_bytes(1'500'001, 1);
  std::filesystem::path path_ = dir_.file("a", data_);
};

TEST_F(Denied, IoUringByAFilterOrTheEnvironment) {
  for (const unsigned call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    for (const int error : {EPERM, ENOSYS}) {
      EXPECT_EQ(status_of_child([&] {
                  forbid_call(call, error);  // as container runtimes do
                  return reads_all(path_, data_, "pread");
                }),
                0)
          << call << " " << error;
    }
  }
  EXPECT_EQ(status_of_child([&] {
              return setenv("HEADRACE_IO_URING", "0", 1) == 0 && reads_all(path_, data_, "pread");
            }),
            0);
}

TEST_F(Denied, NoThreadsWhereIoUringWasAskedFor) {
  const auto refused = [] {
    const auto backend = open_storage(small_machine(), {kSsd}, {.queue = StorageQueue::io_uring});
    return !backend && backend.error().code == ErrorCode::unsupported;
  };
  EXPECT_EQ(status_of_child([&] {
              forbid_call(SYS_io_uring_setup, EPERM);
              return refused();
            }),
            0);
  EXPECT_EQ(status_of_child([&] { return setenv("HEADRACE_IO_URING", "0", 1) == 0 && refused(); }),
            0);
}

// As another user: root is not limited.
TEST_F(Denied, LockedMemory) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  EXPECT_EQ(status_of_child([&] {
              const rlimit none{.rlim_cur = 0, .rlim_max = 0};
              return setrlimit(RLIMIT_MEMLOCK, &none) == 0 &&
                     (geteuid() != 0 || setuid(65534) == 0) && reads_all(path_, data_, "");
            }),
            0);
}

TEST_F(Denied, Descriptors) {
  EXPECT_EQ(status_of_child([&] {
              std::vector<int> taken;
              for (int fd = dup(0); fd >= 0 && taken.size() < 100'000; fd = dup(0)) {
                taken.push_back(fd);
              }
              const auto backend = open_storage(small_machine(), {kSsd});
              return backend && (*backend)->capabilities().note.contains("pread");
            }),
            0);
}

}  // namespace
}  // namespace headrace
