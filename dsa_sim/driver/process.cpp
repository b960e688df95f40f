// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace headrace::emulator {
namespace {

// The process that a thread is of; 0: there is no such thread.
pid_t process_of(pid_t thread) {
  std::FILE* status = std::fopen(fmt::format("/proc/{}/status", thread).c_str(), "re");
  if (status == nullptr) return 0;
  pid_t process = 0;
  std::array<char, 256> line;
  while (std::fgets(line.data(), line.size(), status) != nullptr) {
    if (std::sscanf(line.data(), "Tgid: %d", &process) == 1) break;
  }
  std::fclose(status);
  return process;
}

}  // namespace

Answer<Process> Process::open(pid_t thread) {
  const pid_t pid = thread > 0 ? process_of(thread) : 0;
  if (pid == 0) return refuse(std::errc::no_such_process);
  const int pages = ::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (pages < 0) {
    return refuse(errno == ENOENT ? std::errc::no_such_process : std::errc::permission_denied);
  }
  return Process(pid, pages);
}

Process::~Process() {
  if (pages_ >= 0) ::close(pages_);
}

Process::Process(Process&& other) noexcept
    : pid_(other.pid_), pages_(std::exchange(other.pages_, -1)) {}

bool Process::has(pid_t thread) const {
  // Memory that is gone, by exit() or exec(), has nothing to read.
  std::uint64_t entry = 0;
  if (pread(pages_, &entry, sizeof(entry), 0) != sizeof(entry)) return false;
  if (thread == pid_) return true;
  const long order = syscall(SYS_kcmp, pid_, thread, KCMP_VM, 0, 0);
  // Where the system call is forbidden, threads of one process are taken for one memory.
  return order >= 0 ? order == 0 : process_of(thread) == pid_;
}

}  // namespace headrace::emulator
