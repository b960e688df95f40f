// SPDX-License-Identifier: Apache-2.0
// The part of lanes that other threads call. The lane's own thread is in lane_thread.cpp.

#include "backend/cuda/engines/lane.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "backend/cuda/engines/stored.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"

namespace headrace::cuda {
namespace {

bool is_file(const Extent& extent) {
  return extent.object->memory() == nullptr && !extent.object->device_address();
}

// Maximum parts of a list.
constexpr std::size_t kMostOfList = 4096;
// The node for the slots: the GPU's nearest, else the first one with memory.
NodeId slots_near(const Machine& machine, const Node& gpu) {
  if (gpu.gpu->host) return *gpu.gpu->host;
  const auto memory = std::ranges::find_if(machine.nodes, &Node::byte_addressable);
  return memory == machine.nodes.end() ? NodeId{0} : memory->id;
}

std::string describe_gathering(const GatherLimits& limits) {
  constexpr std::array kNames = {"to it", "from it", "inside"};
  std::string text;
  for (std::size_t i = 0; i < kDirections; ++i) {
    if (limits[i].bytes == 0_B) continue;
    text += fmt::format("{} {} up to {} from {} copies", text.empty() ? ", gathers" : ";",
                        kNames[i], to_string(limits[i].bytes), limits[i].count);
  }
  return text;
}

std::string describe(const Driver& driver, const Node& gpu, const CudaOptions& options,
                     const Flights::Means& means) {
  const std::string_view batches = !means.batches || !takes_batches(driver) ? "single copies"
                                   : driver.cuMemcpyBatchAsync_v2 != nullptr
                                       ? "cuMemcpyBatchAsync_v2"
                                       : "cuMemcpyBatchAsync";
  return fmt::format("{}: CUDA {}, {}, {} slots of {}{}{}", gpu.name, version_text(driver.version),
                     batches, options.slots, to_string(options.slot),
                     describe_gathering(means.limits), gpu.gpu->emulated ? ", emulated" : "");
}

// In one part: the driver refuses a copy across allocations or registrations.
bool reaches(const Extent& extent, MemoryRanges& ranges) {
  if (extent.object->device_address()) return true;
  return extent.memory() != nullptr && ranges.hold(address_of(extent), extent.length.value);
}

}  // namespace

Lane::Lane(const Machine& machine, const Engine& engine, const CudaOptions& options,
           const Driver& driver, const Device& device, const Flights::Means& means)
    : machine_(machine),
      engine_(engine.id),
      home_(engine.home),
      options_(options),
      name_(machine.find(engine.home)->name),
      host_(slots_near(machine, *machine.find(engine.home))),
      driver_(driver),
      device_(device.ordinal),
      page_tables_(device.host_page_tables),
      note_(describe(driver, *machine.find(engine.home), options, means)),
      stored_(std::make_unique<Stored>(mailbox_)),
      flights_(driver, options_, means, mailbox_, [this](Task& task) { stream_ended(task); }),
      time_(*options.clock, std::chrono::seconds{2}) {}

Result<std::unique_ptr<Lane>> Lane::open(const Machine& machine, const Engine& engine,
                                         const CudaOptions& options) {
  const Node* gpu = machine.find(engine.home);
  if (gpu == nullptr || !gpu->gpu) {
    return fail(ErrorCode::absent, "{} was not seen by a CUDA driver; see headrace doctor",
                engine.name);
  }
  const Driver* driver = options.driver;
  if (driver == nullptr) {
    HEADRACE_TRY(driver, cuda::driver());
  }
  HEADRACE_TRY(const Device device, find_device(*driver, gpu->gpu->uuid, gpu->gpu->pci, gpu->name));
  HEADRACE_TRY(const auto stated, stated_gather_limit(options));
  // Batches and kernels take the host's addresses.
  Flights::Means means;
  if (device.registered_as_is) {
    means = {.limits = gather_limits(machine, engine, stated),
             .list_limit = stated.value_or(kGatherOfLists),
             .batches = true};
  }
  return std::unique_ptr<Lane>(new Lane(machine, engine, options, *driver, device, means));
}

std::string Lane::degraded() const {
  // Pairs with the release of begin().
  return begun_.load(std::memory_order_acquire) ? flights_.not_gathered() : std::string();
}

Backend::Look Lane::look(Nanoseconds most) {
  // Pairs with the release of begin().
  return begun_.load(std::memory_order_acquire) ? flights_.look(most) : Backend::Look();
}

// A context costs some hundred MiB of GPU memory, so a Mover that never copies there makes none.
// Memory of the GPU already comes with a context; therefore begin() seldom makes one, which takes
// long.
Status Lane::begin() {
  if (begun_.load(std::memory_order_acquire)) return {};  // pairs with the release below
  const MutexLock lock(beginning_);
  if (begun_.load(std::memory_order_relaxed)) return {};  // the lock orders it
  if (context_ != nullptr) drop_streams();  // left by a start that ended with std::bad_alloc
  HEADRACE_TRY(context_, Context::of(driver_, device_));
  if (Status started = start(); !started) {
    drop_streams();
    return started;
  }
  begun_.store(true, std::memory_order_release);  // pairs with the acquire above
  return {};
}

Status Lane::start() {
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) {
    return fail_cuda(driver_, current.result(), fmt::format("cannot use {}", name_));
  }
  HEADRACE_TRY_STATUS(flights_.start(*context_, name_));
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < options_.max_pieces; ++i) {
    pieces_.push_back(std::make_unique<AcceptedPiece>());
    free_pieces_.push_back(pieces_.back().get());
  }
  {
    const MutexLock box(mailbox_->mutex);
    mailbox_->staged.reserve(options_.max_pieces);
  }
  waiting_.reserve(options_.max_pieces);
  to_store_.reserve(options_.max_pieces + options_.slots);
  for (auto& ready : ready_) ready.reserve(options_.max_pieces + options_.slots);
  free_slots_.reserve(options_.slots);
  HEADRACE_TRY(thread_, start_thread("headrace-gpu", [this] { run(); }));
  return {};
}

Lane::~Lane() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mailbox_->mutex);
      mailbox_->ending = true;
    }
    mailbox_->wake.notify_all();
    join(thread_);
    const MutexLock lock(mailbox_->mutex);
    mailbox_->clock = nullptr;
  }
  crew_.reset();
  if (context_ == nullptr) return;
  ring_.reset();
  flights_.abandon_owed();
  drop_streams();
}

void Lane::drop_streams() {
  {
    const CurrentContext current(*context_);
    flights_.drop();
    const MutexLock lock(mutex_);
    free_pieces_.clear();
    pieces_.clear();
  }
  context_.reset();
}

Status Lane::check(const Piece& piece) const {
  const bool home = piece.from.object->node() == home_ || piece.to.object->node() == home_;
  const Extent& file = is_file(piece.from) ? piece.from : piece.to;
  if (home && (!is_file(file) || ssd_of(file))) return {};
  if (home) {
    return fail(ErrorCode::unsupported,
                "engine {} copies files through a storage backend, and has none for node {}; open "
                "it with one",
                raw(engine_), raw(file.object->node()));
  }
  return fail(ErrorCode::unsupported,
              "engine {} copies to, from and inside {}, not from node {} to node {}; ask "
              "Machine::can_copy first",
              raw(engine_), name_, raw(piece.from.object->node()), raw(piece.to.object->node()));
}

std::optional<EngineId> Lane::ssd_of(const Extent& extent) const {
  const auto drives = [&](const Engine& engine) {
    return engine.kind == EngineKind::ssd && engine.home == extent.object->node() &&
           std::ranges::count(options_.storage->capabilities().engines, engine.id) > 0;
  };
  if (options_.storage == nullptr) return std::nullopt;
  const auto found = std::ranges::find_if(machine_.engines, drives);
  return found == machine_.engines.end() ? std::nullopt : std::optional(found->id);
}

// Without peer access the driver copies through the host. It also does so if the GPUs cannot have
// peer access. If memory was lacking, the next copy tries again.
void Lane::meet(const Piece& piece) noexcept try {
  const NodeId from = piece.from.object->node();
  const Node* other = machine_.find(from == home_ ? piece.to.object->node() : from);
  if (other == nullptr || other->id == home_ || !other->gpu) return;
  const MutexLock lock(beginning_);
  if (std::ranges::find(met_, other->id) != met_.end()) return;
  met_.reserve(met_.size() + 1);
  if (const auto device = find_device(driver_, other->gpu->uuid, other->gpu->pci, other->name)) {
    // The owner of the memory keeps its context.
    if (const auto context = Context::of(driver_, device->ordinal)) {
      enable_peer_access(*context_, **context);
    }
  }
  met_.push_back(other->id);
} catch (const std::bad_alloc&) {
}

// The engine copies GPU memory and registered memory at once, whoever registered it.
Way Lane::way_of(const Piece& piece, MemoryRanges& ranges) const {
  if (is_file(piece.from) || is_file(piece.to)) return Way::filed;
  if (reaches(piece.from, ranges) && reaches(piece.to, ranges)) return Way::direct;
  return page_tables_ ? Way::pageable : Way::staged;
}

Direction Lane::direction_of(const Piece& piece) const {
  const auto on_gpu = [&](const Extent& extent) {
    return extent.object->device_address() || extent.object->node() == home_;
  };
  if (on_gpu(piece.from) && on_gpu(piece.to)) return Direction::across;
  return on_gpu(piece.to) ? Direction::to_gpu : Direction::from_gpu;
}

// A kernel that touches memory outside its GPU's reach ends the context, where a copy engine would
// only refuse. So the driver is asked about both sides. The engines copy memory of another GPU.
bool Lane::may_gather(const AcceptedPiece& accepted, MemoryRanges& ranges) const {
  const Piece& piece = accepted.piece;
  if (accepted.way != Way::direct) return false;
  if (piece.from.length > flights_.limit(accepted.direction).bytes) return false;
  const auto reached = [&](const Extent& extent) {
    const bool elsewhere = extent.object->device_address() && extent.object->node() != home_;
    return !elsewhere && ranges.reached(address_of(extent), extent.length.value);
  };
  return reached(piece.from) && reached(piece.to);
}

AcceptedPiece* Lane::take_place(const Piece& piece, Completion& completion, MemoryRanges& ranges) {
  AcceptedPiece* place = nullptr;
  {
    const MutexLock lock(mutex_);
    if (free_pieces_.empty()) return nullptr;
    place = free_pieces_.back();
    free_pieces_.pop_back();
  }
  place->piece = piece;
  place->completion = &completion;
  place->way = way_of(piece, ranges);
  place->direction = direction_of(piece);
  place->cut = 0;
  place->open = 0;
  place->outcome = Status();
  // Used for pieces without parts.
  Task& own = place->own;
  const PieceList* const list = piece.list;
  std::uint64_t bytes = piece.from.length.value;
  for (std::size_t i = 1; list != nullptr && i < list->parts.size(); ++i) {
    bytes += list->parts[i].from.length.value;
  }
  own.piece = place;
  own.direction = place->direction;
  own.copy = {.to = address_of(piece.to),
              .from = address_of(piece.from),
              .bytes = bytes,
              .reached = list == nullptr && may_gather(*place, ranges)};
  own.outcome = Status();
  return place;
}

std::size_t Lane::list(std::span<const MovePair> pairs, Bytes most) {
  if (!begin()) return 0;  // accept() reports the reason
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) return 0;
  MemoryRanges ranges(driver_);
  Bytes bytes;
  std::size_t count = 0;
  for (; count < std::min(pairs.size(), kMostOfList); ++count) {
    const MovePair& pair = pairs[count];
    bytes += pair.from.length;
    if (bytes > most || pair.from.length == 0_B) break;
    if (!reaches(pair.from, ranges) || !reaches(pair.to, ranges)) break;
  }
  return count;
}

Result<std::size_t> Lane::accept(std::span<const Piece> pieces, Completion& completion) {
  if (auto why = flights_.refusal()) return Unexpected(*std::move(why));
  HEADRACE_TRY_STATUS(begin());
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) {
    return fail_cuda(driver_, current.result(), fmt::format("cannot use {}", name_));
  }
  std::array<std::vector<Task*>, kDirections> direct;
  for (auto& each : direct) each.reserve(pieces.size());
  std::vector<AcceptedPiece*> others;
  others.reserve(pieces.size());
  MemoryRanges ranges(driver_);
  std::size_t accepted = 0;
  for (; accepted < pieces.size(); ++accepted) {
    const Piece& piece = pieces[accepted];
    if (piece.from.length == 0_B) {
      completion.complete(piece.tag, {});
      continue;
    }
    AcceptedPiece* const place = take_place(piece, completion, ranges);
    if (place == nullptr) break;
    if (place->direction == Direction::across) meet(piece);
    if (piece.list != nullptr) {
      place->way = Way::direct;
      std::ranges::fill(piece.list->failed, 0);  // marks of another engine
    }
    if (place->way != Way::direct) {
      others.push_back(place);
      continue;
    }
    place->cut = piece.from.length.value;
    place->open = 1;
    direct[static_cast<std::size_t>(place->direction)].push_back(&place->own);
  }
  for (std::size_t i = 0; i < kDirections; ++i) {
    if (settling_ == this) {
      ready_[i].insert(ready_[i].end(), direct[i].begin(), direct[i].end());
    } else {
      flights_.launch(Direction(i), direct[i]);
    }
  }
  if (!others.empty()) {
    const MutexLock lock(mailbox_->mutex);
    auto& staged = mailbox_->staged;
    staged.insert(staged.end(), others.begin(), others.end());
    mailbox_->wake.notify_one();
  }
  return accepted;
}

}  // namespace headrace::cuda
