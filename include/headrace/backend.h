// SPDX-License-Identifier: Apache-2.0
// What touches the hardware: one interface for cores, SSD queues and accelerators, and the rules
// that all of them keep (tests/conformance).
//
// A backend copies pieces; it does not decide who copies what (place), when (move) or why (cache).
// Its Capabilities are facts, so that the deciders need not know its kind.
//
// Thread-safe, all of it. A child made by fork() needs backends of its own (docs/design/fork.md).
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

// One copy by one engine, or many. from and to have the same length and do not overlap.
struct Piece {
  Extent from;
  Extent to;
  EngineId engine;
  CopyHint hint = CopyHint::automatic;
  std::uint64_t tag = 0;  // the submitter's, handed back with the outcome
  // Becomes true when the piece should end early (Backend::cancel). Outlives the piece. Null:
  // never.
  const std::atomic<bool>* cancelled = nullptr;
  // Instead of one copy all of these, of which from and to are the first. Outlives the piece.
  PieceList* list = nullptr;
};

// Hears how each accepted piece ended. Called from any thread, also from inside submit() or
// poll(), holding no lock of the backend; must not block. It may submit again.
class Completion {
 public:
  virtual ~Completion() = default;
  // Exactly once per accepted piece. After it the backend touches neither side of the piece again.
  // On failure the bytes of `to` are unspecified.
  virtual void complete(std::uint64_t tag, Status outcome) noexcept = 0;
};

// Facts about a backend.
struct Capabilities {
  std::string_view name;          // "cpu", "storage", "fake"
  std::vector<EngineId> engines;  // those it drives
  Bytes max_piece;                // larger pieces are refused as invalid
  std::size_t max_in_flight = 1;  // pieces per engine; beyond it submit accepts fewer
  Bytes min_efficient;            // smaller pieces cost as much time as one of it
  // Largest pieces, and bytes in flight on each link, that keep a link between memories busy where
  // MoverOptions do not say otherwise. 0: as for any engine.
  Bytes piece;
  Bytes in_flight;
  Bytes inline_below;        // pieces below it are copied and reported in submit()
  bool may_reorder = false;  // completions may overtake each other
  bool may_fail = false;     // the hardware may refuse a piece that another could copy
  // Completions come by themselves. If not, somebody has to call poll().
  bool completes_itself = true;
  bool helps = false;  // a thread that waits gains by help()
  bool looks = false;  // a thread that waits gains by look()
  bool lists = false;  // copies lists between a GPU and memory (list())
  std::string note;    // in words: "io_uring, O_DIRECT, 64 registered buffers"
};

class Backend {
 public:
  // Waits (bounded) until nothing is in flight, ends its threads. Requires: no call is running.
  virtual ~Backend() = default;

  virtual const Capabilities& capabilities() const = 0;

  // What it does less well than its note says, found out since it was opened: a line for each, with
  // the reason. It copies without.
  virtual std::vector<std::string> degraded() const { return {}; }

  // Accepts the first n pieces (0 <= n <= size) and reports each later through `completion`, which
  // must outlive them. Never blocks: n is small when queues are full. An Error means that none was
  // accepted and that trying again is useless: invalid (an extent outside its object, lengths that
  // differ, too large), unsupported (not its engine, not its nodes). A piece of length 0 is
  // accepted and completes well.
  // std::bad_alloc: as exhausted, none was accepted.
  // Every accepted piece ends within a bound the backend knows (a lost one as timed_out), unless
  // the kernel itself hangs with its memory (a hard-mounted network file system).
  virtual Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) = 0;

  // Called after Piece::cancelled of pieces of `engine` was set, which may be before or after their
  // submission. They are reported as ever: as cancelled, unless the hardware was faster or cannot
  // stop. Never blocks, reports nothing itself, and may be called with locks held.
  virtual void cancel(EngineId /*engine*/) noexcept {}

  // Looks for completions, reports them and returns how many there were. Does nothing where
  // completes_itself.
  virtual std::size_t poll() { return 0; }

  // For a thread that has nothing to do but wait for a piece into `to`: sleeps at most `most` until
  // it ends, and reports it as poll() does. Returns 1 if it was reported here, and 0 at once if
  // this thread did not submit it or another thread reports it. Never needed, but such a piece may
  // end sooner and with less work than through a thread of the backend.
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

// The checks of submit() that are the same for every backend.
Status check_piece(const Capabilities& capabilities, const Piece& piece);

// The open backends of a machine, found by engine. Owns them.
class Backends {
 public:
  Backends() = default;
  Backends(Backends&&) = default;
  Backends& operator=(Backends&&) = default;
  // In the reverse of the order in which they came: one may use those before it.
  ~Backends();

  // Opens what drives the machine's engines here and now: cores, storage, and whatever else this
  // build and host have. Engines nobody drives are left out, each with a line in skipped().
  static Result<Backends> open(const Machine& machine);

  // Takes over a backend; its engines are routed to it, replacing earlier ones.
  void add(std::unique_ptr<Backend> backend);
  // The backend that drives `engine`; nullptr if none does.
  Backend* find(EngineId engine) const;
  std::span<const std::unique_ptr<Backend>> all() const { return backends_; }
  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<Backend*> by_engine_;  // index: raw(EngineId)
  std::vector<std::string> skipped_;
};

}  // namespace HEADRACE_API headrace
