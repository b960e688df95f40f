// SPDX-License-Identifier: Apache-2.0
// An emulated device: takes descriptors from clients, executes them, writes their records.
//
// Thread-safe. It executes in step() and run(): then the same seed and the same calls give the same
// run. Or it executes by its own threads, one per engine (start()). The order is random within what
// the specification promises (SPEC 3.8, 3.9): with one engine, the descriptors of a queue in order;
// with several, in any order; those of a batch in any order.
//
// A client's AddressSpace must outlive its descriptors: call forget() before it is destroyed. After
// forget(), disable() or halt() returned, nothing more is written for what they ended. They wait
// for operations that execute, so an AddressSpace must not call them. A child made by fork() must
// not destroy the device (abandon()).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "headrace/clock.h"
#include "headrace/random.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "tests/support/dsa/execute.h"

namespace headrace::emulator {

// A model of time: the data of a descriptor begin to move `start_up` after it arrived, or when
// those of the engine's descriptor before it have moved, whichever is later. They move at the rate
// `engine`; the device moves at most `device` over all engines. The record follows. A batch is a
// descriptor without data, and its own descriptors arrive when it is over.
struct DeviceRates {
  // 0.86 us + bytes / 30 GB/s fits the latencies in the README of intel/DTO (all but one of 17
  // points within 20 %); 30 GB/s is the limit of one device by Kuper et al., ASPLOS'24 (31.17 GB/s
  // in intel/DML issue 25).
  Nanoseconds start_up{860};
  BytesPerSecond engine{30e9};
  BytesPerSecond device{30e9};
};

struct DeviceOptions {
  DeviceSetup setup = sapphire_rapids();
  std::uint64_t seed = 1;
  DeviceFaults faults;
  std::optional<DeviceRates> rates;  // nothing: everything is done at once
  const Clock* clock = &system_clock();
};

struct DeviceStats {
  std::uint64_t accepted = 0;
  std::uint64_t retried = 0;    // ENQCMD answered: retry
  std::uint64_t dropped = 0;    // MOVDIR64B to a full queue (SWERROR 0x53), or by DeviceFaults
  std::uint64_t discarded = 0;  // MOVDIR64B to a shared or disabled queue
  std::uint64_t abandoned = 0;  // by forget(), halt() or a bound of disable()
  std::uint64_t executed = 0;   // with or without success; batches are not counted
  std::uint64_t batches = 0;
  std::uint64_t failed = 0;  // of both
  std::uint64_t faults = 0;  // page faults among the failures
  std::uint64_t records_lost = 0;
};

class Device {
 public:
  // Errors: invalid: the set-up is impossible.
  static Result<std::unique_ptr<Device>> open(DeviceOptions options = {});
  // Abandons what is in flight.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The two instructions, for shared and dedicated queues (SPEC 5.3, 5.7). False: retry; the queue
  // is full, disabled or dedicated, or the device is halted. Requires: such a queue.
  bool enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);
  // Reports nothing: a descriptor for a full, disabled or shared queue is lost.
  void movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);

  // Does one unit of work, chosen at random: an engine takes a descriptor, or executes the one it
  // has. False: there is nothing to do now.
  bool step();
  // Steps until there is nothing to do now, or `limit` steps.
  void run(std::size_t limit = SIZE_MAX);
  // When, by the clock, an engine is next done; nothing: no engine is busy. For manual clocks.
  std::optional<Nanoseconds> next_due() const;

  // Starts its own threads. Errors: exhausted: no thread can be started.
  Status start();
  // Ends them; what is queued stays.
  void stop();

  // The queue accepts nothing more, and all that it accepted is executed, by the calling thread,
  // too. What is not over after 10 s, or waits for a modelled time without threads, is abandoned.
  void disable(std::size_t queue);
  void enable(std::size_t queue);
  bool enabled(std::size_t queue) const;
  // No queue accepts anything until recover(). What is queued or waits in a batch is abandoned
  // without a record.
  void halt();
  void recover();
  bool halted() const;
  // Abandons what is in flight for `space`.
  void forget(AddressSpace& space);
  // Returns when all that was accepted for `space` is over; the calling thread executes, too.
  // False: not within `bound`, or it waits for a modelled time without threads.
  bool drain(const AddressSpace& space, Nanoseconds bound);
  // Holds for descriptors that an engine takes from now on.
  void set_faults(const DeviceFaults& faults);

  // Descriptors that wait for an engine.
  std::size_t occupancy(std::size_t queue) const;
  // Nothing is queued and no engine is busy.
  bool idle() const;
  DeviceStats stats() const;
  const DeviceSetup& setup() const { return options_.setup; }

 private:
  struct Batch;
  // One descriptor on its way from its queue to its record.
  struct Task {
    Descriptor descriptor;
    AddressSpace* space = nullptr;
    std::size_t queue = 0;
    Nanoseconds arrived{0};
    std::shared_ptr<Batch> batch;      // it belongs to; nullptr: submitted alone
    InjectedFault injected;            // drawn when an engine takes it
    std::optional<Record> conclusion;  // of a batch whose descriptors are all over
  };
  struct Queue {
    bool enabled = true;
    std::deque<Task> waiting;
  };
  struct Engine {
    std::optional<Task> task;
    bool executing = false;
    bool cancelled = false;  // while it executes: a batch that it fetches does not begin
    Nanoseconds due{0};      // of the task, and then when it was free
  };
  // A step that an engine may take.
  struct Choice {
    std::size_t engine;
    enum class Kind : std::uint8_t { head, child, execute } kind;
    std::size_t which = 0;  // the queue, or the batch
  };
  using Match = std::function<bool(const Task&)>;

  explicit Device(DeviceOptions options);
  bool submit(std::size_t queue, AddressSpace& space, const Descriptor& descriptor, bool shared);
  void accept(std::size_t queue, AddressSpace& space, const Descriptor& descriptor)
      REQUIRES(mutex_);
  bool head_ready(const Queue& queue) const REQUIRES(mutex_);
  void add_choices(std::size_t engine, std::vector<Choice>& choices) const REQUIRES(mutex_);
  void take(const Choice& choice) REQUIRES(mutex_);
  Nanoseconds model(const Engine& engine, const Task& task) REQUIRES(mutex_);
  bool work_once(std::optional<std::size_t> engine) REQUIRES(mutex_);
  void execute_task(Engine& engine) REQUIRES(mutex_);
  void count(const Task& task, const Record& record, bool delivered) REQUIRES(mutex_);
  void finish(Engine& engine, Executed executed) REQUIRES(mutex_);
  void drop_task(Engine& engine) REQUIRES(mutex_);
  void drop_silent_batches() REQUIRES(mutex_);
  void abandon(const Match& match) REQUIRES(mutex_);
  bool over(const Match& match) const REQUIRES(mutex_);
  bool executes(const Match& match) const REQUIRES(mutex_);
  bool wait_until_over(const Match& match, Nanoseconds bound) REQUIRES(mutex_);
  void serve(std::size_t engine);

  const DeviceOptions options_;

  mutable Mutex mutex_;
  CondVar work_;  // something changed
  DeviceFaults faults_ GUARDED_BY(mutex_);
  Random random_ GUARDED_BY(mutex_);
  std::vector<Queue> queues_ GUARDED_BY(mutex_);
  std::vector<Engine> engines_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Batch>> batches_ GUARDED_BY(mutex_);
  Nanoseconds device_free_ GUARDED_BY(mutex_){0};
  DeviceStats stats_ GUARDED_BY(mutex_);
  bool halted_ GUARDED_BY(mutex_) = false;
  bool serving_ GUARDED_BY(mutex_) = false;

  Mutex threads_mutex_;
  std::vector<std::thread> threads_ GUARDED_BY(threads_mutex_);
};

}  // namespace headrace::emulator
