// What is left where a container's seccomp profile forbids the calls of memory policy.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "backend/linux/linux_testing.h"
#include "headrace/buffer.h"

namespace headrace {
namespace {

// From now on mbind and move_pages of this process fail with EPERM, as under the default profile
// of container engines.
void forbid_policies() {
  std::array<sock_filter, 5> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{rules.size(), rules.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("prctl");
    std::_Exit(99);
  }
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

[[noreturn]] void allocate_denied() {
  const Machine machine = this_host();
  forbid_policies();
  Placement placement = on_first(machine);
  const auto buffer = allocate(machine, 64_KiB, placement);
  if (machine.nodes.size() > 1) {
    expect(!buffer && buffer.error().code == ErrorCode::denied, "several nodes: denied");
    std::_Exit(0);
  }
  expect(buffer.has_value(), "on the only node memory is bound anyway");
  const auto touched = where((*buffer)->bytes());
  expect(touched.has_value(), "where() has another way to know");
  expect(touched->pages.at(machine.nodes.front().id) == pages_in(64_KiB), "all pages are there");
  placement.touch = false;
  const auto untouched = allocate(machine, 64_KiB, placement);
  expect(untouched && where((*untouched)->bytes()).value().absent == pages_in(64_KiB),
         "an untouched buffer has no pages");
  std::_Exit(0);
}

TEST(Denied, OneNodeStillWorksAndSeveralSayWhatToGrant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(allocate_denied(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace
