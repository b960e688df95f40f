// SPDX-License-Identifier: Apache-2.0
// Memory traffic of a chosen mix: how many lines are read for each that is written, and how.
//
// Each kernel is a loop of vector loads and stores over whole cache lines; a test counts the
// instructions that the compiler made of it. The usual mixes have loops of their own, of straight
// code; another one reads its lines and then writes its own, line by line. Each goes over memory at
// several places in turn (streams), and may prefetch: how many lines one core has on the way
// depends on both, and which is best on the CPU (traffic_race.h finds out). Counting: a line is 64
// bytes read or written once by the program (payload). A copy's payload counts once (the bytes
// copied), read + write twice (as STREAM counts). The bus carries more: a store to a line that no
// cache holds first fetches it (write-allocate), so that it costs two lines; a non-temporal store
// does not. Where the CPU avoids the fetch by itself (SpecI2M of recent Xeons, write streaming of
// ARM's Neoverse) the bus figure is too high; where it takes ARM's non-temporal stores (STNP) for
// plain ones, too low: it is arithmetic, not a counter. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/units.h"

namespace headrace::instruments {

// What is done per group of lines.
struct Mix {
  std::string_view name;  // "read", "write", "nt_write", "copy", "nt_copy", "2:1", ...
  unsigned reads = 0;     // lines
  unsigned writes = 0;
  bool non_temporal = false;
  bool copies = false;  // what is written is what was read

  unsigned lines() const { return reads + writes; }
  // Per line read or written.
  double payload_factor() const { return copies ? 0.5 : 1; }
  double bus_factor() const {
    const double bus = reads + writes * (non_temporal ? 1.0 : 2.0);
    return bus / lines();
  }
};

// Those that have a loop of their own, read first.
std::span<const Mix> mixes();
// The most lines that a mix reads and writes in turn.
inline constexpr unsigned kMostLines = 20;
// One of these, or so many lines read and then so many written, in lowest terms and kMostLines at
// most: "7:3", "nt_7:3". nullptr: no such mix. It lives as long as the program.
const Mix* find_mix(std::string_view name);
// Shares of reads in tenths, from reads alone to writes alone: with plain stores, and with stores
// around the caches. Over the bus the first read from all to half of it, since a store reads too,
// the second from all to nothing.
std::vector<const Mix*> mixes_by_share();

// The memory of one thread: reads from one part, writes to another. Both 64-byte aligned, sizes
// multiples of 4 KiB.
struct TrafficArea {
  std::span<const std::byte> from;  // empty if the mix reads nothing
  std::span<std::byte> to;          // empty if it writes nothing
};

// The areas of a mix within `memory`, in proportion to its lines.
TrafficArea divide(const Mix& mix, std::span<std::byte> memory);

// How a loop goes over its memory.
struct Shape {
  unsigned bits = 0;     // of its vectors; 0: the widest that this CPU has
  unsigned streams = 1;  // places far apart that it works at in turn, a group of lines at each
  unsigned ahead = 0;    // what it reads is prefetched so many bytes ahead; 0: not at all

  friend bool operator==(const Shape&, const Shape&) = default;
  // "avx512 x 2 streams, prefetch 512", "neon x 1 stream"
  std::string name() const;
};

struct LoopPlace;
using TrafficLoop = void (*)(const LoopPlace& place);

// One mix as a loop.
class TrafficKernel {
 public:
  // Vectors no wider than this CPU has.
  explicit TrafficKernel(const Mix& mix, Shape shape = {});

  const Mix& mix() const { return *mix_; }
  const Shape& shape() const { return shape_; }
  // The shape's; on ARM with the stores of a non-temporal mix: "neon x 1 stream, stnp".
  std::string name() const;

  // Runs over rounds [first, first + count) of the area, a group of each stream in each, and
  // returns the lines it read and wrote. Requires: first + count <= rounds(area).
  std::size_t run(const TrafficArea& area, std::size_t first, std::size_t count) const;
  // All of the area but less than two groups of each stream.
  std::size_t rounds(const TrafficArea& area) const;
  std::size_t lines_per_round() const;
  // Waits until non-temporal stores have left the core: before the clock is stopped.
  void finish() const;

 private:
  const Mix* mix_;
  Shape shape_;
  TrafficLoop loop_;
};

}  // namespace headrace::instruments
