// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"
#include "core/thread.h"
#include "core/turns/draws.h"
#include "core/waiting/duration.h"

namespace headrace::sim {
namespace {

constexpr Nanoseconds kForever = Nanoseconds::max();
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
// How often the thread that called run() looks.
constexpr Nanoseconds kWatch = std::chrono::milliseconds{50};
// Threads that an error lists.
constexpr std::size_t kListed = 16;

class Fifo final : public TurnPolicy {
 public:
  std::size_t next(std::span<Thread* const>) override { return 0; }
  bool yields(const Thread&, std::span<Thread* const>) override { return false; }
};

// The thread that runs again is the only one that waits for `turn`.
void wake(std::atomic<std::uint32_t>& turn) {
  turn.store(1);
  syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

Nanoseconds after(Nanoseconds now, Nanoseconds time) {
  return time >= kForever - now ? kForever : now + std::max(time, Nanoseconds{0});
}

}  // namespace

std::unique_ptr<TurnPolicy> fifo() { return std::make_unique<Fifo>(); }

Scheduler::Scheduler(RunOptions options)
    : policy_(options.policy ? std::move(options.policy) : fifo()), options_(std::move(options)) {}

// ---- threads

struct Scheduler::Child {
  Child(Scheduler& its, std::shared_ptr<Thread> started, std::function<void()> work)
      : scheduler(its), thread(std::move(started)), body(std::move(work)) {}
  ~Child() {
    if (ran) return;
    std::erase(scheduler.ready_, thread.get());
    scheduler.threads_.erase(thread->number);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Scheduler& scheduler;
  const std::shared_ptr<Thread> thread;
  std::function<void()> body;
  bool ran = false;
};

std::shared_ptr<Thread> Scheduler::enlist(const char* name) {
  auto thread = std::make_shared<Thread>();
  thread->name = name;
  thread->number = adoptions_++;
  threads_.emplace(thread->number, thread);
  ready_.push_back(thread.get());
  return thread;
}

void Scheduler::begin(Thread& thread) { wait_for_turn(thread); }

void Scheduler::end(const std::shared_ptr<Thread>& thread) {
  thread->state = Thread::State::ended;
  threads_.erase(thread->number);
  by_id_.erase(thread->id);
  notify(thread.get(), kAll);
  Thread* const next = choose();
  ThreadTurns::enter(nullptr);
  simulated_draws = nullptr;
  give(*thread, next);
}

std::function<void()> Scheduler::adopt(const char* name, std::function<void()> body) {
  auto thread = enlist(name);
  adopted_ = thread.get();
  auto child = std::make_shared<Child>(*this, std::move(thread), std::move(body));
  return [child = std::move(child)] {
    child->ran = true;
    child->scheduler.take_part(child->thread, child->body);
  };
}

void Scheduler::started(std::thread::id thread) {
  adopted_->id = thread;
  by_id_[thread] = adopted_;
}

// Runs the body in its turns. What the body captured is destroyed in its last turn.
void Scheduler::take_part(const std::shared_ptr<Thread>& thread, std::function<void()>& body) {
  ThreadTurns::enter(this);
  simulated_draws = &drawn_;
  begin(*thread);
  body();
  body = nullptr;
  end(thread);
}

void Scheduler::await_end(std::thread::id thread) {
  const auto found = by_id_.find(thread);
  if (found == by_id_.end()) return;
  expect(found->second);
  if (!running_->notified) block("the end of a thread", kForever);
}

// ---- waiting

bool Scheduler::wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                     Nanoseconds timeout) {
  CHECK(ThreadTurns::current() == this && "only threads of the scheduler wait in virtual time");
  if (word.load() != seen) return true;
  expect(&word);
  await(timeout);
  return word.load() != seen;
}

void Scheduler::wake_all(const std::atomic<std::uint32_t>& word) { notify(&word, kAll); }

void Scheduler::expect(const void* address) {
  running_->address = address;
  running_->notified = false;
  waiters_[address].push_back(running_);
}

bool Scheduler::await(Nanoseconds timeout) {
  Thread& me = *running_;
  if (!me.notified) {
    if (timeout > Nanoseconds{0}) {
      block("a notification", after(now(), timeout));
    } else {
      yield();
    }
    leave_queue(me);
  }
  return me.notified;
}

void Scheduler::notify(const void* address, std::size_t most) {
  const auto found = waiters_.find(address);
  if (found == waiters_.end()) return;
  auto& queue = found->second;
  for (; most > 0 && !queue.empty(); --most) {
    const std::size_t index = most < queue.size() ? policy_->notified(queue) : 0;
    Thread* const thread = queue[index];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
    thread->notified = true;
    thread->address = nullptr;
    end_wait(*thread);
  }
  if (queue.empty()) waiters_.erase(found);
}

void Scheduler::leave_queue(Thread& thread) {
  if (thread.address == nullptr) return;
  const auto found = waiters_.find(std::exchange(thread.address, nullptr));
  std::erase(found->second, &thread);
  if (found->second.empty()) waiters_.erase(found);
}

void Scheduler::sleep(Nanoseconds time) {
  if (time > Nanoseconds{0}) return block("a sleep", after(now(), time));
  yield();
}

void Scheduler::park(const char* reason) { block(reason, kForever); }

void Scheduler::ready(Thread& thread) { end_wait(thread); }

void Scheduler::end_wait(Thread& thread) {
  if (thread.state != Thread::State::waiting) return;
  if (thread.deadline != kForever) timers_.erase({thread.deadline, thread.number});
  thread.state = Thread::State::ready;
  ready_.push_back(&thread);
}

// ---- turns

void Scheduler::point() {
  if (ready_.empty() || !policy_->yields(*running_, ready_)) return;
  yield();
}

void Scheduler::yield() {
  Thread& me = *running_;
  me.state = Thread::State::ready;
  ready_.push_back(&me);
  give(me, choose());
}

void Scheduler::block(const char* reason, Nanoseconds deadline) {
  Thread& me = *running_;
  me.state = Thread::State::waiting;
  me.reason = reason;
  me.deadline = deadline;
  if (deadline != kForever) timers_.emplace(deadline, me.number);
  give(me, choose());
}

// Ends the waits whose time has come.
void Scheduler::expire(Nanoseconds time) {
  while (!timers_.empty() && timers_.begin()->first <= time) {
    end_wait(*threads_.at(timers_.begin()->second));
  }
}

void Scheduler::advance(Nanoseconds by) {
  // Relaxed; pairs with now(), which other threads call only for progress.
  now_.store((now() + by).count(), std::memory_order_relaxed);
  expire(now());
}

// The next thread to run. Null: all have ended, or none can ever run.
Thread* Scheduler::choose() {
  while (ready_.empty() && !threads_.empty()) {
    Nanoseconds next = timers_.empty() ? kForever : timers_.begin()->first;
    for (EventSource* source : sources_) next = std::min(next, source->next());
    if (!ready_.empty()) break;
    if (next == kForever) {
      conclude(fmt::format("no thread can run, and nothing will happen: {}", describe()));
      return nullptr;
    }
    if (next > options_.limit) {
      conclude(fmt::format("the simulated time reached its limit of {}: {}",
                           to_string(options_.limit), describe()));
      return nullptr;
    }
    const Nanoseconds time = std::max(next, now());
    now_.store(time.count());
    for (EventSource* source : sources_) source->advance(time);
    expire(time);
  }
  if (ready_.empty()) return nullptr;
  const std::size_t index = policy_->next(ready_);
  CHECK(index < ready_.size());
  Thread* const thread = ready_[index];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(index));
  return thread;
}

// Hands the turn over. Returns when `from` has it again, or at once if it has ended.
void Scheduler::give(Thread& from, Thread* to) {
  const bool ended = from.state == Thread::State::ended;
  if (to == nullptr) {
    if (threads_.empty()) conclude("");
    if (!ended) wait_for_turn(from);  // for ever
    return;
  }
  to->state = Thread::State::running;
  if (to == &from) return;
  running_ = to;
  ++switches_;
  ++turn_;
  whose_.store(to->number);
  wake(to->turn);
  if (!ended) wait_for_turn(from);
}

void Scheduler::wait_for_turn(Thread& thread) {
  // In an abandoned run a turn does not count.
  for (;;) {
    const std::uint32_t seen = thread.turn.load();
    if (seen != 0 && !abandoned_.load()) break;
    syscall(SYS_futex, &thread.turn, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
  thread.turn.store(0);
}

void Scheduler::add(EventSource& source) { sources_.push_back(&source); }

void Scheduler::remove(EventSource& source) { std::erase(sources_, &source); }

// ---- the run

void Scheduler::conclude(std::string error) {
  const bool failed = !error.empty();
  error_ = std::move(error);
  finished_.store(failed ? kFailed : kEnded);
  system_waiting().wake_all(finished_);
}

std::string Scheduler::describe() const {
  std::string text;
  std::size_t listed = 0;
  for (const auto& [number, thread] : threads_) {
    if (listed++ == kListed) {
      return fmt::format("{}, and {} more", text, threads_.size() - kListed);
    }
    if (!text.empty()) text += ", ";
    text += fmt::format("thread {} ({}) waits for {}", number, thread->name, thread->reason);
  }
  return text;
}

void Scheduler::give_first_turn() {
  running_ = std::exchange(ready_, {}).front();
  running_->state = Thread::State::running;
  wake(running_->turn);
}

Status Scheduler::drive() {
  give_first_turn();
  return watch();
}

// For the thread that called run().
Status Scheduler::watch() {
  std::uint64_t turn = 0;
  Nanoseconds since = system_clock().now();
  std::optional<Nanoseconds> stop_time;
  const auto give_up = [&](std::string why) -> Status {
    abandoned_ = true;
    return Unexpected(Error{ErrorCode::timed_out, std::move(why)});
  };
  while (!system_waiting().wait(finished_, 0, kWatch)) {
    const Nanoseconds time = system_clock().now();
    if (!stopping_ && options_.stop && options_.stop(now())) {
      stopping_ = true;
      stop_time = time;
    }
    if (stop_time && time - *stop_time > options_.grace) {
      return give_up(fmt::format("the run did not end within {} after it was stopped",
                                 to_string(options_.grace)));
    }
    if (std::exchange(turn, turn_.load()) != turn) since = time;
    if (time - since > options_.longest_turn) {
      return give_up(fmt::format(
          "thread {} has kept its turn for {}; does it wait for something that is not simulated?",
          whose_.load(), to_string(options_.longest_turn)));
    }
  }
  if (finished_.load() == kEnded) return {};
  return Unexpected(Error{now() >= options_.limit ? ErrorCode::timed_out : ErrorCode::io, error_});
}

Status run(RunOptions options, std::function<void(Scheduler&)> body) {
  CHECK(ThreadTurns::current() == nullptr && "a run inside a run");
  const auto scheduler = std::make_shared<Scheduler>(std::move(options));
  scheduler->body_ = std::move(body);
  auto main = scheduler->adopt("main", [scheduler] {
    try {
      scheduler->body_(*scheduler);
    } catch (...) {
      scheduler->thrown_ = std::current_exception();
    }
    scheduler->body_ = nullptr;
  });
  scheduler->give_first_turn();
  HEADRACE_TRY(std::thread thread, start_thread("headrace-sim", std::move(main)));
  if (Status ended = scheduler->watch(); !ended) {
    thread.detach();
    abandon(std::shared_ptr(scheduler));  // parked threads use it
    return ended;
  }
  thread.join();
  if (scheduler->thrown_) std::rethrow_exception(scheduler->thrown_);
  return {};
}

}  // namespace headrace::sim
