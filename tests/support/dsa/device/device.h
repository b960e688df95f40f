// SPDX-License-Identifier: Apache-2.0
// An emulated device: takes descriptors from clients, executes them, writes their records.
//
// Thread-safe. It executes when told to (step(), run()): then the same seed, the same calls give
// the same run; or by threads of its own, one per engine (start()). What is in flight and what of
// it is executed next is random within what the specification promises (SPEC 3.8, 3.9, 3.12): with
// one engine in the group, the descriptors of a queue in order; with several, in any; those of a
// batch in any except for fences.
//
// A client's AddressSpace must outlive its descriptors: call forget() before it is destroyed. After
// forget(), disable() or halt() returned, nothing more is written for what they ended. They wait
// for the operations that execute, so they must not be called by a FaultScript or an AddressSpace.
// A child made by fork() has none of its threads, and may only destroy it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/clock.h"
#include "headrace/random.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "tests/support/dsa/execute/device_setup.h"
#include "tests/support/dsa/memory/address_space.h"
#include "tests/support/dsa/memory/injected_fault.h"

namespace headrace::emulator {

// A model of time: a descriptor's data begin to move `start_up` after it arrived, or when those of
// the engine's descriptor before it have moved, whichever is later: the start-up of one is hidden
// by the data of those before it. They move at the rate `engine`; the device moves `device` at
// most, over all engines. A descriptor's record is not written before. A batch is a descriptor
// without data, and its own arrive when it is over.
struct DeviceRates {
  // 0.86 us + bytes / 30 GB/s fits the latencies in the README of intel/DTO (all but one of 17
  // points within 20 %); 30 GB/s is the limit of one device by Kuper et al., ASPLOS'24 (31.17 GB/s
  // in intel/DML issue 25).
  Nanoseconds start_up{860};
  BytesPerSecond engine{30e9};
  BytesPerSecond device{30e9};
  // When what lies beyond the device (memories, links) has moved the data of a descriptor that
  // begin to move then; nothing: no limit. Called one at a time by each device, so it must not call
  // the device; several devices may share one.
  std::function<Nanoseconds(const Descriptor&, Nanoseconds begin)> beyond = {};
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
  std::uint64_t retried = 0;    // ENQCMD said: not now
  std::uint64_t dropped = 0;    // MOVDIR64B to a full queue (SWERROR 0x53), or by DeviceFaults
  std::uint64_t discarded = 0;  // MOVDIR64B to a shared or disabled queue
  std::uint64_t abandoned = 0;  // by forget() or halt(), or behind a failed fence
  std::map<Opcode, std::uint64_t> executed;  // well or not; those that failed a check included
  std::uint64_t failed = 0;                  // of them, status neither 1 nor 2
  std::uint64_t faults = 0;                  // of them, page faults
  std::uint64_t resolved = 0;                // page requests that were granted
  std::uint64_t records_written = 0;
  std::uint64_t records_suppressed = 0;  // not wanted
  std::uint64_t records_lost = 0;        // wanted: not accessible, misaligned, or by DeviceFaults
};

class Scheduler;

class Device {
 public:
  // invalid: the set-up is impossible.
  static Result<std::unique_ptr<Device>> open(DeviceOptions options = {});
  // Abandons what is in flight. In a child nothing happens to it.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The two instructions (shared and dedicated queues). What a descriptor points to must be
  // written before, by the calling thread or visibly to it. Requires: such a queue.
  // False: retry; the queue is full, disabled or dedicated, or the device is halted
  // (SPEC 5.3, 5.7).
  bool enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);
  // Says nothing: a descriptor for a full, disabled or shared queue is gone.
  void movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor);

  // Does one unit of work, chosen at random: an engine takes a descriptor, or executes the one it
  // has. False: there is nothing to do now.
  bool step();
  // Steps until there is nothing to do now, or `limit` steps; returns how many.
  std::size_t run(std::size_t limit = SIZE_MAX);
  // When, by the clock, an engine is next done; nothing: no engine is busy. For manual clocks.
  std::optional<Nanoseconds> next_due() const;

  // From now on threads of its own execute. exhausted: no thread to be had.
  Status start();
  // Ends them; what is queued stays.
  void stop();

  // The queue accepts nothing more, and all it accepted is executed, by the calling thread too.
  // What is not over after 10 s, or waits for a modelled time without threads, is abandoned.
  void disable(std::size_t queue);
  void enable(std::size_t queue);
  bool enabled(std::size_t queue) const;
  // No queue accepts anything until recover(). What is queued or waits within a batch is abandoned:
  // no record comes.
  void halt();
  void recover();
  bool halted() const;
  // Abandons what is in flight for `space`.
  void forget(AddressSpace& space);
  // Returns when all that was accepted for `space` is over, executing it with the calling thread
  // too. False: not within `bound`, or it waits for a modelled time without threads.
  bool drain(const AddressSpace& space, Nanoseconds bound);

  // Descriptors that wait for an engine.
  std::size_t occupancy(std::size_t queue) const;
  // Nothing is queued and no engine is busy.
  bool idle() const;
  DeviceStats stats() const;
  const DeviceSetup& setup() const { return options_.setup; }

 private:
  explicit Device(DeviceOptions options);

  // Immutable after construction.
  const DeviceOptions options_;
  const Origin origin_;
  std::unique_ptr<Scheduler> scheduler_;

  mutable Mutex threads_mutex_;
  std::vector<std::thread> threads_ GUARDED_BY(threads_mutex_);
};

}  // namespace headrace::emulator
