// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/crew.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backend/cuda/engines/lane.h"
#include "core/affinity.h"
#include "core/thread.h"

namespace headrace::cuda {
namespace {

// Four cores copy more than a link takes: 12 GB/s each on the H200's host.
constexpr std::size_t kMostThreads = 4;

}  // namespace

std::unique_ptr<Crew> Crew::start(const CpuSet& near, std::function<void(Task&)> work) {
  std::unique_ptr<Crew> crew(new Crew(std::move(work)));
  std::vector<unsigned> cpus;
  for (const unsigned cpu : allowed_cpus()) {
    if (std::ranges::find(near, cpu) != near.end()) cpus.push_back(cpu);
  }
  const std::size_t usable = cpus.empty() ? allowed_cpus().size() : cpus.size();
  const std::size_t count = std::clamp<std::size_t>(usable / 2, 1, kMostThreads);
  crew->threads_.reserve(count);  // later there is a thread to join
  for (std::size_t i = 0; i < count; ++i) {
    auto thread = start_thread("headrace-gpu-cp", [its = crew.get()] { its->run(); });
    if (!thread) break;
    // On other CPUs it is slower, but still right.
    if (!cpus.empty()) pin(thread->native_handle(), cpus);
    crew->threads_.push_back(*std::move(thread));
  }
  return crew;
}

Crew::~Crew() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    more_.notify_all();
  }
  for (std::thread& thread : threads_) join(thread);
}

void Crew::give(Task& task) {
  if (threads_.empty()) return work_(task);
  const MutexLock lock(mutex_);
  task.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &task;
  last_ = &task;
  more_.notify_one();
}

void Crew::run() {
  for (;;) {
    Task* task = nullptr;
    {
      const MutexLock lock(mutex_);
      while (first_ == nullptr && !ending_) more_.wait_for(mutex_, std::chrono::seconds{1});
      if (first_ == nullptr) return;
      task = std::exchange(first_, first_->next);
    }
    work_(*task);
  }
}

namespace {

// A read that takes only bytes of the page cache, as far as the file system knows such reads.
ssize_t read_at_once(int file, std::span<std::byte> to, std::uint64_t offset) {
  const iovec all{to.data(), to.size()};
  const ssize_t read = preadv2(file, &all, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (read >= 0 || errno != EOPNOTSUPP) return read;
  return pread(file, to.data(), to.size(), static_cast<off_t>(offset));
}

}  // namespace

// Asks the kernel first. A read with RWF_NOWAIT alone would make the kernel read ahead the missing
// pages, so the bytes of a cold file came over the disk twice.
Cached read_cached(const File& file, std::uint64_t offset, std::span<std::byte> to) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page;
  const std::uint64_t pages = (offset + to.size() + page - 1) / page - first;
  // Linux 6.5 has this call; glibc 2.36 does not.
  struct {
    std::uint64_t offset;
    std::uint64_t length;
  } range{first * page, pages * page};
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } found{};
  constexpr long kCachestat = 451;
  if (syscall(kCachestat, file.buffered_fd(), &range, &found, 0) != 0) {
    return errno == ENOSYS ? Cached::never : Cached::absent;
  }
  if (found.cached < pages) return Cached::absent;
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t read = read_at_once(file.buffered_fd(), to.subspan(done), offset + done);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return Cached::absent;  // evicted; or the storage backend reports the reason
    done += static_cast<std::size_t>(read);
  }
  return Cached::read;
}

}  // namespace headrace::cuda
