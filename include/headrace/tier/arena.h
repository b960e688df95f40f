// SPDX-License-Identifier: Apache-2.0
// Named heaps: what is placed is an object of the program ("index", "values"), not a page.
//
// In one run the arenas are watched, a plan is made of what was seen (a text, to be read and
// edited), and the next run allocates each arena where the plan says. It moves nothing while the
// program runs. docs/design/tier/arenas.md says what it rests on.
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

// What was seen of an arena.
struct ArenaUse {
  std::string name;
  Bytes most;  // the most memory it had at once
  // The share of its memory that was touched between two looks, over all looks: 0 to 1. It grows
  // with the time between looks, so it compares arenas of one run only.
  double heat = 0;
  std::size_t looks = 0;   // that saw any of it; heat means nothing without
  std::string why_unseen;  // why some or all of it was not seen; "" if all was
};

// What stands for a place in a plan where there is none.
inline constexpr std::string_view kNoPlace = "-";

// Where an arena goes.
struct ArenaPlace {
  std::string name;
  std::string place;  // as Placement::parse reads it: "hbm", "hbm:dram", "0-3"; "-": not placed
  Bytes most;         // as seen when the plan was made; for who reads it
  std::optional<double> heat = {};  // nothing: it was not seen
  std::string note = {};            // why some or all of it was not seen; a comment
  friend bool operator==(const ArenaPlace&, const ArenaPlace&) = default;
};

struct ArenaPlan {
  std::vector<ArenaPlace> arenas;  // the hottest first

  // A line for each arena: name, place, most bytes, heat ("-": it was not seen), and "# note".
  // parse() of it gives the same plan, with the heat to three digits and of a note one line.
  std::string to_text() const;
  // Lines may end as on other systems, and tabs are spaces. invalid: not such a text, with the
  // line; a name twice.
  static Result<ArenaPlan> parse(std::string_view text);

  friend bool operator==(const ArenaPlan&, const ArenaPlan&) = default;
};

// Memory that a plan may use.
struct ArenaTier {
  std::string place;  // as Placement::parse reads it
  Bytes room;         // for all arenas together; the last tier takes what is left, whatever it says
};

// Arenas by falling heat, each whole in the first tier that has room left for the most it had; what
// was never touched in the last. What was never seen (no looks) is not placed: it may be the
// hottest. `tiers`: the fastest first. invalid: no tiers, a place that is no word.
Result<ArenaPlan> plan_arenas(std::span<const ArenaUse> uses, std::span<const ArenaTier> tiers);

struct ArenasOptions {
  // Where arenas go; those it does not name or does not place, as `otherwise`.
  ArenaPlan plan = {};
  Placement otherwise = Placement::on(NodeKind::dram);
  // Watches them: a thread looks this often, each time for some 0.2 µs per page of memory. Nothing:
  // they are not watched, and cost what heaps cost.
  std::optional<Nanoseconds> look_every = {};
};

// The arenas of a process. A child of fork() goes on with its copy of each heap, unwatched.
//
// Thread-safe, except that it is closed by one thread after all others are done with it.
class Arenas {
 public:
  // Checks the whole plan: absent, invalid: a place that `machine` has not or that is none, with
  // the arena's name. invalid: look_every below 100 ms (with less a look sees little more, and the
  // program is slower). Watched: the errors of open_hotness for `referenced`, of which a process
  // has one.
  static Result<std::unique_ptr<Arenas>> open(const Machine& machine,
                                              const ArenasOptions& options = {});
  // Closes all heaps, with the objects that are still there.
  ~Arenas();

  // The arena's heap, opened when it is first asked for, and never moved. invalid: a name that is
  // not 1 to 64 letters, digits or any of _ . - / and :. Else the errors of Heap::open.
  Result<Heap*> heap(std::string_view name);

  // Looks now, as the thread does, after a look that is under way. unsupported: not watched;
  // exhausted: out of memory. Else the errors of HotnessSource::look and track; the next look goes
  // on. A look begins to track at most 4096 pieces of memory (what a heap takes from the system at
  // once), the next one more of them. Threads that allocate do not wait for it; one that gives
  // memory back waits, if at all, while just that piece is begun.
  Status look();

  // By name. Memory is seen from the first look after it was allocated to the last look.
  std::vector<ArenaUse> uses() const;

 private:
  class Inside;
  explicit Arenas(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace HEADRACE_API headrace
