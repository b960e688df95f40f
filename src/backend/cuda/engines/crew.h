// SPDX-License-Identifier: Apache-2.0
// Threads that copy between pinned slots and host memory or the page cache. They exist because one
// core copies only a third of the bandwidth of a GPU's link.
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
  // Starts threads on the CPUs near the slots, at most half of the usable ones. One of the threads
  // calls `work` for each task. If no thread could be started, give() calls it.
  static std::unique_ptr<Crew> start(const CpuSet& near, std::function<void(Task&)> work);
  // Does the tasks that were given, and ends.
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

// Reads a part of a file from the page cache: all of it or nothing. `absent`: some of it is not
// cached, or the kernel does not say for this file. `never`: it says so for no file (before 6.5).
Cached read_cached(const File& file, std::uint64_t offset, std::span<std::byte> to);

}  // namespace headrace::cuda
