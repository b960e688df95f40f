// SPDX-License-Identifier: Apache-2.0
// A point in another library's stream: the end of the work in it so far, and whether that is done.
//
// It is an event, recorded in that stream and queried, never waited for: that stream may be slow,
// and a wait in one of our streams would delay all work behind it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/cuda/context.h"

namespace headrace::cuda {

class StreamPoint {
 public:
  // `stream` is a CUstream as a number; 0 and 1 are the default stream, 2 the calling thread's.
  // Errors: invalid: it belongs to another context than `context` (the primary one of its GPU), or
  // is being captured into a graph. Requires: the stream exists; the driver does not check this.
  static Result<std::unique_ptr<StreamPoint>> of(std::shared_ptr<const Context> context,
                                                 std::uint64_t stream);
  ~StreamPoint();
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  // Empty: not yet reached. An error: the GPU is lost.
  std::optional<Status> reached() const;

 private:
  StreamPoint(std::shared_ptr<const Context> context, CUevent event)
      : context_(std::move(context)), event_(event) {}

  const std::shared_ptr<const Context> context_;
  const CUevent event_;
};

}  // namespace headrace::cuda
