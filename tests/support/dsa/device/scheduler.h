// SPDX-License-Identifier: Apache-2.0
// Which engine does what next: queues, engines, batches in flight, and drains.
//
// An engine without a task takes one: the head of a queue of its group, or a descriptor that is
// ready in a batch of its group. An engine with a task executes it, not before its modelled time.
// Which of all these comes next is random; with threads, each engine's own is. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/dsa/device/device.h"
#include "tests/support/dsa/execute/perform.h"
#include "tests/support/dsa/execute/task.h"

namespace headrace::emulator {

class Scheduler {
 public:
  // `options` outlives it.
  explicit Scheduler(const DeviceOptions& options);

  // As those of Device.
  bool enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);
  void movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);
  bool step();
  std::optional<Nanoseconds> next_due() const;
  void disable(std::size_t queue);
  void enable(std::size_t queue);
  bool enabled(std::size_t queue) const;
  void halt();
  void recover();
  bool halted() const;
  void forget(AddressSpace& space);
  bool drain(const AddressSpace& space, Nanoseconds bound);
  std::size_t occupancy(std::size_t queue) const;
  bool idle() const;
  DeviceStats stats() const;

  std::size_t engines() const { return engine_count_; }
  // Works as `engine` until release_threads(). For one thread per engine.
  void serve(std::size_t engine);
  void hold_threads();
  void release_threads();

 private:
  struct Queue {
    bool enabled = true;
    std::deque<Task> waiting;
    std::map<std::uint64_t, AddressSpace*> in_flight;  // taken and not over, by number
  };
  struct Engine {
    std::size_t group = 0;
    std::optional<Task> task;
    bool executing = false;
    bool cancelled = false;  // while executing: its batch, if it is one, does not begin
    Nanoseconds due{0};      // of the task, and then when it was free
  };
  struct Group {
    std::size_t engines = 0;
    std::vector<std::size_t> queues;
    std::vector<std::shared_ptr<Batch>> batches;
    std::size_t fetching = 0;  // batch descriptors on engines
  };
  // One step that an engine may take.
  struct Choice {
    enum class Kind : std::uint8_t { head, child, execute };
    Kind kind;
    std::size_t engine;
    std::size_t which = 0;  // queue, or batch of the group
  };
  // Work that is done without the lock.
  struct Job {
    std::size_t engine;
    Task task;
    std::optional<Record> conclusion;  // of a batch whose descriptors are all over
  };
  using Match = std::function<bool(std::size_t queue, const AddressSpace& space)>;

  void accept(std::size_t queue, AddressSpace& space, const Descriptor& descriptor)
      REQUIRES(mutex_);
  bool head_ready(std::size_t queue, const Group& group) const REQUIRES(mutex_);
  void add_choices(std::size_t engine, std::vector<Choice>& choices) const REQUIRES(mutex_);
  std::optional<Choice> choose(std::optional<std::size_t> engine) REQUIRES(mutex_);
  std::optional<Job> begin(const Choice& choice) REQUIRES(mutex_);
  Task take_child(Batch& batch, const std::shared_ptr<Batch>& shared) REQUIRES(mutex_);
  void assign(std::size_t engine, Task task) REQUIRES(mutex_);
  Nanoseconds model(const Engine& engine, const Task& task) REQUIRES(mutex_);
  Performed work(const Job& job) const;
  std::optional<Job> finish(const Job& job, Performed performed) REQUIRES(mutex_);
  std::optional<Job> settle_batches(const Job& job) REQUIRES(mutex_);
  void count(const Job& job, const Performed& performed) REQUIRES(mutex_);
  void free_engine(std::size_t engine) REQUIRES(mutex_);
  void drop_task(Engine& engine) REQUIRES(mutex_);
  void drop_batch(const Batch& batch) REQUIRES(mutex_);
  void abandon(const Match& match) REQUIRES(mutex_);
  bool work_once(std::optional<std::size_t> engine) REQUIRES(mutex_);
  bool over(const Match& match) const REQUIRES(mutex_);
  bool wait_until_over(const Match& match, Nanoseconds bound) REQUIRES(mutex_);
  bool executes(const Match& match) const REQUIRES(mutex_);

  // Immutable after construction.
  const DeviceOptions& options_;
  const std::size_t engine_count_;
  std::vector<Limits> limits_;  // by queue

  mutable Mutex mutex_;
  CondVar work_;  // something changed
  Random random_ GUARDED_BY(mutex_);
  std::vector<Queue> queues_ GUARDED_BY(mutex_);
  std::vector<Engine> engines_ GUARDED_BY(mutex_);
  std::vector<Group> groups_ GUARDED_BY(mutex_);
  std::uint64_t next_number_ GUARDED_BY(mutex_) = 0;
  Nanoseconds device_free_ GUARDED_BY(mutex_){0};
  DeviceStats stats_ GUARDED_BY(mutex_);
  bool halted_ GUARDED_BY(mutex_) = false;
  bool serving_ GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::emulator
