// SPDX-License-Identifier: Apache-2.0
// The histogram and a layer's work over memory of the caller, one repetition at a time.
#include "benchmarks/layer/layer.h"

#include "benchmarks/histogram/histogram.h"
#include "interruptible.h"
#include "module.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

void bind_histogram(nb::module_& m) {
  m.attr("HISTOGRAM_BINS") = nb::int_(kHistogramBins);
  m.def(
      "histogram_fill",
      [](nb::handle data, const CpuSet& cpus) {
        const View view(data, PyBUF_WRITABLE);
        const auto numbers = view.as<double>();
        auto status = [&] {
          const GilRelease release;
          return histogram_fill(numbers, cpus);
        }();
        unwrap(std::move(status));
      },
      "data"_a, "cpus"_a,
      nb::sig("def histogram_fill(data: typing_extensions.Buffer, cpus: "
              "typing.Sequence[int]) -> None"),
      "Fills `data` with doubles as the program of IT4I's guide does, a thread on each CPU.");
  m.def(
      "histogram_count",
      [](nb::handle data, nb::handle bins, const CpuSet& cpus) {
        const View numbers(data, PyBUF_SIMPLE);
        const View counters(bins, PyBUF_WRITABLE);
        const auto from = numbers.as<const double>();
        const auto to = counters.as<std::uint64_t>();
        auto time = [&] {
          const GilRelease release;
          return histogram_count(from, to, cpus);
        }();
        return unwrap(std::move(time));
      },
      "data"_a, "bins"_a, "cpus"_a,
      nb::sig("def histogram_count(data: typing_extensions.Buffer, bins: typing_extensions.Buffer, "
              "cpus: typing.Sequence[int]) -> float"),
      "One iteration, HISTOGRAM_BINS counters of 8 bytes for each thread; the seconds it took.");
}

void bind_layer_run(nb::module_& m) {
  Record<LayerRun>(m, "LayerRun", "What a layer did.")
      .field("bytes", &LayerRun::bytes, "Read.")
      .field("operations", &LayerRun::operations, "On floats.")
      .field("seconds", &LayerRun::time, "From the first thread's start to the last one's end.")
      .field("cpu_share", &LayerRun::cpu_share, "The part of it in which threads had their CPUs.");
  m.def(
      "fill_random",
      [](nb::handle memory, std::uint64_t seed, const CpuSet& cpus) {
        const View view(memory, PyBUF_WRITABLE);
        auto status = [&] {
          const GilRelease release;
          return fill_random({view.data(), view.size()}, seed, cpus);
        }();
        unwrap(std::move(status));
      },
      "memory"_a, "seed"_a, "cpus"_a,
      nb::sig("def fill_random(memory: typing_extensions.Buffer, seed: int, cpus: "
              "typing.Sequence[int]) -> None"),
      "Random bytes, written by a thread on each CPU.");
  m.def(
      "run_layer",
      [](nb::handle memory, std::uint64_t from, Bytes bytes, std::uint64_t operations,
         const CpuSet& cpus) {
        const View view(memory, PyBUF_SIMPLE);
        const LayerWork work{.from = from, .bytes = bytes, .operations = operations};
        auto run = [&] {
          const GilRelease release;
          return run_layer({view.data(), view.size()}, work, cpus);
        }();
        return unwrap(std::move(run));
      },
      "memory"_a, "start"_a, "bytes"_a, "operations"_a, "cpus"_a,
      nb::sig("def run_layer(memory: typing_extensions.Buffer, start: int, bytes: int, operations: "
              "int, cpus: typing.Sequence[int]) -> LayerRun"),
      "Reads `bytes` of the memory from `start` on, again from its beginning after the end, and "
      "multiplies, with a thread on each CPU.");
  Record<GpuLayerRun>(m, "GpuLayerRun", "One layer that a GPU read.")
      .field("blocks", &GpuLayerRun::blocks, "Blocks of threads.")
      .field("seconds", &GpuLayerRun::time, "Seconds on the GPU's own clock.")
      .field("correct", &GpuLayerRun::correct, "Whether the sum of what was read was right.");
  Record<GpuLayers>(m, "GpuLayers", "Layers that a GPU read.")
      .field("device", &GpuLayers::device, "Its name.")
      .field("emulated", &GpuLayers::emulated, "A GPU made of software: no measurement.")
      .field("threads_per_block", &GpuLayers::threads_per_block, "Of each block.")
      .field("layers", &GpuLayers::layers, "In their order; fewer after a stop.")
      .field("others", &GpuLayers::others, "The same by fewer and more blocks of threads.");
  m.def(
      "run_layers_on_gpu",
      [](const Machine& machine, NodeId gpu, Bytes memory, Bytes bytes, unsigned runs,
         nb::object stop, nb::object progress) {
        const Machine measured = machine;  // so that Python may change the machine meanwhile
        Interruptible callbacks(std::move(stop), std::move(progress));
        auto layers = [&] {
          const GilRelease release;
          return run_layers_on_gpu(measured,
                                   {.gpu = gpu, .memory = memory, .bytes = bytes, .runs = runs},
                                   callbacks.context());
        }();
        callbacks.rethrow();
        return unwrap(std::move(layers));
      },
      "machine"_a, "gpu"_a, "memory"_a, "bytes"_a, "runs"_a, "stop"_a = nb::none(),
      "progress"_a = nb::none(),
      nb::sig("def run_layers_on_gpu(machine: headrace.Machine, gpu: int, memory: int, bytes: int, "
              "runs: "
              "int, stop: typing.Callable[[], bool] | None = None, progress: "
              "typing.Callable[[int, int], object] | None = None) -> GpuLayers"),
      "A GPU reads its own memory, layer after layer.");
}

}  // namespace

void bind_layer(nb::module_& m) {
  bind_histogram(m);
  bind_layer_run(m);
}

}  // namespace headrace::python
