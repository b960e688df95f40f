// SPDX-License-Identifier: Apache-2.0
// Tests the backend when the system denies resources. Each case runs in its own process, because
// limits and filters cannot be removed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "backend/storage/storage_testing.h"

namespace headrace {
namespace {

using namespace test;

// Runs `body` in a child. Returns its exit status, or -1 if it crashed.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr int kWrong = 2;
constexpr int kRight = 0;

// Reads the file with the remaining means. Returns kRight if the bytes are right and the note
// contains `word`.
int read_all(const std::filesystem::path& path, const Data& data, const std::string& word) {
  const auto backend = open_storage(small_machine(), {kSsd});
  if (!backend) return kWrong + 1;
  if ((*backend)->capabilities().note.find(word) == std::string::npos) return kWrong + 2;
  const auto file = File::open(small_machine(), path);
  if (!file) return kWrong + 3;
  Data back(data.size() + 1);
  const MemoryRange memory(std::span<std::byte>(back).subspan(1), kDram);
  if (!copy_now(**backend, whole(memory), whole(**file))) return kWrong + 4;
  return same(std::span(back).subspan(1), data) ? kRight : kWrong;
}

class Denied : public testing::Test {
 protected:
  TempDir dir_;
  Data data_ = random_bytes(1'500'001, 1);
  std::filesystem::path path_ = dir_.file("a", data_);
};

// Container runtimes do the same by default.
bool deny_io_uring(unsigned call, int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(Denied, IoUringByAFilter) {
  for (const unsigned call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    for (const int error : {EPERM, ENOSYS}) {
      EXPECT_EQ(kRight, in_child([&] {
                  return deny_io_uring(call, error) ? read_all(path_, data_, "pread") : kWrong;
                }))
          << call << " " << error;
    }
  }
}

TEST_F(Denied, IoUringByTheEnvironment) {
  EXPECT_EQ(kRight, in_child([&] {
              setenv("HEADRACE_IO_URING", "0", 1);
              return read_all(path_, data_, "pread");
            }));
}

TEST_F(Denied, NoThreadsWhereIoUringWasAskedFor) {
  const auto refused = [] {
    const auto backend = open_storage(small_machine(), {kSsd}, {.queue = StorageQueue::io_uring});
    return !backend && backend.error().code == ErrorCode::unsupported ? kRight : kWrong;
  };
  EXPECT_EQ(kRight, in_child([&] {
              return deny_io_uring(SYS_io_uring_setup, EPERM) ? refused() : kWrong + 1;
            }));
  EXPECT_EQ(kRight, in_child([&] {
              setenv("HEADRACE_IO_URING", "0", 1);
              return refused();
            }));
}

TEST_F(Denied, LockedMemory) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  EXPECT_EQ(kRight, in_child([&] {
              const rlimit none{.rlim_cur = 0, .rlim_max = 0};
              if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return kWrong;
              if (geteuid() == 0 && setuid(65534) != 0) return kWrong;  // root is not limited
              return read_all(path_, data_, "");
            }));
}

TEST_F(Denied, Descriptors) {
  EXPECT_EQ(kRight, in_child([&] {
              std::vector<int> taken;
              for (int fd = dup(0); fd >= 0 && taken.size() < 100'000; fd = dup(0)) {
                taken.push_back(fd);
              }
              const auto backend = open_storage(small_machine(), {kSsd});
              if (!backend) return kWrong;
              return (*backend)->capabilities().note.find("pread") == std::string::npos ? kWrong
                                                                                        : kRight;
            }));
}

TEST_F(Denied, ReadingAsAnotherUser) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  EXPECT_EQ(kRight, in_child([&] {
              if (geteuid() == 0 && setuid(65534) != 0) return kWrong;
              return read_all(path_, data_, "");
            }));
}

}  // namespace
}  // namespace headrace
