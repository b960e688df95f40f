// SPDX-License-Identifier: Apache-2.0
// The load of a network's layer on a machine, for `headrace bench layer` and `headrace bench
// kvcache`: cores or a GPU read its weights. It computes no result. Thread-compatible; run one at a
// time, since two would disturb each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/measure.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// The load of a layer on cores: it reads `bytes` of the caller's memory, as its
// weights and the cache of earlier tokens, and multiplies. It computes no result, but its time and
// traffic are real.
struct LayerWork {
  std::uint64_t from = 0;        // first byte to read; wraps around at the end of the memory
  Bytes bytes;                   // to read; may exceed the memory's size
  std::uint64_t operations = 0;  // on floats; a multiply-add is two
};
struct LayerRun {
  Bytes bytes;  // read: the requested bytes, minus less than 256 bytes per thread
  std::uint64_t operations = 0;
  Nanoseconds time{0};   // from the first thread's start to the last thread's end
  double cpu_share = 1;  // the share of it in which a thread had its CPU; the least of all threads
};
// Fills memory with random bytes, by a thread on each CPU. The same seed gives the same bytes.
// Errors: invalid: no CPU.
Status fill_random(std::span<std::byte> memory, std::uint64_t seed, const CpuSet& cpus);
// Runs one layer, divided over a thread on each CPU. Each thread alternately reads a tile of 256
// KiB and does the tile's share of operations.
// Errors: invalid: no CPU; bytes to read from memory below 4 KiB or not aligned to a cache line.
Result<LayerRun> run_layer(std::span<const std::byte> memory, const LayerWork& work,
                           const CpuSet& cpus);

// The same on a GPU, from its own memory: kernels read layer after layer, with 64 bytes in flight
// per thread. They multiply nothing.
struct GpuLayerWork {
  NodeId gpu{};  // reads its own memory
  Bytes memory;  // holds the layers one behind the other; whole MiB
  Bytes bytes;   // per layer; may exceed `memory`
  unsigned runs = 1;
};
struct GpuLayerRun {
  unsigned blocks = 0;   // number of thread blocks
  Nanoseconds time{0};   // by the GPU's own clock
  bool correct = false;  // the sum of the bytes read is right
};
struct GpuLayers {
  std::string device;
  bool emulated = false;  // a GPU in software: its times are no measurement
  unsigned threads_per_block = 0;
  std::vector<GpuLayerRun> layers;  // in order; fewer after a stop
  std::vector<GpuLayerRun> others;  // the same layers between them, with fewer and more blocks
};
// Runs the layers; blocks the caller.
// Errors: absent: no such GPU; exhausted: too little memory; unsupported: a NUMA node whose memory
// the GPU does not reach by host addresses; and the driver's errors.
Result<GpuLayers> run_layers_on_gpu(const Machine& machine, const GpuLayerWork& work,
                                    const ExperimentContext& context = {});

}  // namespace headrace
