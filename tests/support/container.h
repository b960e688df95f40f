// SPDX-License-Identifier: Apache-2.0
// System calls that a container forbids to a process, and features that an older kernel lacks.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace headrace::test {

inline void install_filter(const sock_fprog& program) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("prctl");
    std::_Exit(99);
  }
}

// From now on mbind and move_pages of this process fail with EPERM, as under the default profile of
// container engines.
inline void forbid_policies() {
  std::array<sock_filter, 5> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  install_filter({rules.size(), rules.data()});
}

// From now on this system call of the calling thread fails with `error`.
inline void forbid_call(unsigned call, int error) {
  std::array<sock_filter, 4> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  install_filter({rules.size(), rules.data()});
}

// From now on a call with `value` as its third argument fails with EINVAL, as in kernels that do
// not know the value. That argument is the advice of madvise, or the mode of mbind.
inline void forget_value(unsigned call, unsigned value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  constexpr std::size_t kThird = offsetof(seccomp_data, args[2]);
#else
  constexpr std::size_t kThird = offsetof(seccomp_data, args[2]) + 4;
#endif
  std::array<sock_filter, 6> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kThird),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  install_filter({rules.size(), rules.data()});
}

}  // namespace headrace::test
