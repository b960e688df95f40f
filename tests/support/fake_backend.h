// SPDX-License-Identifier: Apache-2.0
// A backend under a test's control: delays, partial acceptance, failures, reordering, refusal,
// completion inside submit(); by script or at random from a seed. Thread-safe. The same seed and
// the same calls give the same run (own_thread excepted).
//
// It really copies, memory to memory, at the last moment: until a piece completes its destination
// holds garbage, which exposes readers of unfinished data. It also checks its user: overlapping
// writes in flight are recorded in violations(). It drives no hardware, and files on request.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/backend.h"
#include "headrace/clock.h"
#include "headrace/random.h"

namespace headrace {

// The outcome of accepted piece number `number` (from 0, over all engines).
using FakeScript = std::function<Status(const Piece& piece, std::uint64_t number)>;

struct FakeOptions {
  std::string name = "fake";
  std::vector<EngineId> engines;
  Bytes max_piece = 64_MiB;
  std::size_t max_in_flight = 16;  // per engine
  std::uint64_t seed = 1;

  // A piece completes no earlier than `delay` plus a random part of `jitter` after its acceptance,
  // by `clock`, and no earlier than the poll after `polls` others.
  const Clock* clock = &system_clock();
  Nanoseconds delay{0};
  Nanoseconds jitter{0};
  unsigned polls = 0;
  bool reorder = false;  // completes due pieces in random order

  double inside_chance = 0;   // probability that a piece completes inside submit()
  double partial_chance = 0;  // probability that a submit() takes a random part, perhaps nothing
  double fail_chance = 0;     // probability that a piece fails
  FakeScript script;          // called for pieces that do not fail by chance

  bool files = false;       // copies between memory and files, too
  bool own_thread = false;  // completes_itself
  bool log = true;          // record accepted()
};

struct FakeStats {
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;
  std::uint64_t submits = 0;  // submit() calls
  std::uint64_t refused = 0;  // submit() calls that returned an Error
  std::uint64_t partial = 0;  // submit() calls that took fewer than offered
  Bytes bytes;                // copied
  std::map<EngineId, std::size_t> most_in_flight;
  std::map<std::pair<NodeId, NodeId>, Bytes> most_link_bytes;  // in flight at once, by (from, to)
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeOptions options);
  // Ends pieces in flight at once.
  ~FakeBackend() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override;
  std::size_t poll() override;

  // From now on submit() on `engine` returns this error; nullopt: accepts again.
  void refuse(EngineId engine, std::optional<Error> error);
  // From now on every piece of `engine` fails with this error; nullopt: none fails.
  void break_engine(EngineId engine, std::optional<Error> error);
  // The next `count` pieces accepted by `engine` fail with an io error.
  void fail_next(EngineId engine, unsigned count);
  // Every submit() takes at most `pieces`; nullopt: as many as fit.
  void accept_at_most(std::optional<std::size_t> pieces);
  // While held, neither poll() nor the own thread completes anything.
  void hold(bool held);
  // Completes the `count` oldest pieces now, even if held or not due. Returns their number.
  std::size_t finish(std::size_t count);

  FakeStats stats() const;
  std::size_t in_flight() const;
  // Whether a piece in flight writes to bytes of `extent`.
  bool writes_to(const Extent& extent) const;
  // All accepted pieces in order (FakeOptions::log).
  std::vector<Piece> accepted() const;
  // Errors of the user, one line each.
  std::vector<std::string> violations() const;

 private:
  struct Flight {
    Piece piece;
    Completion* completion;
    Status outcome;
    Nanoseconds due;
    unsigned polls_left;
    bool ending = false;  // a thread is completing it
  };
  struct EngineState {
    std::size_t in_flight = 0;
    unsigned fail_next = 0;
    std::optional<Error> refusal;
    std::optional<Error> broken;
  };

  struct State {
    explicit State(std::uint64_t seed) : random(seed) {}
    Mutex mutex;
    CondVar work;
    Random random GUARDED_BY(mutex);
    std::deque<std::shared_ptr<Flight>> flights GUARDED_BY(mutex);  // in order of acceptance
    std::map<EngineId, EngineState> engines GUARDED_BY(mutex);
    std::map<std::pair<NodeId, NodeId>, Bytes> link_bytes GUARDED_BY(mutex);
    std::optional<std::size_t> at_most GUARDED_BY(mutex);
    FakeStats stats GUARDED_BY(mutex);
    std::vector<Piece> accepted GUARDED_BY(mutex);
    std::vector<std::string> violations GUARDED_BY(mutex);
    bool held GUARDED_BY(mutex) = false;
    bool stopping GUARDED_BY(mutex) = false;
  };

  std::size_t acceptable(std::span<const Piece> pieces) REQUIRES(state_->mutex);
  std::shared_ptr<Flight> accept(const Piece& piece, Completion& completion)
      REQUIRES(state_->mutex);
  Status decide(const Piece& piece) REQUIRES(state_->mutex);
  void watch(const Piece& piece) REQUIRES(state_->mutex);
  std::vector<std::shared_ptr<Flight>> take_due() REQUIRES(state_->mutex);
  void end(Flight& flight) EXCLUDES(state_->mutex);
  void run();

  // Immutable after construction.
  const FakeOptions options_;
  Capabilities capabilities_;
  const Origin origin_;
  std::unique_ptr<State> state_;  // untouched in a child, where its locks may stay locked
  std::thread thread_;
};

}  // namespace headrace
