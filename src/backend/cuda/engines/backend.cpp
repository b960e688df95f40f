// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "backend/cuda/engines/engines.h"
#include "backend/cuda/engines/lane.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"

namespace headrace {
namespace {

using cuda::Lane;

// A few milliseconds of the slowest link: the bound for writes of a cancelled piece.
constexpr Bytes kMaxPiece = 64_MiB;
// Large enough to hide the driver's callback, 60 us after a copy, and the next launch behind the
// following piece. It reaches 54 of 55 GB/s; pieces of 4 MiB reach 52, and 64 MiB in flight no more
// (H200, docs/results/2026-11-27-gpu-link.md). An urgent piece waits 0.6 ms for other pieces.
constexpr Bytes kPiece = 16_MiB;
constexpr Bytes kInFlight = 32_MiB;
// The bytes that a link of 25 GB/s copies in 10 microseconds, the time before a copy begins. A
// measured profile is more exact.
constexpr Bytes kMinEfficient = 256_KiB;

// Like accept() of a lane, for pieces behind others that have been accepted. An exception would say
// that these were not.
Result<std::size_t> accept_more(Lane& lane, std::span<const Piece> pieces,
                                Completion& completion) try {
  return lane.accept(pieces, completion);
} catch (const std::bad_alloc&) {
  return 0;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::vector<std::unique_ptr<Lane>> lanes, const CudaOptions& options,
              std::string note)
      : lanes_(std::move(lanes)) {
    facts_.name = "cuda";
    for (const auto& lane : lanes_) facts_.engines.push_back(lane->engine());
    facts_.max_piece = kMaxPiece;
    facts_.max_in_flight = options.max_pieces;
    facts_.min_efficient = kMinEfficient;
    facts_.piece = kPiece;
    facts_.in_flight = kInFlight;
    facts_.looks = true;
    facts_.lists = true;
    facts_.note = std::move(note);
  }

  ~CudaBackend() override {
    if (!origin_.here()) abandon(std::move(lanes_));
  }

  const Capabilities& capabilities() const override { return facts_; }

  std::vector<std::string> degraded() const override {
    std::vector<std::string> lines;
    for (const auto& lane : lanes_) {
      if (std::string line = lane->degraded(); !line.empty()) lines.push_back(std::move(line));
    }
    return lines;
  }

  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    HEADRACE_TRY_STATUS(origin_.check("the cuda backend"));
    for (const Piece& piece : pieces) {
      HEADRACE_TRY_STATUS(check_piece(facts_, piece));
      HEADRACE_TRY_STATUS(lane_of(piece.engine).check(piece));
    }
    std::size_t accepted = 0;
    while (accepted < pieces.size()) {
      const auto rest = pieces.subspan(accepted);
      const EngineId engine = rest.front().engine;
      const auto end =
          std::ranges::find_if(rest, [&](const Piece& piece) { return piece.engine != engine; });
      const auto run = rest.first(static_cast<std::size_t>(end - rest.begin()));
      Lane& lane = lane_of(engine);
      const auto taken =
          accepted == 0 ? lane.accept(run, completion) : accept_more(lane, run, completion);
      if (!taken && accepted == 0) return taken;
      accepted += taken.value_or(0);
      if (taken.value_or(0) < run.size()) break;
    }
    return accepted;
  }

  std::size_t list(EngineId engine, std::span<const MovePair> pairs, Bytes most) override {
    return origin_.here() ? lane_of(engine).list(pairs, most) : 0;
  }

  Look look(Nanoseconds most) override {
    if (!origin_.here()) return {};
    std::optional<Nanoseconds> again;
    const Nanoseconds share = most / static_cast<std::int64_t>(lanes_.size());
    for (const auto& lane : lanes_) {
      const Look looked = lane->look(share);
      if (looked.found > 0) return looked;
      if (looked.again) again = std::min(again.value_or(*looked.again), *looked.again);
    }
    return {.again = again};
  }

 private:
  Lane& lane_of(EngineId engine) const {
    const auto at = std::ranges::find(facts_.engines, engine) - facts_.engines.begin();
    return *lanes_[static_cast<std::size_t>(at)];
  }

  const Origin origin_;
  Capabilities facts_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // as facts_.engines
};

}  // namespace

Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines) {
  return open_cuda(machine, std::move(engines), {});
}

Result<std::unique_ptr<Backend>> open_cuda(const Machine& machine, std::vector<EngineId> engines,
                                           const CudaOptions& options) {
  if (engines.empty()) return fail(ErrorCode::invalid, "no engine was named; name a gpu engine");
  CHECK(options.max_pieces > 0 && options.slots > 0 && options.limit > Nanoseconds{0});
  CHECK(options.slot >= 64_KiB && std::has_single_bit(options.slot.value));
  std::vector<std::unique_ptr<Lane>> lanes;
  std::optional<Error> first;
  std::string note;
  for (const EngineId id : engines) {
    const Engine* engine = machine.find(id);
    if (engine == nullptr || engine->kind != EngineKind::gpu) {
      return fail(ErrorCode::unsupported, "engine {} is not a gpu engine of this machine; see {}",
                  raw(id), "headrace topo");
    }
    auto lane = Lane::open(machine, *engine, options);
    note += note.empty() ? "" : "; ";
    if (lane) {
      note += (*lane)->note();
      lanes.push_back(*std::move(lane));
    } else {
      note += fmt::format("{}: {}", engine->name, lane.error().message);
      if (!first) first = std::move(lane).error();
    }
  }
  if (lanes.empty()) return Unexpected(*std::move(first));
  return std::make_unique<CudaBackend>(std::move(lanes), options, std::move(note));
}

}  // namespace headrace
