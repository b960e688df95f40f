// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <string_view>

#include "backend/storage/lane.h"
#include "backend/storage/small_reads.h"
#include "backend/storage/user_reads.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"
#include "headrace/file.h"

namespace headrace {
namespace {

using storage::SmallReads;
using storage::StorageLane;
using storage::UserReads;

// Requests cut a piece further, so this only bounds the time of one piece: 64 MiB take a slow SSD
// about 0.1 s.
constexpr Bytes kMaxPiece = 64_MiB;
// A smaller read costs about the same as one of this size (docs/design/storage.md).
constexpr Bytes kMinEfficient = storage::kSmall;

struct Line {
  NodeId home;
  std::unique_ptr<StorageLane> lane;
};

class StorageBackend final : public Backend {
 public:
  StorageBackend(std::vector<EngineId> engines, std::unique_ptr<SmallReads> small,
                 std::vector<Line> lines, const StorageOptions& options)
      : small_(std::move(small)),
        lines_(std::move(lines)),
        user_(std::make_unique<UserReads>(options.threads, options.max_pieces)),
        request_(options.request) {
    facts_.name = "storage";
    facts_.engines = std::move(engines);
    facts_.max_piece = kMaxPiece;
    facts_.max_in_flight = options.max_pieces;
    facts_.min_efficient = kMinEfficient;
    facts_.helps = true;
    facts_.note = fmt::format("{}, {} requests of {}", lines_.front().lane->note(),
                              options.queue_depth, to_string(options.request));
  }

  ~StorageBackend() override {
    if (!origin_.here()) {
      abandon(std::move(lines_));
      abandon(std::move(small_));
      abandon(std::move(user_));
    }
    // The first lane serves all small reads, and these may still come to the other lanes.
    for (Line& line : lines_) line.lane.reset();
  }

  const Capabilities& capabilities() const override { return facts_; }

  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    HEADRACE_TRY_STATUS(origin_.check("the storage backend"));
    for (const Piece& piece : pieces) HEADRACE_TRY_STATUS(check(piece));
    std::size_t accepted = 0;
    while (accepted < pieces.size() && accept(pieces[accepted], completion)) ++accepted;
    small_->send();
    return accepted;
  }

  void cancel(EngineId engine) noexcept override {
    if (!origin_.here()) return;
    StorageLane& lane = *line_of(engine).lane;
    lane.cancel();
    // The first lane serves all small reads.
    if (StorageLane& first = *lines_.front().lane; &first != &lane) first.cancel();
  }

  std::size_t help(std::span<const std::byte> to, Nanoseconds most) override {
    return origin_.here() ? small_->help(to, most) : 0;
  }

 private:
  Line& line_of(EngineId engine) {
    const auto at = std::ranges::find(facts_.engines, engine) - facts_.engines.begin();
    return lines_[static_cast<std::size_t>(at)];
  }

  Status check(const Piece& piece) {
    HEADRACE_TRY_STATUS(check_piece(facts_, piece));
    const bool write = piece.from.object->memory() != nullptr;
    const Object& at = write ? *piece.to.object : *piece.from.object;
    const Object& memory = write ? *piece.from.object : *piece.to.object;
    const NodeId home = line_of(piece.engine).home;
    if (at.memory() != nullptr || memory.memory() == nullptr || at.node() != home) {
      return fail(ErrorCode::unsupported,
                  "engine {} copies between files on node {} and memory, not from node {} to node "
                  "{}; ask Machine::can_copy first",
                  raw(piece.engine), raw(home), raw(piece.from.object->node()),
                  raw(piece.to.object->node()));
    }
    if (!write) return {};
    if (at.user_source() != nullptr) {
      return fail(ErrorCode::denied, "a user source is read-only; write to what it reads from");
    }
    return check_write(static_cast<const File&>(at), piece.to);
  }

  // A write beyond the end of a shrunken file would extend it again, with a hole.
  static Status check_write(const File& file, const Extent& to) {
    if (!file.writable()) {
      return fail(ErrorCode::denied, "{} was opened for reading; open it with `writable`",
                  file.quoted());
    }
    const auto now = storage::size_now(file.buffered_fd());
    if (now && now->value < to.end()) {
      return fail(ErrorCode::io, "{} is shorter than when it was opened; open it again",
                  file.quoted());
    }
    return {};
  }

  bool accept(const Piece& piece, Completion& completion) {
    if (piece.from.length == 0_B) {
      completion.complete(piece.tag, {});
      return true;
    }
    if (piece.from.object->user_source() != nullptr) return user_->accept(piece, completion);
    return line_of(piece.engine).lane->accept(storage::to_accepted(piece, completion, request_));
  }

  const Origin origin_;
  Capabilities facts_;
  std::unique_ptr<SmallReads> small_;  // outlives the lanes
  std::vector<Line> lines_;            // as facts_.engines
  std::unique_ptr<UserReads> user_;
  const Bytes request_;
};

bool denied_by_environment() {
  const char* value = std::getenv("HEADRACE_IO_URING");
  return value != nullptr && std::string_view(value) == "0";
}

}  // namespace

Result<std::unique_ptr<Backend>> open_storage(const Machine& machine,
                                              std::vector<EngineId> engines) {
  return open_storage(machine, std::move(engines), {});
}

Result<std::unique_ptr<Backend>> open_storage(const Machine& machine, std::vector<EngineId> engines,
                                              const StorageOptions& options) try {
  if (engines.empty()) return fail(ErrorCode::invalid, "no engine was named; name an ssd engine");
  CHECK(options.max_pieces > 0 && options.queue_depth > 0 && options.bounce_buffers > 0);
  CHECK(options.threads > 0 && options.limit > Nanoseconds{0});
  CHECK(options.request >= 4_KiB && std::has_single_bit(options.request.value));
  StorageOptions chosen = options;
  if (denied_by_environment()) {
    if (options.queue == StorageQueue::io_uring) {
      return fail(ErrorCode::unsupported, "no io_uring here: HEADRACE_IO_URING is 0");
    }
    chosen.queue = StorageQueue::threads;
  }
  auto small = std::make_unique<SmallReads>(chosen);
  std::vector<Line> lines;
  for (const EngineId id : engines) {
    const Engine* engine = machine.find(id);
    if (engine == nullptr || engine->kind != EngineKind::ssd) {
      return fail(ErrorCode::unsupported, "engine {} is not an ssd engine of this machine; see {}",
                  raw(id), "headrace topo");
    }
    HEADRACE_TRY(auto lane, StorageLane::open(chosen, *small, lines.empty()));
    lines.push_back({engine->home, std::move(lane)});
  }
  return std::make_unique<StorageBackend>(std::move(engines), std::move(small), std::move(lines),
                                          chosen);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace headrace
