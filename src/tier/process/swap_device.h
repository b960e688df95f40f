// SPDX-License-Identifier: Apache-2.0
// The devices and files that the kernel swaps to, and how long a page takes from one. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/units.h"

namespace headrace {

struct SwapDevice {
  std::string path;
  Bytes size;
  Bytes used;
  int priority = 0;
  bool compressed() const { return path.starts_with("/dev/zram"); }
};

// Parses /proc/swaps; lines that are none are left out.
std::vector<SwapDevice> parse_swaps(std::string_view text);

// Those that pages go to next: of the highest priority that has space. All where none has.
std::vector<SwapDevice> next_in_turn(const std::vector<SwapDevice>& devices);

// Mean time of random reads of a page, past the page cache; takes at most 32 reads, and no further
// one after 100 ms. The mean, because many faults take the sum of their times. Nothing: it cannot
// be read so.
std::optional<Nanoseconds> time_of_read(const SwapDevice& device);

}  // namespace headrace
