// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/scheduler.h"

#include <algorithm>
#include <ranges>
#include <thread>
#include <utility>

#include "core/check.h"

namespace headrace::emulator {
namespace {

// Bounds of sleeps; they decide nothing, as every change wakes.
constexpr Nanoseconds kSleep = std::chrono::milliseconds{50};
// A sleep is not this exact: below, an engine that waits for its time does so awake.
constexpr Nanoseconds kAwake = std::chrono::microseconds{100};
// The kernel's driver waits without a bound.
constexpr Nanoseconds kDisableBound = std::chrono::seconds{10};

std::size_t engines_of(const DeviceSetup& setup) {
  std::size_t engines = 0;
  for (const GroupSetup& group : setup.groups) engines += group.engines;
  return engines;
}

bool is_batch(const Task& task) {
  return task.batch == nullptr && task.descriptor.opcode() == Opcode::batch;
}

// Bytes that a descriptor moves; a batch moves none itself.
Bytes bytes_moved(const Descriptor& descriptor) {
  const Opcode opcode = descriptor.opcode();
  const bool none = opcode == Opcode::batch || opcode == Opcode::noop || opcode == Opcode::drain ||
                    opcode == Opcode::translation_fetch;
  return Bytes{none ? 0 : descriptor.size};
}

}  // namespace

Scheduler::Scheduler(const DeviceOptions& options)
    : options_(options), engine_count_(engines_of(options.setup)), random_(options.seed) {
  const DeviceSetup& setup = options.setup;
  queues_.resize(setup.queues.size());
  groups_.resize(setup.groups.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].engines = setup.groups[i].engines;
    for (unsigned n = 0; n < setup.groups[i].engines; ++n) engines_.push_back(Engine{.group = i});
  }
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    groups_[setup.queues[i].group].queues.push_back(i);
    limits_.push_back(limits_of(setup, i));
  }
}

void Scheduler::accept(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  queues_[queue].waiting.push_back(Task{.descriptor = descriptor,
                                        .space = &space,
                                        .queue = queue,
                                        .number = next_number_++,
                                        .arrived = options_.clock->now()});
  ++stats_.accepted;
  work_.notify_all();
}

// SPEC 5.3, 5.7.
bool Scheduler::enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  CHECK(queue < options_.setup.queues.size());
  const QueueSetup& setup = options_.setup.queues[queue];
  MutexLock lock(mutex_);
  const Queue& of = queues_[queue];
  if (!setup.shared || halted_ || !of.enabled || of.waiting.size() >= setup.threshold) {
    ++stats_.retried;
    return false;
  }
  accept(queue, space, descriptor);
  return true;
}

void Scheduler::movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  CHECK(queue < options_.setup.queues.size());
  const QueueSetup& setup = options_.setup.queues[queue];
  MutexLock lock(mutex_);
  const Queue& of = queues_[queue];
  if (setup.shared || halted_ || !of.enabled) {
    ++stats_.discarded;
  } else if (of.waiting.size() >= setup.size || random_.chance(options_.faults.drop_chance)) {
    ++stats_.dropped;
  } else {
    accept(queue, space, descriptor);
  }
}

// A drain waits for what was submitted before it: by its client in a shared queue, by all in a
// dedicated one (SPEC 3.12). Batches wait for room, one per engine of the group.
bool Scheduler::head_ready(std::size_t queue, const Group& group) const {
  const Queue& of = queues_[queue];
  if (of.waiting.empty()) return false;
  const Task& head = of.waiting.front();
  if (is_batch(head)) return group.batches.size() + group.fetching < group.engines;
  if (head.descriptor.opcode() != Opcode::drain) return true;
  const bool shared = options_.setup.queues[queue].shared;
  return std::none_of(of.in_flight.begin(), of.in_flight.end(),
                      [&](const auto& other) { return !shared || other.second == head.space; });
}

void Scheduler::add_choices(std::size_t engine, std::vector<Choice>& choices) const {
  const Engine& of = engines_[engine];
  if (of.task) {
    const bool now = !of.executing && (!options_.rates || of.due <= options_.clock->now());
    if (now) choices.push_back({Choice::Kind::execute, engine});
    return;
  }
  if (of.executing) return;
  const Group& group = groups_[of.group];
  for (const std::size_t queue : group.queues) {
    if (head_ready(queue, group)) choices.push_back({Choice::Kind::head, engine, queue});
  }
  for (std::size_t i = 0; i < group.batches.size(); ++i) {
    if (group.batches[i]->ready() > 0) choices.push_back({Choice::Kind::child, engine, i});
  }
}

// Chooses for one engine, or for all.
std::optional<Scheduler::Choice> Scheduler::choose(std::optional<std::size_t> engine) {
  std::vector<Choice> choices;
  if (engine) {
    add_choices(*engine, choices);
  } else {
    for (std::size_t i = 0; i < engines_.size(); ++i) add_choices(i, choices);
  }
  if (choices.empty()) return std::nullopt;
  return choices[random_.below(choices.size())];
}

Task Scheduler::take_child(Batch& batch, const std::shared_ptr<Batch>& shared) {
  const auto [descriptor, index] = batch.take(random_.below(batch.ready()));
  Task task = batch.parent();
  task.descriptor = descriptor;
  task.number = batch.first_number() + index;
  task.batch = shared;
  return task;
}

// SPEC has no times: DeviceRates says what these are. From the moment the engine was free, not from
// when somebody looked, so that a clock that leaps gives the same times.
Nanoseconds Scheduler::model(const Engine& engine, const Task& task) {
  if (!options_.rates) return task.arrived;
  const Bytes bytes = bytes_moved(task.descriptor);
  const Nanoseconds begin = std::max(engine.due, task.arrived + options_.rates->start_up);
  if (bytes == 0_B) return begin;
  device_free_ = std::max(device_free_, begin) + bytes / options_.rates->device;
  const Nanoseconds end = std::max(begin + bytes / options_.rates->engine, device_free_);
  const auto& beyond = options_.rates->beyond;
  return beyond ? std::max(end, beyond(task.descriptor, begin)) : end;
}

void Scheduler::assign(std::size_t engine, Task task) {
  Engine& of = engines_[engine];
  task.injected = draw(options_.faults, task.descriptor, task.number, random_);
  of.due = model(of, task);
  of.task = std::move(task);
}

// Nothing: it was only taken, and is executed in another step.
std::optional<Scheduler::Job> Scheduler::begin(const Choice& choice) {
  Engine& engine = engines_[choice.engine];
  Group& group = groups_[engine.group];
  if (choice.kind == Choice::Kind::execute) {
    engine.executing = true;
    engine.cancelled = false;
    return Job{choice.engine, *engine.task, std::nullopt};
  }
  if (choice.kind == Choice::Kind::child) {
    const std::shared_ptr<Batch>& batch = group.batches[choice.which];
    assign(choice.engine, take_child(*batch, batch));
    return std::nullopt;
  }
  Queue& queue = queues_[choice.which];
  Task task = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  queue.in_flight[task.number] = task.space;
  group.fetching += is_batch(task);
  assign(choice.engine, std::move(task));
  return std::nullopt;
}

Performed Scheduler::work(const Job& job) const {
  const Limits& limits = limits_[job.task.queue];
  if (!job.conclusion) return perform(job.task, limits);
  Performed performed;
  performed.status = job.conclusion->status;
  performed.fate = deliver(job.task, *job.conclusion, limits);
  return performed;
}

void Scheduler::count(const Job& job, const Performed& performed) {
  const auto code = static_cast<Code>(performed.status & 0x3f);
  stats_.resolved += performed.resolved;
  if (performed.list) return;
  ++stats_.executed[job.task.descriptor.opcode()];
  stats_.failed += code != Code::success && code != Code::success_false;
  stats_.faults += code == Code::page_fault || code == Code::page_request_refused;
  switch (performed.fate) {
    case Fate::written: ++stats_.records_written; break;
    case Fate::suppressed: ++stats_.records_suppressed; break;
    case Fate::lost: ++stats_.records_lost; break;
  }
}

void Scheduler::free_engine(std::size_t engine) {
  engines_[engine].task.reset();
  engines_[engine].executing = false;
  work_.notify_all();
}

// Where batches are over in the group of the job's engine, the record of one is the next job.
std::optional<Scheduler::Job> Scheduler::settle_batches(const Job& job) {
  std::vector<std::shared_ptr<Batch>>& batches = groups_[engines_[job.engine].group].batches;
  const auto over =
      std::find_if(batches.begin(), batches.end(), [](const auto& batch) { return batch->over(); });
  if (over == batches.end()) {
    free_engine(job.engine);
    return std::nullopt;
  }
  const std::shared_ptr<Batch> batch = std::move(*over);
  batches.erase(over);
  if (batch->silent()) {
    drop_batch(*batch);
    return settle_batches(job);
  }
  stats_.abandoned += batch->abandoned();
  engines_[job.engine].task = batch->parent();
  return Job{job.engine, batch->parent(), batch->record()};
}

// Settles a finished job; returns the next one for the same engine, if any.
std::optional<Scheduler::Job> Scheduler::finish(const Job& job, Performed performed) {
  count(job, performed);
  Group& group = groups_[engines_[job.engine].group];
  const Task& task = job.task;
  if (task.batch != nullptr) {
    task.batch->completed(performed.status == static_cast<std::uint8_t>(Code::success));
  } else if (performed.list && !engines_[job.engine].cancelled) {
    Task parent = task;
    parent.arrived = engines_[job.engine].due;
    const std::uint64_t first = next_number_;
    next_number_ += performed.list->descriptors.size();
    group.batches.push_back(
        std::make_shared<Batch>(std::move(parent), *std::move(performed.list), first));
  } else {
    queues_[task.queue].in_flight.erase(task.number);
    stats_.abandoned += performed.list.has_value();  // it was, while its list was read
  }
  if (is_batch(task) && !job.conclusion) --group.fetching;
  return settle_batches(job);
}

// Does one unit of work of this engine, or of any. False: there is nothing to do now.
bool Scheduler::work_once(std::optional<std::size_t> engine) {
  const std::optional<Choice> choice = choose(engine);
  if (!choice) return false;
  std::optional<Job> job = begin(*choice);
  while (job) {
    mutex_.unlock();
    Performed performed = work(*job);
    mutex_.lock();
    job = finish(*job, std::move(performed));
  }
  return true;
}

bool Scheduler::step() {
  MutexLock lock(mutex_);
  return work_once(std::nullopt);
}

void Scheduler::serve(std::size_t engine) {
  MutexLock lock(mutex_);
  while (serving_) {
    if (work_once(engine)) continue;
    const Engine& of = engines_[engine];
    // Another thread may execute the engine's task; its end wakes this one.
    const bool waits_for_time = of.task && !of.executing;
    const Nanoseconds left = waits_for_time ? of.due - options_.clock->now() : kSleep;
    if (left >= kAwake) {
      work_.wait_for(mutex_, std::min(left - kAwake / 2, kSleep));
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

void Scheduler::hold_threads() {
  MutexLock lock(mutex_);
  serving_ = true;
}

void Scheduler::release_threads() {
  MutexLock lock(mutex_);
  serving_ = false;
  work_.notify_all();
}

bool Scheduler::executes(const Match& match) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const Engine& engine) {
    return engine.executing && engine.task && match(engine.task->queue, *engine.task->space);
  });
}

// Drops the task that an engine was given and has not begun.
void Scheduler::drop_task(Engine& engine) {
  const Task& task = *engine.task;
  if (task.batch != nullptr) {
    task.batch->dropped();
  } else {
    queues_[task.queue].in_flight.erase(task.number);
    groups_[engine.group].fetching -= is_batch(task);
    ++stats_.abandoned;
  }
  engine.task.reset();
  engine.due = options_.clock->now();
}

// Without a record.
void Scheduler::drop_batch(const Batch& batch) {
  queues_[batch.parent().queue].in_flight.erase(batch.parent().number);
  stats_.abandoned += batch.abandoned() + 1;
}

// Drops what matches and is not executing, then waits for what is.
void Scheduler::abandon(const Match& match) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    stats_.abandoned +=
        std::erase_if(queues_[i].waiting, [&](const Task& task) { return match(i, *task.space); });
  }
  for (Group& group : groups_) {
    for (const auto& batch : group.batches) {
      if (match(batch->parent().queue, *batch->parent().space)) batch->abandon();
    }
  }
  for (Engine& engine : engines_) {
    if (!engine.task || !match(engine.task->queue, *engine.task->space)) continue;
    engine.cancelled = true;
    if (!engine.executing) drop_task(engine);
  }
  for (Group& group : groups_) {
    for (std::size_t i = group.batches.size(); i-- > 0;) {
      if (!group.batches[i]->silent() || !group.batches[i]->over()) continue;
      drop_batch(*group.batches[i]);
      group.batches.erase(group.batches.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  while (executes(match)) work_.wait_for(mutex_, kSleep);
}

// Whether nothing that matches is queued or in flight.
bool Scheduler::over(const Match& match) const {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const auto matches = [&](const AddressSpace* space) { return match(i, *space); };
    if (std::ranges::any_of(queues_[i].waiting, matches, &Task::space)) return false;
    if (std::ranges::any_of(queues_[i].in_flight | std::views::values, matches)) return false;
  }
  return true;
}

// Whoever waits works too, so that it ends without threads of the device. False: not within
// `bound`, or only time would change it and no thread waits for that.
bool Scheduler::wait_until_over(const Match& match, Nanoseconds bound) {
  const Nanoseconds end = system_clock().now() + bound;
  const auto all = [](std::size_t, const AddressSpace&) { return true; };
  while (!over(match)) {
    const Nanoseconds left = end - system_clock().now();
    if (left <= Nanoseconds{0}) return false;
    if (work_once(std::nullopt)) continue;
    if (!serving_ && !executes(all)) return false;
    work_.wait_for(mutex_, std::min(left, kSleep));
  }
  return true;
}

// The kernel's driver waits for what the queue accepted, then resets it (drv_disable_wq).
void Scheduler::disable(std::size_t queue) {
  const Match of_queue = [&](std::size_t of, const AddressSpace&) { return of == queue; };
  MutexLock lock(mutex_);
  queues_[queue].enabled = false;
  if (!wait_until_over(of_queue, kDisableBound)) abandon(of_queue);
}

bool Scheduler::drain(const AddressSpace& space, Nanoseconds bound) {
  MutexLock lock(mutex_);
  return wait_until_over([&](std::size_t, const AddressSpace& of) { return &of == &space; }, bound);
}

void Scheduler::enable(std::size_t queue) {
  MutexLock lock(mutex_);
  queues_[queue].enabled = true;
}

bool Scheduler::enabled(std::size_t queue) const {
  MutexLock lock(mutex_);
  return !halted_ && queues_[queue].enabled;
}

void Scheduler::halt() {
  MutexLock lock(mutex_);
  halted_ = true;
  abandon([](std::size_t, const AddressSpace&) { return true; });
}

void Scheduler::recover() {
  MutexLock lock(mutex_);
  halted_ = false;
}

bool Scheduler::halted() const {
  MutexLock lock(mutex_);
  return halted_;
}

void Scheduler::forget(AddressSpace& space) {
  MutexLock lock(mutex_);
  abandon([&](std::size_t, const AddressSpace& of) { return &of == &space; });
}

std::size_t Scheduler::occupancy(std::size_t queue) const {
  MutexLock lock(mutex_);
  return queues_[queue].waiting.size();
}

bool Scheduler::idle() const {
  MutexLock lock(mutex_);
  const auto busy = [](const Engine& engine) { return engine.task || engine.executing; };
  const auto waits = [](const Queue& queue) { return !queue.waiting.empty(); };
  const auto batches = [](const Group& group) { return !group.batches.empty(); };
  return std::none_of(engines_.begin(), engines_.end(), busy) &&
         std::none_of(queues_.begin(), queues_.end(), waits) &&
         std::none_of(groups_.begin(), groups_.end(), batches);
}

std::optional<Nanoseconds> Scheduler::next_due() const {
  MutexLock lock(mutex_);
  std::optional<Nanoseconds> next;
  for (const Engine& engine : engines_) {
    if (engine.task && !engine.executing && (!next || engine.due < *next)) next = engine.due;
  }
  return next;
}

DeviceStats Scheduler::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace::emulator
