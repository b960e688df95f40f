// SPDX-License-Identifier: Apache-2.0
// The kernel's swap devices and files, and the read time of a page. Thread-safe.
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

// Parses /proc/swaps; skips lines that do not parse.
std::vector<SwapDevice> parse_swaps(std::string_view text);

// The devices that the kernel uses next: of the highest priority with free space; all if none has
// any.
std::vector<SwapDevice> next_in_turn(const std::vector<SwapDevice>& devices);

// Mean time of random page reads past the page cache. Takes at most 32 reads, and starts none after
// 100 ms. The mean, because many faults take the sum of their times. nullopt: not readable.
std::optional<Nanoseconds> time_of_read(const SwapDevice& device);

}  // namespace headrace
