// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/schedule.h"

#include <sys/mman.h>
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
  constexpr std::array<std::string_view, 15> kNames = {
      "load", "store", "exchange", "fence", "heavy fence", "lock",  "unlock", "wait",
      "wake", "sleep", "start",    "join",  "end",         "drain", "disk"};
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

// Asked when every thread sleeps.
class Schedule::Quiet final : public sim::EventSource {
 public:
  explicit Quiet(Schedule& schedule) : schedule_(schedule) {}
  Nanoseconds next() override {
    schedule_.check_wakeups();
    return Nanoseconds::max();
  }
  void advance(Nanoseconds) override {}

 private:
  Schedule& schedule_;
};

std::unique_ptr<Policy> Schedule::make_policy() {
  auto policy = std::make_unique<Policy>(settings_.policy, settings_.length, random_);
  policy_ = policy.get();
  return policy;
}

Schedule::Schedule(const Settings& settings)
    : settings_(settings),
      random_(settings.seed),
      turns_({.policy = make_policy(), .limit = Nanoseconds::max()}) {
  // In some schedules time-outs pass while threads run, in others only when all sleep.
  constexpr std::array<Nanoseconds, 3> kSteps = {Nanoseconds{1}, Nanoseconds{100},
                                                 std::chrono::microseconds{2}};
  step_ = kSteps[random_.below(kSteps.size())];
  drain_ = std::uint64_t{4} << 3 * random_.below(3);
  steps_.reserve(4096);
}

Schedule* Schedule::running() { return running_schedule; }

Thread& Schedule::add(void* (*body)(void*), void* argument) {
  if (threads_.size() == kMostThreads) fail("a scenario may start at most 16 threads in all");
  Thread& thread = all_threads()[threads_.size()];
  thread.turns = turns_.enlist("");
  thread.number = thread.turns->number;
  thread.ended = thread.awaited = false;
  thread.nap = {};
  thread.at = nullptr;
  thread.depth = 0;
  thread.body = body;
  thread.argument = argument;
  threads_.push_back(&thread);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, thread.stack + 4096, thread.stack_bytes - 4096);
  const int failed = real().create(&thread.handle, &attributes, &Schedule::enter, &thread);
  pthread_attr_destroy(&attributes);
  if (failed != 0) fail("the system allows no more threads");
  return thread;
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
  running_schedule->turns_.begin(*thread->turns);
  current = thread;
  return thread->body(thread->argument);
}

void Schedule::leave(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  Schedule& self = *running_schedule;
  self.point(Op::end, nullptr, nullptr);
  current = nullptr;
  thread.stores.drain();
  thread.ended = true;
  self.turns_.end(thread.turns);
}

void Schedule::run(const std::function<void()>& body) {
  running_schedule = this;
  watch_signals();
  Quiet quiet(*this);
  turns_.add(quiet);
  const Thread& root = add(
      [](void* argument) -> void* {
        (*static_cast<const std::function<void()>*>(argument))();
        return nullptr;
      },
      const_cast<std::function<void()>*>(&body));
  if (const Status ended = turns_.drive(); !ended) fail(ended.error().message);
  real().join(root.handle, nullptr);
  for (Thread* thread : threads_) thread->turns = nullptr;
  running_schedule = nullptr;
}

void Schedule::note(Op op, const volatile void* object, const void* at) {
  Thread& self = *threads_[turns_.self().number];
  self.at = at;
  steps_.push_back({static_cast<std::uint8_t>(self.number), op, object, at});
  policy_->count(together_ > 0);
  if (steps_.size() > settings_.most_steps) {
    fail("no end after " + std::to_string(settings_.most_steps) +
         " operations: threads poll each other (livelock)");
  }
  if (buffered_ != 0 && random_.below(drain_) == 0) drain_some();
  turns_.advance(step_);
}

// One store of one thread leaves its buffer.
void Schedule::drain_some() {
  std::uint32_t left = buffered_;
  auto skip = random_.below(static_cast<std::uint64_t>(std::popcount(left)));
  for (; skip > 0; --skip) left &= left - 1;
  const auto number = static_cast<unsigned>(std::countr_zero(left));
  StoreBuffer& stores = threads_[number]->stores;
  if (!stores.empty()) stores.drain_one();
  if (stores.empty()) buffered_ &= ~(1U << number);
}

void Schedule::check_wakeups() {
  const auto sleeps = [](const Thread* thread) {
    return !thread->ended && thread->turns->state == sim::Thread::State::waiting;
  };
  const bool may_end = std::ranges::any_of(threads_, [&](const Thread* thread) {
    return sleeps(thread) && thread->turns->deadline != Nanoseconds::max();
  });
  if (!may_end) fail("deadlock: every thread waits");
  // A thread of the library that naps polls on purpose, and may wake others.
  const bool polled = std::ranges::any_of(threads_, [&](const Thread* thread) {
    return sleeps(thread) && !thread->awaited && thread->nap < kLongestNap;
  });
  if (polled) return;
  for (const Thread* thread : threads_) {
    if (!sleeps(thread) || !thread->awaited || thread->sleeps_in != Op::wait) continue;
    fail("lost wake-up: thread " + std::to_string(thread->number) +
         " waits, and only a time-out would wake any thread");
  }
}

void Schedule::point(Op op, const volatile void* object, const void* at) {
  const Outside outside;
  note(op, object, at);
  turns_.point();
}

bool Schedule::sleep(Op op, const volatile void* object, Nanoseconds until, const void* at) {
  const Outside outside;
  Thread& self = *outside.self;
  self.stores.drain();
  const void* const address = const_cast<const void*>(object == nullptr ? &self : object);
  turns_.expect(address);
  note(op, object, at);
  self.sleeps_in = op;
  self.nap = until == Nanoseconds::max() ? until : until - now();
  const bool woken = turns_.await(self.nap);
  self.nap = {};
  return woken;
}

void Schedule::wake(const volatile void* object, std::size_t most) {
  const Outside outside;
  turns_.notify(const_cast<const void*>(object), most);
}

int Schedule::start(pthread_t* handle, void* (*body)(void*), void* argument, const void* at) {
  {
    const Outside outside;
    outside.self->stores.drain();
    *handle = add(body, argument).handle;
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
  const Outside outside;
  note(Op::sleep, nullptr, at);
  policy_->lower(outside.self->number);
  turns_.yield();
}

void Schedule::fail(const std::string& why) {
  current = nullptr;
  report(*this, why);
  std::fflush(stderr);
  _exit(1);
}

}  // namespace headrace::explore
