// SPDX-License-Identifier: Apache-2.0
// GPU resources of one point while it is measured: memory of every kind, and timed streams; all are
// released with it. Waits have a bound. A GPU that exceeds it keeps the resources that it may still
// use, and is not used again.
//
// A point takes plain GPU memory, at most a quarter of the free memory. Single-thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/random.h"
#include "measure/instruments/gpu/gpu_session.h"
#include "measure/instruments/measuring_file.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_gpu {

// The host's memory nodes that are not GPUs.
std::vector<const Node*> host_nodes(const Machine& machine);

// A GPU while a session measures it, so that its context is made once.
struct GpuTarget {
  // The GPU of a node. Errors: absent, unsupported: as cuda::driver() and cuda::find_device().
  static Result<std::shared_ptr<GpuTarget>> find(const Machine& machine, const Node& node);
  // 0: unknown to the driver.
  int attribute(cuda::CUdevice_attribute what) const;
  // The last-level cache; nullopt: unknown to the driver.
  std::optional<Bytes> l2() const;
  // A size of which caches keep little when it is read or written repeatedly from end to end: a
  // power of two, at least four times the largest cache of GPU or host, from 16 MiB to 1 GiB, at
  // most an eighth of the GPU's memory.
  Bytes beyond_caches() const;
  // The context, made at the first call. Errors: io: it is lost; all later measurements fail too.
  Result<std::shared_ptr<const cuda::Context>> use();

  const Machine& machine;
  const Node& node;
  const cuda::Driver& driver;
  const cuda::Device device;
  const NodeId host;  // the nearest memory of CPUs
  std::shared_ptr<const cuda::Context> context = {};
  std::optional<Error> hung = {};
  // Memory of the host that no workspace uses now, by node and whether it is pinned: to pin a GiB
  // for each point took longer than all that was measured in it.
  std::multimap<std::pair<NodeId, bool>, std::unique_ptr<Buffer>> spare = {};
  std::set<std::string> verified = {};  // points of which what arrived has been compared
};

// Times the work that is queued between the two events.
struct TimedStream {
  cuda::CUstream stream = nullptr;
  cuda::CUevent start = nullptr;
  cuda::CUevent end = nullptr;
};

class GpuWorkspace {
 public:
  // While the workspace exists, the GPU's context is current in this thread, and the thread runs on
  // CPUs near the GPU: the driver's calls take longer from distant CPUs.
  static Result<std::unique_ptr<GpuWorkspace>> open(std::shared_ptr<GpuTarget> target);
  ~GpuWorkspace();
  GpuWorkspace(const GpuWorkspace&) = delete;
  GpuWorkspace& operator=(const GpuWorkspace&) = delete;

  GpuTarget& target() const { return *target_; }
  const cuda::Driver& driver() const { return target_->driver; }
  GpuSession& gpu() const { return *gpu_; }

  // Size of an area on the GPU in whole pieces: `wanted`, or less if one of `parts` equal parts of
  // the quarter is smaller. Errors: exhausted: not even one piece fits.
  Result<Bytes> area(Bytes wanted, Bytes piece, unsigned parts) const;
  Result<cuda::CUdeviceptr> on_gpu(Bytes bytes);
  // The same on another GPU; also gives each of the two access to the other's memory, where
  // possible.
  Result<cuda::CUdeviceptr> on_other(GpuTarget& other, Bytes bytes);
  Result<std::span<std::byte>> on_host(NodeId node, Bytes bytes, bool pinned);
  Result<std::span<std::byte>> managed(Bytes bytes);
  // checksum() of GPU memory, computed by the GPU.
  Result<std::uint64_t> checksum_of(cuda::CUdeviceptr address, Bytes bytes);
  // The GPU's address of host memory that it reaches.
  Result<cuda::CUdeviceptr> address_of(std::span<const std::byte> memory) const;

  Result<TimedStream> stream();
  Status start(const TimedStream& stream) const;
  Status stop(const TimedStream& stream) const;
  // Waits for all work queued in the stream before stop().
  Status wait(const TimedStream& stream);
  Result<Nanoseconds> between(cuda::CUevent start, cuda::CUevent end) const;

 private:
  explicit GpuWorkspace(std::shared_ptr<GpuTarget> target);

  struct Foreign {
    std::shared_ptr<const cuda::Context> context;
    cuda::CUdeviceptr address = 0;
  };

  const std::shared_ptr<GpuTarget> target_;
  std::unique_ptr<GpuSession> gpu_;
  const instruments::BoundToNode near_;
  Bytes quarter_;
  std::vector<std::pair<std::pair<NodeId, bool>, std::unique_ptr<Buffer>>> buffers_;
  std::vector<cuda::CUdeviceptr> memory_;  // on this GPU, and managed
  std::vector<Foreign> foreign_;
};

// How much of the memory of copies of `piece` bytes is compared before they are timed: whole ones.
Bytes verified_of(Bytes piece);

// A sum that depends on the numbers in memory and their order. The GPU kernel kChecksum computes
// the same sum.
std::uint64_t checksum(std::span<const std::byte> memory);

}  // namespace headrace::experiment_gpu
