// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/flights.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "core/check.h"
#include "core/fail.h"

namespace headrace::cuda {
namespace {

// Minimum bytes of pieces that are given to a stream and reported together.
constexpr std::uint64_t kGroup = 4ULL << 20;
// The delay of a callback after the end of its work.
constexpr Nanoseconds kCallback = std::chrono::microseconds{30};
// Bytes per ns of a link before any measurement.
constexpr double kUsualRate = 50;
// Time that a thread spins for copies that are due now or soon.
constexpr Nanoseconds kSpin = std::chrono::microseconds{50};
// Time before they are due at which it comes back, since a sleep ends late.
constexpr Nanoseconds kEarly = std::chrono::microseconds{100};
// Maximum questions in one call, for a clock that stands still.
constexpr int kMostQuestions = 256;
// The time of a smaller group shows the cost of the call more than the rate of the link.
constexpr std::uint64_t kFewest = 1ULL << 20;

}  // namespace

Error told(const Error& why) noexcept try { return why; } catch (const std::bad_alloc&) {
  return {why.code, "out of memory"};  // short enough to need no allocation
}

CUdeviceptr address_of(const Extent& extent) {
  if (const auto device = extent.object->device_address()) return *device + extent.offset;
  return reinterpret_cast<std::uintptr_t>(extent.memory());
}

Flights::Flights(const Driver& driver, const CudaOptions& options, const Means& means,
                 std::shared_ptr<Mailbox> mailbox, std::function<void(Task&)> ended)
    : driver_(driver),
      options_(options),
      means_(means),
      mailbox_(std::move(mailbox)),
      ended_(std::move(ended)) {}

Status Flights::start(const Context& context, const std::string& name) {
  context_ = &context;
  not_gathered_.clear();
  const auto gathers = [](const GatherLimit& limit) { return limit.bytes > 0_B; };
  if (gathers(means_.list_limit) || std::ranges::any_of(means_.limits, gathers)) {
    auto loaded = GatherKernel::load(context);
    if (loaded) {
      gather_ = *std::move(loaded);
    } else {
      not_gathered_ = fmt::format("{}: gathers nothing, copy engines copy all: {}", name,
                                  loaded.error().message);
    }
  }
  for (std::size_t i = 0; i < kDirections; ++i) {
    const CopyMeans means{.batches = means_.batches, .kernel = gather_.get()};
    HEADRACE_TRY(streams_[i], CopyStream::open(context, means));
  }
  // Three sets of groups: in flight for all pieces and slots; with callbacks still owed, as many at
  // most; and, one per piece, found done by a look and not yet free again.
  for (std::size_t i = 0; i < 3 * options_.max_pieces + 2 * options_.slots; ++i) {
    groups_.push_back(std::make_unique<Group>(context, mailbox_));
  }
  const MutexLock lock(mutex_);
  for (const auto& group : groups_) free_groups_.push_back(group.get());
  const MutexLock box(mailbox_->mutex);
  mailbox_->flying.reserve(groups_.size());
  mailbox_->rate.fill(kUsualRate);
  mailbox_->clock = options_.clock;
  return {};
}

void Flights::drop() {
  for (auto& stream : streams_) stream.reset();
  gather_.reset();
  const MutexLock lock(mutex_);
  free_groups_.clear();
  groups_.clear();
}

void Flights::abandon_owed() {
  const MutexLock lock(mutex_);
  if (free_groups_.size() != groups_.size()) abandon(std::move(groups_));
}

GatherLimit Flights::limit(Direction direction) const {
  return gather_ == nullptr ? GatherLimit{} : means_.limits[static_cast<std::size_t>(direction)];
}

// Gives groups of a minimum size: while one is reported and replaced, the link has the next one. A
// list is a group by itself.
void Flights::launch(Direction direction, std::span<Task* const> tasks) {
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
void Flights::copy_tasks(Group& group, std::span<Task* const> tasks) try {
  if (tasks.front()->piece->piece.list != nullptr) return copy_list(group, *tasks.front());
  const auto direction = static_cast<std::size_t>(group.direction);
  std::vector<StreamCopy> copies;
  copies.reserve(tasks.size());
  for (const Task* task : tasks) copies.push_back(task->copy);
  std::vector<CUresult> results(copies.size(), CUDA_ERROR_OUT_OF_MEMORY);
  const bool by_kernel = streams_[direction]->enqueue(copies, results, means_.limits[direction]);
  group.by_multiprocessors = group.direction == Direction::across || by_kernel;
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i]->result = results[i];
} catch (const std::bad_alloc&) {
  for (Task* task : tasks) task->result = CUDA_ERROR_OUT_OF_MEMORY;
}

// Uses one launch if a kernel may have all parts, else the way of other copies.
void Flights::copy_list(Group& group, Task& task) {
  PieceList& list = *task.piece->piece.list;
  const CopyStream& stream = *streams_[static_cast<std::size_t>(group.direction)];
  const std::size_t count = list.parts.size();
  const bool gathers = gather_ != nullptr && count >= means_.list_limit.count;
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
    all = all && copy.bytes <= means_.list_limit.bytes.value && fits_gather(copy) &&
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
  group.by_multiprocessors = stream.enqueue(others, results, means_.list_limit, &group.list);
  for (std::size_t i = 0; i < count; ++i) {
    if (results[i] == CUDA_SUCCESS) continue;
    task.result = results[i];
    if (i < list.failed.size()) list.failed[i] = 1;
  }
}

// Without an event the lane asks the stream.
bool Flights::has_event(Group& group) noexcept try {
  if (group.event != nullptr) return true;
  auto made = Event::make(*context_);
  if (made) group.event = *std::move(made);
  return made.has_value();
} catch (const std::bad_alloc&) {
  return false;
}

void Flights::launch_group(Direction direction, std::span<Task* const> tasks) {
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
void Flights::fly(Group& flown) {
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
  if (!prompt || stream.when_done(*group->event, &Flights::called_back, group) == CUDA_SUCCESS)
    return;
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

void Flights::refuse_tasks(std::span<Task* const> tasks, const Error& why) {
  for (Task* task : tasks) task->outcome = Unexpected(told(why));
  const MutexLock lock(mailbox_->mutex);
  for (Task* task : tasks) task->next = std::exchange(mailbox_->refused, task);
  mailbox_->wake.notify_one();
}

// Runs in a thread of the driver, where no driver call is allowed.
void Flights::called_back(void* data) {
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

std::optional<Error> Flights::refusal() noexcept {
  const MutexLock lock(mutex_);
  return lost_ ? std::optional(told(*lost_)) : std::nullopt;
}

void Flights::refuse(std::optional<Error> why) {
  const MutexLock lock(mutex_);
  lost_ = std::move(why);
}

Task* Flights::take(Group& group) {
  Task* const first = std::exchange(group.first, nullptr);
  const bool found = group.found;
  free_groups(&group);
  if (found) {
    const MutexLock lock(mailbox_->mutex);
    --mailbox_->found;
  }
  return first;
}

void Flights::free_groups(Group* first) {
  const MutexLock lock(mutex_);
  for (Group* group = first; group != nullptr; group = group->next) free_groups_.push_back(group);
}

void Flights::end(std::optional<Direction> asked, const Status& outcome) {
  Task* ended = nullptr;
  Group* without = nullptr;
  {
    const MutexLock lock(mailbox_->mutex);
    std::erase_if(mailbox_->flying, [&](Group* group) REQUIRES(mailbox_->mutex) {
      if (asked && (!group->asked || group->direction != *asked)) return false;
      each_task(std::exchange(group->first, nullptr), [&](Task& task) {
        if (!outcome) task.outcome = Unexpected(told(outcome.error()));
        task.next = std::exchange(ended, &task);
      });
      if (group->uncalled) {
        group->next = std::exchange(without, group);
      } else {
        ++mailbox_->owed;
      }
      return true;
    });
    mailbox_->uncalled = std::ranges::any_of(mailbox_->flying, &Group::uncalled);
  }
  free_groups(without);
  each_task(ended, ended_);
}

Backend::Look Flights::look(Nanoseconds most) {
  if (looking_.exchange(true)) return {};
  const Backend::Look looked = look_alone(most);
  looking_.store(false);
  return looked;
}

Backend::Look Flights::look_alone(Nanoseconds most) {
  const Nanoseconds begun = options_.clock->now();
  Dues dues = dues_now(begun);
  if (dues.first == Nanoseconds::max()) return {};
  if (dues.first - begun > kSpin + kEarly) return {.again = dues.last - begun - kEarly};
  const CurrentContext current(*context_);
  if (current.result() != CUDA_SUCCESS) return {};
  const Nanoseconds end = std::min(begun + most, std::max(begun, dues.first) + kSpin);
  for (int i = 0; i < kMostQuestions; ++i) {
    const Nanoseconds now = options_.clock->now();
    const auto found = look_once(now);
    if (!found) return {};
    if (*found > 0) return {.found = *found};
    if (now >= end) break;
  }
  const Nanoseconds now = options_.clock->now();
  dues = dues_now(now);
  if (dues.first == Nanoseconds::max() || dues.last - now <= kSpin + kEarly) return {};
  return {.again = dues.last - now - kEarly};
}

// Returns when the next group that a look may end is due, and when the last of all.
Flights::Dues Flights::dues_now(Nanoseconds now) {
  Dues dues;
  std::array<Nanoseconds, kDirections> due{};
  const MutexLock lock(mailbox_->mutex);
  for (const Group* group : mailbox_->flying) {
    const auto direction = static_cast<std::size_t>(group->direction);
    Nanoseconds& at = due[direction];
    const Nanoseconds free = at == Nanoseconds{0} ? mailbox_->ended[direction] : at;
    const double takes = static_cast<double>(group->bytes) / mailbox_->rate[direction];
    at = std::max(free, group->launched) + Nanoseconds{static_cast<std::int64_t>(takes)};
    if (!group->direct || group->uncalled) continue;
    dues.first = std::min(dues.first, std::max(at, now));
    dues.last = std::max(dues.last, at);
  }
  return dues;
}

// Asks for the oldest group of each direction, and ends one that is done. Returns the number of its
// pieces; nullopt: there is no group to look for.
std::optional<std::size_t> Flights::look_once(Nanoseconds now) {
  struct Asked {
    Group* group = nullptr;
    std::uint64_t number = 0;
  };
  std::array<Asked, kDirections> oldest{};
  {
    const MutexLock lock(mailbox_->mutex);
    // Their callbacks are held up, so the lane's own looks handle the rest.
    if (mailbox_->found >= options_.max_pieces) return std::nullopt;
    for (Group* group : mailbox_->flying) {
      Asked& asked = oldest[static_cast<std::size_t>(group->direction)];
      if (asked.group == nullptr) asked = {group, group->number};
    }
  }
  Mailbox& box = *mailbox_;
  // The group has neither ended nor been used again: the event is its own, and is behind its
  // copies.
  const auto is_there = [&](const Asked& asked) REQUIRES(box.mutex) {
    if (std::ranges::find(box.flying, asked.group) == box.flying.end()) return false;
    const Group& group = *asked.group;
    return group.number == asked.number && group.direct && group.marked && !group.uncalled;
  };
  bool any = false;
  for (const Asked& asked : oldest) {
    if (asked.group == nullptr) continue;
    {
      const MutexLock lock(box.mutex);
      if (!is_there(asked)) continue;
    }
    any = true;
    if (driver_.cuEventQuery(asked.group->event->handle()) != CUDA_SUCCESS) continue;
    Task* first = nullptr;
    {
      const MutexLock lock(box.mutex);
      if (!is_there(asked)) continue;
      std::erase(box.flying, asked.group);
      asked.group->found = true;
      ++box.found;
      first = std::exchange(asked.group->first, nullptr);
      note_rate(box, *asked.group, now);
    }
    std::size_t found = 0;
    each_task(first, [&](Task& task) {
      ++found;
      ended_(task);
    });
    return found;
  }
  return any ? std::optional<std::size_t>(0) : std::nullopt;
}

// Updates the link's rate from a group that was found done. It does so only if the link had no
// other group, or the group before it was found done too.
void Flights::note_rate(Mailbox& box, const Group& group, Nanoseconds now) {
  const auto direction = static_cast<std::size_t>(group.direction);
  const bool known = group.before == 0 || group.before == box.last[direction];
  const Nanoseconds began = std::max(box.ended[direction], group.launched);
  box.ended[direction] = now;
  box.last[direction] = group.number;
  if (!known || group.bytes < kFewest || now <= began) return;
  double& rate = box.rate[direction];
  const double seen = static_cast<double>(group.bytes) / static_cast<double>((now - began).count());
  rate = std::clamp((rate + seen) / 2, 0.1, 1000.0);
}

}  // namespace headrace::cuda
