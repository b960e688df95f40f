// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of lanes: a lane with memory on both sides, and a driver whose functions a
// test replaces.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/engines/lane.h"
#include "headrace/buffer.h"
#include "tests/support/bytes.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/outcomes.h"

namespace headrace::cuda {

using test::eventually;
using test::kBound;
using test::Outcomes;

inline Driver real;  // the driver of the last open()

// Callbacks that the driver was asked for. While `held`, they become due in their stream, and
// call() makes them.
struct Callbacks {
  static inline std::atomic<int> asked;
  static inline std::atomic<bool> held;
  static inline std::atomic<std::size_t> owed;

  // Replaces cuLaunchHostFunc.
  static CUresult ask(CUstream stream, CUhostFn then, void* data) {
    ++asked;
    if (!held) return real.cuLaunchHostFunc(stream, then, data);
    ++owed;
    return real.cuLaunchHostFunc(stream, note, new std::pair(then, data));
  }
  // Makes all that are owed, and returns their number.
  static std::size_t call() {
    std::size_t called = 0;
    EXPECT_TRUE(eventually([&] {
      std::vector<std::pair<CUhostFn, void*>> now;
      {
        const MutexLock lock(mutex);
        now.swap(due);
      }
      owed -= now.size();
      called += now.size();
      for (const auto& [then, data] : now) then(data);
      return owed == 0;
    }));
    return called;
  }
  static void script(Driver& scripted, bool hold) {
    asked = 0;
    owed = 0;
    held = hold;
    scripted.cuLaunchHostFunc = ask;
  }

 private:
  static void note(void* data) {
    const std::unique_ptr<std::pair<CUhostFn, void*>> one(
        static_cast<std::pair<CUhostFn, void*>*>(data));
    const MutexLock lock(mutex);
    due.push_back(*one);
  }
  static inline Mutex mutex;
  static inline std::vector<std::pair<CUhostFn, void*>> due GUARDED_BY(mutex);
};

class LaneFixture : public testing::Test {
 protected:
  // `script` replaces functions of the driver that the lane uses.
  void open(const std::string& settings, CudaOptions options = {},
            void (*script)(Driver& scripted) = nullptr) {
    gpu_.emplace(settings);
    real = scripted_ = **driver();
    if (script != nullptr) {
      script(scripted_);
      options.driver = &scripted_;
    }
    memory_ = *allocate(gpu_->machine, 4_MiB, Placement::on(test::kGpu));
    Placement near = Placement::on(test::kDram);
    near.pin = true;
    pinned_ = *allocate(gpu_->machine, 4_MiB, near);
    test::fill_random(pinned_->bytes(), 1);
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
  Piece piece() const { return pieces(1).front(); }
  Piece inside_the_gpu() const {
    Piece inside = piece();
    inside.from = whole(*memory_).part(1 << 20, 64_KiB);
    return inside;
  }
  void accept(std::span<const Piece> pieces) {
    const auto taken = lane_->accept(pieces, outcomes_);
    ASSERT_TRUE(taken) << taken.error().message;
    ASSERT_EQ(*taken, pieces.size());
    sent_ += pieces.size();
  }
  // Waits until all accepted pieces have succeeded.
  void expect_well() {
    ASSERT_TRUE(outcomes_.wait(sent_));
    EXPECT_TRUE(outcomes_.failed().empty()) << outcomes_.last().message;
  }
  // Copies pieces from host memory to the GPU and checks the bytes.
  void copy(std::span<const Piece> pieces) {
    ASSERT_NO_FATAL_FAILURE(accept(pieces));
    ASSERT_NO_FATAL_FAILURE(expect_well());
    for (const Piece& each : pieces) EXPECT_TRUE(arrived(each.to, each.from)) << each.tag;
  }
  static bool arrived(const Extent& on_gpu, const Extent& on_host) {
    const auto there = test::read_gpu(*on_gpu.object, on_gpu.offset, on_gpu.length.value);
    return test::same(there, std::span(on_host.memory(), on_host.length.value));
  }
  // The reason why the lane accepts nothing; nullopt: it does.
  std::optional<Error> refusal() {
    const auto taken = lane_->accept({}, outcomes_);
    return taken ? std::nullopt : std::optional(taken.error());
  }

  std::optional<test::FakeGpu> gpu_;
  Driver scripted_;
  std::unique_ptr<Buffer> memory_;
  std::unique_ptr<Buffer> pinned_;
  Outcomes outcomes_;
  std::size_t sent_ = 0;
  std::unique_ptr<Lane> lane_;
};

// Replaces an answer: without it the GPU does not reach registered memory by the host's addresses.
inline CUresult without_host_addresses(int* value, CUdevice_attribute what, CUdevice device) {
  const CUresult result = real.cuDeviceGetAttribute(value, what, device);
  if (what == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) *value = 0;
  return result;
}

// Both GPUs reach each other's memory.
inline void expect_met() {
  const auto one = *Context::of(**driver(), 0);
  const auto two = *Context::of(**driver(), 1);
  for (const auto& [from, to] : {std::pair(one, two), {two, one}}) {
    const CurrentContext current(*from);
    EXPECT_EQ(real.cuCtxEnablePeerAccess(to->handle(), 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  }
}

}  // namespace headrace::cuda
