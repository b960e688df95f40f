// SPDX-License-Identifier: Apache-2.0
// Named heaps, placed as a whole: each is an object of the program ("index", "values").
//
// The first run watches the arenas and makes a plan from their use: a text for people to read and
// edit. The next run allocates each arena as planned. Nothing moves while the program runs.
// Background: docs/design/tier/arenas.md.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/heap.h"
#include "headrace/machine.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/tier/hotness.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Observed use of an arena.
struct ArenaUse {
  std::string name;
  Bytes most;  // the peak of its memory
  // The share of its memory that was touched between two looks, averaged over all looks: 0 to 1. It
  // grows with the time between looks, so it compares only arenas of one run.
  double heat = 0;
  std::size_t looks = 0;   // that saw any of it; without looks, heat means nothing
  std::string why_unseen;  // why some or all of it was not seen; "" if all was
};

// A place in a plan's text for an arena without one.
inline constexpr std::string_view kNoPlace = "-";

// The planned place of an arena.
struct ArenaPlace {
  std::string name;
  std::string place;  // in the format of Placement::parse: "hbm", "hbm:dram", "0-3"; "-": none
  Bytes most;         // the peak seen for the plan; for people
  std::optional<double> heat = {};  // nothing: it was not seen
  std::string note = {};            // why some or all of it was not seen; a comment
  friend bool operator==(const ArenaPlace&, const ArenaPlace&) = default;
};

struct ArenaPlan {
  std::vector<ArenaPlace> arenas;  // the hottest first

  // A line per arena: name, place, most bytes, heat ("-": it was not seen), and "# note". parse()
  // of it returns the same plan, with three digits of heat and one line per note.
  std::string to_text() const;
  // Parses to_text(). Accepts line ends of other systems, and tabs as spaces. Errors: invalid, with
  // the line: another format; a repeated name.
  static Result<ArenaPlan> parse(std::string_view text);

  friend bool operator==(const ArenaPlan&, const ArenaPlan&) = default;
};

// Memory that a plan may use.
struct ArenaTier {
  std::string place;  // in the format of Placement::parse
  Bytes room;         // for all arenas together; the last tier takes the rest, whatever its room
};

// Assigns arenas by falling heat, each as a whole to the first tier with space for its peak.
// Untouched arenas are in the last tier. Arenas never seen (no looks) are not placed: they may be
// the hottest. `tiers`: fastest first. Errors: invalid: no tiers; a place that is not a word.
Result<ArenaPlan> plan_arenas(std::span<const ArenaUse> uses, std::span<const ArenaTier> tiers);

struct ArenasOptions {
  // The places of arenas. An arena that it does not name or place follows `otherwise`.
  ArenaPlan plan = {};
  Placement otherwise = Placement::on(NodeKind::dram);
  // Watches the arenas: a thread looks at this interval, for about 0.2 µs per page of memory each
  // time. Nothing: not watched, at the cost of heaps.
  std::optional<Nanoseconds> look_every = {};
};

// The arenas of a process. A child of fork() continues with its copy of each heap, unwatched.
//
// Thread-safe, except that one thread closes it after all other threads have finished with it.
class Arenas {
 public:
  // Opens the arenas and checks the whole plan. Errors of the plan name the arena. If watched, also
  // the errors of open_hotness for `referenced`, of which a process has one.
  // Errors: absent, invalid: a place that `machine` lacks or that has the wrong format; invalid:
  // look_every below 100 ms (looks would see little more and slow the program).
  static Result<std::unique_ptr<Arenas>> open(const Machine& machine,
                                              const ArenasOptions& options = {});
  // Closes all heaps, with all existing objects.
  ~Arenas();

  // The arena's heap, opened at the first request, and never moved. Errors: invalid: a name that is
  // not 1 to 64 letters, digits or any of _ . - / and :. Also the errors of Heap::open.
  Result<Heap*> heap(std::string_view name);

  // Looks now, like the thread, after a look in progress. A look begins to track at most 4096
  // pieces of memory (a piece is what a heap takes from the system at once); the next look
  // continues. Allocating threads do not wait for it. A thread that returns memory waits only while
  // tracking of that piece begins.
  // Errors: unsupported: not watched; exhausted: out of memory; and those of HotnessSource::look
  // and track. After an error the next look continues.
  Status look();

  // The use of all arenas, by name. Memory is seen from the first look after its allocation to the
  // last look.
  std::vector<ArenaUse> uses() const;

 private:
  class Inside;
  explicit Arenas(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace HEADRACE_API headrace
