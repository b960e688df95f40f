// SPDX-License-Identifier: Apache-2.0
// The interface to copying hardware: cores, SSD queues and accelerators. All backends keep the same
// rules (tests/conformance).
//
// A backend copies pieces. It does not decide who copies which bytes (place), when (move) or why
// (cache). Capabilities are facts, so these layers need not know the kind of backend.
//
// Thread-safe. A child made by fork() needs its own backends (docs/design/fork.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/copy.h"
#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/object.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// One of many copies. Both sides have the same length and do not overlap.
struct MovePair {
  Extent to;
  Extent from;
};

// Many copies between memories that are one piece, for backends that say so (Backend::list). None
// writes to what another reads or writes. A backend that fails the piece marks the parts that
// failed; with no mark all of them did.
struct PieceList {
  std::span<const MovePair> parts;
  std::vector<std::uint8_t> failed = {};  // by part; not 0: it failed
};

// One copy by one engine, or many. `from` and `to` have the same length and do not overlap.
struct Piece {
  Extent from;
  Extent to;
  EngineId engine;
  CopyHint hint = CopyHint::automatic;
  std::uint64_t tag = 0;  // chosen by the submitter, returned with the outcome
  // Set to true to end the piece early (Backend::cancel). Must outlive the piece. Null: the piece
  // is never cancelled.
  const std::atomic<bool>* cancelled = nullptr;
  // Instead of one copy all of these, of which from and to are the first. Outlives the piece.
  PieceList* list = nullptr;
};

// Receives the outcome of each accepted piece. Called from any thread, also inside submit() or
// poll(), without a lock of the backend. Must not block; may submit again.
class Completion {
 public:
  virtual ~Completion() = default;
  // Called exactly once per accepted piece. Afterwards the backend touches neither side of the
  // piece. On failure the bytes of `to` are unspecified.
  virtual void complete(std::uint64_t tag, Status outcome) noexcept = 0;
};

// Facts about a backend.
struct Capabilities {
  std::string_view name;          // "cpu", "storage", "fake"
  std::vector<EngineId> engines;  // the engines it drives
  Bytes max_piece;                // larger pieces are refused as invalid
  std::size_t max_in_flight = 1;  // pieces per engine; beyond it submit accepts fewer
  Bytes min_efficient;            // a smaller piece takes as long as one of this size
  // Largest pieces, and bytes in flight on each link, that keep a link between memories busy where
  // MoverOptions do not say otherwise. 0: as for any engine.
  Bytes piece;
  Bytes in_flight;
  Bytes inline_below;  // pieces below it are copied and reported in submit()
  // Completions arrive without poll(). If false, some thread has to call poll().
  bool completes_itself = true;
  bool helps = false;  // a waiting thread gains by calling help()
  bool looks = false;  // a waiting thread gains by calling look()
  bool lists = false;  // copies lists between a GPU and memory (list())
  std::string note;    // for people: "io_uring, O_DIRECT, 64 registered buffers"
};

class Backend {
 public:
  // Waits, bounded, until nothing is in flight, and ends its threads. Requires: no call is running.
  virtual ~Backend() = default;

  virtual const Capabilities& capabilities() const = 0;

  // Functions of `note` found missing since the backend was opened, one line each with the reason.
  // The backend copies without them.
  virtual std::vector<std::string> degraded() const { return {}; }

  // Accepts the first n pieces (0 <= n <= size) and reports the outcome of each to `completion`,
  // which must outlive them. Never blocks: n is small when queues are full.
  //
  // A piece of length 0 is accepted and succeeds. Every accepted piece ends within a bound that the
  // backend knows; a lost one ends as timed_out. Exception: the kernel itself hangs with the
  // piece's memory (a hard-mounted network file system).
  //
  // An error means that no piece was accepted, and that a retry is useless; so does std::bad_alloc.
  // Errors: invalid: an extent outside its object, different lengths, a piece too large;
  // unsupported: an engine or node that is not this backend's.
  virtual Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) = 0;

  // Called after Piece::cancelled of pieces of `engine` was set, before or after their submission.
  // These pieces complete as usual: as cancelled, unless the hardware was faster or cannot stop.
  // Never blocks and completes nothing itself; may be called with locks held.
  virtual void cancel(EngineId /*engine*/) noexcept {}

  // Looks for completions, reports them and returns their number. Does nothing if completes_itself.
  virtual std::size_t poll() { return 0; }

  // Sleeps until a piece into `to` ends, at most `most`, and reports it as poll() does. For a
  // thread that only waits for this piece. Optional, but the piece may end sooner and with less
  // work than through a thread of the backend. Returns 1 if it reported the piece. Returns 0 at
  // once if this thread did not submit it or another thread reports it.
  virtual std::size_t help([[maybe_unused]] std::span<const std::byte> to,
                           [[maybe_unused]] Nanoseconds most) {
    return 0;
  }

  // How many of the first pairs `engine` copies as one piece of a list, of at most `most` bytes;
  // below 2: none. Each pair is valid, and between one pair of nodes.
  virtual std::size_t list(EngineId /*engine*/, std::span<const MovePair> /*pairs*/,
                           Bytes /*most*/) {
    return 0;
  }

  // For a thread that waits for a piece: looks for at most `most` whether pieces have ended, and
  // reports those. Never needed: the backend reports them itself, later by what it takes to wake
  // two threads.
  struct Look {
    std::size_t found = 0;                  // pieces reported here
    std::optional<Nanoseconds> again = {};  // when to look again; absent: sleep until woken
  };
  virtual Look look([[maybe_unused]] Nanoseconds most) { return {}; }
};

// The checks of submit() that all backends share.
Status check_piece(const Capabilities& capabilities, const Piece& piece);

// The open backends of a machine, by engine. Owns them.
class Backends {
 public:
  Backends() = default;
  Backends(Backends&&) = default;
  Backends& operator=(Backends&&) = default;
  // Destroys the backends in reverse order of add(): a backend may use earlier ones.
  ~Backends();

  // Opens the backends of the machine's engines: cores, storage, and all others of this build and
  // host. An engine without a backend is left out and has a line in skipped(). `machine` need not
  // outlive the call.
  static Result<Backends> open(const Machine& machine);

  // Takes ownership of a backend and routes its engines to it, in place of earlier backends.
  void add(std::unique_ptr<Backend> backend);
  // The backend of `engine`; nullptr: none.
  Backend* find(EngineId engine) const;
  std::span<const std::unique_ptr<Backend>> all() const { return backends_; }
  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<Backend*> by_engine_;  // index: raw(EngineId)
  std::vector<std::string> skipped_;
};

}  // namespace HEADRACE_API headrace
