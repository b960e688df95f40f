// SPDX-License-Identifier: Apache-2.0
// The setting of one point of the experiment, as its row states it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "measure/experiments/gpu/workspace.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_gpu {

// Direction of the bytes. `both`: to and from the GPU at the same time; `inside`: within its
// memory; `across`: to another GPU.
inline constexpr std::string_view kToGpu = "to_gpu";
inline constexpr std::string_view kFromGpu = "from_gpu";
inline constexpr std::string_view kBoth = "both";
inline constexpr std::string_view kInside = "inside";
inline constexpr std::string_view kAcross = "across";

// Engine that moves the bytes.
inline constexpr std::string_view kEngine = "engine";      // a copy engine, one call per copy
inline constexpr std::string_view kBatch = "batch";        // a copy engine, one call for all
inline constexpr std::string_view kKernel = "kernel";      // multiprocessors
inline constexpr std::string_view kPrefetch = "prefetch";  // the driver, page by page
inline constexpr std::string_view kHeadrace = "headrace";  // copy engines through the backend
inline constexpr std::string_view kCpu = "cpu";

// Memory on the other side.
inline constexpr std::string_view kPinned = "pinned";
inline constexpr std::string_view kPageable = "pageable";
inline constexpr std::string_view kManaged = "managed";
inline constexpr std::string_view kDevice = "device";

struct GpuSetting {
  std::shared_ptr<GpuTarget> gpu;
  std::shared_ptr<GpuTarget> other = {};  // for `across`
  NodeId node{0};                         // of the memory on the other side
  std::string_view part;
  std::string_view direction;
  std::string_view by;
  std::string_view memory;
  Bytes bytes;              // of one copy, or of the chased memory
  std::uint64_t count = 1;  // copies submitted together
};

// Whether arriving bytes must be compared: only in a point's first workspace.
inline bool is_first(const GpuSetting& setting) {
  std::string point;
  for (const std::string_view word :
       {setting.part, setting.direction, setting.by, setting.memory}) {
    point.append(word) += ' ';
  }
  for (const std::uint64_t number : {std::uint64_t{raw(setting.node)}, setting.bytes.value}) {
    point += std::to_string(number) + ' ';
  }
  return setting.gpu->verified.insert(point).second;
}

}  // namespace headrace::experiment_gpu
