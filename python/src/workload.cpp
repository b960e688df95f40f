// SPDX-License-Identifier: Apache-2.0
// The histogram, STREAM and a layer's work over memory of the caller, one repetition at a time.
#include "benchmarks/histogram/histogram.h"

#include "handles.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

struct StreamViews {
  StreamViews(nb::handle first, nb::handle second, nb::handle third)
      : a(first, PyBUF_WRITABLE), b(second, PyBUF_WRITABLE), c(third, PyBUF_WRITABLE) {}
  StreamArrays arrays() const { return {a.as<double>(), b.as<double>(), c.as<double>()}; }
  View a, b, c;
};

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

void bind_stream(nb::module_& m) {
  Record<StreamRun>(m, "StreamRun", "One repetition of a kernel of STREAM.")
      .field("bytes", &StreamRun::bytes, "As STREAM counts: stores not fetched first.")
      .field("seconds", &StreamRun::time, "From the first thread's start to the last one's end.")
      .field("cpu_share", &StreamRun::cpu_share, "The part of it in which threads had their CPUs.");
  m.def("stream_kernels", &stream_kernels, "Their names.");
  m.def(
      "stream_fill",
      [](nb::handle a, nb::handle b, nb::handle c, const CpuSet& cpus) {
        const StreamViews views(a, b, c);
        const StreamArrays arrays = views.arrays();
        auto status = [&] {
          const GilRelease release;
          return stream_fill(arrays, cpus);
        }();
        unwrap(std::move(status));
      },
      "a"_a, "b"_a, "c"_a, "cpus"_a,
      nb::sig("def stream_fill(a: typing_extensions.Buffer, b: typing_extensions.Buffer, c: "
              "typing_extensions.Buffer, cpus: typing.Sequence[int]) -> None"),
      "What the arrays must hold before each repetition, written by a thread on each CPU.");
  m.def(
      "stream_run",
      [](const std::string& kernel, nb::handle a, nb::handle b, nb::handle c, const CpuSet& cpus) {
        const StreamViews views(a, b, c);
        const StreamArrays arrays = views.arrays();
        auto run = [&] {
          const GilRelease release;
          return stream_run(kernel, arrays, cpus);
        }();
        return unwrap(std::move(run));
      },
      "kernel"_a, "a"_a, "b"_a, "c"_a, "cpus"_a,
      nb::sig("def stream_run(kernel: str, a: typing_extensions.Buffer, b: "
              "typing_extensions.Buffer, c: typing_extensions.Buffer, cpus: "
              "typing.Sequence[int]) -> StreamRun"),
      "One repetition after stream_fill(), and a look at what it left (IoError).");
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
      "Reads so much of the memory, from `start` on and again from its beginning, and multiplies, "
      "with a thread on each CPU.");
  Record<GpuLayerRun>(m, "GpuLayerRun", "One layer that a GPU read.")
      .field("blocks", &GpuLayerRun::blocks, "Of threads.")
      .field("seconds", &GpuLayerRun::time, "On the GPU's own clock.")
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
      nb::sig("def run_layers_on_gpu(machine: Machine, gpu: int, memory: int, bytes: int, runs: "
              "int, stop: typing.Callable[[], bool] | None = None, progress: "
              "typing.Callable[[int, int], object] | None = None) -> GpuLayers"),
      "A GPU reads so much of its own memory, layer after layer.");
}

}  // namespace

void bind_workload(nb::module_& m) {
  bind_histogram(m);
  bind_stream(m);
  bind_layer_run(m);
}

}  // namespace headrace::python
