// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/stream_waiter.h"

#include "core/fail.h"
#include "core/waiting/duration.h"
#include "headrace/gpu/memory.h"

namespace headrace::kvcache {
namespace {

constexpr Nanoseconds kStreamLook = std::chrono::microseconds{500};

}  // namespace

Result<cuda::CUdevice> StreamWaiter::device_of(const cuda::Driver& driver, const Node& gpu) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = devices_.find(gpu.id); known != devices_.end()) return known->second;
  }
  HEADRACE_TRY(const cuda::Device device,
               cuda::find_device(driver, gpu.gpu->uuid, gpu.gpu->pci, gpu.name));
  const MutexLock lock(mutex_);
  devices_.emplace(gpu.id, device.ordinal);
  return device.ordinal;
}

Result<std::unique_ptr<cuda::StreamPoint>> StreamWaiter::point_of(
    const Extent& user, std::optional<std::uint64_t> stream) {
  if (!stream) return nullptr;
  const Node* const node = mover_.machine().find(user.object->node());
  // Decided by the node, not the address: memory of a GPU that is a NUMA node is the host's as
  // well.
  if (node == nullptr || !node->gpu) {
    return fail(ErrorCode::invalid,
                "a stream goes with memory of a GPU, and this is none; leave the stream out");
  }
  HEADRACE_TRY(const cuda::Driver* driver, cuda::driver());
  HEADRACE_TRY(const cuda::CUdevice device, device_of(*driver, *node));
  HEADRACE_TRY(auto context, cuda::Context::of(*driver, device));
  return cuda::StreamPoint::of(std::move(context), *stream);
}

void StreamWaiter::park(std::list<Parked>& one) noexcept {
  if (one.empty()) return;
  one.back().until = mover_.clock().now() + kStreamBound;
  ++count_;
  {
    const MutexLock lock(mutex_);
    parked_.splice(parked_.end(), one);
  }
  look();  // the stream may have reached its point already
  jobs_.wake();
}

bool StreamWaiter::over(Parked& parked) const {
  if (closed_.load() || (parked.load != nullptr && parked.load->cancelled.load())) {
    parked.outcome = fail(ErrorCode::cancelled, "cancelled before its stream was there");
    return true;
  }
  if (auto reached = parked.point->reached()) {
    parked.outcome = *std::move(reached);
    return true;
  }
  if (mover_.clock().now() < parked.until) return false;
  parked.outcome = fail(ErrorCode::timed_out,
                        "the stream has not done in {} what it had been given; nothing was copied",
                        headrace::to_string(kStreamBound));
  return true;
}

Nanoseconds StreamWaiter::look() noexcept {
  if (count_.load() == 0) return kLongestWait;
  std::list<Parked> all;
  std::list<Parked> there;
  {
    const MutexLock lock(mutex_);
    all.swap(parked_);
  }
  for (auto each = all.begin(); each != all.end();) {
    const auto next = std::next(each);
    try {
      if (over(*each)) there.splice(there.end(), all, each);
    } catch (const std::bad_alloc&) {  // copying the reason; the next look does it
    }
    each = next;
  }
  count_ -= there.size();
  {
    const MutexLock lock(mutex_);
    parked_.splice(parked_.begin(), all);
  }
  for (Parked& each : there) go_on_(each);
  return kStreamLook;
}

}  // namespace headrace::kvcache
