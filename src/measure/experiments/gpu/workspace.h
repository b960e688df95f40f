// SPDX-License-Identifier: Apache-2.0
// What one point needs of a GPU while it is measured: memory of every kind and timed streams, which
// end with it. Waits have a bound; a GPU that has not answered in it keeps what it may still use,
// and is left alone from then on.
//
// A point takes plain memory of the GPU, at most a quarter of what is free. Single-thread.
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
#include "measure/instruments/worker_pool.h"
#include "measure/unified_memory/gpu_session.h"

namespace headrace::experiment_gpu {

// The memory nodes of the host that are no GPU's.
std::vector<const Node*> host_nodes(const Machine& machine);

// A GPU for as long as a session measures it, so that its context is made once.
struct GpuTarget {
  // That of a node. absent, unsupported: as cuda::driver() and cuda::find_device().
  static Result<std::shared_ptr<GpuTarget>> find(const Machine& machine, const Node& node);
  // 0 where the driver does not know it.
  int attribute(cuda::CUdevice_attribute what) const;
  // Its last cache; nothing where the driver does not know it.
  std::optional<Bytes> l2() const;
  // Memory of which caches keep little while it is read or written from end to end, again and
  // again: a power of two of at least four times the largest cache of the GPU or the host, from 16
  // MiB to 1 GiB, and an eighth of the GPU's memory at most.
  Bytes beyond_caches() const;
  // The context, made at the first call. io: it is lost; all that is measured later fails so too.
  Result<std::shared_ptr<const cuda::Context>> use();

  const Machine& machine;
  const Node& node;
  const cuda::Driver& driver;
  const cuda::Device device;
  const NodeId host;  // the memory of CPUs nearest to it
  std::shared_ptr<const cuda::Context> context = {};
  std::optional<Error> hung = {};
  // Memory of the host that no workspace uses now, by node and whether it is pinned: to pin a GiB
  // for each point took longer than all that was measured in it.
  std::multimap<std::pair<NodeId, bool>, std::unique_ptr<Buffer>> spare = {};
  std::set<std::string> verified = {};  // points of which what arrived has been compared
};

// What is put in the stream between the two events is timed.
struct TimedStream {
  cuda::CUstream stream = nullptr;
  cuda::CUevent start = nullptr;
  cuda::CUevent end = nullptr;
};

class GpuWorkspace {
 public:
  // While it is there the GPU's context is the thread's current one, and the thread runs on CPUs
  // near the GPU: the driver's calls take longer from far ones.
  static Result<std::unique_ptr<GpuWorkspace>> open(std::shared_ptr<GpuTarget> target);
  ~GpuWorkspace();
  GpuWorkspace(const GpuWorkspace&) = delete;
  GpuWorkspace& operator=(const GpuWorkspace&) = delete;

  GpuTarget& target() const { return *target_; }
  const cuda::Driver& driver() const { return target_->driver; }
  GpuSession& gpu() const { return *gpu_; }

  // Whole pieces of memory on the GPU, `wanted` at most, less where a part of the quarter is less.
  // exhausted: not one piece.
  Result<Bytes> area(Bytes wanted, Bytes piece, unsigned parts) const;
  Result<cuda::CUdeviceptr> on_gpu(Bytes bytes);
  // The same of another GPU; and access of each of the two to the other's memory, where they can.
  Result<cuda::CUdeviceptr> on_other(GpuTarget& other, Bytes bytes);
  Result<std::span<std::byte>> on_host(NodeId node, Bytes bytes, bool pinned);
  Result<std::span<std::byte>> managed(Bytes bytes);
  // checksum() of memory of this GPU, by its multiprocessors.
  Result<std::uint64_t> checksum_of(cuda::CUdeviceptr address, Bytes bytes);
  // How the GPU calls memory of the host that it reaches.
  Result<cuda::CUdeviceptr> address_of(std::span<const std::byte> memory) const;

  Result<TimedStream> stream();
  Status start(const TimedStream& stream) const;
  Status stop(const TimedStream& stream) const;
  // Until all that was in the stream at stop() has been done.
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

// Numbers that do not compress, and a sum that tells them and their order from others: the one that
// the kernel kChecksum makes.
void fill_randomly(std::span<std::byte> memory, Random& random);
std::uint64_t checksum(std::span<const std::byte> memory);

}  // namespace headrace::experiment_gpu
