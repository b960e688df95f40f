// SPDX-License-Identifier: Apache-2.0
// Runs ordinary threads one at a time, under a clock of its own: production code in virtual time,
// or in the interleavings that a policy chooses.
//
//   Status outcome = sim::run({.seed = 7}, [](sim::Scheduler& turns) {  // in its main thread
//     headrace::Mover mover(machine, backends, {.clock = &turns, .waiting = &turns});
//     headrace::start_thread("reader", [&] { use(mover); });
//   });  // when all threads have ended
//
// - Threads run in turns. A thread runs until it waits for a word, a notification, the end of a
//   thread, or an event; it is never interrupted otherwise, except where a policy says so
//   (point()).
// - Time stands still while a thread can run. When none can, the clock jumps to the next event or
//   time-out. So code costs no virtual time; only waits do.
// - The same seed, policy and code give the same run.
//
// Threads belong to the scheduler if start_thread() started them in `body`, directly or not. They
// must not wait for anything outside: no thread of the scheduler would run meanwhile.
//
// All functions except stopping() and now() are for threads of the scheduler, and for the functions
// of an EventSource. These two are Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/turns/turns.h"
#include "headrace/clock.h"
#include "headrace/result.h"
#include "headrace/waiting.h"

namespace headrace::sim {

class Scheduler;

// A thread of a scheduler.
struct Thread {
  enum class State : std::uint8_t { ready, running, waiting, ended };
  std::string name;
  unsigned number = 0;  // in the order of their starts; 0: the one that runs the body
  State state = State::ready;
  std::thread::id id;

  // For the scheduler.
  const void* address = nullptr;  // that it expects; null: none
  const char* reason = "";        // why it waits
  Nanoseconds deadline = Nanoseconds::max();
  bool notified = false;
  std::atomic<std::uint32_t> turn{0};  // 1: it runs
};

// Chooses who runs.
class TurnPolicy {
 public:
  virtual ~TurnPolicy() = default;
  // Index in `ready` (never empty, in the order in which they became ready) of the next thread.
  virtual std::size_t next(std::span<Thread* const> ready) = 0;
  // Whether `running` gives its turn away at a schedule point, while others are ready. It is then
  // the last of `ready`.
  virtual bool yields(const Thread& running, std::span<Thread* const> ready) = 0;
  // Index in `waiting` (more than are notified, in the order in which they came) of the thread that
  // is notified. Default: the first.
  virtual std::size_t notified(std::span<Thread* const> /*waiting*/) { return 0; }
};

// First ready, first run; no thread gives its turn away: virtual time.
std::unique_ptr<TurnPolicy> fifo();

// Something outside threads that happens in virtual time: copies of engines, flows of bytes.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Called when no thread can run: the time of the next event, at least now(); max(): there is
  // none.
  virtual Nanoseconds next() = 0;
  // The clock has reached some source's next(), or a time-out. May call ready() and notify().
  virtual void advance(Nanoseconds now) = 0;
};

struct RunOptions {
  std::uint64_t seed = 1;
  std::unique_ptr<TurnPolicy> policy = {};  // default: fifo()
  // A run that reaches this virtual time ends with an error.
  Nanoseconds limit = std::chrono::hours{24};
  // A thread that keeps its turn for this time, by the system's clock, ends the run with an error.
  Nanoseconds longest_turn = std::chrono::minutes{2};
  // Called every 50 ms of real time by the thread that called run(), with the virtual time. True:
  // stopping() becomes true, and the body has `grace` of real time to end.
  std::function<bool(Nanoseconds)> stop = {};
  Nanoseconds grace = std::chrono::seconds{30};
};

class Scheduler final : public ThreadTurns, public Clock, public Waiting {
 public:
  Nanoseconds now() const override { return Nanoseconds{now_.load()}; }
  bool wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
            Nanoseconds timeout) override;
  void wake_all(const std::atomic<std::uint32_t>& word) override;

  std::function<void()> adopt(const char* name, std::function<void()> body) override;
  void started(std::thread::id thread) override;
  void await_end(std::thread::id thread) override;
  void expect(const void* address) override;
  bool await(Nanoseconds timeout) override;
  void notify(const void* address, std::size_t most) override;
  void sleep(Nanoseconds time) override;

  // The scheduler of the calling thread; null: none.
  static Scheduler* current() { return static_cast<Scheduler*>(ThreadTurns::current()); }
  Thread& self() { return *running_; }
  std::uint64_t seed() const { return options_.seed; }

  // Waits until another thread or an event calls ready(). `reason` says why in an error's text; it
  // must be a literal.
  void park(const char* reason);
  void ready(Thread& thread);
  // A point where the policy may give the turn to another thread.
  void point();
  // Lets all threads run that are ready.
  void yield();

  // A source lives until it is removed. Events of one time happen in the order of add().
  void add(EventSource& source);
  void remove(EventSource& source);

  // For a runtime that starts the threads itself, in place of adopt() and run(); an example is
  // tests/explore. A thread may run once it is enlisted, calls begin() first and end() last.
  explicit Scheduler(RunOptions options);
  std::shared_ptr<Thread> enlist(const char* name);
  void begin(Thread& thread);
  void end(const std::shared_ptr<Thread>& thread);
  // Gives the only enlisted thread its turn, and returns when all have ended. For a thread outside.
  // Errors: as of run().
  Status drive();
  // Time passes while threads run.
  void advance(Nanoseconds by);

  // Whether RunOptions::stop asked for the end.
  bool stopping() const { return stopping_.load(); }
  // How often the turn went to another thread.
  std::uint64_t switches() const { return switches_; }

 private:
  friend Status run(RunOptions options, std::function<void(Scheduler&)> body);
  struct Child;

  void take_part(const std::shared_ptr<Thread>& thread, std::function<void()>& body);
  void block(const char* reason, Nanoseconds deadline);
  void end_wait(Thread& thread);
  void leave_queue(Thread& thread);
  void expire(Nanoseconds time);
  void give_first_turn();
  Thread* choose();
  void give(Thread& from, Thread* to);
  void wait_for_turn(Thread& thread);
  void conclude(std::string error);
  std::string describe() const;
  Status watch();

  // Immutable after construction.
  const std::unique_ptr<TurnPolicy> policy_;
  const RunOptions options_;
  std::function<void(Scheduler&)> body_;

  // Touched only by the thread whose turn it is. Handing over the turn publishes them.
  std::map<unsigned, std::shared_ptr<Thread>> threads_;  // that have not ended
  std::unordered_map<std::thread::id, Thread*> by_id_;   // of them, those started
  Thread* adopted_ = nullptr;                            // the last one
  unsigned adoptions_ = 0;
  std::vector<Thread*> ready_;
  std::unordered_map<const void*, std::vector<Thread*>> waiters_;
  std::set<std::pair<Nanoseconds, unsigned>> timers_;  // by thread
  std::vector<EventSource*> sources_;
  Thread* running_ = nullptr;
  std::uint64_t switches_ = 0;
  std::uint64_t drawn_ = 0;    // draws.h
  std::exception_ptr thrown_;  // by the body
  std::string error_;          // written before finished_

  std::atomic<std::int64_t> now_{0};
  std::atomic<std::uint64_t> turn_{0};  // counts them
  std::atomic<unsigned> whose_{0};      // the number of the running thread
  std::atomic<bool> stopping_{false};
  std::atomic<bool> abandoned_{false};
  static constexpr std::uint32_t kEnded = 1;
  static constexpr std::uint32_t kFailed = 2;
  std::atomic<std::uint32_t> finished_{0};
};

// Runs `body` and the threads that it starts in turns, and returns when all have ended. What `body`
// throws is thrown again.
//
// Errors, after which threads that did not end stay parked for the rest of the process, with the
// scheduler and everything they use:
// - io: no thread can run and no event will happen: the message lists the threads and what each
//   waits for.
// - timed_out: the virtual time reached its limit, a thread kept its turn, or the body did not end
//   after stop().
// - exhausted: no thread could be started.
Status run(RunOptions options, std::function<void(Scheduler&)> body);

}  // namespace headrace::sim
