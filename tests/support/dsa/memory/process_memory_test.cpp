// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/process_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Pages that another process has too, at the same address, once it is forked.
class Mapping {
 public:
  explicit Mapping(std::size_t pages, int flags = MAP_PRIVATE) : size_(pages * kPage) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    // Huge pages would bring in more than was touched.
    madvise(data_, size_, MADV_NOHUGEPAGE);
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t address(std::size_t offset = 0) const {
    return DirectMemory::number(data_) + offset;
  }
  void protect(std::size_t page, int rights) const {
    EXPECT_EQ(mprotect(data_ + page * kPage, kPage, rights), 0);
  }
  void touch(std::size_t page, int value) const { std::memset(data_ + page * kPage, value, kPage); }

 private:
  std::size_t size_;
  std::byte* data_;
};

// A forked child that waits to be killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

std::unique_ptr<ProcessMemory> open_memory(pid_t pid, ProcessMemoryOptions options = {}) {
  auto memory = ProcessMemory::open(pid, options);
  if (!memory) {
    ADD_FAILURE() << memory.error().message;
    std::abort();
  }
  return *std::move(memory);
}

TEST(ProcessMemory, ReadsAndWritesAnother) {
  const Mapping mapping(4);
  for (std::size_t page = 0; page < 4; ++page) mapping.touch(page, 7);
  const Child child;
  mapping.touch(0, 8);  // the parent's copy
  const auto memory = open_memory(child.pid());
  std::vector<std::byte> bytes(3 * kPage);
  EXPECT_EQ(memory->read(mapping.address(100), bytes), bytes.size());
  EXPECT_EQ(bytes[0], std::byte{7});
  bytes.assign(bytes.size(), std::byte{9});
  EXPECT_EQ(memory->write(mapping.address(100), bytes), bytes.size());
  EXPECT_EQ(mapping.data()[100], std::byte{8}) << "not of this process";
  std::byte byte{};
  EXPECT_EQ(memory->read(mapping.address(100), {&byte, 1}), 1U);
  EXPECT_EQ(byte, std::byte{9});
}

TEST(ProcessMemory, AbsentPagesAreFaultsUntilResolved) {
  const Mapping mapping(4);
  mapping.touch(0, 7);
  mapping.touch(2, 7);
  const auto memory = open_memory(getpid());
  std::vector<std::byte> bytes(4 * kPage);
  EXPECT_EQ(memory->read(mapping.address(100), bytes), kPage - 100);
  EXPECT_EQ(memory->write(mapping.address(100), bytes), kPage - 100);
  EXPECT_EQ(memory->reach(mapping.address(100), 2 * kPage, Touch::write), kPage - 100);
  EXPECT_TRUE(memory->resolve(mapping.address(kPage), Touch::write));
  EXPECT_EQ(memory->read(mapping.address(), bytes), 3 * kPage);
  EXPECT_EQ(memory->reach(mapping.address(100), 2 * kPage, Touch::write), 2 * kPage);
  EXPECT_EQ(memory->write(mapping.address(), bytes), 3 * kPage);
  const auto eager = open_memory(getpid(), {.absent_pages_fault = false});
  EXPECT_EQ(eager->read(mapping.address(), bytes), 4 * kPage) << "the kernel brings them in";
}

TEST(ProcessMemory, WhatMayNotBeAccessedIsAFault) {
  const Mapping mapping(4);
  for (std::size_t page = 0; page < 4; ++page) mapping.touch(page, 7);
  mapping.protect(1, PROT_NONE);
  mapping.protect(3, PROT_READ);
  for (const bool absent_pages_fault : {false, true}) {
    const auto memory = open_memory(getpid(), {.absent_pages_fault = absent_pages_fault});
    std::vector<std::byte> bytes(2 * kPage);
    EXPECT_EQ(memory->read(mapping.address(96), bytes), kPage - 96) << "PROT_NONE";
    EXPECT_EQ(memory->write(mapping.address(96), bytes), kPage - 96);
    EXPECT_EQ(memory->reach(mapping.address(96), 2 * kPage, Touch::read), kPage - 96);
    EXPECT_FALSE(memory->resolve(mapping.address(kPage), Touch::read));
    EXPECT_EQ(memory->read(mapping.address(2 * kPage), bytes), 2 * kPage);
    EXPECT_EQ(memory->write(mapping.address(2 * kPage), bytes), kPage) << "read only";
    EXPECT_EQ(memory->reach(mapping.address(2 * kPage), 2 * kPage, Touch::write), kPage);
    EXPECT_TRUE(memory->resolve(mapping.address(3 * kPage), Touch::read));
    EXPECT_FALSE(memory->resolve(mapping.address(3 * kPage), Touch::write));
    EXPECT_EQ(memory->read(0, bytes), 0U);
    EXPECT_EQ(memory->read(~std::uint64_t{0} - 100, bytes), 0U) << "nobody's address";
    EXPECT_EQ(memory->reach(std::uint64_t{1} << 63, 10, Touch::read), 0U);
  }
}

TEST(ProcessMemory, ManyPagesAtOnce) {
  const Mapping mapping(300);
  for (std::size_t page = 0; page < 300; ++page) mapping.touch(page, static_cast<int>(page));
  mapping.protect(250, PROT_NONE);
  const auto memory = open_memory(getpid());
  std::vector<std::byte> bytes(300 * kPage);
  EXPECT_EQ(memory->read(mapping.address(5), std::span(bytes).first(299 * kPage)), 250 * kPage - 5);
  EXPECT_EQ(std::memcmp(bytes.data(), mapping.data() + 5, 250 * kPage - 5), 0);
}

TEST(ProcessMemory, NoProcessNoMemory) {
  Child child;
  const Mapping mapping(1);
  mapping.touch(0, 7);
  const auto memory = open_memory(child.pid());
  const pid_t pid = child.pid();
  child.end();
  std::byte byte;
  EXPECT_EQ(memory->read(mapping.address(), {&byte, 1}), 0U);
  EXPECT_EQ(memory->write(mapping.address(), {&byte, 1}), 0U);
  EXPECT_FALSE(memory->resolve(mapping.address(), Touch::write));
  EXPECT_EQ(ProcessMemory::open(pid).error().code, ErrorCode::absent);
}

// A whole operation on another process's memory, its record included.
TEST(ProcessMemory, ADeviceWorksForAnotherProcess) {
  const Mapping mapping(4, MAP_SHARED);  // so that the parent sees what the child has
  for (std::size_t page = 0; page < 4; ++page) mapping.touch(page, 0);
  std::memset(mapping.data(), 7, 5000);
  auto* record = reinterpret_cast<Record*>(mapping.data() + 3 * kPage);
  const Child child;
  // A child has shared memory only once it has touched it.
  const auto memory = open_memory(child.pid(), {.absent_pages_fault = false});
  const auto device = open_device();
  Descriptor move = make_move(mapping.address(), mapping.address(6000), 5000, *record);
  EXPECT_TRUE(device->enqcmd(0, *memory, move));
  device->run();
  EXPECT_EQ(status_of(*record), 1);
  EXPECT_EQ(mapping.data()[6000 + 4999], std::byte{7});
  move.source = 0;
  record->status = 0;
  EXPECT_TRUE(device->enqcmd(0, *memory, move));
  device->run();
  EXPECT_EQ(status_of(*record), 0x03);
}

}  // namespace
}  // namespace headrace::emulator
