// SPDX-License-Identifier: Apache-2.0
// A host with counters that tests write.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/fail.h"
#include "measure/instruments/counters/uncore.h"
#include "tests/support/fake_host.h"

namespace headrace::test {

// Counts that a test sets, by the number of the event in the order of opening.
class FakePerf final : public instruments::PerfReader {
 public:
  Result<int> open(const instruments::PerfEvent& event) override {
    if (denied) return fail(ErrorCode::denied, "perf_event_open: Permission denied");
    opened.push_back(event);
    return static_cast<int>(opened.size()) - 1;
  }
  Result<instruments::PerfCount> read(int event) override { return counts[event]; }
  void close(int event) override { closed.push_back(event); }

  bool denied = false;
  std::vector<instruments::PerfEvent> opened;
  std::map<int, instruments::PerfCount> counts;
  std::vector<int> closed;
};

// Intel's controllers of two sockets, read by CPU 0 and CPU 24.
inline void add_imc(FakeHost& host, int number, int type) {
  const std::string pmu = fmt::format("sys/bus/event_source/devices/uncore_imc_{}/", number);
  host.write(pmu + "type", std::to_string(type));
  host.write(pmu + "cpumask", "0,24");
  host.write(pmu + "format/event", "config:0-7");
  host.write(pmu + "format/umask", "config:8-15");
  for (const auto& [name, event] :
       {std::pair("read", "event=0x05,umask=0xcf"), {"write", "event=0x05,umask=0xf0"}}) {
    const std::string path = pmu + "events/cas_count_" + name;
    host.write(path, event);
    host.write(path + ".scale", "6.103515625e-5");
    host.write(path + ".unit", "MiB");
  }
  host.write(pmu + "events/clockticks", "event=0x01,umask=0x00");
}

}  // namespace headrace::test
