// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory.h"

#include <signal.h>
#include <sys/wait.h>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

TEST(ProcessMemory, OfAnotherProcess_IsItsOwnUntilItEnds) {
  void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const page = static_cast<std::byte*>(at);
  std::memset(page, 7, kPage);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  std::memset(page, 8, kPage);
  const auto memory = ProcessMemory::open(child).value();
  std::array<std::byte, 100> bytes{};
  EXPECT_TRUE(memory->read(address_of(page), bytes));
  EXPECT_EQ(bytes[99], std::byte{7});
  bytes.fill(std::byte{9});
  EXPECT_TRUE(memory->write(address_of(page), bytes));
  EXPECT_EQ(page[0], std::byte{8});
  EXPECT_TRUE(memory->read(address_of(page + 50), std::span(bytes).first(1)));
  EXPECT_EQ(bytes[0], std::byte{9});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(memory->read(address_of(page), bytes));
  EXPECT_EQ(ProcessMemory::open(child).error().code, ErrorCode::absent);
  munmap(at, kPage);
}

TEST(ProcessMemory, AbsentPages_FaultUnlessResident) {
  const Pages pages(1);
  pages.hide(0);
  const auto memory = ProcessMemory::open(getpid()).value();
  std::array<std::byte, 8> bytes{};
  EXPECT_FALSE(memory->read(pages.address(), bytes));
  EXPECT_FALSE(memory->write(pages.address(), bytes));
  EXPECT_TRUE(ProcessMemory::open(getpid(), false).value()->read(pages.address(), bytes));
  EXPECT_TRUE(memory->write(pages.address(), bytes));
}

}  // namespace
}  // namespace headrace::emulator
