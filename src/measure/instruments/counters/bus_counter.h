// SPDX-License-Identifier: Apache-2.0
// Counts bytes on the memory bus, where the machine has a counter that this user may read. It
// checks the arithmetic of traffic.h, and is never required. Single-thread.
//
// Two sources:
// - Controllers of DDR memory count reads and writes of lines (perf's uncore PMUs). They count all
//   programs, and no other kind of memory; they need root or a low perf_event_paranoid.
// - Last-level caches count the traffic of all programs (resctrl's MBM), to any kind of memory.
//
// Virtual machines have neither.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace::instruments {

class PerfReader;

class BusCounter {
 public:
  virtual ~BusCounter() = default;
  // Total bytes; only differences are meaningful. Errors: absent: the hardware has no number now.
  virtual Result<double> bytes() = 0;
  // Describes the counter: "DDR controllers (uncore_imc_0 and 7 more): lines read and written, of
  // all programs".
  virtual const std::string& words() const = 0;
  // Whether it counts all traffic to memory of the node.
  virtual bool counts(const Node& node) const = 0;
};

// Sources of information; tests substitute another host.
struct CounterHost {
  std::filesystem::path sysfs = "/sys";
  PerfReader* perf = nullptr;  // nullptr: the kernel's
};

// A counter, or one line that says why there is none and what would help.
struct FoundCounter {
  std::unique_ptr<BusCounter> counter;
  std::string words;
};
FoundCounter find_bus_counter(const CounterHost& host = {});

// Counts the bytes moved during a window. Costs nothing without a counter.
class BusMeter {
 public:
  BusMeter() = default;
  explicit BusMeter(std::unique_ptr<BusCounter> counter) : counter_(std::move(counter)) {}

  // From its construction until bytes().
  class Window {
   public:
    explicit Window(BusMeter& meter) : meter_(meter), before_(meter.now()) {}
    // nullopt: no counter, no number from it, or the first window: the first reading of a counter
    // is arbitrary (the kernel's own test of MBM skips it, tools/testing/selftests/resctrl).
    std::optional<double> bytes() const;

   private:
    BusMeter& meter_;
    const std::optional<double> before_;
  };

  // The counter's description; "": no counter.
  std::string words() const { return counter_ == nullptr ? "" : counter_->words(); }
  bool counts(const Node& node) const { return counter_ != nullptr && counter_->counts(node); }

 private:
  std::optional<double> now();

  std::unique_ptr<BusCounter> counter_;
  bool warm_ = false;
};

}  // namespace headrace::instruments
