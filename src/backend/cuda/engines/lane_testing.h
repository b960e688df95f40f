// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of lanes: a listener that waits with a bound, and a lane with memory on both
// sides.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/engines/lane.h"
#include "headrace/buffer.h"
#include "tests/support/fake_gpu.h"

namespace headrace::cuda {

inline constexpr Nanoseconds kBound = std::chrono::seconds{60};

// Records the outcomes of pieces by tag. Allocates nothing for the first `pieces` of them.
class Outcomes final : public Completion {
 public:
  explicit Outcomes(std::size_t pieces = 0) {
    well_.reserve(pieces);
    failed_.reserve(pieces);
  }
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    {
      const MutexLock lock(mutex_);
      (outcome ? well_ : failed_).push_back(tag);
      if (!outcome) last_ = std::move(outcome).error();
    }
    count_.fetch_add(1);
    system_waiting().wake_all(count_);
  }
  bool await(std::uint32_t pieces) {
    const Nanoseconds end = system_clock().now() + kBound;
    for (;;) {
      const std::uint32_t seen = count_.load();
      if (seen >= pieces) return true;
      if (system_clock().now() > end) return false;
      system_waiting().wait(count_, seen, std::chrono::milliseconds{100});
    }
  }
  std::vector<std::uint64_t> well() const { return copy_of(true); }
  std::vector<std::uint64_t> failed() const { return copy_of(false); }
  Error last() const {
    const MutexLock lock(mutex_);
    return last_;
  }

 private:
  std::vector<std::uint64_t> copy_of(bool well) const {
    const MutexLock lock(mutex_);
    return well ? well_ : failed_;
  }
  mutable Mutex mutex_;
  std::vector<std::uint64_t> well_ GUARDED_BY(mutex_);
  std::vector<std::uint64_t> failed_ GUARDED_BY(mutex_);
  Error last_ GUARDED_BY(mutex_){};
  std::atomic<std::uint32_t> count_{0};
};

class LaneFixture : public testing::Test {
 protected:
  // `script` replaces functions of the driver that the lane uses.
  void open(const std::string& settings, CudaOptions options = {},
            void (*script)(Driver& scripted) = nullptr) {
    gpu_.emplace(settings);
    if (script != nullptr) {
      scripted_ = **driver();
      script(scripted_);
      options.driver = &scripted_;
    }
    memory_ = *allocate(gpu_->machine, 4_MiB, Placement::on(test::kGpu));
    Placement near = Placement::on(test::kDram);
    near.pin = true;
    pinned_ = *allocate(gpu_->machine, 4_MiB, near);
    lane_ = *Lane::open(gpu_->machine, *gpu_->machine.find(test::kGpuEngine), options);
  }
  // Pieces of 64 KiB from the host to the GPU, one behind the other.
  std::vector<Piece> pieces(std::size_t count) const {
    std::vector<Piece> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back({.from = whole(*pinned_).part(i << 16, 64_KiB),
                      .to = whole(*memory_).part(i << 16, 64_KiB),
                      .engine = test::kGpuEngine,
                      .tag = i});
    }
    return made;
  }

  std::optional<test::FakeGpu> gpu_;
  Driver scripted_;
  std::unique_ptr<Buffer> memory_;
  std::unique_ptr<Buffer> pinned_;
  Outcomes outcomes_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace headrace::cuda
