// SPDX-License-Identifier: Apache-2.0
// What really crosses the memory bus, where the machine counts it and lets us look: a check of the
// arithmetic of traffic.h, never needed.
//
// Two sources. Controllers of DDR memory count the reads and writes of lines (perf's uncore PMUs).
// They see all programs and no memory of another kind, and want root or a low perf_event_paranoid.
// Last-level caches count what passes them by groups of threads (resctrl's MBM), whatever memory it
// is of; a group of our own sees this session alone, and wants root. Virtual machines have neither.
// Single-thread.
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
  // Bytes so far; only differences mean something. absent: the hardware has no number now.
  virtual Result<double> bytes() = 0;
  // What counts what: "DDR controllers (uncore_imc_0 and 7 more): lines read and written, of all
  // programs".
  virtual const std::string& words() const = 0;
  // Whether all traffic to memory of the node is in the bytes.
  virtual bool counts(const Node& node) const = 0;
};

// Where to look, so that tests can show another host.
struct CounterHost {
  std::filesystem::path sysfs = "/sys";
  std::filesystem::path procfs = "/proc";
  PerfReader* perf = nullptr;  // nullptr: the kernel's
};

// A counter, or in one line why there is none and what would change that. The calling thread and
// those it starts from now on are counted.
struct FoundCounter {
  std::unique_ptr<BusCounter> counter;
  std::string words;
};
FoundCounter find_bus_counter(const CounterHost& host = {});

// Asks a counter how much was moved while something ran. Costs nothing without one.
class BusMeter {
 public:
  BusMeter() = default;
  explicit BusMeter(std::unique_ptr<BusCounter> counter) : counter_(std::move(counter)) {}

  // From its making until bytes().
  class Window {
   public:
    explicit Window(BusMeter& meter) : meter_(meter), before_(meter.now()) {}
    // Nothing where nobody counts, the counter had no number, or this was the first window: the
    // first reading of a counter begins anywhere (the kernel's own test of MBM leaves it out,
    // tools/testing/selftests/resctrl).
    std::optional<double> bytes() const;

   private:
    BusMeter& meter_;
    const std::optional<double> before_;
  };

  // The counter's; "" where there is none.
  std::string words() const { return counter_ == nullptr ? "" : counter_->words(); }
  bool counts(const Node& node) const { return counter_ != nullptr && counter_->counts(node); }

 private:
  std::optional<double> now();

  std::unique_ptr<BusCounter> counter_;
  bool warm_ = false;
};

}  // namespace headrace::instruments
