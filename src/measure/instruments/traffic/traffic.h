// SPDX-License-Identifier: Apache-2.0
// Memory traffic of a chosen mix: how many lines are read per written line, and how they are
// written. Thread-safe (no state).
//
// Each kernel is a loop of vector loads and stores over whole cache lines; a test counts its
// compiled instructions. The usual mixes have straight-code loops of their own; any other mix reads
// its lines and then writes its lines, one by one. A loop may work at several places in turn
// (streams), and may prefetch: both change how many lines a core has in flight, and the best choice
// depends on the CPU (traffic_race.h).
//
// Counting:
// - Payload: each 64-byte line that the program reads or writes counts once, and a copied line once
//   in all.
// - Read + write: a copied line counts twice, as in STREAM.
// - Bus: a store to an uncached line first fetches it (write-allocate) and counts two lines; a
//   non-temporal store counts one.
//
// The bus figure is arithmetic, not a counter. It is too high where the CPU avoids the fetch
// (SpecI2M of recent Xeons, write streaming of ARM's Neoverse). It is too low where the CPU treats
// ARM's non-temporal stores (STNP) as plain ones.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/units.h"

namespace headrace::instruments {

// The accesses per group of lines.
struct Mix {
  std::string_view name;  // "read", "write", "nt_write", "copy", "nt_copy", "2:1", ...
  unsigned reads = 0;     // lines
  unsigned writes = 0;
  bool non_temporal = false;
  bool copies = false;  // writes the lines that it read

  unsigned lines() const { return reads + writes; }
  // Bytes per line read or written.
  double payload_factor() const { return copies ? 0.5 : 1; }
  double bus_factor() const {
    const double bus = reads + writes * (non_temporal ? 1.0 : 2.0);
    return bus / lines();
  }
};

// The mixes with loops of their own; read is first.
std::span<const Mix> mixes();
// Maximum lines that a mix reads and writes in turn.
inline constexpr unsigned kMostLines = 20;
// A mix by name: one of mixes(), or "7:3" and "nt_7:3" for lines read, then written, in lowest
// terms, at most kMostLines. nullptr: no such mix. It lives as long as the program.
const Mix* find_mix(std::string_view name);
// Mixes by share of reads in tenths, from only reads to only writes: first with plain stores, then
// with stores around the caches. On the bus, the share of reads falls to a half with plain stores,
// which read too, and to zero with the others.
std::vector<const Mix*> mixes_by_share();

// The memory of one thread: it reads from one part and writes to another. Both are aligned to 64
// bytes, with sizes in multiples of 4 KiB.
struct TrafficArea {
  std::span<const std::byte> from;  // empty if the mix does not read
  std::span<std::byte> to;          // empty if it does not write
};

// Divides `memory` into areas of a mix, in proportion to its lines.
TrafficArea divide(const Mix& mix, std::span<std::byte> memory);
// The areas of several threads, one in each part of memory.
std::vector<TrafficArea> divide(const Mix& mix, const std::vector<std::span<std::byte>>& parts);
// Equal parts of whole pages, one per thread.
std::vector<std::span<std::byte>> equal_parts(std::span<std::byte> memory, std::size_t count);

// How a loop passes over its memory.
struct Shape {
  unsigned bits = 0;     // vector width; 0: the widest of this CPU
  unsigned streams = 1;  // distant places to work at in turn, one group of lines at each
  unsigned ahead = 0;    // prefetch distance of reads in bytes; 0: none

  friend bool operator==(const Shape&, const Shape&) = default;
  // "avx512 x 2 streams, prefetch 512", "neon x 1 stream"
  std::string name() const;
};

struct LoopPlace;
using TrafficLoop = void (*)(const LoopPlace& place);

// One mix as a loop.
class TrafficKernel {
 public:
  // Requires: vectors no wider than the CPU has.
  explicit TrafficKernel(const Mix& mix, Shape shape = {});

  const Mix& mix() const { return *mix_; }
  const Shape& shape() const { return shape_; }
  // The shape's name; on ARM with the stores of a non-temporal mix: "neon x 1 stream, stnp".
  std::string name() const;

  // Runs rounds [first, first + count) of the area, one group of each stream per round; returns the
  // lines read and written. Requires: first + count <= rounds(area).
  std::size_t run(const TrafficArea& area, std::size_t first, std::size_t count) const;
  // Rounds that cover the area, except for less than two groups per stream.
  std::size_t rounds(const TrafficArea& area) const;
  std::size_t lines_per_round() const;
  // Waits until non-temporal stores have left the core. Call it before the clock is stopped.
  void finish() const;

 private:
  const Mix* mix_;
  Shape shape_;
  TrafficLoop loop_;
};

}  // namespace headrace::instruments
