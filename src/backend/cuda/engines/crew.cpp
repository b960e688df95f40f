// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/crew.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "backend/cuda/engines/lane.h"
#include "core/affinity.h"
#include "core/thread.h"

namespace headrace::cuda {
namespace {

// Four cores copy more than a link takes, on the H200's host 12 GB/s each.
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
  for (std::size_t i = 0; i < count; ++i) {
    auto thread = start_thread("headrace-gpu-cp", [its = crew.get()] { its->run(); });
    if (!thread) break;
    // Elsewhere it copies more slowly, no more.
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
  for (std::thread& thread : threads_) thread.join();
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

Cached read_cached(const File& file, std::uint64_t offset, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const iovec part{.iov_base = to.data() + done, .iov_len = to.size() - done};
    const ssize_t read = preadv2(file.buffered_fd(), &part, 1,
                                 static_cast<off_t>(offset + done), RWF_NOWAIT);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0 && errno == EOPNOTSUPP) return Cached::never;
    if (read <= 0) return Cached::absent;
    done += static_cast<std::size_t>(read);
  }
  return Cached::read;
}

}  // namespace headrace::cuda
