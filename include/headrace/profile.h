// SPDX-License-Identifier: Apache-2.0
// A profile: a machine with what was measured on it, as one JSON document that is also the
// machine's; and what differs between two of them.
//
// A row is one point of one experiment: what was set (parameters), what came out (a summary over
// fresh mappings of memory, and further numbers), or why there is no number. Pure data.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/statistics.h"

namespace HEADRACE_API headrace {

// A number (nodes, threads, bytes, nanoseconds) or a word ("read", "huge").
using ParameterValue = std::variant<std::uint64_t, std::string>;

// What the number of a row rests on.
enum class Basis : std::uint8_t {
  measured,   // by Headrace, on the profile's machine
  modelled,   // computed by a model of a machine; such a row is never part of a profile
  published,  // quoted from others: Row::source says from whom
  emulated,   // by Headrace, on a device made of software: its speed says nothing
};
std::string_view to_string(Basis basis);

struct Row {
  std::string experiment;                                          // "latency"
  std::vector<std::pair<std::string, ParameterValue>> parameters;  // in the experiment's order
  std::string unit;                                                // of `value`: "ns", "B/s"
  std::optional<Summary> value;           // over `samples`; nothing: see `reason`
  std::vector<double> samples;            // one per mapping: the median of its repetitions
  std::vector<std::size_t> launches;      // how many samples each launch gave, in order; empty: one
  std::map<std::string, double> details;  // further numbers; the experiment says which and in what
  // Further words, of launches that differ all: "kernel", the loop that did it.
  std::map<std::string, std::string> words = {};
  // How it was measured. "noisy": while something else ran; "few": on fewer than three mappings;
  // "shrunk": in buffers smaller than the caches ask for, where memory is small or not free;
  // "cpu_limited": with fewer threads than CPUs, as a control group limits their time (cpu.max);
  // "side_cached": in buffers that a memory-side cache can hold, whose speed the number then is;
  // "cache_doubted": in buffers of 512 MiB, as the machine's word on its caches is not believed;
  // "partly_cached": in buffers that a cache holds in part, one larger than the machine shows;
  // "not_huge": asked for in huge pages, but not all of it was in them (detail "huge_part");
  // "unsteady": the bandwidth beside it still moved by more than 5 %, as the detail "drift" says;
  // "fitted": not quoted but drawn from a fit to published numbers (docs/design/published.md). Why
  // it was not: "absent": the machine has nothing to measure it on; "left_out": for want of time;
  // "stopped": by the user.
  std::vector<std::string> flags;
  Basis basis = Basis::measured;
  std::string reason;  // why there is no value
  // Where a published number comes from: who, where, and how if it was said. Empty: measured by
  // Headrace on the profile's machine. A published number has no samples, and its spread is not
  // known: the bounds of its summary are the number itself.
  std::string source;
  // The parameters, "cpu_node=1 memory_node=9", of points that were not
  // measured because their nodes are alike: of the same kinds, at the same
  // distance, on one socket or on two as these. "on=machine placed=near": it is all CPUs of a node
  // that is the machine, or its socket, for which there is no other row unless it is asked for.
  std::vector<std::string> stands_for = {};
  // The CPUs that its threads ran on, "0-3,8"; empty: they were not chosen, or by others.
  std::string cpus = {};

  // Experiment and parameters on one line, "latency cpu_node=0 memory_node=1 ...": the same for the
  // same point of two profiles.
  std::string key() const;
  // The parameter of that name; nullptr if there is none.
  const ParameterValue* parameter(std::string_view name) const;
  // The same as a number, nullptr if it is none; and as a word, "" if it is none.
  const std::uint64_t* number(std::string_view name) const;
  std::string_view word(std::string_view name) const;
  bool has_flag(std::string_view flag) const;
  void add_flag(std::string_view flag);  // once
};

struct Profile {
  Machine machine;
  std::vector<Row> rows;
  // How and when it was measured: date, version, seed, budget, what was left out, ...
  std::map<std::string, std::string> conditions;

  // Some of its numbers come from others.
  bool published() const;

  // As Machine::load: a path or a preset. A machine's JSON is a profile without rows. absent, io,
  // or invalid with the place.
  static Result<Profile> load(const std::string& path_or_preset);
  static Result<Profile> from_json(std::string_view text);
  std::string to_json() const;
  // Replaces the file at once: whoever reads it sees the old one or the new one. io, denied.
  Status save(const std::filesystem::path& path) const;
};

// One point of two profiles, or of several of each side.
struct Difference {
  enum class Outcome : std::uint8_t {
    same,     // within what it varies by itself
    changed,  // beyond it
    // The row changed by more than its own samples vary. But the rows of its experiment changed by
    // different amounts, which noise between two runs also causes. Not judged. Only with one run on
    // each side; compare several runs to decide.
    inconclusive,
    noisy,        // measured in a noisy moment, once on its side: not judged
    too_few,      // of several runs one on each side has it, as all of its experiment: not judged
    other_pages,  // not all in huge pages ("not_huge") on one side alone: not judged
    only_old,     // measured on one side alone
    only_new,
    unmeasured,  // on neither
  };
  std::string key;
  std::string unit;
  // True for latencies of buffers within the machine's largest cache and for copies with
  // state=hot. Cache rows are judged separately from memory rows.
  bool in_caches = false;
  Outcome outcome = Outcome::unmeasured;
  std::optional<double> old_value;  // of several runs the geometric mean
  std::optional<double> new_value;
  std::optional<double> ratio;  // new / old
  double threshold = 0;         // of |ln(ratio)|, above which it is a change
  std::size_t old_runs = 0;     // that these are of
  std::size_t new_runs = 0;
};

std::string_view to_string(Difference::Outcome outcome);

// All rows of one experiment together: a slow-down that no single row shows beyond its noise shows
// in the middle of many.
struct Shift {
  std::string experiment;
  bool in_caches = false;  // covers the cache rows, or all other rows
  std::size_t rows = 0;
  double ratio = 1;  // median of new / old
  double threshold = 0;
  bool changed = false;
};

struct Comparison {
  std::vector<Difference> rows;  // in the order of the old profiles, then what only new ones have
  std::vector<Shift> shifts;
  bool changed() const;
  // True if no change is certain and more than a tenth of the comparable rows are inconclusive.
  bool inconclusive() const;
  // How many rows were judged, and how many there were to judge: those with an old value. Where
  // few were, "nothing changed" says nothing.
  std::size_t judged() const;
  std::size_t expected() const;
};

struct CompareOptions {
  // No difference below this counts, however certain: 5 %.
  double least = 0.05;
  // Nor a shift of a whole experiment below this where each side has one run: on shared hosts
  // everything drifts together by some per cent within minutes (docs/design/compare.md).
  double least_shift = 0.08;
};

// Several launches of one measurement as one profile: all samples of a point together, and the
// interval over launches (statistics.h), since a process keeps the luck of where its memory lies; a
// launch in a noisy moment is left out where a quiet one is known. The machine learns from all
// rows. Budget, noise checks and rounds are added up; the other conditions are the first's, and
// their number is `launches`. invalid: none, or of two machines.
Result<Profile> merge(std::span<const Profile> launches);

// The test is stated in docs/design/compare.md. With several runs on a side, what runs differ by is
// what a difference is held against, and noisy rows are judged too. Best measured in turn: old,
// new, old, new. Requires: at least one profile on each side.
Comparison compare(std::span<const Profile> before, std::span<const Profile> after,
                   const CompareOptions& options = {});
Comparison compare(const Profile& before, const Profile& after, const CompareOptions& options = {});

}  // namespace HEADRACE_API headrace
