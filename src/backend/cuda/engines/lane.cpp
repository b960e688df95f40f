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

CUdeviceptr address_of(const Extent& extent) {
  if (const auto device = extent.object->device_address()) return *device + extent.offset;
  return reinterpret_cast<std::uintptr_t>(extent.memory());
}

// Minimum bytes of pieces that are given to a stream and reported together.
constexpr std::uint64_t kGroup = 4ULL << 20;
// Maximum parts of a list.
constexpr std::size_t kMostOfList = 4096;
// The delay of a callback after the end of its work.
constexpr Nanoseconds kCallback = std::chrono::microseconds{30};
// Bytes per ns of a link before any measurement.
constexpr double kUsualRate = 50;
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
                     bool may_batch, const GatherLimits& limits) {
  const std::string_view batches = !may_batch || !takes_batches(driver) ? "single copies"
                                   : driver.cuMemcpyBatchAsync_v2 != nullptr
                                       ? "cuMemcpyBatchAsync_v2"
                                       : "cuMemcpyBatchAsync";
  return fmt::format("{}: CUDA {}, {}, {} slots of {}{}{}", gpu.name, version_text(driver.version),
                     batches, options.slots, to_string(options.slot), describe_gathering(limits),
                     gpu.gpu->emulated ? ", emulated" : "");
}

// In one part: the driver refuses a copy across allocations or registrations.
bool reaches(const Extent& extent, MemoryRanges& ranges) {
  if (extent.object->device_address()) return true;
  return extent.memory() != nullptr && ranges.hold(address_of(extent), extent.length.value);
}

}  // namespace

Error told(const Error& why) noexcept try { return why; } catch (const std::bad_alloc&) {
  return {why.code, "out of memory"};  // short enough to need no allocation
}

Lane::Lane(const Machine& machine, const Engine& engine, const CudaOptions& options,
           const Driver& driver, const Device& device, const GatherLimits& limits,
           const GatherLimit& list_limit)
    : machine_(machine),
      engine_(engine.id),
      home_(engine.home),
      options_(options),
      name_(machine.find(engine.home)->name),
      host_(slots_near(machine, *machine.find(engine.home))),
      driver_(driver),
      device_(device.ordinal),
      page_tables_(device.host_page_tables),
      batches_(device.registered_as_is),
      limits_(limits),
      list_limit_(list_limit),
      note_(describe(driver, *machine.find(engine.home), options, batches_, limits)),
      stored_(std::make_unique<Stored>(mailbox_)),
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
  // Batches and the kernel take the host's addresses.
  const GatherLimits limits =
      device.registered_as_is ? gather_limits(machine, engine, stated) : GatherLimits{};
  const GatherLimit list =
      device.registered_as_is ? stated.value_or(kGatherOfLists) : GatherLimit{};
  return std::unique_ptr<Lane>(new Lane(machine, engine, options, *driver, device, limits, list));
}

std::string Lane::degraded() const {
  // Pairs with the release of begin().
  return begun_.load(std::memory_order_acquire) ? not_gathered_ : std::string();
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
  // Without the kernel, copies take the way for copies that are not gathered.
  not_gathered_.clear();
  const auto gathers = [](const GatherLimit& limit) { return limit.bytes > 0_B; };
  if (gathers(list_limit_) || std::ranges::any_of(limits_, gathers)) {
    auto loaded = GatherKernel::load(*context_);
    if (loaded) {
      gather_ = *std::move(loaded);
    } else {
      not_gathered_ = fmt::format("{}: gathers nothing, copy engines copy all: {}", name_,
                                  loaded.error().message);
    }
  }
  for (std::size_t i = 0; i < kDirections; ++i) {
    const CopyMeans means{.batches = batches_, .kernel = gather_.get()};
    HEADRACE_TRY(streams_[i], CopyStream::open(*context_, means));
  }
  // Three sets of groups: in flight for all pieces and slots; with callbacks still owed, as many at
  // most; and, one per piece, found done by a look and not yet free again.
  for (std::size_t i = 0; i < 3 * options_.max_pieces + 2 * options_.slots; ++i) {
    groups_.push_back(std::make_unique<Group>(*context_, mailbox_));
  }
  const MutexLock lock(mutex_);
  for (const auto& group : groups_) free_groups_.push_back(group.get());
  for (std::size_t i = 0; i < options_.max_pieces; ++i) {
    pieces_.push_back(std::make_unique<AcceptedPiece>());
    free_pieces_.push_back(pieces_.back().get());
  }
  {
    const MutexLock box(mailbox_->mutex);
    mailbox_->staged.reserve(options_.max_pieces);
    mailbox_->flying.reserve(groups_.size());
    mailbox_->rate.fill(kUsualRate);
    mailbox_->clock = options_.clock;
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
    thread_.join();
    const MutexLock lock(mailbox_->mutex);
    mailbox_->clock = nullptr;
  }
  crew_.reset();
  if (context_ == nullptr) return;
  ring_.reset();
  bool all_there = true;
  {
    const MutexLock lock(mutex_);
    all_there = free_groups_.size() == groups_.size();
  }
  // The driver may still call back for the others.
  if (!all_there) abandon(std::move(groups_));
  drop_streams();
}

void Lane::drop_streams() {
  {
    const CurrentContext current(*context_);
    for (auto& stream : streams_) stream.reset();
    gather_.reset();
    const MutexLock lock(mutex_);
    free_groups_.clear();
    groups_.clear();
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
  const GatherLimit& limit = limits_[static_cast<std::size_t>(accepted.direction)];
  if (gather_ == nullptr || accepted.way != Way::direct) return false;
  if (piece.from.length > limit.bytes) return false;
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
  if (auto why = refusal()) return Unexpected(*std::move(why));
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
      launch(Direction(i), direct[i]);
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

// Gives groups of a minimum size: while one is reported and replaced, the link has the next one. A
// list is a group by itself.
void Lane::launch(Direction direction, std::span<Task* const> tasks) {
  while (!tasks.empty()) {
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; count < tasks.size() && bytes < kGroup; ++count) {
      const bool list = tasks[count]->piece->piece.list != nullptr;
      if (list && count > 0) break;
      bytes += list ? kGroup : tasks[count]->copy.bytes;
    }
    launch_group(direction, tasks.first(count));
    tasks = tasks.subspan(count);
  }
}

// Puts the copies of tasks in the stream. Each task gets its result; each part of a list gets its
// own.
void Lane::copy_tasks(Group& group, std::span<Task* const> tasks) try {
  if (tasks.front()->piece->piece.list != nullptr) return copy_list(group, *tasks.front());
  const auto direction = static_cast<std::size_t>(group.direction);
  std::vector<StreamCopy> copies;
  copies.reserve(tasks.size());
  for (const Task* task : tasks) copies.push_back(task->copy);
  std::vector<CUresult> results(copies.size(), CUDA_ERROR_OUT_OF_MEMORY);
  const bool by_kernel = streams_[direction]->enqueue(copies, results, limits_[direction]);
  group.by_multiprocessors = group.direction == Direction::across || by_kernel;
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i]->result = results[i];
} catch (const std::bad_alloc&) {
  for (Task* task : tasks) task->result = CUDA_ERROR_OUT_OF_MEMORY;
}

// Uses one launch if a kernel may have all parts, else the way of other copies.
void Lane::copy_list(Group& group, Task& task) {
  PieceList& list = *task.piece->piece.list;
  const CopyStream& stream = *streams_[static_cast<std::size_t>(group.direction)];
  const std::size_t count = list.parts.size();
  const bool gathers = gather_ != nullptr && count >= list_limit_.count;
  MemoryRanges ranges(driver_);
  std::vector<ListedCopy> copies;
  copies.reserve(count);
  std::size_t runs = 0;
  bool all = gathers;
  for (const MovePair& part : list.parts) {
    const ListedCopy copy{address_of(part.to), address_of(part.from), part.from.length.value};
    const bool goes_on = !copies.empty() && copies.back().to + copies.back().bytes == copy.to &&
                         copies.back().from + copies.back().bytes == copy.from;
    runs += !goes_on;
    all = all && copy.bytes <= list_limit_.bytes.value && fits_gather(copy) &&
          ranges.reached(copy.to, copy.bytes) && ranges.reached(copy.from, copy.bytes);
    copies.push_back(copy);
  }
  task.result = CUDA_SUCCESS;
  group.by_multiprocessors = true;
  // Neighbours merge into a few large copies.
  if (all && 2 * runs > count && stream.enqueue_list(copies, group.list)) return;
  std::vector<StreamCopy> others;
  others.reserve(count);
  for (const ListedCopy& copy : copies) {
    const bool reached =
        gathers && ranges.reached(copy.to, copy.bytes) && ranges.reached(copy.from, copy.bytes);
    others.push_back({.to = copy.to, .from = copy.from, .bytes = copy.bytes, .reached = reached});
  }
  std::vector<CUresult> results(count, CUDA_ERROR_OUT_OF_MEMORY);
  group.by_multiprocessors = stream.enqueue(others, results, list_limit_, &group.list);
  for (std::size_t i = 0; i < count; ++i) {
    if (results[i] == CUDA_SUCCESS) continue;
    task.result = results[i];
    if (i < list.failed.size()) list.failed[i] = 1;
  }
}

// Without an event the lane asks the stream.
bool Lane::has_event(Group& group) noexcept try {
  if (group.event != nullptr) return true;
  auto made = Event::make(*context_);
  if (made) group.event = *std::move(made);
  return made.has_value();
} catch (const std::bad_alloc&) {
  return false;
}

void Lane::launch_group(Direction direction, std::span<Task* const> tasks) {
  const CopyStream& stream = *streams_[static_cast<std::size_t>(direction)];
  Group* group = nullptr;
  std::optional<Error> lost;
  {
    const MutexLock lock(mutex_);
    if (lost_) lost = told(*lost_);
    if (!lost) {
      CHECK(!free_groups_.empty());
      group = free_groups_.back();
      free_groups_.pop_back();
      group->number = ++launches_;
    }
  }
  if (lost) return refuse_tasks(tasks, *lost);
  group->direction = direction;
  group->first = nullptr;
  group->uncalled = false;
  group->asked = false;
  group->found = false;
  group->by_multiprocessors = direction == Direction::across || gather_ != nullptr;
  copy_tasks(*group, tasks);
  group->bytes = 0;
  group->direct = true;
  for (Task* task : tasks) {
    group->bytes += task->copy.bytes;
    group->direct = group->direct && task->piece->way == Way::direct;
    task->next = std::exchange(group->first, task);
  }
  group->marked = has_event(*group) && stream.mark(*group->event) == CUDA_SUCCESS;
  fly(*group);
}

// The group is in its stream: the first thread to hear or see that it is done ends it.
void Lane::fly(Group& flown) {
  Group* const group = &flown;
  const auto direction = static_cast<std::size_t>(group->direction);
  const CopyStream& stream = *streams_[direction];
  const Nanoseconds now = options_.clock->now();
  bool prompt = false;  // false: callbacks are held up, and this one would be too
  {
    // After the unlock a look may end the group, so everything that a look uses is set here.
    const MutexLock lock(mailbox_->mutex);
    prompt = mailbox_->owed == 0 && group->marked;
    group->uncalled = !prompt;
    group->launched = now;
    group->before = 0;
    for (const Group* other : mailbox_->flying) {
      if (other->direction == group->direction) group->before = other->number;
    }
    mailbox_->flying.push_back(group);
    if (!prompt) {
      mailbox_->uncalled = true;
      mailbox_->wake.notify_one();
    }
  }
  if (!prompt || stream.when_done(*group->event, &Lane::called_back, group) == CUDA_SUCCESS) return;
  bool found = false;
  {
    const MutexLock lock(mailbox_->mutex);
    group->uncalled = true;  // no callback will come
    found = group->found;
    if (std::ranges::find(mailbox_->flying, group) != mailbox_->flying.end()) {
      mailbox_->uncalled = true;
      return mailbox_->wake.notify_one();
    }
  }
  {
    const MutexLock lock(mutex_);
    free_groups_.push_back(group);
  }
  // Counted until it is free, like all groups that looks have ended.
  const MutexLock lock(mailbox_->mutex);
  --(found ? mailbox_->found : mailbox_->owed);
  mailbox_->wake.notify_one();
}

void Lane::refuse_tasks(std::span<Task* const> tasks, const Error& why) {
  for (Task* task : tasks) task->outcome = Unexpected(told(why));
  const MutexLock lock(mailbox_->mutex);
  for (Task* task : tasks) task->next = std::exchange(mailbox_->refused, task);
  mailbox_->wake.notify_one();
}

// Runs in a thread of the driver, where no driver call is allowed.
void Lane::called_back(void* data) {
  Group* const group = static_cast<Group*>(data);
  const std::shared_ptr<Mailbox> mailbox = group->mailbox;
  const MutexLock lock(mailbox->mutex);
  const auto direction = static_cast<std::size_t>(group->direction);
  if (mailbox->clock != nullptr && group->number > mailbox->last[direction]) {
    mailbox->last[direction] = 0;  // it ended some time ago, so the next group gives no rate
    mailbox->ended[direction] = mailbox->clock->now() - kCallback;
  }
  // Not in the list: a look has already ended it. The lane's thread subtracts from `found` once the
  // group is free: without a piece, only `found` bounds the number of such groups.
  if (std::erase(mailbox->flying, group) == 0 && !group->found) --mailbox->owed;
  group->next = std::exchange(mailbox->done, group);
  mailbox->wake.notify_one();
}

std::optional<Error> Lane::refusal() noexcept {
  const MutexLock lock(mutex_);
  return lost_ ? std::optional(told(*lost_)) : std::nullopt;
}

void Lane::refuse(std::optional<Error> why) {
  const MutexLock lock(mutex_);
  lost_ = std::move(why);
}

}  // namespace headrace::cuda
