// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/gathering.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/fail.h"
#include "core/text/printable.h"

namespace headrace::cuda {
namespace {

// Parses "BYTES" or "BYTES,COUNT".
std::optional<GatherLimit> parse(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
  };
  const std::size_t comma = text.find(',');
  const auto bytes = number(text.substr(0, comma));
  const auto count = comma == std::string_view::npos ? 2 : number(text.substr(comma + 1));
  if (!bytes || !count) return std::nullopt;
  return GatherLimit{.bytes = Bytes{*bytes}, .count = *count};
}

}  // namespace

Result<std::optional<GatherLimit>> stated_gather_limit(const CudaOptions& options) {
  std::optional<GatherLimit> limit = options.gather;
  const char* const said = std::getenv("HEADRACE_GPU_GATHER");
  if (!limit && said != nullptr) {
    limit = parse(said);
    if (!limit) {
      return fail(ErrorCode::invalid,
                  "HEADRACE_GPU_GATHER is '{}'; say 0, or bytes and a count as in 16384,32",
                  printable(said));
    }
  }
  if (limit && limit->bytes > kMostGatheredBytes) {
    return fail(ErrorCode::invalid, "copies of {} are too large to gather; {} at most",
                to_string(limit->bytes), to_string(kMostGatheredBytes));
  }
  return limit;
}

GatherLimits gather_limits(const Machine& machine, const Engine& engine,
                           const std::optional<GatherLimit>& stated) {
  GatherLimits limits;
  if (stated) limits.fill(*stated);
  if (stated) return limits;
  for (const CopyRate& rate : machine.copy_rates) {
    if (rate.engine != engine.id || !rate.gather) continue;
    if ((rate.from == engine.home) == (rate.to == engine.home)) continue;
    const Direction direction = rate.to == engine.home ? Direction::to_gpu : Direction::from_gpu;
    GatherLimit& limit = limits[static_cast<std::size_t>(direction)];
    // For several nodes of the host: the limit that holds for all of them.
    const bool first = limit.bytes == 0_B;
    limit.bytes = std::min(
        {first ? rate.gather->bytes : limit.bytes, rate.gather->bytes, kMostGatheredBytes});
    limit.count = std::max(limit.count, rate.gather->count);
  }
  return limits;
}

MemoryRanges::Range* MemoryRanges::find(CUdeviceptr at, std::size_t bytes) {
  const auto holds = [&](const Range& range) {
    return range.begin <= at && at - range.begin <= range.size &&
           bytes <= range.size - (at - range.begin);
  };
  const auto known = std::ranges::find_if(known_, holds);
  if (known != known_.end()) return &*known;
  Range range;
  const bool answered =
      driver_.cuPointerGetAttribute(&range.begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) ==
          CUDA_SUCCESS &&
      driver_.cuPointerGetAttribute(&range.size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) ==
          CUDA_SUCCESS;
  if (!answered || !holds(range)) return nullptr;
  Range& place = known_[next_++ % known_.size()];
  place = range;
  return &place;
}

bool MemoryRanges::reached(CUdeviceptr at, std::size_t bytes) {
  Range* const range = find(at, bytes);
  if (range == nullptr) return false;
  if (!range->reached) {
    CUdeviceptr address = 0;
    range->reached = driver_.cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                                   at) == CUDA_SUCCESS &&
                     address == at;
  }
  return *range->reached;
}

}  // namespace headrace::cuda
