// SPDX-License-Identifier: Apache-2.0
// One direction of a GPU: a stream for copies, and a second stream that reports when they are done.
//
// A host function in the stream of the copies would delay the next copy until the function has
// returned. Thread-safe; one thread calls both enqueue...() and the calls that ask for the end of
// its copies.
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

// Each direction has its own stream: to the GPU, from it, and inside it or between GPUs.
enum class Direction : std::uint8_t { to_gpu, from_gpu, across };
inline constexpr std::size_t kDirections = 3;

struct StreamCopy {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  std::size_t bytes = 0;
  bool reached = false;  // kernels of the GPU reach both sides at these addresses
  friend bool operator==(const StreamCopy&, const StreamCopy&) = default;
};

// Merges copies that continue each other on both sides. `part_of[i]` is the index of the result
// that contains copies[i].
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

// The means to put copies in a stream. Batches are used if the driver has them. Without a kernel,
// or below 2 copies, nothing is gathered.
struct CopyMeans {
  bool batches = true;
  const GatherKernel* kernel = nullptr;  // outlives the stream
};

class CopyStream {
 public:
  // Requires, as all calls below: `context`, which it borrows, is current.
  static Result<std::unique_ptr<CopyStream>> open(const Context& context, const CopyMeans& means);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Puts copies in the stream, in any order; `results` gets the result of each. Neighbours are
  // merged. Many small copies within `limit` go by one kernel, others by one batch call if
  // possible, the rest by one call each. A refused copy is tried in the next of these ways, at last
  // without merging. The kernel reads its copies from `list`, unless it is nullptr; nothing else
  // may use the list until the stream has come that far. Returns whether a kernel has some of the
  // copies.
  bool enqueue(std::span<const StreamCopy> copies, std::span<CUresult> results,
               const GatherLimit& limit, GatherList* list = nullptr) const;
  // Puts all in the stream by one launch of the kernel; false: none are in the stream.
  bool enqueue_list(std::span<const ListedCopy> copies, GatherList& list) const;
  // Marks the stream's present place. The event must not mark another place until this one is
  // reached.
  CUresult mark(const Event& event) const;
  // Calls `then` from a driver thread when all work before the mark is done; never if the GPU is
  // lost.
  CUresult when_done(const Event& event, CUhostFn then, void* data) const;
  // cuStreamQuery of the stream of copies.
  CUresult query() const;

 private:
  explicit CopyStream(const Context& context, const CopyMeans& means)
      : context_(context), means_(means) {}
  // Returns the copies that the kernel did not take.
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
