// SPDX-License-Identifier: Apache-2.0
// The end of what a stream of somebody else has been given so far, and whether it has come there.
//
// An event recorded in that stream and asked, never waited for: another's stream may be slow, and
// what our own streams waited for there would hold up all that is behind. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/cuda/context.h"

namespace headrace::cuda {

class StreamPoint {
 public:
  // `stream` is a CUstream as a number; 0 and 1 are the default stream, 2 is that of the calling
  // thread. invalid: it is of another context than `context`, the primary one of its GPU, or is
  // captured into a graph. Requires: a stream that there is; the driver does not check that.
  static Result<std::unique_ptr<StreamPoint>> of(std::shared_ptr<const Context> context,
                                                 std::uint64_t stream);
  ~StreamPoint();
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  // Nothing: not yet. An error: the GPU is lost.
  std::optional<Status> reached() const;

 private:
  StreamPoint(std::shared_ptr<const Context> context, CUevent event)
      : context_(std::move(context)), event_(event) {}

  const std::shared_ptr<const Context> context_;
  const CUevent event_;
};

}  // namespace headrace::cuda
