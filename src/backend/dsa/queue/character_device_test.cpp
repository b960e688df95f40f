// SPDX-License-Identifier: Apache-2.0
// Plain files and FIFOs replace /dev/dsa/wq*: the kernel answers their open(), mmap() and write()
// in the same way.
#include "backend/dsa/queue/character_device.h"

#include "core/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

namespace headrace::dsa {
namespace {

namespace fs = std::filesystem;

class CharacterDeviceTest : public testing::Test {
 protected:
  CharacterDeviceTest()
      : root_(fs::temp_directory_path() / ("headrace-cdev-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    queue_ = {.name = "wq0.0", .file = root_ / "wq0.0", .size = 16, .threshold = 16};
  }
  ~CharacterDeviceTest() override { fs::remove_all(root_); }

  void make_file() const { std::ofstream(queue_.file) << ""; }
  void make_fifo() const { ASSERT_EQ(mkfifo(queue_.file.c_str(), 0600), 0); }
  std::unique_ptr<Portal> open_written() const {
    return open_character_device(queue_, {.force_write = true}).value();
  }
  std::vector<Descriptor> written() const {
    std::vector<Descriptor> all(fs::file_size(queue_.file) / sizeof(Descriptor));
    std::ifstream(queue_.file, std::ios::binary)
        .read(reinterpret_cast<char*>(all.data()),
              static_cast<std::streamsize>(all.size() * sizeof(Descriptor)));
    return all;
  }
  // A descriptor of this process for the same file.
  int own_descriptor() const {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (fs::read_symlink(entry.path(), error) == queue_.file) {
        return std::stoi(entry.path().filename());
      }
    }
    return -1;
  }

  const fs::path root_;
  WorkQueue queue_;
};

std::vector<Descriptor> numbered_descriptors(std::size_t count) {
  std::vector<Descriptor> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i].set(Opcode::memmove, flag::record_valid);
    all[i].size = static_cast<std::uint32_t>(i);
  }
  return all;
}

// Other libraries submit one descriptor per system call.
TEST_F(CharacterDeviceTest, SeveralDescriptorsGoInOneWrite) {
  make_file();
  const auto portal = open_written();
  EXPECT_EQ(portal->name(), "write()");
  EXPECT_FALSE(portal->mapped());
  EXPECT_FALSE(portal->takes_batches());
  EXPECT_TRUE(written().empty()) << "nothing is written by opening";
  const auto some = numbered_descriptors(32);
  EXPECT_EQ(portal->submit(some).value_or(0), 32U);
  EXPECT_EQ(written(), some);
  EXPECT_EQ(portal->submit({}).value_or(9), 0U);
}

// A kernel that takes only the first ones of a call, simulated by the limit on file sizes.
TEST_F(CharacterDeviceTest, APartialWriteTakesTheFirst) {
  make_file();
  const auto portal = open_written();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto former = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5 * sizeof(Descriptor), .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto some = numbered_descriptors(8);
  const auto taken = portal->submit(some);
  const auto refused = portal->submit(std::span(some).subspan(5));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, former);
  EXPECT_EQ(taken.value_or(0), 5U);
  ASSERT_FALSE(refused) << "EFBIG, which no queue says, is an error";
  const auto rest = portal->submit(std::span(some).subspan(5));
  EXPECT_EQ(rest.value_or(0), 3U);
  EXPECT_EQ(written(), some);
}

// psm3 treats a write() of nothing as a success, and waits for descriptors that were never
// submitted.
TEST_F(CharacterDeviceTest, Psm3WhatWasNotWrittenWasNotTaken) {
  make_fifo();
  const auto portal = open_written();
  const int fd = own_descriptor();
  ASSERT_GE(fd, 0);
  ASSERT_EQ(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK), 0);
  const auto some = numbered_descriptors(64);
  std::size_t taken = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto now = portal->submit(some);
    ASSERT_TRUE(now) << "EAGAIN is no error: the queue is full";
    if (*now == 0) break;
    taken += *now;
  }
  EXPECT_EQ(portal->submit(some).value_or(9), 0U);
  std::vector<Descriptor> arrived(taken);
  EXPECT_EQ(read(fd, arrived.data(), taken * sizeof(Descriptor)),
            static_cast<ssize_t>(taken * sizeof(Descriptor)));
  EXPECT_EQ(portal->submit(some).value_or(0), 64U) << "there is room again";
}

// Each errno that can be produced without a kernel device. EBADF of a read-only file represents
// those without a meaning of their own.
TEST_F(CharacterDeviceTest, AnErrorOfWriteIsAnErrorNotARetry) {
  make_file();
  const auto portal = open_written();
  const int fd = own_descriptor();
  const int other = open(queue_.file.c_str(), O_RDONLY);
  ASSERT_EQ(dup2(other, fd), fd);
  close(other);
  const auto refused = portal->submit(numbered_descriptors(1));
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().message.empty());
}

// DML, SPDK and others fail if the portal must not be mapped. Here it works, since write() needs no
// special CPU instruction.
TEST_F(CharacterDeviceTest, WhereMappingIsRefusedItIsWrittenTo) {
  make_fifo();  // cannot be mapped
  const auto portal = open_character_device(queue_);
  ASSERT_TRUE(portal) << portal.error().message;
  EXPECT_EQ((*portal)->name(), "write()");
}

// Like a kernel before May 2024 without the right to map: EINVAL from an object without write().
TEST_F(CharacterDeviceTest, WhatCanNeitherBeMappedNorWrittenIsUnsupported) {
  queue_.file = "/proc/self/ns/mnt";
  const auto portal = open_character_device(queue_, {.force_write = true});
  ASSERT_FALSE(portal);
  EXPECT_TRUE(portal.error().code == ErrorCode::unsupported ||
              portal.error().code == ErrorCode::denied || portal.error().code == ErrorCode::absent)
      << portal.error().message;
}

TEST_F(CharacterDeviceTest, AMissingQueueIsAbsentByName) {
  const auto portal = open_character_device(queue_);
  ASSERT_FALSE(portal);
  EXPECT_EQ(portal.error().code, ErrorCode::absent);
  EXPECT_NE(portal.error().message.find(queue_.file.string()), std::string::npos);
}

TEST_F(CharacterDeviceTest, AQueueWithoutADriverIsAbsent) {
  // ENXIO: a device file whose driver has no such minor (the kernel has no major 4095).
  if (mknod(queue_.file.c_str(), S_IFCHR | 0600, makedev(4095, 0)) != 0) {
    GTEST_SKIP() << "only root may make device files";
  }
  const auto portal = open_character_device(queue_);
  ASSERT_FALSE(portal);
  EXPECT_TRUE(portal.error().code == ErrorCode::absent || portal.error().code == ErrorCode::denied);
}

TEST_F(CharacterDeviceTest, WithoutTheRightItIsDenied) {
  make_file();
  fs::permissions(queue_.file, fs::perms::none);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(2);
    const auto portal = open_character_device(queue_);
    _exit(!portal && portal.error().code == ErrorCode::denied ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Since 2025 the kernel refuses it (EPERM); before, the child wrote to the parent's memory.
TEST_F(CharacterDeviceTest, AForkedChildIsDeniedAndTheParentGoesOn) {
  make_file();
  const auto portal = open_written();
  const unsigned generation = fork_generation();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto refused = portal->submit(numbered_descriptors(1));
    const bool denied = !refused && refused.error().code == ErrorCode::denied;
    const auto own = open_character_device(queue_, {.force_write = true});
    const bool anew = own && (*own)->submit({}).has_value();
    _exit(denied && anew && fork_generation() == generation + 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(fork_generation(), generation);
  EXPECT_TRUE(written().empty());
  EXPECT_EQ(portal->submit(numbered_descriptors(2)).value_or(0), 2U);
}

// The driver ends work in flight when no process has the file open any more.
TEST_F(CharacterDeviceTest, AForkedChildKeepsNoQueueOpen) {
  make_fifo();
  const int other_end = open(queue_.file.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(other_end, 0);
  auto portal = open_written();
  std::array<int, 2> until{};
  ASSERT_EQ(pipe(until.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    close(until[1]);
    char byte = 0;
    _exit(read(until[0], &byte, 1) == 0 ? 0 : 1);
  }
  portal.reset();
  pollfd ended{.fd = other_end, .events = 0, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, 60'000), 1);
  EXPECT_NE(ended.revents & POLLHUP, 0) << "nobody could write to it any more";
  close(until[1]);
  close(until[0]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(other_end);
}

// The child's new file may get the descriptor number that was closed in it.
TEST_F(CharacterDeviceTest, AChildsOwnFileOutlivesTheParentsPortal) {
  make_file();
  auto portal = open_written();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto own = open_character_device(queue_, {.force_write = true});
    portal.reset();
    _exit(own && (*own)->submit(numbered_descriptors(1)).value_or(0) == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CharacterDeviceTest, AClosedPortalLeavesNoDescriptorOpen) {
  make_file();
  open_written().reset();
  EXPECT_EQ(own_descriptor(), -1);
}

}  // namespace
}  // namespace headrace::dsa
