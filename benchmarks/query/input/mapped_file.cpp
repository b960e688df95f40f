// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/input/mapped_file.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "core/fail.h"
#include "core/mutex.h"

namespace headrace {
namespace {

// The data that the handler reads: only lock-free atomics, since it may interrupt any code.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> lost{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

// A query maps at most its seven columns; this is enough for several queries at once.
std::array<Slot, 64> slots;

Mutex mutex;
std::size_t mapped GUARDED_BY(mutex) = 0;
// Written before the handler is installed and after it is removed, read by it between.
struct sigaction previous_action;

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    // Not our mapping: on return the access faults again and ends the process, as without us.
    ::signal(signal, SIG_DFL);
  }
}

// Maps a page of zeros where the file has none, and records it. Uses the bare system call, which a
// handler may use on Linux; a sanitizer's mmap() does more.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    if (address < slot.begin.load() || address >= slot.end.load()) continue;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    void* at = reinterpret_cast<void*>(address & ~(page - 1));
    constexpr int kHow = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    if (::syscall(SYS_mmap, at, page, PROT_READ, kHow, -1, 0) == reinterpret_cast<long>(at)) {
      slot.lost.store(true);
      errno = saved_errno;
      return;
    }
  }
  pass_on(signal, info, context);
}

Result<std::size_t> take_slot(std::byte* data, std::size_t size) {
  const MutexLock lock(mutex);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].end.load() != 0) continue;
    if (mapped++ == 0) {
      struct sigaction action = {};
      action.sa_sigaction = on_bus_error;
      action.sa_flags = SA_SIGINFO;
      sigemptyset(&action.sa_mask);
      ::sigaction(SIGBUS, &action, &previous_action);
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    slots[i].lost.store(false);
    slots[i].begin.store(begin);
    slots[i].end.store(begin + size);
    return i;
  }
  return fail(ErrorCode::exhausted, "{} files are mapped already; run fewer queries at once",
              slots.size());
}

void give_slot(std::size_t i) {
  const MutexLock lock(mutex);
  slots[i].end.store(0);
  slots[i].begin.store(0);
  if (--mapped == 0) ::sigaction(SIGBUS, &previous_action, nullptr);
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::map(const File& file) {
  const std::size_t size = file.size().value;
  // An empty file cannot be mapped, and has nothing to lose.
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile(nullptr, 0, slots.size()));
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.buffered_fd(), 0);
  if (data == MAP_FAILED) return fail_errno(errno, "cannot map " + file.path().string());
  auto slot = take_slot(static_cast<std::byte*>(data), size);
  if (!slot) {
    ::munmap(data, size);
    return Unexpected(std::move(slot).error());
  }
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<std::byte*>(data), size, *slot));
}

MappedFile::~MappedFile() {
  if (size_ == 0) return;
  ::munmap(data_, size_);
  give_slot(slot_);
}

bool MappedFile::lost() const { return size_ != 0 && slots[slot_].lost.load(); }

}  // namespace headrace
