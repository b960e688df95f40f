// SPDX-License-Identifier: Apache-2.0
// Sources of hotness on kernels that refuse system calls.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "host/kernel_testing.h"
#include "support/child.h"
#include "tier/source.h"

namespace headrace {
namespace {

TEST(Kernel, OfASourceIsAskedWhenItIsOpened) {
  Refusing kernel;
  kernel.open_error = -ENOENT;
  expect_reason(open_hotness(HotnessKind::referenced, {}, kernel), ErrorCode::unsupported,
                "CONFIG_PROC_PAGE_MONITOR");
  kernel.open_error = -EACCES;
  expect_reason(open_hotness(HotnessKind::referenced, {}, kernel), ErrorCode::denied, "clear_refs");
  expect_reason(open_hotness(HotnessKind::written, {}, kernel), ErrorCode::denied, "dumpable");
  kernel.open_error = -EROFS;
  expect_reason(open_hotness(HotnessKind::referenced, {}, kernel), ErrorCode::denied, "read-only");
  kernel.open_error = 0;
  kernel.first_ioctl_error = -ENOTTY;
  for (const HotnessKind kind : {HotnessKind::memfd, HotnessKind::written}) {
    expect_reason(open_hotness(kind, {}, kernel), ErrorCode::unsupported, "PAGEMAP_SCAN");
  }
}

// Words that would name a wrong reason.
TEST(Kernel, Refusal_NamesNoWrongReason) {
  Refusing kernel;
  kernel.open_error = kernel.faults_error = -EMFILE;
  const auto protection = open_write_protection(kernel);
  expect_reason(protection, ErrorCode::exhausted, "Too many open files");
  EXPECT_EQ(protection.error().message.find("seccomp"), std::string::npos);
  for (const HotnessKind kind : kHotnessKinds) {
    const auto source = open_hotness(kind, {}, kernel);
    expect_reason(source, ErrorCode::exhausted, "Too many open files");
    EXPECT_EQ(source.error().message.find("dumpable"), std::string::npos);
    EXPECT_EQ(source.error().message.find("CONFIG"), std::string::npos);
  }
  kernel.open_error = -ENOENT;
  for (const HotnessKind kind : kHotnessKinds) {
    expect_reason(open_hotness(kind, {}, kernel), ErrorCode::unsupported, "not mounted");
  }
}

TEST(Kernel, NamesTheProcessThatIsNotDumpable) {
  EXPECT_EQ(test::status_of_child([] {
              // Root could open them all the same.
              (void)!setuid(65534);
              if (prctl(PR_SET_DUMPABLE, 0) != 0) return true;
              if (::open("/proc/self/pagemap", O_RDONLY) >= 0 || errno != EACCES) return true;
              return std::ranges::all_of(kHotnessKinds, [](HotnessKind kind) {
                const auto source = open_hotness(kind);
                return !source && source.error().code == ErrorCode::denied &&
                       source.error().message.find("dumpable") != std::string::npos;
              });
            }),
            0);
}

// Accepts every call and does nothing, as some sandboxes do.
struct Pretending final : Kernel {
  std::int64_t write(int, const void*, std::size_t count) override {
    return static_cast<std::int64_t>(count);
  }
  int userfaultfd(int) override { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
  int ioctl(int, unsigned long request, void* argument) override {
    if (_IOC_NR(request) == 16) {  // PAGEMAP_SCAN: finds nothing
      auto* const scan = static_cast<PageScan*>(argument);
      scan->walk_end = scan->end;
    }
    return 0;
  }
};

TEST(Kernel, KernelThatDoesNothing_IsDetected) {
  Pretending kernel;
  for (const HotnessKind kind : kHotnessKinds) {
    expect_reason(open_hotness(kind, {}, kernel), ErrorCode::unsupported, "sandbox");
  }
}

}  // namespace
}  // namespace headrace
