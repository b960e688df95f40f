// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"

namespace headrace::emulator {
namespace {

// Bounds of sleeps; they decide nothing, since every change wakes.
constexpr Nanoseconds kSleep = std::chrono::milliseconds{50};
// A sleep is not this exact: below, an engine that waits for its time does not sleep.
constexpr Nanoseconds kAwake = std::chrono::microseconds{100};
// The kernel's driver waits without a bound.
constexpr Nanoseconds kDisableBound = std::chrono::seconds{10};

Status check(const DeviceSetup& setup) {
  if (setup.queues.empty() || setup.queues.size() > kMaxQueues) {
    return fail(ErrorCode::invalid, "{} queues; give 1 to {}", setup.queues.size(), kMaxQueues);
  }
  if (setup.engines == 0 || setup.engines > kMaxEngines) {
    return fail(ErrorCode::invalid, "{} engines; give 1 to {}", setup.engines, kMaxEngines);
  }
  unsigned size = 0;
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    const QueueSetup& queue = setup.queues[i];
    if (queue.size == 0) {
      return fail(ErrorCode::invalid, "queue {} has size 0; give it at least 1", i);
    }
    if (queue.shared && (queue.threshold == 0 || queue.threshold > queue.size)) {
      return fail(ErrorCode::invalid, "queue {}: threshold {} is not within 1 to its size {}", i,
                  queue.threshold, queue.size);
    }
    size += queue.size;
  }
  if (size <= kMaxQueuesSize) return {};
  return fail(ErrorCode::invalid, "the queues hold {} descriptors together; at most {}", size,
              kMaxQueuesSize);
}

}  // namespace

// A batch in flight, whose descriptors are executed in any order (SPEC 3.9, 8.3.2).
struct Device::Batch {
  Task parent;
  DescriptorList list;
  std::vector<std::size_t> ready;  // those that no engine has taken
  std::size_t executing = 0;
  std::uint32_t processed = 0;
  bool failed = false;
  bool silent = false;  // abandoned: no record

  bool over() const { return ready.empty() && executing == 0; }
  Record record() const {
    Code code = failed ? Code::batch_failed : Code::success;
    if (list.fault) code = Code::batch_list_fault;
    return {.status = static_cast<std::uint8_t>(code),
            .completed = processed,
            .fault_address = list.fault.value_or(0)};
  }
};

Device::Device(DeviceOptions options)
    : options_(std::move(options)),
      faults_(options_.faults),
      random_(options_.seed),
      queues_(options_.setup.queues.size()),
      engines_(options_.setup.engines) {}

Result<std::unique_ptr<Device>> Device::open(DeviceOptions options) {
  HEADRACE_TRY_STATUS(check(options.setup));
  return std::unique_ptr<Device>(new Device(std::move(options)));
}

Device::~Device() { stop(); }

bool Device::submit(std::size_t queue, AddressSpace& space, const Descriptor& descriptor,
                    bool shared) {
  CHECK(queue < options_.setup.queues.size());
  const QueueSetup& setup = options_.setup.queues[queue];
  const MutexLock lock(mutex_);
  Queue& of = queues_[queue];
  const bool closed = setup.shared != shared || halted_ || !of.enabled;
  const bool full = of.waiting.size() >= (shared ? setup.threshold : setup.size) ||
                    (!shared && random_.chance(faults_.drop_chance));
  if (closed || full) {
    ++(shared ? stats_.retried : closed ? stats_.discarded : stats_.dropped);
    return false;
  }
  of.waiting.push_back({.descriptor = descriptor,
                        .space = &space,
                        .queue = queue,
                        .arrived = options_.clock->now()});
  ++stats_.accepted;
  work_.notify_all();
  return true;
}

bool Device::enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  return submit(queue, space, descriptor, true);
}

void Device::movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  submit(queue, space, descriptor, false);
}

// At most as many batches as engines are in flight.
bool Device::head_ready(const Queue& queue) const {
  if (queue.waiting.empty()) return false;
  if (queue.waiting.front().descriptor.opcode() != Opcode::batch) return true;
  const auto fetching = std::ranges::count_if(engines_, [](const Engine& engine) {
    return engine.task && engine.task->descriptor.opcode() == Opcode::batch;
  });
  return batches_.size() + static_cast<std::size_t>(fetching) < engines_.size();
}

void Device::add_choices(std::size_t engine, std::vector<Choice>& choices) const {
  const Engine& of = engines_[engine];
  if (of.executing) return;
  if (of.task) {
    const bool now = !options_.rates || of.due <= options_.clock->now();
    if (now) choices.push_back({engine, Choice::Kind::execute});
    return;
  }
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (head_ready(queues_[i])) choices.push_back({engine, Choice::Kind::head, i});
  }
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    if (!batches_[i]->ready.empty()) choices.push_back({engine, Choice::Kind::child, i});
  }
}

// SPEC has no times: DeviceRates has them. From the moment when the engine was free, not from this
// call, so that a clock that leaps gives the same times.
Nanoseconds Device::model(const Engine& engine, const Task& task) {
  if (!options_.rates) return task.arrived;
  const DeviceRates& rates = *options_.rates;
  const bool moves = task.descriptor.opcode() == Opcode::memmove;
  const Bytes bytes{moves ? task.descriptor.size : 0};
  const Nanoseconds begin = std::max(engine.due, task.arrived + rates.start_up);
  if (bytes == 0_B) return begin;
  device_free_ = std::max(device_free_, begin) + bytes / rates.device;
  return std::max(begin + bytes / rates.engine, device_free_);
}

// Gives the engine a task: the head of a queue, or a descriptor of a batch.
void Device::take(const Choice& choice) {
  Task task;
  if (choice.kind == Choice::Kind::head) {
    task = std::move(queues_[choice.which].waiting.front());
    queues_[choice.which].waiting.pop_front();
  } else {
    const std::shared_ptr<Batch>& batch = batches_[choice.which];
    const auto at =
        batch->ready.begin() + static_cast<std::ptrdiff_t>(random_.below(batch->ready.size()));
    task = batch->parent;
    task.descriptor = batch->list.descriptors[*at];
    task.batch = batch;
    batch->ready.erase(at);
    ++batch->executing;
  }
  Engine& engine = engines_[choice.engine];
  task.injected = draw(faults_, task.descriptor, random_);
  engine.due = model(engine, task);
  engine.task = std::move(task);
}

// Does one unit of work of this engine, or of any. False: there is nothing to do now.
bool Device::work_once(std::optional<std::size_t> engine) {
  std::vector<Choice> choices;
  for (std::size_t i = engine.value_or(0); i < engine.value_or(engines_.size() - 1) + 1; ++i) {
    add_choices(i, choices);
  }
  if (choices.empty()) return false;
  const Choice& choice = choices[random_.below(choices.size())];
  if (choice.kind != Choice::Kind::execute) {
    take(choice);
    return true;
  }
  Engine& of = engines_[choice.engine];
  of.executing = true;
  of.cancelled = false;
  while (of.task) execute_task(of);
  of.executing = false;
  work_.notify_all();
  return true;
}

// Without the lock while it touches memory.
void Device::execute_task(Engine& engine) {
  const Task task = *engine.task;
  mutex_.unlock();
  Executed executed;
  if (task.conclusion) {
    executed.record = *task.conclusion;
  } else {
    executed = execute(task.descriptor, task.batch != nullptr, options_.setup.queues[task.queue],
                       *task.space, task.injected);
  }
  const bool delivered =
      executed.list || deliver(task.descriptor, executed.record, *task.space, task.injected);
  mutex_.lock();
  if (!executed.list) count(task, executed.record, delivered);
  finish(engine, std::move(executed));
}

void Device::count(const Task& task, const Record& record, bool delivered) {
  ++(task.descriptor.opcode() == Opcode::batch ? stats_.batches : stats_.executed);
  stats_.failed += record.code() != Code::success;
  stats_.faults += record.code() == Code::page_fault;
  stats_.records_lost += !delivered;
}

// Frees the engine, or gives it the record of a batch that is over.
void Device::finish(Engine& engine, Executed executed) {
  const Task task = *std::exchange(engine.task, std::nullopt);
  if (task.batch != nullptr) {
    --task.batch->executing;
    ++task.batch->processed;
    task.batch->failed |= executed.record.code() != Code::success;
  } else if (executed.list && engine.cancelled) {
    ++stats_.abandoned;
  } else if (executed.list) {
    auto batch = std::make_shared<Batch>(Batch{.parent = task, .list = *std::move(executed.list)});
    batch->parent.arrived = engine.due;
    for (std::size_t i = 0; i < batch->list.descriptors.size(); ++i) batch->ready.push_back(i);
    batches_.push_back(std::move(batch));
  }
  drop_silent_batches();
  const auto done = std::ranges::find_if(batches_, [](const auto& batch) { return batch->over(); });
  if (done == batches_.end()) return;
  engine.task = (*done)->parent;
  engine.task->conclusion = (*done)->record();
  batches_.erase(done);
}

bool Device::step() {
  const MutexLock lock(mutex_);
  return work_once(std::nullopt);
}

void Device::run(std::size_t limit) {
  for (std::size_t i = 0; i < limit && step(); ++i) {
  }
}

void Device::serve(std::size_t engine) {
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

Status Device::start() {
  MutexLock lock(threads_mutex_);
  if (!threads_.empty()) return {};
  {
    const MutexLock state(mutex_);
    serving_ = true;
  }
  for (std::size_t i = 0; i < options_.setup.engines; ++i) {
    auto thread = start_thread("dsa engine", [this, i] { serve(i); });
    if (!thread) {
      lock.unlock();
      stop();
      return Unexpected(std::move(thread).error());
    }
    threads_.push_back(*std::move(thread));
  }
  return {};
}

void Device::stop() {
  const MutexLock lock(threads_mutex_);
  {
    const MutexLock state(mutex_);
    serving_ = false;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Device::executes(const Match& match) const {
  return std::ranges::any_of(engines_, [&](const Engine& engine) {
    return engine.executing && engine.task && match(*engine.task);
  });
}

// Drops the task that an engine was given and does not execute yet.
void Device::drop_task(Engine& engine) {
  if (engine.task->batch != nullptr) --engine.task->batch->executing;
  ++stats_.abandoned;
  engine.task.reset();
  engine.due = options_.clock->now();
}

void Device::drop_silent_batches() {
  stats_.abandoned +=
      std::erase_if(batches_, [](const auto& batch) { return batch->silent && batch->over(); });
}

// Drops what matches and does not execute, then waits for what does.
void Device::abandon(const Match& match) {
  for (Queue& queue : queues_) stats_.abandoned += std::erase_if(queue.waiting, match);
  for (const auto& batch : batches_) {
    if (!match(batch->parent)) continue;
    batch->silent = true;
    stats_.abandoned += batch->ready.size();
    batch->ready.clear();
  }
  for (Engine& engine : engines_) {
    if (!engine.task || !match(*engine.task)) continue;
    engine.cancelled = true;
    if (!engine.executing) drop_task(engine);
  }
  drop_silent_batches();
  while (executes(match)) work_.wait_for(mutex_, kSleep);
}

// Whether nothing that matches is queued or in flight.
bool Device::over(const Match& match) const {
  const auto waits = [&](const Queue& queue) { return std::ranges::any_of(queue.waiting, match); };
  return std::ranges::none_of(queues_, waits) &&
         std::ranges::none_of(batches_, [&](const auto& batch) { return match(batch->parent); }) &&
         std::ranges::none_of(
             engines_, [&](const Engine& engine) { return engine.task && match(*engine.task); });
}

// The calling thread works, too, so that it ends without threads of the device. False: not within
// `bound`, or only time would change it and no thread waits for that.
bool Device::wait_until_over(const Match& match, Nanoseconds bound) {
  const Nanoseconds end = system_clock().now() + bound;
  while (!over(match)) {
    const Nanoseconds left = end - system_clock().now();
    if (left <= Nanoseconds{0}) return false;
    if (work_once(std::nullopt)) continue;
    if (!serving_ && !executes([](const Task&) { return true; })) return false;
    work_.wait_for(mutex_, std::min(left, kSleep));
  }
  return true;
}

// The kernel's driver waits for what the queue accepted, then resets it (drv_disable_wq).
void Device::disable(std::size_t queue) {
  const Match of_queue = [&](const Task& task) { return task.queue == queue; };
  const MutexLock lock(mutex_);
  queues_[queue].enabled = false;
  if (!wait_until_over(of_queue, kDisableBound)) abandon(of_queue);
}

void Device::enable(std::size_t queue) {
  const MutexLock lock(mutex_);
  queues_[queue].enabled = true;
}

bool Device::enabled(std::size_t queue) const {
  const MutexLock lock(mutex_);
  return !halted_ && queues_[queue].enabled;
}

void Device::halt() {
  const MutexLock lock(mutex_);
  halted_ = true;
  abandon([](const Task&) { return true; });
}

void Device::recover() {
  const MutexLock lock(mutex_);
  halted_ = false;
}

bool Device::halted() const {
  const MutexLock lock(mutex_);
  return halted_;
}

void Device::forget(AddressSpace& space) {
  const MutexLock lock(mutex_);
  abandon([&](const Task& task) { return task.space == &space; });
}

bool Device::drain(const AddressSpace& space, Nanoseconds bound) {
  const MutexLock lock(mutex_);
  return wait_until_over([&](const Task& task) { return task.space == &space; }, bound);
}

void Device::set_faults(const DeviceFaults& faults) {
  const MutexLock lock(mutex_);
  faults_ = faults;
}

std::size_t Device::occupancy(std::size_t queue) const {
  const MutexLock lock(mutex_);
  return queues_[queue].waiting.size();
}

bool Device::idle() const {
  const MutexLock lock(mutex_);
  return over([](const Task&) { return true; });
}

std::optional<Nanoseconds> Device::next_due() const {
  const MutexLock lock(mutex_);
  std::optional<Nanoseconds> next;
  for (const Engine& engine : engines_) {
    if (engine.task && !engine.executing && (!next || engine.due < *next)) next = engine.due;
  }
  return next;
}

DeviceStats Device::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace::emulator
