// SPDX-License-Identifier: Apache-2.0
// One direction of a GPU: a stream for copies, and a second one that tells when they are done.
//
// A host function in the stream of the copies itself would hold the next copy up until it has
// returned. Thread-safe: who puts copies in and asks for the end of them calls both in one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/cuda.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace::cuda {

// Each has a stream of its own: to the GPU, from it, and inside it or between GPUs.
enum class Direction : std::uint8_t { to_gpu, from_gpu, across };
inline constexpr std::size_t kDirections = 3;

struct StreamCopy {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  std::size_t bytes = 0;
  bool reached = false;  // both sides, by kernels of the GPU at these addresses
  friend bool operator==(const StreamCopy&, const StreamCopy&) = default;
};

// Neighbours that continue each other on both sides made one. `part_of[i]`: in which of the result
// copies[i] went.
std::vector<StreamCopy> coalesce(std::span<const StreamCopy> copies,
                                 std::vector<std::size_t>& part_of);

// Marks a place in a stream.
class Event {
 public:
  static Result<std::unique_ptr<Event>> make(const Context& context);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent handle() const { return handle_; }

 private:
  Event(const Context& context, CUevent handle) : context_(context), handle_(handle) {}
  const Context& context_;
  const CUevent handle_;
};

// How copies go into a stream. Batches: where the driver has them. Without a kernel, or below 2
// copies, nothing is gathered.
struct CopyMeans {
  bool batches = true;
  const GatherKernel* kernel = nullptr;  // outlives the stream
};

class CopyStream {
 public:
  // Requires, as all below: `context`, which it borrows, is current.
  static Result<std::unique_ptr<CopyStream>> open(const Context& context, const CopyMeans& means);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Puts copies in the stream, in any order; what came of each is in `results`. Neighbours go as
  // one copy where the driver takes it, many small ones by one kernel, and several others by one
  // call where that is possible. What is refused so goes in the next of these ways. `limit` says
  // which a kernel may have; by `list`, where it is not nullptr, which is used for nothing else
  // until the stream has come so far. Whether a kernel has some of them.
  bool enqueue(std::span<const StreamCopy> copies, std::span<CUresult> results,
               const GatherLimit& limit, GatherList* list = nullptr) const;
  // All by one launch of the kernel; false: none are in the stream.
  bool enqueue_list(std::span<const ListedCopy> copies, GatherList& list) const;
  // Marks where the stream is now. The event is not used for another place until that is done.
  CUresult mark(const Event& event) const;
  // Calls `then` from a thread of the driver when all before the mark has been done; never if the
  // GPU is lost.
  CUresult when_done(const Event& event, CUhostFn then, void* data) const;
  // cuStreamQuery of the copies.
  CUresult query() const;

 private:
  explicit CopyStream(const Context& context, const CopyMeans& means)
      : context_(context), means_(means) {}
  // The copies that are not in the stream by a kernel.
  std::vector<std::size_t> enqueue_gathered(std::span<const StreamCopy> copies,
                                            const GatherLimit& limit, GatherList* list) const;
  CUresult enqueue_batch(std::span<const StreamCopy> copies,
                         std::span<const std::size_t> which) const;

  const Context& context_;
  const CopyMeans means_;
  CUstream copies_ = nullptr;   // constant after open()
  CUstream signals_ = nullptr;  // constant after open()
};

}  // namespace headrace::cuda
