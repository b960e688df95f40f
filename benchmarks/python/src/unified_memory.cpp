// SPDX-License-Identifier: Apache-2.0
// The experiment on memory that host and GPU share: for `headrace bench um` alone, so no part of
// the public interface.
#include "benchmarks/unified_memory/unified_memory.h"

#include "interruptible.h"
#include "module.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

UnifiedMemoryResult run(const Machine& machine, const UnifiedMemoryCase& asked, nb::object stop,
                        nb::object progress) {
  const Machine measured = machine;  // so that Python may change the machine meanwhile
  Interruptible callbacks(std::move(stop), std::move(progress));
  auto result = [&] {
    const GilRelease release;
    return run_unified_memory(measured, asked, callbacks.context());
  }();
  callbacks.rethrow();
  return unwrap(std::move(result));
}

void bind_records(nb::module_& m) {
  Record<UnifiedMemoryRun>(m, "UnifiedMemoryRun", "One run of a kernel on an array.")
      .field("time", &UnifiedMemoryRun::time, "By events of the GPU.")
      .field("correct", &UnifiedMemoryRun::correct, "What the kernel read, by its sum.")
      .field("before", &UnifiedMemoryRun::before, "Where the array's pages were before it.")
      .field("after", &UnifiedMemoryRun::after, "And after it.");
  Record<UnifiedMemoryResult>(m, "UnifiedMemoryResult", "All runs, and on what.")
      .field("device", &UnifiedMemoryResult::device, "The GPU's name.")
      .field("emulated", &UnifiedMemoryResult::emulated, "It is made of software.")
      .computed(
          "paradigm",
          [](const UnifiedMemoryResult& self) { return std::string(to_string(self.paradigm)); },
          "How it reaches memory of the host: ats, hmm, managed, limited.")
      .field("device_free", &UnifiedMemoryResult::device_free, "Bytes, before the array.")
      .field("node", &UnifiedMemoryResult::node,
             "The node whose CPUs ran it; None: the system bound it to none.")
      .field("blocks", &UnifiedMemoryResult::blocks, "Of the kernel.")
      .field("threads_per_block", &UnifiedMemoryResult::threads_per_block, "")
      .field("in_flight", &UnifiedMemoryResult::in_flight, "Bytes all threads ask for at once.")
      .field("advice_confirmed", &UnifiedMemoryResult::advice_confirmed,
             "Whether the driver names the advice; None where it cannot be asked.")
      .field("runs", &UnifiedMemoryResult::runs, "In their order.")
      .field("written", &UnifiedMemoryResult::written,
             "The array held in the end what the last run wrote.");
}

}  // namespace

void bind_unified_memory(nb::module_& m) {
  bind_records(m);
  m.def(
      "run_unified_memory",
      [](const Machine& machine, Bytes size, bool managed, std::optional<NodeId> node,
         bool accessed_by, bool read_mostly, bool preferred_location_cpu, bool touch_on_host,
         bool write, unsigned runs, unsigned device, std::optional<Bytes> prefetch_block,
         unsigned streams, bool wide, bool oversubscribe, nb::object stop, nb::object progress) {
        return run(machine,
                   {.size = size,
                    .managed = managed,
                    .node = node,
                    .accessed_by = accessed_by,
                    .read_mostly = read_mostly,
                    .preferred_location_cpu = preferred_location_cpu,
                    .touch_on_host = touch_on_host,
                    .write = write,
                    .runs = runs,
                    .device = device,
                    .prefetch_block = prefetch_block,
                    .streams = streams,
                    .wide = wide,
                    .oversubscribe = oversubscribe},
                   std::move(stop), std::move(progress));
      },
      "machine"_a, "size"_a, nb::kw_only(), "managed"_a = true, "node"_a = nb::none(),
      "accessed_by"_a = false, "read_mostly"_a = false, "preferred_location_cpu"_a = false,
      "touch_on_host"_a = false, "write"_a = false, "runs"_a = 5, "device"_a = 0,
      "prefetch_block"_a = nb::none(), "streams"_a = 2, "wide"_a = false, "oversubscribe"_a = false,
      "stop"_a = nb::none(), "progress"_a = nb::none(),
      nb::sig("def run_unified_memory(machine: headrace.Machine, size: int, *, managed: bool = "
              "True, node: "
              "int | None = None, accessed_by: bool = False, read_mostly: bool = False, "
              "preferred_location_cpu: bool = False, touch_on_host: bool = False, write: bool = "
              "False, runs: int = 5, device: int = 0, prefetch_block: int | None = None, streams: "
              "int = 2, wide: bool = False, oversubscribe: bool = False, stop: "
              "typing.Callable[[], bool] | None = None, progress: typing.Callable[[int, int], "
              "object] | None = None) -> UnifiedMemoryResult"),
      "Reads or writes an array with a kernel of a GPU, run after run: managed memory with this "
      "advice, or memory of a node of the host. It runs on CPUs of `node`, by default of the GPU's "
      "nearest, which so touch the array first. Managed memory larger than the GPU has free is "
      "refused unless `oversubscribe`. `stop` is asked between runs.");
}

}  // namespace headrace::python
