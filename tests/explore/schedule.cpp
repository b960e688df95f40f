// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/schedule.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/explore/real.h"
#include "tests/explore/report.h"

namespace headrace::explore {

thread_local constinit Thread* current = nullptr;

namespace {

constinit Schedule* running_schedule = nullptr;

// Threads get these stacks in the order of their numbers, so that a thread's variables and its
// address are the same in each run of a schedule.
constexpr std::size_t kStack = 512 << 10;
// Threads that poll sleep for less; those that rely on a wake-up sleep longer.
constexpr Nanoseconds kLongestNap = std::chrono::milliseconds{1};

std::array<Thread, Schedule::kMostThreads>& all_threads() {
  static std::array<Thread, Schedule::kMostThreads>& threads = *[] {
    auto* const made = new std::array<Thread, Schedule::kMostThreads>;
    for (Thread& thread : *made) {
      void* const stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) std::abort();
      mprotect(stack, 4096, PROT_NONE);
      thread.stack = static_cast<std::byte*>(stack);
      thread.stack_bytes = kStack;
    }
    return made;
  }();
  return threads;
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  real_syscall(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAIT_PRIVATE, seen, 0, 0, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  real_syscall(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

// The runtime's own code is no part of the schedule.
class Outside {
 public:
  Outside() : self(std::exchange(current, nullptr)) {}
  ~Outside() { current = self; }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
  Thread* const self;
};

}  // namespace

std::string_view to_string(Op op) {
  constexpr std::array<std::string_view, 14> kNames = {
      "load", "store", "exchange", "fence", "heavy fence", "lock", "unlock",
      "wait", "wake",  "sleep",    "start", "join",        "end",  "drain"};
  return kNames[static_cast<std::size_t>(op)];
}

const std::uint64_t* StoreBuffer::find(const volatile void* at) const {
  for (std::size_t i = count_; i-- > 0;) {
    if (stores_[i].at == at) return &stores_[i].value;
  }
  return nullptr;
}

bool StoreBuffer::overlaps(const volatile void* at, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t i = 0; i < count_; ++i) {
    const auto other = reinterpret_cast<std::uintptr_t>(stores_[i].at);
    if (other < begin + bytes && begin < other + stores_[i].bytes) return true;
  }
  return false;
}

void StoreBuffer::drain_one() {
  const Store& oldest = stores_[0];
  const auto write = [&]<class T>(T value) { *static_cast<volatile T*>(oldest.at) = value; };
  switch (oldest.bytes) {
    case 1: write(static_cast<std::uint8_t>(oldest.value)); break;
    case 2: write(static_cast<std::uint16_t>(oldest.value)); break;
    case 4: write(static_cast<std::uint32_t>(oldest.value)); break;
    default: write(oldest.value);
  }
  std::copy(stores_.begin() + 1, stores_.begin() + static_cast<std::ptrdiff_t>(count_),
            stores_.begin());
  --count_;
}

Schedule::Schedule(const Settings& settings)
    : settings_(settings),
      random_(settings.seed),
      policy_(settings.policy, settings.length, random_) {
  // In some schedules time-outs pass while threads run, in others only when all sleep.
  constexpr std::array<Nanoseconds, 3> kSteps = {Nanoseconds{1}, Nanoseconds{100},
                                                 std::chrono::microseconds{2}};
  step_ = kSteps[random_.below(kSteps.size())];
  drain_ = std::uint64_t{4} << 3 * random_.below(3);
  steps_.reserve(4096);
}

Schedule* Schedule::running() { return running_schedule; }

void Schedule::await_turn(Thread& thread) {
  while (thread.go.load() == 0) futex_wait(thread.go, 0);
  thread.go = 0;
}

void Schedule::hand_over(Thread& next) {
  next.go = 1;
  futex_wake(next.go);
}

Thread& Schedule::add(void* (*body)(void*), void* argument) {
  const auto number = static_cast<unsigned>(threads_.size());
  if (number == kMostThreads) fail("a scenario may start at most 16 threads in all");
  Thread& thread = all_threads()[number];
  std::byte* const stack = thread.stack;
  thread.number = number;
  thread.state = Thread::State::runnable;
  thread.awaited = thread.woken = false;
  thread.sleeps_on = nullptr;
  thread.until = Nanoseconds::max();
  thread.at = nullptr;
  thread.depth = 0;
  thread.body = body;
  thread.argument = argument;
  thread.go = 0;
  thread.stack = stack;
  threads_.push_back(&thread);
  return thread;
}

int Schedule::create(Thread& thread) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, thread.stack + 4096, thread.stack_bytes - 4096);
  const int failed = real().create(&thread.handle, &attributes, &Schedule::enter, &thread);
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    std::fprintf(stderr, "cannot start a thread\n");
    std::abort();
  }
  runnable_ |= 1U << thread.number;
  ++alive_;
  return 0;
}

void* Schedule::enter(void* argument) {
  auto* const thread = static_cast<Thread*>(argument);
  // leave() runs as the destructor of this key, after those of thread-local variables.
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, &Schedule::leave);
    return made;
  }();
  pthread_setspecific(key, thread);
  await_turn(*thread);
  current = thread;
  return thread->body(thread->argument);
}

void Schedule::leave(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  Schedule& self = *running_schedule;
  self.point(Op::end, nullptr, nullptr);
  current = nullptr;
  thread.stores.drain();
  thread.state = Thread::State::ended;
  self.runnable_ &= ~(1U << thread.number);
  self.wake(&thread, kMostThreads);
  if (--self.alive_ == 0) {
    self.over_.store(1);
    futex_wake(self.over_);
    return;
  }
  self.hand_over(*self.choose());
}

void Schedule::run(const std::function<void()>& body) {
  running_schedule = this;
  watch_signals();
  Thread& root = add(
      [](void* argument) -> void* {
        (*static_cast<const std::function<void()>*>(argument))();
        return nullptr;
      },
      const_cast<std::function<void()>*>(&body));
  create(root);
  hand_over(root);
  while (over_.load() == 0) futex_wait(over_, 0);
  real().join(root.handle, nullptr);
  running_schedule = nullptr;
}

void Schedule::note(Op op, const volatile void* object, const void* at) {
  const std::uint8_t number = current_number_;
  steps_.push_back({number, op, object, at});
  now_ += step_;
  if (together_ > 0) ++together_steps_;
  if (steps_.size() > settings_.most_steps) {
    fail("no end after " + std::to_string(settings_.most_steps) +
         " operations: threads poll each other (livelock)");
  }
}

// The thread that goes on; the clock jumps if all sleep.
Thread* Schedule::choose() {
  if (buffered_ != 0 && random_.below(drain_) == 0) {
    // One store of one thread leaves its buffer.
    std::uint32_t left = buffered_;
    for (auto skip = random_.below(static_cast<std::uint64_t>(std::popcount(left))); skip > 0;
         --skip)
      left &= left - 1;
    const auto number = static_cast<unsigned>(std::countr_zero(left));
    StoreBuffer& stores = threads_[number]->stores;
    if (!stores.empty()) {
      stores.drain_one();
      hash_ = (hash_ ^ (number + 77)) * 0x9e3779b97f4a7c15;
    }
    if (stores.empty()) buffered_ &= ~(1U << number);
  }
  if (now_ >= next_timeout_) expire();
  while (runnable_ == 0) jump();
  const unsigned next = policy_.next(runnable_, current_number_, together_steps_);
  if (next != current_number_) {
    hash_ = (hash_ ^ (steps_.size() << 8 | next)) * 0x9e3779b97f4a7c15;
    ++switches_;
    current_number_ = static_cast<std::uint8_t>(next);
  }
  return threads_[next];
}

// Ends the sleeps whose time has come.
void Schedule::expire() {
  next_timeout_ = Nanoseconds::max();
  for (Thread* thread : threads_) {
    if (thread->state != Thread::State::asleep) continue;
    if (thread->until > now_) {
      next_timeout_ = std::min(next_timeout_, thread->until);
      continue;
    }
    thread->state = Thread::State::runnable;
    runnable_ |= 1U << thread->number;
  }
}

void Schedule::jump() {
  next_timeout_ = Nanoseconds::max();
  for (Thread* thread : threads_) {
    if (thread->state == Thread::State::asleep)
      next_timeout_ = std::min(next_timeout_, thread->until);
  }
  if (next_timeout_ == Nanoseconds::max()) fail("deadlock: every thread waits");
  // A thread of the library that naps polls on purpose, and may wake others.
  const bool polled = std::ranges::any_of(threads_, [](const Thread* thread) {
    return thread->state == Thread::State::asleep && !thread->awaited && thread->nap < kLongestNap;
  });
  for (const Thread* thread : threads_) {
    if (polled || thread->state != Thread::State::asleep || !thread->awaited) continue;
    if (thread->sleeps_in != Op::wait) continue;
    fail("lost wake-up: thread " + std::to_string(thread->number) +
         " waits, and only a time-out would wake any thread");
  }
  now_ = std::max(now_, next_timeout_);
  expire();
}

void Schedule::point(Op op, const volatile void* object, const void* at) {
  const Outside outside;
  Thread& self = *outside.self;
  self.at = at;
  note(op, object, at);
  Thread* const next = choose();
  if (next == &self) return;
  hand_over(*next);
  await_turn(self);
}

bool Schedule::sleep(Op op, const volatile void* object, Nanoseconds until, const void* at) {
  const Outside outside;
  Thread& self = *outside.self;
  self.stores.drain();
  self.at = at;
  self.sleeps_in = op;
  self.sleeps_on = object;
  self.until = until;
  self.nap = until - now_;
  self.woken = false;
  self.state = Thread::State::asleep;
  runnable_ &= ~(1U << self.number);
  next_timeout_ = std::min(next_timeout_, until);
  note(op, object, at);
  Thread* const next = choose();
  if (next != &self) {
    hand_over(*next);
    await_turn(self);
  }
  self.until = Nanoseconds::max();
  self.sleeps_on = nullptr;
  return self.woken;
}

unsigned Schedule::wake(const volatile void* object, unsigned most) {
  std::uint32_t found = 0;
  for (const Thread* thread : threads_) {
    if (thread->state == Thread::State::asleep && thread->sleeps_on == object) {
      found |= 1U << thread->number;
    }
  }
  unsigned woken = 0;
  while (found != 0 && woken < most) {
    std::uint32_t left = found;
    if (most < kMostThreads) {
      auto skip = random_.below(static_cast<std::uint64_t>(std::popcount(left)));
      for (; skip > 0; --skip) left &= left - 1;
    }
    Thread& thread = *threads_[static_cast<unsigned>(std::countr_zero(left))];
    found &= ~(1U << thread.number);
    thread.state = Thread::State::runnable;
    thread.woken = true;
    runnable_ |= 1U << thread.number;
    ++woken;
  }
  return woken;
}

int Schedule::start(pthread_t* handle, void* (*body)(void*), void* argument, const void* at) {
  {
    const Outside outside;
    outside.self->stores.drain();
    Thread& thread = add(body, argument);
    create(thread);
    *handle = thread.handle;
  }
  point(Op::start, nullptr, at);
  return 0;
}

Thread* Schedule::find(pthread_t handle) {
  for (Thread* thread : threads_) {
    if (pthread_equal(thread->handle, handle) != 0) return thread;
  }
  return nullptr;
}

void Schedule::drain_all() {
  for (Thread* thread : threads_) thread->stores.drain();
  buffered_ = 0;
}

void Schedule::yield(const void* at) {
  policy_.lower(current->number);
  point(Op::sleep, nullptr, at);
}

void Schedule::fail(const std::string& why) {
  current = nullptr;
  report(*this, why);
  std::fflush(stderr);
  _exit(1);
}

}  // namespace headrace::explore
