// SPDX-License-Identifier: Apache-2.0
// Threads that copy between pinned slots and memory of the host, or the page cache: one core copies
// a third of what a link of a GPU takes.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "headrace/cpus.h"
#include "headrace/file.h"

namespace headrace::cuda {

struct Task;

class Crew {
 public:
  // On the CPUs near the slots, at most half of those that may be used. `work` is called for each
  // task, in one of the threads; where none could be started, in give().
  static std::unique_ptr<Crew> start(const CpuSet& near, std::function<void(Task&)> work);
  // Does what was given, and ends.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void give(Task& task);

 private:
  explicit Crew(std::function<void(Task&)> work) : work_(std::move(work)) {}
  void run();

  const std::function<void(Task&)> work_;
  Mutex mutex_;
  CondVar more_;
  Task* first_ GUARDED_BY(mutex_) = nullptr;
  Task* last_ GUARDED_BY(mutex_) = nullptr;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // constant after start()
};

enum class Cached : std::uint8_t { read, absent, never };

// Reads a part of a file that is in the page cache, all of it or nothing. `absent`: some of it is
// not there. `never`: the kernel does not say (older than 6.5, or the file is another user's).
Cached read_cached(const File& file, std::uint64_t offset, std::span<std::byte> to);

}  // namespace headrace::cuda
