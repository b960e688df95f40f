// SPDX-License-Identifier: Apache-2.0
// How each part of the experiment is measured: a probe with its own workspace, made by a function
// for the setting of one point. Bytes that move are compared before they are timed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "core/fail.h"
#include "headrace/backend.h"
#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

using Prepared = Result<std::unique_ptr<session::Probe>>;

// Copies of `bytes` each over a larger area, consecutive in a stream: payload per second. For
// `both` the value is the sum, and the details `to_gpu` and `from_gpu` are the two directions.
Prepared prepare_copies(const GpuSetting& setting, Random& random);

// Managed memory, prefetched by the driver to the GPU or back to the host in parts of `bytes`.
Prepared prepare_prefetch(const GpuSetting& setting, Random& random);

// The same copies by a Mover, as programs have them: one after the other, small ones as moves of
// many; payload per second. Before, random bytes made the way there and back.
Prepared prepare_backend(const GpuSetting& setting, Random& random);

// Fills `host` with random bytes, copies them `there` and `back`, at most `depth` at once, and
// compares; then both sides hold them. Requires: pieces between `host` and memory of the same size,
// with tags from 0 on. Errors: io: other bytes came back; timed_out: the GPU takes too long.
Status verify_both_ways(Backend& backend, std::span<const Piece> there, std::span<const Piece> back,
                        std::size_t depth, std::span<std::byte> host, Random& random);

// The cost of submitting many small copies: one call per copy, one call for all, or Headrace's
// gather kernel, which the backend uses. `count` copies of `bytes` each, between every second block
// of pinned host memory and adjacent blocks of GPU memory, so that no two copies can be merged. The
// value is the calling thread's submission time in nanoseconds per copy; `bandwidth` counts until
// the last byte has arrived.
Prepared prepare_batches(const GpuSetting& setting, Random& random);
// Whether the kernel can make copies of this size.
bool gathers(Bytes bytes);

// Runs of `count` fragments of `bytes` each, as in a KV cache: adjacent on both sides, with a gap
// before the next run, between pinned memory of a node and the GPU. `engine`: one call per fragment
// in one stream; `headrace`: one move of a Mover, which may merge adjacent ones. The value is
// payload per second from the first submission to the arrival of the last fragment, by the thread's
// clock. Before, random bytes made the same way there and back; the gaps stayed untouched.
Prepared prepare_fragments(const GpuSetting& setting, Random& random);

// Nanoseconds per dependent load, in random order over `bytes`, one load per line of 128 bytes: one
// GPU thread reads host or GPU memory, or a CPU reads GPU memory.
Prepared prepare_chase(const GpuSetting& setting, Random& random);
// Whether CPUs read GPU memory in place, and managed memory stays there meanwhile.
bool host_reads_gpu(const GpuTarget& gpu);

// The time to allocate pinned memory, in nanoseconds per MiB of `bytes`; the release is not
// counted. `placed`: by Headrace, on a node, touched by its CPUs, registered and verified
// (Placement::pin). `cuMemHostAlloc`: by the driver.
inline constexpr std::string_view kPlaced = "placed";
inline constexpr std::string_view kHostAlloc = "cuMemHostAlloc";
Prepared prepare_allocation(const GpuSetting& setting, Random& random);

// A probe with its own workspace.
class GpuProbe : public session::Probe {
 public:
  GpuProbe(const GpuSetting& setting, std::unique_ptr<GpuWorkspace> space)
      : setting_(setting), space_(std::move(space)) {}
  // Before the first sample.
  virtual Status prepare(Random&) { return {}; }

 protected:
  const GpuSetting setting_;
  const std::unique_ptr<GpuWorkspace> space_;
};

template <class T>
Prepared prepared(const GpuSetting& setting, Random& random) {
  HEADRACE_TRY(auto space, GpuWorkspace::open(setting.gpu));
  auto probe = std::make_unique<T>(setting, std::move(space));
  HEADRACE_TRY_STATUS(probe->prepare(random));
  return probe;
}

}  // namespace headrace::experiment_gpu
