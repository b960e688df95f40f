// SPDX-License-Identifier: Apache-2.0
// Loads and stores that wait for a stream of the user's.
//
// The host polls the stream; no stream of ours waits. A waiting stream would delay all copies
// behind it for as long as the user's computes, and a slow GPU would be considered hung.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "backend/cuda/cuda.h"
#include "kvcache/state/load_state.h"

namespace headrace::kvcache {

struct StoredState;

// A load or store that has not begun, because the user's stream has not reached its point.
struct Parked {
  std::unique_ptr<cuda::StreamPoint> point;
  Nanoseconds until{0};
  std::shared_ptr<LoadState> load;  // either this or `arrivals`
  std::shared_ptr<StoredState> stored;
  std::unique_ptr<JobList> arrivals = std::make_unique<JobList>();  // blocks of the store
  Status outcome;
};

class StreamWaiter {
 public:
  // `closed`: operations end as cancelled. `go_on` continues an operation, with its outcome.
  StreamWaiter(Mover& mover, JobQueue& jobs, const std::atomic<bool>& closed,
               std::function<void(Parked&)> go_on)
      : mover_(mover), jobs_(jobs), closed_(closed), go_on_(std::move(go_on)) {}

  // Returns nullptr if there is no stream to wait for.
  Result<std::unique_ptr<cuda::StreamPoint>> point_of(const Extent& user,
                                                      std::optional<std::uint64_t> stream);
  // Takes the operation in the list, if there is one.
  void park(std::list<Parked>& one) noexcept;
  // Starts operations whose stream has reached its point. Returns the time until the next look.
  Nanoseconds look() noexcept;

 private:
  // The driver's number of the device, asked once for each node.
  Result<cuda::CUdevice> device_of(const cuda::Driver& driver, const Node& gpu);
  bool over(Parked& parked) const;

  Mover& mover_;
  JobQueue& jobs_;
  const std::atomic<bool>& closed_;
  const std::function<void(Parked&)> go_on_;
  Mutex mutex_;
  std::list<Parked> parked_ GUARDED_BY(mutex_);
  std::map<NodeId, cuda::CUdevice> devices_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};  // includes those that are being looked at
};

}  // namespace headrace::kvcache
